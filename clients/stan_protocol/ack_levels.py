"""What an ack of a publish has meant: `PubAck.ack_level`, told to whoever asks for it. Pure."""

from enum import IntEnum


class AckLevel(IntEnum):
    """Where the message is when the ack is sent."""

    UNTOLD = 0  # by a server that does not tell it, or that finds the message in its log and does not know
    SYNCED = 1  # on the disks of a majority of the nodes that keep the channel; of a server alone, on its disk
    REPLICATED = 2  # in the memory of a majority, or in their page caches
    MEMORY = 3  # in the memory of a server alone, or in its page cache

    @property
    def word(self) -> str:
        """As operators read it."""
        return self.name.lower()


TOLD = (AckLevel.SYNCED, AckLevel.REPLICATED, AckLevel.MEMORY)
"""Those that an ack can tell."""

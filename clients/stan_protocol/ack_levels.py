"""The durability that an ack of a publish promises: `PubAck.ack_level`, sent on request. Pure."""

from enum import IntEnum


class AckLevel(IntEnum):
    """The place of the message when the ack is sent."""

    UNTOLD = 0  # by a server that does not report it, or that has the message in its log already and does not know
    SYNCED = 1  # on the disks of a majority of the nodes that keep the channel; of a server alone, on its disk
    REPLICATED = 2  # in the memory of a majority, or in their page caches
    MEMORY = 3  # in the memory of a server alone, or in its page cache

    @property
    def word(self) -> str:
        """The word for operators."""
        return self.name.lower()


TOLD = (AckLevel.SYNCED, AckLevel.REPLICATED, AckLevel.MEMORY)
"""Those that an ack can tell."""

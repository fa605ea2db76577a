"""The marks up to which limits, or damage of the log, have removed messages of one group's channels. For readers the sequences
below that have no message are lost, if they had not read them, and others are not: those that were compacted, have expired or
were deleted.

A component of the group's machine (see components.py), fed by committed entries alone. A channel whose first message nothing but
limits has moved has no row: everything below it went by limits. After damage a mark may lie among the messages of its channel;
other holes below it, which nothing distinguishes from lost ones, count as lost then.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from stan_protocol.scalars import ChannelUid

from stan.core.state.per_channel import PerChannel

SEQUENCE_BYTES: Final = 8


@dataclass(slots=True)
class RetentionMarks(PerChannel[int]):
    """The newest sequence that was lost. A row is that number, big-endian."""

    KIND: ClassVar[str] = "retention"

    def until(self, uid: ChannelUid, first: int) -> int:
        """Up to where messages of a channel that begins at *first* are lost; 0: none is."""
        return self.by_channel.get(uid, max(first - 1, 0))

    def moved(self, uid: ChannelUid, before: int, first: int, limited: int) -> None:
        """The beginning of a channel has moved from *before* to *first*. *limited*: the sequence below which limits have removed
        the messages; 0: it was not limits."""
        self._note(uid, first, max(self.until(uid, before), limited - 1))

    def lost(self, uid: ChannelUid, first: int, until: int) -> None:
        """Damage of the log has taken messages up to *until* of a channel that begins at *first*."""
        self._note(uid, first, max(self.until(uid, first), until))

    def _note(self, uid: ChannelUid, first: int, until: int) -> None:
        mark = None if until == max(first - 1, 0) else until
        if mark != self.by_channel.get(uid):
            self.put(uid, mark)

    def encode(self, state: int) -> bytes:
        """The row of a channel."""
        return state.to_bytes(SEQUENCE_BYTES)

    def decode(self, row: bytes) -> int:
        """The sequence that a row holds."""
        return int.from_bytes(row)

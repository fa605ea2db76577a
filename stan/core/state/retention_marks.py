"""The marks up to which limits have removed messages of one group's channels. For readers these messages are lost, if they had
not read them, and others are not: those that were compacted, have expired or were deleted.

A component of the group's machine (see components.py), fed by committed entries alone. A channel whose first message nothing but
limits has moved has no row: everything below it went by limits.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from stan_protocol.scalars import ChannelUid

from stan.core.state.per_channel import PerChannel

SEQUENCE_BYTES: Final = 8


@dataclass(slots=True)
class RetentionMarks(PerChannel[int]):
    """The newest sequence that limits have removed. A row is that number, big-endian."""

    KIND: ClassVar[str] = "retention"

    def until(self, uid: ChannelUid, first: int) -> int:
        """Up to where limits have removed messages of a channel that begins at *first*; 0: they have removed none."""
        return self.by_channel.get(uid, max(first - 1, 0))

    def moved(self, uid: ChannelUid, before: int, first: int, limited: int) -> None:
        """The beginning of a channel has moved from *before* to *first*. *limited*: the sequence below which limits have removed
        the messages; 0: it was not limits."""
        until = max(self.until(uid, before), limited - 1)
        mark = until if until < first - 1 else None
        if mark != self.by_channel.get(uid):
            self.put(uid, mark)

    def encode(self, state: int) -> bytes:
        """The row of a channel."""
        return state.to_bytes(SEQUENCE_BYTES)

    def decode(self, row: bytes) -> int:
        """The sequence that a row holds."""
        return int.from_bytes(row)

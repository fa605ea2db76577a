"""What the log of a group may leave out of a channel that is compacted by key."""

from dataclasses import dataclass
from typing import NamedTuple

from stan_protocol.scalars import RaftIndex, Sequence, WallNanos


class Compaction(NamedTuple):
    """A committed decision: of the messages up to `until` with the same key one is kept, or the newest ones, and the others may
    be left out. A node leaves them out when it rewrites its segments, so until then they may be read."""

    until: Sequence
    tombstones_until: Sequence = Sequence(0)  # up to here also the tombstone that is its key's newest message
    overdue_until: Sequence = Sequence(0)  # up to here they wait for no position any more
    keep_first: bool = False  # the oldest message of a key is kept, else the newest
    index: RaftIndex = RaftIndex(0)  # type: ignore[assignment] # hides tuple.index; of the entry that decided it
    earlier: int = (
        0  # so many messages of a key are kept besides its newest one; tombstones are messages like others then
    )


class CompactionState(NamedTuple):
    """How far the log of one node has got with a channel."""

    until: Sequence  # up to here there is one message of each key
    newest_tombstone: Sequence  # of those up to there that have stayed and could go; 0: there is none
    passes: int = 0  # over the channel, since the log was opened
    saved_bytes: int = 0  # bytes of records, as they were kept, that these passes have left out
    ended: WallNanos = WallNanos(0)  # when the broker was told of the last of them; 0: it was not


@dataclass(slots=True)
class CompactionTotals:
    """What compaction has done in a log since it was opened."""

    passes: int = 0
    saved_bytes: int = 0  # of files

"""Expiries: the messages of one group's channels that have a time to live, and when each expires.

A component of the group's machine (see components.py), fed by committed entries alone. Promises: a message is listed from the
entry that stores it to the one that removes it because it has expired, or until its channel has nothing so old any more; runs of
a channel are disjoint, in increasing order, and neighbours that expire together are one run. Times are whole Unix seconds.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from stan_protocol.scalars import ChannelUid

from stan.core.base.runs import pairs
from stan.protocol.proto import entries_pb2 as pb

UID_BYTES = 4
KEY_BYTES = 8


@dataclass(slots=True)
class ChannelExpiries:
    """What expires in one channel."""

    runs: dict[int, tuple[int, int]] = field(default_factory=dict)  # first -> last, when; in increasing order
    times: dict[int, set[int]] = field(default_factory=dict)  # when -> firsts
    order: list[int] = field(default_factory=list)  # the times, sorted

    @property
    def next(self) -> int:
        """When something expires next; 0: nothing does."""
        return self.order[0] if self.order else 0

    def add(self, first: int, last: int, at: int) -> int:
        """List [first, last], which lies behind all that is listed. Returns where the run begins that it is part of."""
        begin = next(reversed(self.runs), 0)
        if begin and self.runs[begin] == (first - 1, at):
            self.runs[begin] = (last, at)
            return begin
        self.put(first, last, at)
        return first

    def put(self, first: int, last: int, at: int) -> None:
        """List a run as it is."""
        self.runs[first] = (last, at)
        if at not in self.times:
            self.times[at] = set()
            insort(self.order, at)
        self.times[at].add(first)

    def take(self, first: int) -> tuple[int, int]:
        """Forget the run that begins there. Returns its last sequence, and when it was to expire."""
        last, at = self.runs.pop(first)
        self.times[at].discard(first)
        if not self.times[at]:
            del self.times[at]
            del self.order[bisect_left(self.order, at)]
        return last, at

    def due(self, until: int) -> list[int]:
        """Where the runs begin that expire at *until* or before, in increasing order."""
        found: list[int] = []
        for at in self.order:
            if at > until:
                break
            found += self.times[at]
        return sorted(found)


@dataclass(slots=True)
class Expiries:
    """What expires in the channels of a group. A row's key is the channel's uid and the first sequence of a run, big-endian; the
    row is a pb.Expiring."""

    KIND: ClassVar[str] = "expiring"

    dirty: set[bytes] = field(default_factory=set)
    by_channel: dict[ChannelUid, ChannelExpiries] = field(default_factory=dict)

    def pieces(self, uid: ChannelUid) -> int:
        """Number of runs of a channel."""
        here = self.by_channel.get(uid)
        return 0 if here is None else len(here.runs)

    def at(self, uid: ChannelUid, sequence: int) -> int:
        """When a message expires; 0: it does not, or is gone. Cost: O(runs)."""
        here = self.by_channel.get(uid)
        runs = here.runs.items() if here is not None else ()
        return next((at for first, (last, at) in runs if first <= sequence <= last), 0)

    # --- changes ----------------------------------------------------------------------------------------------------

    def add(self, change: pb.Expiring) -> int:
        """List the messages of an entry that expire. Returns how many runs there are in their channel."""
        uid = ChannelUid(change.uid)
        here = self.by_channel.setdefault(uid, ChannelExpiries())
        for (first, last), at in zip(pairs(change.runs), change.at, strict=True):
            self.dirty.add(_key(uid, here.add(first, last, at)))
        return len(here.runs)

    def trim(self, uid: ChannelUid, first: int) -> None:
        """Messages below *first* are gone: runs of such messages alone are forgotten."""
        here = self.by_channel.get(uid)
        if here is None:
            return
        gone = []
        for begin, (last, _) in here.runs.items():
            if last >= first:
                break
            gone.append(begin)
        for begin in gone:
            here.take(begin)
            self.dirty.add(_key(uid, begin))
        self._tidy(uid, here)

    def expire(self, uid: ChannelUid, until: int, upto: int) -> list[tuple[int, int]]:
        """Forget what expires at *until* (Unix seconds) or before, up to the sequence *upto*. Returns it as (first, last), in
        increasing order."""
        here = self.by_channel.get(uid)
        expired: list[tuple[int, int]] = []
        for first in here.due(until) if here is not None else ():
            if here is None or first > upto:
                break
            last, at = here.take(first)
            self.dirty.add(_key(uid, first))
            if last > upto:
                self._put_back(uid, here, upto + 1, last, at)
            expired.append((first, min(last, upto)))
        if here is not None:
            self._tidy(uid, here)
        return expired

    def _put_back(self, uid: ChannelUid, here: ChannelExpiries, first: int, last: int, at: int) -> None:
        here.put(first, last, at)
        here.runs = dict(sorted(here.runs.items()))
        self.dirty.add(_key(uid, first))

    def _tidy(self, uid: ChannelUid, here: ChannelExpiries) -> None:
        if not here.runs:
            del self.by_channel[uid]

    def drop_channel(self, uid: ChannelUid) -> None:
        """A channel is gone, and all that is listed of it."""
        here = self.by_channel.pop(uid, None)
        for first in here.runs if here is not None else ():
            self.dirty.add(_key(uid, first))

    # --- rows -------------------------------------------------------------------------------------------------------

    def keys(self) -> Iterable[bytes]:
        """The keys of all rows, one for each run."""
        return self._keys()

    def _keys(self) -> Iterator[bytes]:
        for uid, here in self.by_channel.items():
            for first in here.runs:
                yield _key(uid, first)

    def row(self, key: bytes) -> bytes | None:
        """The row of a run; None if none begins there."""
        uid, first = _place(key)
        here = self.by_channel.get(uid)
        if here is None or first not in here.runs:
            return None
        last, at = here.runs[first]
        return pb.Expiring(runs=(first, last), at=(at,)).SerializeToString()

    def load(self, key: bytes, state: bytes) -> None:
        """Take in one row; only before the first `apply`. Runs are kept in order, in whichever order their rows come."""
        uid, first = _place(key)
        row = pb.Expiring.FromString(state)
        here = self.by_channel.setdefault(uid, ChannelExpiries())
        out_of_order = first < next(reversed(here.runs), 0)
        here.put(first, row.runs[1], row.at[0])
        if out_of_order:
            here.runs = dict(sorted(here.runs.items()))


def _key(uid: ChannelUid, first: int) -> bytes:
    return uid.to_bytes(UID_BYTES) + first.to_bytes(KEY_BYTES)


def _place(key: bytes) -> tuple[ChannelUid, int]:
    return ChannelUid(int.from_bytes(key[:UID_BYTES])), int.from_bytes(key[UID_BYTES:])

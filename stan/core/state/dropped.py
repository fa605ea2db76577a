"""The channels that a group has dropped, as runs of their uids: later entries about one of them change nothing.

A component of the group's machine (see components.py). Uids are given out in rising order over all groups and never twice. The
runs of a group are short, as those between them are other groups'; so now and then its leader tells which uids are gone for all
groups (`GoneChannels`), which joins them: there are no more runs than channels that exist. A uid that is dropped is never
forgotten, so no leader has to know how old another one's copy of the metadata is.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from stan_protocol.scalars import ChannelUid, RaftIndex

from stan.core.base.runs import Run, Runs, pairs
from stan.core.state.per_channel import UID_BYTES
from stan.protocol.proto import entries_pb2 as pb


@dataclass(slots=True)
class DroppedChannels:
    """The dropped channels of a group. A row is a run: its key is the first uid, its value the last one, big-endian."""

    KIND: ClassVar[str] = "dropped"
    CHANGES: ClassVar[tuple[str, ...]] = ("gone_channels",)

    dirty: set[bytes] = field(default_factory=set)
    runs: Runs = field(default_factory=Runs)

    def __contains__(self, uid: int) -> bool:
        return uid in self.runs

    def apply(self, _name: str, change: pb.GoneChannels, _index: RaftIndex) -> object:
        """Channels are gone for all groups: none of them can come here."""
        for first, last in pairs(change.runs):
            self._add(first, last)
        return None

    def drop_channel(self, uid: ChannelUid) -> None:
        """The group has dropped a channel."""
        self._add(uid, uid)

    def _add(self, first: int, last: int) -> None:
        before = [run.first for run in self._touched(first, last)]
        self.runs.merge(Run(first, last))
        self.dirty.update(map(_bytes, before))
        self.dirty.update(_bytes(run.first) for run in self._touched(first, last))

    def _touched(self, first: int, last: int) -> list[Run]:
        """The runs that overlap [first, last] or its neighbours, as a whole."""
        found, at = [], max(first - 1, 1)
        while (run := self.runs.following(at)) is not None and run.first <= last + 1:
            found.append(run)
            at = run.last + 1
        return found

    def gaps(self, deleted: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """The parts of *deleted*, runs of channels that no group has any more, that lie below this group's newest dropped channel
        and are in none of its runs: they join these."""
        newest = self.runs.last
        return [
            part for first, last in deleted if first < newest for part in self.runs.missing(first, min(last, newest))
        ]

    def keys(self) -> Iterable[bytes]:
        """The first uid of each run."""
        return (_bytes(run.first) for run in self.runs)

    def row(self, key: bytes) -> bytes | None:
        """The last uid of the run that begins there; None if none does."""
        first = int.from_bytes(key)
        run = self.runs.following(first)
        return _bytes(run.last) if run is not None and run.first == first else None

    def load(self, key: bytes, state: bytes) -> None:
        """Take in one row; only before the first change."""
        self.runs.merge(Run(int.from_bytes(key), int.from_bytes(state)))


def _bytes(uid: int) -> bytes:
    return uid.to_bytes(UID_BYTES, "big")

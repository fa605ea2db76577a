"""Schedules: the messages of one group's streams that are to be published to another subject at a time, and when.

A component of the group's machine (see components.py), fed by committed entries alone. What is to be published is in the message
itself, and here is only when. Promises: a message is listed from the entry that stores it to the one that removes it, or that
stores another message of its subject which takes its place; of each subject one message is listed at most.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import ClassVar, NamedTuple

from stan_protocol.scalars import ChannelUid

from stan.protocol.proto import entries_pb2 as pb

UID_BYTES = 4


class Schedule(NamedTuple):
    """A message that is to be published to another subject."""

    sequence: int
    due: int  # Unix ns
    subject: bytes  # its own


@dataclass(slots=True)
class ChannelSchedules:
    """The schedules of one channel."""

    by_subject: dict[bytes, Schedule] = field(default_factory=dict)
    by_sequence: dict[int, Schedule] = field(default_factory=dict)  # in increasing order

    def put(self, schedule: Schedule) -> None:
        """List a schedule, or change when it is due; no other one of its subject is there."""
        self.by_subject[schedule.subject] = self.by_sequence[schedule.sequence] = schedule

    def forget(self, schedule: Schedule) -> None:
        """Forget a schedule."""
        del self.by_subject[schedule.subject], self.by_sequence[schedule.sequence]

    def within(self, first: int, last: int) -> list[Schedule]:
        """The schedules of [first, last]. Cost: O(schedules up to *last*), and O(last - first) at most."""
        known = self.by_sequence
        if last - first < len(known):
            return [known[at] for at in range(first, last + 1) if at in known]
        return [known[at] for at in takewhile(lambda at: at <= last, known) if at >= first]


@dataclass(slots=True)
class Schedules:
    """The schedules of a group. A row's key is the channel's uid and the message's sequence, big-endian; the row is a
    pb.Scheduled."""

    KIND: ClassVar[str] = "scheduled"

    dirty: set[bytes] = field(default_factory=set)
    by_channel: dict[ChannelUid, ChannelSchedules] = field(default_factory=dict)

    def of(self, uid: ChannelUid, sequence: int) -> Schedule | None:
        """The schedule with that sequence; None: there is none."""
        here = self.by_channel.get(uid)
        return None if here is None else here.by_sequence.get(sequence)

    def count(self, uid: ChannelUid) -> int:
        """Number of schedules of a channel."""
        here = self.by_channel.get(uid)
        return 0 if here is None else len(here.by_sequence)

    # --- changes ----------------------------------------------------------------------------------------------------

    def add(self, change: pb.Scheduled) -> None:
        """List the schedules of an entry, in the place of earlier ones of their subjects; one that is listed already has another
        time from now on."""
        uid = ChannelUid(change.uid)
        here = self.by_channel.setdefault(uid, ChannelSchedules())
        for sequence, due, subject in zip(change.sequences, change.dues, change.subjects, strict=True):
            before = here.by_subject.get(subject)
            if before is not None and (before.sequence != sequence or not due):
                self._forget(uid, here, before)
            if due:
                here.put(Schedule(sequence, due, subject))
                self.dirty.add(_key(uid, sequence))
        self._tidy(uid, here)

    def remove(self, uid: ChannelUid, runs: Iterable[tuple[int, int]]) -> None:
        """Messages of a channel, (first, last) each, are gone."""
        here = self.by_channel.get(uid)
        if here is not None:
            for first, last in runs:
                for gone in here.within(first, last):
                    self._forget(uid, here, gone)
            self._tidy(uid, here)

    def _forget(self, uid: ChannelUid, here: ChannelSchedules, schedule: Schedule) -> None:
        here.forget(schedule)
        self.dirty.add(_key(uid, schedule.sequence))

    def _tidy(self, uid: ChannelUid, here: ChannelSchedules) -> None:
        if not here.by_sequence:
            del self.by_channel[uid]

    def drop_channel(self, uid: ChannelUid) -> None:
        """A channel is gone, and all that is listed of it."""
        here = self.by_channel.pop(uid, None)
        self.dirty.update(_key(uid, sequence) for sequence in (here.by_sequence if here is not None else ()))

    # --- rows -------------------------------------------------------------------------------------------------------

    def keys(self) -> Iterable[bytes]:
        """The keys of all rows, one for each schedule."""
        return [_key(uid, sequence) for uid, here in self.by_channel.items() for sequence in here.by_sequence]

    def row(self, key: bytes) -> bytes | None:
        """The row of a schedule; None if it is gone."""
        found = self.of(*_place(key))
        return None if found is None else pb.Scheduled(dues=(found.due,), subjects=(found.subject,)).SerializeToString()

    def load(self, key: bytes, state: bytes) -> None:
        """Take in one row; only before the first change. Schedules are kept in order, in whichever order their rows come."""
        uid, sequence = _place(key)
        row = pb.Scheduled.FromString(state)
        here = self.by_channel.setdefault(uid, ChannelSchedules())
        out_of_order = sequence < next(reversed(here.by_sequence), 0)
        here.put(Schedule(sequence, row.dues[0], row.subjects[0]))
        if out_of_order:
            here.by_sequence = dict(sorted(here.by_sequence.items()))


def _key(uid: ChannelUid, sequence: int) -> bytes:
    return uid.to_bytes(UID_BYTES) + sequence.to_bytes(8)


def _place(key: bytes) -> tuple[ChannelUid, int]:
    return ChannelUid(int.from_bytes(key[:UID_BYTES])), int.from_bytes(key[UID_BYTES:])

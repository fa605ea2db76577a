"""Partitioned channels in the replicated metadata: which channels have parts, and where a message says to which it belongs.

    create_parted: the channel and all of its parts, in one entry ─► … ─► drop_parted: its parts are deleted ─► the last is gone
    double_parted: a doubling begins ─► part_closed: from each part's leader ─► with the last one there are twice as many parts

Fed by committed entries alone. Promises: while a channel has parts, there is no channel of its own name, in any case, and none
that is called like a part of it but its parts. Pure.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from stan_protocol import refusals
from stan_protocol.channels import folded, part_name, whole_of
from stan_protocol.parted import can_have_parts, key_path
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.refusals import (
    CHANNEL_DELETING,
    CHANNEL_EXISTS,
    DOUBLED_ALREADY,
    HAS_NO_PARTS,
    INVALID_KEY_PATH,
    NO_PARTS_POSSIBLE,
    NOT_SO_MANY_PARTS,
    PART_MOVING,
    TOO_MANY_CHANNELS,
    go_quote,
)
from stan_protocol.scalars import RaftIndex

from stan import limits
from stan.protocol.proto import entries_pb2 as pb

TOO_MANY_PARTED = refusals.TOO_MANY_PARTED.format(limits.PARTED_MAX)
NOT_THAT_MANY_PARTS = refusals.INVALID_PARTS.format(limits.PARTS_MAX)


class _Moving(Protocol):
    """What of a channel is looked at."""

    @property
    def move(self) -> int:
        """RaftIndex of the entry that has begun its move; 0: it is not moved."""


@dataclass(frozen=True, slots=True)
class Parted:
    """One channel that has parts."""

    name: bytes
    parts: int
    path: tuple[str, ...]  # where JSON data has the key of a message that comes without one
    row: pb.PartedChannel

    def names(self) -> list[bytes]:
        """The names of its parts."""
        return [part_name(self.name, number) for number in range(self.parts)]


@dataclass(slots=True)
class PartedChannels:
    """All channels that have parts."""

    KIND: ClassVar[str] = "parted"
    by_name: dict[bytes, Parted] = field(default_factory=dict)
    by_part: dict[bytes, tuple[Parted, int]] = field(default_factory=dict)
    by_lower: dict[bytes, bytes] = field(default_factory=dict)  # names in lower case
    dirty: set[bytes] = field(default_factory=set)

    def whole(self, name: bytes) -> bytes:
        """The channel that a part belongs to; *name* itself if it is no part."""
        found = self.by_part.get(name)
        return name if found is None else found[0].name

    def part_of(self, name: bytes) -> admin.PartOf | None:
        """Of which channel a channel is a part, as operators are told; None: it is none."""
        found = self.by_part.get(name)
        if found is None:
            return None
        (whole, number), row = found, found[0].row
        split = row.splits[-1] if row.splits else None
        return admin.PartOf(
            channel=whole.name,
            number=number,
            parts=whole.parts,
            before=split.last[number] if split is not None and number < split.parts else 0,
            doubling=row.doubling_at,
            closed=bool(row.doubling and row.closed[number]),
        )

    def reserves(self, name: bytes) -> bytes:
        """The channel with parts because of which no other channel may be called *name*; b"": there is none."""
        if not self.by_name or name in self.by_part:
            return b""
        lower = folded(name)
        return self.by_lower.get(lower) or self.by_lower.get(whole_of(lower)) or b""

    def take(self, row: pb.PartedChannel) -> None:
        """Take in one row, in place of the one of the same channel."""
        made = Parted(row.name, row.parts, key_path(row.key) or (), row)
        self.by_name[row.name] = made
        self.by_lower[folded(row.name)] = row.name
        self.by_part |= {name: (made, number) for number, name in enumerate(made.names())}
        self.dirty.add(row.name)

    def _changed(self, name: bytes) -> pb.PartedChannel:
        """A copy of a channel's row, to be changed and taken in."""
        row = pb.PartedChannel()
        row.CopyFrom(self.by_name[name].row)
        return row

    def drop(self, name: bytes) -> None:
        """All parts of a channel are to be deleted."""
        row = self._changed(name)
        row.dropping = True
        self.take(row)

    def begin_doubling(self, change: pb.DoubleParted, index: RaftIndex) -> None:
        """The parts of a channel are to be doubled."""
        row = self._changed(change.name)
        row.doubling, row.doubling_at = index, change.at
        row.new_groups[:] = change.groups
        row.closed[:] = [0] * row.parts
        self.take(row)

    def close_part(self, change: pb.PartClosed) -> bool:
        """A part takes nothing more; True if that was the last one, so that there are twice as many parts now. Said for another
        doubling, or again, it changes nothing."""
        known = self.by_name.get(change.name)
        if known is None or not change.doubling or known.row.doubling != change.doubling:
            return False
        if change.part >= known.parts or known.row.closed[change.part]:
            return False
        row = self._changed(change.name)
        row.closed[change.part] = change.last + 1
        done = all(row.closed)
        if done:
            row.splits.add(parts=row.parts, last=[last - 1 for last in row.closed])
            row.parts *= 2
            _settle(row)
        self.take(row)
        return done

    def end_doubling(self, change: pb.DoublingEnded) -> bool:
        """A doubling is given up; False if it is not under way."""
        known = self.by_name.get(change.name)
        if known is None or not change.doubling or known.row.doubling != change.doubling:
            return False
        row = self._changed(change.name)
        _settle(row)
        self.take(row)
        return True

    def lose(self, part: bytes, channels: Container[bytes]) -> None:
        """A channel was removed from the registry, which has *channels* left; with its last part a channel is gone."""
        found = self.by_part.get(part)
        if found is None or any(name in channels for name in found[0].names()):
            return
        gone, _ = found
        for name in gone.names():
            del self.by_part[name]
        del self.by_name[gone.name], self.by_lower[folded(gone.name)]
        self.dirty.add(gone.name)

    # --- rows -----------------------------------------------------------------------------------------------------

    def take_changed_rows(self) -> list[tuple[str, bytes, bytes | None]]:
        """Return kind, key and row of what has changed since the last call; None: the channel is gone."""
        dirty, self.dirty = sorted(self.dirty), set()
        return [
            (self.KIND, name, found.row.SerializeToString() if (found := self.by_name.get(name)) else None)
            for name in dirty
        ]

    def touch_all(self) -> None:
        """All rows are to be written again."""
        self.dirty |= self.by_name.keys()

    def snapshot(self, snapshot: pb.Snapshot) -> None:
        """Write all rows into *snapshot*, in an order that depends on the state alone."""
        for name in sorted(self.by_name):
            snapshot.parts.add(kind=self.KIND, key=name, state=self.by_name[name].row.SerializeToString())

    def load(self, state: bytes) -> None:
        """Take in one row of the state."""
        row = pb.PartedChannel.FromString(state)
        self.take(row)
        self.dirty.discard(row.name)


def _settle(row: pb.PartedChannel) -> None:
    """The doubling that is under way has ended."""
    row.settled, row.doubling, row.doubling_at = row.doubling, 0, 0
    del row.closed[:], row.new_groups[:]


def doubling_refusal(change: pb.DoubleParted, parted: PartedChannels, channels: Mapping[bytes, _Moving]) -> str:
    """Why the parts of a channel cannot be doubled; "" if they can. *channels*: all channels by name."""
    known = parted.by_name.get(change.name)
    if known is None:
        return HAS_NO_PARTS.format(_shown(change.name))
    number = known.parts
    checks = (
        (known.row.dropping, CHANNEL_DELETING),
        (known.row.doubling > 0, DOUBLED_ALREADY),
        (len(change.groups) != number, NOT_SO_MANY_PARTS.format(_shown(change.name), number)),
        (2 * number > limits.PARTS_MAX, NOT_THAT_MANY_PARTS),
        (any(channels[name].move for name in known.names() if name in channels), PART_MOVING),
        (bool(change.channels_max) and len(channels) + number > change.channels_max, TOO_MANY_CHANNELS),
    )
    return next((error for wrong, error in checks if wrong), "")


def refusal(create: pb.CreateParted, parted: PartedChannels, channels: Mapping[bytes, bytes]) -> str:
    """Why a channel cannot be made with its parts; "" if it can. *channels*: names of all channels, by their lower case."""
    number = len(create.groups)
    names = [create.name, *(part_name(create.name, at) for at in range(number))]
    there = next((channels[lower] for name in names if (lower := folded(name)) in channels), None)
    other = parted.by_lower.get(folded(create.name))
    checks = (
        (not 1 < number <= limits.PARTS_MAX, NOT_THAT_MANY_PARTS),
        (not can_have_parts(create.name), NO_PARTS_POSSIBLE),
        (key_path(create.key) is None, INVALID_KEY_PATH),
        (other is not None, CHANNEL_EXISTS.format(_shown(other or b""))),
        (there is not None, CHANNEL_EXISTS.format(_shown(there or b""))),
        (len(parted.by_name) >= limits.PARTED_MAX, TOO_MANY_PARTED),
        (bool(create.channels_max) and len(channels) + number > create.channels_max, TOO_MANY_CHANNELS),
    )
    return next((error for wrong, error in checks if wrong), "")


def _shown(name: bytes) -> str:
    return go_quote(name.decode("utf-8", "surrogateescape"))

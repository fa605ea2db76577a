"""Bookmarks of one group: named positions in channels, which clients set and read; delivery does not depend on them.

A component of the group's machine (see components.py), fed by committed entries alone. Promises: a group has at most
BOOKMARKS_MAX bookmarks; each user has names of its own; when a channel is deleted, its bookmarks are, too. The position of a
consumer group has a generation: a smaller one sets nothing (so an earlier owner cannot), and the position never goes back. The
position of a tier (see publishing/tiers.py) has what was purged or deleted of its channel, until its owner says that it has heard
of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from stan_protocol.refusals import OUTDATED_GENERATION, TOO_MANY_BOOKMARKS, TOO_MANY_DELETED
from stan_protocol.scalars import ChannelUid, RaftIndex

from stan import limits
from stan.core.base.runs import Run, Runs, from_flat, pairs
from stan.core.base.shares import Shares, of_user, of_whom
from stan.protocol.proto import entries_pb2 as pb

UID_BYTES, SEQUENCE_BYTES = 4, 8
"""A row's key is the channel's uid and the name; the row is the sequence, and what follows it in NotedPlace up to the last number
that is not 0. All numbers are big-endian."""


class NotedPlace(NamedTuple):
    """Where a bookmark is."""

    sequence: int  # the next one to be read
    generation: int = 0  # 0: it is no consumer group's
    removals: int = 0  # how often something was removed that its owner had to hear of
    removed: tuple[int, ...] = ()  # what it has not said to have heard of: first, last, ... of runs


@dataclass(slots=True)
class Bookmarks:
    """The bookmarks of a group, by channel and name."""

    KIND: ClassVar[str] = "bookmarks"
    CHANGES: ClassVar[tuple[str, ...]] = ("bookmark",)
    dirty: set[bytes] = field(default_factory=set)
    by_channel: dict[ChannelUid, dict[bytes, NotedPlace]] = field(
        default_factory=dict
    )  # by uid and name, see `of_user`
    shares: Shares = field(default_factory=Shares)  # bookmarks, by user

    def apply(self, _name: str, change: pb.Bookmark, _index: RaftIndex) -> str:
        """Set a bookmark, or remove it if the change has no sequence. Returns why it was not set, or ""."""
        uid, name = ChannelUid(change.uid), of_user(change.user, change.name)
        of_channel = self.by_channel.get(uid, {})
        known = of_channel.get(name)
        if (
            known is None and change.user and change.name in of_channel
        ):  # from before there were users: it is this user's now
            known = self._remove(uid, change.name)
            self._set(uid, name, known)
            self.dirty.add(_key(uid, name))
            of_channel = self.by_channel[uid]
        if known is not None and change.generation < known.generation:
            return OUTDATED_GENERATION
        if not change.sequence:
            if known is not None:
                self._remove(uid, name)
            return ""
        if known is None and self.shares.used >= limits.BOOKMARKS_MAX:
            return TOO_MANY_BOOKMARKS
        place = NotedPlace(change.sequence, change.generation)
        if known is not None and change.generation:
            place = NotedPlace(
                known.sequence if change.claim else max(known.sequence, change.sequence), change.generation
            )
        if known is not None:
            heard = change.taken >= known.removals
            place = place._replace(removals=known.removals, removed=() if heard else known.removed)
        self._set(uid, name, place)
        self.dirty.add(_key(uid, name))
        return ""

    def refuses(self, change: pb.Removal) -> str:
        """Why the owner of a position cannot be told of a removal; "" if it can, or need not."""
        known = self.by_channel.get(ChannelUid(change.uid), {}).get(change.tier) if change.tier else None
        if known is None or self._removed(known, change).pieces <= limits.DELETED_RUNS_MAX:
            return ""
        return TOO_MANY_DELETED

    def note_removal(self, change: pb.Removal) -> None:
        """Messages of a channel are removed: the owner of the position that the removal names is to hear of it."""
        uid = ChannelUid(change.uid)
        known = self.by_channel.get(uid, {}).get(change.tier) if change.tier else None
        if known is not None:
            removed = tuple(self._removed(known, change).flat())
            self._set(uid, change.tier, known._replace(removals=known.removals + 1, removed=removed))
            self.dirty.add(_key(uid, change.tier))

    def _removed(self, known: NotedPlace, change: pb.Removal) -> Runs:
        runs = from_flat(known.removed)
        if change.first_sequence > 1:
            runs.merge(Run(1, change.first_sequence - 1))
        for first, last in pairs(change.deleted):
            runs.merge(Run(first, last))
        return runs

    def floors(self, uid: ChannelUid) -> list[tuple[int, bytes]]:
        """The last sequence that each position of a channel has behind it, and its name."""
        return [(place.sequence - 1, of_whom(name)[1]) for name, place in self.by_channel.get(uid, {}).items()]

    def drop_channel(self, uid: ChannelUid) -> None:
        """Remove the bookmarks of a channel that is gone."""
        for name in list(self.by_channel.get(uid, ())):
            self._remove(uid, name)

    def keys(self) -> Iterable[bytes]:
        """The keys of all rows, one per bookmark."""
        return [_key(uid, name) for uid, of_channel in self.by_channel.items() for name in of_channel]

    def row(self, key: bytes) -> bytes | None:
        """The row of a bookmark; None if it is gone."""
        uid, name = _parts(key)
        place = self.by_channel.get(uid, {}).get(name)
        if place is None:
            return None
        numbers = (*place[:3], *place.removed)
        while len(numbers) > 1 and not numbers[-1]:
            numbers = numbers[:-1]
        return b"".join(number.to_bytes(SEQUENCE_BYTES, "big") for number in numbers)

    def load(self, key: bytes, state: bytes) -> None:
        """Take in the row of one bookmark; only before the first `apply`."""
        numbers = [state[at : at + SEQUENCE_BYTES] for at in range(0, len(state), SEQUENCE_BYTES)]
        values = [int.from_bytes(number, "big") for number in numbers]
        sequence, generation, removals = [*values, 0, 0][:3] if len(values) < 3 else values[:3]
        self._set(*_parts(key), NotedPlace(sequence, generation, removals, tuple(values[3:])))

    def _set(self, uid: ChannelUid, name: bytes, place: NotedPlace) -> None:
        of_channel = self.by_channel.setdefault(uid, {})
        if name not in of_channel:
            self.shares.add(of_whom(name)[0], 1)
        of_channel[name] = place

    def _remove(self, uid: ChannelUid, name: bytes) -> NotedPlace:
        of_channel = self.by_channel[uid]
        place = of_channel.pop(name)
        if not of_channel:
            del self.by_channel[uid]
        self.shares.add(of_whom(name)[0], -1)
        self.dirty.add(_key(uid, name))
        return place


def _key(uid: ChannelUid, name: bytes) -> bytes:
    return uid.to_bytes(UID_BYTES, "big") + name


def _parts(key: bytes) -> tuple[ChannelUid, bytes]:
    return ChannelUid(int.from_bytes(key[:UID_BYTES], "big")), key[UID_BYTES:]

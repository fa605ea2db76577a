"""Bookmarks of one group: named positions in channels, which clients set and read; delivery does not depend on them.

A component of the group's machine (see components.py), fed by committed entries alone. Promises: a group has at most
BOOKMARKS_MAX bookmarks; when a channel is deleted, its bookmarks are, too. The position of a consumer group has a generation:
a smaller one sets nothing (so an earlier owner cannot), and the position never goes back.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from stan import limits
from stan.errors import OUTDATED_GENERATION, TOO_MANY_BOOKMARKS
from stan.protocol.proto import entries_pb2 as pb
from stan.types import ChannelUid, RaftIndex

UID_BYTES, SEQUENCE_BYTES = 4, 8
"""A row's key is the channel's uid and the name; the row is the sequence, and the generation if it has one. All numbers are
big-endian."""


class NotedPlace(NamedTuple):
    """Where a bookmark is."""

    sequence: int  # the next one to be read
    generation: int = 0  # 0: it is no consumer group's


@dataclass(slots=True)
class Bookmarks:
    """The bookmarks of a group, by channel and name."""

    KIND: ClassVar[str] = "bookmarks"
    CHANGES: ClassVar[tuple[str, ...]] = ("bookmark",)
    dirty: set[bytes] = field(default_factory=set)
    by_channel: dict[ChannelUid, dict[bytes, NotedPlace]] = field(default_factory=dict)  # by uid and name
    count: int = 0

    def apply(self, _name: str, change: pb.Bookmark, _index: RaftIndex) -> str:
        """Set a bookmark, or remove it if the change has no sequence. Returns why it was not set, or ""."""
        uid, name = ChannelUid(change.uid), change.name
        of_channel = self.by_channel.get(uid, {})
        known = of_channel.get(name)
        if known is not None and change.generation < known.generation:
            return OUTDATED_GENERATION
        if not change.sequence:
            if known is not None:
                self._remove(uid, name)
            return ""
        if known is None and self.count >= limits.BOOKMARKS_MAX:
            return TOO_MANY_BOOKMARKS
        place = NotedPlace(change.sequence, change.generation)
        if known is not None and change.generation:
            place = NotedPlace(
                known.sequence if change.claim else max(known.sequence, change.sequence), change.generation
            )
        self._set(uid, name, place)
        self.dirty.add(_key(uid, name))
        return ""

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
        numbers = place if place.generation else place[:1]
        return b"".join(number.to_bytes(SEQUENCE_BYTES, "big") for number in numbers)

    def load(self, key: bytes, state: bytes) -> None:
        """Take in the row of one bookmark; only before the first `apply`."""
        numbers = [state[at : at + SEQUENCE_BYTES] for at in range(0, len(state), SEQUENCE_BYTES)]
        self._set(*_parts(key), NotedPlace(*(int.from_bytes(number, "big") for number in numbers)))

    def _set(self, uid: ChannelUid, name: bytes, place: NotedPlace) -> None:
        of_channel = self.by_channel.setdefault(uid, {})
        self.count += name not in of_channel
        of_channel[name] = place

    def _remove(self, uid: ChannelUid, name: bytes) -> None:
        of_channel = self.by_channel[uid]
        del of_channel[name]
        if not of_channel:
            del self.by_channel[uid]
        self.count -= 1
        self.dirty.add(_key(uid, name))


def _key(uid: ChannelUid, name: bytes) -> bytes:
    return uid.to_bytes(UID_BYTES, "big") + name


def _parts(key: bytes) -> tuple[ChannelUid, bytes]:
    return ChannelUid(int.from_bytes(key[:UID_BYTES], "big")), key[UID_BYTES:]

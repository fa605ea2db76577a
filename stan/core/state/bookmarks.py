"""Bookmarks of one group: named positions in channels, which clients set and read; delivery does not depend on them.

A component of the group's machine (see components.py), fed by committed entries alone. Promises: a group has at most
BOOKMARKS_MAX bookmarks; when a channel is deleted, its bookmarks are, too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from stan import limits
from stan.errors import TOO_MANY_BOOKMARKS
from stan.protocol.proto import entries_pb2 as pb
from stan.types import ChannelUid, RaftIndex

UID_BYTES, SEQUENCE_BYTES = 4, 8
"""A row's key is the channel's uid and the name; the row is the sequence. Both numbers big-endian."""


@dataclass(slots=True)
class Bookmarks:
    """The bookmarks of a group, by channel and name."""

    KIND: ClassVar[str] = "bookmarks"
    CHANGES: ClassVar[tuple[str, ...]] = ("bookmark",)
    dirty: set[bytes] = field(default_factory=set)
    by_channel: dict[ChannelUid, dict[bytes, int]] = field(default_factory=dict)  # uid -> name -> sequence
    count: int = 0

    def apply(self, _name: str, change: pb.Bookmark, _index: RaftIndex) -> str:
        """Set a bookmark, or remove it if the change has no sequence. Returns why it was not set, or ""."""
        uid, name = ChannelUid(change.uid), change.name
        of_channel = self.by_channel.get(uid, {})
        known = name in of_channel
        if not change.sequence:
            if known:
                self._remove(uid, name)
            return ""
        if not known and self.count >= limits.BOOKMARKS_MAX:
            return TOO_MANY_BOOKMARKS
        self._set(uid, name, change.sequence)
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
        sequence = self.by_channel.get(uid, {}).get(name)
        return None if sequence is None else sequence.to_bytes(SEQUENCE_BYTES, "big")

    def load(self, key: bytes, state: bytes) -> None:
        """Take in the row of one bookmark; only before the first `apply`."""
        self._set(*_parts(key), int.from_bytes(state, "big"))

    def _set(self, uid: ChannelUid, name: bytes, sequence: int) -> None:
        of_channel = self.by_channel.setdefault(uid, {})
        self.count += name not in of_channel
        of_channel[name] = sequence

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

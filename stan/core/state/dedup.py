"""Deduplication by producers' ids: a row that was stored once is not stored again, whichever node leads.

A *window* holds the ids that one producer has sent to one channel in the two newest versions of its work. A version's ids come in
chunks, which are the rows on disk: adding ids costs their own size and that of one small chunk, never that of the window. A
component of a group's replicated state (stan.core.state.components): ids are added by the entries that hold their rows, and the
time is that of these entries. Promise: an id is known from the moment at which its row is stored, until two versions have come
that are newer than the last one in which it was sent, or the producer has sent nothing for a day.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, ClassVar

from stan_protocol.kernel.rows import ID_BYTES, IdSet
from stan_protocol.scalars import ChannelUid, RaftIndex

from stan import limits
from stan.core.base.shares import Shares, of_whom
from stan.protocol.proto import entries_pb2 as pb

VERSIONS_MAX = 2
"""Number of versions whose ids a window keeps."""
CHUNK_BYTES = 4096
"""Ids are appended to the last chunk while it is smaller; then a new chunk begins."""

_CLOCK = b""
_TIME = Struct("<q")
_WINDOW = Struct(">IB")  # uid, length of the producer's name, which follows
_CHUNK = Struct(">QI")  # version, number; behind a window's key

Name = tuple[ChannelUid, bytes]
"""The key of a window: channel and producer."""


@dataclass(slots=True)
class Version:
    """The ids of one version."""

    known: IdSet = field(default_factory=IdSet)
    chunks: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class ProducerIds:
    """One window: the ids of a producer in a channel, by version."""

    heard: int  # Unix ns of the producer's newest ids
    versions: dict[int, Version] = field(default_factory=dict)

    def is_past(self, version: int) -> bool:
        """True if *version* is so old that its ids are no longer kept."""
        return len(self.versions) >= VERSIONS_MAX and version < min(self.versions)


class ProducerDedup:
    """The component for deduplication of a group's replicated state: the windows of all producers."""

    KIND: ClassVar[str] = "windows"
    CHANGES: ClassVar[tuple[str, ...]] = ("remember_ids",)

    def __init__(self) -> None:
        # In order of their newest ids, oldest first, unless some were just loaded.
        self.producers: dict[Name, ProducerIds] = {}
        self._loaded = False
        self.now = 0  # Unix ns: the newest time in an entry; never goes back
        self._windows, self._ids = Shares(), Shares()  # of all windows: their number, and that of their ids, by user
        self.dirty: set[bytes] = set()

    @property
    def ids(self) -> int:
        """How many ids are remembered."""
        return self._ids.used

    # --- what the leader asks -----------------------------------------------------------------------------------------

    def is_past(self, uid: ChannelUid, producer: bytes, version: int) -> bool:
        """True if it is no longer known which rows of that version are stored."""
        window = self.producers.get((uid, producer))
        return window is not None and window.is_past(version)

    def missing(self, uid: ChannelUid, producer: bytes, ids: bytes) -> bytes:
        """A mask with a byte per id of *ids*: 1 if its row is not stored, else 0."""
        missing = b"\1" * (len(ids) // ID_BYTES)
        window = self.producers.get((uid, producer))
        for version in window.versions.values() if window is not None else ():
            missing = both(missing, version.known.missing(ids))
        return missing

    def unheard(self, uid: ChannelUid, producer: bytes, version: int, ids: bytes) -> bytes:
        """A mask with a byte per id of *ids*: 1 if it was not sent in that version yet, else 0."""
        window = self.producers.get((uid, producer))
        kept = window.versions.get(version) if window is not None else None
        return kept.known.missing(ids) if kept is not None else b"\1" * (len(ids) // ID_BYTES)

    def has_room(self, uid: ChannelUid, producer: bytes, version: int, count: int, user: bytes = b"") -> bool:
        """True if *count* more ids of a *user* can be remembered."""
        window = self.producers.get((uid, producer))
        kept = window.versions.get(version) if window is not None else None
        return (
            (len(kept.known) if kept is not None else 0) + count <= limits.WINDOW_IDS_MAX
            and count <= self._ids.left(user, limits.GROUP_IDS_MAX)
            and (window is not None or self._windows.left(user, limits.WINDOWS_MAX) > 0)
        )

    # --- changes --------------------------------------------------------------------------------------------------------

    def apply(self, name: str, change: Any, index: RaftIndex) -> None:  # noqa: ARG002 - as StateComponent has it
        """Add the ids of rows that the same entry stores, and forget producers that have sent nothing for PRODUCER_AGE_MAX."""
        remembered: pb.RememberIds = change
        if self._loaded:
            self._loaded = False
            self.producers = dict(sorted(self.producers.items(), key=lambda item: item[1].heard))
        self.now = max(self.now, remembered.at)
        self.dirty.add(_CLOCK)
        named = ChannelUid(remembered.uid), remembered.producer
        window = self.producers.pop(named, None) or self._window(named, self.now)
        self.producers[named] = window
        window.heard = self.now
        self.dirty.add(_key(named))
        if not window.is_past(remembered.version):
            self._add(named, window, remembered)
        while (oldest := next(iter(self.producers))) != named:
            if self.producers[oldest].heard > self.now - limits.PRODUCER_AGE_MAX:
                break
            self._forget(oldest)

    def _window(self, named: Name, last: int) -> ProducerIds:
        self._windows.add(of_whom(named[1])[0], 1)
        return ProducerIds(last)

    def _add(self, named: Name, window: ProducerIds, remembered: pb.RememberIds) -> None:
        version = window.versions.setdefault(remembered.version, Version())
        before = len(version.known)
        version.known.add(remembered.ids)
        self._ids.add(of_whom(named[1])[0], len(version.known) - before)
        if version.chunks and len(version.chunks[-1]) < CHUNK_BYTES:
            version.chunks[-1] += remembered.ids
        else:
            version.chunks.append(remembered.ids)
        self.dirty.add(_chunk_key(named, remembered.version, len(version.chunks) - 1))
        if len(window.versions) > VERSIONS_MAX:
            self._forget_version(named, window, min(window.versions))

    def _forget_version(self, named: Name, window: ProducerIds, number: int) -> None:
        version = window.versions.pop(number)
        self._ids.add(of_whom(named[1])[0], -len(version.known))
        self.dirty.update(_chunk_key(named, number, chunk) for chunk in range(len(version.chunks)))

    def _forget(self, named: Name) -> None:
        window = self.producers.pop(named)
        self._windows.add(of_whom(named[1])[0], -1)
        for number in list(window.versions):
            self._forget_version(named, window, number)
        self.dirty.add(_key(named))

    def drop_channel(self, uid: ChannelUid) -> None:
        """Forget the ids that producers have sent to a channel that is gone."""
        for named in [named for named in self.producers if named[0] == uid]:
            self._forget(named)

    # --- rows -----------------------------------------------------------------------------------------------------------

    def keys(self) -> Iterator[bytes]:
        """The keys of all rows: the newest time, one row per window, one per chunk of ids."""
        if self.now:
            yield _CLOCK
        for named, window in self.producers.items():
            yield _key(named)
            for number, version in window.versions.items():
                yield from (_chunk_key(named, number, chunk) for chunk in range(len(version.chunks)))

    def row(self, key: bytes) -> bytes | None:
        """The row with that key: the newest time, the time of a window's newest ids, or a chunk of ids; None if it is gone."""
        if key == _CLOCK:
            return _TIME.pack(self.now)
        named, rest = _named(key)
        window = self.producers.get(named)
        if window is None:
            return None
        if not rest:
            return _TIME.pack(window.heard)
        number, chunk = _CHUNK.unpack(rest)
        version = window.versions.get(number)
        return version.chunks[chunk] if version is not None and chunk < len(version.chunks) else None

    def load(self, key: bytes, state: bytes) -> None:
        """Take in one row, in any order; only before the first `apply`."""
        if key == _CLOCK:
            (self.now,) = _TIME.unpack(state)
            return
        named, rest = _named(key)
        window = self.producers.get(named) or self.producers.setdefault(named, self._window(named, 0))
        if not rest:
            (window.heard,) = _TIME.unpack(state)
            self._loaded = True
            return
        number, chunk = _CHUNK.unpack(rest)
        version = window.versions.setdefault(number, Version())
        version.chunks += [b""] * (chunk + 1 - len(version.chunks))
        version.chunks[chunk] = state
        before = len(version.known)
        version.known.add(state)
        self._ids.add(of_whom(named[1])[0], len(version.known) - before)


def both(one: bytes, other: bytes) -> bytes:
    """The bitwise and of two masks of equal length."""
    size = len(one)
    return (int.from_bytes(one, "big") & int.from_bytes(other, "big")).to_bytes(size, "big")


def _key(named: Name) -> bytes:
    uid, producer = named
    return _WINDOW.pack(uid, len(producer)) + producer


def _chunk_key(named: Name, version: int, chunk: int) -> bytes:
    return _key(named) + _CHUNK.pack(version, chunk)


def _named(key: bytes) -> tuple[Name, bytes]:
    """Split a row's key into the window's name and the rest."""
    uid, length = _WINDOW.unpack_from(key)
    end = _WINDOW.size + length
    return (ChannelUid(uid), key[_WINDOW.size : end]), key[end:]

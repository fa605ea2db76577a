"""Reading a bbolt file, the database in which a clustered NATS Streaming Server has its Raft log: buckets of keys and values.

A file is pages of one size, some with more pages behind them for what does not fit into one. Two meta pages are written in
turn, each with a checksum; the newer valid one names the page of the root bucket, so an interrupted write leaves the last state.

Promises: never writes, reads no more pages in a walk than the file has; a damaged page is reported and passed over.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct, error
from types import TracebackType
from typing import NamedTuple, Self

from stan.migration.report import Note

_MAGIC, _VERSION = 0xED0CDAED, 2
_PAGE = Struct("<QHHI")  # number, flags, elements, further pages
_META = Struct("<IIIIQQQQQ")  # magic, version, page size, flags, root, its sequence, free list, pages, transaction
_CHECKSUM = Struct("<Q")
_BRANCH = Struct("<IIQ")  # place of the key, size of the key, page
_LEAF = Struct("<IIII")  # flags, place of the key, size of the key, size of the value
_BUCKET = Struct("<QQ")  # page of its root, sequence
_IS_BRANCH, _IS_LEAF, _IS_BUCKET = 1, 2, 1
_PAGE_SIZES = [1 << power for power in range(9, 17)]
_DEPTH_MAX = 64


class BoltItem(NamedTuple):
    """A key and its value."""

    key: bytes
    value: bytes
    offset: int  # of the value in the file
    is_bucket: bool


class _Meta(NamedTuple):
    transaction: int
    page_size: int
    root: int


class BoltFile:
    """A bbolt file, closed by leaving its `with` block. Raises OSError, or ValueError: it has no valid meta page."""

    def __init__(self, path: Path, note: Note) -> None:
        self._path = path
        self._note = note
        self._file = path.open("rb", buffering=0)
        self._size = os.fstat(self._file.fileno()).st_size
        metas = [meta for at in (0, *_PAGE_SIZES) if (meta := self._meta(at)) and at in (0, meta.page_size)]
        if not metas:
            self._file.close()
            raise ValueError("neither meta page is valid: not a bbolt file, or damaged")
        self._newest = max(metas)
        self._pages_left = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def fileno(self) -> int:
        """Descriptor of the open file."""
        return self._file.fileno()

    def items(self, bucket: bytes) -> Iterator[BoltItem]:
        """All items of a bucket in the order of their keys, as far as they can be read."""
        self._pages_left = self._size // self._newest.page_size
        for item in self._tree(self._newest.root, 0):
            if item.is_bucket and item.key == bucket and len(item.value) >= _BUCKET.size:
                root = _BUCKET.unpack_from(item.value)[0]
                if root:
                    yield from self._tree(root, 0)
                else:  # a small bucket is a page inside its value
                    yield from self._leaves(item.value[_BUCKET.size :], item.offset + _BUCKET.size)
                return

    def _meta(self, at: int) -> _Meta | None:
        data = os.pread(self._file.fileno(), _META.size + _CHECKSUM.size, at + _PAGE.size)
        if len(data) < _META.size + _CHECKSUM.size:
            return None
        magic, version, page_size, _, root, _, _, _, transaction = _META.unpack_from(data)
        checksum = _CHECKSUM.unpack_from(data, _META.size)[0]
        right = magic == _MAGIC and version == _VERSION and page_size in _PAGE_SIZES
        return _Meta(transaction, page_size, root) if right and checksum in (0, _fnv1a(data[: _META.size])) else None

    def _tree(self, number: int, depth: int) -> Iterator[BoltItem]:
        """All items below a page."""
        at = number * self._newest.page_size
        try:
            flags, data = self._page(number, depth)
            below = _branches(data) if flags & _IS_BRANCH else []
        except (ValueError, error) as fault:
            self._note(str(self._path), at, f"a page is damaged: {fault}")
            return
        if flags & _IS_LEAF:
            yield from self._leaves(data, at)
        for page in below:
            yield from self._tree(page, depth + 1)

    def _page(self, number: int, depth: int) -> tuple[int, bytes]:
        """Flags and content of a page, with its overflow pages. Raises ValueError: it is damaged."""
        at, page_size = number * self._newest.page_size, self._newest.page_size
        if not 2 <= number < self._size // page_size:
            raise ValueError(f"page {number} is not in the file")
        own, flags, _, overflow = _PAGE.unpack(os.pread(self._file.fileno(), _PAGE.size, at))
        self._pages_left -= 1 + overflow
        if own != number or flags not in (_IS_BRANCH, _IS_LEAF):
            raise ValueError(f"it should be page {number} of a tree")
        if at + (1 + overflow) * page_size > self._size or self._pages_left < 0 or depth > _DEPTH_MAX:
            raise ValueError(f"there are not as many pages behind page {number}")
        return flags, os.pread(self._file.fileno(), (1 + overflow) * page_size, at)

    def _leaves(self, data: bytes, at: int) -> Iterator[BoltItem]:
        try:
            count = _PAGE.unpack_from(data)[2]
        except error:
            self._note(str(self._path), at, "a page is damaged: it ends early")
            return
        for number in range(count):
            place = _PAGE.size + number * _LEAF.size
            if place + _LEAF.size > len(data):
                self._note(str(self._path), at + len(data), "a page is damaged: it ends early")
                return
            flags, key_at, key_size, value_size = _LEAF.unpack_from(data, place)
            start = place + key_at
            stop = start + key_size
            if stop + value_size > len(data):
                self._note(str(self._path), at + place, "an element of a page is damaged: it ends behind it")
                continue
            value = data[stop : stop + value_size]
            yield BoltItem(data[start:stop], value, at + stop, bool(flags & _IS_BUCKET))


def _branches(data: bytes) -> list[int]:
    """Numbers of the pages below a branch page. Raises struct.error: it ends early."""
    count = _PAGE.unpack_from(data)[2]
    return [_BRANCH.unpack_from(data, _PAGE.size + number * _BRANCH.size)[2] for number in range(count)]


def _fnv1a(data: bytes) -> int:
    """Checksum of a meta page."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFF_FFFF_FFFF_FFFF
    return value

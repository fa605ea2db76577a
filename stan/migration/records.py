"""Files of a NATS Streaming Server's file store as records (STAN-SPEC 8.5): small ones whole, large ones through a window.

Promises that nothing with a wrong checksum is handed out, and that reading goes on after damage.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import NamedTuple, Self
from zlib import crc32

from stan_protocol.kernel.wire_py import read_fields, read_varint
from stan_protocol.scalars import MiB

from stan.limits import NATS_PAYLOAD_BYTES_MAX
from stan.migration.report import Note

HEADER = Struct("<II")
VERSION = b"\1\0\0\0"
READ_BYTES = 4 * MiB
"""Read at once from a file of messages."""
SIZE_MAX = NATS_PAYLOAD_BYTES_MAX + 1 * MiB
"""No message is larger than what NATS carries, by much."""
_TYPED_SIZE_MAX = (1 << 24) - 1


class Record(NamedTuple):
    """A record of a small file."""

    kind: int
    payload: bytes
    offset: int


class ProtoFields:
    """The fields of one protobuf message, by number; the last one counts. Raises ValueError: it is none."""

    __slots__ = ("_numbers", "_texts")

    def __init__(self, payload: bytes) -> None:
        self._numbers: dict[int, int] = {}
        self._texts: dict[int, bytes] = {}
        for field, wire, value, start, stop in read_fields(payload):
            if wire == 0:
                self._numbers[field] = value
            elif wire == 2:
                self._texts[field] = payload[start:stop]

    def number(self, field: int) -> int:
        """Value of a varint field."""
        return self._numbers.get(field, 0)

    def text(self, field: int) -> bytes:
        """Content of a text field."""
        return self._texts.get(field, b"")


def texts(payload: bytes, field: int) -> list[bytes]:
    """Return the contents of a repeated text field. Raises ValueError: *payload* is no protobuf message."""
    return [payload[start:stop] for name, wire, _, start, stop in read_fields(payload) if name == field and wire == 2]


def numbers(payload: bytes, field: int) -> list[int]:
    """Return the values of a repeated varint field, packed or one by one. Raises ValueError: as `texts`."""
    values = []
    for name, wire, value, start, stop in read_fields(payload):
        if name == field and wire == 0:
            values.append(value)
        elif name == field and wire == 2:
            at = start
            while at < stop:
                one, at = read_varint(payload, at, stop)
                values.append(one)
    return values


def read_small(path: Path, note: Note, *, typed: bool) -> Iterator[Record]:
    """Yield all valid records of a file that fits into memory; *note* gets the faults. A missing file has none."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        note(str(path), 0, f"cannot be read: {error.strerror}")
        return
    if not data:
        return
    if data[:4] != VERSION:
        note(str(path), 0, "not of file version 1")
    at = len(VERSION)
    while at < len(data):
        size = _right(data, at, typed=typed)
        if size:
            kind = data[at + 3] if typed else 0
            yield Record(kind, data[at + HEADER.size : at + HEADER.size + size], at)
            at += HEADER.size + size
        elif not any(data[at:]):
            return  # room that was never used
        else:
            after = next((to for to in range(at + 1, len(data)) if _right(data, to, typed=typed)), len(data))
            note(str(path), at, f"{after - at} bytes are damaged")
            at = after


def _right(data: bytes, at: int, *, typed: bool) -> int:
    """Size of the payload of a valid record at *at*, 0 if there is none."""
    if at + HEADER.size > len(data):
        return 0
    word, crc = HEADER.unpack_from(data, at)
    kind, size = (word >> 24, word & _TYPED_SIZE_MAX) if typed else (1, word)
    start = at + HEADER.size
    if not 1 <= kind <= 5 or not 0 < size <= len(data) - start:
        return 0
    return size if crc32(memoryview(data)[start : start + size]) == crc else 0


class FileWindow:
    """A large file, read from its beginning to its end; places are offsets in the file. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self.size = os.fstat(self._file.fileno()).st_size
        self.data = b""
        self.offset = 0  # of the first byte of `data`

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def end(self) -> int:
        """The place after the part in memory."""
        return self.offset + len(self.data)

    def load(self, at: int, size: int) -> bool:
        """Load the *size* bytes from *at* on, and drop those before; False if there are not as many."""
        if not self.offset <= at <= self.end:
            self.data, self.offset = b"", at
        place = self.end
        missing = at + size - place
        if missing > 0:
            parts = [self.data[at - self.offset :]]
            while missing > 0 and (part := os.pread(self._file.fileno(), max(missing, READ_BYTES), place)):
                parts.append(part)
                place += len(part)
                missing -= len(part)
            self.data, self.offset = b"".join(parts), at
        return missing <= 0

    def bytes_at(self, at: int, size: int) -> bytes:
        """Up to *size* bytes of the part in memory."""
        start = at - self.offset
        return self.data[start : start + size]

    def right(self, at: int) -> bool:
        """Return True if a valid record begins at *at*."""
        if not self.load(at, HEADER.size):
            return False
        size, crc = HEADER.unpack_from(self.data, at - self.offset)
        if not 0 < size <= min(SIZE_MAX, self.size - at - HEADER.size) or not self.load(at, HEADER.size + size):
            return False
        return crc32(self.bytes_at(at + HEADER.size, size)) == int(crc)

    def find(self, pattern: bytes, at: int) -> int:
        """Place of *pattern* at or after *at*, -1 if there is none."""
        while self.load(at, len(pattern)):
            match = self.data.find(pattern, at - self.offset)
            if match >= 0:
                return self.offset + match
            at = self.end - len(pattern) + 1
        return -1

    def only_zeros(self, at: int) -> bool:
        """Return True if only zeros follow."""
        while self.load(at, 1):
            if any(memoryview(self.data)[at - self.offset :]):
                return False
            at = self.end
        return True

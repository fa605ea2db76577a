"""The durable mark: the log was durable up to it, at least. One small record beside the segments, written after each sync.

    magic u32 | version u32 | group u32 | index u64 | CRC-32 u32

A record that can be read is true, however it came to the medium: an index is written after all entries up to it are on stable
storage, and before it is reported; it is lowered, durably, before the log is truncated. So a log that ends before the mark
has lost entries. After `kill -9` the mark is exact; a loss of power may leave an older one, or none.

Promises: the mark costs a sync one write to the page cache, and makes no sync fail. It is never above the callers' index.
A full disk refuses the file (each sync tries again to create it), and where a file system copies overwritten blocks, the record
too: then the mark stays too low until a sync has room, and a loss above it is not noticed.
"""

import zlib
from contextlib import suppress
from struct import Struct
from typing import Self

from stan_protocol.scalars import GroupId, RaftIndex

from stan.log.files.disk import Files

NAME = "durable"
_MAGIC = 0x4B52414D
_VERSION = 1
_RECORD = Struct("<IIIQ")
_CRC = Struct("<I")
SIZE = _RECORD.size + _CRC.size
"""Far less than a sector, so that a loss of power leaves an old record or a new one."""


class DurableMark:
    """The durable mark of one log; made by `open`. Callers of `advance` and `lower` hold the log's lock around fdatasync."""

    def __init__(self, files: Files, directory: str, group: GroupId) -> None:
        self.index = RaftIndex(0)  # the log was durable up to here; 0: unknown
        self.damaged = False  # the file has a wrong record
        self._files = files
        self._directory = directory
        self._group = group
        self._descriptor = -1

    @classmethod
    def open(cls, files: Files, directory: str, group: GroupId) -> Self:
        """Read the record, if there is one; changes nothing. Raises OSError."""
        mark = cls(files, directory, group)
        if NAME in files.listdir(directory):
            mark._descriptor = files.open(f"{directory}/{NAME}")
            data = files.pread(mark._descriptor, SIZE, 0)
            mark.index = _decode(data, group)
            mark.damaged = bool(data) and not mark.index
        return mark

    @property
    def path(self) -> str:
        """The file's name."""
        return f"{self._directory}/{NAME}"

    def settle(self, index: RaftIndex) -> None:
        """Set the mark of an opened, durable log that ends with *index*. Raises OSError if a higher mark could not be lowered."""
        if self._descriptor < 0:
            with suppress(OSError):  # no room: a later sync may have some
                self._create()
        if index < self.index or self.damaged:
            self.lower(index)
        else:
            self.advance(index)

    def advance(self, index: RaftIndex) -> None:
        """Raise the mark: the log is durable up to *index*. The record is not synced, and an error of its write is ignored."""
        if index > self.index:
            try:
                if self._descriptor < 0:
                    self._create()
                self._files.pwritev(self._descriptor, [self._record(index)], 0)
            except OSError:
                return
            self.index = index

    def lower(self, index: RaftIndex) -> None:
        """Lower the mark: the log is about to end with *index*. The record is durable when this returns. Raises OSError."""
        if self._descriptor >= 0:
            self._files.pwritev(self._descriptor, [self._record(index)], 0)
            self.index = index
            self._files.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            self._files.close(self._descriptor)
            self._descriptor = -1

    def _create(self) -> None:
        self._descriptor = self._files.create(self.path)

    def _record(self, index: RaftIndex) -> bytes:
        record = _RECORD.pack(_MAGIC, _VERSION, self._group, index)
        return record + _CRC.pack(zlib.crc32(record))


def _decode(data: bytes, group: GroupId) -> RaftIndex:
    """The index of a record; 0 if it is wrong."""
    if len(data) < SIZE or _CRC.unpack_from(data, _RECORD.size)[0] != zlib.crc32(data[: _RECORD.size]):
        return RaftIndex(0)
    magic, version, number, index = _RECORD.unpack_from(data)
    return RaftIndex(index) if (magic, version, number) == (_MAGIC, _VERSION, group) else RaftIndex(0)

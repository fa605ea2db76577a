"""Index file of a sealed segment: the data that a start needs of the segment, without its records.

Promises that a loaded index file was written for exactly this segment file. It is a cache: a missing or wrong one is
rebuilt from the segment, and an error of the disk here never reaches the log. Modelled on Kafka's index files, one per
segment.
"""

import zlib
from array import array
from collections.abc import Iterator
from contextlib import suppress
from struct import Struct

from stan_protocol.scalars import RaftIndex, Term

from stan.limits import INDEX_BATCHES_FLUSH
from stan.log.files.disk import Files
from stan.log.files.segment import ENTRY_HEADER, ENTRY_HEADER_SIZE, SEGMENT_HEADER_SIZE, PositionMarks, Segment
from stan.log.references import reference_rows
from stan.log.types import BatchRow
from stan.protocol.entries import (
    BATCH_HEADER,
    BESIDE_UID,
    CIPHER_MASK,
    ENCRYPTION_BYTES,
    REFERENCES_FLAG,
    SIZE_SHIFT,
    Kind,
)

INDEX_FILE_MAGIC = b"STANSIDE"
INDEX_FILE_VERSION = 1
# magic, version, terms, marks, entries, bytes of the segment, last index, CRC of the segment's header, CRC of all before
_FOOTER = Struct("<8sIIIIQQII")
_TERM = Struct("<QI")


def index_file_path(segment_path: str) -> str:
    """`<first index>.idx` beside `<first index>.log`."""
    return segment_path.removesuffix(".log") + ".idx"


class IndexFileWriter:
    """Writes the index file of the active segment along with it, so that sealing needs no second read."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._parts: list[bytes] = []
        self._position = 0
        self._crc = 0
        self._descriptor: int | None = None
        self._failed = False

    def add(self, parts: list[bytes]) -> None:
        """Add the outline of the next entry."""
        self._parts += parts
        if len(self._parts) >= INDEX_BATCHES_FLUSH:
            self._flush()

    def seal(self, segment: Segment) -> None:
        """Write the footer; the segment gets no entry any more."""
        self._parts += [_TERM.pack(index, term) for index, term in segment.terms]
        self._parts += [segment.marks.indexes.tobytes(), segment.marks.positions.tobytes()]
        footer = _FOOTER.pack(
            INDEX_FILE_MAGIC,
            INDEX_FILE_VERSION,
            len(segment.terms),
            len(segment.marks.indexes),
            segment.entries,
            segment.end,
            segment.last_index,
            _header_crc(segment),
            0,
        )[:-_CRC_SIZE]
        self._parts.append(footer)
        self._flush()
        self._parts = [self._crc.to_bytes(_CRC_SIZE, "little")]
        self._flush()
        self.close()

    def close(self) -> None:
        """Leave the file as it is; without a footer it is ignored."""
        if self._descriptor is not None:
            with suppress(OSError):
                self._files.close(self._descriptor)
            self._descriptor = None

    def drop(self) -> None:
        """Remove the file, as the segment has changed or the disk has failed; later calls write nothing to it."""
        self._failed = True
        self.close()
        with suppress(OSError):
            self._files.unlink(self._path)

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if self._failed:
            return
        data = b"".join(parts)
        self._crc = zlib.crc32(data, self._crc)
        try:
            if self._descriptor is None:
                self._descriptor = self._files.create(self._path)
            self._files.pwritev(self._descriptor, [data], self._position)
        except OSError:  # a cache on a full disk must not cost a message
            self.drop()
        self._position += len(data)


_CRC_SIZE = 4


def _header_crc(segment: Segment) -> int:
    """The CRC at the end of a segment's header, which differs by generation, too. (That of the header with its CRC is always the
    same number.)"""
    return int.from_bytes(segment.header.encode()[-_CRC_SIZE:], "little")


def load_index_file(files: Files, segment: Segment, size: int) -> memoryview | None:
    """Fill *segment* from the index file made for its header and *size*; returns its entries' outlines, None if unfit."""
    try:
        descriptor = files.open(index_file_path(segment.path))
    except OSError:
        return None
    try:
        data = files.pread(descriptor, files.size(descriptor), 0)
    except OSError:
        return None
    finally:
        files.close(descriptor)
    if len(data) < _FOOTER.size:
        return None
    magic, version, terms, marks, entries, end, last, header_crc, crc = _FOOTER.unpack_from(
        data, len(data) - _FOOTER.size
    )
    right = (INDEX_FILE_MAGIC, INDEX_FILE_VERSION, size, _header_crc(segment))
    if (magic, version, end, header_crc) != right or crc != zlib.crc32(memoryview(data)[:-_CRC_SIZE]):
        return None
    at_positions = len(data) - _FOOTER.size - 4 * marks
    at_indexes = at_positions - 8 * marks
    at_terms = at_indexes - _TERM.size * terms
    segment.terms = [(RaftIndex(i), Term(t)) for i, t in _TERM.iter_unpack(data[at_terms:at_indexes])]
    segment.marks = PositionMarks(
        array("Q", data[at_indexes:at_positions]), array("I", data[at_positions : at_positions + 4 * marks])
    )
    if segment.terms:
        segment.last_term = segment.terms[-1][1]
    segment.entries, segment.end, segment.last_index = entries, end, RaftIndex(last)
    return memoryview(data)[:at_terms]


def walk_outlines(data: bytes | bytearray | memoryview) -> Iterator[tuple[RaftIndex, list[BatchRow]]]:
    """Index and record batches of each entry, from the outlines of a segment's entries in order."""
    at = 0
    position = SEGMENT_HEADER_SIZE
    while at < len(data):
        _, _, kind, length, _, _, index = ENTRY_HEADER.unpack_from(data, at)
        at += ENTRY_HEADER_SIZE
        position += ENTRY_HEADER_SIZE
        end = position + length
        rows = []
        if kind == Kind.RECORDS:
            while position < end:
                uid, base, count, timestamp, first, size, _, flags = BATCH_HEADER.unpack_from(data, at)
                at += BATCH_HEADER.size
                position += BATCH_HEADER.size
                if uid != BESIDE_UID:
                    clear = size - ENCRYPTION_BYTES if flags & CIPHER_MASK else size
                    rows.append(BatchRow(uid, base, count, timestamp, first, position, clear, flags >> SIZE_SHIFT))
                elif flags == REFERENCES_FLAG:
                    rows += reference_rows(data[at : at + size], position)
                    at += size
                position += size
        position = end
        yield index, rows

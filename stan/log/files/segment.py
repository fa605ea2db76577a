"""A segment file: its header, its entries, and reading both with every checksum verified.

Promises that an entry is handed out only if all its bytes are the written ones. Never decides what to do about
damage: a scan ends at the damage and has its position and reason. The byte format is in docs/log-format.md.
Modelled on Liftbridge's commitlog segment.
"""

import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from contextlib import suppress
from dataclasses import dataclass, field
from struct import Struct, unpack_from
from typing import NamedTuple

from stan_protocol.scalars import GroupId, RaftIndex, Term

from stan.errors import Damage
from stan.invariant import broken
from stan.limits import CLEAN_BELOW_PERCENT, ENTRY_BYTES_MAX, MARK_BYTES, SCAN_BYTES, SURVIVOR_BYTES_MAX
from stan.log.files.disk import Files
from stan.log.references import reference_rows
from stan.log.types import BatchRow, Entry
from stan.protocol.entries import (
    BATCH_HEADER,
    BESIDE_UID,
    CHANGE_FLAG,
    CIPHER_MASK,
    ENCRYPTION_BYTES,
    REFERENCES_FLAG,
    SIZE_SHIFT,
    Kind,
)

SEGMENT_MAGIC = b"STANSEGM"
SEGMENT_VERSION = 1
_SEGMENT_HEADER = Struct("<8sHHIQI16s")
SEGMENT_HEADER_SIZE = _SEGMENT_HEADER.size + 4

POSITION_MAX = 0xFFFF_FFFF
"""Highest position in a segment file: positions have 32 bits."""

ENTRY_MAGIC = b"\xe7\x5a"
ENTRY_VERSION = 1
_BESIDE_CRC = Struct("<2sBBIIQ")  # magic, version, kind, length of the body, term, index
_CRC = Struct("<I")
ENTRY_HEADER = Struct("<2sBBIIIQ")  # the same with the CRC of all that and the body in front of the term
ENTRY_HEADER_SIZE = ENTRY_HEADER.size
_BATCH_HEADER_SIZE = BATCH_HEADER.size
_RECORDS = int(Kind.RECORDS)


class CutOff(Damage):
    """The file ends in the middle of an entry, as after the end of a process amid a write."""


class EntryInSegment(NamedTuple):
    """A verified entry of a segment file."""

    outline: list[bytes]  # its header, those of its batches, and its references, as in the index file
    entry: Entry
    rows: list[BatchRow]
    position: int  # of the entry's header
    body_position: int
    end: int  # of the entry's last byte, plus one


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """First bytes of a segment file."""

    group: GroupId
    first_index: RaftIndex
    previous_term: Term  # of the entry before first_index; 0 if unknown
    store_id: bytes  # 16 bytes, the same in all files of a store
    generation: int  # number of rewrites by the cleaner; above 0 entries may be missing

    def encode(self) -> bytes:
        """The header's bytes, CRC last."""
        packed = _SEGMENT_HEADER.pack(
            SEGMENT_MAGIC,
            SEGMENT_VERSION,
            self.generation,
            self.group,
            self.first_index,
            self.previous_term,
            self.store_id,
        )
        return packed + _CRC.pack(zlib.crc32(packed))


def decode_segment_header(data: bytes) -> SegmentHeader:
    """Decode a header; raises Damage if it is not one, or not of this version."""
    packed = data[: _SEGMENT_HEADER.size]
    if len(data) < SEGMENT_HEADER_SIZE or unpack_from("<I", data, len(packed))[0] != zlib.crc32(packed):
        raise Damage("wrong header")
    magic, version, generation, group, first, term, store_id = _SEGMENT_HEADER.unpack(packed)
    if magic != SEGMENT_MAGIC or version != SEGMENT_VERSION:
        raise Damage(f"header of another kind or version ({magic!r} {version})")
    return SegmentHeader(GroupId(group), RaftIndex(first), Term(term), store_id, generation)


def encode_entry_header(entry: Entry) -> bytes:
    """The bytes in front of the entry's body."""
    index, term, kind, body = entry
    length = len(body)
    crc = zlib.crc32(body, zlib.crc32(_BESIDE_CRC.pack(ENTRY_MAGIC, ENTRY_VERSION, kind, length, term, index)))
    return ENTRY_HEADER.pack(ENTRY_MAGIC, ENTRY_VERSION, kind, length, crc, term, index)


def entry_at(position: int, header: bytes, entry: Entry) -> EntryInSegment:
    """An entry whose *header* is at *position*; raises Damage if the body is not made of record batches."""
    body, at = entry.body, 0
    start, length = position + ENTRY_HEADER_SIZE, len(body)
    outline = [header]
    rows: list[BatchRow] = []
    if entry.kind == _RECORDS:
        while at + _BATCH_HEADER_SIZE <= length:
            batch_header = bytes(body[at : at + _BATCH_HEADER_SIZE])
            uid, base, count, timestamp, first, size, _, flags = BATCH_HEADER.unpack(batch_header)
            outline.append(batch_header)
            at += _BATCH_HEADER_SIZE
            if uid != BESIDE_UID:
                clear = size - ENCRYPTION_BYTES if flags & CIPHER_MASK else size
                made = (uid, base, count, timestamp, first, start + at, clear, flags >> SIZE_SHIFT, 0, 0)
                rows.append(tuple.__new__(BatchRow, made))
            elif flags == REFERENCES_FLAG:
                outline.append(bytes(body[at : at + size]))
                rows += reference_rows(outline[-1], start + at)
            at += size
        if at != length:
            raise Damage(f"record batches of {at} bytes in a body of {length}")
    return tuple.__new__(EntryInSegment, (outline, entry, rows, position, start, start + length))


def is_sealed(entry: EntryInSegment) -> bool:
    """True if at least one batch of the entry is encrypted."""
    own = (row.position for row in entry.rows if not row.staged)
    body, starts = entry.entry.body, (position - entry.body_position for position in own)
    return any(BATCH_HEADER.unpack_from(body, start - BATCH_HEADER.size)[7] & CIPHER_MASK for start in starts)


def place(entries: Seq[Entry], segment: "Segment", sealed: Callable[[Entry], Entry] | None) -> list[EntryInSegment]:
    """The bytes and places of *entries* at the end of a segment that has room for them.

    Args:
        entries: consecutive, the first after the newest one of the segment.
        segment: stays as it is.
        sealed: encrypts an entry; None if entries are stored in clear.
    """
    position, index, term = segment.end, segment.last_index, segment.last_term
    placed = []
    for entry in entries:
        if entry.index != index + 1:
            raise broken("entries are consecutive", index=entry.index, last_index=index)
        if entry.term < term:
            raise broken("terms never go back", term=entry.term, last_term=term)
        index, term = entry.index, entry.term
        stored = entry if sealed is None else sealed(entry)
        if len(stored.body) > ENTRY_BYTES_MAX:
            raise broken("an entry is bounded", length=len(stored.body))
        entry_place = entry_at(position, encode_entry_header(stored), stored)
        placed.append(entry_place)
        position = entry_place.end
    if position > POSITION_MAX:
        raise broken("positions have 32 bits", position=position)
    return placed


@dataclass(slots=True)
class PositionMarks:
    """Positions of entries about every MARK_BYTES of a segment, so that the way from there to any other entry is short."""

    indexes: "array[int]" = field(default_factory=lambda: array("Q"))  # of the marked entries ...
    positions: "array[int]" = field(default_factory=lambda: array("I"))  # ... and of their headers in the file
    due: int = 0  # the next entry from this position on is to be marked

    def add(self, index: RaftIndex, position: int) -> None:
        """Mark the entry at *index*, which begins at `due` or after it."""
        self.indexes.append(index)
        self.positions.append(position)
        self.due = position + MARK_BYTES

    def before_index(self, index: RaftIndex) -> int:
        """Position of an entry from which to walk to the entry at *index*."""
        mark = bisect_right(self.indexes, index) - 1
        return self.positions[mark] if mark >= 0 else SEGMENT_HEADER_SIZE

    def before_position(self, position: int) -> int:
        """Position of an entry from which to walk to the entry that contains *position*."""
        mark = bisect_right(self.positions, position) - 1
        return self.positions[mark] if mark >= 0 else SEGMENT_HEADER_SIZE


@dataclass(slots=True)
class LiveSpace:
    """The space of a segment's live batches, which shows whether rewriting or deleting the file pays."""

    batches: int = 0
    bytes: int = 0  # of the records of these batches
    clean_below: int = POSITION_MAX  # below so many bytes another rewrite pays

    def mostly_dead(self, file_bytes: int) -> bool:
        """True if a rewrite of the file of *file_bytes* pays; a segment without live batches is deleted instead."""
        return self.batches > 0 and self.bytes < min(self.clean_below, file_bytes * CLEAN_BELOW_PERCENT // 100)

    def defer_cleaning(self) -> None:
        """Defer the next rewrite of the segment, after one or a failure, until half of its live bytes are dead."""
        self.clean_below = self.bytes // 2


@dataclass(slots=True)
class Segment:
    """A segment file in memory."""

    number: int  # inside its log; a rewritten segment gets another one
    path: str
    header: SegmentHeader
    end: int = SEGMENT_HEADER_SIZE  # bytes of header and complete entries
    last_index: RaftIndex = field(init=False)  # of the newest entry; first_index - 1 if there is none
    last_term: Term = field(init=False)  # of the newest entry, or of the one before the first
    entries: int = 0
    terms: list[tuple[RaftIndex, Term]] = field(default_factory=list)  # first index of each run of one term
    marks: PositionMarks = field(default_factory=PositionMarks)
    live: LiveSpace = field(default_factory=LiveSpace)
    sealed: bool = False  # gets no entry any more
    named: bool = True  # its name is known to be on stable storage

    def __post_init__(self) -> None:
        self.last_index = RaftIndex(self.header.first_index - 1)
        self.last_term = self.header.previous_term

    @property
    def first_index(self) -> RaftIndex:
        """First index this file was made for; the cleaner may have removed the entry."""
        return self.header.first_index

    def note(self, entry: EntryInSegment) -> None:
        """Note an entry that was added at the end."""
        index, term, position = entry.entry.index, entry.entry.term, entry.position
        if term != self.last_term or not self.terms:
            self.terms.append((index, term))
            self.last_term = term
        if position >= self.marks.due:
            self.marks.add(index, position)
        self.last_index = index
        self.entries += 1
        self.end = entry.end

    def term_at(self, index: RaftIndex) -> Term:
        """Term of an entry between the first and the last."""
        return self.terms[bisect_right(self.terms, index, key=lambda run: run[0]) - 1][1]


def segment_name(first_index: int) -> str:
    """Name of the file that begins with that entry."""
    return f"{first_index:020d}.log"


def create_segment(files: Files, directory: str, header: SegmentHeader, number: int) -> tuple[Segment, int]:
    """A new, empty segment and its descriptor; neither its bytes nor its name are synced. Raises OSError."""
    path = f"{directory}/{segment_name(header.first_index)}"
    descriptor = files.create(path)
    try:
        files.pwritev(descriptor, [header.encode()], 0)
    except OSError:
        files.close(descriptor)
        files.unlink(path)
        raise
    return Segment(number, path, header, named=False), descriptor


class ReadWindow:
    """Buffered reading of the bytes [0, end) of one file."""

    def __init__(self, files: Files, descriptor: int, end: int) -> None:
        self.end = end
        self._files = files
        self._descriptor = descriptor
        self._start = 0
        self._data = b""

    def get(self, position: int, length: int) -> bytes:
        """*length* bytes from *position* on; fewer only at the end."""
        length = min(length, self.end - position)
        if not self._start <= position <= position + length <= self._start + len(self._data):
            ahead = min(max(length, SCAN_BYTES), self.end - position)
            self._data = self._files.pread(self._descriptor, ahead, position)
            self._start = position
        start = position - self._start
        return self._data[start : start + length]

    def find(self, pattern: bytes, position: int) -> int:
        """Position of the next occurrence of *pattern*; -1 if there is none."""
        while position < self.end:
            data = self.get(position, SCAN_BYTES)
            at = data.find(pattern)
            if at >= 0:
                return position + at
            position += max(1, len(data) - len(pattern) + 1)
        return -1


def read_entry(window: ReadWindow, position: int) -> EntryInSegment:
    """The entry at *position*; raises Damage with the reason if there is no complete and correct one."""
    header = window.get(position, ENTRY_HEADER_SIZE)
    if len(header) < ENTRY_HEADER_SIZE:
        raise CutOff("entry header cut off")
    magic, version, kind, length, crc, term, index = ENTRY_HEADER.unpack(header)
    start = position + ENTRY_HEADER_SIZE
    if magic != ENTRY_MAGIC or version != ENTRY_VERSION:
        raise Damage("no entry begins here")
    if start + length > window.end or length > ENTRY_BYTES_MAX:
        error = CutOff if length <= ENTRY_BYTES_MAX else Damage
        raise error(f"entry cut off, {length} bytes announced, {window.end - start} there")
    body = window.get(start, length)
    if zlib.crc32(body, zlib.crc32(header[12:], zlib.crc32(header[:8]))) != crc:
        raise Damage("wrong CRC")
    entry = Entry(RaftIndex(index), Term(term), kind, body)
    return entry_at(position, header, entry)


class EntryChanges(NamedTuple):
    """The changes of one entry of a segment file."""

    index: RaftIndex  # type: ignore[assignment]  # hides tuple.index
    term: Term
    bodies: list[bytes]
    end: int  # of the entry's last byte, plus one


def read_changes(window: ReadWindow, position: int) -> EntryChanges:
    """The changes in the entry at *position*; messages are skipped, without a look at their checksum. Raises Damage with the
    reason if there is no complete entry, or no valid change."""
    header = window.get(position, ENTRY_HEADER_SIZE)
    if len(header) < ENTRY_HEADER_SIZE:
        raise CutOff("entry header cut off")
    magic, version, kind, length, checksum, term, index = ENTRY_HEADER.unpack(header)
    at = position + ENTRY_HEADER_SIZE
    end = at + length
    if magic != ENTRY_MAGIC or version != ENTRY_VERSION or end > window.end:
        raise Damage("no complete entry begins here")
    bodies = []
    if kind == Kind.CHANGE:
        bodies.append(window.get(at, length))
        if zlib.crc32(bodies[-1], zlib.crc32(header[12:], zlib.crc32(header[:8]))) != checksum:
            raise Damage("wrong CRC")
    while kind == _RECORDS and at + _BATCH_HEADER_SIZE <= end:
        uid, _, _, _, _, size, crc, flags = BATCH_HEADER.unpack(window.get(at, _BATCH_HEADER_SIZE))
        at += _BATCH_HEADER_SIZE
        if uid == BESIDE_UID and flags == CHANGE_FLAG:
            bodies.append(window.get(at, size))
            if zlib.crc32(bodies[-1]) != crc:
                raise Damage("wrong CRC")
        at += size
    return EntryChanges(RaftIndex(index), Term(term), bodies, end)


class SegmentScan:
    """Walk over the entries of a segment file; stops at the end of the file or at the first wrong entry.

    Iterate once, then look at `fault`. In a file of generation 0 indexes go up by one, in a cleaned one they go up.
    """

    def __init__(self, window: ReadWindow, header: SegmentHeader) -> None:
        self.fault = ""  # the reason why the walk stopped before the end; "" if it did not
        self.cut_off = False  # because the file ends in the middle of an entry
        self.position = SEGMENT_HEADER_SIZE  # after the last valid entry
        self.expected = header.first_index  # lowest index the next entry may have
        self._dense = header.generation == 0
        self._window = window

    def __iter__(self) -> Iterator[EntryInSegment]:
        while self.position < self._window.end:
            try:
                entry = read_entry(self._window, self.position)
            except Damage as damage:
                self.fault, self.cut_off = str(damage), isinstance(damage, CutOff)
                return
            index = entry.entry.index
            if index < self.expected or (self._dense and index != self.expected):
                self.fault = f"entry {index} where {self.expected} belongs"
                return
            self.position = entry.end
            self.expected = RaftIndex(index + 1)
            yield entry

    def fault_end(self) -> int:
        """The position behind the entry that begins at the fault, as far as its header can be read."""
        header = self._window.get(self.position, ENTRY_HEADER_SIZE)
        if len(header) < ENTRY_HEADER_SIZE:
            return self.position + ENTRY_HEADER_SIZE
        magic, _, _, length, _, _, _ = ENTRY_HEADER.unpack(header)
        return self.position + ENTRY_HEADER_SIZE + (length if magic == ENTRY_MAGIC else 0)

    def survivor(self) -> Entry | None:
        """Return the last valid entry after the fault, however many bytes are wrong in between; None if there is none.

        Gives up once it has verified SURVIVOR_BYTES_MAX bytes; if there was none by then, it returns an entry without
        content at the fault, so that at least this one counts as lost.
        """
        window = self._window
        newest: Entry | None = None
        lowest = self.expected
        at = self.position + 1
        checked = 0
        while (at := window.find(ENTRY_MAGIC, at)) >= 0:
            header = window.get(at, ENTRY_HEADER_SIZE)
            if len(header) < ENTRY_HEADER_SIZE:
                break
            _, version, _, length, _, _, index = ENTRY_HEADER.unpack(header)
            highest = lowest + (window.end - at) // ENTRY_HEADER_SIZE
            end = at + ENTRY_HEADER_SIZE + length
            if (
                version == ENTRY_VERSION
                and end <= window.end
                and lowest <= index <= (highest if self._dense else index)
            ):
                checked += length
                if checked > SURVIVOR_BYTES_MAX:
                    return newest or Entry(self.expected, Term(0), Kind.NOOP, b"")
                with suppress(Damage):
                    newest = read_entry(window, at).entry
                    lowest = RaftIndex(newest.index + 1)
                    at = end
                    continue
            at += 1
        return newest

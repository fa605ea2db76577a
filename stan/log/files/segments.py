"""The segment files of a log, and reading from them in any thread.

Promises: a read gives the written bytes, or raises Damage with file and position; a place whose file was deleted or rewritten
raises StaleRef, never other bytes. Only the event loop changes the set; a reader pins the file, then looks whether it is
still the intended one.
"""

import zlib
from bisect import bisect_right
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from contextlib import suppress
from typing import NamedTuple, TypeVar

from stan_protocol.scalars import KiB, RaftIndex, Term

from stan.errors import Damage, WrongKey
from stan.limits import SEGMENT_FILES_OPEN_MAX
from stan.log.encryption import LogCipher
from stan.log.files.descriptors import Descriptors, Pin
from stan.log.files.disk import Files
from stan.log.files.segment import (
    ENTRY_HEADER,
    ENTRY_HEADER_SIZE,
    ENTRY_MAGIC,
    EntryInSegment,
    ReadWindow,
    Segment,
    SegmentScan,
    is_sealed,
    read_changes,
    read_entry,
    segment_name,
)
from stan.log.files.segment_index_file import index_file_path, load_index_file, walk_outlines
from stan.log.index import Removed
from stan.log.types import BatchRef, BatchRow, Entry, FoundChanges, StaleRef
from stan.log.uncommitted import Placed
from stan.protocol.entries import BATCH_HEADER, CIPHER_MASK, ENCRYPTION_BYTES, SIZE_SHIFT, Kind

BEFORE_RECORDS = ENTRY_HEADER_SIZE + BATCH_HEADER.size
"""Bytes in front of the records of an entry's first batch; its other batches have at least as many in front of them, too."""
BETWEEN_BYTES_MAX = 1 * KiB
"""Batches with at most this much between them are read at once: as fast as adjacent ones."""

_Bytes = TypeVar("_Bytes", bytes, memoryview)


class Extent(NamedTuple):
    """The part of a segment file that holds its entries up to some index."""

    path: str
    first_index: RaftIndex
    generation: int
    length: int


class Segments:
    """Segments oldest first, `all[-1]` is the active one; by number for readers, who hold no lock."""

    def __init__(
        self, files: Files, directory: str, sealed: list[Segment], numbers: Iterator[int], cipher: LogCipher | None
    ) -> None:
        """*numbers*: new ones for segments of the log; *sealed*: the segments but the active one."""
        self.all = sealed
        self.by_number = {segment.number: segment for segment in sealed}
        self.descriptors = Descriptors(files, SEGMENT_FILES_OPEN_MAX)
        self._files = files
        self._directory = directory
        self._numbers = numbers
        self._cipher = cipher
        self._closed = False

    def next_number(self) -> int:
        """A number for a new segment; may be called in any thread."""
        return next(self._numbers)

    # --- changes, on the event loop --------------------------------------------------------------------------------
    def add(self, segment: Segment, descriptor: int) -> Pin:
        """A new last segment and its open file, which stays open until the pin is given back."""
        self.all.append(segment)
        self.by_number[segment.number] = segment
        return self.descriptors.adopt(segment.number, descriptor)

    def delete(self, segment: Segment) -> None:
        """Remove a segment and its files; raises OSError and keeps the segment if the file cannot be removed."""
        self._files.unlink(segment.path)
        self.drop_index_file(segment)
        self.all.remove(segment)
        del self.by_number[segment.number]
        self.descriptors.forget(segment.number)

    def replace(self, old: Segment, new: Segment) -> None:
        """Put *new*, which has taken the name of *old* and is in `by_number` already, in its place."""
        self.all[self.all.index(old)] = new
        del self.by_number[old.number]
        self.descriptors.forget(old.number)

    def close(self) -> None:
        """Close the files and refuse all reading: the names may belong to files of another log from now on."""
        self._closed = True
        self.descriptors.close()

    def drop_index_file(self, segment: Segment) -> None:
        """Remove the index file, if there is one."""
        with suppress(OSError):  # an orphan is removed at the next start
            self._files.unlink(index_file_path(segment.path))

    # --- contents --------------------------------------------------------------------------------------------------
    def sealed(self) -> list[Segment]:
        """All but the active one, oldest first."""
        return self.all[:-1]

    def size(self) -> int:
        """Bytes of all files."""
        return sum(segment.end for segment in self.all[:])

    def first_index(self) -> RaftIndex:
        """First index from which no entry is missing up to the end; 1 if a failed truncation has left no segment."""
        if not self.all:
            return RaftIndex(1)
        first = self.all[-1].first_index
        for segment in reversed(self.sealed()):
            if segment.header.generation or segment.last_index + 1 != first:
                break
            first = segment.first_index
        return first

    def term_at(self, index: RaftIndex) -> Term:
        """Term of the entry at *index*, or of the one before the oldest file; between first_index - 1 and last_index.

        0 after the last file, if a failed truncation has deleted a newer one."""
        at = bisect_right(self.all, index, key=lambda segment: segment.first_index) - 1
        if at >= 0 and index <= self.all[at].last_index:
            return self.all[at].term_at(index)
        return self.all[at + 1].header.previous_term if at + 1 < len(self.all) else Term(0)

    def extents(self, index: RaftIndex) -> list[Extent]:
        """The parts of the files with the entries up to *index*, oldest first. Raises Damage.

        The last one may be of a segment that begins after *index*, without entries: its header has the next index."""
        return [
            Extent(segment.path, segment.first_index, segment.header.generation, self._length(segment, index))
            for segment in self.all
            if segment.first_index <= index + 1
        ]

    def link(self, index: RaftIndex, directory: str) -> list[Extent]:
        """Give the files with everything up to *index* a second name in *directory*. Raises Damage, OSError."""
        extents = self.extents(index)
        for extent in extents:
            self._files.link(extent.path, f"{directory}/{segment_name(extent.first_index)}")
        return extents

    def _length(self, segment: Segment, index: RaftIndex) -> int:
        """Position after the entry at *index*, or after all entries if it is in a later segment."""
        if index >= segment.last_index:
            return segment.end
        with self.descriptors.using(segment.number, segment.path) as descriptor:
            window = ReadWindow(self._files, descriptor, segment.end)
            position = segment.marks.before_index(index)
            while position < segment.end:
                entry = read_entry(window, position)
                if entry.entry.index > index:
                    break
                position = entry.end
        return position

    # --- live batches (SpaceAccounting), on the event loop ------------------------------------------------------------
    def added(self, segment: int, row: BatchRow) -> None:
        """Count a batch that has become visible."""
        live = self.by_number[segment].live
        live.batches += 1
        live.bytes += row.length

    def refused(self, segment: int, row: BatchRow) -> None:
        """Do nothing: nothing of the batch is live; its bytes count as dead already."""

    def removed(self, removed: Removed) -> None:
        """Count batches that are no longer live."""
        for number, batches, size in removed.by_segment():
            live = self.by_number[number].live
            live.batches -= batches
            live.bytes -= size

    # --- reading, in any thread ------------------------------------------------------------------------------------
    def entries(self, first: RaftIndex, last: RaftIndex, bytes_max: int) -> list[Entry]:
        """Entries [first, last] that are there, cut off after *bytes_max* bytes of bodies but at least one. Raises Damage."""
        entries: list[Entry] = []
        for segment in self.all[:]:
            if segment.first_index > last:
                break
            if segment.last_index < first or not segment.entries:
                continue
            try:
                with self.descriptors.using(segment.number, segment.path) as descriptor:
                    if not self._is_current(segment):
                        continue  # deleted or rewritten since, hence below first_index
                    window = ReadWindow(self._files, descriptor, segment.end)
                    if not self._collect(window, segment, first, last, bytes_max, entries):
                        break
            except FileNotFoundError:
                continue  # deleted
        return entries

    def _collect(
        self,
        window: ReadWindow,
        segment: Segment,
        first: RaftIndex,
        last: RaftIndex,
        bytes_max: int,
        entries: list[Entry],
    ) -> bool:
        """Add the segment's entries [first, last] to *entries*; False once *bytes_max* is reached. Raises Damage."""
        size = sum(len(entry.body) for entry in entries)
        position = segment.marks.before_index(first)
        while position < window.end:
            try:
                read = read_entry(window, position)
            except Damage as damage:
                raise Damage(f"{segment.path}: position {position}: {damage}") from damage
            entry, position = read.entry, read.end
            if entry.index > last:
                return False
            if entry.index >= first:
                entry = self._opened(segment, read)
                size += len(entry.body)
                if entries and size > bytes_max:
                    return False
                entries.append(entry)
        return True

    def changes(self, first: RaftIndex, last: RaftIndex, entries_max: int) -> FoundChanges:
        """The changes in entries [first, last], cut off after *entries_max* entries. Messages are skipped, so that damage in
        them is not noticed. Raises Damage."""
        changes: list[Entry] = []
        for segment in self.all[:]:
            if segment.first_index > last:
                break
            if segment.last_index < first or not segment.entries:
                continue
            try:
                with self.descriptors.using(segment.number, segment.path) as descriptor:
                    if not self._is_current(segment):
                        continue  # deleted or rewritten since
                    window = ReadWindow(self._files, descriptor, segment.end)
                    position = segment.marks.before_index(first)
                    while position < window.end:
                        try:
                            read = read_changes(window, position)
                        except Damage as damage:
                            raise _placed(damage, segment, position) from damage
                        position = read.end
                        if first <= read.index <= last:
                            if not entries_max:
                                return FoundChanges(changes, read.index)
                            entries_max -= 1
                            changes += [Entry(read.index, read.term, Kind.CHANGE, body) for body in read.bodies]
            except FileNotFoundError:
                continue  # deleted
        return FoundChanges(changes, RaftIndex(last + 1))

    def index_of(self, ref: BatchRef) -> RaftIndex:
        """The index of the entry that has the batch. Raises Damage, StaleRef."""
        segment = self.by_number.get(ref.segment)
        if segment is None:
            raise StaleRef(f"segment {ref.segment} of {self._directory} is gone")
        try:
            with self.descriptors.using(segment.number, segment.path) as descriptor:
                if not self._is_current(segment):
                    raise StaleRef(f"{segment.path} was rewritten")
                return self._index_at(segment, descriptor, ref.position)
        except FileNotFoundError as error:
            raise StaleRef(f"{segment.path} is gone") from error
        except Damage as damage:
            raise _placed(damage, segment, ref.position) from damage

    def _opened(self, segment: Segment, entry: EntryInSegment) -> Entry:
        """The entry in clear. Raises Damage, WrongKey."""
        if self._cipher is None:
            return entry.entry
        try:
            return self._cipher.decrypted(entry.entry)
        except Damage as damage:
            raise _placed(damage, segment, entry.position) from damage

    def read(self, ref: BatchRef) -> bytes:
        """The records of a batch, from the file, decrypted and CRC verified. Raises Damage with file and position, StaleRef."""
        segment = self.by_number.get(ref.segment)
        if segment is None:
            raise StaleRef(f"segment {ref.segment} of {self._directory} is gone")
        start = ref.position - BEFORE_RECORDS  # of the entry, if this is its first batch
        try:
            pin = self.descriptors.pin(segment.number, segment.path)
            try:
                if not self._is_current(segment):
                    raise StaleRef(f"segment {ref.segment} of {self._directory} is gone or was rewritten")
                more = ENCRYPTION_BYTES if self._cipher is not None else 0
                data = self._files.pread(pin.descriptor, BEFORE_RECORDS + ref.length + more, start)
                return self._records(segment, pin.descriptor, ref, data)
            finally:
                self.descriptors.unpin(pin)
        except Damage as damage:
            raise _placed(damage, segment, ref.position) from damage
        except FileNotFoundError as error:
            raise StaleRef(f"{segment.path} is gone") from error
        except OSError as error:
            raise Damage(f"{segment.path}: position {ref.position}: {error.strerror}") from error

    def read_cached(self, refs: Seq[BatchRef]) -> list[memoryview] | None:
        """The records of batches, CRC verified, if the system has all of them in memory; for the event loop.

        None if a disk would have to be read, or if anything is wrong: `read` reports it.
        Batches that lie together in one segment are read at once, and stay in memory together."""
        if self._cipher is not None:  # decryption takes too long for the event loop
            return None
        batches: list[memoryview] = []
        at = 0
        while at < len(refs):
            behind = at + 1
            while behind < len(refs) and _are_together(refs[behind - 1], refs[behind]):
                behind += 1
            records = self._read_together(refs[at:behind])
            if records is None:
                return None
            batches += records
            at = behind
        return batches

    def _read_together(self, refs: Seq[BatchRef]) -> list[memoryview] | None:
        """Do the work of `read_cached` for batches that lie together in one segment."""
        pin = self.descriptors.pin_open(refs[0].segment)
        if pin is None:
            return None
        start = refs[0].position - BEFORE_RECORDS
        try:
            data = self._files.pread_cached(pin.descriptor, refs[-1].position + refs[-1].length - start, start)
        finally:
            self.descriptors.unpin(pin)
        if data is None:
            return None
        batches, view = [], memoryview(data)
        for ref in refs:
            try:
                _, records, crc, cipher = _batch(ref, view[ref.position - BEFORE_RECORDS - start :])
            except Damage:
                return None
            if cipher or crc != zlib.crc32(records):
                return None
            batches.append(records)
        return batches

    def _records(self, segment: Segment, descriptor: int, ref: BatchRef, data: bytes) -> bytes:
        """The records of a batch, in clear. Raises Damage, WrongKey.

        *data* are the bytes around *ref*: an entry's header if this is its first batch, the batch's header, its records, and
        as much behind them as encryption adds."""
        header, records, crc, number = _batch(ref, data)
        if number and self._cipher is None:
            raise WrongKey("encrypted, and no key was given")
        if crc != zlib.crc32(records):
            raise Damage("not the batch that was written here")
        cipher = self._cipher
        if cipher is None or (not number and segment.last_index < cipher.since):
            return records
        magic, *_, index = ENTRY_HEADER.unpack_from(data)
        if magic == ENTRY_MAGIC and segment.first_index <= index <= segment.last_index and number:
            with suppress(Damage):  # it only looked like a header
                return bytes(cipher.decrypt(header, records, RaftIndex(index)))
        return bytes(cipher.decrypt(header, records, self._index_at(segment, descriptor, ref.position)))

    def _index_at(self, segment: Segment, descriptor: int, position: int) -> RaftIndex:
        """Index of the entry that the place is in. Raises Damage."""
        window = ReadWindow(self._files, descriptor, segment.end)
        at = segment.marks.before_position(position)
        while at < segment.end:
            entry = read_entry(window, at)
            if position < entry.end:
                return entry.entry.index
            at = entry.end
        raise Damage("no entry is here")

    def sealed_from(self, index: RaftIndex) -> None:
        """Count a batch in clear as damage from the entry at *index* on."""
        if self._cipher is not None:
            self._cipher.since = index

    def check_key(self) -> None:
        """Decrypt one batch of each segment that has encrypted ones. Raises WrongKey, Damage, OSError."""
        for segment in self.all:
            with self.descriptors.using(segment.number, segment.path) as descriptor:
                entry = next(
                    filter(is_sealed, SegmentScan(ReadWindow(self._files, descriptor, segment.end), segment.header)),
                    None,
                )
            if entry is not None and self._cipher is None:
                raise WrongKey(f"{segment.path}: position {entry.position}: encrypted, and no key was given")
            if entry is not None:
                self._opened(segment, entry)

    def _is_current(self, segment: Segment) -> bool:
        """True if the segment is still in use, so that the file of its name is the intended one; called while it is pinned."""
        return not self._closed and self.by_number.get(segment.number) is segment

    def placed(self, active_outlines: bytearray) -> Iterator[Placed]:
        """All current entries, read lazily: one segment's outlines in memory at a time.

        An entry that is truncated before its turn may still come, or be left out.
        """
        return self._placed(self.all[:], active_outlines)

    def _placed(self, segments: list[Segment], active_outlines: bytearray) -> Iterator[Placed]:
        for segment in segments[:-1]:
            current = self.by_number.get(segment.number)
            if current is None:
                return
            for index, rows in walk_outlines(self._outlines(current)):
                yield Placed(index, segment.number, rows)
        for index, rows in walk_outlines(active_outlines):
            yield Placed(index, segments[-1].number, rows)

    def _outlines(self, segment: Segment) -> bytes | memoryview:
        """Outlines of a segment's entries: from its index file, or from itself if that is missing."""
        outlines = load_index_file(self._files, segment, segment.end)
        if outlines is not None:
            return outlines
        with self.descriptors.using(segment.number, segment.path) as descriptor:
            scan = SegmentScan(ReadWindow(self._files, descriptor, segment.end), segment.header)
            parts = [part for entry in scan for part in entry.outline]
        if scan.fault:
            raise Damage(f"{segment.path}: position {scan.position}: {scan.fault}")
        return b"".join(parts)


def _placed(damage: Damage, segment: Segment, position: int) -> Damage:
    """The same damage, with file and position in front of its text."""
    return type(damage)(f"{segment.path}: position {position}: {damage}")


def _are_together(ref: BatchRef, after: BatchRef) -> bool:
    """True if two batches lie close enough to be read at once."""
    between = after.position - ref.position - ref.length
    return after.segment == ref.segment and 0 <= between <= BETWEEN_BYTES_MAX


def _batch(ref: BatchRef, data: _Bytes) -> tuple[_Bytes, _Bytes, int, int]:
    """Header and records of a batch, its CRC, which is not compared yet, and the number of its cipher. Raises Damage.

    *data* begins BEFORE_RECORDS before the records; the bytes after them belong to them if they are encrypted."""
    header, records = data[ENTRY_HEADER_SIZE:BEFORE_RECORDS], data[BEFORE_RECORDS:]
    if len(records) < ref.length:
        raise Damage("not the batch that was written here")
    _, base, count, _, _, length, crc, flags = BATCH_HEADER.unpack(header)
    cipher = flags & CIPHER_MASK
    if not cipher:
        records = records[: ref.length]
    expected = (base, count, length - (ENCRYPTION_BYTES if cipher else 0), flags >> SIZE_SHIFT)
    if expected != (ref.base_sequence, ref.count, ref.length, ref.size):
        raise Damage("not the batch that was written here")
    return header, records, crc, cipher

"""Reading from the segment files of a log, in any thread.

Promises: a read gives the written bytes, or raises Damage with file and position; a place whose file was deleted or rewritten
raises StaleRef, never other bytes. A reader pins the file, then looks whether it is still the intended one.
"""

import errno
import zlib
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from contextlib import suppress
from functools import partial
from typing import TypeVar

from stan_protocol.scalars import KiB, RaftIndex

from stan.errors import Damage, WrongKey
from stan.log.encryption import LogCipher
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
)
from stan.log.files.segment_index_file import load_index_file, walk_outlines
from stan.log.files.segments import Segments
from stan.log.types import BatchRef, Entry, FoundChanges, StaleRef
from stan.log.uncommitted import Placed
from stan.protocol.entries import BATCH_HEADER, CIPHER_MASK, ENCRYPTION_BYTES, SIZE_SHIFT, Kind

BEFORE_RECORDS = ENTRY_HEADER_SIZE + BATCH_HEADER.size
"""Bytes in front of the records of an entry's first batch; its other batches have at least as many in front of them, too."""
BETWEEN_BYTES_MAX = 1 * KiB
"""Batches with at most this much between them are read at once: as fast as adjacent ones."""

_Bytes = TypeVar("_Bytes", bytes, memoryview)
_Result = TypeVar("_Result")


class SegmentReader:
    """Reads entries and batches of one log, decrypted."""

    def __init__(
        self,
        files: Files,
        directory: str,
        segments: Segments,
        cipher: LogCipher | None,
        on_damage: Callable[[], None] | None,
    ) -> None:
        """*on_damage*: called, in the reader's thread, if data are lost on the medium."""
        self._files = files
        self._directory = directory
        self._segments = segments
        self._cipher = cipher
        self._on_damage = on_damage

    # --- entries ---------------------------------------------------------------------------------------------------
    def entries(self, first: RaftIndex, last: RaftIndex, bytes_max: int) -> list[Entry]:
        """Entries [first, last] that are there, cut off after *bytes_max* bytes of bodies but at least one. Raises Damage, which
        is reported."""
        entries: list[Entry] = []
        size = 0
        try:
            for segment, window in self._windows(first, last):
                position = segment.marks.before_index(first)
                while position < window.end:
                    try:
                        read = read_entry(window, position)
                    except Damage as damage:
                        raise _placed(damage, segment, position) from damage
                    position = read.end
                    if read.entry.index > last:
                        return entries
                    if read.entry.index >= first:
                        entry = self._opened(segment, read)
                        size += len(entry.body)
                        if entries and size > bytes_max:
                            return entries
                        entries.append(entry)
        except Damage as damage:
            self.report(damage)
            raise
        return entries

    def changes(self, first: RaftIndex, last: RaftIndex, entries_max: int) -> FoundChanges:
        """The changes in entries [first, last], cut off after *entries_max* entries. Messages are skipped, so that damage in
        them is not noticed. Raises Damage."""
        changes: list[Entry] = []
        for segment, window in self._windows(first, last):
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
        return FoundChanges(changes, RaftIndex(last + 1))

    def _windows(self, first: RaftIndex, last: RaftIndex) -> Iterator[tuple[Segment, ReadWindow]]:
        """The segments with entries of [first, last], each open until the next one is asked for. One that was deleted or
        rewritten since, hence lies below the log's first index, is left out."""
        for segment in self._segments.all[:]:
            if segment.first_index > last:
                break
            if segment.last_index < first or not segment.entries:
                continue
            with (
                suppress(FileNotFoundError),
                self._segments.descriptors.using(segment.number, segment.path) as descriptor,
            ):
                if not self._segments.closed and self._segments.by_number.get(segment.number) is segment:
                    yield segment, ReadWindow(self._files, descriptor, segment.end)

    # --- batches ---------------------------------------------------------------------------------------------------
    def index_of(self, ref: BatchRef) -> RaftIndex:
        """The index of the entry that has the batch. Raises Damage, StaleRef."""
        return self._at(ref, partial(self._index_at, position=ref.position))

    def read(self, ref: BatchRef) -> bytes:
        """The records of a batch, from the file, decrypted and CRC verified. Raises Damage with file and position, StaleRef."""
        return self._at(ref, partial(self._records, ref=ref))

    def _at(self, ref: BatchRef, read: Callable[[Segment, int], _Result]) -> _Result:
        """Call *read* with the segment and the open file of a place. Raises Damage with file and position, StaleRef."""
        segments = self._segments
        segment = segments.by_number.get(ref.segment)
        if segment is None:
            raise StaleRef(f"segment {ref.segment} of {self._directory} is gone")
        try:
            pin = segments.descriptors.pin(segment.number, segment.path)
            try:
                if segments.closed or segments.by_number.get(ref.segment) is not segment:
                    raise StaleRef(f"segment {ref.segment} of {self._directory} is gone or was rewritten")
                return read(segment, pin.descriptor)
            finally:
                segments.descriptors.unpin(pin)
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
        pin = self._segments.descriptors.pin_open(refs[0].segment)
        if pin is None:
            return None
        start = refs[0].position - BEFORE_RECORDS
        try:
            data = self._files.pread_cached(pin.descriptor, refs[-1].position + refs[-1].length - start, start)
        finally:
            self._segments.descriptors.unpin(pin)
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

    def _records(self, segment: Segment, descriptor: int, ref: BatchRef) -> bytes:
        """The records of a batch, in clear. Raises Damage, WrongKey, OSError."""
        cipher, more = self._cipher, ENCRYPTION_BYTES if self._cipher is not None else 0
        # In front of the batch's own header is that of the entry, if this is its first batch.
        data = self._files.pread(descriptor, BEFORE_RECORDS + ref.length + more, ref.position - BEFORE_RECORDS)
        header, records, crc, number = _batch(ref, data)
        if number and cipher is None:
            raise WrongKey("encrypted, and no key was given")
        if crc != zlib.crc32(records):
            raise Damage("not the batch that was written here")
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

    # --- encryption ------------------------------------------------------------------------------------------------
    def sealed_from(self, index: RaftIndex) -> None:
        """Count a batch in clear as damage from the entry at *index* on."""
        if self._cipher is not None:
            self._cipher.since = index

    def check_key(self) -> None:
        """Decrypt one batch of each segment that has encrypted ones. Raises WrongKey, Damage, OSError."""
        for segment in self._segments.all:
            with self._segments.descriptors.using(segment.number, segment.path) as descriptor:
                entry = next(
                    filter(is_sealed, SegmentScan(ReadWindow(self._files, descriptor, segment.end), segment.header)),
                    None,
                )
            if entry is not None and self._cipher is None:
                raise WrongKey(f"{segment.path}: position {entry.position}: encrypted, and no key was given")
            if entry is not None:
                self._opened(segment, entry)

    def _opened(self, segment: Segment, entry: EntryInSegment) -> Entry:
        """The entry in clear. Raises Damage, WrongKey."""
        if self._cipher is None:
            return entry.entry
        try:
            return self._cipher.decrypted(entry.entry)
        except Damage as damage:
            raise _placed(damage, segment, entry.position) from damage

    def report(self, damage: Damage) -> None:
        """Call `on_damage` for *damage* in a read if data are lost on the medium.

        Not called if the read failed for another reason: a wrong key, or no descriptor or memory left."""
        cause = damage.__cause__
        lost = not isinstance(damage, WrongKey) and (not isinstance(cause, OSError) or cause.errno == errno.EIO)
        if self._on_damage is not None and lost:
            self._on_damage()

    # --- outlines --------------------------------------------------------------------------------------------------
    def placed(self, active_outlines: bytearray) -> Iterator[Placed]:
        """All current entries, read lazily: one segment's outlines in memory at a time.

        An entry that is truncated before its turn may still come, or be left out.
        """
        return self._placed(self._segments.all[:], active_outlines)

    def _placed(self, segments: list[Segment], active_outlines: bytearray) -> Iterator[Placed]:
        for segment in segments[:-1]:
            current = self._segments.by_number.get(segment.number)
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
        with self._segments.descriptors.using(segment.number, segment.path) as descriptor:
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

"""The end of a log: entries are written to the active segment, made durable there, and removed again if Raft requires it.

Promises L1 and L2 of stan.log.files.filelog: durable entries were synced, the name of a new file too; a failed write is
undone completely or freezes the writer for ever; a sync is never repeated. Knows nothing of commits, live batches or visibility.

Everything runs on the event loop, except `sync`, which may run in one worker thread beside it.
"""

import errno
from collections.abc import Callable
from collections.abc import Sequence as Seq
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Final

from stan_protocol.scalars import KiB, RaftIndex, Term

from stan.errors import NO_DESCRIPTOR, Frozen, InDoubt, Shortage, shortage
from stan.log.files.descriptors import Pin
from stan.log.files.disk import Files
from stan.log.files.recovery import PROBE, Recovery
from stan.log.files.segment import (
    EntryInSegment,
    LiveSpace,
    ReadWindow,
    Segment,
    SegmentHeader,
    SegmentScan,
    create_segment,
    place,
)
from stan.log.files.segment_index_file import IndexFileWriter, index_file_path
from stan.log.files.segments import Segments
from stan.log.types import Entry

PROBE_BYTES: Final = 64 * KiB
"""Room that a segment takes besides the entries that were refused: headers, index file, rows of the state."""
RESERVE_BYTES: Final = 256 * KiB
"""Zeros that are put behind the end of the active segment at once: a sync of entries that fill them in does not wait for the
file system's own log, as the file's size stays (ext4: 95 µs instead of 145)."""
RESERVES_BELOW: Final = 16 * KiB
"""Larger writes are worth their sync, and do not wait for zeros."""


@dataclass(slots=True)
class ActiveSegment:
    """The segment that gets the entries, with its open file and its index file so far."""

    segment: Segment
    pin: Pin
    index_file: IndexFileWriter
    reserved: int = 0  # bytes of the file, zeros included, if some were put behind its end
    reserves: bool = True  # the file system and its room have allowed it so far


class SegmentWriter:
    """Appends to the active segment, syncs it, begins the next one, and cuts the log."""

    def __init__(
        self, files: Files, directory: str, segments: Segments, recovery: Recovery, segment_bytes_max: int
    ) -> None:
        """Continue after the last segment of *recovery*; adds that segment to *segments*."""
        self._files = files
        self._directory = directory
        self._segments = segments
        self._segment_bytes_max = segment_bytes_max
        self._rolled_from = segment_bytes_max - segment_bytes_max // 8  # bytes of a nearly full segment
        last, opened = recovery.segments[-1], recovery.active
        index_file = opened.index_file or IndexFileWriter(files, index_file_path(last.path))
        self.active = ActiveSegment(last, segments.add(last, opened.descriptor), index_file, opened.reserved)
        self._mark = recovery.mark
        self._tip = last.last_index  # newest entry that a sync would cover
        self.durable_index = self._tip  # goes up under the lock, and down with the tip
        self.lock = Lock()  # one fdatasync at a time: the kernel reports a failed write-back only once
        self.frozen = ""  # the reason why all writes are refused; "" while they are not

    def check(self) -> None:
        """Raise Frozen if a write or a sync has failed, or the log is closed."""
        if self.frozen:
            raise Frozen(self.frozen)

    # --- more entries ----------------------------------------------------------------------------------------------
    def append(self, entries: Seq[Entry], sealed: Callable[[Entry], Entry] | None) -> list[EntryInSegment]:
        """Write consecutive entries, each as *sealed* makes it, in one write; returns their places.

        A full segment is rolled before, a nearly full one if that needs no sync. Raises Shortage, InDoubt (see FileLog.append).
        """
        end = self.active.segment.end
        if end >= self._segment_bytes_max or (end >= self._rolled_from and self.durable_index == self._tip):
            self.roll(RaftIndex(self.active.segment.last_index + 1))
        active = self.active
        segment, index_file = active.segment, active.index_file
        placed = place(entries, segment, sealed)
        buffers: list[bytes] = []
        for entry in placed:
            buffers += (entry.outline[0], entry.entry.body)
        self._reserve(placed[-1].end)
        try:
            self._files.pwritev(active.pin.descriptor, buffers, segment.end)
        except OSError as error:
            with self.lock:
                raise self._undo(error) from error
        for entry in placed:
            segment.note(entry)
            index_file.add(entry.outline)
        self._tip = segment.last_index
        return placed

    def _reserve(self, end: int) -> None:
        """Put zeros behind a small write that goes up to *end*, if the file has none left there.

        They never reach the size at which a segment is rolled, so that a full segment ends with its last entry."""
        active, size = self.active, min(end + RESERVE_BYTES, self._rolled_from)
        if end <= active.reserved or size <= end or end - active.segment.end > RESERVES_BELOW or not active.reserves:
            return
        try:
            active.reserved = self._files.reserve(active.pin.descriptor, size)
        except OSError:  # no room, or not on this file system: the file grows with each write
            active.reserves = False

    def _cut_reserve(self) -> None:
        """Cut the zeros behind the end of the active segment, durably, as only the last segment may have some. Raises OSError."""
        active = self.active
        if active.reserved > active.segment.end:
            self._files.ftruncate(active.pin.descriptor, active.segment.end)
            self._files.fdatasync(active.pin.descriptor)
        active.reserved = 0

    def sync(self) -> RaftIndex:
        """Make everything appended before the call durable; returns the new durable_index. Blocking.

        Raises InDoubt, Frozen; Shortage: the name of a new segment could not be synced yet, and the next call does it.
        The caller holds the lock. Syncs the active segment; older ones were synced when they were sealed."""
        if self.frozen:
            raise Frozen(self.frozen)
        active, tip = self.active, self._tip
        if tip > self.durable_index:
            try:
                self._files.fdatasync(active.pin.descriptor)
                if not active.segment.named:
                    self._sync_name(active.segment)
            except OSError as error:
                raise self._freeze(error) from error
            self.durable_index = tip
            self._mark.advance(tip)
        return self.durable_index

    def _sync_name(self, segment: Segment) -> None:
        """Make a new segment's name durable. Raises OSError; Shortage: the directory could not even be opened."""
        try:
            self._files.sync_directory(self._directory)
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                raise Shortage(f"{self._directory}: {error.strerror}") from error
            raise
        segment.named = True

    def roll(self, first: RaftIndex) -> None:
        """Seal the active segment and begin the next one with the entry at *first*; waits for a sync that is running."""
        with self.lock:
            self.sync()
            full = self.active
            try:
                self._cut_reserve()
                self._begin(first, full.segment.last_term)
            except OSError as error:
                raise self._undo(error) from error
            full.index_file.seal(full.segment)
            full.segment.sealed = True

    def _begin(self, first: RaftIndex, previous_term: Term) -> None:
        """Create the segment that gets the next entries. Raises OSError and then has changed nothing."""
        old = self.active.segment.header
        header = SegmentHeader(old.group, first, previous_term, old.store_id, 0)
        segment, descriptor = create_segment(self._files, self._directory, header, self._segments.next_number())
        self._activate(segment, self._segments.add(segment, descriptor))

    def _activate(self, segment: Segment, pin: Pin) -> None:
        """Make *segment* the one that gets entries."""
        self._segments.descriptors.unpin(self.active.pin)
        self.active = ActiveSegment(segment, pin, IndexFileWriter(self._files, index_file_path(segment.path)))

    def has_room(self, size: int) -> bool:
        """Return True if a file of *size* bytes and some more could be written; such a file is removed at once."""
        path = f"{self._directory}/{PROBE}"
        try:
            descriptor = self._files.create(path)
            try:
                self._files.pwritev(descriptor, [bytes(size + PROBE_BYTES)], 0)
            finally:
                self._files.close(descriptor)
                self._files.unlink(path)
        except OSError:
            return False
        return True

    # --- failures --------------------------------------------------------------------------------------------------
    def _undo(self, error: OSError) -> Shortage | InDoubt:
        """After a failed write: restore the file's end if it failed for a shortage, else freeze; returns the error to raise.

        The caller holds the lock: a failed write-back is reported to one fdatasync only, and it must not be hidden from
        a sync that runs beside this one."""
        if self.frozen:  # by a sync that the caller had to wait for
            return InDoubt(self.frozen)
        short = shortage(error)
        if short is None:
            return self._freeze(error)
        active = self.active
        active.reserved, active.reserves = 0, False
        try:
            self._files.ftruncate(active.pin.descriptor, active.segment.end)
            self._files.fdatasync(active.pin.descriptor)  # else a power loss could bring back refused entries
        except OSError as worse:
            return self._freeze(worse)
        return short(f"{active.segment.path}: {error.strerror}")

    def _freeze(self, error: OSError) -> InDoubt:
        self.frozen = f"{self.active.segment.path}: {error.strerror}"
        return InDoubt(self.frozen)

    # --- fewer entries ---------------------------------------------------------------------------------------------
    def truncate_after(self, index: RaftIndex, committed: RaftIndex, cleaning: Segment | None) -> None:
        """Remove every entry after *index*, durably. Raises InDoubt, and is frozen then.

        The caller holds the lock, and prevents that a segment is deleted, or its cleaning begins.

        Args:
            index: of the last entry that stays, if it is there; never below *committed*.
            committed: the durable index if power is lost before all of it is done.
            cleaning: the segment that is being rewritten, which must stay as it is.
        """
        try:
            self._mark.lower(min(self._mark.index, committed))
            self._truncate(index, cleaning)
            self._mark.advance(self.active.segment.last_index)
        except OSError as error:
            raise self._freeze(error) from error
        # A sync that waits for the lock must not count removed entries.
        self._tip = self.durable_index = self.active.segment.last_index

    def _truncate(self, index: RaftIndex, cleaning: Segment | None) -> None:
        """Delete whole segments, the newest first, so that a crash in between leaves a prefix of the log; then cut the last."""
        self.active.index_file.drop()
        self._cut_reserve()
        segments = self._segments
        while segments.all and segments.all[-1].first_index > index + 1:
            segments.delete(segments.all[-1])
            self._files.sync_directory(self._directory)
        last = segments.all[-1] if segments.all else None
        if last is None or last.header.generation or last is cleaning:
            self._begin(RaftIndex(index + 1), last.last_term if last and last.last_index == index else Term(0))
        else:
            self._reopen(last, index)
        self._files.fdatasync(self.active.pin.descriptor)
        self._files.sync_directory(self._directory)
        self.active.segment.named = True

    def _reopen(self, segment: Segment, index: RaftIndex) -> None:
        """Cut off the end of a segment after *index* and make the segment the active one."""
        pin = self._segments.descriptors.pin(segment.number, segment.path)
        live = LiveSpace(segment.live.batches, segment.live.bytes)
        shorter = Segment(segment.number, segment.path, segment.header, live=live)
        self._segments.drop_index_file(segment)
        self._segments.all[-1] = self._segments.by_number[segment.number] = shorter
        self._activate(shorter, pin)
        scan = SegmentScan(ReadWindow(self._files, pin.descriptor, segment.end), segment.header)
        for entry in scan:
            if entry.entry.index > index:
                break
            shorter.note(entry)
            self.active.index_file.add(entry.outline)
        else:
            if scan.fault:
                raise OSError(errno.EIO, f"damaged at position {scan.position}: {scan.fault}")
        self._files.ftruncate(pin.descriptor, shorter.end)

    def close(self) -> None:
        """Refuse all writes from now on, and close the files; the segment's own after its last reader."""
        active = self.active
        if active.reserved > active.segment.end and not self.frozen:
            with suppress(OSError):
                self._files.ftruncate(active.pin.descriptor, active.segment.end)
        self.frozen = self.frozen or f"{self._directory} is closed"
        self.active.index_file.close()
        self._mark.close()
        self._segments.descriptors.unpin(self.active.pin)

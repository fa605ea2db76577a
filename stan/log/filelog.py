"""The log of one group in a directory of segment files: the Raft log is the message log (DESIGN 6).

Promises:
    L1  `durable_index` covers an entry only after fdatasync of its file, and fsync of a new file's directory, returned.
    L2  A failed write is taken back whole (disk full) or freezes the log for ever (anything else).
    L3  Only committed batches are in a channel's index; a committed entry is never truncated.
    L4  A file is deleted only if it is sealed, holds no kept message, and durable state covers all its entries.
Never caches what it could not write, never retries a sync: after a failed one the kernel may have dropped the bytes.

Threads: everything runs on the event loop, except `sync`, `read`, `entries` and `clean`, which may run in one worker thread each
beside it. What they share with the loop is a dictionary of segments, pinned descriptors, and the lock around fdatasync.

Modelled on Liftbridge's commitlog; segment and index as in Kafka.
"""

import errno
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Self

from stan import limits
from stan.errors import Damage, DiskFull, Frozen, StartError
from stan.invariant import invariant
from stan.log.channels import Channels
from stan.log.descriptors import Descriptors, Pin
from stan.log.files import Files, OsFiles
from stan.log.index import Removed
from stan.log.pending import Pending, Placed
from stan.log.recovery import Recovery, RecoveryReport, create_segment
from stan.log.segment import (
    ENTRY_HEADER_SIZE,
    Found,
    Row,
    Scan,
    Segment,
    SegmentHeader,
    Window,
    encode_entry_header,
    outline,
    read_entry,
    rows_of,
)
from stan.log.sidecar import SidecarWriter, load_sidecar, sidecar_path, walk_outlines
from stan.log.tail import TailCache
from stan.log.types import BatchRef, ChannelIndex, Entry, StaleRef
from stan.protocol.entries import BATCH_HEADER
from stan.types import ChannelUid, GroupId, RaftIndex, Sequence, Term

POSITION_MAX = 0xFFFF_FFFF
"""Places in a segment file are kept in 32 bits."""
FILE_MESSAGE_OVERHEAD = 40
"""Bytes that a file store accounts per message on top of its encoding (STAN-SPEC 7.1)."""


class FileLog:
    """`GroupLog` over segment files. Made by `open` only."""

    def __init__(
        self,
        files: Files,
        directory: str,
        recovery: Recovery,
        *,
        segment_bytes_max: int,
        tail_cache_bytes_max: int,
        overhead: int,
    ) -> None:
        self._files = files
        self._directory = directory
        self._segment_bytes_max = segment_bytes_max
        self._numbers = recovery.numbers
        self._segments = recovery.segments  # oldest first, the last is active
        self._by_number = {segment.number: segment for segment in self._segments}
        self._descriptors = Descriptors(files, limits.SEGMENT_FILES_OPEN_MAX)
        self._active = self._segments[-1]
        self._active_pin = self._descriptors.adopt(self._active.number, recovery.descriptor)
        self._sidecar = recovery.writer or SidecarWriter(files, sidecar_path(self._active.path))
        self._channels = Channels(self, overhead)
        self._pending = Pending(self._recovered(list(self._segments), recovery.outlines), self._active.last_index)
        self._tail = TailCache(tail_cache_bytes_max)
        self._tip = self._active.last_index  # newest entry that a sync would cover
        self._durable = self._tip
        self._committed = RaftIndex(0)
        self._released = RaftIndex(0)
        self._sync_lock = Lock()  # one fdatasync at a time: the kernel tells of a failed write-back only once
        self._frozen = ""  # why the log takes nothing any more
        self._first_index = self._contiguous_from()

    @classmethod
    def open(
        cls,
        directory: Path,
        group: GroupId,
        store_id: bytes,
        *,
        lost_found: Path | None = None,
        files: Files | None = None,
        segment_bytes_max: int = limits.SEGMENT_BYTES_MAX,
        tail_cache_bytes_max: int = limits.TAIL_CACHE_BYTES_MAX,
        overhead: int = FILE_MESSAGE_OVERHEAD,
    ) -> tuple[Self, RecoveryReport]:
        """Open the log in *directory*, made if need be; blocking. Nothing is indexed before commit().

        Args:
            directory: of this group alone.
            group: refused if the files belong to another one.
            store_id: 16 bytes, the same for every log of a store; refused if the files have another one.
            lost_found: where damaged segments go; by default `lost+found` beside *directory*. The same file system.
            files: the operating system, if not a test's twin of it.
            segment_bytes_max: a segment is rolled once it holds this much.
            tail_cache_bytes_max: newest record batches kept in memory.
            overhead: bytes that a channel accounts per message on top of its encoding (STAN-SPEC 7.1).

        Raises:
            StartError: the files belong to someone else, or the disk refuses; the text says which file and why.
        """
        files = files or OsFiles()
        recovery = Recovery(files, str(directory), str(lost_found or directory.parent / "lost+found"), group, store_id)
        try:
            recovery.run()
        except OSError as error:
            raise StartError(f"log in {directory}: {error}") from error
        log = cls(
            files,
            str(directory),
            recovery,
            segment_bytes_max=segment_bytes_max,
            tail_cache_bytes_max=tail_cache_bytes_max,
            overhead=overhead,
        )
        return log, recovery.report

    def _recovered(self, segments: list[Segment], active_outlines: list[list[bytes]]) -> Iterator[Placed]:
        """What the files held at the start, one segment's outlines in memory at a time."""
        for segment in segments[:-1]:
            for index, rows in walk_outlines(self._outlines(segment)):
                yield Placed(index, segment.number, rows)
        for index, rows in walk_outlines(b"".join(map(b"".join, active_outlines))):
            yield Placed(index, segments[-1].number, rows)

    def _outlines(self, segment: Segment) -> bytes:
        """Outlines of a sealed segment's entries: from its sidecar, or from itself if that has vanished meanwhile."""
        outlines = load_sidecar(self._files, segment, segment.end)
        if outlines is not None:
            return outlines
        with self._descriptors.using(segment.number, segment.path) as descriptor:
            scan = Scan(Window(self._files, descriptor, segment.end), segment.header)
            parts = [part for found in scan for part in outline(found)]
        if scan.fault:
            raise Damage(f"{segment.path}: position {scan.position}: {scan.fault}")
        return b"".join(parts)

    # --- where the log begins and ends -----------------------------------------------------------------------------
    @property
    def first_index(self) -> RaftIndex:
        """See GroupLog; older entries may exist, with holes between them."""
        return self._first_index

    @property
    def last_index(self) -> RaftIndex:
        """See GroupLog."""
        return self._active.last_index

    @property
    def last_term(self) -> Term:
        """See GroupLog."""
        return self._active.last_term

    @property
    def durable_index(self) -> RaftIndex:
        """See GroupLog."""
        return self._durable

    @property
    def sealed_index(self) -> RaftIndex:
        """See GroupLog."""
        return self._segments[-2].last_index if len(self._segments) > 1 else RaftIndex(0)

    @property
    def size(self) -> int:
        """Bytes of all segment files."""
        return sum(segment.end for segment in list(self._segments))

    # --- writing ---------------------------------------------------------------------------------------------------
    def append(self, entries: Seq[Entry]) -> None:
        """See GroupLog."""
        self._check()
        if not entries:
            return
        if self._active.end >= self._segment_bytes_max:
            self._roll()
        segment = self._active
        position, index, term = segment.end, segment.last_index, segment.last_term
        placed: list[Found] = []
        buffers: list[bytes] = []
        for entry in entries:
            invariant(entry.index == index + 1, "entries are consecutive", index=entry.index, last_index=index)
            invariant(entry.term >= term, "terms never go back", term=entry.term, last_term=term)
            invariant(len(entry.body) <= limits.ENTRY_BYTES_MAX, "an entry is bounded", length=len(entry.body))
            index, term = entry.index, entry.term
            header = encode_entry_header(entry)
            end = position + len(header) + len(entry.body)
            placed.append(Found(header, entry, rows_of(entry, position), position, end))
            buffers += (header, entry.body)
            position = end
        invariant(position <= POSITION_MAX, "positions have 32 bits", position=position)
        try:
            self._files.pwritev(self._active_pin.descriptor, buffers, segment.end)
        except OSError as error:
            raise self._take_back(error) from error
        for found in placed:
            segment.note(found)
            self._pending.add(Placed(found.entry.index, segment.number, found.rows))
            self._tail.put(segment.number, found.entry.body, found.position + ENTRY_HEADER_SIZE, found.rows)
            self._sidecar.add(outline(found))
        self._tip = index

    def sync(self) -> RaftIndex:
        """See GroupLog."""
        with self._sync_lock:
            return self._sync()

    def _sync(self) -> RaftIndex:
        """Sync the active segment; older ones were synced when they were sealed. The caller holds the lock."""
        self._check()
        segment, tip = self._active, self._tip
        if tip > self._durable:
            try:
                self._files.fdatasync(self._active_pin.descriptor)
                if not segment.named:
                    self._files.sync_directory(self._directory)
                    segment.named = True
            except OSError as error:
                raise self._freeze(error) from error
            self._durable = tip
        return self._durable

    def _roll(self) -> None:
        """Seal the active segment and begin the next one; waits for a sync that is running."""
        with self._sync_lock:
            self._sync()
            full, sidecar = self._active, self._sidecar
            try:
                self._begin(RaftIndex(full.last_index + 1), full.last_term)
            except OSError as error:
                raise self._take_back(error) from error
            sidecar.seal(full)
            full.sealed = True

    def _begin(self, first: RaftIndex, previous_term: Term) -> None:
        """Create the segment that gets the next entries. Raises OSError and then has changed nothing."""
        old = self._active.header
        header = SegmentHeader(old.group, first, previous_term, old.store_id, 0)
        segment, descriptor = create_segment(self._files, self._directory, header, next(self._numbers))
        self._segments.append(segment)
        self._activate(segment, self._descriptors.adopt(segment.number, descriptor))

    def _activate(self, segment: Segment, pin: Pin) -> None:
        """Entries go to *segment* from now on."""
        self._descriptors.unpin(self._active_pin)
        self._active_pin = pin
        self._by_number[segment.number] = self._active = segment
        self._sidecar = SidecarWriter(self._files, sidecar_path(segment.path))

    def _take_back(self, error: OSError) -> DiskFull | Frozen:
        """A write failed: restore the file's end if the disk is only full, else take nothing more."""
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return self._freeze(error)
        try:
            self._files.ftruncate(self._active_pin.descriptor, self._active.end)
        except OSError as worse:
            return self._freeze(worse)
        return DiskFull(f"{self._active.path}: {error}")

    def _freeze(self, error: OSError) -> Frozen:
        self._frozen = f"{self._active.path}: {error}"
        return Frozen(self._frozen)

    def _check(self) -> None:
        if self._frozen:
            raise Frozen(self._frozen)

    def truncate_after(self, index: RaftIndex) -> None:
        """See GroupLog; if *index* lies in a hole the log ends before it."""
        self._check()
        invariant(index >= self._committed, "L3: committed entries stay", index=index, committed=self._committed)
        if index >= self.last_index:
            return
        with self._sync_lock:
            try:
                self._truncate(index)
            except OSError as error:
                raise self._freeze(error) from error
        self._pending.truncate_after(index)
        self._tail.clear()  # the places behind *index* are about to be written again
        self._tip = self._durable = self.last_index
        self._first_index = self._contiguous_from()

    def _truncate(self, index: RaftIndex) -> None:
        """Remove whole segments, the newest first, so that a crash in between leaves a beginning; then cut the last."""
        self._sidecar.drop()
        while self._segments and self._segments[-1].first_index > index + 1:
            self._delete(self._segments.pop())
            self._files.sync_directory(self._directory)
        last = self._segments[-1] if self._segments else None
        if last is not None and last.header.generation == 0:
            self._reopen(last, index)
        else:
            self._begin(RaftIndex(index + 1), last.last_term if last and last.last_index == index else Term(0))
        self._files.fdatasync(self._active_pin.descriptor)
        self._files.sync_directory(self._directory)
        self._active.named = True

    def _reopen(self, segment: Segment, index: RaftIndex) -> None:
        """Cut a segment behind *index* and make it the active one."""
        pin = self._descriptors.pin(segment.number, segment.path)
        shorter = Segment(
            segment.number,
            segment.path,
            segment.header,
            kept_batches=segment.kept_batches,
            kept_bytes=segment.kept_bytes,
        )
        self._drop_sidecar(segment)
        self._segments[-1] = shorter
        self._activate(shorter, pin)
        scan = Scan(Window(self._files, pin.descriptor, segment.end), segment.header)
        for found in scan:
            if found.entry.index > index:
                break
            shorter.note(found)
            self._sidecar.add(outline(found))
        else:
            if scan.fault:
                raise OSError(errno.EIO, f"damaged at position {scan.position}: {scan.fault}")
        self._files.ftruncate(pin.descriptor, shorter.end)

    def _delete(self, segment: Segment) -> None:
        """Remove a segment's files. Raises OSError."""
        self._by_number.pop(segment.number, None)
        self._descriptors.forget(segment.number)
        self._files.unlink(segment.path)
        self._drop_sidecar(segment)

    def _drop_sidecar(self, segment: Segment) -> None:
        with suppress(OSError):  # there may be none; an orphan is removed at the next start
            self._files.unlink(sidecar_path(segment.path))

    # --- reading ---------------------------------------------------------------------------------------------------
    def entries(self, first: RaftIndex, last: RaftIndex, bytes_max: int) -> list[Entry]:
        """See GroupLog; below first_index there may be holes, which are left out."""
        found: list[Entry] = []
        for segment in list(self._segments):
            if segment.first_index > last:
                break
            if segment.last_index < first or not segment.entries:
                continue
            try:
                with self._descriptors.using(segment.number, segment.path) as descriptor:
                    if self._by_number.get(segment.number) is not segment:
                        continue  # rewritten or deleted since: below first_index
                    window = Window(self._files, descriptor, segment.end)
                    if not _collect(window, segment, first, last, bytes_max, found):
                        break
            except FileNotFoundError:
                continue
        return found

    def term_at(self, index: RaftIndex) -> Term:
        """See GroupLog; also known for the entry before first_index, which Raft's consistency check asks for."""
        if not self._first_index - 1 <= index <= self.last_index:
            return Term(0)
        segments = self._segments
        segment = segments[max(0, bisect_right(segments, index, key=lambda segment: segment.first_index) - 1)]
        if index > segment.last_index:
            return Term(0)
        return segment.term_at(index) if index >= segment.first_index else segment.header.previous_term

    def read(self, ref: BatchRef) -> bytes:
        """See GroupLog. Raises StaleRef if the batch's segment was deleted or rewritten: ask the index again."""
        cached = self.recent(ref)
        if cached is not None:
            return bytes(cached)
        segment = self._by_number.get(ref.segment)
        if segment is None:
            raise StaleRef(f"segment {ref.segment} of {self._directory} is gone")
        start = ref.position - BATCH_HEADER.size
        try:
            with self._descriptors.using(segment.number, segment.path) as descriptor:
                data = self._files.pread(descriptor, BATCH_HEADER.size + ref.length, start)
        except FileNotFoundError as error:
            raise StaleRef(f"{segment.path} is gone") from error
        except OSError as error:
            raise Damage(f"{segment.path}: position {ref.position}: {error}") from error
        if self._by_number.get(ref.segment) is not segment:
            raise StaleRef(f"{segment.path} was rewritten")
        records = data[BATCH_HEADER.size :]
        if len(records) == ref.length:
            _, base, count, _, _, length, crc, _ = BATCH_HEADER.unpack_from(data)
            if (base, count, length) == (ref.base_sequence, ref.count, ref.length) and crc == zlib.crc32(records):
                return records
        raise Damage(f"{segment.path}: position {ref.position}: not the batch that was written here")

    def recent(self, ref: BatchRef) -> bytes | memoryview | None:
        """See GroupLog."""
        return self._tail.get(ref.segment, ref.position)

    # --- what is visible, what is kept -----------------------------------------------------------------------------
    def commit(self, index: RaftIndex) -> None:
        """See GroupLog. After a start: commit first, then trim and drop as the state says."""
        invariant(index <= self.last_index, "only what is here can be committed", index=index, last=self.last_index)
        for placed in self._pending.take(index):
            self._channels.commit(placed)
        self._committed = max(self._committed, index)

    def channel(self, uid: ChannelUid) -> ChannelIndex:
        """See GroupLog."""
        return self._channels.get(uid)

    def channels(self) -> list[ChannelUid]:
        """Channels that have an index: those not in the registry any more want a drop()."""
        return self._channels.uids()

    def trim(self, uid: ChannelUid, first_sequence: Sequence) -> None:
        """See GroupLog."""
        self._channels.trim(uid, first_sequence)

    def drop(self, uid: ChannelUid) -> None:
        """See GroupLog; a batch that is committed later makes the channel anew."""
        self._channels.drop(uid)

    def kept(self, segment: int, row: Row) -> None:
        """Ledger: a batch became visible."""
        holder = self._by_number[segment]
        holder.kept_batches += 1
        holder.kept_bytes += row.length

    def refused(self, segment: int, row: Row) -> None:
        """Ledger: nothing of the batch was kept; its bytes count as dead already."""

    def removed(self, removed: Removed) -> None:
        """Ledger: batches are not kept any more."""
        for number, batches, size in removed.by_segment():
            holder = self._by_number[number]
            holder.kept_batches -= batches
            holder.kept_bytes -= size

    def release(self, index: RaftIndex) -> None:
        """See GroupLog; a file that cannot be deleted now is tried again by the next call."""
        self._released = max(self._released, index)
        covered = min(self._released, self._committed)
        for segment in self._segments[:-1]:
            if segment.kept_batches or segment.last_index > covered:
                continue
            with suppress(OSError):
                self._delete(segment)
                self._segments.remove(segment)
        self._first_index = self._contiguous_from()

    def _contiguous_from(self) -> RaftIndex:
        """First index from which no entry is missing up to the end."""
        first = self._active.first_index
        for segment in reversed(self._segments[:-1]):
            if segment.header.generation or segment.last_index + 1 != first:
                break
            first = segment.first_index
        return first

    def close(self) -> None:
        """See GroupLog; raises Frozen after closing if the last sync fails."""
        try:
            if not self._frozen:
                self.sync()
        finally:
            self._frozen = self._frozen or f"{self._directory} is closed"
            self._sidecar.close()
            self._descriptors.unpin(self._active_pin)
            self._descriptors.close()


def _collect(
    window: Window, segment: Segment, first: RaftIndex, last: RaftIndex, bytes_max: int, found: list[Entry]
) -> bool:
    """Add the segment's entries [first, last] to *found*; False once *bytes_max* is reached. Raises Damage."""
    size = sum(len(entry.body) for entry in found)
    position = segment.position_before(first)
    while position < window.end:
        try:
            entry, position = read_entry(window, position)[1::3]
        except Damage as damage:
            raise Damage(f"{segment.path}: position {position}: {damage}") from damage
        if entry.index > last:
            return False
        if entry.index >= first:
            size += len(entry.body)
            if found and size > bytes_max:
                return False
            found.append(entry)
    return True

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
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Self

from stan import limits
from stan.errors import Damage, DiskFull, Frozen, InDoubt, NotNow, StartError, WrongKey
from stan.invariant import invariant
from stan.log.channel_indexes import ChannelIndexes, Visible
from stan.log.encryption import Encryptor, LogCipher
from stan.log.files.cleaner import Rewritten, rewrite
from stan.log.files.descriptors import Pin
from stan.log.files.disk import Files, OsFiles
from stan.log.files.recovery import Recovery, RecoveryReport, create_segment, segment_name
from stan.log.files.segment import (
    ENTRY_HEADER_SIZE,
    KeptSpace,
    ReadWindow,
    Segment,
    SegmentHeader,
    SegmentScan,
    outline,
    place,
)
from stan.log.files.segment_index_file import IndexFileWriter, index_file_path
from stan.log.files.segments import Extent, Segments
from stan.log.index import Removed
from stan.log.tail import TailCache
from stan.log.types import BatchRef, BatchRow, Entry
from stan.log.uncommitted import Placed, UncommittedEntries
from stan.protocol.entries import ENCRYPTION_BYTES
from stan.types import GroupId, RaftIndex, Term

FILE_MESSAGE_OVERHEAD = 40
"""Bytes that a file store accounts per message on top of its encoding (STAN-SPEC 7.1)."""


class FileLog(Visible):
    """`GroupLog` over segment files. Made by `open` only."""

    syncs_alone = True

    def __init__(
        self,
        files: Files,
        directory: str,
        recovery: Recovery,
        *,
        segment_bytes_max: int,
        tail_cache_bytes_max: int,
        overhead: int,
        cipher: LogCipher | None,
    ) -> None:
        self._files = files
        self._cipher = cipher
        self._encryptor = Encryptor(cipher) if cipher is not None else None
        self._directory = directory
        self._segment_bytes_max = segment_bytes_max
        self._numbers = recovery.numbers
        self._segments = Segments(files, directory, recovery.segments[:-1], cipher)
        self._active = recovery.segments[-1]
        self._active_pin = self._segments.add(self._active, recovery.descriptor)
        self._index_file = recovery.writer or IndexFileWriter(files, index_file_path(self._active.path))
        self._channels = ChannelIndexes(self, overhead)
        self._uncommitted = UncommittedEntries(self._segments.placed(recovery.outlines), self._active.last_index)
        self._tail = TailCache(tail_cache_bytes_max)
        self._mark = recovery.mark
        self._tip = self._active.last_index  # newest entry that a sync would cover
        self._durable = self._tip  # goes up under the lock around fdatasync, and down with the tip
        self._committed = RaftIndex(0)
        self._released = RaftIndex(0)
        self._sync_lock = Lock()  # one fdatasync at a time: the kernel reports a failed write-back only once
        self._clean_lock = Lock()  # held while a segment is chosen to be cleaned or deleted, not while it is rewritten
        # Held while a segment is rewritten: a closed log touches no file, as another log may own the names by then.
        self._rewrite_lock = Lock()
        self._closed = False
        self._cleaning: Segment | None = None  # being rewritten, or its rewritten file not yet in use
        self._rewritten: tuple[Rewritten, Pin] | None = None
        self._on_damage: Callable[[], None] | None = None
        self._frozen = ""  # reason for which the log refuses all writes; "" while it does not
        self._first_index = self._segments.first_index()

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
        on_damage: Callable[[], None] | None = None,
        on_loss: Callable[[str], None] | None = None,
        power_lost: bool = True,
        cipher: LogCipher | None = None,
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
            on_damage: called before a damaged segment is moved away, which removes the last trace of the damage here, and, in
                the reader's thread, when a read finds something else than was written.
            on_loss: called with a text for the operator if entries were lost that had been written, before the evidence of the
                loss is changed; an exception that it raises ends the opening.
            power_lost: power may have been lost since the log was last open: writes that no sync covered may be there in parts.
            cipher: encrypts the record batches that are appended, and decrypts encrypted ones; without it they are in clear.

        Returns:
            The log, and the report of its recovery.

        Raises:
            StartError: the files belong to another group or store, or the disk fails; the text names the file and the reason.
        """
        files = files or OsFiles()
        aside = str(lost_found or directory.parent / "lost+found")
        recovery = Recovery(files, str(directory), aside, group, store_id, on_damage, on_loss, power_lost=power_lost)
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
            cipher=cipher,
        )
        log._on_damage = on_damage
        return log, recovery.report

    # --- where the log begins and ends -----------------------------------------------------------------------------
    @property
    def first_index(self) -> RaftIndex:
        """Oldest entry from which on the log has no hole; older entries may exist, with holes between them."""
        return self._first_index

    @property
    def last_index(self) -> RaftIndex:
        """Newest written entry; 0 if none."""
        return self._active.last_index

    @property
    def last_term(self) -> Term:
        """Term of the newest entry; 0 if none."""
        return self._active.last_term

    @property
    def durable_index(self) -> RaftIndex:
        """Newest entry known to be on stable storage (L1)."""
        return self._durable

    @property
    def sealed_index(self) -> RaftIndex:
        """Newest entry of a sealed segment; 0 if none is sealed."""
        sealed = self._segments.sealed()
        return sealed[-1].last_index if sealed else RaftIndex(0)

    @property
    def size(self) -> int:
        """Bytes of all segment files."""
        return self._segments.size()

    # --- writing ---------------------------------------------------------------------------------------------------
    def append(self, entries: Seq[Entry]) -> None:
        """Write consecutive entries, the first at last_index + 1, in one write; a full segment is sealed before.

        Raises:
            DiskFull: nothing was written; the log goes on.
            InDoubt: the write or a sync failed otherwise; the log is frozen from now on.
            Frozen: the log was frozen before.
        """
        self._check()
        if not entries:
            return
        if self._active.end >= self._segment_bytes_max:
            self._roll(RaftIndex(self.last_index + 1))
        segment, encryptor = self._active, self._encryptor
        placed = place(entries, segment, encryptor.encrypted if encryptor is not None else None)
        buffers = [part for found in placed for part in (found.header, found.entry.body)]
        sealed = ENCRYPTION_BYTES if encryptor is not None else 0
        try:
            self._files.pwritev(self._active_pin.descriptor, buffers, segment.end)
        except OSError as error:
            with self._sync_lock:
                raise self._take_back(error) from error
        for entry, found in zip(entries, placed, strict=True):
            segment.note(found)
            self._uncommitted.add(Placed(entry.index, segment.number, found.rows))
            self._tail.put(segment.number, entry.body, found.position + ENTRY_HEADER_SIZE, found.rows, sealed)
            self._index_file.add(outline(found))
        self._tip = segment.last_index

    def sync(self) -> RaftIndex:
        """Make everything appended before the call durable; returns the new durable_index. Blocking. Raises InDoubt, Frozen."""
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
            self._mark.advance(tip)
        return self._durable

    def skip(self, first: RaftIndex | None = None) -> None:
        """Begin a new segment at *first*, so that the entries before it stay a hole; by default the hole is one entry long.

        Behind a hole, sequences of channels may be missing."""
        self._roll(first or RaftIndex(self.last_index + 2))

    def _roll(self, first: RaftIndex) -> None:
        """Seal the active segment and begin the next one; waits for a sync that is running."""
        with self._sync_lock:
            self._sync()
            full, index_file = self._active, self._index_file
            try:
                self._begin(first, full.last_term)
            except OSError as error:
                raise self._take_back(error) from error
            index_file.seal(full)
            full.sealed = True

    def _begin(self, first: RaftIndex, previous_term: Term) -> None:
        """Create the segment that gets the next entries. Raises OSError and then has changed nothing."""
        old = self._active.header
        header = SegmentHeader(old.group, first, previous_term, old.store_id, 0)
        segment, descriptor = create_segment(self._files, self._directory, header, next(self._numbers))
        self._activate(segment, self._segments.add(segment, descriptor))

    def _activate(self, segment: Segment, pin: Pin) -> None:
        """Entries go to *segment* from now on."""
        self._segments.descriptors.unpin(self._active_pin)
        self._active_pin = pin
        self._active = segment
        self._index_file = IndexFileWriter(self._files, index_file_path(segment.path))

    def _take_back(self, error: OSError) -> DiskFull | InDoubt:
        """After a failed write: restore the file's end if the disk is only full, else freeze the log; returns the error to raise.

        The caller holds `_sync_lock`: a failed write-back is reported to one fdatasync only, and it must not be hidden from
        a sync that runs beside this one."""
        if self._frozen:  # by a sync that the caller had to wait for
            return InDoubt(self._frozen)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return self._freeze(error)
        try:
            self._files.ftruncate(self._active_pin.descriptor, self._active.end)
            self._files.fdatasync(self._active_pin.descriptor)  # else a power loss could bring back what was refused
        except OSError as worse:
            return self._freeze(worse)
        return DiskFull(f"{self._active.path}: {error}")

    def _freeze(self, error: OSError) -> InDoubt:
        self._frozen = f"{self._active.path}: {error}"
        return InDoubt(self._frozen)

    def _check(self) -> None:
        if self._frozen:
            raise Frozen(self._frozen)

    def truncate_after(self, index: RaftIndex) -> None:
        """Remove every entry after *index*, durably; if *index* lies in a hole, the log ends before the hole.

        Never removes committed entries (L3). Raises Frozen; InDoubt if the disk fails now, which freezes the log."""
        self._check()
        invariant(index >= self._committed, "L3: committed entries stay", index=index, committed=self._committed)
        if index >= self.last_index:
            return
        with self._sync_lock, self._clean_lock:
            try:
                self._mark.lower(min(self._mark.index, self._committed))
                self._truncate(index)
                self._mark.advance(self.last_index)
            except OSError as error:
                raise self._freeze(error) from error
            self._tip = self._durable = self.last_index  # a sync that waits for the lock must not count what was cut
        self._uncommitted.truncate_after(index)
        self._tail.clear()  # the places behind *index* are about to be written again
        self._first_index = self._segments.first_index()

    def _truncate(self, index: RaftIndex) -> None:
        """Delete whole segments, the newest first, so that a crash in between leaves a prefix of the log; then cut the last."""
        self._index_file.drop()
        segments = self._segments
        while segments.all and segments.all[-1].first_index > index + 1:
            segments.delete(segments.all[-1])
            self._files.sync_directory(self._directory)
        last = segments.all[-1] if segments.all else None
        if last is None or last.header.generation or last is self._cleaning:
            self._begin(RaftIndex(index + 1), last.last_term if last and last.last_index == index else Term(0))
        else:
            self._reopen(last, index)
        self._files.fdatasync(self._active_pin.descriptor)
        self._files.sync_directory(self._directory)
        self._active.named = True

    def _reopen(self, segment: Segment, index: RaftIndex) -> None:
        """Cut off the end of a segment after *index* and make the segment the active one."""
        pin = self._segments.descriptors.pin(segment.number, segment.path)
        kept = KeptSpace(segment.kept.batches, segment.kept.bytes)
        shorter = Segment(segment.number, segment.path, segment.header, kept=kept)
        self._segments.drop_index_file(segment)
        self._segments.all[-1] = self._segments.by_number[segment.number] = shorter
        self._activate(shorter, pin)
        scan = SegmentScan(ReadWindow(self._files, pin.descriptor, segment.end), segment.header)
        for found in scan:
            if found.entry.index > index:
                break
            shorter.note(found)
            self._index_file.add(outline(found))
        else:
            if scan.fault:
                raise OSError(errno.EIO, f"damaged at position {scan.position}: {scan.fault}")
        self._files.ftruncate(pin.descriptor, shorter.end)

    # --- reading ---------------------------------------------------------------------------------------------------
    def entries(self, first: RaftIndex, last: RaftIndex, bytes_max: int) -> list[Entry]:
        """Entries [first, last], cut off after *bytes_max* bytes of bodies but at least one. Raises Damage.

        Below first_index there may be holes, which are left out."""
        with self._telling_of_damage():
            return self._segments.entries(first, last, bytes_max)

    def term_at(self, index: RaftIndex) -> Term:
        """Term of the entry at *index*, also of the one before first_index if it is known; 0 if it is not there."""
        return self._segments.term_at(index) if self._first_index - 1 <= index <= self.last_index else Term(0)

    def read(self, ref: BatchRef, *, stored: bool = False) -> bytes:
        """The records of one batch, CRC verified; *stored*: from the file even if the tail cache has them.

        Raises:
            Damage: the file has something else than was written; the text gives file and position.
            StaleRef: the segment was rewritten or deleted; ask the channel's index again.
        """
        cached = None if stored else self.recent(ref)
        if cached is not None:
            return bytes(cached)
        with self._telling_of_damage():
            return self._segments.read(ref)

    def sealed_from(self, index: RaftIndex) -> None:
        """From the entry at *index* on, batches in clear, or encrypted in the format of the first version, count as damage."""
        if self._cipher is not None:
            self._cipher.since = index

    def check_key(self) -> None:
        """Decrypt one batch of each segment that has encrypted ones. Raises WrongKey, Damage, OSError."""
        self._segments.check_key()

    @contextmanager
    def _telling_of_damage(self) -> Iterator[None]:
        """Call `on_damage` if a read in the block finds data lost on the medium.

        Not called if the read failed for another reason: a wrong key, or no descriptor or memory left."""
        try:
            yield
        except Damage as damage:
            cause = damage.__cause__
            lost = not isinstance(damage, WrongKey) and (not isinstance(cause, OSError) or cause.errno == errno.EIO)
            if self._on_damage is not None and lost:
                self._on_damage()
            raise

    def recent(self, ref: BatchRef) -> bytes | memoryview | None:
        """The records of one batch if the tail cache has them, else None. Never blocks."""
        return self._tail.get(ref.segment, ref.position)

    def export(self, index: RaftIndex, directory: str) -> list[Extent]:
        """Hard-link the files that hold the committed entries up to *index* into *directory*, under their names in this log.

        The log goes on unchanged, and the returned extents stay valid.

        Raises:
            NotNow: a segment is being cleaned; try again.
            OSError: a link failed.
            Damage: a segment has something else than was written.
        """
        invariant(index <= self._committed, "only a committed prefix never changes", index=index, at=self._committed)
        self._swap()
        with self._clean_lock:
            if self._cleaning is not None:
                raise NotNow(f"{self._cleaning.path} is being cleaned")
            extents = self._segments.extents(index)
            for extent in extents:
                self._files.link(extent.path, f"{directory}/{segment_name(extent.first_index)}")
        return extents

    # --- what is visible, what is kept -----------------------------------------------------------------------------
    def commit(self, index: RaftIndex) -> None:
        """Everything up to *index* is committed: its record batches enter the channels' indexes, hence are visible."""
        self._swap()
        super().commit(index)

    def kept(self, segment: int, row: BatchRow) -> None:
        """SpaceAccounting: a batch became visible."""
        kept = self._segments.by_number[segment].kept
        kept.batches += 1
        kept.bytes += row.length

    def refused(self, segment: int, row: BatchRow) -> None:
        """SpaceAccounting: nothing of the batch was kept; its bytes count as dead already."""

    def removed(self, removed: Removed) -> None:
        """SpaceAccounting: batches are no longer kept."""
        for number, batches, size in removed.by_segment():
            kept = self._segments.by_number[number].kept
            kept.batches -= batches
            kept.bytes -= size

    # --- getting rid of what is not kept ---------------------------------------------------------------------------
    def release(self, index: RaftIndex) -> None:
        """Entries up to *index* are covered by durable state: delete the sealed segments that nothing needs (L4).

        A file that cannot be deleted now is tried again by the next call."""
        if self._closed:
            return
        self._swap()
        self._released = max(self._released, index)
        with self._clean_lock:
            for segment in self._segments.sealed():
                if not segment.kept.batches and self._is_covered(segment) and segment is not self._cleaning:
                    with suppress(OSError):
                        self._segments.delete(segment)
        self._first_index = self._segments.first_index()

    def clean(self) -> str | None:
        """Rewrite one sealed, released segment that is mostly dead; returns a line about it, or None if there is none. Blocking.

        The old file stays readable until the next `commit`, `release` or `export` takes the new one into use."""
        with self._rewrite_lock:
            return None if self._closed else self._clean()

    def _clean(self) -> str | None:
        with self._clean_lock:
            if self._cleaning is not None:
                return None
            worth = (s for s in self._segments.sealed() if s.kept.mostly_dead(s.end) and self._is_covered(s))
            segment = self._cleaning = next(worth, None)
        if segment is None:
            return None
        try:
            pin = self._segments.descriptors.pin(segment.number, segment.path)
            try:
                done = rewrite(self._files, pin.descriptor, segment, next(self._numbers), self._channels.is_kept)
            except BaseException:
                self._segments.descriptors.unpin(pin)
                raise
        except (OSError, Damage) as error:
            segment.kept.defer_cleaning()
            self._cleaning = None
            return f"{segment.path}: not cleaned: {error}"
        with suppress(OSError):  # a crash may bring the old file back, which is equally correct
            self._files.sync_directory(self._directory)
        self._rewritten = (done, pin)
        return f"{segment.path}: cleaned, {done.old.end} bytes became {done.new.end}"

    def _is_covered(self, segment: Segment) -> bool:
        return segment.last_index <= min(self._released, self._committed)

    def _swap(self) -> None:
        """Take the file that clean() wrote into use."""
        if self._rewritten is None:
            return
        (done, pin), self._rewritten = self._rewritten, None
        old, new = done.old, done.new
        self._segments.by_number[new.number] = new
        for row in done.rows:
            if self._channels.move(row, old.number, new.number):
                self.kept(new.number, row)
        new.kept.defer_cleaning()
        self._segments.replace(old, new)
        self._segments.descriptors.unpin(pin)
        self._cleaning = None
        self._first_index = self._segments.first_index()

    def close(self) -> None:
        """Sync and close the files. Waits for a rewrite that is running; places (`BatchRef`) become stale.

        If the last sync fails, its error (InDoubt) is raised after the files are closed."""
        with self._rewrite_lock:
            self._closed = True
        try:
            self._swap()
            if not self._frozen:
                self.sync()
        finally:
            self._frozen = self._frozen or f"{self._directory} is closed"
            self._index_file.close()
            self._mark.close()
            self._segments.descriptors.unpin(self._active_pin)
            self._segments.close()

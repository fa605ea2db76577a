"""The log of one group in a directory of segment files: the Raft log is the message log.

Promises:
    L1  `durable_index` covers an entry only after fdatasync of its file, and fsync of a new file's directory, returned.
    L2  A failed write is undone completely (disk full) or freezes the log for ever (anything else).
    L3  Only committed batches are in a channel's index; a committed entry is never truncated.
    L4  A file is deleted only if it is sealed, has no live message, and durable state covers all its entries.
Never caches unwritten entries, never retries a sync: after a failed one the kernel may have dropped the bytes.

Threads: everything runs on the event loop, except `sync`, `read`, `entries` and `clean`, which may run in one worker thread each
beside it. They share with the loop a dictionary of segments, pinned descriptors, and the lock around fdatasync.

Its parts: `Segments` (the files), `SegmentReader`, `SegmentWriter` (L1, L2), `Cleaner` (L4), `Recovery` (opening).

Modelled on Liftbridge's commitlog; segment and index as in Kafka.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Self

from stan_protocol.scalars import ChannelUid, GroupId, RaftIndex, Sequence, Term

from stan import limits
from stan.alias import alias
from stan.core.base.compaction import Compaction, CompactionState, CompactionTotals
from stan.errors import Damage, Frozen, NotNow, StartError
from stan.invariant import invariant
from stan.log.channel_indexes import ChannelIndexes, Visible
from stan.log.encryption import Encryptor, LogCipher
from stan.log.files.cleaner import Cleaner
from stan.log.files.compactor import Compactor
from stan.log.files.disk import Files, OsFiles
from stan.log.files.recovery import LogIdentity, Quarantine, Recovery, RecoveryReport
from stan.log.files.segment_reader import SegmentReader
from stan.log.files.segment_writer import SegmentWriter
from stan.log.files.segments import Extent, Segments
from stan.log.tail import DecompressedBatches, TailCache
from stan.log.types import BatchRef, DecompressedTotals, Entry, FoundChanges
from stan.log.uncommitted import Placed, UncommittedEntries
from stan.protocol.entries import ENCRYPTION_BYTES

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
        on_damage: Callable[[], None] | None,
    ) -> None:
        self._encryptor = Encryptor(cipher) if cipher is not None else None
        self._segments = Segments(files, recovery.segments[:-1], recovery.numbers)
        self._reader = SegmentReader(files, directory, self._segments, cipher, on_damage)
        self._writer = SegmentWriter(files, directory, self._segments, recovery, segment_bytes_max)
        self._channels = ChannelIndexes(self._segments, overhead, recovery.report.quarantined)
        segments = self._segments
        self._compactor = Compactor(
            files,
            self._channels,
            lambda segment: segments.descriptors.using(segment.number, segment.path),
            cipher,
            self._reader.read,
        )
        self._cleaner = Cleaner(files, directory, segments, self._channels, self._compactor)
        self._uncommitted = UncommittedEntries(self._reader.placed(recovery.active.outlines), self.last_index)
        self._tail = TailCache(tail_cache_bytes_max)
        self._decompressed = DecompressedBatches()
        self._committed = RaftIndex(0)
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
        cuts_unsynced: bool = False,
        cipher: LogCipher | None = None,
    ) -> tuple[Self, RecoveryReport]:
        """Open the log in *directory*, made if necessary; blocking. Nothing is indexed before commit().

        Args:
            directory: of this group alone.
            group: refused if the files belong to another one.
            store_id: 16 bytes, the same for every log of a store; refused if the files have another one.
            lost_found: where damaged segments go; by default `lost+found` beside *directory*. The same file system.
            files: the operating system, if not a test's twin of it.
            segment_bytes_max: a segment is rolled once it holds this much.
            tail_cache_bytes_max: bytes of the newest record batches in memory.
            overhead: bytes that a channel accounts per message on top of its encoding (STAN-SPEC 7.1).
            on_damage: called before a damaged segment is moved away, which removes the last trace of the damage here, and, in
                the reader's thread, when a read does not give the written bytes.
            on_loss: called with a text for the operator if written entries were lost, before the evidence of the
                loss is changed; an exception that it raises ends the opening.
            power_lost: power may have been lost since the log was last open: writes that no sync covered may be there in parts.
            cuts_unsynced: after a loss of power a fault that no sync covered is an unfinished write, whatever follows it: for a
                log whose users rely on synced entries alone.
            cipher: encrypts the record batches that are appended, and decrypts encrypted ones; without it they are in clear.

        Returns:
            The log, and the report of its recovery.

        Raises:
            StartError: the files belong to another group or store, or the disk fails; the text names the file and the reason.
        """
        files = files or OsFiles()
        quarantine = Quarantine(
            files, str(directory), str(lost_found or directory.parent / "lost+found"), on_damage=on_damage
        )
        identity = LogIdentity(group, store_id, cuts_unsynced)
        recovery = Recovery(files, str(directory), quarantine, identity, on_loss, power_lost=power_lost)
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
            on_damage=on_damage,
        )
        return log, recovery.report

    # --- ends of the log ------------------------------------------------------------------------------------------
    first_index: RaftIndex = alias("_first_index")
    """Oldest entry from which on the log has no hole; older entries may exist, with holes between them."""
    last_index: RaftIndex = alias("_writer.active.segment.last_index")
    """Newest written entry; 0 if none."""
    last_term: Term = alias("_writer.active.segment.last_term")
    """Term of the newest entry; 0 if none."""
    durable_index: RaftIndex = alias("_writer.durable_index")
    """Newest entry known to be on stable storage (L1)."""

    @property
    def sealed_index(self) -> RaftIndex:
        """Newest entry of a sealed segment; 0 if none is sealed."""
        segments = self._segments.all
        return segments[-2].last_index if len(segments) > 1 else RaftIndex(0)

    @property
    def size(self) -> int:
        """Bytes of all segment files."""
        return self._segments.size()

    # --- writing ---------------------------------------------------------------------------------------------------
    def has_room(self, size: int) -> bool:
        """Return True if entries of *size* bytes could be written now, and a segment for them: a file of this size is written and
        removed. Blocking, as an append is."""
        return self._writer.has_room(size)

    def append(self, entries: Seq[Entry]) -> None:
        """Write consecutive entries, the first at last_index + 1, in one write; a full segment is sealed before.

        Raises:
            Shortage: nothing was written; the log goes on.
            InDoubt: the write or a sync failed otherwise; the log is frozen from now on.
            Frozen: the log was frozen before.
        """
        writer, encryptor = self._writer, self._encryptor
        if writer.frozen:
            raise Frozen(writer.frozen)
        if not entries:
            return
        placed = writer.append(entries, encryptor.encrypted if encryptor is not None else None)
        segment = writer.active.segment.number
        sealed = ENCRYPTION_BYTES if encryptor is not None else 0
        for entry, place in zip(entries, placed, strict=True):
            rows = place.rows
            self._uncommitted.add(tuple.__new__(Placed, (entry.index, segment, rows)))
            self._tail.put(segment, entry.body, place.body_position, rows, sealed)

    def sync(self) -> RaftIndex:
        """Make everything appended before the call durable; returns the new durable_index. Blocking. Raises InDoubt, Frozen."""
        with self._writer.lock:
            return self._writer.sync()

    def skip(self, first: RaftIndex | None = None) -> None:
        """Begin a new segment at *first*, so that the entries before it stay a hole; by default the hole is one entry long.

        Behind a hole, sequences of channels may be missing."""
        self._writer.roll(first or RaftIndex(self.last_index + 2))
        self._first_index = self._segments.first_index()

    def truncate_after(self, index: RaftIndex) -> None:
        """Remove every entry after *index*, durably; if *index* lies in a hole, the log ends before the hole.

        Never removes committed entries (L3). Raises Frozen; InDoubt if the disk fails now, which freezes the log."""
        self._writer.check()
        invariant(index >= self._committed, "L3: committed entries stay", index=index, committed=self._committed)
        if index >= self.last_index:
            return
        with self._writer.lock, self._cleaner.lock:
            self._writer.truncate_after(index, self._committed, self._cleaner.segment)
        self._uncommitted.truncate_after(index)
        self._tail.clear()  # the places after *index* are about to be written again
        self._decompressed.clear()
        self._first_index = self._segments.first_index()

    # --- reading ---------------------------------------------------------------------------------------------------
    def entries(self, first: RaftIndex, last: RaftIndex, bytes_max: int) -> list[Entry]:
        """Entries [first, last], cut off after *bytes_max* bytes of bodies but at least one. Raises Damage.

        Below first_index there may be holes, which are left out."""
        return self._reader.entries(first, last, bytes_max)

    def changes(self, first: RaftIndex, entries_max: int) -> FoundChanges:
        """The changes in the committed entries from *first* on, cut off after *entries_max* entries; messages are not read.
        Raises Damage."""
        return self._reader.changes(first, self._committed, entries_max)

    def index_of(self, ref: BatchRef) -> RaftIndex:
        """The index of the entry that has the batch. Blocking. Raises Damage, StaleRef."""
        return self._reader.index_of(ref)

    def term_at(self, index: RaftIndex) -> Term:
        """Term of the entry at *index*, also of the one before first_index if it is known; 0 if it is not there."""
        return self._segments.term_at(index) if self._first_index - 1 <= index <= self.last_index else Term(0)

    def read(self, ref: BatchRef, *, stored: bool = False) -> bytes:
        """The records of one batch, CRC verified; *stored*: from the file even if the tail cache has them.

        Raises:
            Damage: the file does not have the written bytes; the text gives file and position.
            StaleRef: the segment was rewritten or deleted; read the channel's index again.
        """
        cached = None if stored else self.recent(ref)
        if cached is not None:
            return bytes(cached)
        if ref.staged:
            return bytes(ref.records(self.read(ref.hidden, stored=stored)))
        recent = None if stored else self._tail.get(ref.segment, ref.position)
        try:
            stored_records = self._reader.read(ref) if recent is None else bytes(recent)
            if not ref.size or ref.as_stored:
                return stored_records
            return self._decompressed.make(ref, stored_records, remember=not stored)
        except Damage as damage:
            self._reader.report(damage)
            raise

    def read_at_once(self, refs: Seq[BatchRef]) -> list[bytes | memoryview] | None:
        """The records of batches, CRC verified, if the tail cache or the system has all of them in memory; None otherwise, and if
        one would have to be decompressed.

        Never blocks, and reports no damage: `read` does."""
        tail, decompressed = self._tail, self._decompressed
        batches: list[bytes | memoryview | None] = []
        old: list[BatchRef] = []
        for ref in refs:
            compressed = ref.size and not ref.as_stored
            records = decompressed.get(ref) if compressed else tail.get(ref.segment, ref.position)
            if records is None and compressed:  # decompression takes too long for the event loop
                return None
            if records is None:
                old.append(ref.hidden if ref.staged else ref)
            batches.append(records)
        read = self._reader.read_cached(old)
        if read is None:
            return None
        rest = iter(read)
        there = [next(rest) if records is None else records for records in batches]
        try:
            return [ref.records(data) if ref.staged else data for ref, data in zip(refs, there, strict=True)]
        except Damage:
            return None

    def sealed_from(self, index: RaftIndex) -> None:
        """Count batches in clear as damage from the entry at *index* on."""
        self._reader.sealed_from(index)

    def check_key(self) -> None:
        """Decrypt one batch of each segment that has encrypted ones. Raises WrongKey, Damage, OSError."""
        self._reader.check_key()

    def recent(self, ref: BatchRef) -> bytes | memoryview | None:
        """The records of one batch if they are in memory and in clear, else None. Never blocks."""
        if ref.size and not ref.as_stored:
            return self._decompressed.get(ref)
        records = self._tail.get(ref.segment, ref.position)
        return ref.records(records) if ref.staged and records is not None else records

    def export(self, index: RaftIndex, directory: str) -> list[Extent]:
        """Hard-link the files that hold the committed entries up to *index* into *directory*, under their names in this log.

        The log goes on unchanged, and the returned extents stay valid.

        Raises:
            NotNow: a segment is being cleaned; try again.
            OSError: a link failed.
            Damage: a segment does not have the written bytes.
        """
        invariant(index <= self._committed, "only a committed prefix never changes", index=index, at=self._committed)
        self._swap()
        with self._cleaner.lock:
            if self._cleaner.segment is not None:
                raise NotNow(f"{self._cleaner.segment.path} is being cleaned")
            return self._segments.link(index, directory)

    # --- visibility ------------------------------------------------------------------------------------------------
    def commit(self, index: RaftIndex) -> None:
        """Commit everything up to *index*: its record batches enter the channels' indexes, hence are visible."""
        if self._cleaner.rewritten is not None:
            self._swap()
        super().commit(index)

    def lost_until(self, uid: ChannelUid) -> Sequence:
        """Up to where damage, as of the opening, has taken messages of a channel that has later ones; 0: it has taken none."""
        return self._channels.lost_until.get(uid, Sequence(0))

    # --- freeing space ---------------------------------------------------------------------------------------------
    def release(self, index: RaftIndex) -> None:
        """Delete the sealed segments that nothing needs (L4), as durable state covers the entries up to *index*.

        The next call tries again to delete a file that cannot be deleted now."""
        if self._cleaner.closed:
            return
        self._swap()
        self._cleaner.release(index, self._committed)
        self._first_index = self._segments.first_index()

    def compact(self, marks: Mapping[ChannelUid, Compaction]) -> None:
        """Allow leaving out messages of these channels; `clean` does it, as soon as it pays."""
        if marks and not self._cleaner.closed:
            self._swap()
            self._cleaner.prepare(marks, self._committed)

    @property
    def compaction(self) -> CompactionTotals:
        """Totals of compaction since the log was opened."""
        return self._compactor.totals

    @property
    def decompression(self) -> DecompressedTotals:
        """Totals of decompression since the log was opened."""
        return self._decompressed.totals

    def compacted(self) -> dict[ChannelUid, CompactionState]:
        """Return the compaction state of each channel."""
        return self._compactor.reached()

    def clean(self) -> str | None:
        """Rewrite one sealed, released segment that is mostly dead, or has messages that compaction leaves out; returns a line
        about it, or None if there is none. Blocking.

        The old file stays readable until the next `commit`, `release` or `export` takes the new one into use."""
        return self._cleaner.clean(self._committed)

    def _swap(self) -> None:
        """Take the file that `clean` wrote into use."""
        rewritten = self._cleaner.rewritten
        if rewritten is not None:
            self._cleaner.swap(rewritten)
            self._first_index = self._segments.first_index()

    def close(self) -> None:
        """Sync and close the files. Waits for a rewrite that is running; places (`BatchRef`) become stale.

        If the last sync fails, its error (InDoubt) is raised after the files are closed."""
        self._cleaner.close()
        try:
            self._swap()
            if not self._writer.frozen:
                self.sync()
        finally:
            self._writer.close()
            self._segments.close()

"""Rewriting of a sealed segment that is mostly removed messages, or has some that compaction leaves out: the rest moves to a
smaller file of the same name.

Promises: a crash at any point leaves the old file or the new one, each complete; entries keep index and term; until the
new file is taken into use, which the event loop does, every place in the old one stays readable.
Modelled on Kafka's log cleaner, with "is it live" in place of its key map.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Lock

from stan_protocol.scalars import ChannelUid, RaftIndex

from stan.core.base.compaction import Compaction
from stan.errors import Damage
from stan.limits import SCAN_BYTES
from stan.log.channel_indexes import ChannelIndexes
from stan.log.files.compactor import Compactor, EntryOf, Shrunk, Spans
from stan.log.files.descriptors import Pin
from stan.log.files.disk import Files
from stan.log.files.recovery import REWRITE
from stan.log.files.segment import EntryInSegment, ReadWindow, Segment, SegmentScan
from stan.log.files.segment_index_file import IndexFileWriter, index_file_path
from stan.log.files.segments import Segments
from stan.log.types import BatchRow


@dataclass(slots=True)
class Rewritten:
    """A segment and the file that replaces it."""

    old: Segment
    new: Segment
    rows: list[BatchRow]  # batches of the new file
    pin: Pin  # keeps the old file open, as places in it are still in use
    spans: Spans = field(default_factory=dict)  # of channels that have lost messages


class Cleaner:
    """Frees space of a log: deletes segments without live messages, rewrites those that are mostly dead.

    Everything runs on the event loop, except `clean`, which may run in one worker thread beside it.
    """

    def __init__(
        self, files: Files, directory: str, segments: Segments, channels: ChannelIndexes, compactor: Compactor
    ) -> None:
        self._files = files
        self._directory = directory
        self._segments = segments
        self._channels = channels
        self._compactor = compactor
        self._released = RaftIndex(0)
        self.lock = Lock()  # held while a segment is chosen to be cleaned or deleted, not while it is rewritten
        # Held while a segment is rewritten: a closed log touches no file, as another log may own the names by then.
        self._rewrite_lock = Lock()
        self.closed = False
        self.segment: Segment | None = None  # being rewritten, or its rewritten file not yet in use
        self.rewritten: Rewritten | None = None  # set by `clean` at any moment, taken by `swap`

    def release(self, index: RaftIndex, committed: RaftIndex) -> None:
        """Delete the sealed segments that nothing needs (L4), as durable state covers the entries up to *index*."""
        self._released = max(self._released, index)
        with self.lock:
            for segment in self._segments.sealed():
                if not segment.live.batches and self._is_covered(segment, committed) and segment is not self.segment:
                    with suppress(OSError):
                        self._segments.delete(segment)

    def clean(self, committed: RaftIndex) -> str | None:
        """Rewrite one segment, see FileLog.clean. Blocking."""
        with self._rewrite_lock:
            return None if self.closed else self._clean(committed)

    def _clean(self, committed: RaftIndex) -> str | None:
        with self.lock:
            if self.segment is not None:
                return None
            sealed = self._segments.sealed()
            worth = (s for s in sealed if s.live.mostly_dead(s.end) and self._is_covered(s, committed))
            segment = self.segment = next(worth, None)
        if segment is None:
            return self._compact(committed)
        return self._rewrite(segment, self._if_live, {})

    def _if_live(self, entry: EntryInSegment, position: int) -> EntryInSegment | None:
        return _at(entry, position) if any(map(self._channels.is_live, entry.rows)) else None

    def _compact(self, committed: RaftIndex) -> str | None:
        """Continue the compaction: rewrite the next segment that has messages to leave out."""
        compactor = self._compactor
        if compactor.under_way is None:
            return None
        with self.lock:
            covered = [segment for segment in self._segments.sealed() if self._is_covered(segment, committed)]
        try:
            self._files.sync_directory(self._directory)  # no power cut brings back messages deleted by later tombstones
            shrunk: Shrunk | None = compactor.next_rewrite(covered)
        except (OSError, Damage) as error:
            compactor.give_up()
            return f"{self._directory}: not compacted: {error}"
        if shrunk is None:
            return None
        with self.lock:
            if shrunk.segment not in self._segments.all:
                return None  # deleted meanwhile
            self.segment = shrunk.segment
        outcome = self._rewrite(shrunk.segment, shrunk.entry, shrunk.spans)
        if self.rewritten is None:
            compactor.give_up()
        return outcome

    def prepare(self, marks: Mapping[ChannelUid, Compaction], committed: RaftIndex) -> None:
        """Begin a pass of the compaction, if one pays."""
        sealed = self._segments.sealed()
        covered = [segment for segment in sealed if self._is_covered(segment, committed)]
        self._compactor.prepare(marks, covered, self._segments.all[len(covered) :])

    def _rewrite(self, segment: Segment, entry: EntryOf, spans: Spans) -> str:
        descriptors = self._segments.descriptors
        try:
            pin = descriptors.pin(segment.number, segment.path)
            try:
                done = rewrite(self._files, pin, segment, self._segments.next_number(), entry, spans)
            except BaseException:
                descriptors.unpin(pin)
                raise
        except (OSError, Damage) as error:
            segment.live.defer_cleaning()
            self.segment = None
            return f"{segment.path}: not cleaned: {error}"
        with suppress(OSError):  # a crash may bring the old file back, which is equally correct
            self._files.sync_directory(self._directory)
        self.rewritten = done
        return f"{segment.path}: cleaned, {done.old.end} bytes became {done.new.end}"

    def _is_covered(self, segment: Segment, committed: RaftIndex) -> bool:
        return segment.last_index <= min(self._released, committed)

    def swap(self, done: Rewritten) -> None:
        """Take the file that `clean` wrote, which is *rewritten* now, into use."""
        self.rewritten = None
        old, new = done.old, done.new
        self._segments.by_number[new.number] = new
        for row in done.rows:
            if row.uid not in done.spans and self._channels.move(row, old.number, new.number):
                self._segments.added(new.number, row)
        for uid, span in done.spans.items():
            rows = [row for row in done.rows if row.uid == uid]
            for row in self._channels.replace(uid, old.number, new.number, span, rows):
                self._segments.added(new.number, row)
        if done.spans:
            self._compactor.rewritten(old, new)
        new.live.defer_cleaning()
        self._segments.replace(old, new)
        self._segments.descriptors.unpin(done.pin)
        self.segment = None

    def close(self) -> None:
        """Rewrite nothing from now on; waits for a rewrite that is running."""
        with self._rewrite_lock:
            self.closed = True


def rewrite(files: Files, pin: Pin, old: Segment, number: int, entry: EntryOf, spans: Spans) -> Rewritten:
    """Write the live part of the entries of *old* to a new file and give it the name of the old one. Blocking.

    Args:
        files: the disk.
        pin: of the old file; the caller holds it until no places in it are read any more.
        old: a sealed segment.
        number: of the new segment.
        entry: returns the live part of an entry.
        spans: of channels that lose messages.

    Raises:
        Damage: the old file is not as it was written; nothing was changed.
        OSError: the disk fails; the old file is still in place.
    """
    header = replace(old.header, generation=old.header.generation + 1)
    new = Segment(number, old.path, header, sealed=True)
    target = old.path + REWRITE
    index_file = IndexFileWriter(files, index_file_path(old.path))
    copy = files.create(target)
    try:
        rows = _copy(files, pin.descriptor, copy, old, new, index_file, entry)
        files.fdatasync(copy)
        files.rename(target, old.path)
    except BaseException:
        index_file.drop()
        with suppress(OSError):
            files.unlink(target)
        raise
    finally:
        files.close(copy)
    index_file.seal(new)
    return Rewritten(old, new, rows, pin, spans)


def _copy(
    files: Files,
    source: int,
    target: int,
    old: Segment,
    new: Segment,
    index_file: IndexFileWriter,
    entry: EntryOf,
) -> list[BatchRow]:
    """Write header and live entries; returns the batches that were written."""
    rows: list[BatchRow] = []
    buffers = [new.header.encode()]
    written = 0
    scan = SegmentScan(ReadWindow(files, source, old.end), old.header)
    for old_entry in scan:
        moved = entry(old_entry, new.end)
        if moved is None:
            continue
        new.note(moved)
        index_file.add(moved.outline)
        rows += moved.rows
        buffers += (moved.outline[0], moved.entry.body)
        if new.end - written > SCAN_BYTES:
            files.pwritev(target, buffers, written)
            written = new.end
            buffers = []
    if scan.fault:
        raise Damage(f"{old.path}: position {scan.position}: {scan.fault}")
    files.pwritev(target, buffers, written)
    return rows


def _at(entry: EntryInSegment, position: int) -> EntryInSegment:
    """The same entry at another position."""
    distance = position - entry.position
    rows = [row._replace(position=row.position + distance) for row in entry.rows]
    return entry._replace(rows=rows, position=position, end=entry.end + distance)

"""Opening a log's directory: valid entries stay, a torn tail is cut, a damaged segment is put aside and reported.

Promises: nothing that was synced is dropped silently; nothing is invented; files of others stay as they are. Never deletes
a valid entry: a damaged segment moves to lost+found as it is, after its valid beginning was copied.

The zeros that a writer has put behind the end of the last segment (see stan.log.files.segment_writer) are no fault.
A faulty end of the log is a torn tail, as a process or machine leaves it that ends while it writes, if no sync covered it (see
stan.log.files.durable) and if, unless power was lost, the file ends in the middle of an entry, or has nothing but zeros from
there on. Any other fault is damage.

Entries that perhaps no sync has covered are written again before they are synced: if a sync failed in an earlier process,
Linux has left them in the page cache as if they were on the medium, and a later sync would leave them out.

A crash can interrupt recovery at any point; doing it again leads to the same end.
"""

import os.path
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, zip_longest
from typing import NamedTuple

from stan_protocol.scalars import GroupId, RaftIndex, Term

from stan.errors import Damage, StartError
from stan.limits import SCAN_BYTES
from stan.log.files.disk import Files
from stan.log.files.durable import DurableMark
from stan.log.files.segment import (
    SEGMENT_HEADER_SIZE,
    ReadWindow,
    Segment,
    SegmentHeader,
    SegmentScan,
    create_segment,
    decode_segment_header,
    segment_name,
)
from stan.log.files.segment_index_file import IndexFileWriter, index_file_path, load_index_file
from stan.log.types import Entry

_SEGMENT_NAME = re.compile(r"\d{20}\.log")
_INDEX_FILE_NAME = re.compile(r"\d{20}\.idx")
_REMAINDER = ".rest"
"""Suffix of the file with the valid beginning of a damaged segment, until that file takes the segment's place."""
PROBE = "room"
"""Name of the file whose creation shows whether there is room again."""
REWRITE = ".new"
"""Suffix of the file that the cleaner is writing, until it takes the place of the segment."""


@dataclass(slots=True)
class RecoveryReport:
    """The findings of opening a log."""

    texts: list[str] = field(default_factory=list)  # for the operator; each names file and position
    quarantined: list[tuple[RaftIndex, RaftIndex]] = field(default_factory=list)  # [first, last] entries lost to damage
    torn_bytes: int = 0  # cut from the end of the last segment; never synced
    entries: int = 0
    segments: int = 0
    bytes: int = 0
    scanned_bytes: int = 0  # verified entry by entry; the other segments had a valid index file


class _Lost(NamedTuple):
    """The entries [first, last] that a damaged segment has lost; none if first is above last."""

    first: RaftIndex
    last: RaftIndex
    known: bool  # they existed; else a loss of power may have left a later write and lost an earlier one
    term: Term | None = None  # of the last lost entry, if valid entries followed the damage
    is_end: bool = False  # the log ends with them, so their indexes are given out again


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """The identity of a log, as in the header of each of its segments, and whether its users rely on unsynced entries."""

    group: GroupId
    store_id: bytes  # 16 bytes, the same in all files of a store
    cuts_unsynced: bool = False  # see FileLog.open

    def header(self, first_index: RaftIndex, previous_term: Term) -> SegmentHeader:
        """The header of a new segment of this log."""
        return SegmentHeader(self.group, first_index, previous_term, self.store_id, 0)

    def check(self, header: SegmentHeader, path: str) -> None:
        """Raise StartError if the segment at *path*, which has that header, belongs to another log."""
        if header.store_id != self.store_id:
            raise StartError(f"{path} belongs to another store ({header.store_id.hex()}, not {self.store_id.hex()})")
        if header.group != self.group:
            raise StartError(f"{path} belongs to group {header.group}, not {self.group}")


@dataclass(slots=True)
class ActiveFile:
    """The file of the active segment, and the results of its scan."""

    descriptor: int = -1  # open; -1 while there is no active segment
    index_file: IndexFileWriter | None = None  # with the segment's entries so far; None for a new segment
    outlines: bytearray = field(default_factory=bytearray)  # of these entries
    proven: int = 0  # bytes of the file that the durable mark covers
    reserved: int = 0  # bytes of the file, zeros behind its end included; 0 if there are none


@dataclass(slots=True)
class _LogEnd:
    """The end of the log after the segments that were scanned so far."""

    next_index: RaftIndex
    previous_term: Term  # of the entry before
    loss_reported: bool = False  # entries are lost at the end of the log, and the report has them

    def append(self, segment: Segment) -> None:
        """Move the end behind a segment that stays in the log."""
        self.next_index = RaftIndex(segment.last_index + 1)
        self.previous_term = segment.last_term


class Quarantine:
    """Moves damaged segments of a log to lost+found, as they are; their valid entries up to the damage stay."""

    def __init__(
        self, files: Files, directory: str, lost_found: str, on_damage: Callable[[], None] | None = None
    ) -> None:
        """*on_damage* is called before a segment is moved, which removes the last trace of the damage in *directory*."""
        self._files = files
        self._directory = directory
        self._lost_found = lost_found
        self._on_damage = on_damage

    def put_aside(self, segment: Segment, descriptor: int, index_file: IndexFileWriter) -> str:
        """Move a damaged segment to lost+found; returns its path there.

        Its valid entries, if it has some, take its place as a sealed segment. Raises OSError.
        """
        if self._on_damage is not None:
            self._on_damage()
        files = self._files
        remainder = segment.path + _REMAINDER
        if segment.entries:
            copy = files.create(remainder)
            try:
                files.pwritev(copy, [segment.header.encode()], 0)
                for start in range(SEGMENT_HEADER_SIZE, segment.end, SCAN_BYTES):
                    length = min(SCAN_BYTES, segment.end - start)
                    files.pwritev(copy, [files.pread(descriptor, length, start)], start)
                files.fdatasync(copy)
            finally:
                files.close(copy)
            files.sync_directory(self._directory)
            segment.sealed = True
            index_file.seal(segment)
        else:
            index_file.drop()
        target = self._free_name(segment.path)
        files.rename(segment.path, target)
        if segment.entries:
            files.rename(remainder, segment.path)
        files.sync_directory(self._lost_found)
        files.sync_directory(self._directory)
        return target

    def _free_name(self, path: str) -> str:
        """A free name in lost+found."""
        self._files.makedirs(self._lost_found)
        used = set(self._files.listdir(self._lost_found))
        directory, name = os.path.split(path)
        stem = f"{os.path.basename(directory)}-{name}"  # noqa: PTH119 - the port's paths are strings
        numbered = (stem if number == 1 else f"{stem}.{number}" for number in count(1))
        return f"{self._lost_found}/{next(name for name in numbered if name not in used)}"


class Recovery:
    """The opening of a directory; `run` once, then read the attributes.

    `segments` are all files in order; the last is the active one, synced, and open as `active`.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        quarantine: Quarantine,
        identity: LogIdentity,
        on_loss: Callable[[str], None] | None = None,
        *,
        power_lost: bool = True,
    ) -> None:
        """*on_loss* and *power_lost*: see FileLog.open."""
        self.report = RecoveryReport()
        self.segments: list[Segment] = []
        self.active = ActiveFile()
        self.numbers = count(1)
        self.mark = DurableMark(files, directory, identity.group)
        self._files = files
        self._directory = directory
        self._quarantine = quarantine
        self._identity = identity
        self._on_loss = on_loss
        self._power_lost = power_lost
        self._end = _LogEnd(RaftIndex(1), Term(0))

    def run(self) -> None:
        """Bring the directory into order. Raises StartError, or OSError from the disk."""
        self._files.makedirs(self._directory)
        self.mark = DurableMark.open(self._files, self._directory, self._identity.group)
        try:
            self._run()
        except BaseException:
            self.mark.close()
            if self.active.descriptor >= 0:
                self._files.close(self.active.descriptor)
            raise

    def _run(self) -> None:
        files, report = self._files, self.report
        names = self._tidy()
        for name, following in zip_longest(names, names[1:]):
            self._open_segment(name, following)
        self._look_for_the_end()
        if not self.segments or self.segments[-1].sealed:
            header = self._identity.header(self._end.next_index, self._end.previous_term)
            segment, self.active.descriptor = create_segment(files, self._directory, header, next(self.numbers))
            self.segments.append(segment)
        self._write_again(self.segments[-1])
        files.fdatasync(self.active.descriptor)
        files.sync_directory(self._directory)
        self.segments[-1].named = True
        self.mark.settle(self.segments[-1].last_index)
        report.segments = len(self.segments)
        report.entries = sum(segment.entries for segment in self.segments)
        report.bytes = sum(segment.end for segment in self.segments)

    def _write_again(self, active: Segment) -> None:
        """Write the entries above the durable mark once more; older segments were synced before the next one was begun."""
        for start in range(self.active.proven, active.end, SCAN_BYTES):
            data = self._files.pread(self.active.descriptor, min(SCAN_BYTES, active.end - start), start)
            self._files.pwritev(self.active.descriptor, [data], start)

    def _tidy(self) -> list[str]:
        """Finish or undo the half-done work of a crash; returns the names of the segments, oldest first."""
        files, directory = self._files, self._directory
        names = set(files.listdir(directory))
        for name in sorted(names):
            stem, ending = name[:24], name[24:]
            if not _SEGMENT_NAME.fullmatch(stem) or ending not in (_REMAINDER, REWRITE):
                continue
            if ending == _REMAINDER and stem not in names:
                files.rename(f"{directory}/{name}", f"{directory}/{stem}")
                names.add(stem)
            else:
                files.unlink(f"{directory}/{name}")
        for name in names:
            if name == PROBE or (_INDEX_FILE_NAME.fullmatch(name) and name[:20] + ".log" not in names):
                files.unlink(f"{directory}/{name}")
        return sorted(filter(_SEGMENT_NAME.fullmatch, names))

    def _open_segment(self, name: str, following: str | None) -> None:
        """Open one segment file and accept, cut or put it aside; *following*: name of the next one, None if this is the last."""
        path = f"{self._directory}/{name}"
        descriptor = self._files.open(path)
        try:
            size = self._files.size(descriptor)
            header = self._header(path, self._files.pread(descriptor, SEGMENT_HEADER_SIZE, 0))
            if header is not None and following is not None:
                segment = Segment(next(self.numbers), path, header, sealed=True)
                if load_index_file(self._files, segment, size) is not None:
                    self._accept(segment)
                    return
            if self._scan(path, descriptor, size, header, following):
                self.active.descriptor, descriptor = descriptor, -1
        finally:
            if descriptor >= 0:
                self._files.close(descriptor)

    def _header(self, path: str, data: bytes) -> SegmentHeader | None:
        """The segment's header; None if it is damaged. Raises StartError if the file belongs to another log."""
        try:
            header = decode_segment_header(data)
        except Damage:
            return None
        self._identity.check(header, path)
        if not path.endswith("/" + segment_name(header.first_index)):
            raise StartError(f"{path} was renamed: its first entry is {header.first_index}")
        if header.first_index < self._end.next_index:
            raise StartError(f"{path} overlaps the file before it, which ends with entry {self._end.next_index - 1}")
        return header

    def _scan(self, path: str, descriptor: int, size: int, header: SegmentHeader | None, following: str | None) -> bool:
        """Verify a segment entry by entry and accept its valid part; True if it is the active one from now on."""
        first = RaftIndex(int(path[-24:-4]))
        term = self._end.previous_term if first == self._end.next_index else Term(0)
        segment = Segment(next(self.numbers), path, header or self._identity.header(first, term))
        scan = SegmentScan(ReadWindow(self._files, descriptor, size), segment.header)
        writer = IndexFileWriter(self._files, index_file_path(path))
        for entry in scan:
            segment.note(entry)
            writer.add(entry.outline)
            if following is None:
                self.active.outlines += b"".join(entry.outline)
                self.active.proven = entry.end if entry.entry.index <= self.mark.index else self.active.proven
        self.report.scanned_bytes += size
        if scan.fault and following is None:
            self._judge_zeros(segment, descriptor, scan, size)
        survivor = scan.survivor() if scan.fault else None
        fault = scan.fault or ("wrong header" if header is None else "")
        cuts = self._power_lost and self._identity.cuts_unsynced
        torn = following is None and (survivor is None or cuts) and self._is_torn(segment, scan, size)
        if fault and not (torn and (header is not None or not segment.entries)):
            self._set_aside(segment, descriptor, fault, writer, self._lost(segment, scan, survivor, following))
            return False
        if header is None:
            self._begin_again(segment, size, writer)
            return False
        if scan.fault:
            self._cut(segment, descriptor, size, scan.fault)
        self._accept(segment)
        if following is not None:
            segment.sealed = True
            writer.seal(segment)
            return False
        self.active.index_file = writer
        self.active.reserved = size if size > segment.end and not scan.fault else 0
        return True

    def _judge_zeros(self, segment: Segment, descriptor: int, scan: SegmentScan, size: int) -> None:
        """Clear the fault of a scan that came to reserved zeros; note if it came to an entry whose end they take the place of."""
        used = self._used(descriptor, size)
        if used <= segment.end:
            scan.fault = ""
        elif used < scan.fault_end() < size:
            scan.cut_off = True

    def _used(self, descriptor: int, size: int) -> int:
        """Bytes of a file up to the last one that is not zero."""
        while size > 0:
            start = max(0, size - SCAN_BYTES)
            if used := self._files.pread(descriptor, size - start, start).rstrip(b"\0"):
                return start + len(used)
            size = start
        return 0

    def _accept(self, segment: Segment) -> None:
        self.segments.append(segment)
        self._end.append(segment)

    def _is_torn(self, segment: Segment, scan: SegmentScan, size: int) -> bool:
        """True if a faulty end of a segment is a torn tail: an unfinished write that no sync covered."""
        cut_off = scan.cut_off or size < SEGMENT_HEADER_SIZE
        return segment.last_index >= self.mark.index and (self._power_lost or cut_off)

    def _lost(self, segment: Segment, scan: SegmentScan, survivor: Entry | None, following: str | None) -> _Lost:
        """Return the entries that a damaged segment has lost after its valid ones."""
        first = RaftIndex(segment.last_index + 1)
        known = following is not None or first <= self.mark.index or not self._power_lost
        if following is not None:
            return _Lost(first, RaftIndex(int(following[:20]) - 1), known)
        if survivor is not None:
            return _Lost(first, survivor.index, known, max(segment.last_term, survivor.term))
        if first <= self.mark.index:
            return _Lost(first, self.mark.index, known, is_end=True)
        if scan.fault and not self._is_torn(segment, scan, SEGMENT_HEADER_SIZE):
            return _Lost(first, first, known, is_end=True)
        return _Lost(first, segment.last_index, known)

    def _cut(self, segment: Segment, descriptor: int, size: int, fault: str) -> None:
        """Cut off a torn tail, after which nothing is valid, and report it."""
        self._files.ftruncate(descriptor, segment.end)
        self.report.torn_bytes += size - segment.end
        self.report.texts.append(
            f"{segment.path}: cut {size - segment.end} bytes at position {segment.end}, the end of an unfinished write "
            f"({fault}); the log goes on after entry {segment.last_index}"
        )

    def _begin_again(self, segment: Segment, size: int, writer: IndexFileWriter) -> None:
        """Remove the last file, which has neither a header nor an entry: its very first write was not finished."""
        writer.drop()
        self._files.unlink(segment.path)
        if segment.first_index >= self._end.next_index:
            self._end.next_index = segment.first_index
            self._end.previous_term = segment.header.previous_term
        self.report.torn_bytes += size
        self.report.texts.append(f"{segment.path}: begun again, its {size} bytes hold neither a header nor an entry")

    def _set_aside(self, segment: Segment, descriptor: int, fault: str, writer: IndexFileWriter, lost: _Lost) -> None:
        """Put a damaged segment aside and report the lost entries; only at the log's end their indexes are used again."""
        what = f"{segment.path}: damaged at position {segment.end} ({fault})"
        words = ""
        if lost.first <= lost.last:
            words = f"; entries {lost.first} to {lost.last} are lost"
            if lost.known:
                self._report_loss(what + words)
        target = self._quarantine.put_aside(segment, descriptor, writer)
        self.active.outlines.clear()
        if segment.entries:
            self._accept(segment)
        self.report.texts.append(f"{what}; moved to {target}{words}")
        end = self._end
        end.next_index = max(lost.first, end.next_index)
        if lost.first > lost.last:
            return
        if lost.is_end:
            end.loss_reported = True
            return
        self.report.quarantined.append((lost.first, lost.last))
        if lost.term is not None:
            end.next_index, end.previous_term = RaftIndex(lost.last + 1), lost.term

    def _report_loss(self, text: str) -> None:
        """Call `on_loss`; no evidence of the loss is changed before."""
        if self._on_loss is not None:
            self._on_loss(text)

    def _look_for_the_end(self) -> None:
        """Report entries that the durable mark covers and that are missing without any fault in the files."""
        last = RaftIndex(self._end.next_index - 1)
        if self._end.loss_reported or self.mark.index <= last:
            return
        ends = f"ends with entry {last}"
        if self.segments:
            ends = f"ends with entry {last} at position {self.segments[-1].end} of {self.segments[-1].path}"
        text = f"{self._directory}: {ends}, and was durable up to {self.mark.index}"
        text += f"; entries {last + 1} to {self.mark.index} are lost"
        self.report.texts.append(text)
        self._report_loss(text)

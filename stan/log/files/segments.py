"""The segment files of a log. Only the event loop changes the set; `segment_reader` reads from them in any thread."""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from stan_protocol.scalars import RaftIndex, Term

from stan.limits import SEGMENT_FILES_OPEN_MAX
from stan.log.files.descriptors import Descriptors, Pin
from stan.log.files.disk import Files
from stan.log.files.segment import ReadWindow, Segment, read_entry, segment_name
from stan.log.files.segment_index_file import index_file_path
from stan.log.index import Removed
from stan.log.types import BatchRow


class Extent(NamedTuple):
    """The part of a segment file that holds its entries up to some index."""

    path: str
    first_index: RaftIndex
    generation: int
    length: int


class Segments:
    """Segments oldest first, `all[-1]` is the active one; by number for readers, who hold no lock."""

    def __init__(self, files: Files, sealed: list[Segment], numbers: Iterator[int]) -> None:
        """*numbers*: new ones for segments of the log; *sealed*: the segments but the active one."""
        self.all = sealed
        self.by_number = {segment.number: segment for segment in sealed}
        self.descriptors = Descriptors(files, SEGMENT_FILES_OPEN_MAX)
        self._files = files
        self._numbers = numbers
        self.closed = False  # the names may belong to files of another log: nothing is read any more

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
        self.closed = True
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

    # --- live batches (SpaceAccounting), on the event loop ---------------------------------------------------------
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

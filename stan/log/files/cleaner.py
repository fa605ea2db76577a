"""Rewriting of a sealed segment that is mostly removed messages: what is kept moves to a small file of the same name.

Promises: a crash at any point leaves the old file or the new one, each complete; entries keep index and term; until the
new file is taken into use every place in the old one stays readable. Never touches an index: that is the event loop's.
Modelled on Kafka's log cleaner, with "is it kept" in place of its key map.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from stan.errors import Damage
from stan.limits import SCAN_BYTES
from stan.log.files.disk import Files
from stan.log.files.recovery import REWRITE
from stan.log.files.segment import EntryInSegment, ReadWindow, Segment, SegmentScan, outline
from stan.log.files.segment_index_file import IndexFileWriter, index_file_path
from stan.log.types import BatchRow


@dataclass(slots=True)
class Rewritten:
    """A segment and the file that replaces it."""

    old: Segment
    new: Segment
    rows: list[BatchRow]  # batches of the new file


def rewrite(files: Files, descriptor: int, old: Segment, number: int, is_kept: Callable[[BatchRow], bool]) -> Rewritten:
    """Write the entries of *old* that hold a kept batch to a new file and let it take the name of the old one. Blocking.

    Args:
        files: where it happens.
        descriptor: of the old file; the caller holds it until nobody asks for places in it any more.
        old: a sealed segment.
        number: of the new segment.
        is_kept: whether a batch still holds a message; it may lag behind, towards yes.

    Raises:
        Damage: the old file is not what was written; nothing was changed.
        OSError: the disk refuses; the old file is still in place.
    """
    header = replace(old.header, generation=old.header.generation + 1)
    new = Segment(number, old.path, header, sealed=True)
    target = old.path + REWRITE
    index_file = IndexFileWriter(files, index_file_path(old.path))
    copy = files.create(target)
    try:
        rows = _copy(files, descriptor, copy, old, new, index_file, is_kept)
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
    return Rewritten(old, new, rows)


def _copy(
    files: Files,
    source: int,
    target: int,
    old: Segment,
    new: Segment,
    index_file: IndexFileWriter,
    is_kept: Callable[[BatchRow], bool],
) -> list[BatchRow]:
    """Write header and kept entries; returns the batches that were written."""
    rows: list[BatchRow] = []
    buffers = [new.header.encode()]
    written = 0
    scan = SegmentScan(ReadWindow(files, source, old.end), old.header)
    for found in scan:
        if not any(map(is_kept, found.rows)):
            continue
        moved = _at(found, new.end)
        new.note(moved)
        index_file.add(outline(moved))
        rows += moved.rows
        buffers += (found.header, found.entry.body)
        if new.end - written > SCAN_BYTES:
            files.pwritev(target, buffers, written)
            written = new.end
            buffers = []
    if scan.fault:
        raise Damage(f"{old.path}: position {scan.position}: {scan.fault}")
    files.pwritev(target, buffers, written)
    return rows


def _at(found: EntryInSegment, position: int) -> EntryInSegment:
    """The same entry at another position."""
    distance = position - found.position
    rows = [row._replace(position=row.position + distance) for row in found.rows]
    return found._replace(rows=rows, position=position, end=found.end + distance)

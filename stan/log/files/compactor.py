"""Compaction by key of a log in files: passes over the sealed segments, each rewritten without the messages that may go.

    what may go (a committed decision) ─► pass: learn the keys that are new ─► rewrite the segments, oldest first ─► next pass

Promises: a pass follows the rule of `stan.log.compaction`, even if the process ends amid it: a segment is the old file
or the new one, each complete, and a tombstone goes only when the segments in front of its own are done. A pass that fails is
begun again. Memory is bounded by COMPACTION_KEYS_MAX. A start forgets the clean messages: the first pass looks
at all.

`prepare` runs on the event loop, everything else in the worker thread that cleans. Modelled on Kafka's log cleaner.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from stan_protocol.scalars import ChannelUid, RaftIndex, Sequence

from stan.core.base.compaction import Compaction, CompactionState, CompactionTotals
from stan.errors import Damage
from stan.limits import COMPACTION_DIRTY_PERCENT, COMPACTION_KEYS_MAX, COMPACTION_PAUSE
from stan.log.channel_indexes import ChannelIndexes
from stan.log.compaction import CompactedRange, KeyMap
from stan.log.encryption import Encryptor, LogCipher
from stan.log.files.disk import Files
from stan.log.files.segment import (
    EntryInSegment,
    ReadWindow,
    Segment,
    SegmentScan,
    encode_entry_header,
    entry_at,
)
from stan.log.references import reference_rows, with_rows
from stan.log.types import BatchRef, BatchRow, Entry, StaleRef
from stan.protocol.compressed_batches import BatchCompressor, parts_of, stored_rows
from stan.protocol.entries import (
    BATCH_HEADER,
    BESIDE_UID,
    CHANGE_FLAG,
    REFERENCES_FLAG,
    SIZE_SHIFT,
    Kind,
    Reference,
    encode_batch,
    encode_references,
)
from stan.protocol.kernel import server as kernel

STALE_MAX: Final = 3
"""Attempts to read a batch whose segment is rewritten meanwhile."""

Spans = dict[ChannelUid, tuple[Sequence, Sequence]]
"""By compacted channel in a segment: the base sequences of its first and its last batch there."""

EntryOf = Callable[[EntryInSegment, int], EntryInSegment | None]
"""An entry of a segment as it is written at a position of another one; None: it is left out."""


class Shrunk(NamedTuple):
    """A segment to rewrite, and its new entries."""

    segment: Segment
    spans: Spans
    entry: EntryOf


class Clean(NamedTuple):
    """The result of the last pass over a channel."""

    until: Sequence  # up to here there is of each key what stays
    seen: Sequence  # the last sequence in a sealed segment then
    keep_first: bool
    earlier: int
    newest_tombstone: Sequence
    passes: int
    saved_bytes: int  # by all of them


@dataclass(slots=True)
class CompactionPass:
    """A pass over the sealed segments."""

    map: KeyMap
    seen: dict[ChannelUid, Sequence]
    until: RaftIndex  # the last entry of its segments
    learned: bool = False
    done: int = 0  # everything up to here is rewritten
    saved: Counter[ChannelUid] = field(default_factory=Counter)  # bytes of records that are left out


@dataclass(slots=True)
class Compactor:
    """Compacts the channels of one log."""

    files: Files
    channels: ChannelIndexes
    pinned: Callable[[Segment], AbstractContextManager[int]]  # its descriptor
    cipher: LogCipher | None
    read: Callable[[BatchRef], bytes]  # the records of a batch
    keys_max: int = COMPACTION_KEYS_MAX
    totals: CompactionTotals = field(default_factory=CompactionTotals)
    clean: dict[ChannelUid, Clean] = field(default_factory=dict)
    under_way: CompactionPass | None = None
    encryptor: Encryptor | None = None
    compressor: BatchCompressor = field(default_factory=BatchCompressor)
    pause: int = 0  # looks to skip after a failed pass

    # --- on the event loop --------------------------------------------------------------------------------------------

    def prepare(self, marks: Mapping[ChannelUid, Compaction], covered: Seq[Segment], rest: Seq[Segment]) -> None:
        """Begin a pass if one pays; *covered*: the segments that may be rewritten, *rest*: the newer ones."""
        if self.under_way is not None or not covered:
            return
        if self.pause:
            self.pause -= 1
            return
        self._forget_dropped()
        newer = {segment.number for segment in rest}
        targets: dict[ChannelUid, CompactedRange] = {}
        seen: dict[ChannelUid, Sequence] = {}
        for uid, mark in marks.items():
            index = self.channels.by_uid.get(uid)
            if index is None or not index.first_sequence:
                continue
            reached = min(index.last_outside(newer), mark.until)
            clean = self.clean.get(uid)
            if clean is not None and (clean.keep_first, clean.earlier) != (mark.keep_first, mark.earlier):
                clean = None
            known = Sequence(0) if clean is None else clean.until
            if reached > known:
                behind, total = index.bytes_up_to(known), index.bytes_up_to(reached)
                pays = (total - behind) * 100 >= behind * COMPACTION_DIRTY_PERCENT
                pays = pays and (clean is None or reached > clean.seen or clean.until < clean.seen)
            else:
                pays = False
            if clean is not None and not pays:  # all the tombstones that have stayed may go now
                pays = 0 < clean.newest_tombstone <= mark.tombstones_until
            if pays:
                targets[uid] = CompactedRange(mark, known)
                seen[uid] = Sequence(reached)
        if targets:
            until = RaftIndex(covered[-1].last_index)
            self.under_way = CompactionPass(KeyMap(targets, keys_max=self.keys_max), seen, until)

    def _forget_dropped(self) -> None:
        for uid in self.clean.keys() - self.channels.by_uid.keys():
            del self.clean[uid]

    # --- in the worker ------------------------------------------------------------------------------------------------

    def next_rewrite(self, covered: Seq[Segment]) -> Shrunk | None:
        """Return the next segment of the running pass with messages to leave out; None: there is none, the pass is over.

        Raises Damage, OSError: give the pass up."""
        going = self.under_way
        if going is None:
            return None
        segments = [segment for segment in covered if segment.last_index <= going.until]
        if not going.learned:
            self._learn(going, segments)
        for segment in segments:
            if segment.last_index > going.done:
                shrunk = self._shrunk(going, segment)
                going.done = segment.last_index
                if shrunk is not None:
                    return shrunk
        self._finish(going)
        return None

    def reached(self) -> dict[ChannelUid, CompactionState]:
        """Return the compaction state of each channel."""
        return {
            uid: CompactionState(clean.until, clean.newest_tombstone, clean.passes, clean.saved_bytes)
            for uid, clean in self.clean.items()
        }

    def rewritten(self, old: Segment, new: Segment) -> None:
        """Note that a segment was rewritten."""
        self.totals.saved_bytes += max(0, old.end - new.end)

    def give_up(self) -> None:
        """End the pass, as a segment cannot be read or rewritten: the later ones stay as they are, with their tombstones."""
        self.under_way, self.pause = None, COMPACTION_PAUSE

    def _finish(self, going: CompactionPass) -> None:
        self.under_way = None
        self.totals.passes += 1
        for uid, target in going.map.targets.items():
            mark, before = target.mark, self.clean.get(uid)
            passes, saved = (0, 0) if before is None else (before.passes, before.saved_bytes)
            self.clean[uid] = Clean(
                target.until,
                going.seen[uid],
                mark.keep_first,
                mark.earlier,
                target.newest_tombstone,
                passes + 1,
                saved + going.saved[uid],
            )

    def _learn(self, going: CompactionPass, segments: list[Segment]) -> None:
        """Add the new keys, as many as there is room for, and the places of their older messages."""
        keys = going.map
        for segment in segments:
            for entry in self._entries(segment):
                if keys.full:
                    break
                for row, records in self._batches(entry, keys.targets):
                    keys.learn(row, records)
        targets = keys.targets.values()
        if any(target.looks_back for target in targets):
            for row, records in self._every(segments, keys.targets):
                keys.look_back(row, records)
        if any(target.mark.earlier for target in targets):
            for row, records in self._every(segments, keys.targets):
                keys.place(row, records)
            keys.end_placing()
        going.learned = True

    def _every(
        self, segments: list[Segment], targets: Mapping[ChannelUid, CompactedRange]
    ) -> Iterator[tuple[BatchRow, bytes | memoryview]]:
        """The batches of all segments; see `_batches`."""
        for segment in segments:
            for entry in self._entries(segment):
                yield from self._batches(entry, targets)

    def _shrunk(self, going: CompactionPass, segment: Segment) -> Shrunk | None:
        """Return the rewrite of a segment; None: all of it stays."""
        targets, less, beside = going.map.targets, False, False
        spans: Spans = {}
        for entry in self._entries(segment):
            for row, records in self._batches(entry, targets):
                first, _ = spans.get(row.uid, (row.base_sequence, row.base_sequence))
                spans[row.uid] = first, row.base_sequence
                less = less or any(part.start == part.end for part in going.map.parts(row, records) if row.length)
            beside = beside or any(row.uid not in targets and self.channels.is_live(row) for row in entry.rows)
        if not less:
            return None

        def rewritten_entry(old_entry: EntryInSegment, position: int) -> EntryInSegment | None:
            return self._rewritten_entry(going, old_entry, position, changes=beside)

        return Shrunk(segment, spans, rewritten_entry)

    def _rewritten_entry(
        self, going: CompactionPass, old_entry: EntryInSegment, position: int, *, changes: bool
    ) -> EntryInSegment | None:
        """Return an entry without the messages that may go; None if nothing of it is live. *changes*: keep those of the state."""
        keys = going.map
        entry = self._opened(old_entry.entry)
        if any(row.staged for row in old_entry.rows):
            entry = with_rows(entry, keys.targets, self._referred)
        if entry.kind != Kind.RECORDS:
            return _at(entry, position) if changes and entry.kind == Kind.CHANGE else None
        parts: list[bytes | memoryview] = []
        any_live = False
        for header, records in _split(entry.body):
            uid, base, count, timestamp, first, length, _, flags = BATCH_HEADER.unpack(header)
            if uid == BESIDE_UID:
                beside = self._beside(flags, header, records, changes=changes)
                parts += beside
                any_live = any_live or bool(beside)
                continue
            size = flags >> SIZE_SHIFT
            row = BatchRow(uid, base, count, timestamp, first, 0, length, size)
            is_live = self.channels.is_live(row)
            if uid not in keys.targets or not is_live:
                any_live = any_live or is_live
                parts += (header, records)
                continue
            messages = stored_rows(records, size) if size else records
            left = keys.parts(row, messages)
            if len(left) == 1 and left[0].end > left[0].start:
                any_live = True
                parts += (header, records)
                continue
            going.saved[uid] += length
            for part in left:
                any_live = any_live or part.end > part.start
                of_part = messages[part.start : part.end]
                stored = bytes(of_part), 0
                if size and of_part:
                    channel, rows = parts_of(records)[0], bytes(of_part)
                    stored = self.compressor.stored_form(
                        channel, rows, kernel.seal(channel, part.first, timestamp, [rows])
                    )
                parts += encode_batch(uid, part.first, part.count, timestamp, first, *stored)
                going.saved[uid] -= len(stored[0])
        if not any_live:
            return None
        made = entry._replace(body=b"".join(parts))
        return _at(made if self.encryptor is None else self.encryptor.encrypted(made), position)

    def _beside(
        self, flags: int, header: memoryview, records: memoryview, *, changes: bool
    ) -> tuple[bytes | memoryview, ...]:
        """Return the live part of a part beside the batches: references of channels that are not in the pass, and *changes*."""
        if flags == REFERENCES_FLAG:
            rest = [row for row in reference_rows(records, 0) if self.channels.is_live(row)]
            return (
                encode_references(Reference(*row[:5], row.staged, row.size, row.expiry) for row in rest) if rest else ()
            )
        return (header, records) if flags == CHANGE_FLAG and changes else ()

    def _entries(self, segment: Segment) -> Iterator[EntryInSegment]:
        """The entries of a segment. Raises Damage."""
        with self.pinned(segment) as descriptor:
            scan = SegmentScan(ReadWindow(self.files, descriptor, segment.end), segment.header)
            yield from scan
        if scan.fault:
            raise Damage(f"{segment.path}: position {scan.position}: {scan.fault}")

    def _batches(
        self, old_entry: EntryInSegment, targets: Mapping[ChannelUid, CompactedRange]
    ) -> Iterator[tuple[BatchRow, bytes | memoryview]]:
        """Yield the batches of an entry of the channels in the pass, with their records in clear; of a compressed batch, which
        has the same keys, the rows."""
        if not any(row.uid in targets for row in old_entry.rows):
            return
        entry = self._opened(old_entry.entry)
        if any(row.staged for row in old_entry.rows):
            entry = with_rows(entry, targets, self._referred)
        for header, records in _split(entry.body):
            uid, base, count, timestamp, first, length, _, flags = BATCH_HEADER.unpack(header)
            if uid in targets:
                size = flags >> SIZE_SHIFT
                row = BatchRow(uid, base, count, timestamp, first, 0, length, size)
                yield row, stored_rows(records, size) if size else records

    def _referred(self, reference: Reference) -> bytes | memoryview | None:
        """Return the records of a reference; None if nothing of it is live. Raises Damage."""
        for _ in range(STALE_MAX):
            place = self.channels.referred(reference.uid, reference.base_sequence)
            if place is None:
                return None
            ref = BatchRef(*reference[1:4], *place[1:4], staged=place.sequence, expiry=place.expiry)
            with suppress(StaleRef):  # rewritten meanwhile
                return ref.records(self.read(ref.hidden))
        raise Damage(f"what the batch {reference.base_sequence} of channel {reference.uid} refers to is not there")

    def _opened(self, entry: Entry) -> Entry:
        """An entry in clear."""
        if self.cipher is None:
            return entry
        if self.encryptor is None:
            self.encryptor = Encryptor(self.cipher)
        return self.cipher.decrypted(entry)


def _split(body: bytes) -> Iterator[tuple[memoryview, memoryview]]:
    """Header and records of each batch of an entry."""
    view, at = memoryview(body), 0
    while at < len(view):
        start = at + BATCH_HEADER.size
        header = view[at:start]
        at = start + BATCH_HEADER.unpack(header)[5]
        yield header, view[start:at]


def _at(entry: Entry, position: int) -> EntryInSegment:
    return entry_at(position, encode_entry_header(entry), entry)

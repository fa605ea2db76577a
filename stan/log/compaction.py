"""The rule by which compaction leaves out messages of a channel, for all logs. Pure.

Promises, for the messages up to `until` of one channel: of those with the same key one stays, the newest (or, as the policy says,
the oldest), or as many of the newest ones as a stream keeps, from the last on that takes the place of those before it; messages
without a key stay; where one stays, a tombstone goes only if it is its key's newest message, lies below the last message that the
pass has seen, and everything older of its key went in an earlier pass: a reader at work cannot have got the messages that it
deletes. So a fold by key of the remaining messages equals the fold of all.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

from stan_protocol.compaction import LENGTH_BYTES, keyed
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import ChannelUid, Sequence

from stan.core.base.compaction import Compaction
from stan.limits import COMPACTION_KEYS_MAX
from stan.log.types import BatchRow
from stan.protocol.jetstream.headers import ROLLUP, takes_place

NOTHING: Final = Sequence(0)
DIGEST_BYTES: Final = 16
"""Keys of this length or more are remembered by their hash; shorter ones as they are, so that none can pass for a hash."""


class BatchPart(NamedTuple):
    """Consecutive messages of a batch: those that stay, or a gap of those that do not."""

    first: Sequence
    count: int  # type: ignore[assignment] # hides tuple.count, which nobody calls on a part
    start: int  # of their records in those of the batch; equal to `end`: they do not stay
    end: int


@dataclass(slots=True)
class CompactedRange:
    """A channel in a pass."""

    mark: Compaction
    clean_until: Sequence  # up to here an earlier pass has left of each key what stays
    until: Sequence = NOTHING  # the last message that this pass has seen, at most mark.until
    newest_tombstone: Sequence = NOTHING  # the newest one that stays, and is not the last message

    @property
    def looks_back(self) -> bool:
        """True if messages that an earlier pass has seen tell which ones go."""
        return self.mark.keep_first or self.mark.earlier > 0


@dataclass(slots=True)
class KeyMap:
    """The place of the message that stays, for each key that is new in one pass; where several stay, of the oldest of them."""

    targets: Mapping[ChannelUid, CompactedRange]
    places: dict[bytes, int] = field(default_factory=dict)
    # Of keys of which several messages stay: how many there are from the last one on that takes the place of others.
    counts: dict[bytes, int] = field(default_factory=dict)
    keys_max: int = COMPACTION_KEYS_MAX

    @property
    def full(self) -> bool:
        """True if no further batch should be learned."""
        return len(self.places) >= self.keys_max

    def learn(self, row: BatchRow, records: bytes | memoryview) -> None:
        """Add the keys of a batch that no earlier pass has seen. Batches come in order."""
        target, places = self.targets[row.uid], self.places
        if not row.length or row.base_sequence > target.mark.until:
            return
        last = min(row.base_sequence + row.count - 1, target.mark.until)
        target.until = max(target.until, Sequence(last))
        if last <= target.clean_until:
            return
        keys, ends, _ = keyed(records, row.count)
        replacing = _replacing(records, ends) if target.mark.earlier else frozenset()
        for sequence, key in enumerate(keys, row.base_sequence):
            if key and target.clean_until < sequence <= last:
                name = _name(row.uid, key)
                if target.mark.earlier:
                    self._count(name, sequence, replaces=sequence - row.base_sequence in replacing)
                elif target.mark.keep_first:
                    places.setdefault(name, sequence)
                else:
                    places[name] = sequence

    def _count(self, name: bytes, sequence: int, *, replaces: bool) -> None:
        """Count a message of a key of which several stay; *replaces*: it takes the place of those before it."""
        if replaces:
            self.places[name], self.counts[name] = sequence, 1
        else:
            self.places.setdefault(name, 0)
            self.counts[name] = self.counts.get(name, 0) + 1

    def look_back(self, row: BatchRow, records: bytes | memoryview) -> None:
        """Note the known keys that have an older message in a batch that an earlier pass has seen: of these it stays, or counts
        as one of several."""
        target, places = self.targets[row.uid], self.places
        if not target.looks_back or not row.length or row.base_sequence > target.clean_until:
            return
        for sequence, key in enumerate(keyed(records, row.count).keys, row.base_sequence):
            if key and sequence <= target.clean_until:
                name = _name(row.uid, key)
                if target.mark.earlier:
                    if sequence > places.get(name, sequence):
                        self.counts[name] += 1
                elif places.get(name, 0) > sequence:
                    places[name] = sequence

    def place(self, row: BatchRow, records: bytes | memoryview) -> None:
        """Find the oldest message that stays, of keys of which several do: all batches of the pass come once more."""
        target, places, counts = self.targets[row.uid], self.places, self.counts
        if not target.mark.earlier or not row.length or row.base_sequence > target.until:
            return
        for sequence, key in enumerate(keyed(records, row.count).keys, row.base_sequence):
            if key and sequence <= target.until:
                name = _name(row.uid, key)
                if sequence >= places.get(name, sequence + 1):
                    counts[name] -= 1
                    if counts[name] > target.mark.earlier:
                        places[name] = sequence + 1

    def end_placing(self) -> None:
        """All batches have come: nothing goes of keys that had other messages this time, as some were removed meanwhile."""
        for name, left in self.counts.items():
            if left:
                del self.places[name]
        self.counts.clear()

    def parts(self, row: BatchRow, records: bytes | memoryview) -> list[BatchPart]:
        """Return the parts of a batch, those that stay and gaps, in order and without holes; one part if all of it stays."""
        target = self.targets[row.uid]
        whole = [BatchPart(row.base_sequence, row.count, 0, len(records))]
        if not row.length or row.base_sequence > target.until:
            return whole
        keys, ends, tombstones = keyed(records, row.count)
        removed = list(self._removed(row, target, keys, tombstones))
        if not removed:
            return whole
        parts: list[BatchPart] = []
        at = start = 0
        for place in [*removed, row.count]:
            if place > at:
                parts.append(BatchPart(Sequence(row.base_sequence + at), place - at, start, ends[place - 1]))
            if place == row.count:
                break
            start, at = ends[place], place + 1
            if parts and parts[-1].start == parts[-1].end:
                parts[-1] = parts[-1]._replace(count=parts[-1].count + 1, start=start, end=start)
            else:
                parts.append(BatchPart(Sequence(row.base_sequence + place), 1, start, start))
        return parts

    def _removed(
        self, row: BatchRow, target: CompactedRange, keys: list[bytes], tombstones: frozenset[int]
    ) -> Iterator[int]:
        """Yield the places in a batch of the messages that do not stay."""
        places, mark = self.places, target.mark
        last = target.until
        for place, key in enumerate(keys):
            sequence = row.base_sequence + place
            if sequence > last:
                return
            if not key:
                continue
            stays = places.get(_name(row.uid, key))
            if stays is not None and (sequence > stays if mark.keep_first else sequence < stays):
                yield place
            elif place in tombstones and not mark.keep_first and not mark.earlier:
                if sequence <= min(mark.tombstones_until, target.clean_until) and sequence < last:
                    yield place
                elif sequence < last:
                    target.newest_tombstone = max(target.newest_tombstone, Sequence(sequence))


def _replacing(records: bytes | memoryview, ends: list[int]) -> frozenset[int]:
    """The places in a batch of messages that take the place of those before them."""
    data = bytes(records)
    if ROLLUP not in data:
        return frozenset()
    messages = [data[start + LENGTH_BYTES : end] for start, end in zip([0, *ends], ends, strict=False)]
    named = ((at, one) for at, one in enumerate(messages) if ROLLUP in one)
    return frozenset(at for at, one in named if takes_place(wire.MsgProto.FromString(one)))


def _name(uid: ChannelUid, key: bytes) -> bytes:
    short = key if len(key) < DIGEST_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()
    return uid.to_bytes(4, "little") + short

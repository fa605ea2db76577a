"""The channel index beside a list with one tuple per message."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stan.invariant import InvariantError
from stan.log.index import BatchIndex
from stan.log.types import BatchRow

OVERHEAD = 40
ALL = 10**12

# per batch: messages, their size, timestamp, sequences lost before it (negative: they stay unused), and a share of the channel
# to trim afterwards
batches = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.integers(0, 60),
        st.integers(0, 300),
        st.sampled_from([0, 0, 0, 4, -3]),
        st.none() | st.floats(0, 1.1),
    ),
    max_size=150,
)


class Model:
    """A channel as a list of (sequence, timestamp, size) and its batches."""

    def __init__(self):
        self.index = BatchIndex(7, OVERHEAD)
        self.messages = []
        self.unused = []  # base, count, segment of batches without records, as long as there are messages before them
        self.batches = []  # base, count, timestamp, segment, position, length, size if every third, which is compressed
        self.first = 0
        self.last = 0
        self.timestamp = 0

    def skip(self, count, timestamp):
        """Sequences stay unused."""
        row = BatchRow(7, self.last + 1, count, timestamp, 0, 0, 0)
        assert self.index.add(row, 1, raft_index=len(self.batches) + 1, hole=0)
        if self.messages:
            self.unused.append((self.last + 1, count, 1))
        self.last += count
        self.timestamp = max(self.timestamp, timestamp)

    def add(self, count, size, timestamp, lost):
        if lost < 0:
            self.skip(-lost, timestamp)
            lost = 0
        base = self.last + lost + 1 if self.last else 1
        number = len(self.batches) + 1
        self.timestamp = max(self.timestamp, timestamp)
        length = count * (size + 4)
        kept, told = (length, 0) if number % 3 else (1 + length // 5, length)
        row = BatchRow(7, base, count, timestamp, 0, number * 3, kept, told)
        hole = number if lost else 0
        assert self.index.add(row, number // 5, raft_index=number + 1, hole=hole)
        self.batches.append((base, count, self.timestamp, number // 5, number * 3, kept, told))
        self.messages += [(base + at, self.timestamp, size) for at in range(count)]
        self.last = base + count - 1

    def trim(self, first):
        self.first = max(self.first, first)
        before = [one for one in self.batches if one[0] + one[1] > self.messages[0][0]] if self.messages else []
        self.messages = [one for one in self.messages if one[0] >= first]
        left = self.messages[0][0] if self.messages else ALL
        gone = [one for one in before if one[0] + one[1] <= left]
        unused = [one for one in self.unused if one[0] + one[1] <= left]
        self.unused = [one for one in self.unused if one[0] + one[1] > left]
        removed = self.index.trim(first)
        runs = removed.by_segment() if removed else []
        assert sum(run[1] for run in runs) == len(gone) + len(unused)
        assert sum(run[2] for run in runs) == sum(one[5] for one in gone)
        assert {run[0] for run in runs} == {one[3] for one in gone} | {one[2] for one in unused}

    def size(self, first=0):
        return sum(size + OVERHEAD for sequence, _, size in self.messages if sequence >= first)


def build(shapes):
    model = Model()
    for count, size, timestamp, lost, share in shapes:
        model.add(count, size, timestamp, lost)
        if share is not None:
            model.trim(int(share * (model.last + 1)) if share < 1 else model.last + 1)
    if model.last % 3 == 2:
        model.skip(2, model.timestamp)
    return model


@given(batches)
@settings(deadline=None)
def test_index_tells_where_the_channel_begins_and_ends(shapes):
    model = build(shapes)
    index = model.index
    first = model.messages[0][0] if model.messages else model.last + 1 if model.last else 0
    assert (index.first_sequence, index.last_sequence) == (first, model.last)
    assert index.last_timestamp == model.timestamp
    assert index.first_timestamp == (model.messages[0][1] if model.messages else 0)
    assert index.bytes == model.size()
    kept = [one for one in model.batches if model.messages and one[0] + one[1] > model.messages[0][0]]
    if any(one[6] for one in kept):
        assert index.compression == (sum(one[6] or one[5] for one in kept), sum(one[5] for one in kept))


@given(batches, st.integers(0, 320))
@settings(deadline=None)
def test_index_sequence_at_finds_the_first_not_before(shapes, timestamp):
    model = build(shapes)
    after = [sequence for sequence, written, _ in model.messages if written >= timestamp]
    assert model.index.sequence_at(timestamp) == (after[0] if after else model.last + 1 if model.last else 0)


@given(batches, st.integers(0, 700))
@settings(deadline=None)
def test_index_knows_the_newest_timestamp_before_a_sequence(shapes, sequence):
    model = build(shapes)
    before = [written for at, written, _ in model.messages if at < sequence]
    found = model.index.timestamp_before(sequence)
    assert (before[-1] if before else 0) <= found <= model.index.last_timestamp
    assert found == before[-1] or model.unused if before else not found or model.messages[0][1] >= found


@given(batches, st.integers(0, 700), st.integers(0, 700), st.integers(1, 400), st.integers(1, 9))
@settings(deadline=None)
def test_index_refs_cover_the_range(shapes, first, last, bytes_max, batches_max):
    model = build(shapes)
    kept = model.messages[0][0] if model.messages else ALL
    wanted = [one for one in model.batches if one[0] + one[1] > max(first, kept) and one[0] <= last and first <= last]
    refs = [tuple(ref)[:7] for ref in model.index.refs(first, last, ALL, ALL)]
    if first <= last:
        assert refs == wanted
    cut = [tuple(ref)[:7] for ref in model.index.refs(first, last, bytes_max, batches_max)]
    assert cut == refs[: len(cut)]
    assert bool(cut) == bool(refs)
    assert len(cut) <= batches_max
    assert len(cut) <= 1 or sum(ref[6] or ref[5] for ref in cut) <= bytes_max
    if len(cut) < min(len(refs), batches_max):
        assert sum(ref[6] or ref[5] for ref in refs[: len(cut) + 1]) > bytes_max


@given(batches, st.integers(0, 700))
@settings(deadline=None)
def test_index_kept_from_finds_the_first_message_that_is_there(shapes, sequence):
    model = build(shapes)
    assert model.index.kept_from(sequence) == min(
        (one for one, *_ in model.messages if one >= sequence), default=model.last + 1
    )


@given(batches, st.integers(0, 4000))
@settings(deadline=None)
def test_index_first_within_bytes_is_the_smallest_that_fits(shapes, bytes_max):
    model = build(shapes)
    first = model.index.first_within_bytes(bytes_max)
    if not model.messages:
        assert first == model.index.first_sequence
        return
    sequences = [one[0] for one in model.messages]
    fitting = [sequence for sequence in sequences if model.size(sequence) <= bytes_max]
    expected = min([*fitting, sequences[-1]])
    assert sequences[0] <= first <= sequences[-1]
    assert min(sequence for sequence in sequences if sequence >= first) == expected


def add(index, base, count, raft_index, hole=0):
    return index.add(BatchRow(7, base, count, 1, 0, 0, 10 * count), 1, raft_index=raft_index, hole=hole)


@pytest.mark.parametrize("base", [1, 2, 3, 5])
def test_index_add_out_of_order_breaks_s1(base):
    index = BatchIndex(7, OVERHEAD)
    add(index, 1, 3, raft_index=1)
    with pytest.raises(InvariantError, match="S1"):
        add(index, base, 1, raft_index=2)


def test_index_add_over_a_hole_behind_the_channel_breaks_s1():
    index = BatchIndex(7, OVERHEAD)
    add(index, 1, 3, raft_index=5)
    with pytest.raises(InvariantError, match="S1"):
        add(index, 6, 1, raft_index=6, hole=4)
    assert add(index, 6, 1, raft_index=9, hole=8)
    assert [ref.base_sequence for ref in index.refs(0, ALL, ALL, ALL)] == [1, 6]


def test_index_add_below_the_floor_is_refused_but_counts():
    index = BatchIndex(7, OVERHEAD)
    index.trim(6)
    assert not add(index, 3, 2, raft_index=1)
    assert add(index, 5, 2, raft_index=2)
    assert (index.first_sequence, index.last_sequence) == (6, 6)
    with pytest.raises(InvariantError, match="S1"):
        add(index, 6, 2, raft_index=3)


def test_index_move_changes_only_kept_batches_of_that_segment():
    index = BatchIndex(7, OVERHEAD)
    add(index, 1, 3, raft_index=1)
    add(index, 4, 3, raft_index=2)
    index.trim(4)
    assert not index.move(1, 1, 9, 77)
    assert not index.move(4, 2, 9, 77)
    assert index.move(4, 1, 9, 77)
    assert [(ref.segment, ref.position) for ref in index.refs(0, ALL, ALL, ALL)] == [(9, 77)]


def test_index_of_many_small_batches_stays_compact():
    tracemalloc.start()
    index = BatchIndex(7, OVERHEAD)
    row = BatchRow(7, 1, 1, 1, 0, 0, 10)
    for at in range(1, 100_001):
        index.add(row._replace(base_sequence=at), 1, raft_index=at, hole=0)
    used, _ = tracemalloc.get_traced_memory()
    index.trim(100_000)
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 42 * 100_000
    assert left < used / 10


def test_index_of_ten_thousand_empty_channels_costs_little():
    tracemalloc.start()
    channels = [BatchIndex(uid, OVERHEAD) for uid in range(10_000)]
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 250 * len(channels)

"""Messages of an ephemeral channel: their index answers what that of a log in memory answers, and reads give what those give."""

from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.scalars import ChannelUid

from stan import limits
from stan.core.leader.ephemeral_messages import COMPACT_BATCHES_MIN, EphemeralStores
from stan.core.state.ephemeral import BLOCK_BITS, Epoch
from stan.edge.batch_lookup import from_memory, refs_of_runs
from stan.log.memorylog import MemoryLog
from stan.log.types import Entry
from stan.protocol.entries import Kind, encode_batch
from stan.protocol.kernel import server as kernel

UID = ChannelUid(7)
EPOCH = Epoch(2, (1 << BLOCK_BITS) + 1, 1)
FIRST = EPOCH.first


def records(base, sizes, timestamp):
    bodies = b"".join(
        len(body).to_bytes(4, "little") + body for size in sizes if (body := b"\x22" + bytes([size]) + b"x" * size)
    )
    return kernel.seal(b"foo", base, timestamp, [bodies])


class Twins:
    """The same messages in a log, and in an ephemeral channel."""

    def __init__(self):
        self.log = MemoryLog()
        self.stores = EphemeralStores(lambda _group, uid: self.log.channel(uid))
        self.stores.begin(UID, EPOCH)
        self.index, self.next = 0, FIRST

    @property
    def pair(self):
        return self.stores.by_uid[UID], self.log.channel(UID)

    def add(self, sizes, timestamp):
        found = records(self.next, sizes, timestamp)
        self.index += 1
        body = b"".join(encode_batch(UID, self.next, len(sizes), timestamp, 0, found, 0))
        self.log.append([Entry(self.index, 1, Kind.RECORDS, body)])
        self.log.commit(self.index)
        self.stores.add(UID, self.next, len(sizes), timestamp, found)
        self.next += len(sizes)

    def trim(self, first):
        self.log.trim(UID, first)
        self.stores.trim(UID, first)


def look(index, newest, times):
    return [
        index.first_sequence,
        index.last_sequence,
        index.bytes,
        index.last_timestamp,
        index.first_timestamp,
        [index.sequence_at(at) for at in times],
        [index.timestamp_before(at) for at in (0, 1, newest, newest + 1)],
        [index.kept_from(sequence) for sequence in range(max(1, newest - 9), newest + 3)],
        [index.first_within_bytes(most) for most in (0, 10, 100, 1000)] if newest else [],
    ]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(0, 60), min_size=1, max_size=5), st.integers(0, 3)),
        st.tuples(st.just("trim"), st.integers(0, 12), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS, st.data())
def test_index_and_reads_are_those_of_a_log(steps, data):
    twins, wall = Twins(), 1000
    for verb, what, later in steps:
        if verb == "add":
            wall += later
            twins.add(what, wall)
        elif twins.next > FIRST:  # to what there is, and no further
            twins.trim(min(max(twins.pair[0].first_sequence, 0) + what, twins.next))
        here, there = twins.pair
        assert look(here, twins.next > FIRST, (0, 999, wall - 1, wall, wall + 1)) == look(
            there, twins.next > FIRST, (0, 999, wall - 1, wall, wall + 1)
        )
        assert twins.stores.bytes == here.bytes
    if twins.next == FIRST:
        return
    spans = data.draw(st.lists(st.tuples(st.integers(-2, 60), st.integers(0, 30)), max_size=3))
    runs, at = [], FIRST
    for begin, size in sorted(spans):
        first = max(at, FIRST + begin)
        runs.append((first, first + size))
        at = first + size + 1
    most = data.draw(st.sampled_from([1, 50, 300, limits.READ_BYTES_MAX]))
    refs = refs_of_runs(there, runs, most)
    assert here.read(runs, most) == [one._replace(kept=False) for one in from_memory(twins.log, refs) or ()]


def test_removed_batches_are_forgotten():
    twins = Twins()
    for number in range(4 * COMPACT_BATCHES_MIN):
        twins.add([10], number)
        twins.trim(twins.next - 1)
    here, there = twins.pair
    assert len(here._bases) <= 2 * COMPACT_BATCHES_MIN
    assert look(here, twins.next, (0, 5, 10**6)) == look(there, twins.next, (0, 5, 10**6))


def test_a_new_epoch_is_empty_and_one_that_goes_on_keeps_its_messages():
    twins = Twins()
    twins.add([1, 2, 3], 5)
    twins.stores.begin(UID, EPOCH._replace(block=9))
    assert (twins.pair[0].last_sequence, twins.pair[0].epoch.block) == (FIRST + 2, 9)
    twins.stores.begin(UID, Epoch(3, (10 << BLOCK_BITS) + 1, 10))
    assert (twins.pair[0].last_sequence, twins.stores.bytes) == (0, 0)


def test_all_channels_together_have_a_bound(monkeypatch):
    monkeypatch.setattr(limits, "EPHEMERAL_BYTES_MAX", 4000)
    stores = EphemeralStores(lambda _group, _uid: None)
    for uid in (1, 2):
        stores.begin(uid, EPOCH)
    small = records(FIRST, [50], 1)
    stores.add(1, FIRST, 1, 1, small)
    at = FIRST
    while stores.make_room() is None:
        stores.add(2, at, 1, 1, records(at, [100], 1))
        at += 1
    assert stores.bytes <= 4000 - 4000 // 8
    assert stores.by_uid[1].first_sequence == FIRST, "the largest one gives"
    assert stores.by_uid[2].last_sequence == at - 1

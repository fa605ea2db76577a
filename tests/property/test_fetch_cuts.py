"""What a fetch answers, beside a list with one tuple per message: what was asked for, as much as fits, nothing left out."""

from functools import partial

from hypothesis import example, given
from hypothesis import strategies as st
from stan_protocol import fetches
from stan_protocol.compression import zstd_module
from stan_protocol.kernel.client import decode_message
from stan_protocol.proto.extension_pb2 import FetchRequest, FetchResponse
from stan_protocol.refusals import MESSAGE_TOO_LARGE

from stan.core.base.runs import Run, Runs
from stan.core.boundary.fetches import answer, goes_as_kept, locate
from stan.edge.serving.fetching import refs_of
from stan.log.index import BatchIndex
from stan.log.types import BatchRow
from stan.protocol.compressed_batches import framed, stored_form
from stan.protocol.kernel import server as kernel

PAYLOAD_MAX = 400

# per batch: sizes of its messages, sequences lost before it
shapes = st.lists(
    st.tuples(
        st.lists(st.integers(0, 60) | st.integers(280, 420), min_size=1, max_size=8), st.sampled_from([0, 0, 0, 3])
    ),
    max_size=12,
)
sequences = st.integers(1, 70)
starts = st.one_of(
    st.builds(lambda first, length: {"from_sequence": first, "last": first + length}, sequences, st.integers(0, 40)),
    st.builds(lambda first: {"from_sequence": first}, sequences),
    st.builds(lambda time: {"from_time": time}, st.integers(-5, 200)),
    st.builds(lambda count, last: {"newest": count, "last": last}, sequences, st.just(0) | sequences),
    st.just({}),
)


class Channel:
    """A channel as a list of (sequence, timestamp, MsgProto), and the index with its batches."""

    def __init__(self, batches, trim, deleted=(), *, compressed=False):
        self.compressed = compressed  # whether whoever asks takes them so
        self.index = BatchIndex(7, 40)
        self.messages = []
        self.records, self.kept = {}, {}  # by base sequence
        last = 0
        for number, (sizes, lost) in enumerate(batches, 1):
            base = last + 1 + (lost if last else 0)
            bodies = b"".join(body(size) for size in sizes)
            records = kernel.seal(b"foo", base, number * 10, [bodies])
            stored, size = records, 0
            if compressed and number % 3:
                stored, size = stored_form(b"foo", zstd_module().compress(bodies), records)
            self.kept[base] = stored
            row = BatchRow(7, base, len(sizes), number * 10, 0, 0, len(stored), size)
            assert self.index.add(row, 1, raft_index=number + 1, hole=number)
            self.records[base] = records
            run = FetchResponse().runs.add(first_sequence=base, count=len(sizes))
            self.messages += [
                (base + at, number * 10, message) for at, message in enumerate(fetches.messages(records, [run]))
            ]
            last = base + len(sizes) - 1
        self.first = int(trim * (last + 1))
        self.index.trim(self.first)
        gone = {self.messages[at % len(self.messages)][0] for at in deleted if self.messages}
        self.deleted = Runs(Run(sequence, sequence) for sequence in sorted(gone)) if gone else None
        self.messages = [one for one in self.messages if one[0] >= self.first and one[0] not in gone]
        self.last = last

    def wanted(self, request):
        """The messages that a request without bounds gives."""
        last = request.get("last") or self.last
        if "from_sequence" in request:
            return [one for one in self.messages if request["from_sequence"] <= one[0] <= last]
        if "from_time" in request:
            return [one for one in self.messages if one[1] >= request["from_time"] and one[0] <= last]
        if "newest" in request:
            there = [at for at in range(1, self.last + 1) if at not in (self.deleted or ())][-request["newest"] :]
            return [one for one in self.messages if there[0] <= one[0] <= last]
        return []

    def ask(self, **request):
        asked = FetchRequest(channel=b"foo", compressed=self.compressed, **request)
        place = locate(asked, self.index, PAYLOAD_MAX, self.deleted)
        batches = []
        as_kept = partial(goes_as_kept, asked, place, PAYLOAD_MAX, self.deleted)
        for ref in refs_of(place, self.index, as_kept if self.compressed else None, request.get("max_bytes") or 1500):
            found = (self.kept if ref.as_stored else self.records)[ref.base_sequence]
            batch = fetches.FetchedBatch(ref.base_sequence, ref.count, ref.timestamp, found)
            batches.append(framed(batch) if ref.as_stored else batch)
        encoded = b"".join(answer(asked, place, batches, PAYLOAD_MAX, self.deleted))
        return encoded, FetchResponse.FromString(encoded)


def body(size):
    """A message of *size* bytes as the publisher has sent it."""
    if not size:
        return bytes(4)
    length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    return (1 + len(length) + size).to_bytes(4, "little") + b"\x22" + length + bytes(size)


def received(response, channel):
    """(sequence, timestamp of the run, MsgProto) of each message in an answer; a frame holds nothing that may not be seen."""
    found, seen = [], {sequence for sequence, _, _ in channel.messages}
    for run in response.runs:
        base = run.first_sequence - run.skipped
        assert seen.issuperset(range(base, base + run.rows))
    records, runs = fetches.in_clear(b"foo", response.records, [*response.runs])
    for run in runs:
        for at, message in enumerate(fetches.messages(records, [run])):
            found.append((run.first_sequence + at, run.timestamp, message))
    return found


@given(shapes, st.just(0.0) | st.floats(0, 1), starts, st.integers(0, 9), st.just(0) | st.integers(1, 500))
@example([([5, 5, 5], 0)], 0.0, {"from_sequence": 2}, 1, 0)
@example([([5, 390, 5], 0)], 0.0, {"from_sequence": 1}, 0, 0)
@example([([5, 345, 5], 0)], 0.0, {"from_sequence": 2}, 0, 0)
@example([([5, 5], 0), ([7], 3)], 0.0, {"from_sequence": 3, "last": 5}, 0, 0)
@example([([0], 0), ([0], 3), ([0], 3), ([0], 3), ([0], 3), ([281], 3)], 0.0, {"from_sequence": 18, "last": 21}, 1, 0)
def test_answer_is_the_longest_beginning_that_is_within_all_bounds(batches, trim, start, messages_max, bytes_max):
    channel = Channel(batches, trim)
    wanted = channel.wanted(start)
    encoded, response = channel.ask(**start, max_messages=messages_max, max_bytes=bytes_max)
    assert len(encoded) <= PAYLOAD_MAX

    if response.records and not response.runs:  # a message alone, without room for anything else
        message = response.records[fetches.LENGTH_PREFIX :]
        assert encoded[0] >> 3 == FetchResponse.RECORDS_FIELD_NUMBER
        assert message == wanted[0][2]
        assert decode_message(message)[0] == wanted[0][0]
        return
    assert (response.first_sequence, response.last_sequence) == (channel.index.first_sequence, channel.last)
    if response.error:
        assert response.error == MESSAGE_TOO_LARGE.encode()
        assert len(wanted[0][2]) + fetches.LENGTH_PREFIX + fetches.BARE_ROOM > PAYLOAD_MAX
        assert response.next_sequence == wanted[0][0] + 1
        return

    got = received(response, channel)
    assert got == wanted[: len(got)]
    assert all(one[0] >= response.next_sequence for one in wanted[len(got) :])
    assert len(got) <= (messages_max or len(got))
    room = min(bytes_max or PAYLOAD_MAX, PAYLOAD_MAX)
    assert len(got) == 1 or len(encoded) <= room + fetches.HEAD_ROOM
    if not got and wanted and start.get("from_sequence", wanted[0][0]) < wanted[0][0]:
        assert (
            response.next_sequence == wanted[0][0]
        )  # goes on behind a hole, as the message there leaves no room to tell of it
    elif len(got) < len(wanted) and len(got) != messages_max:
        assert got
        more = fetches.LENGTH_PREFIX + len(wanted[len(got)][2]) + fetches.RUN_ROOM
        assert sum(fetches.LENGTH_PREFIX + len(one[2]) for one in got) + len(
            response.runs
        ) * fetches.RUN_ROOM + more > (room - fetches.HEAD_ROOM)


@given(
    shapes,
    st.just(0.0) | st.floats(0, 1),
    sequences,
    st.integers(0, 9),
    st.just(0) | st.integers(1, 500),
    st.booleans(),
)
def test_going_on_at_the_next_sequence_gives_everything_once(batches, trim, first, messages_max, bytes_max, compressed):
    channel = Channel(batches, trim, compressed=compressed)
    got, at = [], first
    while at <= channel.last:
        _, response = channel.ask(from_sequence=at, max_messages=messages_max, max_bytes=bytes_max)
        if response.records and not response.runs:
            got.append(response.records[fetches.LENGTH_PREFIX :])
            at = decode_message(got[-1])[0] + 1
            continue
        assert response.next_sequence > at
        got += [message for _, _, message in received(response, channel)]
        at = response.next_sequence
    most = PAYLOAD_MAX - fetches.LENGTH_PREFIX - fetches.BARE_ROOM
    fits = got if compressed else ()  # a frame may hold what is too large for an answer in clear
    assert got == [one[2] for one in channel.messages if one[0] >= first and (len(one[2]) <= most or one[2] in fits)]


@given(
    batches=shapes,
    trim=st.just(0.0) | st.floats(0, 1),
    start=starts,
    messages_max=st.integers(0, 9),
    deleted=st.lists(st.integers(0, 99), max_size=30),
    compressed=st.booleans(),
)
@example(
    batches=[([0], 0), ([0], 3)],
    trim=0.0,
    start={"newest": 1, "last": 0},
    messages_max=0,
    deleted=[1],
    compressed=False,
)
@example(
    batches=[([0], 0), ([0, 0, 0], 3)],
    trim=0.0,
    start={"from_sequence": 2},
    messages_max=0,
    deleted=[1],
    compressed=False,
)
def test_answer_has_nothing_that_was_deleted(batches, trim, start, messages_max, deleted, compressed):
    channel = Channel(batches, trim, deleted, compressed=compressed)
    wanted = channel.wanted(start)
    encoded, response = channel.ask(**start, max_messages=messages_max)
    assert len(encoded) <= PAYLOAD_MAX
    if response.records and not response.runs:
        assert response.records[fetches.LENGTH_PREFIX :] == wanted[0][2]
    elif not response.error:
        got = received(response, channel)
        assert got == wanted[: len(got)]
        assert all(one[0] >= response.next_sequence for one in wanted[len(got) :])


@given(
    shapes,
    sequences,
    st.integers(0, 9),
    st.just(0) | st.integers(1, 500),
    st.lists(st.integers(0, 99), max_size=30),
    st.booleans(),
)
def test_going_on_passes_over_what_was_deleted_or_lost(batches, first, messages_max, bytes_max, deleted, compressed):
    channel = Channel(batches, 0.0, deleted, compressed=compressed)
    lost = any(lost for _, lost in batches)
    got, at = [], first
    while at <= channel.last:
        _, response = channel.ask(from_sequence=at, max_messages=messages_max, max_bytes=bytes_max)
        if response.records and not response.runs:
            got.append(response.records[fetches.LENGTH_PREFIX :])
            sequence = decode_message(got[-1])[0]
            assert lost or sequence == at, "alone it would seem to be behind a loss"
            at = sequence + 1
            continue
        assert response.next_sequence > at
        got += [message for _, _, message in received(response, channel)]
        at = response.next_sequence
    most = PAYLOAD_MAX - fetches.LENGTH_PREFIX - fetches.BARE_ROOM
    fits = got if compressed else ()  # a frame may hold what is too large for an answer in clear
    assert got == [one[2] for one in channel.messages if one[0] >= first and (len(one[2]) <= most or one[2] in fits)]


@given(st.integers(0, 3000), st.integers(1, (1 << 63) - 1), st.integers(0, (1 << 62)), st.sampled_from([0, 1 << 31]))
def test_rooms_are_large_enough(size, sequence, timestamp, rows):
    record = size.to_bytes(4, "little") + bytes(size)
    batch = fetches.FetchedBatch(sequence, 1, timestamp, record, rows, rows)
    response = FetchResponse(
        uid=(1 << 32) - 1, first_sequence=sequence, last_sequence=(1 << 64) - 1, next_sequence=(1 << 64) - 1
    )
    encoded = b"".join(fetches.encode(response, [batch, batch]))
    assert len(encoded) <= fetches.HEAD_ROOM + 2 * batch.room
    assert len(b"".join(fetches.bare(record))) <= len(record) + fetches.BARE_ROOM

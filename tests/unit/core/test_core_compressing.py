"""Compression on the leader: what the log gets, what subscribers get, and who is refused."""

import pytest
from stan_protocol import refusals
from stan_protocol.compression import Compressor, zstd_module
from stan_protocol.proto.extension_pb2 import BatchResponse

from stan import limits
from stan.config import Config, StoreConfig
from stan.policies import PolicyRule
from stan.protocol.entries import Kind, decode_batches
from tests.kit.core_harness import CoreHarness
from tests.unit.core.test_core_batching import SUBJECT, refused, request, stored

EVENTS = [b'{"id": %d, "name": "somebody", "page": "/index.html"}' % at for at in range(100)]


def started(*, compress=1, **config):
    rules = (PolicyRule(pattern="foo", compress=compress),) if compress else ()
    harness = CoreHarness(Config(policies=rules, **config))
    harness.connect()
    return harness


def framed(*texts, ids=None, frame=None):
    made = request(*texts, ids=ids)
    made.compressed_rows, made.rows = frame or Compressor().frame(made.rows), b""
    return made


def kept(harness):
    """(messages, bytes kept, bytes of records; 0: in clear) of each batch in the log."""
    bodies = [body for _, kind, body in harness.logs[1] if kind == Kind.RECORDS]
    return [(batch.count, len(batch.records), batch.size) for body in bodies for batch in decode_batches(body)]


def delivered(harness):
    return [said.message.data for said in harness.hear("inbox")]


def test_the_leader_compresses_what_the_policy_says_and_delivers_it_in_clear() -> None:
    harness = started()
    harness.subscribe("foo", in_flight=1000)
    harness.publish("foo", *EVENTS)
    harness.publish("bar", *EVENTS)
    [(count, size, told), in_clear] = kept(harness)
    assert count == 100
    assert 3 * size < told == in_clear[1]
    assert in_clear[2] == 0
    assert delivered(harness) == EVENTS
    harness.restart()
    harness.subscribe("foo", "other", in_flight=1000)
    assert [said.message.data for said in harness.hear("other")] == EVENTS


def test_few_bytes_are_not_compressed() -> None:
    harness = started()
    harness.publish("foo", b"x" * 500)
    assert [told for _, _, told in kept(harness)] == [0]


def test_limits_count_messages_and_not_what_is_kept_of_them() -> None:
    room = 0
    for compress in (0, 1):
        harness = started(compress=compress)
        harness.publish("foo", b"first")
        harness.hold = True
        harness.publish("foo", *EVENTS)
        [channel] = harness.broker.parts.channels.by_uid.values()
        assert channel.uncommitted_bytes == (room or channel.uncommitted_bytes)
        room = channel.uncommitted_bytes
    assert room > 2 * kept(harness)[1][1]


def test_a_batch_that_comes_compressed_is_stored_as_it_came() -> None:
    harness = started(compress=0)
    harness.subscribe("foo", in_flight=1000)
    asked = framed(*EVENTS)
    assert harness.ask(SUBJECT, asked, BatchResponse) == stored(1, 100)
    body = next(body for _, kind, body in harness.logs[1] if kind == Kind.RECORDS)
    assert bytes(decode_batches(body)[0].records).endswith(asked.compressed_rows)
    assert delivered(harness) == EVENTS


def test_each_that_comes_compressed_is_a_batch_of_its_own() -> None:
    harness = started(compress=0)
    harness.subscribe("foo", in_flight=1000)
    turn, harness.turn = harness.turn, lambda: None  # all of it comes in one read
    harness.publish("foo", b"ahead")
    harness.asks(SUBJECT, framed(*EVENTS), "one")
    harness.asks(SUBJECT, framed(*EVENTS), "other")
    harness.publish("foo", b"behind", b"it")
    harness.turn = turn
    harness.turn()
    assert [(count, bool(size)) for count, _, size in kept(harness)] == [
        (1, False),
        (100, True),
        (100, True),
        (2, False),
    ]
    assert delivered(harness) == [b"ahead", *EVENTS, *EVENTS, b"behind", b"it"]
    answers = [BatchResponse.FromString(harness.hear(reply)[0].payload) for reply in ("one", "other")]
    assert answers == [stored(2, 101), stored(102, 201)]


def test_ids_that_are_known_are_left_out_of_a_compressed_batch() -> None:
    harness = started()
    assert harness.ask(SUBJECT, framed(*EVENTS, ids=range(100)), BatchResponse) == stored(1, 100)
    assert harness.ask(SUBJECT, framed(*EVENTS, ids=range(50, 150)), BatchResponse) == stored(101, 150, 50)
    assert harness.ask(SUBJECT, framed(*EVENTS, ids=range(100)), BatchResponse) == stored(duplicates=100)
    harness.subscribe("foo", in_flight=1000)
    assert delivered(harness) == [*EVENTS, *EVENTS[50:]]


def test_a_sql_store_gets_everything_in_clear() -> None:
    harness = started(store=StoreConfig(kind="sql"))
    assert harness.ask(SUBJECT, framed(*EVENTS), BatchResponse) == stored(1, 100)
    harness.publish("foo", *EVENTS)
    assert [told for _, _, told in kept(harness)] == [0, 0]


@pytest.mark.parametrize(
    "frame",
    [b"no frame", zstd_module().compress(bytes(limits.COMPRESSED_ROWS_BYTES_MAX + 1))],
    ids=["garbage", "bomb"],
)
def test_frames_that_are_refused(frame) -> None:
    harness = started()
    no = refusals.INVALID_FRAME.format(limits.COMPRESSED_ROWS_BYTES_MAX)
    assert harness.ask(SUBJECT, framed(*EVENTS, frame=frame), BatchResponse) == refused(no)


@pytest.mark.parametrize(
    ("rows", "bad"), [(b"\x05\x00\x00\x00\x08\x01\x22\x01x", 0), (b"\x03\x00\x00\x00\x22\x01x", 1)]
)
def test_what_is_in_a_frame_is_checked_as_if_it_had_come_in_clear(rows, bad) -> None:
    harness = started()
    asked = framed(*EVENTS, frame=zstd_module().compress(rows))
    assert harness.ask(SUBJECT, asked, BatchResponse) == refused(refusals.INVALID_ROWS.format(bad))
    assert kept(harness) == []


def test_rows_beside_a_frame_are_refused() -> None:
    harness = started()
    asked = framed(*EVENTS)
    asked.rows = request(b"other").rows
    assert harness.ask(SUBJECT, asked, BatchResponse) == refused(refusals.INVALID_BATCH)


def test_a_refused_write_leaves_nothing_that_a_later_batch_could_be_taken_for() -> None:
    harness = started()
    harness.subscribe("foo", in_flight=1000)
    harness.full = True
    harness.publish("foo", *EVENTS)
    harness.full = False
    others = [event[::-1] for event in EVENTS]
    harness.publish("foo", *others)
    assert delivered(harness) == others

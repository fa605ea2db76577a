"""The sink without Spark and without a broker: routing, faulty rows, the three deliveries, who may be told from whom."""

import logging

import pyarrow as pa
import pyspark_stan.writing.identity
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)
from pyspark_stan.errors import IdentityError, OptionsError, RowError
from pyspark_stan.writing.identity import ContentIds, Identity
from pyspark_stan.writing.sink import batch_writer, stream_writer
from pyspark_stan.writing.sink_options import sink_options
from stan_client.errors import RequestTimeoutError, ServerError
from stan_protocol.limits import STAGE_CHANNELS_MAX
from stan_protocol.parted import part_of

from tests.spark.fake_client import FakeClient
from tests.spark.filling import column

SERVERS = {"servers": "nats://127.0.0.1:4222"}
VALUE = StructType().add("value", BinaryType())
ROUTED = StructType().add("value", BinaryType()).add("channel", StringType())
PAIRS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
PAIRS_ARROW = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def client(monkeypatch):
    """The broker that the sink finds."""
    fake = FakeClient()
    monkeypatch.setattr("pyspark_stan.transport.client_of", lambda connection: fake)
    return fake


def values(*items):
    return pa.record_batch({"value": pa.array(items, pa.binary())})


def routed(*pairs):
    return pa.record_batch(
        {
            "value": pa.array([value for value, _ in pairs], pa.binary()),
            "channel": pa.array([channel for _, channel in pairs], pa.string()),
        }
    )


def stream(schema=VALUE, **options):
    return stream_writer({**SERVERS, **options}, schema, overwrite=False)


def save(schema=VALUE, **options):
    return batch_writer({**SERVERS, **options}, schema, overwrite=False)


def at_least_once(schema=VALUE, **options):
    return stream(schema, delivery="at-least-once", **options)


def run_batch(task, writer, batch, *partitions):
    """One micro-batch: its tasks one after the other, and the commit."""
    messages = []
    for number, record_batches in enumerate(partitions):
        task(partition=number, batch=batch)
        messages.append(writer.write(iter(record_batches)))
    writer.commit(messages, batch)
    return messages


# --- routing ----------------------------------------------------------------------------------------------------------


def test_rows_go_to_the_channel_of_the_option(client):
    at_least_once(ROUTED, channel="a").write(iter([routed((b"1", "b"), (b"2", None))]))

    assert client.data("a") == [b"1", b"2"]
    assert list(client.channels) == ["a"]


def test_rows_go_to_the_channel_of_their_column_in_their_order(client):
    rows = [(b"%d" % n, f"c{n % 7}") for n in range(1000)]

    message = at_least_once(ROUTED).write(iter([routed(*rows[:300]), routed(*rows[300:])]))

    assert {name: client.data(name) for name in client.channels} == {
        f"c{k}": [b"%d" % n for n in range(1000) if n % 7 == k] for k in range(7)
    }
    assert message.rows == 1000
    assert client.asked["batch"] == 7, "rows of a channel wait for company"


def test_a_slice_of_an_array_is_written_from_its_own_start(client):
    whole = values(b"no", b"no", b"yes", b"", b"also", b"no")

    at_least_once(channel="a").write(iter([whole.slice(2, 3)]))

    assert client.data("a") == [b"yes", b"", b"also"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary()], ids=str)
def test_text_and_large_types_are_bytes(client, kind):
    at_least_once(channel="a").write(iter([pa.record_batch({"value": pa.array(["ä", ""], kind)})]))

    assert client.data("a") == ["ä".encode(), b""]


def test_requests_are_cut_by_rows_and_by_bytes(client):
    at_least_once(channel="a", batchrows="10").write(iter([values(*[b"x"] * 25)]))
    assert client.asked["batch"] == 3

    client.asked.clear()
    big = [bytes([n]) * 3000 for n in range(100)]
    at_least_once(channel="b", batchbytes="10000").write(iter([values(*big)]))
    assert client.asked["batch"] == 34, "three rows each"
    assert client.data("b") == big


def test_requests_never_exceed_what_nats_takes(client):
    client.max_payload = 20_000
    rows = [b"x" * size for size in (18_000, 1, 1, 17_000, 9_000, 8_000, 500)]

    at_least_once(channel="a").write(iter([values(*rows)]))

    assert client.data("a") == rows


def test_a_slice_is_cut_by_the_sizes_of_its_own_rows(client):
    client.max_payload = 20_000
    whole = values(*[b"x"] * 10, *[b"y" * 9000] * 10)

    at_least_once(channel="a").write(iter([whole.slice(10)]))  # the fake refuses requests that are too large

    assert len(client.data("a")) == 10


def test_many_channels_do_not_wait_for_company_without_bound(client, monkeypatch):
    monkeypatch.setattr("pyspark_stan.writing.routing.PENDING_BYTES_MAX", 2000)
    seen = []

    def batches():
        for part in range(10):
            seen.append(client.asked["batch"])
            yield routed(*[(b"x" * 50, f"c{part}.{n}") for n in range(20)])

    at_least_once(ROUTED).write(batches())

    assert seen == [0, 0, 40, 40, 80, 80, 120, 120, 160, 160], "two record batches are more than may wait"


def test_headers_and_replies_are_written_when_asked_for(client):
    schema = StructType().add("value", StringType()).add("headers", PAIRS).add("reply", StringType())
    batch = pa.record_batch(
        {
            "value": pa.array(["1", "2", "3"]),
            "headers": pa.array([[{"key": "k", "value": b"v"}, {"key": "l", "value": None}], None, []], PAIRS_ARROW),
            "reply": pa.array(["r", None, ""]),
        }
    )
    at_least_once(schema, channel="plain").write(iter([batch]))
    at_least_once(schema, channel="full", includeheaders="true", includereply="true").write(iter([batch]))

    assert [(m.reply, len(m.headers)) for m in client.channels["plain"]] == [(b"", 0)] * 3
    full = client.channels["full"]
    assert [m.reply for m in full] == [b"r", b"", b""]
    assert [[(h.key, h.value) for h in m.headers] for m in full] == [[(b"k", b"v"), (b"l", b"")], [], []]


def test_replies_of_a_slice_and_of_a_second_request_are_those_of_their_rows(client):
    schema = StructType().add("value", StringType()).add("reply", StringType())
    rows = [str(number) for number in range(20)]
    batch = pa.record_batch({"value": pa.array(rows), "reply": pa.array([f"to.{row}" for row in rows])})

    at_least_once(schema, channel="a", includereply="true", batchrows="3").write(iter([batch.slice(5)]))

    assert [(m.data, m.reply) for m in client.channels["a"]] == [(b"%d" % n, b"to.%d" % n) for n in range(5, 20)]


KEYED = StructType().add("value", StringType()).add("key", BinaryType())


def keyed(*rows):
    return pa.record_batch({"value": pa.array([row[0] for row in rows]), "key": pa.array([row[1] for row in rows])})


def test_keys_are_written_when_asked_for(client):
    batch = keyed(*[(str(number), b"k%d" % number if number % 3 else None) for number in range(20)])
    at_least_once(KEYED, channel="plain").write(iter([batch]))
    at_least_once(KEYED, channel="a", includekey="true", batchrows="3").write(iter([batch.slice(5)]))
    numbers = StructType().add("value", StringType()).add("key", LongType())
    told = pa.record_batch({"value": pa.array(["x"]), "key": pa.array([-7])})
    at_least_once(numbers, channel="b", includekey="true").write(iter([told]))

    assert {m.key for m in client.channels["plain"]} == {b""}
    assert [(m.data, m.key) for m in client.channels["a"]] == [
        (b"%d" % number, b"k%d" % number if number % 3 else b"") for number in range(5, 20)
    ]
    assert [m.key for m in client.channels["b"]] == [b"-7"]


def test_keys_count_when_requests_are_cut(client):
    client.max_payload = 5_000
    at_least_once(KEYED, channel="a", includekey="true").write(iter([keyed(*[("x", b"k" * 1024)] * 9)]))

    assert len(client.channels["a"]) == 9  # and the fake refuses requests that are too large
    assert client.asked["batch"] == 3


def test_key_that_is_too_long_is_a_fault_and_another_goes_to_the_dead_letters_too(client, task):
    rows = keyed(("1", b"k" * 1024), ("2", b"k" * 1025), (None, b"why"))
    told = {"channel": "a", "includekey": "true"}
    with pytest.raises(RowError, match="row 1 of its partition: key of more than 1024 bytes"):
        at_least_once(KEYED, **told).write(iter([rows.slice(0, 2)]))
    (message,) = run_batch(task, stream(KEYED, onerror="deadLetter:dead", **told), 0, [rows])

    assert client.data("a") == [b"1"]
    assert sorted((m.data, m.key) for m in client.channels["dead"]) == [(b"", b"why"), (b"2", b"")]
    assert message.dead == 2


def test_headers_count_when_requests_are_cut(client):
    client.max_payload = 20_000
    schema = StructType().add("value", BinaryType()).add("headers", PAIRS)
    heads = [[{"key": "k", "value": b"v" * 5000}]] * 9
    batch = pa.record_batch({"value": pa.array([b"x"] * 9), "headers": pa.array(heads, PAIRS_ARROW)})

    at_least_once(schema, channel="a", includeheaders="true").write(iter([batch]))

    assert len(client.channels["a"]) == 9  # and the fake refuses requests that are too large
    assert client.asked["batch"] == 3


# --- faulty rows ------------------------------------------------------------------------------------------------------

FAULTY = [(b"good", "a"), (None, "a"), (b"b" * 30_000, "a"), (b"c", "not a name"), (b"d", None), (b"also", "b")]


def test_faulty_rows_fail_the_task_with_reason_and_place(client):
    client.max_payload = 20_000
    with pytest.raises(RowError, match=r"4 rows cannot be published; row 3 of its partition: value is null.*b'a'"):
        at_least_once(ROUTED).write(iter([routed((b"0", "a"), (b"1", "a")), routed(*FAULTY)]))
    with pytest.raises(RowError, match="channel is null"):
        at_least_once(ROUTED).write(iter([routed(FAULTY[4])]))
    with pytest.raises(RowError, match="not a channel name"):
        at_least_once(ROUTED).write(iter([routed(FAULTY[3])]))
    with pytest.raises(RowError, match="larger than"):
        at_least_once(ROUTED).write(iter([routed(FAULTY[2])]))


def test_faulty_rows_are_skipped_and_counted(client, task, caplog):
    client.max_payload = 20_000
    writer = stream(ROUTED, onerror="skip")

    (message,) = run_batch(task, writer, 0, [routed(*FAULTY)])

    assert (client.data("a"), client.data("b")) == ([b"good"], [b"also"])
    assert (message.rows, message.skipped) == (2, 4)
    assert "4 rows could not be published" in caplog.text


def test_faulty_rows_go_to_the_dead_letter_channel_with_their_reasons(client, task):
    client.max_payload = 20_000
    (message,) = run_batch(task, stream(ROUTED, onerror="deadLetter:dead"), 0, [routed(*FAULTY)])

    dead = {}
    for each in client.channels["dead"]:
        told = {h.key.decode(): h.value.decode() for h in each.headers}
        dead[told["stan-error"].partition(" the ")[0]] = (each.data[:1], told["stan-channel"], told["stan-bytes"])
    assert dead == {
        "value is null": (b"", "a", "0"),
        "larger than": (b"b", "a", "30000"),
        "not a channel name": (b"c", "not a name", "1"),
        "channel is null": (b"d", "", "1"),
    }
    assert (message.rows, message.dead) == (6, 4)
    assert (client.data("a"), client.data("b")) == ([b"good"], [b"also"])


def test_a_row_with_two_faults_is_one_dead_letter(client, task):
    (message,) = run_batch(task, stream(ROUTED, onerror="deadLetter:dead"), 0, [routed((None, "not a name"))])

    assert message.dead == len(client.channels["dead"]) == 1


def test_a_refusal_of_the_broker_fails_the_task_and_drops_what_it_staged(client, task):
    client.failures = [None, ServerError("stan: maximum channels exceeded")]
    task(batch=0)
    with pytest.raises(ServerError, match="maximum channels"):
        stream(channel="a", batchrows="1").write(iter([values(b"1", b"2", b"3")]))

    assert not client.staged


def test_rows_of_many_channels_share_a_request(client, task):
    """A batch is bound by bytes, not by channels x tasks: 200 tasks write a row to each of 300 channels."""
    channels = [f"c{number}" for number in range(300)]
    tasks = [[routed(*((b"%d" % number, name) for name in channels))] for number in range(200)]

    run_batch(task, stream(ROUTED), 0, *tasks)

    assert client.asked["stage"] == 200
    assert all(client.data(name) == [b"%d" % number for number in range(200)] for name in channels)


@pytest.mark.parametrize(("bound", "requests"), [({"batchrows": "10"}, 10), ({"batchbytes": "1024"}, 12), ({}, 1)])
def test_a_shared_request_keeps_to_the_bounds_of_requests(client, task, bound, requests):
    rows = [(b"%080d" % number, f"c{number % 50}") for number in range(100)]

    run_batch(task, stream(ROUTED, **bound), 0, [routed(*rows)])

    assert client.asked["stage"] == pytest.approx(requests, abs=2)
    assert all(client.data(f"c{each}") == [value for value, name in rows if name == f"c{each}"] for each in range(50))


def test_a_shared_request_names_as_many_channels_as_the_broker_takes(client, task):
    rows = [(b"x", f"c{number}") for number in range(2 * STAGE_CHANNELS_MAX + 1)]

    run_batch(task, stream(ROUTED), 0, [routed(*rows)])

    assert client.asked["stage"] == 3
    assert len(client.channels) == len(rows)


def test_what_is_refused_together_is_staged_apart(client, task):
    """So the error is that of the channel which is refused, and channels with parts are found."""
    client.parted["c1"] = (2, "")
    client.parted["c3"] = (3, "")
    rows = [(b"%d" % number, f"c{number % 5}") for number in range(100)]

    run_batch(task, stream(ROUTED), 0, [routed(*rows[:50])], [routed(*rows[50:])])

    assert {name.partition(".")[0] for name in client.channels} == {f"c{number}" for number in range(5)}
    assert sum(map(len, client.channels.values())) == 100
    assert client.data("c2") == [value for value, name in rows if name == "c2"]
    assert not client.staged


# --- at least once ----------------------------------------------------------------------------------------------------


def test_at_least_once_needs_no_identity_and_asks_again(client):
    client.failures = [RequestTimeoutError(), RequestTimeoutError(), None]
    writer = at_least_once(channel="a", batchrows="1")
    message = writer.write(iter([values(b"1", b"2")]))
    writer.commit([message], 5)

    assert sorted(client.data("a")) == [b"1", b"2"]
    assert client.asked["batch"] == 4
    assert client.asked["commit"] == 0


def test_at_least_once_gives_up_when_its_retries_are_used_up(client):
    client.failures = [RequestTimeoutError("stan: batch request timeout after 10 s")] * 3
    with pytest.raises(RequestTimeoutError, match=r"after 10 s, 3 times"):
        at_least_once(channel="a", **{"publish.numretries": "2"}).write(iter([values(b"1")]))


# --- idempotent -------------------------------------------------------------------------------------------------------


def test_idempotent_leaves_out_what_was_sent_before_in_any_order(client, task):
    writer = stream(channel="a", delivery="idempotent")
    rows = [b"x", b"y", b"x", b"z", b"x"]
    task(partition=1, batch=3)
    writer.write(iter([values(*rows[:4])]))
    again = writer.write(iter([values(*reversed(rows))]))

    assert sorted(client.data("a")) == sorted(rows), "equal rows are kept apart, repeated ones are not"
    assert (again.rows, again.duplicates) == (5, 4)


def test_idempotent_tells_equal_rows_of_other_partitions_channels_and_batches_apart(client, task):
    writer = stream(ROUTED, delivery="idempotent")
    for partition, batch in ((0, 0), (1, 0), (0, 1)):
        task(partition=partition, batch=batch)
        writer.write(iter([routed((b"x", "a"), (b"x", "b"))]))

    assert (client.data("a"), client.data("b")) == ([b"x"] * 3, [b"x"] * 3)


def test_idempotent_equal_rows_of_two_channels_may_come_in_another_order(client, task):
    writer = stream(ROUTED, delivery="idempotent")
    task(batch=0)
    writer.write(iter([routed((b"x", "a")), routed((b"x", "b"))]))
    again = writer.write(iter([routed((b"x", "b")), routed((b"x", "a"))]))

    assert (client.data("a"), client.data("b"), again.duplicates) == ([b"x"], [b"x"], 2)


def test_idempotent_takes_ids_from_a_column(client, task):
    schema = StructType().add("value", BinaryType()).add("id", LongType())
    writer = stream(schema, channel="a", delivery="idempotent")
    for partition, rows in ((0, [(b"x", 1), (b"x", 2)]), (1, [(b"other", 2), (b"y", 3)])):
        task(partition=partition, batch=0)
        batch = {"value": pa.array([v for v, _ in rows]), "id": pa.array([i for _, i in rows], pa.int64())}
        writer.write(iter([pa.record_batch(batch)]))

    assert client.data("a") == [b"x", b"x", b"y"]


def test_idempotent_refuses_a_null_id(client, task):
    schema = StructType().add("value", BinaryType()).add("key", StringType())
    batch = pa.record_batch({"value": pa.array([b"x"]), "key": pa.array([None], pa.string())})
    task(batch=0)
    with pytest.raises(RowError, match="key is null"):
        stream(schema, channel="a", delivery="idempotent", idcolumn="key").write(iter([batch]))


def test_idempotent_headers_are_part_of_the_row(client, task):
    schema = StructType().add("value", BinaryType()).add("headers", PAIRS)
    batch = pa.record_batch(
        {
            "value": pa.array([b"x", b"x", b"x"]),
            "headers": pa.array([[{"key": "k", "value": b"1"}], [{"key": "k", "value": b"2"}], None], PAIRS_ARROW),
        }
    )
    task(batch=0)
    writer = stream(schema, channel="a", delivery="idempotent", includeheaders="true")
    writer.write(iter([batch.slice(0, 2)]))
    again = writer.write(iter([batch.slice(1, 2)]))

    assert (len(client.channels["a"]), again.duplicates) == (3, 1)


def test_idempotent_keys_are_part_of_the_row(client, task):
    batch = keyed(("x", b"1"), ("x", b"2"), ("x", None))
    task(batch=0)
    writer = stream(KEYED, channel="a", delivery="idempotent", includekey="true")
    writer.write(iter([batch.slice(0, 2)]))
    again = writer.write(iter([batch.slice(1, 2)]))

    assert (len(client.channels["a"]), again.duplicates) == (3, 1)


def test_content_ids_are_the_same_in_any_order_and_in_any_cut():
    rows = [b"a", b"b", b"a", b"c", b"a", b"b"]
    whole = ContentIds(Identity("app", 1), 0).of("c", (*column(rows), 0), len(rows))
    cut = ContentIds(Identity("app", 1), 0)
    places, data = column(rows)
    parts = cut.of("c", (places, data, 3), 3) + cut.of("c", (places, data, 0), 3)

    as_set = {whole[at : at + 16] for at in range(0, 96, 16)}
    assert len(as_set) == 6
    assert as_set == {parts[at : at + 16] for at in range(0, 96, 16)}
    assert not as_set & {ContentIds(Identity("app", 2), 0).of("c", (*column([row]), 0), 1) for row in rows}


# --- transactional ----------------------------------------------------------------------------------------------------


def test_transactional_shows_nothing_before_the_commit_and_keeps_the_order_of_partitions(client, task):
    writer = stream(ROUTED, batchrows="2")
    messages = []
    for partition in (1, 0):  # tasks end in any order
        task(partition=partition, batch=0)
        rows = [(b"%d.%d" % (partition, n), "ab"[n % 2]) for n in range(10)]
        messages.append(writer.write(iter([routed(*rows)])))
    assert not client.channels

    writer.commit(messages, 0)

    assert client.data("a") == [b"%d.%d" % (p, n) for p in (0, 1) for n in range(0, 10, 2)]
    assert client.data("b") == [b"%d.%d" % (p, n) for p in (0, 1) for n in range(1, 10, 2)]
    assert client.asked["commit"] == 1
    assert not client.staged


def test_transactional_messages_are_small(client, task):
    task(batch=0)
    message = stream(channel="a", batchrows="100").write(iter([values(*[b"x"] * 10_000)]))

    assert message.parts == {"a": 100}
    assert message.rows == 10_000


def test_a_repeated_batch_is_read_to_its_end_but_not_published(client, task):
    writer = stream(channel="a")
    run_batch(task, writer, 4, [values(b"1")], [values(b"2")])
    client.asked.clear()
    left = iter([values(b"1"), values(b"2")])

    (message,) = run_batch(task, writer, 4, left)

    assert client.data("a") == [b"1", b"2"]
    assert message.done_before
    assert next(left, None) is None, "stateful operators save their state behind the last row"
    assert not client.asked, "nothing is published, nothing is committed"


def test_a_batch_that_another_query_has_written_under_one_name_is_an_error(client, task):
    """A new checkpoint begins with batch 0 again: its rows are others, and would be taken for a repetition."""
    sink = stream(txnappid="app", channel="c")
    (first,) = run_batch(task, sink, 0, [values(b"1")])
    assert first.writer == "q1"
    task(batch=0, **{"sql.streaming.queryId": "q2"})
    with pytest.raises(IdentityError, match=r"another writer has committed \(q1\): nothing is added.*new checkpoint\?"):
        sink.write(iter([values(b"2")]))
    task(batch=0)
    assert sink.write(iter([values(b"1")])).done_before
    assert client.data("c") == [b"1"]


def test_content_ids_of_two_queries_under_one_name_differ():
    rows, identity = (*column([b"1", b"2"]), 0), Identity("app", 1)
    of = [ContentIds(identity, 0, query).of("c", rows, 2) for query in ("q1", "q2", "")]
    own = Identity("q1/c", 1)

    assert len(set(of)) == 3
    assert ContentIds(own, 0, "q1").of("c", rows, 2) == ContentIds(own, 0).of("c", rows, 2)


def test_an_old_driver_is_fenced_off(client, task, caplog):
    old, new = stream(channel="a"), stream(channel="a")
    task(batch=4)
    late = old.write(iter([values(b"1")]))
    run_batch(task, new, 4, [values(b"1")])
    run_batch(task, new, 5, [values(b"2")])

    with caplog.at_level(logging.WARNING):
        old.commit([late], 4)

    assert client.data("a") == [b"1", b"2"]
    assert not client.staged
    assert "committed to a before" in caplog.text


def test_what_tasks_staged_before_the_version_was_finished_is_dropped(client, task):
    writer = stream(channel="a")
    task(partition=0, batch=4)
    early = writer.write(iter([values(b"1")]))
    run_batch(task, stream(channel="a"), 4, [values(b"1")])
    task(partition=1, batch=4)
    late = writer.write(iter([values(b"2")]))
    writer.commit([early, late], 4)

    assert client.data("a") == [b"1"]
    assert not client.staged


def test_abort_drops_what_is_staged_and_leaves_what_is_committed(client, task):
    writer = stream(channel="a")
    task(batch=0)
    message = writer.write(iter([values(b"1")]))
    writer.abort([message, None], 0)
    assert not client.staged

    messages = run_batch(task, writer, 0, [values(b"2")])
    writer.abort(messages, 0)  # Spark does this when commit() has raised, whatever had happened by then
    assert client.data("a") == [b"2"]


def test_an_abort_that_fails_does_not_hide_the_reason(client, task, monkeypatch):
    def refuse(txns):
        raise ServerError("no")

    writer = stream(channel="a")
    task(batch=0)
    message = writer.write(iter([values(b"1")]))
    monkeypatch.setattr(client, "abort", refuse)
    writer.abort([message], 0)


def test_a_batch_without_rows_is_finished_all_the_same(client, task):
    run_batch(task, stream(channel="a"), 0, [], [values()])

    assert client.finished == {"q1": 0}
    assert not client.channels


def test_a_batch_without_tasks_has_nothing_to_commit(client):
    stream(channel="a").commit([], 0)

    assert not client.asked


# --- identity ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["transactional", "idempotent"])
def test_without_identity_nothing_is_guessed(client, delivery):
    with pytest.raises(IdentityError, match=f"'{delivery}' needs txnAppId and txnVersion"):
        save(channel="a", delivery=delivery).write(iter([values(b"1")]))


def test_a_save_in_a_foreach_batch_is_told_from_others_by_its_channel(client, task):
    task(batch=7)
    for channel in ("a", "b"):
        writer = save(channel=channel)
        writer.commit([writer.write(iter([values(b"1")]))])

    assert client.finished == {"q1/a": 7, "q1/b": 7}


def test_a_save_without_a_channel_option_needs_a_name(client, task):
    task(batch=7)
    with pytest.raises(IdentityError, match="needs txnAppId:"):
        save(ROUTED).write(iter([routed((b"1", "a"))]))


def test_options_win_over_what_spark_tells(client, task):
    task(batch=7)
    writer = save(channel="a", txnappid="mine", txnversion="3")
    writer.commit([writer.write(iter([values(b"1")]))])

    assert client.finished == {"mine": 3}


def test_a_save_that_has_failed_is_repeated_in_workers_that_have_seen_it(client, task):
    """A function of the user's that tries again: a task of the first attempt had succeeded, so its worker knows that one."""
    writer, run = save(channel="a"), {"spark.jobGroup.id": "run1"}
    task(batch=7, **run, **{"spark.sql.execution.id": "10"})
    writer.abort([writer.write(iter([values(b"1")])), None])  # the second task has failed
    task(batch=7, **run, **{"spark.sql.execution.id": "11"})
    staged = [writer.write(iter([values(b"1")])), writer.write(iter([values(b"2")]))]
    client.failures.append(ServerError("stan: staged rows are gone"))
    with pytest.raises(ServerError):
        writer.commit(staged)
    task(batch=7, **run, **{"spark.sql.execution.id": "12"})
    writer.commit([writer.write(iter([values(b"1")])), writer.write(iter([values(b"2")]))])

    assert client.data("a") == [b"1", b"2"]


def test_two_saves_of_one_batch_under_one_identity_are_refused(client, task):
    writer = save(channel="a")
    run = {"spark.jobGroup.id": "run1"}
    task(batch=7, **run, **{"spark.sql.execution.id": "10"})
    writer.commit([writer.write(iter([values(b"1")]))])
    writer.write(iter([values(b"1")]))  # another attempt of the same save
    task(batch=7, **run, **{"spark.sql.execution.id": "11"})
    with pytest.raises(IdentityError, match="another save of the same batch"):
        writer.write(iter([values(b"2")]))

    pyspark_stan.writing.identity._saves.clear()  # a process that has not seen the first one
    second = writer.write(iter([values(b"2")]))
    pyspark_stan.writing.identity._saves[("run1", Identity("q1/a", 7))] = "10"  # the driver's
    with pytest.raises(IdentityError, match="another save of the same batch"):
        writer.commit([second])

    task(batch=7, **{"spark.jobGroup.id": "run2", "spark.sql.execution.id": "12"})
    assert writer.write(iter([values(b"1")])).done_before, "a restart repeats the batch"


def test_an_app_name_has_bounds(client, task):
    task(batch=0)
    with pytest.raises(IdentityError, match="longer than 255 bytes"):
        stream(channel="a", txnappid="ä" * 128).write(iter([values(b"1")]))


def test_spark_must_commit_the_batch_that_it_told_the_tasks(client, task):
    writer = stream(channel="a")
    task(batch=4)
    message = writer.write(iter([values(b"1")]))
    with pytest.raises(ValueError, match="commits batch 5"):
        writer.commit([message], 5)


# --- options ----------------------------------------------------------------------------------------------------------


def complaints(options, schema=VALUE, kind="stream", **more):
    with pytest.raises(OptionsError) as raised:
        sink_options(options, schema, kind, **more)
    return raised.value.complaints


def test_defaults_are_those_of_the_table():
    found = sink_options({**SERVERS, "path": "orders"}, VALUE, "stream")

    assert (found.channel, found.delivery, found.app, found.version) == ("orders", "transactional", "", None)
    assert (found.in_flight_max, found.batch_rows, found.batch_bytes) == (64, 10_000, 1 << 20)
    assert (found.patience_s, found.on_error, found.include_headers) == (30, "fail", False)
    assert found.connection.timeout_s == 30


def test_everything_that_is_wrong_is_told_at_once():
    told = complaints(
        {
            "channel": "a..b",
            "path": "other",
            "delivery": "exactly-once",
            "maxinflight": "0",
            "batchrows": "many",
            "onerror": "ignore",
            "includeheaders": "maybe",
            "chanel": "x",
            "txnversion": "1",
            "idcolumn": "k",
        },
        StructType().add("text", StringType()),
    )
    names = [text.partition(":")[0] for text in told]

    assert sorted(names) == sorted(
        [
            *("servers", "delivery", "onError", "channel", "channel", "idColumn", "maxInFlight"),
            *("batchRows", "includeHeaders", "txnVersion", "value", "chanel"),
        ]
    )
    assert "chanel: no such option; channel?" in told


@pytest.mark.parametrize(
    ("options", "schema", "words"),
    [
        ({}, VALUE, "channel: neither the option nor a column"),
        ({"channel": "a"}, StructType().add("value", LongType()), "value: the column is bigint"),
        ({}, StructType().add("value", BinaryType()).add("channel", LongType()), "channel: the column is bigint"),
        ({"channel": "a", "includeheaders": "true"}, ROUTED, "includeHeaders: there is no column headers"),
        ({"channel": "a", "includereply": "true"}, ROUTED, "includeReply: there is no column reply"),
        ({"channel": "a", "includekey": "true"}, ROUTED, "includeKey: there is no column key"),
        (
            {"channel": "a", "includeheaders": "true"},
            StructType().add("value", BinaryType()).add("headers", ArrayType(StringType())),
            "headers: the column is not",
        ),
        ({"channel": "a", "idcolumn": "k", "delivery": "idempotent"}, ROUTED, "idColumn: there is no column 'k'"),
        ({"channel": "a", "onerror": "deadLetter:"}, ROUTED, "onError: 'deadLetter:'"),
        ({"channel": "a", "onerror": "deadLetter:a b"}, ROUTED, "onError: 'a b' is no channel's name"),
        ({"channel": "a", "delivery": "at-least-once", "txnappid": "x"}, ROUTED, "txnAppId: without effect"),
        ({"channel": "a", "startingoffsets": "latest"}, ROUTED, "startingoffsets: no such option"),
        ({"topic": "a"}, ROUTED, "topic: an option of Kafka; here it is channel"),
        ({"channel": "a", "kafka.acks": "all"}, ROUTED, "kafka.acks: an option of Kafka; here it is delivery (a task"),
    ],
)
def test_wrong_options_and_columns_are_refused_by_name(options, schema, words):
    (told,) = complaints({**SERVERS, **options}, schema)
    assert words in told


def test_overwrite_is_refused_for_a_batch_and_means_complete_mode_for_a_stream():
    assert complaints({**SERVERS, "channel": "a"}, VALUE, "batch", overwrite=True) == [
        "mode 'overwrite': a channel only grows; use mode 'append'"
    ]
    stream_writer({**SERVERS, "channel": "a"}, VALUE, overwrite=True)


@pytest.mark.parametrize(("told", "kept"), [(1 << 20, 1), (3 << 20, 2)], ids=["usual", "more"])
def test_a_row_above_the_usual_limit_of_messages_fits_if_the_broker_says_so(client, task, told, kept):
    client.max_payload = 8 << 20
    client.message_bytes_max = lambda: told
    task(batch=0)
    writer = stream(channel="a", delivery="idempotent", onerror="skip")

    writer.write(iter([values(b"small", bytes(2 << 20))]))

    assert len(client.channels["a"]) == kept


def test_the_limit_of_messages_is_not_asked_for_without_need(client, task):
    client.max_payload = 8 << 20
    client.message_bytes_max = None  # an error, if it were called
    task(batch=0)

    stream(channel="a", delivery="idempotent").write(iter([values(bytes(1_000_000))]))

    assert len(client.channels["a"]) == 1


# --- channels with parts --------------------------------------------------------------------------------------------------


KEYED = StructType().add("value", BinaryType()).add("key", StringType())


@pytest.mark.parametrize("delivery", ["transactional", "idempotent", "at-least-once"])
def test_rows_for_a_channel_with_parts_go_to_the_parts_of_their_keys_in_order(client, task, delivery):
    client.parted["sales"] = (4, "")
    rows = [(b"%d" % number, f"k{number % 7}" if number % 5 else None) for number in range(200)]
    task(batch=0)
    writer = stream(KEYED, channel="sales", delivery=delivery, includekey="true", batchrows="30")

    message = writer.write(iter([keyed(*rows[:90]), keyed(*rows[90:])]))
    writer.commit([message], 0)

    assert message.rows == 200
    assert "sales" not in client.channels
    name = "spark.0" if message.identity is None else message.identity.app
    for number in range(4):
        wanted = [value for value, key in rows if part_of((key or name).encode(), 4) == number]
        assert client.data(f"sales.~{number}") == wanted
    assert client.asked["parts"] == 1


@pytest.mark.parametrize("delivery", ["transactional", "idempotent"])
def test_a_batch_for_parts_that_is_repeated_adds_nothing(client, task, delivery):
    client.parted["sales"] = (2, "")
    writer = stream(KEYED, channel="sales", delivery=delivery, includekey="true")
    rows = keyed(*((b"%d" % number, f"k{number}") for number in range(50)))
    task(batch=0)
    writer.write(iter([rows]))  # of a task that failed afterwards
    task(batch=0, attempt=1)
    writer.commit([writer.write(iter([rows]))], 0)
    client.finished.clear()  # a driver that died before it had noted that
    writer.commit([writer.write(iter([rows]))], 0)

    assert sorted(client.data("sales.~0") + client.data("sales.~1")) == sorted(b"%d" % number for number in range(50))


def test_rows_without_a_key_go_where_their_json_data_says(client, task):
    client.parted["sales"] = (4, "$.id")
    task(batch=0)
    data = [b'{"id": "c%d"}' % number for number in range(30)]
    writer = stream(channel="sales", delivery="at-least-once")

    writer.write(iter([values(*data, b"no JSON")]))

    for number in range(4):
        wanted = [one for at, one in enumerate(data) if part_of(b"c%d" % at, 4) == number]
        assert client.data(f"sales.~{number}")[: len(wanted)] == wanted
    assert client.data(f"sales.~{part_of(b'spark.0', 4)}")[-1:] == [b"no JSON"]


def test_rows_choose_between_channels_with_parts_and_without(client, task):
    client.parted["sales"] = (2, "")
    task(batch=0)
    writer = stream(ROUTED, delivery="transactional")
    pairs = [(b"%d" % number, ("sales", "plain")[number % 2]) for number in range(40)]

    writer.commit([writer.write(iter([routed(*pairs)]))], 0)

    assert client.data("plain") == [value for value, channel in pairs if channel == "plain"]
    assert sorted(client.data("sales.~0") + client.data("sales.~1")) == sorted(v for v, c in pairs if c == "sales")


NUMBERED = StructType().add("value", BinaryType()).add("channel", StringType()).add("partition", IntegerType())


def numbered(*rows):
    names = ("value", "channel", "partition"), (pa.binary(), pa.string(), pa.int32())
    columns = zip(*names, zip(*rows, strict=True), strict=True)
    return pa.record_batch({name: pa.array(column, kind) for name, kind, column in columns})


@pytest.mark.parametrize("by_column", [True, False])
def test_rows_go_to_the_part_that_they_name_and_those_without_one_where_their_keys_belong(client, task, by_column):
    client.parted["sales"] = (4, "")
    task(batch=0)
    rows = [(b"%d" % number, "sales", number % 5 if number % 5 < 4 else None) for number in range(20)]
    writer = stream(NUMBERED, includepartition="true", **({} if by_column else {"channel": "sales"}))

    message = writer.write(iter([numbered(*rows)]))
    writer.commit([message], 0)

    without = part_of(message.identity.app.encode(), 4)
    for number in range(4):
        wanted = [value for value, _, part in rows if part == number]
        assert [value for value in client.data(f"sales.~{number}") if int(value) % 5 < 4] == wanted
    assert [value for value in client.data(f"sales.~{without}") if int(value) % 5 == 4] == [b"4", b"9", b"14", b"19"]
    assert "sales" not in client.channels


def test_what_the_source_says_of_a_row_is_where_it_goes(client, task):
    client.parted["sales"] = (4, "")
    task(batch=0)
    rows = [(b"1", "plain", 0), (b"2", "sales.~3", 3)]
    at_least_once(NUMBERED, includepartition="true").write(iter([numbered(*rows)]))
    assert (client.data("plain"), client.data("sales.~3")) == ([b"1"], [b"2"])


@pytest.mark.parametrize("row", [(b"x", "sales", 4), (b"x", "sales", -1), (b"x", "plain", 1), (b"x", "sales.~1", 0)])
def test_rows_for_parts_that_there_are_not_are_faulty(client, task, row):
    client.parted["sales"] = (4, "")
    task(batch=0)
    batch = [numbered((b"good", "plain", None), row)]
    with pytest.raises(RowError, match=r"row 1 of its partition: partition is none of the channel's parts \(channel "):
        stream(NUMBERED, includepartition="true").write(iter(batch))
    dead = at_least_once(NUMBERED, includepartition="true", onerror="deadLetter:dead")
    assert dead.write(iter(batch)).dead == 1
    assert client.data("dead") == [b"x"]
    assert client.data("plain") == [b"good"]


def test_a_column_partition_is_never_left_out_without_a_word(client):
    (told,) = complaints({**SERVERS}, NUMBERED)
    assert "partition: a column of this name, which is not written: includePartition=true puts each row" in told
    assert "includePartition: there is no column" in complaints({**SERVERS, "includepartition": "true"}, ROUTED)[0]
    at_least_once(NUMBERED, includepartition="false").write(iter([numbered((b"1", "a", 7))]))
    assert client.data("a") == [b"1"]


def test_another_refusal_is_no_question_of_parts(client, task):
    client.failures = [ServerError("stan: something else")]
    task(batch=0)
    with pytest.raises(ServerError, match="something else"):
        stream(channel="a", delivery="idempotent").write(iter([values(b"1")]))
    assert client.asked["parts"] == 0

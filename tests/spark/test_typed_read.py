"""Typed reads without Spark: the columns of all registered versions, and messages decoded by the version that they name."""

import json
from io import BytesIO

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from pyspark_stan.errors import MalformedError, OptionsError
from pyspark_stan.options import source_options
from pyspark_stan.reading import json_rows, typed_decode
from pyspark_stan.reading.registry import registered_for, typed_schema
from pyspark_stan.reading.source import columns_read
from pyspark_stan.reading.typed_decode import TypedDecoder
from stan_protocol.admin_types import SchemaStatus
from stan_protocol.schemas.kinds import SchemaKind

from tests.spark.source_broker import SourceBroker, use

V1 = {"type": "object", "properties": {"id": {"type": "integer"}, "total": {"type": "integer"}}}
V2 = {"type": "object", "properties": {"id": {"type": "integer"}, "total": {"type": "number"}}}
V3 = {"properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}, "any": {}}}


class Broker(SourceBroker):
    """Channels with registered schemas."""

    def __init__(self, **channels):
        super().__init__(**channels)
        self.registered = []
        self.asked = []
        self.answer_rows = 100

    def register(self, pattern, version, schema, kind=SchemaKind.JSON, message=""):
        text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
        said = {"pattern": pattern, "schema_version": version, "message": message}
        self.registered.append(SchemaStatus(kind=kind, text=text, **said))

    def schemas(self, channel=""):
        self.asked.append(channel)
        return [each for each in self.registered if not channel or each.pattern.split(".")[0] in channel]


@pytest.fixture
def broker(monkeypatch):
    found = Broker(orders=[])
    use(monkeypatch, found)
    return found


def options_of(**more):
    said = {"servers": "nats://a:1", "subscribe": "orders", "schema": "auto", **more}
    if "subscribePattern" in more:
        del said["subscribe"]
    return source_options(said)


def read(broker, schema, **more):
    """The rows of the channel."""
    options = options_of(**more)
    decoder = TypedDecoder(schema, registered_for(options), options)
    batches = [decoder.batch(found) for found in broker.read_range("orders", 1, broker["orders"].last)]
    assert all(batch.schema == decoder._arrow for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def struct(**kinds):
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


ALL = struct(id=LongType(), total=StringType(), at=TimestampType(), any=StringType(), _sequence=LongType())
KEPT = StructType([*ALL.fields, StructField("_malformed", BinaryType())])


def test_the_columns_are_those_of_all_versions(broker):
    for number, schema in enumerate((V1, V2, V3), 1):
        broker.register("orders", number, schema)
    columns = "`id` bigint, `total` double, `at` timestamp, `any` string, `_channel` string, `_sequence` bigint"
    assert typed_schema(options_of()) == f"{columns}, `_timestamp` timestamp"
    more = typed_schema(options_of(includeKey="true", includeHeaders="true", malformed="keep"))
    assert more.endswith("`_headers` array<struct<`key`:string,`value`:binary>>, `_key` binary, `_malformed` binary")
    broker["orders"].add(b'{"id": 1}')
    partition = struct(id=LongType(), _partition=IntegerType())
    assert read(broker, partition, includePartition="true") == [{"id": 1, "_partition": 0}]


def test_what_cannot_be_columns_is_told_at_once(broker):
    with pytest.raises(OptionsError, match="schema: none is registered for orders"):
        typed_schema(options_of())
    broker.register("orders", 1, {"properties": {"id": {}, "ID": {}}})
    broker.register("orders", 2, {"type": "object"})
    broker.register("orders", 3, {"properties": {"_sequence": {}}})
    with pytest.raises(OptionsError) as caught:
        typed_schema(options_of())
    told = "\n".join(caught.value.complaints)
    for text in ("version 2 of orders: it tells no properties", "id is there twice", "_sequence is there twice"):
        assert text in told


def test_options_that_do_not_fit():
    for said, text in ({"schema": "auto", "malformed": "perhaps"}, "malformed"), ({"malformed": "keep"}, "goes with"):
        with pytest.raises(OptionsError, match=text):
            source_options({"servers": "nats://a:1", "subscribe": "orders", **said})


def test_a_pattern_has_the_schemas_that_cover_some_of_it(broker):
    broker.register("orders.eu", 1, V1)
    broker.register("orders.us.*", 1, V3)
    broker.register("clicks", 1, {"properties": {"page": {}}})
    schema = typed_schema(options_of(subscribePattern=r"orders\..*"))
    assert schema.startswith("`id` bigint, `total` bigint, `at` timestamp, `any` string, `_channel`")


@pytest.mark.parametrize("name", ["sales", "sales.*"])
def test_parts_have_the_schema_of_their_channel(broker, name):
    broker.register("sales", 1, V1)
    broker.divide("sales", [b'{"id": 1}'], [b'{"id": 2}'])
    options = options_of(subscribe=name)
    assert typed_schema(options).startswith("`id` bigint, `total` bigint, `_channel` string")
    decoder = TypedDecoder(struct(id=LongType()), registered_for(options), options)
    broker.asked.clear()
    found = [decoder.batch(answer) for part in (0, 1) for answer in broker.read_range(f"sales.~{part}", 1, 1)]
    assert [row for batch in found for row in batch.to_pylist()] == [{"id": 1}, {"id": 2}]
    assert broker.asked == []


def test_a_user_may_want_some_of_the_columns(broker):
    broker.register("orders", 1, V1)
    wanted = struct(total=LongType(), _sequence=LongType())
    assert columns_read(options_of(), wanted).schema is wanted
    with pytest.raises(OptionsError) as caught:
        columns_read(options_of(), struct(total=StringType(), price=LongType()))
    assert caught.value.complaints == [
        "schema: total is bigint, not string",
        "schema: no column price; there are id, total, _channel, _sequence, _timestamp",
    ]
    broker["orders"].add(b'{"id": 1, "total": 2}')
    assert read(broker, wanted) == [{"total": 2, "_sequence": 1}]
    assert read(broker, struct(_sequence=LongType())) == [{"_sequence": 1}]


GOOD = [b'{"id": 1}', b'{"id": 2, "total": "x", "at": "2026-03-01T12:00:00Z", "zz": {"deep": []}}', b' {"id": 3}\n']


BAD = [
    *(b"{", b"}", b"{}{}", b"[1]", b"null", b'{"id": "x"}', b'{"id": 1.5}', b'{"id": 9223372036854775808}', b"\xff"),
    *(b'{"at": "soon"}', b'{"at": 5}', b'{"at": "2026-03-01T12:00:00Z"', b"{'id': 1}", b'{"total": "\xed\xa0\x80"}'),
    *(b'{"total": "\\ud800"}', b'{"id": 1,', b'"total": "a"}', b"{]}", b'{"id": {}}', b"  "),
]


def one_by_one(monkeypatch):
    """Let Arrow read none of the messages that are JSON."""
    monkeypatch.setattr(typed_decode.TypedDecoder, "_by_arrow", typed_decode.TypedDecoder._one_by_one)


def test_json_is_decoded_by_arrow_and_one_by_one_to_the_same(broker, monkeypatch):
    broker.register("orders", 1, V3)
    for message in GOOD:
        broker["orders"].add(message)
    fast = read(broker, ALL)
    assert [row["id"] for row in fast] == [1, 2, 3]
    assert [row["total"] for row in fast] == [None, "x", None]
    assert fast[1]["at"].isoformat() == "2026-03-01T12:00:00+00:00"
    one_by_one(monkeypatch)
    assert read(broker, ALL) == fast


def test_json_that_fits_does_not_touch_python(broker, monkeypatch):
    broker.register("orders", 1, V3)
    for message in GOOD:
        broker["orders"].add(message)
    monkeypatch.setattr(TypedDecoder, "_one_by_one", None)
    assert len(read(broker, ALL)) == len(GOOD)


ODD = [
    *(
        b"",
        b"{",
        b"  ",
        b"{}{}",
        b'{"id": 1 }}',
        b'{"id": "x"}',
        b'{"id": 1.5}',
        b'{"id": 2.0}',
        b'{"id": 9223372036854775808}',
    ),
    *(
        b'{"id": 1 "total": "x"}',
        b'{"id": 1, "id": 2}',
        b'{"total": 5}',
        b'{"total": {"a": 1}}',
        b"\xff",
        b'{"total": "\xff"}',
    ),
    *(b'{"at": "soon"}', b'{"at": "2026-02-31T12:00:00Z"}', b'{"at": 5}', b'{"total": "\\ud800"}', b'{\n"id":\n[]}'),
    *(
        b'{"at": "2026-03-01T12:00:00"}',
        b'{"at": "2026-03-01 12:00:00.5"}',
        b'{"at": "2026-03-01T12:00:00.123456789+01:00"}',
        b'{"at": "2026-02-29T12:00:00Z"}',
        b'{"at": "2026-04-31T12:00:00Z"}',
        b'{"at": "2026-04-30T24:00:00Z"}',
        b'{"id": 1, "zz": [{"a": [1, {"b": nul}]}]}',
        b'{"total": "\\x"}',
        b'{"id": 1,}',
    ),
]
"""Messages that Arrow does not read with others: alone it might, or Python does, or nobody."""


@pytest.fixture
def counted(monkeypatch):
    """The messages that Python decodes, and the bytes that Arrow is given."""
    counts = {"messages": 0, "bytes": 0}
    loads, read_json = json.loads, pa.json.read_json

    def count_message(*args, **more):
        counts["messages"] += 1
        return loads(*args, **more)

    def count_bytes(text, **more):
        counts["bytes"] += text.size()
        return read_json(text, **more)

    monkeypatch.setattr(json, "loads", count_message)
    monkeypatch.setattr(pa.json, "read_json", count_bytes)
    return counts


def many(broker, *odd, rows=400):
    """Fill the channel, one message in a hundred is odd; returns the bytes of all."""
    filled = 0
    for number in range(rows):
        good = b'{"id": %d, "total": "x%d", "at": "2026-03-01T12:00:00.25Z"}' % (number, number)
        broker["orders"].add(odd[number // 100 % len(odd)] if number % 100 == 40 else good)
        filled += len(good) + 1
    broker.answer_rows = rows
    return filled


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_message_costs_itself_and_not_its_whole_answer(broker, counted, odd):
    broker.register("orders", 1, V3)
    filled = many(broker, odd)
    assert len(read(broker, KEPT, malformed="keep")) == 400
    assert counted["messages"] <= 4
    assert counted["bytes"] <= 5 * filled  # offered, not read: it ends where it does not fit


@pytest.mark.parametrize("odd", ODD)
def test_a_fault_costs_arrow_an_attempt_in_one_answer_and_not_in_the_next_ones(broker, counted, odd):
    broker.register("orders", 1, V3)
    filled = many(broker, odd, rows=1200)
    broker.answer_rows = 400
    options = options_of(malformed="keep")
    decoder = TypedDecoder(KEPT, registered_for(options), options)
    first, *answers = broker.read_range("orders", 1, 1200)
    decoder.batch(first)
    counted["bytes"] = 0
    assert [decoder.batch(found).num_rows for found in answers] == [400, 400]
    assert counted["bytes"] <= 0.7 * filled  # of which these are two thirds
    assert counted["messages"] <= 12


def test_messages_that_look_odd_and_are_not_are_read_as_they_are(broker, monkeypatch):
    """Nested ones, escapes, and names that are there twice at different depths, among those with faults."""
    broker.register("orders", 1, V3)
    for number in range(1200):
        usual = b'{"zz": [{"a": {"b": [{}]}, "id": 7}], "id": %d, "total": "\\ud83d\\ude00\\u00e4"}' % number
        broker["orders"].add(ODD[number // 40 % len(ODD)] if number % 40 == 7 else usual)
    broker.answer_rows = 400
    rows = [read(broker, KEPT, malformed="keep")]
    one_by_one(monkeypatch)
    rows.append(read(broker, KEPT, malformed="keep"))
    assert rows[0] == rows[1]
    assert rows[0][1]["total"] == "\U0001f600\xe4"


@pytest.mark.parametrize("odd", [ODD, ODD[::-1], BAD], ids=["odd", "backwards", "malformed"])
def test_odd_messages_are_read_as_they_are_one_by_one(broker, monkeypatch, odd):
    broker.register("orders", 1, V3)
    many(broker, *odd, rows=100 * len(odd))
    rows = [read(broker, KEPT, malformed="keep")]
    one_by_one(monkeypatch)
    rows.append(read(broker, KEPT, malformed="keep"))
    assert rows[0] == rows[1]


@pytest.mark.parametrize("odd", [b'{"n": NaN}', b'{"n": -Infinity}', b'{"s": {"l": [1.5, NaN]}}'])
def test_numbers_that_json_does_not_have_are_malformed(broker, odd):
    inner = {"properties": {"l": {"type": "array", "items": {"type": "number"}}}}
    broker.register("orders", 1, {"properties": {"n": {"type": "number"}, "s": {"type": "object", **inner}}})
    for number in range(40):
        broker["orders"].add(odd if number == 3 else b'{"n": 1.5, "s": {"l": [2, null]}}')
    kept = struct(n=DoubleType(), s=struct(l=ArrayType(DoubleType())), _malformed=BinaryType())
    rows = read(broker, kept, malformed="keep")
    assert [row["_malformed"] for row in rows] == [odd if number == 3 else None for number in range(40)]
    assert rows[3] == {"n": None, "s": None, "_malformed": odd}


def test_faults_that_arrow_finds_late_are_picked_out_behind_those_that_it_finds_early(broker, counted):
    """A number with a fraction is detected only after all of a text is read, so not while another message ends that."""
    broker.register("orders", 1, V3)
    many(broker, b'{"id": 1.5}', b'{"id": 1, "id": 2}')
    assert len(read(broker, KEPT, malformed="keep")) == 400
    assert counted["messages"] <= 4


def test_where_many_messages_are_odd_each_is_decoded_once(broker, counted):
    broker.register("orders", 1, V3)
    for number in range(100):
        broker["orders"].add(b'{"id": "x"}' if number % 3 else GOOD[0])
    assert len(read(broker, KEPT, malformed="keep")) == 100
    assert counted["messages"] == 100


def test_values_of_several_types_are_text(broker):
    broker.register("orders", 1, V3)
    for value in (b"1", b'"a"', b'{"b": [true]}', b"null"):
        broker["orders"].add(b'{"id": 1, "any": %b}' % value)
    assert [row["any"] for row in read(broker, ALL)] == ["1", "a", '{"b": [true]}', None]


def test_malformed_messages_fail_are_dropped_or_kept(broker):
    broker.register("orders", 1, V3)
    messages = [GOOD[0], *BAD, GOOD[2]]
    for message in messages:
        broker["orders"].add(message)
    with pytest.raises(MalformedError, match=r"message 2 of orders is not what its schema says: .*malformed=drop"):
        read(broker, ALL)
    assert [row["_sequence"] for row in read(broker, ALL, malformed="drop")] == [1, len(messages)]
    kept = read(broker, KEPT, malformed="keep")
    assert [row["_malformed"] for row in kept] == [None, *BAD, None]
    assert [row["id"] for row in kept] == [1, *[None] * len(BAD), 3]


@pytest.mark.parametrize("bad", BAD)
def test_no_pair_of_malformed_messages_looks_like_two_good_ones(broker, bad):
    """Arrow reads the messages of an answer as one text."""
    broker.register("orders", 1, V3)
    for other in BAD:
        broker["orders"].messages.clear()
        broker["orders"].add(bad)
        broker["orders"].add(other)
        assert [row["_malformed"] for row in read(broker, KEPT, malformed="keep")] == [bad, other]


def test_a_message_without_data_deletes(broker):
    broker.register("orders", 1, V3)
    broker["orders"].add(b'{"id": 1}', key=b"1")
    broker["orders"].add(b"", key=b"1", headers=[("stan-delete", b"")])
    rows = read(broker, struct(id=LongType(), _key=BinaryType()), includeKey="true")
    assert rows == [{"id": 1, "_key": b"1"}, {"id": None, "_key": b"1"}]


# --- Avro ---------------------------------------------------------------------------------------------------------------


def avro_of(**fields):
    return {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def datum(schema, record):
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


A1, A2, A3 = avro_of(id="int"), avro_of(id="long", note="string"), avro_of(note="string", id="long", n="double")


def test_avro_is_decoded_by_the_version_that_a_message_names(broker):
    broker.register("orders", 1, A1, SchemaKind.AVRO)
    broker.register("orders", 2, A2, SchemaKind.AVRO)
    schema = struct(id=LongType(), note=StringType(), _sequence=LongType())
    assert typed_schema(options_of()).startswith("`id` bigint, `note` string, `_channel`")
    orders = broker["orders"]
    orders.add(datum(A1, {"id": 1}), headers=[("stan-schema", b"1")])
    orders.add(datum(A2, {"id": 2, "note": "b"}))  # the newest
    assert read(broker, schema) == [
        {"id": 1, "note": None, "_sequence": 1},
        {"id": 2, "note": "b", "_sequence": 2},
    ]


def test_a_version_of_after_the_start_is_asked_for_and_an_unknown_one_once_for_each_answer(broker):
    broker.register("orders", 1, A1, SchemaKind.AVRO)
    schema = struct(id=LongType(), _sequence=LongType())
    options = options_of(malformed="drop")
    decoder = TypedDecoder(schema, registered_for(options), options)
    broker.register("orders", 3, A3, SchemaKind.AVRO)
    orders = broker["orders"]
    orders.add(datum(A1, {"id": 1}), headers=[("stan-schema", b"1")])
    orders.add(datum(A3, {"id": 3, "note": "c", "n": 1.5}), headers=[("stan-schema", b"3")])
    for number in range(50, 60):
        orders.add(b"?", headers=[("stan-schema", b"%d" % number)])
    broker.asked.clear()
    (batch,) = (decoder.batch(found) for found in broker.read_range("orders", 1, 100))
    assert batch.to_pylist() == [{"id": 1, "_sequence": 1}, {"id": 3, "_sequence": 2}]
    assert broker.asked == ["orders"]


def test_a_channel_whose_schema_is_registered_later(broker):
    options = options_of(subscribePattern="orders", malformed="keep")
    broker.register("orders", 1, V1)
    decoder = TypedDecoder(struct(id=LongType(), _malformed=BinaryType()), [], options)
    broker["orders"].add(b'{"id": 4}')
    (batch,) = (decoder.batch(found) for found in broker.read_range("orders", 1, 100))
    assert batch.to_pylist() == [{"id": 4, "_malformed": None}]


def test_arrow_reads_all_types_of_columns_but_maps(broker):
    """What `_in_json` says of types holds: dates and times are texts there, at any depth."""
    kind = pa.struct([("at", pa.timestamp("us", "UTC")), ("days", pa.list_(pa.date32())), ("n", pa.float64())])
    assert json_rows._in_json(kind) == pa.struct(
        [("at", pa.string()), ("days", pa.list_(pa.string())), ("n", pa.float64())]
    )
    nested = {
        "at": {"type": "string", "format": "date-time"},
        "days": {"type": "array", "items": V3["properties"]["at"]},
    }
    broker.register("orders", 1, {"properties": {"s": {"type": "object", "properties": nested}}})
    broker["orders"].add(b'{"s": {"at": "2026-03-01T12:00:00+01:00", "days": ["2026-03-01T00:00:00Z", null]}}')
    inner = StructType([StructField("at", TimestampType()), StructField("days", ArrayType(TimestampType()))])
    (row,) = read(broker, struct(s=inner))
    assert row["s"]["at"].isoformat() == "2026-03-01T11:00:00+00:00"
    assert row["s"]["days"][1] is None

"""The programs and the SQL of the pages about Spark do what they say, in Spark itself."""

import json

import pytest
from google.protobuf import descriptor_pb2 as d
from stan_client.blocking import BlockingClient
from stan_protocol.proto import wire_pb2 as wire

from tests.kit.batches import rows_of_messages
from tests.kit.documents import blocks
from tests.spark.filling import fill

PAGES = ("docs/spark.md", "docs/spark-sink.md")
PROGRAMS = [block for block in blocks() if block.page in PAGES and block.language == "python"]
STATEMENTS = [block for block in blocks() if block.page == "docs/spark.md" and block.language == "sql"]
TARGETS = {"order-counts": b'{"channel":"orders","count":3}', "totals": b'{"channel":"orders","count":3}'}
"""The channels that the programs write, and what is in them for three orders."""


RECIPES = {
    block.heading: block
    for block in blocks()
    if block.page == "docs/spark-recipes.md" and block.language == "python" and block.heading != "Declarative pipelines"
}


@pytest.fixture
def orders(broker):
    """A client; the channel that the programs read holds three messages."""
    with BlockingClient(broker.url) as client:
        if "orders" not in client.info(["orders"]):
            fill(client, "orders", [b"one", b"two", b"three"])
        yield client


def values_in(client, channel):
    info = client.info([channel]).get(channel)
    last = info.last if info else 0
    return [message.data for batch in client.read_range(channel, 1, last) for message in batch.messages()]


def run(program, broker, directory):
    """Run a program in the session that is there; returns its text."""
    text = program.text.replace("nats://127.0.0.1:4222", broker.url).replace('"checkpoints/', f'"{directory}/')
    exec(compile(text, str(program), "exec"), {"__name__": "program"})  # noqa: S102 - that is what is tested
    return text


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_a_program_of_the_page_runs(program, spark, broker, orders, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    text = run(program, broker, tmp_path)
    (target,) = (name for name in TARGETS if f'"{name}"' in text)
    assert values_in(orders, target) == [TARGETS[target]]
    if ".show()" in text:
        assert "three" in capfd.readouterr().out


def test_every_program_is_one_of_these():
    assert len(PROGRAMS) == len(TARGETS)


@pytest.fixture
def catalog(spark):
    """Afterwards the catalog has the tables and views of before."""
    before = {table.name for table in spark.catalog.listTables()}
    yield
    for table in spark.catalog.listTables():
        if table.name not in before:
            spark.sql(f"DROP {'TABLE' if table.tableType in {'MANAGED', 'EXTERNAL'} else 'VIEW'} {table.name}")


@pytest.mark.parametrize("block", STATEMENTS, ids=str)
def test_statements_of_the_page_run(block, spark, catalog, broker, orders):
    text = block.text.replace("nats://127.0.0.1:4222", broker.url)
    answers = [spark.sql(statement).collect() for statement in text.split(";") if statement.strip()]
    assert [[tuple(row) for row in answer] for answer in answers if answer] == [
        [(1, "one"), (2, "two"), (3, "three")],
        [(2,)],
    ]
    assert values_in(orders, "loud") == [b"ONE", b"TWO", b"THREE"]


# --- recipes ------------------------------------------------------------------------------------------------------------

KINDS = {
    "shop.orders": {"id": "integer", "state": "string", "total": "number"},
    "shop.payments": {"id": "integer", "paid": "boolean"},
}
FIRST = [
    {"id": 1, "state": "placed", "total": 20},
    {"id": 2, "state": "placed", "total": 5},
    {"id": 1, "state": "paid", "total": 20},
]


@pytest.fixture
def shop(broker, tmp_path, monkeypatch):
    """A client; the channels that recipes read hold some orders, a payment and a shipment."""
    monkeypatch.chdir(tmp_path)
    with BlockingClient(broker.url) as client:
        if "shop.orders" not in client.info(["shop.orders"]):
            for channel, kinds in KINDS.items():
                text = {"type": "object", "properties": {name: {"type": kind} for name, kind in kinds.items()}}
                client._wait(client._direct.admin.add_schema(channel, json.dumps(text).encode()))
            fill(client, "shop.orders", [json.dumps(order).encode() for order in FIRST])
            fill(client, "shop.payments", [b'{"id": 1, "paid": true}'])
        yield client


def recipe(heading, broker, directory):
    return run(RECIPES[heading], broker, directory)


def test_a_delta_table_has_the_newest_rows(spark, broker, shop, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    recipe("A Delta table", broker, tmp_path)
    table = deltalake.DeltaTable("tables/orders")
    rows = table.to_pyarrow_table().to_pylist()
    assert {row["id"]: row["state"] for row in rows} == {1: "paid", 2: "placed"}
    assert len(rows) == 2


def test_a_table_has_the_newest_row_of_each_key(spark, broker, shop, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    prices = ((b"a", b"1"), (b"b", b"2"), (b"c", b"1"), (b"a", b"3"))
    keyed = [wire.MsgProto(key=key, data=price) for key, price in prices]
    shop.publish_batch("shop.prices", rows_of_messages(keyed), len(keyed))
    recipe("Change data (Auto CDC)", broker, tmp_path)
    gone = [wire.MsgProto(key=b"c", headers=[wire.Header(key=b"stan-delete")])]
    shop.publish_batch("shop.prices", rows_of_messages(gone), len(gone))
    recipe("Change data (Auto CDC)", broker, tmp_path)
    found = deltalake.DeltaTable("tables/prices").to_pyarrow_table().to_pylist()
    assert {row["key"]: (row["price"], row["sequence"]) for row in found} == {"a": ("3", 4), "b": ("2", 2)}
    assert len(found) == 2


def test_an_iceberg_table_has_the_newest_rows(spark, broker, shop, tmp_path):
    catalogs = pytest.importorskip("pyiceberg.catalog")
    recipe("An Iceberg table", broker, tmp_path)
    catalog = catalogs.load_catalog(None, type="sql", uri="sqlite:///catalog.db", warehouse="warehouse")
    rows = catalog.load_table("shop.orders").scan().to_arrow().to_pylist()
    assert {row["id"]: row["state"] for row in rows} == {1: "paid", 2: "placed"}
    assert len(rows) == 2


def test_two_streams_are_joined(spark, broker, shop, tmp_path):
    recipe("Join two streams", broker, tmp_path)
    paid = [json.loads(value) for value in values_in(shop, "shop.paid-orders")]
    assert paid == [{"id": 1, "total": 20.0, "paid": True}] * 2


def test_a_stream_goes_on_behind_the_backfill_and_both_may_be_repeated(spark, broker, shop, tmp_path):
    block = RECIPES["Backfill, then stream"]
    run(block, broker, tmp_path)
    assert [json.loads(value)["state"] for value in values_in(shop, "shop.big-orders")] == ["placed", "paid"]
    fill(shop, "shop.orders", [b'{"id": 3, "state": "late", "total": 11}', b'{"id": 4, "state": "late", "total": 1}'])
    run(block, broker, tmp_path)
    assert [json.loads(value)["id"] for value in values_in(shop, "shop.big-orders")] == [1, 1, 3]


def test_protobuf_is_decoded_without_a_jar(spark, broker, shop, tmp_path, capfd):
    file = d.FileDescriptorProto(name="a.proto", package="shop", syntax="proto3")
    kind = file.message_type.add(name="Shipment")
    kind.field.add(name="carrier", number=1, type=d.FieldDescriptorProto.TYPE_STRING, label=1)
    (tmp_path / "shipment.pb").write_bytes(d.FileDescriptorSet(file=[file]).SerializeToString())
    fill(shop, "shop.shipments", [b"\x0a\x04mule", b"\xff"])
    recipe("Protobuf and Avro", broker, tmp_path)
    shown = capfd.readouterr().out
    assert "mule" in shown
    assert "NULL" in shown


def test_every_recipe_is_one_of_these():
    assert set(RECIPES) == {
        "A Delta table",
        "An Iceberg table",
        "Backfill, then stream",
        "Change data (Auto CDC)",
        "Join two streams",
        "Protobuf and Avro",
    }

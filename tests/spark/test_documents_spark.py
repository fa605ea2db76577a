"""The programs and the SQL of docs/spark.md do what they say, in Spark itself."""

import pytest
from stan_client.blocking import BlockingClient

from tests.kit.documents import blocks
from tests.spark.filling import fill

PROGRAMS = [block for block in blocks() if block.page == "docs/spark.md" and block.language == "python"]
STATEMENTS = [block for block in blocks() if block.page == "docs/spark.md" and block.language == "sql"]
TARGETS = {"order-counts": b'{"channel":"orders","count":3}', "totals": b'{"channel":"orders","count":3}'}
"""The channels that the programs write, and what is in them for three orders."""


@pytest.fixture
def orders(broker):
    """A client; the channel that the programs read holds three messages."""
    with BlockingClient(broker.url) as client:
        if "orders" not in client.info(["orders"]):
            fill(client, "orders", [b"one", b"two", b"three"])
        yield client


def values_in(client, channel):
    last = client.info([channel])[channel].last
    return [message.data for batch in client.read_range(channel, 1, last) for message in batch.messages()]


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_a_program_of_the_page_runs(program, spark, broker, orders, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    text = program.text.replace("nats://127.0.0.1:4222", broker.url).replace('"checkpoints/', f'"{tmp_path}/')
    exec(compile(text, str(program), "exec"), {"__name__": "program"})  # noqa: S102 - in the session that is there
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

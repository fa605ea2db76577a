"""A lake beside the real broker: `stan lake run` fills it, DuckDB reads it without the broker, and nothing is lost by a kill."""

import asyncio
import json
import random
import re
import subprocess
import sys

import duckdb
import pytest
import stan_client
from stan_client.blocking import BlockingClient
from stan_lake import LakeTable, open_store
from stan_lake.tierer import ChannelTierer, TierSettings
from stan_protocol.kernel.rows import pack_rows

from tests.kit.lake import UID, OneChannel, iceberg_of
from tests.kit.server import ROOT, StanServer, until

PATIENCE_S = 60
LAKE_PAGE = ROOT / "docs" / "lake.md"


def command(server, *args):
    return [sys.executable, "-m", "stan.cli.main", "lake", *args, *(("-s", server.url) if server else ())]


def stan_lake(server, *args, code=0):
    done = subprocess.run(command(server, *args), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if not code else done.stderr


def fill(client, channel, first, last):
    """Messages of which each has its sequence as text."""
    datas = [b"%d" % number for number in range(first, last + 1)]
    offsets, total = [0], 0
    for data in datas:
        total += len(data)
        offsets.append(total)
    packed = b"".join(offset.to_bytes(4, "little") for offset in offsets)
    return client.publish_batch(channel, pack_rows(packed, b"".join(datas), 0, len(datas)), len(datas))


@pytest.fixture
def server(tmp_path):
    with StanServer(tmp_path, "-mc", "0") as running:
        yield running


def parquet(lake, channel, *options):
    """A relation of DuckDB with all rows of a channel, as the lake's files have them."""
    return duckdb.read_parquet(stan_lake(None, "files", str(lake), channel, "--names", *options).split())


async def test_messages_come_into_the_lake_with_all_that_they_have(server, tmp_path):
    lake = tmp_path / "lake"
    async with await stan_client.connect(server.url, client_id="me", cluster_id=server.cluster_id) as client:
        await client.publish("orders.eu", b"1", key=b"k", headers={"a": "b"})
        await client.publish("orders.eu", b"2", ttl_s=3600)
        await client.publish("orders.eu", b"3", reply="answers")
        sent = [message async for message in client.read("orders.eu")]
    stan_lake(server, "run", str(lake), "orders.>", "--once")
    server.terminate()  # DuckDB needs no broker
    columns = "sequence, epoch_us(timestamp), key, value, reply, headers, epoch_us(expires_at), channel"
    rows = parquet(lake, "orders.eu").project(columns).fetchall()
    assert [row[0] for row in rows] == [1, 2, 3]
    assert [row[1] for row in rows] == [message.timestamp_ns // 1000 for message in sent]
    assert [row[2] for row in rows] == [b"k", None, None]
    assert [row[3] for row in rows] == [b"1", b"2", b"3"]
    assert [row[4] for row in rows] == [None, None, "answers"]
    assert [row[5] for row in rows] == [[{"key": "a", "value": b"b"}], [], []]
    assert [row[6] for row in rows] == [None, sent[1].expires_at_ns // 1000, None]
    assert {row[7] for row in rows} == {"orders.eu"}


def test_lake_is_told_of_by_commands_that_need_no_broker(server, tmp_path):
    lake = tmp_path / "lake"
    with BlockingClient(server.url, cluster_id=server.cluster_id) as client:
        fill(client, "orders", 1, 1000)
        stan_lake(server, "run", str(lake), "orders", "--once")
        fill(client, "orders", 1001, 1500)
        stan_lake(server, "run", str(lake), "orders", "--once")
        assert client.bookmarks("lake")["lake"]["orders"].sequence == 1501
    server.terminate()
    (table,) = json.loads(stan_lake(None, "list", str(lake), "--json"))["tables"]
    assert (table["channel"], table["first"], table["next"], table["messages"], table["files"]) == (
        "orders",
        1,
        1501,
        1500,
        2,
    )
    # Without our programs, too: the newest manifest names the files.
    manifest = max((lake / "channel=orders").glob("uid=*/_manifest/*.json"))
    duckdb.sql(f"set variable directory = '{manifest.parents[1]}/'")
    duckdb.sql(f"set variable manifest = '{manifest}'")
    duckdb.sql(
        "set variable files = (select list(getvariable('directory') || file.name) from "
        "(select unnest(files) as file from read_json(getvariable('manifest'))))"
    )
    found = duckdb.sql(
        "select count(*), count(distinct sequence), max(sequence) from read_parquet(getvariable('files'))"
    )
    assert found.fetchall()[0] == (1500, 1500, 1500)
    assert "no such table" in stan_lake(None, "files", str(lake), "other", code=1)


async def test_files_of_a_long_list_are_all_there_by_the_command_and_without_it(tmp_path):
    lake, channel = tmp_path / "lake", OneChannel()
    channel.publish(100)
    table = LakeTable(open_store(str(lake)), "orders", UID, chunk_files=2)
    tierer = ChannelTierer(table, channel, TierSettings(name="lake", target_bytes=100, age_s=0))
    await tierer.begin(channel.info)
    await tierer.step(channel.info)
    assert len(tierer.manifest.chunks) > 2
    assert parquet(lake, "orders").aggregate("count(*), count(distinct sequence)").fetchall() == [(100, 100)]
    (example,) = [
        text for text in re.findall(r"```python\n(.*?)```", LAKE_PAGE.read_text(), re.DOTALL) if "chunks" in text
    ]
    moved = lake.rename(tmp_path / "moved")
    assert "1 table" in stan_lake(None, "moved", str(moved))
    assert iceberg_of(open_store(str(moved)), table).scan().count() == 100
    lake = moved
    said = {}
    exec(example.replace("/data/lake", str(lake)).replace("print(", "found = ("), said)  # noqa: S102 - that page's
    assert said["found"].fetchall()[0][0] == 100


def test_channel_that_is_made_again_is_another_table(server, tmp_path):
    lake = tmp_path / "lake"
    for text in ("first", "second"):
        subprocess.run(
            [sys.executable, "-m", "stan.cli.main", "pub", "orders", text, "-s", server.url],
            check=True,
            timeout=PATIENCE_S,
        )
        stan_lake(server, "run", str(lake), ">", "--once")
        subprocess.run(
            [sys.executable, "-m", "stan.cli.main", "channel", "delete", "orders", "--yes", "-s", server.url],
            check=True,
            timeout=PATIENCE_S,
            capture_output=True,
        )
    tables = json.loads(stan_lake(None, "list", str(lake), "--json"))["tables"]
    assert [table["messages"] for table in tables] == [1, 1]
    assert tables[0]["uid"] < tables[1]["uid"]
    values = [parquet(lake, "orders", "--uid", str(table["uid"])).project("value").fetchall() for table in tables]
    assert values == [[(b"first",)], [(b"second",)]]


def test_lake_of_another_broker_is_refused(tmp_path):
    lake = tmp_path / "lake"
    for place, count in (("a", 10), ("b", 5), ("c", 20)):
        (tmp_path / place).mkdir()
        with (
            StanServer(tmp_path / place, "-mc", "0") as server,
            BlockingClient(server.url, cluster_id=server.cluster_id) as client,
        ):
            fill(client, "orders", 1, count)
            if place == "a":
                stan_lake(server, "run", str(lake), "orders", "--once")
            else:
                assert "another channel" in stan_lake(server, "run", str(lake), "orders", "--once", code=1)
    (table,) = json.loads(stan_lake(None, "list", str(lake), "--json"))["tables"]
    assert table["messages"] == 10


POLICY = "streaming { store_limits { max_msgs: 100 }\n policies { orders { tier: lake, tier_stretch: 50 } } }"


def test_limits_wait_for_the_lake_and_deletions_reach_it(tmp_path):
    lake, conf = tmp_path / "lake", tmp_path / "stan.conf"
    conf.write_text(POLICY)
    with (
        StanServer(tmp_path, "-mc", "100", "-sc", str(conf)) as server,
        BlockingClient(server.url, cluster_id=server.cluster_id) as client,
    ):

        def first():
            return client.info(["orders"])["orders"].first

        fill(client, "orders", 1, 500)
        assert first() == 1
        stan_lake(server, "run", str(lake), "orders", "--once")
        until(lambda: first() == 401)
        for what in (["delete-message", "orders", "450"], ["purge", "orders", "--seq", "420"]):
            command = [sys.executable, "-m", "stan.cli.main", "channel", *what, "--yes", "-s", server.url]
            done = subprocess.run(command, check=True, timeout=PATIENCE_S, capture_output=True)
            assert b"from the lake, too, and nothing else there" in done.stderr
        assert client.bookmarks("lake")["lake"]["orders"].removed == ((401, 420), (450, 450))
        fill(client, "orders", 501, 600)
        stan_lake(server, "run", str(lake), "orders", "--once")
        assert client.bookmarks("lake")["lake"]["orders"].removed == ()
    rows = parquet(lake, "orders").project("sequence").order("sequence").fetchall()
    assert [sequence for (sequence,) in rows] == [at for at in range(1, 601) if not 401 <= at <= 420 and at != 450]


def test_messages_are_deleted_from_the_lake_alone(server, tmp_path):
    lake = tmp_path / "lake"
    with BlockingClient(server.url, cluster_id=server.cluster_id) as client:
        fill(client, "orders", 1, 100)
        stan_lake(server, "run", str(lake), "orders", "--once")
        fill(client, "orders", 101, 150)
        stan_lake(server, "run", str(lake), "orders", "--once")
        said = stan_lake(None, "delete", str(lake), "orders", "7", "90-110", "--yes", "--at-once")
        assert said.split("\n")[-2] == "22 messages deleted, 2 files replaced or removed."
        fill(client, "orders", 151, 160)
        stan_lake(server, "run", str(lake), "orders", "--once")
    rows = parquet(lake, "orders").project("sequence").order("sequence").fetchall()
    expected = [at for at in range(1, 161) if at != 7 and not 90 <= at <= 110]
    assert [sequence for (sequence,) in rows] == expected
    files = duckdb.read_parquet(str(next(lake.glob("channel=*/uid=*")) / "*.parquet")).project("sequence").fetchall()
    assert sorted(sequence for (sequence,) in files) == expected, "no other file has them"

    (table,) = json.loads(stan_lake(None, "list", str(lake), "--json"))["tables"]
    stan_lake(None, "delete", str(lake), "orders", "--table", "--uid", str(table["uid"]), "--yes")
    assert json.loads(stan_lake(None, "list", str(lake), "--json"))["tables"] == []
    assert not [*lake.rglob("*")]


def test_what_is_not_to_be_deleted_is_told(server, tmp_path):
    lake = str(tmp_path / "lake")
    with BlockingClient(server.url, cluster_id=server.cluster_id) as client:
        fill(client, "orders", 1, 10)
    stan_lake(server, "run", lake, "orders", "--once")
    assert "Give sequences, or --all, or --table." in stan_lake(None, "delete", lake, "orders", "--yes", code=2)
    assert "up to 10; not 12, 11" in stan_lake(None, "delete", lake, "orders", "3-12", "11", "--yes", code=2)
    said = stan_lake(None, "delete", lake, "orders", "x", "5-4", "--yes", code=2)
    assert said.count("SEQ:") == 2
    assert "--uid has to say which" in stan_lake(None, "delete", lake, "orders", "--table", "--yes", code=2)
    assert "no such table" in stan_lake(None, "delete", lake, "other", "1", "--yes", code=1)
    assert "Add --yes" in stan_lake(None, "delete", lake, "orders", "1", code=2)
    assert len(parquet(tmp_path / "lake", "orders")) == 10


def test_wrong_arguments_are_told_of(tmp_path):
    assert "--file-size" in stan_lake(None, "run", str(tmp_path), ">", "--file-size", "1k", code=2)
    assert "directory" in stan_lake(None, "list", "file://elsewhere/x", code=1)


async def test_tierer_and_broker_that_are_killed_again_and_again_lose_nothing(server, tmp_path):
    """Files of a second's age, so that there is always one on the way."""
    lake, draw = tmp_path / "lake", random.Random(1)
    log = (tmp_path / "tierer.log").open("wb")
    last = 0

    def start():
        return subprocess.Popen(command(server, "run", str(lake), ">", "--age", "10ms"), stderr=log)

    tierer = start()
    try:
        for _ in range(6):
            with BlockingClient(server.url, cluster_id=server.cluster_id) as client:
                for _ in range(4):
                    fill(client, "orders", last + 1, last + 5000)
                    last += 5000
                    await asyncio.sleep(draw.random() / 2)
            victim = draw.choice(["tierer", "broker", "both"])
            if victim != "broker":
                tierer.kill()
                tierer.wait()
            if victim != "tierer":
                server.kill9()
                server.start()
            if victim != "broker":
                tierer = start()
    finally:
        tierer.kill()
        tierer.wait()
        log.close()
    stan_lake(server, "run", str(lake), ">", "--once")
    wrong = "count(*) filter (value <> encode(sequence::varchar))"
    found = parquet(lake, "orders").aggregate(
        f"count(*), count(distinct sequence), min(sequence), max(sequence), {wrong}"
    )
    assert found.fetchall() == [(last, last, 1, last, 0)]

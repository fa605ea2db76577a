"""Compaction by key and the real broker, with small segments: what is left, tables, the newest message of a key, and a subscriber
that sees sequences jump."""

import asyncio
import json
import re
import subprocess
import sys
from functools import partial

import nats
import pytest
import stan_client

from tests.kit.jetstream import asked
from tests.kit.server import StanServer

PATIENCE_S = 60
SMALL = (
    "import stan.limits as limits\n"
    "limits.SEGMENT_BYTES_MAX, limits.COMPACTION_INTERVAL = 40_000, limits.MILLISECOND * 100\n"
    "from stan.server.main import main\n"
    "main()\n"
)
SIZE = 200
KEYS = 40
POLICY = 'streaming { policies { ">" { compact: last, min_age: "0s" } } }'


@pytest.fixture
def server(tmp_path):
    conf = tmp_path / "stan.conf"
    conf.write_text(POLICY)
    with StanServer(tmp_path, "-sc", str(conf), command=(sys.executable, "-c", SMALL)) as running:
        yield running


async def publish(client, first, last):
    """Messages of which each third one deletes its key; returns the table that they make."""
    table = {}
    sequence = 0
    for number in range(first, last + 1):
        key = b"rare %d" % number if number % 50 == 1 else b"key %d" % (number * 7 % KEYS)
        if number % 3:
            sequence = (await client.publish("prices", b"%d" % number + bytes(SIZE), key=key)).sequence
            table[key] = number
        else:
            sequence = (await client.publish_tombstone("prices", key)).sequence
            table.pop(key, None)
    return table, sequence


def numbers(rows):
    return {key: int(message.data.rstrip(b"\0")) for key, message in rows}


async def compacted(client, least):
    """Wait until no more than *least* messages of the channel are left; returns them."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            read = [message async for message in client.read("prices")]
            if len(read) <= least:
                return read
            await asyncio.sleep(0.1)


async def test_what_is_left_gives_the_same_table(server) -> None:
    changes = []
    async with await stan_client.connect(server.url, client_id="me") as client:
        first, _ = await publish(client, 1, 200)
        async with stan_client.Table(client, "prices", on_change=lambda *change: changes.append(change)) as table:
            assert numbers(table.items()) == first
            assert {key for key, _ in changes} == set(first)
            await publish(client, 201, 900)
            wanted, sequence = await publish(client, 901, 1000)
            await table.reached(sequence)
            known = numbers(table.items())
            assert wanted.items() <= known.items()
            left = await compacted(client, 400)
            assert [message.sequence for message in left] == sorted({message.sequence for message in left})
            async with stan_client.Table(client, "prices") as again:
                assert numbers(again.items()) == known
            for key in (b"key %d" % number for number in range(KEYS)):
                found = await client.channels.newest("prices", key)
                assert (found and found.sequence) == (table[key].sequence if key in table else None)
            assert await client.channels.newest("prices", b"no such key") is None
        subscription = await client.subscribe("prices", start=stan_client.everything())
        got = []
        while not got or got[-1] < sequence:
            got.append((await subscription.next(10)).sequence)
        assert len(got) <= len(left)
        assert got[-1] - got[0] + 1 > len(got), "sequences jump"


async def test_a_restart_finds_the_same(server) -> None:
    async with await stan_client.connect(server.url, client_id="me") as client:
        await publish(client, 1, 900)
        wanted, sequence = await publish(client, 901, 1000)
        left = await compacted(client, 400)
    server.kill9()
    server.start()
    async with await stan_client.connect(server.url, client_id="me") as client:
        async with stan_client.Table(client, "prices") as table:
            assert wanted.items() <= numbers(table.items()).items()
            assert table.sequence == sequence
            assert len([message async for message in client.read("prices")]) <= len(left)
        assert (await client.publish("prices", b"1", key=b"key 1")).sequence == sequence + 1


async def test_a_table_of_a_channel_that_is_not_there(server) -> None:
    async with await stan_client.connect(server.url, client_id="me") as client:
        with pytest.raises(stan_client.ServerError):
            async with stan_client.Table(client, "nothing"):
                pass
        with pytest.raises(stan_client.InvalidKeyError):
            await client.publish_tombstone("nothing", "")


async def test_the_channel_tells_of_its_last_pass(server) -> None:
    where = ("--server", server.url)
    async with await stan_client.connect(server.url, client_id="me") as client:
        await publish(client, 1, 900)
        await compacted(client, 400)
    async with asyncio.timeout(PATIENCE_S):
        while "last pass" not in (told := await asyncio.to_thread(stan, "channel", "show", "prices", *where)):
            pass
    assert re.search(r"last pass +\S.* pass(es)? since its log was opened, [0-9.]+ KiB saved", told)
    assert re.search(r"commit +synced", told)


async def test_tables_and_tombstones_on_the_command_line(server) -> None:
    where = ("--server", server.url)
    for key, more in (("a", ("1",)), ("b", ("2",)), ("a", ("3",)), ("b", ("--delete",))):
        await asyncio.to_thread(stan, "pub", "orders", "--key", key, *more, *where)
    told = await asyncio.to_thread(stan, "table", "orders", "--json", *where)
    rows = json.loads(told)["rows"]
    assert [(row["key"], row["data"], row["sequence"]) for row in rows] == [("a", "3", 3)]
    assert "1 key, up to message 4" in await asyncio.to_thread(stan, "table", "orders", *where)


def stan(*arguments):
    """Run the command; returns what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "stan.cli.main", *arguments], capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def revisions(bucket, key):
    return [int(one.value.split()[0]) for one in await bucket.history(key)]


async def test_the_log_of_a_bucket_keeps_the_history_of_each_key(tmp_path) -> None:
    command = (sys.executable, "-c", SMALL)
    with StanServer(tmp_path, "--jetstream_api", command=command) as server:
        client = await nats.connect(server.url)
        bucket = await client.jetstream().create_key_value(bucket="H", history=2)
        number, left = 0, 0
        async with asyncio.timeout(PATIENCE_S), await stan_client.connect(server.url, client_id="me") as reader:
            while left > number - 100 or number < 500:
                for _ in range(100):
                    await bucket.put(f"k{number % 5}", b"%d " % number * SIZE)
                    number += 1
                left = len([message async for message in reader.read("KV_H")])
        for at in range(2):
            for key in range(5):
                assert await asked(partial(revisions, bucket, f"k{key}")) == [number - 10 + key, number - 5 + key]
            if not at:
                server.kill9()
                server.start()
        await client.close()

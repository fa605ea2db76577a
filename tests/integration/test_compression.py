"""Compression end to end: a real server and its files, new and old clients, a kill amid it; what is told of it."""

import asyncio
import re
import subprocess
import sys

import pytest
import stan_client
from stan_client import Direct
from stan_client.blocking import BlockingClient

from stan.protocol.kernel.rows import columns
from tests.bench_compression import event
from tests.kit.batches import rows_of
from tests.kit.server import StanServer

POLICY = 'streaming { policies { "told.>" { compress: zstd } } }'
COUNT, TOGETHER = 6000, 500


EVENTS = [event(number) for number in range(COUNT)]


@pytest.fixture
def server(tmp_path):
    conf = tmp_path / "stan.conf"
    conf.write_text(POLICY)
    with StanServer(tmp_path, "-sc", str(conf)) as running:
        running.store = tmp_path / "store"
        yield running


@pytest.fixture
def client(server):
    with BlockingClient(server.url, server.cluster_id) as client:
        yield client


def on_disk(server):
    return sum(path.stat().st_size for path in server.store.rglob("*.log"))


def fill(client, channel, *, compress):
    for at in range(0, COUNT, TOGETHER):
        part = EVENTS[at : at + TOGETHER]
        client.publish_batch(channel, rows_of(part), len(part), compress=compress)


def read(client, channel, first=1, last=COUNT, **options):
    """The data of the messages, and the bytes that came."""
    found, received = [], 0
    for answer in client.read_range(channel, first, last, **options):
        received += answer.received
        found += [message.data for message in answer.messages()]
    return found, received


@pytest.mark.parametrize(("channel", "compress"), [("by.client", True), ("told.leader", False)])
async def test_a_third_of_the_bytes_on_disk_and_on_the_way(server, client, channel, compress) -> None:
    fill(client, "plain", compress=False)
    plain, whole = on_disk(server), read(client, "plain")[1]
    fill(client, channel, compress=compress)
    assert 3 * (on_disk(server) - plain) < plain
    found, received = read(client, channel)
    assert found == EVENTS
    assert 3 * received < whole
    assert read(client, channel, 17, 4321)[0] == EVENTS[16:4321]
    assert read(client, channel, 100, 3000, max_bytes=3000)[0] == EVENTS[99:3000]

    server.kill9()
    server.start()
    assert read(client, channel)[0] == EVENTS
    async with await stan_client.connect("test-cluster", "me", servers=server.url) as other:
        got = []
        async with await other.subscribe(channel, start=stan_client.everything()) as subscription:
            async for message in subscription:
                got.append(message.data)
                if len(got) == COUNT:
                    break
        assert got == EVENTS
        assert [one.data for one in await other.fetch(channel, start=stan_client.newest(3))] == EVENTS[-3:]


async def test_the_ratio_is_told(server, client) -> None:
    fill(client, "by.client", compress=True)
    fill(client, "by.nobody", compress=False)
    async with Direct(server.url, server.cluster_id) as direct:
        told = {status.name: status for status in await direct.admin.channels()}
    assert 3 * told[b"by.client"].kept_bytes < told[b"by.client"].bytes == told[b"by.nobody"].bytes
    assert told[b"by.nobody"].kept_bytes == 0
    command = (sys.executable, "-m", "stan.cli.main", "channel", "show", "by.client", "--server", server.url)
    shown = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    assert re.search(r"compressed +to [0-9.]+ KiB, [0-9.]+ times smaller", shown.stdout)


def test_columns_are_those_of_messages_in_clear(client) -> None:
    fill(client, "plain", compress=False)
    fill(client, "by.client", compress=True)
    told = []
    for channel in ("plain", "by.client"):
        parts = [columns(answer.records, answer.count) for answer in client.read_range(channel, 1, COUNT)]
        told.append([b"".join(part[at] for part in parts) for at in (0, 3)])
    assert told[0] == told[1]

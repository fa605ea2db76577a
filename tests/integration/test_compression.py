"""Compression end to end: a real server and its files, new and old clients, a kill amid it; what is told of it."""

import asyncio
import re
import subprocess
import sys
import urllib.request

import pytest
import stan_client
from stan_client import Direct
from stan_protocol.kernel.rows import columns

from tests.bench_compression import event
from tests.kit.batches import rows_of
from tests.kit.damage import log_bytes
from tests.kit.ports import free_port
from tests.kit.server import StanServer

POLICY = 'streaming { policies { "told.>" { compress: zstd } } }'
COUNT, TOGETHER = 6000, 500


EVENTS = [event(number) for number in range(COUNT)]


@pytest.fixture
def server(tmp_path):
    conf = tmp_path / "stan.conf"
    conf.write_text(POLICY)
    port = free_port()
    with StanServer(tmp_path, "-sc", str(conf), "-m", str(port)) as running:
        running.store, running.metrics = tmp_path / "store", f"http://127.0.0.1:{port}/metrics"
        yield running


def on_disk(server):
    return log_bytes(server.store)


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
    async with await stan_client.connect(server.url, client_id="me") as other:
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
    async with Direct(server.url, cluster_id=server.cluster_id) as direct:
        told = {status.name: status for status in await direct.admin.channels()}
    assert 3 * told["by.client"].kept_bytes < told["by.client"].clear_bytes < told["by.client"].bytes
    assert told["by.client"].bytes == told["by.nobody"].bytes
    assert told["by.nobody"].kept_bytes == 0
    command = (sys.executable, "-m", "stan.cli.main", "channel", "show", "by.client", "--server", server.url)
    shown = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    assert re.search(r"compressed +to [0-9.]+ KiB, [0-9.]+ times smaller", shown.stdout)


def metrics(server):
    with urllib.request.urlopen(server.metrics, timeout=30) as answer:  # noqa: S310 - the server of the test
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


async def test_metrics_tell_who_has_compressed_and_who_has_it_decompressed(server, client) -> None:
    fill(client, "by.client", compress=True)
    fill(client, "told.leader", compress=False)
    fill(client, "by.nobody", compress=False)
    client.publish_batch("told.small", rows_of([b"x"]), 1)
    told = metrics(server)
    batches = {by: told[f'stan_compressed_batches_total{{by="{by}"}}'] for by in ("client", "leader", "nobody")}
    assert batches == {"client": COUNT // TOGETHER, "leader": batches["leader"], "nobody": 1}
    assert 0 < batches["leader"] <= COUNT // TOGETHER
    for by, channel in (("client", "by.client"), ("leader", "told.leader")):
        clear, kept = (told[f'stan_compressed_{what}_bytes_total{{by="{by}"}}'] for what in ("clear", "kept"))
        assert 3 * kept < clear
        assert clear == told[f'stan_channel_clear_bytes{{channel="{channel}"}}']
        assert kept == told[f'stan_channel_kept_bytes{{channel="{channel}"}}']
    assert 'stan_channel_kept_bytes{channel="by.nobody"}' not in told
    assert told["stan_decompressed_batches_total"] == 0

    read(client, "by.client")
    assert metrics(server)["stan_decompressed_batches_total"] == 0, "who fetches gets batches as they are kept"
    async with await stan_client.connect(server.url, client_id="me") as other:
        subscription = await other.subscribe("by.client", start=stan_client.everything())
        for _ in range(COUNT):
            await subscription.next(30)
    told = metrics(server)
    assert told["stan_decompressed_batches_total"] == COUNT // TOGETHER
    assert told["stan_decompressed_clear_bytes_total"] == told['stan_channel_clear_bytes{channel="by.client"}']
    assert told["stan_decompression_cpu_seconds_total"] > 0
    assert told["stan_decompressed_again_batches_total"] == 0


def test_columns_are_those_of_messages_in_clear(client) -> None:
    fill(client, "plain", compress=False)
    fill(client, "by.client", compress=True)
    told = []
    for channel in ("plain", "by.client"):
        parts = [columns(answer.records, answer.count) for answer in client.read_range(channel, 1, COUNT)]
        told.append([b"".join(part[at] for part in parts) for at in (0, 3)])
    assert told[0] == told[1]

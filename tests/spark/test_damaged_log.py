"""Readers behind messages that damage of the log has taken, of a real server that goes on without them."""

import asyncio

import pytest
import stan_client
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_stan import transport
from pyspark_stan.datasource import StanDataSource
from stan_client import GroupConsumer, Position, PullConsumer
from stan_lake import LakeTable, open_store
from stan_lake.tierer import ChannelTierer, TierSettings

from tests.kit.damage import written
from tests.kit.server import StanServer

CHANNEL, READ, LOST, LAST = "orders", 5, 10, 12
"""The channel; what was read before; up to where messages are lost; its newest message."""


async def publish(url, count):
    client = await stan_client.connect(url, client_id="writer")
    await client.publish_many(CHANNEL, [b"%d" % number for number in range(count)])
    await client.close()


async def pass_all(url, count):
    """Read the channel as a durable, whose position is behind all its messages then."""
    client = await stan_client.connect(url, client_id="reader")
    subscription = await client.subscribe(CHANNEL, durable="d", start=stan_client.everything())
    for _ in range(count):
        await anext(subscription)
    await subscription.close()
    await client.close()


async def in_group(direct, count):
    """Read as the only member of a group."""
    found = []
    async with GroupConsumer(direct, CHANNEL, group="crew") as member:
        async for batch in member:
            found += [message.sequence for message in batch.messages()]
            if len(found) >= count:
                await batch.commit()
                break
    return found


async def tiered(direct, lake):
    """Tier everything that there is; returns the manifest."""
    info = (await direct.channels.info([CHANNEL]))[CHANNEL]
    tierer = ChannelTierer(LakeTable(open_store(lake), CHANNEL, info.uid), direct, TierSettings(name="t"))
    await tierer.begin(info)
    await tierer.step(info, all_of_it=True)
    return tierer.manifest


def stream(url, **options):
    given = {"servers": url, "subscribe": CHANNEL, "startingoffsets": "earliest", **options}
    source = StanDataSource(given)
    return source.streamReader(source.schema())


def read(reader, start=None):
    """Read a batch from an offset on, or the first one; returns its sequences and its end."""
    start = start or reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    parts = reader.partitions(start, end)
    return [row for part in parts for batch in reader.read(part) for row in batch.column("sequence").to_pylist()], end


async def pulled(direct, position, **options):
    consumer = PullConsumer(direct, CHANNEL, position, follow=False, **options)
    try:
        return [message.sequence async for batch in consumer for message in batch.messages()], consumer.lost
    except stan_client.DataLossError as loss:
        return loss.first, loss.last


async def test_all_readers_are_told(tmp_path, external_nats, caplog):
    lake, logs = str(tmp_path / "lake"), tmp_path / "store" / "groups"
    with StanServer(tmp_path, "-file_truncate_bad_eof", nats_url=external_nats) as server:
        url = server.url
        await publish(url, READ)
        async with stan_client.Direct(url, timeout_s=60) as direct:
            _, offset = await asyncio.to_thread(read, stream(url))
            assert await in_group(direct, READ) == [*range(1, READ + 1)]
            await tiered(direct, lake)
            before = {path: len(written(path.read_bytes())) for path in logs.glob("*/*.log")}
            await publish(url, LOST - READ)
            await pass_all(url, LOST)
            server.terminate()
            (damaged,) = [path for path, size in before.items() if int(path.parent.name) and path.stat().st_size > size]
            data = bytearray(damaged.read_bytes())
            data[before[damaged] + 40] ^= 1
            damaged.write_bytes(data)
            server.start()
            assert f"to {LOST} of b'{CHANNEL}' are lost" in server.log_since_start()
            await publish(url, LAST - LOST)

            position = Position(READ + 1)
            assert await pulled(direct, position) == (READ + 1, LOST)
            left = [*range(LOST + 1, LAST + 1)]
            assert await pulled(direct, position, skip_lost=True) == (left, LOST - READ)
            assert await pulled(direct, Position(LOST + 1)) == (left, 0)
            assert await pulled(direct, Position(1), skip_lost=True) == ([*range(1, READ + 1), *left], LOST - READ)
            with pytest.raises(
                stan_client.DataLossError, match=f"messages {READ + 1} to {LOST} of {CHANNEL} cannot be read"
            ):
                await asyncio.to_thread(read, stream(url), offset)
            assert (await asyncio.to_thread(read, stream(url, failondataloss="false"), offset))[0] == left
            assert (await tiered(direct, lake)).missing == ((READ + 1, LOST),)
            caplog.clear()
            assert await in_group(direct, 2) == left
            assert f"messages {READ + 1} to {LOST} are lost" in caplog.text
    for (_, connection), client in list(transport._pool.items()):
        if url in connection.servers:
            transport.forget(connection, client)

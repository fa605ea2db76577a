"""Questions and waits of clients without registration, in a cluster whose leaders are killed meanwhile."""

import asyncio

import stan_client
from stan_client import PullConsumer

from tests.kit.server import until

CHANNELS = [f"c{number}" for number in range(12)]
ROWS = b"\x03\0\0\0\x22\x01x" * 100
IDS, MORE_IDS = (b"".join(number.to_bytes(16, "big") for number in range(at, at + 100)) for at in (0, 100))


async def lasts(direct):
    return {name: info.last for name, info in (await direct.channels.info()).items()}


async def test_all_leaders_answer_together_also_after_one_is_killed(cluster, direct) -> None:
    for channel in CHANNELS:
        await direct.batches.publish(channel, ROWS, 100, producer="test", version=1, ids=IDS)  # leaderships still move
        await direct.bookmarks.set("job", {channel: 50})
    until(lambda: len({cluster.leader_of(channel) for channel in CHANNELS}) > 1, why=cluster.log)
    expected = dict.fromkeys(CHANNELS, 100)
    assert await lasts(direct) == expected

    killed = cluster.leader_of("c0")
    asking = [asyncio.create_task(lasts(direct)) for _ in range(5)]
    await asyncio.to_thread(cluster.kill9, killed)
    asking += [asyncio.create_task(lasts(direct)) for _ in range(5)]
    assert await asyncio.gather(*asking) == [expected] * 10
    assert await direct.channels.sequence_at("c0", 0) == 1
    found = await direct.bookmarks.all("job")
    assert found == {"job": dict.fromkeys(CHANNELS, stan_client.Bookmark(50, 100))}


async def test_consumer_goes_on_when_the_leader_of_its_channel_is_killed(cluster, direct) -> None:
    ids = iter(range(1_000_000))
    got = []

    async def store():
        count = 10
        rows = b"\x03\0\0\0\x22\x01x" * count
        mine = b"".join(next(ids).to_bytes(16, "big") for _ in range(count))
        await direct.batches.publish("followed", rows, count, producer="test", version=1, ids=mine)

    async def follow():
        consumer = PullConsumer(direct, "followed", bookmark="follower")
        async for batch in consumer:
            got.extend(message.sequence for message in batch.messages())
            if got[-1] >= 600:
                break
        await consumer.aclose()
        return consumer.position.sequence

    following = asyncio.create_task(follow())
    for number in range(60):
        if number == 30:
            await asyncio.to_thread(cluster.kill9, cluster.leader_of("followed"))
        await store()
    assert await asyncio.wait_for(following, 60) == 601
    assert got == list(range(1, 601))


async def test_leader_that_leaves_in_order_sends_those_who_wait_to_the_next(cluster, direct) -> None:
    await direct.batches.publish("left", ROWS, 100, producer="test", version=1, ids=IDS)
    waiting = asyncio.create_task(direct.channels.info(newer_than={"left": 100}, wait_s=30))
    await direct.channels.info(["left"])
    await asyncio.to_thread(cluster.terminate, cluster.leader_of("left"))
    await direct.batches.publish("left", ROWS, 100, producer="test", version=1, ids=MORE_IDS)
    assert (await waiting)["left"].last == 200

"""Schedules of streams with nats-py and real servers: killed around the moment, restored elsewhere, in a cluster that loses the
leader of the channel.
"""

import asyncio
import time

import nats
import pytest
from stan_protocol.scalars import MILLISECOND, SECOND
from stan_protocol.units import rfc3339

from tests.integration.test_backup import stan
from tests.kit.cluster import StanCluster
from tests.kit.jetstream import asked
from tests.kit.server import StanServer, until

PATIENCE_S = 60
ON = "--jetstream_api"
NOW = "plan.now"
COUNT = 60


@pytest.fixture
def server(tmp_path):
    with StanServer(tmp_path, ON) as running:
        yield running


async def make(jetstream):
    await asked(lambda: jetstream.add_stream(name="PLANS", subjects=["plan.>"], allow_msg_schedules=True))


async def schedule(jetstream, value, due, target=NOW):
    """Publish a schedule until it is acknowledged, under one id; *due*: Unix ns, or a pattern."""
    pattern = due if isinstance(due, str) else f"@at {rfc3339(due)}"
    fields = {"Nats-Schedule": pattern, "Nats-Schedule-Target": target, "Nats-Msg-Id": value}
    publish = jetstream.publish
    await asked(lambda: publish(f"plan.later.{value}", value.encode(), timeout=2, headers=fields), PATIENCE_S)


async def there(jetstream):
    """What the stream has: the subject, data and headers of each message, in its order."""
    info = await jetstream.stream_info("PLANS", subjects_filter=">")
    found = []
    at = 0
    while len(found) < info.state.messages:
        message = await jetstream.get_msg("PLANS", seq=at + 1, next=True, subject=">")
        at = message.seq
        found.append((message.subject, message.data.decode(), message.headers))
    return found


async def came(jetstream, count):
    """The data of the messages that came of schedules, once there are so many; asked again while servers come and go."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = [data for subject, data, _ in await asked(lambda: there(jetstream)) if subject == NOW]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)


async def test_each_schedule_comes_once_though_the_server_is_killed_around_the_moment(server):
    client = await nats.connect(server.url, reconnect_time_wait=0.1)
    jetstream = client.jetstream()
    await make(jetstream)
    await schedule(jetstream, "tick", "@every 1s", "plan.tick")
    begin = time.time_ns() + 3 * SECOND
    for number in range(COUNT):
        await schedule(jetstream, str(number), begin + number * 50 * MILLISECOND)
    for count in (1, COUNT // 4, COUNT // 2):
        await came(jetstream, count)
        server.kill9()
        server.start()
    assert await came(jetstream, COUNT) == [str(number) for number in range(COUNT)]
    server.kill9()
    server.start()
    found = await asked(lambda: there(jetstream))
    ticks = [fields["Nats-Schedule-Next"] for subject, _, fields in found if subject == "plan.tick"]
    assert len(ticks) > 3
    assert ticks == sorted(set(ticks))
    left = [one for one in found if one[0] == NOW]
    assert [(subject, data) for subject, data, _ in left] == [(NOW, str(number)) for number in range(COUNT)]
    assert [one[:2] for one in found if one[0].startswith("plan.later")] == [("plan.later.tick", "tick")]
    assert left[0][2] == {"Nats-Scheduler": "plan.later.0", "Nats-Schedule-Next": "purge"}
    await client.close()


async def test_what_became_due_while_the_server_was_down_comes_when_it_is_up(server):
    client = await nats.connect(server.url)
    jetstream = client.jetstream()
    await make(jetstream)
    due = time.time_ns() + SECOND
    await schedule(jetstream, "late", due)
    server.kill9()
    until(lambda: time.time_ns() >= due)
    server.start()
    assert await came(jetstream, 1) == ["late"]
    await client.close()


async def test_a_consumer_gets_it_as_any_message(server):
    client = await nats.connect(server.url)
    jetstream = client.jetstream()
    await make(jetstream)
    subscription = await jetstream.subscribe(NOW, ordered_consumer=True)
    await schedule(jetstream, "hello", time.time_ns() + SECOND)
    message = await subscription.next_msg(timeout=PATIENCE_S)
    assert (message.subject, message.data, message.headers["Nats-Scheduler"]) == (NOW, b"hello", "plan.later.hello")
    await client.close()


async def test_a_restored_stream_has_its_schedules(server, tmp_path):
    client = await nats.connect(server.url)
    jetstream = client.jetstream()
    await make(jetstream)
    due = time.time_ns() + 5 * SECOND
    await schedule(jetstream, "restored", due)
    await schedule(jetstream, "removed", due)
    await jetstream.purge_stream("PLANS", subject="plan.later.removed")
    saved, elsewhere = str(tmp_path / "saved"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    code, output = await asyncio.to_thread(stan, server, "backup", saved)
    assert code == 0, output
    await client.close()
    with StanServer(elsewhere, ON) as other:
        code, output = await asyncio.to_thread(stan, other, "restore", saved, "--yes")
        assert code == 0, output
        client = await nats.connect(other.url)
        assert await came(client.jetstream(), 1) == ["restored"]
        assert len(await there(client.jetstream())) == 1
        await client.close()


async def test_in_a_cluster_schedules_outlive_the_leader(tmp_path):
    with StanCluster(tmp_path, ON) as cluster:
        client = await nats.connect([node.url for node in cluster.nodes.values()])
        jetstream = client.jetstream(timeout=5)
        await make(jetstream)
        begin = time.time_ns() + 5 * SECOND
        for number in range(COUNT):
            await schedule(jetstream, str(number), begin + number * 50 * MILLISECOND)
        await came(jetstream, 1)
        leader = cluster.leader_of("PLANS")
        cluster.kill9(leader)
        assert sorted(map(int, await came(jetstream, COUNT))) == [*range(COUNT)]
        cluster.start(leader)
        left = await asked(lambda: there(jetstream))
        assert sorted(int(data) for _, data, _ in left) == [*range(COUNT)]
        await client.close()

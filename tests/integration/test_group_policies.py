"""Failover groups and key-ordered groups on a real server, while members die again and again."""

import asyncio
import os
import random
import time

import pytest
import stan_client

from tests.integration.test_config_file import FromFile
from tests.kit.fake_broker import eventually
from tests.kit.key_order import KeyedWork
from tests.kit.killable_client import KillableClient

FILE = """
listen: "127.0.0.1:{port}"
streaming {{
  store: FILE
  dir: {directory}
  cluster_id: groups
  hb_interval: "100ms"
  hb_timeout: "200ms"
  hb_fail_count: 4
  policies {{
    "failover.>" {{ mode: failover }}
    "keyed.>" {{ order: key }}
  }}
}}
"""
EVERYTHING = stan_client.everything()
GONE_S = 4 * (0.1 + 0.2) + 0.3
"""A client that answers no heartbeats is gone by then, if the machine is not busy."""
KILLS = int(os.environ.get("STAN_FAILOVER_KILLS", "25"))
GAP_MAX_S = float(os.environ.get("STAN_FAILOVER_GAP_MAX", "inf"))
"""How long nobody gets messages after half of the kills, at most."""
BUSY_S = 3.0
"""A busy machine may take this much longer."""


@pytest.fixture
def server(tmp_path):
    with FromFile(tmp_path, "-sc", FILE) as server:
        yield server


class Member(KillableClient):
    """A client in a queue group that can be killed."""

    async def join(self, server, channel, callback, **options):
        client = await self.connect(server.url, "groups")
        await client.subscribe(channel, callback, queue="q", durable="d", start=EVERYTHING, manual_acks=True, **options)
        return self


async def test_another_member_takes_over_each_time_the_active_one_is_killed(server):
    """Never two get first deliveries; the gap is what it takes to find the dead out."""
    firsts: list[tuple[float, str, int]] = []
    came = asyncio.Event()

    def heard(name):
        def callback(message):
            if not message.redelivered:
                firsts.append((time.monotonic(), name, message.sequence))
            came.set()
            message.ack()

        return callback

    async def publish():
        async with await stan_client.connect(server.url, client_id="publisher", cluster_id="groups") as publisher:
            while True:
                await publisher.publish("failover.a", b"x")
                await asyncio.sleep(0.005)

    async def member(number):
        name = f"member{number}"
        return await Member(name).join(server, "failover.a", heard(name), ack_wait_s=1)

    members = [await member(number) for number in range(3)]
    publishing = asyncio.create_task(publish())
    gaps = []
    try:
        for number in range(3, 3 + KILLS):
            active = members.pop(0)
            while not firsts or firsts[-1][1] != active.name:
                came.clear()
                await asyncio.wait_for(came.wait(), GONE_S + BUSY_S)
            active.kill()
            killed_at = time.monotonic()
            members.append(await member(number))
            while firsts[-1][1] == active.name:
                came.clear()
                await asyncio.wait_for(came.wait(), GONE_S + BUSY_S)
            gaps.append(next(at for at, name, _ in firsts if name == members[0].name) - killed_at)
    finally:
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        for left in members:
            await left.end()
    order = [name for at, name, _ in firsts]
    changes = [name for at, name in enumerate(order) if at == 0 or order[at - 1] != name]
    assert changes == [f"member{n}" for n in range(len(changes))], "each was active once, in the order of joining"
    sequences = [sequence for _, _, sequence in firsts]
    assert len(set(sequences)) == len(sequences), "none came first twice"
    assert sorted(gaps)[len(gaps) // 2] < GAP_MAX_S, f"gaps {gaps}"


@pytest.mark.parametrize("seconds", [20])
async def test_order_by_key_outlives_members_and_failures(server, seconds):
    """10,000 keys, 8 members, one dies each second, one delivery in twenty fails."""
    draw = random.Random(7)
    keys = [b"key %d" % n for n in range(10_000)]
    work = KeyedWork(draw, asyncio.get_running_loop().call_later, lambda message: message.sequence)
    members: list[Member] = []

    async def add(number):
        member = Member(f"member{number}")
        members.append(await member.join(server, "keyed.a", work.joins(member.name), ack_wait_s=2, max_in_flight=100))

    published = 0
    async with await stan_client.connect(server.url, client_id="publisher", cluster_id="groups") as publisher:
        for number in range(8):
            await add(number)
        end, next_kill = time.monotonic() + seconds, time.monotonic() + 1
        number = 8
        while time.monotonic() < end:
            messages = [stan_client.NewMessage(b"x", key=draw.choice(keys)) for _ in range(50)]
            published += await publisher.publish_many("keyed.a", messages)
            await asyncio.sleep(0.05)
            if time.monotonic() > next_kill:
                next_kill += 1
                victim = members.pop(draw.randrange(len(members)))
                work.dies(victim.name)
                victim.kill()
                await add(number)
                number += 1
        await eventually(lambda: len(work.acked) == published, 60)
    for member in members:
        await member.end()
    wrong = list(work.complaints())
    assert not wrong, f"{len(wrong)}: {wrong[:5]}"
    assert number - 8 >= seconds // 2, "members died"

"""A channel whose messages expire by a policy, used by published clients, which know nothing of it."""

import asyncio
import time

from stan_client import Direct
from stan_protocol.admin_types import DeliveryPolicy
from stan_protocol.scalars import SECOND

from tests.conformance.clients import numbered, payloads, sequences
from tests.kit.server import CLUSTER_ID

MANY = 50
TTL_S = 1
PATIENCE_S = 60


async def set_ttl(server, channel):
    async with Direct(server.url, cluster_id=CLUSTER_ID) as direct:
        await direct.admin.set_policy(channel, DeliveryPolicy(ttl=TTL_S * SECOND))


async def until_all_have_expired(server, channel):
    end = time.monotonic() + PATIENCE_S
    async with Direct(server.url, cluster_id=CLUSTER_ID) as direct:
        while [message async for message in direct.read(channel)]:
            assert time.monotonic() < end


def test_messages_of_a_channel_with_a_time_to_live_come_at_once_and_are_gone_later(connect, shared_server, name):
    asyncio.run(set_ttl(shared_server, name))
    client = connect()
    client.subscribe("s", name)
    acked = client.publish_and_wait(name, *numbered("m", MANY))
    assert sorted(payloads(acked)) == sorted(numbered("m", MANY))
    assert sequences(client.messages("s", MANY)) == list(range(1, MANY + 1))

    asyncio.run(until_all_have_expired(shared_server, name))
    client.publish_and_wait(name, *numbered("new", 1))
    client.subscribe("late", name, start="sequence:1")
    (message,) = client.messages("late", 1)
    assert (message["sequence"], payloads([message])) == (MANY + 1, numbered("new", 1))

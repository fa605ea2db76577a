"""A channel with a delay, used by published clients, which know nothing of it."""

import asyncio
import time

from stan_client import Direct
from stan_protocol.admin_types import DeliveryPolicy
from stan_protocol.scalars import SECOND

from tests.conformance.clients import numbered, payloads, sequences
from tests.kit.server import CLUSTER_ID

MANY = 200
DELAY_S = 1


async def set_delay(server, channel, target):
    async with Direct(server.url, cluster_id=CLUSTER_ID) as direct:
        await direct.admin.set_policy(channel, DeliveryPolicy(delay=DELAY_S * SECOND, target=target))


def test_what_is_published_to_a_channel_with_a_delay_comes_later_to_its_target(connect, shared_server, name):
    asyncio.run(set_delay(shared_server, f"{name}.later", name))
    client = connect()
    client.subscribe("s", name)
    began = time.time_ns()

    acked = client.publish_and_wait(f"{name}.later", *numbered("m", MANY))

    assert sorted(payloads(acked)) == sorted(numbered("m", MANY))
    messages = client.messages("s", MANY)
    assert payloads(messages) == numbered("m", MANY)
    assert sequences(messages) == list(range(1, MANY + 1))
    assert messages[0]["timestamp"] >= began + DELAY_S * SECOND

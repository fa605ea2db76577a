"""Published clients know no negative acks: what they never ack ends as a dead letter, and they read it like any message."""

import asyncio

import stan_client
from stan_client.dead_letters import dead_letter
from stan_protocol.admin_types import DeliveryPolicy

from tests.conformance.clients import payloads
from tests.kit.server import until

ACK_WAIT_MS = 1000


def test_what_is_never_acked_becomes_a_dead_letter(connect, name, shared_server):
    async def set_policy():
        async with stan_client.Direct(shared_server.url) as direct:
            await direct.admin.set_policy(name, DeliveryPolicy(max_deliver=2, dead_letter=".dlq"))

    async def given_up():
        async with stan_client.Direct(shared_server.url) as direct:
            if await direct.admin.channel(f"{name}.dlq") is None:
                return []
            return [dead_letter(message) async for message in direct.read(f"{name}.dlq")]

    asyncio.run(set_policy())
    client = connect()
    client.subscribe("s", name, manual=1, ack_wait=ACK_WAIT_MS, durable="d")
    client.publish_and_wait(name, b"good", b"poison")
    client.messages("s", 1, sequence=1)
    client.ack("s", 1)

    until(lambda: asyncio.run(given_up()), 30)

    (letter,) = asyncio.run(given_up())
    assert (letter.channel, letter.sequence, letter.durable, letter.deliveries) == (name, 2, "d", 2)
    assert (letter.reason, letter.message.data) == ("exhausted", b"poison")
    assert len(client.seen("message", sub="s", sequence=2)) == 2
    client.subscribe("letters", f"{name}.dlq", start="first")
    assert payloads(client.messages("letters", 1)) == [b"poison"]

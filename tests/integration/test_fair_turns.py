"""One user floods a server alone: another one is served before what the first has sent is done."""

import pytest
from stan_protocol.proto import wire_pb2 as wire

from tests.kit.rogue import CLUSTER, Rogue
from tests.kit.running import settled
from tests.kit.server import StanServer

CONF = """
streaming {
  permissions {
    users: [ { user: alice, password: pa }, { user: mallory, password: pm } ]
    allow: [ { user: alice, publish: "orders" }, { user: mallory, subscribe: "public.>" } ]
  }
}
"""
FLOOD = 5000


@pytest.fixture
def server(tmp_path):
    (tmp_path / "stan.conf").write_text(CONF)
    with StanServer(tmp_path, "-sc", str(tmp_path / "stan.conf")) as server:
        yield server


def subscription(client_id, number):
    return wire.SubscriptionRequest(
        client_id=client_id.encode(),
        subject=b"orders.%d" % number,
        inbox=b"_INBOX.mallory.m",
        max_in_flight=1,
        ack_wait_s=30,
    )


async def test_a_publish_is_acked_before_what_another_user_has_flooded_is_answered(server):
    alice, mallory = await Rogue.of(server, "alice"), await Rogue.of(server, "mallory")
    assert not await alice.register("alice-1", "_INBOX.alice.hb")
    assert not await mallory.register()
    assert not await alice.publish("orders", "alice-1")
    for number in range(FLOOD):
        await mallory.say(f"_STAN.sub.{CLUSTER}", subscription(mallory.client_id, number), "_INBOX.mallory.flood")
    await settled(mallory.link)  # NATS has it all
    assert not await alice.publish("orders", "alice-1")
    await settled(mallory.link)
    answered = [data for subject, data in mallory.heard if subject == "_INBOX.mallory.flood"]
    assert len(answered) < FLOOD / 2
    while len(answered) < FLOOD:
        await settled(mallory.link)
        answered = [data for subject, data in mallory.heard if subject == "_INBOX.mallory.flood"]
    assert all(b"no permission" in data for data in answered)
    await alice.link.close()
    await mallory.link.close()

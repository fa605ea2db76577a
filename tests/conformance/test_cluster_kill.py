"""Published clients against a cluster of three whose leaders are killed (`kill -9`) in the middle of the work.

They do nothing special: their publishes go on, or wait as long as an election takes; no message that was acked is missing, and
what comes again says so.
"""

import asyncio

import pytest
from stan_client import Direct
from stan_protocol.proto.admin_pb2 import DeliveryPolicy

from stan.policies import EPHEMERAL
from tests.conformance.clients import numbered, payloads, sequences
from tests.kit.server import until

FLOOD = 4_000


def check(messages, acked):
    """Everything acked came, in order, each sequence once but for flagged repeats."""
    first = [message for message in messages if not message["redelivered"]]
    everything = {message["sequence"]: message for message in messages}
    assert set(acked) <= set(payloads(list(everything.values())))
    assert sorted(everything) == list(range(1, len(everything) + 1))
    assert sequences(first) == sorted(set(sequences(first))), (
        "a repeat is not flagged, or the order is not the channel's"
    )


@pytest.mark.parametrize("role", ["channel", "clients"])
def test_killed_leader_costs_no_publish_and_no_message(connect, cluster, name, role):
    """The leader of the channel's group, then the one of group 0, which answers connects and heartbeats."""
    publisher, subscriber = connect(server=cluster), connect(server=cluster)
    worker, other = connect(server=cluster), connect(server=cluster)
    subscriber.subscribe("plain", name, start="first", ack_wait=5000)
    subscriber.subscribe("durable", name, durable="dur", start="first", ack_wait=5000)
    worker.subscribe("group", name, queue="workers", start="first", ack_wait=5000)
    other.subscribe("group", name, queue="workers", start="first", ack_wait=5000)
    publisher.publish_and_wait(name, *numbered("before", 10))

    leader = cluster.leader_of(name) if role == "channel" else cluster.leader(0)
    publisher.publish(name, *numbered("m", FLOOD))
    publisher.wait("acked", FLOOD // 20)
    cluster.kill9(leader)

    acked = publisher.wait("acked", 10 + FLOOD)
    assert {event["error"] for event in acked} == {""}
    publisher.publish_and_wait(name, b"end")
    expected = [*numbered("before", 10), *numbered("m", FLOOD), b"end"]
    for sub in ("plain", "durable"):
        subscriber.wait("message", 1, sub=sub, data=b"end".hex())
        check(subscriber.seen("message", sub=sub), expected)
    late = connect(server=cluster)
    late.subscribe("all", name, start="first")
    assert payloads(late.messages("all", len(expected))) == expected, "not stored once and in order"
    until(lambda: taken_together(worker, other) == set(expected))
    for client in (publisher, subscriber, worker, other):
        assert not client.seen("connection_lost")
        assert not client.seen("reconnected")


def taken_together(*members):
    """What the members of a queue group got."""
    return {data for member in members for data in payloads(member.seen("message", sub="group"))}


@pytest.mark.parametrize("role", ["channel", "clients"])
def test_requests_right_after_a_kill_are_answered(connect, cluster, name, role):
    """Connect, subscribe, close, unsubscribe, publish and disconnect, while the others elect and after that."""
    client = connect(server=cluster)
    client.subscribe("plain", name)
    client.subscribe("durable", name, durable="dur")
    client.subscribe("closed", name, durable="kept")
    client.publish_and_wait(name, b"m1")
    client.messages("plain", 1)
    client.messages("durable", 1)
    client.messages("closed", 1)

    cluster.kill9(cluster.leader_of(name) if role == "channel" else cluster.leader(0))
    client.subscribe("new", name, start="first")
    client.unsubscribe("durable")
    client.close("closed")
    newcomer = connect(f"{name}-new", cluster)
    newcomer.subscribe("new", name, start="first")
    newcomer.publish_and_wait(name, b"m2")
    client.subscribe("closed", name, durable="kept")
    client.subscribe("anew", name, durable="dur", start="first")

    for who, sub in ((client, "plain"), (client, "new"), (client, "anew"), (newcomer, "new")):
        who.wait("message", 1, sub=sub, data=b"m2".hex())
        check(who.seen("message", sub=sub), [b"m1", b"m2"])
    client.wait("message", 1, sub="closed", data=b"m2".hex())
    newcomer.disconnect()
    client.disconnect()


def test_durable_and_registration_survive_the_kill_of_every_node_in_turn(connect, cluster, name):
    """After each kill the killed node comes back; in the end no node is the one that the client has connected to."""
    client = connect(f"{name}-me", cluster)
    client.subscribe("durable", name, durable="dur", manual=1, ack_wait=1000)
    for number, node in enumerate(cluster.names, 1):
        client.publish_and_wait(name, b"m%d" % number)
        client.messages("durable", 1, sequence=number)
        client.ack("durable", number)
        cluster.kill9(node)
        cluster.start(node)

    refused = connect(f"{name}-me", cluster, expect="refused")
    client.publish_and_wait(name, b"end")

    assert "clientID already registered" in refused.seen("refused")[0]["error"]
    client.wait("message", 1, sub="durable", data=b"end".hex())
    check(client.seen("message", sub="durable"), [b"m1", b"m2", b"m3", b"end"])


async def make_ephemeral(cluster, channel):
    async with Direct(cluster.url, cluster_id=cluster.cluster_id, timeout_s=60) as direct:
        await direct.admin.set_policy(channel, DeliveryPolicy(commit=EPHEMERAL))


def test_subscriptions_to_an_ephemeral_channel_outlive_its_leader(connect, cluster, name):
    """Its messages do not; who has published meanwhile is told to do so again."""
    asyncio.run(make_ephemeral(cluster, name))
    subscriber, worker, publisher = connect(server=cluster), connect(server=cluster), connect(server=cluster)
    subscriber.subscribe("plain", name)
    worker.subscribe("group", name, queue="q")
    publisher.publish_and_wait(name, *numbered("m", 100))
    subscriber.messages("plain", 100)
    worker.messages("group", 100)

    cluster.kill9(cluster.leader_of(name))
    for data in numbered("again", 20):
        publisher.publish(name, data)
        (event,) = publisher.wait("acked", 1, data=data.hex())
        if not event["error"]:
            break
        assert "publish again" in event["error"] or "timeout" in event["error"]

    for client, sub in ((subscriber, "plain"), (worker, "group")):
        client.wait("message", 1, sub=sub, data=data.hex())
        first = [message for message in client.seen("message", sub=sub) if not message["redelivered"]]
        assert payloads(first) == [*numbered("m", 100), data]
        assert not client.seen("connection_lost")

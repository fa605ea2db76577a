"""How many Python functions are called for one message: a budget that no clock and no other process changes.

Counted on the real driver, gateway, broker, Raft and log, beside simulated NATS, disk and time. What a node does by itself
meanwhile (ticks, heartbeats) is measured without messages and taken off. A change may make a count smaller, and should lower the
budget then; a count that grows by more than a twentieth fails.
"""

import gc
import random
import re
import sys
from collections import Counter

import pytest
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan.core.base.ready import Delivery
from stan.edge.tracing.message_traces import MessageTraces
from stan.edge.tracing.traced_driver import TracedDriver
from stan.testing import loop
from stan.testing.nats import SimMessage
from tests.sim.clients import START, SimClient
from tests.sim.cluster_node import SimulatedNode
from tests.sim.test_cluster_faults import calm_world
from tests.sim.world import World

BUDGET = {
    "publish, alone": 76,
    "publish, leader": 227,  # five of them keep a fault, and answers whose lease has lapsed, in their group
    "publish, both followers": 178,  # together: which of them is waited for differs from seed to seed
    "replayed batch, alone": 31,
}
"""Calls for one synchronous publish, or for one delivered batch of replay with its acks."""
GROWTH = 1.05
SIMULATION = re.compile("/tests/|/stan/testing/")
TRACED = 1.05  # what comes once in seconds falls into one of the two windows
MESSAGES = 100


class Caller(SimClient):
    """A client that publishes one message at a time, or subscribes from the first message on and acks all it gets at once."""

    def on_connected(self):
        self.acked = 0
        self.received = []
        self.inbox = f"_INBOX.acks.{self.conn_id}"
        self.port.listen(self.inbox, self._acked)

    def _acked(self, payload, _reply):
        assert not wire.PubAck.FromString(payload).error
        self.acked += 1

    def publish(self, channel):
        message = wire.PubMsg(
            client_id=self.client_id.encode(),
            guid=b"%022d" % self.acked,
            subject=channel.encode(),
            data=b"x" * 128,
            conn_id=self.conn_id.encode(),
        )
        self.port.publish(f"_STAN.pub.test-cluster.{channel}", message.SerializeToString(), self.inbox)

    def publish_and_wait(self, channel):
        before = self.acked
        self.publish(channel)
        while self.acked == before:
            self.loop.run_until(self.loop.now + SECOND // 10_000)


class Calls:
    """Counts calls of functions outside of the tests and the simulation, by the node that makes them. Of `random` none: the
    simulation draws from it how long a turn, a sync or a frame takes, and a node only when it waits for a leader."""

    def __init__(self):
        self.by_node = Counter()
        self.node = None

    def _note(self, frame, event, _argument):
        if event == "call" and self.node is not None and frame.f_back is not None:
            places = (
                frame.f_code.co_filename,
                frame.f_back.f_code.co_filename,
            )  # a NamedTuple is made by a function of no file
            self.by_node[self.node] += not any(SIMULATION.search(place) or place == random.__file__ for place in places)

    def __enter__(self):
        self.by_node.clear()
        gc.disable()  # libraries of the tests have Python functions called when it runs
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        gc.enable()

    def of(self, world, work):
        """The calls by node while *work* is done, without those of as long a time at rest."""
        with self:
            began = world.loop.now
            work()
        busy, length = dict(self.by_node), world.loop.now - began
        with self:
            world.loop.run_until(world.loop.now + length)
        return {node: count - self.by_node[node] for node, count in busy.items()}


@pytest.fixture
def calls(monkeypatch):
    """Knows which node of a cluster runs."""
    counted = Calls()
    run = SimulatedNode.run

    def noted(node, call, *args):
        counted.node, before = node.name, counted.node
        try:
            run(node, call, *args)
        finally:
            counted.node = before

    monkeypatch.setattr(SimulatedNode, "run", noted)
    return counted


@pytest.fixture
def alone(calls, monkeypatch):
    """A server alone, with one group of channels, whose syncs are quick."""
    monkeypatch.setattr(loop, "QUICK_SYNCS", 2)
    world = World(1)
    world.groups = 1
    world.boot()
    world.node._flush = world.node._flush_soon
    calls.node = "alone"
    return world


def caller(world, name="caller"):
    client = Caller(world, name)
    world.add(client)
    client.start()
    world.loop.run_until(world.loop.now + SECOND)
    client.publish_and_wait("a")
    return client


def within(kind, count):
    assert count <= BUDGET[kind] * GROWTH, f"{kind}: {count:.0f} calls, the budget is {BUDGET[kind]}"
    print(f"{kind}: {count:.1f} calls, the budget is {BUDGET[kind]}")


def test_publish_alone(alone, calls):
    client = caller(alone)
    counts = calls.of(alone, lambda: [client.publish_and_wait("a") for _ in range(MESSAGES)])
    within("publish, alone", counts["alone"] / MESSAGES)


def test_publish_in_a_cluster(calls):
    world = calm_world(lambda world: len(world.names) == 3)
    world.make_clients = lambda **_: None
    world.begin()
    world.run_for(10)
    client = caller(world)
    counts = calls.of(world, lambda: [client.publish_and_wait("a") for _ in range(MESSAGES)])
    leader = world.leader(world.history.group_of["a"]).name
    within("publish, leader", counts.pop(leader) / MESSAGES)
    within("publish, both followers", sum(counts.values()) / MESSAGES)


def test_replay_alone(alone, calls):
    client = caller(alone)
    for _ in range(40):
        for _ in range(100):
            client.publish("a")
        alone.loop.run_until(alone.loop.now + SECOND // 10)
    stored = client.acked
    batches = []
    send = alone.node.gateway.send

    def count_batches(sends, silent):
        batches.extend(one for one in sends if isinstance(one, Delivery))
        return send(sends, silent)

    alone.node.gateway.send = count_batches
    reader = caller(alone, "reader")
    got, acks = [], []

    def answer(payload):
        response = wire.SubscriptionResponse.FromString(payload)
        assert not response.error
        reader.ack_inbox = response.ack_inbox.decode()

    def message(payload, _reply):
        sequence = wire.MsgProto.FromString(payload).sequence
        got.append(sequence)
        acks.append(wire.Ack(subject=b"a", sequence=sequence).SerializeToString())

    def replay():
        reader.port.listen("_INBOX.replay", message)
        request = wire.SubscriptionRequest(
            client_id=b"reader",
            subject=b"a",
            inbox=b"_INBOX.replay",
            max_in_flight=200,
            ack_wait_s=30,
            start_position=START["first"],
        )
        reader.request("_STAN.sub.test-cluster", request, answer, None)
        while len(got) < stored:
            alone.loop.run_until(alone.loop.now + SECOND // 500)
            reader.port.send([SimMessage(reader.ack_inbox, "", ack) for ack in acks])
            acks.clear()

    batches.clear()
    counts = calls.of(alone, replay)
    assert got == sorted(got)
    within("replayed batch, alone", counts["alone"] / len(batches))


def traced(driver):
    """Have a driver trace one in a thousand messages."""
    driver.__class__ = TracedDriver
    driver.traces = MessageTraces(driver.broker.view, 1000, lambda _span: None)


def test_traces_of_one_message_in_a_thousand_cost_few_calls(calls):
    """Of the leader in a cluster; calls, as those of tracing are shorter than most."""
    world = calm_world(lambda world: len(world.names) == 3)
    world.make_clients = lambda **_: None
    world.begin()
    world.run_for(10)
    client = caller(world)
    leader = world.leader(world.history.group_of["a"])

    def publish():
        for _ in range(3 * MESSAGES):
            client.publish_and_wait("a")

    without = calls.of(world, publish)[leader.name]
    traced(leader.driver)
    traces = calls.of(world, publish)[leader.name]
    assert world.leader(world.history.group_of["a"]) is leader
    print(f"{without} calls of the leader, {traces} with traces of one in a thousand")
    assert without < traces <= without * TRACED

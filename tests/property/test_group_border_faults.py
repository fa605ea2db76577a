"""Whichever call of the core fails for a group, this group freezes alone: the other groups and the metadata go on to answer."""

from dataclasses import replace
from functools import cache

import pytest
from stan_protocol.commits import commit_request
from stan_protocol.patterns import ChannelLimits
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as ext
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan.config import HeartbeatConfig, StoreConfig, StoreLimits
from stan.policies import PolicyRule
from tests.kit.batches import rows_of
from tests.kit.core_harness import CLUSTERED, pub_frame
from tests.kit.everywhere import Everywhere
from tests.kit.injected_faults import Injector

SICK, WELL, THIRD = 5, 3, 6
SHARES = 4
SIDES = {"sick": SICK, "well": WELL}
X = "_STAN.x.test-cluster"
CONFIG = replace(
    CLUSTERED,
    store=StoreConfig(raft_groups=7),
    limits=StoreLimits(default=ChannelLimits(msgs=20, age_ns=60 * SECOND)),
    heartbeat=HeartbeatConfig(interval_ns=3 * SECOND, timeout_ns=SECOND, fail_count=1),
    policies=(
        PolicyRule(pattern="sick.delayed", delay=2 * SECOND, target="sick.a"),
        PolicyRule(pattern="well.delayed", delay=2 * SECOND, target="well.a"),
        PolicyRule(pattern="*.letters", max_deliver=1, dead_letter=".dlq"),
        PolicyRule(pattern="*.keyed", compact=1, min_age=SECOND),
    ),
)


def begun():
    """A node that leads all groups, with the same channels in two of them."""
    node = Everywhere(config=CONFIG)
    node.faults = {}
    node.lead(*range(8))
    node.connect("me", conn_id="conn-me")
    for side, group in SIDES.items():
        for name in ("a", "delayed", "letters", "keyed", "moved", "gone"):
            node.feed_channel(f"{side}.{name}", group)
    return node


def said_by_clients(node, side):
    channel = f"{side}.a".encode()
    durable = node.subscribe(f"{side}.a", f"{side}.dur", durable="d", in_flight=3, wait=2)
    queue = node.subscribe(f"{side}.a", f"{side}.queue", queue="q", durable="d", in_flight=3, wait=2)
    plain = node.subscribe(f"{side}.a", f"{side}.plain", wait=2)
    node.publish(f"{side}.a", b"1", b"2", b"3")
    for sub in filter(None, (durable, queue, plain)):
        node.ack(sub.ack_inbox, 1, channel=channel)
        node.say(sub.ack_inbox, 2, wire.NAK, channel=channel)
        node.say(sub.ack_inbox, 3, wire.WORKING, channel=channel)
    node.publish(f"{side}.a", b"4")
    node.publish(f"{side}.new", b"1")
    node.pass_time(3)
    if plain is not None:
        node.leave(f"{side}.a", plain.ack_inbox)
    if durable is not None:
        node.leave(f"{side}.a", durable.ack_inbox, unsubscribe=True)


def said_by_pipelines(node, side):
    rows = rows_of([b"a", b"b"])
    stage = ext.StageRequest(app=b"app", txn=b"t", channel=f"{side}.a".encode(), count=2, rows=rows)
    node.ask(f"{X}.stage", stage, ext.StageResponse)
    commit = commit_request(b"app", 0, {stage.channel: [(b"t", 1)]})
    node.ask(f"{X}.commit", commit, ext.CommitResponse)
    node.ask(f"{X}.last_committed", ext.LastCommittedRequest(app=b"app"), ext.LastCommittedResponse)
    batch = ext.BatchRequest(channel=stage.channel, count=2, rows=rows)
    node.ask(f"{X}.batch", batch, ext.BatchResponse)


def with_times(node, side):
    node.publish(f"{side}.delayed", b"later")
    now = node.wall
    name, times = f"{side}.a", {"deliver_at": now + SECOND, "ttl": 3 * SECOND}
    node.hears(
        pub_frame(name, b"deferred" + side.encode(), b"d", **times), pub_frame(name, b"ttl" + side.encode(), ttl=SECOND)
    )
    letters = node.subscribe(f"{side}.letters", f"{side}.l", durable="d")
    node.publish(f"{side}.letters", b"1", b"2")
    for sequence in (1, 2):
        if letters is not None:
            node.say(letters.ack_inbox, sequence, wire.NAK, channel=f"{side}.letters".encode())
    node.publish(f"{side}.keyed", b"1", b"2")
    node.pass_time(4)


def asked_by_operators(node, side):
    channel = f"{side}.a".encode()
    for kind, request, answer in (
        ("channels", admin.ChannelsRequest(version=1), admin.ChannelsResponse),
        ("subscriptions", admin.SubscriptionsRequest(version=1), admin.SubscriptionsResponse),
        (
            "edit_limits",
            admin.EditLimitsRequest(version=1, channel=channel, limits=admin.Limits(max_msgs=10)),
            admin.ChangeResponse,
        ),
        ("purge", admin.PurgeRequest(version=1, channel=channel, keep=1), admin.ChangeResponse),
        (
            "delete_channel",
            admin.DeleteChannelRequest(version=1, channel=f"{side}.gone".encode()),
            admin.ChangeResponse,
        ),
        (
            "redrive",
            admin.RedriveRequest(version=1, channel=f"{side}.letters.dlq".encode(), runs=[1, 1]),
            admin.ChangeResponse,
        ),
    ):
        node.ask(f"{X}.admin.{kind}", request, answer)
    node.pass_time(1)


def lived(node):
    """Whatever clients, operators, other nodes and time do, in both groups."""
    for side in SIDES:
        said_by_clients(node, side)
        said_by_pipelines(node, side)
        with_times(node, side)
        asked_by_operators(node, side)
    node.broker.step_disconnected()
    node.broker.step_reconnected(SECOND)
    node.broker.reconfigure(replace(CONFIG, limits=StoreLimits(default=ChannelLimits(msgs=5, age_ns=SECOND))))
    node.pass_time(12)
    for side, group in SIDES.items():
        pin = admin.PinChannelRequest(version=1, channel=f"{side}.moved".encode(), group=THIRD)
        node.ask(f"{X}.admin.pin_channel", pin, admin.ChangeResponse)
        node.pass_time(10)
        if group not in node.faults:
            node.follow(group)
            node.publish(f"{side}.a", b"for the next leader")
            node.lead(group)
    node.connect("other", conn_id="conn-other", alive=False)
    for side in SIDES:
        node.subscribe(f"{side}.a", f"{side}.other", client_id="other")
    node.pass_time(15)
    node.close("me")


def goes_on(node):
    """The other groups and the metadata answer: a client connects, publishes into an old channel and a new one, gets messages and
    acks them."""
    node.hear()
    assert node.connect("late", conn_id="conn-late").error == b""
    sub = node.subscribe("well.a", "late.inbox", client_id="late", start=0)
    assert sub.error == b""
    assert node.publish("well.a", b"still here", client_id="late") == [""]
    ((sequence, _),) = node.received("late.inbox")
    node.ack(sub.ack_inbox, sequence, channel=b"well.a")
    here = [live for live in node.state.live_positions(WELL, b"well.a") if live.client_id == b"late"]
    assert here
    assert not any(live.window for live in here)
    assert node.publish("well.newest", b"1", client_id="late") == [""]


@cache
def calls():
    """The calls of a run without faults."""
    node = begun()
    with Injector(SICK) as injector:
        lived(node)
    assert node.faults == {}
    goes_on(node)
    return [*injector.calls]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", range(SHARES))
def test_a_call_that_fails_freezes_its_group_alone(share):
    """Every call is tried; some of them in each test, as they take a minute or two."""
    for call in calls()[share::SHARES]:
        node = begun()
        with Injector(SICK, call) as injector:
            lived(node)
        assert injector.failed, call
        assert node.faults.keys() <= {SICK}, call
        assert node.faults or any("failed" in text for _, text in node.notes), (
            f"{call}: an operator's request alone, or the group"
        )
        goes_on(node)

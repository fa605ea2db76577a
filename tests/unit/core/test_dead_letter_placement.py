"""In which group a dead letter channel is, who takes what is published there, and who may put its messages back."""

from dataclasses import replace

import pytest
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import CHANNEL_ELSEWHERE, IN_ANOTHER_GROUP

from stan.config import ChannelLimits, Config
from stan.permissions import NatsUser, Permissions
from stan.protocol.placement import channel_group
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import CLUSTERED, CoreHarness, Node
from tests.unit.core.test_core_authorization import Guarded, rule
from tests.unit.core.test_core_dead_letters import messages

GROUPS = 4
MANY = replace(CLUSTERED, store=replace(CLUSTERED.store, raft_groups=GROUPS))
HOME = channel_group(b"foo", GROUPS)
OTHER = next(f"failed{n}" for n in range(99) if channel_group(b"failed%d" % n, GROUPS) != HOME)
THERE = channel_group(OTHER.encode(), GROUPS)


@pytest.fixture
def node():
    made = Node(config=MANY)
    made.feed_client()
    made.feed_channel("foo", HOME)
    return made


def set_policy(node, dead_letter):
    policy = pb.Policy(pattern=b"foo", max_deliver=1, dead_letter=dead_letter)
    node.feed_meta(set_policy=policy)


def wish(node):
    """The channels that this node asks the leader of the metadata to make: (name, group)."""
    asked = [pb.MetaChange.FromString(said.payload) for said in node.hear("_STAN.node.test-cluster.meta")]
    rows = [row for change in asked for row in change.create_channels.channels]
    return sorted({(row.name.decode(), row.group) for row in rows})


def reject_one(node):
    node.set_policy(dead_letter=OTHER, max_deliver=1)
    node.lead(HOME)
    node.subscribe("foo", durable="dur")
    node.meta_says(len(node.logs[0]))
    sub = node.answer(f"reply.{node.inboxes}", wire.SubscriptionResponse)
    node.publish("foo", b"a")
    node.say(sub.ack_inbox, 1, wire.REJECT)
    return sub


def test_a_channel_called_after_its_source_is_at_home_where_that_is(node):
    assert channel_group(b"foo.dlq", GROUPS) != HOME, "else this test shows nothing"
    assert node.broker.view.group_number(b"foo.dlq") != HOME
    set_policy(node, b".dlq")

    assert node.broker.view.group_number(b"foo.dlq") == HOME
    assert node.broker.view.group_number(b"bar.dlq") == channel_group(b"bar.dlq", GROUPS), "the policy is not for bar"


def test_who_publishes_there_first_makes_it_in_that_group(node):
    node.lead(HOME)
    assert node.publish("foo.dlq", b"before") == [], "another node's, and remembered so"
    set_policy(node, b".dlq")

    node.publish("foo.dlq", b"x")

    assert wish(node) == [("foo.dlq", HOME)]
    node.feed_channel("foo.dlq", HOME)
    node.turn()
    assert node.pub_acks() == [""]
    assert node.stored("foo.dlq", HOME) == [b"x"]


def test_a_channel_of_any_name_is_made_in_the_group_of_its_source(node):
    reject_one(node)

    assert wish(node) == [(OTHER, HOME)]
    node.feed_channel(OTHER, HOME)
    node.turn()

    assert node.stored(OTHER, HOME) == [b"a"]
    assert node.publish(OTHER, b"by a client") == [""]
    assert node.stored(OTHER, HOME) == [b"a", b"by a client"]


def test_who_has_led_the_other_group_takes_no_publish_any_more(node):
    node.lead(THERE)
    node.publish(OTHER, b"x")  # it would be made there
    assert wish(node) == [(OTHER, THERE)]

    node.feed_channel(OTHER, HOME)
    node.turn()
    assert node.publish(OTHER, b"y") == []

    assert not node.broker.parts.channels.openings.pending
    assert not node.logs[THERE]


def test_a_channel_of_another_group_keeps_the_messages_where_they_are(node):
    node.feed_channel(OTHER, THERE)
    reject_one(node)
    node.pass_time(25)

    (event,) = [one for one in node.events if one.kind == "dead_letters_fault"]
    assert event.text.endswith(f'"{OTHER}" cannot be had: {IN_ANOTHER_GROUP.format(THERE, HOME)}')
    live = node.state.live_position(HOME)
    assert len(live.exhausted) == 1
    uid = node.state.channels[OTHER.encode()].uid
    node.feed_meta(delete_channel=pb.DeleteChannel(uid=uid))
    node.pass_time(11)
    assert wish(node) == [(OTHER, HOME)]


def test_the_next_leader_moves_what_was_not_moved(node):
    reject_one(node)  # the channel is not made yet
    other = Node(config=MANY, policy=node.policy)
    other.feed_client()
    other.feed_channel("foo", HOME)
    for group, kind, body in node.committed:
        if group:
            other.feed(group, kind, body)
    other.feed_channel(OTHER, HOME)
    other.lead(HOME)
    other.pass_time(31)

    assert other.stored(OTHER, HOME) == [b"a"]


# --- permissions --------------------------------------------------------------------------------------------------------

USERS = tuple(NatsUser(name=name, clients=("c-*",)) for name in ("worker", "ops", "reader"))
RULES = [
    rule("worker", publish="foo", subscribe="foo", durable="foo"),
    rule("ops", publish="foo", admin_write="foo.dlq"),
    rule("reader", subscribe="foo", admin_write="foo.dlq"),
]


@pytest.fixture
def guarded():
    harness = Guarded(config=Config(permissions=Permissions(RULES, USERS)))
    harness.set_policy(max_deliver=1, dead_letter=".dlq")
    harness.as_user("worker").connect("c-1")
    sub = harness.subscribe("foo", client_id="c-1", durable="dur")
    harness.publish("foo", b"a", client_id="c-1", conn_id=harness.state.clients[b"c-1"].conn_id.decode())
    payload = wire.Ack(subject=b"foo", sequence=1, kind=wire.REJECT).SerializeToString()
    said = sub.ack_inbox
    harness.broker.frames.step_verdicts(
        harness._scan([b"MSG %b 2 %d\r\n%b\r\n" % (said, len(payload), payload)]).verdicts
    )
    harness.turn()
    return harness


def redrive(harness, user, **more):
    asked = admin.RedriveRequest(version=1, channel=b"foo.dlq", runs=[1, 1], **more)
    return harness.as_user(user).ask("_STAN.x.test-cluster.admin.redrive", asked, admin.ChangeResponse)


def test_who_may_not_publish_may_not_put_back(guarded):
    assert len(messages(guarded)) == 1, "the broker itself needs no right"
    assert redrive(guarded, "worker").error == b'stan: no permission to change "foo.dlq"'
    assert redrive(guarded, "reader").error == b'stan: no permission to publish to "foo"'
    assert redrive(guarded, "ops", to=b"bar").error == b'stan: no permission to publish to "bar"'
    assert len(messages(guarded)) == 1
    assert redrive(guarded, "ops").changed == 1
    assert messages(guarded) == []


def test_who_may_read_the_source_may_not_read_its_dead_letters(guarded):
    guarded.as_user("worker")
    assert b"foo.dlq" in guarded.subscribe("foo.dlq", client_id="c-1", durable="dur").error


# --- partitions ---------------------------------------------------------------------------------------------------------


def test_a_channel_of_another_partition_is_not_made_here():
    mine = replace(Config().limits, per_channel={"foo": ChannelLimits()})
    harness = CoreHarness(config=Config(partitioning=True, limits=mine))
    harness.connect()
    harness.set_policy(max_deliver=1, dead_letter=".dlq")
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"a")

    harness.say(sub.ack_inbox, 1, wire.REJECT)

    (event,) = [one for one in harness.events if one.kind == "dead_letters_fault"]
    assert event.text.endswith(f'"foo.dlq" cannot be had: {CHANNEL_ELSEWHERE}')
    assert b"foo.dlq" not in harness.state.channels

"""Channels that are pinned to a group: the state machine, the requests, and where a pinned channel is made."""

from dataclasses import replace

import pytest
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.refusals import PINNED_TOO_LATE, PLACED_WITH_ANOTHER, UNKNOWN_GROUP

from stan import limits
from stan.core.metadata.cluster_info import TOO_MANY_PINS
from stan.protocol.placement import channel_group
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import CLUSTERED, Node

PREFIX = "_STAN.x.test-cluster.admin"
GROUPS = 4
MANY = replace(CLUSTERED, store=replace(CLUSTERED.store, raft_groups=GROUPS))
HOME = channel_group(b"foo", GROUPS)
THERE = HOME % GROUPS + 1


@pytest.fixture
def node():
    made = Node(config=MANY)
    made.feed_client()
    return made


def ask(node, channel, group):
    request = admin.PinChannelRequest(version=1, channel=channel, group=group)
    answer = node.ask(f"{PREFIX}.pin_channel", request, admin.ChangeResponse)
    return answer and (answer.error.decode(), answer.changed)


def pins(node, **asked):
    answer = node.ask(f"{PREFIX}.pins", admin.PinsRequest(version=1, **asked), admin.PinsResponse)
    return [(one.channel, one.group, one.exists) for one in answer.pins], answer.more


def wish(node):
    """The channels that this node asks the leader of the metadata to make: (name, group)."""
    asked = [pb.MetaChange.FromString(said.payload) for said in node.hear("_STAN.node.test-cluster.meta")]
    return sorted({(row.name.decode(), row.group) for change in asked for row in change.create_channels.channels})


def test_a_pinned_channel_is_made_in_that_group(node) -> None:
    view = node.broker.view
    assert view.group_number(b"foo") == HOME
    looked_again = []
    node.broker.view.scope.follow(lambda: looked_again.append(view.group_number(b"foo")), lambda: None)
    node.feed_meta(pin_channel=pb.Pin(channel=b"foo", group=THERE))
    assert view.group_number(b"foo") == THERE
    assert looked_again == [THERE]
    node.lead(HOME)
    assert node.publish("foo", b"x") == []
    assert wish(node) == []
    node.lead(THERE)  # takes what it has heard before
    node.turn()
    assert wish(node) == [("foo", THERE)]
    node.feed_channel("foo", THERE)
    node.turn()
    assert node.stored("foo", THERE) == [b"x"]
    node.feed_meta(pin_channel=pb.Pin(channel=b"foo"))
    assert view.group_number(b"foo") == THERE, "it stays where it is"
    node.feed_meta(delete_channel=pb.DeleteChannel(uid=node.state.channels[b"foo"].uid))
    assert view.group_number(b"foo") == HOME


def test_who_has_not_heard_of_the_pin_makes_the_channel_there_all_the_same(node) -> None:
    node.lead(HOME)
    node.publish("foo", b"x")
    assert wish(node) == [("foo", HOME)]
    node.feed_meta(pin_channel=pb.Pin(channel=b"foo", group=THERE))
    node.feed_meta(create_channels=pb.CreateChannels(channels=[pb.Channel(name=b"foo", group=HOME)]))
    assert node.state.channels[b"foo"].group == THERE
    assert not node.broker.parts.channels.openings.pending


def test_a_channel_that_belongs_to_another_is_with_that_one_although_its_name_is_pinned(node) -> None:
    node.feed_meta(pin_channel=pb.Pin(channel=b"foo.dlq", group=THERE))
    node.feed_channel("foo", HOME)
    node.feed_meta(set_policy=pb.Policy(pattern=b"foo", max_deliver=1, dead_letter=b".dlq"))
    assert node.broker.view.group_number(b"foo.dlq") == HOME
    row = pb.Channel(name=b"foo.dlq", group=HOME)
    node.feed_meta(create_channels=pb.CreateChannels(channels=[row], exact=True))
    assert node.state.channels[b"foo.dlq"].group == HOME


@pytest.mark.parametrize("known", [True, False], ids=["waits for its channel", "waits for the metadata"])
def test_what_waits_while_its_channel_is_pinned_is_stored_once(node, known) -> None:
    """The node leads the group of the channel's name, and then that of the pin, too, and hears once more what came before."""
    node.lead(HOME)
    node.publish("foo", b"x", client_id="me" if known else "later")
    node.feed_meta(pin_channel=pb.Pin(channel=b"foo", group=THERE))
    node.lead(THERE)
    if not known:
        node.feed_client("later")
    for _ in range(2):
        node.turn()
        node.meta_says(len(node.logs[0]))
    node.feed_channel("foo", THERE)
    node.turn()
    assert node.broker.parts.channels.by_name[b"foo"].next_sequence == 2
    assert not any(node.broker.parts.filters.waiting.bytes.values())


@pytest.mark.parametrize("known", [True, False], ids=["waits for its channel", "waits for the metadata"])
@pytest.mark.parametrize("stored", [1, 0], ids=["in the log", "in no log"])
def test_what_waits_for_a_channel_that_is_elsewhere_is_not_stored_twice(node, known, stored) -> None:
    """The node leads the group of the channel, whose log has what was published, and knows nothing of the channel yet."""
    name = "me" if known else "later"
    other = Node(config=MANY)
    other.now, other.wall = node.now, node.wall
    other.feed_client(name)
    other.feed_channel("foo", THERE)
    other.lead(THERE)
    other.publish("foo", *([b"x"] * stored), client_id=name)
    for _, kind, body in other.logs[THERE]:
        node.feed(THERE, kind, body)
    node.lead(HOME, THERE)
    node.publish("foo", b"x", b"y", client_id=name)
    if not known:
        node.feed_client("later")
    node.feed_channel("foo", THERE)
    for _ in range(2):
        node.turn()
        node.meta_says(len(node.logs[0]))
    assert node.broker.parts.channels.by_name[b"foo"].next_sequence == 3
    assert node.pub_acks() == ["", ""]
    assert not any(node.broker.parts.filters.waiting.bytes.values())


def test_what_belongs_to_a_pinned_channel_follows_it_before_that_is_made(node) -> None:
    node.feed_meta(set_policy=pb.Policy(pattern=b"foo", max_deliver=1, dead_letter=b".dlq"))
    node.feed_meta(pin_channel=pb.Pin(channel=b"foo", group=THERE))
    assert node.broker.view.group_number(b"foo.dlq") == THERE


def test_requests_pin_list_and_unpin(node) -> None:
    node.lead(0)
    assert ask(node, b"foo", THERE) == ("", 1)
    assert ask(node, b"foo", THERE) == ("", 0)
    assert ask(node, b"bar", 1) == ("", 1)
    assert pins(node) == ([(b"bar", 1, False), (b"foo", THERE, False)], False)
    assert pins(node, max=1) == ([(b"bar", 1, False)], True)
    assert pins(node, after=b"bar") == ([(b"foo", THERE, False)], False)
    assert ask(node, b"foo", 0) == ("", 1)
    assert ask(node, b"foo", 0) == ("", 0)
    assert pins(node)[0] == [(b"bar", 1, False)]


def test_what_cannot_be_pinned_is_refused(node) -> None:
    node.lead(0)
    node.feed_channel("foo", HOME)
    pin = pb.MetaChange(pin_channel=pb.Pin(channel=b"foo", group=THERE))
    assert node.follower(0).apply(pin, 9).error == PINNED_TOO_LATE.format(HOME), "by itself it moves nothing"
    assert ask(node, b"foo", HOME) == ("", 1)
    assert pins(node) == ([(b"foo", HOME, True)], False)
    assert ask(node, b"bar", GROUPS + 1) == (
        f"{UNKNOWN_GROUP.format(GROUPS + 1)}: groups of channels are 1 to {GROUPS}",
        0,
    )
    for name in (b"", b"a.*", b"a..b"):
        assert ask(node, name, 1)[0]
    node.feed_meta(set_policy=pb.Policy(pattern=b"foo", max_deliver=1, dead_letter=b".dlq"))
    assert ask(node, b"foo.dlq", 1) == (PLACED_WITH_ANOTHER.format('"foo.dlq"', '"foo"'), 0)
    node.follow(0)
    assert ask(node, b"bar", 1) is None


def test_no_pin_too_many(monkeypatch, node) -> None:
    node.lead(0)
    monkeypatch.setattr("stan.core.metadata.cluster_info.PINS_MAX", 1)
    assert ask(node, b"foo", 1) == ("", 1)
    assert ask(node, b"foo", 2) == ("", 1), "in place of the one that is there"
    assert ask(node, b"bar", 2) == (TOO_MANY_PINS, 0)
    assert limits.PINS_MAX == 1000


def test_pins_outlive_a_restart_and_a_transfer(node) -> None:
    for name, group in ((b"foo", 2), (b"bar", 3)):
        node.feed_meta(pin_channel=pb.Pin(channel=name, group=group))
    meta, again = node.follower(0), node.state.copy_of_meta()
    assert again.pins == meta.pins == {b"bar": 3, b"foo": 2}
    assert [row.channel for row in meta.take_changed_rows().info.pins] == [b"bar", b"foo"]

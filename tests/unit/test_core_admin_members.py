"""What operators change about clients and nodes at the core, and the events that tell what happens."""

import pytest

from stan import errors, limits
from stan.config import ClusterConfig, Config, StoreConfig
from stan.protocol.proto import admin_pb2 as pb
from tests.kit.desk import Desk, Node

PREFIX = "_STAN.x.test-cluster.admin"


def change(desk, kind, request):
    return desk.ask(f"{PREFIX}.{kind}", request, pb.ChangeResponse)


def told(desk, *kinds):
    """(kind, text) of the events since the last call; of these kinds, if any are named."""
    events, desk.events = desk.events, []
    return [(event.kind, event.text) for event in events if not kinds or event.kind in kinds]


@pytest.fixture
def desk():
    desk = Desk()
    desk.connect()
    return desk


@pytest.fixture
def node():
    cluster = ClusterConfig(node_id="n1", peers=("n2", "n3"))
    node = Node(config=Config(cluster=cluster, store=StoreConfig(raft_groups=2)))
    node.broker.nodes.founders = ("n1", "n2", "n3")
    node.lead(0)
    return node


# --- clients ------------------------------------------------------------------------------------------------------------


def test_evicted_client_is_gone_with_its_subscriptions(desk) -> None:
    desk.subscribe("foo", "in", durable="d")
    response = change(desk, "evict_client", pb.EvictClientRequest(version=1, client_id=b"me"))
    assert (response.error, response.changed) == (b"", 1)
    assert b"me" not in desk.broker.context.meta.clients
    (cursor,) = desk.broker.context.groups[1].machine.cursors.values()
    assert not cursor.members  # the durable stays
    assert desk.publish("foo", b"1") == [errors.INVALID_PUBLISH]
    again = change(desk, "evict_client", pb.EvictClientRequest(client_id=b"me"))
    assert (again.error, again.changed) == (b"", 0)


def test_client_that_cannot_be_put_out_now_may_be_later(desk) -> None:
    desk.full = True
    response = change(desk, "evict_client", pb.EvictClientRequest(client_id=b"me"))
    assert (bool(response.error), response.retry) == (True, True)


def test_unknown_version_and_garbage_are_refused(desk) -> None:
    assert change(desk, "evict_client", pb.EvictClientRequest(version=9)).error.decode() == errors.UNKNOWN_VERSION
    assert change(desk, "evict_client", b"\xff").error.decode() == errors.INVALID_ADMIN


# --- nodes --------------------------------------------------------------------------------------------------------------


def test_node_alone_has_no_nodes_to_change(desk) -> None:
    for kind in ("add_node", "remove_node"):
        assert change(desk, kind, pb.NodeRequest(node="n2")).error.decode() == errors.ALONE


def ask_node(node, kind, name):
    """Extensions are taken by the gateway under numbers of their own."""
    subject = f"{PREFIX}.{kind}"
    sid = {name: number for number, name in node.gateway.subscriptions.items()}[subject]
    payload = pb.NodeRequest(version=1, node=name).SerializeToString()
    node.hears(b"MSG %b %d answer %d\r\n%b\r\n" % (subject.encode(), sid, len(payload), payload))
    return node.answer("answer", pb.ChangeResponse)


def test_nodes_are_added_and_removed(node) -> None:
    assert ask_node(node, "add_node", "n4").changed == 1
    assert list(node.broker.context.meta.nodes.names) == ["n1", "n2", "n3", "n4"]
    assert ask_node(node, "add_node", "n4").changed == 0
    assert ask_node(node, "remove_node", "n2").changed == 1
    assert list(node.broker.context.meta.nodes.names) == ["n1", "n3", "n4"]
    assert told(node, "node_added", "node_removed") == [
        ("node_added", "node n4 was added to the cluster"),
        ("node_removed", "node n2 was taken out of the cluster"),
    ]


def test_impossible_nodes_are_refused_and_a_change_under_way_is_waited_for(node) -> None:
    refused = ask_node(node, "add_node", "a b")
    assert (refused.error, refused.retry) == (b"stan: invalid node ID", False)
    node.broker.nodes.under_way = lambda: "group 1 moves"
    refused = ask_node(node, "add_node", "n4")
    assert (refused.error, refused.retry) == (b"stan: group 1 moves", True)


def test_followers_of_the_metadata_are_silent(node) -> None:
    node.follow(0)
    assert ask_node(node, "add_node", "n4") is None


# --- events -------------------------------------------------------------------------------------------------------------


def test_what_happens_is_told(desk) -> None:
    response = desk.subscribe("foo", "in", durable="d")
    desk.leave("foo", response.ack_inbox)
    desk.close()
    desk.broker.channels.delete(desk.broker.channels.by_name[b"foo"])
    desk.turn()
    assert told(desk) == [
        ("client_connected", 'client "me" has connected'),
        ("channel_created", 'channel "foo" was created'),
        ("subscribed", 'client "me" subscribed to channel "foo" as "d"'),
        ("unsubscribed", 'client "me" left channel "foo" as "d"'),
        ("client_closed", 'client "me" has closed'),
        ("channel_deleted", 'channel "foo" was deleted'),
    ]


def test_event_names_what_it_is_about(desk) -> None:
    desk.broker.context.events.node = "n7"
    desk.subscribe("foo", "in")
    event = desk.events[-1]
    assert (event.kind, event.node, event.time, event.channel, event.client_id) == (
        "subscribed",
        "n7",
        desk.wall,
        b"foo",
        b"me",
    )
    assert (event.group, event.cursor_id) == (1, 1)


def test_client_that_does_not_answer_is_lost(desk) -> None:
    desk.connect("dead", alive=False)
    told(desk)
    desk.pass_time(600)
    assert told(desk) == [("client_lost", 'client "dead" is gone')]


def test_changes_of_operators_are_told(desk) -> None:
    told(desk)
    change(desk, "evict_client", pb.EvictClientRequest(client_id=b"me"))
    assert told(desk) == [
        ("client_lost", 'client "me" is gone'),
        ("admin", 'an operator asked for: evict client "me", 1 changed'),
    ]


def test_more_than_the_limit_is_counted_only(desk, monkeypatch) -> None:
    monkeypatch.setattr(limits, "EVENTS_PER_SECOND_MAX", 3)
    desk.pass_time(2)
    told(desk)
    for number in range(5):
        desk.connect(f"c{number}")
    assert len(told(desk)) == 3
    desk.pass_time(1)
    desk.connect("later")
    assert told(desk) == [
        ("left_out", "2 events were left out"),
        ("client_connected", 'client "later" has connected'),
    ]


def test_replay_tells_nothing(desk) -> None:
    desk.subscribe("foo", "in", durable="d")
    told(desk)
    desk.restart()
    desk.pass_time(1)
    assert told(desk) == []


def test_who_does_not_lead_tells_nothing(node) -> None:
    node.follow(0)
    told(node)
    node.feed_client("you")
    node.feed_channel("foo", 1)
    node.feed_close("you")
    assert told(node) == []

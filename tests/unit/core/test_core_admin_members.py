"""What operators change about clients and nodes at the core, and the events that tell what happens."""

import pytest
from stan_protocol import refusals
from stan_protocol.proto import admin_pb2 as pb

from stan import level, limits
from stan.config import ClusterConfig, Config, StoreConfig
from stan.core.clients.nodes import HeardNodes
from tests.kit.core_harness import Node

PREFIX = "_STAN.x.test-cluster.admin"


def change(harness, kind, request):
    return harness.ask(f"{PREFIX}.{kind}", request, pb.ChangeResponse)


def told(harness, *kinds):
    """(kind, text) of the events since the last call; of these kinds, if any are named."""
    events, harness.events = harness.events, []
    return [(event.kind, event.text) for event in events if not kinds or event.kind in kinds]


@pytest.fixture
def node():
    cluster = ClusterConfig(node_id="n1", peers=("n2", "n3"))
    node = Node(config=Config(cluster=cluster, store=StoreConfig(raft_groups=2)))
    node.broker.parts.nodes.founders = ("n1", "n2", "n3")
    node.lead(0)
    return node


# --- clients ------------------------------------------------------------------------------------------------------------


def test_evicted_client_is_gone_with_its_subscriptions(harness) -> None:
    harness.subscribe("foo", "in", durable="d")
    response = change(harness, "evict_client", pb.EvictClientRequest(version=1, client_id=b"me"))
    assert (response.error, response.changed) == (b"", 1)
    assert b"me" not in harness.state.clients
    cursor = harness.state.position()
    assert not cursor.members  # the durable stays
    assert harness.publish("foo", b"1") == [refusals.INVALID_PUBLISH]
    again = change(harness, "evict_client", pb.EvictClientRequest(client_id=b"me"))
    assert (again.error, again.changed) == (b"", 0)


def test_client_that_cannot_be_put_out_now_may_be_later(harness) -> None:
    harness.full = True
    response = change(harness, "evict_client", pb.EvictClientRequest(client_id=b"me"))
    assert (bool(response.error), response.retry) == (True, True)


def test_unknown_version_and_garbage_are_refused(harness) -> None:
    assert change(harness, "evict_client", pb.EvictClientRequest(version=9)).error.decode() == refusals.UNKNOWN_VERSION
    assert change(harness, "evict_client", b"\xff").error.decode() == refusals.INVALID_ADMIN


# --- nodes --------------------------------------------------------------------------------------------------------------


def test_node_alone_has_no_nodes_to_change(harness) -> None:
    for kind in ("add_node", "remove_node"):
        assert change(harness, kind, pb.NodeRequest(node="n2")).error.decode() == refusals.NOT_A_CLUSTER


def ask_node(node, kind, name):
    return ask_leader(node, kind, pb.NodeRequest(version=1, node=name))


def ask_leader(node, kind, request):
    """Extensions are taken by the gateway under numbers of their own."""
    subject = f"{PREFIX}.{kind}"
    sid = {name: number for number, name in node.gateway.subscriptions.subjects.items()}[subject]
    payload = request.SerializeToString()
    node.hears(b"MSG %b %d answer %d\r\n%b\r\n" % (subject.encode(), sid, len(payload), payload))
    return node.answer("answer", pb.ChangeResponse)


def test_nodes_are_added_and_removed(node) -> None:
    assert ask_node(node, "add_node", "n4").changed == 1
    assert list(node.state.cluster.nodes.names) == ["n1", "n2", "n3", "n4"]
    assert ask_node(node, "add_node", "n4").changed == 0
    assert ask_node(node, "remove_node", "n2").changed == 1
    assert list(node.state.cluster.nodes.names) == ["n1", "n3", "n4"]
    assert told(node, "node_added", "node_removed") == [
        ("node_added", "node n4 was added to the cluster"),
        ("node_removed", "node n2 was taken out of the cluster"),
    ]


def test_impossible_nodes_are_refused_and_a_change_under_way_is_waited_for(node) -> None:
    refused = ask_node(node, "add_node", "a b")
    assert (refused.error, refused.retry) == (b"stan: nodes: invalid node ID", False)
    node.broker.parts.nodes.heard = HeardNodes(under_way=lambda: "group 1 moves")
    refused = ask_node(node, "add_node", "n4")
    assert (refused.error, refused.retry) == (b"stan: nodes: group 1 moves", True)


def test_followers_of_the_metadata_are_silent(node) -> None:
    node.follow(0)
    assert ask_node(node, "add_node", "n4") is None


# --- level --------------------------------------------------------------------------------------------------------------


FIRST, NEXT = level.KNOWN, level.KNOWN + 1


@pytest.fixture
def next_level(monkeypatch):
    """The program knows a level above that of the cluster."""
    monkeypatch.setattr(level, "KNOWN", NEXT)


def at_level(node, to=0):
    response = ask_leader(node, "raise_level", pb.RaiseLevelRequest(version=1, to=to))
    return response.error.decode(), response.retry, response.changed


@pytest.mark.usefixtures("next_level")
def test_the_level_is_raised_when_all_nodes_know_it(node) -> None:
    known = {"n1": NEXT, "n2": NEXT}
    node.broker.parts.nodes.heard = HeardNodes(levels=lambda: known)
    absent = f"stan: level: not heard, so it is not known if they know level {NEXT}: n3"
    assert at_level(node) == (absent, True, 0)
    known["n3"] = FIRST
    too_old = f"stan: level: these nodes run a version that does not know level {NEXT}: n3"
    assert at_level(node, NEXT) == (too_old, False, 0)
    assert at_level(node) == ("", False, 0)  # the highest that all know is the cluster's
    assert node.state.cluster.level == FIRST
    known["n3"] = NEXT
    assert at_level(node) == ("", False, 1)
    assert at_level(node) == ("", False, 0)
    assert node.state.cluster.level == NEXT
    assert told(node, "level_raised") == [("level_raised", f"the cluster is at level {NEXT}")]
    down = f"stan: level: the cluster is at level {NEXT}, and a level never goes down"
    assert at_level(node, FIRST) == (down, False, 0)


def test_an_unknown_level_is_refused(node) -> None:
    node.broker.parts.nodes.heard = HeardNodes(levels=lambda: dict.fromkeys(("n1", "n2", "n3"), NEXT))
    unknown = f"stan: level: level {NEXT} is not known to this version, which knows levels up to {FIRST}"
    assert at_level(node, NEXT) == (unknown, False, 0)


def test_the_level_survives_a_restart(node) -> None:
    snapshot = node.state.snapshot(0)
    assert snapshot.cluster_info.level == level.KNOWN


# --- events -------------------------------------------------------------------------------------------------------------


def test_what_happens_is_told(harness) -> None:
    response = harness.subscribe("foo", "in", durable="d")
    harness.leave("foo", response.ack_inbox)
    harness.close()
    harness.broker.parts.channels.removal.delete(harness.broker.parts.channels.by_name[b"foo"])
    harness.turn()
    assert told(harness) == [
        ("client_connected", 'client "me" has connected'),
        ("channel_created", 'channel "foo" was created'),
        ("subscribed", 'client "me" subscribed to channel "foo" as "d"'),
        ("unsubscribed", 'client "me" left channel "foo" as "d"'),
        ("client_closed", 'client "me" has closed'),
        ("channel_deleted", 'channel "foo" was deleted'),
    ]


def test_event_names_what_it_is_about(harness) -> None:
    harness.broker.cluster.join("n7", (), HeardNodes())
    harness.subscribe("foo", "in")
    event = harness.events[-1]
    assert (event.kind, event.node, event.time, event.channel, event.client_id) == (
        "subscribed",
        "n7",
        harness.wall,
        b"foo",
        b"me",
    )
    assert (event.group, event.cursor_id) == (1, 1)


def test_client_that_does_not_answer_is_lost(harness) -> None:
    harness.connect("dead", alive=False)
    told(harness)
    harness.pass_time(600)
    assert told(harness) == [("client_lost", 'client "dead" is gone')]


def test_changes_of_operators_are_told(harness) -> None:
    told(harness)
    change(harness, "evict_client", pb.EvictClientRequest(client_id=b"me"))
    assert told(harness) == [
        ("client_lost", 'client "me" is gone'),
        ("admin", 'an operator asked for: evict client "me", 1 changed'),
    ]


def test_more_than_the_limit_is_counted_only(harness, monkeypatch) -> None:
    monkeypatch.setattr(limits, "EVENTS_PER_SECOND_MAX", 3)
    harness.pass_time(2)
    told(harness)
    for number in range(5):
        harness.connect(f"c{number}")
    assert len(told(harness)) == 3
    harness.pass_time(1)
    harness.connect("later")
    assert told(harness) == [
        ("left_out", "2 events were left out"),
        ("client_connected", 'client "later" has connected'),
    ]


def test_replay_tells_nothing(harness) -> None:
    harness.subscribe("foo", "in", durable="d")
    told(harness)
    harness.restart()
    harness.pass_time(1)
    assert told(harness) == []


def test_who_does_not_lead_tells_nothing(node) -> None:
    node.follow(0)
    told(node)
    node.feed_client("you")
    node.feed_channel("foo", 1)
    node.feed_close("you")
    assert told(node) == []

"""Clients in a cluster: who answers, a close as a barrier, requests that are heard again, heartbeats that fail."""

import pytest
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import CLIENT_REGISTERED, INVALID_CLOSE, INVALID_PUBLISH, UNKNOWN_CLIENT
from stan_protocol.scalars import MILLISECOND, SECOND

from stan import limits
from stan.config import HeartbeatConfig
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import CLUSTERED, Node, pub_frame

DISCOVER, CLOSE, SUB = "_STAN.discover.test-cluster", "_STAN.close.test-cluster", "_STAN.sub.test-cluster"
PINGS = DISCOVER + ".pings"


@pytest.fixture
def node():
    made = Node()
    made.feed_channel()
    return made


def connects(node, client_id="me", conn_id="c1", reply="r"):
    inbox = f"hb.{conn_id}"
    request = wire.ConnectRequest(
        client_id=client_id.encode(), heartbeat_inbox=inbox.encode(), conn_id=conn_id.encode(), protocol=1
    )
    return node.request(DISCOVER, request, reply)


def closes(node, client_id="me", reply="r"):
    return node.request(CLOSE, wire.CloseRequest(client_id=client_id.encode()), reply)


def registered(node):
    return {client.conn_id for client in node.state.clients.values()}


def subscribed(node, **kwargs):
    """Subscribe on a node that leads the channel's group only."""
    answer = node.subscribe("foo", **kwargs)
    if answer is None:
        node.meta_says(len(node.logs[0]))
        answer = node.answer(f"reply.{node.inboxes}", wire.SubscriptionResponse)
    return answer


# --- who answers --------------------------------------------------------------------------------------------------------


def test_requests_are_left_to_the_leader_of_the_metadata(node):
    node.lead()
    node.hears(connects(node), closes(node), node.request(PINGS, wire.Ping(conn_id=b"c1"), "r"))
    node.hears(node.request(CLOSE, b"\xff\xff", "r"), node.request(DISCOVER, b"\xff\xff", "r"))
    assert node.hear("r") == []
    assert len(node.logs[0]) == 2


def test_a_leader_answers_nothing_that_it_could_not_commit(node):
    node.lead(0)
    node.hold = True
    node.hears(connects(node))
    node.follow(0)
    node.hold = False
    node.feed_client("me", "c1")
    node.pass_time(1)
    assert node.hear("r") == []
    node.lead(0)
    assert len(node.hear("r")) == 1
    assert not node.connect("you").error


def test_the_next_leader_answers_what_the_last_one_did_not(node):
    node.hears(connects(node))
    node.lead(0)
    assert not node.answer("r", wire.ConnectResponse).error
    assert registered(node) == {b"c1"}


def test_a_connect_that_is_committed_already_is_accepted_again(node):
    node.hears(connects(node))
    node.feed_meta(connect=pb.Connect(client=pb.Client(client_id=b"me", conn_id=b"c1", heartbeat_inbox=b"hb.c1")))
    node.lead(0)
    assert not node.answer("r", wire.ConnectResponse).error
    assert not node.state.connects_under_way


@pytest.mark.parametrize("committed", [False, True])
def test_a_connect_that_was_sent_again_before_there_was_a_leader_is_answered_once(node, committed):
    node.hears(connects(node), connects(node), connects(node))
    if committed:
        node.feed_meta(connect=pb.Connect(client=pb.Client(client_id=b"me", conn_id=b"c1", heartbeat_inbox=b"hb.c1")))
    node.lead(0)
    answers = node.hear("r")
    assert len(answers) == 1
    assert not wire.ConnectResponse.FromString(answers[0].payload).error
    assert registered(node) == {b"c1"}


# --- heard again ----------------------------------------------------------------------------------------------------------


def test_a_connection_that_was_opened_and_closed_is_not_opened_again(node):
    node.hears(connects(node), closes(node, reply="closed"))
    node.feed_client("me", "c1")
    node.feed_close()
    node.lead(0)
    assert registered(node) == set()
    assert not node.answer("closed", wire.CloseResponse).error


def test_who_came_back_while_there_was_no_leader_is_let_in(node):
    node.hears(connects(node, conn_id="c1", reply="r1"), closes(node, reply="r2"), connects(node, conn_id="c2"))
    node.feed_client("me", "c1")
    node.feed_close()
    node.lead(0)
    assert not node.answer("r", wire.ConnectResponse).error
    assert registered(node) == {b"c2"}


def test_a_close_before_the_connect_that_is_committed_is_not_done_again(node):
    node.hears(closes(node, reply="r1"), connects(node, conn_id="c2"))
    node.feed_client("me", "c2")
    node.lead(0)
    node.pass_time(1)
    assert registered(node) == {b"c2"}


def test_a_close_that_nobody_handled_is(node):
    node.feed_client("me", "c1")
    node.hears(closes(node))
    node.lead(0)
    assert not node.answer("r", wire.CloseResponse).error
    assert registered(node) == set()


def test_two_processes_with_one_name_are_told_apart_again(node):
    node.alive.add("hb.c1")
    node.hears(connects(node, conn_id="c1", reply="r1"), connects(node, conn_id="c2", reply="r2"))
    node.feed_meta(connect=pb.Connect(client=pb.Client(client_id=b"me", conn_id=b"c1", heartbeat_inbox=b"hb.c1")))
    node.lead(0)
    assert not node.answer("r1", wire.ConnectResponse).error
    assert node.answer("r2", wire.ConnectResponse).error == CLIENT_REGISTERED.encode()


@pytest.mark.parametrize("heartbeats", ["answered", "lost"])
def test_who_gave_up_and_asked_again_before_the_leader_failed_is_let_in(node, heartbeats):
    """The older connect is nobody's: it neither stands in the way of the one that is registered nor replaces it."""
    if heartbeats == "answered":
        node.alive.add("hb.c2")
    node.hears(connects(node, conn_id="c1", reply="r1"), connects(node, conn_id="c2", reply="r2"))
    node.feed_meta(connect=pb.Connect(client=pb.Client(client_id=b"me", conn_id=b"c2", heartbeat_inbox=b"hb.c2")))
    node.lead(0)
    node.pass_time(1)
    assert not node.answer("r2", wire.ConnectResponse).error
    assert registered(node) == {b"c2"}


@pytest.mark.parametrize("old", [False, True])
def test_who_gave_up_and_asked_again_while_there_was_no_leader_is_let_in(node, old):
    if old:
        node.feed_meta(connect=pb.Connect(client=pb.Client(client_id=b"me", conn_id=b"c0", heartbeat_inbox=b"hb.c0")))
    node.hears(*(connects(node, conn_id=f"c{n}", reply=f"r{n}") for n in (1, 2, 3)))
    node.lead(0)
    node.pass_time(1)
    assert node.answer("r1", wire.ConnectResponse).error == CLIENT_REGISTERED.encode()
    assert node.answer("r2", wire.ConnectResponse).error == CLIENT_REGISTERED.encode()
    assert not node.answer("r3", wire.ConnectResponse).error
    assert registered(node) == {b"c3"}


def test_connects_are_refused_by_nobody_but_the_leader_of_the_metadata(node):
    node.hears(connects(node, conn_id="c1", reply="r1"), connects(node, conn_id="c2", reply="r2"))
    node.lead()
    assert node.hear("r1") == []


@pytest.fixture
def registering(node):
    """Leads the metadata, and has proposed to let c1 in; c2 and c3 ask meanwhile."""
    node.lead(0)
    node.hold = True
    node.hears(*(connects(node, conn_id=f"c{n}", reply=f"r{n}") for n in (1, 2, 3)))
    return node


def test_who_asks_again_while_it_is_registered_takes_its_own_place(registering):
    registering.hold = False
    registering.turn()
    registering.pass_time(1)
    assert not registering.answer("r2", wire.ConnectResponse).error
    assert registering.answer("r3", wire.ConnectResponse).error == CLIENT_REGISTERED.encode()
    assert registered(registering) == {b"c2"}
    assert not registering.state.connects_under_way


def test_who_asks_while_another_of_that_name_is_registered_is_refused_if_that_one_is_there(registering):
    registering.alive.add("hb.c1")
    registering.hold = False
    registering.pass_time(1)
    assert not registering.answer("r1", wire.ConnectResponse).error
    assert registering.answer("r2", wire.ConnectResponse).error == CLIENT_REGISTERED.encode()
    assert registered(registering) == {b"c1"}


def test_who_waits_for_another_to_be_registered_is_left_to_the_next_leader(registering):
    registering.follow(0)
    registering.hold = False
    registering.pass_time(1)
    assert not registering.state.connects_under_way
    assert registering.hear("r1") == registering.hear("r2") == []


def test_a_close_of_somebody_unknown_is_refused_unless_it_is_heard_again(node):
    node.lead(0)
    assert node.close("nobody").error == UNKNOWN_CLIENT.encode()
    assert node.ask(CLOSE, b"\xff\xff", wire.CloseResponse).error == INVALID_CLOSE.encode()


# --- a close is a barrier -------------------------------------------------------------------------------------------------


@pytest.fixture
def leader(node):
    """Leads the channel's group, not the metadata; knows `me`."""
    node.feed_client()
    node.lead()
    return node


def test_what_was_sent_before_a_close_counts_although_the_metadata_told_of_it_first(leader):
    subscribed(leader)
    leader.feed_close()
    leader.turn()
    assert leader.publish("foo", b"last words") == [""]
    assert leader.state.subscriptions()
    leader.hears(closes(leader))
    assert not leader.state.subscriptions()
    assert leader.publish("foo", b"from the grave") == []
    leader.meta_says(len(leader.logs[0]))
    assert leader.pub_acks() == [INVALID_PUBLISH]


def test_a_close_that_was_heard_first_waits_for_nothing(leader):
    subscribed(leader)
    leader.hears(closes(leader))
    assert leader.state.subscriptions()
    leader.feed_close()
    leader.turn()
    assert not leader.state.subscriptions()
    assert not leader.state.waiting().closing_clients


def test_a_close_that_is_never_heard_is_waited_for_no_longer_than_its_patience(leader):
    subscribed(leader)
    leader.feed_close()
    leader.pass_time(limits.CLOSE_PATIENCE / SECOND)
    assert not leader.state.subscriptions()
    assert not leader.state.waiting().closing_clients


def test_a_client_that_timed_out_is_not_waited_for(leader):
    subscribed(leader)
    leader.feed_close(asked=False)
    leader.turn()
    assert not leader.state.subscriptions()


def test_acks_sent_before_the_close_count(leader):
    inbox = subscribed(leader, durable="d").ack_inbox
    leader.publish("foo", b"1", b"2")
    leader.feed_close()
    leader.ack(inbox, 1, 2)
    leader.hears(closes(leader))
    cursor = leader.state.position()
    assert not cursor.to_redeliver
    assert cursor.last_sent == 2


def test_a_durable_is_free_for_the_next_connection_at_once(leader):
    subscribed(leader, durable="d")
    leader.feed_close()
    leader.feed_client("me", "c2")
    leader.turn()
    assert not subscribed(leader, inbox="in2", durable="d").error
    assert len(leader.state.subscriptions()) == 1
    leader.pass_time(2)
    assert len(leader.state.subscriptions()) == 1


def test_a_close_heard_by_a_node_that_leads_nothing_is_forgotten(node):
    node.hears(*(closes(node, f"c{n}") for n in range(50)))
    node.pass_time(limits.REPLAY_REQUEST_AGE_MAX / SECOND + 1)
    node.hears(closes(node, "last"))
    assert set(node.broker.parts.clients.heard) == {b"last"}


@pytest.mark.parametrize("asked", [True, False])
def test_a_connection_that_ended_is_not_registered_again_when_its_connect_is_replayed(node, asked):
    """It was taken for dead: registered anew it would have no subscriptions, and its client would never hear of that, as its
    pings were answered."""
    node.hears(connects(node))
    client = pb.Client(client_id=b"me", conn_id=b"c1", heartbeat_inbox=b"hb.c1")
    node.feed_meta(connect=pb.Connect(client=client))
    node.feed_close(asked=asked)
    node.lead(0)
    node.turn()
    assert registered(node) == set()
    node.hears(connects(node, conn_id="c2"))
    assert registered(node) == {b"c2"}


def test_connections_that_ended_are_forgotten_when_their_connects_are_too_old_to_be_replayed(node):
    for number in range(50):
        node.feed_client(f"c{number}")
        node.feed_close(f"c{number}")
    node.pass_time(limits.REPLAY_REQUEST_AGE_MAX / SECOND + 1)
    node.feed_client("last")
    node.feed_close("last")
    assert len(node.broker.parts.clients.gone) == 1


# --- subscriptions of those who are gone ------------------------------------------------------------------------------------


def gone_while_nobody_led(node):
    """A subscription of a connection that the metadata no longer has is in the group's state."""
    node.lead()
    node.subscribe("foo", "in")
    node.meta_says(len(node.logs[0]))
    node.follow()
    node.feed_close(asked=False)
    node.turn()


def test_the_next_leader_closes_what_they_had_open(node):
    node.feed_client()
    gone_while_nobody_led(node)
    assert node.state.subscriptions()
    node.lead(replay=False)
    assert not node.state.subscriptions()


def test_connections_of_which_this_copy_of_the_metadata_does_not_know_yet_are_left_alone(node):
    subscribe = pb.Subscribe(uid=1, client_id=b"you", incarnation=9, inbox=b"in", max_in_flight=1, ack_wait_s=30)
    node.feed_group(subscribe=subscribe)
    node.lead()
    assert node.state.subscriptions()


def test_a_leave_that_could_not_be_written_is_tried_again_and_may_be_done_by_another_leader(node):
    node.feed_client()
    gone_while_nobody_led(node)
    node.full = True
    node.lead(replay=False)
    node.full = False
    node.follow()
    node.feed_group(leave=pb.Leave(subscription_id=2))
    node.lead(replay=False)
    node.pass_time(2)
    assert not node.state.subscriptions()
    assert not node.broker.parts.clients.closing


def test_a_close_is_answered_although_the_group_goes_to_another_leader_meanwhile(node):
    node.lead(0, 1)
    node.connect()
    node.subscribe("foo", "in")
    node.broker.stops.step_room(1, closed=True, full=False)
    node.hears(closes(node))
    assert node.hear("r") == []
    node.follow(1)
    assert len(node.hear("r")) == 1
    assert not node.broker.parts.clients.closing


# --- heartbeats -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def beating():
    config = HeartbeatConfig(interval_ns=50 * MILLISECOND, timeout_ns=10 * MILLISECOND, fail_count=5)
    made = Node(type(CLUSTERED)(cluster=CLUSTERED.cluster, store=CLUSTERED.store, heartbeat=config))
    made.feed_channel()
    made.feed_client()
    return made


def heartbeats(node):
    changes = [pb.MetaChange.FromString(body) for _, _, body in node.logs[0]]
    return [change.heartbeat.failing for change in changes if change.WhichOneof("change") == "heartbeat"]


def test_only_the_leader_of_the_metadata_asks_clients(beating):
    beating.alive.clear()
    beating.pass_time(1)
    assert beating.hear() == []
    beating.lead(0)
    beating.pass_time(1)
    assert registered(beating) == set()


def test_failing_and_recovering_is_told_once_each(beating):
    alive = set(beating.alive)
    beating.lead(0)
    beating.pass_time(0.2)
    assert heartbeats(beating) == []
    beating.alive.clear()
    beating.pass_time(0.15)
    assert heartbeats(beating) == [True]
    beating.alive |= alive
    beating.pass_time(0.2)
    assert heartbeats(beating) == [True, False]


def test_the_next_leader_corrects_what_the_last_one_saw(beating):
    me = beating.state.clients[b"me"]
    beating.feed_meta(heartbeat=pb.Heartbeat(client_id=b"me", incarnation=me.incarnation, failing=True))
    beating.lead(0)
    beating.pass_time(0.2)
    assert heartbeats(beating) == [True, False]
    assert not me.failing


def test_a_member_that_fails_is_passed_over_by_a_leader_of_its_group_who_never_asked_it(beating):
    beating.lead()
    me = beating.state.clients[b"me"]
    beating.feed_client("you")
    for name in ("me", "you"):
        subscribed(beating, client_id=name, inbox=name, queue="q")
    beating.feed_meta(heartbeat=pb.Heartbeat(client_id=b"me", incarnation=me.incarnation, failing=True))
    beating.publish("foo", b"1", b"2")
    assert beating.received("me") == []
    assert len(beating.received("you")) == 2
    beating.follow()
    beating.lead(replay=False)
    beating.publish("foo", b"3")
    assert beating.received("me") == []


def test_a_heartbeat_of_an_earlier_connection_changes_nothing(beating):
    beating.feed_meta(heartbeat=pb.Heartbeat(client_id=b"me", incarnation=1, failing=True))
    beating.feed_meta(heartbeat=pb.Heartbeat(client_id=b"nobody", incarnation=1, failing=True))
    assert not beating.state.clients[b"me"].failing


def test_answers_that_come_after_leadership_ended_change_nothing(beating):
    beating.lead(0)
    beating.alive.clear()
    beating.pass_time(0.05)
    beating.follow(0)
    beating.pass_time(1)
    assert heartbeats(beating) == []
    assert registered(beating) == {b"conn-me"}


def test_publishing_goes_on_over_a_change_of_the_metadatas_leader(beating):
    beating.lead(1)
    beating.hears(pub_frame("foo", "a", b"a"))
    beating.lead(0)
    beating.follow(0)
    beating.hears(pub_frame("foo", "b", b"b"))
    assert beating.stored() == [b"a", b"b"]


# --- a leader that may have been replaced -----------------------------------------------------------------------------------


def test_a_leader_without_a_lease_answers_once_it_has_it_again(node):
    node.lead(0)
    node.broker.stops.step_lease(0, holds=False)
    node.hears(node.request(PINGS, wire.Ping(conn_id=b"newer"), "p"), connects(node), closes(node, "newer", "c"))
    node.pass_time(0.5)
    assert node.hear("p") == node.hear("r") == node.hear("c") == []
    node.broker.stops.step_lease(0, holds=True)
    node.turn()
    assert [len(node.hear(reply)) for reply in ("p", "r", "c")] == [1, 1, 1]


def test_a_leader_that_was_replaced_tells_clients_of_the_next_one_nothing(node):
    node.lead(0)
    node.broker.stops.step_lease(0, holds=False)
    node.hears(node.request(PINGS, wire.Ping(conn_id=b"newer"), "p"), connects(node), closes(node, "newer", "c"))
    node.follow(0)
    node.pass_time(1)
    assert node.hear("p") == node.hear("r") == node.hear("c") == []
    assert not node.broker.frames.original_requests.pending


def test_a_group_without_a_lease_answers_no_requests_either(leader):
    leader.broker.stops.step_lease(1, holds=False)
    request = wire.UnsubscribeRequest(client_id=b"me", subject=b"foo", inbox=b"of the next leader")
    leader.hears(leader.request("_STAN.unsub.test-cluster", request, "u"))
    assert leader.hear("u") == []
    leader.broker.stops.step_lease(1, holds=True)
    leader.turn()
    assert len(leader.hear("u")) == 1


def test_requests_that_wait_for_a_lease_are_bounded(node):
    node.lead(0)
    node.broker.stops.step_lease(0, holds=False)
    ping = node.request(PINGS, wire.Ping(conn_id=b"c"), "p")
    node.hears(*([ping] * (limits.PENDING_REQUESTS_MAX + 5)))
    node.broker.stops.step_lease(0, holds=True)
    node.turn()
    assert len(node.hear("p")) == limits.PENDING_REQUESTS_MAX


def test_who_begins_to_lead_between_the_news_of_a_close_and_the_close_waits_for_it(leader):
    subscribed(leader)
    leader.follow()
    leader.feed_close()
    leader.lead(replay=False)
    assert leader.state.subscriptions()
    leader.hears(closes(leader))
    assert not leader.state.subscriptions()

"""Subscriptions in a cluster: stale metadata, requests heard again, lazy progress, what the next leader knows of it."""

import pytest
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import DUPLICATE_DURABLE, INVALID_SUBSCRIPTION, NO_METADATA, UNKNOWN_CHANNEL, UNKNOWN_CLIENT
from stan_protocol.scalars import MICROSECOND, MILLISECOND, SECOND

from stan import limits
from stan.core.base.ready import Delivery
from stan.core.state.group import GroupMachine
from stan.protocol.entries import Kind
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import Node

SUB, UNSUB = "_STAN.sub.test-cluster", "_STAN.unsub.test-cluster"
DISCOVER = "_STAN.discover.test-cluster"
LAZY = limits.PROGRESS_INTERVAL / SECOND


def told(node):
    """Let this node's copy of the metadata be as new as can be."""
    node.meta_says(len(node.logs[0]))


def subscribed(node, inbox="inbox", **kwargs):
    node.subscribe("foo", inbox, **kwargs)
    told(node)
    return node.answer(f"reply.{node.inboxes}", wire.SubscriptionResponse)


def subscription(node, inbox="in", reply="r", durable="", client_id="me"):
    """The raw frame of a request."""
    request = wire.SubscriptionRequest(
        client_id=client_id.encode(),
        subject=b"foo",
        inbox=inbox.encode(),
        max_in_flight=10,
        ack_wait_s=30,
        durable_name=durable.encode(),
        start_position=4,
    )
    return node.request(SUB, request, reply)


def unsubscription(node, ack_inbox, reply="u", client_id="me"):
    request = wire.UnsubscribeRequest(client_id=client_id.encode(), subject=b"foo", inbox=ack_inbox)
    return node.request(UNSUB, request, reply)


def members(node):
    return [sub.settings.inbox.decode() for sub in node.state.subscriptions()]


def succeed(node, to, upto=None):
    """*to* gets the entries of group 1 that *node* committed, and leads."""
    for _, kind, body in node.logs[1][len(to.logs[1]) : upto]:
        to.feed(1, kind, body)
    to.lead()


def successor(node):
    made = Node()
    made.now, made.wall = node.now, node.wall
    made.feed_client()
    made.feed_channel()
    return made


def test_what_was_to_be_sent_and_did_not_leave_is_owed_at_once(node):
    node.lead()
    subscribed(node, in_flight=10)
    kept, say = [], node._say
    node._say = lambda send: kept.append(send) if isinstance(send, Delivery) else say(send)
    node.publish("foo", b"1", b"2", b"3")
    node._say = say
    node.broker.not_sent(kept)
    node.turn()
    assert node.received() == [(1, 0), (2, 0), (3, 0)]


# --- who answers, and when ------------------------------------------------------------------------------------------------


def test_requests_are_left_to_the_leader_of_the_channels_group(node):
    node.lead(0)
    node.hears(subscription(node), unsubscription(node, b"x"))
    assert node.hear("r") == node.hear("u") == []
    assert not node.logs[1]


def test_garbage_is_refused_by_the_leader_of_the_metadata_alone(node):
    node.lead(1)
    node.hears(node.request(SUB, b"\xff\xff", "r"), node.request(UNSUB, b"\xff\xff", "u"))
    assert node.hear("r") == node.hear("u") == []
    node.lead(0, replay=False)
    node.hears(node.request(SUB, b"\xff\xff", "r"), node.request(UNSUB, b"\xff\xff", "u"))
    assert len(node.hear("r")) == len(node.hear("u")) == 1


def test_a_client_that_the_metadata_tells_of_late_is_let_in(node):
    node.lead()
    node.hears(subscription(node, client_id="new"))
    node.feed_client("new")
    told(node)
    assert not node.answer("r", wire.SubscriptionResponse).error


def test_a_client_that_nobody_knows_is_refused(node):
    node.lead()
    node.hears(subscription(node, client_id="new"))
    told(node)
    assert node.answer("r", wire.SubscriptionResponse).error == UNKNOWN_CLIENT.encode()


def test_the_subscription_belongs_to_the_newest_connection(node):
    node.lead()
    old = node.state.clients[b"me"].incarnation
    node.hears(subscription(node))
    new = node.feed_client("me", "c2", replaces=old)
    told(node)
    sub = node.state.subscription()
    assert sub.incarnation == new


def connection(node, conn_id):
    """The raw frame of a ConnectRequest that `feed_client` would let in as the next entry."""
    inbox = f"hb.me.{len(node.logs[0])}"
    request = wire.ConnectRequest(client_id=b"me", heartbeat_inbox=inbox.encode(), protocol=1, conn_id=conn_id.encode())
    return node.request(DISCOVER, request, "c")


def reconnected(node):
    """The client gives its connection up and makes another."""
    old = node.state.clients[b"me"].incarnation
    node.hears(connection(node, "c2"))
    node.feed_client("me", "c2", replaces=old)


def test_what_an_earlier_connection_asked_for_is_not_given_to_the_next_one(node):
    node.lead()
    node.hears(subscription(node))
    reconnected(node)
    told(node)
    assert node.answer("r", wire.SubscriptionResponse).error == UNKNOWN_CLIENT.encode()
    assert members(node) == []


def test_what_an_earlier_connection_asked_for_while_nobody_knew_who_leads_is_not_given_to_the_next_one(node):
    node.lead()
    node.broker.stops.step_lease(1, holds=False)
    node.hears(subscription(node))
    reconnected(node)
    node.broker.stops.step_lease(1, holds=True)
    node.turn()
    told(node)
    assert members(node) == []


def test_what_an_earlier_connection_asked_the_last_leader_for_is_not_given_to_the_next_one(node):
    node.hears(subscription(node, "old"))
    reconnected(node)
    node.hears(subscription(node, "new", "r2"))
    node.lead()
    told(node)
    told(node)  # the second one came after the first question
    assert members(node) == ["new"]


def test_a_request_that_may_be_of_an_earlier_connection_has_no_answer(node):
    """The connection was made while this node was cut off. The next leader may have received the connect before the request, and
    once made a subscription, at an inbox that nobody listened to, whose client had been refused here."""
    node.lead()
    old = node.state.clients[b"me"].incarnation
    node.hears(subscription(node))
    node.broker.step_disconnected()
    node.broker.step_reconnected(SECOND)
    node.feed_client("me", "c2", replaces=old)
    told(node)
    assert node.hear("r") == []
    assert members(node) == []


def test_who_asked_to_be_let_in_and_was_not_takes_no_subscription_away(node):
    node.lead()
    node.hears(subscription(node), connection(node, "refused"))
    told(node)
    assert members(node) == ["in"]


def test_without_metadata_it_is_refused(node):
    node.lead()
    node.hears(subscription(node))
    node.pass_time(limits.CATCHUP_PATIENCE / SECOND + 1)
    assert node.answer("r", wire.SubscriptionResponse).error == NO_METADATA.encode()


@pytest.mark.parametrize("seconds", [0.3, limits.CATCHUP_PATIENCE / SECOND + 1])
def test_who_leads_no_more_answers_nothing(node, seconds):
    node.lead()
    node.hears(subscription(node), subscription(node, reply="r2", client_id="nobody"))
    node.follow()
    node.hear("_STAN.node.test-cluster.read_index")
    node.pass_time(seconds)
    told(node)
    assert node.hear("r") == node.hear("r2") == []
    assert not node.logs[1]


def test_a_request_that_waited_over_two_lives_makes_one_subscription(node):
    node.lead()
    node.hears(subscription(node))
    node.follow()
    node.lead()
    for _ in range(3):
        told(node)
        node.pass_time(0.3)
    assert members(node) == ["in"]
    assert len(node.hear("r")) == 1


def test_a_client_that_is_gone_before_its_subscription_is_committed_does_not_keep_it(node):
    node.lead()
    node.hold = True
    node.hears(subscription(node))
    told(node)
    node.feed_close(asked=False)
    node.hold = False
    node.commit()
    node.turn()
    assert node.answer("r", wire.SubscriptionResponse).error == UNKNOWN_CLIENT.encode()
    assert members(node) == []


def test_leaving_a_channel_of_which_the_metadata_tells_late_works():
    leader = Node()
    leader.feed_client()
    leader.feed_channel()
    leader.lead()
    ack_inbox = subscribed(leader).ack_inbox
    node = Node()
    node.feed_client()
    succeed(leader, node)
    node.hears(unsubscription(node, ack_inbox))
    assert node.hear("u") == []
    node.feed_channel()
    told(node)
    assert not node.answer("u", wire.SubscriptionResponse).error
    assert members(node) == []
    node.hears(node.request(UNSUB, wire.UnsubscribeRequest(client_id=b"me", subject=b"no", inbox=b"x"), "u"))
    told(node)
    assert node.answer("u", wire.SubscriptionResponse).error == UNKNOWN_CHANNEL.encode()


# --- heard again ----------------------------------------------------------------------------------------------------------


def test_a_subscription_that_the_last_leader_made_is_answered_again_and_not_made_again(node):
    other = successor(node)
    node.lead()
    node.hears(subscription(node))
    told(node)
    made = node.answer("r", wire.SubscriptionResponse)
    other.hears(subscription(other))
    succeed(node, other)
    assert other.answer("r", wire.SubscriptionResponse).ack_inbox == made.ack_inbox
    told(other)
    assert members(other) == ["in"]


def test_also_while_the_metadata_does_not_tell_of_its_channel_yet(node):
    other = Node()
    other.feed_client()
    node.lead()
    node.hears(subscription(node))
    told(node)
    other.hears(subscription(other))
    succeed(node, other)
    other.feed_channel()
    told(other)
    assert members(other) == ["in"]


@pytest.mark.parametrize("durable", ["", "d"])
def test_a_subscription_that_has_ended_is_not_made_again(node, durable):
    other = successor(node)
    node.lead()
    node.hears(subscription(node, durable=durable))
    told(node)
    ack_inbox = node.answer("r", wire.SubscriptionResponse).ack_inbox
    node.hears(unsubscription(node, ack_inbox))
    other.hears(subscription(other, durable=durable), unsubscription(other, ack_inbox))
    succeed(node, other)
    for _ in range(2):
        told(other)
        other.pass_time(0.3)
    assert members(other) == []
    assert not other.answer("u", wire.SubscriptionResponse).error


def test_a_subscription_that_nobody_made_is(node):
    node.hears(subscription(node))
    node.lead()
    told(node)
    assert not node.answer("r", wire.SubscriptionResponse).error
    assert members(node) == ["in"]


def test_leaving_what_is_not_there_is_refused_when_it_is_heard_for_the_first_time(node):
    node.lead()
    node.hears(unsubscription(node, b"nothing"))
    assert node.answer("u", wire.SubscriptionResponse).error == INVALID_SUBSCRIPTION.encode()


def test_what_is_remembered_of_subscriptions_is_bounded_in_time(node):
    node.lead()
    for at in range(5):
        subscribed(node, f"in{at}")
        node.pass_time(2)
    assert node.state.joined() <= 4


# --- positions are told lazily --------------------------------------------------------------------------------------------


def test_positions_are_told_after_a_while_and_once(node):
    node.lead()
    subscribed(node)
    before = node.entries()
    node.publish("foo", b"1")
    node.publish("foo", b"2")
    assert node.received() == [(1, 0), (2, 0)]
    assert node.entries() == before
    node.pass_time(LAZY)
    assert node.entries() == [*before, "progress"]
    assert node.state.position().last_sent == 2
    node.pass_time(1)
    assert node.entries() == [*before, "progress"]


def test_positions_are_told_at_once_after_many_messages(node):
    node.lead()
    subscribed(node, in_flight=5000)
    node.publish("foo", *([b"x"] * limits.PROGRESS_MESSAGES_MAX))
    assert node.state.position().last_sent == limits.PROGRESS_MESSAGES_MAX


@pytest.mark.parametrize("change", ["leave", "join"])
def test_positions_are_told_before_the_members_change(node, change):
    node.lead()
    ack_inbox = subscribed(node, queue="q", durable="d").ack_inbox
    node.publish("foo", b"1", b"2")
    node.ack(ack_inbox, 1)
    if change == "leave":
        node.leave("foo", ack_inbox)
    else:
        subscribed(node, "other", queue="q", durable="d")
    assert node.entries()[-2:] == ["progress", "leave" if change == "leave" else "subscribe"]
    assert node.state.position().last_sent == 2


def test_a_closed_group_tells_its_positions_when_it_is_open_again_and_before_the_change(node):
    node.lead()
    ack_inbox = subscribed(node, durable="d").ack_inbox
    node.publish("foo", b"1")
    node.broker.stops.step_room(1, closed=True, full=False)
    node.hears(unsubscription(node, ack_inbox))
    node.pass_time(1)
    entries = node.entries()
    assert "progress" not in entries
    node.broker.stops.step_room(1, closed=False, full=False)
    node.turn()
    assert node.entries() == [*entries, "progress", "leave"]


def test_a_timer_that_was_set_in_an_earlier_life_is_no_harm(node):
    node.lead()
    subscribed(node)
    node.publish("foo", b"1")
    node.follow()
    node.pass_time(1)
    node.lead()
    node.publish("foo", b"2")
    node.pass_time(1)
    assert node.state.position().last_sent == 2


def test_alone_positions_are_told_at_once(harness):
    harness.subscribe("foo")
    harness.publish("foo", b"1")
    only = harness.state.position()
    assert only.last_sent == 1


def test_deliveries_that_go_on_are_one_record_until_they_are_told(node):
    node.lead()
    subscribed(node)
    node.publish("foo", b"1", b"2")
    node.now += MILLISECOND
    node.publish("foo", b"3")
    assert list(node.state.live_position().sent) == [(1, 3)]

    node.pass_time(LAZY)
    changes = [pb.GroupChange.FromString(body) for _, kind, body in node.logs[1] if kind == Kind.CHANGE]
    (sent,) = [sent for change in changes for progress in change.progress for sent in progress.sent]
    assert list(sent.runs) == [1, 3]
    assert sent.first_ago - sent.last_ago == MILLISECOND // MICROSECOND


# --- the next leader ------------------------------------------------------------------------------------------------------


def test_what_was_sent_and_not_told_comes_again_flagged_and_nothing_else_does(node):
    node.lead()
    other = successor(node)
    subscribed(node, in_flight=100)
    node.publish("foo", b"1", b"2")
    node.pass_time(LAZY)
    node.publish("foo", b"3")
    other.now, other.wall = node.now, node.wall
    other.publish("foo", b"1", b"2", b"3")
    succeed(node, other)
    assert other.received() == [(3, 1)]
    other.publish("foo", b"4")
    assert other.received() == [(4, 0)]


def test_acks_of_what_only_the_last_leader_has_sent_count(node):
    node.lead()
    other = successor(node)
    ack_inbox = subscribed(node, in_flight=100).ack_inbox
    node.publish("foo", b"1", b"2", b"3", b"4")
    other.ack(ack_inbox, 1, 3)
    succeed(node, other)
    assert other.received() == [(2, 1), (4, 1)]
    other.pass_time(LAZY)
    assert other.state.live_position().window == [2, 4]


def test_acks_that_come_later_count_too_as_far_as_there_is_doubt(node):
    node.lead()
    other = successor(node)
    ack_inbox = subscribed(node, in_flight=100).ack_inbox
    node.publish("foo", b"1", b"2")
    other.publish("foo", b"1", b"2")
    other.broker.stops.step_lease(1, holds=False)  # it has no lease yet
    succeed(node, other)
    other.ack(ack_inbox, 1, 2, 3)
    other.publish("foo", b"3")
    other.broker.stops.step_lease(1, holds=True)
    other.turn()
    assert other.received() == [(3, 0)]


def test_a_doubt_is_part_of_the_state_only_once_it_is_committed(node):
    node.lead()
    other = successor(node)
    subscribed(node, in_flight=100)
    node.publish("foo", b"1")
    other.hold = True
    succeed(node, other)
    assert other.state.position().maybe_sent_until == 0
    assert other.received() == [(1, 1)]
    other.pass_time(0.2)
    assert other.state.position().maybe_sent_until == 0
    other.commit()
    assert other.state.position().maybe_sent_until == 1


def test_nothing_is_sent_without_a_lease_and_everything_with_it(node):
    node.lead()
    subscribed(node)
    node.broker.stops.step_lease(1, holds=False)
    node.publish("foo", b"1")
    assert node.received() == []
    assert not node.broker.has_work
    node.broker.stops.step_lease(1, holds=True)
    assert node.broker.has_work
    node.turn()
    assert node.received() == [(1, 0)]


def test_following_forgets_everything_that_is_live(node):
    node.lead()
    subscribed(node)
    node.hold = True
    node.publish("foo", b"1")
    assert any(node.state.live_sizes().values())
    node.follow()
    assert not any(node.state.live_sizes().values())
    assert not node.broker.has_work
    node.hold = False
    node.pass_time(60)
    assert node.received() == []


def test_an_answer_to_a_read_of_an_earlier_life_is_ignored(node):
    node.lead()
    node.publish("foo", b"1")
    node.slow = True
    subscribed(node, in_flight=5)
    (old,) = node.reads
    node.follow()
    node.lead()
    _, new = node.reads
    node.broker.reads.step_fetched(old, [])
    assert node.state.live_position().last_sent == 0
    node.broker.reads.step_fetch_failed(old, "gone")
    assert node.state.live_position().reading == new.number
    node.answer_reads()
    node.turn()
    assert [sequence for sequence, _ in node.received()] == [1]


def test_what_is_not_proposed_yet_ends_with_the_leadership(node):
    node.lead()
    node.broker.stops.step_room(1, closed=True, full=False)
    subscribed(node)
    assert node.state.waiting().proposals
    node.broker.roles.follow_group(1)
    node.broker.roles.lead_group(1, unconfirmed=True)
    node.broker.stops.step_room(1, closed=False, full=False)
    node.turn()
    assert members(node) == []


def test_what_was_read_to_be_sent_again_ends_with_the_leadership(node):
    node.lead()
    subscribed(node, wait=2)
    node.publish("foo", b"1")
    assert node.received() == [(1, 0)]
    node.slow = True
    node.pass_time(2.5)
    assert node.reads
    node.answer_reads()
    node.broker.roles.follow_group(1)
    node.broker.roles.lead_group(1, unconfirmed=True)
    node.turn()
    assert node.received() == []


def test_reads_of_a_group_that_was_replaced_have_numbers_of_their_own(node):
    node.lead()
    node.publish("foo", b"1")
    subscribed(node)
    reads, life = node.state.reads(), node.state.leadership_epoch()
    assert reads
    node.follow()
    node.broker.step_disconnected()
    node.broker.states.reset(1)
    assert (node.state.reads(), node.state.leadership_epoch(), node.state.stops().disconnected) == (reads, life, True)


def test_pending_messages_keep_their_member_and_are_sent_again_in_time(node):
    node.lead()
    other = successor(node)
    ack_inbox = subscribed(node, wait=2).ack_inbox
    node.publish("foo", b"1", b"2")
    node.ack(ack_inbox, 1)
    node.pass_time(1)
    other.now, other.wall = node.now, node.wall
    succeed(node, other)
    assert other.received() == []
    other.pass_time(0.9)
    assert other.received() == []
    other.pass_time(0.2)
    assert other.received() == [(2, 1)]


def test_a_request_that_waited_for_a_lease_is_not_handled_again_after_a_replay(node):
    node.lead(0, 1)
    node.broker.stops.step_lease(1, holds=False)
    node.hears(subscription(node), node.request("_STAN.close.test-cluster", b"\x0a\x03you", "c"))
    node.broker.roles.follow_group(1)
    node.broker.roles.lead_group(1, unconfirmed=True)
    node.gateway.replay(1)
    node.broker.stops.step_lease(1, holds=True)
    node.turn()
    assert members(node) == ["in"]
    assert len(node.hear("r")) == len(node.hear("c")) == 1


def test_the_newest_of_the_requests_for_a_durable_that_nobody_has_answered_gets_it(node):
    """A client that got no answer in time has asked again, with another inbox, and listens there alone."""
    node.hears(subscription(node, "late", "r1", "d"), subscription(node, "other", "r2", "e"))
    node.pass_time(2)
    node.hears(subscription(node, "newest", "r3", "d"))
    node.lead(0, 1)
    assert sorted(members(node)) == ["newest", "other"]
    answers = [node.answer(reply, wire.SubscriptionResponse).error.decode() for reply in ("r1", "r2", "r3")]
    assert answers == [DUPLICATE_DURABLE, "", ""]


def test_a_durable_that_the_log_has_is_not_taken_by_a_later_request(node):
    node.lead(0, 1)
    node.hears(subscription(node, "first", "r1", "d"))
    node.follow(1)
    node.hears(subscription(node, "second", "r2", "d"))
    node.lead(1)
    assert members(node) == ["first"]
    assert node.answer("r2", wire.SubscriptionResponse).error.decode() == DUPLICATE_DURABLE


@pytest.mark.parametrize("ends", [False, True])
def test_a_request_for_a_durable_that_the_last_leader_has_not_heard_does_not_outlive_the_next_one(node, ends):
    """The last leader has made what the client has asked for once more: its former request is nobody's any more."""
    other = successor(node)
    node.lead()
    other.hears(subscription(other, "unheard", "r1", "d"))
    for one in (node, other):
        one.hears(subscription(one, "newest", "r2", "d"))
    told(node)
    ack_inbox = node.answer("r2", wire.SubscriptionResponse).ack_inbox
    if ends:
        for one in (node, other):
            one.hears(unsubscription(one, ack_inbox))
    succeed(node, other)
    told(other)
    assert members(other) == ([] if ends else ["newest"])
    assert other.answer("r1", wire.SubscriptionResponse).error.decode() == DUPLICATE_DURABLE


def test_a_request_that_two_leaders_have_proposed_makes_one_subscription():
    machine = GroupMachine(1)
    request = pb.Subscribe(
        uid=1, client_id=b"me", incarnation=7, inbox=b"in", queue_group=b"q", max_in_flight=1, ack_wait_s=30, reply=b"r"
    )
    first = machine.apply(pb.GroupChange(subscribe=request), 1)
    again = machine.apply(pb.GroupChange(subscribe=request), 2)
    assert again.joined is first.joined
    assert again.cursor is None, "nothing joins once more"
    assert len(machine.subscriptions.by_id) == 1
    request.reply = b"another"
    assert machine.apply(pb.GroupChange(subscribe=request), 3).joined is not first.joined
    machine.apply(pb.GroupChange(leave=pb.Leave(subscription_id=first.joined.subscription_id)), 4)
    assert set(machine.subscriptions.by_reply) == {b"another"}

"""What clients say about messages besides acks (NAK, working, rejection, cumulative acks), and policies of failed deliveries."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stan_protocol.kernel.client import encode_cumulative_ack, encode_verdict
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND, SECOND

from stan import limits
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.broker_state import sequences
from tests.kit.core_harness import CoreHarness, Node, _split
from tests.kit.cursor_admin import agrees, change

DUR = {"durable_name": "dur"}


@pytest.fixture
def harness(harness):
    yield harness
    harness.turn()
    agrees(harness)


def arrivals(harness, seconds, inbox="inbox"):
    """(time since now in ms, sequence, count) of what an inbox gets in this time."""
    begun, out = harness.now, []
    while harness.now < begun + seconds * SECOND:
        harness.pass_time(0.01)
        out += [((harness.now - begun) // MILLISECOND, *one) for one in harness.received(inbox)]
    return out


def levels(harness):
    """Of all progress entries: whether they tell counts."""
    changes = [pb.GroupChange.FromString(body) for _, kind, body in harness.logs[1] if kind == 2]
    return any(held.counts for change in changes for entry in change.progress for held in entry.held)


# --- NAK ----------------------------------------------------------------------------------------------------------------


def test_a_nak_of_an_old_delivery_is_answered_at_once_and_counted(harness):
    sub = harness.subscribe("foo", wait=30)
    harness.publish("foo", b"a", b"b")
    harness.received()
    harness.pass_time(1)

    harness.say(sub.ack_inbox, 1, wire.NAK)

    assert harness.received() == [(1, 1)]
    harness.ack(sub.ack_inbox, 1, 2)
    harness.pass_time(100)
    assert harness.received() == []


def test_naks_without_a_pause_keep_the_pace(harness):
    """A handler that fails in a moment gets a message ten times a second, no more."""
    sub = harness.subscribe("foo", wait=30)
    harness.publish("foo", b"a")
    came = []
    for _ in range(100):
        came += harness.received()
        harness.say(sub.ack_inbox, 1, wire.NAK)
        harness.say(sub.ack_inbox, 1, wire.NAK)
        harness.pass_time(0.01)

    assert 9 <= len(came) <= 12
    assert [count for _, count in came] == list(range(len(came)))


def test_a_nak_may_ask_for_a_pause(harness):
    sub = harness.subscribe("foo", wait=2)
    harness.publish("foo", b"a", b"b")
    harness.received()

    harness.say(sub.ack_inbox, 1, wire.NAK, delay=5 * SECOND)
    harness.ack(sub.ack_inbox, 2)

    ((at, sequence, count),) = arrivals(harness, 6)
    assert (sequence, count) == (1, 1)
    assert 4980 <= at <= 5020, "not when the ack wait is over"


def test_no_pause_is_longer_than_a_week(harness, monkeypatch):
    assert limits.NAK_DELAY_MAX == 7 * 24 * 3600 * SECOND
    monkeypatch.setattr(limits, "NAK_DELAY_MAX", 60 * SECOND)  # a week has too many heartbeats
    sub = harness.subscribe("foo", wait=2)
    harness.publish("foo", b"a")
    harness.received()

    harness.say(sub.ack_inbox, 1, wire.NAK, delay=(1 << 63) - 1)

    harness.pass_time(60 - 1)
    assert harness.received() == []
    harness.pass_time(2)
    assert harness.received() == [(1, 1)]


def test_an_ack_ends_the_pause(harness):
    sub = harness.subscribe("foo", wait=2)
    harness.publish("foo", b"a")
    harness.received()
    harness.say(sub.ack_inbox, 1, wire.NAK, delay=SECOND)

    harness.ack(sub.ack_inbox, 1)

    harness.pass_time(10)
    assert harness.received() == []
    assert not harness.state.live_position().delayed


def test_verdicts_on_what_is_not_pending_change_nothing(harness):
    sub = harness.subscribe("foo", wait=2)
    harness.publish("foo", b"a")
    harness.ack(sub.ack_inbox, 1)
    harness.received()
    entries = len(harness.logs[1])

    for kind in (wire.NAK, wire.WORKING, wire.REJECT):
        for sequence in (0, 1, 2, (1 << 64) - 1):
            harness.say(sub.ack_inbox, sequence, kind)
    harness.say(sub.ack_inbox + b"0", 1, wire.NAK)
    harness.pass_time(10)

    assert harness.received() == []
    assert len(harness.logs[1]) == entries
    assert not any(level in ("WRN", "ERR") for level, _ in harness.notes)


def test_a_nak_hands_the_message_to_another_member(harness):
    one = harness.subscribe("foo", "one", queue="q", in_flight=1)
    harness.publish("foo", b"a")
    assert harness.received("one") == [(1, 0)]
    harness.subscribe("foo", "two", queue="q", in_flight=1)
    harness.pass_time(1)

    harness.say(one.ack_inbox, 1, wire.NAK)

    assert sorted(harness.received("one") + harness.received("two")) == [(1, 1)]


def test_a_pause_ends_with_its_member(harness):
    one = harness.subscribe("foo", "one", queue="q")
    harness.publish("foo", b"a")
    harness.received("one")
    harness.say(one.ack_inbox, 1, wire.NAK, delay=60 * SECOND)
    harness.subscribe("foo", "two", queue="q")

    harness.leave("foo", one.ack_inbox)

    assert harness.received("two") == [(1, 1)]
    assert not harness.state.live_position().delayed


# --- working, rejected ----------------------------------------------------------------------------------------------------


def test_who_works_on_a_message_keeps_it(harness):
    sub = harness.subscribe("foo", wait=30)
    harness.publish("foo", b"a")
    harness.received()

    for _ in range(15):
        harness.pass_time(20)
        harness.say(sub.ack_inbox, 1, wire.WORKING)
    assert harness.received() == []

    harness.pass_time(31)
    assert harness.received() == [(1, 1)]


def test_nobody_works_longer_than_the_policy_allows(harness):
    harness.set_policy(max_hold=50 * SECOND)
    sub = harness.subscribe("foo", wait=30)
    harness.publish("foo", b"a")
    harness.received()

    harness.pass_time(20)
    harness.say(sub.ack_inbox, 1, wire.WORKING)
    harness.pass_time(20)
    harness.say(sub.ack_inbox, 1, wire.WORKING)
    harness.pass_time(9)
    assert harness.received() == []
    harness.pass_time(2)

    assert harness.received() == [(1, 1)]
    assert not harness.state.live_position().working


def test_a_rejected_message_is_settled_and_told(harness):
    sub = harness.subscribe("foo", durable="dur", wait=2)
    harness.publish("foo", b"a", b"b")
    harness.received()

    harness.say(sub.ack_inbox, 1, wire.REJECT, reason=b"no order\n")
    harness.ack(sub.ack_inbox, 2)
    harness.pass_time(5)

    assert harness.received() == []
    (event,) = [one for one in harness.events if one.kind == "rejected"]
    assert (event.channel, event.cursor_id) == (b"foo", harness.state.position().cursor_id)
    assert event.text == 'message 1 of "foo" rejected for durable "dur": no order\\n'
    assert ("WRN", event.text) in harness.notes


# --- cumulative -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 12), st.sets(st.integers(1, 10)))
def test_a_cumulative_ack_is_an_ack_of_each(until, before):
    held = []
    for cumulative in (True, False):
        harness = CoreHarness()
        harness.connect()
        sub = harness.subscribe("foo", durable="dur", wait=2, in_flight=8)
        harness.publish("foo", *[b"x"] * 10)
        harness.ack(sub.ack_inbox, *sorted(before))
        if cumulative:
            harness.say(sub.ack_inbox, until, wire.ACK, cumulative=True)
        else:
            harness.ack(sub.ack_inbox, *range(1, until + 1))
        harness.pass_time(3)
        live = harness.state.live_position()
        held.append((harness.received(), live.members[0].window, live.last_sent))

    assert held[0] == held[1]


def test_members_of_queue_groups_cannot_ack_for_each_other(harness):
    sub = harness.subscribe("foo", queue="q", wait=2)
    harness.publish("foo", b"a")
    harness.received()

    harness.say(sub.ack_inbox, 1, wire.ACK, cumulative=True)
    harness.pass_time(3)

    assert harness.received() == [(1, 1)]
    assert [text for level, text in harness.notes if level == "WRN"] == [
        'A verdict of client "me" on a message was ignored: members of a queue group cannot ack all messages up to one'
    ]


@pytest.mark.parametrize("said", [{"kind": 9}, {"kind": wire.NAK, "cumulative": True}])
def test_what_is_not_known_changes_nothing_and_is_told(harness, said):
    sub = harness.subscribe("foo", wait=30)
    harness.publish("foo", b"a")
    harness.received()

    harness.say(sub.ack_inbox, 1, **said)
    harness.pass_time(1)

    assert harness.received() == []
    assert any("was ignored" in text for _, text in harness.notes)


# --- policies -------------------------------------------------------------------------------------------------------------


def test_pauses_follow_the_list_for_naks_and_for_ack_waits(harness):
    """A pause is added to the ack wait; each lasts what the list says, a fifth more or less, and the last one repeats."""
    harness.set_policy(backoff=(SECOND, 10 * SECOND))
    harness.subscribe("foo", wait=2)
    harness.publish("foo", b"a")
    harness.received()

    came = arrivals(harness, 45)

    assert [count for _, _, count in came] == [1, 2, 3, 4]
    times = [0, *(at for at, _, _ in came)]
    pauses = [after - before - 2000 for before, after in pairwise(times)]
    assert 780 <= pauses[0] <= 1230
    assert all(7980 <= pause <= 12030 for pause in pauses[1:])


def test_a_failed_message_keeps_its_place_in_the_window(harness):
    harness.set_policy(backoff=(10 * SECOND,))
    sub = harness.subscribe("foo", in_flight=2)
    harness.publish("foo", *[b"x"] * 4)
    harness.received()

    harness.say(sub.ack_inbox, 1, wire.NAK)
    harness.ack(sub.ack_inbox, 2)

    assert harness.received() == [(3, 0)]


def deliveries(harness, sub, seconds, *, fail):
    """What arrives in this time; *fail*: with which sequences the client fails at once. It acks the others."""
    begun, came = harness.now, []
    while harness.now < begun + seconds * SECOND:
        heard = harness.received()
        came += heard
        for sequence, _ in heard:
            if sequence in fail:
                harness.say(sub.ack_inbox, sequence, wire.NAK)
            else:
                harness.ack(sub.ack_inbox, sequence)
        harness.pass_time(0.05)
    return came


@settings(max_examples=30)
@given(st.integers(1, 6), st.sets(st.integers(1, 8)), st.booleans(), st.integers(1, 4))
def test_poison_is_delivered_exactly_as_often_as_the_policy_allows(most, poison, waits, in_flight):
    """The others arrive once, and nothing of it holds them back for ever."""
    harness = CoreHarness()
    harness.connect()
    harness.set_policy(max_deliver=most, backoff=(SECOND // 4,) if waits else ())
    sub = harness.subscribe("foo", durable="dur", in_flight=in_flight)
    harness.publish("foo", *[b"x"] * 8)

    came = deliveries(harness, sub, 25, fail=poison)

    by_sequence = {n: [count for sequence, count in came if sequence == n] for n in range(1, 9)}
    assert by_sequence == {n: list(range(most if n in poison else 1)) for n in range(1, 9)}
    assert sequences(harness.state.live_position().exhausted) == sorted(poison)


def test_an_ack_wait_that_is_over_counts_as_a_failure(harness):
    harness.set_policy(max_deliver=3)
    harness.subscribe("foo", durable="dur", wait=1)
    harness.publish("foo", b"a")

    harness.pass_time(20)

    assert harness.received() == [(1, 0), (1, 1), (1, 2)]
    (event,) = [one for one in harness.events if one.kind == "exhausted"]
    assert event.text == 'message 1 of "foo" not sent to durable "dur" any more: delivered 3 times in vain'


def exhausted(harness, **subscription):
    """One message of three was given up."""
    harness.set_policy(max_deliver=2)
    sub = harness.subscribe("foo", **{"durable": "dur", "wait": 1, **subscription})
    harness.publish("foo", b"a", b"b", b"c")
    harness.ack(sub.ack_inbox, 1, 3)
    harness.pass_time(5)
    assert harness.received() == [(1, 0), (2, 0), (3, 0), (2, 1)]
    return sub


def test_an_operator_sends_an_exhausted_message_again(harness):
    sub = exhausted(harness)

    assert change(harness, "redeliver", runs=[2, 2], **DUR) == 1
    harness.pass_time(5)

    assert harness.received() == [(2, 1)], "counted anew, from the first delivery on"
    assert len(harness.state.live_position().exhausted) == 1
    change(harness, "redeliver", runs=[2, 2], **DUR)
    harness.ack(sub.ack_inbox, 2)
    harness.pass_time(5)
    assert harness.received() == [(2, 1)]
    assert not harness.state.live_position().owed


def test_an_operator_may_send_again_what_was_to_be_delivered_once(harness):
    harness.set_policy(max_deliver=1)
    harness.subscribe("foo", durable="dur", wait=1)
    harness.publish("foo", b"a")
    harness.pass_time(5)
    assert harness.received() == [(1, 0)]

    change(harness, "redeliver", **DUR)
    harness.pass_time(5)

    assert harness.received() == [(1, 1)]
    assert len(harness.state.live_position().exhausted) == 1


def test_an_operator_skips_an_exhausted_message(harness):
    exhausted(harness)

    change(harness, "skip", runs=[2, 2], **DUR)
    harness.pass_time(5)

    assert harness.received() == []
    assert not harness.state.live_position().owed


def test_an_operator_moves_a_position_with_an_exhausted_message(harness):
    exhausted(harness)

    change(harness, "move", sequence=2, **DUR)

    assert harness.received() == [(2, 1), (3, 1)]
    assert not harness.state.live_position().owed


def test_another_policy_sends_exhausted_messages_again(harness):
    exhausted(harness)

    harness.set_policy(max_deliver=3)
    harness.pass_time(5)

    assert harness.received() == [(2, 2)]


def test_the_status_tells_exhausted_and_delayed_messages(harness):
    sub = exhausted(harness)
    harness.publish("foo", b"d")
    harness.say(sub.ack_inbox, 4, wire.NAK, delay=60 * SECOND)

    (shown,) = harness.ask(
        "_STAN.x.test-cluster.admin.subscriptions", admin.SubscriptionsRequest(version=1), admin.SubscriptionsResponse
    ).cursors

    assert (shown.exhausted, shown.delayed, shown.owed, shown.pending) == (1, 1, 1, 2)
    assert (list(shown.owed_runs), shown.acked_up_to) == ([2, 2], 1)


def test_a_late_ack_settles_an_exhausted_message(harness):
    sub = exhausted(harness)

    harness.ack(sub.ack_inbox, 2)

    assert not harness.state.live_position().owed


def test_deliveries_are_counted_over_a_resume(harness):
    harness.set_policy(max_deliver=3)
    sub = harness.subscribe("foo", durable="dur", wait=1)
    harness.publish("foo", b"a")
    harness.pass_time(1.1)
    assert harness.received() == [(1, 0), (1, 1)]

    harness.leave("foo", sub.ack_inbox)
    sub = harness.subscribe("foo", durable="dur", wait=1)
    harness.pass_time(5)

    assert harness.received() == [(1, 2)]
    harness.leave("foo", sub.ack_inbox)
    harness.subscribe("foo", durable="dur", wait=1)
    harness.pass_time(5)
    assert harness.received() == []


def test_deliveries_are_counted_over_a_restart(harness):
    harness.set_policy(max_deliver=3)
    harness.subscribe("foo", durable="dur", wait=1)
    harness.publish("foo", b"a")
    harness.pass_time(1.1)

    harness.restart()
    harness.pass_time(5)
    harness.restart()
    harness.pass_time(5)

    assert harness.received() == [(1, 0), (1, 1), (1, 2)]


def test_members_that_leave_with_a_message_use_up_its_deliveries(harness):
    """A message that makes its handler crash is not handed on for ever."""
    harness.set_policy(max_deliver=3)
    harness.subscribe("foo", "stays", queue="q", in_flight=1)
    harness.publish("foo", b"a")
    for member in range(5):
        inbox = f"inbox{member}"
        sub = harness.subscribe("foo", inbox, queue="q", in_flight=1)
        harness.publish("foo", b"x")
        harness.leave("foo", sub.ack_inbox)
    came = [one for heard in harness.hear() if "inbox" in heard.subject for one in [heard.message]]

    assert max((message.redelivery_count for message in came), default=0) <= 2


def test_by_default_nothing_is_counted_in_the_log(harness):
    sub = harness.subscribe("foo", durable="dur", wait=1)
    harness.publish("foo", b"a")
    harness.pass_time(3.5)
    assert harness.received() == [(1, 0), (1, 1), (1, 2), (1, 3)]

    harness.leave("foo", sub.ack_inbox)
    harness.subscribe("foo", durable="dur", wait=1)

    assert harness.received() == [(1, 1)], "the count begins again"
    assert not levels(harness)


# --- leaders --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def node():
    node = Node()
    node.feed_client()
    node.feed_channel()
    node.lead()
    return node


def subscribed(node, **kwargs):
    node.subscribe("foo", **kwargs)
    node.meta_says(len(node.logs[0]))
    return node.answer(f"reply.{node.inboxes}", wire.SubscriptionResponse)


def test_the_next_leader_goes_on_counting(node):
    node.set_policy(max_deliver=4)
    subscribed(node, durable="dur", wait=1)
    node.publish("foo", b"a")
    node.pass_time(2.5)
    assert node.received() == [(1, 0), (1, 1), (1, 2)]

    node.follow()
    node.lead()
    node.pass_time(10)

    assert node.received() == [(1, 3)]


def test_the_next_leader_hears_verdicts_that_the_last_one_has_not_handled(node):
    sub = subscribed(node, durable="dur", wait=30)
    node.publish("foo", b"a", b"b", b"c")
    node.pass_time(1)
    node.received()
    node.follow()
    node.say(sub.ack_inbox, 1, wire.NAK)
    node.say(sub.ack_inbox, 2, wire.REJECT)

    node.lead()
    node.pass_time(1)

    assert node.received() == [(1, 1)]
    node.pass_time(60)
    assert {sequence for sequence, _ in node.received()} == {1, 3}


# --- the client's kernel --------------------------------------------------------------------------------------------------


def test_clients_encode_verdicts():
    (said,) = _split(encode_verdict(b"inbox", b"foo", 300, wire.NAK, 5 * SECOND, b"r" * 2000))
    assert said.subject == "inbox"
    assert wire.Ack.FromString(said.payload) == wire.Ack(
        subject=b"foo", sequence=300, kind=wire.NAK, delay=5 * SECOND, reason=b"r" * 1024
    )
    (said,) = _split(encode_verdict(b"inbox", b"foo", 1, wire.WORKING))
    assert wire.Ack.FromString(said.payload) == wire.Ack(subject=b"foo", sequence=1, kind=wire.WORKING)
    (said,) = _split(encode_cumulative_ack(b"inbox", b"foo", 7))
    assert wire.Ack.FromString(said.payload) == wire.Ack(subject=b"foo", sequence=7, cumulative=True)


def test_rejections_and_cumulative_acks_come_at_the_time_of_the_leader(harness):
    """They were timed with the wall clock in place of the leader's, and no last ack was told."""
    sub = harness.subscribe("foo", wait=30)
    harness.publish("foo", b"a", b"b")
    harness.pass_time(1)
    harness.say(sub.ack_inbox, 1, wire.REJECT)
    assert harness.state.live_position().past.acked_at == harness.wall
    harness.pass_time(1)
    harness.say(sub.ack_inbox, 2, wire.ACK, cumulative=True)
    assert harness.state.live_position().past.acked_at == harness.wall

"""What operators change about durables, queue groups and subscriptions, at the core: moved, skipped, sent again, paused, gone."""

import pytest

from stan import errors, limits
from stan.protocol.proto import wire_pb2 as wire
from stan.types import SECOND
from tests.kit.desk import START, Desk, Node
from tests.kit.positions import answer, begin, change, refusal, replayed, snapshot, stored

DUR = {"durable_name": "dur"}


@pytest.fixture
def desk():
    desk = Desk()
    desk.connect()
    yield desk
    machine = desk.broker.context.groups[1].machine
    assert replayed(desk) == snapshot(machine) == stored(machine), "followers and restarts know the same"


def told(desk):
    """Flush what the live view has to tell, which it does with the next turn."""
    desk.turn()
    return desk.broker.context.groups[1].machine


def publish(desk, count, channel="foo"):
    desk.publish(channel, *[b"x"] * count)


def numbers(desk, inbox="inbox"):
    return [sequence for sequence, _ in desk.received(inbox)]


# --- move -----------------------------------------------------------------------------------------------------------------


def test_move_back_sends_what_follows_again_flagged_and_new_messages_not(desk):
    sub = desk.subscribe("foo", durable="dur")
    publish(desk, 5)
    desk.ack(sub.ack_inbox, 1, 2, 3, 4, 5)
    desk.received()

    assert change(desk, "move", sequence=3, **DUR) == 1
    publish(desk, 1)

    assert desk.received() == [(3, 1), (4, 1), (5, 1), (6, 0)]


def test_move_lets_go_of_what_is_pending_and_owed(desk):
    desk.subscribe("foo", durable="dur", wait=1)
    publish(desk, 4)
    desk.received()

    change(desk, "move", new_only=True, **DUR)
    desk.pass_time(5)

    assert desk.received() == []
    publish(desk, 1)
    assert desk.received() == [(5, 0)]


def test_move_back_over_pending_ones_sends_each_once(desk):
    sub = desk.subscribe("foo", durable="dur", in_flight=4, wait=30)
    publish(desk, 6)
    assert numbers(desk) == [1, 2, 3, 4]

    change(desk, "move", sequence=2, **DUR)
    assert desk.received() == [(2, 1), (3, 1), (4, 1), (5, 0)]

    desk.ack(sub.ack_inbox, 2, 3, 4, 5)
    assert desk.received() == [(6, 0)]


def test_move_to_a_time(desk):
    sub = desk.subscribe("foo", durable="dur")
    publish(desk, 2)
    desk.pass_time(3600)
    publish(desk, 2)
    desk.ack(sub.ack_inbox, 1, 2, 3, 4)
    desk.received()

    change(desk, "move", time=START + 1800 * SECOND, **DUR)
    assert desk.received() == [(3, 1), (4, 1)]
    change(desk, "move", time=START - SECOND, **DUR)
    assert numbers(desk) == [1, 2, 3, 4]
    change(desk, "move", time=desk.wall + SECOND, **DUR)
    assert desk.received() == []


def test_move_to_all_begins_where_retention_has_left_something(desk):
    sub = desk.subscribe("foo", durable="dur")
    publish(desk, 5)
    desk.ack(sub.ack_inbox, 1, 2, 3, 4, 5)
    desk.received()
    uid = desk.broker.context.meta.channels[b"foo"].uid
    desk.indexes[1, uid].first = 3

    change(desk, "move", all=True, **DUR)

    assert desk.received() == [(3, 1), (4, 1), (5, 1)]


def test_what_was_never_sent_is_not_flagged_when_the_cursor_is_moved_back_before_its_beginning(desk):
    publish(desk, 4)
    desk.subscribe("foo", durable="dur", start=3, seq=3)
    assert desk.received() == [(3, 0), (4, 0)]

    change(desk, "move", all=True, **DUR)

    assert desk.received() == [(1, 0), (2, 0), (3, 1), (4, 1)]


def test_what_a_move_ahead_has_passed_is_no_repeat_later(desk):
    publish(desk, 6)
    desk.subscribe("foo", durable="dur", in_flight=2)
    assert desk.received() == [(1, 0), (2, 0)]
    change(desk, "move", sequence=5, **DUR)
    assert desk.received() == [(5, 0), (6, 0)]

    sub = desk.broker.context.groups[1].machine.subscriptions.values()
    ack_inbox = next(iter(sub)).ack_inbox
    change(desk, "move", all=True, **DUR)
    assert desk.received() == [(1, 1), (2, 1)]
    desk.ack(ack_inbox, 1, 2)
    assert desk.received() == [(3, 0), (4, 0)]
    desk.ack(ack_inbox, 3, 4)
    assert desk.received() == [(5, 1), (6, 1)]


def test_move_of_an_offline_durable_counts_when_it_comes_back(desk):
    sub = desk.subscribe("foo", durable="dur")
    publish(desk, 4)
    desk.ack(sub.ack_inbox, 1, 2, 3)
    desk.leave("foo", sub.ack_inbox)
    desk.received()

    change(desk, "move", sequence=2, **DUR)
    desk.restart()
    desk.subscribe("foo", durable="dur")

    assert desk.received() == [(2, 1), (3, 1), (4, 1)]


def test_a_queue_group_is_moved_with_all_its_members(desk):
    subs = [desk.subscribe("foo", inbox, queue="q", in_flight=3) for inbox in ("a", "b")]
    publish(desk, 6)
    assert sorted(numbers(desk, "a") + numbers(desk, "b")) == [1, 2, 3, 4, 5, 6]

    change(desk, "move", queue_group="q", all=True)

    again = desk.received("a") + desk.received("b")
    assert sorted(again) == [(n, 1) for n in range(1, 7)]
    for sub in subs:
        desk.ack(sub.ack_inbox, 1, 2, 3, 4, 5, 6)
    desk.pass_time(60)
    assert numbers(desk, "a") + numbers(desk, "b") == []


def test_acks_of_before_the_move_do_not_settle_what_was_not_sent_again_yet(desk):
    sub = desk.subscribe("foo", durable="dur", in_flight=2)
    publish(desk, 6)
    for first in (1, 3):
        desk.ack(sub.ack_inbox, first, first + 1)
    desk.received()
    change(desk, "move", all=True, **DUR)
    assert desk.received() == [(1, 1), (2, 1)]

    desk.ack(sub.ack_inbox, 4, 5)  # late ones, of what is not sent again yet
    desk.ack(sub.ack_inbox, 1, 2)
    assert desk.received() == [(3, 1), (4, 1)]


def test_move_while_messages_are_read_from_disk_throws_that_read_away(desk):
    publish(desk, 5)
    desk.subscribe("foo", durable="dur", in_flight=2)
    desk.received()
    dispatch = desk.broker.context.groups[1].dispatch
    live = next(iter(dispatch.cursors.values()))
    live.fetching = 77  # a read is under way
    change(desk, "move", sequence=2, **DUR)

    assert live.fetching != 77
    assert desk.received() == [(2, 1), (3, 0)]


def test_what_is_sent_while_the_move_is_on_its_way_is_flagged_later(desk):
    sub = desk.subscribe("foo", durable="dur", in_flight=3)
    publish(desk, 6)
    assert numbers(desk) == [1, 2, 3]
    desk.hold = True
    begin(desk, "move", sequence=2, **DUR)
    assert answer(desk) is None
    desk.ack(sub.ack_inbox, 1, 2)
    assert desk.received() == [(4, 0), (5, 0)], "it is not committed yet"
    desk.hold = False
    desk.turn()

    assert not answer(desk).error
    assert desk.received() == [(2, 1), (3, 1), (4, 1)]
    desk.ack(sub.ack_inbox, 2, 3, 4)
    assert desk.received() == [(5, 1), (6, 0)]


def test_power_is_cut_between_the_move_and_its_commit(desk):
    """The entry is in the log with what was told after it: the next life knows what was sent in between."""
    sub = desk.subscribe("foo", durable="dur", in_flight=3)
    publish(desk, 6)
    desk.received()
    desk.hold = True
    begin(desk, "move", sequence=2, **DUR)
    desk.ack(sub.ack_inbox, 1, 2)
    assert numbers(desk) == [4, 5]
    desk.hold = False
    desk.restart()

    assert desk.received() == [(2, 1), (3, 1), (4, 1)]
    desk.ack(sub.ack_inbox, 2, 3, 4)
    assert desk.received() == [(5, 1), (6, 0)]


def test_two_moves_on_their_way_at_once(desk):
    sub = desk.subscribe("foo", durable="dur", in_flight=3)
    publish(desk, 6)
    desk.received()
    desk.hold = True
    begin(desk, "move", "r1", sequence=5, **DUR)
    desk.ack(sub.ack_inbox, 1)
    assert numbers(desk) == [4]
    begin(desk, "move", "r2", sequence=2, **DUR)
    desk.hold = False
    desk.turn()

    assert not answer(desk, "r1").error
    assert not answer(desk, "r2").error
    assert desk.received() == [(2, 1), (3, 1), (4, 1)]
    desk.ack(sub.ack_inbox, 2, 3, 4)
    assert desk.received() == [(5, 0), (6, 0)]


def test_a_move_survives_power_lost_with_all_that_was_sent_since(desk):
    sub = desk.subscribe("foo", durable="dur", in_flight=3)
    publish(desk, 4)
    desk.ack(sub.ack_inbox, 1, 2, 3)
    desk.ack(sub.ack_inbox, 4)
    change(desk, "move", sequence=2, **DUR)
    desk.received()
    desk.restart()
    desk.pass_time(40)

    assert [sequence for sequence, count in desk.received() if count] == [2, 3, 4]


def test_a_full_disk_refuses_a_move_and_nothing_happens(desk):
    desk.subscribe("foo", durable="dur")
    publish(desk, 2)
    desk.received()
    desk.full = True
    begin(desk, "move", all=True, **DUR)
    refused = answer(desk)

    assert refused.retry
    assert refused.error
    desk.full = False
    desk.pass_time(1)
    assert desk.received() == []


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({}, errors.INVALID_MOVE),
        ({"sequence": 0}, errors.INVALID_MOVE),
        ({"new_only": False}, errors.INVALID_MOVE),
        ({"sequence": 9}, 'stan: channel "foo" ends with sequence 2, 9 is not there yet'),
    ],
)
def test_move_without_a_place_to_go_is_refused(desk, told, error):
    desk.subscribe("foo", durable="dur")
    publish(desk, 2)

    assert refusal(desk, "move", **told, **DUR) == error


# --- which ----------------------------------------------------------------------------------------------------------------


def test_a_cursor_is_found_by_number_or_name(desk):
    desk.connect("you")
    for client_id in ("me", "you"):
        desk.subscribe("foo", client_id, durable="dur", client_id=client_id)
    desk.subscribe("foo", "q", queue="q", durable="dq")
    desk.subscribe("foo", "plain")
    cursors = desk.broker.context.groups[1].machine.cursors.values()
    plain = next(cursor for cursor in cursors if not cursor.name)

    changed = [
        change(desk, "pause", **named)
        for named in (
            {"durable_name": "dur", "client_id": "you"},
            {"queue_group": "dq:q"},
            {"queue_group": "q", "durable_name": "dq"},
            {"cursor_id": plain.cursor_id},
        )
    ]
    assert changed == [1, 1, 0, 1]
    assert sorted(c.name for c in cursors if c.paused) == [b"", b"dq:q", b"dur"]


def test_names_that_mean_none_or_several_are_refused_and_named(desk):
    desk.connect("you")
    for client_id in ("me", "you"):
        desk.subscribe("foo", client_id, durable="dur", client_id=client_id)

    several = refusal(desk, "pause", **DUR)
    assert several.startswith('stan: durable "dur" in channel "foo" is one of several, give the number or the client: ')
    assert 'of client "me"' in several
    assert 'of client "you"' in several
    assert refusal(desk, "pause", durable_name=b"\xff\n") == 'stan: there is no durable "\\xff\\n" in channel "foo"'
    assert refusal(desk, "pause", durable_name="no") == 'stan: there is no durable "no" in channel "foo"'
    assert refusal(desk, "skip", queue_group="g", runs=[1, 1]) == 'stan: there is no queue group "g" in channel "foo"'
    assert refusal(desk, "pause", cursor_id=99) == 'stan: there is no position 99 in channel "foo"'
    assert refusal(desk, "pause") == errors.INVALID_WHICH
    assert refusal(desk, "pause", channel="no", **DUR) == errors.UNKNOWN_CHANNEL
    assert refusal(desk, "pause", version=9, **DUR) == errors.UNKNOWN_VERSION


# --- skip -----------------------------------------------------------------------------------------------------------------


def test_skipped_messages_count_as_acked_and_open_the_window(desk):
    desk.subscribe("foo", durable="dur", in_flight=2, wait=1)
    publish(desk, 4)
    assert numbers(desk) == [1, 2]

    assert change(desk, "skip", runs=[1, 1], **DUR) == 1
    assert desk.received() == [(3, 0)]
    desk.pass_time(3)
    assert 1 not in numbers(desk)


def test_skipping_what_was_not_sent_yet_passes_over_it_even_after_a_restart(desk):
    sub = desk.subscribe("foo", durable="dur", in_flight=1)
    publish(desk, 5)
    desk.received()

    assert change(desk, "skip", runs=[3, 3, 5, 5], **DUR) == 2
    desk.restart()
    desk.ack(sub.ack_inbox, 1)
    assert desk.received() == [(2, 0)]
    desk.ack(sub.ack_inbox, 2)
    assert desk.received() == [(4, 0)]
    desk.ack(sub.ack_inbox, 4)
    publish(desk, 1)

    assert desk.received() == [(6, 0)]


def test_what_was_skipped_unsent_is_no_repeat_after_a_move_back(desk):
    sub = desk.subscribe("foo", durable="dur", in_flight=1)
    publish(desk, 3)
    change(desk, "skip", runs=[2, 2], **DUR)
    desk.ack(sub.ack_inbox, 1)
    desk.ack(sub.ack_inbox, 3)
    desk.received()
    told(desk)

    change(desk, "move", sequence=1, **DUR)
    desk.ack(sub.ack_inbox, 1)
    desk.ack(sub.ack_inbox, 2)

    assert desk.received() == [(1, 1), (2, 0), (3, 1)]


def test_skip_of_an_offline_durable(desk):
    sub = desk.subscribe("foo", durable="dur")
    publish(desk, 4)
    desk.leave("foo", sub.ack_inbox)
    desk.received()
    assert change(desk, "skip", runs=[1, 2, 4, 4], **DUR) == 3
    publish(desk, 1)
    desk.subscribe("foo", durable="dur")

    assert desk.received() == [(3, 1), (5, 0)]


def test_a_skip_is_not_undone_by_what_is_told_before_it_is_known(desk):
    """Its ack wait ends while the skip is on its way: the log hears that it is owed after it heard of the skip."""
    desk.subscribe("foo", durable="dur", wait=1)
    publish(desk, 2)
    desk.received()
    desk.hold = True
    begin(desk, "skip", runs=[1, 1], **DUR)
    desk.pass_time(1.5)
    desk.received()
    desk.hold = False
    desk.restart()
    desk.pass_time(5)

    assert 1 not in numbers(desk)


@pytest.mark.parametrize("runs", [[], [1], [0, 1], [3, 2]])
def test_skip_without_well_formed_runs_is_refused(desk, runs):
    desk.subscribe("foo", durable="dur")
    publish(desk, 3)

    assert refusal(desk, "skip", runs=runs, **DUR) == errors.INVALID_RUNS


def test_skip_beyond_the_end_or_of_too_many_pieces_is_refused(desk):
    desk.subscribe("foo", durable="dur")
    publish(desk, 2)
    assert "ends with sequence 2" in refusal(desk, "skip", runs=[2, 3], **DUR)
    runs = [1, 1] * (limits.OVERRIDE_RUNS_MAX + 1)

    assert refusal(desk, "skip", runs=runs, **DUR) == errors.TOO_MANY_SKIPPED


# --- redeliver ------------------------------------------------------------------------------------------------------------


def test_pending_messages_are_sent_again_at_once_counted(desk):
    sub = desk.subscribe("foo", durable="dur")
    publish(desk, 3)
    desk.ack(sub.ack_inbox, 2)
    desk.received()

    assert change(desk, "redeliver", **DUR) == 2
    assert desk.received() == [(1, 1), (3, 1)]
    assert change(desk, "redeliver", runs=[3, 3], **DUR) == 1
    assert desk.received() == [(3, 2)]
    desk.ack(sub.ack_inbox, 1, 3)
    assert change(desk, "redeliver", **DUR) == 0
    desk.pass_time(60)
    assert desk.received() == []


# --- pause, resume --------------------------------------------------------------------------------------------------------


def test_paused_gets_nothing_until_it_is_resumed_and_acks_count(desk):
    sub = desk.subscribe("foo", durable="dur", wait=1)
    publish(desk, 2)
    desk.received()

    assert change(desk, "pause", **DUR) == 1
    assert change(desk, "pause", **DUR) == 0
    publish(desk, 1)
    desk.ack(sub.ack_inbox, 1)
    desk.pass_time(5)
    assert desk.received() == []
    desk.restart()
    desk.pass_time(5)
    assert desk.received() == []

    assert change(desk, "resume", **DUR) == 1
    assert sorted(desk.received()) == [(2, 1), (3, 0)]


def test_paused_also_for_members_that_come_later(desk):
    first = desk.subscribe("foo", durable="dur")
    change(desk, "pause", **DUR)
    desk.leave("foo", first.ack_inbox)
    publish(desk, 1)
    desk.subscribe("foo", durable="dur")
    desk.pass_time(1)
    assert desk.received() == []

    change(desk, "resume", **DUR)
    assert desk.received() == [(1, 0)]


def test_a_paused_cursor_keeps_no_messages_in_memory(desk):
    desk.subscribe("foo", durable="dur")
    change(desk, "pause", **DUR)
    for _ in range(5):
        publish(desk, 3)

    dispatch = desk.broker.context.groups[1].dispatch
    assert not next(iter(dispatch.cursors.values())).batches


def test_resumed_leaves_nothing_behind_in_the_rows(desk):
    desk.subscribe("foo", durable="dur")
    change(desk, "pause", **DUR)
    change(desk, "resume", **DUR)

    assert not told(desk).cursors[1].override


# --- evict, delete --------------------------------------------------------------------------------------------------------


def test_an_evicted_member_leaves_what_it_had_to_the_others(desk):
    subs = {inbox: desk.subscribe("foo", inbox, queue="q") for inbox in ("a", "b")}
    publish(desk, 4)
    machine = desk.broker.context.groups[1].machine
    victim = next(sub for sub in machine.subscriptions.values() if sub.inbox == b"a")
    had = numbers(desk, "a")
    desk.received("b")

    assert change(desk, "evict_member", subscription_id=victim.subscription_id) == 1

    assert desk.received("b") == [(sequence, 1) for sequence in had]
    assert refusal(desk, "evict_member", subscription_id=victim.subscription_id).startswith("stan: there is no sub")
    assert subs


def test_an_evicted_durable_stays_and_can_come_back(desk):
    desk.subscribe("foo", durable="dur")
    publish(desk, 1)
    desk.received()
    number = next(iter(desk.broker.context.groups[1].machine.subscriptions))
    change(desk, "evict_member", subscription_id=number)
    publish(desk, 1)
    assert desk.received() == []

    desk.subscribe("foo", durable="dur")
    assert desk.received() == [(1, 1), (2, 0)]


def test_a_deleted_cursor_is_gone_with_position_and_members(desk):
    sub = desk.subscribe("foo", durable="dur", wait=1)
    publish(desk, 2)
    desk.received()

    assert change(desk, "delete_cursor", **DUR) == 1
    publish(desk, 1)
    desk.ack(sub.ack_inbox, 1)
    desk.pass_time(5)
    assert desk.received() == []
    assert not told(desk).cursors
    assert not told(desk).subscriptions
    assert refusal(desk, "delete_cursor", **DUR) == 'stan: there is no durable "dur" in channel "foo"'

    desk.subscribe("foo", durable="dur")
    assert desk.received() == [(1, 0), (2, 0), (3, 0)]


def test_a_group_with_members_is_deleted_while_its_members_are_being_sent_to(desk):
    for inbox in ("a", "b"):
        desk.subscribe("foo", inbox, queue="q", durable="dq", wait=1)
    publish(desk, 4)
    change(desk, "delete_cursor", queue_group="dq:q")
    desk.restart()
    desk.said.clear()
    publish(desk, 1)
    desk.pass_time(3)

    assert numbers(desk, "a") + numbers(desk, "b") == []
    desk.close()


# --- leaders ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def node():
    node = Node()
    node.feed_client()
    node.feed_channel()
    node.lead()
    node.subscribe("foo", durable="dur", in_flight=2)
    node.meta_says(len(node.logs[0]))
    node.sub = node.answer(f"reply.{node.inboxes}", wire.SubscriptionResponse)
    node.publish("foo", *[b"%d" % n for n in range(6)])
    for first in (1, 3, 5):
        node.ack(node.sub.ack_inbox, first, first + 1)
    node.received()
    return node


def led_anew(node, *, replay):
    """Another one led for a moment; it was told what was sent."""
    node.pass_time(2 * limits.PROGRESS_INTERVAL / SECOND)
    node.follow()
    node.lead(replay=replay)


def test_acks_heard_before_a_move_settle_nothing_for_the_next_leader(node):
    """It hears them once more, and must not take them for acks of what is sent again."""
    change(node, "move", sequence=2, **DUR)
    assert node.received() == [(2, 1), (3, 1)]
    led_anew(node, replay=True)
    node.pass_time(31)

    assert node.received() == [(2, 1), (3, 1)]
    node.ack(node.sub.ack_inbox, 2, 3)
    assert node.received() == [(4, 1), (5, 1)]


def test_acks_of_before_a_move_that_come_to_the_next_leader_settle_nothing(node):
    change(node, "move", sequence=2, **DUR)
    node.received()
    led_anew(node, replay=False)
    node.ack(node.sub.ack_inbox, 5, 6)
    node.ack(node.sub.ack_inbox, 2, 3)

    assert node.received() == [(4, 1), (5, 1)]


def test_followers_that_never_led_know_the_same(node):
    change(node, "move", sequence=2, **DUR)
    change(node, "skip", runs=[4, 4], **DUR)
    change(node, "pause", **DUR)
    node.pass_time(1)
    follower = Node()
    for group, kind, body in node.committed:
        follower.feed(group, kind, body)

    assert snapshot(follower.broker.context.groups[1].machine) == snapshot(node.broker.context.groups[1].machine)


def test_a_leader_that_may_be_replaced_says_so(node):
    node.broker.context.groups[1].dispatch.lease_lapsed = True
    begin(node, "pause", **DUR)

    assert answer(node).retry
    assert not node.broker.context.groups[1].machine.cursors[1].paused

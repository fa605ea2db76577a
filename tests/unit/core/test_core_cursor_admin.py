"""What operators change about durables, queue groups and subscriptions, at the core: moved, skipped, sent again, paused, gone."""

import pytest
from stan_protocol import refusals
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import ChannelLimits, Config, StoreLimits
from tests.kit.core_harness import START, CoreHarness, Node
from tests.kit.cursor_admin import agrees, answer, begin, change, refusal

DUR = {"durable_name": "dur"}


@pytest.fixture
def harness(harness):
    yield harness
    agrees(harness)


def told(harness):
    """Flush what the live view has to tell, which it does with the next turn."""
    harness.turn()
    return harness.follower()


def publish(harness, count, channel="foo"):
    harness.publish(channel, *[b"x"] * count)


def numbers(harness, inbox="inbox"):
    return [sequence for sequence, _ in harness.received(inbox)]


# --- create ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "expected"),
    [({"sequence": 3}, [3, 4, 5]), ({"all": True}, [1, 2, 3, 4, 5]), ({"new_only": True}, []), ({"sequence": 6}, [])],
)
def test_a_created_durable_is_resumed_where_it_was_put_whatever_start_is_asked_for(harness, at, expected):
    publish(harness, 5)
    assert change(harness, "create_cursor", client_id="me", **DUR, **at) == 1
    assert change(harness, "create_cursor", queue_group="group", durable_name="dur", **at) == 1

    harness.subscribe("foo", durable="dur")
    assert numbers(harness) == expected
    harness.subscribe("foo", queue="group", durable="dur", inbox="of.group")
    assert numbers(harness, "of.group") == expected
    publish(harness, 1)
    assert harness.received()[-1:] == [(6, 0)], "it is new to it"


def test_a_durable_is_created_once_and_only_with_whole_names(harness):
    publish(harness, 2)
    change(harness, "create_cursor", client_id="me", sequence=2, **DUR)
    assert refusal(harness, "create_cursor", client_id="me", sequence=1, **DUR) == refusals.CURSOR_EXISTS
    assert refusal(harness, "create_cursor", sequence=1, **DUR) == refusals.INVALID_NEW_CURSOR
    assert refusal(harness, "create_cursor", queue_group="group", sequence=1) == refusals.INVALID_NEW_CURSOR
    assert refusal(harness, "create_cursor", cursor_id=7, sequence=1) == refusals.INVALID_NEW_CURSOR
    assert refusal(harness, "create_cursor", client_id="me", durable_name="other") == refusals.INVALID_MOVE
    beyond = refusal(harness, "create_cursor", client_id="me", durable_name="other", sequence=4)
    assert beyond == refusals.beyond_end("foo", 4, 2)
    harness.subscribe("foo", durable="dur")
    assert numbers(harness) == [2]


def test_created_durables_count_as_subscriptions():
    harness = CoreHarness(Config(limits=StoreLimits(default=ChannelLimits(subscriptions=1))))
    harness.connect()
    publish(harness, 1)
    change(harness, "create_cursor", client_id="me", sequence=1, **DUR)
    refused = refusal(harness, "create_cursor", client_id="me", durable_name="other", sequence=1)
    assert refused == refusals.TOO_MANY_SUBSCRIPTIONS


# --- move -----------------------------------------------------------------------------------------------------------------


def test_move_back_sends_what_follows_again_flagged_and_new_messages_not(harness):
    sub = harness.subscribe("foo", durable="dur")
    publish(harness, 5)
    harness.ack(sub.ack_inbox, 1, 2, 3, 4, 5)
    harness.received()

    assert change(harness, "move", sequence=3, **DUR) == 1
    publish(harness, 1)

    assert harness.received() == [(3, 1), (4, 1), (5, 1), (6, 0)]


def test_move_lets_go_of_what_is_pending_and_owed(harness):
    harness.subscribe("foo", durable="dur", wait=1)
    publish(harness, 4)
    harness.received()

    change(harness, "move", new_only=True, **DUR)
    harness.pass_time(5)

    assert harness.received() == []
    publish(harness, 1)
    assert harness.received() == [(5, 0)]


def test_move_back_over_pending_ones_sends_each_once(harness):
    sub = harness.subscribe("foo", durable="dur", in_flight=4, wait=30)
    publish(harness, 6)
    assert numbers(harness) == [1, 2, 3, 4]

    change(harness, "move", sequence=2, **DUR)
    assert harness.received() == [(2, 1), (3, 1), (4, 1), (5, 0)]

    harness.ack(sub.ack_inbox, 2, 3, 4, 5)
    assert harness.received() == [(6, 0)]


def test_move_to_a_time(harness):
    sub = harness.subscribe("foo", durable="dur")
    publish(harness, 2)
    harness.pass_time(3600)
    publish(harness, 2)
    harness.ack(sub.ack_inbox, 1, 2, 3, 4)
    harness.received()

    change(harness, "move", time=START + 1800 * SECOND, **DUR)
    assert harness.received() == [(3, 1), (4, 1)]
    change(harness, "move", time=START - SECOND, **DUR)
    assert numbers(harness) == [1, 2, 3, 4]
    change(harness, "move", time=harness.wall + SECOND, **DUR)
    assert harness.received() == []


def test_move_to_all_begins_where_retention_has_left_something(harness):
    sub = harness.subscribe("foo", durable="dur")
    publish(harness, 5)
    harness.ack(sub.ack_inbox, 1, 2, 3, 4, 5)
    harness.received()
    uid = harness.state.channels[b"foo"].uid
    harness.indexes[1, uid].first = 3

    change(harness, "move", all=True, **DUR)

    assert harness.received() == [(3, 1), (4, 1), (5, 1)]


def test_what_was_never_sent_is_not_flagged_when_the_cursor_is_moved_back_before_its_beginning(harness):
    publish(harness, 4)
    harness.subscribe("foo", durable="dur", start=3, seq=3)
    assert harness.received() == [(3, 0), (4, 0)]

    change(harness, "move", all=True, **DUR)

    assert harness.received() == [(1, 0), (2, 0), (3, 1), (4, 1)]


def test_what_a_move_ahead_has_passed_is_no_repeat_later(harness):
    publish(harness, 6)
    harness.subscribe("foo", durable="dur", in_flight=2)
    assert harness.received() == [(1, 0), (2, 0)]
    change(harness, "move", sequence=5, **DUR)
    assert harness.received() == [(5, 0), (6, 0)]

    ack_inbox = harness.state.subscription().settings.ack_inbox
    change(harness, "move", all=True, **DUR)
    assert harness.received() == [(1, 1), (2, 1)]
    harness.ack(ack_inbox, 1, 2)
    assert harness.received() == [(3, 0), (4, 0)]
    harness.ack(ack_inbox, 3, 4)
    assert harness.received() == [(5, 1), (6, 1)]


def test_move_of_an_offline_durable_counts_when_it_comes_back(harness):
    sub = harness.subscribe("foo", durable="dur")
    publish(harness, 4)
    harness.ack(sub.ack_inbox, 1, 2, 3)
    harness.leave("foo", sub.ack_inbox)
    harness.received()

    change(harness, "move", sequence=2, **DUR)
    harness.restart()
    harness.subscribe("foo", durable="dur")

    assert harness.received() == [(2, 1), (3, 1), (4, 1)]


def test_a_queue_group_is_moved_with_all_its_members(harness):
    subs = [harness.subscribe("foo", inbox, queue="q", in_flight=3) for inbox in ("a", "b")]
    publish(harness, 6)
    assert sorted(numbers(harness, "a") + numbers(harness, "b")) == [1, 2, 3, 4, 5, 6]

    change(harness, "move", queue_group="q", all=True)

    again = harness.received("a") + harness.received("b")
    assert sorted(again) == [(n, 1) for n in range(1, 7)]
    for sub in subs:
        harness.ack(sub.ack_inbox, 1, 2, 3, 4, 5, 6)
    harness.pass_time(60)
    assert numbers(harness, "a") + numbers(harness, "b") == []


def test_acks_of_before_the_move_do_not_settle_what_was_not_sent_again_yet(harness):
    sub = harness.subscribe("foo", durable="dur", in_flight=2)
    publish(harness, 6)
    for first in (1, 3):
        harness.ack(sub.ack_inbox, first, first + 1)
    harness.received()
    change(harness, "move", all=True, **DUR)
    assert harness.received() == [(1, 1), (2, 1)]

    harness.ack(sub.ack_inbox, 4, 5)  # late ones, of what is not sent again yet
    harness.ack(sub.ack_inbox, 1, 2)
    assert harness.received() == [(3, 1), (4, 1)]


def test_move_while_messages_are_read_from_disk_throws_that_read_away(harness):
    publish(harness, 5)
    harness.slow = True
    harness.subscribe("foo", durable="dur", in_flight=2)
    (old,) = harness.reads
    change(harness, "move", sequence=2, **DUR)
    assert [read.number > old.number for read in harness.reads] == [False, True]
    harness.answer_reads()
    harness.turn()

    assert harness.received() == [(2, 0), (3, 0)]


def test_what_is_sent_while_the_move_is_on_its_way_is_flagged_later(harness):
    sub = harness.subscribe("foo", durable="dur", in_flight=3)
    publish(harness, 6)
    assert numbers(harness) == [1, 2, 3]
    harness.hold = True
    begin(harness, "move", sequence=2, **DUR)
    assert answer(harness) is None
    harness.ack(sub.ack_inbox, 1, 2)
    assert harness.received() == [(4, 0), (5, 0)], "it is not committed yet"
    harness.hold = False
    harness.turn()

    assert not answer(harness).error
    assert harness.received() == [(2, 1), (3, 1), (4, 1)]
    harness.ack(sub.ack_inbox, 2, 3, 4)
    assert harness.received() == [(5, 1), (6, 0)]


def test_power_is_cut_between_the_move_and_its_commit(harness):
    """The entry is in the log with what was told after it: the next life knows what was sent in between."""
    sub = harness.subscribe("foo", durable="dur", in_flight=3)
    publish(harness, 6)
    harness.received()
    harness.hold = True
    begin(harness, "move", sequence=2, **DUR)
    harness.ack(sub.ack_inbox, 1, 2)
    assert numbers(harness) == [4, 5]
    harness.hold = False
    harness.restart()

    assert harness.received() == [(2, 1), (3, 1), (4, 1)]
    harness.ack(sub.ack_inbox, 2, 3, 4)
    assert harness.received() == [(5, 1), (6, 0)]


def test_two_moves_on_their_way_at_once(harness):
    sub = harness.subscribe("foo", durable="dur", in_flight=3)
    publish(harness, 6)
    harness.received()
    harness.hold = True
    begin(harness, "move", "r1", sequence=5, **DUR)
    harness.ack(sub.ack_inbox, 1)
    assert numbers(harness) == [4]
    begin(harness, "move", "r2", sequence=2, **DUR)
    harness.hold = False
    harness.turn()

    assert not answer(harness, "r1").error
    assert not answer(harness, "r2").error
    assert harness.received() == [(2, 1), (3, 1), (4, 1)]
    harness.ack(sub.ack_inbox, 2, 3, 4)
    assert harness.received() == [(5, 0), (6, 0)]


def test_a_move_survives_power_lost_with_all_that_was_sent_since(harness):
    sub = harness.subscribe("foo", durable="dur", in_flight=3)
    publish(harness, 4)
    harness.ack(sub.ack_inbox, 1, 2, 3)
    harness.ack(sub.ack_inbox, 4)
    change(harness, "move", sequence=2, **DUR)
    harness.received()
    harness.restart()
    harness.pass_time(40)

    assert [sequence for sequence, count in harness.received() if count] == [2, 3, 4]


def test_a_full_disk_refuses_a_move_and_nothing_happens(harness):
    harness.subscribe("foo", durable="dur")
    publish(harness, 2)
    harness.received()
    harness.full = True
    begin(harness, "move", all=True, **DUR)
    refused = answer(harness)

    assert refused.retry
    assert refused.error
    harness.full = False
    harness.pass_time(1)
    assert harness.received() == []


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({}, refusals.INVALID_MOVE),
        ({"sequence": 0}, refusals.INVALID_MOVE),
        ({"new_only": False}, refusals.INVALID_MOVE),
        ({"sequence": 9}, 'stan: channel "foo" ends with sequence 2, 9 is not there yet'),
    ],
)
def test_move_without_a_place_to_go_is_refused(harness, told, error):
    harness.subscribe("foo", durable="dur")
    publish(harness, 2)

    assert refusal(harness, "move", **told, **DUR) == error


# --- which ----------------------------------------------------------------------------------------------------------------


def test_a_cursor_is_found_by_number_or_name(harness):
    harness.connect("you")
    for client_id in ("me", "you"):
        harness.subscribe("foo", client_id, durable="dur", client_id=client_id)
    harness.subscribe("foo", "q", queue="q", durable="dq")
    harness.subscribe("foo", "plain")
    plain = next(cursor for cursor in harness.state.positions() if not cursor.name)

    changed = [
        change(harness, "pause", **named)
        for named in (
            {"durable_name": "dur", "client_id": "you"},
            {"queue_group": "dq:q"},
            {"queue_group": "q", "durable_name": "dq"},
            {"cursor_id": plain.cursor_id},
        )
    ]
    assert changed == [1, 1, 0, 1]
    assert sorted(c.name for c in harness.state.positions() if c.paused) == [b"", b"dq:q", b"dur"]


def test_names_that_mean_none_or_several_are_refused_and_named(harness):
    harness.connect("you")
    for client_id in ("me", "you"):
        harness.subscribe("foo", client_id, durable="dur", client_id=client_id)

    several = refusal(harness, "pause", **DUR)
    assert several.startswith('stan: durable "dur" in channel "foo" is one of several, give the number or the client: ')
    assert 'of client "me"' in several
    assert 'of client "you"' in several
    assert refusal(harness, "pause", durable_name=b"\xff\n") == 'stan: there is no durable "\\xff\\n" in channel "foo"'
    assert refusal(harness, "pause", durable_name="no") == 'stan: there is no durable "no" in channel "foo"'
    assert (
        refusal(harness, "skip", queue_group="g", runs=[1, 1]) == 'stan: there is no queue group "g" in channel "foo"'
    )
    assert refusal(harness, "pause", cursor_id=99) == 'stan: there is no position 99 in channel "foo"'
    assert refusal(harness, "pause") == refusals.CURSOR_NOT_NAMED
    assert refusal(harness, "pause", channel="no", **DUR) == refusals.UNKNOWN_CHANNEL
    assert refusal(harness, "pause", version=9, **DUR) == refusals.UNKNOWN_VERSION


# --- skip -----------------------------------------------------------------------------------------------------------------


def test_skipped_messages_count_as_acked_and_open_the_window(harness):
    harness.subscribe("foo", durable="dur", in_flight=2, wait=1)
    publish(harness, 4)
    assert numbers(harness) == [1, 2]

    assert change(harness, "skip", runs=[1, 1], **DUR) == 1
    assert harness.received() == [(3, 0)]
    harness.pass_time(3)
    assert 1 not in numbers(harness)


def test_skipping_what_was_not_sent_yet_passes_over_it_even_after_a_restart(harness):
    sub = harness.subscribe("foo", durable="dur", in_flight=1)
    publish(harness, 5)
    harness.received()

    assert change(harness, "skip", runs=[3, 3, 5, 5], **DUR) == 2
    harness.restart()
    harness.ack(sub.ack_inbox, 1)
    assert harness.received() == [(2, 0)]
    harness.ack(sub.ack_inbox, 2)
    assert harness.received() == [(4, 0)]
    harness.ack(sub.ack_inbox, 4)
    publish(harness, 1)

    assert harness.received() == [(6, 0)]


def test_what_was_skipped_unsent_is_no_repeat_after_a_move_back(harness):
    sub = harness.subscribe("foo", durable="dur", in_flight=1)
    publish(harness, 3)
    change(harness, "skip", runs=[2, 2], **DUR)
    harness.ack(sub.ack_inbox, 1)
    harness.ack(sub.ack_inbox, 3)
    harness.received()
    told(harness)

    change(harness, "move", sequence=1, **DUR)
    harness.ack(sub.ack_inbox, 1)
    harness.ack(sub.ack_inbox, 2)

    assert harness.received() == [(1, 1), (2, 0), (3, 1)]


def test_skip_of_an_offline_durable(harness):
    sub = harness.subscribe("foo", durable="dur")
    publish(harness, 4)
    harness.leave("foo", sub.ack_inbox)
    harness.received()
    assert change(harness, "skip", runs=[1, 2, 4, 4], **DUR) == 3
    publish(harness, 1)
    harness.subscribe("foo", durable="dur")

    assert harness.received() == [(3, 1), (5, 0)]


def test_a_skip_is_not_undone_by_what_is_told_before_it_is_known(harness):
    """Its ack wait ends while the skip is on its way: the log hears that it is owed after it heard of the skip."""
    harness.subscribe("foo", durable="dur", wait=1)
    publish(harness, 2)
    harness.received()
    harness.hold = True
    begin(harness, "skip", runs=[1, 1], **DUR)
    harness.pass_time(1.5)
    harness.received()
    harness.hold = False
    harness.restart()
    harness.pass_time(5)

    assert 1 not in numbers(harness)


@pytest.mark.parametrize("runs", [[], [1], [0, 1], [3, 2]])
def test_skip_without_well_formed_runs_is_refused(harness, runs):
    harness.subscribe("foo", durable="dur")
    publish(harness, 3)

    assert refusal(harness, "skip", runs=runs, **DUR) == refusals.INVALID_RUNS


def test_skip_beyond_the_end_or_of_too_many_pieces_is_refused(harness):
    harness.subscribe("foo", durable="dur")
    publish(harness, 2)
    assert "ends with sequence 2" in refusal(harness, "skip", runs=[2, 3], **DUR)
    runs = [1, 1] * (limits.OVERRIDE_RUNS_MAX + 1)

    assert refusal(harness, "skip", runs=runs, **DUR) == refusals.TOO_MANY_SKIPPED


# --- redeliver ------------------------------------------------------------------------------------------------------------


def test_pending_messages_are_sent_again_at_once_counted(harness):
    sub = harness.subscribe("foo", durable="dur")
    publish(harness, 3)
    harness.ack(sub.ack_inbox, 2)
    harness.received()

    assert change(harness, "redeliver", **DUR) == 2
    assert harness.received() == [(1, 1), (3, 1)]
    assert change(harness, "redeliver", runs=[3, 3], **DUR) == 1
    assert harness.received() == [(3, 2)]
    harness.ack(sub.ack_inbox, 1, 3)
    assert change(harness, "redeliver", **DUR) == 0
    harness.pass_time(60)
    assert harness.received() == []


# --- pause, resume --------------------------------------------------------------------------------------------------------


def test_paused_gets_nothing_until_it_is_resumed_and_acks_count(harness):
    sub = harness.subscribe("foo", durable="dur", wait=1)
    publish(harness, 2)
    harness.received()

    assert change(harness, "pause", **DUR) == 1
    assert change(harness, "pause", **DUR) == 0
    publish(harness, 1)
    harness.ack(sub.ack_inbox, 1)
    harness.pass_time(5)
    assert harness.received() == []
    harness.restart()
    harness.pass_time(5)
    assert harness.received() == []

    assert change(harness, "resume", **DUR) == 1
    assert sorted(harness.received()) == [(2, 1), (3, 0)]


def test_paused_also_for_members_that_come_later(harness):
    first = harness.subscribe("foo", durable="dur")
    change(harness, "pause", **DUR)
    harness.leave("foo", first.ack_inbox)
    publish(harness, 1)
    harness.subscribe("foo", durable="dur")
    harness.pass_time(1)
    assert harness.received() == []

    change(harness, "resume", **DUR)
    assert harness.received() == [(1, 0)]


def test_a_paused_cursor_keeps_no_messages_in_memory(harness):
    harness.subscribe("foo", durable="dur")
    change(harness, "pause", **DUR)
    for _ in range(5):
        publish(harness, 3)

    assert not harness.state.live_position().batches


def test_resumed_leaves_nothing_behind_in_the_rows(harness):
    harness.subscribe("foo", durable="dur")
    change(harness, "pause", **DUR)
    change(harness, "resume", **DUR)

    assert not told(harness).cursors[1].override


# --- evict, delete --------------------------------------------------------------------------------------------------------


def test_an_evicted_member_leaves_what_it_had_to_the_others(harness):
    subs = {inbox: harness.subscribe("foo", inbox, queue="q") for inbox in ("a", "b")}
    publish(harness, 4)
    victim = next(sub for sub in harness.state.subscriptions() if sub.settings.inbox == b"a")
    had = numbers(harness, "a")
    harness.received("b")

    assert change(harness, "evict_member", subscription_id=victim.subscription_id) == 1

    assert harness.received("b") == [(sequence, 1) for sequence in had]
    assert refusal(harness, "evict_member", subscription_id=victim.subscription_id) == (
        refusals.unknown_subscription(victim.subscription_id, "foo")
    )
    assert subs


def test_an_evicted_durable_stays_and_can_come_back(harness):
    harness.subscribe("foo", durable="dur")
    publish(harness, 1)
    harness.received()
    change(harness, "evict_member", subscription_id=harness.state.subscription().subscription_id)
    publish(harness, 1)
    assert harness.received() == []

    harness.subscribe("foo", durable="dur")
    assert harness.received() == [(1, 1), (2, 0)]


def test_a_deleted_cursor_is_gone_with_position_and_members(harness):
    sub = harness.subscribe("foo", durable="dur", wait=1)
    publish(harness, 2)
    harness.received()

    assert change(harness, "delete_cursor", **DUR) == 1
    publish(harness, 1)
    harness.ack(sub.ack_inbox, 1)
    harness.pass_time(5)
    assert harness.received() == []
    assert not told(harness).cursors
    assert not told(harness).subscriptions.by_id
    assert refusal(harness, "delete_cursor", **DUR) == 'stan: there is no durable "dur" in channel "foo"'

    harness.subscribe("foo", durable="dur")
    assert harness.received() == [(1, 0), (2, 0), (3, 0)]


def test_a_group_with_members_is_deleted_while_its_members_are_being_sent_to(harness):
    for inbox in ("a", "b"):
        harness.subscribe("foo", inbox, queue="q", durable="dq", wait=1)
    publish(harness, 4)
    change(harness, "delete_cursor", queue_group="dq:q")
    harness.restart()
    harness.said.clear()
    publish(harness, 1)
    harness.pass_time(3)

    assert numbers(harness, "a") + numbers(harness, "b") == []
    harness.close()


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

    assert follower.state.snapshot() == node.state.snapshot()


def test_a_leader_that_may_be_replaced_says_so(node):
    node.broker.stops.step_lease(1, holds=False)
    begin(node, "pause", **DUR)

    assert answer(node).retry
    assert not node.state.position().paused

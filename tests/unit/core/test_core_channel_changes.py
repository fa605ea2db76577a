"""Purges, deleted messages, channels made and deleted on request: at the core, over restarts, and on followers."""

import pytest
from stan_protocol import refusals
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.scalars import SECOND

from stan import limits
from stan.protocol.proto import entries_pb2 as entries
from tests.kit.core_harness import CoreHarness, Node
from tests.kit.cursor_admin import agrees

ADMIN = "_STAN.x.test-cluster.admin"
KINDS = {
    "purge": pb.PurgeRequest,
    "delete_message": pb.DeleteMessageRequest,
    "edit_limits": pb.EditLimitsRequest,
    "create_channel": pb.CreateChannelRequest,
    "delete_channel": pb.DeleteChannelRequest,
}


def ask(harness, kind, channel=b"foo", **asked):
    return CoreHarness.ask(
        harness, f"{ADMIN}.{kind}", KINDS[kind](version=1, channel=channel, **asked), pb.ChangeResponse
    )


def told(response):
    """(error, changed, first, last) of an answer."""
    return response.error.decode(), response.changed, response.first_sequence, response.last_sequence


@pytest.fixture
def harness(harness):
    harness.publish("foo", b"1", b"2", b"3")
    harness.publish("foo", b"4", b"5", b"6")
    return harness


def read(harness, inbox="reader", **options):
    """Sequences that a new subscription gets."""
    harness.subscribe("foo", inbox, in_flight=100, **options)
    return [sequence for sequence, _ in harness.received(inbox)]


# --- purge ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "answer", "left"),
    [
        ({"up_to": 2}, ("", 2, 3, 6), [3, 4, 5, 6]),
        ({"keep": 2}, ("", 4, 5, 6), [5, 6]),
        ({"keep": 6}, ("", 0, 1, 6), [1, 2, 3, 4, 5, 6]),
        ({"keep": 100}, ("", 0, 1, 6), [1, 2, 3, 4, 5, 6]),
        ({"keep": 0}, ("", 6, 7, 6), []),
        ({"up_to": 6}, ("", 6, 7, 6), []),
        ({"up_to": 1 << 63}, ("", 6, 7, 6), []),
        ({"up_to": 0}, ("", 0, 1, 6), [1, 2, 3, 4, 5, 6]),
    ],
)
def test_purge_removes_the_oldest(harness, what, answer, left) -> None:
    assert told(ask(harness, "purge", **what)) == answer
    again = told(ask(harness, "purge", **what))
    assert again == ("", 0, *answer[2:])
    assert read(harness) == left
    harness.restart()
    harness.connect()
    assert read(harness, "again") == left


def test_purge_without_saying_what_is_refused(harness) -> None:
    assert told(ask(harness, "purge"))[0] == refusals.INVALID_ADMIN


def test_channel_that_is_not_there(harness) -> None:
    assert told(ask(harness, "purge", b"bar", keep=0))[0] == refusals.UNKNOWN_CHANNEL
    assert told(ask(harness, "delete_message", b"bar", sequence=1))[0] == refusals.UNKNOWN_CHANNEL


def test_what_is_published_after_a_purge_goes_on_counting(harness) -> None:
    ask(harness, "purge", keep=0)
    harness.publish("foo", b"7")
    assert read(harness) == [7]


def test_purge_settles_what_was_pending_and_owed(harness) -> None:
    harness.subscribe("foo", "dur", durable="d", in_flight=2)
    assert harness.received("dur") == [(1, 0), (2, 0)]
    ask(harness, "purge", up_to=4)
    assert harness.received("dur") == [(5, 0), (6, 0)], "the window is open again at once"
    cursor = harness.state.position()
    assert cursor.pending == [5, 6]


def test_purge_settles_an_offline_durable(harness) -> None:
    sub = harness.subscribe("foo", "dur", durable="d", in_flight=2)
    harness.received("dur")
    harness.leave("foo", sub.ack_inbox)
    ask(harness, "purge", up_to=4)
    cursor = harness.state.position()
    assert (cursor.pending, cursor.last_sent) == ([], 4)
    harness.subscribe("foo", "dur", durable="d", in_flight=10)
    assert harness.received("dur") == [(5, 0), (6, 0)]


# --- single messages --------------------------------------------------------------------------------------------------


def test_deleted_message_is_passed_over(harness) -> None:
    assert told(ask(harness, "delete_message", sequence=3)) == ("", 1, 1, 6)
    assert told(ask(harness, "delete_message", sequence=3)) == ("", 0, 1, 6)
    assert told(ask(harness, "delete_message", sequence=5)) == ("", 1, 1, 6)
    assert read(harness) == [1, 2, 4, 6]
    harness.restart()
    harness.connect()
    assert read(harness, "again") == [1, 2, 4, 6]
    agrees(harness)


def test_message_that_was_never_there_cannot_be_deleted(harness) -> None:
    assert told(ask(harness, "delete_message", sequence=7))[0] == refusals.UNKNOWN_MESSAGE
    assert told(ask(harness, "delete_message"))[0] == refusals.UNKNOWN_MESSAGE


def test_message_that_is_gone_already_changes_nothing(harness) -> None:
    ask(harness, "purge", up_to=3)
    assert told(ask(harness, "delete_message", sequence=2)) == ("", 0, 4, 6)


def test_deleting_the_oldest_moves_the_first_sequence(harness) -> None:
    ask(harness, "delete_message", sequence=2)
    assert told(ask(harness, "delete_message", sequence=1)) == ("", 1, 3, 6)
    assert harness.follower().tombstones.by_channel == {}
    assert read(harness) == [3, 4, 5, 6]


def test_deleting_the_newest_leaves_its_sequence_unused(harness) -> None:
    ask(harness, "delete_message", sequence=6)
    harness.publish("foo", b"7")
    assert read(harness) == [1, 2, 3, 4, 5, 7]


def test_last_received_is_the_newest_that_is_left(harness) -> None:
    ask(harness, "delete_message", sequence=6)
    ask(harness, "delete_message", sequence=5)
    assert read(harness, start=1) == [4]
    ask(harness, "purge", up_to=4)
    assert read(harness, "again", start=1) == []
    harness.publish("foo", b"7")
    assert [sequence for sequence, _ in harness.received("again")] == [7]


def test_deleting_all_one_by_one(harness) -> None:
    for sequence in (2, 4, 6, 5, 3, 1):
        assert ask(harness, "delete_message", sequence=sequence).changed == 1
    assert told(ask(harness, "purge", keep=0)) == ("", 0, 7, 6)
    assert read(harness) == []
    harness.publish("foo", b"7")
    assert [sequence for sequence, _ in harness.received("reader")] == [7]


def test_purge_counts_what_is_left(harness) -> None:
    ask(harness, "delete_message", sequence=3)
    ask(harness, "delete_message", sequence=5)
    assert told(ask(harness, "purge", keep=2)) == ("", 2, 4, 6)
    assert read(harness) == [4, 6]
    assert told(ask(harness, "purge", keep=1)) == ("", 1, 6, 6)
    assert harness.follower().tombstones.by_channel == {}


def test_pending_message_that_is_deleted_opens_the_window(harness) -> None:
    sub = harness.subscribe("foo", "dur", durable="d", in_flight=2, wait=1)
    assert harness.received("dur") == [(1, 0), (2, 0)]
    ask(harness, "delete_message", sequence=2)
    assert harness.received("dur") == [(3, 0)]
    harness.pass_time(1.5)
    assert harness.received("dur") == [(1, 1), (3, 1)]
    harness.ack(sub.ack_inbox, 1, 2, 3)
    assert harness.received("dur") == [(4, 0), (5, 0)]


def test_owed_message_that_is_deleted_does_not_come_again(harness) -> None:
    sub = harness.subscribe("foo", "dur", durable="d", in_flight=4)
    harness.received("dur")
    harness.leave("foo", sub.ack_inbox)
    ask(harness, "delete_message", sequence=2)
    ask(harness, "delete_message", sequence=3)
    cursor = harness.state.position()
    assert cursor.pending == [1, 4]
    harness.restart()
    harness.connect(client_id="me")
    harness.subscribe("foo", "dur", durable="d", in_flight=10)
    assert harness.received("dur") == [(1, 1), (4, 1), (5, 0), (6, 0)]


def test_queue_group_shares_what_is_left(harness) -> None:
    ask(harness, "delete_message", sequence=4)
    for inbox in ("q1", "q2"):
        harness.subscribe("foo", inbox, queue="q", in_flight=2)
    got = [sequence for inbox in ("q1", "q2") for sequence, _ in harness.received(inbox)]
    assert sorted(got) == [1, 2, 3, 5]


def test_deletion_on_its_way_wins_over_a_delivery(harness) -> None:
    """A message that is sent while its deletion is being committed is settled by it, and so for the next leader."""
    harness.hold = True
    harness.asks(f"{ADMIN}.delete_message", pb.DeleteMessageRequest(channel=b"foo", sequence=2), "deleted")
    harness.turn()
    harness.subscribe("foo", "dur", durable="d", in_flight=10)
    harness.hold = False
    harness.turn()
    assert harness.hear("deleted")
    assert [sequence for sequence, _ in harness.received("dur")] == [1, 3, 4, 5, 6]


def test_late_progress_cannot_bring_a_deleted_message_back(harness) -> None:
    sub = harness.subscribe("foo", "dur", durable="d", in_flight=1)
    assert sub.error == b""
    ask(harness, "delete_message", sequence=4)
    cursor = harness.state.position()
    member = cursor.members[0]
    held = entries.Held(subscription_id=member.subscription_id, runs=[2, 6])
    harness.feed_group(progress=[entries.Progress(cursor_id=cursor.cursor_id, last_sent=6, held=[held])])
    assert harness.state.position().pending == [1, 2, 3, 5, 6]


def test_what_is_left_is_shown(harness) -> None:
    sub = harness.subscribe("foo", "dur", durable="d", in_flight=1)
    assert sub.error == b""
    ask(harness, "delete_message", sequence=4)
    (shown,) = CoreHarness.ask(harness, f"{ADMIN}.channels", pb.ChannelsRequest(), pb.ChannelsResponse).channels
    assert (shown.first_sequence, shown.last_sequence, shown.messages, shown.deleted) == (1, 6, 5, 1)
    (cursor,) = CoreHarness.ask(
        harness, f"{ADMIN}.subscriptions", pb.SubscriptionsRequest(), pb.SubscriptionsResponse
    ).cursors
    assert (cursor.pending, cursor.waiting) == (1, 4)


def test_purge_up_to_a_deleted_message_passes_over_it_at_once(harness) -> None:
    sub = harness.subscribe("foo", "dur", durable="d", in_flight=1)
    assert harness.received("dur") == [(1, 0)]
    ask(harness, "delete_message", sequence=4)
    assert told(ask(harness, "purge", up_to=3)) == ("", 3, 5, 6)
    assert harness.received("dur") == [(5, 0)]
    harness.ack(sub.ack_inbox, 5)
    assert harness.received("dur") == [(6, 0)]


def test_too_many_holes_are_refused(harness, monkeypatch) -> None:
    monkeypatch.setattr(limits, "DELETED_RUNS_MAX", 1)
    assert ask(harness, "delete_message", sequence=3).changed == 1
    assert told(ask(harness, "delete_message", sequence=5))[0] == refusals.TOO_MANY_DELETED
    assert ask(harness, "delete_message", sequence=4).changed == 1, "it makes no more runs"
    assert read(harness) == [1, 2, 5, 6]


def test_retention_takes_holes_along(harness) -> None:
    ask(harness, "delete_message", sequence=2)
    ask(harness, "delete_message", sequence=4)
    ask(harness, "purge", up_to=2)
    assert harness.follower().tombstones.by_channel[1].flat() == [4, 4]
    ask(harness, "purge", up_to=3)
    assert harness.follower().tombstones.by_channel == {}
    assert told(ask(harness, "purge", up_to=4)) == ("", 0, 5, 6)


# --- limits -----------------------------------------------------------------------------------------------------------


def shown(harness):
    (channel,) = CoreHarness.ask(
        harness, f"{ADMIN}.channels", pb.ChannelsRequest(pattern=b"foo"), pb.ChannelsResponse
    ).channels
    return channel


def test_edited_limits_are_in_force_at_once_and_after_a_restart(harness) -> None:
    assert told(ask(harness, "edit_limits", limits=pb.Limits(max_msgs=4)))[:2] == ("", 1)
    harness.turn()
    assert (shown(harness).messages, shown(harness).first_sequence) == (4, 3)
    assert (shown(harness).edited, shown(harness).limits.max_msgs) == (pb.Limits(max_msgs=4), 4)
    assert shown(harness).limits.max_subs == harness.config.limits.default.subscriptions, "as configured"
    harness.restart()
    harness.connect("other")
    harness.publish("foo", b"7", client_id="other")
    assert shown(harness).first_sequence == 4
    assert told(ask(harness, "edit_limits", limits=pb.Limits(max_msgs=4)))[:2] == ("", 0)
    agrees(harness)


def test_edits_add_up_until_they_are_reset(harness) -> None:
    ask(harness, "edit_limits", limits=pb.Limits(max_msgs=0, max_subs=1))
    ask(harness, "edit_limits", limits=pb.Limits(max_bytes=1 << 40, max_subs=2))
    assert shown(harness).edited == pb.Limits(max_msgs=0, max_bytes=1 << 40, max_subs=2)
    ask(harness, "edit_limits", limits=pb.Limits(max_age=SECOND), reset=True)
    assert shown(harness).edited == pb.Limits(max_age=SECOND)
    assert ask(harness, "edit_limits", reset=True).changed == 1
    assert not shown(harness).HasField("edited")
    assert harness.follower().limit_overrides.by_channel == {}


def test_subscriptions_are_counted_against_the_edited_limit(harness) -> None:
    ask(harness, "edit_limits", limits=pb.Limits(max_subs=1))
    assert harness.subscribe("foo", "one").error == b""
    assert harness.subscribe("foo", "two").error.decode() == refusals.TOO_MANY_SUBSCRIPTIONS


def test_old_messages_go_by_the_edited_age(harness) -> None:
    harness.pass_time(5)
    harness.publish("foo", b"7")
    ask(harness, "edit_limits", limits=pb.Limits(max_age=4 * SECOND))
    harness.pass_time(1)
    assert shown(harness).first_sequence == 7


def test_idle_channel_goes_by_the_edited_inactivity(harness) -> None:
    for seconds in (100, 2, 50, 3):
        ask(harness, "edit_limits", limits=pb.Limits(max_inactivity=seconds * SECOND))
    harness.pass_time(2.5)
    assert b"foo" in harness.state.channels
    harness.pass_time(1)
    assert b"foo" not in harness.state.channels
    assert harness.follower().limit_overrides.by_channel == {}


def test_limits_that_make_no_sense_are_refused(harness) -> None:
    for wrong in (pb.Limits(max_age=-1), pb.Limits(max_msgs=1 << 63), pb.Limits(max_inactivity=-5)):
        assert told(ask(harness, "edit_limits", limits=wrong))[0] == refusals.INVALID_ADMIN
    assert not shown(harness).HasField("edited")


# --- channels ---------------------------------------------------------------------------------------------------------


def test_channel_is_made(harness) -> None:
    assert told(ask(harness, "create_channel", b"new")) == ("", 1, 0, 0)
    assert told(ask(harness, "create_channel", b"new")) == ("", 0, 0, 0)
    assert told(ask(harness, "create_channel", b"foo")) == ("", 0, 1, 6)
    assert told(ask(harness, "create_channel", b"no..name"))[0] == refusals.INVALID_SUBJECT
    assert told(ask(harness, "create_channel", b"FOO"))[0] == refusals.case_conflict("FOO", "foo")


def test_channel_is_deleted_with_its_subscriptions(harness) -> None:
    harness.subscribe("foo", "live")
    harness.subscribe("foo", "dur", durable="d")
    harness.received("live")
    uid = harness.state.channels[b"foo"].uid
    ask(harness, "delete_message", sequence=3)
    assert told(ask(harness, "delete_channel", uid=uid + 1)) == ("", 0, 0, 0), "it is another one"
    assert told(ask(harness, "delete_channel", uid=uid)) == ("", 5, 0, 0)
    assert told(ask(harness, "delete_channel")) == ("", 0, 0, 0)
    assert (
        harness.follower().cursors,
        harness.follower().subscriptions.by_id,
        harness.follower().tombstones.by_channel,
    ) == (
        {},
        {},
        {},
    )
    harness.publish("foo", b"again")
    assert harness.received("live") == []
    assert read(harness) == [1]
    harness.restart()
    assert harness.state.channels[b"foo"].uid != uid


def test_publishes_on_their_way_are_answered_when_their_channel_is_deleted(harness) -> None:
    harness.hold = True
    harness.asks(f"{ADMIN}.delete_channel", pb.DeleteChannelRequest(channel=b"foo"), "deleted")
    harness.turn()
    assert harness.publish("foo", b"late") == [refusals.CHANNEL_DELETING]
    assert told(ask(harness, "purge", keep=0))[0] == refusals.CHANNEL_DELETING
    assert told(ask(harness, "delete_channel"))[0] == refusals.CHANNEL_DELETING
    harness.hold = False
    harness.turn()
    assert pb.ChangeResponse.FromString(harness.hear("deleted")[0].payload).changed == 6


def test_change_that_cannot_be_written_may_be_asked_again(harness) -> None:
    harness.full = True
    for kind, what in (("purge", {"keep": 0}), ("delete_message", {"sequence": 3}), ("delete_channel", {})):
        answer = ask(harness, kind, **what)
        assert (answer.error, answer.retry) == (b"disk full", True)
    harness.full = False
    assert read(harness) == [1, 2, 3, 4, 5, 6]
    assert ask(harness, "delete_channel").changed == 6


# --- in a cluster -----------------------------------------------------------------------------------------------------


@pytest.fixture
def node():
    node = Node()
    node.feed_client()
    node.feed_channel()
    node.lead(1)
    node.publish("foo", b"1", b"2", b"3", b"4")
    return node


def test_follower_has_the_same_state(node) -> None:
    follower = Node()
    follower.feed_client()
    follower.feed_channel()
    CoreHarness.subscribe(node, "foo", "dur", durable="d", in_flight=3)
    node.meta_says(len(node.logs[0]))
    for kind, what in (
        ("delete_message", {"sequence": 2}),
        ("purge", {"up_to": 1}),
        ("delete_message", {"sequence": 4}),
    ):
        assert ask(node, kind, **what).changed == 1
    node.pass_time(1)
    for _, kind, body in node.logs[1]:
        follower.feed(1, kind, body)
    follower.turn()
    assert follower.state.snapshot() == node.state.snapshot()
    assert follower.follower().tombstones.by_channel[1].flat() == [4, 4]
    assert follower.indexes[1, 1].first_sequence == 3


def test_who_does_not_lead_says_nothing(node) -> None:
    node.follow(1)
    assert ask(node, "purge", keep=0) is None
    assert ask(node, "delete_channel") is None


def test_change_of_a_leader_that_is_gone_is_made_once(node) -> None:
    node.hold = True
    node.asks(f"{ADMIN}.delete_message", pb.DeleteMessageRequest(channel=b"foo", sequence=2), "first")
    node.turn()
    entry = node.uncommitted[-1]
    node.follow(1)
    assert node.hear("first") == []
    node.feed(1, *entry[2:])
    node.hold = False
    node.lead(1)
    assert told(ask(node, "delete_message", sequence=2)) == ("", 0, 1, 4)


def test_deletion_of_a_channel_is_seen_out_by_the_next_leader(node) -> None:
    node.hold = True
    node.asks(f"{ADMIN}.delete_channel", pb.DeleteChannelRequest(channel=b"foo"), "first")
    node.turn()
    node.follow(1)
    assert node.hear("first") == []
    node.hold = False
    node.feed_group(drop_channel=entries.DropChannel(uid=1))
    node.lead(1)
    assert "delete_channel" in node.forwarded()
    assert ask(node, "delete_channel").retry
    node.feed_meta(delete_channel=entries.DeleteChannel(uid=1))
    answer = None
    node.asks(f"{ADMIN}.delete_channel", pb.DeleteChannelRequest(channel=b"foo"), "again")
    node.turn()
    node.meta_says(len(node.logs[0]))
    (answer,) = node.hear("again")
    assert told(pb.ChangeResponse.FromString(answer.payload)) == ("", 0, 0, 0)

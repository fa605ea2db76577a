"""Purges, deleted messages, channels made and deleted on request: at the core, over restarts, and on followers."""

import pytest

from stan import errors, limits
from stan.core.state.state_codec import restore_group, snapshot_group
from stan.protocol.entries import Kind
from stan.protocol.proto import admin_pb2 as pb
from stan.protocol.proto import entries_pb2 as entries
from stan.types import SECOND
from tests.kit.desk import Desk, Node

ADMIN = "_STAN.x.test-cluster.admin"
KINDS = {
    "purge": pb.PurgeRequest,
    "delete_message": pb.DeleteMessageRequest,
    "edit_limits": pb.EditLimitsRequest,
    "create_channel": pb.CreateChannelRequest,
    "delete_channel": pb.DeleteChannelRequest,
}


def ask(desk, kind, channel=b"foo", **asked):
    return Desk.ask(desk, f"{ADMIN}.{kind}", KINDS[kind](version=1, channel=channel, **asked), pb.ChangeResponse)


def told(response):
    """(error, changed, first, last) of an answer."""
    return response.error.decode(), response.changed, response.first_sequence, response.last_sequence


def machine(desk, group=1):
    return desk.broker.context.groups[group].machine


def snapshot(desk, group=1):
    made = entries.Snapshot()
    snapshot_group(machine(desk, group), made)
    return made


def same_after_snapshot(desk):
    """Whether a snapshot of the state gives that state again."""
    made = type(machine(desk))(1)
    restore_group(made, snapshot(desk))
    again = entries.Snapshot()
    snapshot_group(made, again)
    return again == snapshot(desk)


@pytest.fixture
def desk():
    desk = Desk()
    desk.connect()
    desk.publish("foo", b"1", b"2", b"3")
    desk.publish("foo", b"4", b"5", b"6")
    return desk


def read(desk, inbox="reader", **options):
    """Sequences that a new subscription gets."""
    desk.subscribe("foo", inbox, in_flight=100, **options)
    return [sequence for sequence, _ in desk.received(inbox)]


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
def test_purge_removes_the_oldest(desk, what, answer, left) -> None:
    assert told(ask(desk, "purge", **what)) == answer
    again = told(ask(desk, "purge", **what))
    assert again == ("", 0, *answer[2:])
    assert read(desk) == left
    desk.restart()
    desk.connect()
    assert read(desk, "again") == left


def test_purge_without_saying_what_is_refused(desk) -> None:
    assert told(ask(desk, "purge"))[0] == errors.INVALID_ADMIN


def test_channel_that_is_not_there(desk) -> None:
    assert told(ask(desk, "purge", b"bar", keep=0))[0] == errors.UNKNOWN_CHANNEL
    assert told(ask(desk, "delete_message", b"bar", sequence=1))[0] == errors.UNKNOWN_CHANNEL


def test_what_is_published_after_a_purge_goes_on_counting(desk) -> None:
    ask(desk, "purge", keep=0)
    desk.publish("foo", b"7")
    assert read(desk) == [7]


def test_purge_settles_what_was_pending_and_owed(desk) -> None:
    desk.subscribe("foo", "dur", durable="d", in_flight=2)
    assert desk.received("dur") == [(1, 0), (2, 0)]
    ask(desk, "purge", up_to=4)
    assert desk.received("dur") == [(5, 0), (6, 0)], "the window is open again at once"
    (cursor,) = machine(desk).cursors.values()
    assert cursor.members[0].pending.flat() == [5, 6]


def test_purge_settles_an_offline_durable(desk) -> None:
    sub = desk.subscribe("foo", "dur", durable="d", in_flight=2)
    desk.received("dur")
    desk.leave("foo", sub.ack_inbox)
    ask(desk, "purge", up_to=4)
    (cursor,) = machine(desk).cursors.values()
    assert (cursor.to_redeliver.flat(), cursor.last_sent) == ([], 4)
    desk.subscribe("foo", "dur", durable="d", in_flight=10)
    assert desk.received("dur") == [(5, 0), (6, 0)]


# --- single messages --------------------------------------------------------------------------------------------------


def test_deleted_message_is_passed_over(desk) -> None:
    assert told(ask(desk, "delete_message", sequence=3)) == ("", 1, 1, 6)
    assert told(ask(desk, "delete_message", sequence=3)) == ("", 0, 1, 6)
    assert told(ask(desk, "delete_message", sequence=5)) == ("", 1, 1, 6)
    assert read(desk) == [1, 2, 4, 6]
    desk.restart()
    desk.connect()
    assert read(desk, "again") == [1, 2, 4, 6]
    assert same_after_snapshot(desk)


def test_message_that_was_never_there_cannot_be_deleted(desk) -> None:
    assert told(ask(desk, "delete_message", sequence=7))[0] == errors.UNKNOWN_MESSAGE
    assert told(ask(desk, "delete_message"))[0] == errors.UNKNOWN_MESSAGE


def test_message_that_is_gone_already_changes_nothing(desk) -> None:
    ask(desk, "purge", up_to=3)
    assert told(ask(desk, "delete_message", sequence=2)) == ("", 0, 4, 6)


def test_deleting_the_oldest_moves_the_first_sequence(desk) -> None:
    ask(desk, "delete_message", sequence=2)
    assert told(ask(desk, "delete_message", sequence=1)) == ("", 1, 3, 6)
    assert machine(desk).tombstones.by_channel == {}
    assert read(desk) == [3, 4, 5, 6]


def test_deleting_the_newest_leaves_its_sequence_unused(desk) -> None:
    ask(desk, "delete_message", sequence=6)
    desk.publish("foo", b"7")
    assert read(desk) == [1, 2, 3, 4, 5, 7]


def test_last_received_is_the_newest_that_is_left(desk) -> None:
    ask(desk, "delete_message", sequence=6)
    ask(desk, "delete_message", sequence=5)
    assert read(desk, start=1) == [4]
    ask(desk, "purge", up_to=4)
    assert read(desk, "again", start=1) == []
    desk.publish("foo", b"7")
    assert [sequence for sequence, _ in desk.received("again")] == [7]


def test_deleting_all_one_by_one(desk) -> None:
    for sequence in (2, 4, 6, 5, 3, 1):
        assert ask(desk, "delete_message", sequence=sequence).changed == 1
    assert told(ask(desk, "purge", keep=0)) == ("", 0, 7, 6)
    assert read(desk) == []
    desk.publish("foo", b"7")
    assert [sequence for sequence, _ in desk.received("reader")] == [7]


def test_purge_counts_what_is_left(desk) -> None:
    ask(desk, "delete_message", sequence=3)
    ask(desk, "delete_message", sequence=5)
    assert told(ask(desk, "purge", keep=2)) == ("", 2, 4, 6)
    assert read(desk) == [4, 6]
    assert told(ask(desk, "purge", keep=1)) == ("", 1, 6, 6)
    assert machine(desk).tombstones.by_channel == {}


def test_pending_message_that_is_deleted_opens_the_window(desk) -> None:
    sub = desk.subscribe("foo", "dur", durable="d", in_flight=2, wait=1)
    assert desk.received("dur") == [(1, 0), (2, 0)]
    ask(desk, "delete_message", sequence=2)
    assert desk.received("dur") == [(3, 0)]
    desk.pass_time(1.5)
    assert desk.received("dur") == [(1, 1), (3, 1)]
    desk.ack(sub.ack_inbox, 1, 2, 3)
    assert desk.received("dur") == [(4, 0), (5, 0)]


def test_owed_message_that_is_deleted_does_not_come_again(desk) -> None:
    sub = desk.subscribe("foo", "dur", durable="d", in_flight=4)
    desk.received("dur")
    desk.leave("foo", sub.ack_inbox)
    ask(desk, "delete_message", sequence=2)
    ask(desk, "delete_message", sequence=3)
    (cursor,) = machine(desk).cursors.values()
    assert cursor.to_redeliver.flat() == [1, 1, 4, 4]
    desk.restart()
    desk.connect(client_id="me")
    desk.subscribe("foo", "dur", durable="d", in_flight=10)
    assert desk.received("dur") == [(1, 1), (4, 1), (5, 0), (6, 0)]


def test_queue_group_shares_what_is_left(desk) -> None:
    ask(desk, "delete_message", sequence=4)
    for inbox in ("q1", "q2"):
        desk.subscribe("foo", inbox, queue="q", in_flight=2)
    got = [sequence for inbox in ("q1", "q2") for sequence, _ in desk.received(inbox)]
    assert sorted(got) == [1, 2, 3, 5]


def test_deletion_on_its_way_wins_over_a_delivery(desk) -> None:
    """A message that is sent while its deletion is being committed is settled by it, and so for the next leader."""
    desk.hold = True
    desk.asks(f"{ADMIN}.delete_message", pb.DeleteMessageRequest(channel=b"foo", sequence=2), "deleted")
    desk.turn()
    desk.subscribe("foo", "dur", durable="d", in_flight=10)
    desk.hold = False
    desk.turn()
    assert desk.hear("deleted")
    assert [sequence for sequence, _ in desk.received("dur")] == [1, 3, 4, 5, 6]


def test_late_progress_cannot_bring_a_deleted_message_back(desk) -> None:
    sub = desk.subscribe("foo", "dur", durable="d", in_flight=1)
    assert sub.error == b""
    ask(desk, "delete_message", sequence=4)
    (cursor,) = machine(desk).cursors.values()
    member = cursor.members[0]
    held = entries.Held(subscription_id=member.subscription_id, runs=[2, 6])
    late = entries.GroupChange(progress=[entries.Progress(cursor_id=cursor.cursor_id, last_sent=6, held=[held])])
    machine(desk).apply(late, 99)
    assert member.pending.flat() == [1, 3, 5, 6]


def test_what_is_left_is_shown(desk) -> None:
    sub = desk.subscribe("foo", "dur", durable="d", in_flight=1)
    assert sub.error == b""
    ask(desk, "delete_message", sequence=4)
    (shown,) = Desk.ask(desk, f"{ADMIN}.channels", pb.ChannelsRequest(), pb.ChannelsResponse).channels
    assert (shown.first_sequence, shown.last_sequence, shown.messages, shown.deleted) == (1, 6, 5, 1)
    (cursor,) = Desk.ask(desk, f"{ADMIN}.subscriptions", pb.SubscriptionsRequest(), pb.SubscriptionsResponse).cursors
    assert (cursor.pending, cursor.waiting) == (1, 4)


def test_purge_up_to_a_deleted_message_passes_over_it_at_once(desk) -> None:
    sub = desk.subscribe("foo", "dur", durable="d", in_flight=1)
    assert desk.received("dur") == [(1, 0)]
    ask(desk, "delete_message", sequence=4)
    assert told(ask(desk, "purge", up_to=3)) == ("", 3, 5, 6)
    assert desk.received("dur") == [(5, 0)]
    desk.ack(sub.ack_inbox, 5)
    assert desk.received("dur") == [(6, 0)]


def test_too_many_holes_are_refused(desk, monkeypatch) -> None:
    monkeypatch.setattr(limits, "DELETED_RUNS_MAX", 1)
    assert ask(desk, "delete_message", sequence=3).changed == 1
    assert told(ask(desk, "delete_message", sequence=5))[0] == errors.TOO_MANY_DELETED
    assert ask(desk, "delete_message", sequence=4).changed == 1, "it makes no more runs"
    assert read(desk) == [1, 2, 5, 6]


def test_retention_takes_holes_along(desk) -> None:
    ask(desk, "delete_message", sequence=2)
    ask(desk, "delete_message", sequence=4)
    ask(desk, "purge", up_to=2)
    assert machine(desk).tombstones.by_channel[1].flat() == [4, 4]
    ask(desk, "purge", up_to=3)
    assert machine(desk).tombstones.by_channel == {}
    assert told(ask(desk, "purge", up_to=4)) == ("", 0, 5, 6)


# --- limits -----------------------------------------------------------------------------------------------------------


def shown(desk):
    (channel,) = Desk.ask(desk, f"{ADMIN}.channels", pb.ChannelsRequest(pattern=b"foo"), pb.ChannelsResponse).channels
    return channel


def test_edited_limits_are_in_force_at_once_and_after_a_restart(desk) -> None:
    assert told(ask(desk, "edit_limits", limits=pb.Limits(max_msgs=4)))[:2] == ("", 1)
    desk.turn()
    assert (shown(desk).messages, shown(desk).first_sequence) == (4, 3)
    assert (shown(desk).edited, shown(desk).limits.max_msgs) == (pb.Limits(max_msgs=4), 4)
    assert shown(desk).limits.max_subs == desk.config.limits.default.subscriptions, "as configured"
    desk.restart()
    desk.connect("other")
    desk.publish("foo", b"7", client_id="other")
    assert shown(desk).first_sequence == 4
    assert told(ask(desk, "edit_limits", limits=pb.Limits(max_msgs=4)))[:2] == ("", 0)
    assert same_after_snapshot(desk)


def test_edits_add_up_until_they_are_reset(desk) -> None:
    ask(desk, "edit_limits", limits=pb.Limits(max_msgs=0, max_subs=1))
    ask(desk, "edit_limits", limits=pb.Limits(max_bytes=1 << 40, max_subs=2))
    assert shown(desk).edited == pb.Limits(max_msgs=0, max_bytes=1 << 40, max_subs=2)
    ask(desk, "edit_limits", limits=pb.Limits(max_age=SECOND), reset=True)
    assert shown(desk).edited == pb.Limits(max_age=SECOND)
    assert ask(desk, "edit_limits", reset=True).changed == 1
    assert not shown(desk).HasField("edited")
    assert machine(desk).limit_overrides.by_channel == {}


def test_subscriptions_are_counted_against_the_edited_limit(desk) -> None:
    ask(desk, "edit_limits", limits=pb.Limits(max_subs=1))
    assert desk.subscribe("foo", "one").error == b""
    assert desk.subscribe("foo", "two").error.decode() == errors.TOO_MANY_SUBSCRIPTIONS


def test_old_messages_go_by_the_edited_age(desk) -> None:
    desk.pass_time(5)
    desk.publish("foo", b"7")
    ask(desk, "edit_limits", limits=pb.Limits(max_age=4 * SECOND))
    desk.pass_time(1)
    assert shown(desk).first_sequence == 7


def test_idle_channel_goes_by_the_edited_inactivity(desk) -> None:
    for seconds in (100, 2, 50, 3):
        ask(desk, "edit_limits", limits=pb.Limits(max_inactivity=seconds * SECOND))
    desk.pass_time(2.5)
    assert b"foo" in desk.broker.context.meta.channels
    desk.pass_time(1)
    assert b"foo" not in desk.broker.context.meta.channels
    assert machine(desk).limit_overrides.by_channel == {}


def test_limits_that_make_no_sense_are_refused(desk) -> None:
    for wrong in (pb.Limits(max_age=-1), pb.Limits(max_msgs=1 << 63), pb.Limits(max_inactivity=-5)):
        assert told(ask(desk, "edit_limits", limits=wrong))[0] == errors.INVALID_ADMIN
    assert not shown(desk).HasField("edited")


# --- channels ---------------------------------------------------------------------------------------------------------


def test_channel_is_made(desk) -> None:
    assert told(ask(desk, "create_channel", b"new")) == ("", 1, 0, 0)
    assert told(ask(desk, "create_channel", b"new")) == ("", 0, 0, 0)
    assert told(ask(desk, "create_channel", b"foo")) == ("", 0, 1, 6)
    assert told(ask(desk, "create_channel", b"no..name"))[0] == errors.INVALID_SUBJECT
    assert told(ask(desk, "create_channel", b"FOO"))[0].startswith(errors.CASE_CONFLICT)


def test_channel_is_deleted_with_its_subscriptions(desk) -> None:
    desk.subscribe("foo", "live")
    desk.subscribe("foo", "dur", durable="d")
    desk.received("live")
    uid = desk.broker.context.meta.channels[b"foo"].uid
    ask(desk, "delete_message", sequence=3)
    assert told(ask(desk, "delete_channel", uid=uid + 1)) == ("", 0, 0, 0), "it is another one"
    assert told(ask(desk, "delete_channel", uid=uid)) == ("", 5, 0, 0)
    assert told(ask(desk, "delete_channel")) == ("", 0, 0, 0)
    assert (machine(desk).cursors, machine(desk).subscriptions, machine(desk).tombstones.by_channel) == ({}, {}, {})
    desk.publish("foo", b"again")
    assert desk.received("live") == []
    assert read(desk) == [1]
    desk.restart()
    assert desk.broker.context.meta.channels[b"foo"].uid != uid


def test_publishes_on_their_way_are_answered_when_their_channel_is_deleted(desk) -> None:
    desk.hold = True
    desk.asks(f"{ADMIN}.delete_channel", pb.DeleteChannelRequest(channel=b"foo"), "deleted")
    desk.turn()
    assert desk.publish("foo", b"late") == [errors.CHANNEL_DELETING]
    assert told(ask(desk, "purge", keep=0))[0] == errors.CHANNEL_DELETING
    assert told(ask(desk, "delete_channel"))[0] == errors.CHANNEL_DELETING
    desk.hold = False
    desk.turn()
    assert pb.ChangeResponse.FromString(desk.hear("deleted")[0].payload).changed == 6


def test_change_that_cannot_be_written_may_be_asked_again(desk) -> None:
    desk.full = True
    for kind, what in (("purge", {"keep": 0}), ("delete_message", {"sequence": 3}), ("delete_channel", {})):
        answer = ask(desk, kind, **what)
        assert (answer.error, answer.retry) == (b"disk full", True)
    desk.full = False
    assert read(desk) == [1, 2, 3, 4, 5, 6]
    assert ask(desk, "delete_channel").changed == 6


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
    Desk.subscribe(node, "foo", "dur", durable="d", in_flight=3)
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
    assert snapshot(follower) == snapshot(node)
    assert machine(follower).tombstones.by_channel[1].flat() == [4, 4]
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
    node.feed(1, Kind.CHANGE, entries.GroupChange(drop_channel=entries.DropChannel(uid=1)).SerializeToString())
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

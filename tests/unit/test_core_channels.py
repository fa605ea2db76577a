"""Limits of channels and the end of idle ones, in virtual time (STAN-SPEC 7, 16 H)."""

import pytest

from stan.config import ChannelLimits, ChannelOverride, Config, StoreLimits
from stan.types import SECOND
from tests.kit.desk import Desk


def limited(*, channels=100, per_channel=None, **limits):
    desk = Desk(
        Config(
            limits=StoreLimits(channels=channels, default=ChannelLimits(**limits), per_channel=per_channel or {}),
        )
    )
    desk.connect()
    return desk


def kept(desk, channel="foo"):
    """(first, last, messages kept) of a channel."""
    info = desk.broker.context.meta.channels[channel.encode()]
    index = desk.indexes[info.group, info.uid]
    return index.first_sequence, index.last_sequence, index.last_sequence - index.first_sequence + 1


def exists(desk, channel="foo"):
    return channel.encode() in desk.broker.context.meta.channels


# --- how much a channel holds ------------------------------------------------------------------------------------------


def test_messages_beyond_the_limit_push_out_the_oldest():
    desk = limited(msgs=10)
    for _ in range(20):
        desk.publish("foo", b"x")

    assert kept(desk) == (11, 20, 10)
    assert [text for _, text in desk.notes if "Reached limits for store" in text] == [
        'Reached limits for store "foo" (msgs=10/10 bytes=660/1024000000), dropping old messages to make room for new ones'
    ]


@pytest.mark.parametrize("at_once", [1, 3, 11, 25])
def test_bytes_never_exceed_the_limit_however_many_come_at_once(at_once):
    each = limited()
    each.publish("foo", b"0123456789")
    size = next(index.bytes for index in each.indexes.values() if index.last_sequence)
    desk = limited(bytes=10 * size)

    for _ in range(8):
        desk.publish("foo", *[b"0123456789"] * at_once)
        index = desk.indexes[1, 1]
        assert index.bytes <= 10 * size

    assert index.last_sequence - index.first_sequence + 1 >= min(9, 8 * at_once)  # a high sequence costs a byte more


def test_message_larger_than_the_limit_is_kept_alone():
    desk = limited(bytes=100)
    desk.publish("foo", b"a", b"b")
    assert desk.publish("foo", b"x" * 1000) == [""]

    assert kept(desk) == (3, 3, 1)


def test_age_removes_all_and_the_next_message_goes_on_counting():
    desk = limited(age_ns=2 * SECOND)
    desk.publish("foo", b"1", b"2")
    desk.pass_time(1)
    desk.publish("foo", b"3")
    desk.pass_time(1.5)
    assert kept(desk) == (3, 3, 1)
    desk.pass_time(1.5)
    assert kept(desk) == (4, 3, 0)

    desk.publish("foo", b"4")
    desk.subscribe("foo")

    assert desk.received() == [(4, 0)]


def test_age_does_not_remove_what_replaced_an_older_message():
    desk = limited(age_ns=3 * SECOND, msgs=1)
    desk.publish("foo", b"1")
    desk.pass_time(2)
    desk.publish("foo", b"2")
    desk.pass_time(2)
    assert kept(desk) == (2, 2, 1)
    desk.pass_time(3)
    assert kept(desk) == (3, 2, 0)


def test_last_received_after_all_expired_waits_for_the_next():
    desk = limited(age_ns=SECOND)
    desk.publish("foo", b"1", b"2")
    desk.pass_time(3)
    for start in (0, 1, 2, 3, 4):
        desk.subscribe("foo", f"in{start}", start=start, seq=1, delta=100 * SECOND)
    desk.publish("foo", b"3")

    assert [desk.received(f"in{start}") for start in range(5)] == [[(3, 0)]] * 5


def test_expired_messages_are_skipped_by_a_durable_that_was_away():
    desk = limited(msgs=3)
    sub = desk.subscribe("foo", durable="dur")
    desk.publish("foo", b"1")
    desk.ack(sub.ack_inbox, 1)
    desk.leave("foo", sub.ack_inbox)
    desk.received()
    for n in range(4):
        desk.publish("foo", b"%d" % n)
    desk.subscribe("foo", durable="dur")

    assert desk.received() == [(3, 0), (4, 0), (5, 0)]


def test_lower_limits_after_a_restart_remove_messages_and_keep_channels_and_subscriptions():
    desk = limited()
    desk.publish("foo", *[b"x"] * 10)
    desk.publish("bar", b"x")
    for n in range(3):
        desk.subscribe("foo", f"in{n}", durable=f"d{n}", in_flight=1)
    desk.config = Config(limits=StoreLimits(channels=1, default=ChannelLimits(msgs=4, subscriptions=1)))
    desk.restart()

    assert kept(desk) == (7, 10, 4)
    assert exists(desk, "bar")
    assert len(desk.broker.context.groups[1].machine.subscriptions) == 3
    assert desk.publish("new", b"x") == ["too many channels"]
    assert desk.subscribe("foo").error == b"too many subscriptions per channel"
    assert desk.publish("bar", b"x") == [""]


def test_own_limits_of_a_channel_apply_and_the_rest_is_inherited():
    desk = limited(
        msgs=5,
        per_channel={
            "foo": ChannelOverride(msgs=2),
            "all.>": ChannelOverride(msgs=-1),
            "all.few": ChannelOverride(msgs=3),
        },
    )
    for channel in ("foo", "bar", "all.of", "all.few"):
        for _ in range(8):
            desk.publish(channel, b"x")

    assert [kept(desk, channel)[2] for channel in ("foo", "bar", "all.of", "all.few")] == [2, 5, 8, 3]


# --- how many channels -----------------------------------------------------------------------------------------------------


def test_channel_too_many_is_refused_to_publishers_and_subscribers():
    desk = limited(channels=1)
    desk.publish("foo", b"x")

    assert desk.publish("bar", b"x") == ["too many channels"]
    assert desk.subscribe("bar").error == b"too many channels"
    assert not exists(desk, "bar")
    assert desk.publish("foo", b"x") == [""]


def test_channels_asked_for_at_once_do_not_exceed_the_limit():
    desk = limited(channels=2)
    desk.hold = True
    for channel in ("a", "b", "c", "a"):
        desk.publish(channel, b"x")
    desk.hold = False
    desk.turn()

    assert sorted(desk.broker.context.meta.channels) == [b"a", b"b"]


def test_channel_that_differs_by_case_is_refused_also_after_a_restart_and_while_it_is_made():
    text = 'rejecting channel "{}" because channel "Foo" alreay exists (different cases not allowed)'
    desk = limited()
    desk.hold = True
    desk.publish("Foo", b"1")
    desk.publish("foO", b"x")
    desk.hold = False
    desk.turn()
    assert sorted(desk.broker.context.meta.channels) == [b"Foo"]
    desk.hear()

    for _ in range(2):
        assert desk.publish("foo", b"x") == [text.format("foo")]
        assert desk.subscribe("FOO").error.decode() == text.format("FOO")
        assert desk.publish("Foo", b"2") == [""]
        desk.restart()


def test_channel_that_cannot_be_made_tells_why():
    desk = limited()
    desk.full = True

    assert desk.publish("foo", b"x") == ["disk full"]
    assert desk.subscribe("foo").error == b"disk full"
    desk.full = False
    assert desk.publish("foo", b"x") == [""]


# --- idle channels ------------------------------------------------------------------------------------------------------------


def test_idle_channel_is_removed_and_begins_again_at_one():
    desk = limited(inactivity_ns=2 * SECOND)
    desk.publish("foo", b"1", b"2")
    desk.pass_time(1.9)
    assert exists(desk)
    desk.pass_time(2.1)
    assert not exists(desk)
    assert ("INF", 'Channel "foo" has been deleted') in desk.notes

    desk.publish("foo", b"new")
    desk.subscribe("foo")
    assert [(m.sequence, m.data) for m in (s.message for s in desk.hear("inbox"))] == [(1, b"new")]


def test_publishing_keeps_a_channel_and_its_end_removes_it_within_twice_the_time():
    desk = limited(inactivity_ns=SECOND // 2)
    for _ in range(10):
        desk.publish("foo", b"x")
        desk.pass_time(0.4)
    assert exists(desk)
    desk.pass_time(0.61)

    assert not exists(desk)


@pytest.mark.parametrize("kind", [{}, {"queue": "q"}, {"durable": "d"}, {"queue": "q", "durable": "d"}])
@pytest.mark.parametrize("ending", ["unsubscribe", "close", "client"])
def test_subscription_keeps_its_channel_and_for_the_whole_time_after_its_end(kind, ending):
    desk = limited(inactivity_ns=2 * SECOND)
    sub = desk.subscribe("foo", **kind)
    desk.pass_time(11.5)  # a timer that is still under way from before must not count
    assert exists(desk)
    if ending == "client":
        desk.close()
    else:
        desk.leave("foo", sub.ack_inbox, unsubscribe=ending == "unsubscribe")
    desk.pass_time(1.9)
    assert exists(desk)
    desk.pass_time(0.2)

    assert not exists(desk)


def test_subscription_that_ends_shortly_before_an_old_timer_keeps_its_channel_for_the_whole_time():
    desk = limited(inactivity_ns=2 * SECOND)
    desk.publish("foo", b"1")
    sub = desk.subscribe("foo")
    desk.pass_time(1.9)
    desk.leave("foo", sub.ack_inbox)
    desk.pass_time(1.9)
    assert exists(desk)
    desk.pass_time(0.2)

    assert not exists(desk)


def test_subscription_under_way_keeps_its_channel():
    desk = limited(inactivity_ns=2 * SECOND)
    desk.publish("foo", b"1")
    desk.pass_time(1.9)
    desk.hold = True
    desk.subscribe("foo")
    desk.pass_time(1)
    desk.hold = False
    desk.turn()

    assert desk.received() == [(1, 0)]
    desk.pass_time(10)
    assert exists(desk)


def test_subscription_refused_starts_the_time_again():
    desk = limited(inactivity_ns=2 * SECOND, subscriptions=1)
    sub = desk.subscribe("foo", durable="d")
    desk.leave("foo", sub.ack_inbox)
    desk.pass_time(1.5)
    assert desk.subscribe("foo").error
    desk.pass_time(1.5)
    assert exists(desk)
    desk.pass_time(0.6)

    assert not exists(desk)


def test_offline_durables_and_a_restart_do_not_keep_an_idle_channel():
    desk = limited(inactivity_ns=2 * SECOND)
    desk.subscribe("foo", durable="d")
    desk.subscribe("foo", queue="q", durable="d")
    desk.close()
    desk.pass_time(1)
    desk.restart()
    desk.pass_time(1.9)
    assert exists(desk)
    desk.pass_time(0.2)
    assert not exists(desk)

    desk.connect()
    desk.publish("foo", b"new")
    desk.subscribe("foo", durable="d", start=0)
    assert desk.received() == []


def test_client_that_dies_lets_its_channel_go():
    desk = limited(inactivity_ns=5 * SECOND)
    desk.connect("mute", alive=False)
    desk.subscribe("foo", client_id="mute")
    desk.pass_time(40 * 11 + 1)
    assert b"mute" not in desk.broker.context.meta.clients
    desk.pass_time(5)

    assert not exists(desk)


def test_own_inactivity_of_a_channel_is_respected_also_after_a_restart():
    desk = limited(
        inactivity_ns=SECOND,
        per_channel={"long": ChannelOverride(inactivity_ns=10 * SECOND), "keep.>": ChannelOverride(inactivity_ns=-1)},
    )
    for channel in ("short", "long", "keep.me"):
        desk.publish(channel, b"x")
    desk.pass_time(0.5)
    desk.restart()
    desk.pass_time(1.1)
    assert [exists(desk, channel) for channel in ("short", "long", "keep.me")] == [False, True, True]
    desk.pass_time(10)

    assert [exists(desk, channel) for channel in ("short", "long", "keep.me")] == [False, False, True]


def test_channel_being_removed_refuses_and_is_kept_when_that_fails():
    desk = limited(inactivity_ns=2 * SECOND)
    desk.publish("foo", b"1")
    desk.hold = True
    desk.pass_time(2.1)
    assert desk.publish("foo", b"2") == ["stan: channel is being deleted"]
    assert desk.subscribe("foo").error == b"stan: channel is being deleted"
    desk.hold = False
    desk.turn()
    assert not exists(desk)

    desk.publish("foo", b"1")
    desk.full = True
    desk.pass_time(2.1)
    desk.full = False
    assert any("Unable to delete channel" in text for _, text in desk.notes)
    desk.pass_time(1)
    assert desk.publish("foo", b"2") == [""]
    desk.pass_time(4.1)
    assert not exists(desk)


def test_wall_clock_going_back_neither_removes_messages_nor_turns_timestamps_around():
    desk = limited(age_ns=100 * SECOND, inactivity_ns=5 * SECOND)
    sub = desk.subscribe("foo", wait=1)
    desk.publish("foo", b"1")
    desk.wall -= 3600 * SECOND
    desk.publish("foo", b"2")
    desk.pass_time(0.5)
    first, second = (s.message for s in desk.hear("inbox"))
    assert second.timestamp == first.timestamp
    desk.ack(sub.ack_inbox, 1)
    desk.pass_time(0.6)
    assert desk.received() == [(2, 1)]
    desk.ack(sub.ack_inbox, 2)
    desk.restart()
    desk.publish("foo", b"3")

    assert desk.hear("inbox")[0].message.timestamp == first.timestamp
    assert kept(desk) == (1, 3, 3)


def test_channel_names_are_compared_by_case_beyond_ascii():
    desk = Desk()
    desk.connect()
    desk.publish("Ñandú", b"1")

    assert "different cases not allowed" in desk.publish("ÑANDÚ", b"2")[0]
    assert desk.publish("nandu", b"3") == [""]

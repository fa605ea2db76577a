"""Limits of channels and the end of idle ones, in virtual time (STAN-SPEC 7, 16 H)."""

import pytest
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.scalars import SECOND

from stan.config import ChannelLimits, ChannelOverride, Config, StoreLimits
from tests.kit.core_harness import CoreHarness


def limited(*, channels=100, per_channel=None, **limits):
    harness = CoreHarness(
        Config(
            limits=StoreLimits(channels=channels, default=ChannelLimits(**limits), per_channel=per_channel or {}),
        )
    )
    harness.connect()
    return harness


def kept(harness, channel="foo"):
    """(first, last, messages kept) of a channel."""
    info = harness.state.channels[channel.encode()]
    index = harness.indexes[info.group, info.uid]
    return index.first_sequence, index.last_sequence, index.last_sequence - index.first_sequence + 1


def exists(harness, channel="foo"):
    return channel.encode() in harness.state.channels


# --- how much a channel holds ------------------------------------------------------------------------------------------


def test_messages_beyond_the_limit_push_out_the_oldest():
    harness = limited(msgs=10)
    for _ in range(20):
        harness.publish("foo", b"x")

    assert kept(harness) == (11, 20, 10)
    assert [text for _, text in harness.notes if "Reached limits for store" in text] == [
        'Reached limits for store "foo" (msgs=10/10 bytes=660/1024000000), dropping old messages to make room for new ones'
    ]


def test_the_first_message_of_a_channel_that_was_purged_reaches_no_limit():
    harness = limited(msgs=10)
    harness.publish("foo", *[b"x"] * 10)
    harness.publish("foo", *[b"x"] * 5)
    purge = admin.PurgeRequest(version=1, channel=b"foo", keep=0)
    assert not harness.ask("_STAN.x.test-cluster.admin.purge", purge, admin.ChangeResponse).error
    harness.restart()
    harness.connect()
    harness.notes.clear()
    harness.publish("foo", b"x")
    assert kept(harness) == (16, 16, 1)
    assert not [text for _, text in harness.notes if "Reached limits" in text]


@pytest.mark.parametrize("at_once", [1, 3, 11, 25])
def test_bytes_never_exceed_the_limit_however_many_come_at_once(at_once):
    each = limited()
    each.publish("foo", b"0123456789")
    size = next(index.bytes for index in each.indexes.values() if index.last_sequence)
    harness = limited(bytes=10 * size)

    for _ in range(8):
        harness.publish("foo", *[b"0123456789"] * at_once)
        index = harness.indexes[1, 1]
        assert index.bytes <= 10 * size

    assert index.last_sequence - index.first_sequence + 1 >= min(9, 8 * at_once)  # a high sequence costs a byte more


def test_message_larger_than_the_limit_is_kept_alone():
    harness = limited(bytes=100)
    harness.publish("foo", b"a", b"b")
    assert harness.publish("foo", b"x" * 1000) == [""]

    assert kept(harness) == (3, 3, 1)


def test_age_removes_all_and_the_next_message_goes_on_counting():
    harness = limited(age_ns=2 * SECOND)
    harness.publish("foo", b"1", b"2")
    harness.pass_time(1)
    harness.publish("foo", b"3")
    harness.pass_time(1.5)
    assert kept(harness) == (3, 3, 1)
    harness.pass_time(1.5)
    assert kept(harness) == (4, 3, 0)

    harness.publish("foo", b"4")
    harness.subscribe("foo")

    assert harness.received() == [(4, 0)]


def test_age_does_not_remove_what_replaced_an_older_message():
    harness = limited(age_ns=3 * SECOND, msgs=1)
    harness.publish("foo", b"1")
    harness.pass_time(2)
    harness.publish("foo", b"2")
    harness.pass_time(2)
    assert kept(harness) == (2, 2, 1)
    harness.pass_time(3)
    assert kept(harness) == (3, 2, 0)


def test_last_received_after_all_expired_waits_for_the_next():
    harness = limited(age_ns=SECOND)
    harness.publish("foo", b"1", b"2")
    harness.pass_time(3)
    for start in (0, 1, 2, 3, 4):
        harness.subscribe("foo", f"in{start}", start=start, seq=1, delta=100 * SECOND)
    harness.publish("foo", b"3")

    assert [harness.received(f"in{start}") for start in range(5)] == [[(3, 0)]] * 5


def test_expired_messages_are_skipped_by_a_durable_that_was_away():
    harness = limited(msgs=3)
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"1")
    harness.ack(sub.ack_inbox, 1)
    harness.leave("foo", sub.ack_inbox)
    harness.received()
    for n in range(4):
        harness.publish("foo", b"%d" % n)
    harness.subscribe("foo", durable="dur")

    assert harness.received() == [(3, 0), (4, 0), (5, 0)]


def test_lower_limits_after_a_restart_remove_messages_and_keep_channels_and_subscriptions():
    harness = limited()
    harness.publish("foo", *[b"x"] * 10)
    harness.publish("bar", b"x")
    for n in range(3):
        harness.subscribe("foo", f"in{n}", durable=f"d{n}", in_flight=1)
    harness.config = Config(limits=StoreLimits(channels=1, default=ChannelLimits(msgs=4, subscriptions=1)))
    harness.restart()

    assert kept(harness) == (7, 10, 4)
    assert exists(harness, "bar")
    assert len(harness.state.subscriptions()) == 3
    assert harness.publish("new", b"x") == ["too many channels"]
    assert harness.subscribe("foo").error == b"too many subscriptions per channel"
    assert harness.publish("bar", b"x") == [""]


def test_own_limits_of_a_channel_apply_and_the_rest_is_inherited():
    harness = limited(
        msgs=5,
        per_channel={
            "foo": ChannelOverride(msgs=2),
            "all.>": ChannelOverride(msgs=-1),
            "all.few": ChannelOverride(msgs=3),
        },
    )
    for channel in ("foo", "bar", "all.of", "all.few"):
        for _ in range(8):
            harness.publish(channel, b"x")

    assert [kept(harness, channel)[2] for channel in ("foo", "bar", "all.of", "all.few")] == [2, 5, 8, 3]


# --- how many channels -----------------------------------------------------------------------------------------------------


def test_channel_too_many_is_refused_to_publishers_and_subscribers():
    harness = limited(channels=1)
    harness.publish("foo", b"x")

    assert harness.publish("bar", b"x") == ["too many channels"]
    assert harness.subscribe("bar").error == b"too many channels"
    assert not exists(harness, "bar")
    assert harness.publish("foo", b"x") == [""]


def test_channels_asked_for_at_once_do_not_exceed_the_limit():
    harness = limited(channels=2)
    harness.hold = True
    for channel in ("a", "b", "c", "a"):
        harness.publish(channel, b"x")
    harness.hold = False
    harness.turn()

    assert sorted(harness.state.channels) == [b"a", b"b"]


def test_channel_that_differs_by_case_is_refused_also_after_a_restart_and_while_it_is_made():
    text = 'rejecting channel "{}" because channel "Foo" alreay exists (different cases not allowed)'
    harness = limited()
    harness.hold = True
    harness.publish("Foo", b"1")
    harness.publish("foO", b"x")
    harness.hold = False
    harness.turn()
    assert sorted(harness.state.channels) == [b"Foo"]
    harness.hear()

    for _ in range(2):
        assert harness.publish("foo", b"x") == [text.format("foo")]
        assert harness.subscribe("FOO").error.decode() == text.format("FOO")
        assert harness.publish("Foo", b"2") == [""]
        harness.restart()


def test_channel_that_cannot_be_made_tells_why():
    harness = limited()
    harness.full = True

    assert harness.publish("foo", b"x") == ["disk full"]
    assert harness.subscribe("foo").error == b"disk full"
    harness.full = False
    assert harness.publish("foo", b"x") == [""]


# --- idle channels ------------------------------------------------------------------------------------------------------------


def test_idle_channel_is_removed_and_begins_again_at_one():
    harness = limited(inactivity_ns=2 * SECOND)
    harness.publish("foo", b"1", b"2")
    harness.pass_time(1.9)
    assert exists(harness)
    harness.pass_time(2.1)
    assert not exists(harness)
    assert ("INF", 'Channel "foo" has been deleted') in harness.notes

    harness.publish("foo", b"new")
    harness.subscribe("foo")
    assert [(m.sequence, m.data) for m in (s.message for s in harness.hear("inbox"))] == [(1, b"new")]


def test_publishing_keeps_a_channel_and_its_end_removes_it_within_twice_the_time():
    harness = limited(inactivity_ns=SECOND // 2)
    for _ in range(10):
        harness.publish("foo", b"x")
        harness.pass_time(0.4)
    assert exists(harness)
    harness.pass_time(0.61)

    assert not exists(harness)


@pytest.mark.parametrize("kind", [{}, {"queue": "q"}, {"durable": "d"}, {"queue": "q", "durable": "d"}])
@pytest.mark.parametrize("ending", ["unsubscribe", "close", "client"])
def test_subscription_keeps_its_channel_and_for_the_whole_time_after_its_end(kind, ending):
    harness = limited(inactivity_ns=2 * SECOND)
    sub = harness.subscribe("foo", **kind)
    harness.pass_time(11.5)  # a timer that is still under way from before must not count
    assert exists(harness)
    if ending == "client":
        harness.close()
    else:
        harness.leave("foo", sub.ack_inbox, unsubscribe=ending == "unsubscribe")
    harness.pass_time(1.9)
    assert exists(harness)
    harness.pass_time(0.2)

    assert not exists(harness)


def test_subscription_that_ends_shortly_before_an_old_timer_keeps_its_channel_for_the_whole_time():
    harness = limited(inactivity_ns=2 * SECOND)
    harness.publish("foo", b"1")
    sub = harness.subscribe("foo")
    harness.pass_time(1.9)
    harness.leave("foo", sub.ack_inbox)
    harness.pass_time(1.9)
    assert exists(harness)
    harness.pass_time(0.2)

    assert not exists(harness)


def test_subscription_under_way_keeps_its_channel():
    harness = limited(inactivity_ns=2 * SECOND)
    harness.publish("foo", b"1")
    harness.pass_time(1.9)
    harness.hold = True
    harness.subscribe("foo")
    harness.pass_time(1)
    harness.hold = False
    harness.turn()

    assert harness.received() == [(1, 0)]
    harness.pass_time(10)
    assert exists(harness)


def test_subscription_refused_starts_the_time_again():
    harness = limited(inactivity_ns=2 * SECOND, subscriptions=1)
    sub = harness.subscribe("foo", durable="d")
    harness.leave("foo", sub.ack_inbox)
    harness.pass_time(1.5)
    assert harness.subscribe("foo").error
    harness.pass_time(1.5)
    assert exists(harness)
    harness.pass_time(0.6)

    assert not exists(harness)


def test_offline_durables_and_a_restart_do_not_keep_an_idle_channel():
    harness = limited(inactivity_ns=2 * SECOND)
    harness.subscribe("foo", durable="d")
    harness.subscribe("foo", queue="q", durable="d")
    harness.close()
    harness.pass_time(1)
    harness.restart()
    harness.pass_time(1.9)
    assert exists(harness)
    harness.pass_time(0.2)
    assert not exists(harness)

    harness.connect()
    harness.publish("foo", b"new")
    harness.subscribe("foo", durable="d", start=0)
    assert harness.received() == []


def test_client_that_dies_lets_its_channel_go():
    harness = limited(inactivity_ns=5 * SECOND)
    harness.connect("mute", alive=False)
    harness.subscribe("foo", client_id="mute")
    harness.pass_time(40 * 11 + 1)
    assert b"mute" not in harness.state.clients
    harness.pass_time(5)

    assert not exists(harness)


def test_own_inactivity_of_a_channel_is_respected_also_after_a_restart():
    harness = limited(
        inactivity_ns=SECOND,
        per_channel={"long": ChannelOverride(inactivity_ns=10 * SECOND), "keep.>": ChannelOverride(inactivity_ns=-1)},
    )
    for channel in ("short", "long", "keep.me"):
        harness.publish(channel, b"x")
    harness.pass_time(0.5)
    harness.restart()
    harness.pass_time(1.1)
    assert [exists(harness, channel) for channel in ("short", "long", "keep.me")] == [False, True, True]
    harness.pass_time(10)

    assert [exists(harness, channel) for channel in ("short", "long", "keep.me")] == [False, False, True]


def test_channel_being_removed_refuses_and_is_kept_when_that_fails():
    harness = limited(inactivity_ns=2 * SECOND)
    harness.publish("foo", b"1")
    harness.hold = True
    harness.pass_time(2.1)
    assert harness.publish("foo", b"2") == ["stan: channel is being deleted"]
    assert harness.subscribe("foo").error == b"stan: channel is being deleted"
    harness.hold = False
    harness.turn()
    assert not exists(harness)

    harness.publish("foo", b"1")
    harness.full = True
    harness.pass_time(2.1)
    harness.full = False
    assert any("Unable to delete channel" in text for _, text in harness.notes)
    harness.pass_time(1)
    assert harness.publish("foo", b"2") == [""]
    harness.pass_time(4.1)
    assert not exists(harness)


def test_wall_clock_going_back_neither_removes_messages_nor_turns_timestamps_around():
    harness = limited(age_ns=100 * SECOND, inactivity_ns=5 * SECOND)
    sub = harness.subscribe("foo", wait=1)
    harness.publish("foo", b"1")
    harness.wall -= 3600 * SECOND
    harness.publish("foo", b"2")
    harness.pass_time(0.5)
    first, second = (s.message for s in harness.hear("inbox"))
    assert second.timestamp == first.timestamp
    harness.ack(sub.ack_inbox, 1)
    harness.pass_time(0.6)
    assert harness.received() == [(2, 1)]
    harness.ack(sub.ack_inbox, 2)
    harness.restart()
    harness.publish("foo", b"3")

    assert harness.hear("inbox")[0].message.timestamp == first.timestamp
    assert kept(harness) == (1, 3, 3)


def test_channel_names_are_compared_by_case_beyond_ascii(harness):
    harness.publish("Ñandú", b"1")

    assert "different cases not allowed" in harness.publish("ÑANDÚ", b"2")[0]
    assert harness.publish("nandu", b"3") == [""]

"""Durables, queue groups, leaving and coming back (STAN-SPEC 5, 6.7, 6.8, 16 E and F)."""

import pytest

from stan.config import ChannelLimits, Config, StoreLimits
from tests.kit.desk import Desk


@pytest.fixture
def desk():
    desk = Desk()
    desk.connect()
    return desk


def test_durable_resumes_after_the_last_acked_message_even_with_another_start(desk):
    sub = desk.subscribe("foo", durable="dur")
    desk.publish("foo", b"1", b"2", b"3")
    desk.received()
    desk.ack(sub.ack_inbox, 1, 2)
    desk.close()
    desk.connect()
    desk.publish("foo", b"4")
    again = desk.subscribe("foo", durable="dur", start=0)

    assert again.ack_inbox != sub.ack_inbox
    assert desk.received() == [(3, 1), (4, 0)]


def test_durable_online_refuses_a_second_registration(desk):
    desk.subscribe("foo", durable="dur")

    assert desk.subscribe("foo", durable="dur").error == b"stan: duplicate durable registration"
    assert not desk.subscribe("bar", durable="dur").error


def test_durable_unsubscribed_starts_anew(desk):
    sub = desk.subscribe("foo", durable="dur")
    desk.publish("foo", b"1")
    desk.leave("foo", sub.ack_inbox, unsubscribe=True)
    desk.received()
    desk.subscribe("foo", durable="dur")

    assert desk.received() == [(1, 0)]


def test_durable_resume_honours_its_window_oldest_first(desk):
    """The whole unacked backlog does not come at once (FIELD 1a #3)."""
    sub = desk.subscribe("foo", durable="dur", in_flight=10)
    desk.publish("foo", *[b"x"] * 10)
    desk.leave("foo", sub.ack_inbox)
    desk.received()
    desk.publish("foo", b"new")
    again = desk.subscribe("foo", durable="dur", in_flight=2)
    assert desk.received() == [(1, 1), (2, 1)]

    desk.ack(again.ack_inbox, 1, 2)

    assert desk.received() == [(3, 1), (4, 1)]


def test_durable_offline_survives_a_restart_and_gets_nothing(desk):
    sub = desk.subscribe("foo", durable="dur")
    desk.publish("foo", b"1")
    desk.leave("foo", sub.ack_inbox)
    desk.restart()
    desk.said.clear()
    desk.publish("foo", b"2")
    desk.pass_time(60)
    assert desk.received() == []

    desk.subscribe("foo", durable="dur")
    assert desk.received() == [(1, 1), (2, 0)]


def test_durable_online_goes_on_after_a_restart_without_resubscribing(desk):
    sub = desk.subscribe("foo", durable="dur")
    desk.publish("foo", b"1")
    desk.ack(sub.ack_inbox, 1)
    desk.restart()
    desk.publish("foo", b"2")

    assert desk.received() == [(1, 0), (2, 0)]
    assert desk.subscribe("foo", durable="dur").error


def test_replace_durable_closes_the_first_handle():
    desk = Desk(Config(replace_durable=True))
    desk.connect()
    first = desk.subscribe("foo", "one", durable="dur")
    desk.publish("foo", b"1")
    second = desk.subscribe("foo", "two", durable="dur")
    desk.publish("foo", b"2")

    assert not second.error
    assert desk.received("one") == [(1, 0)]
    assert desk.received("two") == [(1, 1), (2, 0)]
    assert desk.leave("foo", first.ack_inbox).error == b"stan: invalid subscription"
    assert not desk.leave("foo", second.ack_inbox).error


def test_queue_group_gives_each_message_to_one_member_in_turns(desk):
    desk.subscribe("foo", "a", queue="q")
    desk.subscribe("foo", "b", queue="q")
    for n in range(4):
        desk.publish("foo", b"%d" % n)

    assert (len(desk.received("a")), len(desk.received("b"))) == (2, 2)


def test_queue_group_spreads_a_batch_over_its_members(desk):
    for inbox in "abc":
        desk.subscribe("foo", inbox, queue="q", in_flight=100)
    desk.publish("foo", *[b"x"] * 90)
    got = [desk.received(inbox) for inbox in "abc"]

    assert [len(each) for each in got] == [30, 30, 30]
    assert sorted(sequence for each in got for sequence, _ in each) == list(range(1, 91))


def test_queue_group_goes_on_when_one_member_is_stalled(desk):
    desk.subscribe("foo", "slow", queue="q", in_flight=1)
    desk.subscribe("foo", "fast", queue="q", in_flight=100)
    desk.publish("foo", *[b"x"] * 10)

    assert (len(desk.received("slow")), len(desk.received("fast"))) == (1, 9)


def test_durable_and_other_group_of_the_same_name_get_every_message(desk):
    desk.subscribe("foo", "a", queue="q")
    desk.subscribe("foo", "b", queue="q", durable="dur")
    desk.publish("foo", b"1")

    assert desk.received("a") == desk.received("b") == [(1, 0)]


def test_member_leaving_hands_its_messages_over_at_once(desk):
    a = desk.subscribe("foo", "a", queue="q", wait=60)
    desk.publish("foo", b"1")
    desk.subscribe("foo", "b", queue="q", wait=60)
    desk.leave("foo", a.ack_inbox)

    assert desk.received("b") == [(1, 1)]


def test_redelivery_counts_for_the_group_and_a_late_ack_of_another_member_counts(desk):
    a = desk.subscribe("foo", "a", queue="q", wait=1, in_flight=1)
    desk.publish("foo", b"1")
    desk.subscribe("foo", "b", queue="q", wait=1, in_flight=1)
    desk.pass_time(1.1)
    desk.pass_time(1.1)
    got = sorted(desk.received("a") + desk.received("b"))
    assert got == [(1, 0), (1, 1), (1, 2)]

    desk.ack(a.ack_inbox, 1)
    desk.pass_time(5)
    assert desk.received("a") + desk.received("b") == []


def test_group_without_durable_name_starts_anew_after_its_last_member(desk):
    sub = desk.subscribe("foo", "a", queue="q")
    desk.publish("foo", b"1")
    desk.received("a")
    desk.leave("foo", sub.ack_inbox)
    desk.subscribe("foo", "a", queue="q")

    assert desk.received("a") == [(1, 0)]


def test_durable_group_is_kept_by_close_and_removed_by_unsubscribe(desk):
    sub = desk.subscribe("foo", "a", queue="q", durable="dur")
    desk.publish("foo", b"1", b"2")
    desk.ack(sub.ack_inbox, 1)
    desk.close()
    desk.restart()
    desk.connect()
    desk.publish("foo", b"3")
    desk.received("a")
    again = desk.subscribe("foo", "a", queue="q", durable="dur", start=0)
    assert desk.received("a") == [(2, 1), (3, 0)]

    desk.leave("foo", again.ack_inbox, unsubscribe=True)
    desk.subscribe("foo", "a", queue="q", durable="dur")
    assert desk.received("a") == [(1, 0), (2, 0), (3, 0)]


def test_group_position_is_kept_when_a_member_unsubscribes_and_the_server_restarts(desk):
    """STAN-SPEC 16 F 106."""
    desk.subscribe("foo", "a", queue="q", in_flight=1)
    desk.publish("foo", b"1")
    b = desk.subscribe("foo", "b", queue="q", in_flight=1)
    desk.publish("foo", b"2")
    desk.leave("foo", b.ack_inbox, unsubscribe=True)
    desk.restart()
    desk.said.clear()
    desk.subscribe("foo", "c", queue="q", in_flight=5)
    desk.publish("foo", b"3")

    assert (3, 0) in desk.received("c")


def test_client_that_died_during_a_crash_leaves_its_subscriptions_closed(desk):
    """A crash between the metadata group's entry and the channel group's: mended when the node leads again."""
    desk.subscribe("foo", durable="dur")
    desk.subscribe("foo", "gone")
    desk.hold = True
    desk.close()
    index, kind, body = next(e[1:] for e in desk.uncommitted if e[0] == 0)
    desk.logs[1] = desk.logs[1][:2]
    desk.hold = False
    desk.restart()

    assert index
    assert kind
    assert body
    machine = desk.broker.context.groups[1].machine
    assert [len(c.members) for c in machine.cursors.values()] == [0]
    desk.connect()
    assert not desk.subscribe("foo", durable="dur").error


def test_subscription_limit_counts_offline_durables_and_not_a_resume():
    desk = Desk(Config(limits=StoreLimits(default=ChannelLimits(subscriptions=1))))
    desk.connect()
    sub = desk.subscribe("foo", durable="dur")
    desk.leave("foo", sub.ack_inbox)
    for more in ({}, {"durable": "x"}, {"queue": "q"}, {"queue": "q", "durable": "x"}):
        assert desk.subscribe("foo", **more).error == b"too many subscriptions per channel"

    assert not desk.subscribe("foo", durable="dur").error


def test_debug_lines_quote_what_clients_chose():
    """Else a name with a line end writes lines of its own."""
    desk = Desk()
    desk.connect()
    evil = "d\r\n[1] [ERR] \x1b[31mforged"
    assert desk.subscribe("foo", durable=evil, queue=evil.replace("d", "q")).error == b""
    assert desk.subscribe("foo", inbox="in\x1bbox", durable="plain").error == b""
    lines = [text for _, text in desk.notes if "Started new" in text]
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    assert " durable=d\\r\\n[1] [ERR] \\x1b[31mforged," in lines[0]
    assert " durable=plain," in lines[1]

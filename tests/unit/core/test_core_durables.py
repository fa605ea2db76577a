"""Durables, queue groups, leaving and coming back (STAN-SPEC 5, 6.7, 6.8, 16 E and F)."""

from stan.config import ChannelLimits, Config, StoreLimits
from tests.kit.core_harness import CoreHarness


def test_durable_resumes_after_the_last_acked_message_even_with_another_start(harness):
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"1", b"2", b"3")
    harness.received()
    harness.ack(sub.ack_inbox, 1, 2)
    harness.close()
    harness.connect()
    harness.publish("foo", b"4")
    again = harness.subscribe("foo", durable="dur", start=0)

    assert again.ack_inbox != sub.ack_inbox
    assert harness.received() == [(3, 1), (4, 0)]


def test_durable_online_refuses_a_second_registration(harness):
    harness.subscribe("foo", durable="dur")

    assert harness.subscribe("foo", durable="dur").error == b"stan: duplicate durable registration"
    assert not harness.subscribe("bar", durable="dur").error


def test_durable_unsubscribed_starts_anew(harness):
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"1")
    harness.leave("foo", sub.ack_inbox, unsubscribe=True)
    harness.received()
    harness.subscribe("foo", durable="dur")

    assert harness.received() == [(1, 0)]


def test_durable_resume_honours_its_window_oldest_first(harness):
    """The whole unacked backlog does not come at once (FIELD 1a #3)."""
    sub = harness.subscribe("foo", durable="dur", in_flight=10)
    harness.publish("foo", *[b"x"] * 10)
    harness.leave("foo", sub.ack_inbox)
    harness.received()
    harness.publish("foo", b"new")
    again = harness.subscribe("foo", durable="dur", in_flight=2)
    assert harness.received() == [(1, 1), (2, 1)]

    harness.ack(again.ack_inbox, 1, 2)

    assert harness.received() == [(3, 1), (4, 1)]


def test_durable_offline_survives_a_restart_and_gets_nothing(harness):
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"1")
    harness.leave("foo", sub.ack_inbox)
    harness.restart()
    harness.said.clear()
    harness.publish("foo", b"2")
    harness.pass_time(60)
    assert harness.received() == []

    harness.subscribe("foo", durable="dur")
    assert harness.received() == [(1, 1), (2, 0)]


def test_durable_online_goes_on_after_a_restart_without_resubscribing(harness):
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"1")
    harness.ack(sub.ack_inbox, 1)
    harness.restart()
    harness.publish("foo", b"2")

    assert harness.received() == [(1, 0), (2, 0)]
    assert harness.subscribe("foo", durable="dur").error


def test_replace_durable_closes_the_first_handle():
    harness = CoreHarness(Config(replace_durable=True))
    harness.connect()
    first = harness.subscribe("foo", "one", durable="dur")
    harness.publish("foo", b"1")
    second = harness.subscribe("foo", "two", durable="dur")
    harness.publish("foo", b"2")

    assert not second.error
    assert harness.received("one") == [(1, 0)]
    assert harness.received("two") == [(1, 1), (2, 0)]
    assert harness.leave("foo", first.ack_inbox).error == b"stan: invalid subscription"
    assert not harness.leave("foo", second.ack_inbox).error


def test_queue_group_gives_each_message_to_one_member_in_turns(harness):
    harness.subscribe("foo", "a", queue="q")
    harness.subscribe("foo", "b", queue="q")
    for n in range(4):
        harness.publish("foo", b"%d" % n)

    assert (len(harness.received("a")), len(harness.received("b"))) == (2, 2)


def test_queue_group_spreads_a_batch_over_its_members(harness):
    for inbox in "abc":
        harness.subscribe("foo", inbox, queue="q", in_flight=100)
    harness.publish("foo", *[b"x"] * 90)
    got = [harness.received(inbox) for inbox in "abc"]

    assert [len(each) for each in got] == [30, 30, 30]
    assert sorted(sequence for each in got for sequence, _ in each) == list(range(1, 91))


def test_queue_group_goes_on_when_one_member_is_stalled(harness):
    harness.subscribe("foo", "slow", queue="q", in_flight=1)
    harness.subscribe("foo", "fast", queue="q", in_flight=100)
    harness.publish("foo", *[b"x"] * 10)

    assert (len(harness.received("slow")), len(harness.received("fast"))) == (1, 9)


def test_durable_and_other_group_of_the_same_name_get_every_message(harness):
    harness.subscribe("foo", "a", queue="q")
    harness.subscribe("foo", "b", queue="q", durable="dur")
    harness.publish("foo", b"1")

    assert harness.received("a") == harness.received("b") == [(1, 0)]


def test_member_leaving_hands_its_messages_over_at_once(harness):
    a = harness.subscribe("foo", "a", queue="q", wait=60)
    harness.publish("foo", b"1")
    harness.subscribe("foo", "b", queue="q", wait=60)
    harness.leave("foo", a.ack_inbox)

    assert harness.received("b") == [(1, 1)]


def test_redelivery_counts_for_the_group_and_a_late_ack_of_another_member_counts(harness):
    a = harness.subscribe("foo", "a", queue="q", wait=1, in_flight=1)
    harness.publish("foo", b"1")
    harness.subscribe("foo", "b", queue="q", wait=1, in_flight=1)
    harness.pass_time(1.1)
    harness.pass_time(1.1)
    got = sorted(harness.received("a") + harness.received("b"))
    assert got == [(1, 0), (1, 1), (1, 2)]

    harness.ack(a.ack_inbox, 1)
    harness.pass_time(5)
    assert harness.received("a") + harness.received("b") == []


def test_group_without_durable_name_starts_anew_after_its_last_member(harness):
    sub = harness.subscribe("foo", "a", queue="q")
    harness.publish("foo", b"1")
    harness.received("a")
    harness.leave("foo", sub.ack_inbox)
    harness.subscribe("foo", "a", queue="q")

    assert harness.received("a") == [(1, 0)]


def test_durable_group_is_kept_by_close_and_removed_by_unsubscribe(harness):
    sub = harness.subscribe("foo", "a", queue="q", durable="dur")
    harness.publish("foo", b"1", b"2")
    harness.ack(sub.ack_inbox, 1)
    harness.close()
    harness.restart()
    harness.connect()
    harness.publish("foo", b"3")
    harness.received("a")
    again = harness.subscribe("foo", "a", queue="q", durable="dur", start=0)
    assert harness.received("a") == [(2, 1), (3, 0)]

    harness.leave("foo", again.ack_inbox, unsubscribe=True)
    harness.subscribe("foo", "a", queue="q", durable="dur")
    assert harness.received("a") == [(1, 0), (2, 0), (3, 0)]


def test_group_position_is_kept_when_a_member_unsubscribes_and_the_server_restarts(harness):
    """STAN-SPEC 16 F 106."""
    harness.subscribe("foo", "a", queue="q", in_flight=1)
    harness.publish("foo", b"1")
    b = harness.subscribe("foo", "b", queue="q", in_flight=1)
    harness.publish("foo", b"2")
    harness.leave("foo", b.ack_inbox, unsubscribe=True)
    harness.restart()
    harness.said.clear()
    harness.subscribe("foo", "c", queue="q", in_flight=5)
    harness.publish("foo", b"3")

    assert (3, 0) in harness.received("c")


def test_client_that_died_during_a_crash_leaves_its_subscriptions_closed(harness):
    """A crash between the metadata group's entry and the channel group's: mended when the node leads again."""
    harness.subscribe("foo", durable="dur")
    harness.subscribe("foo", "gone")
    harness.hold = True
    harness.close()
    index, kind, body = next(e[1:] for e in harness.uncommitted if e[0] == 0)
    harness.logs[1] = harness.logs[1][:2]
    harness.hold = False
    harness.restart()

    assert index
    assert kind
    assert body
    assert [len(position.members) for position in harness.state.positions()] == [0]
    harness.connect()
    assert not harness.subscribe("foo", durable="dur").error


def test_subscription_limit_counts_offline_durables_and_not_a_resume():
    harness = CoreHarness(Config(limits=StoreLimits(default=ChannelLimits(subscriptions=1))))
    harness.connect()
    sub = harness.subscribe("foo", durable="dur")
    harness.leave("foo", sub.ack_inbox)
    for more in ({}, {"durable": "x"}, {"queue": "q"}, {"queue": "q", "durable": "x"}):
        assert harness.subscribe("foo", **more).error == b"too many subscriptions per channel"

    assert not harness.subscribe("foo", durable="dur").error


def test_debug_lines_quote_what_clients_chose(harness):
    """Else a name with a line end writes lines of its own."""
    evil = "d\r\n[1] [ERR] \x1b[31mforged"
    assert harness.subscribe("foo", durable=evil, queue=evil.replace("d", "q")).error == b""
    assert harness.subscribe("foo", inbox="in\x1bbox", durable="plain").error == b""
    lines = [text for _, text in harness.notes if "Started new" in text]
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    assert " durable=d\\r\\n[1] [ERR] \\x1b[31mforged," in lines[0]
    assert " durable=plain," in lines[1]

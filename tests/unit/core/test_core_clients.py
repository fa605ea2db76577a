"""Connect, duplicate check, heartbeats, pings, close: in virtual time (STAN-SPEC 3, 16 A)."""

import pytest
from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND, SECOND

from stan.config import Config, HeartbeatConfig
from tests.kit.core_harness import CoreHarness

REGISTERED = b"stan: clientID already registered"
REPLACED = b"client has been replaced or is no longer registered"


@pytest.fixture
def harness():
    """Heartbeats as STAN-SPEC 16 A 13 has them."""
    beat = HeartbeatConfig(interval_ns=50 * MILLISECOND, timeout_ns=10 * MILLISECOND, fail_count=5)
    return CoreHarness(Config(heartbeat=beat))


@pytest.fixture
def calm():
    return CoreHarness()


def known(harness):
    return set(harness.state.clients)


def ping(harness, conn_id):
    return harness.ask("_STAN.discover.test-cluster.pings", wire.Ping(conn_id=conn_id), wire.PingResponse)


def connect_later(harness, client_id, inbox):
    """Ask to connect without waiting for an answer; returns the subject on which it will come."""
    reply = f"later.{inbox}"
    request = wire.ConnectRequest(client_id=client_id.encode(), heartbeat_inbox=inbox.encode(), conn_id=inbox.encode())
    harness.broker.frames.step_frame(
        Frame(10, b"_STAN.discover.test-cluster", reply.encode(), b"", request.SerializeToString())
    )
    harness.turn()
    return reply


def answer(harness, reply):
    heard = harness.hear(reply)
    return wire.ConnectResponse.FromString(heard[0].payload) if heard else None


def test_connect_that_is_sent_again_is_answered_as_the_first_one_was(calm):
    first = answer(calm, connect_later(calm, "me", "hb.me"))

    assert answer(calm, connect_later(calm, "me", "hb.me")) == first
    assert not first.error
    assert len(known(calm)) == 1


def test_connect_that_is_sent_again_while_it_is_being_checked_is_answered_once(calm):
    calm.connect("me", alive=False)
    first = connect_later(calm, "me", "hb.new")

    again = connect_later(calm, "me", "hb.new")

    assert answer(calm, again) is None
    calm.pass_time(0.6)
    assert not answer(calm, first).error
    assert answer(calm, again) is None


# --- duplicate check ---------------------------------------------------------------------------------------------------


def test_second_connect_of_a_client_that_answers_is_refused_at_once(calm):
    calm.connect("me")

    assert calm.connect("me").error == REGISTERED
    assert len(known(calm)) == 1


def test_silent_client_is_replaced_after_the_time_of_the_check_and_not_before(calm):
    calm.connect("me", conn_id="old", alive=False)
    reply = connect_later(calm, "me", "hb.new")
    calm.pass_time(0.499)
    assert answer(calm, reply) is None
    calm.pass_time(0.002)

    assert not answer(calm, reply).error
    assert calm.state.clients[b"me"].heartbeat_inbox == b"hb.new"
    assert ping(calm, b"old").error == REPLACED
    assert not ping(calm, b"hb.new").error


def test_further_connects_during_a_check_are_refused_at_once_and_others_are_not_delayed(calm):
    calm.connect("me", alive=False)
    first = connect_later(calm, "me", "hb.1")

    assert answer(calm, connect_later(calm, "me", "hb.2")).error == REGISTERED
    assert not calm.connect("other").error
    calm.pass_time(0.6)
    assert not answer(calm, first).error


def test_no_responders_counts_as_no_answer(calm):
    calm.connect("me", alive=False)
    reply = connect_later(calm, "me", "hb.new")
    asked = calm.hear("hb.me.0")[0]
    calm.broker.frames.step_frame(Frame(3, asked.reply.encode(), b"", b"NATS/1.0 503\r\n\r\n", b""))
    calm.turn()

    assert not answer(calm, reply).error


def test_check_cut_short_by_an_outage_of_nats_replaces_nobody(calm):
    calm.connect("me", conn_id="old")
    calm.alive.clear()
    connect_later(calm, "me", "hb.new")
    calm.pass_time(0.1)
    calm.broker.step_disconnected()
    calm.pass_time(0.1)
    calm.broker.step_reconnected(SECOND // 10)
    calm.pass_time(5)

    assert not ping(calm, b"old").error
    calm.alive.add("hb.me.0")
    assert calm.connect("me").error == REGISTERED


def test_replaced_client_loses_what_is_not_durable_and_its_durable_can_be_resumed(calm):
    calm.connect("me", alive=False)
    calm.subscribe("foo", "plain")
    calm.subscribe("foo", "old", durable="d")
    reply = connect_later(calm, "me", "hb.new")
    calm.pass_time(0.6)
    assert not answer(calm, reply).error
    calm.connect("publisher")
    calm.publish("foo", b"1", client_id="publisher")
    assert calm.received("plain") == calm.received("old") == []

    assert not calm.subscribe("foo", "new", durable="d").error
    assert calm.received("new") == [(1, 0)]


def test_connection_id_used_by_two_clients_belongs_to_the_one_that_came_last(calm):
    calm.connect("one", conn_id="same")
    calm.connect("two", conn_id="same")
    calm.close("one")

    assert not ping(calm, b"same").error
    calm.close("two")
    assert ping(calm, b"same").error == REPLACED


# --- heartbeats ----------------------------------------------------------------------------------------------------------


def test_client_that_answers_is_never_removed(harness):
    harness.connect("me")
    harness.pass_time(10)

    assert known(harness) == {b"me"}


def test_silent_client_is_removed_on_the_failure_after_the_last_allowed(harness):
    harness.connect("me", alive=False)
    harness.pass_time(0.359)
    assert known(harness) == {b"me"}
    assert len(harness.hear("hb.me.0")) == 6
    harness.pass_time(0.002)

    assert known(harness) == set()
    assert ("ERR", "[Client:me] Timed out on heartbeats") in harness.notes


def test_one_answer_forgives_all_failures(harness):
    harness.connect("me", alive=False)
    for _ in range(5):
        harness.pass_time(0.3)
        harness.alive.add("hb.me.0")
        harness.pass_time(0.1)
        harness.alive.clear()

    assert known(harness) == {b"me"}


def test_ping_of_a_client_with_failed_heartbeats_brings_the_next_one_at_once(calm):
    calm.connect("me", conn_id="c", alive=False)
    calm.pass_time(41)
    assert calm.state.failed_heartbeats(2) == 1
    calm.hear()
    calm.alive.add("hb.me.0")

    assert not ping(calm, b"c").error
    calm.pass_time(0.002)
    assert calm.state.failed_heartbeats(2) == 0


def test_ping_while_a_heartbeat_is_without_answer_brings_the_next_one_at_once(calm):
    calm.connect("me", conn_id="c", alive=False)
    calm.pass_time(41 + 30)
    assert len(calm.hear("hb.me.0")) == 2
    calm.alive.add("hb.me.0")

    assert not ping(calm, b"c").error
    calm.pass_time(0.002)
    assert calm.state.failed_heartbeats(2) == 0
    calm.pass_time(20)
    assert calm.state.failed_heartbeats(2) == 0


def test_ping_of_a_healthy_client_brings_no_heartbeat(calm):
    calm.connect("me", conn_id="c", alive=False)
    ping(calm, b"c")
    calm.pass_time(1)

    assert calm.hear("hb.me.0") == []


def test_failed_heartbeats_stop_redelivery_but_not_new_messages_until_one_is_answered(calm):
    calm.connect("me", alive=False)
    calm.connect("publisher")
    calm.subscribe("foo", wait=5)
    calm.pass_time(41)
    calm.publish("foo", b"1", client_id="publisher")
    assert calm.received() == [(1, 0)]
    calm.pass_time(20)
    assert calm.received() == []
    calm.alive.add("hb.me.0")
    calm.pass_time(50)

    assert calm.received()[0] == (1, 1)


def test_group_avoids_the_member_with_failed_heartbeats_also_for_redelivery(calm):
    calm.connect("mute", alive=False)
    calm.connect("me")
    calm.subscribe("foo", "mute.in", client_id="mute", queue="q", wait=60)
    calm.publish("foo", b"1")
    assert calm.received("mute.in") == [(1, 0)]
    calm.subscribe("foo", "in", queue="q", wait=60)
    calm.pass_time(41)
    calm.publish("foo", b"2", b"3")
    assert calm.received("in") == [(2, 0), (3, 0)]
    calm.pass_time(20)

    assert calm.received("in") == [(1, 1)]
    assert calm.received("mute.in") == []


def test_durable_of_a_replaced_client_with_failed_heartbeats_is_redelivered_again_when_resumed(calm):
    calm.connect("me", alive=False)
    calm.connect("publisher")
    calm.subscribe("foo", "old", durable="d", wait=5)
    calm.pass_time(41)
    calm.publish("foo", b"1", client_id="publisher")
    connect_later(calm, "me", "hb.new")
    calm.alive.add("hb.new")
    calm.pass_time(0.6)
    calm.subscribe("foo", "new", durable="d", wait=5)
    calm.pass_time(5.1)

    assert calm.received("new") == [(1, 1), (1, 2)]


def test_restart_keeps_clients_with_all_their_data_and_heartbeats_them(harness):
    harness.connect("silent", conn_id="s", alive=False)
    harness.connect("me", conn_id="c")
    harness.restart()
    client = harness.state.clients[b"me"]
    assert (client.conn_id, client.protocol, client.ping_interval, client.ping_max_out) == (b"c", 1, 5, 3)
    assert not ping(harness, b"c").error
    harness.pass_time(1)

    assert known(harness) == {b"me"}
    assert ping(harness, b"s").error == REPLACED


# --- close --------------------------------------------------------------------------------------------------------------


def test_close_is_refused_to_the_unknown_and_frees_the_id_at_once(calm):
    assert calm.close("me").error == b"stan: unknown clientID"
    calm.connect("me", alive=False)
    assert not calm.close("me").error
    assert not calm.connect("me", alive=False).error


def test_subscription_of_a_client_that_closes_meanwhile_is_refused_and_leaves_nothing(calm):
    calm.connect("me")
    calm.publish("foo", b"1")
    calm.hold = True
    calm.close("me")
    reply = calm.subscribe("foo")
    calm.hold = False
    calm.turn()

    assert reply is None
    closed, refused = calm.hear()
    assert closed.payload == b""
    assert wire.SubscriptionResponse.FromString(refused.payload).error == b"stan: unknown clientID"
    calm.turn()
    assert not calm.state.positions()


@pytest.mark.parametrize("full", [False, True])
def test_subscription_of_a_client_that_closed_meanwhile_ends_also_if_the_disk_is_full_then(calm, full):
    calm.connect("me")
    calm.publish("foo", b"a")
    calm.hold = True
    assert calm.subscribe("foo", "me", durable="d") is None
    assert calm.close("me") is None
    (opened,) = [entry for entry in calm.uncommitted if entry[0]]
    calm.uncommitted.remove(opened)
    calm.commit()  # the close
    calm.full = full
    calm._commit_entry(*opened)
    calm.turn()
    calm.full = calm.hold = False
    calm.pass_time(2)
    assert not calm.state.subscriptions(opened[0])


def test_close_that_cannot_be_written_is_refused_and_the_client_stays(calm):
    """Differs from the original, which forgets the client in memory and would bring it back at the next start."""
    calm.connect("me")
    calm.full = True
    assert calm.close("me").error == b"disk full"
    assert calm.connect("new").error == b"disk full"
    calm.full = False

    assert known(calm) == {b"me"}
    assert not calm.connect("new").error
    assert not calm.close("me").error


# --- requests that are none -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [b"", b"x", b"7", b"9" * 5000, b"-1", b"\xb2"])
def test_answer_to_a_request_that_nobody_made_is_ignored(calm, number):
    calm.broker.frames.step_frame(Frame(3, b"_INBOX.node." + number, b"", b"", b""))
    calm.turn()

    assert not calm.connect("me").error

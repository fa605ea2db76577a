"""Key-ordered queue groups: of each key one message is in flight, and the next one comes when it is settled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan import limits
from stan.core.base.ready import Delivery, ReadResult
from stan.core.base.runs import Run, runs_of
from stan.core.leader.key_order import cut
from stan.protocol.kernel.server import NO_SLOT
from tests.kit.cursor_admin import PREFIX, agrees, change

QUEUE = {"durable_name": "d", "queue_group": "q"}


def keyed(payload):
    """Payloads are their own keys; one in capitals has none."""
    return b"" if payload.isupper() else payload


@pytest.fixture
def harness(harness):
    harness.set_policy(ordered_by_key=True)
    yield harness
    harness.turn()
    agrees(harness)


def member(harness, name="one", **told):
    if name != "one":
        harness.connect(name)
    settings = {"queue": "q", "durable": "d", "wait": 5, **told}
    return harness.subscribe("foo", name, client_id="me" if name == "one" else name, **settings).ack_inbox


def publish(harness, text):
    harness.publish("foo", *[letter.encode() for letter in text], key_of=keyed)


def test_the_next_message_of_a_key_comes_when_the_one_before_is_acked(harness):
    inbox = member(harness)
    publish(harness, "aabab")

    assert harness.received() == []
    assert harness.received("one") == [(1, 0), (3, 0)]
    harness.ack(inbox, 3)
    assert harness.received("one") == [(5, 0)]
    harness.ack(inbox, 1)
    assert harness.received("one") == [(2, 0)]
    harness.ack(inbox, 2, 5)
    assert harness.received("one") == [(4, 0)]


def test_messages_without_a_key_wait_for_nobody(harness):
    member(harness)
    publish(harness, "aXaXX")

    assert sorted(harness.received("one")) == [(1, 0), (2, 0), (4, 0), (5, 0)]


@pytest.mark.parametrize("fails", ["nak", "expired", "back-off"])
def test_a_message_that_failed_holds_back_its_own_key_alone(harness, fails):
    inbox = member(harness)
    if fails == "back-off":
        harness.set_policy(ordered_by_key=True, backoff=(2 * SECOND,))
    publish(harness, "abab")
    assert harness.received("one") == [(1, 0), (2, 0)]
    if fails == "expired":
        harness.pass_time(3)
        harness.ack(inbox, 2)
        harness.pass_time(2.5)
    else:
        harness.pass_time(1)
        harness.say(inbox, 1, wire.NAK)
        harness.ack(inbox, 2)
        harness.pass_time(3)

    assert sorted(harness.received("one")) == [(1, 1), (4, 0)]
    harness.ack(inbox, 1)
    assert harness.received("one") == [(3, 0)]


def test_an_exhausted_message_holds_its_key_back_until_an_operator_helps(harness):
    harness.set_policy(ordered_by_key=True, max_deliver=2)
    inbox = member(harness)
    publish(harness, "aba")
    harness.ack(inbox, 2)
    harness.pass_time(20)
    assert harness.received("one") == [(1, 0), (2, 0), (1, 1)]
    assert list(harness.state.live_position().exhausted) == [Run(1, 1, 0, 1)]

    change(harness, "skip", runs=[1, 1], **QUEUE)

    assert harness.received("one") == [(3, 0)]


def test_operators_send_the_first_of_a_key_again_and_no_other(harness):
    inbox = member(harness)
    publish(harness, "aa")
    harness.received("one")

    change(harness, "redeliver", runs=[1, 2], **QUEUE)
    assert harness.received("one") == [(1, 1)]
    harness.ack(inbox, 1)
    assert [sequence for sequence, _ in harness.received("one")] == [2]


def test_operators_move_the_position(harness):
    inbox = member(harness)
    publish(harness, "aab")
    harness.ack(inbox, 1, 3)
    harness.ack(inbox, 2)
    harness.received("one")

    change(harness, "move", sequence=1, **QUEUE)

    assert harness.received("one") == [(1, 1), (3, 1)]
    harness.ack(inbox, 1)
    assert harness.received("one") == [(2, 1)]


def test_the_slot_goes_to_another_member_when_its_own_is_gone_and_the_rest_follows(harness):
    first = member(harness)
    publish(harness, "aaa")
    second = member(harness, "two")
    assert (harness.received("one"), harness.received("two")) == ([(1, 0)], [])

    harness.leave("foo", first)
    assert harness.received("two") == [(1, 1)]
    harness.ack(second, 1)
    assert harness.received("two") == [(2, 0)]


def test_a_slot_keeps_its_member(harness):
    inboxes = {name: member(harness, name) for name in ("one", "two", "three")}
    publish(harness, "abcdef")
    of = {s: name for name in inboxes for s, _ in harness.received(name)}
    assert set(of.values()) == set(inboxes)
    for sequence, name in of.items():
        harness.ack(inboxes[name], sequence)
    publish(harness, "fedcba")
    again = {s: name for name in inboxes for s, _ in harness.received(name)}
    assert [again[13 - sequence] for sequence in range(1, 7)] == [of[sequence] for sequence in range(1, 7)]


def test_another_member_takes_the_slot_while_the_window_of_its_own_is_full(harness):
    one, two = member(harness, in_flight=1), member(harness, "two", in_flight=1)
    publish(harness, "ab")
    inboxes = {"one": one, "two": two}
    of = {s: name for name in inboxes for s, _ in harness.received(name)}
    assert sorted(of) == [1, 2]
    publish(harness, "aXX")
    harness.ack(inboxes[of[1]], 1)
    harness.ack(inboxes[of[2]], 2)
    later = [s for name in inboxes for s, _ in harness.received(name)]
    assert len(later) == 2


def test_the_slots_of_a_member_that_never_acks_go_to_another_one(harness):
    inboxes = {"one": member(harness), "two": member(harness, "two")}
    publish(harness, "abcdef")
    of = {s: name for name in inboxes for s, _ in harness.received(name)}
    assert set(of.values()) == {"one", "two"}
    harness.ack(inboxes["two"], *[s for s, name in of.items() if name == "two"])
    publish(harness, "fedcba")
    harness.received("two")
    harness.pass_time(4)
    harness.ack(inboxes["two"], *range(7, 13))
    harness.pass_time(1.1)
    assert [s for s, _ in harness.received("two")][:3] == [s for s, name in of.items() if name == "one"]
    assert harness.received("one") == []


def test_after_a_restart_nothing_new_comes_before_what_is_unsettled(harness):
    inbox = member(harness)
    publish(harness, "aabab")
    harness.received("one")

    harness.restart()
    harness.set_policy(ordered_by_key=True)

    assert harness.received("one") == []
    publish(harness, "ac")
    assert harness.received("one") == [(7, 0)]
    harness.ack(inbox, 1)
    assert harness.received("one") == [(2, 1)], "it may have been sent before, as far as the log tells"
    harness.pass_time(6)
    assert sorted(harness.received("one")) == [(2, 2), (3, 1), (7, 1)]


def test_after_a_loss_of_power_no_message_comes_before_an_earlier_one_of_its_key(harness):
    inbox = member(harness)
    publish(harness, "aaab")
    harness.received("one")
    harness.ack(inbox, 1)
    assert harness.received("one") == [(2, 0)]
    harness.forget_progress(1)
    harness.power_lost = True

    harness.restart()
    harness.set_policy(ordered_by_key=True)

    assert harness.received("one") == [(1, 1), (4, 1)]
    harness.ack(inbox, 1)
    assert harness.received("one") == [(2, 1)]


def test_the_policy_may_come_while_messages_are_in_flight_and_go(harness):
    harness.set_policy()
    inbox = member(harness)
    publish(harness, "aab")
    assert harness.received("one") == [(1, 0), (2, 0), (3, 0)]
    harness.set_policy(ordered_by_key=True)
    publish(harness, "aab")
    assert harness.received("one") == []
    harness.ack(inbox, 1, 3)
    assert harness.received("one") == [(6, 0)]
    harness.ack(inbox, 2)
    assert harness.received("one") == [(4, 0)]
    harness.set_policy()
    assert harness.received("one") == [(5, 0)], "it was never sent"


def test_not_more_is_held_back_than_the_limit(harness, monkeypatch):
    monkeypatch.setattr(limits, "HELD_BACK_FEW", 2)
    monkeypatch.setattr(limits, "HELD_BACK_MAX", 3)
    inbox = member(harness)
    publish(harness, "aaaaab")
    assert harness.received("one") == [(1, 0)]
    assert harness.state.live_position().last_sent < 6
    for sequence in range(1, 6):
        harness.ack(inbox, sequence)
    assert sorted(harness.received("one")) == [(2, 0), (3, 0), (4, 0), (5, 0), (6, 0)]
    assert harness.state.live_position().last_sent == 6


def test_records_beyond_the_memory_for_them_are_read_again(harness, monkeypatch):
    monkeypatch.setattr(limits, "HELD_BACK_BYTES_MAX", 1)
    inbox = member(harness)
    publish(harness, "abab")
    harness.received("one")
    harness.ack(inbox, 1, 2)
    assert sorted(harness.received("one")) == [(3, 0), (4, 0)]


def test_what_did_not_leave_is_sent_again_and_is_no_redelivery(harness):
    member(harness)
    publish(harness, "ab")
    harness.received("one")
    number = harness.state.subscription().subscription_id
    harness.broker.not_sent([Delivery(b"one", b"", 1, 1, 2, 0, 1, number, (1, 2))])
    harness.turn()
    assert sorted(harness.received("one")) == [(1, 0), (2, 0)]


def test_removed_messages_hold_nobody_back(harness):
    inbox = member(harness)
    publish(harness, "aaab")
    harness.received("one")
    harness.indexes[1, harness.state.channels[b"foo"].uid].first = 3
    harness.ack(inbox, 4)
    assert harness.received("one") == [], "a client may still have the first one"
    harness.pass_time(6)
    assert harness.received("one") == [(3, 0)]


def test_operators_see_what_is_held_back(harness):
    inbox = member(harness)
    publish(harness, "aaab")
    harness.ack(inbox, 4)

    request = admin.SubscriptionsRequest(version=1, pattern=b"foo")
    (told,) = harness.ask(f"{PREFIX}subscriptions", request, admin.SubscriptionsResponse).cursors

    assert (told.pending, told.owed, told.waiting, told.held_back) == (1, 0, 2, 2)
    assert list(told.owed_runs) == [2, 3], "a backup has them"
    assert told.acked_up_to == 0


def test_runs_of_sequences():
    assert runs_of([]) == ()
    assert runs_of([5, 1, 2, 7, 6, 2]) == ((1, 2), (5, 7))


def record(sequence, key):
    body = wire.MsgProto(sequence=sequence, key=key).SerializeToString()
    return len(body).to_bytes(4, "little") + body


@given(st.lists(st.sampled_from([b"", b"a", b"b"]), min_size=1, max_size=6), st.integers(1, 100))
def test_a_batch_is_cut_into_its_messages(keys, base):
    records = [record(base + at, key) for at, key in enumerate(keys)]
    batch = cut(ReadResult(base, len(keys), b"".join(records)))
    assert [batch.record(at) for at in range(len(keys))] == records
    assert [batch.slot(at) == NO_SLOT for at in range(len(keys))] == [not key for key in keys]

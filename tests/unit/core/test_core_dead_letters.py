"""Dead letters: messages that a position has given up are moved into another channel, each exactly once."""

from collections import defaultdict
from dataclasses import replace

import pytest
from stan_protocol import dead_letters as letters
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as ext
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan import limits
from stan.core.publishing.stored_reads import StoredReads
from stan.protocol.entries import Kind, decode_batches
from tests.kit.core_harness import CoreHarness, Index, Node
from tests.kit.cursor_admin import agrees, begin, change

PREFIX = "_STAN.x.test-cluster.admin"


@pytest.fixture
def harness(harness):
    harness.set_policy(max_deliver=2, dead_letter=".dlq")
    yield harness
    harness.full = harness.hold = False
    harness.pass_time(2)
    agrees(harness)


def messages(harness, channel=b"foo.dlq"):
    """(sequence, data, headers) of what a channel holds."""
    info = harness.state.channels.get(channel)
    if info is None:
        return []
    found = []
    index = harness.indexes[info.group, info.uid]
    kept = set(harness.state.sequences(channel))
    for base, _, _, records in index.batches:
        at, sequence = 0, base
        while at < len(records):
            size = int.from_bytes(records[at : at + 4], "little")
            message = wire.MsgProto.FromString(records[at + 4 : at + 4 + size])
            if sequence in kept:
                found.append((sequence, message.data, letters.headers_of(message)))
            at, sequence = at + 4 + size, sequence + 1
    return found


def owed(harness, channel=b"foo"):
    """Sequences that are pending in the replicated state, of all positions."""
    return {sequence for position in harness.state.positions(1, channel) for sequence in position.pending}


def fail(harness, sub, *sequences, times=2, **said):
    for _ in range(times):
        harness.pass_time(0.2)
        for sequence in sequences:
            harness.say(sub.ack_inbox, sequence, wire.NAK, **said)
    harness.pass_time(0.2)


def test_an_exhausted_message_becomes_a_dead_letter(harness):
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"a", b"b")
    begun = harness.wall

    fail(harness, sub, 1, reason=b"no such order")

    ((sequence, data, headers),) = messages(harness)
    assert (sequence, data) == (1, b"a")
    assert headers == {
        letters.CHANNEL: b"foo",
        letters.SEQUENCE: b"1",
        letters.DURABLE: b"dur",
        letters.COUNT: b"2",
        letters.REASON: letters.EXHAUSTED,
        letters.ERROR: b"no such order",
        letters.PUBLISHED: b"%d" % begun,
    }
    assert owed(harness) == {2}
    assert not harness.state.live_position().exhausted
    (event,) = [one for one in harness.events if one.kind == "dead_letters"]
    assert event.text == 'message 1 of "foo" moved to "foo.dlq" of durable "dur": exhausted'
    assert event.channel == b"foo"


def test_a_rejected_message_becomes_a_dead_letter(harness):
    sub = harness.subscribe("foo", client_id="me")
    harness.publish("foo", b"a", b"b")

    harness.say(sub.ack_inbox, 2, wire.REJECT, reason=b"x" * 200)
    harness.say(sub.ack_inbox, 2, wire.REJECT)

    ((_, data, headers),) = messages(harness)
    assert data == b"b"
    assert headers[letters.REASON] == letters.REJECTED
    assert headers[letters.COUNT] == b"1"
    assert headers[letters.DURABLE] == b"me", "a plain subscription is named by its client"
    assert headers[letters.ERROR] == b"x" * 200
    assert owed(harness) == {1}


def test_an_ack_wait_that_is_over_is_a_failure_too(harness):
    """An old client, which knows no NAK."""
    harness.subscribe("foo", durable="dur", wait=2)
    harness.publish("foo", b"a")

    harness.pass_time(5)

    assert [data for _, data, _ in messages(harness)] == [b"a"]
    assert owed(harness) == set()


def test_many_messages_take_few_entries(harness):
    harness.set_policy(max_deliver=1, dead_letter="failed", dead_letter_rate=0)
    harness.subscribe("foo", durable="dur", wait=2, in_flight=1000)
    harness.publish("foo", *[b"%d" % n for n in range(1000)])
    before = len(harness.logs[1])

    harness.pass_time(3)

    assert [data for _, data, _ in messages(harness, b"failed")] == [b"%d" % n for n in range(1000)]
    assert len(harness.logs[1]) - before < 10


def test_until_it_is_committed_the_message_stays_pending(harness):
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"a")
    fail(harness, sub, 1, times=1)
    harness.hold = True

    harness.say(sub.ack_inbox, 1, wire.REJECT)
    harness.pass_time(5)
    assert messages(harness) == []
    assert owed(harness) == {1}
    harness.commit()
    harness.hold = False
    harness.pass_time(1)

    assert len(messages(harness)) == 1
    assert owed(harness) == set()


def test_a_crash_before_the_commit_begins_the_move_again(harness):
    sub = harness.subscribe("foo", durable="dur", wait=2)
    harness.publish("foo", b"a")
    fail(harness, sub, 1, times=1)
    harness.hold = True
    lost = len(harness.logs[1])
    fail(harness, sub, 1, times=1)
    harness.hold = False
    del harness.logs[1][lost:]

    harness.restart()
    harness.pass_time(5)

    assert [data for _, data, _ in messages(harness)] == [b"a"]
    assert owed(harness) == set()


def test_a_refused_move_is_tried_again(harness):
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"a", b"b")
    harness.say(sub.ack_inbox, 2, wire.REJECT)
    assert len(messages(harness)) == 1
    harness.full = True

    harness.say(sub.ack_inbox, 1, wire.REJECT, reason=b"why")
    harness.pass_time(3)
    assert len(messages(harness)) == 1
    assert owed(harness) == {1}
    harness.full = False
    harness.pass_time(3)

    assert [headers[letters.ERROR] for _, _, headers in messages(harness)[1:]] == [b"why"]
    assert owed(harness) == set()


def test_a_late_ack_during_the_move_is_harmless(harness):
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"a", b"b")
    harness.say(sub.ack_inbox, 2, wire.REJECT)
    harness.hold = True

    harness.say(sub.ack_inbox, 1, wire.REJECT)
    harness.ack(sub.ack_inbox, 1)
    harness.pass_time(1)
    harness.commit()
    harness.hold = False
    harness.pass_time(1)

    assert owed(harness) == set()
    assert len(messages(harness)) == 2


def test_the_position_may_be_left_and_resumed_while_the_entry_is_on_its_way(harness):
    sub = harness.subscribe("foo", durable="dur", wait=2)
    harness.publish("foo", b"a", b"b")
    harness.say(sub.ack_inbox, 2, wire.REJECT)
    harness.received()
    harness.hold = True
    harness.say(sub.ack_inbox, 1, wire.REJECT)
    rows, harness.uncommitted = harness.uncommitted, []
    harness.hold = False

    harness.leave("foo", sub.ack_inbox)
    again = harness.subscribe("foo", durable="dur", wait=2)
    assert harness.received() == [], "it is being moved"
    harness.uncommitted = rows
    harness.commit()
    harness.turn()

    harness.pass_time(10)
    assert len(messages(harness)) == 2
    assert owed(harness) == set()
    assert again.ack_inbox


@pytest.mark.parametrize("how", ["at once", "by another leader", "by another policy", "after a refusal"])
def test_what_an_offline_durable_has_given_up_is_moved_without_a_member(harness, how):
    sub = harness.subscribe("foo", durable="dur", wait=1)
    harness.publish("foo", b"a", b"b")
    harness.pass_time(1.5)
    assert [sequence for sequence, *_ in harness.received()] == [1, 2, 1, 2]
    harness.ack(sub.ack_inbox, 2)
    if how in ("by another policy", "after a refusal"):
        harness.set_policy(max_deliver=2)
    if how == "by another leader":
        harness.hold = True
    harness.leave("foo", sub.ack_inbox)
    if how == "by another leader":
        assert messages(harness) == []
        harness.hold = False
        harness.commit()
        harness.restart()
    if how in ("by another policy", "after a refusal"):
        harness.pass_time(3)
        assert messages(harness) == []
        harness.publish("foo.dlq", b"made")
        harness.full = how == "after a refusal"
        harness.set_policy(max_deliver=2, dead_letter=".dlq")
        harness.pass_time(3)
        harness.full = False

    harness.pass_time(3)
    ((_, data, headers),) = [found for found in messages(harness) if found[1] != b"made"]
    assert (data, headers[letters.COUNT], headers[letters.REASON]) == (b"a", b"2", letters.EXHAUSTED)
    assert owed(harness) == set()

    harness.subscribe("foo", durable="dur")
    assert harness.received() == []
    assert sum(data == b"a" for _, data, _ in messages(harness)) == 1


def test_a_skip_by_an_operator_during_the_move_leaves_one_copy(harness):
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"a", b"b", b"c")
    harness.say(sub.ack_inbox, 2, wire.REJECT)
    harness.hold = True
    harness.say(sub.ack_inbox, 1, wire.REJECT)
    begin(harness, "skip", durable_name="dur", runs=[3, 3])
    harness.hold = False
    harness.commit()
    harness.pass_time(100)

    assert len(messages(harness)) == 2
    assert owed(harness) == set()


def test_dead_letters_of_dead_letters_stay_pending():
    harness = CoreHarness()
    harness.connect()
    asked = admin.SetPolicyRequest(
        version=1, pattern=b">", policy=admin.DeliveryPolicy(max_deliver=1, dead_letter=b".dlq")
    )
    assert not harness.ask(f"{PREFIX}.set_policy", asked, admin.ChangeResponse).error
    harness.subscribe("foo", durable="dur", wait=2)
    harness.publish("foo", b"a")
    harness.pass_time(3)
    harness.subscribe("foo.dlq", "other", durable="dur", wait=2)

    harness.pass_time(10)

    assert b"foo.dlq.dlq" not in harness.state.channels
    assert len(messages(harness)) == 1
    assert owed(harness, b"foo.dlq") == {1}
    assert len(harness.state.live_position(1, b"foo.dlq").exhausted) == 1


def test_a_dead_letter_channel_that_cannot_be_had_is_told(harness):
    config = harness.broker.view.config
    harness.broker.reconfigure(replace(config, limits=replace(config.limits, channels=1)))
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"a")

    harness.say(sub.ack_inbox, 1, wire.REJECT)
    harness.pass_time(25)

    assert owed(harness) == {1}
    faults = [one for one in harness.events if one.kind == "dead_letters_fault"]
    assert [one.text for one in faults] == [
        'messages of "foo" given up for durable "dur" stay pending: "foo.dlq" cannot be had: too many channels'
    ]
    harness.broker.reconfigure(config)
    harness.pass_time(11)

    assert len(messages(harness)) == 1


def test_too_many_dead_letters_a_minute_pause_the_position(harness):
    harness.set_policy(max_deliver=1, dead_letter=".dlq", dead_letter_rate=3)
    harness.subscribe("foo", durable="dur", wait=2, in_flight=5)
    harness.publish("foo", *[b"%d" % n for n in range(10)])

    harness.pass_time(20)

    assert len(messages(harness)) == 3
    assert harness.state.live_position(1, b"foo").last_sent == 5, "nothing more is sent into the outage"
    cursor = harness.state.position(1, b"foo")
    assert cursor.paused
    assert cursor.pause_reason == b"3 messages became dead letters within a minute"
    (event,) = [one for one in harness.events if one.kind == "paused"]
    assert event.text == 'durable "dur" of "foo" is paused: 3 messages became dead letters within a minute'
    harness.received()
    change(harness, "resume", durable_name="dur")

    assert harness.received() == [(4, 1), (5, 1), (6, 0), (7, 0), (8, 0)], "what was given up gets one more chance"
    harness.pass_time(20)
    assert len(messages(harness)) == 6
    assert harness.state.position(1, b"foo").paused


def test_after_an_outage_a_new_leader_sends_what_was_given_up_once_more(harness):
    harness.set_policy(max_deliver=1, dead_letter=".dlq", dead_letter_rate=3)
    sub = harness.subscribe("foo", durable="dur", wait=2, in_flight=5)
    harness.publish("foo", *[b"%d" % n for n in range(5)])
    harness.pass_time(20)
    assert harness.state.position(1, b"foo").paused
    harness.restart()
    harness.pass_time(5)
    harness.received()

    change(harness, "resume", durable_name="dur")

    assert harness.received() == [(4, 1), (5, 1)]
    harness.ack(sub.ack_inbox, 4, 5)
    harness.pass_time(10)
    assert len(messages(harness)) == 3


def test_a_slow_trickle_does_not_pause(harness):
    harness.set_policy(max_deliver=1, dead_letter=".dlq", dead_letter_rate=3)
    harness.subscribe("foo", durable="dur", wait=2, in_flight=5)
    for n in range(10):
        harness.publish("foo", b"%d" % n)
        harness.pass_time(25)

    assert len(messages(harness)) == 10
    assert not harness.state.position(1, b"foo").paused


def test_without_dead_letters_again_what_is_rejected_is_settled(harness):
    config = harness.broker.view.config
    harness.broker.reconfigure(replace(config, limits=replace(config.limits, channels=1)))
    sub = harness.subscribe("foo", durable="dur", wait=2)
    harness.publish("foo", b"a", b"b")
    harness.say(sub.ack_inbox, 1, wire.REJECT)
    harness.received()

    harness.set_policy(max_deliver=2)
    harness.pass_time(1)

    assert owed(harness) == {2}
    assert [one.kind for one in harness.events if one.kind == "rejected"] == ["rejected"]


def test_a_message_that_is_removed_meanwhile_is_no_dead_letter(harness):
    harness.set_policy(max_deliver=1, dead_letter=".dlq")
    harness.subscribe("foo", durable="dur", wait=2)
    harness.publish("foo", b"a", b"b")
    asked = admin.DeleteMessageRequest(version=1, channel=b"foo", sequence=1)
    assert harness.ask(f"{PREFIX}.delete_message", asked, admin.ChangeResponse).changed == 1

    harness.pass_time(5)

    assert [data for _, data, _ in messages(harness)] == [b"b"]
    assert owed(harness) == set()


def test_what_the_log_has_lost_is_settled(harness, monkeypatch):
    sub = harness.subscribe("foo", durable="dur", wait=2)
    harness.publish("foo", b"a")
    harness.publish("foo", b"b")
    fetched = StoredReads.fetched

    def without_the_first(self, fetch, batches, error=""):
        fetched(self, fetch, [batch for batch in batches if batch.base_sequence != 1], error)

    monkeypatch.setattr(StoredReads, "fetched", without_the_first)

    harness.say(sub.ack_inbox, 1, wire.REJECT)
    harness.say(sub.ack_inbox, 2, wire.REJECT)
    harness.pass_time(5)

    assert [data for _, data, _ in messages(harness)] == [b"b"]
    assert owed(harness) == set()


def test_what_was_given_up_before_there_were_dead_letters_becomes_one(harness):
    harness.set_policy(max_deliver=1)
    harness.subscribe("foo", durable="dur", wait=2)
    harness.publish("foo", b"a")
    harness.pass_time(5)
    assert owed(harness) == {1}

    harness.set_policy(max_deliver=1, dead_letter=".dlq")

    assert len(messages(harness)) == 1
    assert owed(harness) == set()


def test_what_an_operator_sends_again_may_be_rejected_again(harness):
    config = harness.broker.view.config
    harness.broker.reconfigure(replace(config, limits=replace(config.limits, channels=1)))
    sub = harness.subscribe("foo", durable="dur", wait=30)
    harness.publish("foo", b"a")
    harness.received()
    harness.say(sub.ack_inbox, 1, wire.REJECT)

    change(harness, "redeliver", durable_name="dur")
    assert harness.received() == [(1, 1)]
    harness.say(sub.ack_inbox, 1, wire.REJECT)
    harness.broker.reconfigure(config)
    harness.pass_time(11)

    assert len(messages(harness)) == 1
    assert owed(harness) == set()


def test_what_no_longer_fits_is_told_as_too_large(harness):
    harness.subscribe("foo", durable="dur", wait=2)
    harness.publish("foo", b"x" * 5000)
    harness.broker.step_payload_limit(4000)

    harness.pass_time(6)

    ((_, data, headers),) = messages(harness)
    assert len(data) == 5000
    assert headers[letters.REASON] == letters.TOO_LARGE


# --- putting dead letters back ------------------------------------------------------------------------------------------


def redrive(harness, *runs, channel=b"foo.dlq", **more):
    asked = admin.RedriveRequest(version=1, channel=channel, runs=runs, **more)
    return harness.ask(f"{PREFIX}.redrive", asked, admin.ChangeResponse)


def test_a_dead_letter_goes_back_in_one_entry(harness):
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"a", b"b", b"c")
    for sequence in (1, 2, 3):
        harness.say(sub.ack_inbox, sequence, wire.REJECT, reason=b"why")
    harness.received()
    before = len(harness.logs[1])

    answer = redrive(harness, 1, 2)

    assert (answer.error, answer.changed, answer.redriven.next_sequence) == (b"", 2, 3)
    assert [sequence for sequence, _, _ in messages(harness)] == [3]
    assert [(data, headers) for _, data, headers in messages(harness, b"foo")[3:]] == [
        (b"a", {letters.REDRIVEN: b"1"}),
        (b"b", {letters.REDRIVEN: b"1"}),
    ]
    assert harness.received() == [(4, 0), (5, 0)]
    records = [entry for entry in harness.logs[1][before:] if entry[1] == 1]
    assert len(records) == 1
    assert any(one.kind == "admin" for one in harness.events)


def test_a_dead_letter_is_put_back_three_times(harness):
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"a")
    for _ in range(4):
        sequence = harness.received()[-1][0]
        harness.say(sub.ack_inbox, sequence, wire.REJECT)
        last = messages(harness)[-1][0]
        answer = redrive(harness, last, last)

    assert (answer.changed, answer.redriven.stopped) == (0, 1)
    ((_, data, headers),) = messages(harness)
    assert data == b"a"
    assert headers[letters.REDRIVEN] == b"3"
    assert headers[letters.SEQUENCE] == b"4"


def test_dead_letters_may_go_elsewhere(harness):
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"a")
    harness.say(sub.ack_inbox, 1, wire.REJECT)

    assert redrive(harness, 1, 9, to=b"foo.again").changed == 1

    assert [data for _, data, _ in messages(harness, b"foo.again")] == [b"a"]
    assert messages(harness) == []


def test_what_is_no_dead_letter_stays(harness):
    harness.publish("foo.dlq", b"published")

    answer = redrive(harness, 1, 1)

    assert (answer.changed, answer.redriven.foreign) == (0, 1)
    assert [data for _, data, _ in messages(harness)] == [b"published"]


def publish_rows(harness, channel, *told):
    """Rows of a client that can send headers."""
    rows = b"".join(len(raw := one.SerializeToString()).to_bytes(4, "little") + raw for one in told)
    batch = ext.BatchRequest(channel=channel, rows=rows, count=len(told))
    return harness.ask("_STAN.x.test-cluster.batch", batch, ext.BatchResponse).error


def said(**headers):
    return wire.MsgProto(
        data=b"said", headers=[wire.Header(key=f"stan-{name}".encode(), value=told) for name, told in headers.items()]
    )


def test_a_dead_letter_that_the_broker_has_not_made_is_put_back_where_the_operator_says_alone(harness):
    harness.publish("foo", b"a")
    assert publish_rows(harness, b"foo.dlq", said(channel=b"foo", sequence=b"1", redriven=b"3")) == b""

    answer = redrive(harness, 1, 1)

    assert (answer.changed, answer.redriven.foreign) == (0, 1)
    assert [data for _, data, _ in messages(harness, b"foo")] == [b"a"]
    assert redrive(harness, 1, 1, to=b"foo").changed == 1
    assert messages(harness, b"foo")[1][1:] == (b"said", {letters.REDRIVEN: b"1"})


def test_a_publisher_does_not_tell_how_often_its_message_was_put_back(harness):
    sub = harness.subscribe("foo", durable="dur")
    assert publish_rows(harness, b"foo", said(redriven=b"3", channel=b"bar")) == b""
    harness.say(sub.ack_inbox, 1, wire.REJECT)

    ((_, _, headers),) = messages(harness)
    assert letters.REDRIVEN not in headers
    assert headers[letters.CHANNEL] == b"foo"
    assert redrive(harness, 1, 1).changed == 1


def test_nobody_can_publish_as_the_broker(harness):
    forged = said(channel=b"bar")
    forged.by_broker = True
    assert publish_rows(harness, b"foo.dlq", forged) != b""
    assert messages(harness) == []


@pytest.mark.parametrize(
    ("runs", "more"),
    [((), {}), ((2, 1), {}), ((1,), {}), ((1, 1), {"to": b"foo.dlq"}), ((1, 1), {"to": b"a..b"})],
)
def test_requests_that_make_no_sense_are_refused(harness, runs, more):
    harness.publish("foo.dlq", b"published")

    assert redrive(harness, *runs, **more).error
    assert redrive(harness, 1, 1, channel=b"unknown").error


def test_a_refused_entry_leaves_the_dead_letter_where_it_is(harness):
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"a")
    harness.say(sub.ack_inbox, 1, wire.REJECT)
    harness.full = True

    answer = redrive(harness, 1, 1)
    assert answer.error
    assert answer.retry
    harness.full = False

    assert len(messages(harness)) == 1
    assert len(messages(harness, b"foo")) == 1
    assert redrive(harness, 1, 1).changed == 1


def test_a_dead_letter_channel_that_is_empty_again_has_nothing_to_put_back(harness):
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"a")
    harness.say(sub.ack_inbox, 1, wire.REJECT)
    assert redrive(harness, 1, 9).changed == 1

    answer = redrive(harness, 1, 9)

    assert (answer.error, answer.changed) == (b"", 0)


def test_one_request_at_a_time_puts_back(harness):
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"a")
    harness.say(sub.ack_inbox, 1, wire.REJECT)
    harness.hold = True
    asked = admin.RedriveRequest(version=1, channel=b"foo.dlq", runs=(1, 1)).SerializeToString()
    harness.asks(f"{PREFIX}.redrive", asked, "one")
    harness.asks(f"{PREFIX}.redrive", asked, "two")
    harness.turn()
    assert not harness.hear("one")
    (said,) = harness.hear("two")
    assert admin.ChangeResponse.FromString(said.payload).retry
    harness.hold = False
    harness.commit()
    harness.turn()

    (said,) = harness.hear("one")
    assert admin.ChangeResponse.FromString(said.payload).changed == 1
    assert len(messages(harness, b"foo")) == 2


# --- crashes --------------------------------------------------------------------------------------------------------------


def cut_after(harness, count):
    """A server that has the first *count* entries of the group's log, and leads."""
    other = CoreHarness()
    other.logs = defaultdict(list, {0: list(harness.logs[0]), 1: harness.logs[1][:count]})
    other.indexes = defaultdict(Index)
    for _, kind, body in other.logs[1]:
        for batch in decode_batches(body) if kind == Kind.RECORDS else ():
            taken = batch.base_sequence, batch.count, batch.timestamp, bytes(batch.records)
            other.indexes[1, batch.uid].batches.append(taken)
    other.now, other.wall, other.policy = harness.now, harness.wall, harness.policy
    other.hold = True  # nothing is written any more
    other._boot()
    return other


def test_whatever_entry_is_the_last_one_a_message_is_at_one_place(harness):
    """Pending, or a dead letter, or put back: after a cut between any two entries it is one of the three."""
    sub = harness.subscribe("foo", durable="dur", in_flight=9)
    harness.publish("foo", *[b"%d" % n for n in range(6)])
    fail(harness, sub, 2, 3)
    harness.say(sub.ack_inbox, 5, wire.REJECT)
    redrive(harness, 1, 2)
    harness.ack(sub.ack_inbox, 1, 4, 6, 7, 8)
    harness.pass_time(1)
    begun = next(at for at, (_, kind, _) in enumerate(harness.logs[1], 1) if kind == Kind.RECORDS)
    seen = set()

    for count in range(begun, len(harness.logs[1]) + 1):
        other = cut_after(harness, count)
        given_up = {letters.number(headers, letters.SEQUENCE) for _, _, headers in messages(other)}
        back = {int(data) + 1 for _, data, headers in messages(other, b"foo") if letters.REDRIVEN in headers}
        cursor = other.state.position(1, b"foo")
        unsent = set(range(cursor.last_sent + 1, 7))
        for sequence in (2, 3, 5):
            places = [sequence in where for where in (owed(other) | unsent, given_up, back)]
            assert sum(places) == 1, (count, sequence, places)
            seen.add(places.index(True))
    assert seen == {0, 1, 2}


# --- moves of the channels ------------------------------------------------------------------------------------------------


def test_dead_letters_go_on_when_their_channel_is_not_moved_after_all(harness):
    harness.publish("foo.dlq", b"published")
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"a")
    harness.hold_channel(b"foo.dlq")
    harness.say(sub.ack_inbox, 1, wire.REJECT)
    harness.release_channel(b"foo.dlq")
    harness.pass_time(20)
    assert [data for _, data, _ in messages(harness)] == [b"published", b"a"]


def test_a_channel_that_is_being_moved_is_refused_to_who_puts_dead_letters_back(harness):
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"a")
    harness.say(sub.ack_inbox, 1, wire.REJECT)
    harness.hold_channel(b"foo")
    answer = redrive(harness, 1, 1)
    assert answer.error
    assert answer.retry
    harness.release_channel(b"foo")
    assert redrive(harness, 1, 1).changed == 1


def test_requests_that_wait_for_channels_of_lost_groups_do_not_count_for_ever(monkeypatch):
    monkeypatch.setattr(limits, "CHANNEL_CHANGES_WAITING_MAX", 1)
    node = Node()
    node.lead()
    for _ in range(2):
        request = admin.CreateChannelRequest(version=1, channel=b"new").SerializeToString()
        node.hears(node.request(f"{PREFIX}.create_channel", request, "lost"))
        node.follow()
        assert not node.hear("lost")
        node.lead()
    node.lead(0)
    answer = node.ask(f"{PREFIX}.create_channel", request, admin.ChangeResponse)
    assert (answer.error, answer.changed) == (b"", 1)


def test_a_channel_that_departs_while_its_messages_are_read_has_no_dead_letter_until_it_is_back(harness):
    """Its next leader would move the messages once more: the entry could no longer settle them here."""
    harness.set_policy(max_deliver=2, dead_letter="letters")
    sub = harness.subscribe("foo", durable="dur")
    harness.publish("foo", b"a")
    fail(harness, sub, 1, times=1)
    harness.slow = True
    harness.say(sub.ack_inbox, 1, wire.NAK)
    harness.hold_channel(b"foo")
    harness.slow = False
    harness.answer_reads()
    harness.turn()
    assert messages(harness, b"letters") == []

    harness.release_channel(b"foo")
    harness.pass_time(limits.DEAD_LETTER_RETRY / SECOND + 1)
    assert [data for _, data, _ in messages(harness, b"letters")] == [b"a"]
    assert not owed(harness)

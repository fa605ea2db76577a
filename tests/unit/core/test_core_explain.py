"""What progress entries tell of deliveries and their causes, and the account of a message that is made of them."""

import pytest
from stan_protocol.admin_types import ExplainStep
from stan_protocol.patterns import ChannelLimits
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import Config, StoreLimits
from stan.core.base.causes import Cause
from stan.core.base.ready import ReportMoment
from stan.core.features.queries.account import Account
from stan.core.leader.cursors import LiveCursor, LiveCursors, MessagesAhead, Unreported
from stan.core.leader.deliveries import Sending, recalled, recorded, withdrawn
from stan.core.leader.progress import ProgressReports
from stan.core.state.cursors import Cursor, CursorKind
from stan.edge.serving.explaining import Reading
from stan.log.files.filelog import FileLog
from stan.log.types import Entry, FoundChanges
from stan.monitor.explained import sentence_of
from stan.policies import PolicyRule
from stan.protocol.entries import Kind, decode_records
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import START, CoreHarness
from tests.kit.cursor_admin import change
from tests.unit.core.test_transactions import Transacting

DUR = {"durable": "dur"}


def changes(harness):
    found = []
    for index, kind, body in harness.logs[1]:
        bodies = [body] if kind == Kind.CHANGE else decode_records(body)[2] if kind == Kind.RECORDS else []
        found += [(index, pb.GroupChange.FromString(one)) for one in bodies]
    return found


def the_cursor(harness):
    (cursor,) = harness.follower().cursors.values()
    return cursor


def account(harness, sequence):
    told = Account(the_cursor(harness), sequence)
    for index, one in changes(harness):
        told.take(index, 7, one)
    return told.steps


def story(harness, sequence):
    """What has happened to a message: causes and counts of deliveries, other steps by name."""
    return [(step.cause, step.count) if step.what == "delivered" else step.what for step in account(harness, sequence)]


def now_state(harness, sequence, *, gone=False):
    return harness.broker.view.groups[1].state_of(the_cursor(harness).cursor_id, sequence, gone=gone)


def identity(harness):
    return harness.broker.view.groups[1].cursor(the_cursor(harness).cursor_id)


# --- causes -----------------------------------------------------------------------------------------------------------------


def test_a_delivery_and_its_ack(harness):
    sub = harness.subscribe("foo", **DUR)
    begun = harness.wall
    harness.publish("foo", b"a", b"b")
    assert now_state(harness, 1) == "pending"
    harness.ack(sub.ack_inbox, 1)

    first, acked = account(harness, 1)
    assert (first.what, first.cause, first.client_id, first.count) == ("delivered", "new", b"me", 0)
    assert first.at == first.until == begun
    assert first.term == 7
    assert first.index > 0
    assert (acked.what, acked.at) == ("acked", harness.wall)
    assert now_state(harness, 1) == "settled"
    assert story(harness, 2) == [("new", 0)]
    assert now_state(harness, 3) == "not sent"


def test_after_the_ack_wait_and_after_a_negative_ack(harness):
    sub = harness.subscribe("foo", wait=1, **DUR)
    harness.publish("foo", b"a", b"b")
    harness.pass_time(0.5)
    harness.say(sub.ack_inbox, 2, wire.NAK)
    harness.pass_time(0.7)
    harness.say(sub.ack_inbox, 2, wire.REJECT)

    assert story(harness, 1) == [("new", 0), ("ack wait over", 1)]
    assert story(harness, 2) == [("new", 0), ("negative ack", 1), "rejected"]


def test_a_pause_keeps_the_cause_of_the_failure(harness):
    harness.set_policy(backoff=(SECOND,))
    sub = harness.subscribe("foo", wait=1, **DUR)
    harness.publish("foo", b"a", b"b")
    harness.say(sub.ack_inbox, 2, wire.NAK)
    harness.pass_time(3)

    assert story(harness, 1)[:2] == [("new", 0), ("ack wait over", 1)]
    assert story(harness, 2)[:2] == [("new", 0), ("negative ack", 1)]


def test_a_member_that_leaves_and_a_durable_that_comes_back(harness):
    first = harness.subscribe("foo", "one", queue="q", **DUR)
    harness.publish("foo", b"a")
    sub = harness.subscribe("foo", "two", queue="q", **DUR)
    harness.leave("foo", first.ack_inbox)
    assert story(harness, 1) == [("new", 0), "left", ("member gone", 1)]
    harness.leave("foo", sub.ack_inbox)
    assert now_state(harness, 1) == "owed"
    harness.subscribe("foo", "three", queue="q", **DUR)

    assert story(harness, 1) == [("new", 0), "left", ("member gone", 1), "left", ("resumed", 1)]


def test_what_an_operator_does(harness):
    harness.subscribe("foo", wait=30, **DUR)
    harness.publish("foo", b"a", b"b", b"c")
    change(harness, "redeliver", durable_name="dur", runs=[1, 1])
    change(harness, "move", durable_name="dur", sequence=2)
    change(harness, "skip", durable_name="dur", runs=[3, 3])
    harness.pass_time(1)

    assert story(harness, 1) == [("new", 0), "sent again", ("moved", 1), "moved"]
    assert story(harness, 2) == [("new", 0), "moved", ("moved", 1)]
    assert story(harness, 3) == [("new", 0), "moved", ("moved", 1), "skipped"]


def test_the_next_leader_knows_causes_from_the_log(harness):
    harness.subscribe("foo", wait=1, in_flight=2, **DUR)
    harness.publish("foo", b"a", b"b")
    harness.power_lost = True
    harness.restart()
    harness.publish("foo", b"c")
    harness.pass_time(3)

    assert story(harness, 1)[:2] == [("new", 0), ("ack wait over", 1)]


def test_what_may_have_been_sent_is_told(harness):
    harness.subscribe("foo", wait=1, in_flight=2, **DUR)
    harness.publish("foo", b"a")
    harness.forget_progress(1)
    harness.power_lost = True
    harness.restart()
    harness.pass_time(0.5)

    assert story(harness, 1) == ["maybe delivered", ("leader changed", 1)]


def test_owed_messages_keep_their_cause_over_a_change_of_leaders(harness):
    sub = harness.subscribe("foo", wait=1, in_flight=1, **DUR)
    harness.publish("foo", b"a")
    harness.broker.stops.step_lease(1, holds=False)  # nothing is sent: what is taken back stays owed
    harness.say(sub.ack_inbox, 1, wire.NAK)
    harness.pass_time(0.5)
    harness.restart()
    harness.pass_time(0.5)

    assert story(harness, 1) == [("new", 0), ("negative ack", 1)]


def test_given_up(harness):
    harness.set_policy(max_deliver=2)
    harness.subscribe("foo", wait=1, **DUR)
    harness.publish("foo", b"a")
    harness.pass_time(4)

    assert story(harness, 1) == [("new", 0), ("ack wait over", 1), "exhausted"]
    assert now_state(harness, 1) == "exhausted"
    harness.restart()
    harness.pass_time(1)
    assert story(harness, 1)[:3] == [("new", 0), ("ack wait over", 1), "exhausted"]


def test_a_rejected_message_that_becomes_a_dead_letter_is_told_as_rejected(harness):
    harness.set_policy(max_deliver=5, dead_letter=".dlq")
    sub = harness.subscribe("foo", wait=30, **DUR)
    harness.publish("foo", b"a")
    harness.say(sub.ack_inbox, 1, wire.REJECT)
    harness.pass_time(1)

    assert story(harness, 1) == [("new", 0), "rejected", "dead letter"]


def test_who_has_paused_a_position_and_what_was_rejected_by_then(harness):
    harness.set_policy(max_deliver=5, dead_letter=".dlq", dead_letter_rate=1)
    sub = harness.subscribe("foo", wait=30, in_flight=3, **DUR)
    harness.publish("foo", b"a", b"b", b"c")
    harness.say(sub.ack_inbox, 1, wire.REJECT)
    harness.say(sub.ack_inbox, 2, wire.REJECT)
    harness.pass_time(1)
    change(harness, "pause", durable_name="dur")

    assert now_state(harness, 2) == "rejected"
    assert story(harness, 2)[:3] == [("new", 0), "rejected", "paused"]
    told = [sentence_of(ExplainStep.from_pb(step)) for step in account(harness, 3) if step.what == "paused"]
    assert told == [
        "the broker paused the position: 1 message became a dead letter within a minute",
        "an operator paused the position",
    ]


def test_a_message_that_expired_before_it_was_sent_is_gone():
    harness = CoreHarness(Config(policies=(PolicyRule(pattern="foo", ttl=5 * SECOND),)))
    harness.connect()
    sub = harness.subscribe("foo", **DUR)
    harness.publish("foo", b"a")
    harness.ack(sub.ack_inbox, 1)
    change(harness, "pause", durable_name="dur")
    change(harness, "move", durable_name="dur", sequence=2)
    harness.publish("foo", b"b")
    harness.pass_time(7)

    assert now_state(harness, 2, gone=True) == "gone"
    reading = Reading(Log(harness), identity(harness), admin.ExplainRequest(sequence=2), None, gone=True)
    reading.run()
    assert [step.what for step in reading.response.steps] == ["expired"]


def test_a_message_that_an_operator_has_left_out_before_it_was_sent_is_settled(harness):
    harness.subscribe("foo", in_flight=1, **DUR)
    harness.publish("foo", b"a", b"b")
    assert now_state(harness, 2) == "not sent"
    change(harness, "skip", durable_name="dur", runs=[2, 2])
    assert now_state(harness, 2) == "settled"


def test_removed_messages_are_not_told_as_acked(harness):
    harness.subscribe("foo", wait=1, **DUR)
    harness.publish("foo", b"a", b"b")
    harness.ask("_STAN.x.test-cluster.admin.purge", admin.PurgeRequest(channel=b"foo", up_to=1), admin.ChangeResponse)
    harness.pass_time(0.5)

    assert story(harness, 1) == [("new", 0), "removed"]


def test_a_message_that_is_removed_in_its_pause_keeps_the_cause_of_the_failure():
    """A read that was under way when the message was removed may still bring it."""
    harness = CoreHarness(Config(limits=StoreLimits(default=ChannelLimits(msgs=2))))
    harness.connect()
    harness.set_policy(backoff=(SECOND,))
    sub = harness.subscribe("foo", wait=5, **DUR)
    harness.publish("foo", b"a", b"b")
    harness.say(sub.ack_inbox, 1, wire.NAK)
    harness.publish("foo", b"c")
    harness.publish("foo", b"d")

    assert [(run.first, run.count) for run in harness.state.live_position().causes] == [(1, Cause.NEGATIVE_ACK)]
    harness.pass_time(2)
    assert story(harness, 1) == [("new", 0), "removed"]
    assert not harness.state.live_position().causes


# --- a log without room -------------------------------------------------------------------------------------------------------


def test_what_never_left_is_not_recorded_as_sent(harness):
    harness.subscribe("foo", wait=30, **DUR)
    harness.publish("foo", b"a")
    harness.restart()
    harness.full = True
    harness.pass_time(31)  # it is taken back, and the log has no room for that
    harness.full = False
    harness.pass_time(2)

    (first, again) = [one for one in story(harness, 1) if isinstance(one, tuple)]
    assert first == ("new", 0)
    assert again == ("ack wait over", 1)


def test_a_first_delivery_that_never_left_is_told_by_the_next_leader(harness):
    harness.subscribe("foo", wait=30, **DUR)
    held = pb.Held(runs=[1, 1], cause=Cause.NEW)
    sent = pb.Sent(subscription_id=1, client_id=b"me", cause=Cause.OWED, count=1, runs=[1, 1])
    assert told_by(harness, pb.Progress(held=[held]), pb.Progress(sent=[sent])) == [("not sent", 1)]


def test_a_leader_that_owes_what_the_one_before_it_owed_leaves_the_cause_as_it_was(harness):
    """What it sent did not leave: it owes the message itself then, and knows no cause for that."""
    harness.subscribe("foo", wait=30, **DUR)
    first = pb.Held(runs=[1, 1], cause=Cause.LEADER_CHANGED)
    again = pb.Held(runs=[1, 1], cause=Cause.OWED)
    sent = pb.Sent(subscription_id=1, client_id=b"me", cause=Cause.OWED, count=1, runs=[1, 1])
    entries = pb.Progress(held=[first]), pb.Progress(held=[again]), pb.Progress(sent=[sent])
    assert told_by(harness, *entries) == [("leader changed", 1)]


def test_a_durable_that_is_back_at_once_gets_its_message_again(harness):
    """Both deliveries are told, though they are alike and less than a millisecond apart."""
    harness.subscribe("foo", wait=30, **DUR)
    sent = pb.Sent(subscription_id=1, client_id=b"me", cause=Cause.RESUMED, count=1, runs=[1, 1])
    leave = pb.GroupChange(leave=pb.Leave(subscription_id=1), at=SECOND + 200_000)
    first, again = told(harness, sent, SECOND), told(harness, sent, SECOND + 400_000)
    assert deliveries(harness, first, leave, again) == [("resumed", 1), ("resumed", 1)]
    assert deliveries(harness, first, leave, first) == [("resumed", 1)], "the same one, told once more"


@pytest.mark.parametrize(("node", "term"), [(b"n2", 7), (b"n1", 8)])
def test_what_the_next_leader_sends_is_another_delivery_whatever_its_clock_says(harness, node, term):
    harness.subscribe("foo", wait=30, **DUR)
    sent = pb.Sent(subscription_id=1, client_id=b"me", cause=Cause.ACK_WAIT_OVER, count=1, runs=[1, 1])
    made = Account(the_cursor(harness), 1)
    for index, (who, when) in enumerate([(b"n1", 7), (b"n1", 7), (node, term)], 1):
        change = told(harness, sent, SECOND)
        change.node = who
        made.take(index, when, change)
    assert [(step.node, step.term) for step in made.steps] == [("n1", 7), (node.decode(), term)]


def sent_as(cause, count=1):
    return pb.Sent(subscription_id=1, client_id=b"me", cause=cause, count=count, runs=[1, 1])


def test_a_cause_is_kept_when_an_ack_comes_while_a_message_goes_to_the_node_that_sends_it(harness):
    """That node knows of what it has been given only that it is owed."""
    harness.subscribe("foo", wait=30, **DUR)
    number = the_cursor(harness).cursor_id
    owed = pb.Progress(cursor_id=number, held=[pb.Held(cause=Cause.ACK_WAIT_OVER, runs=[1, 1])])
    acked = pb.Progress(cursor_id=number, acked=[1, 1])
    changes = [pb.GroupChange(progress=[one], at=SECOND) for one in (owed, acked)]
    later = told(harness, sent_as(Cause.OWED), 2 * SECOND)
    assert deliveries(harness, told(harness, sent_as(Cause.NEW, 0), 0), *changes, later) == [
        ("new", 0),
        ("ack wait over", 1),
    ]


def test_a_delivery_that_is_told_once_more_without_its_cause_is_the_same(harness):
    """The leader found the message owed; the first entry tells why it was, and so does no later one."""
    harness.subscribe("foo", wait=30, **DUR)
    owed = pb.Progress(cursor_id=the_cursor(harness).cursor_id, held=[pb.Held(cause=Cause.NEGATIVE_ACK, runs=[1, 1])])
    again = told(harness, sent_as(Cause.OWED), SECOND)
    assert deliveries(harness, pb.GroupChange(progress=[owed]), again, again) == [("negative ack", 1)]


def test_what_a_node_tells_that_serves_no_longer_settles_nothing(harness):
    """The leader has taken the subscription back, and sends what that node has had acked: nobody else has heard the ack."""
    harness.subscribe("foo", wait=30)
    number = the_cursor(harness).cursor_id
    owed = pb.Progress(cursor_id=number, held=[pb.Held(cause=Cause.ACK_WAIT_OVER, runs=[1, 1])])
    acked = pb.Progress(cursor_id=number, acked=[1, 1], sent=[sent_as(Cause.OWED)])
    changes = [
        pb.GroupChange(serve=pb.Serve(node=b"n2", cursor_ids=[number])),  # entry 1
        pb.GroupChange(progress=[owed], served_since=[1], at=SECOND),
        pb.GroupChange(serve=pb.Serve(cursor_ids=[number])),
        pb.GroupChange(progress=[acked], served_since=[1], at=2 * SECOND),
        told(harness, sent_as(Cause.OWED, 2), 3 * SECOND),
    ]
    made = Account(the_cursor(harness), 1)
    for index, one in enumerate(changes, 1):
        made.take(index, 1, one)
    assert [(step.what, step.cause) for step in made.steps] == [("delivered", "ack wait over")] * 2


def told_by(harness, *entries):
    """Causes and counts of the deliveries of message 1 that progress entries tell of."""
    for entry in entries:
        entry.cursor_id = the_cursor(harness).cursor_id
    return deliveries(harness, *(pb.GroupChange(progress=[entry], at=5) for entry in entries))


def told(harness, sent, at):
    """A change whose progress entry tells of a delivery and its holder."""
    held = pb.Held(subscription_id=sent.subscription_id, runs=sent.runs)
    entry = pb.Progress(cursor_id=the_cursor(harness).cursor_id, sent=[sent], held=[held])
    return pb.GroupChange(progress=[entry], at=at)


def deliveries(harness, *entries):
    """Causes and counts of the deliveries of message 1 that changes tell of."""
    made = Account(the_cursor(harness), 1)
    for index, entry in enumerate(entries, 1):
        made.take(index, 1, entry)
    return [(step.cause, step.count) for step in made.steps if step.what == "delivered"]


def test_lost_progress_is_reported_again():
    live = LiveCursor(Cursor(4, 1, CursorKind.DURABLE, b"d", b"me", 1), 1, MessagesAhead(), Unreported(1))
    reports, cursors, moment = ProgressReports(), LiveCursors(), ReportMoment(10 * SECOND, START, b"n")
    cursors.add(live)
    live.unreported.sent.append(Sending(5, b"me", Cause.MOVED, 3, 1, 1, moment.now - SECOND))
    live.unreported.rejected += (1, 1)
    reports.mark(live)
    (lost,) = reports.take(moment)
    reports.lost(lost, cursors, moment.now)
    (told,) = reports.take(moment)

    (progress,) = told.progress
    assert [(sent.cause, sent.count, list(sent.runs)) for sent in progress.sent] == [(Cause.MOVED, 3, [1, 1])]
    assert told.at - progress.sent[0].first_ago * 1000 == moment.wall - SECOND
    assert list(progress.rejected) == [1, 1]


# --- records --------------------------------------------------------------------------------------------------------------------


def sending(first, last, at, *, cause=Cause.NEW, count=0, sub=1):
    return Sending(sub, b"me", cause, count, first, last, at)


def test_deliveries_are_put_together_and_repeats_are_not():
    made = recorded(
        [
            sending(1, 2, 1000),
            sending(3, 3, 2000),
            sending(9, 9, 3000),
            sending(4, 4, 3000, sub=2),
            sending(2, 2, 4000, cause=Cause.NOT_SENT, count=1),
            sending(2, 2, 5000, cause=Cause.NOT_SENT, count=1),
        ],
        ReportMoment(10_000, 99_000, b""),
    )

    assert [(one.subscription_id, list(one.runs), one.first_ago, one.last_ago) for one in made] == [
        (1, [1, 3, 9, 9], 9, 7),
        (2, [4, 4], 7, 7),
        (1, [2, 2], 6, 6),
        (1, [2, 2], 5, 5),
    ]
    entry = pb.Progress(sent=made)
    again = list(recalled(entry, 10_000))
    assert [(one.first, one.last, one.at) for one in again[:3]] == [(1, 3, 1000), (9, 9, 1000), (4, 4, 3000)]


def test_records_of_a_flow_are_put_together_with_their_times():
    made = recorded(
        [
            Sending(1, b"me", Cause.NEW, 0, 1, 5, 1000, 3000),
            Sending(1, b"me", Cause.NEW, 0, 9, 9, 4000, 6000),
        ],
        ReportMoment(10_000, 99_000, b""),
    )

    assert [(list(one.runs), one.first_ago, one.last_ago) for one in made] == [([1, 5, 9, 9], 9, 4)]


def test_a_delivery_that_did_not_leave_is_taken_back():
    sendings = [sending(1, 4, 1), sending(1, 4, 2, sub=2), sending(2, 3, 3, cause=Cause.MOVED, count=1)]

    assert withdrawn(sendings, 1, 2, 4) == [(2, 3, 0, Cause.MOVED), (4, 4, 0, Cause.NEW)]
    assert [(one.first, one.last, one.subscription_id) for one in sendings] == [(1, 3, 1), (1, 4, 2)]


# --- reading in parts -----------------------------------------------------------------------------------------------------------


class Log:
    """The changes of a harness, as a log has them."""

    def __init__(self, harness, first_index=1):
        self.entries = [Entry(index, 7, Kind.CHANGE, one.SerializeToString()) for index, one in changes(harness)]
        self.first_index = first_index
        self.last_index = self.entries[-1].index
        self.reads = 0

    def changes(self, first, entries_max):
        self.reads += 1
        found = [one for one in self.entries if first <= one.index < first + entries_max]
        return FoundChanges(found, min(first + entries_max, self.last_index + 1))

    def index_of(self, _ref):
        return 1


def test_an_account_goes_on_where_the_answer_before_has_ended(harness, monkeypatch):
    sub = harness.subscribe("foo", wait=1, **DUR)
    harness.publish("foo", b"a")
    harness.pass_time(2.5)
    harness.ack(sub.ack_inbox, 1)
    harness.publish("foo", b"b")
    whole = story(harness, 1)
    monkeypatch.setattr(limits, "EXPLAIN_ENTRIES_MAX", 1)
    monkeypatch.setattr(limits, "EXPLAIN_ENTRIES_AT_ONCE", 1)
    log, steps, request = Log(harness), [], admin.ExplainRequest(sequence=1)
    while True:
        reading = Reading(log, identity(harness), request, None)
        reading.run()
        steps += [(s.cause, s.count) if s.what == "delivered" else s.what for s in reading.response.steps]
        if not reading.response.more:
            break
        getattr(request, "from").CopyFrom(reading.response.next)

    assert steps == whole == [("new", 0), ("ack wait over", 1), ("ack wait over", 2), "acked"]
    assert log.reads < log.last_index, "it ends with the ack"
    assert not reading.response.begins_late


def test_a_log_that_begins_later_says_so(harness):
    harness.subscribe("foo", **DUR)
    harness.publish("foo", b"a")
    reading = Reading(Log(harness, first_index=5), identity(harness), admin.ExplainRequest(sequence=1), None)
    reading.run()
    assert reading.response.begins_late


def test_a_message_that_was_committed_is_told_from_its_staging_on(tmp_path):
    """Where its rows are is not its own entry: that is the one that has staged them, and a later one has committed them."""
    harness = Transacting()
    harness.connect()
    sub = harness.subscribe("foo", **DUR)
    harness.publish("foo", b"before")
    harness.pass_time(1)
    begun = harness.wall
    harness.stage(b"a", b"b", app=b"etl", version=3)
    harness.pass_time(2)
    harness.commit_rows((b"t", 1), app=b"etl", version=3)
    harness.ack(sub.ack_inbox, 1, 2)

    log, _ = FileLog.open(tmp_path, 1, bytes(16))
    entries = [Entry(index, 7, kind, body) for index, kind, body in harness.logs[1]]
    log.append(entries)
    log.sync()
    log.commit(entries[-1].index)
    (ref,) = log.channel(harness.uid()).refs(2, 2, 1, 1)
    reading = Reading(log, identity(harness), admin.ExplainRequest(sequence=2), ref)
    reading.run()
    log.close()

    what = [step.what for step in reading.response.steps]
    staging, committing = [entry.index for entry in entries if STEPS.intersection(changes_of(entry))]
    assert what == ["staged", "committed", "delivered", "acked"]
    staged, committed, *_ = reading.response.steps
    assert (staged.at, staged.index, staged.sequence) == (begun, staging, 1)
    assert (staged.app, staged.app_version) == (b"etl", 3)
    assert (committed.at, committed.index) == (reading.response.timestamp, committing)
    assert committed.at > begun
    assert "staged by application etl, version 3, as message 1" in sentence_of(ExplainStep.from_pb(staged))


STEPS = {"staged", "commit_done"}


def changes_of(entry):
    """Names of the changes beside the messages of an entry."""
    bodies = decode_records(entry.body)[2] if entry.kind == Kind.RECORDS else []
    return {pb.GroupChange.FromString(body).WhichOneof("change") for body in bodies}

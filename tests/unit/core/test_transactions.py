"""Staged rows and their commits on one broker: stage, commit, abort, finish, and what readers see meanwhile."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from stan_protocol import refusals
from stan_protocol.commits import commit_request
from stan_protocol.frames import Frame
from stan_protocol.limits import COMMIT_CHANNELS_MAX, COMMIT_TXNS_MAX
from stan_protocol.patterns import ChannelLimits
from stan_protocol.proto import extension_pb2 as ext
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import Config, StoreLimits
from stan.core.state.group import GroupMachine
from stan.core.state.transactions import Decided, Transactions
from stan.policies import PolicyRule
from stan.protocol.entries import STAGING_UID, Kind, decode_batches
from stan.protocol.kernel import server as kernel
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.requests import decode
from tests.kit.batches import rows_of
from tests.kit.core_harness import CoreHarness, _split

KINDS = {
    "stage": ext.StageResponse,
    "commit": ext.CommitResponse,
    "abort": ext.AbortResponse,
    "finish": ext.FinishResponse,
    "last_committed": ext.LastCommittedResponse,
}


class Transacting(CoreHarness):
    """A harness that also hears the requests of transactions."""

    def send(self, kind, request):
        """Ask; returns where the answer goes."""
        self.inboxes += 1
        reply = f"_STAN.to.{self.user}._INBOX.{self.inboxes}" if self.user else f"reply.{self.inboxes}"
        self.broker.tick(self.now, self.wall)
        handle = self.broker.frames.routes[f"_STAN.x.test-cluster.{kind}"]
        handle(Frame(20, b"x", reply.encode(), b"", request.SerializeToString()))
        self.turn()
        return kind, reply

    def answer(self, sent):
        kind, reply = sent
        heard = self.hear(reply)
        return KINDS[kind].FromString(heard[0].payload) if heard else None

    def request(self, kind, request):
        return self.answer(self.send(kind, request))

    def stage_request(self, *payloads, txn=b"t", part=0, channel=b"foo", app=b"app", version=0):
        rows = rows_of(payloads)
        return ext.StageRequest(
            app=app, version=version, txn=txn, part=part, channel=channel, count=len(payloads), rows=rows
        )

    def stage(self, *payloads, **named):
        return self.request("stage", self.stage_request(*payloads, **named))

    def commit_request(self, *txns, channel=b"foo", app=b"app", version=0):
        return commit_request(app, version, {channel: txns})

    def commit_rows(self, *txns, **named):
        return self.request("commit", self.commit_request(*txns, **named))

    def abort(self, *txns, channel=b"foo"):
        return self.request("abort", ext.AbortRequest(channel=channel, txns=txns))

    # --- what there is ------------------------------------------------------------------------------------------------

    @property
    def transactions(self):
        return self.follower().transactions

    def uid(self, name="foo"):
        return self.state.channels[name.encode()].uid

    def index(self, name="foo"):
        return self.broker.view.indexes(1, self.uid(name))

    def stored(self, name="foo"):
        """(sequence, data) of every message in the log of a channel, visible or not."""
        return [
            (said.message.sequence, said.message.data)
            for base, count, _, records in self.indexes[1, self.uid(name)].batches
            for said in _split(kernel.frames(records, base, base, base + count - 1, b"x", 0))
        ]

    def visible(self, name="foo"):
        """Data of every message that readers may see."""
        return [data for sequence, data in self.stored(name) if sequence <= self.index(name).last_sequence]

    def hidden(self):
        """(first, last) sequence of the hidden channel."""
        index = self.indexes[1, STAGING_UID]
        return index.first, index.last_sequence


@pytest.fixture
def harness():
    made = Transacting()
    made.connect()
    return made


def held_commit(harness, *txns, **named):
    """A commit whose entries are not committed."""
    harness.hold = True
    return harness.send("commit", harness.commit_request(*txns, **named))


def one_entry(harness):
    """Let one more entry be committed, and what follows from it be proposed."""
    harness._commit_entry(*harness.uncommitted.pop(0))
    harness.turn()


def let_go(harness):
    harness.hold = False
    harness.turn()


def finish(harness, version, writer):
    return harness.request("finish", ext.FinishRequest(app=b"app", version=version, writer=writer)).error.decode()


def last(harness, version, writer):
    request = ext.LastCommittedRequest(app=b"app", version=version, writer=writer)
    return harness.request("last_committed", request).error.decode()


def commit_as(harness, writer, version, *rows):
    """Stage and commit one part as *writer*; the error and if it was committed before."""
    txn = b"%b.%d" % (writer, version)
    assert harness.stage(*rows, txn=txn, version=version).error == b""
    request = harness.commit_request((txn, 1), version=version)
    request.writer = writer
    answer = harness.request("commit", request)
    return answer.error.decode(), answer.already


def test_a_version_that_another_writer_has_committed_is_refused(harness):
    """Two queries with one app: what the second one writes is not taken for a repetition of the first one's."""
    assert commit_as(harness, b"q1", 0, b"a") == commit_as(harness, b"q1", 1, b"b") == ("", False)
    harness.restart()
    said = refusals.ANOTHER_WRITER.format(0, "app", "q1")
    assert commit_as(harness, b"q2", 0, b"c") == (said, False)
    assert commit_as(harness, b"q1", 1, b"b") == ("", True)  # a repetition
    assert commit_as(harness, b"", 1, b"b") == ("", True)  # of a client that does not tell who it is
    assert commit_as(harness, b"q2", 2, b"c") == ("", False)
    assert commit_as(harness, b"q1", 2, b"d") == (refusals.ANOTHER_WRITER.format(2, "app", "q2"), False)
    assert harness.visible() == [b"a", b"b", b"c"]


def test_two_writers_that_wait_for_one_version_are_told_apart(harness):
    for txn in (b"t", b"u"):
        harness.stage(txn, txn=txn)
    first, second = harness.commit_request((b"t", 1)), harness.commit_request((b"u", 1))
    first.writer, second.writer = b"q1", b"q2"
    harness.hold = True
    one, other = harness.send("commit", first), harness.send("commit", second)
    let_go(harness)
    assert harness.answer(one) == ext.CommitResponse(first_sequence=1, last_sequence=1)
    assert harness.answer(other).retry
    assert harness.request("commit", second).error.decode() == refusals.ANOTHER_WRITER.format(0, "app", "q1")
    assert harness.visible() == [b"t"]


def test_a_finished_version_of_another_writer_is_told_before_anything_is_staged(harness):
    assert (
        finish(harness, 5, b"q1") == last(harness, 5, b"q1") == last(harness, 6, b"q2") == last(harness, 0, b"") == ""
    )
    harness.restart()
    said = refusals.ANOTHER_WRITER.format(5, "app", "q1")
    assert last(harness, 5, b"q2") == finish(harness, 5, b"q2") == said
    assert finish(harness, 6, b"q2") == ""
    assert last(harness, 5, b"q1") == refusals.ANOTHER_WRITER.format(5, "app", "q2")
    assert finish(harness, 7, b"x" * 256) == refusals.INVALID_TRANSACTION


def test_staged_rows_are_seen_by_nobody(harness):
    harness.subscribe("foo")
    assert harness.stage(b"a", b"b") == ext.StageResponse()
    assert harness.visible() == []
    assert harness.received() == []


def test_committed_rows_come_in_order_of_txns_and_parts(harness):
    harness.publish("foo", b"before")
    harness.stage(b"2a", txn=b"two")
    harness.stage(b"1b", txn=b"one", part=1)
    harness.stage(b"1a", b"1aa", txn=b"one", part=0)
    done = harness.commit_rows((b"one", 2), (b"two", 1))
    assert done == ext.CommitResponse(first_sequence=2, last_sequence=5)
    assert harness.visible() == [b"before", b"1a", b"1aa", b"1b", b"2a"]
    harness.publish("foo", b"after")
    assert harness.visible()[-1] == b"after"


def test_subscribers_get_committed_rows(harness):
    harness.subscribe("foo", in_flight=100)
    harness.stage(b"a", b"b")
    harness.commit_rows((b"t", 1))
    harness.publish("foo", b"c")
    assert harness.received() == [(1, 0), (2, 0), (3, 0)]


def test_version_is_committed_once(harness):
    harness.stage(b"a")
    harness.commit_rows((b"t", 1), version=0)
    again = harness.commit_rows((b"t", 1), version=0)
    assert again == ext.CommitResponse(already=True, first_sequence=1, last_sequence=1)
    assert len(harness.stored()) == 1


def test_earlier_version_is_not_committed_after_a_later_one(harness):
    harness.stage(b"old", txn=b"o", version=1)
    harness.stage(b"new", txn=b"n", version=2)
    harness.commit_rows((b"n", 1), version=2)
    assert harness.commit_rows((b"o", 1), version=1) == ext.CommitResponse(already=True)
    assert harness.visible() == [b"new"]


def test_apps_and_channels_have_versions_of_their_own(harness):
    for app, channel in ((b"a", b"foo"), (b"b", b"foo"), (b"a", b"bar")):
        harness.stage(app + channel, txn=app, app=app, channel=channel)
        assert not harness.commit_rows((app, 1), app=app, channel=channel).already
    assert harness.visible() == [b"afoo", b"bfoo"]
    assert harness.visible("bar") == [b"abar"]


def test_commit_of_nothing_records_the_version(harness):
    assert harness.commit_rows(version=3) == ext.CommitResponse()
    assert harness.commit_rows(version=3) == ext.CommitResponse(already=True)
    harness.stage(b"a", version=3)
    assert harness.transactions.staged == {}


def test_missing_part_refuses_the_commit(harness):
    harness.stage(b"a", part=0)
    harness.stage(b"c", part=2)
    refused = harness.commit_rows((b"t", 3))
    assert refused.error.decode() == refusals.STAGED_GONE
    assert not refused.retry
    assert harness.stored() == []
    harness.stage(b"b", part=1)
    assert harness.commit_rows((b"t", 3)).last_sequence == 3


@pytest.mark.parametrize("named", [0, 1])
def test_a_commit_that_names_too_few_parts_is_refused(harness, named):
    harness.stage(b"a", part=0)
    harness.stage(b"b", part=1)
    assert harness.commit_rows((b"t", named)).error.decode() == refusals.STAGED_UNNAMED
    assert harness.commit_rows((b"t", 2)).last_sequence == 2


def test_part_of_another_version_is_not_taken(harness):
    harness.stage(b"a", version=1)
    assert harness.commit_rows((b"t", 1), version=2).error.decode() == refusals.STAGED_GONE
    assert harness.commit_rows((b"t", 1), version=1, app=b"other").error.decode() == refusals.STAGED_GONE


def test_part_is_staged_once(harness):
    harness.stage(b"a")
    harness.stage(b"a")
    assert harness.hidden()[1] == 1
    harness.commit_rows((b"t", 1))
    assert harness.visible() == [b"a"]


def test_part_that_is_on_its_way_twice_is_kept_once(harness):
    harness.hold = True
    sent = [harness.send("stage", harness.stage_request(b"a")) for _ in range(2)]
    let_go(harness)
    assert [harness.answer(one) for one in sent] == [ext.StageResponse()] * 2
    assert len(harness.transactions.staged) == 1
    assert harness.commit_rows((b"t", 1)).last_sequence == 1


def test_part_with_other_rows_is_refused(harness):
    harness.stage(b"a")
    assert harness.stage(b"other").error.decode() == refusals.STAGED_OTHERWISE
    harness.hold = True
    sent = [harness.send("stage", harness.stage_request(data, part=1)) for data in (b"a", b"longer")]
    let_go(harness)
    assert [harness.answer(one).error.decode() for one in sent] == ["", refusals.STAGED_OTHERWISE]


def test_rows_of_a_task_that_nobody_names_are_dropped(harness):
    harness.stage(b"first", txn=b"attempt-0")
    harness.stage(b"second", txn=b"attempt-1")
    harness.commit_rows((b"attempt-1", 1))
    assert harness.visible() == [b"second"]
    assert harness.transactions.staged == {}
    harness.stage(b"late", txn=b"attempt-2")
    assert harness.transactions.staged == {}


def test_hidden_channel_is_trimmed(harness):
    harness.stage(b"a", txn=b"a", version=1)
    harness.stage(b"b", txn=b"b", version=2)
    harness.commit_rows((b"a", 1), version=1)
    assert harness.hidden() == (2, 2)
    harness.commit_rows((b"b", 1), version=2)
    assert harness.hidden() == (3, 2)
    harness.stage(b"c", txn=b"c", version=3)
    assert harness.hidden() == (3, 3)


def test_aborted_rows_are_gone(harness):
    harness.stage(b"a", txn=b"a")
    harness.stage(b"b", txn=b"b")
    assert harness.abort(b"a", b"unheard of") == ext.AbortResponse()
    assert harness.commit_rows((b"a", 1)).error.decode() == refusals.STAGED_GONE
    assert harness.commit_rows((b"b", 1)).last_sequence == 1
    assert harness.abort(b"b") == ext.AbortResponse()
    assert harness.abort(b"b", channel=b"unheard-of") == ext.AbortResponse()
    assert harness.visible() == [b"b"]


def test_abort_before_the_decision_wins(harness):
    harness.stage(b"a")
    harness.hold = True
    harness.send("abort", ext.AbortRequest(channel=b"foo", txns=[b"t"]))
    sent = harness.send("commit", harness.commit_request((b"t", 1)))
    let_go(harness)
    assert harness.answer(sent).error.decode() == refusals.STAGED_GONE
    assert harness.publish("foo", b"next") == [""]
    assert harness.visible() == [b"next"]


def test_abort_after_the_decision_changes_nothing(harness):
    harness.stage(b"a")
    sent = held_commit(harness, (b"t", 1))
    harness.send("abort", ext.AbortRequest(channel=b"foo", txns=[b"t"]))
    let_go(harness)
    assert harness.answer(sent).last_sequence == 1
    assert harness.visible() == [b"a"]


def test_rows_that_nobody_commits_are_gone_in_time(harness):
    harness.stage(b"a", txn=b"a")
    harness.pass_time(limits.STAGED_AGE_MAX / SECOND - 1)
    harness.stage(b"b", txn=b"b")
    assert len(harness.transactions.staged) == 2
    harness.pass_time(3)
    assert [part.request.txn for part in harness.transactions.staged.values()] == [b"b"]
    assert harness.hidden() == (2, 2)


def parts(harness, count, size=400_000, **named):
    """That many parts of one row each."""
    for number in range(count):
        harness.stage(b"%d" % number * (size // len(b"%d" % number)), part=number, **named)


def test_nothing_of_a_commit_is_seen_before_it_is_whole(harness):
    harness.publish("foo", b"before")
    harness.subscribe("foo")
    assert harness.received() == [(1, 0)]
    parts(harness, 12)
    sent = held_commit(harness, (b"t", 12))
    one_entry(harness)
    assert harness.visible() == [b"before"]
    assert harness.answer(sent) is None
    one_entry(harness)
    assert len(harness.visible()) == 13
    assert harness.received()[:3] == [(2, 0), (3, 0), (4, 0)]
    assert harness.answer(sent).last_sequence == 13


def test_publishes_go_on_until_the_rows_are_on_their_way(harness):
    parts(harness, 6)
    sent = held_commit(harness, (b"t", 6))
    assert harness.publish("foo", b"before") == []
    one_entry(harness)
    assert harness.publish("foo", b"behind") == []
    assert harness.publish("bar", b"elsewhere") == []
    let_go(harness)
    assert harness.answer(sent) == ext.CommitResponse(first_sequence=2, last_sequence=7)
    assert [data for _, data in harness.stored() if len(data) < 10] == [b"before", b"behind"]
    assert [sequence for sequence, _ in harness.stored()] == list(range(1, 9))
    assert harness.hear("_INBOX.acks")


@pytest.mark.parametrize(("start", "expected"), [(0, 8), (1, 7), (4, 1)])
def test_new_subscription_counts_the_rows_of_a_commit_as_received(harness, start, expected):
    harness.publish("foo", b"before")
    parts(harness, 6)
    held_commit(harness, (b"t", 6))
    one_entry(harness)
    request = wire.SubscriptionRequest(
        client_id=b"me", subject=b"foo", inbox=b"inbox", max_in_flight=99, ack_wait_s=30, start_position=start
    )
    harness.broker.frames.step_frame(Frame(10, b"_STAN.sub.test-cluster", b"sub", b"", request.SerializeToString()))
    let_go(harness)
    assert [sequence for sequence, _ in harness.received()] == list(range(expected, 8))


def test_second_request_waits_for_the_same_outcome(harness):
    parts(harness, 3)
    sent = held_commit(harness, (b"t", 3))
    again = harness.send("commit", harness.commit_request((b"t", 3)))
    one_entry(harness)
    third = harness.send("commit", harness.commit_request((b"t", 3)))
    let_go(harness)
    assert [harness.answer(one) for one in (sent, again, third)] == [
        ext.CommitResponse(first_sequence=1, last_sequence=3),
        ext.CommitResponse(first_sequence=1, last_sequence=3),
        ext.CommitResponse(first_sequence=1, last_sequence=3, already=True),
    ]
    assert len(harness.stored()) == 3


def test_next_version_comes_when_the_one_before_it_is_complete(harness):
    harness.stage(b"a", txn=b"a", version=1)
    harness.stage(b"b", txn=b"b", version=2)
    sent = held_commit(harness, (b"a", 1), version=1)
    later = harness.send("commit", harness.commit_request((b"b", 1), version=2))
    let_go(harness)
    assert harness.answer(sent).last_sequence == 1
    assert (harness.answer(later).error.decode(), harness.answer(later)) == (refusals.BUSY, None)
    assert harness.commit_rows((b"b", 1), version=2) == ext.CommitResponse(first_sequence=2, last_sequence=2)


def test_apps_commit_to_one_channel_beside_each_other(harness):
    for app in (b"a", b"b"):
        harness.stage(app, app + b"2", app=app, txn=app)
    harness.hold = True
    sent = [harness.send("commit", harness.commit_request((app, 1), app=app)) for app in (b"a", b"b")]
    one_entry(harness)
    one_entry(harness)
    assert len(harness.transactions.under_way) == 2
    let_go(harness)
    assert [(one.first_sequence, one.last_sequence) for one in map(harness.answer, sent)] == [(1, 2), (3, 4)]
    assert harness.visible() == [b"a", b"a2", b"b", b"b2"]
    assert harness.publish("foo", b"behind") == [""]


@pytest.mark.parametrize("entries", range(8))
def test_commit_goes_on_after_a_restart(harness, entries):
    harness.publish("foo", b"before")
    parts(harness, 6)
    held_commit(harness, (b"t", 6))
    for _ in range(entries):
        if harness.uncommitted:
            one_entry(harness)
    decided = bool(harness.transactions.under_way) or entries > 0
    for group, index, _, _ in harness.uncommitted:
        del harness.logs[group][index - 1 :]
    harness.hold = False
    harness.restart()
    harness.connect()
    assert len(harness.visible()) == (7 if decided else 1)
    answered = harness.commit_rows((b"t", 6))
    assert (answered.already, answered.first_sequence, answered.last_sequence) == (decided, 2, 7)
    assert [data[:1] for data in harness.visible()] == [b"b", b"0", b"1", b"2", b"3", b"4", b"5"]
    assert [sequence for sequence, _ in harness.stored()] == list(range(1, 8))
    assert harness.publish("foo", b"after") == [""]


@pytest.mark.parametrize("before", range(1, 8))
def test_disk_that_is_full_for_one_write_loses_no_part(harness, before):
    """What was being read meanwhile is not stored in front of what was refused."""
    parts(harness, 12)
    broker, written, refused = harness.broker, harness.broker.entries.step_written, harness.broker.entries.step_refused
    entries = []

    def write(proposal, index):
        entries.append(index)
        harness.full = len(entries) == before
        written(proposal, index)

    def refuse(proposal, why):
        refused(proposal, why)
        harness.full = False

    broker.entries.step_written, broker.entries.step_refused = write, refuse
    harness.commit_rows((b"t", 12))
    harness.pass_time(3)
    harness.full = False
    harness.commit_rows((b"t", 12))
    assert [data[:1] for data in harness.visible()] == [b"%d" % number for number in (*range(10), 1, 1)]


def test_full_disk_refuses_the_decision(harness):
    harness.stage(b"a")
    harness.full = True
    answer = harness.commit_rows((b"t", 1))
    assert answer.retry
    assert answer.error == b"disk full"
    harness.full = False
    assert harness.publish("foo", b"first") == [""]
    assert harness.commit_rows((b"t", 1)).first_sequence == 2


def test_limits_smaller_than_the_commit():
    harness = Transacting(config=Config(limits=StoreLimits(default=ChannelLimits(msgs=5))))
    harness.connect()
    harness.publish("foo", b"x", b"y", b"z")
    for number in range(4):
        harness.stage(*(b"%d" % number * 90_000 for _ in range(3)), part=number)
    held_commit(harness, (b"t", 4))
    while harness.uncommitted:
        assert harness.visible() == [b"x", b"y", b"z"]
        assert harness.index().first_sequence == 1
        one_entry(harness)
    assert (harness.index().first_sequence, harness.index().last_sequence) == (11, 15)


def test_channel_that_is_deleted_takes_its_transactions_with_it(harness):
    parts(harness, 30)
    harness.stage(b"other", channel=b"bar", txn=b"other")
    sent = held_commit(harness, (b"t", 30))
    channel = harness.broker.parts.channels.by_name[b"foo"]
    harness.broker.parts.channels.removal.delete(channel)
    let_go(harness)
    assert harness.answer(sent).error.decode() == refusals.CHANNEL_DELETING
    known = harness.transactions
    assert (len(known.staged), known.under_way, known.committed) == (1, {}, {})
    assert harness.commit_rows((b"t", 3)).error.decode() == refusals.STAGED_GONE
    assert harness.commit_rows((b"other", 1), channel=b"bar").last_sequence == 1
    assert harness.hidden() == (32, 31)


def test_idle_channel_with_staged_rows_stays():
    harness = Transacting(config=Config(limits=StoreLimits(default=ChannelLimits(inactivity_ns=10 * SECOND))))
    harness.stage(b"a")
    harness.pass_time(30)
    assert harness.commit_rows((b"t", 1)).last_sequence == 1
    harness.pass_time(30)
    assert b"foo" not in harness.state.channels


@pytest.mark.parametrize(
    "wrong",
    [
        {"app": b""},
        {"app": b"x" * 256},
        {"txn": b""},
        {"txn": b"x" * 65},
        {"version": -1},
        {"channel": b"foo."},
        {"channel": b"a*"},
    ],
)
def test_requests_that_make_no_sense(harness, wrong):
    answer = harness.stage(b"a", **wrong)
    assert answer.error
    assert not answer.retry
    if "txn" not in wrong:
        assert harness.commit_rows((b"t", 1), **wrong).error


def test_malformed_row_is_named(harness):
    request = harness.stage_request(b"a", b"b")
    request.rows = request.rows[:-1]
    assert harness.request("stage", request).error.decode() == refusals.INVALID_ROWS.format(1)
    assert harness.request("stage", harness.stage_request()).error
    assert harness.commit_rows((b"t", 1), (b"t", 1)).error.decode() == refusals.INVALID_TRANSACTION


def test_too_much_staged_is_refused(harness, monkeypatch):
    monkeypatch.setattr(limits, "STAGED_PARTS_MAX", 2)
    parts(harness, 2, size=10)
    refused = harness.stage(b"a", part=2)
    assert refused.error.decode() == refusals.STAGED_TOO_MUCH.format(2, "parts", 2)
    assert harness.stage(b"0" * 10, part=0) == ext.StageResponse()
    monkeypatch.setattr(limits, "STAGED_PARTS_MAX", 3)
    monkeypatch.setattr(limits, "STAGED_BYTES_MAX", 20)
    refused = harness.stage(b"a", part=2)
    assert re.search(r"\d+ bytes are staged .* of 20 that it takes: .*coalesce", refused.error.decode())


def test_waiting_makes_room_only_where_others_have_staged(harness, monkeypatch):
    monkeypatch.setattr(limits, "STAGED_PARTS_MAX", 2)
    parts(harness, 2, size=10)
    assert not harness.stage(b"a", part=2).retry
    assert harness.stage(b"a", part=2, app=b"other").retry
    assert harness.stage(b"a", part=2, version=1).retry


def test_a_batch_of_200_tasks_and_300_channels_is_staged_and_committed_at_once():
    known = Transactions()
    parts = [(uid, b"%d" % task) for task in range(200) for uid in range(1, 301)]
    for sequence, (uid, txn) in enumerate(parts, 1):
        assert not known.staging_refusal(b"", 1)
        part = pb.StagedPart(uid=uid, sequence=sequence, count=1, bytes=1)
        known.apply("staged", pb.Staged(app=b"a", txn=txn, parts=[part]), sequence)
    commit = pb.Commit(app=b"a", txns=[b"%d" % task for task in range(200)])
    for uid in range(1, 301):
        commit.channels.add(uid=uid, parts=[each for task in range(200) for each in (task, 1)])
    assert known.apply("commit", commit, 70_000) == Decided(70_000, set())
    assert sum(len(share.sequences) for share in known.under_way[70_000].channels) == len(parts)


def test_a_commit_may_name_as_many_channels_and_txns_as_clients_put_into_one_request():
    each = COMMIT_TXNS_MAX // 1000
    channels = {
        b"c%d" % number: [(b"%d-%d" % (number, txn), 1) for txn in range(each if number < 1000 else 0)]
        for number in range(COMMIT_CHANNELS_MAX)
    }
    request = commit_request(b"a", 1, channels, b"w")
    assert len(request.txns) == COMMIT_TXNS_MAX
    assert decode(ext.CommitRequest, request.SerializeToString()) == request


def test_apps_are_forgotten_when_others_come_and_not_before_their_time(harness, monkeypatch):
    monkeypatch.setattr(limits, "APPS_MAX", 2)
    for app in (b"a", b"b"):
        harness.commit_rows(app=app, version=7)
        harness.request("finish", ext.FinishRequest(app=app, version=7))
    assert harness.commit_rows(app=b"c").error.decode() == refusals.TOO_MANY_APPS
    assert harness.request("finish", ext.FinishRequest(app=b"c")).error.decode() == refusals.TOO_MANY_APPS
    harness.wall += limits.APP_MEMORY + SECOND
    assert harness.commit_rows(app=b"c") == ext.CommitResponse()
    assert harness.request("finish", ext.FinishRequest(app=b"c")) == ext.FinishResponse()


def test_finished_version(harness):
    def last():
        found = harness.request("last_committed", ext.LastCommittedRequest(app=b"app"))
        return found.version if found.known else None

    assert last() is None
    for version, expected in ((0, 0), (4, 4), (3, 4)):
        harness.request("finish", ext.FinishRequest(app=b"app", version=version))
        assert last() == expected
    harness.restart()
    assert last() == 4


def test_state_is_the_same_after_a_snapshot(harness):
    parts(harness, 4)
    harness.stage(b"x", txn=b"x", channel=b"bar")
    harness.commit_rows(channel=b"baz", version=2)
    harness.request("finish", ext.FinishRequest(app=b"app", version=2))
    held_commit(harness, (b"t", 4))
    one_entry(harness)
    one_entry(harness)
    known = harness.transactions
    copy = type(known)()
    for key in sorted(known.keys()):
        copy.load(key, known.row(key))
    for field in ("staged", "parts", "under_way", "committed", "finished", "floor"):
        assert getattr(copy, field) == getattr(known, field)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=20))
@example([(0, 0), (0, 0), (0, 1)])
def test_what_is_trimmed_is_the_same_on_a_node_that_starts_again_between_any_two_entries(steps):
    """The newest sequence that was staged was forgotten with a restart, if that part was there already."""
    kept, restarted = GroupMachine(1), GroupMachine(1)
    for index, (txn, drops) in enumerate(steps, 1):
        txns = [b"%d" % dropped for dropped in range(drops)]
        change = pb.GroupChange(drop_staged=pb.DropStaged(uid=5, txns=txns))
        if not drops:
            part = pb.StagedPart(uid=5, sequence=index)
            change = pb.GroupChange(staged=pb.Staged(app=b"a", version=1, txn=b"%d" % txn, parts=[part]))
        for machine in (kept, restarted):
            machine.apply(change, index)
        assert restarted.channel(STAGING_UID).first_sequence == kept.channel(STAGING_UID).first_sequence
        known = restarted.transactions
        again = type(known)()
        for key in sorted(known.keys()):
            again.load(key, known.row(key))
        restarted.transactions = again


def test_rows_that_change_are_written(harness):
    """What is dirty, row by row, gives the same state as all rows."""
    rows = {}

    def flush():
        for _, key, row in harness.broker.states.take_changed_rows(1).parts:
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
        assert rows == {part.key: part.state for part in harness.state.snapshot().parts}

    parts(harness, 5)
    flush()
    held_commit(harness, (b"t", 5))
    while harness.uncommitted:
        one_entry(harness)
        flush()
    harness.hold = False
    harness.stage(b"a", txn=b"a", version=1)
    flush()
    harness.abort(b"a")
    harness.request("finish", ext.FinishRequest(app=b"app", version=2))
    flush()
    harness.broker.parts.channels.removal.delete(harness.broker.parts.channels.by_name[b"foo"])
    harness.turn()
    flush()


def test_entries_that_make_no_sense_change_nothing(harness):
    machine = harness.follower()
    for change in (
        pb.GroupChange(commit_done=pb.CommitDone(decision=9)),
        pb.GroupChange(
            commit=pb.Commit(app=b"a", txns=[b"t"], channels=[pb.CommitShare(uid=9, parts=[0, 1], sequences=[4])])
        ),
        pb.GroupChange(drop_staged=pb.DropStaged(uid=9, txns=[b"t"])),
    ):
        machine.apply(change, 99)
    assert list(machine.transactions.keys()) == []


# --- commits that refer to what is staged ------------------------------------------------------------------------------


def entries_of(harness, since):
    """The batches of each entry of the group, behind the first *since* ones: (uid, count, whether it is a reference)."""
    return [
        [(batch.uid, batch.count, bool(batch.staged)) for batch in decode_batches(body)]
        for _, kind, body in harness.logs[1][since:]
        if kind == Kind.RECORDS
    ]


def staged_and_committed(harness, **named):
    """What the log has of a commit of two parts; and what readers see."""
    harness.stage(b"a", b"b", part=0, **named)
    harness.stage(b"c", part=1, **named)
    before = len(harness.logs[1])
    answer = harness.commit_rows((b"t", 2))
    assert (answer.error, answer.first_sequence, answer.last_sequence) == (b"", 1, 3)
    assert harness.visible() == [b"a", b"b", b"c"]
    return entries_of(harness, before)


def test_commit_of_staged_parts_writes_one_entry_without_their_rows(harness):
    assert staged_and_committed(harness) == [[(harness.uid(), 2, True), (harness.uid(), 1, True)]]
    harness.publish("foo", b"behind")
    harness.restart()
    assert harness.visible() == [b"a", b"b", b"c", b"behind"]


@pytest.mark.parametrize("rule", [{"ttl": 60 * SECOND}, {"compress": 1}])
def test_commit_refers_whatever_the_policy_wants(rule):
    harness = Transacting(config=Config(policies=(PolicyRule(pattern="foo", **rule),)))
    harness.connect()
    assert staged_and_committed(harness) == [[(harness.uid(), 2, True), (harness.uid(), 1, True)]]


def test_committed_rows_expire_as_published_ones(harness):
    """The same bytes, listed alike, counted alike, and gone at the same time."""
    ttl = PolicyRule(pattern="foo", ttl=60 * SECOND)
    published, committed = (Transacting(config=Config(policies=(ttl,))) for _ in range(2))
    for harness in (published, committed):
        harness.connect()
        harness.publish("foo", b"x")
    published.publish("foo", b"a" * 200, b"b")
    committed.stage(b"a" * 200, b"b")
    committed.commit_rows((b"t", 1))
    seen = [
        (
            harness.stored(),
            harness.index().bytes,
            harness.follower().expiries.by_channel[harness.uid()].runs,
            [records for *_, records in harness.indexes[1, harness.uid()].batches],
        )
        for harness in (published, committed)
    ]
    assert seen[0] == seen[1]
    for harness in (published, committed):
        harness.pass_time(62)
        assert harness.index().first_sequence == 4


def test_full_disk_refuses_the_entry_of_references_and_the_commit_goes_on_later(harness):
    parts(harness, 30)
    sent = held_commit(harness, (b"t", 30))
    harness.full = True
    let_go(harness)
    assert harness.answer(sent) == ext.CommitResponse(error=b"disk full", retry=True)
    assert harness.publish("foo", b"behind") == ["disk full"]
    assert harness.visible() == []
    harness.full = False
    harness.pass_time(3)
    assert len(harness.visible()) == 30
    assert [sequence for sequence, _ in harness.stored()] == list(range(1, 31))
    assert harness.commit_rows((b"t", 30)) == ext.CommitResponse(already=True, first_sequence=1, last_sequence=30)
    assert harness.publish("foo", b"after") == [""]


def test_what_is_referred_to_leaves_the_hidden_channel_but_not_the_log(harness):
    staged_and_committed(harness)
    assert harness.transactions.staged == {}
    assert harness.hidden()[0] == 3


def test_bytes_of_a_channel_are_the_same_whether_rows_were_published_or_referred_to(harness):
    harness.stage(b"a" * 100, b"b")
    harness.commit_rows((b"t", 1))
    referred = harness.index().bytes
    harness.publish("foo", b"a" * 100, b"b")
    assert harness.index().bytes == 2 * referred

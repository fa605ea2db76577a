"""Requests that stage rows of several channels of one group: all of it is staged, or nothing is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stan_protocol import refusals
from stan_protocol.commits import commit_request
from stan_protocol.proto import extension_pb2 as ext
from stan_protocol.scalars import SECOND, MiB

from stan import limits
from stan.config import Config, StoreLimits
from stan.core.state.transactions import Transactions
from stan.policies import EPHEMERAL, PolicyRule
from stan.protocol.entries import Kind, decode_batches
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.requests import decode
from tests.kit.batches import rows_of
from tests.unit.core.test_transactions import Transacting

NAMES = (b"foo", b"bar", b"baz")


@pytest.fixture
def harness():
    config = Config(limits=StoreLimits(channels=0), policies=(PolicyRule(pattern="short.>", commit=EPHEMERAL),))
    made = Transacting(config=config)
    made.connect()
    return made


def share(name, *payloads, part=0):
    return ext.StagedRows(channel=name, part=part, count=len(payloads), rows=rows_of(payloads))


def request_of(shares, txn=b"t", app=b"app", version=0):
    first, *more = shares
    return ext.StageRequest(
        app=app, version=version, txn=txn, part=first.part, channel=first.channel, count=first.count, rows=first.rows,
        more=more,
    )  # fmt: skip


def joint(names=NAMES, part=0, **named):
    return request_of([share(name, b"%b-%d" % (name, part), b"-", part=part) for name in names], **named)


def commit_all(harness, names=NAMES, parts=1, txn=b"t", version=0):
    return harness.request("commit", commit_request(b"app", version, {name: [(txn, parts)] for name in names}))


def staged(harness):
    """Channel, number, and count of the rows of each staged part."""
    uids = {harness.uid(name.decode()): name for name in NAMES if name in harness.state.channels}
    return sorted((uids[part.uid], part.part, part.count) for part in harness.transactions.staged.values())


def test_rows_of_many_channels_are_staged_by_one_entry_and_committed_in_order(harness):
    for name in NAMES:
        harness.publish(name.decode(), b"before")
    before = len(harness.logs[1])
    for part in (1, 0):
        assert harness.request("stage", joint(part=part)) == ext.StageResponse(group=1)
    entries = harness.logs[1][before:]
    assert [kind for _, kind, _ in entries] == [Kind.RECORDS] * 2
    assert [batch.count for _, _, body in entries for batch in decode_batches(body)] == [1] * 6, "each alone"
    assert commit_all(harness, parts=2).error == b""
    assert {name: harness.visible(name.decode()) for name in NAMES} == {
        name: [b"before", name + b"-0", b"-", name + b"-1", b"-"] for name in NAMES
    }
    assert harness.transactions.staged == harness.transactions.requests == {}


def test_channels_that_do_not_exist_are_made(harness):
    harness.hold = True
    sent = harness.send("stage", joint())
    assert harness.answer(sent) is None
    harness.hold = False
    harness.turn()
    assert harness.answer(sent) == ext.StageResponse(group=1)
    assert staged(harness) == sorted((name, 0, 2) for name in NAMES)


def test_a_repetition_stores_only_what_is_missing(harness):
    harness.request("stage", joint(NAMES[:1]))
    harness.request("stage", joint(NAMES[:2]))
    assert harness.hidden()[1] == 2
    assert harness.request("stage", joint()) == harness.request("stage", joint()) == ext.StageResponse(group=1)
    assert harness.hidden()[1] == 3
    harness.hold = True
    sent = [harness.send("stage", joint(part=1)) for _ in range(2)]
    harness.hold = False
    harness.turn()
    assert [harness.answer(one) for one in sent] == [ext.StageResponse(group=1)] * 2
    assert staged(harness) == sorted((name, part, 2) for name in NAMES for part in (0, 1))


def test_a_channel_that_has_the_version_gets_nothing_and_the_others_do(harness):
    harness.request("stage", joint(NAMES[:1]))
    assert commit_all(harness, NAMES[:1]).error == b""
    assert harness.request("stage", joint()) == ext.StageResponse(group=1)
    assert staged(harness) == sorted((name, 0, 2) for name in NAMES[1:])


WRONG = {
    "malformed": (ext.StagedRows(channel=b"bar", count=2, rows=rows_of([b"a"])), refusals.INVALID_ROWS.format(1)),
    "no rows": (share(b"bar"), refusals.INVALID_BATCH),
    "name": (share(b"no channel\n", b"a"), refusals.INVALID_SUBJECT),
    "twice": (share(b"baz", b"a"), refusals.INVALID_TRANSACTION),
    "case": (share(b"BAR", b"a"), None),
    "otherwise": (share(b"bar", b"other rows", part=7), refusals.STAGED_OTHERWISE),
    "ephemeral": (share(b"short.lived", b"a"), None),
}


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("wrong", WRONG)
def test_nothing_of_a_request_is_kept_if_one_channel_is_refused(harness, wrong, at):
    harness.stage(b"a", channel=b"bar", part=7)
    bad, error = WRONG[wrong]
    shares = [share(b"foo", b"a"), share(b"baz", b"b")]
    answer = harness.request("stage", request_of([*shares[:at], bad, *shares[at:]]))
    assert answer.error
    assert error is None or answer.error.decode() == error
    assert not answer.retry
    assert staged(harness) == [(b"bar", 7, 1)]
    assert harness.request("stage", request_of(shares)).error == b"", "it does not wait for anything"


def test_bounds_of_one_request(harness, monkeypatch):
    names = [b"c%d" % number for number in range(limits.STAGE_CHANNELS_MAX + 1)]
    widest = request_of([share(name, b"x") for name in names[1:]])
    assert decode(ext.StageRequest, widest.SerializeToString()) == widest
    said = harness.request("stage", request_of([share(name, b"x") for name in names])).error.decode()
    assert said == refusals.TOO_MANY_STAGED.format(limits.STAGE_CHANNELS_MAX)
    monkeypatch.setattr(limits, "ROWS_BYTES_MAX", MiB)
    large = [share(name, bytes(400_000)) for name in NAMES]
    assert harness.request("stage", request_of(large)).error.decode() == refusals.TOO_MANY_ROWS
    assert harness.request("stage", request_of(large[:2], txn=b"large")).error == b""
    monkeypatch.setattr(limits, "STAGED_PARTS_MAX", 4)
    assert harness.request("stage", joint()).error.decode() == refusals.STAGED_TOO_MUCH.format(2, "parts", 4)
    assert harness.request("stage", joint(NAMES[:2])).error == b""


@pytest.mark.parametrize("written", [False, True])
def test_a_crash_leaves_all_of_a_request_or_nothing(harness, written):
    """The first request is answered, the second one is on its way; both are repeated, as clients do."""
    harness.request("stage", joint())
    harness.hold = True
    harness.send("stage", joint(part=1))
    (entry,) = harness.uncommitted
    if written:
        harness._commit_entry(*entry)
    else:
        harness.logs[1].pop()
    harness.hold = False
    harness.restart()
    assert len(staged(harness)) == (6 if written else 3)
    for part in (0, 1):
        assert harness.request("stage", joint(part=part)).error == b""
    assert commit_all(harness, parts=2).error == b""
    assert harness.visible("bar") == [b"bar-0", b"-", b"bar-1", b"-"]


def test_what_nobody_commits_goes_with_all_of_its_parts(harness):
    harness.request("stage", joint())
    harness.abort(b"t", channel=b"bar")
    assert staged(harness) == [(b"baz", 0, 2), (b"foo", 0, 2)]
    harness.wall += limits.STAGED_AGE_MAX + SECOND
    harness.pass_time(1)
    assert harness.transactions.staged == harness.transactions.requests == {}
    assert harness.transactions.staged_shares.used == harness.transactions.byte_shares.used == 0


def test_rows_of_300_channels_are_one_entry_for_each_task(harness):
    names = [b"c.%d" % number for number in range(300)]
    before, tasks = len(harness.logs[1]), 20
    for task in range(tasks):
        made = request_of([share(name, b"%d" % task) for name in names], txn=b"t%d" % task)
        assert harness.request("stage", made).error == b""
    assert len(harness.transactions.staged) == 300 * tasks
    assert len(harness.transactions.requests) == tasks
    assert sum(kind == Kind.RECORDS for _, kind, _ in harness.logs[1][before:]) == tasks
    request = harness.commit_request(*((b"t%d" % task, 1) for task in range(tasks)), channel=names[7])
    assert harness.request("commit", request).last_sequence == tasks
    assert harness.visible("c.7") == [b"%d" % task for task in range(tasks)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.sets(st.integers(1, 4), min_size=1), st.booleans())))
def test_rows_of_the_state_are_the_state_whatever_comes(steps):
    """Parts of up to four channels are staged together, dropped by channel, and committed; what is written by key at each step
    gives the same state."""
    known, rows = Transactions(), {}
    for index, (kind, txn, uids, flag) in enumerate(steps, 1):
        if kind < 2:
            parts = [
                pb.StagedPart(uid=uid, part=kind, sequence=10 * index + uid, count=1 + flag, bytes=uid)
                for uid in sorted(uids)
            ]
            known.apply("staged", pb.Staged(app=b"a", version=1, txn=b"%d" % txn, at=index, parts=parts), index)
        elif kind == 2:
            known.apply("drop_staged", pb.DropStaged(uid=min(uids), txns=[b"%d" % txn]), index)
        else:
            commit = pb.Commit(app=b"a", version=int(flag), txns=[b"%d" % txn])
            for uid in sorted(uids):
                commit.channels.add(uid=uid, parts=[0, 1])
            known.apply("commit", commit, index)
        for key in sorted(known.dirty):
            row = known.row(key)
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
        known.dirty.clear()
        for keys in (sorted(rows), sorted(rows, reverse=True)):
            copy = Transactions(emptied=known.emptied)
            for key in keys:
                copy.load(key, rows[key])
            assert copy == known
        assert [*known.staged] == sorted(known.staged)
        assert known.floor == min(known.staged, default=known.emptied + 1)

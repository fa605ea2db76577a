"""Commits of several channels of one group: all of them are visible, or none is, whatever happens in between."""

import pytest
from stan_protocol import refusals
from stan_protocol.commits import commit_request
from stan_protocol.proto import extension_pb2 as ext

from stan import limits
from stan.core.state.transactions import Transactions
from stan.protocol.entries import Kind, decode_batches
from stan.protocol.proto import entries_pb2 as pb
from tests.unit.core.test_transactions import Transacting

NAMES = (b"foo", b"bar", b"baz")


@pytest.fixture
def harness():
    made = Transacting()
    made.connect()
    return made


def stage_all(harness, version=0, names=NAMES):
    for name in names:
        for part in (0, 1):
            txn, value = b"%b.%d" % (name, version), b"%b-%d-%d" % (name, version, part)
            assert harness.stage(value, txn=txn, part=part, channel=name, version=version).error == b""


def joint(harness, version=0, names=NAMES, parts=2):
    return commit_request(b"app", version, {name: [(b"%b.%d" % (name, version), parts)] for name in names})


def rows(version=0, names=NAMES):
    return {name: [b"%b-%d-%d" % (name, version, part) for part in (0, 1)] for name in names}


def nothing(names=NAMES):
    return {name: [] for name in names}


def seen(harness, names=NAMES):
    known = harness.state.channels
    return {name: harness.visible(name.decode()) for name in names if name in known}


def answered(answer, group=1, already=False):  # noqa: FBT002
    told = {(one.already, one.first_sequence, one.last_sequence) for one in (answer, *answer.more)}
    assert (answer.error, answer.group, told) == (b"", group, {(already, 1, 2)})
    return sorted(one.channel for one in answer.more)


def test_channels_are_committed_together(harness):
    stage_all(harness)
    assert answered(harness.request("commit", joint(harness))) == [b"bar", b"baz"]
    assert seen(harness) == rows()
    assert answered(harness.request("commit", joint(harness)), already=True) == [b"bar", b"baz"]
    assert harness.transactions.staged == harness.transactions.under_way == {}
    assert harness.publish("bar", b"behind") == [""]


def test_rows_that_are_referred_to_come_by_one_entry(harness):
    stage_all(harness)
    before = len(harness.logs[1])
    harness.request("commit", joint(harness))
    decision, entry = harness.logs[1][before:]
    assert pb.GroupChange.FromString(decision[2]).WhichOneof("change") == "commit"
    assert entry[1] == Kind.RECORDS
    assert [(batch.uid, bool(batch.staged)) for batch in decode_batches(entry[2])] == [
        (harness.uid(name.decode()), True) for name in NAMES for _ in (0, 1)
    ]


def crash_behind(harness, entries):
    """Ask for a commit, and crash when so many of its entries are on the disk. Returns True if there were others."""
    harness.hold = True
    harness.send("commit", joint(harness))
    for _ in range(entries):
        if not harness.uncommitted:
            break
        harness._commit_entry(*harness.uncommitted.pop(0))
        assert seen(harness) in (rows(), nothing()), "somebody sees a part of it"
        harness.turn()
    more = len(harness.uncommitted)
    if more:
        del harness.logs[1][-more:]
    harness.hold = False
    harness.restart()
    return more > 0


@pytest.mark.parametrize("asked", [False, True])
def test_a_crash_at_any_entry_leaves_all_or_nothing(asked):
    entries, more = 0, True
    while more:
        harness = Transacting()
        harness.connect()
        stage_all(harness)
        more = crash_behind(harness, entries)
        assert seen(harness) in (rows(), nothing())
        if not asked:  # whoever leads carries out what is decided, without being asked
            harness.pass_time(3)
            assert seen(harness) == (rows() if entries else nothing())
        assert harness.request("commit", joint(harness)).error == b""
        assert seen(harness) == rows(), entries
        assert harness.transactions.under_way == {}
        entries += 1
    assert entries > 2


def test_state_on_disk_has_what_is_under_way(harness):
    """The rows of the state, loaded at any entry, are the state."""
    stage_all(harness)
    harness.hold = True
    harness.send("commit", joint(harness))
    while harness.uncommitted:
        machine = harness.follower()
        loaded = Transactions()
        for key in machine.transactions.keys():  # noqa: SIM118 - no mapping
            loaded.load(key, machine.transactions.row(key))
        assert loaded.under_way == machine.transactions.under_way
        harness._commit_entry(*harness.uncommitted.pop(0))
        harness.turn()
    assert seen(harness) == rows()


def test_channels_that_have_the_version_stay_as_they_are(harness):
    stage_all(harness)
    harness.commit_rows((b"bar.0", 2), channel=b"bar")
    answer = harness.request("commit", joint(harness))
    told = {one.channel: one.already for one in answer.more}
    assert (answer.error, answer.already, told) == (b"", False, {b"bar": True, b"baz": False})
    assert seen(harness) == rows()


@pytest.mark.parametrize("missing", NAMES)
def test_a_part_that_is_missing_refuses_all(harness, missing):
    stage_all(harness)
    harness.abort(b"%b.0" % missing, channel=missing)
    assert harness.request("commit", joint(harness)).error.decode() == refusals.STAGED_GONE
    assert not any(seen(harness).values())
    assert harness.publish("foo", b"next") == [""]


def test_an_abort_between_request_and_decision_refuses_all(harness):
    stage_all(harness)
    harness.hold = True
    harness.send("abort", ext.AbortRequest(channel=b"baz", txns=[b"baz.0"]))
    sent = harness.send("commit", joint(harness))
    harness.hold = False
    harness.turn()
    assert harness.answer(sent).error.decode() == refusals.STAGED_GONE
    assert not any(seen(harness).values())
    assert [harness.publish(name.decode(), b"next") for name in NAMES] == [[""]] * 3


def test_commits_with_channels_in_common_come_one_after_the_other(harness):
    """In whichever order they name the channels: those that come meanwhile are to come again, and none waits for ever."""
    names = [(b"foo", b"bar"), (b"bar", b"foo"), (b"baz", b"bar"), (b"foo", b"baz", b"bar"), (b"foo",)]
    for version, named in enumerate(names):
        stage_all(harness, version, named)
    harness.hold = True
    sent = [harness.send("commit", joint(harness, version, named)) for version, named in enumerate(names)]
    harness.hold = False
    harness.turn()
    answers = [harness.answer(one) for one in sent]
    assert [(one.error.decode(), one.retry) for one in answers] == [("", False)] + [(refusals.BUSY, True)] * 4
    for version, named in enumerate(names[1:], 1):
        assert harness.request("commit", joint(harness, version, named)).error == b""
    assert harness.visible("bar") == [b"bar-%d-%d" % (version, part) for version in range(4) for part in (0, 1)]
    assert harness.visible() == [b"foo-%d-%d" % (version, part) for version in (0, 1, 3, 4) for part in (0, 1)]


def test_a_request_for_one_channel_is_answered_by_the_joint_commit(harness):
    stage_all(harness)
    harness.hold = True
    all_of_them = harness.send("commit", joint(harness))
    one = harness.send("commit", harness.commit_request((b"bar.0", 2), channel=b"bar"))
    again = harness.send("commit", joint(harness, names=NAMES[::-1]))
    harness.hold = False
    harness.turn()
    assert answered(harness.answer(all_of_them)) == [b"bar", b"baz"]
    assert harness.answer(one) == ext.CommitResponse(first_sequence=1, last_sequence=2)
    assert answered(harness.answer(again)) == [b"bar", b"foo"]


@pytest.mark.parametrize("behind", range(4))
def test_a_channel_that_is_deleted_amid_it_does_not_hold_the_others(harness, behind):
    stage_all(harness)
    harness.hold = True
    sent = harness.send("commit", joint(harness))
    for _ in range(behind):
        if harness.uncommitted:
            harness._commit_entry(*harness.uncommitted.pop(0))
            harness.turn()
    harness.broker.parts.channels.removal.delete(harness.broker.parts.channels.by_name[b"baz"])
    harness.hold = False
    harness.turn()
    harness.pass_time(3)
    assert harness.answer(sent) is not None
    assert seen(harness, NAMES[:2]) in (rows(names=NAMES[:2]), nothing(NAMES[:2]))
    assert harness.transactions.under_way == {}
    assert [harness.publish(name.decode(), b"next") for name in NAMES[:2]] == [[""]] * 2


def test_what_names_too_much_or_wrongly_is_refused(harness):
    stage_all(harness)
    twice = joint(harness)
    twice.more.add(channel=b"foo")
    bad = joint(harness)
    bad.more.add(channel=b"no channel\n")
    many = joint(harness)
    for number in range(limits.COMMIT_CHANNELS_MAX):
        many.more.add(channel=b"c%d" % number)
    said = [harness.request("commit", one).error.decode() for one in (twice, bad, many)]
    assert said == [
        refusals.INVALID_TRANSACTION,
        refusals.INVALID_SUBJECT,
        refusals.TOO_MANY_COMMITTED.format(limits.COMMIT_CHANNELS_MAX),
    ]
    assert not any(seen(harness).values())

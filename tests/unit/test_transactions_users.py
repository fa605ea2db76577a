"""Whose an application's transactions, and a producer's ids, are: of the user who began them, whoever asks later."""

import pytest

from stan import errors
from stan.config import Config
from stan.core.state import state_codec as state_rows
from stan.core.state.group import GroupMachine
from stan.permissions import NatsUser, Permissions, Rule
from stan.protocol.frames import Frame
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.proto import extension_pb2 as ext
from tests.unit.test_core_batching import request as batch_of
from tests.unit.test_transactions import Transacting

NO = errors.APP_OF_ANOTHER.encode()


@pytest.fixture
def desk():
    users = tuple(NatsUser(name=name, nkey="U") for name in ("alice", "bob"))
    return Transacting(config=Config(permissions=Permissions([Rule()], users)))


def as_user(desk, user):
    desk.user = user
    return desk


def finish(desk, version, app=b"app"):
    return desk.request("finish", ext.FinishRequest(app=app, version=version))


def last(desk, app=b"app"):
    return desk.request("last_committed", ext.LastCommittedRequest(app=app))


def test_finished_version_is_of_the_user_who_began(desk):
    assert finish(as_user(desk, "alice"), 5).error == b""
    assert finish(as_user(desk, "bob"), 10**15).error == NO
    assert last(desk).error == NO
    desk.restart()
    assert finish(as_user(desk, "bob"), 10**15).error == NO
    assert last(as_user(desk, "alice")).version == 5


@pytest.mark.parametrize("committed", [False, True])
def test_app_in_a_channel_is_of_the_user_who_began(desk, committed):
    assert as_user(desk, "alice").stage(b"1", version=3).error == b""
    if committed:
        assert desk.commit_rows((b"t", 1), version=3).error == b""
    assert as_user(desk, "bob").stage(b"2", txn=b"other", version=4).error == NO
    assert desk.commit_rows(version=10**15).error == NO
    assert as_user(desk, "alice").commit_rows((b"t", 1), version=3).already is committed
    assert desk.stage(b"3", txn=b"u", version=4).error == b""
    assert desk.commit_rows((b"u", 1), version=4).error == b""
    assert desk.visible() == [b"1", b"3"]


def test_transactions_of_two_users_have_names_of_their_own(desk):
    for user, row in (("alice", b"a"), ("bob", b"b")):
        assert as_user(desk, user).stage(row, app=user.encode()).error == b""
    assert desk.abort(b"t").error == b""  # bob's alone
    assert desk.commit_rows((b"t", 1), app=b"bob").error == errors.STAGED_GONE.encode()
    assert as_user(desk, "alice").commit_rows((b"t", 1), app=b"alice").error == b""
    assert desk.visible() == [b"a"]


def test_who_waits_for_a_commit_of_another_user_is_not_told_that_his_is_done(desk):
    as_user(desk, "alice").stage(b"1")
    desk.hold = True
    his = desk.send("commit", desk.commit_request((b"t", 1)))
    others = as_user(desk, "bob").send("commit", desk.commit_request((b"t", 1)))
    desk.hold = False
    desk.turn()
    assert desk.answer(his).first_sequence == 1
    assert desk.answer(others).error == NO


def test_what_was_begun_before_there_were_users_is_of_who_comes_first(desk):
    assert finish(desk, 5).error == b""
    assert finish(as_user(desk, "alice"), 6).error == b""
    assert finish(as_user(desk, "bob"), 7).error == NO
    assert finish(as_user(desk, ""), 8).error == b""  # no users any more
    assert finish(as_user(desk, "bob"), 9).error == NO


def test_rows_tell_whose_they_are(desk):
    as_user(desk, "alice").stage(b"1", version=3)
    finish(desk, 5)
    snapshot, again = pb.Snapshot(), GroupMachine(1)
    state_rows.snapshot_group(desk.broker.context.groups[1].machine, snapshot)
    state_rows.restore_group(again, snapshot)
    again.transactions.dirty.clear()
    desk.transactions.dirty.clear()
    assert again.transactions == desk.transactions
    assert again.transactions.is_anothers(desk.uid(), b"app", b"bob")


def test_ids_of_a_producer_are_of_its_user(desk):
    def send(user):
        desk.inboxes += 1
        reply = f"_STAN.to.{user}._INBOX.{desk.inboxes}"
        payload = batch_of(b"x", ids=[1], version=7).SerializeToString()
        desk.broker.routes["_STAN.x.test-cluster.batch"](Frame(20, b"x", reply.encode(), b"", payload))
        desk.turn()
        return ext.BatchResponse.FromString(desk.hear(reply)[0].payload).duplicates

    assert [send(user) for user in ("bob", "alice", "alice")] == [0, 0, 1]

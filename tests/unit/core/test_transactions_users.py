"""Whose an application's transactions, and a producer's ids, are: of the user who began them, whoever asks later."""

import pytest
from stan_protocol import refusals
from stan_protocol.frames import Frame
from stan_protocol.proto import extension_pb2 as ext

from stan.config import Config
from stan.permissions import NatsUser, Permissions, Rule
from tests.unit.core.test_core_batching import request as batch_of
from tests.unit.core.test_transactions import Transacting

NO = refusals.APP_OF_ANOTHER.encode()


@pytest.fixture
def harness():
    users = tuple(NatsUser(name=name, nkey="U") for name in ("alice", "bob"))
    return Transacting(config=Config(permissions=Permissions([Rule()], users)))


def as_user(harness, user):
    harness.user = user
    return harness


def finish(harness, version, app=b"app"):
    return harness.request("finish", ext.FinishRequest(app=app, version=version))


def last(harness, app=b"app"):
    return harness.request("last_committed", ext.LastCommittedRequest(app=app))


def test_finished_version_is_of_the_user_who_began(harness):
    assert finish(as_user(harness, "alice"), 5).error == b""
    assert finish(as_user(harness, "bob"), 10**15).error == NO
    assert last(harness).error == NO
    harness.restart()
    assert finish(as_user(harness, "bob"), 10**15).error == NO
    assert last(as_user(harness, "alice")).version == 5


@pytest.mark.parametrize("committed", [False, True])
def test_app_in_a_channel_is_of_the_user_who_began(harness, committed):
    assert as_user(harness, "alice").stage(b"1", version=3).error == b""
    if committed:
        assert harness.commit_rows((b"t", 1), version=3).error == b""
    assert as_user(harness, "bob").stage(b"2", txn=b"other", version=4).error == NO
    assert harness.commit_rows(version=10**15).error == NO
    assert as_user(harness, "alice").commit_rows((b"t", 1), version=3).already is committed
    assert harness.stage(b"3", txn=b"u", version=4).error == b""
    assert harness.commit_rows((b"u", 1), version=4).error == b""
    assert harness.visible() == [b"1", b"3"]


def test_transactions_of_two_users_have_names_of_their_own(harness):
    for user, row in (("alice", b"a"), ("bob", b"b")):
        assert as_user(harness, user).stage(row, app=user.encode()).error == b""
    assert harness.abort(b"t").error == b""  # bob's alone
    assert harness.commit_rows((b"t", 1), app=b"bob").error == refusals.STAGED_GONE.encode()
    assert as_user(harness, "alice").commit_rows((b"t", 1), app=b"alice").error == b""
    assert harness.visible() == [b"a"]


def test_who_waits_for_a_commit_of_another_user_is_not_told_that_his_is_done(harness):
    as_user(harness, "alice").stage(b"1")
    harness.hold = True
    his = harness.send("commit", harness.commit_request((b"t", 1)))
    others = as_user(harness, "bob").send("commit", harness.commit_request((b"t", 1)))
    harness.hold = False
    harness.turn()
    assert harness.answer(his).first_sequence == 1
    assert harness.answer(others).error == NO


def test_what_was_begun_before_there_were_users_is_of_who_comes_first(harness):
    assert finish(harness, 5).error == b""
    assert finish(as_user(harness, "alice"), 6).error == b""
    assert finish(as_user(harness, "bob"), 7).error == NO
    assert finish(as_user(harness, ""), 8).error == b""  # no users any more
    assert finish(as_user(harness, "bob"), 9).error == NO


def test_rows_tell_whose_they_are(harness):
    as_user(harness, "alice").stage(b"1", version=3)
    finish(harness, 5)
    known, again = harness.transactions, harness.state.copy().transactions
    again.dirty.clear()
    known.dirty.clear()
    assert again == known
    assert again.is_anothers(harness.uid(), b"app", b"bob")


def test_ids_of_a_producer_are_of_its_user(harness):
    def send(user):
        harness.inboxes += 1
        reply = f"_STAN.to.{user}._INBOX.{harness.inboxes}"
        payload = batch_of(b"x", ids=[1], version=7).SerializeToString()
        harness.broker.frames.routes["_STAN.x.test-cluster.batch"](Frame(20, b"x", reply.encode(), b"", payload))
        harness.turn()
        return ext.BatchResponse.FromString(harness.hear(reply)[0].payload).duplicates

    assert [send(user) for user in ("bob", "alice", "alice")] == [0, 0, 1]

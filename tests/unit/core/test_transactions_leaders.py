"""Transactions when the leader of the group changes: nobody is answered wrongly, what is decided is carried out."""

import pytest
from stan_protocol import refusals
from stan_protocol.commits import commit_request
from stan_protocol.proto import extension_pb2 as ext

from tests.kit.batches import rows_of
from tests.kit.core_harness import Node, pub_frame

X = "_STAN.x.test-cluster"
STAGE = ext.StageRequest(app=b"app", txn=b"t", channel=b"foo", count=2, rows=rows_of([b"a", b"b"]))
COMMIT = commit_request(b"app", 0, {b"foo": [(b"t", 1)]})


@pytest.fixture
def node():
    """The leader of the group, with a staged part."""
    node = Node()
    node.feed_client()
    node.feed_channel()
    node.lead()
    assert node.ask(f"{X}.stage", STAGE, ext.StageResponse) == ext.StageResponse()
    return node


def under_way(node):
    return node.follower().transactions.under_way


def send_commit(node, reply):
    node.hears(node.request(f"{X}.commit", COMMIT, reply))


def commit(node):
    return node.ask(f"{X}.commit", COMMIT, ext.CommitResponse)


def test_who_does_not_lead_is_silent(node):
    node.follow()
    assert node.ask(f"{X}.stage", STAGE, ext.StageResponse) is None
    assert commit(node) is None
    assert node.ask(f"{X}.finish", ext.FinishRequest(app=b"app"), ext.FinishResponse) is None


def test_leader_without_lease_says_nothing_but_come_again(node):
    node.broker.stops.step_lease(1, holds=False)
    for kind, request, response in (
        ("stage", STAGE, ext.StageResponse),
        (
            "commit",
            commit_request(b"app", 0, {b"foo": [(b"x", 1)]}),
            ext.CommitResponse,
        ),
        ("last_committed", ext.LastCommittedRequest(app=b"app"), ext.LastCommittedResponse),
    ):
        answer = node.ask(f"{X}.{kind}", request, response)
        assert (answer.error.decode(), answer.retry) == (refusals.BUSY, True)


def test_request_that_is_none_is_refused_by_the_leader_of_the_metadata(node):
    assert node.ask(f"{X}.commit", b"\xff", ext.CommitResponse) is None
    node.lead(0)
    assert node.ask(f"{X}.commit", b"\xff", ext.CommitResponse).error.decode() == refusals.INVALID_TRANSACTION


def test_decided_commit_is_carried_out_by_the_next_leader(node):
    node.hold = True
    send_commit(node, "first")
    node.commit()  # the decision
    node.turn()  # its first step is on its way
    assert list(under_way(node))
    assert node.uncommitted
    node.follow()
    node.hold = False
    node.turn()
    assert node.stored() == []
    node.lead()
    assert node.stored() == [b"a", b"b"]
    assert under_way(node) == {}
    assert node.hear("first") == []
    assert commit(node) == ext.CommitResponse(already=True, first_sequence=1, last_sequence=2)
    assert node.publish("foo", b"c") == [""]
    assert node.stored() == [b"a", b"b", b"c"]


def test_decision_that_did_not_get_into_the_log_is_none(node):
    node.hold = True
    send_commit(node, "first")
    node.follow()
    node.hold = False
    node.lead()
    assert node.stored() == []
    assert commit(node) == ext.CommitResponse(first_sequence=1, last_sequence=2)
    assert node.hear("first") == []


def test_commit_goes_on_once_the_metadata_tells_of_its_channel(node):
    node.hold = True
    send_commit(node, "first")
    node.commit()
    other = Node()
    for group, kind, body in node.committed:
        if group == 1:
            other.feed(group, kind, body)
    other.lead()
    assert len(under_way(other)) == 1
    other.pass_time(1)
    assert len(under_way(other)) == 1
    other.feed_channel()
    other.pass_time(1)
    assert other.stored() == [b"a", b"b"]
    assert under_way(other) == {}


def test_publishes_go_on_if_nobody_tells_what_became_of_the_decision(node):
    """The disk was full and another leader was looked for in vain."""
    node.in_doubt = True
    send_commit(node, "first")
    node.in_doubt = False
    node.hears(pub_frame("foo", "g1", b"next"))
    assert node.pub_acks() == [""]
    assert node.hear("first") == []
    assert commit(node) == ext.CommitResponse(first_sequence=2, last_sequence=3)


def test_followers_see_a_commit_when_it_is_whole(node):
    """What a copy of the group shows to readers, entry by entry."""
    for part in range(1, 4):
        more = ext.StageRequest(app=b"app", txn=b"t", part=part, channel=b"foo", count=1, rows=rows_of([b"c"]))
        node.ask(f"{X}.stage", more, ext.StageResponse)
    request = commit_request(b"app", 0, {b"foo": [(b"t", 4)]})
    assert node.ask(f"{X}.commit", request, ext.CommitResponse).last_sequence == 5
    copy = Node()
    copy.feed_channel()
    seen = []
    for group, kind, body in node.committed:
        if group == 1:
            copy.feed(group, kind, body)
            seen.append(copy.broker.view.indexes(1, 1).last_sequence)
    assert seen[-3:] == [0, 0, 5]

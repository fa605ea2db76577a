"""What a node reports to the leader of subscriptions that the log gives to it."""

import pytest
from stan_protocol.scalars import SECOND

from stan import limits
from stan.core.clients.nodes import HeardNodes
from stan.protocol.entries import Kind
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.proto.node_pb2 import ServingAnswer, ServingReport
from tests.kit.batches import batch
from tests.kit.core_harness import CoreHarness, Node

ME = "n1"
THIS_LIFE, EARLIER_LIFE = 5, 4
SERVING = "_STAN.node.test-cluster.serving"


@pytest.fixture
def node():
    """A follower that has a copy of the channel `foo`, and knows of one plain subscription."""
    made = Node()
    made.broker.cluster.join(ME, (), HeardNodes(instance=lambda: THIS_LIFE))
    client = made.feed_client()
    made.feed_channel()
    subscribe = pb.Subscribe(
        uid=1,
        client_id=b"me",
        incarnation=client,
        inbox=b"in",
        start_sequence=1,
        max_in_flight=10,
        ack_wait_s=30,
        nuid=b"NUID",
        replica=b"any",
    )
    feed(made, subscribe=subscribe)
    return made


def feed(node, **change):
    node.feed_group(**change)
    node.turn()


def serve(node, instance):
    cursor = node.state.position()
    feed(node, serve=pb.Serve(node=ME.encode(), instance=instance, cursor_ids=[cursor.cursor_id]))


def reports(node, answer=None):
    """What was reported since the last call, each answered if there is an *answer*."""
    said = node.hear(SERVING)
    for one in said if answer is not None else ():
        body = answer.SerializeToString()
        node.hears(b"MSG %b 3 %d\r\n%b\r\n" % (one.reply.encode(), len(body), body))
    return [ServingReport.FromString(one.payload) for one in said]


def test_the_leader_hears_at_once_that_what_an_earlier_life_was_given_is_not_served(node) -> None:
    """Once it had to wait until the lease was over, each new leader anew: acks came to nobody meanwhile."""
    serve(node, EARLIER_LIFE)
    assert [one.instance for one in reports(node)] == [THIS_LIFE]
    node.pass_time(2 * limits.SERVING_ANSWER_WAIT / SECOND)
    assert reports(node), "until nothing is given to it any more"


def test_a_node_whose_copy_says_that_it_serves_reports_when_it_goes_on(node) -> None:
    serve(node, EARLIER_LIFE)
    again = Node()
    again.broker.cluster.join(ME, (), HeardNodes(instance=lambda: THIS_LIFE))
    for index, kind, body in node.logs[0]:
        again.broker.states.replay_entry(0, index, kind, body)
    for index, kind, body in node.logs[1]:
        again.broker.states.replay_entry(1, index, kind, body)
    again.broker.start(again.now, again.wall)
    again.turn()
    assert [(one.node, one.instance) for one in reports(again)] == [(ME, THIS_LIFE)]


def test_what_was_sent_last_is_reported_when_the_subscription_has_ended(node) -> None:
    """Of a redelivery there was no record if its subscription, the only one that the node served, ended soon after."""
    granted = ServingAnswer(granted=True, taken=True)
    serve(node, THIS_LIFE)
    assert reports(node, granted)
    node.feed(1, Kind.RECORDS, batch(1, 1, 1))
    node.turn()
    assert node.hear("in")
    cursor = node.state.position()
    feed(node, leave=pb.Leave(subscription_id=cursor.members[0].subscription_id))
    node.pass_time(limits.SERVING_REPORT_INTERVAL / SECOND)
    (report,) = reports(node, granted)
    (progress,) = pb.GroupChange.FromString(report.progress).progress
    assert [list(sent.runs) for sent in progress.sent] == [[1, 1]]
    node.pass_time(3)
    assert reports(node) == [], "nothing is served, and all is told"


def test_a_server_that_runs_alone_reports_to_nobody() -> None:
    """It has no name, like the leader in what the log says of who serves."""
    alone = CoreHarness()
    alone.connect()
    alone.subscribe("foo")
    alone.restart()
    alone.pass_time(2)
    assert alone.hear(SERVING) == []

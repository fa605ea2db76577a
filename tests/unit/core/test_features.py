"""The broker without one of its features, and without all of them: what a STAN server does, it still does."""

import pytest

from stan.core.broker.parts import FEATURES
from stan.core.requests.table import REQUESTS
from tests.kit.core_harness import CoreHarness, Node

PREFIX = "_STAN.x.test-cluster."


def names(features):
    return ", ".join(feature.__name__ for feature in features) or "none"


WITHOUT = [(), *(tuple(one for one in FEATURES if one is not gone) for gone in FEATURES)]


@pytest.fixture(params=WITHOUT, ids=names)
def features(request):
    return request.param


def test_a_server_publishes_delivers_redelivers_and_goes_on_after_a_restart(features):
    harness = CoreHarness(features=features)
    harness.connect()
    durable = harness.subscribe("foo", durable="d", wait=1).ack_inbox
    assert harness.publish("foo", b"1", b"2", b"3") == ["", "", ""]
    assert harness.received() == [(1, 0), (2, 0), (3, 0)]
    harness.ack(durable, 1, 3)
    harness.pass_time(1.5)
    assert harness.received() == [(2, 1)]
    harness.restart()
    assert harness.publish("foo", b"4") == [""]
    harness.pass_time(1.5)
    assert {sequence for sequence, _ in harness.received()} == {2, 4}
    assert harness.leave("foo", durable).error == b""
    assert harness.close().error == b""


def test_a_node_of_a_cluster_takes_over_and_hands_over(features):
    node = Node(features=features)
    node.lead(0, 1)
    node.feed_client()
    node.publish("foo", b"1")
    node.follow(1)
    node.lead(1)
    node.publish("foo", b"2")
    node.pass_time(2)
    assert node.stored() == [b"1", b"2"]


def test_each_request_of_the_table_belongs_to_the_broker_one_feature_or_the_edge():
    of_features = [name for kind in FEATURES for name in requests_of(kind)]
    assert len(of_features) == len(set(of_features))
    assert set(of_features) < REQUESTS.keys()


def requests_of(kind):
    """The requests that a broker answers with one feature, and does not answer with none."""
    with_it, without = (CoreHarness(features=features).broker.frames.routes.keys() for features in ((kind,), ()))
    return [subject.removeprefix(PREFIX) for subject in with_it - without]

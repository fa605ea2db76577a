"""Fixtures of the core's tests: a broker with one client, and the leader of a cluster with a client and a channel."""

import pytest

from tests.kit.core_harness import CoreHarness, Node


@pytest.fixture
def harness():
    """A broker by itself, to which the client `me` is connected."""
    harness = CoreHarness()
    harness.connect()
    return harness


@pytest.fixture
def node():
    """A node of a cluster that knows one client and one channel, and leads nothing yet."""
    made = Node()
    made.feed_client()
    made.feed_channel()
    return made

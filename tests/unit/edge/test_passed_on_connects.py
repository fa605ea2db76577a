"""Connects that came to a node before NATS had a route to the leader's: it publishes them once more, and nobody does so again."""

from stan import limits
from stan.config import ClusterConfig, Config
from stan.core.broker.broker import Broker
from stan.edge.nats.gateway import Gateway
from stan.edge.nats.subscriptions import FIRST_REQUEST_SID
from stan.protocol.frames import Frame
from stan.protocol.kernel import client as client_kernel
from stan.protocol.proto import wire_pb2 as wire
from stan.types import SECOND, Nanos, WallNanos
from tests.kit.core_harness import Index
from tests.unit.edge.test_gateway import Link

DISCOVER = b"_STAN.discover.test-cluster"


class Node:
    """The gateway of a node that leads nothing."""

    def __init__(self):
        config = Config(cluster=ClusterConfig(node_id="n1", peers=("n1", "n2", "n3")))
        self.gateway = Gateway(Broker(config, lambda *_: Index(), b"_INBOX.n."), "_INBOX.x.>", lambda *_: None)
        self.gateway.read_buffer.wake = lambda: None
        self.gateway.connection = self.link = Link()
        self.now = SECOND
        self.passes(0)

    def passes(self, nanos):
        self.now += nanos
        self.gateway.broker.tick(Nanos(self.now), WallNanos(self.now))

    def receives(self, *connects):
        self.gateway.read_buffer.on_data(b"".join(connects))
        self.gateway.take_in()

    def meets(self, node):
        """The connects that are published when another node is heard, as NATS brings them to the nodes."""
        self.link.written = b""
        self.gateway.meet(node)
        return self.link.written.replace(b"PUB %b " % DISCOVER, b"MSG %b %d " % (DISCOVER, self.sid))

    @property
    def sid(self):
        return FIRST_REQUEST_SID + list(self.gateway.broker.requests).index(DISCOVER)

    def connect(self, client_id, conn_id=b"1"):
        asked = wire.ConnectRequest(client_id=client_id, heartbeat_inbox=b"_INBOX.hb", conn_id=conn_id, protocol=1)
        return Frame(self.sid, DISCOVER, b"_INBOX.answer", b"", asked.SerializeToString()).encoded()


def connects(frames):
    """Client ids and connection ids of connects."""
    found = [wire.ConnectRequest.FromString(frame.payload) for frame in client_kernel.split(frames, 0)[1]]
    return [(one.client_id, one.conn_id) for one in found]


def test_the_newest_connect_of_each_client_is_published_for_a_node_that_is_met():
    node = Node()
    node.receives(node.connect(b"a"), node.connect(b"b"), node.connect(b"a", b"2"))
    assert connects(node.meets("n2")) == [(b"a", b"2"), (b"b", b"1")]


def test_a_connect_that_a_node_has_published_is_published_by_no_other():
    node, other = Node(), Node()
    node.receives(node.connect(b"a"))
    other.receives(node.meets("n2"))
    assert other.meets("n1") == b""


def test_a_node_that_has_been_known_for_long_gets_nothing():
    node = Node()
    node.meets("n2")
    node.passes(limits.REPLAY_REQUEST_AGE_MAX + 1)
    node.receives(node.connect(b"a"))
    assert node.meets("n2") == b""


def test_what_is_no_connect_is_passed_over():
    node = Node()
    node.receives(Frame(node.sid, DISCOVER, b"_INBOX.answer", b"", b"\xff").encoded(), node.connect(b"a"))
    assert connects(node.meets("n2")) == [(b"a", b"1")]

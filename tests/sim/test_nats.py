"""The simulated NATS keeps the promises of the real one, and no more."""

import pytest
from stan_protocol.scalars import MILLISECOND, SECOND

from stan.testing.loop import Loop
from stan.testing.nats import NodePort, SimNats
from tests.sim.client_port import ClientPort


class Received:
    """A node's end: what it read, as text."""

    def __init__(self):
        self.ups = self.downs = 0
        self.read = b""

    def on_up(self):
        self.ups += 1

    def on_down(self):
        self.downs += 1

    def on_data(self, data):
        self.read += data

    def payloads(self):
        return self.read.split(b"\r\n")[1::2]


@pytest.fixture
def loop():
    return Loop(1)


def node(nats, name, subject, server=0):
    port = NodePort(nats, name, Received(), server)
    port.subscriptions = {7: subject}
    port.connect()
    return port


def client(nats, name, server=0):
    port = ClientPort(nats, name, server)
    port.connect()
    return port


def test_every_subscriber_gets_each_publishers_messages_in_order(loop):
    nats = SimNats(loop, servers=2)
    nodes = [node(nats, "n0", "_STAN.pub.c.>"), node(nats, "n1", "_STAN.pub.*.a", server=1)]
    writers = [client(nats, "w0"), client(nats, "w1", server=1)]
    for number in range(50):
        for at, writer in enumerate(writers):
            writer.publish("_STAN.pub.c.a", b"%d-%02d" % (at, number))
        loop.run_until(loop.now + 300_000)
    loop.run_until(loop.now + SECOND)

    orders = [port.read_buffer.payloads() for port in nodes]
    for order in orders:
        assert [value for value in order if value.startswith(b"0")] == [b"0-%02d" % n for n in range(50)]
        assert [value for value in order if value.startswith(b"1")] == [b"1-%02d" % n for n in range(50)]
    assert orders[0] != orders[1]


def test_a_request_of_a_node_to_nobody_gets_a_503(loop):
    nats = SimNats(loop)
    port = node(nats, "n0", "_INBOX.n0.*")
    port.write(b"PUB hb.gone _INBOX.n0.1 0\r\n\r\n")
    loop.run_until(loop.now + SECOND)
    assert port.read_buffer.read == b"HMSG _INBOX.n0.1 7 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"


def test_what_is_on_the_way_when_a_connection_breaks_is_lost(loop):
    nats = SimNats(loop)
    port, writer = node(nats, "n0", "a"), client(nats, "w")
    writer.publish("a", b"1")
    port.cut()
    assert not port.write(b"PUB a 1\r\nx\r\n")
    loop.run_until(loop.now + SECOND)
    port.connect()
    writer.publish("a", b"2")
    loop.run_until(loop.now + SECOND)
    assert port.read_buffer.payloads() == [b"2"]
    assert (port.read_buffer.ups, port.read_buffer.downs) == (2, 1)


def test_what_a_client_sends_while_it_is_cut_off_leaves_later(loop):
    nats = SimNats(loop)
    port, writer = node(nats, "n0", "a"), client(nats, "w")
    writer.cut()
    writer.publish("a", b"1")
    writer.connect()
    loop.run_until(loop.now + SECOND)
    assert port.read_buffer.payloads() == [b"1"]


def test_servers_without_a_route_do_not_reach_each_other(loop):
    nats = SimNats(loop, servers=3)
    near, far = node(nats, "n0", "a"), node(nats, "n1", "a", server=2)
    writer = client(nats, "w", server=1)
    nats.partition([[0, 1], [2]])
    writer.publish("a", b"1")
    loop.run_until(loop.now + SECOND)
    nats.heal()
    writer.publish("a", b"2")
    loop.run_until(loop.now + SECOND)
    assert near.read_buffer.payloads() == [b"1", b"2"]
    assert far.read_buffer.payloads() == [b"2"]


def test_raft_frames_of_one_direction_can_be_lost(loop):
    nats = SimNats(loop)
    ports = [node(nats, name, f"_STAN.raft.c.{name}.*") for name in ("n0", "n1")]
    nats.deaf["n0", "n1"] = None
    ports[0].write(b"PUB _STAN.raft.c.n1.n0 1\r\nx\r\n")
    ports[1].write(b"PUB _STAN.raft.c.n0.n1 1\r\ny\r\n")
    loop.run_until(loop.now + SECOND)
    assert [port.read_buffer.payloads() for port in ports] == [[b"y"], []]


def test_a_clogged_connection_is_slow_and_keeps_the_order(loop):
    nats = SimNats(loop)
    port, writer = node(nats, "n0", "a"), client(nats, "w")
    writer.slow_down(300 * MILLISECOND)
    writer.publish("a", b"1")
    loop.run_until(loop.now + 100 * MILLISECOND)
    writer.slow_down(0)
    writer.publish("a", b"2")
    loop.run_until(loop.now + 100 * MILLISECOND)
    assert port.read_buffer.payloads() == []
    loop.run_until(loop.now + 200 * MILLISECOND)
    assert port.read_buffer.payloads() == [b"1", b"2"]


def test_a_node_that_does_not_read_gets_it_all_later(loop):
    nats = SimNats(loop)
    port, writer = node(nats, "n0", "a"), client(nats, "w")
    port.hold_reading(True)  # noqa: FBT003
    writer.publish("a", b"1")
    loop.run_until(loop.now + SECOND)
    assert port.read_buffer.payloads() == []
    port.hold_reading(False)  # noqa: FBT003
    assert port.read_buffer.payloads() == [b"1"]

"""The gateway: what NATS would not take is not written, what it sends is not trusted."""

from stan.config import Config
from stan.core.broker import Broker
from stan.core.ready import Delivery
from stan.edge.gateway import Gateway
from stan.protocol import client_kernel, kernel


class Link:
    """A connection that remembers what was written."""

    def __init__(self):
        self.written = b""
        self.broken = False
        self.up = True

    def write(self, data):
        self.written += data
        return True

    def break_off(self):
        self.broken = True


def gateway():
    notes = []
    made = Gateway(Broker(Config(), lambda *_: None, b"_INBOX.n."), "_INBOX.x.>", lambda *note: notes.append(note))
    made.wake = lambda: None
    made.connection = Link()
    return made, notes


def records(*sizes):
    bodies = b"".join(
        (len(field := b"\x22" + varint(size) + b"x" * size)).to_bytes(4, "little") + field for size in sizes
    )
    return kernel.seal(b"foo", 1, 1, [bodies])


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def sent(link):
    _, frames = client_kernel.split(link.written.replace(b"PUB in ", b"MSG in 1 "), 0)
    return [client_kernel.decode_message(frame.payload)[0] for frame in frames]


def test_stored_messages_above_a_lowered_payload_limit_are_left_out_and_the_rest_is_sent():
    made, _ = gateway()
    made.broker.shared.payload_bytes_max = 1000
    batch = records(10, 2000, 20, 30, 5000)
    made.send([Delivery(b"in", batch, 1, 1, 5, 0, 1)])
    assert sent(made.connection) == [1, 3, 4]

    made.connection.written = b""
    made.send([Delivery(b"in", batch, 1, 2, 2, 1, 1), b"", Delivery(b"in", batch, 1, 4, 5, 0, 1)])
    assert sent(made.connection) == [4]


def test_messages_within_the_limit_are_sent_whole():
    made, _ = gateway()
    made.send([Delivery(b"in", records(10, 20, 30), 1, 2, 3, 0, 1)])

    assert sent(made.connection) == [2, 3]


def test_garbage_from_nats_breaks_the_connection_off_and_says_so():
    made, notes = gateway()
    made.on_data(b"HELLO world\r\n")
    made.take_in()

    assert made.connection.broken
    assert notes[0][0] == "ERR"


def test_half_a_frame_waits_for_its_rest_but_not_over_a_lost_connection():
    made, notes = gateway()
    made.on_data(b"PI")
    made.take_in()
    made.on_data(b"NG\r\n")
    made.take_in()
    assert made.connection.written == b"PONG\r\n"

    made.on_data(b"PI")
    made.on_down()
    made.on_data(b"PING\r\n")
    made.take_in()
    assert made.connection.written == b"PONG\r\nPONG\r\n"
    assert not made.connection.broken
    assert not notes

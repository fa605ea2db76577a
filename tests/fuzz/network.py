"""Parsers of what other machines send: clients, other nodes, and servers as a client sees them."""

import random
from collections.abc import Iterator
from functools import partial

from google.protobuf.message import DecodeError
from stan_protocol.commits import commit_request
from stan_protocol.frames import Frame
from stan_protocol.kernel import client_py, rows_py, wire_py
from stan_protocol.proto import extension_pb2 as ext
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan.core.boundary.fetches import FetchRequest, locate
from stan.edge.cluster.membership import Membership
from stan.edge.storage.transfer_codec import Header, Offer, OfferedSegment, decode, encode
from stan.errors import Damage
from stan.log.types import Entry
from stan.protocol.kernel import server_py
from stan.protocol.proto import node_pb2
from stan.raft.transport import codec
from stan.raft.transport.codec import FrameError
from stan.raft.transport.link import Link
from tests.fuzz.engine import Parser
from tests.kit.batches import rows_of
from tests.kit.core_harness import CoreHarness, Node, pub_frame

YES, NO = True, False
PREFIX = b"_STAN.pub.test-cluster."


def _frame(subject: bytes, sid: int, payload: bytes, reply: bytes = b"") -> bytes:
    return b"MSG %b %d %b%d\r\n%b\r\n" % (subject, sid, reply + b" " if reply else b"", len(payload), payload)


PUBLISH = wire.PubMsg(client_id=b"me", guid=b"g1", subject=b"foo", data=b"hello", conn_id=b"conn").SerializeToString()
ACK = wire.Ack(subject=b"foo", sequence=7).SerializeToString()
MESSAGE = wire.MsgProto(sequence=7, subject=b"foo", data=b"hello", timestamp=5, redelivered=True).SerializeToString()
STREAMS = (
    _frame(PREFIX + b"foo", 1, PUBLISH, b"r") * 3 + _frame(b"_INBOX.NUID.1.4", 2, ACK) * 2,
    _frame(b"in", 3, MESSAGE) + b"PING\r\n+OK\r\nINFO {}\r\n-ERR 'x'\r\n",
    b"HMSG a 3 r 12 17\r\nNATS/1.0\r\n\r\nhello\r\n" + _frame(PREFIX + b"foo.bar", 1, PUBLISH),
)
WORDS = (b"\r\n", b"MSG ", b"HMSG ", b" 1 ", b"PING\r\n", b"99999999999999999999", b"\x00", b"-1")


def _twins(name: str) -> Iterator[tuple[str, object]]:
    """Both twins of a kernel's half."""
    plain = {"server": server_py, "client": client_py, "rows": rows_py}[name]
    yield "python", plain
    compiled = {"server": "_stan_kernel", "client": "_stan_client_kernel", "rows": "_stan_rows_kernel"}[name]
    try:
        yield "compiled", __import__(compiled)
    except ImportError:
        return


def kernels() -> Iterator[Parser]:
    """The batch kernels, in both languages."""
    for twin, server in _twins("server"):
        yield Parser(
            f"frames of a broker's connection, {twin}",
            STREAMS,
            lambda data, server=server: server.scan(data, 0, 1, 2, PREFIX, keyed=YES),
            (ValueError,),
            WORDS,
        )
    for twin, client in _twins("client"):
        yield Parser(
            f"frames of a client's connection, {twin}",
            STREAMS,
            lambda data, client=client: client.absorb(data, 0, 2, {3: (b"ack", b"foo")}),
            (ValueError,),
            WORDS,
        )
        yield Parser(
            f"messages and acks for a client, {twin}",
            (MESSAGE, wire.PubAck(guid=b"g", error=b"no").SerializeToString()),
            lambda data, client=client: (client.decode_message(data), client.decode_puback(data)),
            (ValueError,),
        )
    for twin, rows in _twins("rows"):
        good = rows_of([b"one", b"two", b""])
        packed = len(MESSAGE).to_bytes(4, "little") + MESSAGE
        yield Parser(
            f"rows of a batch, {twin}", (good,), lambda data, rows=rows: rows.check_rows(data, 3), (ValueError,)
        )
        yield Parser(
            f"records as columns, {twin}", (packed * 2,), lambda data, rows=rows: rows.columns(data, 2), (ValueError,)
        )
    yield Parser("protobuf fields", (PUBLISH, MESSAGE), wire_py.read_fields, (ValueError,))


# --- between nodes ----------------------------------------------------------------------------------------------------------


def between_nodes() -> Iterator[Parser]:
    """What nodes of a cluster say to each other."""
    entries = [Entry(8, 3, 1, b"body"), Entry(9, 3, 2, b"")]
    said = [
        codec.AppendEntries(3, 7, 7, 2, 5, entries),
        codec.AppendAnswer(3, 5, 9, NO, NO, YES),
        codec.VoteRequest(4, 9, 3, YES, NO),
        codec.VoteAnswer(4, YES, NO),
        codec.TimeoutNow(4),
        codec.Readmit(4, 9),
    ]
    frames = [b"".join(codec.encode(1, message)) for message in said]
    beats = [codec.short(group, codec.heartbeat(3, 7, 2, 5)) for group in (1, 2)]
    frames.append(b"".join(codec.bundle(beats[0][0], [part for _, part in beats])))
    yield Parser(
        "messages of groups", [*frames, b"".join(frames)], lambda data: list(codec.decode(data)), (FrameError,)
    )

    def links() -> tuple[Link, list[bytes]]:
        a, b = Link(random.Random(1), 0), Link(random.Random(2), 0)
        made = []
        for turn in range(4):
            for one, other in ((a, b), (b, a)):
                for frame in one.frames(b"content" * turn, turn):
                    made.append(frame)
                    other.accept(frame, turn)
        return b, made

    link, made = links()
    yield Parser("frames of a link", made, lambda data: link.accept(data, 1), (FrameError,))
    offer = Offer(1, 9, 3, 5, 100, (OfferedSegment(1, 4096, 0), OfferedSegment(6, 4096, 1))).encode()
    words = Header(*(1 for _ in Header._fields))
    yield Parser("words of a transfer", (encode(words, offer), encode(words)), decode)
    yield Parser("offers of a transfer", (offer,), Offer.decode, (Damage,))
    hello = node_pb2.NodeHello(cluster_id=b"test-cluster", node="n1", voters=["n1", "n2", "n3"])
    other = node_pb2.NodeHello()
    other.CopyFrom(hello)
    other.node = "n2"
    membership = Membership(hello, 0, random.Random(1))
    yield Parser(
        "hellos of nodes",
        (hello.SerializeToString(), other.SerializeToString()),
        lambda data: (membership.receive(data, SECOND), membership.take_notes()),
    )


# --- requests ---------------------------------------------------------------------------------------------------------------


def _requests() -> dict[str, list[bytes]]:
    """Good requests, by subject."""
    rows = rows_of([b"one", b"two"])
    made = {
        "_STAN.discover.test-cluster": [
            wire.ConnectRequest(client_id=b"a", heartbeat_inbox=b"hb", protocol=1, conn_id=b"c")
        ],
        "_STAN.discover.test-cluster.pings": [wire.Ping(conn_id=b"conn-me")],
        "_STAN.close.test-cluster": [wire.CloseRequest(client_id=b"nobody")],
        "_STAN.sub.test-cluster": [
            wire.SubscriptionRequest(
                client_id=b"me",
                subject=b"foo",
                inbox=b"in",
                max_in_flight=5,
                ack_wait_s=30,
                durable_name=b"d",
                start_position=4,
            )
        ],
        "_STAN.unsub.test-cluster": [wire.UnsubscribeRequest(client_id=b"me", subject=b"foo", inbox=b"ack")],
        "_STAN.subclose.test-cluster": [wire.UnsubscribeRequest(client_id=b"me", subject=b"foo", inbox=b"ack")],
        "batch": [ext.BatchRequest(channel=b"foo", count=2, producer=b"p", version=1, ids=bytes(32), rows=rows)],
        "stage": [ext.StageRequest(app=b"a", version=1, txn=b"t", channel=b"foo", count=2, rows=rows)],
        "commit": [commit_request(b"a", 1, {b"foo": [(b"t", 1)]})],
        "abort": [ext.AbortRequest(channel=b"foo", txns=[b"t"])],
        "finish": [ext.FinishRequest(app=b"a", version=1)],
        "last_committed": [ext.LastCommittedRequest(app=b"a")],
        "info": [
            ext.InfoRequest(channels=[b"foo"], pattern=b">", newer_than=[ext.Position(channel=b"foo", sequence=1)])
        ],
        "seq_at_time": [ext.SeqAtTimeRequest(channel=b"foo", time=5)],
        "cursor_set": [ext.CursorSetRequest(name=b"n", channel=b"foo", sequence=2)],
        "cursors": [ext.CursorsRequest(name=b"n")],
    }
    return {subject: [message.SerializeToString() for message in good] for subject, good in made.items()}


class _Asked:
    """A broker that is asked, and made anew now and then: random subscriptions and channels add up."""

    LIFE = 2000
    TURN = 16
    """Requests that are heard in one turn."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._left = 0

    def __call__(self, data: bytes) -> None:
        if not self._left:
            self._left = self.LIFE
            self._desk = CoreHarness()
            self._desk.connect()
            self._desk.publish("foo", b"one", b"two")
        self._left -= 1
        self._desk.asks(self._subject, data, "reply")
        if self._left % self.TURN == 0:
            self._desk.turn()
            self._desk.said.clear()
            self._desk.notes.clear()


def requests() -> Iterator[Parser]:
    """Every request that a broker answers; the admin ones begin with what an empty message is."""
    good = _requests()
    frames = CoreHarness().broker.frames
    for subject in sorted({*frames.original, *(s.encode() for s in frames.routes)}):
        name = subject.decode()
        short = name.removeprefix("_STAN.x.test-cluster.")
        samples = good.get(name) or good.get(short) or [ADMIN.get(short, b"\x12\x03foo")]
        yield Parser(f"request {short}", samples, _Asked(name))


ADMIN = {
    "admin.clients": b"\x12\x02me",
    "admin.subscriptions": b"\x12\x01>\x1a\x01d",
    "admin.channels": b"\x12\x01>\x20\x05",
    "admin.purge": b"\x12\x03foo\x18\x01",
    "admin.delete_message": b"\x12\x03foo\x18\x01",
    "admin.edit_limits": b"\x12\x03foo\x1a\x04\x08\x05\x10\x09",
    "admin.move": b"\x12\x08\x0a\x03foo\x1a\x01d\x18\x01",
}
"""Good admin requests; for the others one that names a channel."""


def heard() -> Iterator[Parser]:
    """Publishes and acks as the gateway of a node hears them, and pulled messages."""
    node = Node()
    node.feed_client()
    node.feed_channel()
    node.lead()
    frames = (pub_frame("foo", "g", b"data"), pub_frame("foo", "h"))
    spoken = [0]

    def hear(data: bytes) -> None:
        spoken[0] += 1
        if spoken[0] % 500 == 1:
            fresh = Node()
            fresh.feed_client()
            fresh.feed_channel()
            fresh.lead()
            node.__dict__.update(fresh.__dict__)
        scan = server_py.scan(data, 0, 1, 2, PREFIX)
        broker = node.broker
        broker.frames.step_publishes(scan.publishes)
        broker.frames.step_acks(scan.acks)
        broker.frames.step_malformed(scan.malformed, 1)
        for frame in scan.others:
            broker.frames.step_frame(Frame(frame.sid, frame.subject, frame.reply, frame.header, frame.payload))
        node.turn()
        node.said.clear()

    yield Parser(
        "publishes and acks of clients", [*STREAMS, *(bytes(frame) for frame in frames)], hear, (ValueError,), WORDS
    )
    harness = CoreHarness()
    harness.connect()
    harness.publish("foo", b"one", b"two")
    index = harness.indexes[1, 1]
    index.refs = lambda *_: []
    good = [ext.FetchRequest(channel=b"foo", from_sequence=1, last=2), ext.FetchRequest(channel=b"foo", newest=3)]

    def fetch(data: bytes) -> None:
        locate(FetchRequest.FromString(data), index, 1 << 20)

    yield Parser("request fetch", [one.SerializeToString() for one in good], fetch, (DecodeError,))
    answer = ext.FetchResponse(uid=1, first_sequence=1, last_sequence=2, runs=[ext.Run(first_sequence=1, count=1)])
    answer.records = len(MESSAGE).to_bytes(4, "little") + MESSAGE
    yield Parser("answers to fetch", (answer.SerializeToString(),), partial(_read_answer), (ValueError, DecodeError))


def _read_answer(data: bytes) -> None:
    answer = ext.FetchResponse.FromString(data)
    for run in answer.runs[:8]:
        rows_py.columns(answer.records, min(run.count, 1000))


def parsers() -> Iterator[Parser]:
    """All of this module."""
    for family in (kernels, between_nodes, requests, heard):
        yield from family()

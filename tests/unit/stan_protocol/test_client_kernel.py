"""Examples of the client's kernel, run over every twin that is there."""

from types import ModuleType

import pytest
from stan_protocol.frames import Frame
from stan_protocol.kernel import client_py
from stan_protocol.proto import wire_pb2


@pytest.fixture(params=["python", "compiled"])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    """Each implementation."""
    if request.param == "python":
        return client_py
    return pytest.importorskip("_stan_client_kernel", reason="the compiled client kernel is not installed")


def msg(sid: int, payload: bytes) -> bytes:
    return b"MSG inbox %d %d\r\n%b\r\n" % (sid, len(payload), payload)


def message(sequence: int, **fields: object) -> bytes:
    return wire_pb2.MsgProto(sequence=sequence, subject=b"foo", **fields).SerializeToString()


def test_split_gives_frames_and_leaves_the_incomplete_one(twin):
    data = b"PING\r\nMSG a.b 3 r 2\r\nhi\r\nHMSG c 4 2 3\r\nHHp\r\nMSG a 3 1\r\n"
    assert twin.split(data, 6) == (
        len(data) - 6 - len(b"MSG a 3 1\r\n"),
        [Frame(3, b"a.b", b"r", b"", b"hi"), Frame(4, b"c", b"", b"HH", b"p")],
    )


def test_split_garbage_raises_once_what_precedes_it_is_handed_over(twin):
    assert twin.split(b"+OK\r\nwhat\r\n", 0) == (5, [Frame(0, b"+OK", b"", b"", b"")])
    with pytest.raises(ValueError, match="unknown verb"):
        twin.split(b"+OK\r\nwhat\r\n", 5)


def test_decode_message_gives_all_fields(twin):
    payload = message(1 << 63, reply=b"r", data=b"d\xff", timestamp=-7, redelivered=True, redelivery_count=4, crc32=9)
    assert twin.decode_message(payload) == (1 << 63, b"foo", b"r", b"d\xff", -7, True, 4, (), b"", 0)
    assert twin.decode_message(b"") == (0, b"", b"", b"", 0, False, 0, (), b"", 0)
    extended = message(1, headers=[wire_pb2.Header(key=b"k", value=b"v"), wire_pb2.Header()], key=b"name")
    assert twin.decode_message(extended)[7:] == (((b"k", b"v"), (b"", b"")), b"name", 0)


@pytest.mark.parametrize(
    "payload", [b"\x08", b"\x0a\x01", b"\x0a\x01a", b"\x10\x01", b"\x50", b"\x52\x00", b"\x0b\x0c"]
)
def test_decode_message_of_something_else_raises(twin, payload):
    with pytest.raises(ValueError, match=r"."):
        twin.decode_message(payload)


def test_decode_puback_gives_guid_and_error(twin):
    assert twin.decode_puback(wire_pb2.PubAck(guid=b"g", error=b"no").SerializeToString()) == (b"g", b"no", 0, 0)
    assert twin.decode_puback(wire_pb2.PubAck(guid=b"g", sequence=7, ack_level=2).SerializeToString()) == (
        b"g",
        b"",
        7,
        2,
    )
    with pytest.raises(ValueError, match=r"."):
        twin.decode_puback(b"\x08\x01")


def test_encode_publish_is_one_pub_frame(twin):
    fields = {"client_id": b"me", "guid": b"g", "subject": b"foo", "reply": b"", "data": b"d" * 200, "conn_id": b"c"}
    payload = wire_pb2.PubMsg(**fields).SerializeToString()
    arguments = list(fields.values())
    assert twin.encode_publish(b"p.foo", b"ack", *arguments) == b"PUB p.foo ack %d\r\n%b\r\n" % (len(payload), payload)
    assert twin.encode_publish(b"p.foo", b"", *arguments).startswith(b"PUB p.foo %d\r\n" % len(payload))


def test_encode_acks_covers_the_run(twin):
    acks = [wire_pb2.Ack(subject=b"foo", sequence=n).SerializeToString() for n in (127, 128)]
    assert twin.encode_acks(b"in", b"foo", 127, 128) == b"PUB in 7\r\n%b\r\nPUB in 8\r\n%b\r\n" % tuple(acks)
    assert twin.encode_acks(b"in", b"foo", 5, 4) == b""
    assert twin.encode_acks(b"in", b"foo", (1 << 64) - 1, (1 << 64) - 1).count(b"PUB") == 1


def test_load_publishes_are_single_publishes_with_counted_guids(twin):
    blob = twin.load_publishes(b"p.foo", b"ack", b"me", b"foo", b"c", b"g-", 9, 2, b"data")
    assert blob == b"".join(
        twin.encode_publish(b"p.foo", b"ack", b"me", guid, b"foo", b"", b"data", b"c") for guid in (b"g-9", b"g-10")
    )


def test_raw_publishes_and_count_raw_are_plain_nats(twin):
    assert twin.raw_publishes(b"s", 2, b"abc") == b"PUB s 3\r\nabc\r\n" * 2
    data = msg(5, b"abc") * 3 + b"PING\r\n" + msg(6, b"x") + b"MSG"
    ping, other = Frame(0, b"PING", b"", b"", b""), Frame(6, b"inbox", b"", b"", b"x")
    assert twin.count_raw(data, 0, 5) == (len(data) - 3, 3, [ping, other])


def test_absorb_counts_and_prepares_acks(twin):
    inboxes = {4: (b"ack4", b"foo"), 5: (b"ack5", b"bar")}
    data = (
        msg(3, wire_pb2.PubAck(guid=b"g").SerializeToString())
        + msg(3, wire_pb2.PubAck(guid=b"g", error=b"no").SerializeToString())
        + msg(4, message(10))
        + msg(5, message(3))
        + msg(4, message(9, redelivered=True, redelivery_count=1))
        + msg(4, message(11))
        + msg(5, message(2))
        + msg(4, b"\xff")
        + msg(3, b"\xff")
        + b"PING\r\n"
    )
    consumed, good, bad, counts, acks, others = twin.absorb(data, 0, 3, inboxes)
    assert (consumed, good, bad) == (len(data), 1, 1)
    assert counts == {4: (3, 10, 11, 1, True), 5: (2, 3, 2, 0, False)}
    assert acks == b"".join(
        twin.encode_acks(*inboxes[sid], sequence, sequence)
        for sid, sequence in ((4, 10), (5, 3), (4, 9), (4, 11), (5, 2))
    )
    assert [frame.sid for frame in others] == [4, 3, 0]

"""Examples of the batch kernel's contract, run over every twin that is there."""

import importlib
import struct
from random import Random
from types import ModuleType

import pytest
from stan_protocol.frames import KEY_MODULUS, Acks, Frame, Publishes
from stan_protocol.kernel import rows, rows_py, twins
from stan_protocol.proto import wire_pb2

from stan import limits
from stan.protocol.kernel import server as kernel
from stan.protocol.kernel import server_py
from tests.kit.guids import mixed

PREFIX = b"_STAN.pub.test-cluster."
PUB, ACK = 7, 8


@pytest.fixture(params=["python", "compiled"])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    """Each implementation of scan and frames."""
    if request.param == "python":
        return server_py
    return pytest.importorskip("_stan_kernel", reason="the compiled kernel is not installed")


@pytest.fixture(params=["python", "compiled"])
def rows_twin(request: pytest.FixtureRequest) -> ModuleType:
    """Each implementation of seal."""
    if request.param == "python":
        return rows_py
    return pytest.importorskip("_stan_rows_kernel", reason="the compiled kernel is not installed")


def msg(subject: bytes, sid: int, payload: bytes, reply: bytes = b"") -> bytes:
    middle = b" " + reply if reply else b""
    return b"MSG %b %d%b %d\r\n%b\r\n" % (subject, sid, middle, len(payload), payload)


def publish(guid: bytes, data: bytes = b"x", *, channel: bytes = b"foo", client: bytes = b"me", reply: bytes = b"r"):
    body = wire_pb2.PubMsg(client_id=client, guid=guid, subject=channel, data=data, conn_id=b"c").SerializeToString()
    return msg(PREFIX + channel, PUB, body, reply)


def ack(inbox: bytes, sequence: int) -> bytes:
    return msg(inbox, ACK, wire_pb2.Ack(subject=b"foo", sequence=sequence).SerializeToString())


def scan(twin: ModuleType, data: bytes, start: int = 0):
    return twin.scan(data, start, PUB, ACK, PREFIX)


def test_scan_publish_gives_body_ack_and_publisher(twin):
    data = publish(b"guid", b"data")
    (found,) = scan(twin, data).publishes
    assert found == Publishes(
        channel=b"foo",
        count=1,
        bodies=b"\x06\0\0\0\x22\x04data",
        acks=b"PUB r 6\r\n\x0a\x04guid\r\n",
        publishers=((b"me", b"c"),),
        owners=b"",
        payload_bytes=len(wire_pb2.PubMsg.FromString(data.split(b"\r\n", 1)[1][:-2]).SerializeToString()),
    )


def test_scan_publishes_of_two_channels_and_publishers_are_grouped_in_order(twin):
    data = (
        publish(b"1", channel=b"b")
        + publish(b"2", channel=b"a")
        + publish(b"3", channel=b"b", client=b"you")
        + publish(b"4", channel=b"b")
    )
    result = scan(twin, data)
    assert result.consumed == len(data)
    assert [(found.channel, found.count) for found in result.publishes] == [(b"b", 3), (b"a", 1)]
    assert result.publishes[0].publishers == ((b"me", b"c"), (b"you", b"c"))
    assert struct.unpack("<3H", result.publishes[0].owners) == (0, 1, 0)
    assert result.publishes[1].owners == b""


def key(guid: bytes) -> bytes:
    return (int.from_bytes(guid + b"\1", "little") % KEY_MODULUS).to_bytes(8, "little")


def test_scan_keyed_gives_the_key_of_each_guid_in_order_replied_or_not(twin):
    data = (
        publish(b"1", client=b"you")
        + publish(b"1234567", reply=b"")
        + publish(b"other", channel=b"bar")
        + publish(b"12345678")
        + publish(b"123456789")
        + publish(b"223456780")
    )
    result = twin.scan(data, 0, PUB, ACK, PREFIX, keyed=True)
    assert [(found.channel, found.keys) for found in result.publishes] == [
        (b"foo", b"1\1\0\0\0\0\0\0" + b"".join(map(key, [b"1234567", b"12345678", b"123456789", b"223456780"]))),
        (b"bar", b"other\1\0\0"),
    ]


def test_keys_of_guids_of_all_shapes_are_different_and_the_border_of_the_modulus_is_kept(twin):
    row = mixed(Random(1))
    many = [next(row) for _ in range(20_000)] + [b"\0" * size for size in range(2, 60)] + [b"\xff" * 300]
    for size in range(8, 40):
        least = (1 << 8 * size) + -(1 << 8 * size) % KEY_MODULUS  # of this length the first whose remainder is 0
        many += [(least + more).to_bytes(size + 1, "little")[:-1] for more in (0, 1, KEY_MODULUS - 1)]
    (found,) = twin.scan(b"".join(map(publish, many)), 0, PUB, ACK, PREFIX, keyed=True).publishes
    keys = [found.keys[at : at + 8] for at in range(0, len(found.keys), 8)]
    assert keys == list(map(key, many))
    assert len(set(keys[:20_000])) == 20_000


def test_scan_without_keyed_gives_no_keys_and_the_same_else(twin):
    data = publish(b"1") * 2 + publish(b"2", reply=b"") + publish(b"3", client=b"you") + ack(b"a.1.2", 1)
    plain, keyed = scan(twin, data), twin.scan(data, 0, PUB, ACK, PREFIX, keyed=True)
    assert plain == twin.scan(data, 0, PUB, ACK, PREFIX, keyed=False) != keyed
    assert [found.keys for found in plain.publishes] == [b""]
    keyed.publishes[0].keys = b""
    assert plain == keyed


def test_scan_publish_without_reply_has_no_ack_and_is_marked(twin):
    (found,) = scan(twin, publish(b"1") + publish(b"2", reply=b"") + publish(b"3")).publishes
    assert found.replied == b"\1\0\1"
    assert found.acks == b"PUB r 3\r\n\x0a\x011\r\nPUB r 3\r\n\x0a\x013\r\n"


def test_scan_publish_with_header_is_taken_without_it(twin):
    body = wire_pb2.PubMsg(guid=b"g", subject=b"foo").SerializeToString()
    header = b"NATS/1.0\r\n\r\n"
    line = b"HMSG %bfoo %d %d %d\r\n" % (PREFIX, PUB, len(header), len(header) + len(body))
    (found,) = scan(twin, line + header + body + b"\r\n").publishes
    assert (found.channel, found.bodies, found.payload_bytes) == (b"foo", b"\0\0\0\0", len(body))


def test_scan_acks_become_runs_per_inbox(twin):
    one, two = b"_STAN.ack.test-cluster.3.41", b"_STAN.ack.test-cluster.3.42"
    data = b"".join(ack(one, n) for n in (1, 2, 3, 5)) + ack(two, 9) + ack(one, 6) + ack(one, 6)
    assert scan(twin, data).acks == [Acks(3, 41, [(1, 3), (5, 6), (6, 6)]), Acks(3, 42, [(9, 9)])]


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="empty"),
        pytest.param(wire_pb2.PubMsg(subject=b"foo").SerializeToString(), id="no guid"),
        pytest.param(wire_pb2.PubMsg(guid=b"g").SerializeToString(), id="no subject"),
        pytest.param(wire_pb2.PubMsg(guid=b"g", subject=b"bar").SerializeToString(), id="another subject"),
        pytest.param(b"\x12\x01g\x1a\x03foo\x28\x01", id="data as number"),
        pytest.param(b"\x12\x01g\x1a\x03foo\x50\x01", id="sha256 as number"),
        pytest.param(b"\x12\x01g\x1a\x03foo\x2b\x2c", id="group"),
        pytest.param(b"\x12\x01g\x1a\x03foo\x7c", id="end of a group"),
        pytest.param(b"\x12\x01g\x1a\x03foo\x02\x00", id="field 0"),
        pytest.param(b"\x12\x01g\x1a\x03foo\x2a\x02x", id="truncated"),
        pytest.param(b"\x12\x01g\x1a\x03foo\x2a" + b"\xff" * 9 + b"\x01", id="negative length"),
        pytest.param(b"\x12\x01g\x1a\x03foo\x78" + b"\xff" * 10 + b"\x01", id="varint of 11 bytes"),
    ],
)
def test_scan_malformed_publish_is_handed_back_and_stops_nothing(twin, payload):
    bad = msg(PREFIX + b"foo", PUB, payload, b"r")
    result = scan(twin, publish(b"1") + bad + publish(b"2"))
    assert result.malformed == [Frame(PUB, PREFIX + b"foo", b"r", b"", payload)]
    assert [found.count for found in result.publishes] == [2]


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param(b"\x52\x02zz", id="sha256"),
        pytest.param(b"\x78\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", id="unknown varint"),
        pytest.param(b"\x79" + b"8" * 8, id="unknown fixed64"),
        pytest.param(b"\x7d4444", id="unknown fixed32"),
        pytest.param(b"\x7a\x03abc", id="unknown text"),
        pytest.param(b"\x12\x01g", id="guid again"),
        pytest.param(b"\x92\x80\x80\x80\x80\x01\x01g", id="guid with a tag beyond 32 bits, as Go reads it"),
    ],
)
def test_scan_publish_with_fields_to_skip_is_taken(twin, extra):
    for payload in (b"\x12\x01x" + extra + b"\x12\x01g\x1a\x03foo", b"\x12\x01g\x1a\x03foo" + extra):
        result = scan(twin, msg(PREFIX + b"foo", PUB, payload, b"r"))
        assert [found.acks for found in result.publishes] == [b"PUB r 3\r\n\x0a\x01g\r\n"]


@pytest.mark.parametrize("inbox", [b"ack.1", b"ack.1.", b"ack.x.1", b"ack.1.x", b"ack.1." + b"1" * 19, b"1"])
def test_scan_ack_on_a_strange_inbox_is_malformed(twin, inbox):
    result = scan(twin, ack(inbox, 1))
    assert not result.acks
    assert [frame.subject for frame in result.malformed] == [inbox]


def test_scan_ack_of_the_largest_sequence_does_not_grow_over_the_end(twin):
    last = (1 << 64) - 1
    data = ack(b"a.1.2", last) + ack(b"a.1.2", 0) + ack(b"a.1.2", 1)
    assert scan(twin, data).acks == [Acks(1, 2, [(last, last), (0, 1)])]


def test_scan_acks_with_the_control_line_of_the_ack_before(twin):
    bad, other = msg(b"a.1.2", ACK, b"\x08\5"), ack(b"a.1.3", 7)
    with_header = b"HMSG a.1.2 %d 12 14\r\nNATS/1.0\r\n\r\n\x10\x09\r\n" % ACK
    data = ack(b"a.1.2", 5) + ack(b"a.1.2", 6) + bad + ack(b"a.1.2", 7) + other + ack(b"a.1.2", 8)
    result = scan(twin, data + with_header * 2 + publish(b"1") + ack(b"a.1.2", 10) + ack(b"a.1.2", 11)[:-1])
    assert result.acks == [Acks(1, 2, [(5, 9), (9, 10)]), Acks(1, 3, [(7, 7)])]
    assert [frame.payload for frame in result.malformed] == [b"\x08\5"]
    assert [found.count for found in result.publishes] == [1]
    assert result.consumed == len(data + with_header * 2 + publish(b"1") + ack(b"a.1.2", 10))
    result = scan(twin, ack(b"a.1.2", 5) + b"PING\r\n" + ack(b"a.1.2", 6))
    assert result.acks == [Acks(1, 2, [(5, 5)])]


def test_scan_stops_before_a_publish_or_ack_behind_another_frame(twin):
    first, other, second = publish(b"1"), b"PING\r\n" + msg(b"close", 3, b"bye"), publish(b"2")
    for behind in (second, ack(b"a.1.2", 1), msg(PREFIX + b"foo", PUB, b"\xff")):
        data = first + other + behind
        result = scan(twin, data)
        assert result.consumed == len(first + other)
        assert [frame.subject for frame in result.others] == [b"PING", b"close"]
        result = scan(twin, data, result.consumed)
        assert result.consumed == len(behind)
        assert not result.others


def test_scan_incomplete_frame_is_left_for_the_next_call(twin):
    whole, part = publish(b"1"), publish(b"2")
    for cut in range(len(part)):
        result = scan(twin, whole + part[:cut])
        assert (result.consumed, result.publishes[0].count) == (len(whole), 1)


def test_scan_frames_of_the_connection_have_sid_zero(twin):
    result = scan(twin, b"PING\r\n+OK\r\n-ERR 'Slow Consumer'\r\nINFO {\"a\": 1}\r\nPONG\r\n")
    assert [(frame.sid, frame.subject, frame.payload) for frame in result.others] == [
        (0, b"PING", b""),
        (0, b"+OK", b""),
        (0, b"-ERR", b"'Slow Consumer'"),
        (0, b"INFO", b'{"a": 1}'),
        (0, b"PONG", b""),
    ]


@pytest.mark.parametrize(
    "garbage",
    [
        b"HELLO\r\n",
        b"MSG\r\n",
        b"PING\n",
        b"\n",
        b"MSG a 1\r\n",
        b"MSG a 1 b c 1\r\n",
        b"MSG a  1\r\n",
        b"MSG  1 0\r\n",
        b"MSG a x 1\r\n",
        b"MSG a 1 -1\r\n",
        b"MSG a 1 1234567890123456789\r\n",
        b"HMSG a 1 4 3\r\nabc\r\n",
        b"MSG a 1 %d\r\n" % (limits.NATS_PAYLOAD_BYTES_MAX + 1),
        b"MSG a 1 1\r\nab\r\n",
        b"INFO " + b"x" * limits.NATS_CONTROL_LINE_BYTES_MAX,
    ],
)
def test_scan_garbage_raises_once_what_precedes_it_is_handed_over(twin, garbage):
    first = publish(b"1")
    result = scan(twin, first + garbage)
    assert (result.consumed, len(result.publishes)) == (len(first), 1)
    with pytest.raises(ValueError, match=r"^NATS: "):
        scan(twin, first + garbage, len(first))


@pytest.mark.parametrize("start", [-1, 4])
def test_scan_start_outside_of_the_data_is_refused(twin, start):
    with pytest.raises(ValueError, match="outside"):
        scan(twin, b"+OK", start)


def test_scan_publisher_too_many_is_left_for_the_next_call(twin):
    data = b"".join(publish(b"g", client=b"c%d" % n) for n in range(limits.PUBLISHERS_PER_BATCH_MAX + 1))
    result = scan(twin, data)
    assert result.publishes[0].count == len(result.publishes[0].publishers) == limits.PUBLISHERS_PER_BATCH_MAX
    assert scan(twin, data, result.consumed).publishes[0].count == 1


class Only(dict[bytes, bool]):
    """A `take` that answers for any name."""

    def __init__(self, *channels: bytes) -> None:
        super().__init__(dict.fromkeys(channels, True))
        self.asked: list[bytes] = []

    def __missing__(self, channel: bytes) -> bool:
        self.asked.append(channel)
        return False


def test_scan_skips_channels_that_are_not_taken_whatever_they_carry(twin):
    broken = msg(PREFIX + b"bar", PUB, b"\xff", b"r")
    data = publish(b"1", channel=b"bar") * 3 + publish(b"2") + broken + publish(b"3", channel=b"bar") + publish(b"4")
    take = Only(b"foo")
    result = twin.scan(data, 0, PUB, ACK, PREFIX, take)
    assert (result.consumed, result.skipped, result.malformed) == (len(data), 5, [])
    assert [(found.channel, found.count) for found in result.publishes] == [(b"foo", 2)]
    assert take.asked == [b"bar"]


def test_scan_skips_acks_of_groups_that_are_not_wanted(twin):
    data = ack(b"a.2.1", 7) * 2 + ack(b"a.1.1", 8) + msg(b"a.2.1", ACK, b"\xff") + ack(b"a.2.x", 9) + ack(b"a.1.1", 9)
    result = twin.scan(data, 0, PUB, ACK, PREFIX, None, frozenset({1}))
    assert (result.consumed, result.skipped, result.malformed) == (len(data), 4, [])
    assert result.acks == [Acks(1, 1, [(8, 9)])]


@pytest.mark.parametrize(
    ("sid", "subject"), [(PUB, PREFIX), (PUB, b"_STAN"), (ACK, b"a.x.1"), (ACK, b"2.1"), (ACK, b"a.%s.1" % (b"1" * 19))]
)
def test_scan_skips_nothing_whose_channel_or_group_cannot_be_told(twin, sid, subject):
    result = twin.scan(msg(subject, sid, b"\x10\x05"), 0, PUB, ACK, PREFIX, Only(), frozenset())
    assert ([frame.subject for frame in result.malformed], result.skipped) == ([subject], 0)


def test_scan_is_not_ended_by_a_frame_that_is_skipped(twin):
    theirs, mine = publish(b"1", channel=b"bar"), publish(b"2")
    data = b"PING\r\n" + theirs * 2 + ack(b"a.2.1", 1) + b"PONG\r\n" + theirs
    result = twin.scan(data + mine, 0, PUB, ACK, PREFIX, Only(b"foo"), frozenset())
    assert (result.consumed, result.skipped) == (len(data), 4)
    assert [frame.subject for frame in result.others] == [b"PING", b"PONG"]


def test_scan_incomplete_frame_is_not_skipped_before_it_is_whole(twin):
    theirs = publish(b"1", channel=b"bar")
    for cut in range(len(theirs)):
        for before in (0, 1, 2):
            result = twin.scan(theirs * before + theirs[:cut], 0, PUB, ACK, PREFIX, Only())
            assert (result.consumed, result.skipped) == (before * len(theirs), before)


@pytest.mark.parametrize("wrong", [b"..", b".\n", b"\r."])
def test_scan_frame_to_be_skipped_without_its_end_is_garbage(twin, wrong):
    theirs = publish(b"1", channel=b"bar")
    result = twin.scan(theirs * 2 + theirs[:-2] + wrong, 0, PUB, ACK, PREFIX, Only())
    assert (result.consumed, result.skipped) == (2 * len(theirs), 2)
    with pytest.raises(ValueError, match="without CRLF"):
        twin.scan(theirs[:-2] + wrong, 0, PUB, ACK, PREFIX, Only())


def test_seal_gives_sequences_and_timestamp_across_bodies(rows_twin):
    bodies = [b"\x03\0\0\0\x22\x01a\x00\0\0\0", b"", b"\x06\0\0\0\x1a\x01r\x22\x01b"]
    records = rows_twin.seal(b"foo", 127, -5, bodies)
    found = []
    while records:
        size = int.from_bytes(records[:4], "little")
        found.append(wire_pb2.MsgProto.FromString(records[4 : 4 + size]))
        records = records[4 + size :]
    assert [(m.sequence, m.reply, m.data) for m in found] == [(127, b"", b"a"), (128, b"", b""), (129, b"r", b"b")]
    assert {(m.subject, m.timestamp) for m in found} == {(b"foo", -5)}


@pytest.mark.parametrize("body", [b"\0\0\0", b"\1\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\0\0"])
def test_seal_and_frames_of_a_cut_record_are_refused(twin, rows_twin, body):
    with pytest.raises(ValueError, match="cut off"):
        rows_twin.seal(b"foo", 1, 0, [body])
    with pytest.raises(ValueError, match="cut off"):
        twin.frames(body, 1, 1, 9, b"inbox", 0)


def test_seal_without_a_sequence_is_refused(rows_twin):
    with pytest.raises(ValueError, match="base_sequence"):
        rows_twin.seal(b"foo", 0, 0, [b"\0\0\0\0"])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_frames_gives_the_wanted_messages_as_pub_frames(twin, kind):
    records = kind(rows.seal(b"foo", 10, 99, [b"\x03\0\0\0\x22\x01a\x03\0\0\0\x22\x01b\x03\0\0\0\x22\x01c"]))
    plain = twin.frames(records, 10, 11, 11, b"in", 0)
    assert plain == b"PUB in 12\r\n\x08\x0b\x12\x03foo\x22\x01b\x28\x63\r\n"
    assert twin.frames(records, 10, 11, 11, b"in", 300) == b"PUB in 17\r\n" + plain[11:-2] + b"\x30\x01\x38\xac\x02\r\n"
    assert twin.frames(records, 10, 1, 1 << 40, b"in", 0).count(b"PUB in 12\r\n") == 3
    assert twin.frames(records, 10, 13, 12, b"in", 0) == b""


def test_refuse_adds_the_error_to_each_ack():
    acks = b"PUB r 3\r\n\x0a\x011\r\nPUB s 6\r\n\x0a\x04a\r\nb\r\n"
    assert kernel.refuse(acks, b"no") == b"PUB r 7\r\n\x0a\x011\x12\x02no\r\nPUB s 10\r\n\x0a\x04a\r\nb\x12\x02no\r\n"


def test_select_parts_messages_and_acks_by_publisher(twin):
    data = (
        publish(b"1", b"a", client=b"x", reply=b"")
        + publish(b"2", b"b", client=b"y", reply=b"")
        + publish(b"3", b"c", client=b"z")
        + publish(b"4", b"d", client=b"x")
    )
    (found,) = twin.scan(data, 0, PUB, ACK, PREFIX, keyed=True).publishes
    kept, refused = kernel.select(found, [True, False, False])
    assert kept is not None
    assert (kept.count, kept.publishers, kept.owners, kept.replied) == (2, ((b"x", b"c"),), b"", b"\0\1")
    assert kept.keys == key(b"1") + key(b"4")
    assert kept.bodies == b"\x03\0\0\0\x22\x01a\x03\0\0\0\x22\x01d"
    assert kept.acks == b"PUB r 3\r\n\x0a\x014\r\n"
    assert refused == b"PUB r 3\r\n\x0a\x013\r\n"
    assert kernel.select(found, [True] * 3) == (found, b"")
    assert kernel.select(found, [False] * 3) == (None, found.acks)


def test_select_from_what_has_no_keys_gives_none(twin):
    (found,) = scan(twin, publish(b"1", client=b"x") + publish(b"2", client=b"y")).publishes
    kept, _ = kernel.select(found, [True, False])
    assert kept is not None
    assert (kept.count, kept.keys) == (1, b"")


def test_kernel_takes_the_plain_twin_when_asked_or_when_versions_differ(monkeypatch):
    monkeypatch.delenv("STAN_KERNEL", raising=False)
    other = ModuleType("_other_kernel")
    other.KERNEL_VERSION = server_py.KERNEL_VERSION
    monkeypatch.setitem(importlib.import_module("sys").modules, "_other_kernel", other)
    assert twins.choose("_other_kernel", server_py) == ("compiled", other)
    monkeypatch.setenv("STAN_KERNEL", "python")
    assert twins.choose("_other_kernel", server_py) == ("python", server_py)
    monkeypatch.delenv("STAN_KERNEL")
    other.KERNEL_VERSION += 1
    assert twins.choose("_other_kernel", server_py) == ("python", server_py)
    assert twins.choose("_no_such_kernel", server_py) == ("python", server_py)

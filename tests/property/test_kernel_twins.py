"""The kernels' twins agree byte for byte, and both with protobuf, whatever arrives and however it is cut."""

import re
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import accumulate, pairwise
from struct import Struct, pack
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from stan_protocol.frames import ANYBODY, Frame, Publishes, Rules, Scan, StreamSubject
from stan_protocol.kernel import client_py, rows, wire_py
from stan_protocol.parted import NO_SLOT, SLOTS
from stan_protocol.proto import wire_pb2

from stan import limits
from stan.protocol.kernel import server_py

try:
    import _stan_client_kernel
    import _stan_kernel
except ImportError:
    _stan_kernel = _stan_client_kernel = None

PREFIX = b"_STAN.pub.c."
PUB, ACK = 1, 2
OWNER = Struct("<H")
MODULES = [server_py] if _stan_kernel is None else [server_py, _stan_kernel]
both = pytest.mark.parametrize("twin", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
relaxed = settings(deadline=None)  # a busy machine is no failure
needs_compiled = pytest.mark.skipif(_stan_kernel is None, reason="the compiled kernels are not installed")

small = st.binary(max_size=6)
names = st.sampled_from([b"a", b"ab", b"b.c"])
small_words = st.sampled_from([b"", b"r"])
guids = st.binary(min_size=1, max_size=3) | st.binary(min_size=7, max_size=10) | st.binary(min_size=15, max_size=200)
clients = st.sampled_from([(b"me", b"1"), (b"me", b"2"), (b"you", b""), (b"", b"")])
small_frames = st.builds(
    Frame, st.integers(1, 3), st.sampled_from([b"a", b"a.b", b"7", b"7.x"]), small_words, st.just(b""), small
)
sequences = st.integers(0, 6) | st.integers(0, (1 << 64) - 1)
extensions = st.sampled_from([wire_pb2.PubMsg(), wire_pb2.PubMsg()]) | st.builds(
    wire_pb2.PubMsg,
    headers=st.lists(st.builds(wire_pb2.Header, key=small, value=small), max_size=3),
    key=small,
    deliver_at=st.integers(-1, 1) | st.integers(-(1 << 63), (1 << 63) - 1),
    ttl=st.integers(-1, 1) | st.integers(-(1 << 63), (1 << 63) - 1),
    ack_level=st.integers(0, 2),
    numbered=st.booleans(),
)
wrong_headers = [b"\x82\x01\x02\x0a\x00", b"\x82\x01\x03\x1a\x01x", b"\x80\x01\x05", b"\x8a\x01\x00", b"\xa8\x01\x00"]
too_long = [b"\x8a\x01\x81\x08" + b"k" * 1025, (b"\x82\x01\xfe\x01\x0a\xfb\x01" + b"h" * 251) * 260]
skipped = st.sampled_from(
    [*wrong_headers, *too_long, b"\x52\x01s", b"\x78\x05", b"\x7d1234", b"\x79" + b"8" * 8, b"\x7a\x00", b"\x12\x01z"]
)


def frame(subject: bytes, sid: int, reply: bytes, header: bytes, payload: bytes) -> bytes:
    words = [subject, b"%d" % sid, *([reply] if reply else []), *([b"%d" % len(header)] if header else [])]
    verb = b"HMSG" if header else b"MSG"
    return b"%b %b %d\r\n%b%b\r\n" % (verb, b" ".join(words), len(header) + len(payload), header, payload)


@st.composite
def publishes(draw: st.DrawFn) -> bytes:
    """A publish, mostly well-formed."""
    channel = draw(names)
    client, conn = draw(clients)
    payload = wire_pb2.PubMsg(
        client_id=client,
        guid=draw(guids),
        subject=draw(st.just(channel) | names),
        reply=draw(st.just(b"") | small),
        data=draw(small | st.binary(min_size=120, max_size=140)),
        conn_id=conn,
    ).SerializeToString()
    payload += draw(extensions).SerializeToString()
    payload = draw(st.just(b"") | skipped) + payload + draw(st.just(b"") | skipped)
    reply = draw(st.sampled_from([b"r", b"r", b"acks.2", b""]))
    return frame(PREFIX + channel, PUB, reply, draw(st.sampled_from([b"", b"", b"NATS/1.0\r\n\r\n"])), payload)


@st.composite
def runs(draw: st.DrawFn) -> bytes:
    """Publishes of one client in a row that differ in guid and data alone."""
    channel = draw(names)
    client, conn = draw(clients)
    size = draw(st.sampled_from([2, 7, 8, 9, 22]))
    guids_alike, texts = st.binary(min_size=size, max_size=size), st.binary(min_size=2, max_size=2)
    sent = [
        wire_pb2.PubMsg(client_id=client, guid=guid, subject=channel, data=data, conn_id=conn)
        for guid, data in draw(st.lists(st.tuples(guids_alike, texts), min_size=1, max_size=5))
    ]
    return b"".join(frame(PREFIX + channel, PUB, b"r", b"", m.SerializeToString()) for m in sent)


@st.composite
def acks(draw: st.DrawFn) -> bytes:
    """Some acks in a row, mostly well-formed."""
    inbox = draw(
        st.sampled_from([b"ack.1.2", b"ack.1.3", b"ack.2.4", b"ack.01.5", b"ack.x.2", b"ack.2.x", b"2.2", b"7"])
    )
    first = draw(sequences)
    count = draw(st.integers(1, 4))
    extra = draw(
        st.sampled_from([b"", b"", b"", b"\x1a\x01x", b"\x10\x07", b"\x82\x01\x00", b"\x9a\x01\x81\x08" + b"w" * 1025])
        | st.builds(
            wire_pb2.Ack,
            kind=st.sampled_from([0, 0, 1, 2, 3, 9]),
            delay=st.integers(-1, 1),
            cumulative=st.booleans(),
            reason=small,
        ).map(wire_pb2.Ack.SerializeToString)
    )
    payloads = [
        wire_pb2.Ack(subject=b"a", sequence=min(first + n, (1 << 64) - 1)).SerializeToString() + extra
        for n in range(count)
    ]
    return b"".join(frame(inbox, ACK, b"", b"", payload) for payload in payloads)


@st.composite
def hostile(draw: st.DrawFn) -> bytes:
    """A whole frame for a known subscription with any payload, often one that begins well."""
    known = [(PUB, PREFIX + b"a"), (PUB, PREFIX), (PUB, b"a"), (ACK, b"ack.1.2"), (3, b"in"), (4, b"in")]
    sid, subject = draw(st.sampled_from(known))
    payload = draw(st.sampled_from([b"", b"\x12\x01g\x1a\x01a", b"\x0a\x01a", b"\x08\x05", b"\x0a\x01a\x10"]))
    return frame(subject, sid, b"r", b"", payload + draw(st.binary(max_size=14)))


messages = st.builds(
    lambda sid, sequence, redelivered, data: frame(
        b"in",
        sid,
        b"",
        b"",
        wire_pb2.MsgProto(
            sequence=sequence, subject=b"a", data=data, redelivered=redelivered, redelivery_count=3 * redelivered
        ).SerializeToString(),
    ),
    st.sampled_from([3, 4]),
    sequences,
    st.booleans(),
    small,
)
pub_acks = st.builds(
    lambda guid, error: frame(b"in", ACK, b"", b"", wire_pb2.PubAck(guid=guid, error=error).SerializeToString()),
    small,
    st.sampled_from([b"", b"no"]),
)
COMPRESSED = frame(b"x", 9, b"", b"", b"rows" + limits.ZSTD_MAGIC)
others = st.sampled_from(
    [b"PING\r\n", b"+OK\r\n", b"-ERR 'x'\r\n", b"INFO {}\r\n", frame(b"x", 9, b"", b"", b"PING\r\n"), COMPRESSED]
)
garbage = st.sampled_from(
    [b"\r\n", b"MSG a b c\r\n", b"MSG a 1 999999999\r\n", b"HMSG a 1 9 3\r\n", b"MSG a 1 0\r\n.."]
)
found = publishes() | publishes() | runs() | acks() | hostile() | messages | pub_acks | others
alike = st.builds(lambda one, count: one * count, found, st.sampled_from([1, 1, 1, 2, 5]))
whole_frames = st.lists(alike, max_size=12)
clean = whole_frames.map(b"".join)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A stream with garbage, single bytes changed, or its end cut off."""
    found = draw(whole_frames)
    if draw(st.booleans()):
        found.insert(draw(st.integers(0, len(found))), draw(garbage))
    data = bytearray(b"".join(found))
    for place, byte in draw(st.lists(st.tuples(st.integers(0, 1 << 12), st.integers(0, 255)), max_size=3)):
        if data:
            data[place % len(data)] = byte
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.booleans()) else bytes(data)


streams = clean | mutated()


class Wanted(dict[bytes, bool]):
    """A `take` that knows some names only when it is asked for them, and is asked once."""

    def __init__(self, channels: frozenset[bytes], *, by_heart: bool) -> None:
        super().__init__(dict.fromkeys(channels, True) if by_heart else {})
        self.channels = channels
        self.asked: list[bytes] = []

    def __getitem__(self, channel: bytes) -> bool:
        assert channel not in self.asked
        self.asked.append(channel)
        return super().__getitem__(channel)

    def __missing__(self, channel: bytes) -> bool:
        return channel in self.channels


class Choice(NamedTuple):
    """What a caller of scan wants."""

    channels: frozenset[bytes] | None = None
    by_heart: bool = False
    groups: frozenset[int] | None = None
    keyed: bool = False

    def arguments(self) -> tuple[Mapping[bytes, bool] | None, frozenset[int] | None, bool]:
        """The last three of scan, for one call."""
        take = None if self.channels is None else Wanted(self.channels, by_heart=self.by_heart)
        return take, self.groups, self.keyed

    def skips(self, found: Frame) -> bool:
        """Whether scan is to skip this frame."""
        if found.sid == PUB:
            channel = found.subject.removeprefix(PREFIX)
            return self.channels is not None and channel not in (b"", found.subject, *self.channels)
        group = re.search(rb"\.(\d{1,18})\.[^.]*$", found.subject)
        return found.sid == ACK and self.groups is not None and group is not None and int(group[1]) not in self.groups


EVERYTHING = Choice()
choices = st.builds(
    Choice,
    st.none() | st.frozensets(names | st.just(b"other")),
    st.booleans(),
    st.none() | st.frozensets(st.integers(0, 2)),
    st.booleans(),
)


def outcome(function: Callable[..., object], *arguments: object) -> object:
    """What a call returns, or that it refuses."""
    try:
        return function(*arguments)
    except ValueError:
        return ValueError


def same(plain: ModuleType, compiled: ModuleType, name: str, *arguments: object) -> None:
    assert outcome(getattr(plain, name), *arguments) == outcome(getattr(compiled, name), *arguments)


def drain(twin: ModuleType, chunks: Iterable[bytes], choice: Choice = EVERYTHING) -> tuple[list[Scan], bytes, str]:
    """Feed *chunks* as the gateway does; all scans, what is left over, and the error if there was one."""
    scans: list[Scan] = []
    rest = b""
    for chunk in chunks:
        rest += chunk
        at = 0
        while True:
            try:
                scan = twin.scan(rest, at, PUB, ACK, PREFIX, *choice.arguments())
            except ValueError as problem:
                return scans, rest[at:], str(problem)
            if not scan.consumed:
                break
            scans.append(scan)
            at += scan.consumed
        rest = rest[at:]
    return scans, rest, ""


def meaning(scans: list[Scan]) -> object:
    """What *scans* say, however it was divided among them."""
    channels: dict[bytes, list[object]] = {}
    acked: dict[tuple[int, int], list[int]] = {}
    for scan in scans:
        for found in scan.publishes:
            owners = [place for (place,) in OWNER.iter_unpack(found.owners)] or [0] * found.count
            told = channels.setdefault(found.channel, [0, b"", b"", [], 0, b"", b"", False])
            replied = found.replied or b"\1" * found.count
            new = [found.count, found.bodies, found.acks, [found.publishers[place] for place in owners]]
            new += [found.payload_bytes, replied, found.keys, found.numbered]
            *joined, numbered = [a + b for a, b in zip(told, new, strict=True)]
            channels[found.channel] = [*joined, bool(numbered)]
        for run in scan.acks:
            for first, last in run.ranges:
                acked.setdefault((run.group, run.key), []).extend(range(first, last + 1))
    lists = ([f for scan in scans for f in getattr(scan, name)] for name in ("malformed", "verdicts", "others"))
    return channels, acked, *lists


def records(parts: list[bytes]) -> bytes:
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


# --- server half -------------------------------------------------------------------------------------------------


@needs_compiled
@relaxed
@given(streams, st.integers(0, 3), choices)
def test_scan_twins_agree_on_any_stream(data, start, choice):
    same(server_py, _stan_kernel, "scan", data, start, PUB, ACK, PREFIX)
    assert drain(server_py, [data]) == drain(_stan_kernel, [data])
    assert drain(server_py, [data], choice) == drain(_stan_kernel, [data], choice)


wire_fields = st.builds(
    wire_pb2.MsgProto,
    data=small,
    key=st.sampled_from([b"", b"k", b"orders.new"]),
    timestamp=sequences.map(lambda at: at >> 1),
    headers=st.lists(
        st.builds(wire_pb2.Header, key=st.sampled_from([b"Nats-Msg-Id", b"Nats-Msg-Id", b"A", b""]), value=small),
        max_size=2,
    ),
).map(wire_pb2.MsgProto.SerializeToString)
ORDERS, LITERAL, CONSUMERS = 100_001, 100_002, 100_003
STREAMS = {
    ORDERS: StreamSubject("ORDERS", keyed=True),
    ORDERS + 9: StreamSubject("ORDERS", keyed=True),
    LITERAL: StreamSubject("ONE", keyed=False),
}
header_lines = st.sampled_from(
    [
        *(b"A: b", b"A: b", b"a-b: " + b"c" * 130, b"A:b", b"A:  b", b"A: b ", b"A: \t", b"A: ", b": b", b"", b"A"),
        *(b"Nats-Msg-Id: 1", b"Nats-Msg-Id: 2", b"Nats-Msg-Id: ", b"Nats-Msg-Id: " + b"i" * 40, b"nats-msg-id: 3"),
        *(b"Nats-TTL: 1s", b"Nats-", b"Nats-Msg-Id", b"Nats-Msg-Ids: 4", b"A: b\rc: d", b"A: " + b"h" * 65_000),
    ]
)
blocks = (
    st.just(b"")
    | st.sampled_from([b"NATS/1.0\r\nNats-Msg-Id: %d\r\nA: b\r\n\r\n" % number for number in range(4)])
    | st.builds(
        lambda first, lines, end: b"".join(line + b"\r\n" for line in (first, *lines)) + end,
        st.sampled_from([b"NATS/1.0", b"NATS/1.0", b"NATS/1.0", b"NATS/1.0 503", b"NATS/1"]),
        st.lists(header_lines, max_size=3) | st.just([b"A: b"] * 4000),
        st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"", b"\r", b"\r\n\r\n"]),
    )
)
replies = st.sampled_from(
    [
        b"",
        b"_INBOX.a.1",
        b"_INBOX.a.1",
        b"_INBOX.a.2",
        b"_INBOX.a.2",
        b"",
        b"_INBOX.a.1",
        b"_INBOX.a.2",
        b"r",
        b"acks.2",
        b"a.*",
        b"a.>",
        b"a..b",
        b".",
        b"*",
        b"a.*b",
        b"r" * 1025,
        b"a\0",
    ]
)
ack_tails = st.builds(
    lambda tokens, count: b".".join(tokens[:count]),
    st.lists(
        st.sampled_from([b"1", b"7", b"07", b"x", b"", b"1" * 18, b"9" * 19]) | sequences.map(b"%d".__mod__), min_size=7
    ),
    st.sampled_from([5, 5, 5, 4, 6]),
)
tellers = st.sampled_from(
    [b"_STAN.from.al.", b"_STAN.from.bob.", b"_STAN.from.", b"_STAN.from..", b"_STAN.to.al.", b""]
)
to_streams = st.builds(
    lambda to, *more: frame(*to, *more),
    st.tuples(
        st.sampled_from([b"orders.new", b"orders.new", b"orders.old", b"o\xff", b"o" * 1025]),
        st.sampled_from([ORDERS, ORDERS + 9, LITERAL + 7]),
    )
    | st.just((b"one", LITERAL)),
    replies,
    blocks,
    small | st.binary(min_size=126, max_size=130),
)
to_consumers = st.builds(
    lambda named, tail, reply, header, payload: frame(b"$JS.ACK." + named + tail, CONSUMERS, reply, header, payload),
    st.sampled_from([b"S.c.", b"S.d.", b"T.c.", b"..", b""]),
    st.builds(b"1.%d.1.1.0".__mod__, st.integers(1, 6)) | ack_tails,
    st.sampled_from([b"", b"", b"", b"r"]),
    st.sampled_from([b"", b"", b"", b"NATS/1.0\r\n\r\n"]),
    st.sampled_from([b"", b"+ACK", b"+ACK", b"-NAK", b"+ACKS"]),
)
near_acks = st.builds(
    lambda teller, numbers, end: b"MSG %b$JS.ACK.S.c." % teller + b".".join(numbers) + end,
    tellers,
    st.lists(st.sampled_from([b"1", b"1", b"2", b"10", b"", b"x", b"1" * 18, b"9" * 19]), min_size=4, max_size=6)
    | st.lists(st.sampled_from([b"1", b"2", b"3", b"12"]), min_size=5, max_size=5),
    st.sampled_from([b" %d 4\r\n+ACK\r\n" % CONSUMERS] * 4 + [b" %d 0\r\n\r\n" % CONSUMERS, b" r 4\r\n+ACK\r\n"]),
)
of_jetstream = st.lists(to_streams | to_consumers | to_streams | to_consumers | found, max_size=14)


USERS = Rules(b"_STAN.from.", b"_STAN.to.", (b"_INBOX.", b"a"))


def behind(teller: bytes, message: bytes) -> bytes:
    """A frame with that before its subject; garbage as it is."""
    try:
        (one,) = client_py.split(message, 0)[1]
    except ValueError:
        return message
    return frame(teller + one.subject, one.sid, one.reply, one.header, one.payload) if one.sid else message


def scanned(twin: ModuleType, data: bytes, rules: Rules = ANYBODY, most: int = 0) -> object:
    """The scans of *data* with streams and consumers, or that it is refused."""
    scans: list[Scan] = []
    at = 0
    while True:
        try:
            scan = twin.scan(
                data, at, PUB, ACK, PREFIX, rules=rules, most=most, streams=STREAMS, consumer_sid=CONSUMERS
            )
        except ValueError as problem:
            return scans, str(problem)
        if not scan.consumed:
            return scans, at
        scans.append(scan)
        at += scan.consumed


@needs_compiled
@relaxed
@given(
    of_jetstream,
    st.sampled_from([ANYBODY, Rules(replies=(b"_INBOX.", b"a"), own=(b"acks.",)), USERS]),
    st.lists(tellers, min_size=14, max_size=14) | st.just([b""] * 14) | st.just([b"_STAN.from.al."] * 14),
    st.integers(0, 4 * limits.BATCH_WORK),
    st.lists(st.tuples(st.integers(0, 1 << 12), st.integers(0, 255)), max_size=2),
)
def test_scan_twins_agree_about_streams_and_consumers(frames, rules, said, most, changes):
    data = bytearray(b"".join(map(behind, said, frames)))
    for place, byte in changes:
        if data:
            data[place % len(data)] = byte
    assert scanned(server_py, bytes(data), rules, most) == scanned(_stan_kernel, bytes(data), rules, most)


@needs_compiled
@relaxed
@given(st.lists(near_acks, max_size=12), st.integers(0, 40), st.sampled_from([ANYBODY, USERS]))
def test_scan_twins_agree_about_acks_that_differ_in_their_numbers(frames, cut, rules):
    data = b"".join(frames)
    data = data[: max(0, len(data) - cut)]
    assert scanned(server_py, data, rules) == scanned(_stan_kernel, data, rules)


@both
@relaxed
@given(st.lists(to_streams | to_consumers, max_size=14))
def test_scan_of_a_users_messages_is_that_of_nobodys_with_the_user(twin, frames):
    alone, _ = scanned(twin, b"".join(frames), USERS._replace(users=b"", to=b""))
    of_user, _ = scanned(twin, b"".join(behind(b"_STAN.from.al.", one) for one in frames), USERS)
    for one, other in zip(alone, of_user, strict=True):
        assert other.streams == [
            replace(batch, user=b"al", replies=b"".join(map(behind_user, packed(batch.replies))))
            for batch in one.streams
        ]
        assert other.consumers == [replace(acks, user=b"al") for acks in one.consumers]
        assert [len(frames) for frames in (other.others, other.malformed)] == [len(one.others), len(one.malformed)]


def behind_user(reply: bytes) -> bytes:
    """A reply subject behind its length as the broker reaches it."""
    reached = b"_STAN.to.al." + reply if reply else reply
    return len(reached).to_bytes(4, "little") + reached


@both
@relaxed
@given(st.lists(to_streams | to_consumers, max_size=14))
def test_scan_of_streams_has_each_message_once_in_order(twin, frames):
    scans, at = scanned(twin, b"".join(frames))
    assert at == len(b"".join(frames))
    arrived: list[tuple[bytes, bytes, bytes, bytes]] = []
    for scan in scans:
        for batch in scan.streams:
            bodies = [wire_pb2.MsgProto.FromString(body) for body in packed(batch.bodies)]
            asked = packed(batch.replies) if batch.replies else [b""] * batch.count
            assert len(bodies) == len(asked) == batch.count
            assert batch.payload_bytes == sum(len(body.data) for body in bodies)
            headers = [block_of(body) for body in bodies]
            sizes = (len(body.data) + len(block) for body, block in zip(bodies, headers, strict=True))
            assert batch.largest in sizes
            assert batch.largest_body == max(body.ByteSize() for body in bodies)
            assert (batch.ids or [b""] * batch.count) == [id_of(body) for body in bodies]
            each = zip(bodies, asked, headers, strict=True)
            arrived += [(body.key or batch.subject, reply, block, body.data) for body, reply, block in each]
        arrived += [(one.subject, one.reply, one.header, one.payload) for one in scan.others if one.sid != CONSUMERS]
    whole = [server_py.scan(one, 0, PUB, ACK, PREFIX).others[0] for one in frames]
    wanted = [one for one in whole if one.sid != CONSUMERS]
    assert sorted(arrived) == sorted((one.subject, one.reply, one.header, one.payload) for one in wanted)
    acked = [
        at for scan in scans for acks in scan.consumers for first, last in acks.ranges for at in range(first, last + 1)
    ]
    plain = [
        one for one in whole if one.sid == CONSUMERS and one not in [other for scan in scans for other in scan.others]
    ]
    assert sorted(acked) == sorted(int(one.subject.split(b".")[5]) for one in plain)


def block_of(body: wire_pb2.MsgProto) -> bytes:
    """The header block of a stored message."""
    lines = [b"%b: %b\r\n" % (header.key, header.value) for header in body.headers]
    return b"NATS/1.0\r\n" + b"".join(lines) + b"\r\n" if lines else b""


def id_of(body: wire_pb2.MsgProto) -> bytes:
    """The Nats-Msg-Id of a stored message."""
    return next((header.value for header in body.headers if header.key == b"Nats-Msg-Id"), b"")


def packed(texts: bytes) -> list[bytes]:
    return [texts[start:end] for start, end in wire_py.records_in(texts)]


@needs_compiled
@relaxed
@given(st.lists(small, max_size=6), small, st.integers(0, 1 << 62), st.integers(0, 3))
def test_stream_acks_twins_agree(subjects, begins, first, cut):
    data = records(subjects)
    same(server_py, _stan_kernel, "stream_acks", data[: len(data) - cut], begins, first)


@needs_compiled
@relaxed
@given(
    st.lists(small | st.builds(bytes.__add__, wire_fields, wire_fields), max_size=6),
    st.integers(0, 1 << 62),
    st.integers(0, 3),
)
def test_noted_twins_agree(parts, first, cut):
    data = records(parts)
    same(server_py, _stan_kernel, "noted", data[: len(data) - cut], first)


@both
@relaxed
@given(whole_frames, choices, st.integers(0, 2000))
def test_scan_of_what_is_wanted_says_what_a_stream_of_that_alone_says(twin, stream, choice, cut):
    data = b"".join(stream)
    _, all_frames = client_py.split(data, 0)
    unwanted = sum(map(choice.skips, all_frames))
    scans, rest, error = drain(twin, [data[:cut], data[cut:]], choice)
    assert (rest, error, sum(scan.skipped for scan in scans)) == (b"", "", unwanted)
    wanted = [one for one in stream if not choice.skips(client_py.split(one, 0)[1][0])]
    assert meaning(scans) == meaning(drain(twin, [b"".join(wanted)], Choice(keyed=choice.keyed))[0])


@both
@relaxed
@given(st.lists(publishes() | runs(), max_size=12))
def test_scan_keyed_gives_the_key_of_each_guid(twin, stream):
    expected: dict[tuple[bytes, bool], bytes] = {}
    result = twin.scan(b"".join(stream), 0, PUB, ACK, PREFIX, keyed=True)
    for found in client_py.split(b"".join(stream), 0)[1]:
        if found not in result.malformed:
            m = wire_pb2.PubMsg.FromString(found.payload)
            kind = m.subject, m.deliver_at > 0
            expected[kind] = expected.get(kind, b"") + server_py._key(m.guid)
    assert {(found.channel, bool(found.times.dues)): found.keys for found in result.publishes} == expected


BEHIND = Rules(replies=(b"r", b"acks."), own=(b"acks.2", b"x."))
OF_USERS = Rules(b"_STAN.from.", b"_STAN.to.", *BEHIND[2:])


@st.composite
def told(draw: st.DrawFn) -> list[tuple[bytes, Frame]]:
    """Frames, each with what stands before its subject, and other reply subjects."""
    frames = client_py.split(draw(clean), 0)[1]
    replies = st.sampled_from([b"r", b"r.x", b"acks.1", b"acks.2", b"acks", b"x.r", b"", b"r" + b"x" * 1024])
    return [(draw(tellers), one._replace(reply=draw(replies)) if one.sid == PUB else one) for one in frames if one.sid]


def framed(said: Iterable[tuple[bytes, Frame]]) -> bytes:
    return b"".join(frame(teller + one.subject, one.sid, one.reply, one.header, one.payload) for teller, one in said)


@needs_compiled
@relaxed
@given(told(), choices, st.sampled_from([OF_USERS, BEHIND, ANYBODY]), st.integers(0, 255), st.integers(0, 2000))
def test_scan_twins_agree_about_users(said, choice, rules, byte, place):
    data = bytearray(framed(said))
    for found in (bytes(data), bytes(data[:place] + bytes((byte,)) + data[place + 1 :])):
        arguments = found, 0, PUB, ACK, PREFIX
        one, other = (outcome(twin.scan, *arguments, *choice.arguments(), rules) for twin in MODULES)
        assert one == other


@needs_compiled
@relaxed
@given(told(), choices, st.integers(0, 4 * limits.COMPRESSED_WORK), st.integers(0, 255), st.integers(0, 2000))
def test_scan_twins_agree_about_how_much_work_is_enough(said, choice, most, byte, place):
    data = bytearray(framed(said))
    for found in (bytes(data), bytes(data[:place] + bytes((byte,)) + data[place + 1 :])):
        arguments = found, 0, PUB, ACK, PREFIX
        one, other = (outcome(twin.scan, *arguments, *choice.arguments(), OF_USERS, most) for twin in MODULES)
        assert one == other


@both
@relaxed
@given(clean, st.integers(1, 4 * limits.COMPRESSED_WORK))
def test_scan_in_pieces_of_so_much_work_says_the_same_as_whole(twin, data, most):
    scans: list[Scan] = []
    at = 0
    while at < len(data):
        scans.append(twin.scan(data, at, PUB, ACK, PREFIX, most=most))
        at += scans[-1].consumed
        assert scans[-1].work < most + limits.COMPRESSED_WORK + len(data), "at most a frame more"
    assert meaning(scans) == meaning(drain(twin, [data])[0])


REPLIES = b"_STAN.reply.c."
places = st.sampled_from([b"_STAN.from.al.", b"_STAN.from.bob.", b"_STAN.from.", REPLIES, REPLIES + b"7.al.", b""])


@needs_compiled
@relaxed
@given(streams, st.integers(0, 3), st.sampled_from([b"_STAN.from.", b""]))
def test_by_sender_twins_agree_on_any_stream(data, start, users):
    same(server_py, _stan_kernel, "by_sender", data, start, users, REPLIES)


@both
@relaxed
@given(st.lists(st.tuples(places, small_frames), max_size=12), st.integers(0, 2000))
def test_by_sender_gives_each_sender_his_frames_in_order(twin, said, cut):
    frames = [(place, frame(place + one.subject, one.sid, one.reply, one.header, one.payload)) for place, one in said]
    data = b"".join(made for _, made in frames)
    expected: dict[bytes, bytes] = {}
    end = 0
    for place, made in frames:
        if end + len(made) > cut:
            break
        end += len(made)
        subject = made.split(b" ")[1]
        user = subject.split(b".")[2] if place.startswith(b"_STAN.from.") else b""
        if place.startswith(REPLIES):
            user = subject.removeprefix(REPLIES).partition(b".")[2]
        expected[user] = expected.get(user, b"") + made
    assert twin.by_sender(data[:cut], 0, b"_STAN.from.", REPLIES) == (end, expected)
    assert twin.by_sender(data, 0, b"", REPLIES) == (len(data), {b"": data} if data else {})


@both
@relaxed
@given(told())
def test_scan_of_users_says_of_each_what_a_scan_of_his_frames_alone_says(twin, said):
    said = [(teller, one) for teller, one in said if one.sid in (PUB, ACK)]
    whole = twin.scan(framed(said), 0, PUB, ACK, PREFIX, rules=OF_USERS)
    malformed = 0
    for user in (b"al", b"bob"):
        his = [(b"", one) for teller, one in said if teller == b"_STAN.from.%b." % user]
        alone = twin.scan(framed(his), 0, PUB, ACK, PREFIX, rules=BEHIND)
        malformed += len(alone.malformed)
        for found in alone.publishes:
            found.user, found.acks = user, found.acks.replace(b"PUB ", b"PUB _STAN.to.%b." % user)
        for acked in alone.acks:
            acked.user = user
        assert [one for one in whole.publishes if one.user == user] == alone.publishes
        assert [one for one in whole.acks if one.user == user] == alone.acks
        prefix = b"_STAN.from.%b." % user
        mine = [one for one in whole.verdicts if one.subject.startswith(prefix)]
        assert [one._replace(subject=one.subject.removeprefix(prefix)) for one in mine] == alone.verdicts
    nobodys = sum(teller not in (b"_STAN.from.al.", b"_STAN.from.bob.") for teller, _ in said)
    assert len(whole.malformed) == malformed + nobodys


@needs_compiled
@relaxed
@given(st.binary(max_size=80))
def test_scan_twins_agree_on_noise(data):
    same(server_py, _stan_kernel, "scan", data, 0, PUB, ACK, PREFIX)
    for sid in (PUB, ACK):
        subject = PREFIX + b"a" if sid == PUB else b"ack.1.2"
        whole = frame(subject, sid, b"r", b"", data)
        same(server_py, _stan_kernel, "scan", whole, 0, PUB, ACK, PREFIX, *Choice(keyed=True).arguments())


@both
@relaxed
@given(data=clean, cut=st.integers(0, 2000))
def test_scan_in_two_chunks_says_the_same_as_whole(twin, data, cut):
    whole, rest, error = drain(twin, [data])
    cut = min(cut, len(data))
    parts, rest_of_parts, error_of_parts = drain(twin, [data[:cut], data[cut:]])
    assert (rest, error) == (rest_of_parts, error_of_parts) == (b"", "")
    assert meaning(whole) == meaning(parts)


@both
def test_scan_every_truncation_of_a_payload_is_refused_or_read_within(twin):
    payload = wire_pb2.PubMsg(
        client_id=b"me", guid=b"g", subject=b"a", data=b"d" * 130, conn_id=b"1"
    ).SerializeToString()
    known = wire_pb2.PubMsg()
    for size in range(len(payload)):
        scan = twin.scan(frame(PREFIX + b"a", PUB, b"r", b"", payload[:size]), 0, PUB, ACK, PREFIX)
        assert len(scan.publishes) + len(scan.malformed) == 1
        if scan.publishes:
            known.ParseFromString(payload[:size])
            assert scan.publishes[0].publishers == ((known.client_id, known.conn_id),)


@both
@relaxed
@given(
    kinds=st.lists(st.sampled_from(["publish", "ack", "malformed", "other"]), max_size=20),
    cut=st.integers(0, 2000),
)
def test_scan_order_of_handling_is_the_order_of_arrival(twin, kinds, cut):
    make = {
        "publish": lambda n: frame(
            PREFIX + b"a", PUB, b"r", b"", wire_pb2.PubMsg(guid=b"%04d" % n, subject=b"a").SerializeToString()
        ),
        "ack": lambda n: frame(b"ack.1.2", ACK, b"", b"", wire_pb2.Ack(sequence=2 * n + 1).SerializeToString()),
        "malformed": lambda n: frame(PREFIX + b"a", PUB, b"", b"", b"\xff%04d" % n),
        "other": lambda n: frame(b"x", 9, b"", b"", b"%04d" % n),
    }
    data = b"".join(make[kind](n) for n, kind in enumerate(kinds))
    scans, _, _ = drain(twin, [data[:cut], data[cut:]])
    before = -1
    seen = 0
    for scan in scans:
        early = [int(frame.payload[1:]) for frame in scan.malformed]
        early += [int(ack[-4:]) for found in scan.publishes for ack in found.acks.split(b"\r\n") if b"\x0a\x04" in ack]
        early += [(first - 1) // 2 for run in scan.acks for first, _ in run.ranges]
        late = [int(frame.payload) for frame in scan.others]
        assert max([before, *early]) <= min([*late, len(kinds)])
        assert min([*early, *late]) > before
        before = max(early + late)
        seen += len(early) + len(late)
    assert seen == len(kinds)


@both
@relaxed
@given(
    st.data(),
    st.lists(st.tuples(small, small | st.binary(min_size=120, max_size=140)), min_size=1, max_size=8),
    st.sampled_from([1, 120, 126, 16380, (1 << 63) - 3]) | st.integers(1, 1 << 63),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, 3) | st.integers(0, (1 << 32) - 1),
)
def test_publish_to_delivery_is_what_protobuf_says(twin, data, contents, base, timestamp, count):
    more = data.draw(st.lists(extensions, min_size=len(contents), max_size=len(contents)))
    sent = [
        wire_pb2.PubMsg(client_id=b"me", guid=b"%d" % n, subject=b"a", reply=reply, data=text)
        for n, (reply, text) in enumerate(contents)
    ]
    later = data.draw(st.booleans())
    for message, extension in zip(sent, more, strict=True):
        message.MergeFrom(extension)
        message.deliver_at = max(1, message.deliver_at) if later else min(0, message.deliver_at)
    stream = b"".join(frame(PREFIX + b"a", PUB, b"r", b"", m.SerializeToString()) for m in sent)
    (found,) = twin.scan(stream, 0, PUB, ACK, PREFIX).publishes
    assert found.numbered == any(m.numbered for m in sent)
    assert found.times.dues == (Struct(f"<{len(sent)}q").pack(*(m.deliver_at for m in sent)) if later else b"")
    ttls = [m.ttl for m in sent]
    assert found.times.ttls == (Struct(f"<{len(sent)}q").pack(*ttls) if any(ttls) else b"")
    room = [b"\x80\x01" + b"\x80" * 9 + b"\x00\x88\x01\x00" if m.numbered else b"" for m in sent]
    expected_acks = [
        wire_pb2.PubAck(guid=m.guid).SerializeToString() + space for m, space in zip(sent, room, strict=True)
    ]
    assert found.acks == b"".join(b"PUB r %d\r\n%b\r\n" % (len(ack), ack) for ack in expected_acks)
    numbered = told(server_py.number(found.acks, found.replied, base, 2))
    assert [wire_pb2.PubAck.FromString(ack) for _, ack in numbered] == [
        wire_pb2.PubAck(guid=m.guid, sequence=(base + n) * m.numbered, ack_level=2 * m.numbered)
        for n, m in enumerate(sent)
    ]
    first = data.draw(st.integers(0, len(sent) - 1))
    last = data.draw(st.integers(first, len(sent) - 1))
    delivered = twin.frames(
        rows.seal(b"a", base, timestamp, [found.bodies]), base, base + first, base + last, b"in", count
    )
    expected = [
        wire_pb2.MsgProto(
            sequence=base + place,
            subject=b"a",
            reply=sent[place].reply,
            data=sent[place].data,
            timestamp=timestamp,
            redelivered=count > 0,
            redelivery_count=count,
            headers=sent[place].headers,
            key=sent[place].key,
        )
        for place in range(first, last + 1)
    ]
    assert [(b"in", message) for message in expected] == [
        (to, wire_pb2.MsgProto.FromString(payload)) for to, payload in told(delivered)
    ]
    assert len(delivered) == sum(len(b"PUB in %d\r\n" % (size := m.ByteSize())) + size + 2 for m in expected)


@needs_compiled
@relaxed
@given(
    st.lists(st.binary(max_size=140), max_size=5),
    small,
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(0, 300),
)
def test_frames_twins_agree_on_any_records(parts, tail, base, first, last, count):
    same(server_py, _stan_kernel, "frames", records(parts) + tail, base, first, last, b"in", count)


SMALL_SLOTS = st.sampled_from([0, 1, 2, 300, SLOTS - 1, NO_SLOT])


@st.composite
def order_steps(draw: st.DrawFn) -> tuple[str, Any]:
    """A batch to be given out, with members and limits; or messages that are settled."""
    if draw(st.booleans()):
        return "settle", draw(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 4)), max_size=4))
    members = draw(st.integers(0, 4))
    room = [0, *draw(st.lists(st.integers(0, 3), min_size=members, max_size=members))]
    in_flight = [0, *draw(st.lists(st.integers(0, 3), min_size=members, max_size=members))]
    found = draw(st.lists(SMALL_SLOTS, max_size=8))
    start = draw(st.integers(0, len(found)))
    hold = server_py.HoldLimits(*draw(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 3))))
    return "assign", (found, start, room, in_flight, hold, draw(st.integers(0, 5)), draw(st.integers(0, 5)))


def order_run(twin: ModuleType, steps: list[tuple[str, Any]]) -> list[Any]:
    """All that a sequence of steps gives, and what the tables hold then."""
    tables = server_py.SlotTables({}, {}, {}, array("H", bytes(2 * SLOTS)))
    told: list[Any] = []
    base = 1
    for kind, step in steps:
        if kind == "settle":
            told.append(twin.settle([(first, first + more) for first, more in step], tables))
            continue
        found, start, room, in_flight, hold, turn, level = step
        sizes = [4 + at % 3 for at in range(len(found))]
        cut = pack(f"<{len(found)}H", *found), pack(f"<{len(found)}I", *accumulate(sizes)), bytes(range(sum(sizes)))
        windows = server_py.OpenWindows(array("q", room), array("q", in_flight))
        told.append(twin.assign(cut, base, start, len(found), tables, windows, hold, turn, level))
        told.append((windows, dict(tables.slot_of), dict(tables.heads), list(tables.takers[:301])))
        told.append({slot: list(queue) for slot, queue in tables.behind.items()})
        base += len(found)
        again = sorted({*tables.heads.values(), base})[: sum(room)]
        windows = server_py.OpenWindows(array("q", room), array("q", in_flight))
        told.append(twin.assign_again(again, [b"%d" % message for message in again], tables, windows))
        told.append((windows, list(tables.takers[:301])))
        base += 1
    return told


@needs_compiled
@relaxed
@given(st.lists(order_steps(), max_size=8))
def test_assign_and_settle_twins_agree(steps):
    assert order_run(server_py, steps) == order_run(_stan_kernel, steps)


@both
@relaxed
@given(st.lists(order_steps(), max_size=8))
def test_assign_gives_each_slot_one_message_and_each_member_no_more_than_it_has_room(twin, steps):
    """What is in the tables is K1 of KeyOrder; nothing is given twice or out of turn."""
    tables = server_py.SlotTables({}, {}, {}, array("H", bytes(2 * SLOTS)))
    base, slot_of, waiting = 1, {}, {}
    for kind, step in steps:
        if kind == "settle":
            freed = twin.settle([(first, first + more) for first, more in step], tables)
            gone = {s for first, more in step for s in range(first, first + more + 1)}
            firsts = {slot: queue[0] for slot, queue in waiting.items()}
            waiting = {slot: left for slot, queue in waiting.items() if (left := [s for s in queue if s not in gone])}
            assert {queue[0] for slot, queue in waiting.items() if firsts[slot] != queue[0]} == set(freed) - gone
            continue
        found, start, room, in_flight, hold, turn, level = step
        cut = pack(f"<{len(found)}H", *found), pack(f"<{len(found)}I", *range(1, len(found) + 1)), bytes(len(found))
        windows = server_py.OpenWindows(array("q", room), array("q", in_flight))
        done = twin.assign(cut, base, start, len(found), tables, windows, hold, turn, level)
        given_out = {}
        for number, firsts, lasts, records in done.parts:
            mine = [s for first, last in zip(firsts, lasts, strict=True) for s in range(first, last + 1)]
            assert mine == sorted(mine)
            assert len(records) == len(mine) == room[number] - windows.room[number]
            assert len(done.held_records) == len(done.held)
            given_out |= dict.fromkeys(mine, number)
        for place in range(start, done.stop):
            slot, sequence = found[place], base + place
            assert (sequence in given_out) == (slot == NO_SLOT or slot not in waiting)
            assert (sequence in done.held) == (sequence not in given_out)
            if slot != NO_SLOT:
                waiting.setdefault(slot, []).append(sequence)
                slot_of[sequence] = slot
        if done.stop < len(found):
            slot = found[done.stop]
            waits = slot != NO_SLOT and slot in waiting
            assert waits or not any(places > 0 for places in windows.room)
        base += len(found)
    heads, behind = tables.heads, tables.behind
    assert {slot: [head, *behind.get(slot, ())] for slot, head in heads.items()} == waiting
    assert tables.slot_of == {s: slot for slot, queue in waiting.items() for s in queue}


class Marked(NamedTuple):
    """A run with something behind it."""

    first: int
    last: int
    what: str


@st.composite
def disjoint(draw: st.DrawFn) -> list[tuple[int, int]]:
    marks = sorted(draw(st.sets(st.integers(1, 60), max_size=16)))
    return [
        (first, last - draw(st.integers(0, 1)))
        for first, last in pairwise(marks)
        if last > first and draw(st.booleans())
    ]


@both
@relaxed
@given(disjoint(), disjoint())
def test_take_parts_runs_and_keeps_what_stands_behind_them(twin, runs, parts):
    runs = [(first, last) for at, (first, last) in enumerate(runs) if not at or runs[at - 1][1] < first]
    parts = [(first, last) for at, (first, last) in enumerate(parts) if not at or parts[at - 1][1] < first]
    known = {s: f"run {first}" for first, last in runs for s in range(first, last + 1)}
    wanted = {s for first, last in parts for s in range(first, last + 1)}
    taken, kept, size = twin.take([Marked(first, last, f"run {first}") for first, last in runs], parts)
    assert all(type(one) is Marked for one in taken + kept)
    of = [{s: p.what for p in found for s in range(p.first, p.last + 1)} for found in (taken, kept)]
    assert of == [{s: w for s, w in known.items() if s in wanted}, {s: w for s, w in known.items() if s not in wanted}]
    assert size == len(of[0])
    assert (sorted(taken), sorted(kept)) == (taken, kept)
    same(server_py, twin, "take", [Marked(first, last, f"run {first}") for first, last in runs], parts)
    both_have = sorted({s for s in known if s in wanted})
    common = twin.shared(runs, parts)
    assert [s for first, last in common for s in range(first, last + 1)] == both_have
    same(server_py, twin, "shared", runs, parts)
    same(server_py, twin, "flat", runs)
    same(server_py, twin, "disjoint", sorted(runs + parts))
    same(server_py, twin, "merged", runs, parts)
    assert twin.merged(taken, kept) == sorted(taken + kept)


@both
@relaxed
@given(st.lists(st.tuples(sequences, st.integers(0, 3)).map(lambda run: (run[0], min(sum(run), (1 << 64) - 1)))))
def test_joined_holds_what_its_parts_hold(twin, parts):
    found = twin.joined(parts)
    assert all(one[1] + 1 < other[0] for one, other in pairwise(found))
    assert all(any(begin <= first and last <= end for begin, end in found) for first, last in parts)
    ends = {end for run in parts for end in run}
    assert all(first in ends and last in ends for first, last in found)
    same(server_py, twin, "joined", parts)
    assert twin.flat(found) == [end for run in found for end in run]


@both
@relaxed
@given(
    st.lists(publishes() | runs(), max_size=12),
    st.sets(st.sampled_from([(b"me", b"1"), (b"me", b"2"), (b"you", b"")])),
    st.booleans(),
)
def test_select_gives_what_scans_of_the_two_parts_give(twin, stream, kept, keyed):
    keeps: list[bytes] = []
    goes: list[bytes] = []
    for one in stream:
        for found in twin.scan(one, 0, PUB, ACK, PREFIX).publishes:
            (keeps if found.publishers[0] in kept else goes).append(one)
    wanted = by_channel(twin, keeps, keyed=keyed)
    refused = by_channel(twin, goes, keyed=keyed)
    for found in by_channel(twin, stream, keyed=keyed).values():
        stays, acks = server_py.select(found, [publisher in kept for publisher in found.publishers])
        kind = found.channel, bool(found.times.dues)
        assert acks == (refused[kind].acks if kind in refused else b"")
        if stays is not None:
            stays.payload_bytes = wanted[kind].payload_bytes
        assert stays == wanted.get(kind)


@both
@relaxed
@given(
    st.lists(st.tuples(publishes() | runs(), st.sampled_from([0, 1, 300])), max_size=12),
    st.booleans(),
)
def test_divide_gives_what_scans_of_the_parts_give(twin, stream, keyed):
    numbers: dict[tuple[bytes, bool], list[int]] = {}
    for one, number in stream:
        for found in twin.scan(one, 0, PUB, ACK, PREFIX).publishes:
            numbers.setdefault((found.channel, bool(found.times.dues)), []).extend([number] * found.count)
    wanted = {n: by_channel(twin, [one for one, number in stream if number == n], keyed=keyed) for n in (0, 1, 300)}
    for kind, found in by_channel(twin, [one for one, _ in stream], keyed=keyed).items():
        divided = twin.divide(found, numbers[kind])
        assert sorted(divided) == sorted(number for number in wanted if kind in wanted[number])
        assert sum(part.payload_bytes for part in divided.values()) <= found.payload_bytes
        for number, part in divided.items():
            part.payload_bytes = wanted[number][kind].payload_bytes
            assert part == wanted[number][kind]


@needs_compiled
@relaxed
@given(clean, st.lists(st.sampled_from([0, 1, 2, 255]), max_size=40), st.booleans(), st.data())
def test_divide_twins_agree_on_any_batch(stream, numbers, keyed, data):
    for found in server_py.scan(stream, 0, PUB, ACK, PREFIX, keyed=keyed).publishes:
        given_out = (numbers * found.count)[: found.count] or [7] * found.count
        same(server_py, _stan_kernel, "divide", found, given_out)
        column = data.draw(st.sampled_from(["bodies", "acks", "owners", "replied", "keys"]))
        whole = getattr(found, column)
        setattr(found, column, whole[: data.draw(st.integers(0, len(whole)))] + data.draw(st.just(b"") | small))
        same(server_py, _stan_kernel, "divide", found, given_out)
        same(server_py, _stan_kernel, "divide", found, given_out[1:])


def by_channel(twin: ModuleType, stream: list[bytes], *, keyed: bool) -> dict[tuple[bytes, bool], Publishes]:
    result = twin.scan(b"".join(stream), 0, PUB, ACK, PREFIX, keyed=keyed)
    return {(found.channel, bool(found.times.dues)): found for found in result.publishes}


@both
@relaxed
@given(st.lists(publishes(), max_size=6).map(b"".join), small)
def test_refuse_sets_the_error_and_nothing_else(twin, stream, error):
    for found in twin.scan(stream, 0, PUB, ACK, PREFIX).publishes:
        before, after = told(found.acks), told(server_py.refuse(found.acks, error))
        for (to, old), (same_to, new) in zip(before, after, strict=True):
            expected = wire_pb2.PubAck.FromString(old)
            expected.error = error
            assert (same_to, wire_pb2.PubAck.FromString(new)) == (to, expected)


def told(frames: bytes) -> list[tuple[bytes, bytes]]:
    """Subject and payload of each PUB frame; a payload may look like a frame."""
    found, at = [], 0
    while at < len(frames):
        verb, subject, size = frames[at : (end := frames.index(b"\r\n", at))].split(b" ")
        assert verb == b"PUB"
        found.append((subject, frames[end + 2 : end + 2 + int(size)]))
        at = end + 4 + int(size)
    return found


# --- client half -------------------------------------------------------------------------------------------------


@needs_compiled
@relaxed
@given(streams, st.integers(0, 3))
def test_client_twins_agree_on_any_stream(data, start):
    inboxes = {3: (b"ack3", b"a"), 4: (b"ack4", b"")}
    same(client_py, _stan_client_kernel, "split", data, start)
    same(client_py, _stan_client_kernel, "count_raw", data, start, 3)
    same(client_py, _stan_client_kernel, "absorb", data, start, ACK, inboxes)


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """A MsgProto, often with a byte changed or its end cut off; or noise."""
    fields = {
        "sequence": draw(sequences),
        "subject": draw(small),
        "data": draw(small),
        "timestamp": draw(st.integers(-(1 << 63), (1 << 63) - 1)),
        "redelivered": draw(st.booleans()),
        "redelivery_count": draw(st.integers(0, (1 << 32) - 1)),
        "headers": draw(st.lists(st.builds(wire_pb2.Header, key=small, value=small), max_size=3)),
        "key": draw(small),
        "expires_at": draw(st.integers(-(1 << 63), (1 << 63) - 1)),
    }
    payload = bytearray(draw(st.just(wire_pb2.MsgProto(**fields).SerializeToString()) | st.binary(max_size=30)))
    if payload and draw(st.booleans()):
        payload[draw(st.integers(0, len(payload) - 1))] = draw(st.integers(0, 255))
    return bytes(payload[: draw(st.integers(0, len(payload)))]) if draw(st.booleans()) else bytes(payload)


@needs_compiled
@relaxed
@given(payloads())
def test_decode_twins_agree_with_each_other_and_with_protobuf(payload):
    same(client_py, _stan_client_kernel, "decode_message", payload)
    same(client_py, _stan_client_kernel, "decode_puback", payload)
    try:
        mine = _stan_client_kernel.decode_message(payload)
        m = wire_pb2.MsgProto.FromString(payload)
    except (ValueError, DecodeError):
        return
    headers = tuple((header.key, header.value) for header in m.headers)
    numbers = m.timestamp, m.redelivered, m.redelivery_count
    assert mine == (m.sequence, m.subject, m.reply, m.data, *numbers, headers, m.key, m.expires_at)


@needs_compiled
@relaxed
@given(st.lists(small | st.binary(min_size=120, max_size=140), min_size=8, max_size=8))
def test_encode_publish_twins_agree_with_each_other_and_with_protobuf(texts):
    same(client_py, _stan_client_kernel, "encode_publish", *texts)
    names = ("client_id", "guid", "subject", "reply", "data", "conn_id")
    fields = dict(zip(names, texts[2:], strict=True))
    payload = wire_pb2.PubMsg(**fields).SerializeToString()
    assert _stan_client_kernel.encode_publish(*texts).endswith(b" %d\r\n%b\r\n" % (len(payload), payload))
    more = client_py.encode_more([(texts[0], texts[1])], texts[2], numbered=bool(texts[3]))
    same(client_py, _stan_client_kernel, "encode_publish", *texts, more)
    fields |= {"headers": [wire_pb2.Header(key=texts[0], value=texts[1])], "key": texts[2], "numbered": bool(texts[3])}
    payload = wire_pb2.PubMsg(**fields).SerializeToString()
    assert _stan_client_kernel.encode_publish(*texts, more).endswith(b" %d\r\n%b\r\n" % (len(payload), payload))


@needs_compiled
@relaxed
@given(small, small, st.integers(0, 300) | st.integers(0, (1 << 63)), st.integers(0, 12))
def test_bulk_twins_agree(one, two, first, count):
    same(client_py, _stan_client_kernel, "encode_acks", one, two, first, first + count - 1 if first else count)
    same(client_py, _stan_client_kernel, "load_publishes", one, two, b"c", b"a", b"n", two, first, count, one)
    same(client_py, _stan_client_kernel, "raw_publishes", one, count, two)


lines = st.binary(max_size=6) | st.sampled_from([b"a\r\nb", b"\n", b": ", b"Nats-Msg-Id"])
stored_messages = st.builds(
    wire_pb2.MsgProto,
    sequence=st.integers(0, 9),
    subject=names,
    reply=small,
    data=small | st.binary(min_size=95, max_size=105),
    timestamp=st.integers(0, 1) | st.integers(-(1 << 63), (1 << 63) - 1),
    headers=st.lists(st.builds(wire_pb2.Header, key=lines, value=lines), max_size=3),
    key=st.sampled_from([b"", b"k", b"orders.new", b"a b", b"x\r\nLMSG evil 0\r\n\r\n", b"\0\x7f\xff"]),
    expires_at=st.integers(-1, 1),
    by_broker=st.booleans(),
)
pieces = st.tuples(
    st.sampled_from([b"_INBOX.a.1", b"to"]),
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(0, 102) | st.integers(0, 1 << 60),
    st.integers(0, 102) | st.integers(0, 1 << 60),
)


@needs_compiled
@relaxed
@given(
    st.lists(stored_messages, max_size=6),
    st.integers(0, 8),
    pieces,
    st.integers(1, 12),
    st.sampled_from([b"", b"orders"]),
    st.sampled_from([b"", b"workers"]),
    st.booleans(),
    st.sampled_from([0, 0, 1, 5]),
    st.sampled_from([0, 5, 95, 10**9 - 3]),
)
def test_leaf_frames_twins_agree(messages, base, piece, delivered, subject, queue, headers_only, cut, passed):
    to, first, last, *numbers = piece
    base, piece = base + passed, (to, first + passed, last + passed, *numbers)
    records = b"".join(pack("<I", one.ByteSize()) + one.SerializeToString() for one in messages)
    records = records[: len(records) - cut] if cut else records
    arguments = (records, base, piece, b"$JS.ACK.S.C.", delivered, subject, queue, headers_only)
    assert outcome(server_py.leaf_frames, *arguments) == outcome(_stan_kernel.leaf_frames, *arguments)


@needs_compiled
@relaxed
@given(st.lists(st.binary(max_size=40), max_size=4), st.integers(0, 4), pieces, st.booleans())
def test_leaf_frames_read_no_byte_behind_a_record(parts, base, piece, headers_only):
    records = b"".join(pack("<I", len(one)) + one for one in parts)
    outcome(_stan_kernel.leaf_frames, records, base, piece, b"$JS.ACK.S.C.", 1, b"", b"", headers_only)

"""The batch kernel of the server in plain Python: the work of every message, and nothing else.

Promises what its compiled twin, server.pyx, promises too, byte for byte; a property test holds them together. Never
raises for bytes of a client (they are `malformed`), only for bytes that no NATS server sends. Written to be read: frame by frame,
field by field; the compiled twin is the fast one.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from itertools import count, islice, pairwise
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from stan_protocol.channels import is_subject, publication
from stan_protocol.frames import (
    ANYBODY,
    KEY_BYTES,
    KEY_MODULUS,
    LATER,
    NO_TIMES,
    Acks,
    Frame,
    Publishes,
    Rules,
    Scan,
    StreamAcks,
    StreamMessages,
    StreamSubject,
    Times,
)
from stan_protocol.kernel.wire_py import (
    HEADER_TAG,
    KEY_TAG,
    is_header,
    long_text,
    read_fields,
    read_frame,
    read_frames,
    read_varint,
    records_in,
    text,
    varint,
)
from stan_protocol.kernel.wire_py import number as number_field
from stan_protocol.parted import NO_SLOT

from stan.limits import (
    BATCH_WORK,
    COMPRESSED_WORK,
    HEADERS_BYTES_MAX,
    KEY_BYTES_MAX,
    PUBLISHERS_PER_BATCH_MAX,
    RANGE_WORK,
    REASON_BYTES_MAX,
    REQUEST_WORK,
    ZSTD_MAGIC,
)
from stan.protocol.kernel.leaf_py import leaf_frames as leaf_frames  # noqa: PLC0414 - a part of the contract
from stan.protocol.kernel.streams_py import MSG_ID, header_fields
from stan.protocol.kernel.streams_py import noted as noted  # noqa: PLC0414
from stan.protocol.kernel.streams_py import stream_acks as stream_acks  # noqa: PLC0414

if TYPE_CHECKING:
    from array import array

KERNEL_VERSION = 18
"""Raised with every change of the contract; a compiled twin with another one is not used."""

NO_STREAMS: Mapping[int, StreamSubject] = MappingProxyType({})
_CRLF = b"\r\n"
_ROOM = b"\x80\x01" + b"\x80" * 9 + b"\0" + b"\x88\x01\0"
"""PubAck.sequence (16) with a varint of ten bytes, and PubAck.ack_level (17) with one of a byte; both 0 for now."""
_LENGTH = Struct("<I")
_TIME = Struct("<q")
_OWNER = Struct("<H")


def _key(guid: bytes) -> bytes:
    """Return the key of a guid for `Publishes.keys`: its remainder by KEY_MODULUS, little-endian."""
    return (int.from_bytes(guid + b"\1", "little") % KEY_MODULUS).to_bytes(KEY_BYTES, "little")


class _Group:
    """The publishes of one user for one channel."""

    __slots__ = (
        "acks",
        "bodies",
        "channel",
        "count",
        "keys",
        "numbered",
        "owners",
        "payload_bytes",
        "publishers",
        "replied",
        "times",
        "user",
    )

    def __init__(self, channel: bytes, user: bytes) -> None:
        self.channel = channel
        self.user = user
        self.count = 0
        self.bodies: list[bytes] = []
        self.acks: list[bytes] = []
        self.publishers: dict[tuple[bytes, bytes], int] = {}
        self.keys: list[bytes] = []  # none if they are not requested
        self.owners: list[bytes] = []
        self.replied: list[bytes] = []
        self.payload_bytes = 0
        self.numbered = False
        self.times: list[tuple[int, int]] = []  # when it is due, its time to live

    def publishes(self) -> Publishes:
        replied = b"".join(self.replied)
        return Publishes(
            self.channel,
            self.count,
            b"".join(self.bodies),
            b"".join(self.acks),
            tuple(self.publishers),
            b"".join(self.owners) if len(self.publishers) > 1 else b"",
            self.payload_bytes,
            replied if 0 in replied else b"",
            b"".join(self.keys),
            self.user,
            self.numbered,
            _times(self.times),
        )


def _times(times: list[tuple[int, int]]) -> Times:
    columns = (tuple(column) for column in zip(*times, strict=True))
    dues, ttls = (b"".join(map(_TIME.pack, column)) if any(column) else b"" for column in columns)
    return Times(dues, ttls) if dues or ttls else NO_TIMES


def _time(times: bytes, at: int) -> int:
    """The time of the message *at*, 0 if no message has one."""
    time: int = _TIME.unpack_from(times, at * _TIME.size)[0] if times else 0
    return time


def _extend(ranges: list[tuple[int, int]], sequence: int) -> None:
    """Add *sequence* to the last range if it is the next one, else as a new range."""
    if ranges and ranges[-1][1] + 1 == sequence:
        ranges[-1] = (ranges[-1][0], sequence)
    else:
        ranges.append((sequence, sequence))


def _is_number(token: bytes) -> bool:
    return len(token) <= 18 and token.isdigit()


_ACK_WIRES = {1: 2, 2: 0, 16: 0, 17: 0, 18: 0, 19: 2}
"""Fields of an Ack, and their wire types."""


_PUBLISH_WIRES = {1: 2, 2: 2, 3: 2, 4: 2, 5: 2, 6: 2, 10: 2, 16: 2, 17: 2, 18: 0, 19: 0, 20: 0, 21: 0}
"""Fields of a PubMsg, and their wire types."""


class _Publish(NamedTuple):
    """The fields of a PubMsg that are used."""

    client: bytes
    guid: bytes
    channel: bytes
    reply: bytes
    content: bytes
    conn: bytes
    key: bytes
    headers: bytes  # as encoded
    due: int  # Unix ns; 0: at once
    numbered: bool  # the ack shall have the sequence and the ack level
    ttl: int  # ns, as it came; 0: none

    @property
    def body(self) -> bytes:
        """See `Publishes.bodies`."""
        key = long_text(KEY_TAG, self.key) if self.key else b""
        return text(3, self.reply) + text(4, self.content) + self.headers + key


def _read_publish(payload: bytes) -> _Publish:
    """Read a PubMsg. Raises ValueError: malformed."""
    texts = dict.fromkeys((*range(1, 7), 17), b"")
    headers, due, numbered, ttl = b"", 0, False, 0
    for field, wire, value, start, stop in read_fields(payload):
        if wire != _PUBLISH_WIRES.get(field, wire):
            raise ValueError("wrong wire type")
        if field in texts:
            texts[field] = payload[start:stop]
        elif field == 16:
            if not is_header(payload[start:stop]):
                raise ValueError("not a header")
            headers += long_text(HEADER_TAG, payload[start:stop])
        elif field == 18:
            due = value if not value >> 63 else 0  # before 1970: at once
        elif field == 19:
            ttl = value - (value >> 63 << 64)
        elif field == 21:
            numbered = value != 0
    if len(headers) > HEADERS_BYTES_MAX or len(texts[17]) > KEY_BYTES_MAX:
        raise ValueError("too long")
    client, guid, channel, reply, content, conn, key = texts.values()
    return _Publish(client, guid, channel, reply, content, conn, key, headers, due, numbered, ttl)


class _Stream:
    """The messages for one stream."""

    __slots__ = (
        "bodies",
        "count",
        "ids",
        "largest",
        "largest_body",
        "name",
        "payload_bytes",
        "replied",
        "replies",
        "subject",
        "user",
    )

    def __init__(self, name: str, subject: bytes, user: bytes) -> None:
        self.name = name
        self.subject = subject
        self.user = user
        self.count = 0
        self.bodies: list[bytes] = []
        self.replies: list[bytes] = []
        self.replied = False
        self.payload_bytes = 0
        self.largest = self.largest_body = 0
        self.ids: list[bytes] = []

    def messages(self) -> StreamMessages:
        replies = b"".join(self.replies) if self.replied else b""
        bodies = b"".join(self.bodies)
        ids = self.ids if any(self.ids) else []
        sizes = self.payload_bytes, self.largest, self.largest_body
        return StreamMessages(self.name, self.subject, self.count, bodies, replies, *sizes, ids, self.user)


def _origin(users: bytes, subject: bytes) -> tuple[bytes, bytes]:
    """Return the user who sent a frame, and the subject as sent by that user; without *users* b"" and *subject*. Both are empty
    if there are users and *subject* names none."""
    if not users:
        return b"", subject
    user, _, origin = subject[len(users) :].partition(b".")
    return (user, origin) if user and origin and subject.startswith(users) else (b"", b"")


_ACK_TOKENS = 9
"""In an ack subject of JetStream: `$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<number>.<time>.<pending>`."""


class _Wanted(dict[bytes, bool]):
    """By channel: if its publishes are read."""

    def __init__(self, take: Mapping[bytes, bool]) -> None:
        super().__init__()
        self.take = take

    def __missing__(self, channel: bytes) -> bool:
        wanted = self[channel] = bool(self.take[channel])
        return wanted


class _JetStream:
    """The messages for streams, and the acks to their consumers, that one call of scan has taken."""

    def __init__(self, rules: Rules, subjects: Mapping[int, StreamSubject], consumer_sid: int) -> None:
        self.rules = rules
        self.subjects = subjects
        self.consumer_sid = consumer_sid
        self.streams: dict[tuple[str, bytes], _Stream] = {}  # by name and user
        self.consumers: dict[tuple[bytes, bytes], StreamAcks] = {}  # by user and the beginning of their ack subjects
        self.work = 0

    def taker(self, frame: Frame) -> Callable[[Frame], None] | None:
        """Return the function that takes a message for a stream, or the ack of a consumer; None if the frame is neither, or one
        that is handled alone."""
        if not frame.sid:
            return None
        if frame.sid == self.consumer_sid:
            tokens = _origin(self.rules.users, frame.subject)[1].split(b".")
            plain = not frame.reply and not frame.header and frame.payload in (b"", b"+ACK")
            return self.consumer_ack if plain and len(tokens) == _ACK_TOKENS and _is_number(tokens[5]) else None
        subject = _origin(self.rules.users, frame.subject)[1]
        if frame.sid not in self.subjects or not 0 < len(subject) <= KEY_BYTES_MAX:
            return None
        answered = not frame.reply or (is_subject(frame.reply) and self.rules.answers(frame.reply))
        return self.stream_message if answered and header_fields(frame.header) is not None else None

    def stream_message(self, frame: Frame) -> None:
        """Add a message to those of its stream."""
        name, keyed = self.subjects[frame.sid]
        user, subject = _origin(self.rules.users, frame.subject)
        stream = self.streams.get((name, user))
        if stream is None:
            stream = self.streams[name, user] = _Stream(name, b"" if keyed else subject, user)
            self.work += BATCH_WORK
        fields = header_fields(frame.header) or []
        encoded = b"".join(long_text(HEADER_TAG, text(1, key) + text(2, value)) for key, value in fields)
        body = text(4, frame.payload) + encoded + (long_text(KEY_TAG, subject) if keyed else b"")
        stream.count += 1
        stream.bodies += (_LENGTH.pack(len(body)), body)
        reply = b"%b%b.%b" % (self.rules.to, user, frame.reply) if user and frame.reply else frame.reply
        stream.replies += (_LENGTH.pack(len(reply)), reply)
        stream.replied |= bool(reply)
        stream.payload_bytes += len(frame.payload)
        stream.largest_body = max(stream.largest_body, len(body))
        stream.largest = max(stream.largest, len(frame.header) + len(frame.payload))
        stream.ids.append(next((value for key, value in fields if key == MSG_ID), b""))

    def consumer_ack(self, frame: Frame) -> None:
        """Add this ack to the ranges of its consumer."""
        user, subject = _origin(self.rules.users, frame.subject)
        tokens = subject.split(b".")
        named = user, b".".join(tokens[:4])
        acks = self.consumers.get(named)
        if acks is None:
            acks = self.consumers[named] = StreamAcks(tokens[2], tokens[3], [], user)
            self.work += BATCH_WORK
        before = len(acks.ranges)
        _extend(acks.ranges, int(tokens[5]))
        self.work += RANGE_WORK if 0 < before < len(acks.ranges) else 0


class _Scanner:
    """The state of one call of scan: its arguments, and the results so far."""

    def __init__(
        self,
        data: bytes,
        pub_sid: int,
        ack_sid: int,
        prefix: bytes,
        take: Mapping[bytes, bool] | None,
        ack_groups: Container[int] | None,
        keyed: bool,  # noqa: FBT001 - as scan has it
        rules: Rules,
        jetstream: _JetStream,
    ) -> None:
        self.data = data
        self.pub_sid = pub_sid
        self.ack_sid = ack_sid
        self.prefix = prefix
        self.take = None if take is None else _Wanted(take)
        self.ack_groups = ack_groups
        self.keyed = keyed
        self.rules = rules
        self.jetstream = jetstream
        self.groups: dict[bytes, _Group] = {}  # by NATS subject
        self.runs: dict[bytes, Acks] = {}
        self.result = Scan(0)  # without publishes, acks and the work of the bytes, which `finish` adds

    def finish(self, consumed: int) -> Scan:
        """Return the results for the *consumed* bytes."""
        self.result.consumed = consumed
        self.result.work += consumed + self.jetstream.work
        self.result.publishes = [group.publishes() for group in self.groups.values()]
        self.result.acks = [acks for acks in self.runs.values() if acks.ranges]
        self.result.streams = [stream.messages() for stream in self.jetstream.streams.values()]
        self.result.consumers = [*self.jetstream.consumers.values()]
        return self.result

    def step(self, at: int) -> int:
        """Read one frame; returns the place after it, *at* if scan must stop here."""
        split = read_frame(self.data, at)
        if split is None:
            return at
        after, frame = split
        if frame.sid == 0 or frame.sid not in (self.pub_sid, self.ack_sid):
            take = self.jetstream.taker(frame)
            if take is None:
                self.result.others.append(frame)
                self.result.work += COMPRESSED_WORK if ZSTD_MAGIC in frame.payload else REQUEST_WORK
            elif self.result.others:
                return at
            else:
                take(frame)
        elif self.skips(frame):
            self.result.skipped += 1
        elif self.result.others:
            return at
        else:
            try:
                if frame.sid == self.ack_sid:
                    self.ack(frame)
                elif not self.publish(frame):
                    return at
            except ValueError:
                self.result.malformed.append(frame)
                self.result.work += BATCH_WORK
        return after

    def skips(self, frame: Frame) -> bool:
        """Return True if the caller skips this publish or ack; only its subject is read."""
        if frame.sid == self.pub_sid:
            _, channel = self.target(frame.subject)
            return self.take is not None and bool(channel) and not self.take[channel]
        if self.ack_groups is None:
            return False
        tokens = frame.subject.rsplit(b".", 2)
        return len(tokens) == 3 and _is_number(tokens[1]) and int(tokens[1]) not in self.ack_groups

    def target(self, subject: bytes) -> tuple[bytes, bytes]:
        """Return the user and the channel of a publish; the channel is empty if *subject* is not that of a publish."""
        user, origin = _origin(self.rules.users, subject)
        return user, origin[len(self.prefix) :] if origin.startswith(self.prefix) else b""

    def publish(self, frame: Frame) -> bool:
        """Add this publish to its group; returns False if a batch cannot have another publisher. Raises ValueError:
        malformed."""
        message = _read_publish(frame.payload)
        user, named = self.target(frame.subject)
        if not message.guid or not named or named != message.channel or not self.rules.answers(frame.reply):
            raise ValueError("no guid, another subject, or an ack that may not be sent there")
        kind = frame.subject + LATER if message.due else frame.subject
        group = self.groups.get(kind)
        if group is None:
            group = self.groups[kind] = _Group(named, user)
            self.result.work += BATCH_WORK
        sender = (message.client, message.conn)
        owner = group.publishers.setdefault(sender, len(group.publishers))
        if owner >= PUBLISHERS_PER_BATCH_MAX:
            del group.publishers[sender]
            return False
        body = message.body
        group.count += 1
        group.payload_bytes += len(frame.payload)
        group.bodies += (_LENGTH.pack(len(body)), body)
        group.times.append((message.due, message.ttl))
        group.owners.append(_OWNER.pack(owner))
        group.replied.append(b"\1" if frame.reply else b"\0")
        if frame.reply:
            reply_to = b"%b%b.%b" % (self.rules.to, user, frame.reply) if user else frame.reply
            group.acks.append(publication(reply_to, text(1, message.guid) + _ROOM * message.numbered))
            group.numbered |= message.numbered
        if self.keyed:
            group.keys.append(_key(message.guid))
        return True

    def ack(self, frame: Frame) -> None:
        """Add this ack to the ranges of its ack inbox, or to the verdicts. Raises ValueError: malformed."""
        sequence = 0
        more = {16: 0, 18: 0}  # kind, cumulative
        for field, wire, value, start, stop in read_fields(frame.payload):
            if wire != _ACK_WIRES.get(field, wire):
                raise ValueError("wrong wire type")
            if field == 2:
                sequence = value
            elif field in more:
                more[field] = value
            elif field == 19 and stop - start > REASON_BYTES_MAX:
                raise ValueError("too long")
        acks = self.runs.get(frame.subject)
        if acks is None:
            user, origin = _origin(self.rules.users, frame.subject)
            _, *tokens = origin.rsplit(b".", 2)
            if len(tokens) != 2 or not all(map(_is_number, tokens)):
                raise ValueError("not an ack inbox")
            acks = self.runs[frame.subject] = Acks(int(tokens[0]), int(tokens[1]), [], user)
            self.result.work += BATCH_WORK
        if any(more.values()):
            self.result.verdicts.append(frame)
            self.result.work += BATCH_WORK
        else:
            before = len(acks.ranges)
            _extend(acks.ranges, sequence)
            self.result.work += RANGE_WORK if 0 < before < len(acks.ranges) else 0


def scan(
    data: bytes,
    start: int,
    pub_sid: int,
    ack_sid: int,
    pub_prefix: bytes,
    take: Mapping[bytes, bool] | None = None,
    groups: Container[int] | None = None,
    keyed: bool = False,  # noqa: FBT001, FBT002 - one of three choices about the results
    rules: Rules = ANYBODY,
    most: int = 0,
    streams: Mapping[int, StreamSubject] = NO_STREAMS,
    consumer_sid: int = 0,
) -> Scan:
    """Split bytes from NATS into batches of publishes and acks, and all other frames as they are.

    The scan ends before a publish or ack, of JetStream too, that follows a frame in `others`, before a publisher that a batch has
    no place for, and once `Scan.work` reaches *most*: call it again, with the place that it reached, until it consumes nothing. A
    frame that is skipped is neither read nor checked beyond its control line and its end, and does not end the scan.

    Args:
        data: bytes read from NATS; the last frame may be incomplete.
        start: where a frame begins.
        pub_sid: NATS subscription of `_STAN.pub.<cid>.>`, behind `rules.users` and a user's name if there are users; 0 for none.
        ack_sid: NATS subscription of the ack inboxes `<anything>.<group>.<key>`, likewise; 0 for none.
        pub_prefix: `_STAN.pub.<cid>.`, with the dot.
        take: whether publishes for a channel (the NATS subject behind *pub_prefix*) are to be read; the rest is skipped.
            Must have a value for any name; looked up once per channel at most. None: all are read.
        groups: acks whose inbox names a group outside of it are skipped. None: all are read.
        keyed: whether to fill `Publishes.keys`.
        rules: whether there are users, and which reply subjects a publish may have. A publish against them is malformed: its
            prepared ack would be sent wherever the publisher wants, in the broker's name.
        most: of `Scan.work`, about: one frame is always read. 0: no bound.
        streams: by NATS subscription, the stream to which its frames belong, behind users as publishes are; those with a long
            subject, a reply subject that cannot be answered, or headers that `header_fields` does not take are left in `others`.
        consumer_sid: NATS subscription of acks to consumers of JetStream; 0 for none. Those with headers, a reply subject or
            another payload than +ACK are left in `others`.

    Raises:
        ValueError: *start* lies outside, or no NATS frame stands there; frames before garbage are handed over first.

    Cost: O(len(data) - start), without the rest of an incomplete frame.
    Source: NATS client protocol; STAN-SPEC 2.1, 4.1, 6.5.
    """
    if not 0 <= start <= len(data):
        raise ValueError("start lies outside of the data")
    jetstream = _JetStream(rules, streams or NO_STREAMS, consumer_sid)
    scanner = _Scanner(data, pub_sid, ack_sid, pub_prefix, take, groups, keyed, rules, jetstream)
    at, end = start, len(data)
    while at < end and (at == start or not most or at - start + scanner.result.work + jetstream.work < most):
        try:
            after = scanner.step(at)
        except ValueError:
            if at == start:
                raise
            break
        if after == at:
            break
        at = after
    return scanner.finish(at - start)


def by_sender(data: bytes, start: int, users: bytes, replies: bytes) -> tuple[int, dict[bytes, bytes]]:
    """Divide frames by their senders, each sender's in order of arrival.

    Args:
        data: bytes read from NATS; the last frame may be incomplete.
        start: where a frame begins.
        users: `Rules.users`; b"": all frames are of one sender.
        replies: the prefix of subjects that go on with a number, a dot and the user.

    Returns: the place after the last complete frame, and the frames by user; b"": those of unknown users.

    Raises:
        ValueError: as `scan`.

    Cost: O(len(data) - start), without the rest of an incomplete frame.
    """
    parts: dict[bytes, list[bytes]] = {}
    end = start
    for at, end, frame in read_frames(data, start):
        user = b""
        if users and frame.subject.startswith(users):
            user = frame.subject[len(users) :].partition(b".")[0]
        elif users and frame.subject.startswith(replies):
            user = frame.subject[len(replies) :].partition(b".")[2]
        parts.setdefault(user, []).append(data[at:end])
    return end, {user: b"".join(frames) for user, frames in parts.items()}


def frames(
    records: bytes | bytearray | memoryview,
    base_sequence: int,
    first: int,
    last: int,
    inbox: bytes,
    redelivery_count: int,
) -> bytes:
    """`PUB` frames to *inbox* with the messages [first, last] of one record batch, as far as it has them.

    Args:
        records: as `seal` made them.
        base_sequence: of the first message in *records*.
        first: of the first message to send.
        last: of the last one.
        inbox: of the subscription.
        redelivery_count: 0 for a first delivery; else the messages are flagged as redelivered, with this count.

    Raises:
        ValueError: a record that had to be read is cut off.

    Source: STAN-SPEC 2.1, MsgProto; 6.6.
    """
    extra = number_field(6, 1) + number_field(7, redelivery_count) if redelivery_count else b""
    data = bytes(records)
    upto = max(0, min(last - base_sequence + 1, len(data)))
    places = enumerate(islice(records_in(data), upto), base_sequence)
    return b"".join(publication(inbox, data[start:end] + extra) for at, (start, end) in places if at >= first)


class SlotTables(NamedTuple):
    """The unsettled messages of a key-ordered queue group, and the members that get those of a slot; changed in place."""

    slot_of: dict[int, int]  # by sequence: the slot of each unsettled message
    heads: dict[int, int]  # by slot: its first unsettled message
    behind: dict[
        int, deque[int]
    ]  # by slot: those that wait behind the first one, in increasing order; never empty ones
    takers: "array[int]"  # by slot: number of the member that got its last message; 0: none (u16)


class OpenWindows(NamedTuple):
    """The members of a key-ordered queue group in one turn, by their numbers from 1 on; both are i64, changed in place."""

    room: "array[int]"  # messages that each may get; number 0 has none
    in_flight: "array[int]"  # messages that each has


class HoldLimits(NamedTuple):
    """How many messages may wait behind others of their slots."""

    few: int  # always
    most: int  # while no more than `in_use` slots have unsettled messages
    in_use: int


class Assigned(NamedTuple):
    """The result of `assign` for messages of a record batch."""

    stop: int  # place of the first message that is not assigned
    turn: int  # number of the member that got the last message that could go to any member
    parts: list[tuple[int, list[int], list[int], bytes]]  # per member: number, first and last of runs, and the records
    held: list[int]  # the messages that have to wait
    held_records: list[bytes]  # their records


def assign(
    cut: tuple[bytes, bytes, bytes | memoryview],
    base_sequence: int,
    start: int,
    stop: int,
    tables: SlotTables,
    windows: OpenWindows,
    hold: HoldLimits,
    turn: int,
    level: int,
) -> Assigned:
    """Give new messages of a key-ordered queue group to its members, or let them wait behind earlier ones of their slots.

    A message goes to the member that got the last one of its slot, if that has room. All others, one after the other, go to one
    member until it has *level* in flight, then to the next one: the one with the fewest in flight, of several the first one
    after *turn*. It ends early where no member has room, or too many messages would wait.

    Args:
        cut: slots and ends as `slots` gives them, and the records.
        base_sequence: of the first record.
        start: place of the first message; all before it were assigned.
        stop: place behind the last one.
        tables: the unsettled messages.
        windows: the members, as many as have numbers.
        hold: limits.
        turn: number of the member that got the last message that could go to any member.
        level: see above.

    Cost: O(stop - start), while members are few.
    """
    slot_of, heads, behind, takers = tables
    room, in_flight = windows
    owners: list[int] = []
    chosen = 0
    for at in range(start, stop):
        sequence = base_sequence + at
        (slot,) = _OWNER.unpack_from(cut[0], 2 * at)
        number = 0
        if slot != NO_SLOT:
            if slot in heads:
                waiting = len(slot_of) - len(heads)
                if waiting >= hold.few and (waiting >= hold.most or len(heads) > hold.in_use):
                    break
                slot_of[sequence] = slot
                behind.setdefault(slot, deque()).append(sequence)
                owners.append(0)
                continue
            number = takers[slot]
        if number >= len(room) or room[number] <= 0:
            if not chosen or room[chosen] <= 0 or in_flight[chosen] >= level:
                chosen = _next_taker(windows, turn)
                if not chosen:
                    break
                turn = chosen
            number = chosen
        if slot != NO_SLOT:
            takers[slot] = number
            heads[slot] = sequence
            slot_of[sequence] = slot
        room[number] -= 1
        in_flight[number] += 1
        owners.append(number)
    held = [place for place, number in enumerate(owners, start) if not number]
    held_records = [_record(bytes(cut[2]), cut[1], place) for place in held]
    gets = [(number, [place for place, owner in enumerate(owners, start) if owner == number]) for number in set(owners)]
    parts = [(number, *_part(cut, base_sequence, places)) for number, places in sorted(gets) if number]
    return Assigned(start + len(owners), turn, parts, [base_sequence + place for place in held], held_records)


def _part(
    cut: tuple[bytes, bytes, bytes | memoryview], base_sequence: int, places: list[int]
) -> tuple[list[int], list[int], bytes]:
    """Return a member's share: first and last of runs, and the records."""
    _, ends, records = cut
    firsts = [base_sequence + place for place in places if place - 1 not in places]
    lasts = [base_sequence + place for place in places if place + 1 not in places]
    return firsts, lasts, b"".join(_record(bytes(records), ends, place) for place in places)


def _next_taker(windows: OpenWindows, turn: int) -> int:
    """The member with room that has the fewest messages in flight, of several the first one after *turn*; 0: none has room."""
    size = len(windows.room)
    numbers = [number % size for number in range(turn + 1, turn + 1 + size)]
    return min((n for n in numbers if n and windows.room[n] > 0), key=windows.in_flight.__getitem__, default=0)


def assign_again(
    messages: Seq[int], records: Seq[bytes], tables: SlotTables, windows: OpenWindows
) -> list[tuple[int, list[int], bytes]]:
    """Give messages that were sent or held back before, each the first of its slot, to the members.

    A message goes to the member that got the last one of its slot, if that has room, or else to the one with the fewest in
    flight.

    Args:
        messages: their sequences, in increasing order.
        records: their records, with their lengths in front.
        tables: the unsettled messages.
        windows: the members; they have room for all of the messages.

    Returns: per member its number, sequences, and records.
    """
    room, in_flight = windows
    given: dict[int, tuple[list[int], list[bytes]]] = {}
    for sequence, record in zip(messages, records, strict=True):
        slot = tables.slot_of.get(sequence, NO_SLOT)
        number = tables.takers[slot] if slot != NO_SLOT else 0
        if number >= len(room) or room[number] <= 0:
            number = _next_taker(windows, 0)
            if slot != NO_SLOT:
                tables.takers[slot] = number
        room[number] -= 1
        in_flight[number] += 1
        mine, data = given.setdefault(number, ([], []))
        mine.append(sequence)
        data.append(record)
    return [(number, mine, b"".join(data)) for number, (mine, data) in sorted(given.items())]


def _record(data: bytes, ends: bytes, place: int) -> bytes:
    """The record at *place*, with its length in front."""
    start = _LENGTH.unpack_from(ends, 4 * place - 4)[0] if place else 0
    return data[start : _LENGTH.unpack_from(ends, 4 * place)[0]]


def settle(runs: Seq[tuple[int, ...]], tables: SlotTables) -> list[int]:
    """Remove settled messages from the tables. *runs* begin with first and last. Returns the messages that are now the
    first of their slots, as those before them were settled."""
    slot_of, heads, behind, _ = tables
    freed: list[int] = []
    for first, last, *_ in runs:
        many = last - first >= len(slot_of)
        for sequence in [s for s in slot_of if first <= s <= last] if many else range(first, last + 1):
            slot = slot_of.pop(sequence, None)
            if slot is None:
                continue
            queue = behind.get(slot)
            if heads[slot] != sequence:
                behind[slot].remove(sequence)
            elif queue:
                heads[slot] = queue.popleft()
                freed.append(heads[slot])
            else:
                del heads[slot]
            if queue is not None and not queue:
                del behind[slot]
    return freed


_Run = TypeVar("_Run", bound=tuple[int, ...])


def take(runs: list[_Run], parts: Seq[tuple[int, ...]]) -> tuple[list[_Run], list[_Run], int]:
    """Take *parts* out of *runs*. Returns the removed and the remaining runs, and the number of removed sequences.

    Args:
        runs: disjoint and in increasing order; tuples, or of a class derived from them, that begin with first and last. A piece
            of one is of the same class, with the same items after them.
        parts: likewise; only first and last count.

    Cost: O(len(runs) + len(parts)).
    """
    removed: list[_Run] = []
    remaining: list[_Run] = []
    size, at, count = 0, 0, len(parts)
    for run in runs:
        begin, end = run[:2]
        while at < count and parts[at][1] < begin:
            at += 1
        while at < count and parts[at][0] <= end:
            first, last = parts[at][:2]
            if begin < first:
                remaining.append(_cut_run(run, begin, first - 1))
                begin = first
            until = min(end, last)
            removed.append(_cut_run(run, begin, until))
            size += until - begin + 1
            begin = until + 1
            if last > end:
                break
            at += 1
        if begin <= end:
            remaining.append(_cut_run(run, begin, end))
    return removed, remaining, size


def _cut_run(run: _Run, first: int, last: int) -> _Run:
    return run if run[:2] == (first, last) else tuple.__new__(type(run), (first, last, *run[2:]))


def shared(runs: Seq[tuple[int, ...]], others: Seq[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Return the common part of *runs* and *others*: pairs (first, last), none over two of either. Both are as in `take`.

    Cost: O(len(runs) + len(others)).
    """
    pairs = []
    at = 0
    for first, last, *_ in others:
        while at < len(runs) and runs[at][1] < first:
            at += 1
        here = at
        while here < len(runs) and runs[here][0] <= last:
            pairs.append((max(runs[here][0], first), min(runs[here][1], last)))
            here += 1
    return pairs


def merged(runs: list[_Run], added: list[_Run]) -> list[_Run] | None:
    """Both lists as one, if all of it is disjoint; else None. Both are in increasing order; runs begin with first and last.

    Cost: O(len(runs) + len(added)).
    """
    out = sorted(runs + added)
    return out if disjoint(out) else None


def disjoint(runs: list[_Run]) -> bool:
    """True if each of *runs*, which begin with first and last, ends before the next one begins."""
    return all(one[1] < other[0] for one, other in pairwise(runs))


def joined(parts: Iterable[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Parts in any order, which begin with first and last and may overlap, as pairs (first, last) in increasing order; those that
    touch are joined."""
    out: list[tuple[int, int]] = []
    for first, last, *_ in sorted(parts):
        if out and first <= out[-1][1] + 1:
            out[-1] = out[-1][0], max(out[-1][1], last)
        else:
            out.append((first, last))
    return out


def flat(parts: Iterable[tuple[int, ...]]) -> list[int]:
    """first, last, first, last, ... of disjoint parts in increasing order, with neighbours joined."""
    out: list[int] = []
    for first, last, *_ in parts:
        if out and out[-1] + 1 == first:
            out[-1] = last
        else:
            out += (first, last)
    return out


def _ack_frames(acks: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Start and end, reply subject and payload of each prepared PubAck frame."""
    at = 0
    while at < len(acks):
        line = acks.index(_CRLF, at)
        _, reply, size = acks[at:line].split(b" ")
        start = at
        at = line + 2 + int(size) + 2
        yield start, at, reply, acks[line + 2 : at - 2]


def refuse(acks: bytes, error: bytes) -> bytes:
    """The PubAck frames of `Publishes.acks` with PubAck.error set to *error*; off the hot path."""
    field = text(2, error)
    return b"".join(publication(reply, _without_room(payload) + field) for _, _, reply, payload in _ack_frames(acks))


def number(acks: bytes, replied: bytes, base_sequence: int, level: int) -> bytes:
    """The PubAck frames of `Publishes.acks` with the sequences of their messages and their ack level, where there is room.

    Args:
        acks: of consecutive messages.
        replied: `Publishes.replied` of the same messages.
        base_sequence: of the first of them.
        level: of all, an AckLevel.
    """
    out = bytearray(acks)
    sequences = [at for at, answer in enumerate(replied, base_sequence) if answer] if replied else count(base_sequence)
    for (_, end, _, payload), sequence in zip(_ack_frames(acks), sequences, strict=False):
        if _has_room(payload):
            out[end - 15 : end - 5] = _padded(sequence)
            out[end - 3] = level
    return bytes(out)


def _has_room(payload: bytes) -> bool:
    """True if a prepared PubAck, a guid alone, has room for more fields."""
    size, at = read_varint(payload, 1, len(payload))
    return len(payload) == at + size + len(_ROOM)


def _without_room(payload: bytes) -> bytes:
    """A prepared PubAck without that room."""
    return payload[: -len(_ROOM)] if _has_room(payload) else payload


def _padded(sequence: int) -> bytes:
    """A varint of ten bytes."""
    short = varint(sequence)
    return short if len(short) == 10 else bytes(byte | 0x80 for byte in short) + b"\x80" * (9 - len(short)) + b"\0"


def select(publishes: Publishes, keep: Seq[bool]) -> tuple[Publishes | None, bytes]:
    """Separate the messages of some publishers from the rest; off the hot path.

    Args:
        publishes: left as it is.
        keep: for each of `publishes.publishers`, whether its messages stay.

    Returns:
        The messages that stay (None if none does), and the prepared PubAck frames of the others, to be given to `refuse`. The
        payload_bytes stay those of all: refused messages were received, too (STAN-SPEC 4.1, step 2).
    """
    if all(keep):
        return publishes, b""
    if not any(keep):
        return None, publishes.acks
    staying = _Group(publishes.channel, publishes.user)
    place = {old: new for new, old in enumerate(old for old, accepted in enumerate(keep) if accepted)}
    staying.publishers = {publishes.publishers[old]: new for old, new in place.items()}
    acks = _ack_frames(publishes.acks)
    refused: list[bytes] = []
    owners = _OWNER.iter_unpack(publishes.owners)
    replied = publishes.replied or b"\1" * publishes.count
    messages = zip(owners, replied, records_in(publishes.bodies), strict=True)
    for at, ((owner,), answer, (start, end)) in enumerate(messages):
        ack, numbered = b"", False
        if answer:
            ack_start, ack_end, _, payload = next(acks)
            ack, numbered = publishes.acks[ack_start:ack_end], publishes.numbered and _has_room(payload)
        if not keep[owner]:
            refused.append(ack)
            continue
        staying.count += 1
        staying.bodies.append(publishes.bodies[start - 4 : end])
        staying.acks.append(ack)
        staying.numbered |= numbered
        staying.owners.append(_OWNER.pack(place[owner]))
        staying.replied.append(b"\1" if answer else b"\0")
        if publishes.keys:
            staying.keys.append(publishes.keys[at * KEY_BYTES : (at + 1) * KEY_BYTES])
        staying.times.append((_time(publishes.times.dues, at), _time(publishes.times.ttls, at)))
    staying.payload_bytes = publishes.payload_bytes
    return staying.publishes(), b"".join(refused)


def divide(publishes: Publishes, numbers: Seq[int]) -> dict[int, Publishes]:
    """Divide the messages of a batch by a number that each has, every group in the order of the batch: a batch for a channel with
    parts is divided among them.

    Args:
        publishes: left as it is. Each group has the name of its channel, and has its share of payload_bytes.
        numbers: one for each message.

    Raises:
        ValueError: a field of the batch has more or fewer values than there are numbers.

    Cost: O(len(publishes.bodies)).
    """
    _check_columns(publishes, len(numbers))
    groups: dict[int, _Group] = {}
    acks = _ack_frames(publishes.acks)
    owners = publishes.owners or bytes(2 * len(numbers))
    replied = publishes.replied or b"\1" * len(numbers)
    messages = zip(numbers, _OWNER.iter_unpack(owners), replied, records_in(publishes.bodies), strict=True)
    for at, (number_of, (owner,), answer, (start, end)) in enumerate(messages):
        group = groups.get(number_of)
        if group is None:
            group = groups[number_of] = _Group(publishes.channel, publishes.user)
        if answer:
            ack_start, ack_end, _, payload = next(acks, (0, 0, b"", b""))
            if not 0 < ack_end <= len(publishes.acks):
                raise ValueError("acks are missing")
            group.acks.append(publishes.acks[ack_start:ack_end])
            group.numbered |= publishes.numbered and _has_room(payload)
        group.count += 1
        group.bodies.append(publishes.bodies[start - 4 : end])
        place = group.publishers.setdefault(publishes.publishers[owner], len(group.publishers))
        group.owners.append(_OWNER.pack(place))
        group.replied.append(b"\1" if answer else b"\0")
        if publishes.keys:
            group.keys.append(publishes.keys[at * KEY_BYTES : (at + 1) * KEY_BYTES])
        group.times.append((_time(publishes.times.dues, at), _time(publishes.times.ttls, at)))
        group.payload_bytes += end - start
    if next(acks, None) is not None:
        raise ValueError("more acks than messages")
    for group in groups.values():
        group.payload_bytes = publishes.payload_bytes * group.payload_bytes // max(len(publishes.bodies), 1)
    return {number_of: group.publishes() for number_of, group in groups.items()}


def _check_columns(publishes: Publishes, count: int) -> None:
    """Raise ValueError if a field of the batch has a value too many or too few, or a message belongs to no publisher."""
    times = publishes.times
    columns = (
        (publishes.owners, 2),
        (publishes.replied, 1),
        (publishes.keys, KEY_BYTES),
        (times.dues, 8),
        (times.ttls, 8),
    )
    if any(column and len(column) != size * count for column, size in columns):
        raise ValueError("columns of other lengths")
    owners = (owner for (owner,) in _OWNER.iter_unpack(publishes.owners))
    if count and max(owners, default=0) >= len(publishes.publishers):
        raise ValueError("a message of nobody")

"""The client's kernel in plain Python: frames in, STAN messages out and in; and a load generator's bulk work.

Has the same results as its compiled twin, client.pyx, byte for byte. Has no state between calls.
Modelled on the server's server_py.py; the load half on the original's benchmark client.
"""

from collections.abc import Iterable

from stan_protocol.channels import publication
from stan_protocol.frames import Frame
from stan_protocol.kernel.wire_py import HEADER_TAG, KEY_TAG, long_text, number, read_fields, read_frames, text, varint
from stan_protocol.limits import REASON_BYTES_MAX

KERNEL_VERSION = 4
"""Raised with every change of the contract; a compiled twin with another one is not used."""

Tally = tuple[int, int, int, int, bool]
"""Of the messages for one NATS subscription: count; first and last sequence of those not redelivered (0 if none); count
of the redelivered; whether the sequences of those not redelivered only went up."""

Headers = tuple[tuple[bytes, bytes], ...]
"""Of one message: pairs of key and value, in the order in which they were published."""

Message = tuple[int, bytes, bytes, bytes, int, bool, int, Headers, bytes, int]
"""Sequence, subject, reply, data, timestamp (Unix ns), redelivered, redelivery count, headers, key, expiry (Unix ns; 0: none)."""

_PUBACK_WIRES = {1: 2, 2: 2, 16: 0, 17: 0}
_NUMBERED = b"\xa8\x01\x01"
"""PubMsg.numbered (21), true."""
_KIND_TAG, _DELAY_TAG, _REASON_TAG = b"\x80\x01", b"\x88\x01", b"\x9a\x01"
"""Of the fields kind (16), delay (17) and reason (19) of an Ack."""
_CUMULATIVE = b"\x90\x01\x01"
"""Ack.cumulative (18), true."""
_MESSAGE_WIRES = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 0, 7: 0, 10: 0, 16: 2, 17: 2, 18: 0}


def split(data: bytes, start: int) -> tuple[int, list[Frame]]:
    """Return the size in bytes of all complete frames from *start* on, and the frames.

    Raises:
        ValueError: *start* lies outside, or no NATS frame stands there; frames before garbage are returned first.

    Source: NATS client protocol.
    """
    frames = [*read_frames(data, start)]
    end = frames[-1][1] if frames else start
    return end - start, [frame for _, _, frame in frames]


def decode_message(payload: bytes) -> Message:
    """The fields of a MsgProto.

    Raises:
        ValueError: not a MsgProto.

    Source: STAN-SPEC 2.1.
    """
    values: dict[int, int] = {}
    texts: dict[int, bytes] = {}
    headers: list[tuple[bytes, bytes]] = []
    for field, wire, value, start, end in read_fields(payload):
        if wire != _MESSAGE_WIRES.get(field, wire):
            raise ValueError("not a MsgProto")
        if field == 16:
            headers.append(read_header(payload[start:end]))
        elif wire == 2:
            texts[field] = payload[start:end]
        else:
            values[field] = value
    timestamp, expires = values.get(5, 0), values.get(18, 0)
    return (
        values.get(1, 0),
        texts.get(2, b""),
        texts.get(3, b""),
        texts.get(4, b""),
        timestamp - (1 << 64) if timestamp >> 63 else timestamp,
        values.get(6, 0) != 0,
        values.get(7, 0) & 0xFFFFFFFF,
        tuple(headers),
        texts.get(17, b""),
        expires - (1 << 64) if expires >> 63 else expires,
    )


def read_header(content: bytes) -> tuple[bytes, bytes]:
    """Key and value of a Header. Raises ValueError: it is none."""
    texts = {1: b"", 2: b""}
    for field, wire, _, start, end in read_fields(content):
        if field in texts:
            if wire != 2:
                raise ValueError("not a header")
            texts[field] = content[start:end]
    return texts[1], texts[2]


def decode_puback(payload: bytes) -> tuple[bytes, bytes, int, int]:
    """Decode a PubAck: guid, error text (b"": the message is stored), sequence of the message (0: not reported), and ack level.

    Raises:
        ValueError: not a PubAck.

    Source: STAN-SPEC 2.1.
    """
    texts = {1: b"", 2: b""}
    numbers = {16: 0, 17: 0}
    for field, wire, value, start, end in read_fields(payload):
        if wire != _PUBACK_WIRES.get(field, wire):
            raise ValueError("not a PubAck")
        if field in texts:
            texts[field] = payload[start:end]
        elif field in numbers:
            numbers[field] = value
    return texts[1], texts[2], numbers[16], numbers[17]


def encode_publish(
    pub_subject: bytes,
    nats_reply: bytes,
    client_id: bytes,
    guid: bytes,
    channel: bytes,
    reply: bytes,
    data: bytes,
    conn_id: bytes,
    more: bytes = b"",
) -> bytes:
    """Return a `PUB` frame with a PubMsg.

    Args:
        pub_subject: `<pub prefix>.<channel>`.
        nats_reply: where the PubAck goes; b"" for no PubAck.
        client_id: of the publisher.
        guid: not empty, or the server refuses it.
        channel: its name.
        reply: the application's, or b"".
        data: the message.
        conn_id: of the publisher's connection.
        more: further fields, as `encode_more` makes them.

    Source: STAN-SPEC 2.1.
    """
    subject = b"%b %b" % (pub_subject, nats_reply) if nats_reply else pub_subject
    body = text(1, client_id) + text(2, guid) + text(3, channel) + text(4, reply) + text(5, data) + text(6, conn_id)
    return publication(subject, body + more)


def encode_more(headers: Iterable[tuple[bytes, bytes]], key: bytes, *, numbered: bool) -> bytes:
    """Fields of a PubMsg that the original does not know: headers (key and value), the key, and if the ack is to tell the
    sequence."""
    parts = [long_text(HEADER_TAG, text(1, name) + text(2, value)) for name, value in headers]
    return b"".join(parts) + (long_text(KEY_TAG, key) if key else b"") + _NUMBERED * numbered


def encode_acks(ack_inbox: bytes, channel: bytes, first: int, last: int) -> bytes:
    """`PUB` frames with one Ack for each sequence of [first, last]; b"" if *last* is below *first*.

    Source: STAN-SPEC 2.1, 6.5: acks are not cumulative.
    """
    head = text(1, channel)
    return b"".join(publication(ack_inbox, head + number(2, sequence)) for sequence in range(first, last + 1))


def encode_verdict(
    ack_inbox: bytes, channel: bytes, sequence: int, kind: int, delay_ns: int = 0, reason: bytes = b""
) -> bytes:
    """Return a `PUB` frame with an Ack that means something else than "done".

    Args:
        ack_inbox: of the subscription.
        channel: of the message.
        sequence: of the message.
        kind: as in wire.Verdict.
        delay_ns: the pause that a NAK asks for; 0: as the policy says.
        reason: of a NAK or REJECT, for people; cut to REASON_BYTES_MAX.
    """
    body = text(1, channel) + number(2, sequence)
    for tag, value in ((_KIND_TAG, kind), (_DELAY_TAG, delay_ns)):
        body += tag + varint(value) if value else b""
    return publication(ack_inbox, body + (long_text(_REASON_TAG, reason[:REASON_BYTES_MAX]) if reason else b""))


def encode_cumulative_ack(ack_inbox: bytes, channel: bytes, sequence: int) -> bytes:
    """Return a `PUB` frame with an Ack of everything that is pending up to *sequence*."""
    return publication(ack_inbox, text(1, channel) + number(2, sequence) + _CUMULATIVE)


def load_publishes(
    pub_subject: bytes,
    nats_reply: bytes,
    client_id: bytes,
    channel: bytes,
    conn_id: bytes,
    guid_prefix: bytes,
    first: int,
    count: int,
    data: bytes,
) -> bytes:
    """*count* `PUB` frames as `encode_publish` makes them, with the guids prefix + decimal *first*, first + 1, …"""
    return b"".join(
        encode_publish(pub_subject, nats_reply, client_id, b"%b%d" % (guid_prefix, place), channel, b"", data, conn_id)
        for place in range(first, first + count)
    )


def raw_publishes(subject: bytes, count: int, data: bytes) -> bytes:
    """Return *count* equal `PUB` frames, without STAN, to measure NATS alone."""
    return publication(subject, data) * count


def count_raw(data: bytes, start: int, sid: int) -> tuple[int, int, list[Frame]]:
    """Bytes consumed, frames counted for subscription *sid*, and all other frames. Raises as `split` does."""
    consumed, frames = split(data, start)
    others = [frame for frame in frames if frame.sid != sid or not sid]
    return consumed, len(frames) - len(others), others


class _Tally:
    """The messages that have come for one NATS subscription."""

    __slots__ = ("count", "first", "in_order", "last", "redelivered")

    def __init__(self) -> None:
        self.count = self.first = self.last = self.redelivered = 0
        self.in_order = True

    def add(self, sequence: int, *, redelivered: bool) -> None:
        self.count += 1
        if redelivered:
            self.redelivered += 1
            return
        if self.count - self.redelivered == 1:
            self.first = sequence
        elif sequence <= self.last:
            self.in_order = False
        self.last = sequence


def absorb(
    data: bytes, start: int, ack_sid: int, ack_inboxes: dict[int, tuple[bytes, bytes]]
) -> tuple[int, int, int, dict[int, Tally], bytes, list[Frame]]:
    """Handle the data that a benchmark client receives: count PubAcks, count messages and prepare their acks.

    Args:
        data: bytes read from NATS; the last frame may be incomplete.
        start: where a frame begins.
        ack_sid: NATS subscription of the PubAcks; 0 for none.
        ack_inboxes: for each NATS subscription of messages, where its acks go, and its channel.

    Returns:
        Bytes consumed, PubAcks without error, PubAcks with one, messages per subscription (see `Tally`), `PUB` frames
        with an Ack for every message in order of arrival, and all frames that are none of these or unparsable.

    Raises:
        ValueError: as `split` does.
    """
    consumed, frames = split(data, start)
    good = bad = 0
    tallies: dict[int, _Tally] = {}
    acks: list[bytes] = []
    others: list[Frame] = []
    for frame in frames:
        sid, payload = frame.sid, frame.payload
        try:
            if sid and sid == ack_sid:
                if decode_puback(payload)[1]:
                    bad += 1
                else:
                    good += 1
            elif sid and sid in ack_inboxes:
                sequence, _, _, _, _, redelivered, *_ = decode_message(payload)
                inbox, channel = ack_inboxes[sid]
                tallies.setdefault(sid, _Tally()).add(sequence, redelivered=redelivered)
                acks.append(publication(inbox, text(1, channel) + number(2, sequence)))
            else:
                others.append(frame)
        except ValueError:
            others.append(frame)
    counts = {sid: (t.count, t.first, t.last, t.redelivered, t.in_order) for sid, t in tallies.items()}
    return consumed, good, bad, counts, b"".join(acks), others

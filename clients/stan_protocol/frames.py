"""The results of the kernel: batches of publishes and acks, and every other NATS frame as it came.

Both twins of the kernel use these classes. None of them is made per message on the hot path: one `Publishes` has all messages of
one channel in one read, one `Acks` all sequences acked for one subscription in that read.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from stan_protocol.limits import INBOX_BYTES_MAX

KEY_BYTES = 8
"""Size of a key of `Publishes.keys`."""
KEY_MODULUS = (1 << 64) - 0x9E3779EB
"""A key is the remainder, by this prime, of the guid followed by a byte 1, read as a little-endian number. So all bytes and
the length of a guid count; guids that differ only within 8 bytes in a row never have the same key, others by chance alone."""


LATER = b" later"
"""Suffix of the name of a channel, for messages due later; no channel's name has a space."""


class Frame(NamedTuple):
    """A NATS frame that is not a well-formed publish or ack.

    `sid` 0 marks a frame of the connection itself; `subject` is then b"PING", b"PONG", b"+OK", b"-ERR" or b"INFO"
    and `payload` the rest of its line.
    """

    sid: int
    subject: bytes
    reply: bytes  # b"" when there is none
    header: bytes  # NATS header block of an HMSG, else b""
    payload: bytes

    @property
    def no_responders(self) -> bool:
        """True if this is NATS's own answer to a request for which there is no listener (status 503)."""
        return self.header.startswith(b"NATS/1.0 503")

    def encoded(self) -> bytes:
        """Encode the message as it came from NATS; `sid` is not 0."""
        words = [b"HMSG" if self.header else b"MSG", self.subject, b"%d" % self.sid]
        if self.reply:
            words.append(self.reply)
        if self.header:
            words.append(b"%d" % len(self.header))
        words.append(b"%d\r\n" % (len(self.header) + len(self.payload)))
        return b" ".join(words) + self.header + self.payload + b"\r\n"


class Rules(NamedTuple):
    """Rules of the kernel for the user of a publish or ack, and for the reply subjects of PubAcks."""

    users: bytes = b""
    """`_STAN.from.`: a user's name and a dot stand between it and the subject that the user has named. b"": no users."""
    to: bytes = b""
    """`_STAN.to.`: it, the user's name and a dot go before the reply subject."""
    replies: tuple[bytes, ...] = (b"",)
    """The reply subject of a publish begins with one of these ..."""
    own: tuple[bytes, ...] = ()
    """... and with none of these: the broker itself listens there."""

    def answers(self, reply: bytes) -> bool:
        """True if a publish may have this reply subject; b"" (none) is allowed."""
        return not reply or (
            len(reply) <= INBOX_BYTES_MAX and reply.startswith(self.replies) and not reply.startswith(self.own)
        )


ANYBODY = Rules()
"""No users, and acks go wherever a publisher says."""


Sender = tuple[bytes, bytes, bytes]
"""The sender of a publish: user (b"" without users), client id, connection id (b"" when absent)."""


class Times(NamedTuple):
    """Due times and times to live of the messages of a batch, as set by their publishers."""

    dues: bytes = b""
    """Per message: when it is due, Unix ns, i64 little-endian; b"" if they are to be stored in their channel at once. Messages
    with and without such a time are never in one batch."""
    ttls: bytes = b""
    """Per message: its time to live, ns, i64 little-endian, as it came; 0: none. b"" if no message has any."""


NO_TIMES: Final = Times()


@dataclass(slots=True)
class Publishes:
    """The well-formed PubMsgs for one channel, of one user, in one read, in order of arrival."""

    channel: bytes
    count: int
    bodies: bytes
    """Per message: u32 little-endian length, then MsgProto's fields reply (3), data (4), headers (16) and key (17) as encoded,
    absent when empty."""
    acks: bytes
    """`PUB <reply> <n>\\r\\n<PubAck{guid}>\\r\\n` per message that carried a NATS reply subject, in order."""
    publishers: tuple[tuple[bytes, bytes], ...]
    """Distinct (clientID, connID) pairs, in order of first appearance; connID b"" when absent."""
    owners: bytes
    """Per message: u16 little-endian index into `publishers`; b"" when there is only one publisher."""
    payload_bytes: int
    """Sum of the NATS payload sizes (monitoring's in_bytes)."""
    replied: bytes = b""
    """Per message: 1 if it carried a NATS reply subject, else 0; b"" when all did. Tells whose message an ack is."""
    keys: bytes = b""
    """Per message: the key of its guid (see KEY_MODULUS), KEY_BYTES little-endian bytes; b"" unless requested."""
    user: bytes = b""
    """The user who published them, as NATS reports; b"" without users."""
    numbered: bool = False
    """Some acks have room for the sequence and the durability of their message, which the kernel's `number` fills in."""
    times: Times = NO_TIMES
    """Due times and times to live, as set by their publishers."""

    @property
    def line(self) -> bytes:
        """The channel, or another name for it if the messages are due later: there is no order between the two."""
        return self.channel + LATER if self.times.dues else self.channel

    def senders(self) -> list[Sender]:
        """The publishers, each with the user."""
        return [(self.user, *publisher) for publisher in self.publishers]


@dataclass(slots=True)
class Acks:
    """The well-formed Acks for one ack inbox in one read."""

    group: int  # second to last token of the ack inbox, decimal
    key: int  # last token of the ack inbox, decimal
    ranges: list[tuple[int, int]]
    """Runs [first, last] of acked sequences in order of arrival; a run grows while each next sequence is last + 1."""
    user: bytes = b""
    """The user who acked, as NATS reports; b"" without users."""


class StreamSubject(NamedTuple):
    """A stream of JetStream to which the frames of a NATS subscription belong."""

    stream: str
    keyed: bool
    """A message's key is its subject; else the stream has one subject."""


@dataclass(slots=True)
class StreamMessages:
    """The messages for one stream in one read, in order of arrival; those without headers that NATS's own server understands,
    except Nats-Msg-Id."""

    stream: str
    subject: bytes
    """Of all; b"": each has its subject as its key."""
    count: int
    bodies: bytes
    """Per message: u32 little-endian length, then MsgProto's fields data (4), headers (16) and key (17) as encoded, absent when
    empty."""
    replies: bytes
    """Per message: u32 little-endian length, then its reply subject; b"" when none has any."""
    payload_bytes: int
    """Sum of the NATS payload sizes."""
    largest: int
    """Bytes of the largest payload with its header block."""
    largest_body: int
    """Bytes of the largest message in `bodies`."""
    ids: list[bytes] = field(default_factory=list)
    """Per message: the value of Nats-Msg-Id, b"" if it has none; empty when none has any."""
    user: bytes = b""
    """Of all; b"" without users."""


@dataclass(slots=True)
class StreamAcks:
    """The acks without an answer for one consumer of JetStream in one read."""

    stream: bytes
    consumer: bytes
    ranges: list[tuple[int, int]]
    """As in `Acks`, sequences of the stream."""
    user: bytes = b""
    """b"" without users."""


class Verdicts(NamedTuple):
    """Frames of acks that say more than "done", on their way to be replayed."""

    frames: list[Frame]


@dataclass(slots=True)
class Scan:
    """Result of one call of the kernel's `scan`, in the order in which it must be handled:
    publishes, acks, and those of JetStream (which do not depend on each other), malformed, then others."""

    consumed: int
    """Bytes that were handled, counted from `start`; an incomplete frame at the end is not."""
    publishes: list[Publishes] = field(default_factory=list)
    acks: list[Acks] = field(default_factory=list)
    malformed: list[Frame] = field(default_factory=list)
    """Frames for the publish or ack subscription that could not be taken: unparsable, no guid, PubMsg.subject different
    from the rest of the NATS subject, a reply subject against the rules, ack inbox or sequence not a number."""
    others: list[Frame] = field(default_factory=list)
    verdicts: list[Frame] = field(default_factory=list)
    """Acks that say more than "done": of another kind, or cumulative. They are well-formed; to be handled after
    `acks`, on which they do not depend: an acked message is done, whatever the verdict."""
    skipped: int = 0
    """Publishes and acks that were consumed unread, because the caller did not want their channel or group."""
    work: int = 0
    """The cost of handling all this, about, in bytes: those consumed, RANGE_WORK for each further range of acks of an inbox,
    BATCH_WORK for each channel of publishes, ack inbox, stream, consumer, malformed frame and verdict, and for each of `others`
    REQUEST_WORK, or COMPRESSED_WORK if its payload has ZSTD_MAGIC somewhere."""
    streams: list[StreamMessages] = field(default_factory=list)
    consumers: list[StreamAcks] = field(default_factory=list)

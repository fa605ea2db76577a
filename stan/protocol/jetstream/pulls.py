"""Requests for messages of consumers, and acks. Pure."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from stan_protocol.limits import REASON_BYTES_MAX
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.units import go_duration

from stan import limits
from stan.protocol.jetstream.consumers import ConsumerConfig
from stan.protocol.jetstream.errors import RequestError
from stan.protocol.jetstream.json_data import Fields, read_object

ACK_SUBJECTS: Final = "$JS.ACK.>"
FLOW_SUBJECTS: Final = "$JS.FC.>"
_ACK_TOKENS: Final = 9
_FLOW_TOKENS: Final = 5
PLAIN_ACKS: Final = frozenset((b"", b"+ACK"))
"""Payloads that say no more than that a message is done."""


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A request for messages."""

    batch: int = 1
    max_bytes: int = 0  # 0: no limit
    expires: int = 0  # ns; 0: never
    no_wait: bool = False
    heartbeat: int = 0  # ns; 0: none


def read_pull(payload: bytes) -> PullRequest:
    """The request in a payload: JSON, a number, or nothing, which asks for one message.

    Raises:
        RequestError: it is none of these.
    """
    text = payload.strip()
    if text.isdigit() and len(text) < 10:
        return PullRequest(max(1, min(int(text), limits.STREAM_CONSUMER_BATCH_MAX)))
    fields = Fields(read_object(payload))
    batch = fields.number("batch", 1)
    return PullRequest(
        batch=max(1, min(batch, limits.STREAM_CONSUMER_BATCH_MAX)),
        max_bytes=max(0, fields.number("max_bytes")),
        expires=fields.number("expires"),
        no_wait=fields.switch("no_wait"),
        heartbeat=max(0, fields.number("idle_heartbeat")),
    )


def pull_refusal(request: PullRequest, config: ConsumerConfig) -> bytes:
    """The status for a request that a consumer does not take; b"" if it does."""
    if config.max_batch and request.batch > config.max_batch:
        return b"409 Exceeded MaxRequestBatch of %d" % config.max_batch
    if config.max_expires and request.expires > config.max_expires:
        return b"409 Exceeded MaxRequestExpires of " + go_duration(config.max_expires).encode()
    if config.max_bytes and request.max_bytes > config.max_bytes:
        return b"409 Exceeded MaxRequestMaxBytes of %d" % config.max_bytes
    if request.heartbeat and not 0 < request.heartbeat * 2 <= request.expires:
        return b"400 Bad Request - heartbeat value too large"
    if 0 < request.heartbeat < limits.PULL_BEAT_MIN:
        return b"400 Bad Request - heartbeat value too small"
    return b""


class Said(NamedTuple):
    """An ack of a client, of any kind."""

    kind: int  # wire.ACK, NAK, WORKING or REJECT
    delay: int = 0  # ns, of NAK
    reason: bytes = b""  # of REJECT
    next: bytes | None = None  # the request for messages that comes with an ack; None: none


def read_ack(payload: bytes) -> Said | None:
    """The ack that a payload encodes; None: it is none."""
    word, _, rest = payload.partition(b" ")
    if word in (b"", b"+ACK", b"+OK"):
        return Said(wire.ACK)
    if word == b"-NAK":
        return Said(wire.NAK, delay=_delay(rest))
    if word == b"+WPI":
        return Said(wire.WORKING)
    if word == b"+TERM":
        return Said(wire.REJECT, reason=rest[:REASON_BYTES_MAX])
    if word == b"+NXT":
        return Said(wire.ACK, next=rest)
    return None


def _delay(text: bytes) -> int:
    """The pause that a client asks for, ns; 0 if it names none that can be read."""
    try:
        return max(0, Fields(read_object(text)).number("delay"))
    except RequestError:
        return 0


class AckPlace(NamedTuple):
    """Names in an ack subject."""

    stream: bytes
    consumer: bytes
    sequence: int  # of the message


class FlowPlace(NamedTuple):
    """Names in the subject on which a client answers to flow control."""

    stream: bytes
    consumer: bytes


class AckNumbers(NamedTuple):
    """Numbers in an ack subject, as advisories tell them."""

    consumer_seq: int
    stream_seq: int
    deliveries: int


def read_ack_numbers(subject: bytes) -> AckNumbers | None:
    """The numbers of an ack subject; None: it is none of ours."""
    tokens = subject.split(b".")[4:7]
    if len(tokens) < 3 or not all(one.isdigit() and len(one) <= 19 for one in tokens):
        return None
    deliveries, sequence, number = map(int, tokens)
    return AckNumbers(number, sequence, deliveries)


def read_ack_subject(subject: bytes) -> AckPlace | None:
    """The stream, the consumer and the message of an ack subject; None: it is none of ours."""
    tokens = subject.split(b".")
    if len(tokens) != _ACK_TOKENS or not tokens[5].isdigit() or len(tokens[5]) > 19:
        return None
    return AckPlace(tokens[2], tokens[3], int(tokens[5]))


def read_flow_subject(subject: bytes) -> FlowPlace | None:
    """The stream and the consumer of an answer to flow control; None: it is none of ours."""
    tokens = subject.split(b".", _FLOW_TOKENS)
    return FlowPlace(tokens[2], tokens[3]) if len(tokens) == _FLOW_TOKENS else None

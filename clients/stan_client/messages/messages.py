"""A delivered message, the verdicts that a program can give on it, and the options under which it is delivered."""

import json
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

from stan_client.errors import NilMessageError
from stan_client.positions import Start, new_only
from stan_client.transport.session import text_of

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NO_HEADERS: Final[Mapping[str, bytes]] = MappingProxyType({})


OnError = Literal["wait", "nak", "reject"]
"""The fate of a message whose callback has failed: it waits for its ack wait, or is negatively acked, or rejected."""


class Receipt(Awaitable[bool]):
    """Returned by `ack()`, `nak()` and the other verdicts. Awaiting it is optional and never blocks; the result is False if the
    session on which the message came is gone, and the verdict was not sent."""

    def __init__(self, *, sent: bool) -> None:
        self._sent = sent

    def __await__(self) -> Generator[None, None, bool]:
        yield from ()
        return self._sent


SENT: Final = Receipt(sent=True)
DROPPED: Final = Receipt(sent=False)


class Acker(Protocol):
    """The part of a subscription that a message uses; all methods raise the errors of Message."""

    def ack(self, sequence: int) -> Receipt:
        """Acknowledge one sequence."""

    def ack_up_to(self, sequence: int) -> Receipt:
        """Acknowledge all that is pending up to a sequence."""

    def nak(self, sequence: int, delay_s: float | None, reason: str) -> Receipt:
        """Tell that a message was not handled."""

    def working(self, sequence: int) -> Receipt:
        """Tell that a message is still being handled."""

    def reject(self, sequence: int, reason: str) -> Receipt:
        """Tell that a message shall never come again."""

    def respond(self, reply: str, data: bytes) -> Receipt:
        """Send data to the reply subject of a message."""


class Message:
    """A message of a channel (STAN-SPEC 2.1, MsgProto); text is `str`, bytes that are not UTF-8 as surrogates.

    `headers` are by name; of several with one name the last counts.
    """

    __slots__ = (
        "_acker",
        "channel",
        "data",
        "expires_at_ns",
        "headers",
        "key",
        "redelivered",
        "redelivery_count",
        "reply",
        "sequence",
        "timestamp_ns",
    )

    def __init__(
        self,
        sequence: int,
        channel: str,
        reply: str = "",
        data: bytes = b"",
        timestamp_ns: int = 0,
        redelivered: bool = False,  # noqa: FBT001, FBT002 - positional for speed
        redelivery_count: int = 0,
        acker: Acker | None = None,
        *,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        key: bytes = b"",
        expires_at_ns: int = 0,
    ) -> None:
        self.sequence = sequence  # place in the channel; the first is 1
        self.channel = channel
        self.reply = reply
        self.data = data
        self.timestamp_ns = timestamp_ns  # Unix nanoseconds, given by the server
        self.redelivered = redelivered
        self.redelivery_count = redelivery_count  # 0 for a first delivery
        self.headers = {text_of(name): value for name, value in headers} if headers else NO_HEADERS
        self.key = key  # b"": none
        self.expires_at_ns = expires_at_ns  # Unix nanoseconds, by the server's clock; 0: it does not expire
        self._acker = acker

    @property
    def timestamp(self) -> datetime:
        """The time at which the server stored this message, in UTC, to the microsecond; `timestamp_ns` is exact."""
        return _utc(self.timestamp_ns)

    @property
    def expires_at(self) -> datetime | None:
        """The time at which its time to live is over and the server removes it, in UTC; None: it does not expire."""
        return _utc(self.expires_at_ns) if self.expires_at_ns else None

    @property
    def text(self) -> str:
        """The data as text. Raises UnicodeDecodeError: it is not UTF-8."""
        return self.data.decode()

    def json(self) -> Any:
        """The data as JSON. Raises ValueError: it is none."""
        return json.loads(self.data)

    # The verdicts. Servers do not answer them, so no call waits: `message.ack()` and `await message.ack()` do the same, and the
    # verdict leaves at the end of this turn of the event loop.

    def ack(self) -> Receipt:
        """Acknowledge this message; the ack leaves with all others of this turn. For `manual_acks=True` only.

        Raises:
            ManualAckError: the subscription acks by itself.
            BadSubscriptionError: the subscription is closed.
            NilMessageError: the message was not delivered by a subscription.
        """
        return self._delivered_by().ack(self.sequence)

    def ack_up_to(self) -> Receipt:
        """Acknowledge this message and all before it that the subscription has been sent and has not acked.

        Raises:
            NotSupportedError: the server of the session on which the message came does not know this, and nothing was sent; or
                the subscription is a member of a queue group, which other members' messages do not concern.
            ManualAckError, BadSubscriptionError, NilMessageError: as of ack().
        """
        return self._delivered_by().ack_up_to(self.sequence)

    def nak(self, delay_s: float | None = None, reason: str = "") -> Receipt:
        """Tell that this message was not handled: it comes again, flagged as redelivered, without waiting for the ack wait.

        Args:
            delay_s: seconds, >= 0, before which it does not come again; a server bounds them (7 days). None: as the operator's
                delivery policy says, or else about at once.
            reason: for people; at most 1 KiB of it is sent.

        Raises:
            NotSupportedError: the server of the session on which the message came would take it for an ack; nothing was sent.
            ValueError: *delay_s* is no number of seconds.
            ManualAckError, BadSubscriptionError, NilMessageError: as of ack().
        """
        return self._delivered_by().nak(self.sequence, delay_s, reason)

    def working(self) -> Receipt:
        """Report that this message is still being handled: its ack wait begins again (a delivery policy may bound how often).
        Errors as of nak()."""
        return self._delivered_by().working(self.sequence)

    def reject(self, reason: str = "") -> Receipt:
        """Tell that this message can never be handled: it is settled, and does not come again. *reason*, errors: as of nak()."""
        return self._delivered_by().reject(self.sequence, reason)

    def respond(self, data: bytes) -> Receipt:
        """Answer a request, which is a message published by Client.request: *data* goes to the requester, straight over NATS.
        Call it before the message is acked: a handler that dies in between answers when the message has come again, and the
        requester takes the first answer. The result is False if the NATS connection is gone.

        Raises:
            NotARequestError: the message asks for no reply.
            MessageTooLargeError: larger than NATS accepts.
            NilMessageError: the message was not delivered by a subscription.
        """
        return self._delivered_by().respond(self.reply, data)

    def _delivered_by(self) -> Acker:
        if self._acker is None:
            raise NilMessageError
        return self._acker

    def __repr__(self) -> str:
        again = f" redelivered {self.redelivery_count}" if self.redelivered else ""
        return f"<Message {self.sequence} {self.channel} {len(self.data)} bytes{again}>"


def _utc(time_ns: int) -> datetime:
    return EPOCH + timedelta(microseconds=time_ns // 1000)


Callback = Callable[[Message], None] | Callable[[Message], Awaitable[None]]
BatchCallback = Callable[[list[Message]], None] | Callable[[list[Message]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionOptions:
    """Delivery options of a subscription; the server checks them and answers with its own errors (STAN-SPEC 5.1)."""

    queue: str = ""
    durable: str = ""
    start: Start = field(default_factory=new_only)
    max_in_flight: int = 1024  # messages delivered and not acked, >= 1
    ack_wait_s: int = 30  # whole seconds until an unacked message is delivered again, >= 1
    manual_acks: bool = False
    batch: bool = False  # the callback takes the list of messages that arrived together
    on_error: OnError = "wait"  # the fate of messages whose callback has failed
    replica: str = ""  # the node that may serve it: "any", "zone=...", a name; "": the leader

"""A delivered message, and the options under which it is delivered."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from stan_client.errors import NilMessageError
from stan_client.positions import Start, new_only
from stan_client.session import text_of

NO_HEADERS: Final[Mapping[str, bytes]] = MappingProxyType({})


class Acker(Protocol):
    """The part of a subscription that a message uses."""

    def ack(self, sequence: int) -> None:
        """Acknowledge one sequence, if the subscription is open and in manual mode."""


class Message:
    """One message of a channel (STAN-SPEC 2.1, MsgProto); text is `str`, bytes that are not UTF-8 as surrogates.

    `headers` are by name; of several with one name the last counts.
    """

    __slots__ = (
        "_acker",
        "channel",
        "data",
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
        self._acker = acker

    def ack(self) -> None:
        """Acknowledge this message; the ack leaves with all others of this turn. For `manual_acks=True` only.

        Raises:
            ManualAckError: the subscription acks by itself.
            BadSubscriptionError: the subscription is closed.
            NilMessageError: the message was not delivered by a subscription.
        """
        if self._acker is None:
            raise NilMessageError
        self._acker.ack(self.sequence)

    def __repr__(self) -> str:
        again = f" redelivered {self.redelivery_count}" if self.redelivered else ""
        return f"<Message {self.sequence} {self.channel} {len(self.data)} bytes{again}>"


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

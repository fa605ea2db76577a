"""The errors of the client: one class for each text of the original client, all derived from StanClientError.

Texts are those of stan.go (STAN-SPEC 14.2); refusals of the server come as ServerError with the server's own text.
"""

from collections.abc import Sequence as Ordered
from typing import ClassVar

from stan_protocol.refusals import MESSAGE_TOO_LARGE, code_of


class StanClientError(Exception):
    """Root of everything this package raises; str() shows `text` if no other text was given."""

    text: ClassVar[str] = "stan: client error"

    def __init__(self, text: str = "") -> None:
        super().__init__(text or self.text)


class ServerError(StanClientError):
    """The server refused; the text is the server's, for people. `code` says which refusal it is: one of the reference of errors,
    "" if this version knows none for it."""

    def __init__(self, text: str = "", code: str = "") -> None:
        """Take the text and the code of an answer; those of the original protocol carry no code, but their text tells it."""
        super().__init__(text)
        self.code = code or code_of(text)


class RequestTimeoutError(StanClientError, TimeoutError):
    """A request got no answer in time."""


class NobodyListensError(RequestTimeoutError):
    """NATS reports that no server of this cluster id takes such requests, for longer than the client bears it."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"stan: no server listens to {kind} requests of this cluster id")


class ConnectRequestTimeoutError(RequestTimeoutError):
    """No server answers for this cluster id: it does not run, has another cluster id, or has no leader."""

    text = "stan: connect request timeout (possibly wrong cluster ID?)"


class CannotConnectError(StanClientError, ConnectionError):
    """No NATS server of the list could be used; `reason` says why, `passing` is True if that may pass by itself: none runs there,
    or none answers. `__cause__` is the error of nats-py or of the system."""

    def __init__(self, where: str, reason: str, *, passing: bool) -> None:
        super().__init__(f"stan: cannot connect to {where}: {reason}")
        self.where, self.reason, self.passing = where, reason, passing


class InvalidUrlError(StanClientError, ValueError):
    """The URL of a NATS server is none."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"stan: {url!r} is no NATS URL: {reason}")


class CloseRequestTimeoutError(RequestTimeoutError):
    """The close request of the client got no answer; the server will notice by its heartbeats."""

    text = "stan: close request timeout"


class SubscribeRequestTimeoutError(RequestTimeoutError):
    """The subscription request got no answer; a close for it was sent in case it was made after all."""

    text = "stan: subscribe request timeout"


class UnsubscribeRequestTimeoutError(RequestTimeoutError):
    """The close or unsubscribe request of a subscription got no answer; it may be tried again."""

    text = "stan: unsubscribe request timeout"


class FetchTimeoutError(RequestTimeoutError):
    """No messages came in time: the channel has no leader, the servers are busy, or they do not know fetch."""

    text = "stan: fetch request timeout"


class ReplyTimeoutError(RequestTimeoutError):
    """The request is stored, and no answer came in time; it may still be handled."""

    text = "stan: no reply in time"


class OutcomeUnknownError(RequestTimeoutError):
    """A batch without ids, or a change, got no answer in time, and may have been stored or made. The batch was not sent again."""


class ChannelReplacedError(StanClientError):
    """The channel was deleted and made again since it was read, or has lost its end: its sequences are other messages now."""

    text = "stan: the channel was deleted and made again, or has lost its end: its messages are others than those that were read"


class ChannelLostError(StanClientError):
    """The channel is another member's of the consumer group: messages that were not committed come again to that one."""

    def __init__(self, channel: str) -> None:
        super().__init__(f"stan: the consumer group has given channel {channel} to another member")
        self.channel = channel


class DataLossError(StanClientError):
    """Messages that should have been read next are gone: limits have removed them, the server's log was damaged, or the channel
    was deleted. `first` and `last` are their sequences, 0 where only the text has them."""

    def __init__(self, text: str, channel: str = "", first: int = 0, last: int = 0) -> None:
        super().__init__(text)
        self.channel, self.first, self.last = channel, first, last


class PositionTakenError(StanClientError):
    """The position of `exactly_once` in the database was moved by another reader of the same name, which has the message."""

    def __init__(self, name: str, channel: str) -> None:
        super().__init__(f"stan: another reader {name!r} of channel {channel} has moved the position")
        self.name, self.channel = name, channel


class ConnectionClosedError(StanClientError):
    """The client is closed, or its session was lost and could not be made again; `__cause__` has the reason."""

    text = "stan: connection closed"


class PublishAckTimeoutError(StanClientError, TimeoutError):
    """No ack came in time: whether the message was stored is not known."""

    text = "stan: publish ack timeout"


class NotSentError(PublishAckTimeoutError):
    """The time was over while the publish waited for a session or for room in the window: the message was not sent."""

    text = "stan: publish timeout, the message was not sent"


class TooManyInFlightError(StanClientError):
    """PublishWindow.publish was called although `max_pub_acks_in_flight` acks are outstanding; await room() first."""

    text = "stan: max in flight reached."


class InvalidNameError(StanClientError, ValueError):
    """A channel or cluster id that cannot be part of a NATS subject, or that no server takes (STAN-SPEC 4.2)."""

    text = "stan: invalid subject"

    @classmethod
    def of_channel(cls, channel: str) -> "InvalidNameError":
        """Make the error for a name that no channel can have; the text says why."""
        reason = "tokens separated by single dots, without blanks, `/`, `*` and `>`"
        if set(channel) & {"*", ">"}:
            reason = "a channel has no wildcards; patterns are for consumer groups and `channels.info(pattern=...)`"
        return cls(f"{cls.text}: {channel!r} can be no channel: {reason}")


class InvalidHeadersError(StanClientError, ValueError):
    """Headers that no server takes: a name that is not text, or more than 64 KiB as encoded."""

    text = "stan: invalid headers"


class InvalidDelayError(StanClientError, ValueError):
    """A delay of a message that no server takes, or a time that tells no offset from UTC."""

    text = "stan: invalid delay"


class InvalidTtlError(StanClientError, ValueError):
    """A time to live of a message that no server takes."""

    text = "stan: invalid time to live"


class InvalidKeyError(StanClientError, ValueError):
    """A key of a message that no server takes: longer than 1 KiB."""

    text = "stan: invalid key"


class MessageTooLargeError(StanClientError):
    """The encoded message is larger than the NATS server's max_payload."""

    text = "stan: message larger than the server's max_payload"


def refused(text: str) -> StanClientError:
    """Make the error for a server's refusal of a publish."""
    return MessageTooLargeError(text) if text == MESSAGE_TOO_LARGE else ServerError(text)


class BadAckError(StanClientError):
    """A publish ack could not be decoded."""

    text = "stan: malformed ack"


class BadSubscriptionError(StanClientError):
    """The subscription is closed."""

    text = "stan: invalid subscription"


class BadConnectionError(ConnectionClosedError):
    """The NATS connection is closed, or the one handed in is not connected."""

    text = "stan: invalid connection"


class ManualAckError(StanClientError):
    """ack() on a message of a subscription that acks by itself."""

    text = "stan: cannot manually ack in auto-ack mode"


class NilMessageError(StanClientError):
    """ack() on a message that belongs to no subscription."""

    text = "stan: nil message"


class NotARequestError(StanClientError):
    """respond() to a message that asks for no reply, or for one elsewhere than in an inbox (`_INBOX.`)."""

    text = "stan: the message asks for no reply"


class NoMessageError(StanClientError, TimeoutError):
    """No message came in time."""

    text = "stan: no message came in time"


class NotSupportedError(StanClientError):
    """The server is too old for this request, or does not know the headers and keys of a publish or the negative acks, "working",
    rejections and cumulative acks of a subscription; nothing was sent to it."""

    text = "stan: not supported by server"


class PingFailureError(StanClientError):
    """The server did not answer `ping_max_out` pings in a row."""

    text = "stan: connection lost due to PING failure"


class PingOptionsError(StanClientError, ValueError):
    """ping_interval_s below 1 or ping_max_out below 2."""

    def __init__(self, interval: int, max_out: int) -> None:
        super().__init__(f"invalid ping values: interval={interval} (min>0) maxOut={max_out} (min=2)")


class PublishManyError(StanClientError):
    """Some messages of publish_many were not acknowledged."""

    def __init__(self, acked: int, failures: Ordered[tuple[int, StanClientError]]) -> None:
        """Take how many were acked and, for each other one, its place in the iterable and its error."""
        first, reason = failures[0]
        super().__init__(
            f"{len(failures)} of {acked + len(failures)} messages not acked; first is number {first}: {reason}"
        )
        self.acked = acked
        self.failures = failures

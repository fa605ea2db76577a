"""A program's verdicts on the messages that came on one path of a subscription: done, failed, still at work, never again.

Promises: an ack goes to the newest path, as the server may have sent the message there again; a verdict, and a cumulative ack, go
to the path on which the message came, and depend on the features of its session's server. Once that path is closed they are
dropped: a durable's messages come again and can be judged then, others never come again.
"""

import traceback
from collections.abc import Callable
from typing import Final

from stan_protocol.proto import wire_pb2 as wire

from stan_client.errors import NotSupportedError
from stan_client.messages.messages import DROPPED, SENT, Message, OnError, Receipt
from stan_client.subscribing.subscription_path import SubscriptionPath
from stan_client.transport.inbox import reply_subject

ON_ERROR: Final[dict[OnError, wire.Verdict | None]] = {"wait": None, "nak": wire.NAK, "reject": wire.REJECT}
"""The verdict about messages whose callback has failed."""

COMES_AGAIN: Final = "is not acked and will come again"


class VerdictPath:
    """The Acker of the messages of one path."""

    def __init__(
        self, path: SubscriptionPath, ack: Callable[[int], Receipt], check: Callable[[], None], *, in_group: bool
    ) -> None:
        """Serve the messages of *path*.

        Args:
            path: where they came.
            ack: acknowledges one sequence.
            check: raises if the program must not judge messages of the subscription.
            in_group: the subscription is a member of a queue group.
        """
        self._path = path
        self._check = check
        self._in_group = in_group
        self.ack = ack

    def ack_up_to(self, sequence: int) -> Receipt:
        """Acknowledge all that is pending up to a sequence."""
        self._check()
        if self._in_group:
            raise NotSupportedError("stan: members of a queue group cannot ack all messages up to one")
        return SENT if self._path.ack_up_to(sequence) else DROPPED

    def nak(self, sequence: int, delay_s: float | None, reason: str) -> Receipt:
        """Tell that a message was not handled."""
        return self._say(sequence, wire.NAK, reason, delay_s)

    def working(self, sequence: int) -> Receipt:
        """Tell that a message is still being handled."""
        return self._say(sequence, wire.WORKING)

    def reject(self, sequence: int, reason: str) -> Receipt:
        """Tell that a message shall never come again."""
        return self._say(sequence, wire.REJECT, reason)

    def respond(self, reply: str, data: bytes) -> Receipt:
        """Send data to the reply subject of a message, ahead of the acks of this turn. It also works for an acked message and
        after the path is closed: the requester waits for it."""
        return SENT if self._path.respond(reply_subject(reply), data) else DROPPED

    def _say(self, sequence: int, kind: wire.Verdict, reason: str = "", delay_s: float | None = None) -> Receipt:
        self._check()
        return SENT if self._path.say(sequence, kind, delay_s, reason) else DROPPED


def judge_failed(path: SubscriptionPath, messages: list[Message], on_error: OnError, error: Exception) -> str:
    """Apply *on_error* to *messages*, whose callback has raised *error*, if the server knows verdicts; returns their fate, for
    the log."""
    verdict = ON_ERROR[on_error]
    noted = False
    if verdict is not None and path.knows_verdicts:
        reason = "".join(traceback.format_exception_only(error)).strip()
        for message in messages:
            noted = path.say(message.sequence, verdict, reason=reason)
    return "is rejected" if noted and verdict == wire.REJECT else COMES_AGAIN

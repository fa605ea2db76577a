"""Admission: the frames from a server's subscriptions that are handled; the others are dropped.

A frame is dropped if its answer could not be sent (NATS closes a connection that sends too long a line), if its answer would go
to a subject that servers listen on, or if it is a client's request that the authoriser does not admit.
"""

from collections.abc import Callable

from stan_protocol.frames import Frame
from stan_protocol.refusals import go_quote

from stan.core.broker.broker import Broker
from stan.edge.nats.subscriptions import FIRST_MORE_SID
from stan.protocol.requests import can_be_answered
from stan.protocol.user_subjects import from_any_user

SERVERS_REPLIES = (b"_INBOX.", b"_STAN.reply.", b"_STAN.node.")
"""Prefixes of the reply subjects of servers' requests to each other."""
SHOWN_BYTES = 100
"""Bytes of a subject that are shown in a log line."""


class Admission:
    """Knows which subscriptions carry requests of clients, and authorises those."""

    def __init__(self, broker: Broker, complain: Callable[[str, str], None]) -> None:
        """*complain*: called with level and text of a line about a client's frame."""
        self._broker = broker
        self._complain = complain
        self._authorizer = broker.view.authorizer
        self._with_users = self._authorizer is not None and self._authorizer.with_users
        self.judged: set[int] = set()  # sids of clients' requests, which are authorised

    def subject_for(self, subject: str) -> str:
        """Subject to subscribe to, to receive clients' messages on *subject*: with users, NATS adds the user's name to it."""
        return from_any_user(subject) if self._with_users else subject

    def judge(self, sid: int, subject: str) -> str:
        """Subject to subscribe to for *subject*. If clients send requests on it, its frames are authorised from now on."""
        subjects = self._broker.view.subjects
        admit = subject.startswith(f"{subjects.extension}.") and not subject.startswith(f"{subjects.extension}.events.")
        admit |= subject.encode() in self._broker.frames.original and not subject.startswith(f"{subjects.node}.")
        if not admit:
            return subject
        self.judged.add(sid)
        return self.subject_for(subject)

    def admitted(self, frame: Frame) -> Frame | None:
        """The frame to handle, as its user sent it; None if it must be dropped."""
        if not can_be_answered(frame):
            return None
        if frame.sid >= FIRST_MORE_SID and self._with_users:
            return frame  # its taker knows its users, as a message of another protocol needs no reply subject
        if frame.sid not in self.judged:
            return frame if not frame.reply or frame.reply.startswith(SERVERS_REPLIES) else None
        if self._authorizer is not None and self._with_users:
            return self._authorizer.admit(frame)
        if frame.reply and not self._broker.view.may_send_to(frame.reply):
            self.note_reply(frame)
            return None
        return frame if self._authorizer is None else self._authorizer.admit(frame)

    def note_reply(self, frame: Frame) -> None:
        """Log a request that was refused because of its reply subject: its sender gets no answer."""
        shown = f"{quoted(frame.subject)} with the reply subject {quoted(frame.reply)}"
        self._complain("WRN", f"not answered, as no client may be told anything there (see reply_prefixes): {shown}")


def quoted(subject: bytes) -> str:
    """The beginning of a subject, quoted, for a log line."""
    return go_quote(subject[:SHOWN_BYTES].decode("utf-8", "replace"))

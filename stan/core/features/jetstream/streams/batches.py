"""Batches of messages for streams, as the scan of what NATS sends makes them: on their way into the log, or taken apart."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stan_protocol.frames import Frame, StreamMessages
from stan_protocol.kernel.wire_py import records_in
from stan_protocol.proto import wire_pb2 as wire

from stan.protocol.jetstream import headers
from stan.protocol.kernel import server as kernel
from stan.protocol.user_subjects import user_of


class UserFrame(Frame):
    """A message of a user that wants no answer, so that no reply subject names the user."""

    user: bytes = b""

    @classmethod
    def of(cls, frame: Frame, user: bytes) -> "UserFrame":
        """The message, with its user."""
        made = cls(*frame)
        made.user = user
        return made


def publisher_of(frame: Frame) -> bytes:
    """The publisher of a message, as NATS names its user; b"": NATS reports no users."""
    return frame.user if isinstance(frame, UserFrame) else user_of(frame.reply).encode()


Arrived = Frame | StreamMessages
"""A message for a stream that has arrived, or a batch of some that need no look at each."""


@dataclass(slots=True)
class BatchInFlight:
    """A batch that is not committed yet."""

    first: int  # the sequence of its first message, if nothing fails before
    messages: StreamMessages
    newest: dict[bytes, int] | None = None  # of its subjects; None: nobody has asked

    def newest_of(self, subject: bytes) -> int:
        """The sequence of its newest message with a subject; 0: it has none. Cost: O(messages) at the first call."""
        if self.newest is None:
            self.newest, _ = kernel.noted(self.messages.bodies, self.first)
        return self.newest.get(b"" if self.messages.subject == subject else subject, 0)


def subjects_of(messages: StreamMessages) -> Iterable[bytes]:
    """The subjects of a batch's messages, each once. Cost: O(messages)."""
    return (messages.subject,) if messages.subject else kernel.noted(messages.bodies, 0)[0]


def replies_of(messages: StreamMessages) -> Iterator[bytes]:
    """The reply subject of each message of a batch."""
    if not messages.replies:
        return iter((b"",) * messages.count)
    return (messages.replies[start:end] for start, end in records_in(messages.replies))


def singly(arrived: Iterable[Arrived]) -> Iterator[Frame]:
    """Messages and the messages of batches, one by one."""
    for one in arrived:
        if isinstance(one, Frame):
            yield one
            continue
        bodies = (wire.MsgProto.FromString(one.bodies[start:end]) for start, end in records_in(one.bodies))
        for body, reply in zip(bodies, replies_of(one), strict=True):
            fields = headers.of_message(body)
            frame = Frame(0, one.subject or body.key, reply, headers.render(fields) if fields else b"", body.data)
            yield UserFrame.of(frame, one.user) if one.user and not reply else frame

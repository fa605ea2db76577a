"""The path of one subscription on one session: where its messages arrive, and where its acks go.

A subscription that is made again after a loss gets another path. Acks of one turn leave together, as ranges; acks for a path that
is closed, or that the server has not confirmed, are dropped: the server delivers such messages again. Verdicts (negative
acks, "working", rejections) and cumulative acks go the same way, behind the acks that were noted before; never to a server that
would take them for acks.
"""

import asyncio

from stan_protocol.channels import publication
from stan_protocol.features import Feature
from stan_protocol.frames import Frame
from stan_protocol.kernel.client import encode_acks, encode_cumulative_ack, encode_verdict
from stan_protocol.proto import wire_pb2 as wire

from stan_client.errors import MessageTooLargeError, NotSupportedError
from stan_client.transport.connection import Handler
from stan_client.transport.session import Session, fresh_id

DELAY_NS_MAX = 2**62
"""The longest delay that is sent; servers have bounds of their own."""


class SubscriptionPath:
    """The inbox of a subscription's messages, the server's ack inbox, and the acks of this turn."""

    def __init__(self, session: Session, name: bytes) -> None:
        """Make a path that does not listen yet; *name*: of the channel, encoded."""
        self.name = name
        self.knows_verdicts = bool(session.answer.features & Feature.VERDICTS)
        self.closed = False
        self.inbox = f"_INBOX.{fresh_id()}"
        self.ack_inbox = b""  # empty until the server has answered
        self.early: list[Frame] = []  # messages that arrived before that answer
        self._link = session.link
        self._sid = 0
        self._unsent_acks: list[int] = []

    async def listen(self, handler: Handler) -> None:
        """Listen on the inbox; its frames go to *handler*."""
        self._sid = await self._link.listen(self.inbox, handler)

    def confirm(self, ack_inbox: bytes) -> list[Frame]:
        """Note the server's answer, the inbox for acks; returns the messages that arrived before it."""
        self.ack_inbox = ack_inbox
        early, self.early = self.early, []
        return early

    async def stop_listening(self) -> None:
        """Take no more messages; acks can still be sent."""
        await self._link.unlisten(self._sid)

    async def close(self) -> None:
        """Stop listening. A second close does nothing."""
        if not self.closed:
            self.closed = True
            await self._link.unlisten(self._sid)

    def ack(self, sequence: int) -> None:
        """Note that a message is to be acked at the end of this turn."""
        if not self._unsent_acks:
            asyncio.get_running_loop().call_soon(self.send_acks)
        self._unsent_acks.append(sequence)

    def send_acks(self) -> None:
        """Send the noted acks now."""
        acks, self._unsent_acks = self._unsent_acks, []
        if acks and self.ack_inbox and not self.closed:
            inbox, name = self.ack_inbox, self.name
            self._link.send(b"".join([encode_acks(inbox, name, first, last) for first, last in _runs(acks)]))

    def say(self, sequence: int, kind: wire.Verdict, delay_s: float | None = None, reason: str = "") -> bool:
        """Send a verdict about a message; returns False if the path is closed.

        Raises:
            NotSupportedError: the server would take it for an ack. ValueError: *delay_s* is no number of seconds.
        """
        if delay_s is not None and not delay_s >= 0:
            raise ValueError(f"a delay of {delay_s} seconds")
        delay_ns = 0 if delay_s is None else max(int(min(delay_s * 1e9, DELAY_NS_MAX)), 1)  # 0: as the policy says
        frame = encode_verdict(self.ack_inbox, self.name, sequence, kind, delay_ns, reason.encode("utf-8", "replace"))
        return self._send_behind_acks(frame)

    def ack_up_to(self, sequence: int) -> bool:
        """Send a cumulative ack; returns False if the path is closed.

        Raises:
            NotSupportedError: the server would take it for the ack of one message.
        """
        return self._send_behind_acks(encode_cumulative_ack(self.ack_inbox, self.name, sequence))

    def respond(self, subject: bytes, data: bytes) -> bool:
        """Publish *data* on a NATS subject, ahead of the acks of this turn; returns False if the NATS connection is closed.

        Raises:
            MessageTooLargeError: larger than NATS accepts.
        """
        if self._link.closed:
            return False
        if len(data) > self._link.max_payload:
            raise MessageTooLargeError
        self._link.send(publication(subject, data))
        return True

    def _send_behind_acks(self, frame: bytes) -> bool:
        if not self.knows_verdicts:
            raise NotSupportedError
        if self.closed:
            return False
        self.send_acks()
        self._link.send(frame)
        return True


def _runs(sequences: list[int]) -> list[tuple[int, int]]:
    """Join consecutive sequences, in their order, to ranges [first, last]."""
    runs = []
    first = last = sequences[0]
    for sequence in sequences[1:]:
        if sequence == last + 1:
            last = sequence
        else:
            runs.append((first, last))
            first = last = sequence
    runs.append((first, last))
    return runs

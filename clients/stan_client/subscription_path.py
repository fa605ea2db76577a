"""The path of one subscription on one session: where its messages arrive, and where its acks go.

A subscription that is made again after a loss gets another path. Acks of one turn leave together, as ranges; acks for a path that
is closed, or that the server has not confirmed, are dropped: the server delivers such messages again.
"""

import asyncio

from stan.protocol.frames import Frame
from stan.protocol.kernel.client import encode_acks
from stan_client.connection import Handler, NatsLink
from stan_client.session import fresh_id


class SubscriptionPath:
    """The inbox of a subscription's messages, the server's ack inbox, and the acks of this turn."""

    def __init__(self, link: NatsLink, name: bytes) -> None:
        """Make a path that does not listen yet; *name*: of the channel, encoded."""
        self.name = name
        self.inbox = f"_INBOX.{fresh_id()}"
        self.ack_inbox = b""  # empty until the server has answered
        self.early: list[Frame] = []  # messages that arrived before that answer
        self._link = link
        self._sid = 0
        self._closed = False
        self._unsent_acks: list[int] = []

    async def listen(self, handler: Handler) -> None:
        """Listen on the inbox; its frames go to *handler*."""
        self._sid = await self._link.listen(self.inbox, handler)

    def confirm(self, ack_inbox: bytes) -> list[Frame]:
        """Note the server's answer, the inbox for acks; returns the messages that arrived before it."""
        self.ack_inbox = ack_inbox
        early, self.early = self.early, []
        return early

    async def close(self) -> None:
        """Stop listening. A second close does nothing."""
        if not self._closed:
            self._closed = True
            await self._link.unlisten(self._sid)

    def ack(self, sequence: int) -> None:
        """Note that a message is to be acked at the end of this turn."""
        if not self._unsent_acks:
            asyncio.get_running_loop().call_soon(self.send_acks)
        self._unsent_acks.append(sequence)

    def send_acks(self) -> None:
        """Send the noted acks now."""
        acks, self._unsent_acks = self._unsent_acks, []
        if acks and self.ack_inbox and not self._closed:
            for first, last in _runs(acks):
                self._link.send(encode_acks(self.ack_inbox, self.name, first, last))


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

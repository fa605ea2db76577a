"""Requests of this server to other servers, over the gateway's connection, and the takers of their answers."""

import asyncio
from collections.abc import Callable
from secrets import token_hex

from stan_protocol.channels import OWN_INBOXES, publication
from stan_protocol.frames import Frame

from stan.core.boundary.view import BrokerView


class OwnRequests:
    """Requests under way, by the random reply subject that each has of its own."""

    def __init__(self, view: BrokerView, write: Callable[[bytes], object]) -> None:
        """*write*: writes bytes to NATS."""
        self._authorizer = view.authorizer
        self._write = write
        self.inbox = view.reply_prefix.replace(OWN_INBOXES, b"_INBOX.")
        """Prefix of the subjects on which other servers answer to this one, as to any client: without users the servers cannot
        tell servers and clients apart."""
        self.takers: dict[bytes, Callable[[Frame], None]] = {}  # by reply subject: takes the answers

    async def ask(self, subject: str, payload: bytes, timeout_s: float) -> bytes | None:
        """Send one request; returns the payload of the first answer, or None without a responder or an answer in time."""
        answers: list[Frame] = []

        def on_answer(frame: Frame) -> bool:
            answers.append(frame)
            return True

        await self.ask_all(subject, payload, on_answer, timeout_s)
        return answers[0].payload if answers and not answers[0].no_responders else None

    async def ask_all(self, subject: str, payload: bytes, on_answer: Callable[[Frame], bool], timeout_s: float) -> None:
        """Send one request, and pass its answers to *on_answer* until that returns True or *timeout_s* seconds have passed."""
        reply = self.inbox + token_hex(12).encode()  # random: no third party can make another server answer to it
        enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def handle(frame: Frame) -> None:
            if not enough.done() and on_answer(frame):
                enough.set_result(None)

        self.takers[reply] = handle
        if self._authorizer is not None:
            subject = self._authorizer.own(subject)
        self._write(publication(subject.encode(), payload, reply))
        try:
            async with asyncio.timeout(timeout_s):
                await enough
        except TimeoutError:
            pass
        finally:
            del self.takers[reply]

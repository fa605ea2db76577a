"""One NATS inbox for the answers to many requests: the last token of the subject identifies the request that is answered.

Promises: a waiting request completes in the turn that reads its answer, and no later than its timeout; after `shut` none waits.
Never sends a request twice: the caller decides what to do without an answer.
"""

import asyncio
from collections.abc import Callable, Mapping

from stan.protocol.channels import publication
from stan.protocol.frames import Frame
from stan_client.connection import NatsLink

Taker = Callable[[Frame], None]


class Inbox:
    """A NATS subscription that takes the answers to requests; usable between `open` and `shut`."""

    def __init__(
        self, link: NatsLink, subject: str, timeout_s: float, tokens: Mapping[bytes, Taker] | None = None
    ) -> None:
        """Make an inbox that does not listen yet.

        Args:
            link: the NATS connection.
            subject: prefix of the inbox's subjects.
            timeout_s: of a request that gives no timeout of its own.
            tokens: handlers of frames that are not answers, by the last token of their subject.
        """
        self.link = link
        self.subject = subject
        self._timeout_s = timeout_s
        self._takers: dict[bytes, Taker] = dict(tokens or {})
        self._waiting: set[asyncio.Future[None]] = set()
        self._asked = 0
        self._sid = 0

    async def open(self) -> None:
        """Subscribe to the inbox's subjects."""
        self._sid = await self.link.listen(f"{self.subject}.*", self._take)

    async def shut(self) -> None:
        """Unsubscribe; requests that still wait end without an answer."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        await self.link.unlisten(self._sid)

    async def ask(self, subject: bytes, payload: bytes, timeout_s: float | None = None) -> Frame | None:
        """Send one request; returns the answer's frame, which may be NATS's "no responders", or None: no answer came in time, or
        NATS is not connected."""
        answer: list[Frame] = []

        def take(frame: Frame) -> bool:
            answer.append(frame)
            return True

        await self.ask_all(subject, payload, take, timeout_s)
        return answer[0] if answer else None

    async def ask_all(
        self, subject: bytes, payload: bytes, take: Callable[[Frame], bool], timeout_s: float | None = None
    ) -> None:
        """Send one request and pass its answers to *take* until *take* returns True or the time is over."""
        if not self.link.connected:
            return
        await self.link.drained()
        enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def taken(frame: Frame) -> None:
            if not enough.done() and take(frame):
                enough.set_result(None)

        self._asked += 1
        token = b"%d" % self._asked
        self._takers[token] = taken
        self._waiting.add(enough)
        try:
            self.link.send(publication(subject, payload, f"{self.subject}.".encode() + token))
            async with asyncio.timeout(self._timeout_s if timeout_s is None else timeout_s):
                await enough
        except TimeoutError:
            pass
        finally:
            del self._takers[token]
            self._waiting.discard(enough)

    def _take(self, frames: list[Frame]) -> None:
        for frame in frames:
            taker = self._takers.get(frame.subject.rpartition(b".")[2])
            if taker is not None:
                taker(frame)

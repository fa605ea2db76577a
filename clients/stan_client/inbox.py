"""One NATS inbox for the answers to many requests: the last token of its subjects tells which one is answered.

Promises: who waits is told in the turn that reads the answer, and no later than the time it gave; nobody waits behind `shut`.
Never asks twice: what to do without an answer is for the caller to decide.
"""

import asyncio
from collections.abc import Callable, Mapping

from stan.protocol.channels import publication
from stan.protocol.frames import Frame
from stan_client.connection import NatsLink

Taker = Callable[[Frame], None]


class Inbox:
    """See the module's docstring; usable between `open` and `shut`."""

    def __init__(
        self, link: NatsLink, subject: str, timeout_s: float, tokens: Mapping[bytes, Taker] | None = None
    ) -> None:
        """*timeout_s*: of a request that tells no other; *tokens*: who takes what comes under tokens that are no requests."""
        self.link = link
        self.subject = subject
        self._timeout_s = timeout_s
        self._takers: dict[bytes, Taker] = dict(tokens or {})
        self._waiting: set[asyncio.Future[None]] = set()
        self._asked = 0
        self._sid = 0

    async def open(self) -> None:
        """Listen."""
        self._sid = await self.link.listen(f"{self.subject}.*", self._take)

    async def shut(self) -> None:
        """Listen no more; whoever waits has no answer."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        await self.link.unlisten(self._sid)

    async def ask(self, subject: bytes, payload: bytes, timeout_s: float | None = None) -> Frame | None:
        """The answer as it came, also that nobody listens; None: none came in time, or NATS is not connected."""
        answer: list[Frame] = []

        def take(frame: Frame) -> bool:
            answer.append(frame)
            return True

        await self.ask_all(subject, payload, take, timeout_s)
        return answer[0] if answer else None

    async def ask_all(
        self, subject: bytes, payload: bytes, take: Callable[[Frame], bool], timeout_s: float | None = None
    ) -> None:
        """Give all answers to *take* until it says that this is enough, or the time is over."""
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

"""NATS inboxes for the answers to many requests: the last token of the subject identifies the request.

Promises: a waiting request completes in the turn that reads its answer, and no later than its timeout; after `shut` none waits.
Sends a request again only if the caller sets *again_s*: the caller decides what to do without an answer. An answer that comes
late, a second time, or to nobody's request is dropped.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from stan_protocol.channels import OWN_INBOXES, is_channel_name, publication
from stan_protocol.frames import Frame

from stan_client.errors import NotARequestError, StanClientError
from stan_client.transport.connection import NatsLink

Taker = Callable[[Frame], None]

INBOX_PREFIX: Final = "_INBOX."
"""Prefix of the reply subject of a request. A worker publishes its result to a subject that a stranger chose, so only an inbox of
a client is accepted."""


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
        self._requests = 0
        self._sid = 0

    async def open(self) -> None:
        """Subscribe to the inbox's subjects."""
        self._sid = await self.link.listen(f"{self.subject}.*", self._receive)

    async def shut(self) -> None:
        """Unsubscribe; requests that still wait end without an answer."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        await self.link.unlisten(self._sid)

    async def ask(
        self, subject: bytes, payload: bytes, timeout_s: float | None = None, again_s: float | None = None
    ) -> Frame | None:
        """Send one request; returns the answer's frame, which may be NATS's "no responders", or None: no answer came in time, or
        NATS is not connected. *again_s*: seconds of silence after which it is sent once more; None: never."""
        answer: list[Frame] = []

        def collect(frame: Frame) -> bool:
            answer.append(frame)
            return True

        await self.ask_all(subject, payload, collect, timeout_s, again_s)
        return answer[0] if answer else None

    async def ask_all(
        self,
        subject: bytes,
        payload: bytes,
        accept: Callable[[Frame], bool],
        timeout_s: float | None = None,
        again_s: float | None = None,
    ) -> None:
        """Send one request and pass its answers to *accept* until *accept* returns True or the time is over. *again_s*: as of
        `ask`."""
        if not self.link.connected:
            return
        await self.link.drained()
        enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def receive(frame: Frame) -> None:
            if not enough.done() and accept(frame):
                enough.set_result(None)

        self._requests += 1
        token = b"%d" % self._requests
        self._takers[token] = receive
        self._waiting.add(enough)
        request = publication(subject, payload, f"{self.subject}.".encode() + token)
        try:
            async with asyncio.timeout(self._timeout_s if timeout_s is None else timeout_s):
                while not enough.done():
                    if self.link.connected:
                        self.link.send(request)
                    await asyncio.wait({enough}, timeout=again_s)
        except TimeoutError:
            pass
        finally:
            del self._takers[token]
            self._waiting.discard(enough)

    def _receive(self, frames: list[Frame]) -> None:
        for frame in frames:
            taker = self._takers.get(frame.subject.rpartition(b".")[2])
            if taker is not None:
                taker(frame)


class ReplyInbox:
    """The inbox for answers to requests that a client has published as messages: handlers send them past the streaming servers.
    It outlives sessions, and listens from the first request on."""

    def __init__(self, unique: str) -> None:
        """*unique*: a token that no other inbox has."""
        self._subject = f"{INBOX_PREFIX}{unique}"
        self._waiting: dict[bytes, asyncio.Future[bytes]] = {}  # correlation id -> the answer
        self._requests = 0
        self._link: NatsLink | None = None  # the one on which it listens
        self._ended: StanClientError | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    async def listen(self, link: NatsLink) -> None:
        """Listen on *link*; nothing happens if it does already, and before the first request."""
        if self._link is not link and self._waiting:
            self._link = link
            await link.listen(f"{self._subject}.*", self._receive)

    def expect(self) -> tuple[str, asyncio.Future[bytes]]:
        """Return the reply subject for one more request, and where its answer will be; the caller calls `forget` in the end.

        Raises:
            StanClientError: the client is closed.
        """
        if self._ended is not None:
            raise self._ended
        self._requests += 1
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[b"%d" % self._requests] = answer
        return f"{self._subject}.{self._requests}", answer

    def forget(self, subject: str) -> None:
        """Drop later answers to the request with this reply subject."""
        answer = self._waiting.pop(subject.rpartition(".")[2].encode(), None)
        if answer is not None:
            answer.cancel()

    def end(self, error: StanClientError) -> None:
        """Let all that wait fail with *error*, and all later requests."""
        self._ended = error
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # read here: a caller that is still publishing may never look at it

    def _receive(self, frames: list[Frame]) -> None:
        for frame in frames:
            answer = self._waiting.get(frame.subject.rpartition(b".")[2])
            if answer is not None and not answer.done() and not frame.no_responders:
                answer.set_result(bytes(frame.payload))


def reply_subject(reply: str) -> bytes:
    """The reply subject of a request, for NATS.

    Raises:
        NotARequestError: the message asks for no answer, or for one somewhere else than in an inbox.
    """
    subject = reply.encode("utf-8", "surrogateescape")
    if not reply.startswith(INBOX_PREFIX) or subject.startswith(OWN_INBOXES) or not is_channel_name(subject):
        raise NotARequestError
    return subject

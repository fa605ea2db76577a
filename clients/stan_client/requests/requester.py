"""Requests to the servers that need no registration, repeated until they are answered or the patience ends.

Only the server that a request concerns answers it; while a group has no leader no server answers. So a request is sent again
after a silence, after NATS's "no responders" and after an answer with `retry`. Every request is idempotent, except for a batch
without ids, which is not repeated after a silence because it may have been stored.
"""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from copy import copy
from operator import attrgetter
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message
from stan_protocol.channels import extension_subject
from stan_protocol.frames import Frame
from stan_protocol.retries import A, Attempts, L, Response, missing

from stan_client.errors import (
    MessageTooLargeError,
    NobodyListensError,
    OutcomeUnknownError,
    RequestTimeoutError,
    ServerError,
)
from stan_client.transport.inbox import Inbox
from stan_client.transport.session import text_of

RETRY_FIRST_S: Final = 0.01
"""The first pause before a request is made again."""
SILENCE_FIRST_S: Final = 2.0
SILENCE_MAX_S: Final = 10.0
"""Wait for an answer before a request is sent again: doubled from the first to the longest."""
NODES_SILENCE_S: Final = 0.5
"""Wait for the answers of nodes before the request is sent again."""
LINK_LOOK_S: Final = 1.0
"""Pause between two looks of a listener whether its connection is still the client's."""
TOGETHER_MAX: Final = 64
"""Requests of one call, for different channels, that are in flight at once."""


T = TypeVar("T")
R = TypeVar("R")


class Requester:
    """Sends requests; one per client. *ready* returns the inbox for the answers, waiting while there is none."""

    def __init__(self, ready: Callable[[], Awaitable[Inbox]], cluster_id: str, patience_s: float) -> None:
        self._ready = ready
        self._prefix = f"{extension_subject(cluster_id)}."
        self.patience_s = patience_s
        self.unserved_s = math.inf
        """Seconds after which a request fails if NATS has reported all the time that nobody listens."""

    def within(self, patience_s: float) -> "Requester":
        """Return a requester with another patience, in seconds, that shares all else with this one."""
        other = copy(self)
        other.patience_s = patience_s
        return other

    async def ask(
        self,
        kind: str,
        request: Message,
        answer: type[A],
        *,
        repeat: bool = True,
        changes: bool = False,
        patience_s: float | None = None,
    ) -> A:
        """Send one request until the server concerned answers; returns the answer. *changes*: it asks for a change, which a
        server that did not answer may have made.

        Raises:
            ServerError: refused. RequestTimeoutError: no answer in time. MessageTooLargeError: larger than NATS accepts.
            OutcomeUnknownError: no answer in time to a request for a change, or one that is not repeated (*repeat* is false).
        """
        patience_s = self.patience_s if patience_s is None else patience_s
        attempts = _Attempts(kind, patience_s, self.unserved_s)
        try:
            async with asyncio.timeout(patience_s):
                while True:
                    inbox, payload = await self._connected(attempts), request.SerializeToString()
                    self._check_size(inbox, payload)
                    silence_s = attempts.silence_s if repeat else patience_s
                    before, attempts.unknown = attempts.unknown, changes or not repeat
                    frame = await inbox.ask(self._subject(kind), payload, silence_s)
                    if frame is not None and not frame.no_responders:
                        response = _decoded(frame, answer, kind)
                        if attempts.accept(response):
                            return response
                    elif frame is not None:
                        attempts.no_responders()
                    elif not repeat:
                        raise attempts.late()
                    if not changes or (frame is not None and frame.no_responders):
                        attempts.unknown = before
                    await attempts.pause(silent=frame is None)
        except NobodyListensError:
            raise
        except TimeoutError:
            raise attempts.late() from None

    async def ask_leaders(
        self,
        kind: str,
        request: Callable[[float], Message],
        answer: type[L],
        *,
        enough: Callable[[list[L]], bool] | None = None,
        wait_s: float = 0,
        patience_s: float | None = None,
    ) -> list[L]:
        """Collect answers of all leaders, newest last, until they cover all groups or *enough* returns True. Errors as of `ask`.

        *request* makes the request for a long poll of the given seconds: *wait_s* at first, then the rest of it.
        """
        patience_s = (self.patience_s if patience_s is None else patience_s) + wait_s
        attempts = _Attempts(kind, patience_s, self.unserved_s)
        answers: list[L] = []
        frames: list[Frame] = []

        def collect(frame: Frame) -> bool:
            frames.append(frame)
            return not _add_answer(frame, answer, answers) or done()

        def done() -> bool:
            return bool(answers) and (covered(answers) or (enough is not None and enough(answers)))

        clock = asyncio.get_running_loop().time
        until = clock() + wait_s
        try:
            async with asyncio.timeout(patience_s):
                while True:
                    inbox, wait_s = await self._connected(attempts), max(0, until - clock())
                    payload = request(wait_s).SerializeToString()
                    self._check_size(inbox, payload)
                    frames.clear()
                    await inbox.ask_all(self._subject(kind), payload, collect, attempts.silence_s + wait_s)
                    if done():
                        return answers
                    for frame in frames:
                        if frame.no_responders:
                            attempts.no_responders()
                        else:
                            attempts.accept(_decoded(frame, answer, kind))
                    await attempts.pause(silent=not frames)
        except NobodyListensError:
            raise
        except TimeoutError:
            raise attempts.late() from None

    async def ask_pages(
        self,
        kind: str,
        request: Any,
        answer: type[Any],
        rows: str,
        after: Mapping[str, str],
        enough: Callable[[list[Any]], bool] | None = None,
        patience_s: float | None = None,
        made: Callable[[Any, Any], Any] = lambda _answer, row: row,
    ) -> dict[Any, Any]:
        """Fetch all pages from all leaders. *after* maps a field of the request to the field of a row that is the key of the
        next page; *rows*: the answer's field. *patience_s*: of each page. *made*: makes the value to return of an answer and a
        row of it. Errors and *enough* as of `ask_leaders`."""
        key = attrgetter(*after.values())
        rows_by_key: dict[Any, Any] = {}
        while True:
            answers = await self.ask_leaders(kind, lambda _: request, answer, enough=enough, patience_s=patience_s)
            rows_by_key |= {key(row): made(one, row) for one in answers for row in getattr(one, rows)}
            ends = [getattr(one, rows)[-1] for one in answers if one.more and getattr(one, rows)]
            if not ends:
                return rows_by_key
            end = min(ends, key=key)
            for to, of in after.items():
                setattr(request, to, getattr(end, of))

    async def ask_nodes(
        self, kind: str, request: Message, answer: type[A], enough: Callable[[list[A]], bool], patience_s: float
    ) -> list[A]:
        """Collect answers of all nodes, newest last, until *enough* returns True or *patience_s* is over. Without any answer it
        raises the errors of `ask`."""
        attempts = _Attempts(kind, patience_s, self.unserved_s)
        answers: list[A] = []
        frames: list[Frame] = []

        def collect(frame: Frame) -> bool:
            frames.append(frame)
            _add_answer(frame, answer, answers)
            return frame.no_responders or enough(answers)

        try:
            async with asyncio.timeout(patience_s):
                while not enough(answers):
                    inbox, payload = await self._connected(attempts), request.SerializeToString()
                    self._check_size(inbox, payload)
                    frames.clear()
                    await inbox.ask_all(self._subject(kind), payload, collect, NODES_SILENCE_S)
                    no_responders = any(frame.no_responders for frame in frames)
                    for frame in frames:
                        if no_responders:
                            attempts.no_responders()
                        else:
                            attempts.accept(_decoded(frame, answer, kind))
                    if not enough(answers):
                        await attempts.pause(silent=not no_responders)
        except NobodyListensError:
            raise
        except TimeoutError:
            if not answers:
                raise attempts.late() from None
        return answers

    async def published(self, subject: str, waiting_max: int) -> AsyncGenerator[Frame, None]:
        """Yield the frames that the servers publish on *subject* (events) until the generator is closed, on each connection that
        takes the place of another. Of the frames that wait for the caller the newest *waiting_max* stay.

        Raises:
            ConnectionClosedError: the client is closed, or its connection is for good.
        """
        waiting: deque[Frame] = deque(maxlen=waiting_max)
        news = asyncio.Event()

        def enqueue(frames: list[Frame]) -> None:
            waiting.extend(frames)
            news.set()

        link, sid = None, 0
        try:
            while True:
                current = (await self._ready()).link
                if current is not link:
                    link, sid = current, await current.listen(f"{self._prefix}{subject}", enqueue)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LINK_LOOK_S):
                        await news.wait()
                news.clear()
                while waiting:
                    yield waiting.popleft()
        finally:
            if link is not None:
                await link.unlisten(sid)

    async def payload_max(self) -> int:
        """Size of the largest possible request and answer, in bytes."""
        return (await self._ready()).link.max_payload

    async def _connected(self, attempts: "_Attempts") -> Inbox:
        while True:
            inbox = await self._ready()
            if inbox.link.connected:
                return inbox
            await attempts.pause(silent=False)

    def _subject(self, kind: str) -> bytes:
        return f"{self._prefix}{kind}".encode()

    @staticmethod
    def _check_size(inbox: Inbox, payload: bytes) -> None:
        if len(payload) > inbox.link.max_payload:
            raise MessageTooLargeError


class _Attempts(Attempts):
    """The attempts of one request: the last answer, and how long to wait for the next."""

    def __init__(self, kind: str, patience_s: float, unserved_s: float) -> None:
        super().__init__(kind, patience_s, RETRY_FIRST_S)
        self._unserved_s = unserved_s
        self._unserved_since = 0.0  # by the event loop's clock; 0: somebody listens, or it is not known
        self.silence_s = SILENCE_FIRST_S
        self.unknown = False  # True if a server may have done the request

    def accept(self, answer: Response) -> bool:
        """True for an answer without error, False for one that asks to retry. Raises ServerError for any other error."""
        if answer.error and not answer.retry:
            raise ServerError(text_of(answer.error), answer.error_code)
        self._unserved_since = 0
        return self.accepted(answer, "surrogateescape")

    def no_responders(self) -> None:
        """Note that no server listens. Raises NobodyListensError: it is so for too long."""
        super().no_responders()
        now = asyncio.get_running_loop().time()
        self._unserved_since = self._unserved_since or now
        if now - self._unserved_since >= self._unserved_s:
            raise NobodyListensError(self.kind)

    async def pause(self, *, silent: bool) -> None:
        """Pause before the next attempt. *silent*: no answer came, so there is no pause now but a longer wait for the next."""
        if silent:
            self._unserved_since = 0
            self.silence_s = min(2 * self.silence_s, SILENCE_MAX_S)
            return
        await asyncio.sleep(self.pause_s)
        self.paused()

    def late(self) -> RequestTimeoutError:
        """Make the error to raise when the patience has ended."""
        text = f"stan: {self.kind} request timeout after {self.patience_s:g} s"
        if self.said:
            text += f", last answer: {self.said}"
        return OutcomeUnknownError(f"{text}; it may have been done") if self.unknown else RequestTimeoutError(text)


def covered(answers: list[L]) -> bool:
    """Return True if the answers cover all groups of channels."""
    return bool(answers) and not missing(answers)


def _add_answer(frame: Frame, answer: type[A], answers: list[A]) -> bool:
    """Add a frame's answer to *answers* if it has no error; returns True if it was added."""
    with contextlib.suppress(DecodeError):
        response = answer.FromString(frame.payload)
        if not frame.no_responders and not response.error:
            answers.append(response)
            return True
    return False


def _decoded(frame: Frame, answer: type[A], kind: str) -> A:
    try:
        return answer.FromString(frame.payload)
    except DecodeError:
        raise ServerError(f"stan: malformed {kind} response") from None


async def together(ask: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
    """Await *ask* for all *items*, at most TOGETHER_MAX at once; returns the results. When all have ended, the first error is
    raised, if there is one."""
    room = asyncio.Semaphore(TOGETHER_MAX)

    async def limited(item: T) -> R:
        async with room:
            return await ask(item)

    results = await asyncio.gather(*map(limited, items), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]

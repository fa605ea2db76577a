"""Middleware: functions that run around each publish and around each handled message; and four for common needs.

    async def shout(context, message, call_next):
        if context.kind == "publish":
            message = message._replace(data=message.data.upper())
        return await call_next(message)

    client = await stan_client.connect(client_id="me", middleware=[Correlation(), Log(), shout])

The first of the list is the outermost. Around publish() and each message of publish_many(), *message* is a NewMessage, and
`call_next` returns the result of publish() or raises its errors; it may be called again, with another message. Around a
callback and Subscription.handle, *message* is a Message, and `call_next` returns None or raises the callback's error. A
message whose middleware returns without `call_next` counts as handled and is acked; one whose middleware raises comes again.
None runs around publish_async() and PublishWindow.publish(), which do not wait for the ack, around callbacks that take lists,
and around the body of an `async for`, whose end the client cannot see: call Subscription.handle there.
"""

import asyncio
import inspect
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from stan_client.errors import (
    BadConnectionError,
    NotSentError,
    PingFailureError,
    PublishAckTimeoutError,
    ServerError,
    StanClientError,
    TooManyInFlightError,
)
from stan_client.messages.messages import Callback, Message
from stan_client.messages.new_message import Headers, Published
from stan_client.transport.session import fresh_id, text_of
from stan_client.waiting import notify

CORRELATION_HEADER: Final = "stan-correlation-id"

correlation_id: ContextVar[str] = ContextVar("correlation_id", default="")
"""The correlation id of the message that is being handled in this task, as `Correlation` sets it; "": none is."""

PASSING: Final = frozenset(
    {
        "busy",
        "too_many_requests",
        "channel_deleting",
        "disk_full",
        "shortage",
        "too_much_waiting",
        "no_metadata",
    }
)
"""Refusals of a publish that a server takes back by itself: nothing was stored, and the same publish may succeed later."""

BUDGET_SLOTS: Final = 20
"""Parts of the sliding window of a budget, in each of which publishes are counted together."""

Kind = Literal["publish", "handle"]

CallNext = Callable[[Any], Awaitable[Any]]


class MiddlewareClient(Protocol):
    """The client as middleware may use it."""

    @property
    def client_id(self) -> str:
        """The id under which the client is registered."""

    async def publish(
        self,
        channel: str,
        data: bytes,
        *,
        reply: str = "",
        headers: Headers | None = None,
        key: str | bytes = "",
        timeout_s: float | None = None,
    ) -> Published:
        """Publish a message, through all middleware again."""


@dataclass(slots=True)
class MiddlewareContext:
    """The facts of one publish, or of the handling of one message, with values for the middleware further inside."""

    kind: Kind
    client: MiddlewareClient
    channel: str
    attempt: int = 1  # of a publish: raised by `Retry`; of a handled message: which delivery of it this is
    deadline: float | None = None  # on the event loop's clock: when the caller's timeout is over
    correlation_id: str = ""  # set by `Correlation`
    own: dict[str, Any] = field(default_factory=dict)  # for middleware alone


Middleware = Callable[[MiddlewareContext, Any, CallNext], Awaitable[Any]]


class Chain:
    """The middleware of one client; false without any."""

    def __init__(self, middleware: Sequence[Middleware]) -> None:
        """*middleware*: outermost first."""
        self._middleware = tuple(middleware)

    def __bool__(self) -> bool:
        return bool(self._middleware)

    async def run(self, context: MiddlewareContext, message: Any, innermost: CallNext) -> Any:
        """Run *innermost* with *message*, inside all middleware; results and errors are those of the outermost one."""
        step = innermost
        for one in reversed(self._middleware):
            step = _around(one, context, step)
        return await step(message)


def _around(middleware: Middleware, context: MiddlewareContext, inner: CallNext) -> CallNext:
    def step(message: Any) -> Awaitable[Any]:
        return middleware(context, message, inner)

    return step


def handled(callback: Callback) -> CallNext:
    """Make the innermost step of handling: it calls *callback*, and awaits the result if that is possible."""

    async def handle(message: Message) -> None:
        done = callback(message)
        if inspect.isawaitable(done):
            await done

    return handle


# --- retries ---------------------------------------------------------------------------------------------------------


class RetryBudget:
    """The number of allowed retries: a share of the publishes of the last seconds, and a few for programs that publish rarely."""

    def __init__(self, share: float, window_s: float, least: int) -> None:
        """Allow max(*least*, *share* * publishes) retries in any *window_s* seconds."""
        self._share, self._least = share, least
        self._slot_s = window_s / BUDGET_SLOTS
        self._publishes = self._retries = 0  # within the window
        self._slots: deque[list[int]] = deque()  # number of the slot, its publishes and its retries; oldest first

    def note_publish(self) -> None:
        """Count a publish; its retries are not counted here."""
        self._slot()[1] += 1
        self._publishes += 1

    def spend(self) -> bool:
        """Use one retry; False if the budget is spent for now."""
        slot = self._slot()
        if self._retries + 1 > max(self._least, self._share * self._publishes):
            return False
        slot[2] += 1
        self._retries += 1
        return True

    def _slot(self) -> list[int]:
        """Drop slots older than the window, and return the slot of this moment."""
        now = int(time.monotonic() / self._slot_s)
        while self._slots and self._slots[0][0] <= now - BUDGET_SLOTS:
            _, publishes, retries = self._slots.popleft()
            self._publishes -= publishes
            self._retries -= retries
        if not self._slots or self._slots[-1][0] != now:
            self._slots.append([now, 0, 0])
        return self._slots[-1]


class Retry:
    """Repeats publishes that failed for a reason that passes, after pauses that grow and vary, within a budget.

    The budget keeps retries from multiplying an outage: of all publishes through one Retry (several clients may share it) at most
    a share are retries. Retried messages were certainly not stored: refusals that pass, and publishes that were not sent. With
    *unknown* also publishes without an answer and those that were under way when the session was lost: **they may be stored
    twice**. Pauses end with the caller's `timeout_s`. Handled messages are passed on: the server delivers them again.
    """

    def __init__(
        self,
        budget: float = 0.1,
        *,
        window_s: float = 10,
        least: int = 3,
        attempts_max: int = 5,
        pause_s: float = 0.05,
        pause_max_s: float = 2,
        unknown: bool = False,
    ) -> None:
        """Make the middleware.

        Args:
            budget: how many retries there are for each publish of the last *window_s* seconds, 0 to 1.
            window_s: over which publishes and retries are counted.
            least: retries within *window_s* that are allowed in any case, >= 0.
            attempts_max: of one publish, the first one included, >= 1.
            pause_s: about the first pause; each further one is twice as long. Each is shortened at random by up to a half.
            pause_max_s: the longest pause.
            unknown: also publish again messages that may be stored already.
        """
        self._budget = RetryBudget(budget, window_s, least)
        self._attempts_max = attempts_max
        self._pause_s, self._pause_max_s = pause_s, pause_max_s
        self._unknown = unknown

    async def __call__(self, context: MiddlewareContext, message: Any, call_next: CallNext) -> Any:
        """Run as middleware."""
        if context.kind != "publish":
            return await call_next(message)
        self._budget.note_publish()
        pause_s = self._pause_s
        refused: StanClientError | None = None
        while True:
            try:
                return await call_next(message)
            except StanClientError as error:
                if refused is None or not isinstance(error, NotSentError):
                    refused = (
                        error  # where time is over before the publish leaves once more, this says why it was not enough
                    )
                wait_s = random.uniform(0.5, 1) * pause_s
                if not self._again(error, context, wait_s):
                    raise refused from None
            await asyncio.sleep(wait_s)
            pause_s = min(2 * pause_s, self._pause_max_s)
            context.attempt += 1

    def _again(self, error: StanClientError, context: MiddlewareContext, wait_s: float) -> bool:
        if not (passes(error) or (self._unknown and is_unknown(error))) or context.attempt >= self._attempts_max:
            return False
        if context.deadline is not None and asyncio.get_running_loop().time() + wait_s >= context.deadline:
            return False
        return self._budget.spend()


def passes(error: StanClientError) -> bool:
    """Return True if a publish failed with an *error* that passes and was certainly not stored."""
    if isinstance(error, ServerError):
        return error.code in PASSING
    return isinstance(error, NotSentError | TooManyInFlightError)


def is_unknown(error: StanClientError) -> bool:
    """Return True if a publish failed with an *error* that leaves open whether it is stored."""
    if isinstance(error, ServerError):
        return error.code == "client_replaced"
    return isinstance(error, PublishAckTimeoutError | PingFailureError | BadConnectionError) and not passes(error)


# --- what happened, and why ------------------------------------------------------------------------------------------


class Correlation:
    """Carries a correlation id from each handled message to all messages published while it is handled.

    The id is the header `stan-correlation-id` of the handled message, or a new one; `correlation_id` has it meanwhile. A
    message that is published while none is handled gets a new one, and one that has the header keeps it. Tasks that a callback
    starts publish under its id, too. The server must know headers, or publishing fails with NotSupportedError.
    """

    async def __call__(self, context: MiddlewareContext, message: Any, call_next: CallNext) -> Any:
        """Run as middleware."""
        given = message.headers.get(CORRELATION_HEADER, "")
        own = text_of(given) if isinstance(given, bytes) else given
        if context.kind == "publish":
            context.correlation_id = own or context.correlation_id or correlation_id.get() or fresh_id()
            if not own:
                message = message.with_headers({CORRELATION_HEADER: context.correlation_id})
            return await call_next(message)
        context.correlation_id = own or fresh_id()
        token = correlation_id.set(context.correlation_id)
        try:
            return await call_next(message)
        finally:
            correlation_id.reset(token)


class Log:
    """Writes one line for each publish and each handled message: its kind, channel, duration and outcome. Never the data."""

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.DEBUG) -> None:
        """*logger*: that of "stan_client" by default. *level*: of successes; failures are warnings."""
        self._logger = logger or logging.getLogger("stan_client")
        self._level = level

    async def __call__(self, context: MiddlewareContext, message: Any, call_next: CallNext) -> Any:
        """Run as middleware."""
        began = time.monotonic()
        try:
            result = await call_next(message)
        except Exception as error:
            self._write(logging.WARNING, context, message, began, f"failed: {type(error).__name__}: {error}")
            raise
        sequence = getattr(result if context.kind == "publish" else message, "sequence", None)
        self._write(self._level, context, message, began, f"sequence {sequence or 'not told'}")
        return result

    def _write(self, level: int, context: MiddlewareContext, message: Any, began: float, end: str) -> None:
        if self._logger.isEnabledFor(level):
            attempt = f", attempt {context.attempt}" if context.attempt > 1 else ""
            correlated = f", correlation id {context.correlation_id}" if context.correlation_id else ""
            took_ms = 1000 * (time.monotonic() - began)
            self._logger.log(
                level,
                f"{context.kind} {context.channel}: {len(message.data)} bytes, {end}, {took_ms:.1f} ms{attempt}{correlated}",
            )


Observe = Callable[[Kind, str, float, BaseException | None], None]


class Timing:
    """Tells how long each publish took until its ack, and each message to be handled."""

    def __init__(self, observe: Observe) -> None:
        """*observe* is called with kind, channel, seconds, and the error or None; it must be short. Its errors are logged."""
        self._observe = observe

    async def __call__(self, context: MiddlewareContext, message: Any, call_next: CallNext) -> Any:
        """Run as middleware."""
        began = time.monotonic()
        try:
            result = await call_next(message)
        except BaseException as error:
            self._report(context, began, error)
            raise
        self._report(context, began, None)
        return result

    def _report(self, context: MiddlewareContext, began: float, error: BaseException | None) -> None:
        took_s = time.monotonic() - began
        notify("observe of Timing", self._observe, context.kind, context.channel, took_s, error)

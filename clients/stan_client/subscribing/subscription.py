"""One subscription: where its messages go, how they are acked, and how it is made again after a loss.

A plain callback runs in the turn that read the messages: no task, no queue. Without a callback, or with one that returns an
awaitable, messages wait in a queue that the server's window (max in flight) bounds. A message is acked when its callback is done
(when iterating: when the next message is requested); a message whose callback raised is not acked, and is redelivered. Acks of
one turn leave together. With `on_error` a failed message is negatively acked or rejected instead, where the server can. A
subscription that drains takes nothing new, has what has come handled, and then closes.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable
from types import TracebackType
from typing import Any, Final, Protocol, Self

from stan_protocol.channels import publication
from stan_protocol.frames import Frame
from stan_protocol.kernel.client import decode_message
from stan_protocol.proto import wire_pb2 as wire

from stan_client.errors import (
    BadSubscriptionError,
    ConnectionClosedError,
    ManualAckError,
    NoMessageError,
    NotSupportedError,
    ServerError,
    StanClientError,
    SubscribeRequestTimeoutError,
    UnsubscribeRequestTimeoutError,
)
from stan_client.messages.messages import NOTED, BatchCallback, Callback, Message, OnError, Said, SubscriptionOptions
from stan_client.positions import Start, from_sequence
from stan_client.requests.requests import raw
from stan_client.subscribing.message_queue import MessageQueue
from stan_client.subscribing.subscription_path import SubscriptionPath
from stan_client.subscribing.verdicts import COMES_AGAIN, ON_ERROR, VerdictPath, judge_failed
from stan_client.transport.session import Session, text_of
from stan_client.waiting import deadline, left_s

log = logging.getLogger("stan_client")


class SubscriptionOwner(Protocol):
    """The client that made a subscription."""

    @property
    def closed(self) -> bool:
        """True once the client is closed."""

    async def ready(self) -> Session:
        """Return the session, waiting until there is one."""

    def forget(self, subscription: "Subscription") -> None:
        """Note that *subscription* has ended."""


CALLBACK_FAILED: Final = "callback of %s failed; what it was given %s"


class Subscription(AsyncIterator[Message]):
    """Made by Client.subscribe; iterate over it, or call next() or fetch(), unless it has a callback.

    As `async with` it is drained at the end of the block, or closed if the block raises; a durable one stays on the server.
    """

    def __init__(
        self,
        client: SubscriptionOwner,
        channel: str,
        callback: Callback | BatchCallback | None,
        options: SubscriptionOptions,
    ) -> None:
        check_on_error(options.on_error, callback)
        self.channel = channel
        self.options = options
        self.last_sequence = 0  # highest sequence that arrived
        self._client = client
        self._callback: Any = callback
        self._direct = callback is not None and not _returns_awaitable(callback)  # called in the reading turn
        self._path: SubscriptionPath | None = None  # of the newest session on which it was made
        self._queue = MessageQueue(options.max_in_flight)
        self._worker: asyncio.Task[None] | None = None
        self._in_hand: list[int] = []  # sequences that the program took last and that are not acked
        self._taker: asyncio.Task[Any] | None = None  # the task that took them
        self._made_at_ns = 0

    def __repr__(self) -> str:
        state = "closed" if self._queue.closed else "open"
        return f"<Subscription {self.channel} {state} last_sequence={self.last_sequence} queued={len(self._queue)}>"

    @property
    def closed(self) -> bool:
        """True once the subscription was closed or has ended with an error."""
        return self._queue.closed

    @property
    def queued(self) -> int:
        """How many messages have come and are not taken yet."""
        return len(self._queue)

    @property
    def inboxes(self) -> tuple[str, str]:
        """The NATS subjects where its messages come and where its acks go, on its newest session."""
        path = self._path
        return (path.inbox, text_of(path.ack_inbox)) if path is not None else ("", "")

    # --- made, and made again --------------------------------------------------------------------------------------

    async def make(self, session: Session, timeout_s: float | None = None) -> None:
        """Subscribe on *session*; called by the client at the beginning and after each loss of its session. *timeout_s*: as of
        Session.request.

        Raises:
            SubscribeRequestTimeoutError: no answer; a close request was sent in case the server has made the subscription.
            ServerError: the server refuses.
        """
        if self._path is not None:
            await self._path.close()
        if self._queue.draining:
            return  # nothing new is wanted, and what has come cannot be acked any more
        if self.options.durable:
            self._queue.clear()  # unacked: the server sends them again
        path = self._path = SubscriptionPath(session, raw(self.channel))
        request = self._request(session, path)
        self._made_at_ns = self._made_at_ns or time.monotonic_ns()
        await path.listen(self._take)
        try:
            answer = await session.request(
                session.answer.sub_requests, request, SubscribeRequestTimeoutError, timeout_s
            )
        except SubscribeRequestTimeoutError:
            self._disown(session, path)
            await path.close()
            raise
        response = wire.SubscriptionResponse.FromString(answer)
        if response.error:
            await path.close()
            raise ServerError(text_of(response.error))
        early = path.confirm(response.ack_inbox)
        if self._callback is not None and not self._direct and self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work(None))
        if early:
            self._take(early)

    def _request(self, session: Session, path: SubscriptionPath) -> bytes:
        start = self._start()
        return wire.SubscriptionRequest(
            client_id=session.options.client_id.encode(),
            subject=path.name,
            queue_group=self.options.queue.encode(),
            inbox=path.inbox.encode(),
            max_in_flight=self.options.max_in_flight,
            ack_wait_s=int(self.options.ack_wait_s),
            durable_name=self.options.durable.encode(),
            start_position=start.position,
            start_sequence=start.sequence,
            start_time_delta=start.start_time_delta(),
            replica=self.options.replica.encode(),
        ).SerializeToString()

    def _start(self) -> Start:
        """The start position of the next subscription request: at first the one of the options; later after the newest message
        that arrived or, if none has, everything since the subscription was made."""
        if not self._made_at_ns:
            return self.options.start
        if self.last_sequence:
            return from_sequence(self.last_sequence + 1)
        return self.options.start.since(time.monotonic_ns() - self._made_at_ns)

    def _disown(self, session: Session, path: SubscriptionPath) -> None:
        close = wire.UnsubscribeRequest(
            client_id=session.options.client_id.encode(), subject=path.name, inbox=path.inbox.encode()
        )
        if session.answer.sub_close_requests:
            session.link.send(publication(session.answer.sub_close_requests, close.SerializeToString()))

    # --- messages --------------------------------------------------------------------------------------------------

    def _take(self, frames: list[Frame]) -> None:
        path = self._path
        if path is None or self._queue.closed:
            return
        if not path.ack_inbox:
            path.early.extend(frames)
            return
        channel = self.channel
        acker = VerdictPath(path, self.ack, self._check_manual, in_group=bool(self.options.queue))
        messages = []
        for frame in frames:
            try:
                sequence, _, reply, data, timestamp, redelivered, count, headers, key, expires = decode_message(
                    frame.payload
                )
            except ValueError:
                log.warning("%s: a message could not be decoded; it is not acked", channel)
                continue
            messages.append(
                Message(
                    sequence,
                    channel,
                    text_of(reply),
                    data,
                    timestamp,
                    redelivered,
                    count,
                    acker,
                    headers=headers,
                    key=key,
                    expires_at_ns=expires,
                )
            )
        self.last_sequence = max([self.last_sequence, *[message.sequence for message in messages]])
        if self._direct:
            self._run(messages)
        else:
            self._queue.put(messages)

    def _run(self, messages: list[Message]) -> None:
        groups = [messages] if self.options.batch else [[message] for message in messages]
        for place, group in enumerate(groups):
            if self._queue.closed:
                return
            path = self._path
            try:
                result = self._callback(group if self.options.batch else group[0])
            except Exception as error:  # noqa: BLE001 - logged, and judged
                self._note_failed(path, group, error)
                continue
            if result is not None and inspect.isawaitable(result):
                # A plain function around an async one: from here on the worker calls it, this message first.
                self._direct = False
                self._worker = asyncio.get_running_loop().create_task(self._work((path, group, result)))
                self._queue.put([message for later in groups[place + 1 :] for message in later])
                return
            self._settle(group)

    async def _work(self, begun: "tuple[SubscriptionPath | None, list[Message], Awaitable[object]] | None") -> None:
        """Call the callback for what arrives, after it has awaited the call that has *begun*: its path, messages and result."""
        if begun is not None:
            await self._finish(*begun)
        while await self._queue.arrived():
            if self.options.batch:
                group = list(self._queue)
                self._queue.clear()
            else:
                group = [self._queue.popleft()]
            path = self._path  # as it is when the callback fails there may be another one
            await self._finish(path, group, self._call(group))

    async def _call(self, group: list[Message]) -> None:
        result = self._callback(group if self.options.batch else group[0])
        if inspect.isawaitable(result):
            await result

    async def _finish(self, path: SubscriptionPath | None, group: list[Message], result: Awaitable[object]) -> None:
        try:
            await result
        except Exception as error:  # noqa: BLE001 - logged, and judged
            self._note_failed(path, group, error)
        else:
            self._settle(group)

    def _note_failed(self, path: SubscriptionPath | None, group: list[Message], error: Exception) -> None:
        became = judge_failed(path, group, self.options.on_error, error) if path is not None else COMES_AGAIN
        log.error(CALLBACK_FAILED, self.channel, became, exc_info=error)

    def __aiter__(self) -> "Subscription":
        self._taker = asyncio.current_task()
        return self

    async def __anext__(self) -> Message:
        """Ack the message returned before, then wait for the next one.

        Raises:
            StopAsyncIteration: the subscription or the client was closed.
            ConnectionClosedError: the session was lost and could not be recovered.
        """
        if self._callback is not None:
            raise TypeError("a subscription with a callback cannot be iterated over")
        if self._taker is None:
            self._taker = asyncio.current_task()
        self._settle_in_hand()
        if not await self._queue.arrived():
            if self._queue.error is not None:
                raise self._queue.error
            raise StopAsyncIteration
        message = self._queue.popleft()
        self._in_hand.append(message.sequence)
        return message

    async def next(self, timeout_s: float | None = None) -> Message:
        """Return the next message, waiting for it at most *timeout_s* seconds; None: as long as it takes.

        Unless `manual_acks` is set, what next() and fetch() returned before is acked by each call, as when iterating. Several
        tasks may call at the same time if `manual_acks` is set.

        Raises:
            NoMessageError: none came in time; it is a TimeoutError, too. The call may be repeated.
            BadSubscriptionError: the subscription or the client was closed, or drained and nothing is left.
            ConnectionClosedError: the session was lost and could not be recovered.
        """
        (message,) = await self._taken(1, timeout_s)
        return message

    async def fetch(self, n: int, timeout_s: float | None = None) -> list[Message]:
        """Return the messages that have come, at most *n*, as soon as there is one; none if none comes in *timeout_s* seconds
        (None: waits as long as it takes). Acks and errors as of next(), except NoMessageError.
        """
        if n < 1:
            raise ValueError(f"cannot fetch {n} messages")
        try:
            return await self._taken(n, timeout_s)
        except NoMessageError:
            return []

    async def _taken(self, n: int, timeout_s: float | None) -> list[Message]:
        if self._callback is not None:
            raise TypeError("a subscription with a callback gives its messages to that")
        self._taker = asyncio.current_task()
        self._settle_in_hand()
        try:
            async with asyncio.timeout(timeout_s):
                there = await self._queue.arrived()
        except TimeoutError:
            raise NoMessageError from None
        if not there:
            raise self._queue.error or BadSubscriptionError()
        messages = [self._queue.popleft() for _ in range(min(n, len(self._queue)))]
        self._in_hand.extend(message.sequence for message in messages)
        return messages

    # --- acks ------------------------------------------------------------------------------------------------------

    def ack(self, sequence: int) -> Said:
        """Acknowledge one message by its sequence, as Message.ack does.

        Raises:
            ManualAckError: the subscription acks by itself. BadSubscriptionError: the subscription has ended.
        """
        if not self.options.manual_acks:
            raise ManualAckError
        if self._path is None or self._queue.closed:
            raise BadSubscriptionError
        self._path.ack(sequence)
        return NOTED

    def _check_manual(self) -> None:
        """Raise what ack() raises."""
        if not self.options.manual_acks:
            raise ManualAckError
        if self._queue.closed:
            raise BadSubscriptionError

    def _settle_in_hand(self) -> None:
        """Ack what the program took before."""
        if self._in_hand and not self.options.manual_acks and self._path is not None:
            for sequence in self._in_hand:
                self._path.ack(sequence)
        self._in_hand.clear()

    def _settle(self, messages: list[Message]) -> None:
        path = self._path
        if path is not None and not self.options.manual_acks:
            for message in messages:
                path.ack(message.sequence)

    # --- the end ---------------------------------------------------------------------------------------------------

    async def close(self, *, timeout_s: float | None = None) -> None:
        """End the subscription; a durable one can be resumed later. *timeout_s*: seconds that the whole call takes at most; None:
        for the answer the client's `connect_timeout_s`.

        Raises:
            BadSubscriptionError: closed before. ConnectionClosedError: the client is closed.
            UnsubscribeRequestTimeoutError: no answer; close() may be called again. ServerError: the server refuses.
        """
        await self._leave(timeout_s, unsubscribe=False)

    async def unsubscribe(self, *, timeout_s: float | None = None) -> None:
        """End the subscription; of a durable, the server also forgets its position. Timeout and errors as of close()."""
        await self._leave(timeout_s, unsubscribe=True)

    async def drain(self, *, timeout_s: float | None = None) -> bool:
        """Take no new messages, have those handled that have come, ack them, and close the subscription; a durable one can be
        resumed later. Returns True if all that had come was handled.

        An async callback is called for what waits. A task that iterates, or calls next() or fetch(), goes on until nothing is
        left; if the caller is that task, what it has in hand counts as handled and what it has not taken is left. What is left is
        not acked, and comes again to a durable or a queue group. With `manual_acks` the program acks by then. After a loss of
        the session meanwhile nothing can be acked any more.

        Args:
            timeout_s: seconds after which the subscription is closed although not all is handled; None: never.

        Raises:
            RuntimeError: called by the subscription's own async callback, for which it would wait. Else as of close().
        """
        if self._client.closed:
            raise ConnectionClosedError
        if self._queue.closed:
            raise BadSubscriptionError
        caller = asyncio.current_task()
        if caller is self._worker:
            raise RuntimeError("drain() in the subscription's own callback would wait for itself")
        if self._path is not None:
            await self._path.stop_listening()
        self._queue.drain()
        handler = self._worker or self._taker
        if self._callback is None and handler is caller:
            self._settle_in_hand()
        elif handler is not None:
            await self._queue.drained(handler, timeout_s)
        finished = not self._queue and not self._in_hand and (self._worker is None or self._worker.done())
        if not self._queue.closed:
            await self._leave(None, unsubscribe=False)
        return finished

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._queue.closed or self._client.closed:
            return
        if error is None:
            await self.drain()
            return
        try:
            await self.close()
        except StanClientError as trouble:
            log.warning("%s: the subscription was not closed: %s", self.channel, trouble)
            await self.end()

    async def _leave(self, timeout_s: float | None, *, unsubscribe: bool) -> None:
        if self._client.closed:
            raise ConnectionClosedError
        if self._queue.closed:
            raise BadSubscriptionError
        until = deadline(timeout_s)
        try:
            async with asyncio.timeout_at(until):
                session = await self._client.ready()
        except TimeoutError:
            raise UnsubscribeRequestTimeoutError from None
        path = self._path  # read here: a new session has brought another one
        if path is None:
            raise BadSubscriptionError
        if path.closed:  # it drained while the session was lost, and was not made again
            await self.end()
            return
        subject = session.answer.unsub_requests if unsubscribe else session.answer.sub_close_requests
        if not subject:
            raise NotSupportedError
        path.send_acks()
        request = wire.UnsubscribeRequest(
            client_id=session.options.client_id.encode(),
            subject=path.name,
            inbox=path.ack_inbox,
            durable_name=self.options.durable.encode(),
        )
        answer = await session.request(
            subject, request.SerializeToString(), UnsubscribeRequestTimeoutError, left_s(until)
        )
        error = wire.SubscriptionResponse.FromString(answer).error
        if error:
            raise ServerError(text_of(error))
        await self.end()

    async def end(self, error: StanClientError | None = None) -> None:
        """Stop locally, without a request to the server: iteration ends, with *error* if there is one."""
        if self._queue.closed:
            return
        if self._path is not None:
            self._path.send_acks()
        self._queue.close(error)
        self._client.forget(self)
        worker = self._worker
        if worker is not None and worker is not asyncio.current_task():
            worker.cancel()
        if self._path is not None:
            await self._path.close()


def check_on_error(on_error: OnError, callback: object) -> None:
    """Raise ValueError if *on_error* is none, or is of a subscription without a *callback* whose failure it could judge."""
    if on_error not in ON_ERROR or (on_error != "wait" and callback is None):
        raise ValueError(f"on_error={on_error!r} of a subscription {'with' if callback else 'without'} a callback")


def _returns_awaitable(callback: Any) -> bool:
    """Return True if *callback* is an async function, or an object whose __call__ is one."""
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(callback.__call__)

"""Messages of one subscription as they arrive: they go to a callback, or into the queue from which a program takes them.

A plain callback runs in the turn that read the messages: no task, no queue. Without a callback, or with one that returns an
awaitable, messages wait in a queue that the server's window (max in flight) bounds. A message is acked when its callback is done;
a message whose callback raised is not acked, and is redelivered. Acks of one turn leave together. With `on_error` a failed
message is negatively acked or rejected instead, where the server can. After a loss of its session a delivery is made again.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable
from typing import Any, Final, Protocol

from stan_protocol.channels import publication
from stan_protocol.frames import Frame
from stan_protocol.kernel.client import decode_message
from stan_protocol.proto import wire_pb2 as wire

from stan_client.errors import (
    BadSubscriptionError,
    ConnectionClosedError,
    ManualAckError,
    NotSupportedError,
    ServerError,
    StanClientError,
    SubscribeRequestTimeoutError,
    UnsubscribeRequestTimeoutError,
)
from stan_client.messages.messages import SENT, BatchCallback, Callback, Message, OnError, Receipt, SubscriptionOptions
from stan_client.positions import Start, from_sequence
from stan_client.requests.names import raw
from stan_client.subscribing.message_queue import MessageQueue
from stan_client.subscribing.subscription_path import SubscriptionPath
from stan_client.subscribing.verdicts import COMES_AGAIN, ON_ERROR, VerdictPath, judge_failed
from stan_client.transport.session import Session, text_of
from stan_client.waiting import deadline, left_s

log = logging.getLogger("stan_client")

CALLBACK_FAILED: Final = "callback of %s failed; what it was given %s"
FAILED_AGAIN: Final = "callback of %s failed again with %r; what it was given %s"
TRACEBACK_EVERY_S: Final = 10.0
"""Seconds between two tracebacks of errors of one class; a callback that fails with each message would fill the log."""


class DeliverySessions(Protocol):
    """The sessions of the client that made a subscription."""

    @property
    def closed(self) -> bool:
        """True once the client is closed."""

    async def ready(self) -> Session:
        """Return the session, waiting until there is one."""

    def forget(self, delivery: "SubscriptionDelivery") -> None:
        """Note that *delivery* has ended: it is not made again after a loss."""


class SubscriptionDelivery:
    """The messages of one subscription, on whatever session."""

    def __init__(
        self,
        sessions: DeliverySessions,
        channel: str,
        callback: Callback | BatchCallback | None,
        options: SubscriptionOptions,
    ) -> None:
        check_on_error(options.on_error, callback)
        self.channel = channel
        self.options = options
        self.sessions = sessions
        self.callback: Any = callback
        self.last_sequence = 0  # highest sequence that arrived
        self.path: SubscriptionPath | None = None  # of the newest session on which it was made
        self.queue = MessageQueue(options.max_in_flight)
        self.worker: asyncio.Task[None] | None = None
        self._direct = callback is not None and not _returns_awaitable(callback)  # called in the reading turn
        self._made_at_ns = 0
        self._traced: type[Exception] | None = None  # the class of the last error whose traceback was logged ...
        self._trace_from_s = 0.0  # ... and the time of the loop from which on it is logged again

    # --- made, and made again --------------------------------------------------------------------------------------

    async def make(self, session: Session, timeout_s: float | None = None) -> None:
        """Subscribe on *session*: at the beginning and after each loss of its session. *timeout_s*: as of
        Session.request.

        Raises:
            SubscribeRequestTimeoutError: no answer; a close request was sent in case the server has made the subscription.
            ServerError: the server refuses.
        """
        if self.path is not None:
            await self.path.close()
        if self.queue.draining:
            return  # no new messages, and the received ones cannot be acked any more
        if self.options.durable:
            self.queue.clear()  # unacked: the server sends them again
        path = self.path = SubscriptionPath(session, raw(self.channel))
        request = self._request(session, path)
        self._made_at_ns = self._made_at_ns or time.monotonic_ns()
        await path.listen(self._receive)
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
        if self.callback is not None and not self._direct and self.worker is None:
            self.worker = asyncio.get_running_loop().create_task(self._work(None))
        if early:
            self._receive(early)

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

    def _receive(self, frames: list[Frame]) -> None:
        path = self.path
        if path is None or self.queue.closed:
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
            self.queue.put(messages)

    def _run(self, messages: list[Message]) -> None:
        groups = [messages] if self.options.batch else [[message] for message in messages]
        for place, group in enumerate(groups):
            if self.queue.closed:
                return
            path = self.path
            try:
                result = self.callback(group if self.options.batch else group[0])
            except Exception as error:  # noqa: BLE001 - logged, and judged
                self._note_failed(path, group, error)
                continue
            if result is not None and inspect.isawaitable(result):
                # A plain function around an async one: from here on the worker calls it, this message first.
                self._direct = False
                self.worker = asyncio.get_running_loop().create_task(self._work((path, group, result)))
                self.queue.put([message for later in groups[place + 1 :] for message in later])
                return
            self.settle(group)

    async def _work(self, begun: "tuple[SubscriptionPath | None, list[Message], Awaitable[object]] | None") -> None:
        """Call the callback for arriving messages, after awaiting the call that has *begun*: its path, messages and result."""
        if begun is not None:
            await self._finish(*begun)
        while await self.queue.arrived():
            if self.options.batch:
                group = list(self.queue)
                self.queue.clear()
            else:
                group = [self.queue.popleft()]
            path = self.path  # as it is when the callback fails there may be another one
            await self._finish(path, group, self._call(group))

    async def _call(self, group: list[Message]) -> None:
        result = self.callback(group if self.options.batch else group[0])
        if inspect.isawaitable(result):
            await result

    async def _finish(self, path: SubscriptionPath | None, group: list[Message], result: Awaitable[object]) -> None:
        try:
            await result
        except Exception as error:  # noqa: BLE001 - logged, and judged
            self._note_failed(path, group, error)
        else:
            self.settle(group)

    def _note_failed(self, path: SubscriptionPath | None, group: list[Message], error: Exception) -> None:
        became = judge_failed(path, group, self.options.on_error, error) if path is not None else COMES_AGAIN
        now = asyncio.get_running_loop().time()
        if type(error) is self._traced and now < self._trace_from_s:
            log.error(FAILED_AGAIN, self.channel, error, became)
            return
        self._traced, self._trace_from_s = type(error), now + TRACEBACK_EVERY_S
        log.error(CALLBACK_FAILED, self.channel, became, exc_info=error)

    # --- acks ------------------------------------------------------------------------------------------------------

    def ack(self, sequence: int) -> Receipt:
        """Acknowledge one message by its sequence, as Message.ack does.

        Raises:
            ManualAckError: the subscription acks by itself. BadSubscriptionError: the subscription has ended.
        """
        if not self.options.manual_acks:
            raise ManualAckError
        if self.path is None or self.queue.closed:
            raise BadSubscriptionError
        self.path.ack(sequence)
        return SENT

    def _check_manual(self) -> None:
        """Raise the errors of ack()."""
        if not self.options.manual_acks:
            raise ManualAckError
        if self.queue.closed:
            raise BadSubscriptionError

    def settle(self, messages: list[Message]) -> None:
        """Ack messages that are handled, unless the program acks by itself."""
        path = self.path
        if path is not None and not self.options.manual_acks:
            for message in messages:
                path.ack(message.sequence)

    # --- the end ---------------------------------------------------------------------------------------------------

    async def leave(self, timeout_s: float | None, *, unsubscribe: bool) -> None:
        """End at the server; of a durable, *unsubscribe* ends the position, too. Errors as of Subscription.close."""
        if self.sessions.closed:
            raise ConnectionClosedError
        if self.queue.closed:
            raise BadSubscriptionError
        until = deadline(timeout_s)
        try:
            async with asyncio.timeout_at(until):
                session = await self.sessions.ready()
        except TimeoutError:
            raise UnsubscribeRequestTimeoutError from None
        path = self.path  # read here: a new session has brought another one
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
        if self.queue.closed:
            return
        if self.path is not None:
            self.path.send_acks()
        self.queue.close(error)
        self.sessions.forget(self)
        worker = self.worker
        if worker is not None and worker is not asyncio.current_task():
            worker.cancel()
        if self.path is not None:
            await self.path.close()


def check_on_error(on_error: OnError, callback: object) -> None:
    """Raise ValueError if *on_error* is none, or is of a subscription without a *callback* whose failure it could judge."""
    if on_error not in ON_ERROR:
        raise ValueError(f"on_error is one of {', '.join(ON_ERROR)}, not {on_error!r}")
    if on_error != "wait" and callback is None:
        raise ValueError(f"on_error={on_error!r} of a subscription {'with' if callback else 'without'} a callback")


def _returns_awaitable(callback: Any) -> bool:
    """Return True if *callback* is an async function, or an object whose __call__ is one."""
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(callback.__call__)

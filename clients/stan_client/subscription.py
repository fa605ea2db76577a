"""One subscription: where its messages go, how they are acked, and how it is made again after a loss.

A plain callback runs in the turn that read the messages: no task, no queue. Without a callback, or with an async one,
messages wait in a queue that the server's window (max in flight) bounds. A message is acked after its callback has returned
(when iterating: when the next message is requested); a message whose callback raised is not acked, and is redelivered. Acks of
one turn leave together.
"""

import asyncio
import inspect
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from stan.protocol.channels import publication
from stan.protocol.frames import Frame
from stan.protocol.kernel.client import decode_message, encode_acks
from stan.protocol.proto import wire_pb2 as wire
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
from stan_client.messages import BatchCallback, Callback, Message, SubscriptionOptions
from stan_client.positions import Start, from_sequence
from stan_client.session import Session, fresh_id, text_of

if TYPE_CHECKING:
    from stan_client.connection import NatsLink

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


QUEUED_WINDOWS_MAX: Final = 2
"""Redelivered messages are dropped while this many windows of messages are queued: the server sends them again."""

CALLBACK_FAILED: Final = "callback of %s failed; what it was given is not acked and will come again"


class Subscription(AsyncIterator[Message]):
    """Made by Client.subscribe; iterate over it unless it has a callback."""

    def __init__(
        self,
        client: SubscriptionOwner,
        channel: str,
        callback: Callback | BatchCallback | None,
        options: SubscriptionOptions,
    ) -> None:
        self.channel = channel
        self.options = options
        self.last_sequence = 0  # highest sequence that arrived
        self._client = client
        self._name = channel.encode("utf-8", "surrogateescape")
        self._callback: Any = callback
        self._waits = callback is not None and _returns_awaitable(callback)
        self._direct = callback is not None and not self._waits
        self._link: NatsLink | None = None
        self._sid = 0
        self._ack_inbox = b""  # empty until the server has answered
        self._early: list[Frame] = []
        self._queue: deque[Message] = deque()
        self._arrival: asyncio.Future[None] | None = None
        self._worker: asyncio.Task[None] | None = None
        self._unsent_acks: list[int] = []
        self._in_hand = 0  # sequence that the iterator returned last and has not acked
        self._made_at_ns = 0
        self._over = False
        self._error: StanClientError | None = None

    def __repr__(self) -> str:
        state = "closed" if self._over else "open"
        return f"<Subscription {self.channel} {state} last_sequence={self.last_sequence} queued={len(self._queue)}>"

    @property
    def closed(self) -> bool:
        """True once the subscription was closed or has ended with an error."""
        return self._over

    # --- made, and made again --------------------------------------------------------------------------------------

    async def make(self, session: Session) -> None:
        """Subscribe on *session*; called by the client at the beginning and after each loss of its session.

        Raises:
            SubscribeRequestTimeoutError: no answer; a close request was sent in case the server has made the subscription.
            ServerError: the server refuses.
        """
        await self._unlisten()
        self._ack_inbox, self._early = b"", []
        if self.options.durable:
            self._queue.clear()  # unacked: the server sends them again
            self._unsent_acks.clear()
        inbox = f"_INBOX.{fresh_id()}"
        request = self._request(session, inbox)
        self._made_at_ns = self._made_at_ns or time.monotonic_ns()
        self._link = session.link
        self._sid = await session.link.listen(inbox, self._take)
        try:
            answer = await session.request(session.answer.sub_requests, request, SubscribeRequestTimeoutError)
        except SubscribeRequestTimeoutError:
            self._disown(session, inbox)
            await self._unlisten()
            raise
        response = wire.SubscriptionResponse.FromString(answer)
        if response.error:
            await self._unlisten()
            raise ServerError(text_of(response.error))
        self._ack_inbox = response.ack_inbox
        if self._waits and self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())
        early, self._early = self._early, []
        if early:
            self._take(early)

    def _request(self, session: Session, inbox: str) -> bytes:
        start = self._start()
        return wire.SubscriptionRequest(
            client_id=session.options.client_id.encode(),
            subject=self._name,
            queue_group=self.options.queue.encode(),
            inbox=inbox.encode(),
            max_in_flight=self.options.max_in_flight,
            ack_wait_s=int(self.options.ack_wait_s),
            durable_name=self.options.durable.encode(),
            start_position=start.position,
            start_sequence=start.sequence,
            start_time_delta=start.start_time_delta(),
        ).SerializeToString()

    def _start(self) -> Start:
        """The start position of the next subscription request: at first the one of the options; later after the newest message
        that arrived or, if none has, everything since the subscription was made."""
        if not self._made_at_ns:
            return self.options.start
        if self.last_sequence:
            return from_sequence(self.last_sequence + 1)
        return self.options.start.since(time.monotonic_ns() - self._made_at_ns)

    def _disown(self, session: Session, inbox: str) -> None:
        close = wire.UnsubscribeRequest(
            client_id=session.options.client_id.encode(), subject=self._name, inbox=inbox.encode()
        )
        if session.answer.sub_close_requests:
            session.link.send(publication(session.answer.sub_close_requests, close.SerializeToString()))

    async def _unlisten(self) -> None:
        if self._link is not None:
            link, self._link = self._link, None
            await link.unlisten(self._sid)

    # --- messages --------------------------------------------------------------------------------------------------

    def _take(self, frames: list[Frame]) -> None:
        if not self._ack_inbox:
            self._early.extend(frames)
            return
        if self._over:
            return
        channel = self.channel
        messages = []
        for frame in frames:
            try:
                sequence, _, reply, data, timestamp, redelivered, count = decode_message(frame.payload)
            except ValueError:
                log.warning("%s: a message could not be decoded; it is not acked", channel)
                continue
            messages.append(Message(sequence, channel, text_of(reply), data, timestamp, redelivered, count, self))
        self.last_sequence = max([self.last_sequence, *[message.sequence for message in messages]])
        if self._direct:
            self._run(messages)
        else:
            self._enqueue(messages)

    def _run(self, messages: list[Message]) -> None:
        for group in [messages] if self.options.batch else [[message] for message in messages]:
            if self._over:
                return
            try:
                self._callback(group if self.options.batch else group[0])
            except Exception:
                log.exception(CALLBACK_FAILED, self.channel)
            else:
                self._settle(group)

    def _enqueue(self, messages: list[Message]) -> None:
        room = QUEUED_WINDOWS_MAX * self.options.max_in_flight - len(self._queue)
        if len(messages) > room:
            messages = [message for message in messages if not message.redelivered]
        self._queue.extend(messages)
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    async def _arrived(self) -> bool:
        """Wait for a message; returns False when the subscription has ended."""
        while not self._queue:
            if self._over:
                return False
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        return not self._over

    async def _work(self) -> None:
        while await self._arrived():
            if self.options.batch:
                group = list(self._queue)
                self._queue.clear()
            else:
                group = [self._queue.popleft()]
            try:
                await self._callback(group if self.options.batch else group[0])
            except Exception:
                log.exception(CALLBACK_FAILED, self.channel)
            else:
                self._settle(group)

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Message:
        """Ack the message returned before, then wait for the next one.

        Raises:
            StopAsyncIteration: the subscription or the client was closed.
            ConnectionClosedError: the session was lost and could not be recovered.
        """
        if self._callback is not None:
            raise TypeError("a subscription with a callback cannot be iterated over")
        if self._in_hand and not self.options.manual_acks:
            self._ack(self._in_hand)
        self._in_hand = 0
        if not await self._arrived():
            if self._error is not None:
                raise self._error
            raise StopAsyncIteration
        message = self._queue.popleft()
        self._in_hand = message.sequence
        return message

    # --- acks ------------------------------------------------------------------------------------------------------

    def ack(self, sequence: int) -> None:
        """Acknowledge one message by its sequence, as Message.ack does.

        Raises:
            ManualAckError: the subscription acks by itself. BadSubscriptionError: the subscription has ended.
        """
        if not self.options.manual_acks:
            raise ManualAckError
        if self._over:
            raise BadSubscriptionError
        self._ack(sequence)

    def _settle(self, messages: list[Message]) -> None:
        if not self.options.manual_acks:
            for message in messages:
                self._ack(message.sequence)

    def _ack(self, sequence: int) -> None:
        if not self._unsent_acks:
            asyncio.get_running_loop().call_soon(self._send_acks)
        self._unsent_acks.append(sequence)

    def _send_acks(self) -> None:
        acks, self._unsent_acks = self._unsent_acks, []
        if acks and self._link is not None and self._ack_inbox and not self._over:
            for first, last in _runs(acks):
                self._link.send(encode_acks(self._ack_inbox, self._name, first, last))

    # --- the end ---------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End the subscription; a durable one can be resumed later.

        Raises:
            BadSubscriptionError: closed before. ConnectionClosedError: the client is closed.
            UnsubscribeRequestTimeoutError: no answer; close() may be called again. ServerError: the server refuses.
        """
        await self._leave(unsubscribe=False)

    async def unsubscribe(self) -> None:
        """End the subscription; of a durable, the server also forgets its position. Errors as of close()."""
        await self._leave(unsubscribe=True)

    async def _leave(self, *, unsubscribe: bool) -> None:
        if self._client.closed:
            raise ConnectionClosedError
        if self._over:
            raise BadSubscriptionError
        session = await self._client.ready()
        subject = session.answer.unsub_requests if unsubscribe else session.answer.sub_close_requests
        if not subject:
            raise NotSupportedError
        self._send_acks()
        request = wire.UnsubscribeRequest(
            client_id=session.options.client_id.encode(),
            subject=self._name,
            inbox=self._ack_inbox,
            durable_name=self.options.durable.encode(),
        )
        answer = await session.request(subject, request.SerializeToString(), UnsubscribeRequestTimeoutError)
        error = wire.SubscriptionResponse.FromString(answer).error
        if error:
            raise ServerError(text_of(error))
        await self.end()

    async def end(self, error: StanClientError | None = None) -> None:
        """Stop locally, without a request to the server: iteration ends, with *error* if there is one."""
        if self._over:
            return
        self._send_acks()
        self._over, self._error = True, error
        self._client.forget(self)
        self._wake()
        worker = self._worker
        if worker is not None and worker is not asyncio.current_task():
            worker.cancel()
        await self._unlisten()


def _returns_awaitable(callback: Any) -> bool:
    """Return True if *callback* is an async function, or an object whose __call__ is one."""
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(callback.__call__)


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

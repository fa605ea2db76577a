"""The methods of stan_client.reading.direct as blocking calls from any thread, for programs without an event loop of their own;
and publish and subscribe, for which the client registers with the servers when they are first called.

The client owns an event loop in a daemon thread, uvloop's if that is installed. Promises: calls from several threads run at the
same time; a client shares nothing with other clients, and a forked process cannot use it (it makes a client of its own).
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from functools import wraps
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from stan_client.errors import BadSubscriptionError, ConnectionClosedError, StanClientError
from stan_client.reading.batches import Batches
from stan_client.reading.channels import Channels
from stan_client.reading.direct import Direct
from stan_client.requests.bookmarks import Bookmarks
from stan_client.requests.transactions import Transactions

if TYPE_CHECKING:
    from stan_protocol.admin_types import PartedStatus, SchemaStatus

    from stan_client.client import Client
    from stan_client.messages.messages import Acker, Message
    from stan_client.messages.new_message import Published
    from stan_client.subscribing.subscription import Subscription

REGISTER_TIMEOUT_S = 5.0
"""Wait for the answer to the registration, and to each subscription."""

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        from uvloop import new_event_loop  # noqa: PLC0415 - not on every platform, and takes long
    except ImportError:
        return asyncio.new_event_loop
    return new_event_loop


def _begun(
    of: Callable[[Direct], S], call: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]
) -> "Callable[Concatenate[BlockingClient, P], Future[T]]":
    """Make a method that starts *call*, a method of the part that *of* returns, and returns a future."""

    @wraps(call)
    def begin(self: "BlockingClient", /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._begin(call(of(self._direct), *args, **kwargs))

    return begin


def _waited(
    of: Callable[[Direct], S], call: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]
) -> "Callable[Concatenate[BlockingClient, P], T]":
    """Make a method that waits for *call*, a method of the part that *of* returns, and returns its result."""

    @wraps(call)
    def wait(self: "BlockingClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait(call(of(self._direct), *args, **kwargs))

    return wait


def _iterated(
    of: Callable[[Direct], S], call: Callable[Concatenate[S, P], AsyncGenerator[T, None]]
) -> "Callable[Concatenate[BlockingClient, P], Iterator[T]]":
    """Make a method that yields the items of *call*, a method of the part that *of* returns, and goes on in the background while
    the caller works."""

    @wraps(call)
    def iterate(self: "BlockingClient", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        answers = call(of(self._direct), *args, **kwargs)
        try:
            while (item := self._wait(_next(answers))) is not None:
                yield item
        finally:
            if not self._closed:
                self._wait(_close(answers))

    return iterate


_batches: Callable[[Direct], Batches] = attrgetter("batches")
_bookmarks: Callable[[Direct], Bookmarks] = attrgetter("bookmarks")
_channels: Callable[[Direct], Channels] = attrgetter("channels")
_transactions: Callable[[Direct], Transactions] = attrgetter("transactions")


def _itself(direct: Direct) -> Direct:
    return direct


class BlockingSubscription:
    """The messages of a subscription, for one thread; made by BlockingClient.subscribe.

    Iterate over it: a message is acked when the next one is asked for, unless the subscription has `manual_acks`. As `with` it is
    closed at the end of the block, and the last message is acked, too, unless the block raises; a durable stays on the server.
    """

    def __init__(self, client: "BlockingClient", subscription: "Subscription", *, acks: bool) -> None:
        self._client, self._subscription, self._acks = client, subscription, acks
        self._in_hand: Message | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<Blocking{self._subscription!r}".replace("<Blocking<", "<Blocking")

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> "Message":
        """Wait for the next message. Raises StopIteration: the subscription or the client was closed."""
        message = self.next()
        if message is None:
            raise StopIteration
        return message

    def next(self, timeout_s: float | None = None) -> "Message | None":
        """Wait for the next message; None: the subscription was closed. Raises NoMessageError: none came within *timeout_s*
        seconds."""
        self._settle()
        message = self._client._wait(self._next_message(timeout_s))  # noqa: SLF001 - one of two halves
        self._in_hand = message
        return message

    async def _next_message(self, timeout_s: float | None) -> "Message | None":
        try:
            message = await self._subscription.next(timeout_s=timeout_s)
        except BadSubscriptionError:
            return None
        message._acker = _InLoop(self._client, message._acker)  # type: ignore[arg-type] # noqa: SLF001
        return message

    def _settle(self) -> None:
        message, self._in_hand = self._in_hand, None
        if message is not None and self._acks:
            message.ack()

    def close(self) -> None:
        """End the subscription; a durable stays on the server. The message in hand is not acked. A second close does nothing."""
        if not self._closed:
            self._closed, self._in_hand = True, None
            self._client._wait(self._subscription.close())  # noqa: SLF001

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_exc: object) -> None:
        if kind is None:
            self._settle()
        self.close()


class _InLoop:
    """An Acker whose methods run in the event loop of a client, and are called from another thread."""

    def __init__(self, client: "BlockingClient", acker: "Acker") -> None:
        self._client, self._acker = client, acker

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._acker, name)

        async def call(*args: Any) -> Any:
            return method(*args)

        return lambda *args: self._client._wait(call(*args))  # noqa: SLF001


class BlockingClient:
    """A blocking, thread-safe client, connected from the start until `close`, usable as `with`. Only publish and subscribe need a
    registration: that of *client_id*."""

    def __init__(
        self,
        servers: str | list[str] = "nats://127.0.0.1:4222",
        *,
        cluster_id: str = "test-cluster",
        name: str = "",
        client_id: str = "",
        timeout_s: float = 30.0,
        nats_options: Mapping[str, Any] | None = None,
        new_event_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        """Connect; arguments and errors as of stan_client.reading.direct.Direct. *client_id*: for publish and subscribe; a fresh
        one if it is empty. *new_event_loop*: returns the event loop; None: uvloop's, or asyncio's where that is not installed."""
        self._client_id = client_id
        self._registering: asyncio.Task[Client] | None = None
        self._direct = Direct(servers, cluster_id=cluster_id, name=name, timeout_s=timeout_s, nats_options=nats_options)
        self._loop = (new_event_loop or _fastest_loop())()
        self._pid = os.getpid()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="stan-client", daemon=True)
        self._thread.start()
        try:
            self._wait(self._direct.open())
        except BaseException:
            self._end()
            raise

    def __repr__(self) -> str:
        return f"<BlockingClient {self._direct!r}>"

    @property
    def max_payload(self) -> int:
        """Largest payload the NATS server takes, in bytes."""
        return self._direct.batches.bytes_max

    # --- look --------------------------------------------------------------------------------------------------------

    info = _waited(_channels, Channels.info)

    def schemas(self, channel: str = "") -> "list[SchemaStatus]":
        """Return the registered versions in force for a *channel*, or all; see Admin.schemas."""
        return self._wait(self._direct.admin.schemas(channel))

    def parts(self, channel: str = "") -> "list[PartedStatus]":
        """Return the channels that have parts, or one *channel*, if it has any; see Admin.parts."""
        return self._wait(self._direct.admin.parts(channel))

    sequence_at = _waited(_channels, Channels.sequence_at)
    message_bytes_max = _waited(_channels, Channels.message_bytes_max)

    # --- read --------------------------------------------------------------------------------------------------------

    fetch = _waited(_itself, Direct.fetch)
    fetch_batch = _waited(_batches, Batches.fetch)

    read_range = _iterated(_batches, Batches.read_range)

    # --- write -------------------------------------------------------------------------------------------------------
    # Methods `..._nowait` return a future with the result or the error. The caller bounds the number of calls in flight; the
    # order in which the servers store their messages is undefined.

    publish_batch = _waited(_batches, Batches.publish)
    publish_batch_nowait = _begun(_batches, Batches.publish)
    stage = _waited(_transactions, Transactions.stage)
    stage_nowait = _begun(_transactions, Transactions.stage)
    stage_together = _waited(_transactions, Transactions.stage_together)
    stage_together_nowait = _begun(_transactions, Transactions.stage_together)
    commit = _waited(_transactions, Transactions.commit)
    abort = _waited(_transactions, Transactions.abort)
    last_committed = _waited(_transactions, Transactions.last_committed)

    # --- registered --------------------------------------------------------------------------------------------------

    def publish(self, channel: str, data: bytes, **options: Any) -> "Published":
        """Publish one message and wait for its ack; options, result and errors as of Client.publish(), and those of
        stan_client.connect() at the first call."""
        return self._wait(self._publish(channel, data, options))

    def publish_nowait(self, channel: str, data: bytes, **options: Any) -> "Future[Published]":
        """Publish one message, and return a future of its result or error; else as publish()."""
        return self._begin(self._publish(channel, data, options))

    def subscribe(self, channel: str, *, manual_acks: bool = False, **options: Any) -> BlockingSubscription:
        """Subscribe to a channel, and return its messages as an iterator; options (but a callback) and errors as of
        Client.subscribe(), and those of stan_client.connect() at the first call."""
        subscription = self._wait(self._subscribe(channel, options))
        return BlockingSubscription(self, subscription, acks=not manual_acks)

    async def _publish(self, channel: str, data: bytes, options: dict[str, Any]) -> "Published":
        return await (await self._registered()).publish(channel, data, **options)

    async def _subscribe(self, channel: str, options: dict[str, Any]) -> "Subscription":
        return await (await self._registered()).subscribe(channel, manual_acks=True, **options)

    async def _registered(self) -> "Client":
        from stan_client.client import connect  # noqa: PLC0415 - who only reads does without

        if self._registering is None or (self._registering.done() and self._registering.exception() is not None):
            target = self._direct.target(self._client_id)
            self._registering = asyncio.ensure_future(connect(**target, connect_timeout_s=REGISTER_TIMEOUT_S))
        return await asyncio.shield(self._registering)

    async def _leave(self) -> None:
        if self._registering is not None:
            with contextlib.suppress(StanClientError):
                await (await self._registering).close()
        await self._direct.close()

    # --- named positions ---------------------------------------------------------------------------------------------

    set_bookmark = _waited(_bookmarks, Bookmarks.set)
    bookmarks = _waited(_bookmarks, Bookmarks.all)

    # --- the loop ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connection and end the thread; calls that still wait get ConnectionClosedError. A second close does
        nothing, and so does one in a forked process."""
        if self._closed or os.getpid() != self._pid:
            return
        try:
            self._wait(self._leave())
        finally:
            self._end()

    def _end(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._closed or os.getpid() != self._pid:
            work.close()
            raise ConnectionClosedError("" if self._closed else "stan: the client belongs to the parent process")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._result(self._begin(work))

    @staticmethod
    def _result(begun: Future[T]) -> T:
        try:
            return begun.result()
        except BaseException:
            begun.cancel()  # the caller was interrupted
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


async def _next(answers: AsyncGenerator[T, None]) -> T | None:
    return await anext(answers, None)


async def _close(answers: AsyncGenerator[Any, None]) -> None:
    await answers.aclose()

"""The same as stan_client.direct in plain calls, from any thread: for programs that have no event loop of their own.

The loop runs in a daemon thread that the client owns; with uvloop where it is installed. Promises: calls of several threads are
answered at the same time; nothing is shared with another client, nor with a process that was forked off (it makes its own).
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from stan_client.direct import Direct
from stan_client.errors import ConnectionClosedError
from stan_client.fetching import Fetched
from stan_client.messages import Message
from stan_client.positions import Start
from stan_client.requests import BatchAck, ChannelInfo, Committed, Cursor

try:
    from uvloop import new_event_loop
except ImportError:  # not on every platform
    new_event_loop = asyncio.new_event_loop  # type: ignore[assignment]

T = TypeVar("T")


class BlockingClient:
    """See the module's docstring; connected from the start until `close`, usable as `with`."""

    def __init__(
        self,
        servers: str | list[str] = "nats://127.0.0.1:4222",
        cluster_id: str = "test-cluster",
        *,
        name: str = "",
        timeout_s: float = 30.0,
        nats_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Connect; arguments and errors as of stan_client.direct.Direct."""
        self._direct = Direct(servers, cluster_id, name=name, timeout_s=timeout_s, nats_options=nats_options)
        self._loop: asyncio.AbstractEventLoop = new_event_loop()
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
        return self._direct.max_payload

    # --- look --------------------------------------------------------------------------------------------------------

    def info(
        self,
        channels: Sequence[str] = (),
        *,
        pattern: str = "",
        newer_than: Mapping[str, int] | None = None,
        wait_s: float = 0,
    ) -> dict[str, ChannelInfo]:
        """As Requesting.info."""
        return self._wait(self._direct.info(channels, pattern=pattern, newer_than=newer_than, wait_s=wait_s))

    def seq_at_time(self, channel: str, time_ns: int) -> int:
        """As Requesting.seq_at_time."""
        return self._wait(self._direct.seq_at_time(channel, time_ns))

    # --- read --------------------------------------------------------------------------------------------------------

    def fetch(
        self,
        channel: str,
        *,
        start: Start | None = None,
        last: int = 0,
        count: int = 0,
        max_bytes: int = 0,
        from_replica: bool = False,
    ) -> list[Message]:
        """As Pulling.fetch."""
        found = self.fetch_batch(
            channel, start=start, last=last, count=count, max_bytes=max_bytes, from_replica=from_replica
        )
        return found.messages()

    def fetch_batch(
        self,
        channel: str,
        *,
        start: Start | None = None,
        last: int = 0,
        count: int = 0,
        max_bytes: int = 0,
        from_replica: bool = False,
    ) -> Fetched:
        """As Pulling.fetch_batch."""
        return self._wait(
            self._direct.fetch_batch(
                channel, start=start, last=last, count=count, max_bytes=max_bytes, from_replica=from_replica
            )
        )

    def read_range(
        self,
        channel: str,
        first: int,
        last: int,
        *,
        uid: int = 0,
        max_bytes: int = 0,
        in_flight: int = 4,
        from_replica: bool = False,
    ) -> Iterator[Fetched]:
        """As Pulling.read_range; requests go on while the caller works."""
        answers = self._direct.read_range(
            channel, first, last, uid=uid, max_bytes=max_bytes, in_flight=in_flight, from_replica=from_replica
        )
        try:
            while (found := self._wait(_next(answers))) is not None:
                yield found
        finally:
            if not self._closed:
                self._wait(_close(answers))

    # --- write -------------------------------------------------------------------------------------------------------

    def publish_batch(
        self, channel: str, rows: bytes, count: int, *, producer: str = "", version: int = 0, ids: bytes = b""
    ) -> BatchAck:
        """As Requesting.publish_batch."""
        return self._result(
            self.publish_batch_nowait(channel, rows, count, producer=producer, version=version, ids=ids)
        )

    def publish_batch_nowait(
        self, channel: str, rows: bytes, count: int, *, producer: str = "", version: int = 0, ids: bytes = b""
    ) -> Future[BatchAck]:
        """As publish_batch(), without waiting: the future has the result or the error. How many are on their way is for the
        caller to bound; nothing tells in which order they are stored."""
        return self._begin(
            self._direct.publish_batch(channel, rows, count, producer=producer, version=version, ids=ids)
        )

    def stage(self, app: str, version: int, txn: str, part: int, channel: str, rows: bytes, count: int) -> None:
        """As Requesting.stage."""
        self._result(self.stage_nowait(app, version, txn, part, channel, rows, count))

    def stage_nowait(
        self, app: str, version: int, txn: str, part: int, channel: str, rows: bytes, count: int
    ) -> Future[None]:
        """As stage(), without waiting: see publish_batch_nowait()."""
        return self._begin(self._direct.stage(app, version, txn, part, channel, rows, count))

    def commit(
        self,
        app: str,
        version: int,
        txns: Mapping[str, Sequence[tuple[str, int]]],
        *,
        timeout_s: float | None = None,
    ) -> dict[str, Committed]:
        """As Requesting.commit."""
        return self._wait(self._direct.commit(app, version, txns, timeout_s=timeout_s))

    def abort(self, txns: Mapping[str, Sequence[str]]) -> None:
        """As Requesting.abort."""
        self._wait(self._direct.abort(txns))

    def last_committed(self, app: str) -> int:
        """As Requesting.last_committed."""
        return self._wait(self._direct.last_committed(app))

    # --- named positions ---------------------------------------------------------------------------------------------

    def cursor_set(self, name: str, positions: Mapping[str, int]) -> None:
        """As Requesting.cursor_set."""
        self._wait(self._direct.cursor_set(name, positions))

    def cursors(self, name: str = "") -> dict[str, dict[str, Cursor]]:
        """As Requesting.cursors."""
        return self._wait(self._direct.cursors(name))

    # --- the loop ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connection and end the thread; calls that still wait get ConnectionClosedError. A second close does
        nothing, and so does one in a forked process."""
        if self._closed or os.getpid() != self._pid:
            return
        try:
            self._wait(self._direct.close())
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


async def _next(answers: AsyncGenerator[Fetched, None]) -> Fetched | None:
    return await anext(answers, None)


async def _close(answers: AsyncGenerator[Fetched, None]) -> None:
    await answers.aclose()

"""An asyncio loop under virtual time: while the block lasts, time passes only when nothing is left to be done now.

The running loop keeps its own code; its clock, its wait for sockets, its connections and its threads are replaced. So programs
run unchanged, and as fast as the machine can: a sleep of an hour takes no time. `time.time()`, `time.monotonic()` and their twins
in nanoseconds show virtual time, too. Threads of the
program's own have half a millisecond of real time before virtual time passes; calls that go to a thread by way of the loop run
on the loop.
"""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Protocol, Self
from unittest.mock import patch

from stan_protocol.scalars import MICROSECOND, MILLISECOND, SECOND

from stan.testing.loop import WALL_START, Loop

if TYPE_CHECKING:
    import selectors

TIME_MAX: Final = 48 * 3600 * SECOND
"""Virtual time that a simulation may take."""
THREAD_TIME_MAX: Final = 2 * MILLISECOND
"""Virtual time that a call in a thread takes at most."""


THREAD_PATIENCE_S: Final = 0.0005
"""Real time in which threads of the program's own, such as those of aiosqlite, are to answer before virtual time passes."""
THREAD_PATIENCE_FROM: Final = 100 * MICROSECOND
"""Virtual time that may pass meanwhile."""


class LoopHost(Protocol):
    """The world around the programs on the loop."""

    def connect(self, host: str, port: int, protocol: asyncio.BaseProtocol) -> asyncio.Transport:
        """Open a connection. Raises OSError."""

    def make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        """Make a task, as of `asyncio.Task`."""


class VirtualTime:
    """A context manager that puts the running asyncio loop under the time of a `Loop`."""

    def __init__(self, events: Loop, host: LoopHost) -> None:
        """Raises RuntimeError: the running loop is not asyncio's own, or is under virtual time already."""
        self._loop: Any = asyncio.get_running_loop()
        if not isinstance(self._loop, asyncio.SelectorEventLoop):
            text = f"a simulation needs asyncio's own event loop, this is {type(self._loop).__qualname__}"
            raise RuntimeError(text)  # noqa: TRY004 - no argument is of a wrong type
        sockets: Any = vars(self._loop)["_selector"]  # asyncio has no public way
        if isinstance(sockets, VirtualTime):
            raise RuntimeError("one simulation runs on an event loop at a time")  # noqa: TRY004
        self._events = events
        self._host = host
        self._sockets: selectors.BaseSelector = sockets
        self._threads = threading.active_count()
        self._patches = ExitStack()

    def __enter__(self) -> Self:
        loop, events = self._loop, self._events
        replaced: dict[Any, dict[str, Any]] = {
            loop: {
                "_selector": self,
                "time": lambda: events.now / SECOND,
                "create_connection": self._create_connection,
                "run_in_executor": self._run_in_executor,
            },
            time: {
                "time": lambda: (WALL_START + events.now) / SECOND,
                "time_ns": lambda: WALL_START + events.now,
                "monotonic": lambda: events.now / SECOND,
                "monotonic_ns": lambda: events.now,
            },
        }
        for owner, names in replaced.items():
            for name, value in names.items():
                self._patches.enter_context(patch.object(owner, name, value))
        before = loop.get_task_factory()
        loop.set_task_factory(self._host.make_task)
        self._patches.callback(loop.set_task_factory, before)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._patches.close()

    # --- the wait of the loop ---------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sockets, name)

    def select(self, timeout: float | None = None) -> list[Any]:
        """Let virtual time pass: a microsecond if the loop has something to do, else until it has, or *timeout* is over."""
        events, ready = self._events, self._loop._ready  # noqa: SLF001
        if timeout is not None and timeout <= 0:
            events.run_until(events.now + MICROSECOND)
            return self._sockets.select(0)
        end = TIME_MAX if timeout is None else events.now + max(1, math.ceil(timeout * SECOND))
        while not ready:
            found = self._sockets.select(self._patience_s())
            if found:
                return found
            if events.next_at is None or events.next_at > end:
                events.run_until(end)
                break
            events.run_next()
        if events.now >= TIME_MAX:
            raise TimeoutError(f"the simulation has run for {TIME_MAX // SECOND} s of virtual time, and has no end")
        return []

    def _patience_s(self) -> float:
        """Real seconds to wait for signals, and for threads of the program's own, before time passes."""
        at = self._events.next_at
        passes = at is None or at - self._events.now > THREAD_PATIENCE_FROM
        return THREAD_PATIENCE_S if passes and threading.active_count() > self._threads else 0

    # --- connections and threads ------------------------------------------------------------------------------------

    async def _create_connection(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str = "", port: int = 0, **_options: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        protocol = factory()
        transport = self._host.connect(host, port, protocol)
        protocol.connection_made(transport)
        return transport, protocol

    def _run_in_executor(self, _executor: Any, call: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        """Run *call* on the loop itself, a little later, so that a seed always gives the same order."""
        done: asyncio.Future[Any] = self._loop.create_future()

        def run() -> None:
            if done.cancelled():
                return
            try:
                result = call(*args)
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                done.set_exception(error)
            else:
                done.set_result(result)

        self._events.after(int(self._events.random.random() * THREAD_TIME_MAX), run)
        return done

"""Programs in a simulation: each has lives, which end at one of its awaits, by a kill or by a cancellation, and begin again."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Final, Protocol

from stan_protocol.scalars import MILLISECOND

from stan.testing.faults import FaultSchedule
from stan.testing.loop import Loop

if TYPE_CHECKING:
    from stan.testing.sockets import Socket

RESTART_MAX: Final = 500 * MILLISECOND
"""Time until a program that has ended starts again, at most."""
LAST_WORDS_MAX: Final = 1000
"""Awaits that a killed program may try to go on with."""


class World(Protocol):
    """The simulation around the programs."""

    loop: Loop
    faults: FaultSchedule

    def note(self, text: str) -> None:
        """Add a line to the account of the run."""


class Life:
    """A program in one life: its tasks and its connections."""

    def __init__(self, program: "Program") -> None:
        self.program = program
        self.dead = False  # killed: it does nothing more
        self.sockets: list[Socket] = []
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._main: asyncio.Task[Any] | None = None
        self._awaits = 0  # left until its end; 0: it is not ended
        self._drawn = False

    def begin(self) -> None:
        """Run the program as a task of its own."""
        context = copy_context()
        context.run(LIFE.set, self)
        self._main = context.run(asyncio.get_running_loop().create_task, self.program.main())
        self._main.add_done_callback(self._ended)

    def first_delivery(self) -> None:
        """Draw when this life ends, once: awaits before the first message are not worth it."""
        if not self._drawn:
            self._drawn = True
            self._awaits = self.program.world.faults.end_after()

    def awaited(self) -> None:
        """Count an await of one of the tasks, at which the life may end."""
        if self._awaits and not self.dead and self.program.world.faults.active:
            self._awaits -= 1
            if not self._awaits:
                self.end()

    def end(self) -> None:
        """End the program: a kill or a cancellation."""
        if self.dead:
            return
        kill = self.program.world.faults.is_kill()
        self.program.world.note(f"{self.program.name} is {'killed' if kill else 'cancelled'}")
        if kill:
            self.kill()
        elif self._main is not None:
            asyncio.get_running_loop().call_soon(self._main.cancel)

    def kill(self) -> None:
        """End the process: nothing that it sends from now on arrives."""
        self.dead = True
        for socket in self.sockets:
            socket.die()
        self._cancel_all()

    def _cancel_all(self) -> None:
        for task in list(self.tasks):
            task.cancel()

    def _ended(self, main: asyncio.Task[Any]) -> None:
        error = None if main.cancelled() else main.exception()
        if not self.dead:  # what the program has left behind ends with its process
            self.kill()
        self.program.ended(error, finished=error is None and not main.cancelled())


LIFE: ContextVar[Life | None] = ContextVar("life", default=None)
"""The life that the running code belongs to; None: the test itself."""


class Steps:
    """A coroutine of a program, each of whose awaits is counted; once the program is killed, none of them waits."""

    def __init__(self, life: Life, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._life = life
        self._coroutine = coroutine

    async def run(self) -> Any:
        """Run the coroutine; the result is its own."""
        return await self

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, life = self._coroutine, self._life
        error: BaseException | None = None
        last_words = 0
        while True:
            try:
                waits_for = coroutine.throw(error) if error is not None else coroutine.send(None)
            except StopIteration as stop:
                return stop.value
            error = None
            life.awaited()
            if life.dead:
                last_words += 1
                if last_words > LAST_WORDS_MAX:
                    coroutine.close()
                    raise asyncio.CancelledError
                error = asyncio.CancelledError()
                if waits_for is not None:
                    waits_for.cancel()
                    waits_for.add_done_callback(_look)
                continue
            try:
                yield waits_for
            except BaseException as thrown:  # noqa: BLE001 - it is the coroutine's
                error = thrown


def _look(future: "asyncio.Future[Any]") -> None:
    """Look at the error of a future that nobody waits for anymore, else asyncio tells of it."""
    if not future.cancelled():
        future.exception()


class Program:
    """A program, which starts again whenever one of its lives has ended, until it returns."""

    def __init__(self, world: World, name: str, main: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.world = world
        self.name = name
        self.main = main
        self.crashes = 0  # lives that an error of its own has ended
        self.error: BaseException | None = None  # of the last one
        self.life: Life | None = None
        self._stopped = False

    def start(self) -> None:
        """Begin a life, unless the simulation is over."""
        if not self._stopped:
            self.world.note(f"{self.name} starts")
            self.life = Life(self)
            self.life.begin()

    def stop(self) -> None:
        """End the program for good."""
        self._stopped = True
        if self.life is not None:
            self.life.kill()

    def ended(self, error: BaseException | None, *, finished: bool) -> None:
        """Note that a life has ended; begin another one in a while."""
        self.life = None
        if error is not None:
            self.crashes += 1
            self.error = error
            self.world.note(f"{self.name} fails: {type(error).__name__} {error}")
        if finished:
            self.world.note(f"{self.name} is done")
        else:
            self.world.loop.after(self.world.loop.random.randint(MILLISECOND, RESTART_MAX), self.start)

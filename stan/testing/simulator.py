"""A simulation: one broker, one NATS, and the programs of a test, under virtual time; everything follows from one seed.

with Simulator(7, kinds) as simulator:  # in a coroutine, on asyncio's own loop
    simulator.start("biller", main)  # `main` connects to nats://127.0.0.1:4222 as it always does
    ...
    simulator.end_faults()
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Self

from stan_protocol.scalars import SECOND

from stan.testing.broker import Medium, SimulatedBroker
from stan.testing.faults import FaultKinds, FaultSchedule
from stan.testing.loop import Loop
from stan.testing.nats import SimMessage, SimNats
from stan.testing.programs import LIFE, Life, Program, Steps
from stan.testing.sockets import Socket
from stan.testing.virtual_time import VirtualTime

log = logging.getLogger("stan.testing")

PORT: Final = 4222
"""Where the simulated NATS is, on every host."""


class Simulator:
    """A simulation; as a context manager it runs on the running asyncio loop."""

    def __init__(self, seed: int, kinds: FaultKinds | None) -> None:
        """*kinds*: of faults that may happen once a program has started; None: none."""
        self.loop = Loop(seed)
        self.faults = FaultSchedule(self.loop, kinds)
        self.account: list[str] = []
        """What has happened, a line each: the time in seconds, and a text."""
        self.programs: list[Program] = []
        self.deliveries = 0  # to programs
        self._last = self.loop.now  # when something has happened to a program
        self._delayed_until = 0
        self._nats = SimNats(self.loop)
        self._medium = Medium()
        self._broker: SimulatedBroker | None = None
        self._away: dict[str, int] = {}  # program -> time until which it cannot connect
        self._time = VirtualTime(self.loop, self)

    def __enter__(self) -> Self:
        self._time.__enter__()
        self._boot()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        if self._broker is not None:
            self._broker.kill()
        self._time.__exit__(*exc)

    @property
    def quiet_s(self) -> float:
        """Seconds since a message was delivered, an ack was sent, or a program began or ended; below 0 during a delay."""
        return (self.loop.now - max(self._last, self._delayed_until)) / SECOND

    def note(self, text: str) -> None:
        """Add a line to the account of the run."""
        self._last = self.loop.now
        self.account.append(f"{self.loop.now / SECOND:.6f} {text}")

    # --- programs ---------------------------------------------------------------------------------------------------

    def start(self, name: str, main: Callable[[], Coroutine[Any, Any, Any]]) -> Program:
        """Start a program, whose lives the faults end; from now on faults happen."""
        program = Program(self, name, main)
        self.programs.append(program)
        self.faults.active = True
        program.start()
        return program

    def end_faults(self) -> None:
        """Let everything be as it should be from now on."""
        self.faults.active = False
        self._away.clear()
        self._nats.heal()
        self._boot()

    def stop(self) -> None:
        """End the faults, and the programs for good."""
        self.end_faults()
        for program in self.programs:
            program.stop()

    def make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        """Make a task; one of a program belongs to its life."""
        life = LIFE.get()
        if life is None:
            return asyncio.Task(coroutine, loop=loop, **options)
        task = asyncio.Task(Steps(life, coroutine).run(), loop=loop, **options)
        life.tasks[task] = None

        def ended(task: asyncio.Task[Any]) -> None:
            life.tasks.pop(task, None)
            coroutine.close()  # a task that is cancelled before its first step has not begun it

        task.add_done_callback(ended)
        return task

    # --- connections ------------------------------------------------------------------------------------------------

    def connect(self, _host: str, port: int, protocol: asyncio.BaseProtocol) -> asyncio.Transport:
        """Connect to NATS, or raise ConnectionRefusedError."""
        life = LIFE.get()
        name = life.program.name if life is not None else ""
        if port != PORT:
            raise ConnectionRefusedError(f"a simulation has nothing but NATS at port {PORT}, port {port} was wanted")
        if (life is not None and life.dead) or self.loop.now < self._away.get(name, 0):
            raise ConnectionRefusedError("the connection is cut")
        socket = Socket(self._nats, name, protocol, self)
        if life is not None:
            life.sockets.append(socket)
        return socket

    def delivered(self, socket: Socket, *, answer: bool) -> None:
        """Draw which faults a delivery brings about, or the answer to a request."""
        faults, life = self.faults, self._life_of(socket)
        if life is None:
            return
        self.deliveries += 1
        if not answer:  # those who follow a channel without a subscription get one every few seconds
            self._last = self.loop.now
        if not faults.active:
            return
        life.first_delivery()
        if faults.kills.strikes():
            faults.soon(self._kill)
        if faults.cuts.strikes():
            faults.soon(lambda: self._cut(socket))
        if faults.delays.strikes():
            faults.soon(lambda: self._delay(socket))
        if faults.ends.strikes():
            faults.soon(life.end)

    def lets_through(self, socket: Socket, message: SimMessage) -> bool:
        """False for an ack that is lost."""
        is_ack = self._broker is not None and message.subject.startswith(self._broker.acks)
        if not is_ack or self._life_of(socket) is None:
            return True
        self._last = self.loop.now
        if not self.faults.loses_ack():
            return True
        self.note(f"an ack of {socket.name} is lost")
        return False

    def _life_of(self, socket: Socket) -> Life | None:
        return next((p.life for p in self.programs if p.life is not None and socket in p.life.sockets), None)

    # --- faults -----------------------------------------------------------------------------------------------------

    def _boot(self) -> None:
        if self._broker is None:
            self._broker = SimulatedBroker(self.loop, self._nats, self._medium, self._log)

    def _kill(self) -> None:
        if self._broker is None:
            return
        self._broker.kill()
        self._broker = None
        length = self.faults.outage()
        self.note(f"the broker dies for {length / SECOND:.3f} s")
        self.loop.after(length, self._boot)

    def _cut(self, socket: Socket) -> None:
        length = self.faults.outage()
        self._away[socket.name] = self.loop.now + length
        if socket.cut():
            self.note(f"{socket.name} has no connection for {length / SECOND:.3f} s")

    def _delay(self, socket: Socket) -> None:
        if socket.up:
            length = self.faults.delay()
            socket.hold(length)
            self._delayed_until = max(self._delayed_until, self.loop.now + length)
            self.note(f"nothing reaches or leaves {socket.name} for {length / SECOND:.3f} s")

    def _log(self, level: str, text: str) -> None:
        log.debug("%.6f broker: %s %s", self.loop.now / SECOND, level, text)

"""The embedded nats-server: started when the broker can answer, started again when it ends, ended when we stop.

Promises: `start` returns once it listens; behind its gate the broker's connection comes before those of clients, also when it is
started again; a nats-server that ends is started again on the same port with a growing pause, for as long as we run; `stop`
leaves no process behind. Never talks NATS. Modelled on the
embedded server of NATS Streaming (STAN-SPEC 12.2, 12.4, 12.5) and on Erlang's supervisors.
"""

import asyncio
import signal
import socket
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from stan_protocol.scalars import SECOND

from stan import limits
from stan.edge.nats.leaf import LeafAddress
from stan.edge.nats.nats_process import DEFAULT_HOST, DEFAULT_PORT, NatsProcess, decides_port, new_secret
from stan.errors import StartError

if TYPE_CHECKING:
    from stan.config import EmbeddedConfig
    from stan.edge.log import ServerLog

LEAF_USER = "stan"
"""Our user on the leafnode connection."""


class EmbeddedNats:
    """A nats-server under supervision. All methods belong to one event loop."""

    def __init__(self, config: "EmbeddedConfig", log: "ServerLog", *, leafnode: bool = False) -> None:
        """Prepare; nothing runs yet. *leafnode*: it takes our own leafnode connection, and no other."""
        if leafnode:
            config = replace(config, leaf_user=LEAF_USER, leaf_password=new_secret())
        self._config = config
        self._log = log
        self._gated = False
        self._process: NatsProcess | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._address: tuple[str, int] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port for connections from this machine; known once started."""
        if self._address is None:
            raise StartError("the embedded NATS Server is not started")
        return self._address

    @property
    def port(self) -> int:
        """Port that clients connect to."""
        return self.address[1]

    @property
    def url(self) -> str:
        """URL for our own connections, without credentials."""
        host, port = self.address
        return f"nats://[{host}]:{port}" if ":" in host else f"nats://{host}:{port}"

    @property
    def pages(self) -> tuple[str, int] | None:
        """Host and port of its monitoring pages; None while there are none."""
        return self._process.pages() if self._process is not None and self._process.running else None

    @property
    def leafnode(self) -> LeafAddress | None:
        """Address and login for our leafnode connection; None while it is not taken."""
        place = self._process.leafnodes() if self._process is not None and self._process.running else None
        config = self._config
        return None if place is None else LeafAddress(*place, config.leaf_user, config.leaf_password)

    @property
    def pid(self) -> int:
        """Process id of the nats-server that runs now; 0 if none does."""
        return self._process.pid if self._process is not None and self._process.running else 0

    async def start(self, *, gated: bool = False) -> None:
        """Return once nats-server listens; if it does already, at once.

        Args:
            gated: from now on it waits for a call of `admit` after each start, before it accepts connections; the first one
                to it is that of `pop_first`.

        Raises:
            StartError: it could not be started or was not ready in time; nothing is left running.
        """
        self._gated |= gated
        if self._supervisor is not None:
            return
        try:
            self._process = NatsProcess(self._config, self._log)
            await self._wait_until_ready(self._process)
        except BaseException:
            await self.stop()
            raise
        host, port = self.address
        if self._config.port < 0:
            self._config = replace(self._config, port=port)  # the port of every later start
        self._log.debug(f"nats-server {self.pid} listens on {host}:{port}")
        self._supervisor = asyncio.create_task(self._supervise(), name="nats-server supervisor")

    def pop_first(self) -> socket.socket | None:
        """Return the first connection to a nats-server that waits at its gate, once; None if there is none."""
        return self._process.gate.pop_first() if self._process is not None and self._process.gate is not None else None

    def admit(self) -> None:
        """Let nats-server accept connections from everywhere."""
        if self._process is not None and self._process.gate is not None:
            self._process.gate.open()

    async def stop(self) -> None:
        """End nats-server: SIGTERM, and SIGKILL if that takes too long. May be called twice."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            with suppress(asyncio.CancelledError):
                await self._supervisor
            self._supervisor = None
        self.admit()  # it ends in order only past its gate
        process, self._process = self._process, None
        if process is None or not process.running:
            return
        process.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(limits.NATS_STOP_TIMEOUT / SECOND):
                await _end_of(process)
        except TimeoutError:
            process.kill()
            await _end_of(process)

    def reload(self, config: "EmbeddedConfig | None" = None) -> None:
        """Make nats-server read its configuration again (STAN-SPEC 12.5, SIGHUP), now that of *config*."""
        if config is not None:
            names = "config_file", "config_text", "config_places", "max_payload", "max_pending", "write_deadline"
            changed = {name: getattr(config, name) for name in names}
            self._config = replace(self._config, **changed)
        if self._process is not None:
            self._process.rewrite(self._config)
            self._process.signal(signal.SIGHUP)

    async def _supervise(self) -> None:
        pause = limits.NATS_RESTART_MIN
        while True:
            process = self._process
            if process is not None:
                await _end_of(process)
                lived = time.monotonic_ns() - process.started
                pause = limits.NATS_RESTART_MIN if lived > limits.NATS_RESTART_MAX else pause
                self._log.error(f"nats-server ended with exit code {process.exit_code}; starting it again")
            await asyncio.sleep(pause / SECOND)
            pause = min(2 * pause, limits.NATS_RESTART_MAX)
            try:
                self._process = NatsProcess(self._config, self._log)
                await self._wait_until_ready(self._process)
            except StartError as error:
                self._log.error(str(error))

    async def _wait_until_ready(self, process: NatsProcess) -> None:
        """Return once *process* listens; sets the address."""
        deadline = time.monotonic_ns() + limits.NATS_READY_TIMEOUT
        while process.running and time.monotonic_ns() < deadline:
            address = process.address()
            gate = process.gate
            listens = address is not None if gate is None else gate.reached  # it names its ports once it listens there
            if listens and process.running:
                self._address = address
                if not self._gated:
                    self.admit()
                return
            await asyncio.sleep(limits.NATS_POLL_INTERVAL / SECOND)
        config = self._config
        where = f"on {config.host or DEFAULT_HOST}:{config.port or DEFAULT_PORT}"
        if config.config_file is not None and decides_port(config):
            where = f"with {config.config_file}"
        lines = process.last_lines()
        process.kill()
        raise StartError(f"unable to start a NATS Server {where}" + (f":\n{lines}" if lines else ""))


async def _end_of(process: NatsProcess) -> None:
    """Return once *process* has ended."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def notify() -> None:
        with suppress(RuntimeError):  # the loop is closed: there is no waiter any more
            loop.call_soon_threadsafe(ended.set)

    process.on_exit(notify)
    await ended.wait()

"""The process around a running broker, alone or in a cluster: connect, flush, stop, close."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from stan_protocol.patterns import width
from stan_protocol.scalars import SECOND
from stan_protocol.units import go_duration

from stan import limits
from stan.config import Config, StoreLimits
from stan.core.broker.broker import Broker
from stan.edge.driver import Driver
from stan.edge.log import ServerLog, redacted
from stan.edge.nats.accounts import leaf_login, leaf_password, leaf_users
from stan.edge.nats.connection import NatsConnection, hint
from stan.edge.nats.embedded import EmbeddedNats
from stan.edge.nats.gateway import Gateway
from stan.edge.nats.jetstream_check import jetstream_conflict
from stan.edge.nats.leaf import LeafAddress, LeafConnection
from stan.edge.nats.leaf_address import leaf_address
from stan.edge.runtime import AsyncRuntime
from stan.edge.storage.storage import Storage
from stan.edge.tracing.traced_driver import ServerTracing
from stan.errors import Frozen, StanError, StartError
from stan.protocol.user_subjects import with_users


class BrokerProcess:
    """A running broker. Its subclasses in stan.server.compose add the parts of a standalone broker and of a cluster's
    node."""

    broker: Broker
    gateway: Gateway
    driver: Driver

    def __init__(self, config: Config, storage: Storage, log: ServerLog, tracing: ServerTracing | None = None) -> None:
        self.tracing = tracing
        self.config = config
        self.storage = storage
        self.log = log
        self.runtime = AsyncRuntime(len(storage.logs))
        self.connection: NatsConnection | None = None
        self.leaves: list[LeafConnection] = []
        self.serving = False  # clients are served, or were
        self.crash: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def begin(self, embedded: EmbeddedNats | None) -> None:
        """Start; raises the error of a crash during the start."""
        starting = asyncio.ensure_future(self.start(embedded))
        try:
            await asyncio.wait({starting, self.crash}, return_when=asyncio.FIRST_COMPLETED)
            if self.crash.done():
                self.crash.result()
            await starting
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)

    async def start(self, embedded: EmbeddedNats | None) -> None:
        """Recover, connect, serve. Raises StartError."""
        raise NotImplementedError

    async def stopping(self, stop: asyncio.Event) -> None:
        """Return when there is a reason to stop."""
        await stop.wait()

    async def before_stop(self) -> None:
        """Hook: called when the process was asked to stop, while this node still takes part."""

    def note(self, level: str, line: str) -> None:
        """Write a line to the log; *level* is INF, WRN, ERR or DBG."""
        {"INF": self.log.info, "WRN": self.log.warning, "ERR": self.log.error, "DBG": self.log.debug}[level](line)

    def crashed(self, error: BaseException) -> None:
        """End `run` with *error*, after which the process cannot go on."""
        if not self.crash.done():
            self.crash.set_exception(error)
            self.crash.exception()  # mark as retrieved: if the node ends for another reason, no code reads it

    async def connect(self, embedded: EmbeddedNats | None) -> NatsConnection:
        """Connect the gateway to NATS; our own nats-server is started, and admits no client before the gateway."""
        config, gateway = self.config, self.gateway
        if embedded is not None:
            await embedded.start(gated=True)
        connection = self.connection = NatsConnection(
            gateway.subscriptions.known() if self._listens_early(embedded) else gateway.subscriptions.early(),
            on_data=gateway.read_buffer.on_data,
            on_up=gateway.read_buffer.on_up,
            on_down=gateway.read_buffer.on_down,
            on_drained=self.driver.turns.wake,
        )
        gateway.connection = connection
        urls = config.nats.urls or ((embedded.url,) if embedded is not None else ())
        try:
            await connection.open(config.nats, urls, f"_NSS-{config.cluster_id}-send", self.log.error, embedded)
        except Exception as error:
            shown = ", ".join(redacted(url) for url in urls)
            reason = f"{error or type(error).__name__}{hint(config.nats, error)}"
            raise StartError(f"cannot connect to NATS at {shown}: {reason}") from error
        return connection

    def connect_leaf(self, embedded: EmbeddedNats | None) -> None:
        """Connect by a leafnode connection, too, if JetStream's clients are served: what consumers get leaves there; with users
        by one into the account of each. Call once turns may step the broker."""
        config = self.config
        if not config.jetstream_api:
            return
        if not config.jetstream_leaf and embedded is None:
            self.log.warning("jetstream_leaf is not set: consumers of JetStream get no messages")
            return

        for user in leaf_users(config) if with_users(config) else ("",):
            name = f"_NSS-{config.cluster_id}-leaf"
            address = partial(self._leaf_address, embedded, user)
            leaf = LeafConnection(address, name, self.driver.turns.wake, self.note)
            self.gateway.connection.leaves[user.encode()] = leaf
            self.leaves.append(leaf)
            leaf.start()

    def _leaf_address(self, embedded: EmbeddedNats | None, user: str) -> LeafAddress | None:
        """Return the address for a leafnode connection into the account of *user*; None while it is unknown."""
        config = self.config
        if config.jetstream_leaf:
            found: LeafAddress | None = leaf_address(config.jetstream_leaf, config.nats)
        else:
            found = None if embedded is None else embedded.leafnode
        if not user or found is None:
            return found
        return replace(found, user=leaf_login(user), password=leaf_password(config))

    async def check_jetstream(self) -> None:
        """Raise StartError if clients of JetStream are to be served, and somebody else serves them here."""
        if self.config.jetstream_api:
            conflict = await jetstream_conflict(self.gateway.own_requests, self.config)
            if conflict:
                raise StartError(conflict)

    def _listens_early(self, embedded: EmbeddedNats | None) -> bool:
        """True if clients' requests are received before they are served: they wait. A standalone server on a foreign NATS asks
        there first whether another server serves them."""
        return embedded is not None or self.config.cluster is not None or bool(self.config.ft_group)

    def reconfigure(self, config: Config) -> None:
        """Apply other settings from now on: those that can change while the broker runs."""
        self.config = config
        self.log.set_levels(config.log)
        if self.connection is not None:
            try:
                self.connection.relogin(config.nats)
            except OSError as error:
                self.log.error(f"the connection to NATS keeps its certificates: {error}")
        self.broker.tick(self.runtime.now(), self.runtime.wall())
        self.broker.reconfigure(config)
        self.driver.turns.wake()

    def banner(self) -> None:
        """Log the store, its limits, and that clients are served from now on."""
        self.serving = True
        config, log = self.config, self.log
        store = config.store
        log.info(f"Message store is {store.kind.upper()}")
        if store.kind == "memory":
            log.warning("Nothing survives a restart with the MEMORY store; use -st FILE -dir PATH to keep messages")
        else:
            log.info(f"Store location: {store.source if store.kind == 'sql' else store.directory}")
        if store.sync != "always":
            log.warning(f"sync={store.sync}: a message is acknowledged before it is on stable storage")
        for line in limit_lines(config.limits):
            log.info(line)
        log.info("Streaming Server is ready")

    # --- run and stop ---------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> bool:
        """Run until *stop*; returns True if everything is durable and flushed. Raises the error of a crash."""
        driver = self.driver
        stopping: asyncio.Future[Any] = asyncio.ensure_future(self._stopping(stop))
        flusher: asyncio.Future[Any] = asyncio.ensure_future(self._flush_for_ever(driver))
        try:
            await asyncio.wait({stopping, flusher, self.crash}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (stopping, flusher):
                task.cancel()
            await asyncio.gather(stopping, flusher, return_exceptions=True)
        if self.crash.done():
            self.crash.result()
        if flusher.done() and not flusher.cancelled() and flusher.exception() is not None:
            flusher.result()
        return await self._settle(driver)

    async def _stopping(self, stop: asyncio.Event) -> None:
        await self.stopping(stop)
        await self.before_stop()
        self.driver.turns.stop()  # at once: clients that know of the stop expect no answer anymore

    async def _flush_for_ever(self, driver: Driver) -> None:
        failing = False
        while True:
            await asyncio.sleep(limits.STATE_FLUSH_INTERVAL / SECOND)
            driver.faults.look_again()
            try:
                await self._flush(driver)
                if failing:
                    self.log.info("the state can be written again")
                failing = False
            except (StanError, OSError) as error:
                if not failing:
                    self.log.error(f"cannot write the state ({error}); trying again")
                failing = True

    async def _flush(self, driver: Driver) -> None:
        failed: Frozen | None = None
        try:
            await self.storage.flush(self.broker)
        except Frozen as error:  # one group's log; the others are flushed
            failed = error
        for group in self.driver.groups.values():
            group.synced(group.log.durable_index)
        if any(group.has_committed for group in self.driver.groups.values()):
            driver.turns.wake()
        await self.storage.release(self.broker)
        if self.broker.view.has_faults:
            driver.turns.wake()
        if failed is not None:
            raise failed

    async def _settle(self, driver: Driver) -> bool:
        """Close the connection, apply committed entries, flush the state; returns True if nothing stays unwritten."""
        driver.turns.stop()
        if self.connection is not None:
            await self.connection.close()
        try:
            for _ in range(2):  # the second round flushes the commits of the first one
                await self.storage.flush(self.broker)
                for group in self.driver.groups.values():
                    group.synced(group.log.durable_index)
                driver.apply_committed()
        except (StanError, OSError) as error:
            self.log.error(f"cannot write the state ({error})")
            return False
        return not self.broker.stops.without_room

    async def close(self, *, clean: bool) -> None:
        """Close files and threads."""
        self.driver.turns.stop()
        for leaf in self.leaves:
            await leaf.close()
        if self.connection is not None and not self.connection.is_closed:
            await self.connection.close()
        self.runtime.close()
        await self.storage.close(clean=clean)
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.export.close)


def _size(amount: int) -> str:
    """`976.56 MB`: a size as the original's log has it, in units of 1,024."""
    scaled, unit = float(amount), 0
    while scaled >= 1024 and unit < len(_UNITS) - 1:
        scaled, unit = scaled / 1024, unit + 1
    return f"{scaled:.2f} {_UNITS[unit]}B" if unit else f"{amount} B"


_UNITS: Final = ("", "K", "M", "G", "T", "P", "E")
_LIMITS: Final[dict[str, tuple[str, Callable[[int], str]]]] = {
    "subscriptions": ("Subscriptions", str),
    "msgs": ("Messages", str),
    "bytes": ("Bytes", _size),
    "age_ns": ("Age", go_duration),
    "inactivity_ns": ("Inactivity", go_duration),
}


def limit_lines(store: StoreLimits) -> list[str]:
    """Return a table of all limits; a star marks a default; channels show only limits of their own."""

    def shown(value: int, default: int | None, form: Callable[[int], str] = str) -> str:
        return f"{form(value) if value > 0 else 'unlimited':>13}" + (" *" if value == default else "")

    standard = StoreLimits()
    lines = ["---------- Store Limits ----------", f"Channels:        {shown(store.channels, standard.channels)}"]
    lines.append("--------- Channels Limits --------")
    for key, (name, form) in _LIMITS.items():
        value = shown(getattr(store.default, key), getattr(standard.default, key), form)
        lines.append(f"  {name:13}: {value}")
    if store.per_channel:
        lines.append("-------- List of Channels --------")
    for channel, override in sorted(store.per_channel.items(), key=lambda each: (width(each[0]), each[0])):
        lines.append(channel)
        set_here = [(key, getattr(override, key)) for key in _LIMITS if getattr(override, key)]
        lines += [f" |-> {_LIMITS[key][0]:15} {shown(value, None, _LIMITS[key][1])}" for key, value in set_here]
    return [*lines, "-" * 34]

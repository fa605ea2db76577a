"""The composition root: opens what a node keeps, connects it to NATS, and runs it until it is told to stop."""

import asyncio
import contextlib
import platform
from typing import Any

from google.protobuf.message import DecodeError

import stan
from stan import limits
from stan.config import Config
from stan.core.broker import Broker
from stan.core.ready import Index
from stan.edge.connection import Connection
from stan.edge.driver import Driver
from stan.edge.embedded import EmbeddedNats
from stan.edge.gateway import Gateway
from stan.edge.log import ServerLog, redacted
from stan.edge.runtime import AsyncRuntime
from stan.edge.storage import Storage, new_nuid
from stan.errors import StanError, StartError, go_quote
from stan.protocol import kernel
from stan.protocol import wire_pb2 as wire
from stan.protocol.channels import publication
from stan.raft.solo import Solo
from stan.types import SECOND, ChannelUid, GroupId


async def serve(config: Config, embedded: EmbeddedNats | None, log: ServerLog, stop: asyncio.Event) -> None:
    """Run one node until *stop* is set. Raises StartError if it cannot start."""
    server_id = new_nuid()
    log.info(f"Starting nats-streaming-server[{config.cluster_id}] version {stan.COMPATIBLE_VERSION}")
    log.info(f"ServerID: {server_id}")
    log.info(f"Product: stan {stan.__version__}, Python {platform.python_version()}, kernel: {kernel.NAME}")
    try:
        storage = await Storage.open(config, log)
    except (StanError, OSError) as error:
        raise StartError(str(error)) from error
    node = Node(config, storage, log, server_id)
    clean = False
    try:
        await node.start(embedded)
        clean = await node.run(stop)
    finally:
        await node.close(clean=clean)


class Node:
    """One running broker."""

    def __init__(self, config: Config, storage: Storage, log: ServerLog, server_id: str) -> None:
        self.config = config
        self.storage = storage
        self.log = log
        sync = "never" if config.store.kind == "memory" else config.store.sync  # memory has nothing to wait for
        self.groups = {number: Solo(number, kept, sync) for number, kept in storage.logs.items()}
        self.broker = Broker(config, self._index, b"_INBOX.%b." % server_id.encode())
        self.driver: Driver | None = None
        self.runtime: AsyncRuntime | None = None
        self.connection: Connection | None = None
        self.crash: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _note(self, level: str, line: str) -> None:
        {"INF": self.log.info, "WRN": self.log.warning, "ERR": self.log.error, "DBG": self.log.debug}[level](line)

    def _crashed(self, error: BaseException) -> None:
        if not self.crash.done():
            self.crash.set_exception(error)

    def _index(self, group: GroupId, uid: ChannelUid) -> Index:
        return self.storage.logs[group].channel(uid)

    # --- start --------------------------------------------------------------------------------------------------------

    async def start(self, embedded: EmbeddedNats | None) -> None:
        """Recover, connect, make sure that we are alone, listen, lead."""
        config, log = self.config, self.log
        log.info("Recovering the state...")
        try:
            await self.storage.load(self.broker, config.cluster_id)
        except (StanError, OSError) as error:
            raise StartError(str(error)) from error
        meta = self.broker.shared.meta
        log.info(f"Recovered {len(meta.channels)} channel(s)" if meta.channels else "No recovered state")
        nuid = meta.info.nuid.decode() if meta.info else ""
        gateway = Gateway(self.broker, f"_INBOX.{nuid}.>", self._note)
        runtime = self.runtime = AsyncRuntime(len(self.groups))
        driver = self.driver = Driver(
            self.broker,
            self.groups,
            gateway,
            runtime,
            applied=self.storage.applied,
            note=self._note,
            crashed=self._crashed,
        )
        gateway.wake = driver.wake
        connection = self.connection = Connection(
            gateway.reply_subscription(),
            on_data=gateway.on_data,
            on_up=gateway.on_up,
            on_down=gateway.on_down,
            on_drained=driver.wake,
        )
        gateway.connection = connection
        urls = config.nats.urls or ((embedded.url,) if embedded is not None else ())
        try:
            await connection.open(config.nats, urls, f"_NSS-{config.cluster_id}-send", log.error)
        except Exception as error:
            shown = ", ".join(redacted(url) for url in urls)
            raise StartError(f"cannot connect to NATS at {shown}: {error or type(error).__name__}") from error
        await self._refuse_company(gateway, connection)
        self.broker.lead(runtime.now(), runtime.wall(), doubt=self.storage.doubt)
        gateway.listen()
        await connection.settle()
        self._banner()
        driver.wake()

    async def _refuse_company(self, gateway: Gateway, connection: Connection) -> None:
        """Another server with our cluster id on this NATS means that we must not start (STAN-SPEC 12.6)."""
        cluster_id = self.config.cluster_id
        subjects = self.broker.shared.subjects
        inbox = self.broker.shared.reply_prefix.decode() + "probe"
        request = wire.ConnectRequest(client_id=cluster_id.encode(), heartbeat_inbox=inbox.encode())
        answer = await gateway.ask(
            subjects.discover, request.SerializeToString(), limits.STANDALONE_PROBE_TIMEOUT / SECOND
        )
        if answer is None:
            return
        with contextlib.suppress(DecodeError):
            response = wire.ConnectResponse.FromString(answer)
            if response.close_requests:
                close = wire.CloseRequest(client_id=cluster_id.encode()).SerializeToString()
                connection.write(publication(response.close_requests, close))
                await connection.settle()
        raise StartError(f"discovered another streaming server with cluster ID {go_quote(cluster_id)}")

    def _banner(self) -> None:
        config, log = self.config, self.log
        store, lim = config.store, config.limits
        log.info(f"Message store is {store.kind.upper()}")
        if store.kind == "memory":
            log.warning("Nothing survives a restart with the MEMORY store; use -st FILE -dir PATH to keep messages")
        else:
            log.info(f"Store location: {store.directory}")
        if store.sync != "always":
            log.warning(f"sync={store.sync}: a message is acknowledged before it is on stable storage")
        each = lim.default
        log.info("---------- Store Limits ----------")
        log.info(f"Channels: {lim.channels or 'unlimited'}")
        log.info("--------- Channels Limits --------")
        log.info(f"  Subscriptions: {each.subscriptions or 'unlimited'}")
        log.info(f"  Messages     : {each.msgs or 'unlimited'}")
        log.info(f"  Bytes        : {each.bytes or 'unlimited'}")
        log.info(f"  Age          : {f'{each.age_ns / SECOND:g}s' if each.age_ns else 'unlimited'}")
        log.info(f"  Inactivity   : {f'{each.inactivity_ns / SECOND:g}s' if each.inactivity_ns else 'unlimited'}")
        log.info("----------------------------------")
        log.info("Streaming Server is ready")

    # --- run and stop ---------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> bool:
        """Until *stop*; returns whether everything is durable and flushed. A broken invariant ends it with its error."""
        driver = self.driver
        if driver is None:
            return False
        stopping: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
        stopping.add_done_callback(
            lambda _: driver.stop()
        )  # at once: who hears that we stop, expects no answer any more
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

    async def _flush_for_ever(self, driver: Driver) -> None:
        failing = False
        while True:
            await asyncio.sleep(limits.STATE_FLUSH_INTERVAL / SECOND)
            try:
                await self._flush(driver)
                failing = False
            except (StanError, OSError) as error:
                if not failing:
                    self.log.error(f"cannot write the state ({error}); trying again")
                failing = True

    async def _flush(self, driver: Driver) -> None:
        await self.storage.flush(self.broker)
        for group in self.groups.values():
            group.synced(group.log.durable_index)
        if any(group.has_committed for group in self.groups.values()):
            driver.wake()
        await self.storage.release(self.broker)

    async def _settle(self, driver: Driver) -> bool:
        """Stop listening, finish what is on its way, write it all down."""
        driver.stop()
        if self.connection is not None:
            await self.connection.close()
        try:
            for _ in range(2):  # the second round takes what the first one committed
                await self.storage.flush(self.broker)
                for group in self.groups.values():
                    group.synced(group.log.durable_index)
                driver.apply_committed()
        except (StanError, OSError) as error:
            self.log.error(f"cannot write the state ({error})")
            return False
        return True

    async def close(self, *, clean: bool) -> None:
        """Close files and threads."""
        if self.driver is not None:
            self.driver.stop()
        if self.connection is not None and not self.connection.is_closed:
            await self.connection.close()
        if self.runtime is not None:
            self.runtime.close()
        await self.storage.close(clean=clean)

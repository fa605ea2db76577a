"""The composition root: opens a node's storage, connects the node to NATS, and runs it until it has to stop."""

import asyncio
import contextlib
import errno
import platform
import random
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError
from stan_protocol.channels import OWN_INBOXES, publication
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import go_quote
from stan_protocol.scalars import SECOND, WallNanos

from stan import limits
from stan.config import Config
from stan.core.broker.broker import Broker
from stan.edge.cluster.host import Done, Environment
from stan.edge.cluster.join import joined, remembered
from stan.edge.cluster.node import ClusterNode, held_groups
from stan.edge.log import ServerLog
from stan.edge.nats.connection import NatsConnection
from stan.edge.nats.embedded import EmbeddedNats
from stan.edge.nats.gateway import Gateway
from stan.edge.process import BrokerProcess
from stan.edge.reloading import Reloading
from stan.edge.runtime import Ticker
from stan.edge.serving.fetching import Fetching
from stan.edge.serving.log_requests import serve_log_requests
from stan.edge.serving.partitioning import Partitioning
from stan.edge.storage.manifest import new_nuid, recorded_node_id, recorded_pool
from stan.edge.storage.state_loader import StateLoader
from stan.edge.storage.storage import Storage
from stan.edge.tracing.traced_driver import ServerTracing, driver_of, tracing_of
from stan.edge.turns import Turns
from stan.errors import DiskFull, StanError, StartError, shortage
from stan.monitor.view import NodeView
from stan.product import COMPATIBLE_VERSION, VERSION
from stan.protocol.kernel import server as kernel
from stan.protocol.user_subjects import ack_subjects, reply_subject, with_users
from stan.raft.solo import Solo
from stan.raft.transport.link import HEADER_BYTES
from stan.server.node_admin import NodeAdmin

if TYPE_CHECKING:
    from stan.edge.standby.store_lease import Lease

NODE_PAYLOAD_MIN = limits.RAFT_FRAME_BYTES_MAX + HEADER_BYTES
"""Largest payload between two nodes, in bytes; NATS must accept it."""


async def serve(
    config: Config,
    embedded: EmbeddedNats | None,
    log: ServerLog,
    stop: asyncio.Event,
    reloading: Reloading | None = None,
) -> None:
    """Run one node until *stop* is set; settings that *reloading* delivers meanwhile are applied.

    Raises:
        StartError: the node cannot start.
    """
    server_id = new_nuid()
    log.info(f"Starting nats-streaming-server[{config.cluster_id}] version {COMPATIBLE_VERSION}")
    log.info(f"ServerID: {server_id}")
    log.info(f"Product: stan {VERSION}, Python {platform.python_version()}, kernel: {kernel.NAME}")
    view = NodeView(config, server_id, embedded, WallNanos(time.time_ns()))
    async with _pages(view, log):
        reloading = reloading or Reloading()
        if not config.ft_group:
            await _serve(view, embedded, log, stop, reloading)
            return
        urls = config.nats.urls
        if (
            embedded is not None and config.embedded.joined
        ):  # clients of a standby's nats-server reach the active server
            await embedded.start()
            urls = (embedded.url,)
        from stan.edge.standby.standby import StandbyServer  # noqa: PLC0415 - few want it

        async def serve_active(config: Config, lease: "Lease") -> None:
            view.config = config
            await _serve(view, embedded, log, stop, reloading, lease)

        server = StandbyServer(config, server_id, log, view.told_ft_state)
        await server.run(urls, stop, serve_active)


@contextlib.asynccontextmanager
async def _pages(view: NodeView, log: ServerLog) -> AsyncIterator[None]:
    """Serve the monitoring pages within the block, if a port is configured."""
    config = view.config.monitor
    if not config.port:
        yield
        return
    from stan.monitor.server import Server  # noqa: PLC0415 - slow to import, and not always needed

    server = Server(view, config, log, lambda: WallNanos(time.time_ns()))
    await server.open()
    try:
        yield
    finally:
        await server.close()


async def _serve(
    view: NodeView,
    embedded: EmbeddedNats | None,
    log: ServerLog,
    stop: asyncio.Event,
    reloading: Reloading,
    lease: "Lease | None" = None,
) -> None:
    config = view.config
    node_id = _node_id(config)
    config = remembered(config, node_id, log.warning)
    if config.cluster is not None and config.cluster.joins:
        if embedded is not None:
            await embedded.start()
        urls = config.nats.urls or ((embedded.url,) if embedded else ())
        agreed = await joined(config, urls, node_id, log.error, stop)
        if agreed is None:
            return
        config = agreed
    tracing = tracing_of(config, view.server_id, log)
    try:
        storage = await _open_storage(config, node_id, log, lease)
    except (StanError, OSError) as error:
        raise StartError(start_failure(error, config.store.place)) from error
    node: BrokerProcess
    if config.cluster is None:
        node = StandaloneProcess(config, storage, log, view.server_id, lease, tracing)
    else:
        node = ClusterProcess(config, storage, log, view.server_id, tracing)
    NodeAdmin(view, node, node.cluster_node if isinstance(node, ClusterProcess) else None)
    view.config = config
    view.opened(node)
    clean = False

    def apply(changed: Config) -> None:
        view.config = view.config.reloaded(changed)
        node.reconfigure(view.config)

    try:
        await node.begin(embedded)
        reloading.attach(apply)
        clean = await node.run(stop)
    finally:
        reloading.detach()
        await node.close(clean=clean)


def _reply_prefix(config: Config, server_id: str) -> bytes:
    """Return the prefix of the subjects on which the broker receives answers."""
    first = reply_subject(config.cluster_id).encode() + b"." if with_users(config) else OWN_INBOXES
    return b"%b%b." % (first, server_id.encode())


def _node_id(config: Config) -> str:
    """Return the name of this node: the configured one, else the one recorded in its directory, else a new one; "" for a
    standalone broker."""
    if config.cluster is None or config.store.directory is None:
        return ""
    return config.cluster.node_id or recorded_node_id(str(config.store.directory)) or new_nuid()


async def _open_storage(config: Config, node_id: str, log: ServerLog, lease: "Lease | None") -> Storage:
    if config.store.kind == "sql":
        from stan.edge.storage.sqlstorage import SqlStorage  # noqa: PLC0415 - few want it

        return await SqlStorage.open_file(config, lease.fence if lease is not None else None)
    if config.cluster is None:
        return await Storage.open(config, log)
    pool = 0 if config.store.directory is None else recorded_pool(str(config.store.directory))
    groups = held_groups(config.cluster, node_id, pool or config.store.raft_groups)
    more = bool(config.cluster.nodes_version or pool)  # groups that are about to be removed
    return await Storage.open(config, log, groups=groups, present=more, node_id=node_id)


class StandaloneProcess(BrokerProcess):
    """A standalone broker; with a *lease* if it shares its store with standby servers that may take over."""

    def __init__(
        self,
        config: Config,
        storage: Storage,
        log: ServerLog,
        server_id: str,
        lease: "Lease | None" = None,
        tracing: ServerTracing | None = None,
    ) -> None:
        super().__init__(config, storage, log, tracing)
        sync = "never" if config.store.kind == "memory" else config.store.sync  # memory has nothing to wait for
        turns = Turns(self.runtime, self.crashed)
        groups = {number: Solo(number, kept, sync, turns.touched) for number, kept in storage.logs.items()}
        self.broker = Broker(
            config, lambda group, uid: storage.logs[group].channel(uid), _reply_prefix(config, server_id)
        )
        self.gateway = Gateway(self.broker, "", self.note)
        self.driver = driver_of(tracing)(
            self.broker,
            groups,
            self.gateway,
            self.runtime,
            turns,
            applied=storage.applied,
            note=self.note,
        )
        self.gateway.read_buffer.gather(turns.look, asyncio.get_running_loop().call_later)
        Fetching(self.broker, groups, self.gateway, self.runtime, lambda _group: lease is None or lease.holds())
        serve_log_requests(self.broker, groups, self.gateway, self.runtime, "")
        if lease is not None:
            self.driver.fence = lease.fence
        partition = self.broker.view.partition
        self._partitioning = None
        if partition is not None:
            self._partitioning = Partitioning(
                self.gateway, config.cluster_id, server_id, partition.patterns, self.note, self.crashed
            )

    async def start(self, embedded: EmbeddedNats | None) -> None:
        """Recover, connect, refuse to start beside another server of this cluster id, subscribe, and lead."""
        config, log, gateway = self.config, self.log, self.gateway
        gateway.wait_to_lead(self.runtime.now)
        wake, gateway.read_buffer.wake = gateway.read_buffer.wake, self._take_in_early
        if config.ft_group:  # clients are there already
            await self.connect(embedded)
        log.info("Recovering the state...")
        try:
            failed = await StateLoader(self.storage, self.broker).load()
        except (StanError, OSError) as error:
            raise StartError(start_failure(error, config.store.place)) from error
        meta = self.broker.view.meta
        log.info(f"Recovered {len(meta.channels)} channel(s)" if meta.channels else "No recovered state")
        gateway.read_buffer.wake = wake
        gateway.subscriptions.ack_on(ack_subjects(config, self.broker.view.nuid))
        connection = self.connection or await self.connect(embedded)
        if self._partitioning is not None:
            await connection.settle()  # our subscriptions are active: two servers that start at once hear each other
            await self._partitioning.check()
        elif not config.ft_group and (embedded is None or config.embedded.joined):
            await self._refuse_company(connection)
        await self.check_jetstream()
        self.broker.lead(self.runtime.now(), self.runtime.wall(), unconfirmed=self.storage.unconfirmed)
        for number, fault in failed.items():
            self.driver.faults.fail(number, fault)
        gateway.listen()
        self.connect_leaf(embedded)
        await connection.settle()
        self.banner()
        self.driver.turns.wake()

    def _take_in_early(self) -> None:
        """Take in arriving messages while the state is not there yet: no turn may touch it."""
        self.gateway.take_in()

    async def close(self, *, clean: bool) -> None:
        """Close files and threads."""
        if self._partitioning is not None:
            self._partitioning.stop()
        await super().close(clean=clean)

    async def _refuse_company(self, connection: NatsConnection) -> None:
        """Raise StartError if another server with our cluster id answers on this NATS (STAN-SPEC 12.6)."""
        cluster_id = self.config.cluster_id
        subjects = self.broker.view.subjects
        request = wire.ConnectRequest(
            client_id=cluster_id.encode(), heartbeat_inbox=self.gateway.own_requests.inbox + b"probe"
        )
        answer = await self.gateway.own_requests.ask(
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


class ClusterProcess(BrokerProcess):
    """A node of a cluster."""

    def __init__(
        self, config: Config, storage: Storage, log: ServerLog, server_id: str, tracing: ServerTracing | None = None
    ) -> None:
        super().__init__(config, storage, log, tracing)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()  # set when the cluster needs this node no longer
        environment = Environment(
            self.runtime,
            Ticker(),
            random.Random(),
            self.note,
            self.crashed,
            self.banner,
            self._run,
            self._ended.set,
            driver_of(tracing),
        )
        self.cluster_node = ClusterNode(
            config, storage, environment, reply_prefix=_reply_prefix(config, server_id), identity=new_nuid().encode()
        )
        self.broker, self.gateway, self.driver = (
            self.cluster_node.broker,
            self.cluster_node.gateway,
            self.cluster_node.driver,
        )

    def _run(self, work: Coroutine[None, None, None], done: Done) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            problem = None if task.cancelled() else task.exception()
            if problem is None or isinstance(problem, Exception):
                done(problem)
            else:
                self.crashed(problem)

        task.add_done_callback(ended)

    async def start(self, embedded: EmbeddedNats | None) -> None:
        """Recover, connect, and join the cluster; clients are served once the cluster has an identity.

        Raises:
            StartError: the storage cannot be read, or NATS does not accept payloads of NODE_PAYLOAD_MIN bytes.
        """
        cluster_node, log = self.cluster_node, self.log
        log.info(
            f"Cluster node {self.storage.node_id}, voters: {', '.join(cluster_node.reconfiguration.names)}, groups of channels: "
            f"{cluster_node.reconfiguration.pool.groups}"
        )
        log.info("Recovering the state...")
        try:
            await cluster_node.load()
        except (StanError, OSError) as error:
            raise StartError(start_failure(error, self.config.store.place)) from error
        meta = self.broker.view.meta
        log.info(f"Recovered {len(meta.channels)} channel(s)" if meta.channels else "No recovered state")
        connection = await self.connect(embedded)
        if connection.max_payload < NODE_PAYLOAD_MIN:
            raise StartError(
                f"NATS takes payloads of at most {connection.max_payload} bytes, the nodes of a cluster need "
                f"{NODE_PAYLOAD_MIN} between them: raise its max_payload"
            )
        await connection.settle()
        await self.check_jetstream()
        cluster_node.start()
        self.connect_leaf(embedded)

    async def stopping(self, stop: asyncio.Event) -> None:
        """Wait until *stop* is set, or until the cluster needs this node no longer."""
        waiting = [asyncio.ensure_future(event.wait()) for event in (stop, self._ended)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()

    async def before_stop(self) -> None:
        """Transfer our leaderships, so that no group has to wait for an election timeout after we have gone."""
        cluster_node = self.cluster_node
        if not cluster_node.leaderships.led or len(cluster_node.reconfiguration.names) == 1:
            return
        self.log.info("Handing leaderships over")
        drained = asyncio.Event()
        cluster_node.drain(drained.set)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(drained.wait(), limits.DRAIN_PATIENCE / SECOND)

    async def close(self, *, clean: bool) -> None:
        """Close files and threads."""
        self.cluster_node.stop()
        await super().close(clean=clean)


_FAILING = "its disk fails, as the system's log says; start again when the disk works"


def start_failure(error: BaseException, place: Path | None) -> str:
    """Return the message for an error that ends the start; for a file or directory it begins with its name.

    *place*: directory or file of the store, named if its disk is full.
    """
    cause: BaseException | None = error
    while cause is not None:
        if shortage(cause) is DiskFull or getattr(cause, "sqlite_errorname", "") == "SQLITE_FULL":
            return f"{place}: there is no room on its disk ({error}): make room there, then start again"
        if isinstance(cause, OSError) and cause.errno == errno.EIO and cause.filename:
            return f"{cause.filename}: input/output error: {_FAILING}"
        if getattr(cause, "sqlite_errorname", "").startswith("SQLITE_IOERR"):
            return f"{error}: {_FAILING}"
        cause = cause.__cause__
    if not isinstance(error, OSError) or not error.filename or not error.strerror:
        return str(error)
    name = error.filename if isinstance(error.filename, str) else str(error.filename)
    if isinstance(error, FileExistsError | NotADirectoryError):
        return f"{name} is no directory"
    return f"{name}: {error.strerror.lower()}"

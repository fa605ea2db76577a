"""Joining: a node that knows only the cluster's id asks the running cluster for its settings before it starts (STAN-SPEC 9.7)."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random

from stan_protocol.channels import Subjects, publication
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import Config
from stan.edge.cluster.hellos import Settings
from stan.edge.cluster.membership import Membership
from stan.edge.log import redacted
from stan.edge.nats.connection import NatsConnection
from stan.edge.runtime import Ticker
from stan.edge.storage.manifest import read_manifest
from stan.errors import StartError
from stan.labels import Labels
from stan.log.files.disk import Files
from stan.product import VERSION
from stan.protocol.kernel import server as kernel
from stan.protocol.proto.node_pb2 import NodeHello

_HELLO_SID, _NO_SID = 1, -1


def remembered(config: Config, node_id: str, warn: Callable[[str], None], files: Files | None = None) -> Config:
    """The settings of a node. Once nodes were added or removed, those recorded in its directory replace the configured
    ones; the number of groups may be the one at the founding of the cluster, or the current one. Raises StanError."""
    cluster, directory = config.cluster, config.store.directory
    if cluster is None or directory is None:
        return config
    try:
        manifest = read_manifest(str(directory), files)
    except FileNotFoundError:
        return config
    if manifest.pool and config.store.raft_groups == manifest.pool:
        config = replace(config, store=replace(config.store, raft_groups=manifest.raft_groups))
    nodes = manifest.nodes
    if not nodes.version:
        return config
    names = tuple(nodes.names)
    if not cluster.joins and cluster.voters(node_id) != names:
        configured = ", ".join(cluster.voters(node_id))
        warn(f"nodes were added or removed: they are {', '.join(names)}, and not {configured} as -cluster_peers says")
    raft_groups = manifest.raft_groups if cluster.joins else config.store.raft_groups
    cluster = replace(
        cluster,
        join=False,
        bootstrap=False,
        peers=names,
        nodes_version=nodes.version,
        places={name: Labels(*parts) for name, parts in nodes.labels.items()},
        replicas=nodes.replicas if cluster.joins else cluster.replicas,
        replica=not nodes.belongs and node_id not in names and (cluster.replica or cluster.joins),
    )
    return replace(config, cluster=cluster, store=replace(config.store, raft_groups=raft_groups))


async def joined(
    config: Config, urls: tuple[str, ...], node_id: str, error: Callable[[str], None], stop: asyncio.Event
) -> Config | None:
    """The settings of a node that joins, completed by those that the cluster's nodes announce; None if *stop* came first.

    Raises StartError: NATS cannot be reached, no node of the cluster answered, or the cluster refuses this node."""
    if config.cluster is None:
        return config
    settings = await _SettingsRequest(config, node_id).ask(urls, error, stop)
    if settings is None and stop.is_set():
        return None
    if settings is None:
        raise StartError(f"failed to join Raft group {config.cluster_id}: no node of it was heard")
    cluster = replace(
        config.cluster,
        join=False,
        peers=settings.voters,
        nodes_version=settings.version,
        places=dict(settings.places),
        replicas=settings.replicas,
        replica=config.cluster.replica or node_id not in settings.voters,
    )
    return replace(config, cluster=cluster, store=replace(config.store, raft_groups=settings.raft_groups))


class _SettingsRequest:
    """Listens to the nodes' hellos over a connection of its own, until they agree about the settings."""

    def __init__(self, config: Config, node_id: str) -> None:
        ticker = Ticker()
        me = NodeHello(
            node=node_id,
            instance=Random().getrandbits(64),
            started=ticker.wall(),
            cluster_id=config.cluster_id,
            version=VERSION,
        )
        self._config = config
        self._now = ticker.now
        self._subject = Subjects.of(config.cluster_id, config.discover_prefix).hello
        self._membership = Membership(me, ticker.now(), Random())
        self._rest = b""

    async def ask(self, urls: tuple[str, ...], error: Callable[[str], None], stop: asyncio.Event) -> Settings | None:
        """The cluster's settings; None if no node announces them within JOIN_PATIENCE, or before *stop*. Raises StartError."""

        def nothing() -> None:
            """Do nothing: connections come and go; hellos are repeated."""

        connection = NatsConnection(
            {_HELLO_SID: self._subject}, on_data=self._read, on_up=nothing, on_down=nothing, on_drained=nothing
        )
        try:
            await connection.open(self._config.nats, urls, f"_NSS-{self._config.cluster_id}-join", error)
        except Exception as problem:
            shown = ", ".join(redacted(url) for url in urls)
            raise StartError(f"cannot connect to NATS at {shown}: {problem or type(problem).__name__}") from problem
        try:
            return await self._receive_settings(connection, stop)
        finally:
            await connection.close()

    async def _receive_settings(self, connection: NatsConnection, stop: asyncio.Event) -> Settings | None:
        deadline = self._now() + limits.JOIN_PATIENCE
        while (now := self._now()) < deadline and not stop.is_set():
            for hello in self._membership.tick(now):
                connection.write(publication(self._subject.encode(), hello))
            if self._membership.refusal:
                raise StartError(self._membership.refusal)
            settings = self._membership.hellos.settings(now)
            if settings is not None:
                return settings
            await asyncio.sleep(limits.MEMBER_TICK_INTERVAL / SECOND)
        return None

    def _read(self, data: bytes) -> None:
        data = self._rest + data
        at = 0
        while at < len(data):
            scan = kernel.scan(data, at, _NO_SID, _NO_SID, b"")
            if not scan.consumed:
                break
            at += scan.consumed
            for frame in scan.others:
                if frame.sid == _HELLO_SID:
                    self._membership.receive(frame.payload, self._now())
        self._rest = data[at:]

"""A broker of our own for one measurement, `stan bench --start`: file store in a temporary directory, free port.

Promises that process and directory are gone afterwards.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import stan_client
import typer
from stan_client.transport.session import fresh_id

from stan.cli.support.common import CliError, Target
from stan.cli.support.options import builds
from stan_bench.bench.server_times import ServerTimes
from stan_bench.local_cluster import NODES_MAX, LocalCluster
from stan_bench.processes import Child, free_port, stan_server

START_TIMEOUT_S: Final = 15
RETRY_PAUSE_S: Final = 0.05
UNSYNCED: Final = ("-file_sync=false",)


@dataclass(frozen=True, slots=True)
class OwnBroker:
    """The servers started for a measurement: nothing, one server, or a cluster."""

    start: bool = False
    nodes: int = 0  # of a cluster; 0: none
    replicas: int = 0  # read replicas of it, which serve the subscribers
    file_sync: bool = True  # False: they ack before they sync

    @property
    def own(self) -> bool:
        """True if anything is started."""
        return self.start or self.nodes > 0

    def complaints(self) -> list[str]:
        """Return the mistakes in the options, a sentence for each."""
        mistakes = ["--replicas needs --cluster."] if self.replicas and not self.nodes else []
        if not self.file_sync and not self.own:
            mistakes.append("--no-file-sync needs --start or --cluster.")
        return mistakes

    def title(self) -> str:
        """Return the name of the broker beside another server."""
        return "this broker" if self.file_sync else "this broker with -file_sync=false"

    def place(self, target: Target, times: ServerTimes) -> AbstractAsyncContextManager[Target]:
        """Return the place to measure, *target* itself if nothing is started. *times* watches the nodes of a cluster."""
        flags = () if self.file_sync else UNSYNCED
        if self.nodes:
            return own_cluster(self.nodes, target.cluster_id, replicas=self.replicas, times=times, flags=flags)
        return own_broker(target.cluster_id, flags) if self.start else _there(target)


def own_broker_of(
    start: Annotated[bool, typer.Option("--start", help="Start an own broker for the measurement.")] = False,  # noqa: FBT002
    cluster: Annotated[
        int, typer.Option("--cluster", min=0, max=NODES_MAX, help="As --start, with a cluster of this many nodes.")
    ] = 0,
    replicas: Annotated[
        int,
        typer.Option(min=0, max=NODES_MAX, help="With --cluster: so many read replicas, which serve the subscribers."),
    ] = 0,
    no_file_sync: Annotated[  # noqa: FBT002
        bool, typer.Option("--no-file-sync", help="With --start or --cluster: they ack before they sync.")
    ] = False,
) -> OwnBroker:
    """See OwnBroker."""
    return OwnBroker(start, cluster, replicas, not no_file_sync)


builds(own_broker_of, OwnBroker)


@asynccontextmanager
async def _there(target: Target) -> AsyncIterator[Target]:
    """The broker that runs at *target*."""
    async with target.connect("bench"):  # a failure is explained here, once, and not by each load process
        pass
    yield target


@asynccontextmanager
async def own_broker(cluster_id: str, flags: tuple[str, ...] = ()) -> AsyncIterator[Target]:
    """A running `stan-server`, with further *flags*; yields how to reach it.

    Raises:
        CliError: it did not start; the text holds the end of its log.
    """
    with tempfile.TemporaryDirectory(prefix="stan-bench-") as directory:
        port = free_port()
        server = stan_server(
            "the broker",
            Path(directory, "log"),
            *("-a", "127.0.0.1", "-p", str(port), "-cid", cluster_id),
            *("-st", "file", "-dir", str(Path(directory, "store")), *flags),
        )
        target = Target(server=f"nats://127.0.0.1:{port}", cluster_id=cluster_id)
        try:
            await server.start()
            await _until_it_answers(target, [server])
            yield target
        finally:
            await server.stop()


@asynccontextmanager
async def own_cluster(
    nodes: int,
    cluster_id: str,
    *,
    replicas: int = 0,
    times: ServerTimes | None = None,
    flags: tuple[str, ...] = (),
) -> AsyncIterator[Target]:
    """A running cluster of *nodes* nodes, and of read *replicas*, whose leaderships have settled; yields how to reach it.

    *times*: watches its servers. *flags*: further ones of each node.

    Raises:
        CliError: it did not start; the text holds the ends of the logs.
    """
    async with LocalCluster(nodes, cluster_id, replicas=replicas, prefix="stan-bench-", flags=flags) as cluster:
        await cluster.settled()
        if times is not None:
            times.watch(cluster)
        await _until_it_answers(cluster.target, list(cluster.nodes.values()))
        yield cluster.target


async def _until_it_answers(target: Target, servers: list[Child]) -> None:
    probe = replace(target, client_id=f"stan-bench-probe-{fresh_id()}")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_TIMEOUT_S):
            while not any(server.died for server in servers):
                try:
                    client = await stan_client.connect(
                        probe.server, client_id=probe.client_id, cluster_id=probe.cluster_id
                    )
                except stan_client.StanClientError:
                    await asyncio.sleep(RETRY_PAUSE_S)
                else:
                    await client.close()
                    return
    ends = "\n".join(server.log_end() for server in servers)
    raise CliError(f"The broker did not start. {ends}")

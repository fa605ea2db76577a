"""A broker of our own for one measurement, `stan bench --start`: file store in a temporary directory, free port.

Promises that process and directory are gone afterwards.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import stan_client
from stan_client.connection import CONNECT_FAILURES
from stan_client.session import fresh_id

from stan.cli.support.common import CliError, Target
from stan.cli.support.local_cluster import LocalCluster
from stan.cli.support.processes import Child, free_port, stan_server

START_TIMEOUT_S: Final = 15
RETRY_PAUSE_S: Final = 0.05


@asynccontextmanager
async def own_broker(cluster_id: str) -> AsyncIterator[Target]:
    """A running `stan-server`; yields how to reach it.

    Raises:
        CliError: it did not start; the text holds the end of its log.
    """
    with tempfile.TemporaryDirectory(prefix="stan-bench-") as directory:
        port = free_port()
        server = stan_server(
            "the broker",
            Path(directory, "log"),
            *("-a", "127.0.0.1", "-p", str(port), "-cid", cluster_id),
            *("-st", "file", "-dir", str(Path(directory, "store"))),
        )
        target = Target(server=f"nats://127.0.0.1:{port}", cluster_id=cluster_id)
        try:
            await server.start()
            await _until_it_answers(target, [server])
            yield target
        finally:
            await server.stop()


@asynccontextmanager
async def own_cluster(nodes: int, cluster_id: str) -> AsyncIterator[Target]:
    """A running cluster of *nodes* nodes whose leaderships have settled; yields how to reach it.

    Raises:
        CliError: it did not start; the text holds the ends of the logs.
    """
    async with LocalCluster(nodes, cluster_id, prefix="stan-bench-") as cluster:
        await cluster.settled()
        await _until_it_answers(cluster.target, list(cluster.nodes.values()))
        yield cluster.target


async def _until_it_answers(target: Target, servers: list[Child]) -> None:
    probe = replace(target, client_id=f"stan-bench-probe-{fresh_id()}")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_TIMEOUT_S):
            while not any(server.died for server in servers):
                try:
                    client = await stan_client.connect(probe.cluster_id, probe.client_id, servers=probe.server)
                except (stan_client.StanClientError, *CONNECT_FAILURES):
                    await asyncio.sleep(RETRY_PAUSE_S)
                else:
                    await client.close()
                    return
    ends = "\n".join(server.log_end() for server in servers)
    raise CliError(f"The broker did not start. {ends}")

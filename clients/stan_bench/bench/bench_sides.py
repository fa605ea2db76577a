"""The two sides of `stan bench --compare`: a server of the STAN protocol, or JetStream, and how a run is made there.

A STAN server needs the plain protocol only, and keeps the channels that the runs have published to. JetStream gets a stream of
its own for each run, which is removed when the run ends; clients connect to the server that leads it, if its URL is known.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import stan_client
from stan_client.transport.connection import ClientConnection
from stan_client.transport.session import fresh_id
from stan_protocol.secure import without_secrets
from stan_protocol.units import counted

from stan.cli.support.common import EXIT_FAILED, EXIT_NO_ANSWER, EXIT_UNREACHABLE, CliError, Target, explained
from stan_bench.bench.bench_compare_report import ComparedServer
from stan_bench.bench.bench_drivers import CONNECT_TIMEOUT_S
from stan_bench.bench.bench_report import BenchReport
from stan_bench.bench.bench_run import Bench, Workload
from stan_bench.bench.jetstream_api import JetStreamApi
from stan_bench.local_jetstream import WAIT_S, LocalJetStream

RETRY_PAUSE_S: Final = 0.1

Place = contextlib.AbstractAsyncContextManager[Target]
"""Where a STAN server is, for as long as the block lasts."""


class Side(Protocol):
    """A server of a comparison, reachable."""

    server: ComparedServer

    async def run(self, work: Workload, name: str) -> BenchReport:
        """Run *work* once, in a channel or stream with *name* in its name.

        Raises:
            CliError: the server refuses or is too slow; the text names it by its URL.
        """


Opening = contextlib.AbstractAsyncContextManager[Side]
"""A side, reachable within the block. Raises CliError if it is not."""


# --- STAN -------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class StanSide:
    """A server of the STAN protocol."""

    server: ComparedServer
    target: Target

    async def run(self, work: Workload, name: str) -> BenchReport:
        """See Side."""
        self.server.channels.append(f"{work.channel}.{name}")
        bench = Bench(self.target, replace(work, channel=self.server.channels[-1]), name)
        with in_time(self.server, work):
            async with asyncio.timeout(work.timeout_s):
                return await bench.measure()


@contextlib.asynccontextmanager
async def stan_side(letter: str, place: Place, *, kept: bool, title: str = "") -> AsyncIterator[Side]:
    """The side at *place*; *kept*: its channels stay; *title*: of the server, for people."""
    async with place as target:
        url = without_secrets(target.server)
        facts = {"cluster_id": target.cluster_id}
        yield StanSide(ComparedServer(letter=letter, url=url, title=title, facts=facts, kept=kept), target)


@contextlib.asynccontextmanager
async def other_stan(target: Target) -> AsyncIterator[Target]:
    """The STAN server that runs at *target*."""
    url = without_secrets(target.server)
    with explained(target):
        try:
            client = await stan_client.connect(
                target.server,
                client_id=f"stan-bench-probe-{fresh_id()}",
                cluster_id=target.cluster_id,
                nats_options=target.nats_options(),
            )
        except stan_client.ConnectRequestTimeoutError:
            raise CliError(
                f"--compare: NATS answers at {url}, but no server of cluster {target.cluster_id!r} does. "
                "Is its cluster id another (--compare-cluster-id)?",
                EXIT_NO_ANSWER,
            ) from None
        except stan_client.ServerError as error:
            raise CliError(f"--compare: the server at {url} refuses: {error}.") from None
        except stan_client.CannotConnectError as error:
            raise _unreachable("--compare", error) from None
    with contextlib.suppress(stan_client.StanClientError):
        await client.close()
    yield target


# --- JetStream --------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class JetStreamSide:
    """JetStream."""

    server: ComparedServer
    target: Target
    api: JetStreamApi
    replicas: int
    urls: Mapping[str, str] = field(default_factory=dict)  # of each server, by its name

    async def run(self, work: Workload, name: str) -> BenchReport:
        """See Side; the stream is removed behind the run."""
        stream = f"stan-bench-{name}"
        with in_time(self.server, work):
            async with asyncio.timeout(work.timeout_s):
                self.server.channels.append(stream)
                try:
                    leader = await self.api.create_stream(stream, self.replicas)
                    near = replace(self.target, server=self.urls.get(leader, self.target.server))
                    return await Bench(
                        near, replace(work, channel=stream, clients="jetstream-", replica=""), name
                    ).measure()
                finally:
                    await self._remove(stream)

    async def _remove(self, stream: str) -> None:
        """Remove a stream; one that cannot be removed is named at the end."""
        with contextlib.suppress(stan_client.StanClientError):
            await self.api.delete_stream(stream)
            self.server.channels.remove(stream)


@contextlib.asynccontextmanager
async def own_jetstream(nodes: int, sync: str, replicas: int) -> AsyncIterator[Side]:
    """JetStream of *nodes* servers that are started here; *sync*: as of LocalJetStream."""
    async with LocalJetStream(nodes, sync) as servers, _connected(servers.target) as nats:
        api = JetStreamApi(nats)
        await _until_streams_are_made(api, replicas, servers)
        known = nats.connected_server_version
        version = f"{known.major}.{known.minor}.{known.patch}"
        facts = {"jetstream": f"nats-server {version}", "sync_interval": sync, "nodes": nodes, "replicas": replicas}
        title = f"JetStream of nats-server {version}, sync_interval {sync}, {counted(replicas, 'replica')}"
        server = ComparedServer(letter="B", url=servers.target.server, title=title, facts=facts, kept=False)
        yield JetStreamSide(server, servers.target, api, replicas, servers.urls)


@contextlib.asynccontextmanager
async def other_jetstream(target: Target, replicas: int) -> AsyncIterator[Side]:
    """JetStream that runs at *target*."""
    url = without_secrets(target.server)
    async with _connected(target) as nats:
        api = JetStreamApi(nats)
        try:
            await _probe(api, replicas)
        except stan_client.ServerError as error:
            raise CliError(f"--compare-jetstream: {url}: {error}.") from None
        title = f"JetStream, sync_interval as configured there, {counted(replicas, 'replica')}"
        facts = {"jetstream": "as configured there", "replicas": replicas}
        server = ComparedServer(letter="B", url=url, title=title, facts=facts, holders="stream")
        yield JetStreamSide(server, target, api, replicas)


@contextlib.asynccontextmanager
async def _connected(target: Target) -> AsyncIterator[ClientConnection]:
    nats = ClientConnection()
    with explained(target):
        try:
            await nats.open(target.server.split(","), target.nats_options(), CONNECT_TIMEOUT_S)
        except stan_client.CannotConnectError as error:
            raise _unreachable("--compare-jetstream", error) from None
    try:
        yield nats
    finally:
        await nats.shut()


async def _until_streams_are_made(api: JetStreamApi, replicas: int, servers: LocalJetStream) -> None:
    """Wait until the servers have a leader and know each other.

    Raises:
        CliError: they do not in time; the text has the ends of their logs.
    """
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while True:
        try:
            return await _probe(api, replicas)
        except stan_client.ServerError as error:
            if asyncio.get_running_loop().time() > deadline:
                ends = "\n".join(child.log_end() for child in servers.children())
                raise CliError(f"JetStream did not start: {error}. {ends}") from None
        await asyncio.sleep(RETRY_PAUSE_S)


async def _probe(api: JetStreamApi, replicas: int) -> None:
    """Make a stream as those of the runs, and remove it."""
    name = f"stan-bench-probe-{fresh_id()}"
    await api.create_stream(name, replicas)
    await api.delete_stream(name)


# --- failures ---------------------------------------------------------------------------------------------------------------


def _unreachable(option: str, error: stan_client.CannotConnectError) -> CliError:
    return CliError(
        f"{option}: cannot connect to {error.where}: {error.reason}. Is a server running there, and "
        "are the credentials right for it? It gets those of the options, or of its URL.",
        EXIT_UNREACHABLE,
    )


@contextlib.contextmanager
def in_time(server: ComparedServer, work: Workload) -> Iterator[None]:
    """Name the *server* in errors of a run within the block."""
    try:
        yield
    except TimeoutError as error:
        if isinstance(error, stan_client.StanClientError):
            raise
        raise CliError(
            f"{server.url}: a run was not done after {work.timeout_s:g} s; nothing is left running. Measure fewer messages "
            "(-n) or give more --timeout.",
            EXIT_FAILED,
        ) from None
    except CliError as error:
        raise CliError(f"{server.url}: {error}", error.code) from None
    except stan_client.ServerError as error:
        raise CliError(f"{server.url}: {error}.") from None

"""`stan bench`: the workloads of stan-bench, and its report lines, driven by load processes that can fill the broker.

Options of stan-bench and ours: -np --publishers, -ns --subscribers, -n --messages, -ms --size, -mpa --window, -s --server,
-c --cluster-id, -id --client-id, -sync --sync, -io --ignore-old, -csv --csv. What stan-bench has no word for: --replay,
--raw, --start, --cluster, --client, --in-flight, --processes, --timeout, --json. Bounded in messages and in time; never
touches other channels.
"""

import asyncio
import contextlib
import csv
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.progress import MofNCompleteColumn, TimeElapsedColumn
from stan_client.session import fresh_id

from stan.cli.bench.bench_broker import own_broker, own_cluster
from stan.cli.bench.bench_drivers import Job
from stan.cli.bench.bench_fleet import Fleet
from stan.cli.bench.bench_report import BenchReport, Measurement
from stan.cli.support.common import (
    EXIT_FAILED,
    CliError,
    Target,
    run_until_signalled,
)
from stan.cli.support.local_cluster import NODES_MAX
from stan.cli.support.options import injected
from stan.cli.support.progress import bars

MESSAGES_MAX: Final = 100_000_000
SIZE_MAX: Final = 64 * 1024 * 1024
CLIENTS_MAX: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is measured."""

    channel: str
    publishers: int
    subscribers: int
    messages: int
    size: int
    window: int
    in_flight: int
    ignore_old: bool
    replay: bool
    raw: bool
    client_id: str
    python: bool
    processes: int
    timeout_s: float


@injected
def bench(
    channel: Annotated[str, typer.Argument(help="Channel to use; it keeps the messages.")],
    publishers: Annotated[int, typer.Option("--publishers", "-np", min=0, max=CLIENTS_MAX, help="Publishers.")] = 1,
    subscribers: Annotated[int, typer.Option("--subscribers", "-ns", min=0, max=CLIENTS_MAX, help="Subscribers.")] = 0,
    messages: Annotated[
        int, typer.Option("--messages", "-n", min=1, max=MESSAGES_MAX, help="Messages, shared by the publishers.")
    ] = 100_000,
    size: Annotated[int, typer.Option("--size", "-ms", min=0, max=SIZE_MAX, help="Payload bytes.")] = 128,
    window: Annotated[
        int, typer.Option("--window", "-mpa", min=1, help="Publishes without ack, per publisher.")
    ] = 1000,
    in_flight: Annotated[int, typer.Option(min=1, help="max_in_flight of each subscriber.")] = 1024,
    sync: Annotated[bool, typer.Option("--sync", "-sync", help="Wait for each ack before the next publish.")] = False,  # noqa: FBT002
    ignore_old: Annotated[  # noqa: FBT002
        bool, typer.Option("--ignore-old", "-io", help="Subscribers ignore what is in the channel.")
    ] = False,
    replay: Annotated[  # noqa: FBT002
        bool, typer.Option("--replay", help="Subscribe when all is published; with -np 0, to what is there.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Also measure NATS alone, and print the ratio.")] = False,  # noqa: FBT002
    start: Annotated[bool, typer.Option("--start", help="Start an own broker for the measurement.")] = False,  # noqa: FBT002
    cluster: Annotated[
        int, typer.Option("--cluster", min=0, max=NODES_MAX, help="As --start, with a cluster of this many nodes.")
    ] = 0,
    client: Annotated[
        str, typer.Option(help="kernel: load by blobs; python: stan_client, one call per message.")
    ] = "kernel",
    processes: Annotated[int, typer.Option(min=1, max=64, help="Load processes per role.")] = 1,
    timeout: Annotated[float, typer.Option(min=1, help="Give up after this many seconds.")] = 120,
    csv_file: Annotated[Path | None, typer.Option("--csv", "-csv", help="Write one row per client.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,  # noqa: FBT002
    client_id: Annotated[str, typer.Option("--client-id", "-id", help="Beginning of all client ids.")] = "stan-bench",
    *,
    target: Target,
) -> None:
    """Measure how many messages a second the broker takes and delivers."""
    if client not in ("kernel", "python"):
        raise typer.BadParameter("--client is kernel or python.")
    if not publishers and not subscribers:
        raise typer.BadParameter("There is nothing to measure: -np and -ns are both 0.")
    if replay and not subscribers:
        raise typer.BadParameter("--replay needs subscribers: add -ns 1.")
    work = Workload(
        channel=channel,
        publishers=publishers,
        subscribers=subscribers,
        messages=messages,
        size=size,
        window=1 if sync else window,
        in_flight=in_flight,
        ignore_old=ignore_old,
        replay=replay,
        raw=raw,
        client_id=client_id,
        python=client == "python",
        processes=processes,
        timeout_s=timeout,
    )
    place = _place(target, start=start, nodes=cluster)
    run_until_signalled(_bench(place, work, as_json=as_json, csv_file=csv_file))


def _place(target: Target, *, start: bool, nodes: int) -> contextlib.AbstractAsyncContextManager[Target]:
    if nodes:
        return own_cluster(nodes, target.cluster_id)
    return own_broker(target.cluster_id) if start else _there(target)


async def _bench(
    broker: contextlib.AbstractAsyncContextManager[Target], work: Workload, *, as_json: bool, csv_file: Path | None
) -> int:
    run_id = fresh_id()
    if not as_json:
        typer.echo(
            f"Starting benchmark [msgs={work.messages}, msgsize={work.size}, "
            f"pubs={work.publishers}, subs={work.subscribers}]"
        )
    try:
        async with asyncio.timeout(work.timeout_s), broker as place:
            report = await Bench(place, work, run_id).measure()
    except TimeoutError:
        raise CliError(
            f"Not done after {work.timeout_s:g} s; nothing is left running. Measure fewer messages (-n) or give more --timeout.",
            EXIT_FAILED,
        ) from None
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        for line in report.lines():
            typer.echo(line)
    if csv_file is not None:
        with csv_file.open("w", newline="") as file:
            csv.writer(file).writerows(report.csv_rows(run_id))
    return 0


@contextlib.asynccontextmanager
async def _there(target: Target) -> AsyncIterator[Target]:
    """The broker that runs at *target*."""
    async with target.connect("bench"):  # a failure is explained here, once, and not by each load process
        pass
    yield target


class Bench:
    """The phases of one run."""

    def __init__(self, target: Target, work: Workload, run_id: str) -> None:
        self._target = target
        self._work = work
        self._id = f"{work.client_id}-{run_id}"

    async def measure(self) -> BenchReport:
        """All phases, one after the other."""
        work, report = self._work, BenchReport()
        kind = "python-" if work.python else ""
        if work.raw:
            report.raw = (await self._phase(self._raw_jobs("rawsub"), self._raw_jobs("rawpub")))["rawsub"]
        publish, subscribe = self._jobs(f"{kind}pub"), self._jobs(f"{kind}sub")
        if work.replay:
            samples = await self._phase(publish) if publish else {}
            samples |= await self._phase(subscribe)
        else:
            samples = await self._phase(subscribe, publish)  # subscribers first, they must not miss any
        report.publishers = samples.get(f"{kind}pub", [])
        report.subscribers = samples.get(f"{kind}sub", [])
        return report

    async def _phase(self, *waves: list[Job]) -> dict[str, list[Measurement]]:
        """Prepare one wave of jobs after the other, then let all begin."""
        with bars(MofNCompleteColumn(), TimeElapsedColumn()) as shown:
            tasks = {
                job.role: shown.add_task(job.role, total=sum(sum(other.counts) for other in wave))
                for wave in waves
                for job in wave
            }
            async with Fleet(lambda role, done: shown.update(tasks[role], completed=done)) as fleet:
                for wave in waves:
                    await fleet.prepare(wave)
                return await fleet.run()

    def _jobs(self, role: str) -> list[Job]:
        work, publishing = self._work, role.endswith("pub")
        clients = work.publishers if publishing else work.subscribers
        counts = shares(work.messages, clients) if publishing else [work.messages] * clients
        names = [f"{self._id}-{role}-{number}" for number in range(1, clients + 1)]
        groups = min(work.processes, clients)
        return [self._job(role, work.channel, names[group::groups], counts[group::groups]) for group in range(groups)]

    def _raw_jobs(self, role: str) -> list[Job]:
        return [self._job(role, f"_STAN.bench.{self._id}", [f"{self._id}-{role}"], [self._work.messages])]

    def _job(self, role: str, channel: str, names: list[str], counts: list[int]) -> Job:
        work, target = self._work, self._target
        return Job(
            role=role,
            names=names,
            counts=counts,
            channel=channel,
            size=work.size,
            server=target.server,
            cluster_id=target.cluster_id,
            nats_options=target.nats_options(),
            window=work.window,
            in_flight=work.in_flight,
            new_only=work.ignore_old and not work.replay,
        )


def shares(total: int, parts: int) -> list[int]:
    """*total* in *parts* as equal as can be, the larger ones first."""
    if not parts:
        return []
    share, rest = divmod(total, parts)
    return [share + 1] * rest + [share] * (parts - rest)

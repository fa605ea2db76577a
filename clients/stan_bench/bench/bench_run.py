"""The phases of one run of `stan bench`: its workload as jobs of load processes, one wave after the other.

Uses the plain STAN protocol only, so that the server may be any that speaks it, or the plain one of JetStream; touches no
channel or stream but the workload's.
"""

from dataclasses import dataclass

from rich.progress import MofNCompleteColumn, TimeElapsedColumn

from stan.cli.support.common import Target
from stan.cli.support.progress import bars
from stan_bench.bench.bench_drivers import Job
from stan_bench.bench.bench_fleet import Fleet
from stan_bench.bench.bench_report import BenchReport, Measurement
from stan_bench.bench.server_times import ServerTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The workload of a measurement."""

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
    clients: str  # how the roles of its load processes begin: "", "python-" or "jetstream-"
    processes: int
    timeout_s: float
    replica: str = ""  # which other node than the leader may serve the subscribers


class Bench:
    """The phases of one run."""

    def __init__(self, target: Target, work: Workload, run_id: str, times: ServerTimes | None = None) -> None:
        """*times*: those of the servers' processes, while messages flow."""
        self._target = target
        self._work = work
        self._times = times or ServerTimes()
        self._id = f"{work.client_id}-{run_id}"

    async def measure(self) -> BenchReport:
        """All phases, one after the other."""
        work, report = self._work, BenchReport()
        kind = work.clients
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
        report.cpu, report.leader = self._times.taken, self._times.leader(work.channel)
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
                self._times.begin()
                samples = await fleet.run()
                self._times.end()
                return samples

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
            replica=work.replica,
        )


def shares(total: int, parts: int) -> list[int]:
    """*total* in *parts* as equal as can be, the larger ones first."""
    if not parts:
        return []
    share, rest = divmod(total, parts)
    return [share + 1] * rest + [share] * (parts - rest)

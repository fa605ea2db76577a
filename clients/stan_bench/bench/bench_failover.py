"""`stan bench failover`: the cost of a node's death for a writer and a subscriber, over and over.

Starts a cluster of its own on real disks in a temporary directory, keeps a steady load on one channel, kills the leader of the
channel's group (or a follower) with SIGKILL, measures, starts the node again, repeats. At the end all acknowledged
messages are looked for; exit code 0 only if nothing is lost, out of order, stored twice or repeated without a flag.
"""

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Final

import typer
from stan_client.transport.session import fresh_id

from stan.cli.support.common import DEFAULT_CLUSTER_ID, EXIT_FAILED, run_until_signalled
from stan_bench.bench.failover import FailoverLoad, Round, outage, running_load
from stan_bench.demo_tally import Figure
from stan_bench.local_cluster import NODES_MAX, LocalCluster, group_of

CHANNEL: Final = "failover"
SIZE_MAX: Final = 1024 * 1024
SIZE_MIN: Final = 16
"""Room for the number of a message."""


class Victim(Enum):
    """The node to kill: the leader of the channel's group, or a follower."""

    LEADER = "leader"
    FOLLOWER = "follower"


@dataclass(slots=True, kw_only=True)
class FailoverReport:
    """All rounds of one run, and the fate of the messages."""

    settings: dict[str, Any]
    rounds: list[Round] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)  # text -> publishes that ended so

    @property
    def holds(self) -> bool:
        """Return True if all counts are as promised."""
        return bool(self.figures) and all(figure.holds is not False for figure in self.figures)

    def lines(self) -> list[str]:
        """Return lines for the terminal, after those of the rounds."""
        lines = []
        for title, values in self._times().items():
            shown = spread_of(values)
            text = " | ".join(f"{name} {value:,.0f} ms" for name, value in shown.items())
            lines.append(f"{title}: {text}")
        lines.append(f"Publishes that failed: {sum(self.errors.values()):,}")
        lines += [f"  {text}: {count:,}" for text, count in self.errors.items()]
        wrong = {True: "", None: "", False: "   NOT AS PROMISED"}
        lines += [
            f"{figure.name[0].upper()}{figure.name[1:]}: {figure.value:,}{wrong[figure.holds]}"
            for figure in self.figures
        ]
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return everything as numbers."""
        counts = {figure.name: figure.value for figure in self.figures}
        return {
            **self.settings,
            "gap_ms": spread_of([each.gap_ms for each in self.rounds]),
            "publish_latency_ms": spread_of([each.latency_ms for each in self.rounds]),
            "delivery_gap_ms": spread_of([each.delivery_gap_ms for each in self.rounds]),
            "back_gap_ms": spread_of([each.back_gap_ms for each in self.rounds]),
            "errors": sum(self.errors.values()),
            "error_texts": self.errors,
            "lost": counts.get("lost"),
            "unexplained_repeats": counts.get("durable: unexplained repeats"),
            "holds": self.holds,
            "figures": counts,
            "rounds": [each.to_json() for each in self.rounds],
        }

    def _times(self) -> dict[str, list[float]]:
        return {
            "Without ack": [each.gap_ms for each in self.rounds],
            "Longest publish": [each.latency_ms for each in self.rounds],
            "Without delivery": [each.delivery_gap_ms for each in self.rounds],
            "Without ack while the node returns": [each.back_gap_ms for each in self.rounds],
        }


def spread_of(values: list[float]) -> dict[str, float]:
    """Median, 90th percentile (nearest rank) and maximum."""
    if not values:
        return {}
    ranked = sorted(values)
    middle = (ranked[(len(ranked) - 1) // 2] + ranked[len(ranked) // 2]) / 2
    p90 = ranked[-(-9 * len(ranked) // 10) - 1]
    return {"median": round(middle, 1), "p90": round(p90, 1), "max": round(ranked[-1], 1)}


def bench_failover(
    nodes: Annotated[int, typer.Option(min=3, max=NODES_MAX, help="Nodes of the cluster.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="How many times a node is killed.")] = 5,
    kill: Annotated[Victim, typer.Option(help="Which node is killed.")] = Victim.LEADER,
    rate: Annotated[float, typer.Option(min=0, help="Messages a second; 0 for as many as are acknowledged.")] = 1000,
    size: Annotated[int, typer.Option("--size", "-ms", min=SIZE_MIN, max=SIZE_MAX, help="Payload bytes.")] = 128,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,  # noqa: FBT002
) -> None:
    """Measure what a kill -9 of a node costs: a cluster of its own, under load, one node after the other."""
    settings = {"nodes": nodes, "kill": kill.value, "rate": rate, "size": size}
    run_until_signalled(_bench(FailoverReport(settings=settings), rounds, as_json=as_json))


async def _bench(report: FailoverReport, rounds: int, *, as_json: bool) -> int:
    settings = report.settings
    if not as_json:
        shown = ", ".join(
            f"{name}={value:g}" if name == "rate" else f"{name}={value}" for name, value in settings.items()
        )
        typer.echo(f"Starting failover benchmark [{shown}, rounds={rounds}]")
    async with LocalCluster(settings["nodes"], DEFAULT_CLUSTER_ID, prefix="stan-bench-") as cluster:
        load = FailoverLoad(cluster, CHANNEL, settings["rate"], settings["size"])
        async with running_load(load, f"bench-{fresh_id()}") as figures:
            for number in range(1, rounds + 1):
                each = await _round(load, Victim(settings["kill"]))
                report.rounds.append(each)
                if not as_json:
                    typer.echo(_line(number, each))
        report.figures, report.errors = figures, dict(load.errors)
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        for line in report.lines():
            typer.echo(line)
    return 0 if report.holds else EXIT_FAILED


async def _round(load: FailoverLoad, kind: Victim) -> Round:
    await load.flow()
    victim = await load.cluster.leader_of(CHANNEL)
    if kind is Victim.FOLLOWER:
        victim = load.cluster.followers(group_of(CHANNEL))[0]
    return await outage(load, victim)


def _line(number: int, each: Round) -> str:
    role = "led" if each.led else "followed"
    return (
        f" [{number}] {each.killed} {role} group {group_of(CHANNEL)} and was killed; {each.leader} leads; without ack "
        f"{each.gap_ms:,.0f} ms, longest publish {each.latency_ms:,.0f} ms; caught up "
        f"{each.back_ms:,.0f} ms after its restart"
    )

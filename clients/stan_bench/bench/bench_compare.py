"""`stan bench --compare` and `--compare-jetstream`: one workload in turns against two servers.

Server A is the one that `stan bench` measures anyway, server B the other; a round is one run against each, and every second
round begins with B, so that slow changes of the machine meet both.
"""

import contextlib
import json
from dataclasses import dataclass, replace
from typing import Annotated, Final

import typer
from stan_client.transport.session import fresh_id

from stan.cli.support.common import CliError, Target
from stan.cli.support.options import builds
from stan.cli.support.terminal import err
from stan.config import ClusterConfig
from stan_bench.bench.bench_compare_report import ComparisonReport
from stan_bench.bench.bench_run import Workload
from stan_bench.bench.bench_sides import Opening, Side, other_jetstream, other_stan, own_jetstream, stan_side
from stan_bench.local_jetstream import SYNCED

PANEL: Final = "Comparison"
ROUNDS: Final = 3
ROUNDS_MAX: Final = 1000

REPLICAS_MAX: Final = 5
"""Of a stream of JetStream."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The options of a comparison, as they were given; None: not given."""

    url: str | None = None
    cluster_id: str | None = None
    jetstream: str | None = None
    replicas: int | None = None
    rounds: int | None = None

    @property
    def given(self) -> bool:
        """True if there is a server B."""
        return self.url is not None or self.jetstream is not None

    def complaints(self) -> list[str]:
        """Return the mistakes in the options, a sentence for each."""
        mistakes = []
        if self.url == "":
            mistakes.append("--compare needs the NATS URL of the other server.")
        if self.url is None and self.cluster_id is not None:
            mistakes.append("--compare-cluster-id goes with --compare.")
        if not self.given and self.rounds is not None:
            mistakes.append("--rounds goes with --compare or --compare-jetstream.")
        if self.rounds is not None and not 1 <= self.rounds <= ROUNDS_MAX:
            mistakes.append(f"--rounds is from 1 to {ROUNDS_MAX}.")
        return mistakes + self._jetstream_complaints()

    def _jetstream_complaints(self) -> list[str]:
        mistakes = []
        if self.url is not None and self.jetstream is not None:
            mistakes.append("--compare and --compare-jetstream do not go together: a comparison has two servers.")
        if self.jetstream is not None and not (self.jetstream in SYNCED or "://" in self.jetstream):
            mistakes.append("--compare-jetstream is default, always, or a NATS URL (nats://host:port).")
        if self.replicas is not None and (self.jetstream is None or self.jetstream in SYNCED):
            mistakes.append("--compare-replicas goes with the URL of --compare-jetstream.")
        if self.replicas is not None and not 1 <= self.replicas <= REPLICAS_MAX:
            mistakes.append(f"--compare-replicas is from 1 to {REPLICAS_MAX}.")
        return mistakes

    def server_b(self, target: Target) -> Target:
        """Return server B, with the credentials of *target* unless its URL brings its own."""
        cluster_id = target.cluster_id if self.cluster_id is None else self.cluster_id
        server_b = replace(target, server=self.url or self.jetstream or "", cluster_id=cluster_id)
        if "@" in server_b.server:
            return replace(server_b, creds=None, nkey=None, user=None, password=None, token=None)
        return server_b

    def side_b(self, target: Target, nodes: int) -> Opening:
        """Return side B; *nodes*: of the cluster that is started for side A, 0: none."""
        if self.jetstream is None:
            return stan_side("B", other_stan(self.server_b(target)), kept=True)
        replicas = self.replicas or min(max(nodes, 1), ClusterConfig().replicas)
        if self.jetstream in SYNCED:
            return own_jetstream(max(nodes, 1), self.jetstream, replicas)
        return other_jetstream(self.server_b(target), replicas)


def comparison_of(
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="URL",
            help="Run in turns against another STAN server, at this NATS URL, and print ratios. Both get the same credentials, "
            "unless this URL holds some (nats://user:password@host).",
            rich_help_panel=PANEL,
        ),
    ] = None,
    compare_cluster_id: Annotated[
        str | None,
        typer.Option(
            "--compare-cluster-id", help="Cluster id of the other server, if it differs.", rich_help_panel=PANEL
        ),
    ] = None,
    compare_jetstream: Annotated[
        str | None,
        typer.Option(
            "--compare-jetstream",
            metavar="default|always|URL",
            help="The same against JetStream: of a nats-server that is started here, with this sync_interval, or of the one "
            "at this NATS URL. With --cluster N it has N nodes, too, and as many replicas as the broker.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    compare_replicas: Annotated[
        int | None,
        typer.Option(
            "--compare-replicas",
            help="Replicas of the streams at the URL of --compare-jetstream, if they are not as many as the broker's.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", help=f"Runs against each server; {ROUNDS} if not given.", rich_help_panel=PANEL),
    ] = None,
) -> Comparison:
    """See Comparison."""
    return Comparison(compare, compare_cluster_id, compare_jetstream, compare_replicas, rounds)


builds(comparison_of, Comparison)


async def compare(side_a: Opening, side_b: Opening, work: Workload, rounds: int, *, as_json: bool) -> int:
    """Run *work* *rounds* times against each server and print the report.

    Raises:
        CliError: a server cannot be reached, refuses or is too slow; the text names it by its URL.
    """
    async with contextlib.AsyncExitStack() as stack:
        sides = await _both_answer(stack, side_a, side_b)
        report = ComparisonReport(*(side.server for side in sides))
        if not as_json:
            typer.echo(
                f"Comparing A, {report.ours}, with B, {report.other} [msgs={work.messages}, msgsize={work.size}, "
                f"pubs={work.publishers}, subs={work.subscribers}, rounds={rounds}]"
            )
        try:
            await _rounds(report, sides, work, rounds, as_json=as_json)
        except BaseException:
            for line in report.left_behind():
                err.print(line, highlight=False, markup=False, soft_wrap=True)
            raise
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        for line in report.lines():
            typer.echo(line)
    return 0


async def _both_answer(stack: contextlib.AsyncExitStack, *openings: Opening) -> list[Side]:
    """Enter both, which last as long as *stack*; the faults of both are reported together."""
    sides, failures = [], []
    for opening in openings:
        try:
            sides.append(await stack.enter_async_context(opening))
        except CliError as error:
            failures.append(error)
    if failures:
        raise CliError("\n".join(map(str, failures)), failures[0].code)
    return sides


async def _rounds(report: ComparisonReport, sides: list[Side], work: Workload, rounds: int, *, as_json: bool) -> None:
    run_id = fresh_id()
    for number in range(1, rounds + 1):
        for side in sides if number % 2 else reversed(sides):
            name = f"{run_id}-{side.server.letter.lower()}{number}"
            side.server.runs.append(await side.run(work, name))
        if not as_json:
            typer.echo(report.round_line())

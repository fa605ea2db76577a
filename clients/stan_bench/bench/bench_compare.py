"""`stan bench --compare`: one workload in turns against two servers, each run in a fresh channel.

Server A is the one that `stan bench` measures anyway, server B the other; a round is one run against each, and every second
round begins with B, so that slow changes of the machine meet both. Server B may be any that speaks the plain STAN
protocol: nothing else is required of it, and published messages stay in its channels.
"""

import asyncio
import contextlib
import json
from dataclasses import dataclass, replace
from typing import Annotated, Final

import stan_client
import typer
from stan_client.transport.session import fresh_id
from stan_protocol.secure import without_secrets

from stan.cli.support.common import EXIT_FAILED, EXIT_NO_ANSWER, EXIT_UNREACHABLE, CliError, Target, explained
from stan.cli.support.options import builds
from stan.cli.support.terminal import err
from stan_bench.bench.bench_compare_report import ComparedServer, ComparisonReport
from stan_bench.bench.bench_report import BenchReport
from stan_bench.bench.bench_run import Bench, Workload

PANEL: Final = "Comparison"
ROUNDS: Final = 3
ROUNDS_MAX: Final = 1000

Place = contextlib.AbstractAsyncContextManager[Target]
"""Where server A is, for as long as the block lasts."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The options of a comparison, as they were given; None: not given."""

    url: str | None = None
    cluster_id: str | None = None
    rounds: int | None = None

    def complaints(self) -> list[str]:
        """Return the mistakes in the options, a sentence for each."""
        mistakes = []
        if self.url == "":
            mistakes.append("--compare needs the NATS URL of the other server.")
        if self.url is None and self.cluster_id is not None:
            mistakes.append("--compare-cluster-id goes with --compare.")
        if self.url is None and self.rounds is not None:
            mistakes.append("--rounds goes with --compare.")
        if self.rounds is not None and not 1 <= self.rounds <= ROUNDS_MAX:
            mistakes.append(f"--rounds is from 1 to {ROUNDS_MAX}.")
        return mistakes

    def server_b(self, target: Target) -> Target:
        """Return server B, with the credentials of *target* unless its URL brings its own."""
        cluster_id = target.cluster_id if self.cluster_id is None else self.cluster_id
        server_b = replace(target, server=self.url or "", cluster_id=cluster_id)
        if "@" in server_b.server:
            return replace(server_b, creds=None, nkey=None, user=None, password=None, token=None)
        return server_b


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
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", help=f"Runs against each server; {ROUNDS} if not given.", rich_help_panel=PANEL),
    ] = None,
) -> Comparison:
    """See Comparison."""
    return Comparison(compare, compare_cluster_id, rounds)


builds(comparison_of, Comparison)


async def compare(ours: Place, server_b: Target, work: Workload, rounds: int, *, own: bool, as_json: bool) -> int:
    """Run *work* *rounds* times against each server and print the report; *own*: server A was started for this.

    Raises:
        CliError: a server cannot be reached, refuses or is too slow; the text names it by its URL.
    """
    async with contextlib.AsyncExitStack() as stack:
        target = await _both_answer(stack, ours, server_b)
        report = ComparisonReport(_compared("A", target, kept=not own), _compared("B", server_b))
        if not as_json:
            typer.echo(
                f"Comparing A, {report.ours.url}, with B, {report.other.url} [msgs={work.messages}, msgsize={work.size}, "
                f"pubs={work.publishers}, subs={work.subscribers}, rounds={rounds}]"
            )
        try:
            await _rounds(report, target, server_b, work, rounds, as_json=as_json)
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


def _compared(letter: str, target: Target, *, kept: bool = True) -> ComparedServer:
    return ComparedServer(letter=letter, url=without_secrets(target.server), cluster_id=target.cluster_id, kept=kept)


async def _both_answer(stack: contextlib.AsyncExitStack, ours: Place, server_b: Target) -> Target:
    """Enter *ours*, which lasts as long as *stack*; the faults of both servers are reported together."""
    failures = []
    try:
        target = await stack.enter_async_context(ours)
    except CliError as error:
        failures.append(error)
    try:
        await _b_answers(server_b)
    except CliError as error:
        failures.append(error)
    if failures:
        raise CliError("\n".join(map(str, failures)), failures[0].code)
    return target


async def _b_answers(server_b: Target) -> None:
    url = without_secrets(server_b.server)
    with explained(server_b):
        try:
            client = await stan_client.connect(
                server_b.server,
                client_id=f"stan-bench-probe-{fresh_id()}",
                cluster_id=server_b.cluster_id,
                nats_options=server_b.nats_options(),
            )
        except stan_client.ConnectRequestTimeoutError:
            raise CliError(
                f"--compare: NATS answers at {url}, but no server of cluster {server_b.cluster_id!r} does. "
                "Is its cluster id another (--compare-cluster-id)?",
                EXIT_NO_ANSWER,
            ) from None
        except stan_client.ServerError as error:
            raise CliError(f"--compare: the server at {url} refuses: {error}.") from None
        except stan_client.CannotConnectError as error:
            raise CliError(
                f"--compare: cannot connect to {url}: {error.reason}. Is a server running there, and "
                "are the credentials right for it? It gets those of the options, or of its URL.",
                EXIT_UNREACHABLE,
            ) from None
    with contextlib.suppress(stan_client.StanClientError):
        await client.close()


async def _rounds(
    report: ComparisonReport, ours: Target, server_b: Target, work: Workload, rounds: int, *, as_json: bool
) -> None:
    run_id = fresh_id()
    pair = [(report.ours, ours), (report.other, server_b)]
    for number in range(1, rounds + 1):
        for server, target in pair if number % 2 else reversed(pair):
            name = f"{run_id}-{server.letter.lower()}{number}"
            server.channels.append(f"{work.channel}.{name}")
            server.runs.append(await _run(server, target, replace(work, channel=server.channels[-1]), name))
        if not as_json:
            typer.echo(report.round_line())


async def _run(server: ComparedServer, target: Target, work: Workload, name: str) -> BenchReport:
    try:
        async with asyncio.timeout(work.timeout_s):
            return await Bench(target, work, name).measure()
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

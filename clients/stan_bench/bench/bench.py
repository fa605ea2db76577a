"""`stan bench`: the workloads of stan-bench, and its report lines, driven by load processes that can fill the broker.

Options of stan-bench and ours: -np --publishers, -ns --subscribers, -n --messages, -ms --size, -mpa --window, -s --server,
-c --cluster-id, -id --client-id, -sync --sync, -io --ignore-old, -csv --csv. Beyond those of stan-bench: --replay,
--raw, --start, --cluster, --replicas, --no-file-sync, --compare, --compare-cluster-id, --compare-jetstream,
--compare-replicas, --rounds, --client, --in-flight, --processes, --timeout, --json.
Bounded in messages and in time; never touches other channels.
"""

import asyncio
import contextlib
import csv
import json
from pathlib import Path
from typing import Annotated, Final

import stan_client
import typer
from stan_client.transport.session import fresh_id

from stan.cli.support.common import (
    EXIT_FAILED,
    CliError,
    Target,
    run_until_signalled,
)
from stan.cli.support.options import injected
from stan_bench.bench.bench_broker import OwnBroker
from stan_bench.bench.bench_compare import ROUNDS, Comparison, compare
from stan_bench.bench.bench_run import Bench, Workload
from stan_bench.bench.bench_sides import stan_side
from stan_bench.bench.server_times import ServerTimes

MESSAGES_MAX: Final = 100_000_000
SIZE_MAX: Final = 64 * 1024 * 1024
CLIENTS_MAX: Final = 1000


@injected
def bench(
    channel: Annotated[
        str,
        typer.Argument(help="Channel to use; it keeps the messages. With --compare, how the channels' names begin."),
    ],
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
    client: Annotated[
        str, typer.Option(help="kernel: load by blobs; python: stan_client, one call per message.")
    ] = "kernel",
    processes: Annotated[int, typer.Option(min=1, max=64, help="Load processes per role.")] = 1,
    timeout: Annotated[
        float, typer.Option(min=1, help="Give up after this many seconds (--compare: of one run).")
    ] = 120,
    csv_file: Annotated[Path | None, typer.Option("--csv", "-csv", help="Write one row per client.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,  # noqa: FBT002
    client_id: Annotated[str, typer.Option("--client-id", "-id", help="Beginning of all client ids.")] = "stan-bench",
    *,
    own: OwnBroker,
    comparison: Comparison,
    target: Target,
) -> None:
    """Measure how many messages a second the broker takes and delivers."""
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
        clients="python-" if client == "python" else "",
        processes=processes,
        timeout_s=timeout,
        replica="any" if own.replicas else "",
    )
    complaints = [*own.complaints(), *_complaints(work, comparison, client, csv_file)]
    if complaints:
        raise typer.BadParameter("\n".join(complaints))
    times = ServerTimes()
    place = own.place(target, times)
    if not comparison.given:
        run_until_signalled(_bench(place, work, times, as_json=as_json, csv_file=csv_file))
    else:
        title = own.title() if comparison.jetstream is not None else ""
        side_a = stan_side("A", place, kept=not own.own, title=title)
        side_b = comparison.side_b(target, own.nodes)
        run_until_signalled(compare(side_a, side_b, work, comparison.rounds or ROUNDS, as_json=as_json))


def _complaints(work: Workload, comparison: Comparison, client: str, csv_file: Path | None) -> list[str]:
    """Return the mistakes in the options, a sentence for each."""
    mistakes = []
    if client not in ("kernel", "python"):
        mistakes.append("--client is kernel or python.")
    if not work.publishers and not work.subscribers:
        mistakes.append("There is nothing to measure: -np and -ns are both 0.")
    if work.replay and not work.subscribers:
        mistakes.append("--replay needs subscribers: add -ns 1.")
    mistakes += comparison.complaints()
    if comparison.jetstream is not None and client == "python":
        mistakes.append("--client python does not go with --compare-jetstream: it has no such clients.")
    if comparison.given:
        if work.raw:
            mistakes.append("--raw does not go with a comparison: measure each server's NATS in a run of its own.")
        if csv_file is not None:
            mistakes.append("--csv does not go with a comparison: use --json.")
        if work.subscribers and not work.publishers:
            mistakes.append(
                "A comparison needs publishers (-np): its channels are fresh, and there is nothing to read in them."
            )
    return mistakes


async def _bench(
    broker: contextlib.AbstractAsyncContextManager[Target],
    work: Workload,
    times: ServerTimes,
    *,
    as_json: bool,
    csv_file: Path | None,
) -> int:
    run_id = fresh_id()
    if not as_json:
        typer.echo(
            f"Starting benchmark [msgs={work.messages}, msgsize={work.size}, "
            f"pubs={work.publishers}, subs={work.subscribers}]"
        )
    try:
        async with asyncio.timeout(work.timeout_s), broker as place:
            report = await Bench(place, work, run_id, times).measure()
    except TimeoutError as error:
        if isinstance(error, stan_client.StanClientError):
            raise
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

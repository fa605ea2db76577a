"""`stan top`: the busiest channels, and the positions that fall behind; live on a terminal, one measurement in a pipe."""

import asyncio
import time
from typing import Annotated, Final, NamedTuple

import stan_client
import typer
from stan_protocol.admin_types import ChannelStatus, CursorStatus
from stan_protocol.units import counted, format_age, format_rate, format_size, format_time

from stan.cli.support.args import Pattern, checked_pattern
from stan.cli.support.common import EXIT_USAGE, CliError, Target, run, stop_on_key, stop_on_signals
from stan.cli.support.options import injected
from stan.cli.support.output import Table, text_lines
from stan.cli.support.session import session
from stan.cli.support.terminal import err, out, write, write_json
from stan.status.positions import full_name, in_vain, lag, state_of

SORTS: Final = ("rate", "lag", "redelivered", "messages", "name")
HEIGHT: Final = 24
LEAST_WIDTH: Final = {">size": 100, ">again/s": 100, ">messages": 80, ">newest": 80}
"""Columns of the terminal from which on these are shown."""


class TrafficSample(NamedTuple):
    """The channels and positions at one moment."""

    at: float  # seconds, monotonic
    channels: list[ChannelStatus]
    cursors: list[CursorStatus]


class Line(NamedTuple):
    """A channel between two samples."""

    name: str
    rate: float  # messages a second that came in
    messages: int
    bytes: int
    lag: int  # of the worst
    worst: str  # its name and state
    redelivered: float  # a second
    last_timestamp: int


@injected
def top(
    pattern: Pattern = ">",
    sort: Annotated[str, typer.Option(help=f"By {', '.join(SORTS)}.")] = "rate",
    interval: Annotated[float, typer.Option("--interval", "-i", min=0.2, help="Seconds between two looks.")] = 2.0,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="Looks; 0: until Ctrl-C, one in a pipe.")] = 0,
    lines: Annotated[int, typer.Option("--lines", min=0, help="Channels shown; 0: what fits.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document a look.")] = False,  # noqa: FBT002
    *,
    target: Target,
) -> None:
    """Channels by what comes in, by lag, or by redeliveries."""
    checked_pattern(pattern)
    if sort not in SORTS:
        raise CliError(f"--sort is one of {', '.join(SORTS)}.", EXIT_USAGE)
    live = out.is_terminal and not as_json
    run(_top(target, pattern, sort, (interval, count or (0 if live else 1), lines), as_json=as_json))


async def _top(target: Target, pattern: str, sort: str, pace: tuple[float, int, int], *, as_json: bool) -> int:
    interval, count, lines = pace
    stop = asyncio.Event()
    stop_on_signals(stop)
    live, looks = out.is_terminal and not as_json, 0
    async with session(target) as direct:
        if live:
            stop_on_key(stop, "q")
        before = await take_sample(direct, pattern)
        while not stop.is_set():
            try:
                await asyncio.wait_for(stop.wait(), interval)
            except TimeoutError:
                try:
                    after = await take_sample(direct, pattern)
                except stan_client.RequestTimeoutError as error:  # a leader may be changing
                    err.print(f"{error}; asking again", markup=False, highlight=False, soft_wrap=True)
                    continue
                traffic = sort_rows(rates_between(before, after, time.time_ns()), sort)
                before = after
                if as_json:
                    write_json({"channels": [line._asdict() for line in traffic]})
                else:
                    fits = lines or (max(1, (out.height or HEIGHT) - 5) if live else len(traffic))
                    _draw(top_table(traffic, fits, time.time_ns(), out.width if live else 0), sort, live=live)
                looks += 1
                if looks == count:
                    break
    return 0


def _draw(table: Table, sort: str, *, live: bool) -> None:
    if live:
        out.clear()
        write([f"stan top, by {sort}, {format_time(time.time_ns())}; q ends it."])
    write(text_lines(table))


async def take_sample(direct: stan_client.Direct, pattern: str) -> TrafficSample:
    """Look once."""
    channels, cursors = await asyncio.gather(direct.admin.channels(pattern), direct.admin.subscriptions(pattern))
    return TrafficSample(time.monotonic(), channels, cursors)


def rates_between(before: TrafficSample, after: TrafficSample, now_ns: int) -> list[Line]:
    """Return the changes between two samples, by channel."""
    took = max(after.at - before.at, 1e-6)
    last = {one.uid: one.last_sequence for one in before.channels}
    again = {(one.channel, one.cursor_id): one.redelivered for one in before.cursors}
    by_channel: dict[str, list[CursorStatus]] = {}
    for cursor in after.cursors:
        by_channel.setdefault(cursor.channel, []).append(cursor)
    lines = []
    for channel in after.channels:
        cursors = by_channel.get(channel.name, [])
        worst = max(cursors, key=lambda one: (lag(one), in_vain(one, now_ns)), default=None)
        repeats = sum(
            max(0, one.redelivered - again.get((one.channel, one.cursor_id), one.redelivered)) for one in cursors
        )
        came = max(0, channel.last_sequence - last.get(channel.uid, 0))
        words = f"{full_name(worst)}: {state_of(worst, now_ns).word}" if worst is not None and lag(worst) else ""
        lines.append(
            Line(
                name=channel.name,
                rate=round(came / took, 2),
                messages=channel.messages,
                bytes=channel.bytes,
                lag=lag(worst) if worst is not None else 0,
                worst=words,
                redelivered=round(repeats / took, 2),
                last_timestamp=channel.last_timestamp,
            )
        )
    return lines


def sort_rows(lines: list[Line], sort: str) -> list[Line]:
    """Sort by that column, the largest first; names in alphabetical order."""
    if sort == "name":
        return sorted(lines, key=lambda line: line.name)
    return sorted(lines, key=lambda line: (-getattr(line, sort), line.name))


def top_table(lines: list[Line], fits: int, now_ns: int, width: int = 0) -> Table:
    """Return the table of the first ones; *width*: columns of the terminal, which may be too few for all; 0: there is none."""
    columns = ("channel", ">in/s", ">messages", ">size", ">lag", ">again/s", ">newest", "who is behind")
    left_out = {title for title, least in LEAST_WIDTH.items() if width and width < least}
    shown = [at for at, title in enumerate(columns) if title not in left_out]
    rows = [
        (
            line.name,
            format_rate(line.rate),
            f"{line.messages:,}",
            format_size(line.bytes),
            f"{line.lag:,}",
            format_rate(line.redelivered),
            format_age(line.last_timestamp, now_ns),
            line.worst,
        )
        for line in lines[:fits]
    ]
    total = f"{format_rate(sum(line.rate for line in lines))} messages/s into {counted(len(lines), 'channel')}"
    return Table(
        columns=tuple(columns[at] for at in shown),
        rows=[tuple(row[at] for at in shown) for row in rows],
        head=total,
        empty="No channels.",
    )

"""`stan find`: messages of channels by their contents, keys and headers, as a bounded search from a place on."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

import stan_client
import typer
from stan_client.requests.names import raw
from stan_protocol.channels import whole_of
from stan_protocol.patterns import matches as covers
from stan_protocol.units import counted

from stan.cli.commands.channel_messages import show_message
from stan.cli.support.args import at_time, checked_pattern
from stan.cli.support.common import EXIT_FAILED, EXIT_USAGE, CliError, Target, run
from stan.cli.support.message_format import FORMAT_HELP, parsed_format
from stan.cli.support.options import injected
from stan.cli.support.session import no_channel, session
from stan.cli.support.terminal import err
from stan.status.message_search import (
    BadConditionError,
    Condition,
    SearchTally,
    has_header,
    has_key,
    has_pattern,
    has_text,
)

FOUND_MAX: Final = 20
SCAN_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The messages that are wanted, and how many are looked at."""

    conditions: tuple[Condition, ...]
    first: int
    since_ns: int
    until_ns: int
    limit: int
    scan: int


@injected
def find(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="Its name, or a pattern: orders.>")],
    text: Annotated[str, typer.Argument(metavar="[TEXT]", help="In the data, as it is written.")] = "",
    regex: Annotated[str, typer.Option("--regex", help="A regular expression (of Python) in the data.")] = "",
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Of TEXT and --regex.")] = False,  # noqa: FBT002
    key: Annotated[str, typer.Option(help="Messages with this key.")] = "",
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME[=VALUE]", help="With this header; repeat for more.")
    ] = None,
    first: Annotated[int, typer.Option("--seq", min=1, help="From this sequence on.")] = 1,
    since: Annotated[str, typer.Option(help="From this time on: 1h (ago), 2026-11-22T10:00:00Z, @unix.")] = "",
    until: Annotated[str, typer.Option(help="Up to this time.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="So many matches at most.")] = FOUND_MAX,
    scan: Annotated[int, typer.Option(min=1, help="Look at so many messages at most.")] = SCAN_MAX,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with everything.")] = False,  # noqa: FBT002
    format_: Annotated[str, typer.Option("--format", help=FORMAT_HELP)] = "",
    *,
    target: Target,
) -> None:
    """Find messages by their contents, keys and headers; all given conditions must hold.

    Exit code 1: there is none. When not all was looked at, the last line on stderr says from where to go on.
    """
    checked_pattern(channel)
    conditions = _conditions(text, regex, key, header or [], ignore_case=ignore_case)
    if not conditions:
        raise CliError("Say what to find: TEXT, --regex, --key or --header.", EXIT_USAGE)
    search = Search(
        conditions=tuple(conditions),
        first=first,
        since_ns=at_time("--since", since) if since else 0,
        until_ns=at_time("--until", until) if until else 0,
        limit=limit,
        scan=scan,
    )
    show = partial(show_message, shape="full" if as_json else "text", form=parsed_format(format_, as_json=as_json))
    run(_find(target, channel, search, show))


def _conditions(text: str, regex: str, key: str, headers: list[str], *, ignore_case: bool) -> list[Condition]:
    conditions = [has_text(text, ignore_case=ignore_case)] if text else []
    try:
        conditions += [has_pattern(regex, ignore_case=ignore_case)] if regex else []
    except BadConditionError as error:
        raise CliError(f"--regex: {regex!r} is none: {error}.", EXIT_USAGE) from None
    try:
        conditions += map(has_header, headers)
    except BadConditionError as error:
        raise CliError(f"--header: {error}.", EXIT_USAGE) from None
    return [*conditions, *([has_key(key)] if key else [])]


async def _find(target: Target, pattern: str, search: Search, show: Callable[[stan_client.Message], None]) -> int:
    tally = SearchTally(search.conditions, matches_max=search.limit, messages_max=search.scan)
    rest = ""
    async with session(target) as direct:
        for name in await _channels(direct, pattern):
            async for message in _messages(direct, name, search):
                if tally.is_full:
                    rest = f"; the search ended in {name}, go on there with --seq {message.sequence}"
                    break
                if tally.add(message):
                    show(message)
            if rest:
                break
    counts = f"{counted(tally.matches, 'match', 'matches')} in {counted(tally.messages, 'message')}"
    err.print(f"{counts}{rest}.", markup=False, highlight=False, soft_wrap=True)
    return 0 if tally.matches else EXIT_FAILED


async def _channels(direct: stan_client.Direct, pattern: str) -> list[str]:
    """The channels of that name or pattern, in order; of a channel with parts its parts."""
    names = [one.name for one in await direct.admin.channels()]
    chosen = sorted(name for name in names if covers(pattern, name) or whole_of(raw(name)) == raw(pattern))
    if not chosen:
        raise await no_channel(direct, pattern)
    return chosen


async def _messages(direct: stan_client.Direct, name: str, search: Search) -> AsyncIterator[stan_client.Message]:
    info = (await direct.channels.info([name])).get(name)
    if info is None:
        return
    first = max(search.first, info.first, 1)
    if search.since_ns:
        first = max(first, await direct.channels.sequence_at(name, search.since_ns))
    if first > info.last:
        return
    async for answer in direct.batches.read_range(name, first, info.last):
        for message in answer.messages():
            if search.until_ns and message.timestamp_ns > search.until_ns:
                return
            yield message

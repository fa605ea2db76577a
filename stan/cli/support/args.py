"""Arguments that several commands take: channels, times, sizes; wrong ones end the command with the right form."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import typer
from stan_protocol import units
from stan_protocol.patterns import valid_name

from stan.cli.support import contexts
from stan.cli.support.common import EXIT_USAGE, CliError, run_fast
from stan.cli.support.options import resolved
from stan.cli.support.session import open_direct

COMPLETION_S: Final = 1.5
"""A shell waits no longer for names than this."""
COMPLETIONS_MAX: Final = 200

T = TypeVar("T")


def parsed(option: str, parse: Callable[..., T], *arguments: Any) -> T:
    """The result of *parse*; its ValueError becomes the command's, naming the option."""
    try:
        return parse(*arguments)
    except ValueError as error:
        raise CliError(f"{option}: {error}.", EXIT_USAGE) from None


def at_time(option: str, text: str) -> int:
    """A time, as Unix ns."""
    return parsed(option, units.time_ns, text, time.time_ns())


def checked_channel(name: str) -> str:
    """A channel's name. Raises CliError: it can be none."""
    if not valid_name(name, wildcards=False):
        raise CliError(
            f"{name!r} can be no channel: tokens separated by dots, without spaces, `*` and `>`.", EXIT_USAGE
        )
    return name


def checked_pattern(pattern: str) -> str:
    """A pattern of channels. Raises CliError: it can be none."""
    if not valid_name(pattern, wildcards=True):
        raise CliError(
            f"{pattern!r} is no pattern: tokens separated by dots, `*` is any one, `>` all that follow.", EXIT_USAGE
        )
    return pattern


def channel_names(incomplete: str) -> list[str]:
    """Channels that begin so, for a shell; none if the servers do not answer quickly. Knows the environment and the context in
    use, not the rest of the line."""
    with contextlib.suppress(Exception):
        return run_fast(_channels(incomplete))
    return []


async def _channels(incomplete: str) -> list[str]:
    async with asyncio.timeout(COMPLETION_S):
        direct = open_direct(resolved(_environment()), COMPLETION_S)
        await direct.open()
        try:
            channels = await direct.admin.channels()
        finally:
            await direct.close()
    names = (channel.name for channel in channels)
    return [name for name in names if name.startswith(incomplete)][:COMPLETIONS_MAX]


def _environment() -> dict[str, str]:
    return {key: os.environ[f"STAN_{key.upper()}"] for key in contexts.FIELDS if os.environ.get(f"STAN_{key.upper()}")}


Channel = Annotated[str, typer.Argument(metavar="CHANNEL", help="Name of the channel.", autocompletion=channel_names)]
Pattern = Annotated[
    str,
    typer.Argument(
        metavar="PATTERN", help="Of channels: `*` is any one token, `>` all that follow.", show_default=False
    ),
]


def sequence_runs(argument: str, texts: list[str]) -> list[tuple[int, int]]:
    """Sequences and ranges of them (17, 17-20) as first and last, in order. Raises CliError with all that are none."""
    runs, complaints = [], []
    for text in texts:
        first, _, last = text.partition("-")
        try:
            run_ = (units.number(first), units.number(last or first))
            if not 0 < run_[0] <= run_[1]:
                raise ValueError(f"{text!r} is no sequence from 1 on, and no range of them")
            runs.append(run_)
        except ValueError as error:
            complaints.append(f"{argument}: {error}.")
    if complaints:
        raise CliError("\n".join(complaints), EXIT_USAGE)
    return sorted(runs)

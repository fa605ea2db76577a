"""`stan events`: what happens in the cluster, as it happens; a stream that may lose some, no log."""

import asyncio
import contextlib
from typing import Annotated

import typer
from stan_protocol.admin_types import Event
from stan_protocol.units import format_time

from stan.cli.support.common import CliError, Target, run, stop_on_signals
from stan.cli.support.options import injected
from stan.cli.support.proto_json import document_of
from stan.cli.support.session import session
from stan.cli.support.terminal import clean, json_text, out, write


@injected
def events(
    kind: Annotated[
        str, typer.Option("--kind", help="Only these: leader, client_lost, channel_created, trouble, ...")
    ] = "*",
    channel: Annotated[str, typer.Option("--channel", help="Only those of this channel.")] = "",
    client: Annotated[str, typer.Option("--client", help="Only those of this client.")] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="End after so many; 0: never.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,  # noqa: FBT002
    *,
    target: Target,
) -> None:
    """Print what happens from now on: leaders, clients, subscriptions, channels, changes by operators, trouble."""
    if not kind or any(char in kind for char in ". \t"):
        raise CliError("--kind is one word: leader, client_lost, admin, trouble, ...")
    run(_events(target, kind, (channel, client), count, as_json=as_json))


async def _events(target: Target, kind: str, of: tuple[str, str], count: int, *, as_json: bool) -> int:
    stop = asyncio.Event()
    stop_on_signals(stop)
    shown = 0
    async with session(target) as direct:
        source = direct.admin.events(kind)
        stopped = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                arrival = asyncio.ensure_future(anext(source))
                await asyncio.wait({arrival, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if not arrival.done():
                    arrival.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await arrival
                    break
                event = arrival.result()
                if of[0] in ("", event.channel) and of[1] in ("", event.client_id):
                    write([json_text(document_of(event)) if as_json else line_of(event)])
                    shown += 1
                    if shown == count:
                        break
        finally:
            stopped.cancel()
            await source.aclose()
    return 0


def line_of(event: Event) -> str:
    """Return a line for people: time, node, text."""
    when, where = format_time(event.time), event.node or "-"
    text = clean(event.text) or clean(event.kind)
    if out.is_terminal and not out.no_color:
        return f"\x1b[2m{when}\x1b[0m  {where}  \x1b[1m{clean(event.kind)}\x1b[0m  {text}"
    return f"{when}  {where}  {clean(event.kind)}  {text}"

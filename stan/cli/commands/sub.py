"""`stan sub`: messages from a channel into a shell.

Output is for pipes unless stdout is a terminal: each payload and a newline, nothing else. A message is acked after it was written
out. Never buffers a whole channel.
"""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import stan_client
import typer
from rich.markup import escape
from stan_protocol.scalars import SECOND
from stan_protocol.units import duration_ns, number

from stan.cli.support.common import ClientId, Target, run, stop_on_signals
from stan.cli.support.message_format import FORMAT_HELP, MessageFormat, parsed_format
from stan.cli.support.options import injected
from stan.cli.support.proto_json import message_document
from stan.cli.support.terminal import INDENT, STDOUT, err, indented, out, write_json

KNOWN_PATIENCE_S: Final = 1.0
"""Wait for the answer if a channel exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """The job of `stan sub`."""

    channel: str
    start: stan_client.Start = field(default_factory=stan_client.new_only)
    durable: str = ""
    queue: str = ""
    manual: bool = False
    ack_wait_s: int = 30
    in_flight: int = 1024
    count: int = 0  # 0: no limit
    until_end: bool = False
    idle_s: float | None = None  # seconds of silence that mean the end; None: none do
    as_json: bool = False
    format: MessageFormat | None = None
    unsubscribe: bool = False
    replica: str = ""
    quiet: bool = False


def parse_start(text: str) -> stan_client.Start:
    """A --from option: first, last, new, seq:N, since:DURATION (90s, 15m, 1h, 2d) or at:TIME (ISO 8601).

    Raises:
        typer.BadParameter: anything else.
    """
    simple = {"first": stan_client.everything, "last": stan_client.last_received, "new": stan_client.new_only}
    if text in simple:
        return simple[text]()
    kind, _, value = text.partition(":")
    try:
        if kind == "seq":
            return stan_client.from_sequence(number(value))
        if kind == "since":
            return stan_client.ago(duration_ns(value) / SECOND)
        if kind == "at":
            return stan_client.from_time(datetime.fromisoformat(value))
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"{text!r}: {error}.") from None
    raise typer.BadParameter(f"{text!r} is none of first, last, new, seq:N, since:1h, at:2026-01-31T12:00.")


@injected
def sub(
    channel: Annotated[str, typer.Argument(help="Channel to read.")],
    start: Annotated[str, typer.Option("--from", help="first, last, new, seq:N, since:1h, at:TIME.")] = "new",
    durable: Annotated[
        str, typer.Option(help="Durable name; the server remembers the position (needs --client-id).")
    ] = "",
    queue: Annotated[str, typer.Option(help="Queue group; its members share the messages.")] = "",
    manual: Annotated[bool, typer.Option("--manual", help="Do not ack: messages come again.")] = False,  # noqa: FBT002
    ack_wait: Annotated[int, typer.Option(min=1, help="Seconds until an unacked message comes again.")] = 30,
    in_flight: Annotated[int, typer.Option(min=1, help="Messages sent ahead of their acks.")] = 1024,
    count: Annotated[int, typer.Option(min=0, help="Leave after this many messages; 0 is no limit.")] = 0,
    until_end: Annotated[bool, typer.Option("--until-end", help="Leave at the end of what is there now.")] = False,  # noqa: FBT002
    idle: Annotated[float, typer.Option(min=0, help="With --until-end: seconds of silence that mean the end.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,  # noqa: FBT002
    format_: Annotated[str, typer.Option("--format", help=FORMAT_HELP)] = "",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not say what is read.")] = False,  # noqa: FBT002
    unsubscribe: Annotated[bool, typer.Option("--unsubscribe", help="Forget the durable on exit.")] = False,  # noqa: FBT002
    replica: Annotated[
        str, typer.Option(help="Be served by another node than the leader: any, zone=Z, or its name.")
    ] = "",
    client_id: ClientId = "",
    *,
    target: Target,
) -> None:
    """Read a channel: payloads, one a line, or JSON."""
    if durable and not queue and not client_id:
        raise typer.BadParameter("A durable belongs to a client id: add --client-id.")
    if set(channel) & {"*", ">"}:
        raise typer.BadParameter(
            f"{channel!r}: a subscription is of one channel, without wildcards. Several: stan channel list {channel!r}"
        )
    target = replace(target, client_id=client_id)
    job = Listening(
        channel=channel,
        start=parse_start(start),
        durable=durable,
        queue=queue,
        manual=manual,
        ack_wait_s=ack_wait,
        in_flight=in_flight,
        count=count,
        until_end=until_end,
        idle_s=idle if until_end else None,
        as_json=as_json,
        format=parsed_format(format_, as_json=as_json),
        unsubscribe=unsubscribe,
        replica=replica,
        quiet=quiet,
    )
    run(_listen(target, job))


async def _listen(target: Target, job: Listening) -> int:
    await listen(target, job)
    return 0


async def listen(target: Target, job: Listening) -> int:
    """Show messages until the job's end, or a signal; returns how many."""
    stop = asyncio.Event()
    stop_on_signals(stop)
    async with target.connect("sub") as client:
        new = not job.quiet and await _is_missing(client, job.channel)
        subscription = await _subscribed(client, job)
        if not job.quiet:
            err.print(_announced(job, subscription, new=new), markup=False, highlight=False, soft_wrap=True)
        try:
            ends = await _ends(client, job, subscription) if job.until_end else {}
            return await _show(subscription, job, stop, ends)
        finally:
            STDOUT.flush()
            await (subscription.unsubscribe() if job.unsubscribe else subscription.close())


async def _is_missing(client: stan_client.Client, channel: str) -> bool:
    """True if the channel does not exist; False as well if the server does not know such questions, as the original."""
    try:
        pattern = f"{channel}.*"  # of its parts, if it has any
        return not await client.channels.info([channel], pattern=pattern, timeout_s=KNOWN_PATIENCE_S)
    except (stan_client.ServerError, stan_client.RequestTimeoutError):
        return False


def _announced(
    job: Listening, subscription: stan_client.Subscription | stan_client.PartedSubscription, *, new: bool
) -> str:
    """The sentence that names the channel; *new*: the subscription has made the channel."""
    parts = getattr(subscription, "parts", None)
    divided = f" and its {len(parts)} parts" if parts else ""
    names = [f"durable {job.durable}"] if job.durable else []
    names += [f"queue group {job.queue}"] if job.queue else []
    return f"Listening on {job.channel}{divided}{' (a new channel)' if new else ''}{''.join(f', {name}' for name in names)}"


async def _subscribed(
    client: stan_client.Client, job: Listening
) -> stan_client.Subscription | stan_client.PartedSubscription:
    """The subscription, of all parts if the channel has parts. Its messages are acked once they are written."""
    arguments: dict[str, Any] = {
        "queue": job.queue,
        "durable": job.durable,
        "start": job.start,
        "max_in_flight": min(job.in_flight, job.count or job.in_flight),
        "ack_wait_s": job.ack_wait_s,
        "manual_acks": True,
    }
    try:
        return await client.subscribe(job.channel, replica=job.replica, **arguments)
    except stan_client.ServerError as error:
        if error.code != "has_parts":
            raise
    return await client.subscribe_parts(job.channel, **arguments)


async def _ends(
    client: stan_client.Client, job: Listening, subscription: stan_client.Subscription | stan_client.PartedSubscription
) -> dict[str, int]:
    """Sequence of the newest message of the channel, or of each of its parts, by name; without those that have none."""
    names = [job.channel]
    if isinstance(subscription, stan_client.PartedSubscription):
        names = [one.channel for one in subscription.parts.values()]
    ends = await asyncio.gather(*(_last_sequence(client, name, job.idle_s or 0) for name in names))
    return {name: last for name, last in zip(names, ends, strict=True) if last}


async def _last_sequence(client: stan_client.Client, channel: str, idle_s: float) -> int:
    """Sequence of the channel's newest message; 0 if none comes in *idle_s* seconds."""
    probe = await client.subscribe(channel, start=stan_client.last_received(), max_in_flight=1, manual_acks=True)
    try:
        return (await asyncio.wait_for(anext(probe), idle_s)).sequence
    except TimeoutError:
        return 0
    finally:
        await probe.close()


async def _show(
    subscription: stan_client.Subscription | stan_client.PartedSubscription,
    job: Listening,
    stop: asyncio.Event,
    ends: dict[str, int],
) -> int:
    shown, ends = 0, dict(ends)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        while not stop.is_set():
            arrival = asyncio.ensure_future(anext(subscription))
            done, _ = await asyncio.wait({arrival, stopped}, timeout=job.idle_s, return_when=asyncio.FIRST_COMPLETED)
            if arrival not in done:
                arrival.cancel()
                break
            message = arrival.result()
            _write(message, as_json=job.as_json, form=job.format, part_of_whole=message.channel != job.channel)
            shown += 1
            if not job.manual:
                message.ack()
            if message.sequence >= ends.get(message.channel, 0):
                ends.pop(message.channel, None)
            if shown == job.count or (job.until_end and not ends):
                break
    finally:
        stopped.cancel()
    return shown


def _write(
    message: stan_client.Message, *, as_json: bool, form: MessageFormat | None = None, part_of_whole: bool = False
) -> None:
    if form is not None:
        STDOUT.write(form.line(message))
        STDOUT.flush()
    elif as_json:
        repeats = {"redelivered": message.redelivered, "redelivery_count": message.redelivery_count}
        write_json(message_document(message, repeats))
    elif out.is_terminal:
        when = datetime.fromtimestamp(message.timestamp_ns / 1e9, UTC).astimezone().isoformat(" ", "milliseconds")
        again = f" [yellow]redelivered {message.redelivery_count}[/]" if message.redelivered else ""
        part = message.channel.rpartition(".~")[2] if part_of_whole else ""
        number = escape(f"~{part} #{message.sequence}" if part else f"#{message.sequence}")
        first, *others = indented(message.data.decode("utf-8", "surrogateescape"))
        head = f"[bold cyan]{number}[/] [dim]{when}[/]{again} {escape(first.removeprefix(INDENT))}"
        out.print("\n".join([head, *map(escape, others)]), highlight=False, soft_wrap=True)
    else:
        STDOUT.write(message.data + b"\n")
        STDOUT.flush()

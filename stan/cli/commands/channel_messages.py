"""`stan channel get`: messages of a channel by sequence, time or from the end, without a subscription, for people and pipes."""

import base64
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Final, NamedTuple

import stan_client
import typer
from stan_client.transport.session import text_of
from stan_protocol import units
from stan_protocol.units import counted, format_time

from stan.cli.support.args import Channel, at_time, checked_channel, parsed
from stan.cli.support.common import EXIT_USAGE, CliError, Target, run
from stan.cli.support.message_format import FORMAT_HELP, MessageFormat, parsed_format
from stan.cli.support.options import injected
from stan.cli.support.proto_json import message_document
from stan.cli.support.session import is_unknown, no_channel, session
from stan.cli.support.terminal import STDOUT, clean, indented, json_text, out, write, write_json

SHAPES: Final = ("text", "json", "base64", "hex", "raw")


@injected
def get(
    channel: Channel,
    seq: Annotated[str, typer.Option("--seq", help="From this sequence: 17; or a range: 17-42.")] = "",
    time: Annotated[str, typer.Option("--time", help="From this time: 1h (ago), 2026-11-22T10:00:00Z, @unix.")] = "",
    newest: Annotated[int | None, typer.Option("--newest", min=1, help="The so many newest, or all there are.")] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="So many at most; 0: to the end.")] = 0,
    shape: Annotated[str, typer.Option("--as", help=f"{', '.join(SHAPES)}.")] = "text",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with everything.")] = False,  # noqa: FBT002
    format_: Annotated[str, typer.Option("--format", help=FORMAT_HELP)] = "",
    *,
    target: Target,
) -> None:
    """Look at messages. Without options the newest; --seq alone gives one.

    --as raw writes payloads as they are, one behind the other; json prints the payload's JSON indented.
    """
    checked_channel(channel)
    if shape not in SHAPES:
        raise CliError(f"--as is one of {', '.join(SHAPES)}.", EXIT_USAGE)
    if sum(map(bool, (seq, time, newest is not None))) > 1:
        raise CliError("--seq, --time and --newest exclude each other.", EXIT_USAGE)
    time_ns = at_time("--time", time) if time else 0
    show = partial(show_message, shape="full" if as_json else shape, form=parsed_format(format_, as_json=as_json))
    range_ = _range(seq, count) if seq else MessageRange(stan_client.newest(newest or max(count, 1)), count)
    run(_get(target, channel, range_._replace(time_ns=time_ns), show))


class MessageRange(NamedTuple):
    """The messages to show."""

    start: stan_client.Start
    bound: int = 0  # so many at most; 0: all
    last: int = 0  # sequence; 0: to the end
    time_ns: int = 0  # instead of start


def _range(seq: str, count: int) -> MessageRange:
    first, dash, end = seq.partition("-")
    number = parsed("--seq", units.number, first)
    last = parsed("--seq", units.number, end) if end else 0
    if number < 1 or (end and last < number):
        raise CliError(f"--seq: {seq!r} is no sequence from 1 on, and no range of them.", EXIT_USAGE)
    alone = not dash and not count
    return MessageRange(stan_client.from_sequence(number), 1 if alone else count, number if alone else last)


async def _get(target: Target, channel: str, range_: MessageRange, show: Callable[[stan_client.Message], None]) -> int:
    shown = 0
    start, bound, last, time_ns = range_
    async with session(target) as direct:
        try:
            if time_ns:
                start = stan_client.from_sequence(await direct.channels.sequence_at(channel, time_ns))
            async for message in _messages(direct, channel, start, bound):
                if last and message.sequence > last:
                    break
                show(message)
                shown += 1
                if shown == bound:
                    break
            if not shown:
                info = (await direct.channels.info([channel])).get(channel)
                has = f"it has {info.first:,} to {info.last:,}" if info and info.first <= info.last else "it is empty"
                raise CliError(f"Channel {channel} has no such message: {has}.")
        except stan_client.ServerError as error:
            if is_unknown(error):
                raise await no_channel(direct, channel) from None
            raise
    return 0


async def _messages(
    direct: stan_client.Direct, channel: str, start: stan_client.Start, bound: int
) -> AsyncIterator[stan_client.Message]:
    """Yield messages, by one request if *bound* is 1, else of a whole channel with several requests on their way."""
    if bound == 1:
        for message in await direct.fetch(channel, start=start, count=1):
            yield message
        return
    async for message in direct.read(channel, start=start):
        yield message


def show_message(message: stan_client.Message, shape: str = "text", form: MessageFormat | None = None) -> None:
    """Write a message to stdout; *shape*: one of SHAPES, or "full", a JSON object with everything. *form* goes before it."""
    if form is not None:
        STDOUT.write(form.line(message))
        STDOUT.flush()
    elif shape == "full":
        write_json(message_document(message, {}))
    elif shape == "raw":
        STDOUT.write(message.data)
        STDOUT.flush()
    elif shape == "base64":
        write([base64.b64encode(message.data).decode()])
    elif out.is_terminal:
        when = format_time(message.timestamp_ns)
        reply = f", reply {clean(message.reply)}" if message.reply else ""
        key = f", key {clean(text_of(message.key))}" if message.key else ""
        headers = f", {counted(len(message.headers), 'header')}" if message.headers else ""
        head = f"#{message.sequence:,}  {when}  {len(message.data):,} bytes{key}{headers}{reply}"
        write([head, *(line for text in _payload(message.data, shape) for line in indented(text))])
    else:
        write(_payload(message.data, shape))


def _payload(data: bytes, shape: str) -> list[str]:
    if shape == "hex":
        return [data.hex(" ")]
    text = data.decode("utf-8", "surrogateescape")
    if shape == "json":
        try:
            return [json_text(json.loads(data), 2)]
        except ValueError:
            pass
    return [text]

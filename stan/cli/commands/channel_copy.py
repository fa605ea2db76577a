"""`stan channel copy`: the messages of a channel as new messages of another one."""

from collections.abc import Iterator
from contextlib import aclosing
from typing import Annotated

import stan_client
import typer
from stan_client.requests.names import raw
from stan_protocol.kernel.rows import columns
from stan_protocol.units import counted

from stan.cli.commands.exchange import PATIENCE_S, ImportRow, LineError, RowSender, row_room
from stan.cli.support.args import Channel, checked_channel
from stan.cli.support.common import EXIT_USAGE, CliError, Target, run
from stan.cli.support.options import injected
from stan.cli.support.progress import bar
from stan.cli.support.session import no_channel, session
from stan.cli.support.terminal import err


@injected
def copy(
    source: Channel,
    to: Annotated[str, typer.Argument(metavar="TO", help="The other channel; made if it does not exist.")],
    first: Annotated[int, typer.Option("--first", min=1, help="First sequence.")] = 1,
    last: Annotated[int, typer.Option("--last", min=0, help="Last sequence; 0: the newest.")] = 0,
    *,
    target: Target,
) -> None:
    """Copy a channel's messages behind those of another channel, with replies, keys and headers.

    They are new messages there, with new sequences and times: a backup preserves them.
    """
    for name in (source, to):
        checked_channel(name)
    if source == to:
        raise CliError("A channel is not copied into itself.", EXIT_USAGE)
    run(_copy(target, source, to, (first, last)))


async def _copy(target: Target, channel: str, to: str, span: tuple[int, int]) -> int:
    async with session(target, timeout_s=PATIENCE_S) as direct:
        status = (await direct.channels.info([channel])).get(channel)
        if status is None:
            raise await no_channel(direct, channel)
        first, last = max(span[0], status.first, 1), min(span[1] or status.last, status.last)
        sender = RowSender(direct, to, await row_room(direct, to))
        try:
            with bar("Copying", max(0, last - first + 1)) as advance:
                if first <= last:
                    async with aclosing(direct.batches.read_range(channel, first, last, uid=status.uid)) as answers:
                        async for answer in answers:
                            for row in _rows_of(answer):
                                await sender.add(row)
                            advance(answer.count)
                await sender.flush()
        except (stan_client.StanClientError, LineError) as error:
            raise CliError(f"{error}\nCopied are the first {counted(sender.stored, 'message')} at least.") from None
    err.print(f"{counted(sender.stored, 'message')} of {channel} in {to}.", markup=False, highlight=False)
    return 0


def _rows_of(answer: stan_client.Fetched) -> Iterator[ImportRow]:
    headers = columns(answer.records, answer.count, headers=True).headers or [()] * answer.count
    for message, pairs in zip(answer.messages(), headers, strict=True):
        yield ImportRow(message.data, raw(message.reply), tuple(pairs or ()), message.key)

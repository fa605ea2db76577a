"""`stan table CHANNEL`: a channel as a table, of each key the newest message; with --watch as it changes."""

import time

import stan_client
from stan_client.transport.session import text_of
from stan_protocol.units import counted, format_age

from stan.cli.support.args import Channel, checked_channel
from stan.cli.support.common import Target
from stan.cli.support.options import View, injected
from stan.cli.support.output import Table
from stan.cli.support.proto_json import message_document
from stan.cli.support.session import is_unknown, look, no_channel
from stan.cli.support.terminal import clean

DATA_CHARS = 60
"""Of the payload in a line; all of it is in --json."""


@injected
def table(channel: Channel, *, target: Target, view: View) -> None:
    """The newest message of each key of a channel, without keys that were deleted."""
    checked_channel(channel)

    async def made(direct: stan_client.Direct) -> Table:
        try:
            async with stan_client.Table(direct, channel) as table:
                return key_table(channel, table, time.time_ns())
        except stan_client.ServerError as refusal:
            if is_unknown(refusal):
                raise await no_channel(direct, channel) from None
            raise

    look(target, view, made)


def key_table(channel: str, table: stan_client.Table, now_ns: int) -> Table:
    """Return the keys and their messages, the newest one at the end."""
    rows = [
        (
            clean(text_of(key)),
            f"{message.sequence:,}",
            format_age(message.timestamp_ns, now_ns),
            clean(text_of(message.data[: 4 * DATA_CHARS]))[:DATA_CHARS],
        )
        for key, message in table.items()
    ]
    return Table(
        columns=("key", ">sequence", ">age", "data"),
        rows=rows,
        document=lambda: {
            "channel": channel,
            "sequence": table.sequence,
            "rows": [message_document(message, {}) for message in table.values()],
        },
        names=[row[0] for row in rows],
        foot=f"{counted(len(rows), 'key')}, up to message {table.sequence:,}" if rows else "",
        empty="No keys. Messages get one with stan pub CHANNEL --key KEY MESSAGE",
    )

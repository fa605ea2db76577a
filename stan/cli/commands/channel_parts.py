"""Channels with parts: made, listed, doubled, deleted, and seen as one channel among others (of `stan channel`)."""

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import stan_client
import typer
from stan_protocol.admin_types import ChannelStatus, CursorStatus, PartedStatus
from stan_protocol.parted import key_path
from stan_protocol.patterns import valid_name
from stan_protocol.units import NEVER, counted, format_age, format_size

from stan.cli.support.args import Channel, checked_channel
from stan.cli.support.common import EXIT_USAGE, CliError, Target
from stan.cli.support.options import Confirmation, View, injected
from stan.cli.support.output import Table, done
from stan.cli.support.proto_json import document_of
from stan.cli.support.session import look, on_cluster
from stan.limits import PARTS_MAX
from stan.protocol.part_status import part_of, summed_channels, summed_positions
from stan.status.groups import groups_of
from stan.status.positions import KINDS, full_name, lag, state_of, worst_of

GROUPS_SHOWN: Final = 8
"""Groups of parts that are listed one by one."""


@injected
def create(
    channel: Channel,
    count: Annotated[
        int, typer.Option("--parts", min=0, max=PARTS_MAX, help="In so many parts, by key; 0: one channel.")
    ] = 0,
    key: Annotated[
        str, typer.Option("--key", help="Where JSON data has the key of a message without one: '$.customer'.")
    ] = "",
    *,
    target: Target,
) -> None:
    """Make a channel, empty; one that is there stays as it is."""
    checked_channel(channel)
    wrong = ["--parts is 2 or more."] if count == 1 else []
    wrong += ["--key is for a channel with --parts."] if key and not count else []
    wrong += ["--key is told as $.name or $.name.name."] if key_path(key.encode()) is None else []
    if wrong:
        raise CliError("\n".join(wrong), EXIT_USAGE)

    async def main(direct: stan_client.Direct) -> None:
        if count:
            answer = await direct.admin.create_parts(channel, count, key=key)
            what = f"Channel {channel} with {count} parts, {channel}.~0 to {channel}.~{count - 1},"
        else:
            answer = await direct.admin.create_channel(channel)
            what = f"Channel {channel}"
        done(f"{what} is {'made' if answer.changed else 'there already'}.")

    on_cluster(target, main)


@injected
def double(channel: Channel, *, target: Target, confirmation: Confirmation) -> None:
    """Give a channel twice as many parts; for a few seconds publishes to it are refused."""

    async def main(direct: stan_client.Direct) -> None:
        parted = await direct.admin.parts(checked_channel(channel))
        if not parted:
            raise CliError(f"Channel {channel} has no parts: stan channel parts")
        count = parted[0].parts
        confirmation.require(
            f"Channel {channel} gets {2 * count} parts instead of {count}, for good. For a few seconds publishes to it are "
            f"refused. Half of the keys go to a new part: readers of part p read it to its end, and then part p + {count} too."
        )
        await direct.admin.double_parts(channel, count)
        done(f"Channel {channel} has {2 * count} parts.")

    on_cluster(target, main)


@injected
def parts(*, target: Target, view: View) -> None:
    """The channels that have parts."""

    async def table(direct: stan_client.Direct) -> Table:
        return parts_table(await direct.admin.parts())

    look(target, view, table)


def parts_table(channels: list[PartedStatus]) -> Table:
    """Return channels with parts, one a line."""
    return Table(
        columns=("channel", ">parts", "called", "key in JSON", "state"),
        rows=[
            (
                one.channel,
                str(one.parts),
                f"{one.channel}.~0 to ~{one.parts - 1}",
                one.key,
                "being deleted" if one.deleting else "being doubled" if one.doubling else "there",
            )
            for one in channels
        ],
        document={"channels": [document_of(one) for one in channels]},
        names=[one.channel for one in channels],
        empty="No channel has parts: stan channel create CHANNEL --parts N",
    )


async def deleted_with_parts(direct: stan_client.Direct, channel: str, confirmation: Confirmation) -> bool:
    """Delete a channel that has parts; False if this one has none."""
    parted = await direct.admin.parts(channel)
    if not parted:
        return False
    names = stan_client.part_names(channel, parted[0].parts)
    status = [one for one in await direct.admin.channels(f"{channel}.*") if one.name in names]
    confirmation.require(
        f"Removes channel {channel} for good, with its {parted[0].parts} parts: "
        f"{counted(sum(one.messages for one in status), 'message')}, "
        f"{counted(sum(one.subscriptions for one in status), 'subscription')}, "
        f"{counted(sum(one.offline for one in status), 'offline durable or group', 'offline durables and groups')}."
    )
    await direct.admin.delete_parts(channel)
    done(f"Channel {channel} is deleted, with its parts.")
    return True


# --- seen as one ------------------------------------------------------------------------------------------------------------


async def part_statuses(direct: stan_client.Direct, channel: str) -> list[ChannelStatus]:
    """The parts of a channel, by number; empty if it has none, or *channel* is a pattern."""
    if not valid_name(channel, wildcards=False):
        return []
    statuses = await direct.admin.channels(f"{channel}.*")
    ours = [one for one in statuses if part_of(one).channel == channel]
    return sorted(ours, key=lambda one: part_of(one).number)


def parts_words(name: str, parts: Sequence[ChannelStatus | CursorStatus]) -> str:
    """`orders (4 parts)`; `orders (2 of 4 parts)` if there are others."""
    every = max(part_of(one).parts for one in parts)
    return f"{name} ({every} parts)" if len(parts) == every else f"{name} ({len(parts)} of {every} parts)"


def groups_words(parts: Sequence[ChannelStatus]) -> str:
    """The groups of some parts: `1, 2, 3`."""
    numbers = sorted({one.group for one in parts})
    more = f" +{len(numbers) - GROUPS_SHOWN}" if len(numbers) > GROUPS_SHOWN else ""
    return ", ".join(map(str, numbers[:GROUPS_SHOWN])) + more


def channels_table(
    items: list[ChannelStatus],
    now_ns: int,
    by: Callable[[ChannelStatus], Any],
    *,
    with_parts: bool = False,
) -> Table:
    """Return the table of channels, the parts of one as one row, ordered by *by*; *with_parts*: and each of them below it."""

    def rows() -> list[tuple[str, ...]]:
        lines = []
        for one, its_parts in sorted(summed_channels(items), key=lambda each: by(each.total)):
            lines.append(_channel_row(one, now_ns, its_parts))
            lines += [_channel_row(part, now_ns) for part in its_parts if with_parts]
        return lines

    messages, size = sum(one.messages for one in items), sum(one.bytes for one in items)
    return Table(
        columns=(
            *("channel", ">messages", ">size", ">first", ">last", ">newest", ">subscribed", ">offline"),
            ">group",
        ),
        rows=rows,
        document=lambda: {"channels": [document_of(one) for one in items]},
        names=[one.name for one in items],
        foot=f"{counted(len(items), 'channel')}, {counted(messages, 'message')}, {format_size(size)}" if items else "",
        empty="No channels. They come with their first message or subscription: stan pub CHANNEL hello",
    )


def _channel_row(status: ChannelStatus, now_ns: int, parts: Sequence[ChannelStatus] = ()) -> tuple[str, ...]:
    """Return the row of a channel, or of the sums of *parts*, which have no common sequences."""
    name = status.name
    return (
        parts_words(name, parts) if parts else name,
        f"{status.messages:,}",
        format_size(status.bytes),
        NEVER if parts else f"{status.first_sequence:,}",
        NEVER if parts else f"{status.last_sequence:,}",
        format_age(status.last_timestamp, now_ns),
        f"{status.subscriptions:,}",
        f"{status.offline:,}",
        groups_words(parts) if parts else str(status.group),
    )


async def whole_table(direct: stan_client.Direct, parts: list[ChannelStatus]) -> Table:
    """All of a channel with parts, the leaders of its parts included."""
    name = part_of(parts[0]).channel
    statuses = await direct.admin.subscriptions(f"{name}.*")
    cursors = [one for one in statuses if part_of(one).channel == part_of(parts[0]).channel]
    leaders = {one.number: one.leader for one in groups_of(await direct.admin.nodes())}
    return _table(parts, cursors, leaders, time.time_ns())


def _table(parts: list[ChannelStatus], cursors: list[CursorStatus], leaders: dict[int, str], now_ns: int) -> Table:
    total = summed_channels(parts)[0].total
    name, every = part_of(parts[0]).channel, part_of(parts[0]).parts
    rows = [
        ("channel", name),
        ("parts", f"{every}{'' if len(parts) == every else f', of which {len(parts)} are told of'}{_doubling(parts)}"),
        ("messages", f"{total.messages:,} ({format_size(total.bytes)})"),
        ("newest", format_age(total.last_timestamp, now_ns)),
        ("subscribed", f"{total.subscriptions:,}, offline {total.offline:,}"),
    ]
    for one in parts:
        leader = leaders.get(one.group, "")
        share = f", {100 * one.messages // total.messages} %" if total.messages else ""
        where = f"group {one.group}, {f'leader {leader}' if leader else 'without a leader'}"
        what = f"{one.messages:,} messages ({format_size(one.bytes)}{share})"
        rows.append((f"~{part_of(one).number}", f"{where}: {what}, {one.first_sequence:,} to {one.last_sequence:,}"))
    positions = summed_positions(cursors)
    for cursor, of in positions:
        where = f"in {parts_words('', of).strip()[1:-1]}" if of else f"in ~{part_of(cursor).number} alone"
        state = state_of(worst_of(of or [cursor], now_ns), now_ns).word
        what = f"{state}, {cursor.waiting:,} waiting, {cursor.pending:,} unacked"
        rows.append((KINDS[cursor.kind], f"{full_name(cursor)} {where}: {what}"))
    document = {
        "channel": name,
        "parts": [document_of(one) | {"leader": leaders.get(one.group, "")} for one in parts],
        "cursors": [document_of(one) for one in cursors],
    }
    worst = max((lag(one) for one, _ in positions), default=0)
    foot = f"{counted(len(parts), 'part')}, worst lag {worst:,}" if cursors else ""
    return Table(rows=rows, document=document, names=[one.name for one in parts], foot=foot)


def _doubling(parts: list[ChannelStatus]) -> str:
    if not any(part_of(one).doubling for one in parts):
        return ""
    closed = sum(part_of(one).closed for one in parts)
    return f", being doubled: {closed} of {len(parts)} are closed"

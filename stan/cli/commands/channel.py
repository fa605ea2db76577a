"""`stan channel`: lists, settings and changes of channels. Messages and copies are in modules of their own."""

import time
from dataclasses import asdict
from typing import Annotated, Any, Final

import stan_client
import typer
from stan_protocol import units
from stan_protocol.admin_types import ChannelStatus, CursorKind, CursorStatus, Limits, PinStatus
from stan_protocol.units import counted, format_duration, format_size, format_time

from stan.cli.commands.channel_commit import commit, commit_words
from stan.cli.commands.channel_copy import copy
from stan.cli.commands.channel_messages import get
from stan.cli.commands.channel_parts import (
    channels_table,
    create,
    deleted_with_parts,
    double,
    part_statuses,
    parts,
    whole_table,
)
from stan.cli.commands.verify import verify
from stan.cli.support.args import Channel, Pattern, at_time, checked_channel, checked_pattern, parsed
from stan.cli.support.common import EXIT_USAGE, CliError, Target, group_of_commands
from stan.cli.support.options import Confirmation, View, injected
from stan.cli.support.output import Table, done, show
from stan.cli.support.proto_json import document_of
from stan.cli.support.session import look, no_channel, on_cluster
from stan.status.findings import compression_ratio, holder_of
from stan.status.positions import KINDS, full_name, lag, state_of

SORTS: Final = {
    "name": lambda one: one.name,
    "messages": lambda one: -one.messages,
    "bytes": lambda one: -one.bytes,
    "newest": lambda one: -one.last_timestamp,
    "subscriptions": lambda one: -one.subscriptions,
}
SUBS_MAX: Final = (1 << 32) - 1

app = group_of_commands("Channels: what there is, messages, limits, copies.")


# --- what there is ----------------------------------------------------------------------------------------------------------


@app.command("list")
@injected
def list_(
    pattern: Pattern = ">",
    sort: Annotated[str, typer.Option(help=f"By {', '.join(SORTS)}.")] = "name",
    empty: Annotated[bool, typer.Option("--empty", help="Only those without messages.")] = False,  # noqa: FBT002
    idle: Annotated[str, typer.Option(help="Only those without a new message for so long: 1h, 7d.")] = "",
    parts: Annotated[bool, typer.Option("--parts", help="The parts of channels below them.")] = False,  # noqa: FBT002
    *,
    target: Target,
    view: View,
) -> None:
    """Channels with their messages, age and subscriptions; of channels with parts the sums."""
    checked_pattern(pattern)
    if sort not in SORTS:
        raise CliError(f"--sort is one of {', '.join(SORTS)}.", EXIT_USAGE)
    idle_ns = parsed("--idle", units.duration_ns, idle) if idle else 0

    async def table(direct: stan_client.Direct) -> Table:
        statuses = await direct.admin.channels(pattern) or await part_statuses(direct, pattern)
        now = time.time_ns()
        statuses = [one for one in statuses if not empty or not one.messages]
        statuses = [one for one in statuses if not idle_ns or now - one.last_timestamp >= idle_ns]
        return channels_table(sorted(statuses, key=SORTS[sort]), now, SORTS[sort], with_parts=parts)

    look(target, view, table)


@app.command("show")
@injected
def show_(channel: Channel, *, target: Target, view: View) -> None:
    """One channel: messages, limits, and everybody who reads it; one with parts: its parts, and who reads them."""

    async def table(direct: stan_client.Direct) -> Table:
        parts = await part_statuses(direct, checked_channel(channel))
        if parts:
            return await whole_table(direct, parts)
        status = await status_of(direct, channel)
        return channel_table(status, await direct.admin.subscriptions(channel), time.time_ns())

    look(target, view, table)


def channel_table(status: ChannelStatus, cursors: list[CursorStatus], now_ns: int) -> Table:
    """All of one channel."""
    name = status.name
    rows = [
        ("channel", name),
        (
            "messages",
            f"{'at most ' if status.compacted_until else ''}{status.messages:,} ({format_size(status.bytes)})",
        ),
        *_compression_rows(status),
        ("first", f"{status.first_sequence:,}, {format_time(status.first_timestamp)}"),
        ("last", f"{status.last_sequence:,}, {format_time(status.last_timestamp)}"),
        ("deleted between", f"{status.deleted:,}"),
        *_compaction_rows(status),
        *([("delayed", f"{status.delayed:,}: stan delayed list")] if status.delayed else []),
        *([("time to live", format_duration(status.ttl))] if status.ttl else []),
        *_tier_rows(status),
        ("group", f"{status.group}, pinned" if status.pinned else str(status.group)),
        ("commit", commit_words(status)),
        *([("epoch", f"{status.epoch}, since {format_time(status.epoch_began)}")] if status.epoch else []),
        *limit_rows(status),
    ]
    for cursor in cursors:
        what = f"{state_of(cursor, now_ns).word}, {cursor.waiting:,} waiting, {cursor.pending:,} unacked"
        rows.append((KINDS[cursor.kind], f"{full_name(cursor)}: {what}"))
    document = {"channel": document_of(status), "cursors": [document_of(cursor) for cursor in cursors]}
    behind = max((lag(cursor) for cursor in cursors), default=0)
    return Table(rows=rows, document=document, names=[name], foot=f"Worst lag: {behind:,}" if cursors else "")


def _compaction_rows(status: ChannelStatus) -> list[tuple[str, str]]:
    """Return rows about the compaction of a channel by key, if it has one."""
    if not status.compact and not status.compacted_until:
        return []
    phrases = ("by no policy any more", "the newest message of a key stays", "the oldest message of a key stays")
    gone = f", tombstones up to {status.tombstones_until:,}" if status.tombstones_until else ""
    words = phrases[status.compact] if status.compact < len(phrases) else "in a way that this program does not know"
    done = f"done up to {status.compacted_here:,} of {status.compacted_until:,}{gone}"
    tombstones = f"up to {status.tombstone_held:,}, until {holder_of(status)} has passed them"
    return [
        ("compacted", f"{words}; {done}"),
        *([("last pass", _passes(status))] if status.compaction_ended else []),
        *([("tombstones kept", tombstones)] if status.tombstone_held else []),
    ]


def _passes(status: ChannelStatus) -> str:
    """Return the number of compaction passes over a channel, and the saved bytes, in words."""
    passes = counted(status.compaction_passes, "pass", "passes")
    saved = f"{passes} since its log was opened, {format_size(status.compaction_saved_bytes)} saved"
    return f"{format_time(status.compaction_ended)}; {saved}"


def _compression_rows(status: ChannelStatus) -> list[tuple[str, str]]:
    """Return a row about the savings of compression, if anything is compressed."""
    if not status.kept_bytes:
        return [("compressed", "by its policy; nothing is smaller yet")] if status.compress else []
    return [("compressed", f"to {format_size(status.kept_bytes)}, {compression_ratio(status):.1f} times smaller")]


def _tier_rows(status: ChannelStatus) -> list[tuple[str, str]]:
    """Return a row about the progress of a channel's tier, if it has one."""
    if not status.tier:
        return []
    where = f"has to pass {status.tier_next:,}" if status.tier_next else "is not there: no tierer has come yet"
    over = f"; {counted(status.tier_kept, 'message')} over the limits wait for it" if status.tier_kept else ""
    lost = f"; {counted(status.tier_lost, 'message')} removed before it had them" if status.tier_lost else ""
    return [("tier", f"{status.tier} {where}{over}{lost}")]


def limit_rows(status: ChannelStatus) -> list[tuple[str, str]]:
    """The limits of a channel, and which of them were edited."""
    form: dict[str, Any] = {
        "max_bytes": format_size,
        "max_age": format_duration,
        "max_inactivity": format_duration,
    }
    rows = []
    for name, value in asdict(status.limits).items():
        shown = form.get(name, "{:,}".format)(value) if value else "no limit"
        edited = " (edited)" if getattr(status.edited, name) is not None else ""
        rows.append((name.replace("_", " "), shown + edited))
    return rows


async def status_of(direct: stan_client.Direct, channel: str) -> ChannelStatus:
    """Return the status of one channel. Raises CliError: there is none, with similar names."""
    status = await direct.admin.channel(checked_channel(channel))
    if status is None:
        raise await no_channel(direct, channel)
    return status


# --- changes ----------------------------------------------------------------------------------------------------------------


@app.command("pin")
@injected
def pin(
    channel: Channel,
    *,
    group: Annotated[int, typer.Option("--group", min=1, help="Its number: stan group list.", show_default=False)],
    target: Target,
) -> None:
    """Have a channel kept in a group of your choice; one that exists in another group is moved there while it is used."""
    checked_channel(channel)

    async def main(direct: stan_client.Direct) -> None:
        answer = await direct.admin.pin_channel(channel, group)
        done(f"Channel {channel} is pinned to group {group}{'' if answer.changed else ' already'}.")
        pins = [one for one in await direct.admin.pins() if one.channel == channel]
        if any(one.exists and one.group_now != one.group for one in pins):
            done(f"It is moved from group {pins[0].group_now}: stan channel pins tells how far that is.")

    on_cluster(target, main)


@app.command("unpin")
@injected
def unpin(channel: Channel, *, target: Target) -> None:
    """Take the pin of a channel back; the channel stays where it is."""
    checked_channel(channel)

    async def main(direct: stan_client.Direct) -> None:
        answer = await direct.admin.unpin_channel(channel)
        done(f"Channel {channel} is {'no longer' if answer.changed else 'not'} pinned.")

    on_cluster(target, main)


@app.command("pins")
@injected
def pins(*, target: Target, view: View) -> None:
    """The channels that are pinned to a group."""

    async def table(direct: stan_client.Direct) -> Table:
        return pins_table(await direct.admin.pins())

    look(target, view, table)


def _pin_state(pin: PinStatus) -> str:
    if not pin.exists:
        return "not made yet"
    if pin.group_now == pin.group:
        return "there"
    return f"{'moves from' if pin.moving else 'still in'} group {pin.group_now}"


def pins_table(pins: list[PinStatus]) -> Table:
    """Return pins, one a line."""
    return Table(
        columns=("channel", ">group", "state"),
        rows=[(one.channel, str(one.group), _pin_state(one)) for one in pins],
        document={"pins": [document_of(one) for one in pins]},
        names=[one.channel for one in pins],
        empty="No channel is pinned.",
    )


@app.command("purge")
@injected
def purge(
    channel: Channel,
    seq: Annotated[str, typer.Option("--seq", help="Remove messages up to this sequence.")] = "",
    keep: Annotated[str, typer.Option("--keep", help="Remove all but so many newest.")] = "",
    before: Annotated[
        str, typer.Option("--before", help="Remove those older than: 1h, 2026-11-22T10:00:00Z, @unix.")
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="Remove all messages.")] = False,  # noqa: FBT002
    *,
    target: Target,
    confirmation: Confirmation,
) -> None:
    """Remove messages; sequences go on where they are."""
    if sum(map(bool, (seq, keep, before, everything))) != 1:
        raise CliError("Give one of --all, --seq N, --keep N, --before TIME.", EXIT_USAGE)
    up_to = parsed("--seq", units.number, seq) if seq else None
    newest = parsed("--keep", units.number, keep) if keep else 0
    time_ns = at_time("--before", before) if before else 0

    async def main(direct: stan_client.Direct) -> None:
        status = await status_of(direct, channel)
        last = await direct.channels.sequence_at(channel, time_ns) - 1 if before else up_to
        gone, words = _purged(status, last, newest)
        if not gone:
            done(f"Nothing to remove: channel {channel} has {format_messages(status)}.")
            return
        confirmation.require(
            f"Removes {words} of channel {channel} for good, of {format_messages(status)}. "
            f"Whoever has not got them will not get them.{_of_tier(status, 'them')}"
        )
        if last is None:
            answer = await direct.admin.purge(channel, keep=newest)
        else:
            answer = await direct.admin.purge(channel, up_to=last)
        done(
            f"{counted(answer.changed, 'message')} of channel {channel} removed; it has "
            f"{answer.first_sequence:,} to {answer.last_sequence:,} now."
            if answer.last_sequence >= answer.first_sequence
            else f"{counted(answer.changed, 'message')} of channel {channel} removed; it is empty."
        )

    on_cluster(target, main)


def _purged(status: ChannelStatus, last: int | None, newest: int) -> tuple[int, str]:
    """Return how many messages go at most, and in words which: those up to *last*, else all but so many *newest* ones."""
    if last is None:
        removed = max(0, status.messages - newest)
        return removed, f"the {counted(removed, 'oldest message', 'oldest messages')}" if newest else "all messages"
    last = min(last, status.last_sequence)
    removed = min(status.messages, max(0, last - status.first_sequence + 1))
    most = "at most " if status.deleted else ""
    return removed, f"{most}{counted(removed, 'message')}, {status.first_sequence:,} to {last:,},"


def _of_tier(status: ChannelStatus, what: str) -> str:
    """Sentences about the effect of a removal on the channel's tier, if it has one that has come."""
    if not status.tier or not status.tier_next:
        return ""
    return f" Its tier {status.tier} removes {what} from the lake, too, and nothing else there."


def format_messages(status: ChannelStatus) -> str:
    """Return the number and the range of the messages, in words."""
    if not status.messages:
        return "no messages"
    return f"{counted(status.messages, 'message')} ({status.first_sequence:,} to {status.last_sequence:,})"


@app.command("delete")
@injected
def delete(channel: Channel, *, target: Target, confirmation: Confirmation) -> None:
    """Remove a channel with its messages, durables and queue groups."""

    async def main(direct: stan_client.Direct) -> None:
        if await deleted_with_parts(direct, channel, confirmation):
            return
        status = await status_of(direct, channel)
        cursors = await direct.admin.subscriptions(channel)
        readers = ", ".join(full_name(one) for one in cursors[:10] if one.kind != CursorKind.PLAIN)
        confirmation.require(
            f"Removes channel {channel} for good: {format_messages(status)}, "
            f"{f'{status.delayed:,} delayed, ' if status.delayed else ''}"
            f"{counted(status.subscriptions, 'subscription')}, "
            f"{counted(status.offline, 'offline durable or group', 'offline durables and groups')}"
            f"{f' ({readers})' if readers else ''}."
        )
        await direct.admin.delete_channel(channel, uid=status.uid)
        done(f"Channel {channel} is deleted.")

    on_cluster(target, main)


@app.command("delete-message")
@injected
def delete_message(
    channel: Channel,
    sequence: Annotated[str, typer.Argument(help="Of the message.")],
    *,
    target: Target,
    confirmation: Confirmation,
) -> None:
    """Remove one message; its sequence stays unused."""
    number = parsed("SEQUENCE", units.number, sequence)

    async def main(direct: stan_client.Direct) -> None:
        status = await status_of(direct, channel)
        if not status.first_sequence <= number <= status.last_sequence:
            raise CliError(f"Channel {channel} has no message {number:,}: it has {format_messages(status)}.")
        confirmation.require(
            f"Removes message {number:,} of channel {channel} for good. Whoever has not got it will not get it."
            f"{_of_tier(status, 'it')}"
        )
        answer = await direct.admin.delete_message(channel, number)
        done(f"Message {number:,} of channel {channel} is {'deleted' if answer.changed else 'gone already'}.")

    on_cluster(target, main)


@app.command("limits")
@injected
def limits(
    channel: Channel,
    max_msgs: Annotated[str, typer.Option(help="Messages; 0: no limit.")] = "",
    max_bytes: Annotated[str, typer.Option(help="Size: 10MiB; 0: no limit.")] = "",
    max_age: Annotated[str, typer.Option(help="Age: 24h; 0: no limit.")] = "",
    max_subs: Annotated[str, typer.Option(help="Subscriptions; 0: no limit.")] = "",
    max_inactivity: Annotated[str, typer.Option(help="Deleted when unused for so long: 7d; 0: never.")] = "",
    reset: Annotated[bool, typer.Option("--reset", help="Take all edits back: as configured.")] = False,  # noqa: FBT002
    *,
    target: Target,
    view: View,
    confirmation: Confirmation,
) -> None:
    """Show a channel's limits; with options, change them without a restart."""
    edited = _edited(
        max_msgs=max_msgs, max_bytes=max_bytes, max_age=max_age, max_subs=max_subs, max_inactivity=max_inactivity
    )
    changes = {name: value for name, value in asdict(edited).items() if value is not None}

    async def main(direct: stan_client.Direct) -> None:
        status = await status_of(direct, channel)
        if changes or reset:
            sets = ", ".join(f"{name} {value:,}" for name, value in changes.items())
            what = " and ".join(filter(None, ["takes all edits back" if reset else "", f"sets {sets}" if sets else ""]))
            confirmation.require(
                f"For channel {channel}, {what}. It has {format_messages(status)} ({format_size(status.bytes)}); "
                "messages above the limits are removed for good, the oldest first."
            )
            await direct.admin.edit_limits(channel, edited, reset=reset)
            status = await status_of(direct, channel)
        document = {"channel": channel, "limits": document_of(status.limits), "edited": document_of(status.edited)}
        rows = [("channel", channel), *limit_rows(status)]
        show(Table(rows=rows, document=document, names=[channel]), View(view.json, view.names))

    on_cluster(target, main)


def _edited(**given: str) -> Limits:
    """Return the given limits. Raises CliError with all mistakes."""
    parse = {"max_bytes": units.size_bytes, "max_age": units.duration_ns, "max_inactivity": units.duration_ns}
    limits, complaints = {}, []
    for name, text in given.items():
        if text:
            try:
                limits[name] = parse.get(name, units.number)(text)
                if name == "max_subs" and limits[name] > SUBS_MAX:
                    raise ValueError(f"{text!r} is too much; 0 is no limit")
            except ValueError as error:
                complaints.append(f"--{name.replace('_', '-')}: {error}.")
    if complaints:
        raise CliError("\n".join(complaints), EXIT_USAGE)
    return Limits(**limits)


app.command("commit")(commit)
app.command("create")(create)
app.command("parts")(parts)
app.command("double")(double)
app.command("get")(get)
app.command("copy")(copy)
app.command("verify")(verify)

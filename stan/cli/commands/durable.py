"""`stan durable` and `stan queue`: the positions of durables and of queue groups; the same commands for both.

Each command looks up its position by channel and name, announces the change, and requests it from the group's leader.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Final

import stan_client
import typer
from stan_protocol import units
from stan_protocol.admin_types import CursorRef, CursorStatus
from stan_protocol.patterns import valid_name
from stan_protocol.units import counted

from stan.cli.commands.cursor_tables import cursor_table, cursors_table, why_of_parts_table, why_table
from stan.cli.commands.sub import Listening, listen
from stan.cli.commands.to_consumer import become_consumer
from stan.cli.support.args import Channel, Pattern, at_time, checked_channel, checked_pattern, parsed, sequence_runs
from stan.cli.support.common import EXIT_FAILED, EXIT_USAGE, CliError, Target, group_of_commands, run
from stan.cli.support.message_format import FORMAT_HELP, parsed_format
from stan.cli.support.options import Confirmation, View, injected
from stan.cli.support.output import Table, done
from stan.cli.support.session import look, near, no_channel, on_cluster, session
from stan.protocol.part_status import part_of
from stan.status.positions import DURABLES, QUEUES, full_name, in_vain, lag, name_of

if TYPE_CHECKING:
    from stan_client.requests.admin import CursorPlace

SORTS: Final = {
    "name": lambda one: (one.channel, full_name(one)),
    "lag": lambda one: -lag(one),
    "oldest": lambda one: one.oldest_pending or 1 << 63,
    "redelivered": lambda one: -one.redelivered,
}
OWNER_HELP: Final = "Client id of its owner, if several have a durable of this name; also CLIENT/NAME."

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the durable, or of the queue group.")]
Owner = Annotated[str, typer.Option("--client", help=OWNER_HELP)]


@dataclass(frozen=True, slots=True)
class CursorCommands:
    """The kind of positions of a set of commands."""

    word: str  # of the command line
    noun: str
    kinds: frozenset[int]

    @property
    def command(self) -> str:
        """The words before the name of a command."""
        return f"stan {self.word}"


DURABLE: Final = CursorCommands("durable", "durable", DURABLES)
QUEUE: Final = CursorCommands("queue", "queue group", QUEUES)


# --- finding one ------------------------------------------------------------------------------------------------------------


async def find_cursor(
    direct: stan_client.Direct, family: CursorCommands, channel: str, name: str, owner: str = ""
) -> CursorStatus:
    """The position that is meant. Raises CliError: there is none, with the next step, or there are several."""
    every = await direct.admin.subscriptions(checked_channel(channel))
    matching = _matching(every, family, name, owner)
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise _several(name, [full_name(one) for one in matching])
    raise await _missing(direct, family, channel, name, every)


async def in_parts(direct: stan_client.Direct, channel: str, client_id: str = "") -> list[CursorStatus]:
    """All positions in the parts of a channel; none if it has no parts, or *channel* is a pattern."""
    if not valid_name(channel, wildcards=False):
        return []
    every = await direct.admin.subscriptions(f"{channel}.*", client_id=client_id)
    return [one for one in every if part_of(one).channel == channel]


async def find_part_cursors(
    direct: stan_client.Direct, family: CursorCommands, channel: str, name: str, owner: str = ""
) -> list[CursorStatus]:
    """The positions that are meant in the parts of a channel, by part. Raises CliError: several durables are called so."""
    matching = _matching(await in_parts(direct, checked_channel(channel)), family, name, owner)
    names = sorted({full_name(one) for one in matching})
    if len(names) > 1:
        raise _several(name, names)
    return sorted(matching, key=lambda one: part_of(one).number)


def _matching(every: list[CursorStatus], family: CursorCommands, name: str, owner: str) -> list[CursorStatus]:
    ours = [one for one in every if one.kind in family.kinds and owner in ("", one.client_id)]
    matching = [one for one in ours if name in (name_of(one), full_name(one))]
    return matching or [one for one in ours if name == one.queue_group]


def _several(name: str, names: list[str]) -> CliError:
    listed = ", ".join(names[:5])
    return CliError(f"Several are called {name!r}: {listed}. Say which, as CLIENT/NAME or with --client.", EXIT_USAGE)


async def _missing(
    direct: stan_client.Direct, family: CursorCommands, channel: str, name: str, every: list[CursorStatus]
) -> CliError:
    if not every and await direct.admin.channel(channel) is None:
        parts = sorted({one.channel for one in await in_parts(direct, channel)})
        if parts:
            return CliError(
                f"Channel {channel} has parts, and {family.noun}s in them: name one of {parts[0]} to {parts[-1]}; "
                f"together: {family.command} list {channel}, {family.command} why {channel} NAME"
            )
        return await no_channel(direct, channel)
    other = QUEUE if family is DURABLE else DURABLE
    if any(one.kind in other.kinds and name in (name_of(one), full_name(one)) for one in every):
        return CliError(f"{name!r} of channel {channel} is a {other.noun}: use `{other.command}`.")
    ours = [one for one in every if one.kind in family.kinds]
    hint = near(name, [name_of(one) for one in ours]) or near(name, [full_name(one) for one in ours])
    if not hint:
        elsewhere = [
            one.channel
            for one in await direct.admin.subscriptions()
            if one.kind in family.kinds and name in (name_of(one), full_name(one))
        ]
        hint = f" There is one of channel {' and '.join(elsewhere[:3])}." if elsewhere else ""
    gone = " One that was unsubscribed is gone, with its position." if not hint else ""
    return CliError(
        f"Channel {channel} has no {family.noun} {name!r}.{hint}{gone} All of them: {family.command} list {channel}"
    )


def _on(family: CursorCommands, target: Target, channel: str, name: str, owner: str, then: "Then") -> None:
    """Run a command on the position that is meant."""

    async def main(direct: stan_client.Direct) -> None:
        await then(direct, await find_cursor(direct, family, channel, name, owner))

    on_cluster(target, main)


def _on_each(family: CursorCommands, target: Target, channel: str, name: str, owner: str, then: "ThenEach") -> None:
    """Run a command on the position that is meant, or, of a channel with parts, on those of that name in all of them."""

    async def main(direct: stan_client.Direct) -> None:
        several = await find_part_cursors(direct, family, channel, name, owner)
        await then(direct, several or [await find_cursor(direct, family, channel, name, owner)])

    on_cluster(target, main)


Then = Callable[[stan_client.Direct, CursorStatus], Awaitable[None]]
ThenEach = Callable[[stan_client.Direct, list[CursorStatus]], Awaitable[None]]


def _ref(cursor: CursorStatus) -> CursorRef:
    return CursorRef(cursor.channel, cursor_id=cursor.cursor_id)


# --- looking ----------------------------------------------------------------------------------------------------------------


def _add_list(app: typer.Typer, family: CursorCommands) -> None:
    @app.command("list")
    @injected
    def list_(
        pattern: Pattern = ">",
        sort: Annotated[str, typer.Option(help=f"By {', '.join(SORTS)}.")] = "name",
        bad: Annotated[bool, typer.Option("--bad", help="Only those for which messages wait in vain.")] = False,  # noqa: FBT002
        client: Annotated[str, typer.Option("--client", help="Only those of this client.")] = "",
        parts: Annotated[bool, typer.Option("--parts", help="Those in parts of channels, too.")] = False,  # noqa: FBT002
        *,
        target: Target,
        view: View,
    ) -> None:
        """All of them with their state, lag and window; those of one name in the parts of a channel together."""
        checked_pattern(pattern)
        if sort not in SORTS:
            raise CliError(f"--sort is one of {', '.join(SORTS)}.", EXIT_USAGE)

        async def table(direct: stan_client.Direct) -> Table:
            every = await direct.admin.subscriptions(pattern, client_id=client)
            every = every or await in_parts(direct, pattern, client)
            now = time.time_ns()
            ours = [one for one in every if one.kind in family.kinds]
            ours = [one for one in ours if not bad or in_vain(one, now)]
            return cursors_table(sorted(ours, key=SORTS[sort]), family.noun, now, SORTS[sort], with_parts=parts)

        look(target, view, table)


def _add_looking(app: typer.Typer, family: CursorCommands) -> None:
    @app.command("show")
    @injected
    def show(channel: Channel, name: Name, owner: Owner = "", *, target: Target, view: View) -> None:
        """One of them: position, window, members, what is unacked."""

        async def table(direct: stan_client.Direct) -> Table:
            cursor = await find_cursor(direct, family, channel, name, owner)
            return cursor_table(cursor, time.time_ns())

        look(target, view, table)

    @app.command("why")
    @injected
    def why(channel: Channel, name: Name, owner: Owner = "", *, target: Target, view: View) -> None:
        """Why it gets nothing, in words, and what to do about it; of a channel with parts in each of them."""

        async def table(direct: stan_client.Direct) -> Table:
            several = await find_part_cursors(direct, family, channel, name, owner)
            if len(several) > 1:
                return why_of_parts_table(several, time.time_ns())
            cursor = several[0] if several else await find_cursor(direct, family, channel, name, owner)
            return why_table(cursor, time.time_ns())

        look(target, view, table)


# --- reading ----------------------------------------------------------------------------------------------------------------


def _add_next(app: typer.Typer, family: CursorCommands) -> None:
    @app.command("next")
    @injected
    def next_(
        channel: Channel,
        name: Name,
        owner: Owner = "",
        count: Annotated[int, typer.Option("--count", "-n", min=1, help="So many at most.")] = 1,
        keep: Annotated[bool, typer.Option("--no-ack", help="Do not ack: they come again, flagged.")] = False,  # noqa: FBT002
        wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the next message.")] = 2,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,  # noqa: FBT002
        format_: Annotated[str, typer.Option("--format", help=FORMAT_HELP)] = "",
        *,
        target: Target,
    ) -> None:
        """Take the next messages as its client would, and ack them; exit code 1: none came. A durable must be offline."""
        form = parsed_format(format_, as_json=as_json)

        async def main() -> int:
            async with session(target) as direct:
                cursor = await find_cursor(direct, family, channel, name, owner)
            client_id = "" if family is QUEUE else cursor.client_id
            job = Listening(
                channel=channel,
                durable=cursor.durable_name,
                queue=cursor.queue_group,
                count=count,
                idle_s=wait,
                as_json=as_json,
                format=form,
                manual=keep,
            )
            return 0 if await listen(replace(target, client_id=client_id), job) else EXIT_FAILED

        run(main())


# --- creating ---------------------------------------------------------------------------------------------------------------


def _add_create(app: typer.Typer, family: CursorCommands) -> None:
    @app.command("create")
    @injected
    def create(
        channel: Channel,
        name: Annotated[
            str, typer.Argument(metavar="NAME", help="CLIENT/DURABLE; of a durable queue group DURABLE:GROUP.")
        ],
        at: Annotated[str, typer.Option("--at", help="The message it gets next: its sequence, first, or new.")],
        *,
        target: Target,
    ) -> None:
        """Make one before anybody subscribes, at a position: `create orders app-1/billing --at 4711`. Who subscribes with its
        name goes on there, whatever start it asks for."""
        form, separator = ("CLIENT/DURABLE", "/") if family is DURABLE else ("DURABLE:GROUP", ":")
        left, _, right = name.partition(separator)
        if not left or not right:
            raise CliError(f"NAME of a new {family.noun} is {form}.", EXIT_USAGE)
        checked_channel(channel)
        named = (
            CursorRef(channel, client_id=left, durable_name=right)
            if family is DURABLE
            else CursorRef(channel, durable_name=left, queue_group=right)
        )
        simple: dict[str, CursorPlace] = {"first": {"all": True}, "new": {"new_only": True}}
        place = simple.get(at) or {"sequence": parsed("--at", units.number, at)}

        async def main(direct: stan_client.Direct) -> None:
            await direct.admin.create_cursor(named, **place)
            step = f"{family.command} show {channel} {name}"
            done(f"{family.noun.capitalize()} {name} of channel {channel} is made. Where it is: {step}")

        on_cluster(target, main)


# --- moving -----------------------------------------------------------------------------------------------------------------


def _add_move(app: typer.Typer, family: CursorCommands) -> None:
    @app.command("move")
    @injected
    def move(
        channel: Channel,
        name: Name,
        seq: Annotated[str, typer.Option("--seq", help="The next message it gets.")] = "",
        at: Annotated[str, typer.Option("--time", help="From that time on: 2026-11-22T10:00:00Z, @unix.")] = "",
        back: Annotated[str, typer.Option("--back", help="From so long ago on: 1h, 30m, 2d.")] = "",
        new: Annotated[bool, typer.Option("--new", help="Only what comes from now on.")] = False,  # noqa: FBT002
        everything: Annotated[bool, typer.Option("--all", help="All that there is, again.")] = False,  # noqa: FBT002
        owner: Owner = "",
        *,
        target: Target,
        confirmation: Confirmation,
    ) -> None:
        """Set what it gets next: `move orders billing --back 1h` sends the last hour again. Of a channel with parts in each."""
        if sum(map(bool, (seq, at, back, new, everything))) != 1:
            raise CliError("Give one of --seq N, --time TIME, --back 1h, --new, --all.", EXIT_USAGE)
        sequence = parsed("--seq", units.number, seq) if seq else 0
        moment = _moment(at, back)

        async def place_of(direct: stan_client.Direct, cursor: CursorStatus) -> int:
            place = cursor.last_sequence + 1 if new else cursor.first_sequence if everything else sequence
            if moment:
                place = await direct.channels.sequence_at(cursor.channel, moment)
            return min(max(place, cursor.first_sequence, 1), cursor.last_sequence + 1)

        async def then(direct: stan_client.Direct, found_ones: list[CursorStatus]) -> None:
            if seq:
                _must_be_one("--seq", found_ones)
            moves = [(cursor, await place_of(direct, cursor)) for cursor in found_ones]
            confirmation.require("\n".join(_describe_move(family, cursor, place) for cursor, place in moves))
            for cursor, place in moves:
                to: CursorPlace = {"new_only": True} if new else {"all": True} if everything else {"sequence": place}
                await direct.admin.move(_ref(cursor), **to)
                done(
                    f"{family.noun.capitalize()} {full_name(cursor)} of channel {cursor.channel}: "
                    f"message {place:,} comes next."
                )

        _on_each(family, target, channel, name, owner, then)


def _add_skipping(app: typer.Typer, family: CursorCommands) -> None:
    @app.command("skip")
    @injected
    def skip(
        channel: Channel,
        name: Name,
        sequences: Annotated[list[str], typer.Argument(metavar="SEQ...", help="Messages: 17, or 17-20.")],
        owner: Owner = "",
        *,
        target: Target,
        confirmation: Confirmation,
    ) -> None:
        """Leave messages out, as if they had been acked: past one that a client cannot handle."""
        runs = sequence_runs("SEQ", sequences)

        async def then(direct: stan_client.Direct, cursor: CursorStatus) -> None:
            listed, count = ", ".join(sequences), sum(last + 1 - first for first, last in runs)
            confirmation.require(
                f"{family.noun.capitalize()} {full_name(cursor)} of channel {channel} never gets "
                f"{counted(count, 'message')} ({listed}), unless it is moved back. The messages stay in the channel."
            )
            answer = await direct.admin.skip(_ref(cursor), runs)
            done(f"{counted(answer.changed, 'message')} skipped.")

        _on(family, target, channel, name, owner, then)

    @app.command("redeliver")
    @injected
    def redeliver(
        channel: Channel,
        name: Name,
        sequences: Annotated[
            list[str] | None, typer.Argument(metavar="[SEQ...]", help="Only these: 17, or 17-20.")
        ] = None,
        owner: Owner = "",
        *,
        target: Target,
    ) -> None:
        """Send what is not acked again now, without waiting for its ack wait. Of a channel with parts in each of them."""
        runs = sequence_runs("SEQ", sequences or [])

        async def then(direct: stan_client.Direct, found_ones: list[CursorStatus]) -> None:
            if runs:
                _must_be_one("SEQ", found_ones)
            changed = sum([(await direct.admin.redeliver(_ref(cursor), runs)).changed for cursor in found_ones])
            done(f"{counted(changed, 'message')} {'is' if changed == 1 else 'are'} sent again.")

        _on_each(family, target, channel, name, owner, then)


def _moment(at: str, back: str) -> int:
    """Unix ns of --time or --back; 0 without them."""
    if back:
        return max(time.time_ns() - parsed("--back", units.duration_ns, back), 1)
    return at_time("--time", at) if at else 0


def _describe_move(family: CursorCommands, cursor: CursorStatus, sequence: int) -> str:
    now = cursor.last_sent + 1
    head = (
        f"Moves {family.noun} {full_name(cursor)} of channel {cursor.channel}: message {sequence:,} comes next, "
        f"instead of {now:,} (of {cursor.first_sequence:,} to {cursor.last_sequence:,})."
    )
    if sequence < now:
        head += f" {counted(now - sequence, 'message')} that it got {'comes' if now - sequence == 1 else 'come'} again."
    elif sequence > now:
        head += f" {counted(sequence - now, 'message')} {'is' if sequence - now == 1 else 'are'} left out."
    if cursor.pending:
        head += f" {counted(cursor.pending, 'message')} sent and not acked: those before {sequence:,} are let go of."
    return head


# --- holding and ending -------------------------------------------------------------------------------------------------------


def _add_holding(app: typer.Typer, family: CursorCommands) -> None:
    @app.command("pause")
    @injected
    def pause(channel: Channel, name: Name, owner: Owner = "", *, target: Target) -> None:
        """Send nothing until `resume`; acks count, messages are kept for it. Of a channel with parts in each of them."""

        async def then(direct: stan_client.Direct, found_ones: list[CursorStatus]) -> None:
            for cursor in found_ones:
                await direct.admin.pause(_ref(cursor))
            done(f"Paused{_in_parts(found_ones)}. Go on: {family.command} resume {channel} {full_name(found_ones[0])}")

        _on_each(family, target, channel, name, owner, then)

    @app.command("resume")
    @injected
    def resume(channel: Channel, name: Name, owner: Owner = "", *, target: Target) -> None:
        """Go on after `pause`. Of a channel with parts in each of them."""

        async def then(direct: stan_client.Direct, found_ones: list[CursorStatus]) -> None:
            for cursor in found_ones:
                await direct.admin.resume(_ref(cursor))
            waiting = sum(cursor.waiting for cursor in found_ones)
            done(f"It goes on{_in_parts(found_ones)}: {counted(waiting, 'message')} wait{'s' if waiting == 1 else ''}.")

        _on_each(family, target, channel, name, owner, then)

    @app.command("delete")
    @injected
    def delete(channel: Channel, name: Name, owner: Owner = "", *, target: Target, confirmation: Confirmation) -> None:
        """Forget it with its position; members that are online are closed. Of a channel with parts in each of them."""

        async def then(direct: stan_client.Direct, found_ones: list[CursorStatus]) -> None:
            confirmation.require("\n".join(_describe_delete(family, cursor) for cursor in found_ones))
            for cursor in found_ones:
                await direct.admin.delete_cursor(_ref(cursor))
            done(f"{family.noun.capitalize()} {full_name(found_ones[0])} is deleted{_in_parts(found_ones)}.")

        _on_each(family, target, channel, name, owner, then)


def _add_to_consumer(app: typer.Typer, family: CursorCommands) -> None:
    @app.command("to-consumer")
    @injected
    def to_consumer(
        channel: Channel,
        name: Name,
        owner: Owner = "",
        consumer: Annotated[
            str, typer.Option("--consumer", help="Name of the consumer; by default that of NAME.")
        ] = "",
        stream: Annotated[
            str,
            typer.Option("--stream", help="Name of the stream, if the channel is none yet; by default the channel's."),
        ] = "",
        *,
        target: Target,
        confirmation: Confirmation,
    ) -> None:
        """Make a consumer of JetStream clients out of it, at the same message; its STAN clients are done."""

        async def then(direct: stan_client.Direct, cursor: CursorStatus) -> None:
            new = consumer or cursor.durable_name or cursor.queue_group
            confirmation.require(
                f"{family.noun.capitalize()} {full_name(cursor)} of channel {channel} becomes consumer {new}: no STAN client can "
                f"resume it. {counted(cursor.pending, 'message')} sent and not acked go with it."
            )
            await become_consumer(direct, target, cursor, new, stream)

        _on(family, target, channel, name, owner, then)


def _must_be_one(option: str, found_ones: list[CursorStatus]) -> None:
    """Raise CliError if an *option* that names a message is given for several parts."""
    if len(found_ones) > 1:
        first, last = found_ones[0].channel, found_ones[-1].channel
        raise CliError(f"{option} is a message of one part: name one of {first} to {last}.", EXIT_USAGE)


def _in_parts(found_ones: list[CursorStatus]) -> str:
    return f" in {len(found_ones)} parts" if len(found_ones) > 1 else ""


def _describe_delete(family: CursorCommands, cursor: CursorStatus) -> str:
    return (
        f"Forgets {family.noun} {full_name(cursor)} of channel {cursor.channel} for good: its position (message "
        f"{cursor.last_sent + 1:,} would come next), {cursor.pending:,} unacked messages; "
        f"{counted(len(cursor.members), 'member')} online {'is' if len(cursor.members) == 1 else 'are'} closed. "
        "The messages stay in the channel."
    )


def _app(family: CursorCommands, text: str) -> typer.Typer:
    app = group_of_commands(text)
    for add in (_add_list, _add_looking, _add_next, _add_create, _add_move, _add_skipping):
        add(app, family)
    _add_holding(app, family)
    _add_to_consumer(app, family)
    return app


durables = _app(DURABLE, "Durables: where each is, why it gets nothing, and moving it.")
queues = _app(QUEUE, "Queue groups, durable ones as DURABLE:GROUP: where each is, why it gets nothing, and moving it.")

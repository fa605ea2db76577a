"""`stan dlq`: dead letters: messages that durables and queue groups have given up: list, redrive, remove."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Final, NamedTuple

import stan_client
import typer
from stan_client.dead_letters import DeadLetter, dead_letter
from stan_protocol import units
from stan_protocol.admin_types import ChannelStatus
from stan_protocol.units import counted, format_age, format_time

from stan.cli.commands.channel import status_of
from stan.cli.support.args import Channel, checked_channel, parsed
from stan.cli.support.common import EXIT_USAGE, CliError, Target, group_of_commands
from stan.cli.support.options import Confirmation, View, injected
from stan.cli.support.output import Table, done
from stan.cli.support.proto_json import message_document
from stan.cli.support.session import look, on_cluster
from stan.limits import REDRIVE_MESSAGES_MAX, REDRIVES_MAX

LOOKED_AT: Final = 10_000
"""Newest messages of a channel that are looked at to tell where they come from."""
PREVIEW: Final = 60
"""Characters of a payload in a table."""
STEP_S: Final = 0.2
"""Pause between two steps of putting messages back, with a rate."""

Sequence = Annotated[str, typer.Option("--sequence", metavar="N", help="Only this one, or a range: 17-42.")]
OfDurable = Annotated[
    str, typer.Option("--durable", metavar="NAME", help="Only what this durable or queue group has given up.")
]

app = group_of_commands("Dead letters: list, show, put them back (redrive), drop.")


# --- what there is --------------------------------------------------------------------------------------------------------


@app.command("list")
@injected
def list_(*, target: Target, view: View) -> None:
    """Dead letter channels, with the number of messages and where they come from."""

    async def table(direct: stan_client.Direct) -> Table:
        named = {one.policy.dead_letter or "" for one in (await direct.admin.policies()).policies}
        channels = [one for one in await direct.admin.channels() if is_dead_letter_channel(one.name, named)]
        sources = {one.name: await _sources(direct, one) for one in channels if one.messages}
        return channels_table(channels, sources)

    look(target, view, table)


def is_dead_letter_channel(channel: str, named: Iterable[str]) -> bool:
    """True if one of the names that policies have for dead letters is this channel, or its end."""
    return any(channel == name or (name.startswith(".") and channel.endswith(name)) for name in named if name)


async def _sources(direct: stan_client.Direct, status: ChannelStatus) -> Counter[str]:
    """Count the newest messages by the channel that they come from; "": they were published there."""
    sources: Counter[str] = Counter()
    first = max(status.first_sequence, status.last_sequence - LOOKED_AT + 1)
    start = stan_client.from_sequence(first)
    async for message in direct.read(status.name, start=start):
        letter = dead_letter(message)
        sources[letter.channel if letter is not None else ""] += 1
    return sources


def channels_table(channels: list[ChannelStatus], sources: dict[str, Counter[str]]) -> Table:
    """Return channels of dead letters, one a line."""
    rows, documents = [], []
    for one in channels:
        of = sources.get(one.name, Counter())
        origins = ", ".join(f"{source or 'published there'} {count:,}" for source, count in of.most_common())
        rows.append((one.name, f"{one.messages:,}", format_time(one.last_timestamp), origins))
        documents.append({"channel": one.name, "messages": one.messages, "sources": dict(of)})
    many = any(one.messages > LOOKED_AT for one in channels)
    return Table(
        columns=("channel", ">messages", "newest", "from"),
        rows=rows,
        document={"channels": documents},
        names=[one.name for one in channels],
        foot=f"Of a channel the newest {LOOKED_AT:,} were looked at." if many else "",
        empty="No dead letter channels. They come with the first dead letter: stan policy set PATTERN --dead-letter .dlq",
    )


@app.command("show")
@injected
def show(
    channel: Channel,
    sequence: Sequence = "",
    durable: OfDurable = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="The so many newest.")] = 20,
    *,
    target: Target,
    view: View,
) -> None:
    """Dead letters: where they come from, why they were given up, and how they begin. The whole payload: stan channel get."""
    checked_channel(channel)
    selection = _selection(sequence, durable)

    async def table(direct: stan_client.Direct) -> Table:
        return letters_table(channel, (await _letters(direct, channel, selection))[-count:], time.time_ns())

    look(target, view, table)


def letters_table(channel: str, letters: list[DeadLetter], now_ns: int) -> Table:
    """Return a table of dead letters, with the age of each since it was given up."""
    return Table(
        columns=(">sequence", "from", "given up by", ">deliveries", "reason", ">put back", "age", "error", "payload"),
        rows=[
            (
                f"{one.message.sequence:,}",
                f"{one.channel} {one.sequence:,}",
                one.durable,
                f"{one.deliveries:,}",
                one.reason,
                f"{one.redriven:,}",
                format_age(one.message.timestamp_ns, now_ns),
                one.error,
                _preview(one.message.data),
            )
            for one in letters
        ],
        document={"letters": [{**_document(one), **message_document(one.message, {})} for one in letters]},
        names=[str(one.message.sequence) for one in letters],
        foot=f"Put them back: stan dlq redrive {channel}" if letters else "",
        empty="No such dead letters.",
    )


def _document(letter: DeadLetter) -> dict[str, object]:
    return {
        "source": letter.channel,
        "source_sequence": letter.sequence,
        "durable": letter.durable,
        "deliveries": letter.deliveries,
        "reason": letter.reason,
        "error": letter.error,
        "redriven": letter.redriven,
    }


def _preview(data: bytes) -> str:
    text = data[: 4 * PREVIEW].decode("utf-8", "replace")
    return text if len(text) <= PREVIEW and len(data) <= 4 * PREVIEW else f"{text[:PREVIEW]}…"


# --- back and away ---------------------------------------------------------------------------------------------------------


@app.command("redrive")
@injected
def redrive(
    channel: Channel,
    sequence: Sequence = "",
    durable: OfDurable = "",
    to: Annotated[str, typer.Option("--to", metavar="CHANNEL", help="Not to where they come from.")] = "",
    rate: Annotated[float, typer.Option("--rate", min=0, help="So many a second; 0: as quickly as it goes.")] = 0,
    *,
    target: Target,
    confirmation: Confirmation,
) -> None:
    """Put dead letters back into the channel that they come from, behind its newest message, for all who read it.

    Each is moved in one step: whatever crashes, it is in one of the two channels. One that was put back three times stays.
    """
    checked_channel(channel)
    selection = _selection(sequence, durable)
    if to:
        checked_channel(to)

    async def main(direct: stan_client.Direct) -> None:
        letters = await _letters(direct, channel, selection)
        stopped = [one for one in letters if one.redriven >= REDRIVES_MAX]
        going = [one for one in letters if one.redriven < REDRIVES_MAX]
        stay = f" {counted(len(stopped), 'message')} put back {REDRIVES_MAX} times already: stay." if stopped else ""
        if not going:
            done(f"Nothing to put back.{stay}")
            return
        into = Counter(to or one.channel for one in going)
        targets = ", ".join(f"{count:,} to {name}" for name, count in into.most_common())
        confirmation.require(f"Puts {counted(len(going), 'dead letter')} of {channel} back: {targets}.{stay}")
        moved, foreign = await _redrive(direct, channel, going, to, rate)
        left = len(going) - moved
        missed = f" {counted(left, 'message')} could not be, or went meanwhile." if left else ""
        missed += (
            " Say by --to where those go that the broker has not moved there itself." if foreign and not to else ""
        )
        done(f"{counted(moved, 'dead letter')} put back.{stay}{missed}")

    on_cluster(target, main)


async def _redrive(
    direct: stan_client.Direct, channel: str, going: list[DeadLetter], to: str, rate: float
) -> tuple[int, int]:
    """Returns how many were put back, and of how many the broker does not know the channel."""
    loop = asyncio.get_running_loop()
    begun, moved, foreign, requested = loop.time(), 0, 0, 0
    most = min(REDRIVE_MESSAGES_MAX, max(1, int(rate * STEP_S))) if rate else REDRIVE_MESSAGES_MAX
    for part in _parts(going, most):
        if rate:
            await asyncio.sleep(max(0.0, begun + requested / rate - loop.time()))
        requested += len(part)
        rest, left = part, len(part) + 1
        while 0 < len(rest) < left:  # one answer is of as many as one read holds
            answer, left = await direct.admin.redrive(channel, _runs(rest), to=to), len(rest)
            moved += answer.changed
            foreign += answer.redriven.foreign
            reached = answer.redriven.next_sequence or rest[-1] + 1
            rest = [number for number in rest if number >= reached]
    return moved, foreign


def _parts(going: list[DeadLetter], most: int) -> Iterator[list[int]]:
    """Sequences, at most *most* at a time, each part of one channel."""
    by_source: dict[str, list[int]] = {}
    for one in going:
        by_source.setdefault(one.channel, []).append(one.message.sequence)
    for numbers in by_source.values():
        for at in range(0, len(numbers), most):
            yield numbers[at : at + most]


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for number in numbers:
        if out and out[-1][1] + 1 == number:
            out[-1] = out[-1][0], number
        else:
            out.append((number, number))
    return out


@app.command("drop")
@injected
def drop(
    channel: Channel,
    sequence: Sequence = "",
    durable: OfDurable = "",
    everything: Annotated[bool, typer.Option("--all", help="All messages of the channel.")] = False,  # noqa: FBT002
    *,
    target: Target,
    confirmation: Confirmation,
) -> None:
    """Remove dead letters for good."""
    if everything == bool(sequence or durable):
        raise CliError("Give --all, or --sequence, or --durable.", EXIT_USAGE)
    checked_channel(channel)
    selection = _selection(sequence, durable)

    async def main(direct: stan_client.Direct) -> None:
        status = await status_of(direct, channel)
        if everything:
            confirmation.require(f"Removes all {counted(status.messages, 'message')} of {channel} for good.")
            changed = (await direct.admin.purge(channel, up_to=status.last_sequence)).changed
        else:
            letters = await _letters(direct, channel, selection)
            if not letters:
                done("No such dead letters.")
                return
            confirmation.require(f"Removes {counted(len(letters), 'dead letter')} of {channel} for good.")
            changed = 0
            for one in letters:
                changed += (await direct.admin.delete_message(channel, one.message.sequence)).changed
        done(f"{counted(changed, 'message')} of {channel} removed.")

    on_cluster(target, main)


# --- which ----------------------------------------------------------------------------------------------------------------


class _Selection(NamedTuple):
    """A selection of dead letters of a channel."""

    first: int
    last: int  # 0: to the end
    durable: str


def _selection(sequence: str, durable: str) -> _Selection:
    if not sequence:
        return _Selection(1, 0, durable)
    first, dash, last = sequence.partition("-")
    begin = parsed("--sequence", units.number, first)
    end = parsed("--sequence", units.number, last) if dash else begin
    if not 1 <= begin <= end:
        raise CliError(f"--sequence: {sequence!r} is no sequence from 1 on, and no range of them.", EXIT_USAGE)
    return _Selection(begin, end, durable)


async def _letters(direct: stan_client.Direct, channel: str, selection: _Selection) -> list[DeadLetter]:
    """Return dead letters of a channel, the oldest first. Raises CliError: there is no such channel."""
    await status_of(direct, channel)
    letters = []
    async for message in direct.read(channel, start=stan_client.from_sequence(selection.first)):
        if selection.last and message.sequence > selection.last:
            break
        letter = dead_letter(message)
        if letter is not None and selection.durable in ("", letter.durable):
            letters.append(letter)
    return letters

"""`stan backup` and `stan restore`: channels with their sequences, times, limits and positions, in files, and back.

    backup    stream ─► positions ─► delayed messages, newest sequence ─► messages up to it, block by block ─► index, last
    restore   check the files ─► stream, channel, messages, positions, delayed messages, end, consumers, each request repeated
              until it is done; a stream that had taken its channel over comes behind the channel

Promises: a message that a saved position counts as sent is in the backup, so nothing is skipped after a restore; messages acked
during the backup may come again. A delayed message is in the backup once: as a delayed one, or in
its channel. An interrupted restore goes on when the same command is given again.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import stan_client
import typer
from stan_protocol.admin_types import (
    ChannelStatus,
    CursorKind,
    CursorStatus,
    Limits,
    RestoredRun,
    SchemaStatus,
)
from stan_protocol.patterns import matches, overlap, valid_name
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.proto.extension_pb2 import FetchResponse
from stan_protocol.records import message_of, to_pb
from stan_protocol.scalars import SECOND
from stan_protocol.units import counted

from stan.cli.commands.archive import (
    ArchiveError,
    BackupIndex,
    SavedChannel,
    Writer,
    expiries,
    policy_of,
    read_index,
    saved_delayed,
    saved_messages,
    saved_policy,
    saved_positions,
    saved_schema,
    saved_stream,
    schema_of,
    write_index,
)
from stan.cli.commands.backup_streams import put_consumers_back, put_stream_back, save_stream, with_stream
from stan.cli.support.common import EXIT_USAGE, CliError, Target, run
from stan.cli.support.options import Confirmation, View, injected
from stan.cli.support.output import Table, show
from stan.cli.support.progress import bar
from stan.cli.support.restoring import room_for_rows, row_requests
from stan.cli.support.session import session
from stan.policies import EPHEMERAL
from stan.product import VERSION

PATIENCE_S: Final = 60.0
"""The patience of one request: a leader may be replaced meanwhile."""
NAMES_SHOWN_MAX: Final = 20
"""Of channels in an error."""
TOGETHER_MAX: Final = 4
"""Channels that are read or written at once."""
EXPIRING_BYTES: Final = 24
"""Of a request for a run of messages that expire together: two sequences and a time."""
DELAYED_BYTES: Final = 36
"""Of a request for the id of a delayed message, its time, and when it expires."""
SOON: Final = 5 * SECOND
"""Delayed messages that are due by then may come while a backup is made."""
ATTEMPTS: Final = 5
ALL: Final = ">"
"""The pattern of a whole backup, which has the policies that operators have set, too."""
KEPT_KINDS: Final = (CursorKind.DURABLE, CursorKind.DURABLE_QUEUE)
"""Positions that outlive their members."""


# --- backup ---------------------------------------------------------------------------------------------------------------


@injected
def backup(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory to be made.")],
    pattern: Annotated[str, typer.Option("--channels", help="Only channels that match: orders.> for example.")] = ALL,
    *,
    target: Target,
    view: View,
) -> None:
    """Save channels with their messages, durables, queue groups and edited limits into a directory, while all goes on."""
    _checked_pattern(pattern)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise CliError(f"{directory} exists, and is not an empty directory.", EXIT_USAGE)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(f"{directory} cannot be made: {error.strerror}.") from None
    run(_backup(target, directory, pattern, view))


async def _backup(target: Target, directory: Path, pattern: str, view: View) -> int:
    async with session(target, timeout_s=PATIENCE_S) as direct:
        there = await direct.admin.channels(pattern)
        saving = [one for one in there if one.commit != EPHEMERAL]
        in_memory = [one.name for one in there if one.commit == EPHEMERAL]
        made = datetime.now(UTC).isoformat(timespec="seconds")
        index = BackupIndex(target.cluster_id, secrets.token_hex(16), made, f"stan {VERSION}")
        gone: list[str] = []
        try:
            with bar("Saving", sum(one.messages for one in saving)) as advance:

                async def save(at: int, status: ChannelStatus) -> SavedChannel | None:
                    saved = await _save(direct, directory, f"{at:06d}", status, advance)
                    if saved is None:
                        gone.append(status.name)
                    return saved

                saved = await _together(save(at, status) for at, status in enumerate(saving, 1))
            index.channels = [channel for channel in saved if channel is not None]
            index.schemas = [
                saved_schema(one)
                for one in (await direct.admin.schemas())
                if pattern == ALL or overlap(pattern, one.pattern)
            ]
            if pattern == ALL:
                index.policies = [
                    saved_policy(one) for one in (await direct.admin.policies()).policies if not one.configured
                ]
            write_index(directory, index)
        except OSError as error:
            raise CliError(f"The backup is not whole: {error}.") from None
    show(_saved_table(index, f"Saved in {directory}", gone, in_memory), view)
    return 0


async def _save(
    direct: stan_client.Direct, directory: Path, file: str, status: ChannelStatus, advance: Callable[[int], None]
) -> SavedChannel | None:
    """Save one channel; None if it was deleted meanwhile."""
    name, admin = status.name, direct.admin
    stream = await save_stream(admin, name, directory / f"{file}.stream")
    positions = [one for one in await admin.subscriptions(name) if one.kind in KEPT_KINDS]
    now = await admin.channel(name)  # after the positions: messages that they count as sent are there
    if now is None or now.uid != status.uid:
        return None
    delayed = 0
    if now.delayed:
        delayed, end = await _save_delayed(admin, name, Writer(directory / f"{file}.delayed"))
        now = await admin.channel(name)
        if now is None or now.uid != status.uid:
            return None
        now = replace(now, last_sequence=end)
    cursors = Writer(directory / f"{file}.positions")
    cursors.write(message_of(pb.SubscriptionsResponse, cursors=positions).SerializeToString())
    cursors.close()
    try:
        first, count = await _save_messages(direct, directory / f"{file}.messages", now, advance)
    except stan_client.ChannelReplacedError:
        return None
    except stan_client.ServerError as error:
        if error.code == "unknown_channel":
            return None
        raise
    edited = {name: value for name, value in asdict(now.edited).items() if value is not None}
    last = now.last_sequence
    saved = SavedChannel(name, file, now.group, first or last + 1, last, count, len(positions), edited, delayed)
    return with_stream(saved, stream)


async def _save_messages(
    direct: stan_client.Direct, path: Path, channel: ChannelStatus, advance: Callable[[int], None]
) -> tuple[int, int]:
    """Save the messages of a channel; returns the sequence of the first one, 0 if there is none, and how many there are. Raises
    ChannelReplacedError, ServerError."""
    writer, count, first = Writer(path), 0, 0
    try:
        if channel.messages and channel.first_sequence <= channel.last_sequence:
            begin = max(channel.first_sequence, 1)
            answers = direct.batches.read_range(channel.name, begin, channel.last_sequence, uid=channel.uid)
            async with aclosing(answers):
                async for answer in answers:
                    if not answer.count:
                        continue
                    first = first or answer.runs[0].first_sequence
                    writer.write(FetchResponse(runs=answer.runs, records=answer.records).SerializeToString())
                    count += answer.count
                    advance(answer.count)
    finally:
        writer.close()
    return first, count


async def _save_delayed(admin: stan_client.Admin, name: str, writer: Writer) -> tuple[int, int]:
    """Save the messages of a channel that wait for a time of their own. Returns how many, and the newest message of the channel
    at a moment when these waited, and no others that are saved."""
    due_at: dict[int, int] = {}
    try:
        after, more, now = 0, True, 0
        while more:
            page = await admin.read_delayed(name, after)
            due_at.update((one.id, one.due) for one in page.messages)
            writer.write(to_pb(pb.ReadDelayedResponse, page).SerializeToString())
            after, more, now = page.after, page.more, page.now
        for _ in range(ATTEMPTS):
            until = now + SOON
            there = await admin.read_delayed(name, until=until)
            if there.now < until:  # so messages that were not requested are still delayed
                break
            now = there.now
        else:
            raise CliError(f"The delayed messages of channel {name} become due faster than they can be saved.")
        waiting = set(there.ids)
        gone = [number for number, due in due_at.items() if due <= until and number not in waiting]
        writer.write(pb.ReadDelayedResponse(ids=gone).SerializeToString())
    finally:
        writer.close()
    return len(due_at) - len(gone), there.last_sequence


# --- restore --------------------------------------------------------------------------------------------------------------


@injected
def restore(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="What stan backup has made.")],
    pattern: Annotated[str, typer.Option("--channels", help="Only channels that match: orders.> for example.")] = ALL,
    *,
    target: Target,
    view: View,
    confirmation: Confirmation,
) -> None:
    """Put channels of a backup back, which must not exist, or be empty and without subscriptions.

    Sequences, times, durables and queue groups with what is pending are as they were. The files are checked first.
    """
    _checked_pattern(pattern)
    try:
        index = read_index(directory)
        names = [one.name for one in index.channels]
        index.channels = [one for one in index.channels if matches(pattern, one.name)]
        if pattern != ALL:
            index.policies = []
            index.schemas = [one for one in index.schemas if overlap(pattern, one.pattern)]
        if names and not index.channels:
            raise CliError(
                f"No channel of the backup matches {pattern!r}. It has: {', '.join(names[:NAMES_SHOWN_MAX])}"
            )
        with bar("Checking", sum(one.messages for one in index.channels)) as advance:
            for channel in index.channels:
                saved_positions(directory, channel)
                saved_stream(directory, channel)
                for _ in saved_delayed(directory, channel):
                    pass
                for answer in saved_messages(directory, channel):
                    advance(sum(run.count for run in answer.runs))
    except ArchiveError as error:
        raise CliError(f"Nothing was restored. {error}") from None
    messages = sum(channel.messages for channel in index.channels)
    with_policies = f" and {counted(len(index.policies), 'policy', 'policies')}" if index.policies else ""
    confirmation.require(
        f"Restores {counted(len(index.channels), 'channel')} with {counted(messages, 'message')} of the backup of cluster "
        f"{index.cluster_id} from {index.made}{with_policies} into cluster {target.cluster_id} at {target.server}."
    )
    run(_restore(target, directory, index, view))


async def _restore(target: Target, directory: Path, index: BackupIndex, view: View) -> int:
    async with session(target, timeout_s=PATIENCE_S) as direct:
        payload_max = await direct.channels.message_bytes_max()
        await _put_schemas_back(direct, index)
        await _put_policies_back(direct, index)
        without_stream: list[str] = []
        with bar("Restoring", sum(one.messages for one in index.channels)) as advance:

            async def put_back(channel: SavedChannel) -> None:
                try:
                    if not await _put_back(direct, directory, index.backup, channel, payload_max, advance):
                        without_stream.append(channel.name)
                except stan_client.ServerError as error:
                    raise CliError(
                        f"Channel {channel.name} was not restored: {error}. Channels before it are whole; the same command "
                        "goes on once the reason is gone."
                    ) from None
                except ArchiveError as error:
                    raise CliError(f"Channel {channel.name} was not restored: {error}") from None

            await _together(put_back(channel) for channel in index.channels)
    show(_saved_table(index, "Restored", [], [], without_stream), view)
    return 0


async def _put_schemas_back(direct: stan_client.Direct, index: BackupIndex) -> None:
    """Register the schemas of the time of the backup, under their numbers, as messages name these; before the
    messages come. Where a number is that of another text by now, nothing is restored."""
    there = {(one.pattern, one.schema_version): one for one in await direct.admin.schemas()} if index.schemas else {}
    missing: list[SchemaStatus] = []
    for one in map(schema_of, index.schemas):
        known = there.get((one.pattern, one.schema_version))
        if known is None:
            missing.append(one)
        elif (known.kind, known.text, known.message) != (one.kind, one.text, one.message):
            raise CliError(
                f"Nothing was restored. Version {one.schema_version} of the schema of {one.pattern} is another one "
                "here, and messages of the backup name it."
            )
    for one in missing:
        try:
            await direct.admin.add_schema(
                one.pattern,
                one.text,
                one.kind,
                message=one.message,
                compatibility=one.compatibility,
                version=one.schema_version,
            )
        except stan_client.ServerError as error:
            raise CliError(f"The schema of {one.pattern} was not restored, and nothing else: {error}.") from None


async def _put_policies_back(direct: stan_client.Direct, index: BackupIndex) -> None:
    """Set the policies that were set when the backup was made; where another one is set by now, that stays. They come before the
    messages, so that nothing is delivered without them."""
    there = (await direct.admin.policies()).policies if index.policies else []
    set_now = {(one.pattern, one.name) for one in there if not one.configured}
    for one in index.policies:
        if (one.pattern, one.name) not in set_now:
            await direct.admin.set_policy(one.pattern, policy_of(one), name=one.name)


async def _put_back(
    direct: stan_client.Direct,
    directory: Path,
    backup_name: str,
    channel: SavedChannel,
    payload_max: int,
    advance: Callable[[int], None],
) -> bool:
    """Restore one channel; False: without its stream, as the servers have no clients of JetStream. Raises ServerError,
    ArchiveError."""
    admin, name = direct.admin, channel.name
    described, whole = saved_stream(directory, channel), True
    if described is not None and not channel.adopted:  # it makes the channel
        whole = await put_stream_back(admin, name, described)
    await admin.restore_channel(name, backup_name, channel.first_sequence, Limits(**channel.limits))
    if described is not None and channel.adopted:
        whole = await put_stream_back(admin, name, described)
    positions = saved_positions(directory, channel)
    await _put_contents_back(
        direct, directory, backup_name, channel, positions, room_for_rows(payload_max, name), advance
    )
    if described is not None and whole:
        await put_consumers_back(admin, name, described, positions)
    return whole


async def _put_contents_back(
    direct: stan_client.Direct,
    directory: Path,
    backup_name: str,
    channel: SavedChannel,
    positions: Sequence[CursorStatus],
    room: int,
    advance: Callable[[int], None],
) -> None:
    """Put everything into a channel whose restore has begun, and end that. Raises ServerError, ArchiveError."""
    admin, name = direct.admin, channel.name
    for answer in saved_messages(directory, channel):
        for one in _requests(answer, room):
            runs, expire_at = one.expiring_runs, one.expire_at
            await admin.restore_rows(name, backup_name, one.runs, one.rows, expiring_runs=runs, expire_at=expire_at)
            advance(sum(run.count for run in one.runs))
    for position in positions:
        await admin.restore_cursor(name, backup_name, position)
    for messages, bodies in saved_delayed(directory, channel):
        for first, last in _parts_of(bodies, room):
            await admin.restore_delayed(name, backup_name, messages[first:last], b"".join(bodies[first:last]))
    await admin.restore_end(name, backup_name, channel.last_sequence)


class _Rows(NamedTuple):
    """The fields of a request that put messages back."""

    runs: list[RestoredRun]
    rows: bytes
    expiring_runs: list[tuple[int, int]]  # of sequences
    expire_at: list[int]  # Unix seconds, one for each run of these


def _requests(answer: FetchResponse, room: int) -> Iterator[_Rows]:
    """The messages of an answer as runs and rows that fit into *room* bytes."""
    times = expiries(answer)
    runs = [RestoredRun(first_sequence=r.first_sequence, count=r.count, timestamp=r.timestamp) for r in answer.runs]
    for one in row_requests(runs, answer.records, room, EXPIRING_BYTES if times else 0):
        yield _Rows(one.runs, one.rows, *_expiring(one.runs, times[one.first : one.first + one.size]))


def _expiring(runs: list[RestoredRun], times: list[int]) -> tuple[list[tuple[int, int]], list[int]]:
    """The runs of messages that expire together, and when; *times*: of each message of *runs*, 0: it does not expire."""
    sequences = chain.from_iterable(range(run.first_sequence, run.first_sequence + run.count) for run in runs)
    expiring: list[tuple[int, int]] = []
    expire_at: list[int] = []
    for sequence, at in zip(sequences, times, strict=False):  # no times at all: none expires
        if not at:
            continue
        if expire_at and expire_at[-1] == at and expiring[-1][1] == sequence - 1:
            expiring[-1] = expiring[-1][0], sequence
        else:
            expiring.append((sequence, sequence))
            expire_at.append(at)
    return expiring, expire_at


def _parts_of(rows: list[bytes], room: int) -> Iterator[tuple[int, int]]:
    """Parts of *rows* that fit into *room* bytes, each [first, end)."""
    first, size = 0, 0
    for at, row in enumerate(rows):
        weight = len(row) + DELAYED_BYTES
        if at > first and size + weight > room:
            yield first, at
            first, size = at, 0
        size += weight
    yield first, len(rows)


# --- both -------------------------------------------------------------------------------------------------------------------


def _checked_pattern(pattern: str) -> None:
    if not valid_name(pattern, wildcards=True):
        raise CliError(f"--channels: {pattern!r} is no name or pattern of channels.", EXIT_USAGE)


async def _together(work: Iterator[Awaitable[Any]]) -> list[Any]:
    """Return the results of all, in order, some at once; the first failure ends the others."""
    room = asyncio.Semaphore(TOGETHER_MAX)

    async def limited(job: Awaitable[Any]) -> Any:
        async with room:
            return await job

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(limited(job)) for job in work]
    except ExceptionGroup as failed:  # not `except*`: early Pythons 3.11 put its error into a group again
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def _saved_table(
    index: BackupIndex, head: str, deleted: list[str], in_memory: list[str], without_stream: Sequence[str] = ()
) -> Table:
    """Return the saved or restored channels, one a line."""
    rows = [
        (one.name, f"{one.messages:,}", f"{one.first_sequence:,}", f"{one.last_sequence:,}", f"{one.positions:,}")
        for one in index.channels
    ]
    messages = sum(one.messages for one in index.channels)
    delayed = sum(one.delayed for one in index.channels)
    waiting = f", {counted(delayed, 'delayed message')}" if delayed else ""
    foot = f"{head}: {counted(len(rows), 'channel')}, {counted(messages, 'message')}{waiting}."
    if deleted:
        foot += f" Deleted meanwhile: {', '.join(deleted)}."
    if in_memory:
        foot += f" Left out, as their messages are in the memory of one node: {', '.join(in_memory)}."
    if without_stream:
        foot += f" Without their streams and consumers, as jetstream_api is off: {', '.join(sorted(without_stream))}."
    return Table(
        columns=("channel", ">messages", ">first", ">last", ">durables and groups"),
        rows=rows,
        document={
            "cluster_id": index.cluster_id,
            "made": index.made,
            "messages": messages,
            "policies": len(index.policies),
            "schemas": len(index.schemas),
            "channels": [
                {
                    "name": one.name,
                    "messages": one.messages,
                    "first_sequence": one.first_sequence,
                    "last_sequence": one.last_sequence,
                    "positions": one.positions,
                    "delayed": one.delayed,
                    "stream": one.stream,
                    "consumers": one.consumers,
                }
                for one in index.channels
            ],
            "deleted_meanwhile": deleted,
            "ephemeral": in_memory,
            "without_stream": sorted(without_stream),
        },
        names=[one.name for one in index.channels],
        foot=foot,
        empty="",
    )

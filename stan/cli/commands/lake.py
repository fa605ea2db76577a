"""`stan lake`: old messages of channels, as Parquet files in a lake: run the tierer, list, files, moved, delete."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import stan_client
import stan_lake
import typer
from stan_protocol import units
from stan_protocol.scalars import SECOND, MiB
from stan_protocol.units import counted, format_size, format_time

from stan.cli.support.args import Channel, checked_channel, checked_pattern, parsed, sequence_runs
from stan.cli.support.common import EXIT_FAILED, EXIT_USAGE, CliError, Target, group_of_commands, run, stop_on_signals
from stan.cli.support.options import Confirmation, View, injected
from stan.cli.support.output import Table, done, show
from stan.cli.support.session import session
from stan.cli.support.terminal import clean, err

app = group_of_commands("A lake beside the broker: run the tierer, list, files, moved, delete.")

ROUND_S: Final = 2.0
"""Pause between two looks at the channels."""
TARGET_MIN: Final = MiB
NAME: Final = "lake"
RUNS_MAX: Final = 1_000
"""Sequences and ranges of one `delete`."""

T = TypeVar("T")

Lake = Annotated[str, typer.Argument(metavar="LAKE", help="A directory, or a URL: s3://bucket/prefix, gs://…, az://….")]


def in_lake(work: Callable[[], T]) -> T:
    """The result of *work* on a lake. Raises CliError: the lake cannot be read, or the packages for it are not there."""
    try:
        return work()
    except ImportError as error:
        raise CliError(
            f"A lake needs more packages ({error}): pip install pyarrow obstore pyiceberg", EXIT_USAGE
        ) from None
    except (OSError, stan_lake.LakeError) as error:
        raise CliError(f"{error}.") from None


@app.command("run")
@injected
def run_(
    lake: Lake,
    patterns: Annotated[
        list[str], typer.Argument(metavar="PATTERN...", help="Channels: `*` is any one token, `>` the rest.")
    ],
    name: Annotated[str, typer.Option("--name", help="Of its position in the broker, for the policy `tier`.")] = NAME,
    file_size: Annotated[str, typer.Option("--file-size", help="Messages in one file, before compression.")] = "128MiB",
    age: Annotated[str, typer.Option("--age", help="Messages that are older make a file, even a small one.")] = "15m",
    once: Annotated[bool, typer.Option("--once", help="Move everything that is there now, and end.")] = False,  # noqa: FBT002
    *,
    target: Target,
) -> None:
    """Move messages of channels into the lake, until it is interrupted. Kill it when you like: it goes on where it was.

    One tierer a channel: the one that was started last takes the channels over, earlier ones leave them to it.
    """
    given = [checked_pattern(pattern) for pattern in patterns]
    size = parsed("--file-size", units.size_bytes, file_size)
    if size < TARGET_MIN:
        raise CliError(f"--file-size: {file_size} is less than {format_size(TARGET_MIN)}.", EXIT_USAGE)
    age_ns = parsed("--age", units.duration_ns, age)
    run(_run(target, lake, given, {"name": name, "target_bytes": size, "age_s": age_ns / SECOND}, once=once))


async def _run(target: Target, lake: str, patterns: list[str], settings: dict[str, Any], *, once: bool) -> int:
    store = in_lake(lambda: stan_lake.open_store(lake))
    stop = asyncio.Event()
    stop_on_signals(stop)
    async with session(target) as direct:
        tiering = in_lake(lambda: _tiering(store, direct, settings))
        if not once:
            done(
                f"Moving messages of {', '.join(patterns)} to {lake}; the position in the broker is {settings['name']}."
            )
        while not stop.is_set():
            well = False
            try:
                _, well = await tiering.round(await _channels(direct, patterns), all_of_it=once)
            except stan_client.StanClientError as error:
                _note("the broker", str(error))
            if once:
                return 0 if well else EXIT_FAILED
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), ROUND_S)
    return 0


def _tiering(store: stan_lake.Store, direct: stan_client.Direct, settings: dict[str, Any]) -> Any:
    from stan_lake.tierer import TierSettings  # noqa: PLC0415 - needs pyarrow, which the other commands do without
    from stan_lake.tiering import Tiering  # noqa: PLC0415

    return Tiering(store, direct, TierSettings(**settings), _note)


async def _channels(direct: stan_client.Direct, patterns: list[str]) -> dict[str, stan_client.ChannelInfo]:
    infos: dict[str, stan_client.ChannelInfo] = {}
    for pattern in patterns:
        infos |= await direct.channels.info(pattern=pattern)
    return infos


def _note(what: str, text: str) -> None:
    err.print(
        f"{format_time(time.time_ns())} {clean(what)}: {clean(text)}", markup=False, highlight=False, soft_wrap=True
    )


@app.command("list")
@injected
def list_(lake: Lake, *, view: View) -> None:
    """Which channels a lake has, and up to where. Asks the lake alone, no broker."""
    show(in_lake(lambda: _listed(lake)), view)


def _listed(lake: str) -> Table:
    manifests = [table.manifest() for table in _tables(lake)]
    rows = [
        (
            clean(one.channel),
            str(one.uid),
            f"{one.first:,}",
            f"{one.next:,}",
            f"{sum(file.rows for file in one.files):,}",
            str(len(one.files)),
            format_size(sum(file.bytes for file in one.files)),
        )
        for one in manifests
    ]
    return Table(
        ("CHANNEL", ">UID", ">FIRST", ">NEXT", ">MESSAGES", ">FILES", ">SIZE"),
        rows,
        {"tables": [_document(one) for one in manifests]},
        [one.channel for one in manifests],
        empty="No tables. stan lake run LAKE PATTERN fills them.",
    )


def _tables(lake: str) -> list[stan_lake.LakeTable]:
    store = stan_lake.open_store(lake)
    return [
        stan_lake.LakeTable(store, channel, uid)
        for channel in stan_lake.channels(store)
        for uid in stan_lake.incarnations(store, channel)
    ]


@app.command("moved")
@injected
def moved(lake: Lake) -> None:
    """Write the place of a lake that was moved or copied into its Iceberg tables. Asks the lake alone, no broker."""
    tables = in_lake(lambda: _tables(lake))
    for table in tables:
        in_lake(lambda: table.release(table.take_over()))  # noqa: B023 - called at once
    done(f"{counted(len(tables), 'table')} of {lake} written.")


def _document(manifest: stan_lake.TableManifest) -> dict[str, Any]:
    return {
        "channel": manifest.channel,
        "uid": manifest.uid,
        "first": manifest.first,
        "next": manifest.next,
        "messages": sum(file.rows for file in manifest.files),
        "files": len(manifest.files),
        "bytes": sum(file.bytes for file in manifest.files),
        "missing": [list(run) for run in manifest.missing],
        "version": manifest.version,
    }


@app.command("files")
@injected
def files(
    lake: Lake,
    channel: Channel,
    uid: Annotated[int, typer.Option("--uid", help="Of an earlier channel of this name; 0: the newest one.")] = 0,
    *,
    view: View,
) -> None:
    """The files of a channel, for other programs: with --names one path a line. Asks the lake alone, no broker."""
    checked_channel(channel)
    show(in_lake(lambda: _files(lake, channel, uid)), view)


def _files(lake: str, channel: str, uid: int) -> Table:
    store = stan_lake.open_store(lake)
    table = _table(store, lake, channel, uid)
    files = table.manifest().files
    places = [store.location(table.path(file.name)) for file in files]
    return Table(
        (">FIRST", ">LAST", ">MESSAGES", ">SIZE", "FROM", "FILE"),
        [
            (
                f"{file.first:,}",
                f"{file.last:,}",
                f"{file.rows:,}",
                format_size(file.bytes),
                format_time(file.first_time_ns),
                place,
            )
            for file, place in zip(files, places, strict=True)
        ],
        {
            "channel": channel,
            "files": [
                {"file": place, "first": file.first, "last": file.last, "messages": file.rows, "bytes": file.bytes}
                for file, place in zip(files, places, strict=True)
            ],
        },
        places,
        foot=f"{counted(len(files), 'file')}.",
        empty="No files.",
    )


def _table(store: stan_lake.Store, lake: str, channel: str, uid: int) -> stan_lake.LakeTable:
    """The table of a channel; *uid*: 0: of the newest one of that name. Raises CliError: there is none."""
    known = stan_lake.incarnations(store, channel)
    if not known or (uid and uid not in known):
        raise CliError(f"The lake has no such table of channel {channel!r}: stan lake list {lake}")
    return stan_lake.LakeTable(store, channel, uid or known[-1])


@app.command("delete")
@injected
def delete(
    lake: Lake,
    channel: Channel,
    sequences: Annotated[
        list[str] | None, typer.Argument(metavar="[SEQ...]", help="These messages: 17, or 17-20.")
    ] = None,
    uid: Annotated[int, typer.Option("--uid", help="Of an earlier channel of this name; 0: the newest one.")] = 0,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All messages that the lake has of it.")] = False,
    table: Annotated[
        bool, typer.Option("--table", help="All messages and the table: only of a channel that the broker has no more.")
    ] = False,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="Remove replaced files now, not in an hour: queries that have begun fail.")
    ] = False,
    confirmation: Confirmation,
) -> None:
    """Delete messages from the lake that the broker knows nothing of any more. Asks the lake alone, no broker.

    What the broker still has stays there: stan channel delete-message and purge, which reach the lake with the policy tier.
    """
    checked_channel(channel)
    runs = sequence_runs("SEQ", sequences or [])
    if (bool(runs) + everything + table) != 1:
        raise CliError("Give sequences, or --all, or --table.", EXIT_USAGE)
    if len(runs) > RUNS_MAX:
        raise CliError(f"SEQ: {len(runs):,} of them; at most {RUNS_MAX:,}.", EXIT_USAGE)
    if table and not uid:
        raise CliError("--table: --uid has to say which one: stan lake list.", EXIT_USAGE)
    store = in_lake(lambda: stan_lake.open_store(lake))
    lake_table = in_lake(lambda: _table(store, lake, channel, uid))
    manifest = in_lake(lake_table.manifest)
    beyond = [f"{last:,}" for _, last in runs if last >= manifest.next]
    if beyond:
        raise CliError(
            f"SEQ: the lake has channel {channel} up to {manifest.next - 1:,}; not {', '.join(beyond)}.", EXIT_USAGE
        )
    which = f"the messages {', '.join(sequences)}" if sequences else "all messages"
    confirmation.require(
        f"Deletes {which} of channel {channel} (uid {lake_table.uid}) from {lake}"
        f"{', and the table' if table else ''}; of {manifest.first:,} to {manifest.next - 1:,}. It cannot be undone."
    )
    done(in_lake(lambda: _deleted(lake_table, runs or [(1, manifest.next)], table=table, at_once=at_once)))


def _deleted(lake_table: stan_lake.LakeTable, runs: list[tuple[int, int]], *, table: bool, at_once: bool) -> str:
    from stan_lake import removal  # noqa: PLC0415 - needs pyarrow

    if table:
        return f"{counted(removal.drop(lake_table), 'message')} deleted, and the table."
    deleted = removal.delete(lake_table, runs, int(time.time()), at_once=at_once)
    return f"{counted(deleted.messages, 'message')} deleted, {counted(deleted.files, 'file')} replaced or removed."

"""`stan migrate`: moves the store of another server into a new data directory of ours, or into running servers.

Promises: the old store is only read, and nothing is moved while its server seems to run. Exit code 0: everything is moved;
5: moved, but something was damaged or missing, and is reported by file and offset, or by table and key; 1: nothing is moved, the
new directory is no store, and no channel in the servers can be used.
"""

import asyncio
import inspect
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import stan_client
import typer
from rich.markup import escape
from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table
from stan_protocol.scalars import SECOND
from stan_protocol.secure import without_secrets

from stan import limits
from stan.cli.commands.old_server import check_server
from stan.cli.commands.running_target import RunningTarget
from stan.cli.support.common import (
    DEFAULT_CLUSTER_ID,
    DEFAULT_SERVER,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    CliError,
    Target,
    fail,
    group_of_commands,
)
from stan.cli.support.options import builds, injected, target_of
from stan.cli.support.progress import bars
from stan.cli.support.terminal import out, write_json
from stan.config import RAFT_GROUPS_ALONE
from stan.errors import StanError, StartError
from stan.migration.crypto import CIPHERS
from stan.migration.file_stores import file_stores
from stan.migration.moving import move
from stan.migration.plan import MigrationPlan, OpenSource, nobody_asked
from stan.migration.report import ChannelReport, MigrationReport
from stan.migration.sqlstore.store import sql_store

EXIT_INCOMPLETE: Final = 5
PROBLEMS_SHOWN: Final = 20

app = group_of_commands("Move in from another server.")


@app.callback()
def migrate() -> None:
    """Move in from another server."""


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers that a store is moved into."""

    target: Target
    named: bool  # by an option, not by the environment alone
    given: bool  # by either
    cluster_id: str  # that was given; "": that of the store


def servers_of(**options: Any) -> Servers:
    """Return the servers that the options of a connection name."""
    ways = {name: options[name] for name in ("server", "context") if options[name]}
    named = any(value != os.environ.get(f"STAN_{name.upper()}") for name, value in ways.items())
    target = target_of(**options)
    from_context = target.cluster_id if target.cluster_id != DEFAULT_CLUSTER_ID else ""
    return Servers(target, named, bool(ways), options["cluster_id"] or from_context)


servers_of.__signature__ = inspect.signature(target_of)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """The options of a move, whatever is moved."""

    to: Path | None
    dry_run: bool
    as_json: bool
    key: bytes
    plain: bool
    raft_groups: int
    old_server: str
    without_durables: bool
    stopped: bool


def moving_of(
    to: Annotated[Path | None, typer.Option("--to", metavar="NEWDIR", help="Directory to be made.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only look and report.")] = False,  # noqa: FBT002
    as_json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,  # noqa: FBT002
    encryption_key: Annotated[
        str,
        typer.Option(envvar="NATS_STREAMING_ENCRYPTION_KEY", show_envvar=True, help="Key of an encrypted store."),
    ] = "",
    encryption_cipher: Annotated[
        str, typer.Option(help="AES or CHACHA, as the old server had it; each message tells its own.")
    ] = "",
    plain: Annotated[bool, typer.Option("--plain", help="Nothing is encrypted, even if it looks so.")] = False,  # noqa: FBT002
    raft_groups: Annotated[
        int, typer.Option(min=1, max=limits.RAFT_GROUPS_MAX, help="The --raft_groups of a server on NEWDIR.")
    ] = RAFT_GROUPS_ALONE,
    old_server: Annotated[
        str,
        typer.Option(
            help=f"NATS of the old server, to ask whether that still answers; with --to it is {DEFAULT_SERVER} if not given."
        ),
    ] = "",
    without_durables: Annotated[  # noqa: FBT002
        bool,
        typer.Option(
            "--without-durables", help="Move the messages of one node of a cluster whose Raft log is not there."
        ),
    ] = False,
    stopped: Annotated[bool, typer.Option("--stopped", help="The old server is stopped for sure.")] = False,  # noqa: FBT002
) -> Moving:
    """See Moving."""
    if encryption_cipher and encryption_cipher.upper() not in CIPHERS:
        raise CliError("encryption cipher not supported", EXIT_USAGE)
    return Moving(
        to=to,
        dry_run=dry_run,
        as_json=as_json,
        key=(os.environ.get("NATS_STREAMING_ENCRYPTION_KEY") or encryption_key).encode(),
        plain=plain,
        raft_groups=raft_groups,
        old_server=old_server,
        without_durables=without_durables,
        stopped=stopped,
    )


builds(servers_of, Servers)
builds(moving_of, Moving)


@app.command("stan-filestore")
@injected
def stan_filestore(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR", help="The --dir of the old server, which is stopped; of a cluster, of its nodes."
        ),
    ],
    raft: Annotated[
        list[Path] | None,
        typer.Option(
            "--raft", metavar="DIR", help="The --cluster_log_path of a node, once for each DIR, if it is not found."
        ),
    ] = None,
    *,
    moving: Moving,
    servers: Servers,
) -> None:
    """Read the FILE store of a stopped NATS Streaming Server, plain or encrypted, into a new data directory or running servers.

    Sequences, timestamps, durables and queue groups with their pending messages stay as they are. Give one of --to, --server (the
    new one, alone or a cluster) and --dry-run.
    Of a cluster give the directories of a majority of its nodes: then all that it has acknowledged is moved.
    """
    _run(file_stores(directories, raft or ()), moving, servers)


@app.command("stan-sqlstore")
@injected
def stan_sqlstore(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="postgres://USER@HOST:PORT/DATABASE or mysql://USER@HOST:PORT/DATABASE; no password."
        ),
    ],
    password_file: Annotated[
        Path | None, typer.Option("--password-file", help="File with the password of the database, and nothing else.")
    ] = None,
    *,
    moving: Moving,
    servers: Servers,
) -> None:
    """Read the SQL store of a stopped NATS Streaming Server in PostgreSQL, MariaDB or MySQL, plain or encrypted, in place.

    Otherwise as stan-filestore: give one of --to, --server and --dry-run.
    """
    try:
        password = password_file.read_text().rstrip("\r\n") if password_file is not None else ""
        source = sql_store(url, password)
    except (OSError, UnicodeError, StartError) as error:
        raise CliError(str(error), EXIT_USAGE) from None
    _run(source, moving, servers)


def _run(source: OpenSource, moving: Moving, servers: Servers) -> None:
    """Move a store, report, and leave."""
    into_servers = servers.named or (servers.given and moving.to is None and not moving.dry_run)
    if (moving.to is not None) + moving.dry_run + into_servers != 1:
        raise CliError("give one of --to NEWDIR, --server URL and --dry-run", EXIT_USAGE)

    def open_servers(report: MigrationReport) -> RunningTarget:
        target = replace(servers.target, cluster_id=servers.cluster_id or report.cluster_id)
        return RunningTarget(target, f"{report.cluster_id} {report.source}")

    old_server = moving.old_server or ("" if into_servers else DEFAULT_SERVER)
    plan = MigrationPlan(
        source=source,
        target=open_servers if into_servers else moving.to,
        key=moving.key,
        plain=moving.plain,
        cluster_id=servers.cluster_id,
        raft_groups=moving.raft_groups,
        without_durables=moving.without_durables,
        stopped=moving.stopped,
        watch_s=limits.MIGRATION_WATCH / SECOND,
        ask=(lambda name: asyncio.run(check_server(old_server, name))) if old_server else nobody_asked,
    )
    try:
        report = _move(plan)
    except (StanError, stan_client.StanClientError, OSError) as error:
        fail(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        state = "the channels cannot be used yet" if into_servers else "the new directory is not a store"
        begins = "goes on" if into_servers else "begins again"
        fail(f"Interrupted; {state}. The same command {begins}.", EXIT_INTERRUPTED)
    if moving.as_json:
        write_json(_facts(report), 2)
    else:
        _show(report, moving, servers if into_servers else None)
    raise typer.Exit(EXIT_INCOMPLETE if report.problem_count else 0)


def _move(plan: MigrationPlan) -> MigrationReport:
    """Do it, with a bar on a terminal."""
    with bars(DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("Reading" if plan.target is None else "Moving", total=None)
        return move(plan, lambda total: bar.update(task, total=total or None), lambda size: bar.advance(task, size))


def _facts(report: MigrationReport) -> dict[str, object]:
    document = asdict(report)
    for name, problems in (("problems", report.problems), ("hints", report.hints)):
        document[name] = [problem.document() for problem in problems]
    return document


def _show(report: MigrationReport, moving: Moving, servers: Servers | None) -> None:
    table = Table(title=f"{escape(report.source)}, cluster id {escape(report.cluster_id) or 'unknown'}")
    for title in ("channel", "messages", "first", "last", "bytes", "durables and groups", "problems"):
        right = title not in ("channel", "durables and groups")
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    for channel in report.channels:
        numbers = (channel.messages, channel.first, channel.last, channel.bytes)
        cells = [f"{number:,}" for number in numbers]
        trouble = str(channel.problems or "")
        table.add_row(escape(channel.name), *cells, escape(_positions(channel)), trouble)
    out.print(table)
    for note in report.notes:
        out.print(f"Note: {note}.", markup=False, highlight=False, soft_wrap=True)
    for style, mark, problems in (("dim", "Costs nothing: ", report.hints), ("yellow", "", report.problems)):
        for problem in problems[:PROBLEMS_SHOWN]:
            text = f"{mark}{problem.place}: {problem.text}"
            out.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
    untold = report.problem_count - len(report.problems[:PROBLEMS_SHOWN])
    if untold > 0:
        out.print(f"and {untold:,} more; --json tells {len(report.problems):,}", style="yellow")
    lost = sum(channel.lost for channel in report.channels)
    gone = f" {lost:,} are lost." if lost else ""
    done = f"{report.messages:,} messages in {len(report.channels):,} channels"
    if moving.to is None and servers is None:
        out.print(f"{done} can be moved.{gone}", highlight=False)
        return
    out.print(f"{done} are moved.{gone}", highlight=False)
    if servers is not None:
        where = without_secrets(servers.target.server)
        text = f"They can be used now: cluster {servers.cluster_id or report.cluster_id} at {where}"
    else:
        groups = "" if moving.raft_groups == RAFT_GROUPS_ALONE else f" --raft_groups {moving.raft_groups}"
        text = f"Start with: stan-server -st file -dir {moving.to} -cid {report.cluster_id}{groups}"
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def _positions(channel: ChannelReport) -> str:
    lines = []
    for position in channel.positions:
        who = f"{position.client_id}/{position.name}" if position.client_id else position.name
        pending = f", {position.pending:,} pending" if position.pending else ""
        lines.append(f"{who}: sent {position.last_sent:,}{pending}")
    if channel.subscriptions_ended:
        lines.append(f"{channel.subscriptions_ended} not durable, ended")
    return "\n".join(lines)

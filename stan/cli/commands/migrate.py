"""`stan migrate`: moves the store of another server into a new data directory of ours.

Promises: the old directory is only read, and nothing is moved while its server seems to run. Exit code 0: everything is moved;
5: moved, but something was damaged or missing, and is reported by file and offset; 1: nothing is moved, and the new directory
is no store.
"""

import asyncio
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.markup import escape
from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table
from stan_client.errors import CannotConnectError
from stan_client.transport.connection import ClientConnection
from stan_client.transport.inbox import Inbox
from stan_client.transport.session import fresh_id
from stan_protocol.scalars import SECOND
from stan_protocol.secure import without_secrets

from stan import limits
from stan.cli.support.common import DEFAULT_SERVER, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, fail, group_of_commands
from stan.cli.support.progress import bars
from stan.cli.support.terminal import out, write_json
from stan.config import RAFT_GROUPS_ALONE
from stan.errors import StanError
from stan.migration.crypto import CIPHERS
from stan.migration.moving import MigrationPlan, OldServerCheck, move
from stan.migration.report import ChannelReport, MigrationReport

EXIT_INCOMPLETE: Final = 5
PROBLEMS_SHOWN: Final = 20
ASK_S: Final = 1.0
"""How long an answer of the old server's is waited for."""

Directories = Annotated[
    list[Path],
    typer.Argument(metavar="DIR", help="The --dir of the old server, which is stopped; of a cluster, of its nodes."),
]
RaftDirectories = Annotated[
    list[Path] | None,
    typer.Option(
        "--raft", metavar="DIR", help="The --cluster_log_path of a node, once for each DIR, if it is not found."
    ),
]

app = group_of_commands("Move in from another server.")


@app.callback()
def migrate() -> None:
    """Move in from another server."""


@app.command("stan-filestore")
def stan_filestore(
    directories: Directories,
    raft: RaftDirectories = None,
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
    cluster_id: Annotated[str, typer.Option(help="Cluster id, if the store does not tell it.")] = "",
    raft_groups: Annotated[
        int, typer.Option(min=1, max=limits.RAFT_GROUPS_MAX, help="The --raft_groups of the new server.")
    ] = RAFT_GROUPS_ALONE,
    server: Annotated[
        str, typer.Option("--server", "-s", help="NATS of the old server: it is asked whether that still answers.")
    ] = DEFAULT_SERVER,
    without_durables: Annotated[  # noqa: FBT002
        bool,
        typer.Option("--without-durables", help="Move the messages of one node of a cluster whose Raft log is lost."),
    ] = False,
    stopped: Annotated[bool, typer.Option("--stopped", help="The old server is stopped for sure.")] = False,  # noqa: FBT002
) -> None:
    """Read the FILE store of a stopped NATS Streaming Server, plain or encrypted, into a new data directory.

    Sequences, timestamps, durables and queue groups with their pending messages stay as they are.
    Of a cluster give the directories of a majority of its nodes: then all that it has acknowledged is moved.
    """
    if encryption_cipher and encryption_cipher.upper() not in CIPHERS:
        fail("encryption cipher not supported", EXIT_USAGE)
    if (to is None) != dry_run:
        fail("give either --to NEWDIR or --dry-run", EXIT_USAGE)
    plan = MigrationPlan(
        sources=tuple(directories),
        raft_logs=tuple(raft or ()),
        target=to,
        key=(os.environ.get("NATS_STREAMING_ENCRYPTION_KEY") or encryption_key).encode(),
        plain=plain,
        cluster_id=cluster_id,
        raft_groups=raft_groups,
        without_durables=without_durables,
        stopped=stopped,
        watch_s=limits.MIGRATION_WATCH / SECOND,
        ask=lambda name: asyncio.run(_ask(server, name)),
    )
    try:
        report = _move(plan)
    except (StanError, OSError) as error:
        fail(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        fail("Interrupted; the new directory is not a store. The same command begins again.", EXIT_INTERRUPTED)
    if as_json:
        write_json(_facts(report), 2)
    else:
        _show(report, plan)
    raise typer.Exit(EXIT_INCOMPLETE if report.problem_count else 0)


def _move(plan: MigrationPlan) -> MigrationReport:
    """Do it, with a bar on a terminal."""
    with bars(DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("Reading" if plan.target is None else "Moving", total=None)
        return move(plan, lambda total: bar.update(task, total=total), lambda size: bar.advance(task, size))


async def _ask(server: str, cluster_id: str) -> OldServerCheck:
    """Ask for a server of that cluster at that NATS, by a request that is not a client's."""
    where, link = without_secrets(server), ClientConnection()
    try:
        await link.open(server.split(","), {}, ASK_S)
    except CannotConnectError as error:
        return OldServerCheck(outcome=f"it could not be asked at {where} ({error.reason})")
    try:
        inbox = Inbox(link, f"_INBOX.{fresh_id()}", ASK_S)
        await inbox.open()
        answer = await inbox.ask(f"_STAN.discover.{cluster_id}".encode(), b"")
    finally:
        await link.shut()
    if answer is None or answer.no_responders:
        return OldServerCheck(outcome=f"no server of cluster {cluster_id} answers at {where}")
    return OldServerCheck(f"a server of cluster {cluster_id} answers at {where}")


def _facts(report: MigrationReport) -> dict[str, object]:
    document = asdict(report)
    for name, problems in (("problems", report.problems), ("hints", report.hints)):
        document[name] = [problem._asdict() for problem in problems]
    return document


def _show(report: MigrationReport, plan: MigrationPlan) -> None:
    table = Table(title=f"{escape(report.directory)}, cluster id {escape(report.cluster_id) or 'unknown'}")
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
            text = f"{mark}{problem.file}: offset {problem.offset}: {problem.text}"
            out.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
    untold = report.problem_count - len(report.problems[:PROBLEMS_SHOWN])
    if untold > 0:
        out.print(f"and {untold:,} more; --json tells {len(report.problems):,}", style="yellow")
    lost = sum(channel.lost for channel in report.channels)
    gone = f" {lost:,} are lost." if lost else ""
    done = f"{report.messages:,} messages in {len(report.channels):,} channels"
    if plan.target is None:
        out.print(f"{done} can be moved.{gone}", highlight=False)
        return
    out.print(f"{done} are moved.{gone}", highlight=False)
    groups = "" if plan.raft_groups == RAFT_GROUPS_ALONE else f" --raft_groups {plan.raft_groups}"
    start = f"Start with: stan-server -st file -dir {plan.target} -cid {report.cluster_id}{groups}"
    out.print(start, markup=False, highlight=False, soft_wrap=True)


def _positions(channel: ChannelReport) -> str:
    lines = []
    for position in channel.positions:
        who = f"{position.client_id}/{position.name}" if position.client_id else position.name
        pending = f", {position.pending:,} pending" if position.pending else ""
        lines.append(f"{who}: sent {position.last_sent:,}{pending}")
    if channel.subscriptions_ended:
        lines.append(f"{channel.subscriptions_ended} not durable, ended")
    return "\n".join(lines)

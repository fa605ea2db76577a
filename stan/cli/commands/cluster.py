"""`stan cluster`: changes of a cluster as a whole. `stan cluster rescue` lets the survivors of a lost majority go on,
`stan cluster grow` makes more groups of channels, `stan cluster spread` shows or sets if channels go there by themselves.

A rescue works on the data directories of nodes that do not run, and asks over NATS only for the nodes that are said to be
lost: no request can begin one (docs/decisions/0018-rescue-by-the-directories.md).
"""

import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Final

import stan_client
import typer
from stan_protocol.secure import without_secrets

from stan.cli.commands.growth import grow, spread
from stan.cli.support.common import EXIT_USAGE, CliError, Target, group_of_commands, run
from stan.cli.support.options import injected
from stan.cli.support.session import session
from stan.cli.support.terminal import err, out
from stan.config import KEY_VARIABLES, EncryptionConfig
from stan.edge.cluster import rescue as rescuing
from stan.edge.cluster.rescue_plan import RescuePlan, SurvivorFindings, losses, plan
from stan.edge.storage.data_directory import Disk, claim_directory
from stan.edge.storage.groupfiles import groups_on_disk
from stan.edge.storage.manifest import read_manifest
from stan.edge.storage.storage import Storage
from stan.errors import Damage, StanError
from stan.state.database import Database

ASK_S: Final = 2.0
"""Seconds of waiting for answers of nodes that are said to be lost."""

NOBODY: Final = "nobody"
"""For --yes-i-have-lost: all voters are there, but too few of them can vote."""

app = group_of_commands("The cluster as a whole: more groups of channels; rescue it when a majority is gone for good.")


@app.callback()
def cluster() -> None:
    """The cluster as a whole."""


app.command("grow")(grow)
app.command("spread")(spread)


@app.command("rescue")
@injected
def rescue(
    places: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...", help="Data directories of stopped survivors, or files that --save has written."
        ),
    ],
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Only write down what DIR holds, for another machine.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen, and be lost.")] = False,  # noqa: FBT002
    yes_i_have_lost: Annotated[
        str, typer.Option("--yes-i-have-lost", metavar="NODE,NODE", help="Do not ask: exactly these nodes are gone.")
    ] = "",
    peers: Annotated[str, typer.Option("--peers", help="All nodes, if DIR does not record them: a,b,c.")] = "",
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="Copies of each group, likewise.")] = 3,
    encryption_cipher: Annotated[
        str, typer.Option("--encryption-cipher", help=f"AES or CHACHA, if encrypted; the key is in {KEY_VARIABLES[1]}.")
    ] = "",
    *,
    target: Target,
) -> None:
    """Go on without a majority that is gone for good: with what the survivors hold, and without what only the lost nodes held.

    Stop the survivors first. A group that has its majority is not touched. It asks twice.
    """
    if save is not None and len(places) != 1:
        raise CliError("--save takes one data directory.", EXIT_USAGE)
    named = tuple(name for name in peers.split(",") if name)
    run(_rescue(target, places, save, dry_run, yes_i_have_lost, (named, replicas), encryption_cipher))


async def _rescue(
    target: Target,
    places: list[Path],
    save: Path | None,
    dry_run: bool,  # noqa: FBT001
    lost: str,
    peers: tuple[tuple[str, ...], int],
    cipher: str,
) -> int:
    try:
        async with contextlib.AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(_opened(place, cipher)) for place in places if place.is_dir()]
            findings = [await rescuing.find_out(storage, *peers) for storage in opened]
            if save is not None:
                return _save(findings[0] if findings else None, save)
            findings += [_read(place) for place in places if not place.is_dir()]
            made = plan(findings)
            await _refuse_living(target, made)
            _announce(made, findings)
            if dry_run:
                err.print("Nothing was done (--dry-run).")
                return 0
            _confirm(made, lost)
            for storage in opened:
                rescuing.begin(storage, made)
            for storage in opened:
                await rescuing.carry_out(storage, made)
            _tell_next(made, [storage.node_id for storage in opened])
    except (StanError, Damage) as error:
        raise CliError(f"{error}.") from None
    except OSError as error:
        raise CliError(f"{error}. Run the same command again: it goes on where it was.") from None
    return 0


@contextlib.asynccontextmanager
async def _opened(directory: Path, cipher: str) -> AsyncIterator[Storage]:
    """The storage of a node that does not run."""
    try:
        manifest = read_manifest(str(directory))
    except FileNotFoundError:
        raise CliError(f"{directory} is no data directory: there is no stan.json in it.", EXIT_USAGE) from None
    key = os.environ.get(KEY_VARIABLES[1]) or os.environ.get(KEY_VARIABLES[0]) or ""
    encryption = EncryptionConfig(key=key.encode(), cipher=cipher or "AES") if manifest.encryption else None

    def note(level: str, text: str) -> None:
        err.print(
            f"{directory}: {text}",
            style="red" if level == "ERR" else "yellow",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )

    lock = claim_directory(directory, note)
    try:
        disk = Disk(**{**Disk.of(directory, encryption).__dict__, "rescuing": True})
        storage = Storage.recover(
            disk,
            manifest.cluster_id,
            manifest.raft_groups,
            groups=groups_on_disk(str(directory)),
            node_id=manifest.node_id,
            lock=lock,
            note=note,
        )
    except BaseException:
        os.close(lock)
        raise
    storage.rows.database = await Database.recover(
        directory / "state.db", directory / "lost+found", lambda text: note("ERR", text)
    )
    try:
        yield storage
    finally:
        if storage.unconfirmed and storage.directory is not None:
            storage.directory.forget_boot()  # the next start has to know that power was lost, too
        await storage.close(clean=False)


def _save(findings: SurvivorFindings | None, path: Path) -> int:
    if findings is None:
        raise CliError("--save takes one data directory.", EXIT_USAGE)
    path.write_text(json.dumps(findings.document(), indent=1) + "\n")
    out.print(f"What node {findings.node} holds is in {path}.", highlight=False, markup=False)
    return 0


def _read(path: Path) -> SurvivorFindings:
    try:
        return SurvivorFindings.of(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CliError(
            f"{path} is neither a data directory nor a file that --save has written: {error}.", EXIT_USAGE
        ) from None


async def _refuse_living(target: Target, made: RescuePlan) -> None:
    """Ask over NATS for the nodes that are said to be lost. Raises CliError if one answers."""
    where = without_secrets(target.server)
    try:
        async with session(target, timeout_s=ASK_S) as direct:
            answered = {one.node for one in (await direct.admin.nodes(patience_s=ASK_S)).answers}
    except (CliError, stan_client.StanClientError):
        err.print(
            f"At {where} nobody answers, so it is not known whether the other nodes live: --server names another NATS.",
            style="yellow",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        return
    if living := sorted(answered & set(made.lost)):
        raise CliError(
            f"Nothing was done: {', '.join(living)} of cluster {target.cluster_id} answers at {where}, and is not lost. "
            "Start the survivors again; if its disk is gone, stop it first."
        )


def _announce(made: RescuePlan, findings: list[SurvivorFindings]) -> None:
    lines = [
        f"Cluster {made.cluster_id}: {', '.join(made.survivors)} survive; lost for good: {', '.join(made.lost) or 'nobody'}.",
        f"{len(made.groups)} groups have lost their majority, and go on as follows ({made.name}):",
        *losses(made, findings),
        (
            "The lost nodes must never run again with their data: whoever comes back is refused, and has to begin with an empty "
            "directory."
        ),
    ]
    for line in lines:
        err.print(line, highlight=False, markup=False, soft_wrap=True)


def _confirm(made: RescuePlan, lost: str) -> None:
    """Ask twice, or compare with the option. Raises CliError, typer.Exit."""
    gone = ",".join(made.lost) or NOBODY
    if lost:
        if ",".join(sorted(name for name in lost.split(",") if name)) != gone:
            raise CliError(f"Nothing was done: lost are {gone}, and not {lost}.", EXIT_USAGE)
        return
    if not sys.stdin.isatty():
        raise CliError(
            f"Nothing was done: there is no terminal to ask at. To do it: --yes-i-have-lost {gone}", EXIT_USAGE
        )
    if typer.prompt("Type the cluster id to go on", err=True) != made.cluster_id:
        raise CliError("Nothing was done: that is another cluster id.", EXIT_USAGE)
    if not typer.confirm(f"Are {gone} gone for good, and may the messages above be lost?", err=True):
        err.print("Nothing was done.")
        raise typer.Exit


def _tell_next(made: RescuePlan, here: list[str]) -> None:
    elsewhere = [name for name in made.survivors if name not in here]
    if elsewhere:
        out.print(
            f"Rescued here: {', '.join(here)}. Before any node is started, run it for {', '.join(elsewhere)} too, with the same "
            "findings.",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        return
    out.print(
        f"Rescued: start {', '.join(made.survivors)} again, then add nodes with empty directories (stan-server --join, stan node "
        "add).",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )

"""`stan config`: a configuration file of the server, checked, shown, or converted for another NATS, without starting anything."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from stan.cli.support.common import EXIT_FAILED, fail, group_of_commands
from stan.cli.support.options import View, injected
from stan.cli.support.output import Table, show
from stan.cli.support.terminal import write
from stan.edge.nats.accounts import accounts, leaf_password
from stan.edge.nats.nats_process import quoted
from stan.settings.config_check import CheckResult, examine
from stan.settings.nats_conf import load
from stan.settings.settings import parse

File = Annotated[Path, typer.Argument(metavar="FILE", help="The file, as of `stan-server -c FILE`.", dir_okay=False)]
Flags = Annotated[list[str] | None, typer.Argument(metavar="[-- FLAGS...]", help="Flags of stan-server beside it.")]

app = group_of_commands("Configuration files of the server: check, show, accounts.")


@app.command("check")
@injected
def check(file: File, flags: Flags = None, *, view: View) -> None:
    """Say everything that is wrong with a file, each with file and line, of NATS's part too; 0: all is well, 1: it is not.

    Warnings name options without effect, and unknown ones; they are no failure.
    """
    result = examine(file, flags or [], os.environ)
    show(verdict(file, result), view)
    if result.complaints:
        raise typer.Exit(EXIT_FAILED)


def verdict(file: Path, result: CheckResult) -> Table:
    """Return the result of the check of a file."""
    lines = [f"error: {line}" for line in result.complaints] + [f"warning: {line}" for line in result.notices]
    state = f"{len(result.complaints)} to mend" if result.complaints else "can be served"
    document: dict[str, Any] = {
        "file": str(file),
        "ok": not result.complaints,
        "errors": list(result.complaints),
        "warnings": list(result.notices),
    }
    return Table(
        head="\n".join(lines), foot=f"{file}: {state}", document=document, names=list(result.complaints), empty=""
    )


@app.command("show")
@injected
def show_(file: File, flags: Flags = None, *, view: View) -> None:
    """Show each option in force with its value and where it comes from; secrets are masked. 1: the file cannot be served."""
    result = examine(file, flags or [], os.environ)
    if result.complaints:
        fail("\n".join((*result.complaints, f"{file}: {len(result.complaints)} to mend, so nothing is in force")))
    rows = [(setting.name, setting.value, setting.source) for setting in result.settings]
    document = {"options": [setting._asdict() for setting in result.settings]}
    names = [setting.name for setting in result.settings]
    show(Table(columns=("OPTION", "VALUE", "FROM"), rows=rows, document=document, names=names), view)


@app.command("accounts")
def accounts_(file: File, flags: Flags = None) -> None:
    """Print the accounts that a NATS which somebody else runs needs for the users in `permissions`; passwords as in the file.

    The login of the broker's own user is `username` and `password` of the file.
    """
    parsed = parse(["-c", str(file), *(flags or [])], load, os.environ)
    if parsed.complaints:
        fail("\n".join(parsed.complaints))
    config = parsed.config
    if config.permissions is None or not config.permissions.users:
        fail(f"{file}: there are no users in permissions")
    if not (config.nats.user and config.nats.password):
        fail(f"{file}: the broker's own login is missing: username and password")
    login = f"user: {quoted(config.nats.user)}, password: {quoted(config.nats.password)}"
    write([accounts(config, login, leaf_password(config)).removesuffix("\n")])

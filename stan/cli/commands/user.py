"""`stan user`: the users of a configuration file's `permissions`, and their rights, without asking a server."""

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from stan.cli.support.args import checked_pattern
from stan.cli.support.common import EXIT_FAILED, EXIT_USAGE, CliError, fail, group_of_commands
from stan.cli.support.options import View, injected
from stan.cli.support.output import Table, show
from stan.cli.support.terminal import write
from stan.permissions import Permissions, Right, Rule, covers
from stan.settings.config_check import examine
from stan.settings.nats_conf import load
from stan.settings.settings import parse

RIGHTS: Final = {right.name.lower(): right for right in Right}

File = Annotated[
    Path,
    typer.Option("--config", envvar="STAN_CONFIG", dir_okay=False, help="The file, as of `stan-server -c FILE`."),
]

app = group_of_commands("Users of a configuration file, and their rights: list, can.")


def _permissions(file: Path) -> Permissions:
    if not file.is_file():
        fail(f"--config: there is no file {file}.", EXIT_USAGE)
    complaints = examine(file, [], os.environ).complaints
    if complaints:
        fail("\n".join(complaints))
    permissions = parse(["-c", str(file)], load, os.environ).config.permissions
    if permissions is None:
        fail(f"{file}: there are no permissions: everybody may do everything")
    return permissions


@app.command("list")
@injected
def list_(file: File, *, view: View) -> None:
    """Users, their logins, their client ids, and the rights that rules give them, also those of everybody."""
    permissions = _permissions(file)
    users = [(user.name, "nkey" if user.nkey else "password", user.clients) for user in permissions.users]
    rows, documents = [], []
    for name, login, clients in users or [("", "", ())]:
        rules = [rule for rule in permissions.rules if rule.user in ("", name)]
        rights = [
            f"{right.name.lower()} {' '.join(names)}{f' as {rule.client}' if rule.client else ''}"
            for rule in rules
            for right, names in rule.rights.items()
        ]
        rows.append((name or "(anybody)", login or "-", " ".join(clients) or "any", "; ".join(rights) or "-"))
        documents.append({"name": name or None, "login": login or None, "clients": list(clients), "rights": rights})
    names = [name for name, *_ in users]
    show(Table(("user", "login", "client ids", "rights"), rows, {"users": documents}, names), view)


@app.command("can")
def can(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user; '' without users.")],
    right: Annotated[str, typer.Argument(metavar="RIGHT", help=f"{', '.join(RIGHTS)}.")],
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="Its name, or a pattern: all that it covers.")],
    file: File,
    client_id: Annotated[str, typer.Option("--client-id", help="With this client id; else without one.")] = "",
) -> None:
    """Say if a user may do something, and by which rule; exit code 1: not."""
    permissions, wanted = _permissions(file), RIGHTS.get(right)
    complaints = [] if wanted is not None else [f"RIGHT is one of {', '.join(RIGHTS)}, not {right!r}."]
    if permissions.users and name not in {user.name for user in permissions.users}:
        complaints.append(f"Nobody is the user {name!r}: {', '.join(user.name for user in permissions.users)}.")
    try:
        checked_pattern(channel)
    except CliError as error:
        complaints.append(str(error))
    if wanted is None or complaints:
        fail("\n".join(complaints), EXIT_USAGE)
    client = client_id.encode("utf-8", "surrogateescape")
    who = f"{name or 'Anybody'}{f' as {client_id}' if client_id else ''}"
    if client and not permissions.admits(name, client):
        fail(f"{who} may not connect: no rule fits, or the user may not use this client id.", EXIT_FAILED)
    rules = _giving(permissions, name, wanted, channel)
    if not permissions.allows(name, client, wanted, channel.encode("utf-8", "surrogateescape")):
        fail(f"{who} may not {wanted.value} {channel}.{_hint(rules)}", EXIT_FAILED)
    write([f"{who} may {wanted.value} {channel}: {', '.join(rule.where or 'a rule' for rule in rules)}"])


def _giving(permissions: Permissions, name: str, right: Right, channel: str) -> list[Rule]:
    """The rules that give a user the right, some of them only with a client id."""
    return [
        rule
        for rule in permissions.rules
        if rule.user in ("", name) and any(covers(pattern, channel) for pattern in rule.rights.get(right, ()))
    ]


def _hint(rules: list[Rule]) -> str:
    """The client ids with which *rules* give the right."""
    others = sorted({rule.client for rule in rules if rule.client})
    return f" Client ids that may: {', '.join(others)} (--client-id)." if others else ""

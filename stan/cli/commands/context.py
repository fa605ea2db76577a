"""`stan context`: clusters by name, and the way to each of them; see stan.cli.support.contexts for their files."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from stan.cli.support import contexts
from stan.cli.support.common import EXIT_FAILED, EXIT_USAGE, CliError, Target, group_of_commands, run
from stan.cli.support.contexts import ContextError
from stan.cli.support.options import Confirmation, Text, View, builds, injected, resolved
from stan.cli.support.output import Table, done, show
from stan.cli.support.session import session
from stan.cli.support.terminal import out

Name = Annotated[
    str,
    typer.Argument(help="Name of the context.", autocompletion=lambda incomplete: _names(incomplete)),  # noqa: PLW0108
]

app = group_of_commands(
    "Clusters by name: how to reach them, as whom. Files of mode 0600 in ~/.config/stan (or $XDG_CONFIG_HOME/stan)."
)


def _names(incomplete: str) -> list[str]:
    return [name for name in contexts.names() if name.startswith(incomplete)]


def fields_of(
    *,
    server: Annotated[Text, typer.Option("--server", "-s", help="NATS URL, or several with commas.")] = None,
    cluster_id: Annotated[Text, typer.Option("--cluster-id", "-c", help="Cluster id of the server.")] = None,
    creds: Annotated[Text, typer.Option(help="NATS credentials file.")] = None,
    nkey: Annotated[Text, typer.Option(help="File with an nkey seed.")] = None,
    user: Annotated[Text, typer.Option(help="NATS user.")] = None,
    password: Annotated[Text, typer.Option(help="NATS password; `-` asks for it.")] = None,
    token: Annotated[Text, typer.Option(help="NATS token; `-` asks for it.")] = None,
    tls_ca: Annotated[Text, typer.Option(help="File of certificates that are trusted.")] = None,
    tls_cert: Annotated[Text, typer.Option(help="File of our certificate.")] = None,
    tls_key: Annotated[Text, typer.Option(help="File of its key.")] = None,
) -> "ContextFields":
    """Return the given fields of a context; "" takes a field back."""
    given: dict[str, str | None] = dict(locals())
    fields: dict[str, str] = {}
    for key, value in given.items():
        if value is None:
            continue
        fields[key] = typer.prompt(key.capitalize(), hide_input=True, err=True) if _asks(key, value) else value
        if key in contexts.FILES and value:
            fields[key] = str(Path(value).expanduser().resolve())
    return ContextFields(fields)


def _asks(key: str, value: str) -> bool:
    return key in contexts.SECRETS and value == "-"


class ContextFields(dict[str, str]):
    """The fields of a context on the command line."""


builds(fields_of, ContextFields)


def _named(name: str, call: Any, *arguments: Any) -> Any:
    """The result of a call; a ContextError becomes the command's."""
    try:
        return call(name, *arguments)
    except ContextError as error:
        raise CliError(str(error), EXIT_USAGE) from None


@app.command("add")
@injected
def add(
    name: Name,
    use: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,  # noqa: FBT002
    *,
    fields: ContextFields,
) -> None:
    """Make a context: `stan context add production -s nats://10.0.0.1:4222 -c orders --creds ops.creds --use`."""
    if name in contexts.names():
        raise CliError(f"There is a context {name!r} already. Change it: stan context edit {name}", EXIT_USAGE)
    given = {key: value for key, value in fields.items() if value}
    resolved(dict(given))
    _named(name, contexts.save, given)
    if use or not contexts.used():
        _named(name, contexts.use)
        done(f"Context {name} is made, and in use.")
    else:
        done(f"Context {name} is made. Use it: stan context use {name}")


@app.command("list")
@injected
def list_(*, view: View) -> None:
    """All contexts; the one in use is marked."""
    used, rows, document = contexts.used(), [], []
    for name in contexts.names():
        try:
            fields = contexts.shown(contexts.load(name))
        except ContextError as error:
            fields = {"server": f"damaged: {error}"}
        login = next((key for key in ("creds", "nkey", "user", "token") if key in fields), "")
        rows.append(("*" if name == used else "", name, fields.get("server", ""), fields.get("cluster_id", ""), login))
        document.append({"name": name, "used": name == used, **fields})
    show(
        Table(
            columns=("", "context", "server", "cluster id", "login"),
            rows=rows,
            document={"contexts": document},
            names=contexts.names(),
            empty="There is no context yet. Make one: stan context add NAME --server nats://HOST:4222",
        ),
        view,
    )


@app.command("show")
@injected
def show_(name: Annotated[str, typer.Argument(help="Without it, the one in use.")] = "", *, view: View) -> None:
    """What a context holds; secrets are hidden."""
    name = name or contexts.used()
    if not name:
        raise CliError("No context is in use. Use one: stan context use NAME", EXIT_USAGE)
    fields = contexts.shown(_named(name, contexts.load))
    document = {"name": name, "used": name == contexts.used(), **{key: fields.get(key) for key in contexts.FIELDS}}
    rows = [(key.replace("_", " "), value) for key, value in fields.items()]
    show(Table(rows=[("context", name), *rows], document=document, names=[name]), view)


@app.command("use")
@injected
def use_(
    name: Name = "",
    none: Annotated[bool, typer.Option("--none", help="Use no context from now on.")] = False,  # noqa: FBT002
) -> None:
    """Use a context from now on."""
    if bool(name) == none:
        raise CliError("Give the NAME of a context, or --none.", EXIT_USAGE)
    _named(name, contexts.use)
    done(f"Context {name} is in use." if name else "No context is in use.")


@app.command("remove")
@injected
def remove(name: Name, *, confirmation: Confirmation) -> None:
    """Forget a context."""
    if name not in contexts.names():
        _named(name, contexts.load)
    confirmation.require(f"Context {name} with its login will be forgotten; the cluster is not touched.")
    _named(name, contexts.remove)
    done(f"Context {name} is removed.")


@app.command("edit")
@injected
def edit(name: Name, *, fields: ContextFields) -> None:
    """Change what is told, "" takes a field back; told nothing: open it in $EDITOR."""
    if not fields:
        old = contexts.path_of(name).read_text(encoding="utf-8") if name in contexts.names() else ""
        if not old:
            _named(name, contexts.load)
        new = _edited(old)
    else:
        new = {**_named(name, contexts.load), **fields}
    _named(name, contexts.save, {key: value for key, value in new.items() if value})
    done(f"Context {name} is changed.")


@app.command("check")
@injected
def check(name: Name = "") -> None:
    """Whether a context works: connect, log in, ask the cluster."""
    name = name or contexts.used()
    if not name:
        raise CliError("No context is in use. Name one: stan context check NAME", EXIT_USAGE)
    target = resolved({}, name)
    run(_check(name, target))


async def _check(name: str, target: Target) -> int:
    async with session(target) as direct:
        nodes = await direct.admin.nodes()
    out.print(
        f"Context {name} works: {len(nodes.answers)} node(s) of cluster {target.cluster_id} answer.", markup=False
    )
    return 0


def _edited(text: str) -> dict[str, str]:
    """Let a person edit *text*, and return the fields of the result."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    descriptor, path = tempfile.mkstemp(suffix=".json")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        code = subprocess.call(f'{editor} "{path}"', shell=True)  # noqa: S602 - the person's own editor, with its arguments
        if code:
            raise CliError(f"{editor} ended with {code}; nothing is changed.", EXIT_FAILED)
        return contexts.checked(json.loads(Path(path).read_text(encoding="utf-8")), "what was written")
    except (ValueError, OSError, ContextError) as error:
        raise CliError(f"Nothing is changed: {error}", EXIT_FAILED) from None
    finally:
        Path(path).unlink(missing_ok=True)

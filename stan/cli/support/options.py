"""Options that many commands share, given to them as one value: `target: Target`, `view: View`, `confirmation: Confirmation`.

A command that is `@injected` has parameters of these types; on the command line each stands for several options. The way to the
cluster comes from options, else environment variables, else a context (see stan.cli.support.contexts), else defaults.
"""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from stan.cli.support import contexts
from stan.cli.support.common import DEFAULT_CLUSTER_ID, DEFAULT_SERVER, EXIT_USAGE, CliError, Target, fail
from stan.cli.support.terminal import err

CONNECTION: Final = "Connection"
OUTPUT: Final = "Output"

LOGINS: Final = (frozenset({"creds"}), frozenset({"nkey"}), frozenset({"user", "password"}), frozenset({"token"}))
"""Ways to log in; a given one replaces those of the context."""


def _context_names(incomplete: str) -> list[str]:
    return [name for name in contexts.names() if name.startswith(incomplete)]


def _option(*names: str, help: str, envvar: str | None = None, **more: Any) -> Any:  # noqa: A002 - typer's word
    return typer.Option(*names, help=help, envvar=envvar, rich_help_panel=CONNECTION, **more)


Text = str | None
File = Path | None


def target_of(
    context: Annotated[
        Text,
        _option("--context", help="Context to use.", envvar="STAN_CONTEXT", autocompletion=_context_names),
    ] = None,
    server: Annotated[
        Text, _option("--server", "-s", help="NATS URL, or several with commas.", envvar="STAN_SERVER")
    ] = None,
    cluster_id: Annotated[
        Text, _option("--cluster-id", "-c", help="Cluster id of the server.", envvar="STAN_CLUSTER_ID")
    ] = None,
    creds: Annotated[File, _option("--creds", help="NATS credentials file.", envvar="STAN_CREDS")] = None,
    nkey: Annotated[File, _option("--nkey", help="File with an nkey seed.", envvar="STAN_NKEY")] = None,
    user: Annotated[Text, _option("--user", help="NATS user.", envvar="STAN_USER")] = None,
    password: Annotated[Text, _option("--password", help="NATS password.", envvar="STAN_PASSWORD")] = None,
    token: Annotated[Text, _option("--token", help="NATS token.", envvar="STAN_TOKEN")] = None,
    tls_ca: Annotated[File, _option("--tls-ca", help="Certificates that are trusted.", envvar="STAN_TLS_CA")] = None,
    tls_cert: Annotated[File, _option("--tls-cert", help="Certificate of ours.", envvar="STAN_TLS_CERT")] = None,
    tls_key: Annotated[File, _option("--tls-key", help="Its key.", envvar="STAN_TLS_KEY")] = None,
) -> Target:
    """Return the cluster and the login: see the module's text. Raises CliError: no such context, or conflicting options."""
    given = dict(locals())  # by the names of the parameters, which are those of a context's fields
    del given["context"]
    return resolved({key: str(value) for key, value in given.items() if value}, context)


def resolved(explicit: dict[str, str], context: str | None = None) -> Target:
    """Merge settings: options and environment (*explicit*) over the context of that name, or the one in use, over defaults."""
    try:
        name = context or contexts.used()
        base = contexts.load(name) if name else {}
    except contexts.ContextError as error:
        raise CliError(str(error), EXIT_USAGE) from None
    logins = [login for login in LOGINS if login & explicit.keys()]
    if logins:
        dropped = frozenset().union(*LOGINS) - frozenset().union(*logins)
        base = {key: value for key, value in base.items() if key not in dropped}
    fields: dict[str, Any] = {"server": DEFAULT_SERVER, "cluster_id": DEFAULT_CLUSTER_ID, **base, **explicit}
    complaints = []
    for key in contexts.FILES & fields.keys():
        fields[key] = Path(fields[key]).expanduser()
        if not fields[key].is_file():
            complaints.append(f"--{key.replace('_', '-')}: there is no file {fields[key]}.")
    if "tls_key" in fields and "tls_cert" not in fields:
        complaints.append("--tls-key needs --tls-cert.")
    if "password" in fields and "user" not in fields:
        complaints.append("--password needs --user.")
    if complaints:
        raise CliError("\n".join(sorted(complaints)), EXIT_USAGE)
    return Target(**fields)


@dataclass(frozen=True, slots=True)
class View:
    """Output options: format and repetition."""

    json: bool = False
    names: bool = False
    watch: float = 0  # seconds; 0: once


def view_of(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document; its fields stay.", rich_help_panel=OUTPUT)
    ] = False,
    names: Annotated[bool, typer.Option("--names", help="One name a line.", rich_help_panel=OUTPUT)] = False,
    watch: Annotated[
        float,
        typer.Option(
            "--watch",
            help="Show it again, every 2 seconds, or as told: --watch 5.",
            metavar="[SECONDS]",
            show_default=False,
            min=0,
            rich_help_panel=OUTPUT,
        ),
    ] = 0,
) -> View:
    """See View."""
    if as_json and names:
        raise CliError("--json and --names exclude each other.", EXIT_USAGE)
    return View(as_json, names, watch)


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The confirmation of an action that cannot be undone."""

    yes: bool = False
    dry_run: bool = False

    def require(self, what: str) -> None:
        """Announce *what* will happen and ask for confirmation.

        Raises:
            typer.Exit: not confirmed, which was announced; the command ends with exit code 0.
            CliError: there is no terminal to answer on.
        """
        err.print(what, highlight=False, markup=False, soft_wrap=True)
        if self.dry_run:
            err.print("Nothing was done (--dry-run).")
            raise typer.Exit
        if not self.yes and not sys.stdin.isatty():
            raise CliError("Nothing was done: there is no terminal to ask at. Add --yes to do it.", EXIT_USAGE)
        if not self.yes and not typer.confirm("Do it?", err=True):
            err.print("Nothing was done.")
            raise typer.Exit


def confirmation_of(
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
) -> Confirmation:
    """See Confirmation."""
    return Confirmation(yes, dry_run)


BUILDERS: Final[dict[object, Callable[..., Any]]] = {Target: target_of, View: view_of, Confirmation: confirmation_of}


def builds(builder: Callable[..., Any], of: object) -> None:
    """Commands may have parameters of this type, too."""
    BUILDERS[of] = builder


def injected(command: Callable[..., None], usage_exit: int = EXIT_USAGE) -> Callable[..., None]:
    """*command* with the options of its parameters of these types instead of them; a CliError ends it as its text says, wrong
    usage with *usage_exit*."""
    parts = {
        name: BUILDERS[parameter.annotation]
        for name, parameter in inspect.signature(command).parameters.items()
        if parameter.annotation in BUILDERS
    }
    options = {name: list(inspect.signature(builder).parameters.values()) for name, builder in parts.items()}

    @wraps(command)
    def run(**given: Any) -> None:
        try:
            for name, builder in parts.items():
                given[name] = builder(**{option.name: given.pop(option.name) for option in options[name]})
            command(**given)
        except CliError as error:
            fail(str(error), usage_exit if error.code == EXIT_USAGE else error.code)

    plain = [one for name, one in inspect.signature(command).parameters.items() if name not in parts]
    every = [*plain, *(option for name in parts for option in options[name])]
    every = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in every]
    run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    run.usage_exit = usage_exit  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in every}
    return run

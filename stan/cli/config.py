"""`stan config`: a configuration file of the server, checked or shown without starting anything."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from stan.cli.checking import Found, examine
from stan.cli.common import EXIT_FAILED
from stan.cli.options import View, injected
from stan.cli.output import Sheet, show

File = Annotated[Path, typer.Argument(metavar="FILE", help="The file, as of `stan-server -c FILE`.", dir_okay=False)]
Flags = Annotated[list[str] | None, typer.Argument(metavar="[-- FLAGS...]", help="Flags of stan-server beside it.")]

app = typer.Typer(
    help="Configuration files of the server: check, show.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("check")
@injected
def check(file: File, flags: Flags = None, *, view: View) -> None:
    """Say everything that is wrong with a file, each with file and line, of NATS's part too; 0: all is well, 1: it is not.

    Warnings name options without effect, and unknown ones; they are no failure.
    """
    found = examine(file, flags or [], os.environ)
    show(verdict(file, found), view)
    if found.complaints:
        raise typer.Exit(EXIT_FAILED)


def verdict(file: Path, found: Found) -> Sheet:
    """What to say about a file."""
    lines = [f"error: {line}" for line in found.complaints] + [f"warning: {line}" for line in found.notices]
    state = f"{len(found.complaints)} to mend" if found.complaints else "can be served"
    document: dict[str, Any] = {
        "file": str(file),
        "ok": not found.complaints,
        "errors": list(found.complaints),
        "warnings": list(found.notices),
    }
    return Sheet(
        head="\n".join(lines), foot=f"{file}: {state}", document=document, names=list(found.complaints), empty=""
    )


@app.command("show")
@injected
def show_(file: File, flags: Flags = None, *, view: View) -> None:
    """Show each option in force with its value and where it comes from; secrets are masked."""
    found = examine(file, flags or [], os.environ)
    rows = [(setting.name, setting.value, setting.source) for setting in found.settings]
    document = {"options": [setting._asdict() for setting in found.settings]}
    names = [setting.name for setting in found.settings]
    show(Sheet(columns=("OPTION", "VALUE", "FROM"), rows=rows, document=document, names=names), view)

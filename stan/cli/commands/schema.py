"""`stan schema`: schemas of the messages of channels: the registered versions, and the compatibility of a new one."""

from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path
from typing import Annotated, Final

import stan_client
import typer
from stan_protocol.admin_types import SchemaStatus
from stan_protocol.scalars import SECOND
from stan_protocol.schemas.kinds import Compatibility, SchemaError, SchemaKind, word
from stan_protocol.schemas.rules import SchemaText, compared
from stan_protocol.units import counted, format_size

from stan.cli.support.args import Pattern, checked_pattern
from stan.cli.support.common import EXIT_USAGE, CliError, Target, group_of_commands
from stan.cli.support.options import Confirmation, View, injected
from stan.cli.support.output import Table, done
from stan.cli.support.proto_json import document_of
from stan.cli.support.session import look, on_cluster
from stan.cli.support.terminal import write
from stan.limits import SCHEMA_BYTES_MAX
from stan.status.schema_shown import shown_text

KINDS: Final = {word(kind): kind for kind in SchemaKind}
PROMISES: Final = {word(promise): promise for promise in Compatibility}
BY_SUFFIX: Final = {".avsc": SchemaKind.AVRO, ".pb": SchemaKind.PROTOBUF, ".desc": SchemaKind.PROTOBUF}
"""The kind of a file by its suffix; any other one is JSON Schema."""

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="JSON Schema; Avro schema (.avsc); or descriptors, as protoc -o writes them (.pb, .desc)."
    ),
]
Message = Annotated[
    str, typer.Option("--message", metavar="NAME", help="Full name of the message, in descriptors.", show_default=False)
]
Version = Annotated[
    int, typer.Option("--number", metavar="N", help="Number of the version; 0: the newest.", show_default=False)
]
Promise = Annotated[
    str,
    typer.Option(
        "--compatibility",
        metavar="WORD",
        help="backward: the new version reads what earlier ones have written; forward: the other way round; full: both; none.",
        show_default=False,
    ),
]

app = group_of_commands("Schemas of messages: list, show, check, add, compare, remove.")


@app.command("list")
@injected
def list_(*, target: Target, view: View) -> None:
    """All schemas: of which channels, of which kind, and their versions."""

    async def table(direct: stan_client.Direct) -> Table:
        return schemas_table(await direct.admin.schemas(texts=False))

    look(target, view, table)


def schemas_table(versions: list[SchemaStatus]) -> Table:
    """Return versions, one a line."""
    return Table(
        columns=("pattern", ">version", "kind", "compatibility", ">size", "added"),
        rows=[
            (
                one.pattern,
                str(one.schema_version),
                word(SchemaKind(one.kind)),
                word(Compatibility(one.compatibility)),
                format_size(one.size),
                _when(one),
            )
            for one in versions
        ],
        document={"schemas": [document_of(one) for one in versions]},
        names=list(dict.fromkeys(one.pattern for one in versions)),
        foot=f"{counted(len(versions), 'version')}." if versions else "",
        empty="No schemas.",
    )


def _when(entry: SchemaStatus) -> str:
    return datetime.fromtimestamp(entry.at // SECOND, UTC).isoformat(sep=" ", timespec="minutes").removesuffix("+00:00")


@app.command("show")
@injected
def show_(pattern: Pattern, *, number: Version = 0, target: Target) -> None:
    """The text of a version, or the names in its descriptors."""

    async def main(direct: stan_client.Direct) -> None:
        write([shown_text(await _version(direct, pattern, number)).removesuffix("\n")])

    on_cluster(target, main)


@app.command("check")
@injected
def check(pattern: Pattern, file: File, *, message: Message = "", compatibility: Promise = "", target: Target) -> None:
    """Tell whether a file could be added, and if not, everything that speaks against it."""
    schema, promise = _read(file, message), _promise(compatibility)

    async def main(direct: stan_client.Direct) -> None:
        complaints = await direct.admin.check_schema(
            checked_pattern(pattern), schema.text, schema.kind, message=schema.message, compatibility=promise
        )
        if complaints:
            raise CliError("\n".join(f"It {one}." for one in complaints))
        done(f"{file.name} can be added to {pattern}.")

    on_cluster(target, main)


@app.command("add")
@injected
def add(
    pattern: Pattern,
    file: File,
    *,
    message: Message = "",
    compatibility: Promise = "",
    target: Target,
    confirmation: Confirmation,
) -> None:
    """Register a file as one more version of the schema of a pattern of channels."""
    schema, promise = _read(file, message), _promise(compatibility)

    async def main(direct: stan_client.Direct) -> None:
        confirmation.require(f"Adds {file.name} as one more version of the schema of {checked_pattern(pattern)}.")
        answer = await direct.admin.add_schema(
            pattern, schema.text, schema.kind, message=schema.message, compatibility=promise
        )
        known = "is" if answer.changed else "was there already as"
        done(f"{file.name} {known} version {answer.schema_version} of the schema of {pattern}.")

    on_cluster(target, main)


@app.command("diff")
@injected
def diff(
    pattern: Pattern,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="Instead of the newest version.")] = None,
    *,
    message: Message = "",
    number: Annotated[
        int, typer.Option("--number", metavar="N", help="Compare with this version; 0: the newest but one.")
    ] = 0,
    target: Target,
) -> None:
    """Compare two versions, or one with a file: the texts, and which of them reads what is written by the other."""

    async def main(direct: stan_client.Direct) -> None:
        versions = await _versions(direct, pattern)
        if file is None and len(versions) < 2 and not number:
            raise CliError(f"The schema of {pattern} has one version: give a file to compare it with.")
        old = await _version(direct, pattern, number or versions[-1 if file else -2].schema_version)
        new = _status(_read(file, message)) if file else versions[-1]
        before, after = f"version {old.schema_version}", file.name if file else f"version {new.schema_version}"
        write([line.removesuffix("\n") for line in _lines(old, new, before, after)])
        try:
            reads, is_read = compared(_schema(new), _schema(old))
        except SchemaError as error:
            raise CliError(f"{error}.") from None
        for whose, other, complaints in ((after, before, reads), (before, after, is_read)):
            verdict = f"{whose} reads what {other} has written: {'no' if complaints else 'yes'}"
            write([verdict, *(f"  {one}" for one in complaints)])

    on_cluster(target, main)


def _lines(old: SchemaStatus, new: SchemaStatus, before: str, after: str) -> list[str]:
    old_lines, new_lines = (shown_text(one).splitlines(keepends=True) for one in (old, new))
    return list(unified_diff(old_lines, new_lines, before, after))


@app.command("remove")
@injected
def remove(
    pattern: Pattern,
    *,
    number: Annotated[
        int, typer.Option("--number", metavar="N", help="Only this version; 0: all, and the pattern.")
    ] = 0,
    target: Target,
    confirmation: Confirmation,
) -> None:
    """Take versions out of the registry. Messages stay, but nobody finds the schema any more that they name."""

    async def main(direct: stan_client.Direct) -> None:
        what = f"version {number}" if number else "all versions"
        confirmation.require(f"Removes {what} of the schema of {checked_pattern(pattern)} for good.")
        answer = await direct.admin.remove_schema(pattern, number)
        done(f"{counted(answer.changed, 'version')} of the schema of {pattern} removed.")

    on_cluster(target, main)


# --- arguments and versions -------------------------------------------------------------------------------------------------


def _read(file: Path, message: str) -> SchemaText:
    try:
        with file.open("rb") as opened:
            text = opened.read(SCHEMA_BYTES_MAX + 1)
    except OSError as error:
        raise CliError(f"{file}: {error.strerror}.", EXIT_USAGE) from None
    return SchemaText(BY_SUFFIX.get(file.suffix, SchemaKind.JSON), text, message)


def _promise(text: str) -> Compatibility | None:
    if text and text not in PROMISES:
        raise CliError(f"--compatibility: {text!r} is none of {', '.join(PROMISES)}.", EXIT_USAGE)
    return PROMISES[text] if text else None


def _status(schema: SchemaText) -> SchemaStatus:
    return SchemaStatus(kind=schema.kind, text=schema.text, message=schema.message)


def _schema(version: SchemaStatus) -> SchemaText:
    return SchemaText(SchemaKind(version.kind), version.text, version.message)


async def _versions(direct: stan_client.Direct, pattern: str) -> list[SchemaStatus]:
    versions = await direct.admin.schemas(pattern=checked_pattern(pattern))
    if not versions:
        raise CliError(f"No schema is registered for {pattern}. All of them: stan schema list")
    return versions


async def _version(direct: stan_client.Direct, pattern: str, number: int) -> SchemaStatus:
    versions = await _versions(direct, pattern)
    for one in versions if number else versions[-1:]:
        if number in (0, one.schema_version):
            return one
    there = ", ".join(str(one.schema_version) for one in versions)
    raise CliError(f"The schema of {pattern} has no version {number}, but {there}.")

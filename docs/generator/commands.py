"""The page with all commands of `stan`, with their arguments and options."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from docs.generator.markdown import block, code, codes, page, shown, table
from stan.cli.main import ENTRIES, loaded

CONNECTION: Final = "Connection"
"""The heading of the options that say how to reach the servers, as `--help` has it."""


class Listed(NamedTuple):
    """A command that does something; groups only hold others."""

    words: str  # by which it is called, behind `stan`
    command: Any  # of click's


def commands() -> Iterator[Listed]:
    """All commands, in the order of the help."""
    for entry in ENTRIES:
        yield from _below(entry.name, loaded(entry))


def _below(words: str, command: Any) -> Iterator[Listed]:
    """A command, and those in it."""
    inner = getattr(command, "commands", {})
    if not inner or getattr(command, "invoke_without_command", False):
        yield Listed(words, command)
    for name, each in inner.items():
        yield from _below(f"{words} {name}", each)


def is_argument(parameter: Any) -> bool:
    """True for an argument, False for an option."""
    return bool(parameter.param_type_name == "argument")


def of_connection(option: Any) -> bool:
    """True for the options that nearly all commands have."""
    return getattr(option, "rich_help_panel", None) == CONNECTION


def _usage(listed: Listed) -> str:
    arguments = [each for each in listed.command.params if is_argument(each)]
    words = [name(each) if each.required else f"[{name(each)}]" for each in arguments]
    options = len(arguments) < len(listed.command.params)
    return " ".join(["stan", listed.words, *(["[OPTIONS]"] if options else []), *words])


def name(parameter: Any) -> str:
    """The name of an argument; with dots if it may be repeated."""
    told = (parameter.metavar or parameter.name.upper()).strip("[]").removesuffix("...").strip("[]")
    return f"{told}..." if parameter.nargs == -1 else str(told)


def _default(parameter: Any) -> str:
    value = parameter.default
    if getattr(parameter, "show_default", True) is False or callable(value) or not value or value is True:
        return ""
    if type(value).__name__ == "Sentinel":  # click's word for none
        return ""
    return code(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))


def _options(parameters: list[Any]) -> str:
    rows = []
    for each in parameters:
        names = codes([*each.opts, *each.secondary_opts])
        kind = (
            ""
            if getattr(each, "is_flag", False)
            else code(each.metavar or each.opts[0].strip("-").replace("-", "_").upper())
        )
        rows.append((f"{names} {kind}".strip(), _default(each), shown(each.help or "")))
    return table(("option", "default", "what"), rows)


def _about(listed: Listed) -> Iterator[str]:
    yield f"### stan {listed.words}"
    yield shown((listed.command.help or "").replace("\b", "").replace("\f", ""))
    yield block("text", _usage(listed))
    arguments = [each for each in listed.command.params if is_argument(each)]
    if arguments:
        yield table(("argument", "what"), [(code(name(each)), shown(each.help or "")) for each in arguments])
    options = [each for each in listed.command.params if not is_argument(each) and not each.hidden]
    own = [each for each in options if not of_connection(each)]
    if own:
        yield _options(own)
    if len(own) < len(options):
        yield "And the options of the [connection](#connection)."


def commands_page() -> str:
    """The page."""
    listed = list(commands())
    parts = [
        "Every command of `stan`, as `--help` tells it. What to do with them is told in [operating](../operating.md).",
        table(
            ("command", "what"),
            [(code(f"stan {entry.name}"), shown(entry.help)) for entry in ENTRIES],
        ),
    ]
    connection = {each.name: each for one in listed for each in one.command.params if of_connection(each)}
    parts += [
        "## Connection",
        "Nearly all commands have these options. Without them the context counts, or the environment (`STAN_SERVER`, ...).",
        _options(list(connection.values())),
    ]
    for panel in dict.fromkeys(entry.panel for entry in ENTRIES):
        names = {entry.name for entry in ENTRIES if entry.panel == panel}
        parts.append(f"## {panel}")
        for each in listed:
            if each.words.split(" ")[0] in names or each.words in names:
                parts += _about(each)
    return page("Commands of stan", *parts)

"""The page with all errors: texts that servers answer with, and classes that the Python packages raise."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import pyspark_stan
import stan_client
import stan_lake
from stan_protocol import refusals as texts

from docs.generator.markdown import code, page, shown, table
from stan.errors import StanError

NO_REFUSALS: Final = frozenset({"CASE_CONFLICT", "LED_ELSEWHERE", "go_quote"})
"""Names in the module of refusals that no client gets as an answer, or only as a part of one."""
PACKAGES: Final[tuple[ModuleType, ...]] = (stan_client, stan_lake, pyspark_stan)
NOT_IDENTIFIERS: Final = str.maketrans("_", " ")


class ErrorClass(NamedTuple):
    """A class of errors that a program may catch."""

    name: str
    module: str
    bases: str
    text: str  # its docstring, without "Raises" and the like


def refusals() -> dict[str, str]:
    """The texts with which servers refuse, by their names in the source; what varies is in angle brackets."""
    found = {
        name: value.replace("{}", "<…>").replace("{0}", "<…>")
        for name, value in vars(texts).items()
        if name.isupper() and isinstance(value, str) and name not in NO_REFUSALS and not name.startswith("_")
    }
    for name, function in vars(texts).items():
        if inspect.isfunction(function) and function.__module__ == texts.__name__ and name not in NO_REFUSALS:
            found[name] = function(**{part: _sample(part) for part in inspect.signature(function).parameters})
    return found


def _sample(parameter: str) -> Any:
    text = f"<{parameter.translate(NOT_IDENTIFIERS)}>"
    return [text] if parameter == "positions" else text


def operating_errors() -> list[ErrorClass]:
    """Classes of the server's own errors, which its log tells."""
    module: Any = inspect.getmodule(StanError)
    return list(_classes(Path(module.__file__), module.__name__))


def error_classes(package: ModuleType) -> list[ErrorClass]:
    """All classes of errors in a package, whose names end with Error."""
    folder = Path(package.__path__[0])
    found = []
    for path in sorted(folder.rglob("*.py")):
        module = ".".join((package.__name__, *path.relative_to(folder).with_suffix("").parts))
        found += [one for one in _classes(path, module.removesuffix(".__init__")) if one.name.endswith("Error")]
    return found


def _classes(path: Path, module: str) -> Iterator[ErrorClass]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            text = textwrap.dedent(ast.get_docstring(node) or "").split("\n\n")[0]
            yield ErrorClass(node.name, module, ", ".join(map(ast.unparse, node.bases)), text)


def _table(classes: list[ErrorClass]) -> str:
    return table(("class", "is a", "when"), [(code(one.name), code(one.bases), shown(one.text)) for one in classes])


def errors() -> str:
    """The page."""
    parts = [
        (
            "What can go wrong, as servers say it and as Python programs get it. What a failed publish means "
            "for its message is told in [Python clients](../python.md#timeouts-and-errors)."
        ),
        "## Refusals",
        (
            "Texts that servers answer with. They begin with `stan:`, but for those that the original has otherwise. "
            "`stan_client` raises them as `ServerError`, other clients show them as they are. What stands in angle brackets "
            "varies. Some are followed by more, behind a colon."
        ),
        table(("text",), [(code(text),) for text in refusals().values()]),
        "## Errors of the server",
        "Why a server refuses, waits or ends; its log has the text.",
        _table(operating_errors()),
    ]
    for package in PACKAGES:
        parts += [f"## Errors of {package.__name__}", _table(error_classes(package))]
    return page("Errors", *parts)

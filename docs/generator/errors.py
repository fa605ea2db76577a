"""The page with all errors: texts that servers answer with, and classes that the Python packages raise."""

import ast
import inspect
import re
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

PACKAGES: Final[tuple[ModuleType, ...]] = (stan_client, stan_lake, pyspark_stan)
_SECTION: Final = re.compile(r"# --- (.+?) -+")
_VARYING: Final = re.compile(r"\{\d?\}")


class ErrorClass(NamedTuple):
    """A class of errors that a program may catch."""

    name: str
    module: str
    bases: str
    text: str  # its docstring, without "Raises" and the like


class Refusal(NamedTuple):
    """A refusal: what varies in its text is in angle brackets."""

    code: str
    text: str
    when: str  # what the text does not say; "" if it says all


def refusals() -> dict[str, list[Refusal]]:
    """The refusals of servers, by the section of their source."""
    source = Path(texts.__file__).read_text(encoding="utf-8")
    sections = {at: head[1] for at, line in enumerate(source.splitlines(), 1) if (head := _SECTION.match(line))}
    found: dict[str, list[Refusal]] = {}
    body = ast.parse(source).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        name = ast.unparse(node.targets[0]).lower() if isinstance(node, ast.Assign) else ""
        if name in texts.TEXTS:
            told = after.value if isinstance(after, ast.Expr) else None
            when = str(told.value) if isinstance(told, ast.Constant) else ""
            section = sections[max(line for line in sections if line < node.lineno)]
            found.setdefault(section, []).append(Refusal(name, _VARYING.sub("<…>", texts.TEXTS[name]), when))
    return found


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
            "Why servers do not do what was asked for: a code for programs, and a text for people. Texts may change, codes "
            "do not. Answers to [requests](requests.md) carry both, in `error_code` and `error`. Those of the STAN protocol "
            "carry the text alone, as the original's do. `stan_client` raises a `ServerError` for either, with the code in "
            "`code`; other clients show the text. What stands in angle brackets varies, and some texts are followed by "
            "more, behind a colon."
        ),
    ]
    for section, found in refusals().items():
        rows = [(code(one.code), code(one.text), shown(one.when)) for one in found]
        parts += [f"### Refusals: {section}", table(("code", "text", "when"), rows)]
    parts += [
        "## Errors of the server",
        "Why a server refuses, waits or ends; its log has the text.",
        _table(operating_errors()),
    ]
    for package in PACKAGES:
        parts += [f"## Errors of {package.__name__}", _table(error_classes(package))]
    return page("Errors", *parts)

"""The query of a pipeline, in SQL or as a Python function: read and checked here, without running it."""

import ast
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark_stan.pipeline.tables import TomlTable

VIEW: Final = "events"
"""Name of the view that SQL selects the rows from, unless the file gives another name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Either `sql`, or `function` of a `module`, or of the Python file `script`."""

    view: str
    sql: str
    module: str
    script: str
    function: str

    @property
    def title(self) -> str:
        """The query, as shown to the user."""
        if self.sql:
            return f"by SQL over {self.view}: {' '.join(self.sql.split())}"
        return f"by the function {self.function} of {self.script or self.module}"


def query_of(table: TomlTable, directory: Path) -> Query:
    """Read the table `query` and check it as far as possible without Spark; files are relative to *directory*."""
    given = [key for key in ("sql", "sql_file", "function") if table.given(key)]
    if len(given) != 1:
        which = " and ".join(given) if given else "is missing"
        table.complain(
            given[-1] if given else "sql",
            f"give one of sql, sql_file, function, not {which}" if given else "is missing: sql, sql_file or function",
        )
    view = table.text("view", VIEW)
    if not re.fullmatch(r"[A-Za-z_]\w*", view):
        table.complain("view", f"must be a name such as {VIEW!r}, not {view!r}")
    sql = table.text("sql", required="sql" in given, verbatim=True)
    if "sql_file" in given:
        sql = _sql_of(table, directory)
    module, script, function = _function(table, directory) if "function" in given else ("", "", "")
    table.finish()
    return Query(view=view, sql=sql.strip().rstrip(";"), module=module, script=script, function=function)


def _sql_of(table: TomlTable, directory: Path) -> str:
    path, sql = table.file("sql_file", directory)
    if not (sql.strip() or table.complained_of("sql_file")):
        table.complain("sql_file", f"{path} is empty")
    return sql


def _function(table: TomlTable, directory: Path) -> tuple[str, str, str]:
    """Return module, file and function of `module:function` or `file.py:function`; of module and file one is empty."""
    place, colon, name = table.text("function", required=True).rpartition(":")
    if not (colon and place and name.isidentifier()):
        table.complain("function", "must be 'file.py:function' or 'module:function'")
        return "", "", ""
    if not place.endswith(".py"):
        if not _is_module(place):
            table.complain("function", f"there is no module {place!r} here")
        return place, "", name
    path = (directory / place).absolute()
    if not path.stem.isidentifier():
        table.complain("function", f"{path.name!r} cannot be imported: its name is no Python name")
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        table.complain("function", f"cannot read {path}: {error.strerror}")
    except (SyntaxError, ValueError) as error:
        table.complain("function", f"{path} is not Python: {error}")
    else:
        if name not in _defined(tree):
            table.complain("function", f"{path} has no function {name!r}")
    return "", str(path), name


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _defined(tree: ast.Module) -> set[str]:
    """Return the names that a module defines, imports or assigns at its top level."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names

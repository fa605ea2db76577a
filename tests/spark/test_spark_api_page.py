"""docs/spark-api.md has what there is: functions, columns and errors."""

import ast
import re

import pyspark_stan
import pytest
from pyspark_stan.schema import COLUMNS

from tests.kit.server import ROOT

PAGE = (ROOT / "docs/spark-api.md").read_text(encoding="utf-8")


def section(heading):
    return re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)[1]


@pytest.mark.parametrize("name", pyspark_stan.__all__)
def test_every_function_and_error_is_there(name):
    assert re.search(rf"`{name}[(`]", section("Errors" if name.endswith("Error") else "Functions"))


@pytest.mark.parametrize("name", COLUMNS)
def test_every_column_is_there_with_its_type(name):
    (row,) = re.findall(rf"^\| `{name}` \| (.*?) \|", section("Columns of a read"), re.MULTILINE)
    kind = COLUMNS[name].simpleString().replace(":", ": ").replace(",", ", ")
    assert row.startswith(kind)


def raised():
    """The errors that users of the package may meet: those of the client's family, and of pipelines and Java."""
    found = set()
    for file in (ROOT / "clients/pyspark_stan").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
                found.add((node.name, ast.unparse(node.bases[0])))
    return sorted(name for name, base in found if base != "ValueError")


@pytest.mark.parametrize("name", raised())
def test_every_error_is_there(name):
    assert f"`{name}`" in section("Errors")

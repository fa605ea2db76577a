"""All generated pages by their names in the site."""

import ast
from pathlib import Path
from types import ModuleType
from typing import Final

import pyspark_stan
import stan_client
import stan_lake

from docs.generator.commands import commands_page
from docs.generator.errors import errors
from docs.generator.markdown import block, code, page
from docs.generator.metrics import metrics_page
from docs.generator.options import options
from docs.generator.policies import policies
from docs.generator.requests import requests

EXAMPLES: Final = Path(__file__).resolve().parents[1] / "docs" / "examples"

MORE: Final = {
    "stan_client": (
        "stan_protocol.admin_types",
        "stan_client.blocking.BlockingClient",
        "stan_client.typed.TypedChannel",
        "stan_client.tracing.Tracing",
        "stan_client.dead_letters",
        "stan_client.testing",
    )
}
"""Public names of a package that have to be imported from a module of it."""


def public_names(package: ModuleType) -> list[str]:
    """The public names of a package but its errors, which have a page of their own."""
    names = [f"{package.__name__}.{name}" for name in package.__all__ if not name.endswith("Error")]
    return [*names, *MORE.get(package.__name__, ())]


def python_api(package: ModuleType, text: str) -> str:
    """The page of a package: each public name with its signature and docstring, which mkdocstrings reads from the source."""
    parts = [f"::: {name}" for name in public_names(package)]
    return page(f"The package {package.__name__}", text, "Its errors are on [a page of their own](errors.md).", *parts)


def examples() -> str:
    """The page with all example programs; the first lines of their docstrings are the headings."""
    parts = []
    for path in sorted(EXAMPLES.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        told = ast.get_docstring(ast.parse(text)) or path.stem
        title, _, rest = told.partition("\n")
        parts += [f"## {title.rstrip('.')}", rest.strip(), code(f"docs/examples/{path.name}"), block("python", text)]
    return page(
        "Examples",
        "Small complete programs. Each one runs in the tests against a real server, as it stands here. They connect to "
        "`nats://127.0.0.1:4222`, or to what `STAN_SERVER` says.",
        *parts,
    )


def pages() -> dict[str, str]:
    """The text of each page."""
    return {
        "examples.md": examples(),
        "reference/options.md": options(),
        "reference/policies.md": policies(),
        "reference/commands.md": commands_page(),
        "reference/metrics.md": metrics_page(),
        "reference/errors.md": errors(),
        "reference/requests.md": requests(),
        "reference/stan_client.md": python_api(
            stan_client, "The Python client. How to use it is told in [Python clients](../python.md)."
        ),
        "reference/pyspark_stan.md": python_api(
            pyspark_stan, "The source and sink for Spark. Options and columns are told in [Spark](../spark.md)."
        ),
        "reference/stan_lake.md": python_api(
            stan_lake, "The lake. How it is filled and read is told in [The lake](../lake.md)."
        ),
    }

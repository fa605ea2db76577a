"""The page with all metrics, read from the source that makes them, as most exist only while a server runs."""

import ast
import inspect
from collections.abc import Iterator
from typing import Final, NamedTuple

from docs.generator.markdown import code, codes, page, shown, table
from stan.monitor.metrics import metrics

MAKERS: Final = {
    "_gauge": ("stan_", "gauge"),
    "_counter": ("stan_", "counter"),
    "_histogram": ("stan_", "histogram"),
    "of": ("stan_durable_", "gauge"),
    "CounterMetricFamily": ("", "counter"),
    "GaugeMetricFamily": ("", "gauge"),
    "HistogramMetricFamily": ("", "histogram"),
    "InfoMetricFamily": ("", "info"),
}
"""Functions that make a family: what begins its name, and its kind."""
OF_CURSORS: Final = ("channel", "name", "kind", "client")
_SUFFIXES: Final = {"counter": "_total", "info": "_info"}


class Family(NamedTuple):
    """Series of one name."""

    name: str
    kind: str
    text: str
    labels: tuple[str, ...]


def families() -> list[Family]:
    """All that the monitoring page can have, in the order of the source.

    Raises:
        ValueError: the source makes a family in a way that is not read here.
    """
    tree = ast.parse(inspect.getsource(inspect.getmodule(metrics)))  # type: ignore[arg-type] # it has one
    return list(_families(tree, {}))


def _families(node: ast.AST, texts: dict[str, object]) -> Iterator[Family]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in MAKERS:
        return  # passes on what it is given
    if isinstance(node, ast.FunctionDef):
        texts = dict(_texts(node))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS:
        yield _family(node, node.func.id, texts)
    for child in ast.iter_child_nodes(node):
        yield from _families(child, texts)


def _texts(function: ast.FunctionDef) -> Iterator[tuple[str, object]]:
    """Local names for texts."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                yield name, text


def _family(call: ast.Call, maker: str, texts: dict[str, object]) -> Family:
    def value(node: ast.expr) -> object:
        return eval(compile(ast.Expression(node), "metrics", "eval"), {"__builtins__": {}}, texts)  # noqa: S307 - our source

    begins, kind = MAKERS[maker]
    try:
        name, text = map(value, call.args[:2])
        told = next((value(each.value) for each in call.keywords if each.arg == "labels"), ())
    except (NameError, ValueError) as error:
        raise ValueError(f"line {call.lineno}: {error}") from error
    labels = told if isinstance(told, tuple) else ()
    if maker == "of":
        labels = OF_CURSORS
    return Family(f"{begins}{name}{_SUFFIXES.get(kind, '')}", kind, str(text), labels)


def metrics_page() -> str:
    """The page."""
    rows = [(code(one.name), one.kind, codes(one.labels), shown(one.text)) for one in families()]
    return page(
        "Metrics",
        "What `/metrics` of the monitoring port tells to Prometheus. How to set it up, and what to alert on, is told in "
        "[monitoring](../monitoring.md).",
        "A channel, with its durables and queue groups, is told of by the node that leads it, so that a sum over all nodes "
        "counts nothing twice. Where there are too many channels or durables, series of single ones are left out: "
        "`stan_left_out` is 1 then, and `/metrics?channel=NAME` asks for them.",
        table(("series", "kind", "labels", "what"), rows),
    )

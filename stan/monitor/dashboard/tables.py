"""Searches, sorts and pages long tables, as the parameters of a request say. Knows nothing of HTTP."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from stan import limits


class BadQuestionError(Exception):
    """A parameter of a request is invalid; the text is sent to the browser."""


class TableQuery(NamedTuple):
    """The part of a table that a request wants."""

    search: str  # words that a row's name must contain, in lower case; empty: all rows
    order: str
    descending: bool
    offset: int  # rows before the first one
    limit: int  # rows at most

    @classmethod
    def of(cls, query: Mapping[str, str], orders: Mapping[str, Any], order: str) -> "TableQuery":
        """Read the parameters of a request; *orders*: the allowed values of `sort`, *order*: its default. Raises
        BadQuestionError."""
        sort = query.get("sort") or order
        if sort.lstrip("-") not in orders:
            raise BadQuestionError(f"sort: one of {', '.join(orders)}, with - in front for downwards")
        return cls(
            query.get("search", "").strip().lower(),
            sort.lstrip("-"),
            sort.startswith("-"),
            number(query, "offset", 0, limits.DASHBOARD_LISTED_MAX),
            number(query, "limit", 50, limits.DASHBOARD_ROWS_MAX),
        )


def number(query: Mapping[str, str], name: str, default: int, most: int, least: int = 0) -> int:
    """Return a parameter that is a whole number >= *least*; a number above *most* becomes *most*. Raises BadQuestionError."""
    text = query.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 20 or int(text) < least:
        raise BadQuestionError(f"{name}: a whole number from {least} on, not {text[:40]!r}")
    return min(int(text), most)


def chosen(
    names: Sequence[str], query: TableQuery, key: Callable[[int], Any], keep: Callable[[int], bool] | None = None
) -> tuple[list[int], int]:
    """Return the indexes of the rows to show, and the number of rows that match.

    Args:
        names: the texts that a search looks at, one for each row.
        query: the part that is requested.
        key: returns the value that a row is sorted by; rows with equal values keep their order.
        keep: returns False for a row that is left out.
    """
    words = query.search.split()
    matching: Sequence[int] = range(len(names))
    if words:
        matching = [at for at in matching if all(word in names[at] for word in words)]
    if keep is not None:
        matching = [at for at in matching if keep(at)]
    ordered = sorted(matching, key=key, reverse=query.descending)
    return ordered[query.offset : query.offset + query.limit], len(ordered)

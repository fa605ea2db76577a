"""Search, order and pages of long tables: which rows a browser gets, and what it asks for it with. Knows nothing of HTTP."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from stan import limits


class BadQuestionError(Exception):
    """A parameter makes no sense; the text is for who asked."""


class TableQuery(NamedTuple):
    """The part of a table that is asked for."""

    search: str
    order: str
    descending: bool
    offset: int
    limit: int

    @classmethod
    def of(cls, query: Mapping[str, str], orders: Mapping[str, Any], order: str) -> "TableQuery":
        """As the parameters say, else by *order* upwards. Raises BadQuestionError."""
        asked = query.get("sort") or order
        if asked.lstrip("-") not in orders:
            raise BadQuestionError(f"sort: one of {', '.join(orders)}, with - in front for downwards")
        return cls(
            query.get("search", "").strip().lower(),
            asked.lstrip("-"),
            asked.startswith("-"),
            number(query, "offset", 0, limits.DASHBOARD_LISTED_MAX),
            number(query, "limit", 50, limits.DASHBOARD_ROWS_MAX),
        )


def number(query: Mapping[str, str], name: str, default: int, most: int, least: int = 0) -> int:
    """A parameter that is a whole number. Raises BadQuestionError."""
    text = query.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 20 or int(text) < least:
        raise BadQuestionError(f"{name}: a whole number from {least} on, not {text[:40]!r}")
    return min(int(text), most)


def chosen(
    names: Sequence[str], wanted: TableQuery, key: Callable[[int], Any], keep: Callable[[int], bool] | None = None
) -> tuple[list[int], int]:
    """The rows to show, as indexes, and how many match; *key* tells what row is ordered by, of equals the first comes first."""
    words = wanted.search.split()
    found: Sequence[int] = range(len(names))
    if words:
        found = [at for at in found if all(word in names[at] for word in words)]
    if keep is not None:
        found = [at for at in found if keep(at)]
    ordered = sorted(found, key=key, reverse=wanted.descending)
    return ordered[wanted.offset : wanted.offset + wanted.limit], len(ordered)

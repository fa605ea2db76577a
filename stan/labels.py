"""Labels of a node: where it stands, so that the copies of a group stand in different places.

    zone=a,rack=3,host=h1      a rack is one of its zone, a host one of its rack; each may be missing

Two nodes share a zone if both tell the same one. What a node does not tell it shares with nobody.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

LABEL_CHARS_MAX: Final = 64
"""Length of a label's value; it is part of what nodes tell each other every second."""
Row = TypeVar("Row")
_VALUE: Final = re.compile(r"[A-Za-z0-9._-]+")


class Labels(NamedTuple):
    """Where one node stands, the widest place first; "": not told."""

    zone: str = ""
    rack: str = ""
    host: str = ""

    def __str__(self) -> str:
        """As the option takes them: `zone=a,rack=3`."""
        return ",".join(f"{key}={value}" for key, value in self._asdict().items() if value)


NO_LABELS: Final = Labels()


def parse_labels(told: tuple[str, ...]) -> Labels:
    """Labels from their parts, `zone=a` and so on. Raises ValueError, with what is wrong."""
    found: dict[str, str] = {}
    for part in told:
        key, mark, value = (each.strip() for each in part.partition("="))
        if not mark or key not in Labels._fields:
            raise ValueError(f"a label is zone=, rack= or host=, not {part!r}")
        if key in found:
            raise ValueError(f"the label {key} is told twice")
        if not _valid(value):
            raise ValueError(
                f"the label {key} has letters, digits, `.`, `-` and `_`, {LABEL_CHARS_MAX} at most, not {value!r}"
            )
        found[key] = value
    return Labels(**found)


def _valid(value: str) -> bool:
    return _VALUE.fullmatch(value) is not None and len(value) <= LABEL_CHARS_MAX


def places_of(rows: Iterable[Any]) -> dict[str, Labels]:
    """Labels of nodes by name, from rows with `node`, `zone`, `rack`, `host`; values that no option could tell are left out."""
    return {
        row.node: Labels(*(value if _valid(value) else "" for value in (row.zone, row.rack, row.host))) for row in rows
    }


def place_rows(places: Mapping[str, Labels], row: Callable[..., Row]) -> list[Row]:
    """Rows of the nodes that have labels, by name; *row* makes one."""
    return [row(node=node, **labels._asdict()) for node, labels in sorted(places.items()) if any(labels)]

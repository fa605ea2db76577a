"""Types of columns, in Spark's words (`bigint`, `array<string>`, `struct<a:int>`): read, written, and two made one. Pure.

Promises that Spark accepts every type that is accepted here, so that a file can be checked without Spark.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

SIMPLE: Final = frozenset(
    (
        *("string", "binary", "boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"),
        *("float", "real", "double", "date", "timestamp", "timestamp_ntz"),
    )
)
_SAME: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|[A-Za-z_][A-Za-z0-9_]*|\d+|[<>(),:])")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_DECIMAL_DIGITS_MAX: Final = 38
_WIDER: Final = ("tinyint", "smallint", "int", "bigint", "float", "double")
"""Numbers; each type has, for our purpose, the values of those before it."""


class TypeTextError(ValueError):
    """The text is not a type; the message goes on after the text, as in "the type 'x' has no meaning at ..."."""


class ColumnType(NamedTuple):
    """A type: `parts` are the items of an array, the keys and values of a map, or the fields of a struct, whose `names` tell
    which is which."""

    name: str
    parts: tuple["ColumnType", ...] = ()
    names: tuple[str, ...] = ()

    def fields(self) -> dict[str, "ColumnType"]:
        """The fields of a struct."""
        return dict(zip(self.names, self.parts, strict=True))

    def __str__(self) -> str:
        """Return the type in Spark's DDL syntax."""
        if self.name == "struct":
            return f"struct<{','.join(f'{quoted(name)}:{part}' for name, part in self.fields().items())}>"
        return f"{self.name}<{','.join(map(str, self.parts))}>" if self.parts else self.name


TEXT: Final = ColumnType("string")


def parse_type(text: str) -> ColumnType:
    """Return the type that *text* tells.

    Raises:
        TypeTextError: it is none; the message says where it goes wrong.
    """
    words = _Words(text)
    kind = _type(words)
    if words.next:
        raise TypeTextError(f"does not end behind a type: {words.next!r} follows")
    return kind


def struct(fields: dict[str, ColumnType]) -> ColumnType:
    """Return a struct of *fields*."""
    return ColumnType("struct", tuple(fields.values()), tuple(fields))


def merged(first: ColumnType, second: ColumnType) -> ColumnType:
    """Return a type that has the values of both: the wider number, a struct with the fields of both; else TEXT."""
    if first == second:
        return first
    if first.name in _WIDER and second.name in _WIDER:
        return ColumnType(max(first.name, second.name, key=_WIDER.index))
    if first.name == second.name == "struct":
        return struct(merged_fields(first.fields(), second.fields()))
    if first.name == second.name and first.parts and second.parts:
        return ColumnType(first.name, tuple(merged(*pair) for pair in zip(first.parts, second.parts, strict=True)))
    return TEXT


def merged_fields(first: dict[str, ColumnType], second: dict[str, ColumnType]) -> dict[str, ColumnType]:
    """Return the fields of both, those of *first* first."""
    return {**first, **{name: merged(first[name], kind) if name in first else kind for name, kind in second.items()}}


def ddl(columns: Mapping[str, object]) -> str:
    """Return *columns* as a schema in Spark's DDL syntax."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())


def quoted(name: str) -> str:
    """Quote a column's name for a schema or a query."""
    return f"`{name.replace('`', '``')}`"


class _Words:
    """The words of a type, read one by one; `next` is empty at the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.next = ""
        self.step()

    def step(self) -> str:
        """Read one word; returns it, and `next` is the one after it."""
        before, rest = self.next, self._text[self._at :]
        token = _TOKEN.match(rest)
        if not token and rest.strip():
            raise TypeTextError(f"has no meaning at {rest.strip()[:20]!r}")
        self.next = token[1] if token else ""
        self._at += token.end() if token else 0
        return before

    def expect(self, *marks: str) -> str:
        if self.next not in marks:
            expected = " or ".join(repr(mark) for mark in marks)
            raise TypeTextError(f"wants {expected} instead of {self.next or 'its end'!r}")
        return self.step()

    def name(self) -> str:
        if self.next.startswith("`"):
            return self.step()[1:-1].replace("``", "`")
        if not _NAME.fullmatch(self.next):
            raise TypeTextError(f"wants a field's name instead of {self.next or 'its end'!r}")
        return self.step()


def _type(words: _Words) -> ColumnType:
    name = words.step().lower()
    if name in ("array", "map"):
        words.expect("<")
        parts = [_type(words)]
        if name == "map":
            words.expect(",")
            parts.append(_type(words))
        words.expect(">")
        return ColumnType(name, tuple(parts))
    if name == "struct":
        words.expect("<")
        fields: dict[str, ColumnType] = {}
        more = ","
        while more == ",":
            field = words.name()
            words.expect(":")
            fields[field] = _type(words)
            more = words.expect(",", ">")
        return struct(fields)
    if name == "decimal":
        return ColumnType(_decimal(words) if words.next == "(" else "decimal(10,0)")
    if name not in SIMPLE:
        known = ", ".join(sorted(SIMPLE))
        raise TypeTextError(
            f"has {name!r} in it, which is none; there are {known}, decimal(p,s), array<...>, map<...,...>, struct<name:...,...>"
        )
    return ColumnType(_SAME.get(name, name))


def _decimal(words: _Words) -> str:
    words.expect("(")
    digits, scale = words.step(), "0"
    if words.expect(",", ")") == ",":
        scale = words.step()
        words.expect(")")
    if not (digits.isdigit() and scale.isdigit() and int(scale) <= int(digits) <= _DECIMAL_DIGITS_MAX and int(digits)):
        raise TypeTextError(f"has a decimal({digits},{scale}), which cannot be")
    return f"decimal({int(digits)},{int(scale)})"

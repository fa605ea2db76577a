"""Checks the types of a payload's columns, in Spark's words (`bigint`, `array<string>`, `struct<a:int>`); pure.

Promises that Spark accepts every type that is accepted here, so that a file can be checked without Spark.
"""

import re
from typing import Final

SIMPLE: Final = frozenset(
    (
        *("string", "binary", "boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"),
        *("float", "real", "double", "date", "timestamp", "timestamp_ntz"),
    )
)
_TOKEN: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|\d+|[<>(),:])")
_DECIMAL_DIGITS_MAX: Final = 38


class TypeTextError(ValueError):
    """The text is not a type; the message goes on after the text, as in "the type 'x' has no meaning at ..."."""


def check_type(text: str) -> None:
    """Return if *text* is a type.

    Raises:
        TypeTextError: it is not; the message says where it goes wrong.
    """
    words = _Words(text)
    _type(words)
    if words.next:
        raise TypeTextError(f"does not end behind a type: {words.next!r} follows")


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
        found = _TOKEN.match(rest)
        if not found and rest.strip():
            raise TypeTextError(f"has no meaning at {rest.strip()[:20]!r}")
        self.next = found[1] if found else ""
        self._at += found.end() if found else 0
        return before

    def expect(self, *marks: str) -> str:
        if self.next not in marks:
            wanted = " or ".join(repr(mark) for mark in marks)
            raise TypeTextError(f"wants {wanted} instead of {self.next or 'its end'!r}")
        return self.step()


def _type(words: _Words) -> None:
    name = words.step().lower()
    if name == "array":
        words.expect("<")
        _type(words)
        words.expect(">")
    elif name == "map":
        words.expect("<")
        _type(words)
        words.expect(",")
        _type(words)
        words.expect(">")
    elif name == "struct":
        words.expect("<")
        while True:
            if not re.fullmatch(r"[A-Za-z_]\w*", words.next):
                raise TypeTextError(f"wants a field's name instead of {words.next or 'its end'!r}")
            words.step()
            words.expect(":")
            _type(words)
            if words.expect(",", ">") == ">":
                break
    elif name == "decimal":
        if words.next == "(":
            _decimal(words)
    elif name not in SIMPLE:
        known = ", ".join(sorted(SIMPLE))
        raise TypeTextError(
            f"has {name!r} in it, which is none; there are {known}, decimal(p,s), array<...>, map<...,...>, struct<name:...,...>"
        )


def _decimal(words: _Words) -> None:
    words.expect("(")
    digits, scale = words.step(), "0"
    if words.expect(",", ")") == ",":
        scale = words.step()
        words.expect(")")
    if not (digits.isdigit() and scale.isdigit() and int(scale) <= int(digits) <= _DECIMAL_DIGITS_MAX and int(digits)):
        raise TypeTextError(f"has a decimal({digits},{scale}), which cannot be")

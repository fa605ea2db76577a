"""Writes parsed values of a configuration file as text again, for nats-server; pure.

Promises: the text is read back as the same values, by nats-server too; variables stay variables where their values
are written as well, and each line has its place in the user's files.
"""

import re
from decimal import Decimal
from typing import NamedTuple

from stan.settings.nats_conf import ConfNode, Document, Moment

_NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


class Rendered(NamedTuple):
    """Values as text."""

    text: bytes
    places: tuple[str, ...]  # of each line, file and line that it comes from
    used: set[int]  # ids of the nodes that variables in it refer to


def render(document: Document) -> Rendered:
    """Text that means *document*, with one value a line."""
    writer = _Writer()
    writer.entries(document)
    return Rendered("".join(writer.parts).encode("utf-8", "surrogateescape") + b"\n", tuple(writer.places), writer.used)


class _Writer:
    def __init__(self) -> None:
        self.parts: list[str] = []
        self.places = [""]
        self.used: set[int] = set()
        self._scopes: list[Document] = []

    def entries(self, document: Document) -> None:
        written: Document = {}
        self._scopes.append(written)
        for key, node in document.items():
            self._begin_line(node)
            self._write(_key(key) + ": ")
            self._value(node)
            written[key] = node
        self._scopes.pop()

    def _value(self, node: ConfNode) -> None:
        data = node.data
        known = next((scope[node.variable] for scope in reversed(self._scopes) if node.variable in scope), None)
        if node.variable and known is not None and known.data is data:
            self.used.add(id(known))
            self._write(f"${node.variable}")
        elif isinstance(data, dict):
            self._write("{")
            self.entries(data)
            self._write(" }")
        elif isinstance(data, list):
            self._write("[")
            for element in data:
                self._begin_line(element)
                self._value(element)
            self._write(" ]")
        else:
            self._write(_scalar(data))

    def _begin_line(self, node: ConfNode) -> None:
        if self.parts:
            self._write("\n")
        self.places[-1] = node.place

    def _write(self, text: str) -> None:
        self.places += self.places[-1:] * text.count("\n")
        self.parts.append(text)


def _key(key: str) -> str:
    return f'"{key}"' if '"' not in key else f"'{key}'" if "'" not in key else key


def _scalar(data: str | float | Moment) -> str:
    if isinstance(data, Moment):
        return str(data)
    if isinstance(data, str):
        return (
            '"' + re.sub(r'[\x00-\x1f"\\]', lambda match: _NAMED.get(match[0], f"\\x{ord(match[0]):02x}"), data) + '"'
        )
    if isinstance(data, bool):
        return str(data).lower()
    if isinstance(data, float):
        text = f"{Decimal(repr(data)):f}"
        return text if "." in text else f"{text}.0"
    return str(data)

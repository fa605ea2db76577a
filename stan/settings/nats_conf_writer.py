"""Writes parsed values of a configuration file as text again, for nats-server; pure.

Promises: what is written is read back as the same values, by nats-server too; variables stay variables where what they
refer to is written as well, and what stood in the file keeps its line if it can, so that complaints about it fit.
"""

import re
from decimal import Decimal

from stan.settings.nats_conf import ConfNode, Document, Moment

_NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def render(document: Document, file: str = "") -> tuple[bytes, set[int]]:
    """Text that means *document*, what stands in *file* on the same lines if it can, and the ids of the nodes that its
    variables refer to.
    """
    writer = _Writer(file)
    writer.entries(document)
    return "".join(writer.parts).encode("utf-8", "surrogateescape") + b"\n", writer.used


class _Writer:
    def __init__(self, file: str) -> None:
        self.parts: list[str] = []
        self.used: set[int] = set()
        self._file = file
        self._line = 1
        self._scopes: list[Document] = []

    def entries(self, document: Document) -> None:
        written: Document = {}
        self._scopes.append(written)
        for key, node in document.items():
            missing = node.line - self._line if node.file == self._file else 0
            self._write("\n" * missing if missing > 0 else ", " if written else "")
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
            self._write("{ ")
            self.entries(data)
            self._write(" }")
        elif isinstance(data, list):
            self._write("[ ")
            for number, element in enumerate(data):
                self._write(", " if number else "")
                self._value(element)
            self._write(" ]")
        else:
            self._write(_scalar(data))

    def _write(self, text: str) -> None:
        self._line += text.count("\n")
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

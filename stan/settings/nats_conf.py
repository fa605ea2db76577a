"""The configuration language of NATS: from a file to values that know where they stand.

Promises: maps with `:`, `=` or nothing between key and value, arrays, quoted and bare strings, `(` blocks `)`, numbers with
size suffixes, switches, comments, `$NAME` from an outer block or the environment, and `include`; an error is a ConfError
that names file and line. Files, includes, nesting and the number of values are bounded. Knows no key, executes nothing.
Modelled on the conf package of nats-server.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from stan_protocol.refusals import go_quote
from stan_protocol.units import INT64_MAX, INT64_MIN, parse_size

from stan.errors import StanError

FILE_BYTES_MAX: Final = 1024 * 1024
INCLUDES_MAX: Final = 100
"""Files that one file may include, those within included ones counted in."""
NESTING_MAX: Final = 64
"""Blocks, arrays, included files and variables of the environment within each other."""
VALUES_MAX: Final = 100_000
"""Values in a file once all its variables are put in."""
ERRORS_MAX: Final = 50
"""Errors behind which reading goes on."""


class Moment(str):
    """A date and time, as written: `2026-01-31T12:00:00Z`."""

    __slots__ = ()


Data: TypeAlias = "str | bool | int | float | Moment | list[ConfNode] | Document"
Document: TypeAlias = dict[str, "ConfNode"]


@dataclass(slots=True)
class ConfNode:
    """A value and its place; `line` is that of its key where it has one."""

    data: Data
    file: str
    line: int
    variable: str = ""  # the name of the variable that it comes from, if any
    referenced: bool = False  # it was looked up by a variable elsewhere
    size: int = 1  # values in it, itself counted in

    @property
    def place(self) -> str:
        """The beginning of complaints."""
        return f"{self.file}:{self.line}"


class ConfError(StanError):
    """The text cannot be read; names file and line.

    Attributes:
        others: further errors, after this one.
        document: the parts that could be read.
    """

    def __init__(self, file: str, line: int, text: str) -> None:
        super().__init__(f"{file}:{line}: {text}" if line else f"{file}: {text}")
        self.others: list[ConfError] = []
        self.document: Document = {}


def load(file: Path, environ: Mapping[str, str] | None = None) -> Document:
    """Read *file* and its included files; variables may come from *environ*, by default the process's.

    Raises:
        ConfError: something in it cannot be read, or an included file.
        OSError: *file* cannot.
    """
    return parse(_read(str(file)), str(file), os.environ if environ is None else environ, _read)


def parse(
    data: bytes, file: str, environ: Mapping[str, str] | None = None, read: Callable[[str], bytes] | None = None
) -> Document:
    """Return the values of *data*, which stands in *file*; without *read* nothing can be included.

    Raises:
        ConfError: it cannot be read; has all errors, as far as reading could go on after the first.
    """
    sources = _Sources({} if environ is None else environ, read)
    try:
        document = _Parser(sources, data, file, (os.path.realpath(file),)).document()
    except ConfError as error:
        sources.errors.append(error)
        document = {}
    if sources.errors:
        first, *first.others = sources.errors
        first.document = document
        raise first
    return document


def _read(file: str) -> bytes:
    with open(file, "rb") as stream:  # noqa: PTH123 - names are joined as texts here
        return stream.read(FILE_BYTES_MAX + 1)


class _Sources:
    """The sources of text besides the file, and the bytes included so far."""

    def __init__(self, environ: Mapping[str, str], read: Callable[[str], bytes] | None) -> None:
        self.environ = environ
        self.read = read
        self.included = 0
        self.errors: list[ConfError] = []  # behind which reading went on


_BLANK = re.compile(r"[ \t]*+")
_SPACE = re.compile(r"\s*+")
_GAP = re.compile(r"(?:[\s;,]|\#[^\n]*+|//[^\n]*+)*+")  # between entries, and between elements of an array
_GAP_OR_END = re.compile(rf"(?:(?:{_GAP.pattern}\}}+)*+{_GAP.pattern}\Z|{_GAP.pattern})")
_REST = re.compile(r"[ \t]*+(?=[\n\r;,\]}\#]|//|\Z)")  # text that may follow a value
_KEY = re.compile(r"""\"([^"]*+)"|'([^']*+)'|([^\s:="'][^\s:=]*+)""")
_NAME = re.compile(r"""\"([^"]*+)"|'([^']*+)'|([^\s;}"']++)""")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_SINGLE = re.compile(r"'([^']*+)'")
_BLOCK = re.compile(r"\((.*?\n)[ \t]*\)(?=\n|\Z)", re.DOTALL)
_BARE = re.compile(r"(?:[^ \t\n\r;,\]}\\]|\\.)++")
_LINE = re.compile(r"[^\n]*+")
_OPENING = re.compile(r"""[\[\]{}()"']""")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_INTEGER = re.compile(r"-?[0-9]+(?:[kmgtpe](?:b|i|ib)?)?", re.IGNORECASE | re.ASCII)
_FLOAT = re.compile(r"-?[0-9]+\.[0-9]+", re.ASCII)
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", re.ASCII)
_SWITCHES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_HASHED = ("$2a$", "$2b$", "$2y$")  # passwords hashed by bcrypt are no variables


class _Parser:
    """Reads one text from its begin to its end."""

    def __init__(self, sources: _Sources, data: bytes, file: str, parents: tuple[str, ...], depth: int = 0) -> None:
        self._sources = sources
        self._text = data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
        self._file = file
        self._parents = parents  # real names of this file and of those that include it
        self._depth = depth
        self._scopes: list[Document] = []
        self._at = 0
        self._line = 1
        self._counted = 0  # up to here lines are counted
        self._grouped = False  # within braces at the top
        if len(data) > FILE_BYTES_MAX:
            raise self._error(f"is larger than {FILE_BYTES_MAX} bytes")

    def document(self) -> Document:
        """The whole text: entries, some or all of which may stand in braces."""
        document: Document = {}
        self._entries(document, "")
        self._size(document.values())
        return document

    def alone(self) -> ConfNode:
        """The whole text, as one value."""
        self._skip(_BLANK)
        node = self._value()
        self._skip(_GAP)
        if self._at < len(self._text):
            raise self._error("is more than one value")
        return node

    def _entries(self, document: Document, close: str) -> None:
        """Add entries to *document*, up to *close*, which is consumed, or to the end."""
        self._scopes.append(document)
        while not self._closed(close):
            scopes, depth = len(self._scopes), self._depth
            try:
                if scopes == 1 and self._accept("{"):
                    self._group(document)
                    continue
                self._entry(document)
                self._end_of_value()
                if not close:
                    self._accept("}")  # for nats-server the end of a value
            except ConfError as error:
                rest = _LINE.match(self._text, self._at)
                if rest is None or _OPENING.search(rest[0]) or len(self._sources.errors) >= ERRORS_MAX:
                    raise  # the next entry may begin anywhere
                del self._scopes[scopes:]
                self._depth = depth
                self._sources.errors.append(error)
                self._at = rest.end()
        self._scopes.pop()

    def _group(self, document: Document) -> None:
        """Add entries that stand in braces without a key in front."""
        self._grouped = True
        self._entries(document, "}")
        self._grouped = False

    def _entry(self, document: Document) -> None:
        line = self._line_now()
        match = _KEY.match(self._text, self._at)
        if match is None:
            raise self._error(f"a key was expected, not {go_quote(self._text[self._at])}")
        self._at = match.end()
        bare = match[3]
        if bare is not None and bare.lower() == "include" and self._text[self._at : self._at + 1].isspace():
            document |= self._include()
            return
        if bare is not None and bare.endswith("{"):
            raise self._error(f"a space is missing before the brace of {go_quote(bare)}")
        self._skip(_SPACE)
        named = self._text[self._at : self._at + 1] in (":", "=")
        self._at += named
        self._skip(_SPACE if len(self._scopes) > 1 + self._grouped else _BLANK)
        node = ConfNode("", self._file, line) if named and self._is_empty() else self._value()
        node.line = line
        key = next(key for key in match.groups() if key is not None)
        document.pop(key, None)  # the entry that counts is the last one, also for its place
        document[key] = node

    def _is_empty(self) -> bool:
        """Return True where a block or the text ends instead of a value, as where a template had nothing to put in."""
        return self._text[self._at : self._at + 1] in ("}", "")

    def _value(self) -> ConfNode:
        line = self._line_now()
        match self._text[self._at : self._at + 1]:
            case "{" | "[" as opening:
                return self._nested(opening, line)
            case '"':
                return ConfNode(self._unescaped(self._match(_DOUBLE, "the string has no end")), self._file, line)
            case "'":
                return ConfNode(self._match(_SINGLE, "the string has no end"), self._file, line)
            case "(":
                return ConfNode(self._match(_BLOCK, "the block has no `)` on a line by itself"), self._file, line)
            case _:
                return self._bare(line)

    def _nested(self, opening: str, line: int) -> ConfNode:
        self._at += 1
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._error(f"more than {NESTING_MAX} blocks within each other")
        if opening == "{":
            block: Document = {}
            self._entries(block, "}")
            node = ConfNode(block, self._file, line, size=self._size(block.values()))
        else:
            elements = self._elements()
            node = ConfNode(elements, self._file, line, size=self._size(elements))
        self._depth -= 1
        return node

    def _size(self, nodes: Iterable[ConfNode]) -> int:
        size = 1 + sum(node.size for node in nodes)
        if size > VALUES_MAX:
            raise self._error(f"more than {VALUES_MAX} values")
        return size

    def _elements(self) -> list[ConfNode]:
        nodes: list[ConfNode] = []
        while not self._closed("]"):
            nodes.append(self._value())
            self._end_of_value()
        return nodes

    def _bare(self, line: int) -> ConfNode:
        match = _BARE.match(self._text, self._at)
        if match is None:
            raise self._error("a value was expected")
        self._at = match.end()
        text = match[0]
        if "\\" in text:
            return ConfNode(self._unescaped(text), self._file, line)
        if text.startswith("$") and not text.startswith(_HASHED):
            return self._variable(text[1:], line)
        if text.lower() in _SWITCHES:
            return ConfNode(_SWITCHES[text.lower()], self._file, line)
        if _MOMENT.fullmatch(text):
            return ConfNode(Moment(text), self._file, line)
        if not (_INTEGER.fullmatch(text) or _FLOAT.fullmatch(text)):
            return ConfNode(text, self._file, line)
        try:
            number = float(text) if "." in text else parse_size(text)
        except ValueError:
            number = INT64_MAX + 1
        if not INT64_MIN <= number <= INT64_MAX:
            raise self._error(f"the number {text[:40]} is out of range")
        return ConfNode(number, self._file, line)

    def _variable(self, name: str, line: int) -> ConfNode:
        """The value last given to *name* in this block or one around it, else in the environment."""
        for scope in reversed(self._scopes):
            if name in scope:
                scope[name].referenced = True
                return ConfNode(scope[name].data, self._file, line, name, size=scope[name].size)
        text = self._sources.environ.get(name)
        if text is None:
            raise self._error(f"variable reference for '{name}' can not be found")
        if self._depth >= NESTING_MAX:
            raise self._error(f"the variable {name} needs itself")
        inner = _Parser(self._sources, os.fsencode(text), f"${name}", self._parents, self._depth + 1)
        try:
            node = inner.alone()
        except ConfError as error:
            raise self._error(f"the variable {name} of the environment: {error}") from None
        return ConfNode(node.data, self._file, line, size=node.size)

    def _include(self) -> Document:
        self._skip(_BLANK)
        match = _NAME.match(self._text, self._at)
        if match is None:
            raise self._error("the name of a file was expected")
        self._at = match.end()
        name = next(name for name in match.groups() if name is not None)
        file = os.path.join(os.path.dirname(self._file), name)  # noqa: PTH118, PTH120
        real = os.path.realpath(file.replace("\0", ""))
        if real in self._parents:
            raise self._error(f"{file} includes itself")
        if self._depth >= NESTING_MAX or self._sources.included == INCLUDES_MAX or self._sources.read is None:
            raise self._error(f"{file} is one file too many to include")
        self._sources.included += 1
        try:
            data = self._sources.read(file)
        except (OSError, ValueError) as error:
            reason = (getattr(error, "strerror", "") or str(error)).lower()
            raise self._error(f"open {file}: {reason}") from None
        return _Parser(self._sources, data, file, (*self._parents, real), self._depth + 1).document()

    # --- the text -------------------------------------------------------------------------------------------------------

    def _closed(self, close: str) -> bool:
        """Return True if *close* comes next, which is consumed, or, if that is "", the end, where surplus braces may stand."""
        self._skip(_GAP if close else _GAP_OR_END)
        if self._at == len(self._text):
            if close:
                raise self._error(f"the end was reached, `{close}` is missing")
            return True
        return bool(close) and self._accept(close)

    def _accept(self, char: str) -> bool:
        """Return True if *char* comes next, which is consumed then."""
        follows = self._text.startswith(char, self._at)
        self._at += follows
        return follows

    def _end_of_value(self) -> None:
        match = _REST.match(self._text, self._at)
        if match is None:
            follows = self._text[self._at : self._at + 20].strip().split("\n")[0]
            raise self._error(f"the value must end the line, but {go_quote(follows)} follows")
        self._at = match.end()

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()

    def _match(self, pattern: re.Pattern[str], problem: str) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise self._error(problem)
        self._at = match.end()
        return match[1]

    def _unescaped(self, text: str) -> str:
        """Replace escape sequences; an x and two digits are a byte."""

        def char(match: re.Match[str]) -> str:
            if len(match[1]) == 3:
                code = int(match[1][1:], 16)
                return chr(code if code < 0x80 else 0xDC00 + code)
            if match[1] not in _ESCAPES:
                raise self._error(f'{go_quote(match[0])} is no escape; there are \\xXX, \\t, \\n, \\r, \\" and \\\\')
            return _ESCAPES[match[1]]

        return _ESCAPE.sub(char, text).encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")

    def _line_now(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def _error(self, text: str) -> ConfError:
        return ConfError(self._file, self._line_now(), text)

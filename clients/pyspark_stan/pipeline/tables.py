"""A table of a TOML file, read key by key. Pure: the variables of the environment are an argument.

Promises to collect all complaints instead of ending at the first one: a wrong type, a missing key, an unknown key, a variable
that is not set. `${NAME}` in a text is replaced by an environment variable, `${NAME:-text}` by *text* if the variable is not set.
Secrets come from the environment only, and no representation shows them.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pyspark_stan.pipeline.lines import KeyLines

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_NAMES: Final = {str: "a text", int: "a number", bool: "true or false", dict: "a table", list: "a list"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class Complaint:
    """A mistake in one key of the file; *key* is empty if it concerns the whole file."""

    line: int
    key: str
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.key}: {self.text}" if self.key else f"line {self.line}: {self.text}"


class Secret:
    """A password or token; `repr` does not show it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the secret text."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)" if self._text else "Secret()"

    def __bool__(self) -> bool:
        return bool(self._text)


class TomlTable:
    """A table of the file; after its keys were read, `finish` complains about unread keys."""

    def __init__(
        self,
        values: Mapping[str, Any],
        path: tuple[str, ...],
        lines: KeyLines,
        complaints: list[Complaint],
        environment: Mapping[str, str],
    ) -> None:
        """Make a table; its keys are checked as they are read.

        Args:
            values: keys and values, as tomllib returns them.
            path: keys that lead to this table.
            lines: the lines of the keys in the file.
            complaints: list that all tables of the file append to.
            environment: variables for `${NAME}`.
        """
        self._values = values
        self._path = path
        self._lines = lines
        self._complaints = complaints
        self._environment = environment
        self._known: set[str] = set()

    def complain(self, key: str, text: str) -> None:
        """Add a complaint about *key* of this table, or about the table itself if *key* is empty."""
        path = (*self._path, key) if key else self._path
        self._complaints.append(Complaint(self._lines.line_of(path), ".".join(path), text))

    def complained_of(self, key: str) -> bool:
        """Return True if there are complaints about *key* or something in it so far."""
        path = ".".join((*self._path, key))
        return any(complaint.key == path or complaint.key.startswith(f"{path}.") for complaint in self._complaints)

    def given(self, key: str) -> bool:
        """Return True if the file has *key*."""
        self._known.add(key)
        return key in self._values

    def table(self, key: str) -> "TomlTable":
        """Return the table under *key*; an empty one if the file has none."""
        return TomlTable(
            self._value_of(key, dict, {}), (*self._path, key), self._lines, self._complaints, self._environment
        )

    def tables(self) -> dict[str, "TomlTable"]:
        """Return the tables in this one, which may have any names."""
        for key in self._values:
            self._value_of(key, dict, {})
        return {key: self.table(key) for key in self._values if self.holds(key, dict)}

    def holds(self, key: str, kind: type) -> bool:
        """Return True if the file has *key* with a value of type *kind*."""
        return self.given(key) and isinstance(self._values[key], kind)

    def numbers(self, key: str) -> dict[str, int]:
        """Return the table under *key*, whose values must be whole numbers >= 0."""
        numbers = self._value_of(key, dict, {})
        for name, value in numbers.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                self.complain(key, f"{name!r} must have a whole number")
        return numbers

    def texts_by_key(self) -> dict[str, str]:
        """Return all keys and values of this table; numbers and booleans are written as Spark reads them."""
        texts = {}
        for key in self._values:
            self._known.add(key)
            value = self._values[key]
            if isinstance(value, bool):
                texts[key] = "true" if value else "false"
            elif isinstance(value, str | int | float):
                texts[key] = self._expand(key, str(value))
            else:
                self.complain(key, "must be a text, a number, true or false")
        return texts

    def text(self, key: str, default: str = "", *, required: bool = False, verbatim: bool = False) -> str:
        """Return the text under *key*; with *required*, complain if it is missing or empty; with *verbatim*, `${NAME}` is not
        replaced."""
        value = self._value_of(key, str, default)
        if required and not value.strip():
            if key not in self._values or isinstance(self._values[key], str):
                self.complain(key, "is missing" if key not in self._values else "is empty")
            return value
        return value if verbatim else self._expand(key, value)

    def file(self, key: str, directory: Path) -> tuple[Path, str]:
        """Return the path of the named file, and its content; "" if it cannot be read."""
        path = directory / self.text(key, required=True)
        try:
            return path, path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self.complain(key, f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}")
            return path, ""

    def choice(self, key: str, allowed: Iterable[str], default: str) -> str:
        """Return the text under *key*, which must be one of *allowed*."""
        value, words = self.text(key, default), list(allowed)
        if value not in words:
            self.complain(key, f"must be one of {', '.join(words)}, not {value!r}")
            return default
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """Return the boolean under *key*."""
        return self._value_of(key, bool, default)

    def number(self, key: str, default: int = 0, *, least: int = 1) -> int:
        """Return the whole number under *key*, which must be at least *least*."""
        value = self._value_of(key, int, default)
        if key in self._values and value < least:
            self.complain(key, f"must be at least {least}, not {value}")
            return default
        return value

    def words(self, key: str) -> tuple[str, ...]:
        """Return the list of texts under *key*; the file may give a single text instead of a list of one."""
        if isinstance(self._values.get(key), str):
            return (self.text(key, required=True),)
        value = self._value_of(key, list, [])
        if not all(isinstance(each, str) and each for each in value):
            self.complain(key, "must be a list of texts")
            return ()
        return tuple(self._expand(key, each) for each in value)

    def secret(self, key: str) -> Secret:
        """Return the secret in the variable that `key = "${NAME}"` or `key_env = "NAME"` names; complain about a secret that is
        written in the file itself."""
        by_name = f"{key}_env"
        if self.given(key) and self.given(by_name):
            self.complain(by_name, f"give {key} or {by_name}, not both")
        if self.given(by_name):
            name = self.text(by_name, required=True, verbatim=True)
            return Secret(self._variable(by_name, name) if name else "")
        written = self.text(key, verbatim=True)
        variable = _VARIABLE.fullmatch(written)
        if written and (variable is None or variable[2]):
            self.complain(key, f'must not stand in the file: write {by_name} = "NAME", or {key} = "${{NAME}}"')
            return Secret("")
        return Secret(self._expand(key, written))

    def finish(self) -> None:
        """Complain about every key that was not read."""
        for key in self._values:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, 1)
                hint = f"; do you mean {near[0]!r}?" if near else f"; known are {', '.join(sorted(self._known))}"
                self.complain(key, f"is not known{hint}")

    # --- inside ---------------------------------------------------------------------------------------------------------

    def _value_of(self, key: str, kind: type[T], default: T) -> T:
        self._known.add(key)
        if key not in self._values:
            return default
        value = self._values[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.complain(key, f"must be {_NAMES[kind]}")
            return default
        return value

    def _expand(self, key: str, text: str) -> str:
        return _VARIABLE.sub(lambda match: self._variable(key, match[1], match[2]), text)

    def _variable(self, key: str, name: str, default: str | None = None) -> str:
        if name not in self._environment and default is None:
            self.complain(key, f"the environment has no variable {name}")
        return self._environment.get(name, default or "")

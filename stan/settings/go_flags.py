"""Command lines as Go's flag package reads them: `-x v`, `--x v`, `-x=v`, `--x=v`; pure.

Promises: the same arguments are accepted, and the same texts complain, as in the original server (STAN-SPEC 12.1).
Knows no flag by itself: it is given a table. Never prints, never exits. Modelled on the flag package of Go.
"""

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from stan_protocol.refusals import go_quote
from stan_protocol.units import INT64_MAX, INT64_MIN, parse_duration

from stan.errors import StanError


class FlagKind(Enum):
    """Type of a flag's value; SIZE stays text here, because a bad size is another error than a bad value. A SWITCH is a bool, or
    a text that says for what it is on."""

    BOOL = "bool"
    INT = "int"
    TEXT = "text"
    DURATION = "duration"
    SIZE = "size"
    SWITCH = "switch"


Value = bool | int | str


class Flag(NamedTuple):
    """A row of a table of flags; the last of `names` is the flag's key."""

    names: tuple[str, ...]
    kind: FlagKind
    default: Value
    argument: str = ""  # how the help shows the value
    help: str = ""  # empty: accepted but not listed
    refused: str = ""  # why this version does not serve it
    ignored: bool = False  # accepted without effect
    passed: bool = False  # handed on to nats-server

    @property
    def key(self) -> str:
        """Name of the value."""
        return self.names[-1]


class Scanned(NamedTuple):
    """A command line split up: values by key, only of given flags, and the arguments after the flags."""

    values: dict[str, Value]
    arguments: tuple[str, ...]


class FlagError(StanError):
    """The command line cannot be read; the text is Go's."""


def scan(argv: Sequence[str], table: Iterable[Flag]) -> Scanned:
    """Read flags up to the first argument that is none (or `--`).

    Raises:
        FlagError: unknown flag, missing argument, bad syntax or bad value.
    """
    flags = {name: flag for flag in table for name in flag.names}
    values: dict[str, Value] = {}
    place = 0
    while place < len(argv):
        argument = argv[place]
        if len(argument) < 2 or not argument.startswith("-"):
            break
        place += 1
        if argument == "--":
            break
        name, mark, text = argument[2 if argument.startswith("--") else 1 :].partition("=")
        if not name or name.startswith("-"):
            raise FlagError(f"bad flag syntax: {argument}")
        flag = flags.get(name)
        if flag is None:
            raise FlagError(f"flag provided but not defined: -{name}")
        switches = flag.kind in (FlagKind.BOOL, FlagKind.SWITCH)
        if not mark and not switches:
            if place == len(argv):
                raise FlagError(f"flag needs an argument: -{name}")
            text = argv[place]
            place += 1
        values[flag.key] = True if switches and not mark else convert(flag.kind, name, text)
    return Scanned(values, tuple(argv[place:]))


def convert(kind: FlagKind, name: str, text: str) -> Value:
    """Value of *text*; durations become nanoseconds.

    Raises:
        FlagError: with Go's text for a bad value of flag *name*.
    """
    try:
        match kind:
            case FlagKind.BOOL:
                return parse_bool(text)
            case FlagKind.INT:
                return parse_int(text)
            case FlagKind.DURATION:
                return parse_duration(text)
            case FlagKind.SWITCH:
                return parse_bool(text) if text in _BOOLS else text
            case FlagKind.TEXT | FlagKind.SIZE:
                return text
    except ValueError as error:
        what = "boolean value" if kind is FlagKind.BOOL else "value"
        link = "for" if kind is FlagKind.BOOL else "for flag"
        why = "parse error" if kind is FlagKind.DURATION else error
        raise FlagError(f"invalid {what} {go_quote(text)} {link} -{name}: {why}") from None


_BOOLS = frozenset({"1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"})


def parse_bool(text: str) -> bool:
    """Parse a bool as Go's strconv.ParseBool; ValueError otherwise."""
    if text in {"1", "t", "T", "TRUE", "true", "True"}:
        return True
    if text in {"0", "f", "F", "FALSE", "false", "False"}:
        return False
    raise ValueError("parse error")


_OCTAL = re.compile(r"([+-]?)0([0-7_]+)", re.ASCII)
_INT = re.compile(r"[+-]?(0[xX](_?[0-9a-fA-F])+|0[bB](_?[01])+|0[oO](_?[0-7])+|[1-9](_?[0-9])*|0)", re.ASCII)


def parse_int(text: str) -> int:
    """Parse a number as Go's strconv.ParseInt with base 0 and 64 bits: prefixes 0x, 0b, 0o, 0 and underscores; ValueError
    otherwise."""
    octal = _OCTAL.fullmatch(text)
    if octal:
        text = f"{octal[1]}0o{octal[2]}"
    if not _INT.fullmatch(text):
        raise ValueError("parse error")
    value = int(text, 0)
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError("value out of range")
    return value

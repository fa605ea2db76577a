"""Decoded values made to fit the types of columns, for Arrow. Pure.

Promises an error, never a wrong value, for a value that does not fit: a number with a fraction is no integer, and one that is too
large is none of its type.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

from pyspark_stan.payloads.types import ColumnType

Fit = Callable[[Any], Any]
_BITS: Final = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


class UnfitError(ValueError):
    """A value that the type of its column does not have."""


def fitting(kind: ColumnType) -> Fit:
    """Return a function: a value, as decoded -> the value as Arrow takes it for *kind*. It raises UnfitError."""
    fit = _fitting(kind)
    return lambda value: None if value is None else fit(value)


def fitting_fields(fields: Mapping[str, ColumnType]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a function: a decoded message -> its *fields*, null where it has none; others are left out."""
    fits = {name: fitting(kind) for name, kind in fields.items()}

    def fit(message: Mapping[str, Any]) -> dict[str, Any]:
        fitted = {}
        for name, each in fits.items():
            try:
                fitted[name] = each(message.get(name))
            except UnfitError as error:
                raise UnfitError(f"{name}{'.' if ': ' in str(error) else ': '}{error}") from None
        return fitted

    return fit


def _fitting(kind: ColumnType) -> Fit:
    if kind.name in _BITS:
        return _integer(kind.name, 1 << _BITS[kind.name])
    if kind.name == "struct":
        inner = fitting_fields(kind.fields())
        return lambda value: inner(_of(value, Mapping, "an object"))
    if kind.name == "array":
        item = fitting(kind.parts[0])
        return lambda value: [item(each) for each in _of(value, list, "a list")]
    if kind.name == "map":
        of_key, of_value = map(fitting, kind.parts)
        return lambda value: [(of_key(key), of_value(each)) for key, each in _of(value, Mapping, "an object").items()]
    return _SIMPLE.get(kind.name, _decimal)


def _of(value: Any, kind: type, expected: str) -> Any:
    if not isinstance(value, kind):
        raise UnfitError(f"{_shown(value)} is not {expected}")
    return value


def _integer(name: str, end: int) -> Fit:
    def fit(value: Any) -> int:
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if not isinstance(number, int) or isinstance(number, bool) or not -end <= number < end:
            raise UnfitError(f"{_shown(value)} is no {name}")
        return number

    return fit


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnfitError(f"{_shown(value)} is no number")
    try:
        return float(value)
    except OverflowError:
        raise UnfitError(f"{_shown(value)} is no double") from None


def _boolean(value: Any) -> bool:
    boolean: bool = _of(value, bool, "true or false")
    return boolean


def _text(value: Any) -> str:
    """Return a text as it is, any other value as JSON."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UnfitError(f"{_shown(value)} is no text in UTF-8") from None
        return value
    return json.dumps(value, default=_as_text, ensure_ascii=False)


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _binary(value: Any) -> bytes:
    data: bytes = _of(value, bytes, "bytes")
    return data


def _timestamp(value: Any) -> datetime:
    """A moment; one without a zone is UTC."""
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise UnfitError(f"{_shown(value)} is no time in ISO 8601") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _date(value: Any) -> date:
    try:
        return value if isinstance(value, date) else date.fromisoformat(value)
    except (TypeError, ValueError):
        raise UnfitError(f"{_shown(value)} is no date in ISO 8601") from None


def _decimal(value: Any) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(str(value))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


_SIMPLE: Final[dict[str, Fit]] = {
    "string": _text,
    "float": _number,
    "double": _number,
    "boolean": _boolean,
    "binary": _binary,
    "timestamp": _timestamp,
    "date": _date,
}

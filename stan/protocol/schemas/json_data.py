"""Whether data fits a JSON Schema, by the package jsonschema-rs, if that is installed.

The schema is an operator's, and the data anybody's: regular expressions run in linear time (those that cannot are refused with
the schema), nothing is fetched from anywhere, and data that is nested too deeply is refused.
"""

import json
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final

from stan.limits import SCHEMA_DEPTH_MAX
from stan.protocol.schemas.json_schema import parse
from stan.protocol.schemas.kinds import SchemaError

AVAILABLE: Final = find_spec("jsonschema_rs") is not None
MISSING: Final = "to check JSON, each server needs the package jsonschema-rs (pip install 'stan-broker[schemas]')"
_NOT_JSON: Final = "/: is no JSON in UTF-8"
_TOO_DEEP: Final = f"/: is nested deeper than {SCHEMA_DEPTH_MAX} levels"
_OPENING: Final = (b"[", b"{")


def checker(text: bytes) -> Callable[[bytes], str]:
    """Return a function that tells, of the data of a message, the path to what does not fit, and why; "" if it fits.

    Raises:
        SchemaError: the text is no JSON Schema that can be checked, or the package is not there.
    """
    if not AVAILABLE:
        raise SchemaError(MISSING)
    import jsonschema_rs  # noqa: PLC0415 - optional, and loaded where the first schema is

    try:
        validator = jsonschema_rs.validator_for(
            parse(text), pattern_options=jsonschema_rs.RegexOptions(), retriever=_nowhere
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaError(f"{_pointer(getattr(error, 'instance_path', []))}: {_reason(error)}") from None

    def check(data: bytes) -> str:
        try:
            value = json.loads(data, parse_constant=_no_number)
            if data.count(_OPENING[0]) + data.count(_OPENING[1]) > SCHEMA_DEPTH_MAX and _is_deep(value):
                return _TOO_DEEP
        except (ValueError, RecursionError):
            return _NOT_JSON
        try:
            validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return f"{_pointer([*error.instance_path, *_missing(error)])}: {_reason(error)}"
        except ValueError as error:  # a number that the package cannot hold
            return f"/: {_reason(error)}"
        return ""

    return check


def _nowhere(reference: str) -> Any:
    raise ValueError(f"{reference} is not in the schema")


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _is_deep(value: Any) -> bool:
    """True if a value is nested deeper than SCHEMA_DEPTH_MAX levels."""
    level: list[Any] = [value]
    for _ in range(SCHEMA_DEPTH_MAX):
        level = [
            each
            for one in level
            for each in (one.values() if isinstance(one, dict) else one)
            if isinstance(each, dict | list)
        ]
        if not level:
            return False
    return True


def _missing(error: Any) -> list[str]:
    """The name of a property that should be there."""
    name = getattr(error.kind, "property", None)
    return [name] if isinstance(name, str) and "required" in error.schema_path else []


def _pointer(path: list[str | int]) -> str:
    """A JSON pointer."""
    return "".join(f"/{str(token).replace('~', '~0').replace('/', '~1')}" for token in path) or "/"


def _reason(error: Exception) -> str:
    """What the package says, in one line and without the value's context."""
    return str(getattr(error, "message", error)).split("\n", 1)[0]

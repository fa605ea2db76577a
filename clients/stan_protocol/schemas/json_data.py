"""Checks of data by a JSON Schema, by the package jsonschema-rs, if that is installed.

The schema is an operator's, and the data untrusted: nothing is fetched from anywhere, and the work is bounded, as it cannot be
interrupted. A schema whose parts make too much work of any value is refused, and data that is nested too deeply, or of which the
schema (see json_weight) or its regular expressions (those that take linear time) could make too much work.
"""

import json
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final

from stan_protocol.limits import (
    SCHEMA_CHECK_STEPS_MAX,
    SCHEMA_DEPTH_MAX,
    SCHEMA_EXPLAINED_STEPS_MAX,
    SCHEMA_MATCHING_STEPS_MAX,
)
from stan_protocol.schemas.json_schema import parse
from stan_protocol.schemas.json_weight import Weight, values_by_level
from stan_protocol.schemas.kinds import SchemaError

AVAILABLE: Final = find_spec("jsonschema_rs") is not None
MISSING: Final = "to check JSON, each server needs the package jsonschema-rs (pip install jsonschema-rs)"
_NOT_JSON: Final = "/: is no JSON in UTF-8"
_TOO_DEEP: Final = f"/: is nested deeper than {SCHEMA_DEPTH_MAX} levels"
_TOO_MUCH: Final = "/: is too large to be checked by this schema"
_REFUSED: Final = "/: is not what the schema allows"


def checker(text: bytes) -> Callable[[bytes], str]:
    """Return a function that checks the data of a message: it returns the path to the misfit, and the reason; "" if it fits.

    Raises:
        SchemaError: the text is no JSON Schema that can be checked, or the package is not there.
    """
    if not AVAILABLE:
        raise SchemaError(MISSING)
    import jsonschema_rs  # noqa: PLC0415 - optional, and loaded where the first schema is

    schema = parse(text)
    weight = Weight(schema)
    try:
        validator = jsonschema_rs.validator_for(
            schema, pattern_options=jsonschema_rs.RegexOptions(), retriever=_nowhere, validate_formats=False
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaError(f"{_pointer(getattr(error, 'instance_path', []))}: {_reason(error)}") from None

    def check(data: bytes) -> str:
        try:
            value = json.loads(data, parse_constant=_no_number)
        except (ValueError, RecursionError):
            return _NOT_JSON
        why = _too_much(weight, data, value)
        try:
            return why or _misfit(validator, weight, value)
        except jsonschema_rs.ValidationError as error:
            return f"{_pointer([*error.instance_path, *_missing(error)])}: {_reason(error)}"
        except ValueError as error:  # a number that the package cannot hold
            return f"/: {_reason(error)}"

    return check


def _misfit(validator: Any, weight: Weight, value: Any) -> str:
    """Return why a value does not fit, if there is no closer reason; "" if it fits.

    Raises:
        ValidationError: it does not fit.
    """
    if validator.is_valid(value):
        return ""
    if not weight.branches or weight.steps(values_by_level(value)) <= SCHEMA_EXPLAINED_STEPS_MAX:
        validator.validate(value)
    return _REFUSED


def _too_much(weight: Weight, data: bytes, value: Any) -> str:
    """Return why data is not checked; "" if it may be. Walks it only if a bound by its size alone does not suffice."""
    openings = data.count(b"[") + data.count(b"{")
    deepest = weight.most_at(min(openings, SCHEMA_DEPTH_MAX))
    steps = (1 + openings + data.count(b",")) * deepest.steps
    matching = len(data) * deepest.pattern
    if openings <= SCHEMA_DEPTH_MAX and steps <= SCHEMA_CHECK_STEPS_MAX and matching <= SCHEMA_MATCHING_STEPS_MAX:
        return ""
    levels = values_by_level(value)
    if len(levels) > SCHEMA_DEPTH_MAX + 1:
        return _TOO_DEEP
    matching = len(data) * weight.most_at(len(levels) - 1).pattern
    is_too_much = weight.steps(levels) > SCHEMA_CHECK_STEPS_MAX or matching > SCHEMA_MATCHING_STEPS_MAX
    return _TOO_MUCH if is_too_much else ""


def _nowhere(reference: str) -> Any:
    raise ValueError(f"{reference} is not in the schema")


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _missing(error: Any) -> list[str]:
    """The name of a property that should be there."""
    name = getattr(error.kind, "property", None)
    return [name] if isinstance(name, str) and "required" in error.schema_path else []


def _pointer(path: list[str | int]) -> str:
    """A JSON pointer."""
    return "".join(f"/{str(token).replace('~', '~0').replace('/', '~1')}" for token in path) or "/"


def _reason(error: Exception) -> str:
    """Return the package's text, in one line and without the value's context."""
    return str(getattr(error, "message", error)).split("\n", 1)[0]

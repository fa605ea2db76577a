"""The rules for schemas of each kind: validity of a text, and compatibility of a new version with earlier ones."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from stan_protocol.limits import SCHEMA_BYTES_MAX, SCHEMA_COMPLAINTS_MAX
from stan_protocol.schemas import avro, json_schema, protobuf
from stan_protocol.schemas.kinds import Compatibility, SchemaError, SchemaKind, word


class SchemaText(NamedTuple):
    """A schema, or one version of one, as it is registered."""

    kind: SchemaKind
    text: bytes
    message: str = ""  # with protobuf: the full name of the message


class NumberedText(NamedTuple):
    """A version of a schema."""

    version: int
    schema: SchemaText


class _Rules(NamedTuple):
    """The rules of one kind."""

    parse: Callable[[SchemaText], Any]
    """Raises SchemaError."""
    not_read: Callable[[Any, Any], list[str]]
    """Called with two parsed schemas: returns why the first may not understand data of the second."""


_RULES = {
    SchemaKind.JSON: _Rules(lambda schema: json_schema.parse(schema.text), json_schema.not_read),
    SchemaKind.AVRO: _Rules(lambda schema: avro.parse(schema.text), avro.not_read),
    SchemaKind.PROTOBUF: _Rules(lambda schema: protobuf.parse(schema.text, schema.message), protobuf.not_read),
}


def fault(schema: SchemaText) -> str:
    """Return the fault of a schema by itself; "" if it has none."""
    if len(schema.text) > SCHEMA_BYTES_MAX:
        return f"a schema has at most {SCHEMA_BYTES_MAX} bytes, not {len(schema.text)}"
    try:
        parsed(schema)
    except SchemaError as error:
        return str(error)
    return ""


def parsed(schema: SchemaText) -> Any:
    """A schema as the functions of its kind take it.

    Raises:
        SchemaError: it is none.
    """
    return _RULES[schema.kind].parse(schema)


def incompatible(schema: SchemaText, earlier: Sequence[NumberedText], promise: Compatibility) -> list[str]:
    """Return why a schema may not follow earlier versions of its kind, newest first, each with version and path; empty: it may.

    Raises:
        SchemaError: one of them is no schema.
    """
    if promise is Compatibility.NONE:
        return []
    reasons: list[str] = []
    new, not_read = parsed(schema), _RULES[schema.kind].not_read
    for version, other in sorted(earlier, reverse=True):
        old = parsed(other)
        if promise is not Compatibility.FORWARD:
            reasons += [f"does not read version {version}: {why}" for why in not_read(new, old)]
        if promise is not Compatibility.BACKWARD:
            reasons += [f"is not read by version {version}: {why}" for why in not_read(old, new)]
        if len(reasons) >= SCHEMA_COMPLAINTS_MAX:
            break
    return reasons[:SCHEMA_COMPLAINTS_MAX]


def compared(left: SchemaText, right: SchemaText) -> tuple[list[str], list[str]]:
    """Return why *left* may not understand data of *right*, and the other way round.

    Raises:
        SchemaError: one of them is no schema.
    """
    if left.kind is not right.kind:
        differ = [f"{word(left.kind)} is not {word(right.kind)}"]
        return differ, differ
    not_read, first, second = _RULES[left.kind].not_read, parsed(left), parsed(right)
    return not_read(first, second), not_read(second, first)

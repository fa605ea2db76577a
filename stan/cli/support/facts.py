"""Answers of the servers as JSON documents: every field under its name in stan/protocol/proto/admin.proto, bytes as text.

So the names stay as long as the protocol's do. Fields that may be left out and were are null; enums are words in small letters.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from stan_client.session import text_of

HEX: Final = frozenset({"state_hash"})
LEFT_OUT: Final = frozenset({"error", "retry", "more", "pool"})


def facts(message: Any) -> dict[str, Any]:
    """One message of admin_pb2."""
    kind: Any = type(message)
    return {name: read(getattr(message, name), message) for name, read in _readers(kind)}


@lru_cache(maxsize=64)
def _readers(kind: Any) -> list[tuple[str, Callable[[Any, Any], Any]]]:
    """For each field how its value is told; found out once, for there may be ten thousand messages."""
    return [(field.name, _reader(field)) for field in kind.DESCRIPTOR.fields if field.name not in LEFT_OUT]


def _reader(field: Any) -> Callable[[Any, Any], Any]:
    tell = _teller(field)
    if field.is_repeated:
        return lambda values, _: [tell(value) for value in values]
    if field.has_presence:
        return lambda value, message: tell(value) if message.HasField(field.name) else None
    return lambda value, _: tell(value)


def _teller(field: Any) -> Callable[[Any], Any]:
    if field.message_type is not None:
        return facts
    if field.enum_type is not None:
        words = {number: value.name.lower() for number, value in field.enum_type.values_by_number.items()}
        return lambda value: words.get(value, value)
    if field.type == field.TYPE_BYTES:
        return bytes.hex if field.name in HEX else text_of
    return _itself


def _itself(value: Any) -> Any:
    return value

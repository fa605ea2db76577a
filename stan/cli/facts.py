"""Answers of the servers as JSON documents: every field under its name in stan/protocol/admin.proto, bytes as text.

So the names stay as long as the protocol's do. Fields that may be left out and were are null; enums are words in small letters.
"""

from typing import Any, Final

from stan_client.session import text_of

HEX: Final = frozenset({"state_hash"})
LEFT_OUT: Final = frozenset({"error", "retry", "more", "pool"})


def facts(message: Any) -> dict[str, Any]:
    """One message of admin_pb2."""
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields if field.name not in LEFT_OUT}


def _field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.is_repeated:
        return [_value(one, field) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(value, field)


def _value(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return facts(value)
    if field.enum_type is not None:
        number = field.enum_type.values_by_number.get(value)
        return number.name.lower() if number is not None else value
    if isinstance(value, bytes):
        return value.hex() if field.name in HEX else text_of(value)
    return value

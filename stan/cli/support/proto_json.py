"""Answers of the servers as JSON documents: every field under its name in clients/stan_protocol/proto/admin.proto, bytes as text.

So the names stay as long as the protocol's do. Optional fields that are not set are null; enum values are words in lower case.
"""

import base64
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final

from stan_client import Message
from stan_client.transport.session import text_of

HEX: Final = frozenset({"state_hash"})
LEFT_OUT: Final = frozenset({"error", "retry", "more", "pool"})


def document_of(message: Any) -> dict[str, Any]:
    """A message of admin_pb2 as a JSON document."""
    kind: Any = type(message)
    return {name: read(getattr(message, name), message) for name, read in _readers(kind)}


def message_document(message: Message, more: dict[str, Any]) -> dict[str, Any]:
    """A message of a channel as a JSON document: `data` if the payload is UTF-8, else `data_base64`, and so `key`."""
    shown = {"sequence": message.sequence, "channel": message.channel, "timestamp_ns": message.timestamp_ns, **more}
    if message.reply:
        shown["reply"] = message.reply
    if message.key:
        tell_bytes(shown, "key", message.key)
    if message.headers:
        shown["headers"] = told_headers(message.headers.items())
    tell_bytes(shown, "data", message.data)
    return shown


def tell_bytes(document: dict[str, Any], name: str, raw: bytes) -> None:
    """Put bytes into a document under *name* if they are UTF-8, else in base64 under *name*_base64."""
    try:
        document[name] = raw.decode()
    except UnicodeDecodeError:
        document[f"{name}_base64"] = base64.b64encode(raw).decode()


def told_headers(pairs: Iterable[tuple[str, bytes]]) -> list[list[Any]]:
    """Headers as pairs of name and value: a text, or {"base64": ...} of bytes that are not UTF-8."""
    return [[name, _text_or_base64(value)] for name, value in pairs]


def _text_or_base64(raw: bytes) -> str | dict[str, str]:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


@lru_cache(maxsize=64)
def _readers(kind: Any) -> list[tuple[str, Callable[[Any, Any], Any]]]:
    """Name and reader of each field; cached by type, because there may be ten thousand messages."""
    return [(field.name, _reader(field)) for field in kind.DESCRIPTOR.fields if field.name not in LEFT_OUT]


def _reader(field: Any) -> Callable[[Any, Any], Any]:
    convert = _converter(field)
    if field.is_repeated:
        return lambda values, _: [convert(value) for value in values]
    if field.has_presence:
        return lambda value, message: convert(value) if message.HasField(field.name) else None
    return lambda value, _: convert(value)


def _converter(field: Any) -> Callable[[Any], Any]:
    if field.message_type is not None:
        return document_of
    if field.enum_type is not None:
        words = {number: value.name.lower() for number, value in field.enum_type.values_by_number.items()}
        return lambda value: words.get(value, value)
    if field.type == field.TYPE_BYTES:
        return bytes.hex if field.name in HEX else text_of
    return _unchanged


def _unchanged(value: Any) -> Any:
    return value

"""Answers of the servers as JSON documents: every field under its name in stan_client.admin_types, bytes as text.

So the names stay as long as the protocol's do. Fields that are not set are null; enum values are words in lower case. Times are
RFC 3339 in UTC, null where there is none; the same name with `_ns` has the Unix nanoseconds.
"""

import base64
from collections.abc import Iterable
from dataclasses import fields
from enum import Enum
from typing import Any, Final

from stan_client import Message
from stan_client.transport.session import text_of
from stan_protocol.records import MessageRecord
from stan_protocol.units import rfc3339

HEX: Final = frozenset({"state_hash"})
TIMES: Final = frozenset(
    [
        "at",
        "compaction_ended",
        "doubling",
        "due",
        "epoch_began",
        "expires_at",
        "first_timestamp",
        "last_ack",
        "last_timestamp",
        "now",
        "oldest_pending",
        "started",
        "time",
        "timestamp",
        "trouble_since",
        "until",
    ]
)
"""The fields that are Unix ns."""


def document_of(record: MessageRecord) -> dict[str, Any]:
    """A record as a JSON document."""
    named: Any = record
    document: dict[str, Any] = {}
    for field in fields(named):
        value = getattr(named, field.name)
        if field.name in TIMES:
            set_time(document, field.name, value)
        else:
            document[field.name] = value.hex() if field.name in HEX else _shown(value)
    return document


def set_time(document: dict[str, Any], name: str, at_ns: int) -> None:
    """Put a time into a document, for people and for programs; 0: there is none."""
    document[name], document[f"{name}_ns"] = (rfc3339(at_ns), at_ns) if at_ns else (None, None)


def _shown(value: Any) -> Any:
    match value:
        case MessageRecord():
            return document_of(value)
        case tuple() | list():
            return [_shown(each) for each in value]
        case Enum():
            return value.name.lower()
        case bytes():
            return text_of(value)
    return value


def message_document(message: Message, more: dict[str, Any]) -> dict[str, Any]:
    """A message of a channel as a JSON document: `data` if the payload is UTF-8, else `data_base64`, and so `key`."""
    shown: dict[str, Any] = {"sequence": message.sequence, "channel": message.channel}
    set_time(shown, "timestamp", message.timestamp_ns)
    shown |= more
    if message.reply:
        shown["reply"] = message.reply
    if message.key:
        set_bytes(shown, "key", message.key)
    if message.headers:
        shown["headers"] = headers_document(message.headers.items())
    set_bytes(shown, "data", message.data)
    return shown


def set_bytes(document: dict[str, Any], name: str, raw: bytes) -> None:
    """Put bytes into a document under *name* if they are UTF-8, else in base64 under *name*_base64."""
    try:
        document[name] = raw.decode()
    except UnicodeDecodeError:
        document[f"{name}_base64"] = base64.b64encode(raw).decode()


def headers_document(pairs: Iterable[tuple[str, bytes]]) -> list[list[Any]]:
    """Headers as pairs of name and value: a text, or {"base64": ...} of bytes that are not UTF-8."""
    return [[name, _text_or_base64(value)] for name, value in pairs]


def _text_or_base64(raw: bytes) -> str | dict[str, str]:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}

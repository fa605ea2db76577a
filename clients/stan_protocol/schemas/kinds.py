"""The kinds of schemas, and which versions of a schema must be able to read each other's messages."""

from enum import IntEnum
from typing import Final

HEADER: Final = b"stan-schema"
"""The header in which a message says by which version of its channel's schema it was written: a number."""


class SchemaKind(IntEnum):
    """The format of messages, and the language of its schema; as in the log, numbers are never reused."""

    JSON = 1  # JSON Schema, of data in JSON
    AVRO = 2  # of one datum in Avro's binary form, without a header of Avro's
    PROTOBUF = 3  # a FileDescriptorSet, and the name of a message in it


class Compatibility(IntEnum):
    """The promise of a new version of a schema to all earlier versions; as in the log, numbers are never reused."""

    BACKWARD = 0  # a reader with the new version understands messages of earlier ones
    FORWARD = 1  # a reader with an earlier version understands messages of the new one
    FULL = 2  # both
    NONE = 3  # nothing


class SchemaError(ValueError):
    """A text is no schema of its kind: says where and why."""


class TooIntricate(Exception):  # noqa: N818 - as in stan.errors
    """A comparison of schemas takes more steps than it may have."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path or '/'}: the schemas are too intricate to be compared")


def word(member: SchemaKind | Compatibility) -> str:
    """Return its word for people."""
    return member.name.lower()

"""Choices of policies, and of requests of operators by the same numbers. Pure."""

from enum import IntEnum


class Commit(IntEnum):
    """Moment at which a publish to a channel is acknowledged."""

    SYNCED = 0  # a majority has the message on its disks
    REPLICATED = 1  # a majority has it in its memory
    EPHEMERAL = 2  # the leader has it in its memory


class Compact(IntEnum):
    """Message of each key that stays when a channel is compacted."""

    NONE = 0  # all of them: the channel is not compacted
    LAST = 1
    FIRST = 2


class Compress(IntEnum):
    """Compression of messages by the leader."""

    NONE = 0
    ZSTD = 1


class SchemaCheck(IntEnum):
    """Check of a message that is published."""

    OFF = 0
    KNOWN = 1  # it names a registered version of its schema
    VALID = 2  # and fits it


def words(choice: type[IntEnum]) -> tuple[str, ...]:
    """The values of a choice as operators write them, by number."""
    return tuple(each.name.lower() for each in choice)

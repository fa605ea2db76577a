"""The words of the project as types: numbers carry their meaning, so that mypy refuses to mix them.

Never holds behaviour. Words and spelling follow the STAN protocol, the Raft paper and Kafka, in this order.
"""

from typing import NewType

Sequence = NewType("Sequence", int)
"""Place of a message in its channel; the first is 1, 0 means none."""

ChannelUid = NewType("ChannelUid", int)
"""Identity of one incarnation of a channel; a channel deleted and made again gets another one."""

GroupId = NewType("GroupId", int)
"""Number of a Raft group: 0 is the metadata group, 1.. are the channel groups."""

RaftIndex = NewType("RaftIndex", int)
"""Place of an entry in a group's log; the first is 1, 0 means none."""

Term = NewType("Term", int)
"""Raft term; 0 before the first election."""

Nanos = NewType("Nanos", int)
"""Monotonic time in nanoseconds: deadlines and intervals."""

WallNanos = NewType("WallNanos", int)
"""Nanoseconds since 1970-01-01 UTC: message timestamps."""

SECOND = 1_000_000_000
MILLISECOND = 1_000_000
MICROSECOND = 1_000
KiB = 1024
MiB = 1024 * 1024
GiB = 1024 * 1024 * 1024

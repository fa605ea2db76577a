"""The durable part of a member's own log, and the part that is waited for. Pure."""

from operator import attrgetter
from typing import TYPE_CHECKING

from stan_protocol.scalars import RaftIndex

if TYPE_CHECKING:
    from collections.abc import Callable

    from stan.log.types import GroupLog


class Durability:
    """Durability of one member's log, maintained by the group's turns."""

    def __init__(self, *, always: bool) -> None:
        """Unless *always*, an entry counts as durable once it is written."""
        self.always = always
        self.index: Callable[[GroupLog], RaftIndex] = attrgetter("durable_index" if always else "last_index")
        """Returns the newest entry of the log that counts as durable."""
        self.awaited = RaftIndex(0)
        """Newest entry that is waited for: the next sync has to cover the entries up to it."""
        self.seen = RaftIndex(-1)
        """The log's durable index at the last turn: a different one now means that it rose, or the log was cut."""

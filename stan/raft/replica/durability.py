"""How far a member's own log counts as durable, and how much of it is waited for. Pure."""

from operator import attrgetter
from typing import TYPE_CHECKING

from stan.log.types import GroupLog
from stan.types import RaftIndex

if TYPE_CHECKING:
    from collections.abc import Callable


class Durability:
    """Durability of one member's log. Unless *always*, an entry counts as durable once it is written."""

    def __init__(self, log: GroupLog, *, always: bool) -> None:
        self.always = always
        self.index: Callable[[GroupLog], RaftIndex] = attrgetter("durable_index" if always else "last_index")
        """Returns the newest entry of the log that counts as durable."""
        self.wanted = RaftIndex(0)
        """Newest entry that is waited for: a sync is wanted that covers the entries up to it."""
        self._log = log
        self._seen = RaftIndex(-1)  # durable index at the last `look`

    @property
    def moved(self) -> bool:
        """True if the log's durable index has changed since `look`: it rose, or the log was cut."""
        return self._seen != self._log.durable_index

    def look(self) -> bool:
        """Note the log's durable index; returns True if it has changed since the last call."""
        seen, self._seen = self._seen, self._log.durable_index
        return seen != self._seen

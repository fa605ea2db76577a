"""How far a member's own log counts as durable, and whether more of it is waited for. Pure."""

from operator import attrgetter
from typing import TYPE_CHECKING

from stan.log.types import GroupLog
from stan.types import RaftIndex

if TYPE_CHECKING:
    from collections.abc import Callable


class Durability:
    """Durability of one member's log. Unless *always*, an entry counts as durable once it is written."""

    def __init__(self, log: GroupLog, *, always: bool) -> None:
        self._log = log
        self._always = always
        self.index: Callable[[GroupLog], RaftIndex] = attrgetter("durable_index" if always else "last_index")
        """Returns the newest entry of the log that counts as durable."""
        self._wanted = RaftIndex(0)  # newest entry that is waited for
        self._seen = RaftIndex(-1)  # durable index at the last `look`

    def want(self, index: RaftIndex) -> None:
        """A sync is wanted that covers the entries up to *index*."""
        self._wanted = max(self._wanted, index)

    def want_all(self) -> None:
        """A sync is wanted that covers all entries that the log holds now, and none beyond them."""
        self._wanted = self._log.last_index

    @property
    def wants_sync(self) -> bool:
        """True if a sync is wanted for entries that are written but not durable."""
        wanted = min(self._wanted, self._log.last_index)  # it may have been truncated since
        return self._always and wanted > self._log.durable_index

    @property
    def moved(self) -> bool:
        """True if the log's durable index has changed since `look`: it rose, or the log was cut."""
        return self._seen != self._log.durable_index

    def look(self) -> None:
        """Note the log's durable index."""
        self._seen = self._log.durable_index

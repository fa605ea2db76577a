"""How far the own log counts as durable, and whether somebody waits for more of it. Pure."""

from stan.log.types import GroupLog
from stan.types import RaftIndex


class Durability:
    """Of one member of a group. Unless `always`, an entry counts as durable once it is written."""

    def __init__(self, log: GroupLog, *, always: bool) -> None:
        self._log = log
        self._always = always
        self._wanted = RaftIndex(0)  # newest entry that somebody waits for
        self._seen = RaftIndex(-1)

    def index(self) -> RaftIndex:
        """Newest entry that counts."""
        return self._log.durable_index if self._always else self._log.last_index

    def want(self, index: RaftIndex) -> None:
        """Somebody waits for everything up to *index*."""
        self._wanted = max(self._wanted, index)

    def want_all(self) -> None:
        """Somebody waits for what the log holds now, and nobody for more."""
        self._wanted = self._log.last_index

    @property
    def wants_sync(self) -> bool:
        """Whether somebody waits for entries that are written but not durable."""
        wanted = min(self._wanted, self._log.last_index)  # it may have been truncated since
        return self._always and wanted > self._log.durable_index

    @property
    def moved(self) -> bool:
        """Whether the log became durable further, or was cut, since `look`."""
        return self._seen != self._log.durable_index

    def look(self) -> None:
        """How far it is now is known."""
        self._seen = self._log.durable_index

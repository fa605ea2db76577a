"""The work of a member's owner, and the role of the member, which the owner reads many times in a turn.

    a message, a turn, a proposal, a sync ─► look ─► leads, has_committed, wants_sync ─► the owner's turn

Promises: the agenda hands nothing out and acknowledges nothing: the code that does reads the durable index of the log.
"""

from stan.log.types import GroupLog
from stan.raft.pysyncobj.safe_raft import SafeRaft
from stan.raft.replica.applied import Applied
from stan.raft.replica.durability import Durability


class Agenda:
    """The agenda of one member. Its attributes are as of the last `look`, which follows each possible change of them."""

    __slots__ = ("_applied", "_closed", "_durability", "_log", "_raft", "has_committed", "leads", "role", "wants_sync")

    def __init__(self, raft: SafeRaft, log: GroupLog, applied: Applied, durability: Durability) -> None:
        self.leads = False  # the member leads, and has handed out every entry of earlier terms
        self.has_committed = False  # there are entries to hand out
        self.wants_sync = False  # a sync is needed for entries that are written but not durable
        self.role: object = None  # as last reported to the owner
        self._raft = raft
        self._log = log
        self._applied = applied
        self._durability = durability
        self._closed = False
        self.look()

    def look(self) -> None:
        """Bring the agenda up to date. A follower waits for the durability of its whole log, a leader for that of its first
        entry and `Leader.awaited`, and for that of urgent proposals."""
        if self._closed:
            return
        raft, log, durability, applied = self._raft, self._log, self._durability, self._applied.index
        library, written = raft.library, log.last_index
        if library.is_leader:
            begins = library.term_begins
            self.leads = applied >= begins
            durability.awaited = max(durability.awaited, begins, raft.as_leader.awaited)
        else:
            self.leads = False
            durability.awaited = max(durability.awaited, written)
        awaited = min(durability.awaited, written)  # the log may have been truncated since
        self.wants_sync = durability.always and awaited > log.durable_index
        self.has_committed = min(library.commit, durability.index(log)) > applied

    def close(self) -> None:
        """Clear the agenda, as the member takes part in nothing from now on."""
        self._closed = True
        self.leads = self.has_committed = self.wants_sync = False

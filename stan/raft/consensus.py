"""The Consensus port: from propose to committed, the one path every change takes (DESIGN 5).

The driver proposes bodies, syncs logs off the event loop, and takes committed entries in index order. `Solo` and the replicated
groups stand behind the same port, so that a node that is alone runs no other code path.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from enum import Enum
from typing import NamedTuple, Protocol

from stan.log.types import Entry, GroupLog
from stan.types import GroupId, Nanos, RaftIndex, Term


class Consensus(Protocol):
    """One group on this node. All methods run on the event loop."""

    group: GroupId
    log: GroupLog
    failed: str
    """Why this node takes part in the group no more, until a restart; "" while it does."""

    def freeze(self, why: str) -> None:
        """Take part in nothing any more: propose and commit nothing, lead nobody."""

    @property
    def leads(self) -> bool:
        """Whether this node may propose."""

    @property
    def wants_sync(self) -> bool:
        """Whether somebody waits for entries that are written but not durable."""

    @property
    def has_committed(self) -> bool:
        """Whether `take_committed` would give something."""

    def propose(self, bodies: Seq[tuple[int, bytes]], *, urgent: bool) -> RaftIndex:
        """Write entries (kind, body) in one go; returns the index of the first. They are committed later, in order, or never.

        Raises NotNow (DiskFull, no leadership): nothing was written. After Frozen a restart may find a part of it."""

    def synced(self, durable: RaftIndex) -> None:
        """The log is durable up to *durable*."""

    def take_committed(self) -> list[Entry]:
        """Entries committed since the last call, in index order, each exactly once."""


class Fate(Enum):
    """What became of a proposal; never guessed."""

    APPLIED = "applied"  # committed, and handed out by take_committed
    NOT_APPLIED = "not applied"  # another entry was committed in its place: it never will be
    UNKNOWN = "unknown"  # nobody could say in time: it may be committed later, or never


class Outcome(NamedTuple):
    """The fate of the entry that `propose` wrote at *index* in *term*; told once."""

    index: RaftIndex  # type: ignore[assignment] # hides tuple.index, which nobody calls on an outcome
    term: Term
    fate: Fate


class Replicated(Consensus, Protocol):
    """A group with peers: what it knows beyond Consensus."""

    @property
    def term(self) -> Term:
        """Current term."""

    @property
    def leader(self) -> str | None:
        """Name of the node that leads as far as this one knows; itself as soon as it is elected, before `leads`."""

    def lease_until(self) -> Nanos:
        """Until when no other node can lead, on this node's clock; 0 if this one does not lead or hands over."""

    @property
    def has_room(self) -> bool:
        """Whether a proposal would travel at once; if not it had better wait and grow."""

    def take_outcomes(self) -> list[Outcome]:
        """Fates of proposals since the last call. APPLIED comes with the entry, never before it."""

    def read_barrier(self, done: Callable[[RaftIndex | None], None]) -> None:
        """Ask a majority whether this node still leads. *done* gets the index up to which entries must be applied before a
        linearizable read, or None if it does not lead. Called from a later turn, exactly once."""

    def transfer(self, to: str, done: Callable[[bool], None]) -> None:
        """Hand leadership over to *to*; proposals are refused meanwhile. *done* gets whether this node leads no more.
        Called from a later turn, exactly once."""

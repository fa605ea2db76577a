"""The Consensus port: from propose to committed, the one path every change takes (DESIGN 5).

The driver proposes bodies, syncs logs off the event loop, and takes committed entries in index order. `Solo` and the replicated
groups stand behind the same port, so that a node that is alone runs no other code path.
"""

from collections.abc import Sequence as Seq
from typing import Protocol

from stan.log.types import Entry, GroupLog
from stan.types import GroupId, RaftIndex


class Consensus(Protocol):
    """One group on this node. All methods run on the event loop."""

    group: GroupId
    log: GroupLog
    failed: str
    """Reason for which this node takes no part in the group until a restart; "" while it takes part."""

    def freeze(self, why: str) -> None:
        """Take no further part in the group until a restart: propose and commit nothing, lead nobody. *why* becomes `failed`."""

    @property
    def leads(self) -> bool:
        """True if this node leads the group and may propose."""

    @property
    def wants_sync(self) -> bool:
        """True if entries that are written but not durable are waited for."""

    @property
    def has_committed(self) -> bool:
        """True if `take_committed` would return entries."""

    def propose(self, bodies: Seq[tuple[int, bytes]], *, urgent: bool) -> RaftIndex:
        """Write entries (kind, body) in one go; returns the index of the first. They are committed later, in order, or never.

        Raises NotNow (DiskFull, no leadership): nothing was written. After Frozen a restart may find a part of it."""

    def synced(self, durable: RaftIndex) -> None:
        """The log is durable up to *durable*."""

    def take_committed(self) -> list[Entry]:
        """Entries committed since the last call, in index order, each exactly once."""

"""The Consensus port: how every change of a group's state goes from a proposal to a committed entry (DESIGN 5).

The driver proposes bodies, syncs logs off the event loop, and pops committed entries in index order. `Solo` and `RaftGroup`
implement the same port, so that a node alone runs the same code as a node in a cluster.
"""

from collections.abc import Sequence as Seq
from typing import Protocol

from stan_protocol.scalars import GroupId, RaftIndex

from stan.log.types import Entry, GroupLog


class Consensus(Protocol):
    """The consensus of one group on this node. All methods run on the event loop."""

    group: GroupId
    log: GroupLog
    failed: str
    """The reason why this node takes no part in the group until a restart; "" while it takes part."""

    def freeze(self, why: str) -> None:
        """Take no further part in the group until a restart: propose and commit nothing, do not lead. *why* becomes `failed`."""

    @property
    def leads(self) -> bool:
        """True if this node leads the group and may propose."""

    @property
    def wants_sync(self) -> bool:
        """True if a sync is needed for entries that are written but not durable."""

    @property
    def has_committed(self) -> bool:
        """True if `take_committed` would return entries."""

    def propose(self, bodies: Seq[tuple[int, bytes]], *, urgent: bool) -> RaftIndex:
        """Write entries (kind, body) in one go; returns the index of the first. They are committed later, in order, or never.

        *urgent*: sync them now.

        Raises:
            NotNow: nothing was written (Shortage, no leadership).
            Frozen: the group takes part in nothing until a restart, which may find a part of the entries in the log.
            InDoubt: the write failed unexpectedly; the entries may be in the log after a restart.
        """

    def synced(self, durable: RaftIndex) -> None:
        """Note that the log is durable up to *durable*."""

    def take_committed(self) -> list[Entry]:
        """Entries committed since the last call, in index order, each exactly once."""

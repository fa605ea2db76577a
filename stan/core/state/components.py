"""The components of a channel group's replicated state: each keeps rows of its own, and some apply certain changes alone.

A component is as deterministic as the machine that it belongs to (P2): its only input are committed entries. It keeps its state
as rows, key to bytes, and records which rows have changed; other code writes them to disk and into snapshots.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, Protocol

from stan_protocol.scalars import ChannelUid, RaftIndex

from stan.core.state.bookmarks import Bookmarks
from stan.core.state.compactions import Compactions
from stan.core.state.dedup import ProducerDedup
from stan.core.state.deferred import Deferred
from stan.core.state.dropped import DroppedChannels
from stan.core.state.ephemeral import EphemeralEpochs
from stan.core.state.expiries import Expiries
from stan.core.state.limit_overrides import LimitOverrides
from stan.core.state.moves import MoveStages
from stan.core.state.part_closings import PartClosings
from stan.core.state.restore_state import RestoreStates
from stan.core.state.tombstones import Tombstones
from stan.core.state.transactions import Transactions


class StateComponent(Protocol):
    """What a group's machine calls on each of its components."""

    KIND: ClassVar[str]
    """Names the component's rows on disk; never given to another component."""
    dirty: set[bytes]
    """Keys of rows that have changed since they were last taken to be written; the machine empties the set then."""

    def drop_channel(self, uid: ChannelUid) -> None:
        """A channel is gone: drop all rows about it."""

    def keys(self) -> Iterable[bytes]:
        """Keys of all rows."""

    def row(self, key: bytes) -> bytes | None:
        """The row with that key; None if it is gone."""

    def load(self, key: bytes, state: bytes) -> None:
        """Load a stored row; only before the first change."""


class ChangeOwner(StateComponent, Protocol):
    """A component that applies changes which concern no other one."""

    CHANGES: ClassVar[tuple[str, ...]]
    """Names of these changes in `GroupChange.change`."""

    def apply(self, name: str, change: Any, index: RaftIndex) -> object:
        """Apply one committed change; the result is passed to the callback of its proposal."""


@dataclass(slots=True)
class Components:
    """The components of a group's state, except for those of `GroupState`."""

    transactions: Transactions = field(init=False, default_factory=Transactions)
    dedup: ProducerDedup = field(init=False, default_factory=ProducerDedup)
    bookmarks: Bookmarks = field(init=False, default_factory=Bookmarks)
    tombstones: Tombstones = field(init=False, default_factory=Tombstones)
    limit_overrides: LimitOverrides = field(init=False, default_factory=LimitOverrides)
    restores: RestoreStates = field(init=False, default_factory=RestoreStates)
    deferred: Deferred = field(init=False, default_factory=Deferred)
    expiries: Expiries = field(init=False, default_factory=Expiries)
    compactions: Compactions = field(init=False, default_factory=Compactions)
    moves: MoveStages = field(init=False, default_factory=MoveStages)
    part_closings: PartClosings = field(init=False, default_factory=PartClosings)
    epochs: EphemeralEpochs = field(init=False, default_factory=EphemeralEpochs)


NAMES: Final = (*(one.name for one in fields(Components)), "dropped", "retention", "consumers", "schedules")
"""What the components of a group's state are called, in the order in which snapshots have them."""
OWNERS: Final = {
    change: one.name for one in fields(Components) for change in getattr(one.type, "CHANGES", ())
} | dict.fromkeys(DroppedChannels.CHANGES, "dropped")
"""Names of changes -> that of the component which applies them alone."""

"""The components of a channel group's replicated state: each applies certain changes and keeps rows of its own.

A component is as deterministic as the machine that it belongs to (P2): its only input are committed entries. It keeps its state
as rows, key to bytes, and records which rows have changed; other code writes them to disk and into snapshots.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, Protocol

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
    CHANGES: ClassVar[tuple[str, ...]]
    """Names of the changes of `GroupChange.change` that the component applies."""
    dirty: set[bytes]
    """Keys of rows that have changed since they were last taken to be written; the machine empties the set then."""

    def apply(self, name: str, change: Any, index: RaftIndex) -> object:
        """Apply one committed change; the result is passed to the callback of its proposal."""

    def drop_channel(self, uid: ChannelUid) -> None:
        """A channel is gone: drop all rows about it."""

    def keys(self) -> Iterable[bytes]:
        """Keys of all rows."""

    def row(self, key: bytes) -> bytes | None:
        """The row with that key; None if it is gone."""

    def load(self, key: bytes, state: bytes) -> None:
        """Load a stored row; only before the first `apply`."""


def make_components() -> list[StateComponent]:
    """The components of a new machine."""
    return [
        Transactions(),
        ProducerDedup(),
        Bookmarks(),
        Tombstones(),
        LimitOverrides(),
        RestoreStates(),
        Deferred(),
        Expiries(),
        Compactions(),
        MoveStages(),
        PartClosings(),
        EphemeralEpochs(),
        DroppedChannels(),
    ]

"""Parts of a channel group's replicated state that live in modules of their own: each has its changes, and rows of its own.

A part is as deterministic as the machine that it belongs to (P2): it looks at nothing but committed entries. It keeps its state
as rows, key to bytes, and tells which ones have changed; the machine's other half carries them to disk and into snapshots.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, Protocol

from stan.core.state.bookmarks import Bookmarks
from stan.core.state.dedup import ProducerDedup
from stan.core.state.limit_overrides import LimitOverrides
from stan.core.state.restore_state import RestoreStates
from stan.core.state.tombstones import Tombstones
from stan.core.state.transactions import Transactions
from stan.types import ChannelUid, RaftIndex


class StateComponent(Protocol):
    """See the module's docstring."""

    KIND: ClassVar[str]
    """Of its rows; stored, so never given to another part."""
    CHANGES: ClassVar[tuple[str, ...]]
    """Names of the changes of `GroupChange.change` that it applies."""
    dirty: set[bytes]
    """Keys of rows that have changed since they were last written; whoever writes them empties it."""

    def apply(self, name: str, change: Any, index: RaftIndex) -> object:
        """Apply one committed change; what comes back is handed to whoever proposed it."""

    def drop_channel(self, uid: ChannelUid) -> None:
        """A channel is gone with everything on it."""

    def keys(self) -> Iterable[bytes]:
        """Keys of all rows."""

    def row(self, key: bytes) -> bytes | None:
        """One row; None if there is none any more."""

    def load(self, key: bytes, state: bytes) -> None:
        """Take a row in; only while nothing was applied yet."""


def make_components() -> list[StateComponent]:
    """The parts of a new machine."""
    return [Transactions(), ProducerDedup(), Bookmarks(), Tombstones(), LimitOverrides(), RestoreStates()]

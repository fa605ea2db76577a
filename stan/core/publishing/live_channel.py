"""A channel on the leader, and its batches that wait for their sequences."""

from collections.abc import Callable
from dataclasses import dataclass, field

from stan_protocol.frames import Publishes
from stan_protocol.refusals import CHANNEL_DELETING, CHANNEL_MOVING, CHANNEL_RESTORING
from stan_protocol.scalars import GroupId

from stan.config import ChannelLimits
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.row_batch import RowBatch

Opened = Callable[["LiveChannel | None", str], object]
"""Called once, whatever happens: with the channel, or with None and the text of the refusal; LED_ELSEWHERE: another leader does
what is asked of the channel, or will, and this node answers nothing."""


@dataclass(slots=True)
class Unsealed:
    """Batches of one channel that wait for their sequences."""

    batches: list[Publishes | RowBatch] = field(default_factory=list)  # in order of arrival
    closed: bool = False  # nothing more is taken: the channel goes to another group, and this view of it is forgotten
    halted: bool = False  # nothing is taken for now: the channel is a part of one whose parts are being doubled

    @property
    def count(self) -> int:
        """Number of messages."""
        return sum(batch.count for batch in self.batches)


@dataclass(slots=True)
class LiveChannel:
    """The leader's view of one channel. Invariant S1: sequences are dense; next_sequence = last assigned + 1."""

    info: ChannelInfo
    limits: ChannelLimits
    next_sequence: int
    last_timestamp: int
    idle_since: int  # Nanos: the last publish, or the end of the last subscription
    uncommitted_bytes: int = 0
    unsealed: Unsealed = field(default_factory=Unsealed)
    reserved: int = 0  # entries made elsewhere that are on their way, see `Publishing.reserve`
    deleting: bool = False
    # Name of the restore under way: only its rows are stored, subscriptions are refused, and nothing is removed.
    restoring: bytes = b""
    idle_at: int = 0  # Nanos of the armed timer; 0: none
    pending_subscribes: int = 0  # subscriptions on their way

    @property
    def group(self) -> GroupId:
        """The group that has the channel."""
        return self.info.group

    @property
    def closed(self) -> str:
        """Why the channel takes no messages and subscriptions now; "" if it does."""
        if self.unsealed.closed:
            return CHANNEL_MOVING
        return CHANNEL_DELETING if self.deleting else CHANNEL_RESTORING if self.restoring else ""

"""The port from a member inside the shell to its group: sending, the durable index, permission to campaign."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from stan_protocol.scalars import Nanos, RaftIndex

from stan.raft.transport.codec import Message


class MayCampaign(Protocol):
    """Callback that asks the group whether it may campaign."""

    def __call__(self, commit: RaftIndex, *, met_leader: bool) -> bool:
        """True if everything up to *commit*, a committed entry, took effect here, and nothing else forbids it."""


class RaftHost(NamedTuple):
    """Callbacks of the shell into its group. Called inside the library's handlers: may only take notes and queue messages."""

    send: Callable[[str, Message], None]  # queue a message for a peer that is up
    durable: Callable[[], RaftIndex]  # newest entry of the own log that counts
    may_campaign: MayCampaign
    # Since when this node has read its peers' messages; the current time if it was stopped or busy until now.
    listens_since: Callable[[], Nanos]
    on_snapshot_needed: Callable[[str], None]  # the peer needs entries that the log no longer has
    note: Callable[[str], None]  # for the operator

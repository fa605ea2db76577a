"""What the outside may ask a broker: reads only, by the name of what is asked.

Who stands around the broker (edge, monitor, server) steps it with events and reads it here; what it is made of is its own
matter. Nothing is copied: whatever is handed out is looked at, and never changed.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from stan.config import Config
from stan.core.base.partition import Partition
from stan.core.base.ready import Index
from stan.core.base.runs import Runs
from stan.core.context import Authorizer, BrokerContext
from stan.core.leader.cursors import LiveCursor
from stan.core.publishing.publishing import Publishing
from stan.core.state.group import GroupMachine
from stan.core.state.meta import MetaMachine
from stan.protocol.channels import Subjects
from stan.types import ChannelUid, GroupId, Nanos


class GroupView(Protocol):
    """One channel group on this node."""

    @property
    def machine(self) -> GroupMachine:
        """Its replicated state."""

    @property
    def leads(self) -> bool:
        """Whether this node leads it."""

    def live(self, cursor_id: int) -> LiveCursor | None:
        """The leader's view of a cursor; None in a copy, and while nobody is online."""


class BrokerView:
    """See the module's docstring."""

    __slots__ = ("_context", "_publishing")

    def __init__(self, context: BrokerContext, publishing: Publishing) -> None:
        self._context = context
        self._publishing = publishing

    # --- settings and surroundings ------------------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        """The settings, as last set."""
        return self._context.config

    @property
    def subjects(self) -> Subjects:
        """Where clients and nodes speak to the broker."""
        return self._context.subjects

    @property
    def reply_prefix(self) -> bytes:
        """What subjects begin with that come back to this node."""
        return self._context.reply_prefix

    @property
    def authorizer(self) -> Authorizer | None:
        """Who judges by the permissions; None: everybody may do everything."""
        return self._context.authorizer

    @property
    def partition(self) -> Partition | None:
        """Which channels are this server's, if it shares them with others."""
        return self._context.partition

    @property
    def clustered(self) -> bool:
        """Whether other nodes take part."""
        return self._context.clustered

    @property
    def node(self) -> str:
        """The name of this node; "" alone."""
        return self._context.events.node

    @property
    def now(self) -> Nanos:
        """The time of the newest event."""
        return self._context.clock.now

    @property
    def payload_bytes_max(self) -> int:
        """Bytes of the largest payload that NATS takes from us."""
        return self._context.payload_bytes_max

    def may_send_to(self, named: bytes) -> bool:
        """Whether something may be sent to a subject that a client has named."""
        return self._context.may_send_to(named)

    # --- the metadata -------------------------------------------------------------------------------------------------

    @property
    def meta(self) -> MetaMachine:
        """The metadata: clients, channels, nodes, the cluster's identity."""
        return self._context.meta

    @property
    def nuid(self) -> bytes:
        """Of the cluster, b"" while it is not founded."""
        return self._context.nuid

    # --- the groups ---------------------------------------------------------------------------------------------------

    @property
    def leads_meta(self) -> bool:
        """Whether this node leads the metadata."""
        return self._context.leads_meta

    @property
    def groups(self) -> Mapping[GroupId, GroupView]:
        """The channel groups that this node holds."""
        return self._context.groups

    def led(self) -> Iterable[GroupId]:
        """Those of them that it leads."""
        return (number for number, _ in self._context.led())

    def leads(self, number: GroupId) -> bool:
        """Whether this node leads a group, the metadata included."""
        return self._context.leads(number)

    def group_number(self, channel: bytes) -> GroupId:
        """The group of a channel."""
        return self._context.group_number(channel)

    @property
    def faulty(self) -> Mapping[GroupId, str]:
        """Groups whose state is used no more until a restart, and why."""
        return self._context.faulty

    @property
    def has_faults(self) -> bool:
        """Whether the next Ready tells of a group in which the program failed."""
        return bool(self._context.faults)

    # --- messages -----------------------------------------------------------------------------------------------------

    def indexes(self, group: GroupId, uid: ChannelUid) -> Index:
        """A channel's messages as everybody may see them."""
        return self._context.indexes(group, uid)

    def visible(self, group: GroupId, uid: ChannelUid, index: Index) -> Index:
        """The same, of an index at hand."""
        return self._context.visible(group, uid, index)

    def deleted(self, group: GroupId, uid: ChannelUid) -> Runs | None:
        """Messages of a channel that were deleted one by one; None: none were."""
        return self._context.deleted(group, uid)

    # --- counters -----------------------------------------------------------------------------------------------------

    @property
    def in_messages(self) -> int:
        """Messages received from publishers since the start, also those refused."""
        return self._context.totals.in_messages

    @property
    def in_bytes(self) -> int:
        """Their bytes."""
        return self._context.totals.in_bytes

    @property
    def out_messages(self) -> int:
        """Messages sent to subscribers, redeliveries included."""
        return sum(group.dispatch.out_messages for group in self._context.groups.values())

    @property
    def out_bytes(self) -> int:
        """Their bytes."""
        return sum(group.dispatch.out_bytes for group in self._context.groups.values())

    @property
    def redelivered_messages(self) -> int:
        """Messages sent again, flagged."""
        return sum(group.dispatch.redelivered_messages for group in self._context.groups.values())

    @property
    def unsealed_bytes(self) -> int:
        """Received, and not on their way into the log yet."""
        return self._publishing.unsealed_bytes

    @property
    def uncommitted_bytes(self) -> int:
        """On their way into the log."""
        return self._publishing.uncommitted_bytes

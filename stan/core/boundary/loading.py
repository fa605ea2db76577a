"""The replicated state of a broker: made, forgotten, restored from a snapshot, replayed; given out as changed rows or as a
snapshot.

No request is answered and nothing is delivered here: a group is loaded before this node leads it.
"""

from dataclasses import replace
from functools import partial

from stan_protocol.scalars import GroupId, RaftIndex

from stan.core.base.delivery_policy import NOT_KNOWN, DeliveryPolicy, of_consumer
from stan.core.boundary.failures import tell_failure
from stan.core.leader.dispatch import Dispatch
from stan.core.leader.live_view import LiveView
from stan.core.leader.local_group import ChannelGroup
from stan.core.leader.redelivery import Redelivery
from stan.core.metadata.meta import MetaMachine, MetaRows
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.core.state.consumers import CONSUMERS
from stan.core.state.cursors import Cursor
from stan.core.state.group import GroupMachine
from stan.core.state.group_state import GroupRows
from stan.protocol.entries import Kind, decode_records
from stan.protocol.proto import entries_pb2 as pb

SomeRows = GroupRows
Machine = MetaMachine | GroupMachine
ChangedRows = MetaRows | GroupRows
"""The rows of a group's state that have changed."""


def _policy_of(services: Services, machine: GroupMachine, cursor: Cursor) -> DeliveryPolicy:
    """The policy in force for a cursor of a channel group. A node may lead a group while its metadata lags behind."""
    channel = services.node.meta.by_uid.get(cursor.uid)
    if channel is None:
        return NOT_KNOWN
    found = services.placement.policies.of(channel.name, cursor.name)
    consumer = machine.consumers.of(cursor.uid).get(cursor.name) if cursor.client_id == CONSUMERS else None
    if consumer is not None:
        return of_consumer(consumer.config, found)
    return replace(found, dead_letter="") if channel.is_ephemeral and found.dead_letter else found


def restored(number: GroupId, snapshot: pb.Snapshot, *, changed: bool) -> Machine:
    """Make the machine of a group from a snapshot, in any thread. *changed*: all of its state counts as changed."""
    machine: Machine
    if number == META_GROUP:
        machine = meta = MetaMachine()
        meta.restore(snapshot)
    else:
        machine = GroupMachine(number)
        machine.restore(snapshot)
    if changed:
        machine.touch_all()
    return machine


class GroupStates:
    """The replicated state of the metadata and of each group that this node holds."""

    restored = staticmethod(restored)

    def __init__(self, services: Services) -> None:
        self._services = services
        self.faults, self.leading, self.node = services.faults, services.leading, services.node

    def reset(self, number: GroupId, machine: Machine | None = None) -> None:
        """Put *machine* in place of a group's state, or an empty one; this node does not lead the group."""
        self.faults.faulty.pop(number, None)
        if number == META_GROUP:
            self.node.meta = machine if isinstance(machine, MetaMachine) else MetaMachine()
        else:
            self._reset(number, machine if isinstance(machine, GroupMachine) else GroupMachine(number))

    def _reset(self, number: GroupId, machine: GroupMachine) -> None:
        services = self._services
        tell, policy_of = partial(tell_failure, services, number), partial(_policy_of, services, machine)
        redelivery = Redelivery(LiveView(leaves=services.leaves), services.timers.of(number), tell)
        dispatch = Dispatch(machine, services.stored.indexes, redelivery, policy_of)
        made, old = ChannelGroup(machine, dispatch), self.node.groups.get(number)
        if old is not None:  # numbers continue, so that late answers for the old state are recognised
            made.leadership_epoch = old.leadership_epoch
            dispatch.fetches, dispatch.stops.disconnected = old.dispatch.fetches, old.dispatch.stops.disconnected
        made.replay_filter.complete_since = self.node.clock.now
        self.node.groups[number] = made
        self.leading.group_changed(number)

    def drop(self, number: GroupId) -> None:
        """Forget a channel group that this node no longer holds; this node does not lead the group."""
        self.node.groups.pop(number, None)
        self.leading.group_changed(number)

    def step_loaded(self, number: GroupId, last: RaftIndex) -> None:
        """*last* is the newest entry that the log of a group had when this node began to listen."""
        if number != META_GROUP:
            group = self.node.groups[number]
            group.loaded = last
            if last:
                group.replay_filter.complete_since = self.node.clock.now

    def touch_all(self, number: GroupId) -> None:
        """Mark all of a group's state as changed: the stored rows are lost."""
        self._machine(number).touch_all()

    def take_some_rows(self, number: GroupId, most: int) -> SomeRows | None:
        """Return some of the changed rows of a group's state, to be encoded at once and written with the others; None: there are
        no more than *most*."""
        return None if number == META_GROUP else self.node.groups[number].machine.take_some_rows(most)

    def take_changed_rows(self, number: GroupId) -> ChangedRows:
        """Return the rows of a group's state that have changed since the last call, to be encoded before the next event and
        written with the group's applied index."""
        return self._machine(number).take_changed_rows()

    def replay_entry(self, number: GroupId, index: RaftIndex, kind: int, body: bytes) -> None:
        """Apply one entry to the replicated state alone: no request is answered and nothing is delivered."""
        if kind == Kind.META:
            self.node.meta.apply(pb.MetaChange.FromString(body), index)
        elif kind == Kind.CHANGE:
            self.node.groups[number].machine.apply(pb.GroupChange.FromString(body), index)
        elif kind == Kind.RECORDS:
            machine = self.node.groups[number].machine
            batches, _, changes = decode_records(body)
            for batch in batches:
                machine.begins(batch.uid, batch.first_sequence)
            for told in changes:
                machine.apply(pb.GroupChange.FromString(told), index)
        elif number == META_GROUP:  # the first entry of a new leader
            self.node.meta.applied = index

    def _machine(self, number: GroupId) -> Machine:
        return self.node.meta if number == META_GROUP else self.node.groups[number].machine

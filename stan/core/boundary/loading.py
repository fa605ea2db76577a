"""The replicated state of a broker: made, forgotten, restored from a snapshot, replayed; given out as changed rows or as a
snapshot.

No request is answered and nothing is delivered here: a group is loaded before this node leads it.
"""

from dataclasses import replace
from functools import partial

from stan_protocol.scalars import GroupId, RaftIndex

from stan.core.base.delivery_policy import NOT_KNOWN, DeliveryPolicy
from stan.core.boundary.failures import tell_failure
from stan.core.leader.dispatch import Dispatch
from stan.core.leader.local_group import ChannelGroup
from stan.core.services.node import META_GROUP, Node
from stan.core.services.services import Services
from stan.core.state.group import Cursor, GroupMachine, GroupRows
from stan.core.state.meta import MetaMachine, MetaRows
from stan.core.state.state_codec import restore_group
from stan.protocol.entries import Kind, decode_records
from stan.protocol.proto import entries_pb2 as pb

SomeRows = GroupRows
Machine = MetaMachine | GroupMachine
ChangedRows = MetaRows | GroupRows
"""The rows of a group's state that have changed."""


def _policy_of(services: Services, cursor: Cursor) -> DeliveryPolicy:
    """The policy in force for a cursor of a channel group. A node may lead a group while its metadata lags behind."""
    channel = services.node.meta.by_uid.get(cursor.uid)
    if channel is None:
        return NOT_KNOWN
    found = services.placement.policies.of(channel.name, cursor.name)
    return replace(found, dead_letter="") if channel.is_ephemeral and found.dead_letter else found


def restored(number: GroupId, snapshot: pb.Snapshot, *, changed: bool) -> Machine:
    """Make the machine of a group from a snapshot, in any thread. *changed*: all of its state counts as changed."""
    machine: Machine
    if number == META_GROUP:
        machine = meta = MetaMachine()
        meta.restore(snapshot)
    else:
        machine = GroupMachine(number)
        restore_group(machine, snapshot)
    if changed:
        machine.touch_all()
    return machine


def reset(services: Services, number: GroupId, machine: Machine | None = None) -> None:
    """Put *machine* in place of a group's state, or an empty one; this node does not lead the group."""
    services.leading.faulty.pop(number, None)
    if number == META_GROUP:
        services.node.meta = machine if isinstance(machine, MetaMachine) else MetaMachine()
        return
    machine = machine if isinstance(machine, GroupMachine) else GroupMachine(number)
    tell, policy_of = partial(tell_failure, services, number), partial(_policy_of, services)
    made = ChannelGroup(
        machine, Dispatch(machine, services.stored.indexes, services.timers.of(number), tell, policy_of)
    )
    old = services.node.groups.get(number)
    if old is not None:  # numbers continue, so that late answers for the old state are recognised
        made.leadership_epoch, made.dispatch.fetches, made.dispatch.stops.disconnected = (
            old.leadership_epoch,
            old.dispatch.fetches,
            old.dispatch.stops.disconnected,
        )
    made.replay_filter.complete_since = services.node.clock.now
    services.node.groups[number] = made
    services.leading.groups_changed()


def touch_all(node: Node, number: GroupId) -> None:
    """Mark all of a group's state as changed: the stored rows are lost."""
    (node.meta if number == META_GROUP else node.groups[number].machine).touch_all()


def take_some_rows(node: Node, number: GroupId, most: int) -> SomeRows | None:
    """Return some of the changed rows of a group's state, if there are more than *most*."""
    return None if number == META_GROUP else node.groups[number].machine.take_some_rows(most)


def take_changed_rows(node: Node, number: GroupId) -> ChangedRows:
    """Return the rows of a group's state that have changed since the last call."""
    return node.meta.take_changed_rows() if number == META_GROUP else node.groups[number].machine.take_changed_rows()


def replay(node: Node, number: GroupId, index: RaftIndex, kind: int, body: bytes) -> None:
    """Apply one entry to the replicated state alone."""
    if kind == Kind.META:
        node.meta.apply(pb.MetaChange.FromString(body), index)
    elif kind == Kind.CHANGE:
        node.groups[number].machine.apply(pb.GroupChange.FromString(body), index)
    elif kind == Kind.RECORDS:
        machine = node.groups[number].machine
        batches, _, changes = decode_records(body)
        for batch in batches:
            machine.trim(batch.uid, batch.first_sequence)
        for told in changes:
            machine.apply(pb.GroupChange.FromString(told), index)
    elif number == META_GROUP:  # the first entry of a new leader
        node.meta.applied = index

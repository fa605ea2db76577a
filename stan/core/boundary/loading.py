"""The replicated state of a broker: made, forgotten, restored from a snapshot, replayed; given out as changed rows or as a
snapshot.

No request is answered and nothing is delivered here: a group is loaded before this node leads it.
"""

from dataclasses import replace
from functools import partial

from stan_protocol.channels import Subjects
from stan_protocol.scalars import GroupId, RaftIndex

from stan.config import Config
from stan.core.base.delivery_policy import NOT_KNOWN, DeliveryPolicy
from stan.core.base.partition import Partition
from stan.core.base.rate_limit import RateLimiter
from stan.core.base.ready import Indexes
from stan.core.boundary.failures import tell_failure
from stan.core.clients.authorization import PermissionAuthorizer
from stan.core.context import META_GROUP, Access, BrokerContext, NatsState
from stan.core.leader.dispatch import Dispatch
from stan.core.leader.local_group import ChannelGroup
from stan.core.state.group import Cursor, GroupMachine, GroupRows
from stan.core.state.meta import MetaMachine, MetaRows
from stan.core.state.state_codec import restore_group
from stan.protocol.entries import Kind, decode_records
from stan.protocol.proto import entries_pb2 as pb

SomeRows = GroupRows
Machine = MetaMachine | GroupMachine
ChangedRows = MetaRows | GroupRows
"""The rows of a group's state that have changed."""


def empty(config: Config, indexes: Indexes, reply_prefix: bytes) -> BrokerContext:
    """Make the context of a broker that holds no channel group yet."""
    nats = NatsState(Subjects.of(config.cluster_id, config.discover_prefix), reply_prefix)
    context = BrokerContext(config, indexes, nats, Access(RateLimiter(config.requests)))
    if config.permissions is not None:
        context.access.authorizer = PermissionAuthorizer(context, config.permissions)
    if config.partitioning:
        context.access.partition = Partition(config.limits.per_channel)
    return context


def _policy_of(context: BrokerContext, cursor: Cursor) -> DeliveryPolicy:
    """The policy in force for a cursor of a channel group. A node may lead a group while its metadata lags behind."""
    channel = context.meta.by_uid.get(cursor.uid)
    if channel is None:
        return NOT_KNOWN
    found = context.policies.of(channel.name, cursor.name)
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


def reset(context: BrokerContext, number: GroupId, machine: Machine | None = None) -> None:
    """Put *machine* in place of a group's state, or an empty one; this node does not lead the group."""
    context.leading.faulty.pop(number, None)
    if number == META_GROUP:
        context.meta = machine if isinstance(machine, MetaMachine) else MetaMachine()
        return
    machine = machine if isinstance(machine, GroupMachine) else GroupMachine(number)
    tell, policy_of = partial(tell_failure, context, number), partial(_policy_of, context)
    made = ChannelGroup(machine, Dispatch(machine, context.indexes, context.timers.of(number), tell, policy_of))
    old = context.groups.get(number)
    if old is not None:  # numbers continue, so that late answers for the old state are recognised
        made.leadership_epoch, made.dispatch.fetches, made.dispatch.stops.disconnected = (
            old.leadership_epoch,
            old.dispatch.fetches,
            old.dispatch.stops.disconnected,
        )
    made.replay_filter.complete_since = context.clock.now
    context.groups[number] = made
    context.groups_changed()


def touch_all(context: BrokerContext, number: GroupId) -> None:
    """Mark all of a group's state as changed: the stored rows are lost."""
    (context.meta if number == META_GROUP else context.groups[number].machine).touch_all()


def take_some_rows(context: BrokerContext, number: GroupId, most: int) -> SomeRows | None:
    """Return some of the changed rows of a group's state, if there are more than *most*."""
    return None if number == META_GROUP else context.groups[number].machine.take_some_rows(most)


def take_changed_rows(context: BrokerContext, number: GroupId) -> ChangedRows:
    """Return the rows of a group's state that have changed since the last call."""
    return (
        context.meta.take_changed_rows() if number == META_GROUP else context.groups[number].machine.take_changed_rows()
    )


def replay(context: BrokerContext, number: GroupId, index: RaftIndex, kind: int, body: bytes) -> None:
    """Apply one entry to the replicated state alone."""
    if kind == Kind.META:
        context.meta.apply(pb.MetaChange.FromString(body), index)
    elif kind == Kind.CHANGE:
        context.groups[number].machine.apply(pb.GroupChange.FromString(body), index)
    elif kind == Kind.RECORDS:
        machine = context.groups[number].machine
        batches, _, changes = decode_records(body)
        for batch in batches:
            machine.trim(batch.uid, batch.first_sequence)
        for told in changes:
            machine.apply(pb.GroupChange.FromString(told), index)
    elif number == META_GROUP:  # the first entry of a new leader
        context.meta.applied = index

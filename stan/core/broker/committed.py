"""What the broker does with each committed entry: the replicated state applies it, then the live view follows."""

from stan_protocol.scalars import ChannelUid, GroupId, RaftIndex

from stan.core.base.runs import flat_of, size_of
from stan.core.broker.parts import BrokerParts
from stan.core.features.consumer_groups.leader import ConsumerGroupsLeader
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.core.state.deferred import Deferred
from stan.core.state.group import GroupResult
from stan.core.state.meta import ChannelInfo, MetaResult
from stan.core.state.transactions import Ended
from stan.protocol.entries import DEFERRED_UID, STAGING_UID, Kind, decode_records
from stan.protocol.proto import entries_pb2 as pb


class CommittedEntries:
    """Applies committed entries, on every node, in the order of their indexes."""

    def __init__(self, services: Services, parts: BrokerParts) -> None:
        self.faults, self.leading, self.node = services.faults, services.leading, services.node
        self.outgoing, self.placement, self.reports = services.outgoing, services.placement, services.reports
        self.parts = parts

    def apply(self, group: GroupId, index: RaftIndex, kind: int, body: bytes) -> object:
        """Apply an entry whose record batches are indexed; returns its result, for the request that proposed it."""
        result: object = None
        if kind == Kind.RECORDS:
            batches, fingerprints, changes = decode_records(body)
            self.parts.publishing.committed(group, index, batches, fingerprints)
            result = True
            if changes:
                result = [self._apply_change(group, pb.GroupChange.FromString(change), index) for change in changes]
        elif kind == Kind.META:
            result = self._apply_meta(pb.MetaChange.FromString(body), index)
        elif kind == Kind.CHANGE:
            result = self._apply_change(group, pb.GroupChange.FromString(body), index)
        elif group == META_GROUP:  # the first entry of a new leader
            self.node.meta.applied = index
            self.parts.read_index.applied()
        return result

    def _apply_meta(self, change: pb.MetaChange, index: RaftIndex) -> MetaResult:
        if change.HasField("part_closed"):
            self.parts.doubling.part_closed(change.part_closed)
        applied = self.node.meta.apply(change, index)
        self.parts.clients.applied(applied)
        if (applied.created or applied.deleted is not None) and self.placement.policies.rules:
            self.placement.changed()
        self.parts.doubling.before(applied.parted)
        for info in applied.created:
            self.faults.within(info.group, self._registered, info)
        if applied.deleted is not None:
            self.faults.within(applied.deleted.group, self._unregistered, applied.deleted, applied.deleted_from)
        self.parts.doubling.changed(applied.parted, divided=bool(applied.created))
        consumer_groups = self.leading.meta_part(ConsumerGroupsLeader)
        if consumer_groups is not None and (applied.created or applied.deleted is not None):
            consumer_groups.channels_changed(applied)
        if applied.pins_changed or applied.pool_changed:
            self.placement.changed()
        self.parts.moves.meta_applied(applied)
        self.parts.spreading.applied(applied)
        if applied.policies_changed or applied.raised:
            self.policies_changed()
        self.parts.read_index.applied()
        return applied

    def policies_changed(self) -> None:
        """The configuration or the metadata have other limits or policies."""
        self.parts.channels.reconfigure()
        consumer_groups = self.leading.meta_part(ConsumerGroupsLeader)
        if consumer_groups is not None:
            consumer_groups.policies_changed()

    def _unregistered(self, info: ChannelInfo, deleted_from: bytes) -> None:
        self.parts.channels.unregistered(info, deleted_from)
        self.parts.channel_changes.unregistered(info)
        self.parts.long_poll.unregistered(info)

    def _registered(self, info: ChannelInfo) -> None:
        self.parts.long_poll.registered(info)
        self.parts.filters.registered(info.name, info.group)
        self.parts.channels.registered(info)
        group = self.node.groups.get(info.group)
        if group is not None:
            group.dispatch.policies_changed(info.uid)

    def _apply_change(self, number: GroupId, change: pb.GroupChange, index: RaftIndex) -> GroupResult:
        group, name = self.node.groups[number], change.WhichOneof("change")
        machine = group.machine
        if name is None:  # progress alone, on the hot path: the live view knows already
            return machine.apply(change, index)
        floor = machine.transactions.floor
        applied = machine.apply(change, index)
        self.parts.subscribing.applied(number, applied)
        if applied.served:
            self.parts.serving.applied(number, applied.served)
        if applied.operator_change is not None:
            self.parts.cursor_admin.applied(number, applied)
        if machine.transactions.floor > floor:
            self.outgoing.trims.append((number, STAGING_UID, machine.transactions.floor))
        if name == "expired":
            self._expired(number, applied)
        elif name in ("deferred", "deferred_gone", "drop_channel"):
            self._trim_deferred(number)
        self._follow(number, change, applied)
        for part in group.leadership.followers.get(name, ()) if group.leadership is not None else ():
            part.followed(change)
        return applied

    def _follow(self, number: GroupId, change: pb.GroupChange, applied: GroupResult) -> None:
        """The live view of channels follows a change."""
        match change.WhichOneof("change"):
            case "trim":
                self.parts.channels.trimmed(number, change.trim)
            case "removal" if not applied.error:
                self.parts.channels.removed(number, change.removal)
            case "edit_limits":
                self.parts.channels.refresh(ChannelUid(change.edit_limits.uid))
            case "restore" if not applied.error:
                self.parts.channels.restored(number, ChannelUid(change.restore.uid))
            case "ephemeral_epoch" if not applied.error and not change.ephemeral_epoch.more:
                self.parts.channels.epoch_begun(number, ChannelUid(change.ephemeral_epoch.uid))
            case "arriving" | "arrived" | "depart" | "departed" | "returned" | "arrival_dropped" as name:
                self.parts.moves.applied(number, name, change, applied)
                if name == "depart":
                    self.parts.long_poll.left(map(ChannelUid, change.depart.uids))
            case "drop_channel":
                uid = ChannelUid(change.drop_channel.uid)
                self.parts.channels.drop_committed(number, uid)
                self.parts.commits.dropped(number, uid)
        if isinstance(applied.of_part, Ended):
            self.parts.commits.ended(number, applied.of_part)

    def _trim_deferred(self, number: GroupId) -> None:
        """Remove messages of the hidden channel that wait no more."""
        floor = self.node.groups[number].machine.part(Deferred).floor
        if floor > 1:
            self.outgoing.trims.append((number, DEFERRED_UID, floor))

    def _expired(self, number: GroupId, applied: GroupResult) -> None:
        """Remove expired messages."""
        runs_by_channel = applied.of_part
        assert isinstance(runs_by_channel, dict)  # noqa: S101 - for mypy
        for uid, runs in runs_by_channel.items():
            self.parts.channels.removed(number, pb.Removal(uid=uid, deleted=flat_of(runs)))
            if self.node.leads(number):
                self.reports.totals.expired_messages += size_of(runs)

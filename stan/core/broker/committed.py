"""What the broker does with each committed entry: the replicated state applies it, then the live view follows."""

from functools import partial

from stan_protocol.scalars import ChannelUid, GroupId, RaftIndex

from stan.core.base.runs import flat_of, size_of
from stan.core.features import BrokerParts, Features
from stan.core.leader.local_group import ChannelGroup
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.core.state.deferred import Deferred
from stan.core.state.group import GroupResult
from stan.core.state.meta import ChannelInfo, MetaResult
from stan.protocol.entries import DEFERRED_UID, STAGING_UID, Kind, decode_records
from stan.protocol.proto import entries_pb2 as pb


class CommittedEntries:
    """Applies committed entries, on every node, in the order of their indexes."""

    def __init__(self, services: Services, parts: BrokerParts, features: Features) -> None:
        self.faults, self.leading, self.node = services.faults, services.leading, services.node
        self.outgoing, self.placement, self.reports = services.outgoing, services.placement, services.reports
        self.parts = parts
        self.features = features

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
        applied = self.node.meta.apply(change, index)
        self.parts.clients.applied(applied)
        if (applied.created or applied.deleted is not None) and self.placement.policies.rules:
            self.placement.changed()
        if applied.parted:  # before new parts are led
            self.placement.changed()
            self.parts.channels.parted_changed(applied.parted)
        for info in applied.created:
            self.faults.within(info.group, self._registered, info)
        if applied.deleted is not None:
            unregistered = partial(self.parts.channels.unregistered, applied.deleted, applied.deleted_from)
            self.faults.within(applied.deleted.group, unregistered)
        if applied.pins_changed or applied.pool_changed:
            self.placement.changed()
        for feature in self.features.all:
            feature.meta_applied(change, applied)
        if applied.policies_changed or applied.raised:
            self.policies_changed()
        self.parts.read_index.applied()
        return applied

    def policies_changed(self) -> None:
        """The configuration or the metadata have other limits or policies."""
        self.parts.channels.reconfigure()
        for feature in self.features.all:
            feature.policies_changed()

    def _registered(self, info: ChannelInfo) -> None:
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
            self._cursor_changed(group, applied)
        if machine.transactions.floor > floor:
            self.outgoing.trims.append((number, STAGING_UID, machine.transactions.floor))
        if name == "expired":
            self._expired(number, applied)
        elif name in ("deferred", "deferred_gone", "drop_channel"):
            self._trim_deferred(number)
        self._follow(number, change, applied)
        for feature in self.features.followers.get(name, ()):
            feature.applied(number, name, change, applied)
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
            case "drop_channel":
                self.parts.channels.drop_committed(number, ChannelUid(change.drop_channel.uid))

    def _cursor_changed(self, group: ChannelGroup, result: GroupResult) -> None:
        """An operator's change was applied: the live view of the cursor follows."""
        if result.cursor is None:
            return
        group.dispatch.cursor_changed(result)
        channel = self.parts.channels.by_uid.get(result.cursor.uid)
        if group.leads and result.ended and channel is not None:
            self.parts.channels.watch_idle(channel)

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

"""Entries of the groups' logs: progress and changes are proposed, and each committed entry is applied.

The replicated state applies it, then the live view follows, then the request that proposed it is answered.
"""

from functools import partial
from typing import Final

from stan_protocol.scalars import ChannelUid, GroupId, RaftIndex

from stan.core.base.ready import Proposal, Ready
from stan.core.base.runs import flat_of, size_of
from stan.core.broker.progress import ProgressWriter
from stan.core.features import BrokerParts, Features
from stan.core.leader.local_group import ChannelGroup
from stan.core.metadata.meta import ChannelInfo, MetaResult
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.core.state.group_state import GroupResult
from stan.protocol.entries import DEFERRED_UID, STAGING_UID, Kind, decode_records
from stan.protocol.proto import entries_pb2 as pb

NOTHING: Final[frozenset[GroupId]] = frozenset()


class LogEntries:
    """Proposes entries as the leader of groups, and applies those that are committed, on every node, in index order."""

    def __init__(self, services: Services, parts: BrokerParts, features: Features, progress: ProgressWriter) -> None:
        self.faults, self.leading, self.node = services.faults, services.leading, services.node
        self.outgoing, self.placement, self.reports = services.outgoing, services.placement, services.reports
        self.proposals = services.proposals
        self.parts = parts
        self.features = features
        self.progress = progress

    # --- proposals ----------------------------------------------------------------------------------------------------

    def propose(self, ready: Ready) -> None:
        """Add the progress entries that are due to *ready*, and behind them the changes of this turn."""
        changes = self.proposals.take(self.leading.write_blocked) if self.proposals.changes else []
        changing = {change.group for change in changes} if changes else NOTHING
        for number, group in self.leading.led:
            reports = group.dispatch.reports
            if reports.cursors or reports.unconfirmed or reports.gone or group.dispatch.stops.progress_blocked:
                try:
                    self.progress.report(number, group, ready, changing)
                except Exception as error:  # noqa: BLE001 - the border of the group
                    self.faults.fail(number, error)
        ready.proposals += changes

    def step_written(self, proposal: Proposal, index: RaftIndex) -> None:
        """A proposal is in the log at *index*; its commit follows."""
        proposal.leader.written[index] = proposal.done
        if not proposal.urgent:  # the log had room for progress
            self.node.groups[proposal.group].dispatch.stops.progress_blocked = False

    def step_refused(self, proposal: Proposal, why: str) -> None:
        """A proposal could not be written (a full disk, a frozen log): nothing of it happened."""
        if not proposal.leader.ended:
            proposal.done(None, why)

    def step_in_doubt(self, proposal: Proposal) -> None:
        """It is unknown whether a proposal is in the log, or another leader has to take it: the request behind the proposal is
        not answered."""
        if not proposal.leader.ended:
            proposal.in_doubt()

    # --- committed entries --------------------------------------------------------------------------------------------

    def step_committed(self, group: GroupId, index: RaftIndex, kind: int, body: bytes) -> None:
        """An entry is committed, and its record batches are indexed. On every node, in index order."""
        held = self.node.groups.get(group)
        if held is not None:
            if not held.applied:
                held.begun = index - 1
                self.parts.serving.of_others.begin(group)
            held.applied = index
        result = self._apply(group, index, kind, body)
        leader = self.node.meta_leader if group == META_GROUP else None if held is None else held.leadership
        done = leader.written.pop(index, None) if leader is not None else None
        if done is not None:
            done(result, "")

    def _apply(self, group: GroupId, index: RaftIndex, kind: int, body: bytes) -> object:
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
        self.faults.each(self._registered, applied.created)
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
            group.dispatch.members.policies_changed(info.uid)

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
        group.dispatch.members.cursor_changed(result)
        channel = self.parts.channels.by_uid.get(result.cursor.uid)
        if group.leads and result.ended and channel is not None:
            self.parts.channels.removal.watch_idle(channel)

    def _trim_deferred(self, number: GroupId) -> None:
        """Remove messages of the hidden channel that wait no more."""
        floor = self.node.groups[number].machine.deferred.floor
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

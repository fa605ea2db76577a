"""Channels on the leader: their live views, which follow the registry and the state of their groups (STAN-SPEC 7)."""

from collections.abc import Callable, Iterable
from itertools import chain

from stan_protocol.refusals import (
    CHANNEL_DELETING,
    NO_METADATA,
    go_quote,
)
from stan_protocol.scalars import ChannelUid, GroupId, Sequence

from stan import limits
from stan.core.base.names import text
from stan.core.base.runs import pairs
from stan.core.leader.ephemeral_messages import EphemeralStores
from stan.core.leader.local_group import Leadership
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.channel_policies import ChannelPolicies
from stan.core.publishing.channel_removal import ChannelRemoval
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.opening import ChannelOpening
from stan.core.publishing.retention import Retention
from stan.core.services.leader_part import LeaderPart
from stan.core.services.leading import LED_ELSEWHERE
from stan.core.services.services import Services
from stan.core.state.ephemeral import Epoch
from stan.protocol.proto import entries_pb2 as pb


class DroppedRuns(LeaderPart):
    """The channels that one group has dropped, while this node leads it."""

    def __init__(self, services: Services, leadership: Leadership) -> None:
        super().__init__(services, leadership)
        self._joining = False

    def join(self) -> None:
        """Have the group join their runs, if there are many more of them than channels."""
        dropped = self.group.machine.dropped
        few = dropped.runs.pieces <= limits.DROPPED_RUNS + 2 * len(self.node.meta.by_uid)
        if few or self._joining:
            return

        def done(_result: object = None, _error: str = "") -> None:
            self._joining = False

        runs = [*chain.from_iterable(dropped.gaps(self.node.meta.deleted_uids()))]
        if runs:
            self._joining = True
            self.change(done, done, gone_channels=pb.GoneChannels(runs=runs))


class LiveChannels:
    """All channels of the groups that this node leads."""

    def __init__(self, services: Services) -> None:
        self.faults, self.leading, self.node = services.faults, services.leading, services.node
        self.outgoing, self.placement, self.proposals = services.outgoing, services.placement, services.proposals
        self.reports, self.stored, self.timers = services.reports, services.stored, services.timers
        self.by_name: dict[bytes, LiveChannel] = {}
        self.by_uid: dict[ChannelUid, LiveChannel] = {}
        self.openings = ChannelOpening(services, self.by_name)
        self.policies = ChannelPolicies(services)
        self.stores = EphemeralStores(services.stored.source)  # messages of ephemeral channels
        self.removal = ChannelRemoval(services, self.by_uid, self.policies)
        self.retention = Retention(services, self.by_uid, self.policies, self.stores)
        self.expire: Callable[[ChannelUid], bool] = lambda _uid: False
        """Called when something has expired in a channel; True: it is removed together with other changes, soon."""

    # --- leadership -------------------------------------------------------------------------------------------------

    def lead(self, number: GroupId) -> None:
        """This node leads a group from now on: make the live view of its channels, but of those that nobody leads now."""
        held = self.node.groups[number].machine.moves.held
        for info in self.node.meta.channels.values():
            if info.group == number and info.uid not in held:
                self.add(info)

    def lead_live(self, number: GroupId) -> None:
        """The live view of the group is complete: finish the deletions that the previous leader began, apply the current
        limits."""
        channels = [channel for channel in self.by_uid.values() if channel.info.group == number]
        for channel in channels:
            self.removal.watch_idle(channel)
        machine, known = self.node.groups[number].machine, self.node.meta.by_uid
        moved = machine.moves.held  # to another group, which this copy of the metadata may not know yet
        for uid in sorted(uid for uid in known if uid in machine.dropped and uid not in moved):
            if known[uid].group == number:
                self.removal.unregister(uid)
        self.retention.retain(channels)
        self.removal.drop_parts(channels)

    def take(self, infos: Iterable[ChannelInfo]) -> None:
        """Channels of a group that this node leads have come to it, or stay in it: they go on here."""
        channels = [self.add(info) for info in infos]
        self.retention.retain(channels)
        self.removal.drop_parts(channels)

    def leave(self, info: ChannelInfo) -> LiveChannel | None:
        """Forget a channel that goes to another group. Returns its live view, which takes nothing more."""
        channel = self.by_uid.get(info.uid)
        if channel is not None:
            channel.unsealed.closed = True
            self._forget(channel)
        return channel

    def follow(self, number: GroupId) -> None:
        """This node no longer leads the group: forget its channels and those being opened."""
        for channel in [channel for channel in self.by_uid.values() if channel.info.group == number]:
            self._forget(channel)
        self.openings.follow(number)

    # --- the registry -------------------------------------------------------------------------------------------------

    def parted_changed(self, name: bytes) -> None:
        """A channel has got parts, or its parts are to be deleted."""
        self.openings.parted_changed(name)
        found = self.node.meta.channels.parted.by_name.get(name)
        if found is not None and found.row.dropping:
            parts = [channel for part in found.names() if (channel := self.by_name.get(part)) is not None]
            self.removal.drop_parts(parts)

    def registered(self, info: ChannelInfo) -> None:
        """A channel was added to the registry, by this node or another."""
        if info.group != self.placement.home(info.name):
            self.placement.changed()
        if self.placement.is_held(info.name):
            self.openings.answer(info.name, None, LED_ELSEWHERE)
        elif self.node.leads(info.group):
            channel = self.add(info)
            if channel.deleting:
                self.openings.answer(info.name, None, CHANNEL_DELETING)
                self.removal.unregister(info.uid)
                return
            self.reports.note("INF", f"Channel {go_quote(text(info.name))} has been created")
            self.reports.emit(
                "channel_created",
                f"channel {go_quote(text(info.name))} was created",
                channel=info.name,
                group=info.group,
            )
            self.openings.answer(info.name, channel, "")
        else:  # it was to be made here, and another node has made it in another group
            self.openings.answer(info.name, None, NO_METADATA)

    def add(self, info: ChannelInfo) -> LiveChannel:
        """Make the live view of a registered channel."""
        room = self.policies.room_of(info)
        self.policies.note(info, room)
        machine = self.node.group_of(info).machine
        channel = LiveChannel(
            info=info,
            deleting=info.uid in machine.dropped,  # dropped, but the registry still lists it
            limits=self.policies.limits_of(info, room),
            next_sequence=self.written_end(info),
            last_timestamp=self.stored.indexes(info.group, info.uid).last_timestamp,
            idle_since=self.node.clock.now,
            restoring=machine.restores.under_way(info.uid),
        )
        self.by_name[info.name] = self.by_uid[info.uid] = channel
        self.retention.note(channel)
        if info.is_ephemeral:
            self.node.group_of(info).dispatch.reports.unrecorded.add(info.uid)
        self.removal.watch_idle(channel)
        return channel

    def written_end(self, info: ChannelInfo) -> int:
        """The next sequence after all committed messages."""
        last = self.stored.indexes(info.group, info.uid).last_sequence
        return max(last + 1, self.node.group_of(info).machine.channel(info.uid).first_sequence, 1)

    def trimmed(self, group: GroupId, trim: pb.Trim) -> None:
        """A Trim entry was applied."""
        for uid, first in pairs(trim.first_sequences):
            self.outgoing.trims.append((group, ChannelUid(uid), Sequence(first)))

    def epoch_begun(self, group: GroupId, uid: ChannelUid) -> None:
        """An epoch of an ephemeral channel has begun; on every node, so that all logs tell the same of it: it has no messages."""
        part = self.node.groups[group]
        self.outgoing.trims.append((group, uid, Sequence(part.machine.channel(uid).first_sequence)))
        part.dispatch.members.begin_epoch(uid)

    def removed(self, group: GroupId, removal: pb.Removal) -> None:
        """A Removal entry was applied."""
        uid, part = ChannelUid(removal.uid), self.node.groups[group]
        self.outgoing.trims.append((group, uid, Sequence(part.machine.channel(uid).first_sequence)))
        part.dispatch.members.removed(uid, removal)

    def reconfigure(self) -> None:
        """Apply changed limits, also to messages that are stored already, and changed policies of delivery."""
        channels = [*self.by_uid.values()]
        self.retention.retain(self.faults.each(self._limit, channels))
        self.placement.changed()
        self.leading.each_dispatch(self.leading.led, lambda dispatch: dispatch.members.policies_changed())

    def refresh(self, uid: ChannelUid) -> None:
        """A channel's limits were edited."""
        channel = self.by_uid.get(uid)
        if channel is not None and self._limit(channel):
            self.retention.retain([channel])

    def restored(self, group: GroupId, uid: ChannelUid) -> None:
        """A restore of a channel has begun or ended."""
        machine = self.node.groups[group].machine
        self.outgoing.trims.append((group, uid, Sequence(machine.channel(uid).first_sequence)))
        channel = self.by_uid.get(uid)
        if channel is None:
            return
        channel.restoring = machine.restores.under_way(uid)
        channel.next_sequence = self.written_end(channel.info)
        self._limit(channel)
        if not channel.restoring:
            self.removal.watch_idle(channel)
            self.retention.retain([channel])

    def _limit(self, channel: LiveChannel) -> bool:
        """Take over the current limits and policy of a channel; True if the limits have changed."""
        info, room = channel.info, self.policies.room_of(channel.info)
        self.policies.note(info, room)
        old, channel.limits = channel.limits, self.policies.limits_of(info, room)
        if channel.limits == old:
            return False
        self.retention.note(channel)
        if channel.limits.inactivity_ns != old.inactivity_ns:
            channel.idle_at = 0  # an armed timer sees by this that it is obsolete
            self.removal.watch_idle(channel)
        return True

    def unregistered(self, deleted: ChannelInfo, deleted_from: bytes) -> None:
        """The channel was removed from the registry; *deleted_from*: the channel with parts of which it was a part, if it was."""
        self.placement.changed()  # its name may belong to another group now
        self._forget_replays(deleted, deleted_from)
        self.outgoing.drops.append((deleted.group, deleted.uid))  # whoever asked meanwhile has made its index anew
        for dropped in self.leading.all_parts(DroppedRuns):
            dropped.join()
        channel = self.by_uid.get(deleted.uid)
        if channel is not None:
            self._forget(channel)
            name = go_quote(text(channel.info.name))
            self.reports.note("INF", f"Channel {name} has been deleted")
            self.reports.emit(
                "channel_deleted",
                f"channel {name} was deleted",
                channel=channel.info.name,
                group=channel.info.group,
            )

    def _forget_replays(self, deleted: ChannelInfo, deleted_from: bytes) -> None:
        """Requests that came before about channels that are gone are not replayed; nor are publishes, where the group that a name
        belongs to now has no fingerprints of them."""
        now = self.node.clock.now
        for name in {deleted.name, deleted_from} if self.node.clustered else ():
            number = self.placement.group_number(name)
            group = self.node.groups.get(number) if name else None
            if group is not None:
                group.replay_filter.forget_old(now)
                group.replay_filter.deleted[name] = now
                if name != deleted.name or number != deleted.group:
                    group.replay_filter.taken_over[name] = now

    def _forget(self, channel: LiveChannel) -> None:
        del self.by_uid[channel.info.uid], self.by_name[channel.info.name]
        self.retention.forget(channel.info.uid)
        self.policies.forget(channel.info.uid)
        self._forget_messages(channel.info.uid)

    def keep_messages(self, channel: LiveChannel, epoch: Epoch) -> None:
        """This node has begun an epoch of an ephemeral channel: from now on its messages are here."""
        self.stores.begin(channel.info.uid, epoch)
        self.stored.source = self.stores  # not before: most nodes never have such a channel
        channel.next_sequence = epoch.first

    def _forget_messages(self, uid: ChannelUid) -> None:
        """This node does not lead an ephemeral channel any more, or it is gone."""
        self.stores.forget(uid)
        if not self.stores.by_uid:
            self.stored.source = self.stores.logs

    def drop_committed(self, group: GroupId, uid: ChannelUid) -> None:
        """A DropChannel entry was applied."""
        self.node.groups[group].dispatch.members.drop_channel(uid)
        self._forget_messages(uid)
        self.outgoing.drops.append((group, uid))

"""Channels on the leader: making and opening them, and removal of idle channels (STAN-SPEC 7)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain

from stan_protocol.channels import folded
from stan_protocol.refusals import (
    CHANNEL_DELETING,
    CHANNEL_ELSEWHERE,
    CHANNEL_MOVING,
    HAS_PARTS,
    IN_ANOTHER_GROUP,
    NAME_OF_PART,
    NO_METADATA,
    TOO_MANY_CHANNELS,
    case_conflict,
    go_quote,
)
from stan_protocol.scalars import ChannelUid, GroupId, Nanos, Sequence

from stan import limits
from stan.core.base.names import text
from stan.core.base.runs import pairs
from stan.core.leader.ephemeral_messages import EphemeralStores
from stan.core.leader.local_group import Leadership
from stan.core.publishing.channel_policies import ChannelPolicies
from stan.core.publishing.live_channel import LiveChannel, Opened
from stan.core.publishing.retention import Retention
from stan.core.services.leader_part import LeaderPart
from stan.core.services.leading import LED_ELSEWHERE
from stan.core.services.services import Services
from stan.core.state.ephemeral import Epoch
from stan.core.state.group import GroupResult
from stan.core.state.meta import ChannelInfo, MetaResult
from stan.policies import EPHEMERAL
from stan.protocol.proto import entries_pb2 as pb


@dataclass(slots=True)
class Opening:
    """A channel that is being made, and who waits for it."""

    group: GroupId
    waiting: list[Opened]


class Openings(dict[bytes, Opening]):
    """Channels that are being made, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.by_lower: dict[bytes, bytes] = {}  # their names in lower case, of which no two are equal

    def begin(self, name: bytes, opening: Opening) -> None:
        """Add a channel."""
        self[name] = opening
        self.by_lower[folded(name)] = name

    def end(self, name: bytes) -> Opening | None:
        """Remove a channel; returns it, None if it is not there."""
        opening = self.pop(name, None)
        if opening is not None:
            del self.by_lower[folded(name)]
        return opening


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
        self.opening = Openings()
        self.policies = ChannelPolicies(services)
        self.stores = EphemeralStores(services.stored.source)  # messages of ephemeral channels
        self.retention = Retention(services, self.by_uid, self.policies, self.stores)

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
            self.watch_idle(channel)
        machine, known = self.node.groups[number].machine, self.node.meta.by_uid
        moved = machine.moves.held  # to another group, which this copy of the metadata may not know yet
        for uid in sorted(uid for uid in known if uid in machine.dropped and uid not in moved):
            if known[uid].group == number:
                self.unregister(uid)
        self.retention.retain(channels)
        self._drop_parts(channels)

    def take(self, infos: Iterable[ChannelInfo]) -> None:
        """Channels of a group that this node leads have come to it, or stay in it: they go on here."""
        channels = [self.add(info) for info in infos]
        self.retention.retain(channels)
        self._drop_parts(channels)

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
        for name in [name for name, opening in self.opening.items() if opening.group == number]:
            self._opened(name, None, LED_ELSEWHERE)

    # --- opening ----------------------------------------------------------------------------------------------------

    def open(self, name: bytes, opened: Opened, group: GroupId | None = None) -> None:
        """Find or create channel *name* (a valid name); *opened* is called at once, or once the creation is committed or has
        failed. *group*: the one in which the channel has to be, and which this node leads; None: wherever it belongs."""
        if self.placement.is_held(name):
            opened(None, CHANNEL_MOVING if group is not None else LED_ELSEWHERE)
            return
        if group is None and self.is_left_to_another(name):
            opened(None, LED_ELSEWHERE)
            return
        channel = self.by_name.get(name)
        where = self.placement.group_number(name) if group is None else group
        elsewhere = self._is_elsewhere(name, where) if group is not None else ""
        if elsewhere:
            opened(None, elsewhere)
        elif channel is not None:
            opened(None if channel.closed else channel, channel.closed)
        elif name in self.opening:
            self.opening[name].waiting.append(opened)
        elif error := self._refusal(name):
            opened(None, error)
        else:
            self.opening.begin(name, Opening(where, [opened]))
            self._create(name, Nanos(self.node.clock.now + limits.FORWARD_PATIENCE))

    def is_left_to_another(self, name: bytes) -> bool:
        """True if another node answers requests for a channel, which it has received, too: the one that takes over a channel
        that moves, or the leader of the group in which the channel was made meanwhile."""
        info = self.node.meta.channels.get(name)
        made_elsewhere = info is not None and name not in self.by_name and not self.node.leads(info.group)
        return made_elsewhere or self.placement.is_held(name)

    def _is_elsewhere(self, name: bytes, group: GroupId) -> str:
        """Why a channel cannot be in *group*; "" if it can."""
        partition, info = self.placement.partition, self.node.meta.channels.get(name)
        if partition is not None and not partition[name]:
            return CHANNEL_ELSEWHERE
        opening = self.opening.get(name)
        known = info.group if info is not None else opening.group if opening is not None else group
        return "" if known == group else IN_ANOTHER_GROUP.format(known, group)

    def _create(self, name: bytes, until: Nanos) -> None:
        """Propose to register the channel, or ask the metadata's leader to; `registered` is called once that is applied."""
        commit = EPHEMERAL if self.placement.wanted_commit(name) == EPHEMERAL else 0
        group = self.opening[name].group
        row = pb.Channel(name=name, group=group, commit=commit)
        exact = self.node.meta.pins.get(name, group) != group  # it belongs to a channel that is there
        create = pb.CreateChannels(channels=[row], channels_max=self.node.config.limits.channels, exact=exact)
        self.proposals.ask_meta(partial(self._created, name), create_channels=create)
        if self.node.clustered:  # the proposal or the forwarded request may be lost with its leader
            self.timers.at(
                self.node.clock.now + limits.FORWARD_INTERVAL, partial(self._create_again, name, until), group
            )

    def _create_again(self, name: bytes, until: Nanos, now: Nanos) -> None:
        if name not in self.opening:
            return
        error = self._refusal(name) or (NO_METADATA if now >= until else "")
        if error:
            self._opened(name, None, error)
        else:
            self._create(name, until)

    def _refusal(self, name: bytes) -> str:
        meta = self.node.meta
        if name in meta.channels.parted.by_name:
            return self.parts_refusal(name)
        if (reserved := meta.channels.parted.reserves(name)) and folded(name) != folded(reserved):
            return NAME_OF_PART.format(go_quote(text(reserved)))
        if reserved:
            return case_conflict(text(name), text(reserved))
        lower = folded(name)
        other, asked = meta.channels.by_lower.get(lower), self.opening.by_lower.get(lower, name)
        if other is None and asked != name:
            other = asked
        if other is not None:
            return case_conflict(text(name), text(other))
        maximum = self.node.config.limits.channels
        if maximum and len(meta.channels) + len(self.opening) - (name in self.opening) >= maximum:
            return TOO_MANY_CHANNELS
        return ""

    def parts_refusal(self, name: bytes) -> str:
        """Why a channel is not there that is asked for by its own name: it has parts; "" if it has none."""
        parted = self.node.meta.channels.parted.by_name.get(name)
        if parted is None:
            return ""
        first, *_, last = (go_quote(text(part)) for part in parted.names())
        return HAS_PARTS.format(first, last)

    def parted_changed(self, name: bytes) -> None:
        """A channel has got parts, so that it is not made itself, or its parts are to be deleted. What waits for a channel to be
        made that is called like a part came before it was known to be one, and may belong to another part."""
        parted = self.node.meta.channels.parted
        for asked in [one for one in self.opening if parted.reserves(one)]:
            self._opened(asked, None, self._refusal(asked))
        for asked in [one for one in self.opening if parted.whole(one) == name]:
            self._opened(asked, None, NO_METADATA)
        found = parted.by_name.get(name)
        if found is not None and found.row.dropping:
            self._drop_parts([channel for part in found.names() if (channel := self.by_name.get(part)) is not None])

    def _drop_parts(self, channels: Iterable[LiveChannel]) -> None:
        """Delete those of *channels* that are parts of channels which are being deleted."""
        parted = self.node.meta.channels.parted.by_part
        for channel in channels:
            found = parted.get(channel.info.name)
            if found is not None and found[0].row.dropping and not channel.deleting:
                self.faults.within(channel.info.group, self.delete, channel)

    def _created(self, name: bytes, result: object, error: str) -> None:
        if name in self.opening:  # not registered
            error = error or (result.error if isinstance(result, MetaResult) else "")
            self._opened(name, None, error or self._refusal(name) or TOO_MANY_CHANNELS)

    def registered(self, info: ChannelInfo) -> None:
        """A channel was added to the registry, by this node or another."""
        if info.group != self.placement.home(info.name):
            self.placement.changed()
        if self.placement.is_held(info.name):
            self._opened(info.name, None, LED_ELSEWHERE)
        elif self.node.leads(info.group):
            channel = self.add(info)
            if channel.deleting:
                self._opened(info.name, None, CHANNEL_DELETING)
                self.unregister(info.uid)
                return
            self.reports.note("INF", f"Channel {go_quote(text(info.name))} has been created")
            self.reports.emit(
                "channel_created",
                f"channel {go_quote(text(info.name))} was created",
                channel=info.name,
                group=info.group,
            )
            self._opened(info.name, channel, "")
        else:  # it was to be made here, and another node has made it in another group
            self._opened(info.name, None, NO_METADATA)

    def _opened(self, name: bytes, channel: LiveChannel | None, error: str) -> None:
        opening = self.opening.end(name)
        if opening is not None:
            for opened in opening.waiting:
                self.faults.within(opening.group, opened, channel, error)

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
        self.watch_idle(channel)
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
        self.retention.retain([one for one in channels if self.faults.within(one.info.group, self._limit, one)])
        self.placement.changed()
        for number, group in self.leading.led:
            self.faults.within(number, group.dispatch.members.policies_changed)

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
            self.watch_idle(channel)
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
            self.watch_idle(channel)
        return True

    # --- idle channels --------------------------------------------------------------------------------------------------

    def watch_idle(self, channel: LiveChannel) -> None:
        """Start the MaxInactivity timer of a channel without online subscriptions (STAN-SPEC 7.5)."""
        if channel.limits.inactivity_ns and not self._active(channel):
            channel.idle_since = self.node.clock.now
            if not channel.idle_at:
                self._arm_idle(channel, channel.idle_since + channel.limits.inactivity_ns)

    def _arm_idle(self, channel: LiveChannel, at: int) -> None:
        channel.idle_at = at
        self.timers.at(at, partial(self._idle, channel, at), channel.info.group)

    def _active(self, channel: LiveChannel) -> bool:
        if channel.pending_subscribes:
            return True
        group, uid = self.node.group_of(channel.info), channel.info.uid
        if group.dispatch.cursors.by_channel.get(uid):
            return True
        known = group.machine.channels.get(uid)  # other nodes may serve subscriptions
        return known is not None and any(cursor.server for cursor in known.cursors.values())

    def _idle(self, channel: LiveChannel, at: int, now: Nanos) -> None:
        if channel.idle_at != at:
            return
        channel.idle_at = 0
        if self.by_uid.get(channel.info.uid) is not channel or channel.deleting or self._active(channel):
            return
        if not channel.limits.inactivity_ns:
            return  # switched off meanwhile
        over = channel.idle_since + channel.limits.inactivity_ns
        if over > now:
            self._arm_idle(channel, over)
        elif channel.unsealed.count or channel.uncommitted_bytes or self._is_kept(channel, now):
            self._arm_idle(channel, now + limits.RETENTION_INTERVAL)
        else:
            self.delete(channel)

    def _is_kept(self, channel: LiveChannel, now: Nanos) -> bool:
        """True if a restore of the channel is under way, rows are staged for it, delayed messages wait, or messages for its
        tier."""
        if channel.restoring:
            return True
        tier = self.policies.tiers.by_channel.get(channel.info.uid)
        last = self.stored.indexes(channel.info.group, channel.info.uid).last_sequence
        if tier is not None and self.policies.tiers.waits(channel.info, last):
            room = tier.room.inactivity_ns
            if not room or now < channel.idle_since + room:
                return True
        machine = self.node.group_of(channel.info).machine
        return channel.info.uid in machine.transactions.parts or machine.delayed(channel.info.uid) > 0

    def delete(self, channel: LiveChannel, done: Callable[[str], None] = lambda _error: None) -> None:
        """Remove a channel with its messages and cursors; until that is committed, requests for it are refused. *done* is called
        with "" once the channel's group has dropped it, or with why it was not removed."""
        channel.deleting = True
        drop = pb.DropChannel(uid=channel.info.uid)
        self.proposals.change_group(channel.info.group, partial(self._dropped, channel, done), drop_channel=drop)

    def _dropped(self, channel: LiveChannel, done: Callable[[str], None], result: object, error: str) -> None:
        done(error)
        if not isinstance(result, GroupResult):
            self.reports.note("ERR", f"Unable to delete channel {go_quote(text(channel.info.name))}: {error}")
            channel.deleting = False
            self.watch_idle(channel)
            again = self.node.clock.now + limits.FORWARD_INTERVAL
            self.timers.at(again, lambda _now: self._drop_parts(self._led(channel)), channel.info.group)
            return
        self.unregister(channel.info.uid)

    def _led(self, channel: LiveChannel) -> list[LiveChannel]:
        """A channel, if this node leads it still."""
        return [channel] if self.by_uid.get(channel.info.uid) is channel else []

    def unregister(self, uid: ChannelUid) -> None:
        """Remove a channel that its group has dropped from the registry; `unregistered` is called once that is applied."""
        info = self.node.meta.by_uid.get(uid)
        if info is None or not self.node.leads(info.group):
            return
        self.proposals.ask_meta(self._not_deleted, delete_channel=pb.DeleteChannel(uid=uid))
        if self.node.clustered:
            self.timers.at(self.node.clock.now + limits.FORWARD_INTERVAL, lambda _now: self.unregister(uid), info.group)

    def _not_deleted(self, result: object, error: str) -> None:
        if result is None:
            self.reports.note("ERR", f"Unable to take a deleted channel out of the registry: {error}")

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

"""Channels are deleted, when an operator says so or when they are idle (STAN-SPEC 7.5), and taken out of the registry."""

from collections.abc import Callable, Iterable
from functools import partial

from stan_protocol.refusals import go_quote
from stan_protocol.scalars import ChannelUid, Nanos

from stan import limits
from stan.core.base.names import text
from stan.core.publishing.channel_policies import ChannelPolicies
from stan.core.publishing.live_channel import LiveChannel
from stan.core.services.services import Services
from stan.core.state.group_state import GroupResult
from stan.protocol.proto import entries_pb2 as pb


class ChannelRemoval:
    """Deletes channels of the groups that this node leads."""

    def __init__(self, services: Services, by_uid: dict[ChannelUid, LiveChannel], policies: ChannelPolicies) -> None:
        """*by_uid*: the channels that are there."""
        self.faults, self.node, self.proposals = services.faults, services.node, services.proposals
        self.reports, self.stored, self.timers = services.reports, services.stored, services.timers
        self.by_uid = by_uid
        self.policies = policies

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
        """True if a restore of the channel is under way, rows are staged for it, delayed messages wait, or messages
        for its tier."""
        if channel.restoring:
            return True
        tier = self.policies.tiers.by_channel.get(channel.info.uid)
        last = self.stored.indexes(channel.info.group, channel.info.uid).last_sequence
        if tier is not None and self.policies.tiers.waits(channel.info, last):
            room = tier.room.inactivity_ns
            if not room or now < channel.idle_since + room:
                return True
        machine = self.node.group_of(channel.info).machine
        return channel.info.uid in machine.transactions.parts or channel.info.uid in machine.deferred.counts

    def delete(self, channel: LiveChannel, done: Callable[[str], None] = lambda _error: None) -> None:
        """Remove a channel with its messages and cursors; until that is committed, requests for it are refused. *done* is called
        with "" once the channel's group has dropped it, or with why it was not removed."""
        channel.deleting = True
        drop = pb.DropChannel(uid=channel.info.uid)
        self.proposals.change_group(channel.info.group, partial(self._dropped, channel, done), drop_channel=drop)

    def drop_parts(self, channels: Iterable[LiveChannel]) -> None:
        """Delete those of *channels* that are parts of channels which are being deleted."""
        parted = self.node.meta.channels.parted.by_part
        for channel in channels:
            found = parted.get(channel.info.name)
            if found is not None and found[0].row.dropping and not channel.deleting:
                self.faults.within(channel.info.group, self.delete, channel)

    def _dropped(self, channel: LiveChannel, done: Callable[[str], None], result: object, error: str) -> None:
        done(error)
        if not isinstance(result, GroupResult):
            self.reports.note("ERR", f"Unable to delete channel {go_quote(text(channel.info.name))}: {error}")
            channel.deleting = False
            self.watch_idle(channel)
            again = self.node.clock.now + limits.FORWARD_INTERVAL
            self.timers.at(again, lambda _now: self.drop_parts(self._led(channel)), channel.info.group)
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

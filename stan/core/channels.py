"""Channels on the leader: opening them, their limits, removal of old messages and of idle channels (STAN-SPEC 7)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from stan import limits
from stan.config import ChannelLimits
from stan.core.group import GroupResult
from stan.core.meta import ChannelInfo, MetaResult
from stan.core.shared import Shared, text
from stan.errors import CHANNEL_DELETING, TOO_MANY_CHANNELS, case_conflict, go_quote
from stan.protocol import entries_pb2 as pb
from stan.protocol.channels import folded
from stan.protocol.frames import Publishes
from stan.protocol.placement import channel_group
from stan.types import ChannelUid, GroupId, Nanos, Sequence

Opened = Callable[["Channel | None", str], None]
"""Called with the channel, or with None and the text of the refusal."""


@dataclass(slots=True)
class Channel:
    """The leader's view of one channel. Invariant S1: sequences are dense; next_sequence = last assigned + 1."""

    info: ChannelInfo
    limits: ChannelLimits
    next_sequence: int
    last_timestamp: int
    quiet_since: int  # Nanos: the last publish, or the end of the last subscription
    uncommitted_bytes: int = 0
    unsealed: list[Publishes] = field(default_factory=list)
    unsealed_count: int = 0
    deleting: bool = False
    idle_timer: bool = False
    joining: int = 0  # subscriptions on their way


class Channels:
    """All channels that this node leads."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.by_name: dict[bytes, Channel] = {}
        self.by_uid: dict[ChannelUid, Channel] = {}
        self.opening: dict[bytes, list[Opened]] = {}
        self.aging: set[ChannelUid] = set()  # channels with an age limit
        self.warned: set[ChannelUid] = set()

    # --- opening ----------------------------------------------------------------------------------------------------

    def open(self, name: bytes, opened: Opened) -> None:
        """Find or create channel *name* (a valid one); `opened` is called at once or after the creation is committed."""
        channel = self.by_name.get(name)
        if channel is not None:
            opened(None if channel.deleting else channel, CHANNEL_DELETING if channel.deleting else "")
            return
        if name in self.opening:
            self.opening[name].append(opened)
            return
        error = self._refusal(name)
        if error:
            opened(None, error)
            return
        self.opening[name] = [opened]
        group = channel_group(name, len(self.shared.groups))
        create = pb.CreateChannels(channels=[pb.Channel(name=name, group=group)])
        self.shared.change_meta(partial(self._created, name), create_channels=create)

    def _refusal(self, name: bytes) -> str:
        meta = self.shared.meta
        lower = folded(name)
        other = meta.by_lower.get(lower) or next((o for o in self.opening if folded(o) == lower), None)
        if other is not None:
            return case_conflict(text(name), text(other))
        maximum = self.shared.config.limits.channels
        if maximum and len(meta.channels) + len(self.opening) >= maximum:
            return TOO_MANY_CHANNELS
        return ""

    def _created(self, name: bytes, result: object, error: str) -> None:
        waiting = self.opening.pop(name, [])
        channel = None
        if isinstance(result, MetaResult) and result.created:
            channel = self.add(result.created[0])
            self.shared.note("INF", f"Channel {go_quote(text(name))} has been created")
        for opened in waiting:
            opened(channel, error or ("" if channel else TOO_MANY_CHANNELS))

    def add(self, info: ChannelInfo) -> Channel:
        """Take a channel of the registry in."""
        shared = self.shared
        index = shared.indexes(info.group, info.uid)
        channel = Channel(
            info=info,
            limits=shared.config.limits.for_channel(text(info.name)),
            next_sequence=max(
                index.last_sequence + 1, shared.group_of(info).machine.channel(info.uid).first_sequence, 1
            ),
            last_timestamp=index.last_timestamp,
            quiet_since=shared.clock.now,
        )
        self.by_name[info.name] = self.by_uid[info.uid] = channel
        if channel.limits.age_ns:
            self.aging.add(info.uid)
        self.watch_idle(channel)
        return channel

    # --- what the limits remove -----------------------------------------------------------------------------------------

    def first_after(self, channel: Channel, count: int, size: int) -> int:
        """Oldest sequence that may stay once a batch of *count* messages and *size* accounted bytes is added (STAN-SPEC 7.1); the
        newest message always stays. Inside the new batch sizes are taken as equal."""
        lim = channel.limits
        index = self.shared.indexes(channel.info.group, channel.info.uid)
        newest = channel.next_sequence + count - 1
        first = max(index.first_sequence, 1)
        if lim.msgs and newest - first + 1 > lim.msgs:
            first = newest - lim.msgs + 1
        if lim.bytes and index.bytes + channel.uncommitted_bytes + size > lim.bytes:
            rest = lim.bytes - channel.uncommitted_bytes - size
            if rest >= 0 or not count:
                first = max(first, index.first_within_bytes(max(rest, 0)))
            else:
                first = max(first, newest - max(1, lim.bytes * count // size) + 1)
        first = min(first, max(newest, 1))
        if first > max(index.first_sequence, 1) and channel.info.uid not in self.warned:
            self.warned.add(channel.info.uid)
            self._warn(channel, newest - first + 1, min(index.bytes + size, lim.bytes or index.bytes + size))
        return first

    def _warn(self, channel: Channel, messages: int, size: int) -> None:
        lim = channel.limits
        self.shared.note(
            "WRN",
            f"Reached limits for store {go_quote(text(channel.info.name))} (msgs={messages}/{lim.msgs} "
            f"bytes={size}/{lim.bytes}), dropping old messages to make room for new ones",
        )

    def retain_all(self) -> None:
        """Apply today's limits to every channel: at start (STAN-SPEC 7.1)."""
        for channel in self.by_uid.values():
            index = self.shared.indexes(channel.info.group, channel.info.uid)
            if index.last_sequence:
                self._trim(channel, max(self.first_after(channel, 0, 0), self._unexpired(channel)))

    def expire(self) -> None:
        """Remove messages older than their channel's age limit."""
        for uid in self.aging:
            channel = self.by_uid[uid]
            self._trim(channel, self._unexpired(channel))

    def _unexpired(self, channel: Channel) -> int:
        age = channel.limits.age_ns
        index = self.shared.indexes(channel.info.group, channel.info.uid)
        if not age or not index.first_timestamp or index.first_timestamp > self.shared.clock.wall - age:
            return 0
        return index.sequence_at(type(index.first_timestamp)(self.shared.clock.wall - age + 1))

    def _trim(self, channel: Channel, first: int) -> None:
        info = channel.info
        index = self.shared.indexes(info.group, info.uid)
        known = self.shared.group_of(info).machine.channel(info.uid).first_sequence
        if first <= max(index.first_sequence, known, 1):
            return
        trim = pb.Trim(first_sequences=[info.uid, first])

        def done(result: object, _error: str) -> None:
            if result is not None:
                self.shared.trims.append((info.group, info.uid, Sequence(first)))

        self.shared.change_group(info.group, done, trim=trim)

    # --- idle channels --------------------------------------------------------------------------------------------------

    def watch_idle(self, channel: Channel) -> None:
        """Start the clock of MaxInactivity if nothing is subscribed (STAN-SPEC 7.5)."""
        if channel.limits.inactivity_ns and not self._active(channel):
            channel.quiet_since = self.shared.clock.now
            if not channel.idle_timer:
                self._arm_idle(channel, channel.quiet_since + channel.limits.inactivity_ns)

    def _arm_idle(self, channel: Channel, at: int) -> None:
        channel.idle_timer = True
        self.shared.timers.at(at, partial(self._idle, channel))

    def _active(self, channel: Channel) -> bool:
        return bool(channel.joining or self.shared.group_of(channel.info).dispatch.by_channel.get(channel.info.uid))

    def _idle(self, channel: Channel, now: Nanos) -> None:
        channel.idle_timer = False
        if self.by_uid.get(channel.info.uid) is not channel or channel.deleting or self._active(channel):
            return
        over = channel.quiet_since + channel.limits.inactivity_ns
        if over > now:
            self._arm_idle(channel, over)
        elif channel.unsealed or channel.uncommitted_bytes:
            self._arm_idle(channel, now + limits.RETENTION_INTERVAL)
        else:
            self.delete(channel)

    def delete(self, channel: Channel) -> None:
        """Remove a channel with everything on it; until that is committed, requests for it are refused."""
        channel.deleting = True
        drop = pb.DropChannel(uid=channel.info.uid)
        self.shared.change_group(channel.info.group, partial(self._dropped, channel), drop_channel=drop)

    def _dropped(self, channel: Channel, result: object, error: str) -> None:
        if not isinstance(result, GroupResult):
            self.shared.note("ERR", f"Unable to delete channel {go_quote(text(channel.info.name))}: {error}")
            channel.deleting = False
            self.watch_idle(channel)
            return
        self.unregister(channel.info.uid)

    def unregister(self, uid: ChannelUid) -> None:
        """Its group has dropped the channel: take it out of the registry."""
        self.shared.change_meta(partial(self._deleted, uid), delete_channel=pb.DeleteChannel(uid=uid))

    def _deleted(self, uid: ChannelUid, result: object, error: str) -> None:
        if result is None:
            self.shared.note("ERR", f"Unable to take a deleted channel out of the registry: {error}")
            return
        channel = self.by_uid.pop(uid, None)
        if channel is not None:
            del self.by_name[channel.info.name]
            self.aging.discard(uid)
            self.warned.discard(uid)
            self.shared.note("INF", f"Channel {go_quote(text(channel.info.name))} has been deleted")

    def drop_committed(self, group: GroupId, uid: ChannelUid) -> None:
        """A DropChannel entry was applied."""
        self.shared.groups[group].dispatch.drop_channel(uid)
        self.shared.drops.append((group, uid))

"""Removal of old messages: the limits of channels, at each publish, after a time, and when they change (STAN-SPEC 7)."""

from collections.abc import Mapping

from stan_protocol.refusals import go_quote
from stan_protocol.scalars import ChannelUid, WallNanos

from stan.config import ChannelLimits
from stan.core.base.names import text
from stan.core.base.ready import Index
from stan.core.leader.ephemeral_messages import EphemeralStores
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.channel_policies import ChannelPolicies
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.row_batch import RowBatch
from stan.core.services.proposals import nobody_waits
from stan.core.services.services import Services
from stan.protocol.proto import entries_pb2 as pb


class Retention:
    """Removes messages from the channels of the groups that this node leads."""

    def __init__(
        self,
        services: Services,
        by_uid: Mapping[ChannelUid, LiveChannel],
        policies: ChannelPolicies,
        stores: EphemeralStores,
    ) -> None:
        """*by_uid*: the channels of these groups; *stores*: messages of ephemeral channels."""
        self.faults, self.node, self.proposals = services.faults, services.node, services.proposals
        self.reports, self.stored = services.reports, services.stored
        self.aging: set[ChannelUid] = set()  # channels with an age limit
        self.warned: set[ChannelUid] = set()
        self._by_uid = by_uid
        self._policies = policies
        self._stores = stores

    def note(self, channel: LiveChannel) -> None:
        """The limits of a channel are others than before, or known for the first time."""
        self.warned.discard(channel.info.uid)
        (self.aging.add if channel.limits.age_ns else self.aging.discard)(channel.info.uid)

    def forget(self, uid: ChannelUid) -> None:
        """The channel is gone, or led elsewhere."""
        self.aging.discard(uid)
        self.warned.discard(uid)

    def first_after(self, channel: LiveChannel, index: Index, count: int, size: int) -> int:
        """Oldest sequence that may stay once a batch of *count* messages and *size* accounted bytes is added (STAN-SPEC 7.1); the
        newest message always stays. Messages of the new batch count as equal in size. *index*: of all committed messages."""
        lim = channel.limits
        newest = channel.next_sequence + count - 1
        oldest = index.first_sequence or 1
        if channel.restoring:
            return oldest
        first = _first_within(lim, channel, index, count, size)
        tier = self._policies.tiers.by_channel.get(channel.info.uid) if first > oldest else None
        if tier is not None:
            most = _first_within(tier.room, channel, index, count, size)
            first = self._policies.tiers.allowed(channel.info, tier, first, most, oldest)
        removes = first > (
            index.first_sequence or channel.next_sequence
        )  # of an empty channel nothing but of this batch
        if removes and channel.info.uid not in self.warned:
            self.warned.add(channel.info.uid)
            self._warn(channel, newest - first + 1, min(index.bytes + size, lim.bytes or index.bytes + size))
        return first

    def limits_of_compacted(self, info: ChannelInfo, index: Index, first: int) -> RowBatch | None:
        """A change beside a batch: limits have moved the beginning of its channel to *first*. None where they have not, or the
        batch says so by itself, as the channel is not compacted."""
        if (
            first <= (index.first_sequence or 1)
            or info.uid not in self.node.group_of(info).machine.compactions.by_channel
        ):
            return None
        change = pb.GroupChange(trim=pb.Trim(first_sequences=[info.uid, first])).SerializeToString()
        return RowBatch(b"", 0, lambda _stored: None, lambda _first: change)

    def kept_for_tier(self, channel: LiveChannel) -> int:
        """How many messages of a channel its limits would remove, and its tier has not passed."""
        info = channel.info
        index = self.stored.indexes(info.group, info.uid)
        if info.uid not in self._policies.tiers.by_channel or not index.last_sequence or channel.restoring:
            return 0
        wanted = _first_within(channel.limits, channel, index, 0, 0)
        wanted = max(wanted, _younger_than(channel.limits.age_ns, index, self.node.clock.wall))
        return max(0, min(wanted, index.last_sequence + 1) - max(index.first_sequence, 1))

    def _warn(self, channel: LiveChannel, messages: int, size: int) -> None:
        lim = channel.limits
        self.reports.note(
            "WRN",
            f"Reached limits for store {go_quote(text(channel.info.name))} (msgs={messages}/{lim.msgs} "
            f"bytes={size}/{lim.bytes}), dropping old messages to make room for new ones",
        )

    def retain(self, channels: list[LiveChannel]) -> None:
        """Apply the current limits: at start (STAN-SPEC 7.1), when leadership begins, and when limits change."""
        self.faults.each(self._retain, channels)

    def _retain(self, channel: LiveChannel) -> None:
        index = self.stored.indexes(channel.info.group, channel.info.uid)
        if index.last_sequence:
            self._trim(channel, max(self.first_after(channel, index, 0, 0), self._unexpired(channel)))

    def expire(self) -> None:
        """Remove messages older than their channel's age limit, and those that have waited for a tier that has them now."""
        self.faults.each(self._expire, [self._by_uid[uid] for uid in self.aging])
        self.retain([self._by_uid[uid] for uid in self._policies.tiers.by_channel])

    def _expire(self, channel: LiveChannel) -> None:
        self._trim(channel, self._unexpired(channel))

    def _unexpired(self, channel: LiveChannel) -> int:
        """The oldest sequence that an age limit lets stay; 0: it removes nothing."""
        info, wall = channel.info, self.node.clock.wall
        index = self.stored.indexes(info.group, info.uid)
        first, tier = _younger_than(channel.limits.age_ns, index, wall), self._policies.tiers.by_channel.get(info.uid)
        if tier is None or not first:
            return first
        most = _younger_than(tier.room.age_ns, index, wall)
        return self._policies.tiers.allowed(info, tier, first, most, max(index.first_sequence, 1))

    def _trim(self, channel: LiveChannel, first: int) -> None:
        info = channel.info
        index = self.stored.indexes(info.group, info.uid)
        known = self.node.group_of(info).machine.channel(info.uid).first_sequence
        if channel.restoring or first <= max(index.first_sequence, known, 1):
            return
        if info.is_ephemeral:
            self._stores.trim(info.uid, first)
            return
        trim = pb.Trim(first_sequences=[info.uid, first])
        self.proposals.change_group(info.group, nobody_waits, trim=trim)


def _first_within(lim: ChannelLimits, channel: LiveChannel, index: Index, count: int, size: int) -> int:
    """The oldest sequence that limits of number and size let stay, once *count* messages of *size* bytes are added."""
    newest = channel.next_sequence + count - 1
    first = index.first_sequence or 1
    if lim.msgs and newest - first + 1 > lim.msgs:
        first = newest - lim.msgs + 1
    if lim.bytes and index.bytes + channel.uncommitted_bytes + size > lim.bytes:
        rest = lim.bytes - channel.uncommitted_bytes - size
        if rest >= 0 or not count:
            first = max(first, index.first_within_bytes(max(rest, 0)))
        else:
            first = max(first, newest - max(1, lim.bytes * count // size) + 1)
    return newest or 1 if first > newest else first


def _younger_than(age_ns: int, index: Index, wall: WallNanos) -> int:
    """The first sequence that is younger than an age limit; 0: all are, or there is no limit."""
    if not age_ns or not index.first_timestamp or index.first_timestamp > wall - age_ns:
        return 0
    return index.sequence_at(WallNanos(wall - age_ns + 1))

"""Decides how far channels are compacted by key, on the leader of their group (decision 0023).

    policy, clock, positions ─► one entry per group now and then ─► each node's log leaves out what may go, in its own time

Promises: nothing younger than the policy's `min_age` is compacted; a tombstone stays until every position of its channel
(durables, queue groups, subscriptions, named positions) has passed it, or it is older than `tombstone_max`; and until the log
of the leader has lost the messages that it deletes. Messages of incomplete transactions, of a restore under way, that wait for a
delay, or that a tier has not passed are not compacted.
"""

from collections.abc import Iterator

from stan_protocol.scalars import ChannelUid, Nanos, RaftIndex, WallNanos

from stan import limits
from stan.core.base.compaction import Compaction
from stan.core.base.delivery_policy import KEEP_FIRST
from stan.core.base.ready import Index
from stan.core.leader.local_group import Leadership
from stan.core.publishing.channels import LiveChannels
from stan.core.services.leader_part import LeaderPart
from stan.core.services.proposals import nobody_waits
from stan.core.services.services import Services
from stan.core.state.compactions import compaction_of
from stan.protocol.proto import entries_pb2 as pb


class Compacting(LeaderPart):
    """Proposes how far the channels of one group are compacted, while this node leads it."""

    def __init__(self, services: Services, leadership: Leadership, channels: LiveChannels) -> None:
        super().__init__(services, leadership)
        self.placement = services.placement
        self.channels = channels
        self._next_look = Nanos(0)

    def look(self, now: Nanos) -> None:
        """Propose what has become old enough, if it is time to look."""
        if now < self._next_look:
            return
        self._next_look = Nanos(now + limits.COMPACTION_INTERVAL)
        if any(rule.compact for rule in self.placement.policies.rules):
            found = list(self._further())
            for at in range(0, len(found), limits.COMPACTED_CHANNELS_MAX):
                compacted = pb.Compacted(channels=found[at : at + limits.COMPACTED_CHANNELS_MAX])
                self.change(nobody_waits, compacted=compacted)

    def _further(self) -> Iterator[pb.CompactedChannel]:
        """What of the group's channels may be compacted now, and could not before."""
        known = self.group.machine.compactions
        for channel in self.channels.by_uid.values():
            info = channel.info
            if info.group != self.number or channel.deleting or channel.restoring:
                continue
            policy = self.placement.policies.of(info.name, b"")
            if not policy.compact or policy.delay or info.is_ephemeral:
                continue
            index, before = self.stored.indexes(self.number, info.uid), known.of(info.uid)
            until = self._older_than(index, policy.min_age)
            tier = self.channels.policies.tiers.by_channel.get(info.uid)
            if tier is not None:
                until = min(until, self.channels.policies.tiers.position(info, tier) - 1)
            further = pb.CompactedChannel(uid=info.uid, until=max(until, before.until))
            stream = self.node.meta.streams.by_uid.get(info.uid)
            further.keep_first = policy.compact == KEEP_FIRST
            further.earlier = max(0, stream.config.history - 1) if stream is not None else 0
            self._let_tombstones_go(before, further, self._older_than(index, policy.tombstone_max))
            if compaction_of(further) != before._replace(index=RaftIndex(0)):
                yield further

    def _let_tombstones_go(self, before: Compaction, further: pb.CompactedChannel, overdue: int) -> None:
        """Tell which tombstones may go: of those that have stayed when the log of this node lost what they have deleted, those
        that every position has passed, and those up to *overdue*."""
        uid = ChannelUid(further.uid)
        done = self.group.compacted.get(uid)
        like_others = further.keep_first or further.earlier
        newest = min(done.newest_tombstone, before.until) if done is not None and not like_others else 0
        slowest = self.group.machine.slowest(uid)
        free = newest if slowest is None else min(newest, slowest[0])
        further.overdue_until = max(before.overdue_until, min(newest, overdue))
        further.tombstones_until = max(before.tombstones_until, free, further.overdue_until)

    def _older_than(self, index: Index, age: int) -> int:
        """The last sequence that is older than *age*; 0: none is."""
        since = WallNanos(self.node.clock.wall - age)
        if not index.last_sequence or index.first_timestamp >= since:
            return 0  # what has gone from the front of this log may be there on other nodes
        return max(0, index.sequence_at(since) - 1)

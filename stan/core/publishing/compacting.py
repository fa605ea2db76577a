"""Decides how far channels are compacted by key, in the groups that this node leads (decision 0023).

    policy, clock, positions ─► one entry per group now and then ─► each node's log leaves out what may go, in its own time

Promises: nothing younger than the policy's `min_age` is compacted; a tombstone stays until every position of its channel
(durables, queue groups, subscriptions, named positions) has passed it, or it is older than `tombstone_max`. What a transaction
has not completed, what is being restored and what waits for a delay is not compacted.
"""

from collections.abc import Iterator

from stan import limits
from stan.core.base.delivery_policy import KEEP_FIRST, DeliveryPolicy
from stan.core.base.ready import Index
from stan.core.context import BrokerContext, nobody_waits
from stan.core.publishing.channels import LiveChannel, LiveChannels
from stan.core.state.bookmarks import Bookmarks
from stan.core.state.compactions import Compactions
from stan.core.state.group import Cursor
from stan.protocol.proto import entries_pb2 as pb
from stan.types import GroupId, Nanos, WallNanos


class Compacting:
    """Proposes how far the channels of the led groups are compacted."""

    def __init__(self, context: BrokerContext, channels: LiveChannels) -> None:
        self.context = context
        self.channels = channels
        self._next_look = Nanos(0)

    def look(self, now: Nanos) -> None:
        """Propose what has become old enough, if it is time to look."""
        if now < self._next_look:
            return
        self._next_look = Nanos(now + limits.COMPACTION_INTERVAL)
        if any(rule.compact for rule in self.context.policies.rules):
            for number, _ in self.context.leading.led:
                self.context.within(number, self._propose, number)

    def _propose(self, number: GroupId) -> None:
        found = list(self._further(number))
        for at in range(0, len(found), limits.COMPACTED_CHANNELS_MAX):
            compacted = pb.Compacted(channels=found[at : at + limits.COMPACTED_CHANNELS_MAX])
            self.context.change_group(number, nobody_waits, compacted=compacted)

    def _further(self, number: GroupId) -> Iterator[pb.CompactedChannel]:
        """What of the group's channels may be compacted now, and could not before."""
        known = self.context.groups[number].machine.part(Compactions)
        for channel in self.channels.by_uid.values():
            info = channel.info
            if info.group != number or channel.deleting or channel.restoring:
                continue
            policy = self.context.policies.of(info.name, b"")
            if not policy.compact or policy.delay:
                continue
            index, before = self.context.indexes(number, info.uid), known.of(info.uid)
            until = self._older_than(index, policy.min_age)
            if channel.reservation is not None:
                until = min(until, channel.reservation.first - 1)
            until = max(until, before.until)
            tombstones = max(before.tombstones_until, min(until, self._passed(number, channel, index, policy)))
            keep_first = policy.compact == KEEP_FIRST
            if (until, tombstones, keep_first) != (before.until, before.tombstones_until, before.keep_first):
                yield pb.CompactedChannel(uid=info.uid, until=until, tombstones_until=tombstones, keep_first=keep_first)

    def _older_than(self, index: Index, age: int) -> int:
        """The last sequence that is older than *age*; 0: none is."""
        if not index.last_sequence:
            return 0
        return max(0, index.sequence_at(WallNanos(self.context.clock.wall - age)) - 1)

    def _passed(self, number: GroupId, channel: LiveChannel, index: Index, policy: DeliveryPolicy) -> int:
        """The last sequence that every position has passed, or that no tombstone waits for any more."""
        machine, uid = self.context.groups[number].machine, channel.info.uid
        floors = [_floor(cursor) for cursor in machine.channel(uid).cursors.values()]
        floors += [place.sequence - 1 for place in machine.part(Bookmarks).by_channel.get(uid, {}).values()]
        passed = min(floors, default=index.last_sequence)
        return max(passed, self._older_than(index, policy.tombstone_max))


def _floor(cursor: Cursor) -> int:
    """Everything up to it is settled for the cursor, as the log tells."""
    held = (cursor.to_redeliver, *(member.pending for member in cursor.members))
    return min((runs.first for runs in held if runs), default=cursor.last_sent + 1) - 1

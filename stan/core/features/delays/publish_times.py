"""Deferred messages, whose publishers have told when they are due, on their way into their channels; on the leader of the group.

    publish with a time ─► hidden channel, with its due time in one entry, acknowledged ─► due: one entry stores it in its channel
                                                                                           and takes its due time off the list

Promises: none goes before the wall clock of the leader shows its time; none is lost or stored twice in its channel; those of one
channel that are due go in the order of their times, as far as one read holds them. What is late goes at once, in bounded batches.
"""

import heapq
from collections import defaultdict
from functools import partial

from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND, ChannelUid, Nanos

from stan import limits
from stan.core.base.delivery_policy import DEFAULT
from stan.core.base.names import shown
from stan.core.base.ready import ReadResult
from stan.core.base.runs import runs_of
from stan.core.features.delays.late import letters_of, mark, report_late
from stan.core.leader.local_group import Leadership
from stan.core.publishing.channel_policies import DelayFaults
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.deferrals import deferrals
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.publishing import Publishing, StoringPart
from stan.core.publishing.row_batch import RowBatch, StoreResult, row_of
from stan.core.publishing.stored_reads import StoredReads, stored_messages
from stan.core.services.services import Services
from stan.core.state.deferred import Deferred
from stan.core.state.meta import ChannelInfo
from stan.protocol.entries import DEFERRED_UID
from stan.protocol.proto import entries_pb2 as pb

Due = tuple[int, int, int]
"""When a message is due (Unix ns), its sequence in the hidden channel, the first sequence of its batch."""
Place = tuple[int, int]
"""The sequence of a message in the hidden channel, and the first one of its batch."""


class Deferring(StoringPart):
    """Moves the deferred messages of one group that are due, while this node leads it."""

    follows = frozenset({"deferred"})

    def __init__(
        self, services: Services, leadership: Leadership, channels: LiveChannels, publishing: Publishing
    ) -> None:
        super().__init__(services, leadership, channels, publishing)
        self.placement = services.placement
        self.state = deferrals(services, channels, self.number)
        leadership.keep(self.state)
        self._faults = leadership.part(DelayFaults).by_channel
        if self.state.soonest:
            self._arm(0)

    @property
    def _deferred(self) -> Deferred:
        return self.group.machine.part(Deferred)

    def followed(self, change: pb.GroupChange) -> None:
        """Messages were stored that wait."""
        due = min(change.deferred.dues)
        self.state.expect(due, change.deferred.sequence)
        self._arm(due - self.node.clock.wall)

    # --- what is due ------------------------------------------------------------------------------------------------------

    def _arm(self, wait: int) -> None:
        """Look in *wait* ns, or sooner: the wall clock may be set."""
        now = self.node.clock.now
        at = now + min(max(wait, 0), limits.DELAY_LOOK)
        if not now < self.state.armed <= at:
            self.state.armed = at
            self.at(at, self._tick)

    def _tick(self, now: Nanos) -> None:
        if self.state.armed <= now:
            self.state.armed = 0
            self._look()

    def _look(self) -> None:
        if not self.state.busy:
            due = self._due()
            if due:
                self._read(due)
        if self.state.soonest:
            wait = self.state.soonest[0][0] - self.node.clock.wall
            self._arm(max(wait, MILLISECOND) if not self.state.busy and wait > 0 else limits.DELAY_LOOK)

    def _due(self) -> list[Due]:
        """The messages that are due, the oldest first, not more than one entry moves."""
        deferred, wall, now, most = self._deferred, self.node.clock.wall, self.node.clock.now, 0
        self.state.blocked = {uid: until for uid, until in self.state.blocked.items() if until > now}
        found: list[Due] = []
        looked_at: list[tuple[int, int]] = []
        while self.state.soonest and self.state.soonest[0][0] <= wall:
            if len(found) >= limits.DELAY_MESSAGES_MAX:
                found.sort()
                del found[limits.DELAY_MESSAGES_MAX :]
                most = found[-1][0]
            if most and self.state.soonest[0][0] >= most:
                break
            _, first = heapq.heappop(self.state.soonest)
            batch = deferred.batches.get(first)
            if batch is None:
                continue
            looked_at.append((batch.due, first))
            if batch.uid not in self.state.blocked:
                times, kept = enumerate(batch.dues, first), self.state.cancelling
                found += [(due, at, first) for at, due in times if 0 < due <= wall and at not in kept]
        for due, first in looked_at:
            self.state.expect(due, first)
        found.sort()
        return self._one_read(deferred, found)

    def _one_read(self, deferred: Deferred, found: list[Due]) -> list[Due]:
        """The first of these messages, about as many as one read holds."""
        size, taken, firsts = 0, 0, set()
        for _, _, first in found[: limits.DELAY_MESSAGES_MAX]:
            batch = deferred.batches[first]
            size += batch.bytes // len(batch.dues)
            firsts.add(first)
            if taken and (size > limits.READ_BYTES_MAX or len(firsts) > limits.BATCHES_PER_READ_MAX):
                break
            taken += 1
        return found[:taken]

    def _read(self, due: list[Due]) -> None:
        self.state.reading = True
        self.state.moving = {sequence: (first, at) for at, sequence, first in due}
        runs = runs_of(self.state.moving)
        self.leadership.part(StoredReads).ask(DEFERRED_UID, runs, partial(self._was_read, runs))

    # --- moving -----------------------------------------------------------------------------------------------------------

    def _was_read(
        self,
        runs: tuple[tuple[int, int], ...],
        batches: list[ReadResult],
        error: str,
    ) -> None:
        """The log has answered: messages that are due; or with an error."""
        self.state.reading = False
        if error:
            self._not_read(error)
            return
        moving, deferred = self.state.moving, self._deferred
        read = dict(stored_messages(batches, [(runs[0][0], runs[-1][1])]))
        end = max(read, default=runs[-1][1])
        by_channel: dict[ChannelUid, list[Place]] = defaultdict(list)  # by due time
        wall = self.node.clock.wall  # it may have been set back since they were found to be due
        for sequence, (first, due) in moving.items():
            if sequence <= end and due <= wall and deferred.holds(first, sequence):
                by_channel[deferred.batches[first].uid].append((sequence, first))
        self.state.entries += (
            1  # what comes of one channel is known at once, perhaps: not done before all were looked at
        )
        for uid, places in by_channel.items():
            channel = self.channels.by_uid.get(uid)
            if channel is not None and channel.closed:
                self._wait(channel.info, channel.closed)
                continue
            late = self._late(uid, places)
            if late:
                self._give_up(uid, places[:late], read)
            if places[late:]:
                self._move(uid, places[late:], read)
        self.state.entries -= 1
        self._done()

    def _move(
        self,
        uid: ChannelUid,
        places: list[Place],
        read: dict[int, bytes],
    ) -> None:
        """Store messages in their channel, and take them off the list, in one entry."""
        channel = self.channels.by_uid.get(uid)
        named = [number for sequence, first in places for number in (first, sequence)]
        change = pb.GroupChange(deferred_gone=pb.DeferredGone(places=named)).SerializeToString()
        there = [read[sequence] for sequence, _ in places if sequence in read]
        if len(there) < len(places):
            lost = f"{len(places) - len(there)} delayed messages of group {self.number} are lost: the log does not have them"
            self.reports.note("ERR", lost)
        if channel is None and (uid in self.node.meta.by_uid or uid >= self.node.meta.next_uid):
            self.state.blocked[uid] = self.node.clock.now + limits.DELAY_RETRY  # this copy of the metadata is behind
        elif channel is None or not there:  # nobody can get them
            self.state.entries += 1
            self._settle(pb.DeferredGone(places=named))
        else:
            self.state.entries += 1
            self._store(channel, channel.info, [*map(wire.MsgProto.FromString, there)], change)

    def _settle(self, settled: pb.DeferredGone) -> None:
        """Take messages off the list that are stored nowhere."""
        in_doubt = partial(self._settled, None, "")
        self.change(self._settled, in_doubt, deferred_gone=settled)

    def _store(
        self,
        to: LiveChannel,
        info: ChannelInfo,
        messages: list[wire.MsgProto],
        change: bytes,
    ) -> None:
        """Store messages for the channel *info* in a channel, it or another one, with the change that goes with them."""
        rows, done = b"".join(map(row_of, messages)), partial(self._stored, info)
        self.publishing.add(to, RowBatch(rows, len(messages), done, lambda _first: change))

    # --- what is too late ---------------------------------------------------------------------------------------------------

    def _late(self, uid: ChannelUid, places: list[Place]) -> int:
        """How many of these messages, the oldest ones, are given up because they are too late."""
        info = self.node.meta.by_uid.get(uid)
        policy = self.placement.policies.of(info.name, b"") if info is not None else DEFAULT
        if info is None or not policy.max_late:
            return 0
        letters = policy.dead_letters_of(info.name)
        if letters and not letters_of(self.placement, self.reports, letters, info.group):
            return 0
        before = self.node.clock.wall - policy.max_late
        return sum(self.state.moving[sequence][1] < before for sequence, _ in places)

    def _give_up(self, uid: ChannelUid, places: list[Place], read: dict[int, bytes]) -> None:
        """Store messages as dead letters; where a policy names no channel for those they are dropped."""
        info = self.node.meta.by_uid[uid]
        letters = self.placement.policies.of(info.name, b"").dead_letters_of(info.name)
        gone = pb.DeferredGone(places=[number for sequence, first in places for number in (first, sequence)])
        batches = self._deferred.batches
        there = [
            (sequence, batches[first].ids_from(first)[sequence - first])
            for sequence, first in places
            if sequence in read
        ]
        messages = [wire.MsgProto.FromString(read[sequence]) for sequence, _ in there]
        self.state.entries += 1
        if not letters or not messages:
            self._settle(gone)
            report_late(self.reports, info, len(places), letters)
            return
        for message, (_, its_id) in zip(messages, there, strict=True):
            mark(message, info, its_id)
        change = pb.GroupChange(deferred_gone=gone).SerializeToString()

        def opened(channel: LiveChannel | None, error: str) -> None:
            if channel is None:
                self._stored(info, StoreResult(error=error))
                return
            report_late(self.reports, info, len(messages), letters)
            self._store(channel, info, messages, change)

        self.channels.open(letters, opened)

    # --- what fails ---------------------------------------------------------------------------------------------------------

    def _wait(self, info: ChannelInfo, error: str) -> None:
        """Messages cannot be moved into a channel now: try again later, and those of other channels go on."""
        self.state.blocked[info.uid] = self.node.clock.now + limits.DELAY_RETRY
        self._faults[info.uid] = error
        self.reports.complain("WRN", f"Delayed messages cannot be moved to channel {shown(info.name)}: {error}")

    def _stored(self, info: ChannelInfo, stored: StoreResult) -> None:
        if self.leadership.ended:
            return
        self.state.entries -= 1
        if stored.error:
            self._wait(info, stored.error)
        else:
            self._faults.pop(info.uid, None)
        self._done()

    def _settled(self, _result: object, _error: str) -> None:
        self.state.entries -= 1
        self._done()

    def _done(self) -> None:
        """Look for more at once, if nothing is on its way any more."""
        if not self.state.busy and not self.leadership.ended:
            self.state.moving = {}
            self._arm(0)

    def _not_read(self, why: str) -> None:
        """The log could not answer; it is asked again after DELAY_RETRY."""
        self.state.moving = {}
        self.reports.complain("ERR", f"Delayed messages of group {self.number} cannot be read: {why}")
        self._arm(limits.DELAY_RETRY)

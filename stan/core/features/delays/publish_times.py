"""Deferred messages, whose publishers have told when they are due, on their way into their channels; on the leader of the group.

    publish with a time ─► hidden channel, with its due time in one entry, acknowledged ─► due: one entry stores it in its channel
                                                                                           and takes its due time off the list

Promises: none goes before the wall clock of the leader shows its time; none is lost or stored twice in its channel; those of one
channel that are due go in the order of their times, as far as one read holds them. What is late goes at once, in bounded batches.
"""

import heapq
from collections import defaultdict

from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND, ChannelUid, Nanos

from stan import limits
from stan.core.base.runs import runs_of
from stan.core.features.delays.due import DueMessages
from stan.core.leader.local_group import Leadership
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.deferrals import deferrals
from stan.core.publishing.publishing import Publishing
from stan.core.publishing.relocating import StepError, Steps
from stan.core.publishing.stored_reads import stored_messages
from stan.core.services.services import Services
from stan.core.state.deferred import Deferred
from stan.protocol.entries import DEFERRED_UID
from stan.protocol.proto import entries_pb2 as pb

Due = tuple[int, int, int]
"""When a message is due (Unix ns), its sequence in the hidden channel, the first sequence of its batch."""
Place = tuple[int, int]
"""The sequence of a message in the hidden channel, and the first one of its batch."""


class Deferring(DueMessages):
    """Moves the deferred messages of one group that are due, while this node leads it."""

    follows = frozenset({"deferred"})

    def __init__(
        self, services: Services, leadership: Leadership, channels: LiveChannels, publishing: Publishing
    ) -> None:
        super().__init__(services, leadership, channels, publishing)
        self.state = deferrals(services, channels, self.number)
        leadership.keep(self.state)
        if self.state.soonest:
            self._arm(0)

    @property
    def _deferred(self) -> Deferred:
        return self.group.machine.deferred

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
        if not self.running:
            due = self._due()
            if due:
                self.begin(None, self._move_due(due))
        if self.state.soonest:
            wait = self.state.soonest[0][0] - self.node.clock.wall
            self._arm(max(wait, MILLISECOND) if not self.running and wait > 0 else limits.DELAY_LOOK)

    def _due(self) -> list[Due]:
        """The messages that are due, the oldest first, not more than one entry moves."""
        deferred, wall, now, most = self._deferred, self.node.clock.wall, self.node.clock.now, 0
        self.paused = {uid: until for uid, until in self.paused.items() if until > now}
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
            if batch.uid not in self.paused:
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

    # --- moving -----------------------------------------------------------------------------------------------------------

    def _move_due(self, due: list[Due]) -> Steps[None]:
        """Read messages that are due, and begin a run for those of each channel."""
        moving = self.state.moving = {sequence: (first, at) for at, sequence, first in due}
        runs = runs_of(moving)
        try:
            batches = yield from self.read(DEFERRED_UID, runs)
        except StepError as error:
            self.state.moving = {}
            self.reports.complain("ERR", f"Delayed messages of group {self.number} cannot be read: {error}")
            yield from self.pause(limits.DELAY_RETRY)
            return
        deferred, read = self._deferred, dict(stored_messages(batches, [(runs[0][0], runs[-1][1])]))
        end = max(read, default=runs[-1][1])
        by_channel: dict[ChannelUid, list[Place]] = defaultdict(list)  # by due time
        wall = self.node.clock.wall  # it may have been set back since they were found to be due
        for sequence, (first, at) in moving.items():
            if sequence <= end and at <= wall and deferred.holds(first, sequence):
                by_channel[deferred.batches[first].uid].append((sequence, first))
        for uid, places in by_channel.items():
            late = self._late(uid, places)
            for some, too_late in ((places[:late], True), (places[late:], False)):
                if some:
                    self.begin((uid, too_late), self._move(uid, some, read, late=too_late))

    def ended(self) -> None:
        """Look for more at once, if nothing is on its way any more."""
        if not self.running:
            self.state.moving = {}
            self._arm(0)

    def _late(self, uid: ChannelUid, places: list[Place]) -> int:
        """How many of these messages, the oldest ones, are given up because they are too late."""
        channel = self.channels.by_uid.get(uid)
        if channel is None:
            return 0
        policy = self.placement.policies.of(channel.info.name, b"")
        before = self.late_before(policy.max_late, policy.dead_letters_of(channel.info.name))
        return sum(self.state.moving[sequence][1] < before for sequence, _ in places)

    def _move(self, uid: ChannelUid, places: list[Place], read: dict[int, bytes], *, late: bool) -> Steps[None]:
        """Store messages in their channel, or as dead letters if they are too late, and take them off the list."""
        channel, meta = self.channels.by_uid.get(uid), self.node.meta
        if channel is None and (uid in meta.by_uid or uid >= meta.next_uid):
            self.paused[uid] = self.node.clock.now + limits.DELAY_RETRY  # this copy of the metadata is behind
            return
        gone = pb.DeferredGone(places=[number for sequence, first in places for number in (first, sequence)])
        batches = self._deferred.batches
        messages = {
            batches[first].ids_from(first)[sequence - first]: wire.MsgProto.FromString(read[sequence])
            for sequence, first in places
            if sequence in read
        }
        if lost := len(places) - len(messages):
            text = f"{lost} delayed messages of group {self.number} are lost: the log does not have them"
            self.reports.note("ERR", text)
        try:
            if channel is not None:
                self.check_open(channel)
            if channel is not None and late:
                letters = self.placement.policies.of(channel.info.name, b"").dead_letters_of(channel.info.name)
                yield from self.give_up(channel, letters, messages, len(places), deferred_gone=gone)
            else:  # without a channel nobody can get them
                yield from self.move(channel, [*messages.values()], deferred_gone=gone)
            self.faults_of.pop(uid, None)
        except StepError as error:
            if channel is not None:
                self.failed(channel.info, channel.info.name, str(error))

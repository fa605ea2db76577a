"""Schedules of streams are carried out, on the leader of their group.

    schedule stored, with its time in the same entry ─► due ─► one entry stores what it publishes and removes the schedule

One that repeats stays, and has another time from then on.

Promises: nothing is published before the wall clock of the leader shows its time; for each time one message is stored, whichever
node leads and dies, as that is one entry. Late ones go at once, in the order of their times, in bounded batches; of one that
repeats those that were missed are left out.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND, ChannelUid, Nanos

from stan import limits
from stan.core.base.names import shown
from stan.core.features.jetstream.streams.storing import StreamStoring
from stan.core.features.jetstream.streams.subjects import runs_of
from stan.core.leader.local_group import Leadership
from stan.core.metadata.streams import Stream
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.publishing import Publishing
from stan.core.publishing.relocating import Relocating, StepError, Steps
from stan.core.publishing.row_batch import row_of
from stan.core.publishing.stored_reads import stored_messages
from stan.core.services.services import Services
from stan.core.state.schedules import Schedule
from stan.protocol.jetstream import schedules
from stan.protocol.proto import entries_pb2 as pb

_IN_FLIGHT: Final = 50 * MILLISECOND
"""After this a schedule is looked at again of whose subject a message is on its way."""


class Scheduling(Relocating):
    """Publishes what the schedules of one group's streams say, while this node leads it."""

    follows = frozenset({"scheduled"})

    def __init__(
        self, services: Services, leadership: Leadership, channels: LiveChannels, publishing: Publishing
    ) -> None:
        super().__init__(services, leadership, channels, publishing)
        self._soonest: list[tuple[int, ChannelUid, int]] = []  # heap: when (Unix ns), channel, sequence
        self._due: dict[ChannelUid, set[int]] = {}  # sequences
        self._paused: dict[ChannelUid, int] = {}  # nothing of these is published until then (Nanos), after a failure
        self._armed = 0  # Nanos: when to look next

    # --- what is due ------------------------------------------------------------------------------------------------------

    def take_up(self) -> None:
        """Look at all schedules: this node begins to lead, or streams have come or changed."""
        listed = self.group.machine.schedules.by_channel
        self._due = {}
        self._soonest = [(one.due, uid, at) for uid, here in listed.items() for at, one in here.by_sequence.items()]
        heapq.heapify(self._soonest)
        if self._soonest:
            self._arm(0)

    def took_over(self, uid: ChannelUid) -> None:
        """The group has taken a channel over from another one."""
        if uid in self.group.machine.schedules.by_channel:
            self.take_up()

    def followed(self, change: pb.GroupChange) -> None:
        """Schedules were stored."""
        about = change.scheduled
        for sequence, due in zip(about.sequences, about.dues, strict=True):
            if due:
                heapq.heappush(self._soonest, (due, ChannelUid(about.uid), sequence))
                self._arm(due - self.node.clock.wall)

    def _arm(self, wait: int) -> None:
        """Look in *wait* ns, or sooner: the wall clock may be set."""
        now = self.node.clock.now
        at = now + min(max(wait, MILLISECOND), limits.DELAY_LOOK)
        if not now < self._armed <= at:
            self._armed = at
            self.at(at, self._tick)

    def _tick(self, now: Nanos) -> None:
        if self._armed <= now:
            self._armed = 0
            self._look()

    def _look(self) -> None:
        """Begin to carry out schedules that are due, and look again when the next one is."""
        clock = self.node.clock
        while self._soonest and self._soonest[0][0] <= clock.wall:
            _, uid, sequence = heapq.heappop(self._soonest)
            known = self.group.machine.schedules.of(uid, sequence)
            if known is not None and known.due <= clock.wall:
                self._due.setdefault(uid, set()).add(sequence)
        for uid in [uid for uid in self._due if uid not in self.running and self._paused.get(uid, 0) <= clock.now]:
            self._paused.pop(uid, None)
            self.begin(uid, self._publish(uid))
        if self._due:
            self._arm(limits.DELAY_RETRY)
        if self._soonest:
            self._arm(self._soonest[0][0] - clock.wall)

    def ended(self) -> None:
        """A run has ended: look for more."""
        self._arm(0)

    # --- publishing -------------------------------------------------------------------------------------------------------

    def _publish(self, uid: ChannelUid) -> Steps[None]:
        """Carry out due schedules of a channel, as many as one read holds."""
        stream, channel = self.node.meta.streams.by_uid.get(uid), self.channels.by_uid.get(uid)
        if stream is None or not stream.config.allow_schedules:
            del self._due[uid]  # until streams change
            return
        self._due[uid] = {one for one in self._due[uid] if self.group.machine.schedules.of(uid, one) is not None}
        if not self._due[uid]:
            del self._due[uid]
            return
        if channel is None or channel.restoring:  # or this copy of the metadata is behind
            self._paused[uid] = self.node.clock.now + limits.DELAY_RETRY
            return
        some = self._oldest_due(uid)
        try:
            self.check_open(channel)
            batches = yield from self.read(uid, tuple(runs_of(some)))
            self.check_open(channel)
            read = dict(stored_messages(batches, runs_of(some)))
            end = max((batch.base_sequence + batch.count - 1 for batch in batches), default=some[-1])
            yield from self._store(stream, channel, [one for one in some if one <= end], read)
        except StepError as error:
            self._paused[uid] = self.node.clock.now + limits.DELAY_RETRY
            self.reports.complain("WRN", f"Schedules of stream {shown(stream.channel)} wait: {error}")
        if not self._due.get(uid):
            self._due.pop(uid, None)

    def _oldest_due(self, uid: ChannelUid) -> list[int]:
        """Return the schedules of a channel that are due longest, not more than one entry carries out, by sequence."""
        listed = self.group.machine.schedules.by_channel[uid].by_sequence
        by_time = sorted(self._due[uid], key=lambda one: (listed[one].due, one))
        return sorted(by_time[: limits.DELAY_MESSAGES_MAX])

    def _store(self, stream: Stream, channel: LiveChannel, sequences: list[int], read: dict[int, bytes]) -> Steps[None]:
        """Carry out those of some schedules that are still due."""
        uid, looked_at = channel.info.uid, set(sequences)
        storing = self.leadership.part(StreamStoring)
        listed: list[Schedule] = []
        for sequence in sequences:
            known = self.group.machine.schedules.of(uid, sequence)
            if known is None:
                continue
            if known.due > self.node.clock.wall:  # it has been set back
                heapq.heappush(self._soonest, (known.due, uid, sequence))
            elif storing.is_in_flight(uid, known.subject):  # and may be replaced
                heapq.heappush(self._soonest, (self.node.clock.wall + _IN_FLIGHT, uid, sequence))
            else:
                listed.append(known)
        listed.sort(key=lambda one: (one.due, one.sequence))
        yield from self._carry_out(channel, self._outcome(stream, listed, read))
        self._due.get(uid, set()).difference_update(looked_at)

    def _outcome(self, stream: Stream, listed: Iterable[Schedule], read: dict[int, bytes]) -> "_Outcome":
        """Return the messages that schedules publish, and what becomes of the schedules. One whose target is none of the stream's
        subjects any more stays as it is."""
        outcome, now = _Outcome(), self.node.clock.wall
        for one in listed:
            stored = wire.MsgProto.FromString(read.get(one.sequence, b""))
            fields = schedules.of_message(stored)
            if fields is None:
                text = f"Schedule {one.sequence} of stream {shown(stream.channel)} is lost: the log does not have it"
                self.reports.note("ERR", text)
                outcome.gone.append(one.sequence)
            elif not schedules.fits(fields.target, stream.config):
                text = (
                    f"A schedule of stream {shown(stream.channel)} waits: its target is none of the stream's subjects"
                )
                self.reports.complain("WRN", text)
            else:
                next_due = schedules.following(fields.repeats, one.due, now) if fields.repeats else 0
                outcome.messages.append(schedules.published(stored, fields, one.subject, now, next_due))
                if next_due:
                    outcome.repeated.append(one._replace(due=next_due))
                else:
                    outcome.gone.append(one.sequence)
        return outcome

    def _carry_out(self, channel: LiveChannel, outcome: "_Outcome") -> Steps[None]:
        """Store messages of schedules in one entry with what becomes of these."""
        change = self._removal(channel.info.uid, outcome.gone) if outcome.gone else None
        if outcome.messages:
            scheduled = _again(channel.info.uid, outcome.repeated) if outcome.repeated else None
            yield from self.store(channel, map(row_of, outcome.messages), _always(change), _always(scheduled))
        elif change is not None:
            yield from self.propose(removal=change.removal)

    def _removal(self, uid: ChannelUid, sequences: list[int]) -> pb.GroupChange:
        """Return the change that removes schedules."""
        deleted = [end for run in runs_of(sorted(sequences)) for end in run]
        removal = pb.Removal(uid=uid, deleted=deleted, scheduled=True)
        return pb.GroupChange(removal=removal, at=self.node.clock.wall, node=self.node.name.encode())


@dataclass(slots=True)
class _Outcome:
    """Describes what due schedules bring about."""

    messages: list[wire.MsgProto] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)  # sequences of schedules that are done
    repeated: list[Schedule] = field(default_factory=list)  # with the times that follow


def _again(uid: ChannelUid, repeated: list[Schedule]) -> pb.GroupChange:
    """Return the change that lists schedules with their next times."""
    sequences, dues, subjects = zip(*repeated, strict=True)
    return pb.GroupChange(scheduled=pb.Scheduled(uid=uid, sequences=sequences, dues=dues, subjects=subjects))


def _always(change: pb.GroupChange | None) -> Callable[[int], bytes] | None:
    """Return what a RowBatch calls for a change that does not depend on where its rows are stored; None: there is none."""
    return None if change is None else lambda _first: change.SerializeToString()

"""Messages that wait in a channel with a delay (a policy of operators) until they are due, and go to its target then.

    published, stored, acknowledged ─► waits in its channel ─► due (timestamp + delay): one entry stores it in the target
                                                               and trims it from its channel

Promises: none is moved before the wall clock of the leader shows its time; none is lost or moved twice, whoever leads and
whenever it dies, as the move is one entry; the messages of one channel are moved in their order. What is late goes at once, the
oldest first, in bounded batches, each stored before the next is read, so that what is published now is not held up.
"""

from collections.abc import Iterable

from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND, ChannelUid, WallNanos

from stan import limits
from stan.core.base.names import shown
from stan.core.features.delays.due import DueMessages
from stan.core.leader.local_group import Leadership
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.channel_policies import Delay
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.publishing import Publishing
from stan.core.publishing.relocating import StepError, Steps
from stan.core.publishing.stored_reads import stored_messages
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.protocol.proto import entries_pb2 as pb


class DelayClock:
    """The time to look next for due messages in the channels with a delay that this node leads."""

    def __init__(self, services: Services, channels: LiveChannels) -> None:
        self.faults, self.leading, self.node = services.faults, services.leading, services.node
        self.timers = services.timers
        self._channels = channels
        self._look_at = 0  # Nanos
        self._armed = 0  # Nanos: when a turn will run to look

    def look_soon(self) -> None:
        """More may be due."""
        self._look_at = 0

    def pump(self) -> None:
        """Move due messages, if it is time to look."""
        now = self.node.clock.now
        if now >= self._look_at:
            wait = limits.DELAY_LOOK
            for uid, delay in [*self._channels.policies.delayed.items()]:
                channel = self._channels.by_uid.get(uid)
                delaying = self.leading.part(channel.info.group, Delaying) if channel is not None else None
                if channel is not None and delaying is not None:
                    again = self.faults.within(channel.info.group, delaying.look, channel, delay)
                    wait = min(wait, max(again or wait, MILLISECOND))
            self._look_at = now + wait
            if not now < self._armed <= self._look_at:
                self._armed = self._look_at
                self.timers.wake_at(self._armed, META_GROUP)


class Delaying(DueMessages):
    """Moves the messages of one group that are due, while this node leads it."""

    follows = frozenset({"drop_channel"})

    def __init__(
        self,
        services: Services,
        leadership: Leadership,
        channels: LiveChannels,
        publishing: Publishing,
        clock: DelayClock,
    ) -> None:
        super().__init__(services, leadership, channels, publishing)
        self.clock = clock

    def followed(self, change: pb.GroupChange) -> None:
        """A channel is gone: forget its move."""
        uid = ChannelUid(change.drop_channel.uid)
        self.running.pop(uid, None)
        self.paused.pop(uid, None)

    # --- what is due ------------------------------------------------------------------------------------------------------

    def look(self, channel: LiveChannel, delay: Delay) -> int:
        """Begin to move what is due in a channel. Returns in how many ns to look again."""
        info = channel.info
        soon = min(limits.DELAY_LOOK, delay.delay)
        if info.uid in self.running or channel.closed:
            return soon
        index = self.stored.indexes(info.group, info.uid)
        first = max(index.first_sequence, self.node.group_of(info).machine.channel(info.uid).first_sequence)
        if not index.last_sequence or first > index.last_sequence:
            self.faults_of.pop(info.uid, None)
            return soon
        until = self.node.clock.wall - delay.delay
        last = min(index.sequence_at(WallNanos(until + 1)) - 1, index.last_sequence)
        if last < first:
            return min(soon, index.first_timestamp - until)
        if (pause := self.paused.get(info.uid, 0) - self.node.clock.now) > 0:
            return pause
        self.paused.pop(info.uid, None)
        if error := self.channels.policies.delay_trouble(info, delay):
            self.failed(info, delay.target, error)
        else:
            last = min(last, first + limits.DELAY_MESSAGES_MAX - 1)
            self.begin(info.uid, self._move(channel, delay, first, last))
        return soon

    # --- moving -----------------------------------------------------------------------------------------------------------

    def _move(self, channel: LiveChannel, delay: Delay, first: int, last: int) -> Steps[None]:
        """Move the messages [first, last], which are due, as many as one read holds."""
        info = channel.info
        try:
            target = yield from self.open(delay.target)
            batches = yield from self.read(info.uid, ((first, last),))
            self.check_open(target, channel)
            due = self._still_due(info, delay, stored_messages(batches, [(first, last)]))
            if due is None:
                return
            if not due:
                lost = f"Delayed messages {first} to {last} of channel {shown(info.name)} are lost"
                self.reports.note("ERR", f"{lost}: the log does not have them")
            before = self.late_before(delay.max_late, delay.dead_letters)
            late = {at: one for at, one in due.items() if one is not None and one.timestamp + delay.delay < before}
            if late:  # the oldest ones, so these alone now
                settled = _trim(info.uid, max(late) + 1)
                yield from self.give_up(channel, delay.dead_letters, late, len(late), trim=settled)
            else:  # without messages they were deleted one by one, or lie in a part of the log that is lost
                settled = _trim(info.uid, max(due, default=last) + 1)
                yield from self.move(target, [one for one in due.values() if one is not None], trim=settled)
            self.faults_of.pop(info.uid, None)
            self.clock.look_soon()
        except StepError as error:
            self.failed(info, delay.target, str(error))

    def _still_due(
        self, info: ChannelInfo, delay: Delay, stored: Iterable[tuple[int, bytes]]
    ) -> dict[int, wire.MsgProto | None] | None:
        """The messages that are due, by sequence, None for one that was deleted. None if there is none although the log has some:
        the clock was set back since they were due."""
        deleted = self.stored.deleted(info.group, info.uid)
        found: dict[int, wire.MsgProto | None] = {}
        for sequence, record in stored:
            gone = deleted is not None and deleted.within(sequence, sequence)
            message = None if gone else wire.MsgProto.FromString(record)
            if message is not None and message.timestamp > self.node.clock.wall - delay.delay:
                return found or None
            found[sequence] = message
        return found


def _trim(uid: ChannelUid, first: int) -> pb.Trim:
    return pb.Trim(first_sequences=[uid, first])

"""Messages that wait in a channel with a delay (a policy of operators) until they are due, and go to its target then.

    published, stored, acknowledged ─► waits in its channel ─► due (timestamp + delay): one entry stores it in the target
                                                               and trims it from its channel

Promises: none is moved before the wall clock of the leader shows its time; none is lost or moved twice, whoever leads and
whenever it dies, as the move is one entry; the messages of one channel are moved in their order. What is late goes at once, the
oldest first, in bounded batches, each stored before the next is read, so that what is published now is not held up.
"""

from dataclasses import dataclass
from functools import partial

from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import CHANNEL_MOVING
from stan_protocol.scalars import MILLISECOND, ChannelUid, WallNanos

from stan import limits
from stan.core.base.names import shown
from stan.core.base.ready import ReadResult
from stan.core.features.delays.late import letters_of, mark, report_late
from stan.core.leader.local_group import Leadership
from stan.core.publishing.channel_policies import Delay, DelayFaults
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.publishing import Publishing, StoringPart
from stan.core.publishing.row_batch import RowBatch, StoreResult, row_of
from stan.core.publishing.stored_reads import StoredReads, stored_messages
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.protocol.proto import entries_pb2 as pb


@dataclass(slots=True)
class Move:
    """The next messages of one channel on their way into its target."""

    channel: LiveChannel
    delay: Delay
    first: int = 0
    last: int = 0  # of the channel; all up to here are due
    too_late: int = 0  # messages on their way to the dead letters


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


class Delaying(StoringPart):
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
        self.placement = services.placement
        self.clock = clock
        self._faults = leadership.part(DelayFaults).by_channel
        self._under_way: dict[ChannelUid, Move] = {}
        self._paused: dict[ChannelUid, int] = {}  # until when (Nanos), after a failure

    # --- what is due ------------------------------------------------------------------------------------------------------

    def look(self, channel: LiveChannel, delay: Delay) -> int:
        """Begin to move what is due in a channel. Returns in how many ns to look again."""
        info = channel.info
        soon = min(limits.DELAY_LOOK, delay.delay)
        if info.uid in self._under_way or channel.closed:
            return soon
        index = self.stored.indexes(info.group, info.uid)
        first = max(index.first_sequence, self.node.group_of(info).machine.channel(info.uid).first_sequence)
        if not index.last_sequence or first > index.last_sequence:
            self._faults.pop(info.uid, None)
            return soon
        until = self.node.clock.wall - delay.delay
        last = min(index.sequence_at(WallNanos(until + 1)) - 1, index.last_sequence)
        if last < first:
            return min(soon, index.first_timestamp - until)
        if (pause := self._paused.get(info.uid, 0) - self.node.clock.now) > 0:
            return pause
        self._begin(Move(channel, delay, first, last))
        return soon

    def _begin(self, move: Move) -> None:
        info = move.channel.info
        self._paused.pop(info.uid, None)
        if error := self.channels.policies.delay_trouble(info, move.delay):
            self._failed(move, error)
            return
        self._under_way[info.uid] = move
        self.channels.open(move.delay.target, partial(self._opened, move))

    def _opened(self, move: Move, target: LiveChannel | None, error: str) -> None:
        if not self._goes_on(move):
            return
        if target is None:
            self._failed(move, error)
            return
        move.last = min(move.last, move.first + limits.DELAY_MESSAGES_MAX - 1)
        info, runs = move.channel.info, ((move.first, move.last),)
        self.leadership.part(StoredReads).ask(info.uid, runs, partial(self._read, move))

    def _goes_on(self, move: Move) -> bool:
        """True if a move is under way still: this node leads the group, and the channel is there."""
        return not self.leadership.ended and self._under_way.get(move.channel.info.uid) is move

    # --- moving -----------------------------------------------------------------------------------------------------------

    def _read(self, move: Move, batches: list[ReadResult], error: str) -> None:
        """The log has answered: messages that are due; or with an error."""
        if not self._goes_on(move):
            return
        if error:
            self._failed(move, error)
            return
        info = move.channel.info
        target = self.channels.by_name.get(move.delay.target)
        if target is None or target.closed or move.channel.closed:
            self._failed(move, "" if target is None else target.closed or move.channel.closed)
            return
        deleted = self.stored.deleted(info.group, info.uid)
        last = 0
        bodies: list[wire.MsgProto] = []
        late: list[wire.MsgProto] = []
        too_late = self.node.clock.wall - move.delay.delay - move.delay.max_late if move.delay.max_late else 0
        due = self.node.clock.wall - move.delay.delay
        for sequence, record in stored_messages(batches, [(move.first, move.last)]):
            if deleted is not None and deleted.within(sequence, sequence):
                last = sequence
                continue
            message = wire.MsgProto.FromString(record)
            if message.timestamp > due:  # the clock was set back since they were found to be due
                if not last:
                    del self._under_way[info.uid]
                    return
                break
            last = sequence
            (late if message.timestamp < too_late else bodies).append(message)
        if not last:
            lost = f"Delayed messages {move.first} to {move.last} of channel {shown(move.channel.info.name)} are lost"
            self.reports.note("ERR", f"{lost}: the log does not have them")
        if late:  # the oldest ones, so these alone now
            last = late[-1].sequence
            self._give_up(move, late, last)
        else:
            self._store(move, target, bodies, last or move.last)

    def _store(self, move: Move, target: LiveChannel, messages: list[wire.MsgProto], last: int) -> None:
        """Store messages in a channel and trim theirs up to *last*, in one entry."""
        trim = _trim(move.channel.info.uid, last + 1)
        done = partial(self._stored, move)
        if messages:
            rows = b"".join(map(row_of, messages))
            self.publishing.add(target, RowBatch(rows, len(messages), done, lambda _first: trim.SerializeToString()))
        else:  # they were deleted one by one, or lie in a part of the log that is lost

            def trimmed(result: object, error: str) -> None:
                done(StoreResult() if result is not None else StoreResult(error=error))

            held = partial(trimmed, None, CHANNEL_MOVING)
            self.proposals.change_group(move.channel.info.group, trimmed, held, trim=trim.trim)

    def _stored(self, move: Move, stored: StoreResult) -> None:
        if not self._goes_on(move):
            return
        if stored.error:
            self._failed(move, stored.error)
            return
        del self._under_way[move.channel.info.uid]
        self._faults.pop(move.channel.info.uid, None)
        if move.too_late:
            report_late(self.reports, move.channel.info, move.too_late, move.delay.dead_letters)
        self.clock.look_soon()

    # --- what is too late ---------------------------------------------------------------------------------------------------

    def _give_up(self, move: Move, late: list[wire.MsgProto], last: int) -> None:
        """Store messages that are too late as dead letters; where a policy names no channel for those they are dropped."""
        name = move.delay.dead_letters
        if not name:
            move.too_late = len(late)
            self._store(move, move.channel, [], last)
        elif letters_of(self.placement, self.reports, name, move.channel.info.group):
            self.channels.open(name, partial(self._give_to, move, late, last))
        else:
            self._store(move, self.channels.by_name[move.delay.target], late, last)

    def _give_to(
        self, move: Move, late: list[wire.MsgProto], last: int, letters: LiveChannel | None, error: str
    ) -> None:
        if not self._goes_on(move):
            return
        if letters is None or move.channel.closed:
            self._failed(move, error or move.channel.closed)
            return
        for message in late:
            mark(message, move.channel.info, message.sequence)
        move.too_late = len(late)
        self._store(move, letters, late, last)

    # --- what fails ---------------------------------------------------------------------------------------------------------

    def _failed(self, move: Move, error: str) -> None:
        """Messages cannot be moved now: try again later."""
        info = move.channel.info
        self._under_way.pop(info.uid, None)
        self._paused[info.uid] = self.node.clock.now + limits.DELAY_RETRY
        self._faults[info.uid] = error
        text = f"Delayed messages of channel {shown(info.name)} cannot be moved to {shown(move.delay.target)}: {error}"
        self.reports.complain("WRN", text)

    def followed(self, change: pb.GroupChange) -> None:
        """A channel is gone: forget its move."""
        uid = ChannelUid(change.drop_channel.uid)
        self._under_way.pop(uid, None)
        self._paused.pop(uid, None)


def _trim(uid: ChannelUid, first: int) -> pb.GroupChange:
    return pb.GroupChange(trim=pb.Trim(first_sequences=[uid, first]))

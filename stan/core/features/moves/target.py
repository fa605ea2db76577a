"""The target of a move: the leader of the group that channels are moved to asks the source's leader for them, and appends
their messages to its own log (docs/decisions/0021).

Promises: messages are appended in their order, without a gap or a repeat, across changes of leaders; `arrived` is proposed only
with all that the source has, and while it holds the channels.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Final

from google.protobuf.message import DecodeError
from stan_protocol.refusals import go_quote
from stan_protocol.scalars import SECOND, ChannelUid, KiB, Nanos

from stan import limits
from stan.core.base.names import text
from stan.core.features.moves.source import end_move
from stan.core.features.moves.steps import MoveAction, MoveEvent, MoveStep, next_step
from stan.core.leader.local_group import Leadership
from stan.core.metadata.meta import ChannelInfo
from stan.core.services.leader_part import LeaderPart
from stan.core.services.proposals import nobody_waits
from stan.core.services.services import Services
from stan.core.state.group_state import GroupResult
from stan.core.state.moves import MoveStage, Stage
from stan.protocol.entries import Kind, encode_batch, encode_fingerprints
from stan.protocol.proto import entries_pb2 as pb

TAIL_BYTES: Final = 256 * KiB
"""What is left of the messages when the source is asked to hold the channels."""
ANSWER_PATIENCE: Final = SECOND // 4
STEP_PATIENCE: Final = 2 * SECOND
"""After as long a silence of the log a step is made again."""
COUNT_MAX: Final = limits.RESTORED_GAP_MAX
NO_ANSWER: Final = "the leader of its group does not answer"
FALLS_BEHIND: Final = "more is published to it than is copied"


@dataclass(slots=True)
class Copied:
    """How far the messages of a move have come."""

    since: Nanos  # since then, of no channel was less left than before
    at: int = 0  # place in `Arrival.uids` of the channel that is asked about next
    left: dict[ChannelUid, int] = field(default_factory=dict)  # bytes behind what has come, as the source last said
    fewest: dict[ChannelUid, int] = field(default_factory=dict)  # the same at its best
    complete: set[ChannelUid] = field(default_factory=set)  # all of them has come, as the source last said

    def note(self, uid: ChannelUid, left: int, *, complete: bool, now: Nanos) -> None:
        """Note that so many bytes of a channel are still missing; *complete*: none is."""
        self.left[uid] = left = 0 if complete else left
        if left < self.fewest.get(uid, left + 1):
            self.fewest[uid], self.since = left, now
        if complete:
            self.complete.add(uid)
        else:
            self.complete.discard(uid)
        if complete or left <= TAIL_BYTES:
            self.at += 1

    def is_near(self, channels: int) -> bool:
        """True if little is left of all of them."""
        return len(self.left) == channels and sum(self.left.values()) <= TAIL_BYTES


@dataclass(slots=True)
class Arrival:
    """A move to a group that this node leads."""

    move: int
    uids: list[ChannelUid]
    copied: Copied
    step: MoveStep = MoveStep.COPYING  # while messages come, as the log says
    asking_since: Nanos = Nanos(0)  # noqa: RUF009 - the source is asked to hold them since then; 0: it is not yet
    known_for: int = 0  # ns, see pb.Arrived
    fingerprints_at: tuple[bytes, int] = (b"", 0)  # the source's leadership, and the number of the next
    rows: list[pb.MovedRow] = field(default_factory=list)
    waits_until: int = 0  # Nanos: an answer or a commit is waited for
    waits_for: str = ""  # why it does not go on
    unanswered: bool = False  # the newest question is


class MoveTarget(LeaderPart):
    """Takes in the channels that come to one group, while this node leads it."""

    def __init__(self, services: Services, leadership: Leadership) -> None:
        super().__init__(services, leadership)
        self.requests = services.requests
        self.arrivals: dict[int, Arrival] = {}  # by move

    def look(self, move: int, infos: list[ChannelInfo]) -> None:
        """Go on with a move to the group, if nothing is waited for."""
        arrivals, uids, now = self.arrivals, [info.uid for info in infos], self.node.clock.now
        arrival = arrivals.get(move)
        if arrival is None or arrival.uids != uids:  # it is new, or one of them was deleted
            arrivals[move] = arrival = Arrival(move, uids, Copied(now))
        if now >= arrival.waits_until:
            self._wake(arrival)

    def _goes_on(self, arrival: Arrival) -> bool:
        """True while the move is under way, and this leadership, too."""
        known = self.node.meta.by_uid
        there = not self.leadership.ended and self.arrivals.get(arrival.move) is arrival
        return there and all(uid in known and known[uid].move == arrival.move for uid in arrival.uids)

    def _wake(self, arrival: Arrival) -> None:
        arrival.waits_until = self.node.clock.now + STEP_PATIENCE
        self._feed(arrival, MoveEvent.HOPELESS if self._stalls(arrival) else MoveEvent.WAKE)

    def _step(self, arrival: Arrival) -> MoveStep:
        """The step of a move: as the log says, and while messages come as this leader knows."""
        states = {self.group.machine.moves.by_channel.get(uid) for uid in arrival.uids}
        if states == {MoveStage(arrival.move, Stage.ARRIVED)}:
            return MoveStep.ARRIVED
        return arrival.step if states == {MoveStage(arrival.move, Stage.COPYING)} else MoveStep.EXPECTED

    def _feed(self, arrival: Arrival, event: MoveEvent) -> None:
        """Do what an event asks for, and note the next step if it is not one that an entry makes."""
        uids, copied = arrival.uids, arrival.copied
        step, action = next_step(self._step(arrival), event)
        if step not in (MoveStep.EXPECTED, MoveStep.ARRIVED):
            arrival.step = step
        if step is MoveStep.ASKING:
            arrival.asking_since = arrival.asking_since or self.node.clock.now
        match action:  # to finish a move is left to `GroupMoves`
            case MoveAction.ARRIVING:
                self._change(arrival, arriving=pb.Moving(move=arrival.move, uids=uids))
            case MoveAction.ASK:
                copied.at %= len(uids)
                self._ask(arrival, uids[copied.at])
            case MoveAction.ASK_ROWS:
                self._ask(arrival, uids[0], rows_from=len(arrival.rows) + 1)
            case MoveAction.LOOK_AGAIN:
                copied.complete.clear()
                arrival.rows.clear()
            case MoveAction.ARRIVED:
                rows, known_for = arrival.rows, arrival.known_for
                self._change(arrival, arrived=pb.Arrived(move=arrival.move, uids=uids, rows=rows, known_for=known_for))
            case MoveAction.CANCEL:
                end_move(self.proposals, arrival.move, done=False)  # others are moved meanwhile

    def _stalls(self, arrival: Arrival) -> bool:
        """True, with a line in the log, if a move has come no nearer to its end for long."""
        may_stall = self._step(arrival) in (MoveStep.EXPECTED, MoveStep.COPYING, MoveStep.ASKING)
        if not may_stall or self.node.clock.now - arrival.copied.since <= limits.MOVE_STALLED_MAX:
            return False
        self._note_waiting(arrival, NO_ANSWER if arrival.unanswered else FALLS_BEHIND)
        return True

    def _note_waiting(self, arrival: Arrival, why: str) -> None:
        if why not in ("", arrival.waits_for):
            name = go_quote(text(self.node.meta.by_uid[arrival.uids[0]].name))
            self.reports.note("WRN", f"Channel {name} is not moved to group {self.number} yet: {why}")
        arrival.waits_for = why or arrival.waits_for

    def _change(self, arrival: Arrival, **change: pb.Moving | pb.Arrived) -> None:
        def done(result: object, _error: str) -> None:
            self._later(arrival, 0 if isinstance(result, GroupResult) and not result.error else ANSWER_PATIENCE)

        self.change(done, nobody_waits, **change)

    def _later(self, arrival: Arrival, wait: int) -> None:
        """The next step is made after *wait* ns."""
        now = self.node.clock.now
        arrival.waits_until = until = now + max(wait, 1)
        if not self._goes_on(arrival):
            return

        def step(_now: int) -> None:
            if arrival.waits_until == until and self._goes_on(arrival):
                self._wake(arrival)

        self.at(until, step)

    # --- questions ------------------------------------------------------------------------------------------------------

    def _ask(self, arrival: Arrival, uid: ChannelUid, rows_from: int = 0) -> None:
        last = self.stored.indexes(self.number, uid).last_sequence
        question = pb.MoveQuestion(
            move=arrival.move,
            uid=uid,
            next=last + 1 if last else 0,
            told_by=arrival.fingerprints_at[0],
            told_from=arrival.fingerprints_at[1],
            depart=arrival.step is not MoveStep.COPYING,
            rows_from=rows_from,
        )
        body = question.SerializeToString()
        answered = partial(self._answered, arrival, uid, question, self.node.clock.now)
        self.requests.send(self.number, self.nats.subjects.moves.encode(), ANSWER_PATIENCE, answered, body)

    def _answered(
        self, arrival: Arrival, uid: ChannelUid, question: pb.MoveQuestion, asked_at: Nanos, payload: bytes | None
    ) -> None:
        if not self._goes_on(arrival):
            return
        arrival.unanswered = payload is None
        if payload is None:
            self._later(arrival, ANSWER_PATIENCE)
            return
        try:
            answer = pb.MoveAnswer.FromString(payload)
        except DecodeError:
            self._later(arrival, ANSWER_PATIENCE)
            return
        self._note_waiting(arrival, answer.waits_for)
        if answer.departed:
            self._feed(arrival, MoveEvent.HELD)
        asking_for = self.node.clock.now - arrival.asking_since if arrival.step is MoveStep.ASKING else 0
        if answer.waits_for and asking_for > limits.MOVE_PATIENCE:
            self._feed(arrival, MoveEvent.HOPELESS)  # it is begun again, behind others
            self._later(arrival, SECOND)
        elif question.rows_from:
            self._take_rows(arrival, question, answer)
        elif answer.waits_for and not answer.batches and question.next <= answer.last_sequence:
            self._later(arrival, SECOND)
        else:
            self._append(arrival, uid, question, answer, asked_at)

    def _append(
        self, arrival: Arrival, uid: ChannelUid, question: pb.MoveQuestion, answer: pb.MoveAnswer, asked_at: Nanos
    ) -> None:
        """Append the messages and fingerprints of an answer, and go on once they are committed."""
        parts, end = self._entry(uid, answer)
        self._note_place(arrival, uid, answer, complete=not parts and end >= answer.last_sequence and answer.told_end)
        fingerprints_at = answer.told_by, answer.told_next
        if not parts and not answer.fingerprints:
            arrival.fingerprints_at = fingerprints_at
            self._later(arrival, ANSWER_PATIENCE if answer.waits_for else 0)
            return
        if answer.fingerprints:
            parts += encode_fingerprints(answer.fingerprints)
        sent = len(question.SerializeToString()) + answer.ByteSize()
        next_at = asked_at + sent * SECOND // limits.MOVE_BYTES_PER_SECOND

        def done(result: object, _error: str) -> None:
            if result is not None:
                arrival.fingerprints_at = fingerprints_at
            pause = 0 if arrival.step in (MoveStep.FINISHING, MoveStep.LISTING) else next_at - self.node.clock.now
            self._later(arrival, pause if result is not None else ANSWER_PATIENCE)

        self.proposals.propose(self.number, Kind.RECORDS, b"".join(parts), done)

    def _note_place(self, arrival: Arrival, uid: ChannelUid, answer: pb.MoveAnswer, *, complete: bool) -> None:
        """Note how far a channel has come, and choose the one to ask about next."""
        now = self.node.clock.now
        arrival.copied.note(uid, answer.bytes_left, complete=complete, now=now)
        if arrival.copied.is_near(len(arrival.uids)):
            self._feed(arrival, MoveEvent.NEAR)
        if len(arrival.copied.complete) == len(arrival.uids):
            self._feed(arrival, MoveEvent.COMPLETE)

    def _entry(self, uid: ChannelUid, answer: pb.MoveAnswer) -> tuple[list[bytes], int]:
        """The parts of an entry with the messages that are not in the log yet, and the sequence with which they end."""
        index = self.stored.indexes(self.number, uid)
        end, timestamp = int(index.last_sequence), int(index.last_timestamp)
        parts: list[bytes] = []
        batches = list(answer.batches)
        if not batches and answer.first_sequence > answer.last_sequence > end:  # nothing is left of what was there
            batches.append(pb.MovedBatch(base_sequence=answer.last_sequence, count=1))
        for batch in batches:
            if end and batch.base_sequence <= end:
                break  # it was asked for before the newest ones were here
            if end and batch.base_sequence > end + 1:
                count = min(batch.base_sequence - end - 1, COUNT_MAX)
                parts += encode_batch(uid, end + 1, count, timestamp, 0, b"")
                end += count
                if batch.base_sequence > end + 1:
                    break  # the rest of the gap comes with the next entry
            timestamp = max(timestamp, batch.timestamp)
            parts += encode_batch(uid, batch.base_sequence, batch.count, timestamp, 0, batch.records)
            end = batch.base_sequence + batch.count - 1
        return parts, end

    def _take_rows(self, arrival: Arrival, question: pb.MoveQuestion, answer: pb.MoveAnswer) -> None:
        if not answer.departed or question.rows_from != len(arrival.rows) + 1:
            self._later(arrival, ANSWER_PATIENCE)
            return
        arrival.rows += answer.rows
        arrival.known_for = answer.known_for
        size = sum(row.ByteSize() for row in arrival.rows)
        if answer.waits_for or size > limits.MOVED_STATE_BYTES_MAX:
            names = [self.node.meta.by_uid[uid].name for uid in arrival.uids[:1]]
            why = answer.waits_for or f"its state has more than {limits.MOVED_STATE_BYTES_MAX} bytes"
            self.reports.note("WRN", f"channel {go_quote(text(names[0]))} is not moved to another group: {why}")
            self._feed(arrival, MoveEvent.HOPELESS)
        elif answer.rows_end and self._fits(arrival):
            self._feed(arrival, MoveEvent.LISTED)
        else:
            if answer.rows_end:
                self._feed(arrival, MoveEvent.OTHER_ROWS)
            self._later(arrival, 0)

    def _fits(self, arrival: Arrival) -> bool:
        """True if the messages are here up to what the rows say is the newest one."""
        rows = [row.first for row in arrival.rows if row.HasField("first")]
        return [row.uid for row in rows] == arrival.uids and all(
            self.stored.indexes(self.number, ChannelUid(row.uid)).last_sequence == row.last_sequence for row in rows
        )

"""Dead letters: messages that a position has given up are moved into another channel, on the leader of their group.

    given up ─► channel is opened, in the same group ─► stored bytes are read ─► one entry: copies, and what settles the messages

Promises: a message that is given up is either pending, or one copy of it is in the dead letter channel and it is settled, never
both and never neither, whatever crashes when. It stays pending until the entry is committed; a new leader begins the move again.
One move at a time of each position, of as many messages as one read holds. Positions that give up more messages a minute than
their policy allows are paused: then it is not the messages that are wrong.
"""

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from stan_protocol import dead_letters as letters
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import Nanos
from stan_protocol.units import counted

from stan import limits
from stan.core.base.names import shown
from stan.core.base.payload_limit import FLAG_ROOM, MESSAGE_ROOM
from stan.core.base.ready import ReadResult
from stan.core.base.runs import Run, Runs
from stan.core.leader.cursors import LiveCursor
from stan.core.leader.deliveries import lost_of, recalled
from stan.core.leader.retries import Moves
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.relocating import Relocating, StepError, Steps
from stan.core.publishing.stored_reads import stored_messages
from stan.protocol.proto import entries_pb2 as pb

MESSAGES_MAX = 10_000
"""Messages in one move."""


class _Letter(NamedTuple):
    """One message on its way."""

    sequence: int
    row: bytes
    reason: bytes


@dataclass(slots=True)
class _Move:
    """Messages of one position that are being moved."""

    cursor_id: int
    moves: Moves
    letters: list[_Letter]
    told: pb.GroupChange | None = None  # what goes with the copies

    @property
    def runs(self) -> Runs:
        """The sequences."""
        runs = Runs()
        for letter in self.letters:
            runs.add(Run(letter.sequence, letter.sequence))
        return runs


class DeadLetters(Relocating):
    """Moves messages that positions of one group have given up, while this node leads it."""

    def pump(self) -> None:
        """Look at the positions that have given messages up since the last call."""
        cursors = self.group.dispatch.cursors
        if cursors.given_up and not self.group.dispatch.stops.mute:
            taken, cursors.given_up = cursors.given_up, {}
            for cursor_id in taken:
                self._look(cursor_id)

    def _view(self, cursor_id: int) -> LiveCursor | None:
        """The position, also without members; None if it is gone."""
        return self.group.live(cursor_id) or self.group.dispatch.members.offline_view(cursor_id)

    def _look(self, cursor_id: int) -> None:
        """Begin the next move of a position, if it may have one now."""
        live = self._view(cursor_id)
        if live is None:
            return
        moves, info = live.pending.moves, self.node.meta.by_uid.get(live.cursor.uid)
        if moves is None or moves.busy or info is None or not live.policy.dead_letter or live.cursor.paused:
            return
        if not live.pending.given_up.size:
            return
        if info.group != self.number or self.group.is_held(info.uid):  # it comes from another group, or goes to one
            self._again(cursor_id, limits.DEAD_LETTER_RETRY)
            return
        rate = live.policy.dead_letter_rate
        if rate and moves.in_last_minute(self.node.clock.now) >= rate:
            self.begin(cursor_id, self._pause(info, live, moves))
        else:
            self.begin(cursor_id, self._move(info, cursor_id, moves, live.policy.dead_letters_of(info.name)))

    def _live(self, cursor_id: int, moves: Moves) -> LiveCursor | None:
        """The position of a move; None if it is gone."""
        live = self._view(cursor_id)
        return live if live is not None and live.pending.moves is moves else None

    # --- moving -----------------------------------------------------------------------------------------------------------

    def _move(self, info: ChannelInfo, cursor_id: int, moves: Moves, name: bytes) -> Steps[None]:
        """Move the next messages of a position into the channel *name*."""
        fault, pause, move = f'"{shown(name)}" cannot be had', limits.DEAD_LETTER_CHANNEL_RETRY, None
        moves.busy = True
        try:
            into = yield from self.open(name)
            live = self._live(cursor_id, moves)
            picked = self._pick(live, moves) if live is not None else []
            if not picked:
                return
            fault, pause = "its messages cannot be read", limits.DEAD_LETTER_RETRY
            runs = [(run.first, run.last) for run in picked]
            moves.picked = Runs(Run(*run) for run in runs)
            batches = yield from self.read(info.uid, tuple(runs))
            move = self._letters(info, cursor_id, into, moves, runs, batches)
            if move is None:
                return
            fault = "they cannot be stored"
            moves.picked = move.runs
            yield from self.store(into, [letter.row for letter in move.letters], partial(self._change, move))
            self._moved(info, into, move)
        except StepError as error:
            live = self._live(cursor_id, moves)
            if live is not None:
                self._tell_fault(info, live, moves, f"{fault}: {error}")
                self._again(cursor_id, pause)
                if move is not None and live.members:  # nothing of it is reported but what a member does
                    self._report_again(live, move)
        finally:
            moves.busy = moves.sealed = False
            moves.picked.clear()

    def _pick(self, live: LiveCursor, moves: Moves) -> list[Run]:
        """The lowest messages that were given up, as many as one read may hold and the policy still allows."""
        rate, room = live.policy.dead_letter_rate, MESSAGES_MAX
        if rate:
            room = min(room, rate - moves.in_last_minute(self.node.clock.now))
        return live.pending.first_given_up(room)[: limits.BATCHES_PER_READ_MAX]

    def _settle_gone(self, live: LiveCursor, runs: list[tuple[int, int]], batches: list[ReadResult]) -> None:
        """Settle messages that the log has lost."""
        for first, last in lost_of(runs, batches):
            for gone in live.pending.given_up.within(first, last):
                live.pending.settle(gone.first, gone.last)
                live.unreported.mark(gone.first, gone.last)
                self.group.dispatch.reports.mark(live)

    def _letters(
        self,
        info: ChannelInfo,
        cursor_id: int,
        into: LiveChannel,
        moves: Moves,
        runs: list[tuple[int, int]],
        batches: list[ReadResult],
    ) -> _Move | None:
        """The stored messages have come: make the copies of those that are still given up; None if nothing is stored now."""
        live = self._live(cursor_id, moves)
        if live is None:
            return None
        gone = self.group.is_held(info.uid) or self.channels.by_uid.get(into.info.uid) is not into
        if gone or into.closed or live.cursor.paused:
            self._again(cursor_id, limits.DEAD_LETTER_RETRY)
            return None
        if live.members:
            self._settle_gone(live, runs, batches)
        made = []
        for sequence, stored in stored_messages(batches, runs):
            run = next(iter(live.pending.given_up.within(sequence, sequence)), None)
            if run is not None:
                made.append(self._letter(live, info, into, run, stored))
        if (
            not made and live.members
        ):  # they were acked or removed; what the log has lost is settled once a member is there
            self.group.dispatch.cursors.give_up(live)
        return _Move(cursor_id, moves, made) if made else None

    def _letter(self, live: LiveCursor, info: ChannelInfo, into: LiveChannel, run: Run, stored: bytes) -> _Letter:
        most, message = self.nats.payload_bytes_max, wire.MsgProto.FromString(stored)
        reason = letters.EXHAUSTED
        if live.pending.is_rejected(run.first):
            reason = letters.REJECTED
        elif len(stored) + FLAG_ROOM > most:
            reason = letters.TOO_LARGE
        added = [
            *letters.of_every_letter(info.name, run.first, reason, message.timestamp),
            (letters.DURABLE, live.cursor.name or live.cursor.client_id),
            (letters.COUNT, b"%d" % (max(run.count, 0) + 1)),
        ]
        error = live.pending.moves.errors.get(run.first) if live.pending.moves is not None else None
        row = letters.row(message, [*added, (letters.ERROR, error)] if error else added, letters.ADDED)
        if error and len(row) > self.nats.delivered_bytes_max - MESSAGE_ROOM - len(into.info.name):
            row = letters.row(message, added, letters.ADDED)
        return _Letter(run.first, row, reason)

    # --- storing ------------------------------------------------------------------------------------------------------

    def _change(self, move: _Move, _first: int) -> bytes:
        """What goes with the copies: what was not reported yet of the position, and that the messages are settled."""
        live = self._live(move.cursor_id, move.moves)
        moment = self.reports.moment
        progress = [live.report(pb.Progress(), moment)] if live is not None and live.has_unreported else []
        move.moves.sealed = True
        settled = pb.DeadLetters(cursor_id=move.cursor_id, runs=move.runs.flat())
        move.told = pb.GroupChange(progress=progress, dead_letters=settled)
        move.told.at, move.told.node = moment.wall, moment.node
        return move.told.SerializeToString()

    def _moved(self, info: ChannelInfo, into: LiveChannel, move: _Move) -> None:
        moves = move.moves
        moves.fault = ""
        moves.recent.append((self.node.clock.now, len(move.letters)))
        moves.total += len(move.letters)
        for letter in move.letters:
            moves.errors.pop(letter.sequence, None)
        self._report(info, into, move)
        live = self._live(move.cursor_id, moves)
        if live is not None:
            self.group.dispatch.cursors.give_up(live)

    def _report_again(self, live: LiveCursor, move: _Move) -> None:
        """Report the position once more: the entry that was to report it with the copies is not stored."""
        unreported, told, clock = live.unreported, move.told, self.node.clock
        unreported.last_sent = -1
        if told is not None and told.progress:
            unreported.sent[:0] = recalled(told.progress[0], Nanos(clock.now - (clock.wall - told.at)))
        for runs in (*live.pending.everywhere, move.runs):
            unreported.mark_each(runs)
        self.group.dispatch.reports.mark(live)

    def _again(self, cursor_id: int, pause: int) -> None:
        """Look at a position again, after *pause* ns."""

        def look(_now: int) -> None:
            live = self._view(cursor_id)
            if live is not None:
                self.group.dispatch.cursors.give_up(live)

        self.group.dispatch.redelivery.timers.at(self.node.clock.now + pause, look)

    # --- the breaker --------------------------------------------------------------------------------------------------

    def _pause(self, info: ChannelInfo, live: LiveCursor, moves: Moves) -> Steps[None]:
        """Too many messages were given up: nothing is sent until an operator has looked."""
        cursor, rate = live.cursor, live.policy.dead_letter_rate
        why = f"{counted(rate, 'message became a dead letter', 'messages became dead letters')} within a minute"
        moves.busy = True
        try:
            pause = pb.PauseCursor(cursor_id=cursor.cursor_id, paused=True, reason=why.encode())
            yield from self.propose(pause_cursor=pause)
            text = f'{cursor.in_words} of "{shown(info.name)}" is paused: {why}'
            self._emit("paused", text, info, cursor.client_id, cursor.cursor_id)
        except StepError:
            self._again(cursor.cursor_id, limits.DEAD_LETTER_RETRY)
        finally:
            moves.busy = False

    # --- what operators hear ------------------------------------------------------------------------------------------

    def _report(self, info: ChannelInfo, into: LiveChannel, move: _Move) -> None:
        cursor, count = self.group.machine.cursors.get(move.cursor_id), len(move.letters)
        which = f"message {move.letters[0].sequence}" if count == 1 else f"{count} messages"
        reasons = Counter(letter.reason.decode() for letter in move.letters)
        why = (
            ", ".join(f"{number} {reason}" for reason, number in sorted(reasons.items()))
            if count > 1
            else next(iter(reasons))
        )
        of = f" of {cursor.in_words}" if cursor is not None else ""
        text = f'{which} of "{shown(info.name)}" moved to "{shown(into.info.name)}"{of}: {why}'
        self._emit("dead_letters", text, info, b"" if cursor is None else cursor.client_id, move.cursor_id)

    def _tell_fault(self, info: ChannelInfo, live: LiveCursor, moves: Moves, why: str) -> None:
        """Say, once, why messages stay where they are."""
        if moves.fault == why:
            return
        moves.fault = why
        cursor = live.cursor
        text = f'messages of "{shown(info.name)}" given up for {cursor.in_words} stay pending: {why}'
        self._emit("dead_letters_fault", text, info, cursor.client_id, cursor.cursor_id)

    def _emit(self, kind: str, text: str, info: ChannelInfo, client_id: bytes, cursor_id: int) -> None:
        """Write a line to the log, and publish it as an admin event about a position."""
        self.reports.complain("WRN", text)
        about = {"channel": info.name, "client_id": client_id, "group": self.number, "cursor_id": cursor_id}
        self.reports.emit(kind, text, **about)

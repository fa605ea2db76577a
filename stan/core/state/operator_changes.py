"""Changes that operators, and their policies, make to a cursor: it is moved, paused or deleted, or its messages are skipped, sent
again, or become dead letters. What they leave behind is in stan.core.state.cursor_override.
"""

from typing import Any

from stan_protocol.refusals import CURSOR_GONE, TOO_MANY_SKIPPED
from stan_protocol.scalars import RaftIndex

from stan import limits
from stan.core.base.runs import Run, pairs
from stan.core.state.cursor_override import CursorOverride, of_cursor
from stan.core.state.cursors import Cursor
from stan.core.state.group_state import GroupResult, GroupState, OperatorChange

OPERATOR_CHANGES = frozenset(
    {"move_cursor", "skip_sequences", "send_again", "pause_cursor", "drop_cursor", "dead_letters"}
)


def change_cursor(state: GroupState, name: str, change: Any, index: RaftIndex) -> GroupResult:
    """Apply the change with that *name*, in OPERATOR_CHANGES."""
    cursor = state.cursors.get(change.cursor_id)
    if cursor is None:
        return GroupResult(error=CURSOR_GONE)
    done = OperatorChange(name, cursor.last_sent)
    result = GroupResult(cursor=cursor, operator_change=done)
    override = cursor.override or of_cursor(cursor.past.start_sequence)
    match name:
        case "move_cursor":
            _move(state, cursor, override, change.sequence - 1)
            override.epoch, override.moved_at, done.changed = index, change.at, 1
        case "skip_sequences":
            done.runs = list(pairs(change.runs))
            if override.skipped.pieces + len(done.runs) > limits.OVERRIDE_RUNS_MAX:
                return GroupResult(error=TOO_MANY_SKIPPED)
            before = _unacked(cursor) - len(override.skipped)
            for first, last in done.runs:
                state.take(cursor, first, last)
                _skip(cursor, override, first, last)
            done.changed = before - _unacked(cursor) + len(override.skipped)
            override.epoch = index
        case "send_again":
            done.runs = list(pairs(change.runs)) or [(1, cursor.last_sent)]
            done.changed = _send_again(state, cursor, done.runs)
        case "pause_cursor":
            done.changed = int(override.paused != change.paused)
            override.paused, override.pause_reason = change.paused, change.reason
        case "dead_letters":
            done.runs = list(pairs(change.runs))
            settle_dead_letters(state, cursor, override, done.runs)
        case "drop_cursor":
            state.remove_cursor(cursor)
            result.ended, done.changed = True, 1
    cursor.override = None if override.idle else override
    state.dirty.cursors.add(cursor.cursor_id)
    return result


def _move(state: GroupState, cursor: Cursor, override: CursorOverride, to: int) -> None:
    override.move(cursor.last_sent, cursor.maybe_sent_until, to)
    for member in cursor.members:
        member.pending.clear()
        member.last_sent = min(member.last_sent, to)
        state.dirty.subscriptions.add(member.subscription_id)
    cursor.to_redeliver.clear()
    cursor.last_sent, cursor.maybe_sent_until = to, 0


def _skip(cursor: Cursor, override: CursorOverride, first: int, last: int) -> None:
    """Skip those of [first, last] that the cursor has not reached."""
    if last > cursor.last_sent:
        override.skipped.merge(Run(max(first, cursor.last_sent + 1), last))


def _unacked(cursor: Cursor) -> int:
    return len(cursor.to_redeliver) + sum(len(member.pending) for member in cursor.members)


def settle_dead_letters(
    state: GroupState, cursor: Cursor, override: CursorOverride, runs: list[tuple[int, int]]
) -> None:
    """Settle messages that became dead letters, also those that the cursor was moved back behind meanwhile."""
    for first, last in runs:
        state.take(cursor, first, last)
        if override.skipped.pieces < limits.OVERRIDE_RUNS_MAX:
            _skip(cursor, override, first, last)


def _send_again(state: GroupState, cursor: Cursor, runs: list[tuple[int, int]]) -> int:
    """Take these messages from the members, to be redelivered, and count their deliveries from 0. Returns how many they are."""
    for first, last in runs:
        found = cursor.to_redeliver.remove(first, last)
        for member in cursor.members:
            if taken := member.pending.remove(first, last):
                found += taken
                state.dirty.subscriptions.add(member.subscription_id)
        for run in found:
            cursor.to_redeliver.add(Run(run.first, run.last))
    return sum(run.size for first, last in runs for run in cursor.to_redeliver.within(first, last))

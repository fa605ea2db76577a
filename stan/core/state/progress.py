"""Progress of a group's cursors: what their leader, or the node that serves them, has sent and which acks it has."""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from stan_protocol.scalars import RaftIndex

from stan.core.base.runs import Runs, counted_runs, pairs, size_of
from stan.core.state.cursors import Cursor
from stan.core.state.group_state import GroupResult, GroupState
from stan.protocol.kernel import server as kernel
from stan.protocol.proto import entries_pb2 as pb

_MANY_NUMBERS: Final = 32
"""Ends of runs in a progress entry from which on the runs are looked at together."""


def apply_progress(state: GroupState, change: pb.GroupChange) -> None:
    """Apply the progress that an entry has beside its change."""
    for progress in _still_served(state, change) if change.served_since else change.progress:
        cursor = state.cursors.get(progress.cursor_id)
        if cursor is None or cursor.uid in state.moves.held:
            continue
        if cursor.override is not None and progress.epoch != cursor.override.epoch:
            # When the leader reported it, it did not know yet that the cursor was moved or messages were skipped. Only the fact
            # that messages were sent counts.
            for first, last in chain(pairs(progress.acked), *(pairs(held.runs) for held in progress.held)):
                cursor.override.was_sent(first, last, cursor.last_sent)
            state.dirty.cursors.add(cursor.cursor_id)
        else:
            _advance(state, cursor, progress, change.at)


def _still_served(state: GroupState, change: pb.GroupChange) -> Iterator[pb.Progress]:
    """Progress that a node tells which is not the leader: of what it serves still."""
    for progress, since in zip(change.progress, change.served_since, strict=False):
        cursor = state.cursors.get(progress.cursor_id)
        if since and cursor is not None and cursor.members and cursor.members[0].served.since == since:
            yield progress


def _advance(state: GroupState, cursor: Cursor, progress: pb.Progress, at: int) -> None:
    """Apply progress of the cursor's epoch; *at*: Unix ns, 0: the entry tells no time."""
    taken = _take_many(state, cursor, progress)
    if not taken:
        for first, last in pairs(progress.acked):
            state.take(cursor, first, last)
    for held in progress.held:
        member = state.subscriptions.by_id.get(held.subscription_id)
        if member is not None and member.cursor_id != cursor.cursor_id:
            member = None
        runs = cursor.to_redeliver if member is None else member.pending
        if taken and len(held.runs) >= _MANY_NUMBERS and cursor.uid not in state.tombstones.by_channel:
            runs.add_counted(held.runs, held.counts)
        else:
            _hold(state, cursor, runs, held, taken=taken)
        if member is not None:
            member.last_sent = max(member.last_sent, member.pending.last)
            state.dirty.subscriptions.add(member.subscription_id)
    cursor.last_sent = max(cursor.last_sent, progress.last_sent)
    if cursor.override is not None:
        cursor.override.passed(cursor.last_sent)
    if at:
        cursor.timed(at, acked=size_of(pairs(progress.acked)) > size_of(pairs(progress.removed)))
    state.dirty.cursors.add(cursor.cursor_id)


def _hold(state: GroupState, cursor: Cursor, runs: Runs, held: pb.Held, *, taken: bool) -> None:
    """Add what a progress entry tells of one holder to its *runs*; *taken*: it was taken from those who had it before. Deleted
    messages are nobody's."""
    for run in counted_runs(held.runs, held.counts):
        first, last, *_ = run
        if not taken:
            state.take(cursor, first, last)
        runs.add(run)
        for gone in state.tombstones.within(cursor.uid, first, last):
            state.take(cursor, gone.first, gone.last)


def _take_many(state: GroupState, cursor: Cursor, progress: pb.Progress) -> bool:
    """Take all sequences that a progress entry tells of from those who had them, in one pass. Returns False if none is taken, as
    they are few, or not disjoint."""
    count = len(progress.acked)
    for held in progress.held:
        count += len(held.runs)
    if count < _MANY_NUMBERS:
        return False
    parts = sorted(chain(pairs(progress.acked), *(pairs(held.runs) for held in progress.held)))
    if not kernel.disjoint(parts):
        return False
    state.take_each(cursor, parts)
    return True


def maybe_sent(state: GroupState, change: pb.MaybeSent, _index: RaftIndex) -> GroupResult:
    """Note up to where messages of cursors may have been sent before an entry records it."""
    for cursor_id, until in pairs(change.until):
        cursor = state.cursors.get(cursor_id)
        if cursor is not None and cursor.uid not in state.moves.held:
            cursor.maybe_sent_until = max(cursor.maybe_sent_until, until)
            state.dirty.cursors.add(cursor_id)
    return GroupResult()

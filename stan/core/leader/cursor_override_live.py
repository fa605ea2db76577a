"""Operators' changes to a cursor in the leader's live view, which follows them once they are committed; and a new epoch of an
ephemeral channel, which empties it.

Between proposal and commit the leader continues with the cursor as it was. Deliveries made meanwhile and not yet reported are
reported with the previous epoch, so that a repeat of them is flagged, whichever leader sends it.
"""

from stan.core.base.runs import Run, Runs
from stan.core.leader.cursors import LiveCursor
from stan.core.state.group_state import OperatorChange
from stan.protocol.proto import entries_pb2 as pb


def adopt_override(live: LiveCursor) -> None:
    """Copy the override of the replicated cursor into a new live view."""
    override = live.cursor.override
    if override is not None:
        live.unreported.epoch = override.epoch
        live.ahead.skip = _copy(override.skipped)
        live.ahead.resend = _copy(override.resend)


def follow(live: LiveCursor, change: OperatorChange) -> None:
    """An operator's change to a cursor was applied to the replicated state: change the live view accordingly."""
    match change.name:
        case "move_cursor":
            _moved(live, change.before)
        case "skip_sequences":
            _skipped(live, change.runs)
        case "send_again":
            _sent_again(live, change.runs)
        case "dead_letters":
            _given_up(live, change.runs)
        case "pause_cursor" if live.policy.dead_letter and not live.cursor.paused:
            _resumed(live)


def _new_epoch(live: LiveCursor) -> None:
    if live.has_unreported:
        live.unreported.earlier_epochs.append(live.report(pb.Progress()))
    override = live.cursor.override
    live.unreported.epoch = override.epoch if override is not None else 0


def begin_anew(live: LiveCursor) -> None:
    """The channel is empty, and the replicated cursor stands behind all that it had: nothing is owed, skipped or resent."""
    ahead = live.ahead
    ahead.skip.clear()
    ahead.resend.clear()
    _drop_all(live, live.cursor.last_sent)
    live.unreported.forget(live.last_sent)


def _moved(live: LiveCursor, before: int) -> None:
    sent, to, ahead = live.last_sent, live.cursor.last_sent, live.ahead
    not_sent = _copy(ahead.skip)
    _new_epoch(live)
    adopt_override(live)
    if sent > max(before, to):
        for first, last in not_sent.missing(max(before, to) + 1, sent):
            ahead.resend.merge(Run(first, last))
    if ahead.maybe_sent_until > max(sent, to):
        ahead.resend.merge(Run(max(sent, to) + 1, ahead.maybe_sent_until))
    _drop_all(live, to)


def _drop_all(live: LiveCursor, to: int) -> None:
    """The cursor goes on behind *to*, and owes nothing."""
    for member in live.members:
        if member.adaptive is not None:
            member.adaptive.forget_late()
    live.pending.clear()
    live.unreported.marks.clear()
    live.reads.batches.clear()
    live.reads.fetching = live.ahead.maybe_sent_until = 0  # an answer to the Fetch under way is ignored
    live.last_sent = live.unreported.last_sent = to


def _skipped(live: LiveCursor, runs: list[tuple[int, int]]) -> None:
    _new_epoch(live)
    for first, last in runs:
        live.pending.settle(first, last)
        if last > live.last_sent:
            live.ahead.skip.merge(Run(max(first, live.last_sent + 1), last))
    # Progress entries of the previous epoch may have been ignored meanwhile: report everything again.
    known = [member.pending for member in live.cursor.members] + [live.cursor.to_redeliver]
    for part in (*live.pending.everywhere, *known):
        for run in part:
            live.unreported.mark(run.first, run.last)
    live.unreported.last_sent = -1


def _sent_again(live: LiveCursor, runs: list[tuple[int, int]]) -> None:
    for first, last in runs:
        live.unreported.mark_each(live.pending.send_again(first, last, counted=bool(live.policy.max_deliver)))


def _resumed(live: LiveCursor) -> None:
    """An operator lets the position go on, after an outage perhaps: messages that were given up and are no dead letters yet
    are sent once more, and dead letters are counted from zero again. Messages that a client has rejected stay given up."""
    if live.pending.moves is not None:
        live.pending.moves.recent.clear()
    live.pending.resume(live.policy)


def _given_up(live: LiveCursor, runs: list[tuple[int, int]]) -> None:
    """The messages are in the dead letter channel: they are settled."""
    for first, last in runs:
        live.pending.settle(first, last)
        live.unreported.settled(first, last)
        if last > live.last_sent:
            live.ahead.skip.merge(Run(max(first, live.last_sent + 1), last))


def _copy(runs: Runs) -> Runs:
    return Runs(Run(run.first, run.last) for run in runs)

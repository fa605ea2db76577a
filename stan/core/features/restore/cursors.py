"""Positions of a backup as rows of the state. Pure."""

from typing import Final

from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.scalars import ChannelUid

from stan.core.base.runs import Run, Runs, counted_of, counted_runs, pairs
from stan.core.state.cursor_override import well_formed
from stan.core.state.cursors import CursorKind, kind_and_name
from stan.protocol.proto import entries_pb2 as pb

SEQUENCE_END: Final = 1 << 62
"""Sequences of a backup are below this: the rest is more than will ever be published, and fits into the integers of SQLite."""


def cursor_row(uid: ChannelUid, cursor: admin.CursorStatus) -> pb.Cursor | None:
    """The state row of a durable that a backup describes, without members; None if the description is invalid."""
    kind, name = kind_and_name(cursor.queue_group, cursor.durable_name)
    runs = (cursor.owed_runs, cursor.pending_runs, cursor.counted_runs)
    if not kind.durable or cursor.kind != kind.value or not all(map(well_formed, runs)):
        return None
    if kind is CursorKind.DURABLE and not cursor.client_id:
        return None
    to_redeliver = Runs()
    for first, last in (pair for flat in runs[:2] for pair in pairs(flat)):
        to_redeliver.merge(Run(first, last))
    if cursor.runs_cut:  # which of them is unknown
        to_redeliver.merge(Run(cursor.acked_up_to + 1, max(cursor.last_sent, cursor.acked_up_to + 1)))
    to_redeliver.remove(cursor.last_sent + 1, SEQUENCE_END)
    for run in counted_runs(cursor.counted_runs, cursor.counts):
        for part in to_redeliver.remove(run.first, run.last):
            to_redeliver.add(Run(part.first, part.last, 0, run.count))
    numbers, counts = counted_of(to_redeliver)
    row = pb.Cursor(
        uid=uid,
        name=name,
        kind=kind,
        client_id=cursor.client_id,
        last_sent=min(cursor.last_sent, SEQUENCE_END),
        to_redeliver=numbers,
        counts=counts if any(counts) else (),
        inbox=cursor.inbox,
        max_in_flight=cursor.max_in_flight,
        ack_wait_s=cursor.ack_wait_s,
    )
    if cursor.paused:
        row.override.paused = True
    return row

"""The messages of a `restore_rows` request, on the leader: checked, parted where sequences are missing, and with their expiries
and schedules. Pure."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from stan_protocol import refusals
from stan_protocol.kernel.wire_py import records_in
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND, ChannelUid

from stan import limits
from stan.core.base.runs import pairs
from stan.core.features.restore.cursors import SEQUENCE_END
from stan.core.publishing.expiry_rows import EXPIRY_BYTES, expiring_change, runs_of
from stan.core.publishing.row_batch import refusal, sealed_size
from stan.core.state.cursor_override import well_formed
from stan.core.state.group import GroupMachine
from stan.protocol.expiry import stamped
from stan.protocol.jetstream import schedules
from stan.protocol.jetstream.headers import SCHEDULE
from stan.protocol.proto import entries_pb2 as pb

_LENGTH = Struct("<I")
LATEST: Final = ((1 << 63) - 1) // SECOND
"""Unix seconds: a stored message tells its expiry in signed nanoseconds."""
RUNS_MAX: Final = limits.EXPIRING_RUNS_MAX + limits.DELETED_RUNS_MAX
"""Runs of a channel that is restored: as many as it may have had, where each message that was deleted meanwhile parts one."""


class Part(NamedTuple):
    """Messages of one run that the channel does not have yet."""

    first: int
    count: int  # type: ignore[assignment] # hides tuple.count, which nobody calls on a part
    timestamp: int
    bodies: bytes
    times: "array[int]"  # when each expires, in Unix seconds, 0: it does not; empty: none of the request does


def fault(request: admin.RestoreRowsRequest, payload_max: int) -> str:
    """Return why the messages of a request cannot be stored, whatever is there; "" if they can.

    Args:
        request: the request.
        payload_max: largest payload of a message to a subscriber, in bytes.
    """
    room = payload_max - EXPIRY_BYTES if request.expire_at else payload_max
    count = sum(run.count for run in request.runs)
    return refusal(request.channel, request.rows, count, room) or _disorder(request) or _expiry_fault(request)


def _disorder(request: admin.RestoreRowsRequest) -> str:
    """Return why the runs of a request are invalid; "" if they are valid."""
    last = 0
    for run in request.runs:
        if not last < run.first_sequence or not run.count or run.timestamp <= 0:
            return refusals.RESTORED_OUT_OF_ORDER
        last = run.first_sequence + run.count - 1
    return "" if last < SEQUENCE_END else refusals.INVALID_RESTORE


def _expiry_fault(request: admin.RestoreRowsRequest) -> str:
    """Return why the expiries of a request, the rest of which is valid, cannot be stored; "" if they can."""
    runs, times = request.expiring_runs, request.expire_at
    if not runs and not times:
        return ""
    if not well_formed(runs) or len(runs) != 2 * len(times) or not all(0 < at <= LATEST for at in times):
        return refusals.INVALID_RESTORE
    newest = request.runs[-1].first_sequence + request.runs[-1].count - 1
    if runs[0] < request.runs[0].first_sequence or runs[-1] > newest:
        return refusals.INVALID_RESTORE
    if any(one[1] >= after[0] for one, after in pairwise(pairs(runs))):
        return refusals.RESTORED_OUT_OF_ORDER
    count = sum(run.count for run in request.runs)
    size = sealed_size(request.channel, len(request.rows), count) + EXPIRY_BYTES * count
    return refusals.TOO_MANY_ROWS if size > limits.ROWS_BYTES_MAX else ""


def missing(request: admin.RestoreRowsRequest, next_sequence: int) -> Iterator[Part]:
    """The messages of a request from the sequence *next_sequence* on, run by run."""
    rows, times, at, place = request.rows, _times_of(request), 0, 0
    for run in request.runs:
        begin, skipped = at, max(0, min(run.count, next_sequence - run.first_sequence))
        for number in range(run.count):
            if number == skipped:
                begin = at
            at += _LENGTH.size + _LENGTH.unpack_from(rows, at)[0]
        if skipped < run.count:
            of_part, bodies = times[place + skipped : place + run.count], rows[begin:at]
            if any(of_part):
                bodies = stamped(bodies, of_part)
            yield Part(run.first_sequence + skipped, run.count - skipped, run.timestamp, bodies, of_part)
        place += run.count


def _times_of(request: admin.RestoreRowsRequest) -> "array[int]":
    """When each message of a valid request expires, in Unix seconds, 0: it does not; empty if none does."""
    times = array("q")
    if not request.expire_at:
        return times
    begins, ends, at = request.expiring_runs[::2], request.expiring_runs[1::2], request.expire_at
    for run in request.runs:
        first, end = run.first_sequence, run.first_sequence + run.count
        here = array("q", bytes(times.itemsize * run.count))
        for place in range(bisect_left(ends, first), bisect_left(begins, end)):
            begin, stop = max(begins[place] - first, 0), min(ends[place] + 1, end) - first
            here[begin:stop] = array("q", [at[place]]) * (stop - begin)
        times += here
    return times


def widest_gap(parts: list[Part], base: int, last: int) -> int:
    """The length of the longest run of sequences that stay unused before and between *parts*, which begin at *base* or later, and
    up to *last*."""
    ends = [base, *(part.first + part.count for part in parts)]
    return max(upto - end for end, upto in zip(ends, [*(part.first for part in parts), last + 1], strict=True))


def listing(uid: ChannelUid, parts: Iterable[Part]) -> tuple[list[bytes], int]:
    """The change that lists which of these messages expire, if any does, and how many runs it has."""
    runs: list[int] = []
    times: list[int] = []
    for part in parts:
        places, found = runs_of(part.times)
        runs += [part.first + place for place in places]
        times += found
    return [expiring_change(uid, runs, times, 0)] if times else [], len(times)


def schedules_of(uid: ChannelUid, parts: Iterable[Part], now: int) -> tuple[list[bytes], int]:
    """The change that lists which of these messages are schedules of a stream, if any is, and how many are. Of those that repeat
    times before *now*, Unix ns, are left out."""
    change = pb.Scheduled(uid=uid)
    for part in parts:
        rows = records_in(part.bodies) if SCHEDULE in part.bodies else ()
        for sequence, (start, end) in enumerate(rows, part.first):
            message = wire.MsgProto.FromString(part.bodies[start:end])
            message.timestamp = part.timestamp
            wanted = schedules.of_message(message)
            if wanted is not None and message.key:
                change.sequences.append(sequence)
                missed = wanted.repeats and wanted.due < now
                change.dues.append(schedules.following(wanted.repeats, wanted.due, now) if missed else wanted.due)
                change.subjects.append(message.key)
    count = len(change.sequences)
    return [pb.GroupChange(scheduled=change).SerializeToString()] if count else [], count


def too_many(machine: GroupMachine, uid: ChannelUid, gaps: int, expiring: int, scheduled: int) -> str:
    """Why a channel cannot have so many more runs of unused sequences, of messages that expire, and schedules; "" if it can."""
    if machine.schedules.count(uid) + scheduled > limits.DELETED_RUNS_MAX:
        return refusals.INVALID_RESTORE
    known = machine.tombstones.by_channel.get(uid)
    if (known.pieces if known is not None else 0) + gaps > limits.DELETED_RUNS_MAX:
        return refusals.TOO_MANY_DELETED
    return refusals.TOO_MANY_EXPIRING if expiring and machine.expiries.pieces(uid) + expiring > RUNS_MAX else ""

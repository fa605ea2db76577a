"""Deliveries of a leader and their causes, until a progress entry reports them.

    delivery ─► Sending, one for each run ─► Sent in the next progress entry, one for each (member, cause, count)

It changes no state: the account of a message (stan.core.features.queries.account) is read from the log.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from stan_protocol.scalars import Nanos

from stan.core.base.ready import ReadResult, ReportMoment
from stan.core.base.runs import Run, Runs, pairs
from stan.protocol.proto import entries_pb2 as pb

MICROSECOND = 1000
CLIENT_ID_BYTES_MAX = 128
"""Of a longer client id only the beginning is recorded."""


class Sending(NamedTuple):
    """The messages [first, last], sent to a member for one cause, one behind the other."""

    subscription_id: int
    client_id: bytes
    cause: int
    count: int  # type: ignore[assignment]  # redeliveries, this one included
    first: int
    last: int
    at: Nanos
    until: int = 0  # Nanos, when the last of them was sent; 0: all were sent at once


sending_of = partial(tuple.__new__, Sending)
"""Makes a Sending of a tuple with all of its items, in half the time that its constructor takes, which is a Python function."""


def recorded(sendings: Iterable[Sending], moment: ReportMoment) -> list[pb.Sent]:
    """Records for a progress entry of *sendings*, which are in the order in which they were made. A Sent has its messages in
    increasing order, so that each delivery is in one, and a repeat in another."""
    records: dict[tuple[int, int, int], pb.Sent] = {}
    runs: dict[tuple[int, int, int], list[int]] = {}
    newest: dict[tuple[int, int, int], int] = {}
    out: list[pb.Sent] = []
    now = moment.now
    before, known = None, None  # of the sending before: as a rule many follow each other that go into one record
    for subscription_id, client_id, cause, count, first, last, at, until in sendings:
        key = (subscription_id, cause, count)
        if key != before:
            before, known = key, runs.get(key)
        if known is None or first <= known[-1]:
            if known is not None:
                _complete(records[key], known, newest[key], now)
            known = runs[key] = [first, last]
            made = records[key] = pb.Sent(
                subscription_id=subscription_id,
                client_id=client_id[:CLIENT_ID_BYTES_MAX],
                cause=cause,
                count=count,
                first_ago=max(now - at, 0) // MICROSECOND,
            )
            out.append(made)
        elif known[-1] + 1 == first:
            known[-1] = last
        else:
            known += (first, last)
        newest[key] = until or at
    for key, made in records.items():
        _complete(made, runs[key], newest[key], now)
    return out


def _complete(made: pb.Sent, runs: list[int], at: int, now: Nanos) -> None:
    made.runs.extend(runs)
    made.last_ago = max(now - at, 0) // MICROSECOND


def recalled(entry: pb.Progress, made_at: Nanos) -> Iterator[Sending]:
    """The sendings of a progress entry that was made at *made_at* and not written: they are reported again."""
    for sent in entry.sent:
        at = Nanos(made_at - sent.first_ago * MICROSECOND)
        for first, last in pairs(sent.runs):
            yield Sending(sent.subscription_id, sent.client_id, sent.cause, sent.count, first, last, at)


def lost_of(runs: Iterable[tuple[int, int]], batches: Iterable[ReadResult]) -> Iterator[tuple[int, int]]:
    """Yield the parts of *runs* that the log does not have any more; *batches*: the answer to a read of them, which may end
    early: only gaps below its end are lost."""
    there = Runs()
    for batch in batches:
        there.merge(Run(batch.base_sequence, batch.base_sequence + batch.count - 1))
    for first, last in runs:
        yield from there.missing(first, min(last, there.last) if there else last)


def withdrawn(sendings: list[Sending], subscription_id: int, first: int, last: int) -> list[Run]:
    """Messages [first, last] did not leave for a member: take their newest sending out of *sendings*, which no entry records yet.
    Returns the runs that were there, with the cause as the count, in no order."""
    found: list[Run] = []
    missing = Runs([Run(first, last)])
    for at in range(len(sendings) - 1, -1, -1):
        one = sendings[at]
        taken = missing.remove(one.first, one.last) if one.subscription_id == subscription_id else []
        if not taken:
            continue
        kept = Runs([Run(one.first, one.last)])
        for run in taken:
            kept.remove(run.first, run.last)
            found.append(Run(run.first, run.last, 0, one.cause))
        sendings[at : at + 1] = [one._replace(first=run.first, last=run.last) for run in kept]
        if not missing:
            break
    return found

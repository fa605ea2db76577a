"""Batches: rows that come in one request and are stored in one entry, each id once (request `batch` of the extension).

    request ─► checked ─► channel found or made ─┬─ without ids ─────────────────────► Publishing
                                                 └─ ids: one entry of a producer and channel at a time, ─► Publishing
                                                    without the rows whose ids its window knows

Promises: an answer without error means that every row is stored, now or before; the ids of the rows go into the log with them, so
that the next leader leaves repeated rows out as this leader does; "ask again" means that this request stored none of its rows.
"""

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from stan_protocol.channels import publication
from stan_protocol.compression import rows_of
from stan_protocol.kernel.rows import ID_BYTES, IdSet, pick_ids, pick_rows
from stan_protocol.proto.extension_pb2 import BatchResponse
from stan_protocol.refusals import BUSY, IDS_FORGOTTEN, INVALID_BATCH, INVALID_FRAME, PARTS_DOUBLING, TOO_MANY_IDS

from stan import limits
from stan.core.base.shares import Shares, of_user
from stan.core.leader.local_group import Leadership
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.part_routing import rows_refusal
from stan.core.publishing.publishing import ENTRY_BYTES_TARGET, Publishing, StoringPart
from stan.core.publishing.row_batch import RowBatch, StoreResult, can_open_later, refusal
from stan.core.requests.request import AcceptedRequest
from stan.core.services.services import Services
from stan.core.state.dedup import Name, ProducerDedup, both
from stan.protocol.proto import entries_pb2 as pb


class _Batch(NamedTuple):
    """A BatchRequest with its fields; reading a field of the message makes a copy, so each is read once."""

    asked: AcceptedRequest  # without the message
    channel: bytes
    rows: bytes
    number: int  # of rows
    ids: bytes
    producer: bytes  # prefixed by the user, so that ids of different users are never duplicates of each other
    version: int
    frame: bytes  # in which the rows came; b"": they came in clear

    def refuse(self, error: str, *, retry: bool = False) -> None:
        """Answer that nothing was stored. No "ask again" if the lease has lapsed and the rows have no ids: another leader may
        have stored the rows, and a repeat would store them twice."""
        if self.ids or not (retry and self.asked.group.dispatch.stops.lease_lapsed):
            self.asked.refuse(error, retry=retry)


@dataclass(slots=True)
class _ProducerQueue:
    """The requests of one producer for one channel, in order of arrival."""

    channel: LiveChannel
    waiting: deque[_Batch] = field(default_factory=deque)
    busy: bool = False  # an entry is on its way
    going: bool = False  # `_go_on` is running


class Batching(StoringPart):
    """Handles the request `batch` in one group, while this node leads it."""

    def __init__(
        self, services: Services, leadership: Leadership, channels: LiveChannels, publishing: Publishing
    ) -> None:
        super().__init__(services, leadership, channels, publishing)
        self.lines: dict[Name, _ProducerQueue] = {}
        self.waiting = Shares()  # bytes of rows, by user

    # --- requests -----------------------------------------------------------------------------------------------------

    def batch(self, accepted: AcceptedRequest) -> None:
        """A BatchRequest."""
        request = accepted.request
        frame, rows = request.compressed_rows, request.rows
        if frame and rows:
            accepted.refuse(INVALID_BATCH)
            return
        try:
            rows = rows if not frame else rows_of(frame, limits.COMPRESSED_ROWS_BYTES_MAX)
        except ValueError:
            accepted.refuse(INVALID_FRAME.format(limits.COMPRESSED_ROWS_BYTES_MAX))
            return
        batch = _Batch(
            accepted._replace(request=None),
            request.channel,
            rows,
            request.count,
            request.ids,
            of_user(accepted.user, request.producer) if request.producer else b"",
            request.version,
            frame,
        )
        user = accepted.user
        error = _refusal(batch) or refusal(
            batch.channel,
            batch.rows,
            batch.number,
            self.nats.message_payload_max(batch.channel),
        )
        if error:
            batch.refuse(error)
        elif self.waiting.of(user) and len(batch.rows) > self.waiting.left(user, limits.BATCH_BYTES_WAITING_MAX):
            batch.refuse(BUSY, retry=True)
        else:
            self.reports.totals.in_messages += batch.number
            self.reports.totals.in_bytes += accepted.request.ByteSize()
            self.waiting.add(user, len(batch.rows))
            self.channels.openings.open(batch.channel, partial(self._found, batch))

    def _found(self, batch: _Batch, channel: LiveChannel | None, error: str) -> None:
        if channel is not None and (error := rows_refusal(self.node.meta, channel, batch.rows)):
            self._opened(batch, None, error, error == PARTS_DOUBLING)
        elif channel is None:
            self._opened(batch, None, error, can_open_later(error))
        else:
            self.publishing.schemas.rows(channel, batch.rows, batch.number, partial(self._opened, batch))

    def _opened(self, batch: _Batch, channel: LiveChannel | None, error: str, retry: bool) -> None:  # noqa: FBT001
        if channel is None:
            self._left(batch)
            batch.refuse(error, retry=retry)
        elif not batch.ids:
            self._left(batch)
            on_done = partial(self._stored, [(batch, batch.number)])
            self.publishing.add(channel, RowBatch(batch.rows, batch.number, on_done, frame=batch.frame))
        else:
            named = channel.info.uid, batch.producer
            line = self.lines.setdefault(named, _ProducerQueue(channel))
            line.waiting.append(batch)
            if not line.busy and not line.going:
                self._go_on(line, named)

    def _left(self, batch: _Batch) -> None:
        self.waiting.add(batch.asked.user, -len(batch.rows))

    # --- ids ----------------------------------------------------------------------------------------------------------

    def _go_on(self, line: _ProducerQueue, named: Name) -> None:
        """Store the next requests of a producer's queue, as one entry."""
        line.going = True
        while line.waiting and not line.busy:
            taken = self._take(line)
            dedup = self.group.machine.dedup
            self._propose(line, named, taken, dedup)
        line.going = False
        if not line.busy:
            self.lines.pop(named, None)

    def _take(self, line: _ProducerQueue) -> list[_Batch]:
        """Take requests from the front of a producer's queue for one entry: of one version, not too large together, and either
        one that came compressed or several that came in clear."""
        first = line.waiting.popleft()
        taken, size = [first], len(first.rows)
        while (
            line.waiting
            and line.waiting[0].version == first.version
            and not (first.frame or line.waiting[0].frame)
            and size + len(line.waiting[0].rows) <= ENTRY_BYTES_TARGET
        ):
            taken.append(line.waiting.popleft())
            size += len(taken[-1].rows)
        for batch in taken:
            self._left(batch)
        return taken

    def _propose(self, line: _ProducerQueue, named: Name, taken: list[_Batch], dedup: ProducerDedup) -> None:
        """Store the rows of *taken* whose ids are new."""
        version = taken[0].version
        if dedup.is_past(*named, version):
            for batch in taken:
                batch.refuse(IDS_FORGOTTEN)
            return
        fresh = IdSet()
        rows: list[bytes] = []
        ids: list[bytes] = []
        counted: list[tuple[_Batch, int]] = []
        remembered = 0
        for batch in taken:
            unheard = dedup.unheard(*named, version, batch.ids)
            if not dedup.has_room(*named, version, remembered + unheard.count(1), batch.asked.user):
                batch.refuse(TOO_MANY_IDS)
                continue
            first = fresh.add(batch.ids)
            new, unheard = both(first, dedup.missing(*named, batch.ids)), both(first, unheard)
            count = new.count(1)
            rows.append(batch.rows if count == batch.number else pick_rows(batch.rows, new))
            ids.append(pick_ids(batch.ids, unheard))
            counted.append((batch, count))
            remembered += unheard.count(1)
        if not remembered:
            self._stored(counted, StoreResult())
            return
        line.busy = True
        remember = pb.RememberIds(
            uid=named[0], producer=named[1], version=version, ids=b"".join(ids), at=self.node.clock.wall
        )
        after = partial(self._stored_ids, line, named, counted)
        total = sum(count for _, count in counted)
        if total:
            change = pb.GroupChange(remember_ids=remember).SerializeToString()
            frame = taken[0].frame if total == taken[0].number else b""
            found = RowBatch(b"".join(rows), total, after, lambda _first: change, frame=frame)
            self.publishing.add(line.channel, found)
        else:  # all rows are stored, some by an older version, whose ids are forgotten first
            self.change(
                lambda result, error: after(StoreResult(error=error, retry=result is None)),
                partial(self._next, line, named),
                remember_ids=remember,
            )

    def _stored_ids(
        self, line: _ProducerQueue, named: Name, counted: list[tuple[_Batch, int]], stored: StoreResult
    ) -> None:
        self._stored(counted, stored)
        self._next(line, named)

    def _next(self, line: _ProducerQueue, named: Name) -> None:
        """The entry under way is done, or none will tell."""
        line.busy = False
        if not line.going:
            self._go_on(line, named)

    # --- answers --------------------------------------------------------------------------------------------------------

    def _stored(self, counted: list[tuple[_Batch, int]], stored: StoreResult) -> None:
        """Answer requests whose rows were stored one after the other; *counted*: each request and its number of stored rows."""
        first = stored.first
        for batch, count in counted:
            if stored.error:
                batch.refuse(stored.error, retry=stored.retry)
                continue
            response = BatchResponse(duplicates=batch.number - count)
            if count:
                response.first_sequence, response.last_sequence = first, first + count - 1
            first += count
            answer = publication(batch.asked.reply, response.SerializeToString())
            if stored.in_memory:
                self.outgoing.answer_as_leader(self.number, answer)
            else:
                self.outgoing.pub_acks.append(answer)


def _refusal(batch: _Batch) -> str:
    """Return why the ids of a request are invalid; "" if they are valid."""
    good = not batch.ids or (
        len(batch.ids) == ID_BYTES * batch.number
        and 0 < len(batch.producer) <= limits.PRODUCER_BYTES_MAX
        and batch.version >= 0
    )
    return "" if good else INVALID_BATCH

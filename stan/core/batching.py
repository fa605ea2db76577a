"""Batches: rows that come in one request and are stored in one entry, each id once (request `batch` of the extension).

    request ─► checked ─► channel found or made ─┬─ without ids ─────────────────────► Publishing
                                                 └─ ids: one entry of a producer and channel at a time, ─► Publishing
                                                    without the rows whose ids its window knows

Promises: an answer without error means that every row is stored, now or before; the ids of the rows go into the log with them, so
that whoever leads next leaves them out as this leader does; "ask again" means that no row of the request was stored by it.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial

from stan import limits
from stan.core.asked import Asked, asked
from stan.core.channels import Channel, Channels
from stan.core.intake import Rows, Stored, can_open_later, refusal
from stan.core.publishing import ENTRY_BYTES_TARGET, Publishing
from stan.core.shared import Shared
from stan.core.windows import Name, Windows, both
from stan.errors import INVALID_BATCH, TOO_MANY_IDS, VERSION_PAST
from stan.protocol import entries_pb2 as pb
from stan.protocol.channels import publication
from stan.protocol.extension_pb2 import BatchRequest, BatchResponse
from stan.protocol.frames import Frame
from stan.protocol.rows import ID_BYTES, IdSet, pick_ids, pick_rows
from stan.types import GroupId


@dataclass(slots=True)
class _Line:
    """The requests of one producer for one channel, in order of arrival."""

    channel: Channel
    waiting: deque[Asked] = field(default_factory=deque)
    busy: bool = False  # an entry is on its way
    going: bool = False  # the next ones are being looked at


class Batching:
    """See the module's docstring."""

    def __init__(self, shared: Shared, channels: Channels, publishing: Publishing) -> None:
        self.shared = shared
        self.channels = channels
        self.publishing = publishing
        self.lines: dict[GroupId, dict[Name, _Line]] = {}
        self.waiting: Counter[GroupId] = Counter()  # bytes

    def follow(self, number: GroupId) -> None:
        """This node leads a group no more, and answers nobody: its next leader is asked again."""
        self.lines.pop(number, None)
        self.waiting.pop(number, None)

    # --- requests -----------------------------------------------------------------------------------------------------

    def batch(self, frame: Frame) -> None:
        """A request came."""
        kinds = (BatchRequest, BatchResponse)
        found = asked(self.shared, frame, kinds, lambda request: request.channel, INVALID_BATCH, once=_is_without_ids)
        if found is None:
            return
        request = found.request
        error = _refusal(request) or refusal(
            request.channel, request.rows, request.count, self.shared.payload_bytes_max
        )
        if error:
            found.refuse(error)
        elif self.waiting[found.number] + len(request.rows) > limits.BATCH_BYTES_WAITING_MAX:
            found.busy()
        else:
            self.shared.totals.in_messages += request.count
            self.shared.totals.in_bytes += len(frame.payload)
            self.waiting[found.number] += len(request.rows)
            self.channels.open(request.channel, partial(self._opened, found))

    def _opened(self, found: Asked, channel: Channel | None, error: str) -> None:
        if channel is None:
            self._left(found)
            _refuse(found, error, retry=can_open_later(error))
        elif not found.request.ids:
            self._left(found)
            told = partial(self._stored, [(found, found.request.count)])
            self.publishing.add(channel, Rows(found.request.rows, found.request.count, told))
        else:
            lines = self.lines.setdefault(channel.info.group, {})
            named = channel.info.uid, found.request.producer
            line = lines.setdefault(named, _Line(channel))
            line.waiting.append(found)
            if not line.busy and not line.going:
                self._go_on(line, named)

    def _left(self, found: Asked) -> None:
        self.waiting[found.number] -= len(found.request.rows)

    # --- ids ----------------------------------------------------------------------------------------------------------

    def _go_on(self, line: _Line, named: Name) -> None:
        """Have the next requests of a line stored, as one entry."""
        line.going = True
        while line.waiting and not line.busy:
            taken = self._take(line)
            self._propose(line, named, taken, self._windows(line.channel.info.group))
        line.going = False
        if not line.busy:
            del self.lines[line.channel.info.group][named]

    def _take(self, line: _Line) -> list[Asked]:
        """Requests at the front of a line that go together: of one version, and not too large."""
        taken = [line.waiting.popleft()]
        size = len(taken[0].request.rows)
        while (
            line.waiting
            and line.waiting[0].request.version == taken[0].request.version
            and size + len(line.waiting[0].request.rows) <= ENTRY_BYTES_TARGET
        ):
            taken.append(line.waiting.popleft())
            size += len(taken[-1].request.rows)
        for found in taken:
            self._left(found)
        return taken

    def _propose(self, line: _Line, named: Name, taken: list[Asked], windows: Windows) -> None:
        """Have the rows of *taken* stored that are not yet."""
        version = taken[0].request.version
        if windows.is_past(*named, version):
            for found in taken:
                found.refuse(VERSION_PAST)
            return
        fresh = IdSet()
        rows: list[bytes] = []
        ids: list[bytes] = []
        counted: list[tuple[Asked, int]] = []
        total = 0
        for found in taken:
            request = found.request
            missing = windows.missing(*named, request.ids)
            if not windows.has_room(*named, version, total + missing.count(1)):
                found.refuse(TOO_MANY_IDS)
                continue
            new = both(missing, fresh.add(request.ids))
            count = new.count(1)
            rows.append(request.rows if count == request.count else pick_rows(request.rows, new))
            ids.append(request.ids if count == request.count else pick_ids(request.ids, new))
            counted.append((found, count))
            total += count
        if not total:
            self._stored(counted, Stored())
            return
        line.busy = True
        told = pb.RememberIds(
            uid=named[0], producer=named[1], version=version, ids=b"".join(ids), at=self.shared.clock.wall
        )
        change = pb.GroupChange(remember_ids=told).SerializeToString()
        after = partial(self._stored_ids, line, named, counted)
        self.publishing.add(line.channel, Rows(b"".join(rows), total, after, lambda _first: change))

    def _stored_ids(self, line: _Line, named: Name, counted: list[tuple[Asked, int]], stored: Stored) -> None:
        self._stored(counted, stored)
        line.busy = False
        if not line.going:
            self._go_on(line, named)

    def _windows(self, number: GroupId) -> Windows:
        return next(part for part in self.shared.groups[number].machine.parts if isinstance(part, Windows))

    # --- answers --------------------------------------------------------------------------------------------------------

    def _stored(self, counted: list[tuple[Asked, int]], stored: Stored) -> None:
        """What became of the rows of some requests, which were stored one behind the other, so many of each."""
        first = stored.first
        for found, count in counted:
            if stored.error:
                _refuse(found, stored.error, retry=stored.retry)
                continue
            response = BatchResponse(duplicates=found.request.count - count)
            if count:
                response.first_sequence, response.last_sequence = first, first + count - 1
            first += count
            self.shared.pub_acks.append(publication(found.reply, response.SerializeToString()))


def _is_without_ids(request: BatchRequest) -> bool:
    return not request.ids


def _refuse(found: Asked, error: str, *, retry: bool) -> None:
    """Say that nothing was stored, unless another leader may have done it and nothing would keep a second time from counting."""
    if not (retry and found.group.dispatch.held and _is_without_ids(found.request)):
        found.refuse(error, retry=retry)


def _refusal(request: BatchRequest) -> str:
    """Why a request makes no sense; "" if it does."""
    good = not request.ids or (
        len(request.ids) == ID_BYTES * request.count
        and 0 < len(request.producer) <= limits.PRODUCER_BYTES_MAX
        and request.version >= 0
    )
    return "" if good else INVALID_BATCH

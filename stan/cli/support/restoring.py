"""Channels that are put into running servers with their sequences, times and positions, by the requests of a restore.

    begin ─► put … ─► end: positions, then the end; until then nobody can use the channel

Promises: each step may be repeated, also by a later run under the same name of the restore, which goes on where the channel is.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import stan_client
from stan_client.requests.names import raw
from stan_protocol.admin_types import CursorStatus, Limits, RestoredRun
from stan_protocol.kernel.rows import columns, pack_rows

REQUEST_ROOM: Final = 1024
"""Bytes of a request beside its channel, its runs and its rows."""
RUN_BYTES: Final = 32
"""Of a request for a run of messages with one time."""


@dataclass(slots=True)
class ChannelRestore:
    """A channel that is put into the servers. *restore*: a name that no other restore has."""

    name: str
    restore: str
    direct: stan_client.Direct
    copied: int = 0  # newest sequence that the servers have

    async def begin(self, first: int, limits: Limits | None = None) -> None:
        """Make the channel, or find the one of an earlier run; *first*: sequence of its first message, or of the next one.
        Raises ServerError: it is in use."""
        await self.direct.admin.restore_channel(self.name, self.restore, first, limits)
        there = await self.direct.admin.channel(self.name)
        self.copied = max(there.last_sequence if there is not None else 0, first - 1)

    async def put(self, runs: Sequence[RestoredRun], rows: bytes) -> None:
        """Put messages there; those of an earlier run are passed over."""
        await self.direct.admin.restore_rows(self.name, self.restore, runs, rows)
        self.copied = runs[-1].first_sequence + runs[-1].count - 1

    async def end(self, last: int, positions: Iterable[CursorStatus]) -> None:
        """Put the positions there, and end the restore; *last*: the newest sequence that was given out."""
        for position in positions:
            await self.direct.admin.restore_cursor(self.name, self.restore, position)
        await self.direct.admin.restore_end(self.name, self.restore, last)


def room_for_rows(payload_max: int, channel: str) -> int:
    """Bytes of a request that are there for runs and rows of *channel*."""
    return payload_max - REQUEST_ROOM - len(raw(channel))


class RowsRequest(NamedTuple):
    """Messages of one request: which of the runs, and the rows of a part of them."""

    runs: list[RestoredRun]
    rows: bytes
    first: int  # which of all messages is its first one
    size: int  # messages


def row_requests(runs: list[RestoredRun], records: bytes, room: int, more: int = 0) -> Iterator[RowsRequest]:
    """Part messages into requests.

    Args:
        runs: the runs of all messages.
        records: the messages, u32 little-endian length and MsgProto each.
        room: bytes of a request that are there for runs and rows.
        more: bytes of a request for a message beside its row and its run.

    Raises:
        ValueError: *records* are no messages, or not as many.
    """
    count = sum(run.count for run in runs)
    parts = columns(records, count, headers=True, keys=True)
    pending = [(runs, 0, count)] if count else []
    while pending:
        part, first, size = pending.pop()
        rows = pack_rows(
            parts.data_offsets,
            parts.data,
            first,
            size,
            replies=(parts.reply_offsets, parts.replies, first),
            headers=(parts.headers or [])[first : first + size],
            keys=parts.keys and (*parts.keys, first),
        )
        if len(rows) + RUN_BYTES * len(part) + more * size <= room or size == 1:
            yield RowsRequest(part, rows, first, size)
            continue
        half = size // 2
        left, right = _cut(part, half)
        pending += [(right, first + half, size - half), (left, first, half)]


def _cut(runs: list[RestoredRun], count: int) -> tuple[list[RestoredRun], list[RestoredRun]]:
    """The first *count* messages of *runs*, and the others."""
    left: list[RestoredRun] = []
    for at, run in enumerate(runs):
        if run.count >= count:
            head = RestoredRun(first_sequence=run.first_sequence, count=count, timestamp=run.timestamp)
            rest = RestoredRun(
                first_sequence=run.first_sequence + count, count=run.count - count, timestamp=run.timestamp
            )
            return [*left, head], [*([rest] if rest.count else []), *runs[at + 1 :]]
        left.append(run)
        count -= run.count
    return left, []

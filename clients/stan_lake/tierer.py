"""The tierer: moves old messages of a channel from the broker into the lake, and reports its progress to the broker.

It reads by fetch, as any client does, and has a named position (a bookmark) in the broker. Its order is: write the file, commit
the manifest, and only then set the position, up to which a policy `tier` lets retention go. Promises: each message that the
broker had is in the table's manifest once, whatever dies and whenever: the manifest alone decides where to go on, and
the position never passes the messages of the manifest.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from stan_client import Bookmark, ChannelInfo, from_sequence

from stan_lake.columns import SCHEMA, batch_of
from stan_lake.errors import LakeError
from stan_lake.manifest import DataFile, Run, TableManifest, merged, within
from stan_lake.merging import due
from stan_lake.removal import hidden, rewritten, written
from stan_lake.table import LakeTable

if TYPE_CHECKING:
    from stan_client.reading.connected import Connected

TARGET_BYTES: Final = 128 << 20
"""Of messages in one file, before compression."""
AGE_S: Final = 15 * 60
"""Messages that are older come into the lake, even if they make a small file."""
CLOCK_ERROR_NS: Final = 1000
"""Timestamps of the lake are microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSettings:
    """The settings of a tierer."""

    name: str  # of the position in the broker
    target_bytes: int = TARGET_BYTES
    age_s: float = AGE_S
    now: Callable[[], float] = time.time


class ChannelTierer:
    """Tiers one incarnation of a channel. Errors of its methods: LakeError (TakenOverError: for good), OSError, and those of the
    client; after one of them make another tierer."""

    def __init__(self, table: LakeTable, source: "Connected", settings: TierSettings) -> None:
        self.manifest = TableManifest(channel=table.channel, uid=table.uid)
        self._table = table
        self._source = source
        self._settings = settings
        self._position = 0  # as the broker knows it; 0: not reported yet
        self._looked_through: tuple[DataFile, ...] | None = None  # files of which no two are to become one
        self._begins = (0, 0)  # next sequence, and the timestamp of the first message from there on

    async def begin(self, info: ChannelInfo) -> None:
        """Take the table over, and set the position in the broker. Raises LakeError: it is the table of another channel."""
        self.manifest = await asyncio.to_thread(self._table.manifest)
        await self._check(info)
        self.manifest = await asyncio.to_thread(self._table.take_over, info.cluster, self.manifest)
        await self._report()

    async def step(self, info: ChannelInfo, place: Bookmark | None = None, *, all_of_it: bool = False) -> int:
        """Move due messages into files, or *all_of_it* up to the newest message; returns the number of moved messages. *place*:
        the position in the broker, with the messages purged and deleted since the last report of `taken` removals."""
        if place is not None and place.removed:
            await asyncio.to_thread(self._hide, place.removed)
            await self._report(place.removals)
        await self._report()
        if info.last < self.manifest.next - 1:
            await self._check(info)
        moved = 0
        while self.manifest.next <= info.last and (all_of_it or await self._due(info)):
            moved += await self._move(info)
        await self._forget_expired()
        await self._merge()
        now = int(self._settings.now())
        self.manifest = await asyncio.to_thread(self._table.drop_replaced, self.manifest, now)
        return moved

    async def _check(self, info: ChannelInfo) -> None:
        """Refuse another channel with the uid of the table's: that of a broker that was set up again. After a rescue, which makes
        another cluster, the broker must still have the newest message of the table."""
        known = self.manifest
        other = known.next > 1 and known.cluster not in ("", info.cluster)
        where = f"the lake has messages of channel {info.name} (uid {info.uid}) up to {known.next - 1}"
        if info.last < known.next - 1:
            raise LakeError(
                f"{where}, the broker up to {info.last} only: it is another channel, or one that has lost messages"
            )
        if not known.files or info.first > known.files[-1].last:
            same = False
        else:
            answer = await self._source.batches.fetch(info.name, start=from_sequence(known.files[-1].last), count=1)
            same = answer.count > 0 and answer.runs[0].first_sequence == known.files[-1].last
        if other and not same:
            raise LakeError(f"{where} of another cluster: the server was set up anew, and needs a lake of its own")
        if same and abs(answer.runs[0].timestamp - known.files[-1].last_time_ns) > CLOCK_ERROR_NS:
            raise LakeError(
                f"{where}, and its message {known.files[-1].last} is not that of the broker: it is another channel"
            )

    async def _report(self, removals: int = 0) -> None:
        """Set the position, if it has changed, or to note the number of handled *removals*."""
        if removals or self._position != self.manifest.next:
            positions = {self.manifest.channel: self.manifest.next}
            await self._source.bookmarks.set(self._settings.name, positions, taken=removals)
            self._position = self.manifest.next

    async def _due(self, info: ChannelInfo) -> bool:
        """Return True if the messages that are not in the lake yet fill a file, or are old."""
        first = max(self.manifest.next, info.first)
        waiting = info.last - first + 1
        if waiting <= 0:
            return True  # all of it is gone: the manifest has to record that
        if info.bytes * waiting >= self._settings.target_bytes * max(1, info.last - info.first + 1):
            return True
        if self._begins[0] != first:
            answer = await self._source.batches.fetch(info.name, start=from_sequence(first), count=1)
            self._begins = first, answer.runs[0].timestamp if answer.count else 0
        return self._begins[1] <= (self._settings.now() - self._settings.age_s) * 1e9

    async def _move(self, info: ChannelInfo) -> int:
        """Move one file's worth of messages, from `next` on; returns their number."""
        before = self.manifest
        batches: list[Any] = []
        after, read_ns, size = before.next, before.read_ns, 0
        missing = list(before.missing)
        answers = self._source.batches.read_range(
            info.name,
            before.next,
            info.last,
            uid=info.uid,
            cluster=info.cluster,
            read_ns=before.read_ns,
        )
        async with aclosing(answers):
            async for answer in answers:
                # The limits of the channel were faster, or its log was damaged.
                missing += [(first, min(last, info.last)) for first, last in answer.lost(after)]
                if answer.count:
                    batches.append(batch_of(answer))
                    size += len(answer.records)
                read_ns = max(read_ns, answer.newest_ns)
                after = max(after, min(answer.next_sequence, info.last + 1))
                if size >= self._settings.target_bytes:
                    break
        if after == before.next:
            raise LakeError(f"channel {info.name} tells of messages {after} to {info.last}, and gives none")
        rows = pa.Table.from_batches(batches, SCHEMA)
        await asyncio.to_thread(
            self._store, rows, replace(before, next=after, read_ns=read_ns, missing=merged(missing))
        )
        await self._report()
        return sum(batch.num_rows for batch in batches)

    def _store(self, rows: pa.Table, changed: TableManifest) -> None:
        if rows.num_rows:
            changed = replace(changed, files=(*changed.files, written(self._table, changed, rows)))
        self.manifest = self._table.commit(changed, int(self._settings.now()))

    # --- what is to leave the lake ----------------------------------------------------------------------------------------

    def _hide(self, runs: Sequence[Run]) -> None:
        """Hide messages that were purged and deleted in the broker."""
        changed = hidden(self.manifest, merged(runs), int(self._settings.now()))
        if changed is not self.manifest:
            self.manifest = self._table.commit(changed, int(self._settings.now()))

    async def _forget_expired(self) -> None:
        """Rewrite files with expired or deleted messages, one in a commit."""
        now = int(self._settings.now())
        for file in self.manifest.files:
            deleted = within(self.manifest.deleted, file.first, file.last)
            expired = 0 < file.expires_at_ns <= (now - self._settings.age_s) * 1_000_000_000
            if deleted or expired:
                await asyncio.to_thread(self._rewrite, [file], now)

    # --- what is to become fewer files ------------------------------------------------------------------------------------

    async def _merge(self) -> None:
        """Make one file of small ones. Fewer files come in a round, so that is enough, and no other channel has to wait."""
        if self.manifest.files is self._looked_through:
            return
        small = due(self.manifest.files, self._settings.target_bytes, self._settings.age_s)
        if small:
            await asyncio.to_thread(self._rewrite, small, int(self._settings.now()))
        else:
            self._looked_through = self.manifest.files

    def _rewrite(self, files: Sequence[DataFile], now_s: int) -> None:
        self.manifest = rewritten(self._table, self.manifest, files, now_s)

"""Reads of channels with a lake: older messages come from its files, newer ones from the broker, as one.

Only with the option `cold`. The driver sees each channel as if the broker had all of it; a task looks into the newest manifest,
reads messages below the manifest's `next` from the files, and gets the rest from the broker. Messages that the broker removes
meanwhile are in a newer manifest. Promises: each message that the lake or the broker has comes once and in order, wherever it is
at the moment.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stan_client.reading.channels import ChannelInfo
from stan_lake import LakeError, LakeTable, Store, TableManifest, open_store
from stan_lake.manifest import Run, within

from pyspark_stan.errors import OptionsError
from pyspark_stan.reading.offsets import Range, Resolver, SequenceAt, behind

if TYPE_CHECKING:
    import pyarrow as pa

TASK_ROWS_MAX: Final = 4 << 20
"""Of messages that a task reads from the lake, which is several times as fast as the broker; fewer, where else cores would have
nothing to do."""
KNOWN_S: Final = 5.0
"""How long a manifest is used before it is read again."""
ATTEMPTS: Final = 3
"""How often a file is looked for that a newer manifest has replaced."""


@dataclass(frozen=True, slots=True)
class _Known:
    manifest: TableManifest
    until: float  # monotonic seconds


_lock = threading.Lock()
_stores: dict[str, Store] = {}
_manifests: dict[tuple[str, str, int], _Known] = {}  # by lake, channel and uid; of this process


class Cold:
    """The lake of a read. Raises LakeError and OSError where it cannot be read."""

    def __init__(self, url: str) -> None:
        """Open a lake. Raises OptionsError: *url* names none."""
        self._url = url
        self._looked: dict[
            tuple[str, int], int
        ] = {}  # where the broker began when a manifest was read that ends before
        try:
            with _lock:
                if url not in _stores:
                    _stores[url] = open_store(url)
                self._store = _stores[url]
        except LakeError as error:
            raise OptionsError([f"cold: {error}"]) from None

    def table(self, channel: str, uid: int) -> LakeTable:
        """Return the table of a channel."""
        return LakeTable(self._store, channel, uid)

    def manifest(self, of: "ChannelInfo | Range", *, newest: bool = False) -> TableManifest:
        """Return the lake's manifest of a channel; *newest*: not one that is some seconds old. Raises LakeError: it is that of
        another cluster."""
        channel = of.name if isinstance(of, ChannelInfo) else of.channel
        uid, key = of.uid, (self._url, channel, of.uid)
        now = time.monotonic()
        with _lock:
            known = _manifests.get(key)
        if known is None or newest or now > known.until:
            known = _Known(self.table(channel, uid).manifest(known.manifest if known else None), now + KNOWN_S)
            with _lock:
                _manifests[key] = known
        cluster = known.manifest.cluster
        if cluster and of.cluster not in ("", cluster):
            raise LakeError(f"the lake has channel {channel} of another cluster: the server was set up anew")
        return known.manifest

    # --- the driver ---------------------------------------------------------------------------------------------------

    def extended(self, infos: Mapping[str, ChannelInfo]) -> dict[str, ChannelInfo]:
        """Return the state of channels as if the broker had the messages of the lake, too; without the next message of a
        position, for the lake may have messages that are gone from the broker."""
        return {name: self._extended(info._replace(next=0)) for name, info in infos.items()}

    def _extended(self, info: ChannelInfo) -> ChannelInfo:
        lake, first = self.manifest(info), max(info.first, 1)
        if lake.next < first and self._looked.get((info.name, info.uid)) != first:
            # The broker may have lost something since the manifest was read, because it is in a newer one.
            lake = self.manifest(info, newest=True)
            self._looked[info.name, info.uid] = first
        if not lake.files or lake.first >= first:
            return info
        hot = behind(info) - first
        size = info.bytes * (behind(info) - lake.first) // hot if hot > 0 else sum(file.bytes for file in lake.files)
        return info._replace(first=lake.first, bytes=size, first_time_ns=lake.files[0].first_time_ns)

    def resolver(self, infos: Mapping[str, ChannelInfo], hot: SequenceAt) -> Resolver:
        """Return a resolver of starts and ends in channels that are extended; *hot* asks the broker."""
        from stan_lake.reading import sequence_at  # noqa: PLC0415 - needs pyarrow, which few drivers load for anything else

        def at(channel: str, time_ns: int) -> int:
            uid = infos[channel].uid
            manifest = self.manifest(infos[channel])
            if manifest.files and time_ns <= manifest.files[-1].last_time_ns:
                sequence = sequence_at(self.table(channel, uid), manifest, time_ns)
                if sequence < manifest.next:
                    return sequence
            return hot(channel, time_ns)

        return Resolver(infos, at)

    def split(self, ranges: Sequence[Range]) -> tuple[list[Range], list[Range]]:
        """Return the parts of *ranges* that the lake has, and those for the broker."""
        cold, hot = [], []
        for each in ranges:
            end = min(max(self.manifest(each).next, each.first), each.end)
            cold += [each._replace(end=end)] if each.first < end else []
            hot += [each._replace(first=end)] if end < each.end else []
        return cold, hot

    def cut(self, ranges: Sequence[Range], rows: int) -> list[Range]:
        """Return *ranges* of the lake cut at row groups of its files, so that no piece has many more than *rows* messages, and no
        two tasks read the same row group where that can be helped."""
        from stan_lake.columns import ROW_GROUP_ROWS  # noqa: PLC0415 - as above

        pieces = []
        step = max(1, rows // ROW_GROUP_ROWS) * ROW_GROUP_ROWS
        for whole in ranges:
            begin = whole.first
            for file in self.manifest(whole).overlapping(whole.first, whole.end):
                for place in (*range(file.first, file.last + 1, ROW_GROUP_ROWS), file.last + 1):
                    if place < whole.end and place - begin >= step:
                        pieces.append(whole._replace(first=begin, end=place))
                        begin = place
            pieces.append(whole._replace(first=begin))
        return pieces

    # --- a task -------------------------------------------------------------------------------------------------------

    def batches(
        self, part: Range, first: int, columns: Sequence[str], *, newest: bool = False
    ) -> "Iterator[tuple[int, pa.RecordBatch | None]]":
        """Yield the lake's messages of *part* from *first* on, as pairs: the next sequence after a batch, and the batch. The last
        pair has None: up to there everything was read, or is gone. Later messages are not in the lake.

        Raises:
            LakeError, OSError: the lake cannot be read.
        """
        for attempt in range(ATTEMPTS):
            manifest = self.manifest(part, newest=newest or attempt > 0)
            try:
                for after, batch in self._of_files(manifest, part, first, columns):
                    first = after
                    yield after, batch
            except FileNotFoundError:  # rewritten meanwhile
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            yield max(first, min(manifest.next, part.end)), None
            return

    def missing(self, part: Range, first: int, end: int) -> list[Run]:
        """Return the runs of [first, end) that the broker had lost before they came into the lake."""
        return within(self.manifest(part).missing, first, end - 1)

    def _of_files(
        self, listed: TableManifest, part: Range, first: int, columns: Sequence[str]
    ) -> "Iterator[tuple[int, pa.RecordBatch]]":
        from stan_lake.reading import read_file  # noqa: PLC0415 - tasks without cold messages do without it

        table = self.table(part.channel, part.uid)
        names = columns if "sequence" in columns else [*columns, "sequence"]
        now = time.time_ns()
        for file in listed.overlapping(first, part.end):
            path = table.path(file.name)
            for batch in read_file(self._store, path, file, first, part.end, names, deleted=listed.deleted, now_ns=now):
                yield batch.column("sequence")[-1].as_py() + 1, batch.select(list(columns))

"""The source: the driver decides which messages a batch has, and each task reads its part of them.

A batch has a range of sequences of each channel; offsets.py describes the offsets of a stream. Promises: the same range is read
again after any failure; nothing in a checkpoint depends on this process. Spark makes several objects of each class, in different
processes: none of them has state that another one needs.
"""

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_stan.errors import OptionsError
from pyspark_stan.options import SourceOptions, source_options
from pyspark_stan.reading.channels import Looks, ReadChannels
from pyspark_stan.reading.offsets import (
    Offset,
    Range,
    Resolver,
    behind,
    cluster_of,
    from_json,
    has_others,
    newest_ms,
    oldest,
    ranges_between,
    row_bytes,
)
from pyspark_stan.reading.parts import Infos, whole_in
from pyspark_stan.reading.planning import (
    ROWS_MIN,
    StanPartition,
    plan,
    rows_for_bytes,
    rows_of_partition,
    share,
    tasks_of,
)
from pyspark_stan.reading.unread import Unread
from pyspark_stan.schema import check_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_stan.reading.cold import Cold
    from pyspark_stan.reading.reading import AnyDecoder
    from pyspark_stan.reading.registry import Registered

log: Final = logging.getLogger("pyspark_stan")

CHECK_SERVER: Final = "check `servers` and `clusterId`"


def stream_reader(options: Mapping[str, str], schema: "StructType") -> "StanStreamReader":
    """Return the reader of `spark.readStream`. Raises OptionsError."""
    checked = source_options(options, "stream")
    return StanStreamReader(checked, columns_read(checked, schema))


class ReadColumns(NamedTuple):
    """The columns of a read."""

    schema: "StructType"
    registered: "tuple[Registered, ...]" = ()  # schemas of the channels, if the columns are theirs


def columns_read(options: SourceOptions, schema: "StructType") -> ReadColumns:
    """Return the columns of a read, requested from the broker if they are those of registered schemas.

    Raises:
        OptionsError: *schema* has unknown columns. Others as of `with_retries`.
    """
    if not options.typed:
        check_schema(schema)
        return ReadColumns(schema)
    from pyspark_stan.reading.registry import check_typed, registered_for  # noqa: PLC0415 - of typed reads only

    registered = registered_for(options)
    check_typed(options, registered, schema)
    return ReadColumns(schema, tuple(registered))


def _read(options: SourceOptions, columns: ReadColumns, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
    if not isinstance(partition, StanPartition):
        return iter(())  # Spark's placeholder where there is no partition at all
    from pyspark_stan.reading.reading import read_partition  # noqa: PLC0415 - only tasks need it

    return read_partition(options, _decoder(options, columns), partition)


def _decoder(options: SourceOptions, columns: ReadColumns) -> "AnyDecoder":
    if columns.registered:
        from pyspark_stan.reading.typed_decode import TypedDecoder  # noqa: PLC0415

        return TypedDecoder(columns.schema, columns.registered, options)
    from pyspark_stan.reading.decode import Decoder  # noqa: PLC0415

    return Decoder(columns.schema)


class StanBatchReader(DataSourceReader):
    """Reads channels once, up to an end that is determined when the query is planned."""

    def __init__(self, options: SourceOptions, columns: ReadColumns) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[StanPartition]:
        """Return partitions of the messages that the broker has now. Raises OptionsError; others as of `with_retries`."""
        channels = ReadChannels(self._options)
        infos = channels.infos()
        ranges = self.narrowed(self._ranges(channels, infos), channels.resolver(infos))
        if channels.cold is None:
            return _planned(self._options, ranges, tasks_of(self._options.parallelism))
        return _plan_cold(self._options, channels.cold, ranges)

    def narrowed(self, ranges: list[Range], _resolver: Resolver) -> list[Range]:
        """Return *ranges*; a subclass narrows them by filters."""
        return ranges

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the messages of *partition*; called in a task. Errors as of `read_partition`."""
        return _read(self._options, self._columns, partition)

    def _ranges(self, channels: ReadChannels, infos: Infos) -> list[Range]:
        options = self._options
        complaints = [f"subscribe: there is no channel {name}" for name in channels.parts.missing(infos)]
        starts, wrong_starts = channels.resolved(infos, options.start, "startingOffsets")
        ends, wrong_ends = channels.resolved(infos, options.end, "endingOffsets")
        if options.fail_on_data_loss:
            complaints += wrong_starts + wrong_ends
        if complaints:
            raise OptionsError(complaints)
        return [
            Range(name, infos[name].uid, first, ends[name], infos[name].cluster)
            for name, first in starts.items()
            if first < ends[name]
        ]


def _plan_cold(options: SourceOptions, lake: "Cold", ranges: list[Range]) -> list[StanPartition]:
    """Return partitions of a read with a lake; where the user leaves it to us, tasks that read from the lake are larger."""
    from pyspark_stan.reading.cold import TASK_ROWS_MAX  # noqa: PLC0415 - only with the option `cold`

    cold, hot = lake.split(ranges)
    rows, at_least, cores = (
        options.rows_per_partition or ROWS_MIN,
        options.partitions_at_least,
        tasks_of(options.parallelism),
    )
    if options.rows_per_partition or at_least:
        return plan([*lake.cut(cold, rows), *hot], at_least, rows, cores)
    each = -(-sum(part.end - part.first for part in cold) // cores)
    pieces = lake.cut(cold, min(max(rows, each), TASK_ROWS_MAX))
    return [*plan(pieces, cores, rows_max=TASK_ROWS_MAX), *_planned(options, hot, cores)]


class StanStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads channels for ever or, with the trigger availableNow, the messages that existed at the start."""

    def __init__(self, options: SourceOptions, columns: ReadColumns) -> None:
        self._options = options
        self._columns = columns
        self._channels = ReadChannels(options)
        self._initial: Offset | None = None
        self._looks = Looks(self._channels)
        self._unread = Unread()
        self._moved_at = time.monotonic()  # when a batch last had messages
        self._noted: set[tuple[str, int | str, str]] = (
            set()
        )  # reported losses: channel and its uid, or cluster, and text

    # --- where a batch ends ---------------------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's names, here and below
        """Return the limit that Spark passes to `latestOffset`."""
        options = self._options
        if options.rows_per_trigger:
            return ReadMaxRows(options.rows_per_trigger)
        return ReadMaxBytes(options.bytes_per_trigger) if options.bytes_per_trigger else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note the channels as they are now: later messages are not read."""
        self._looks.freeze()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offset at which a new query begins; further calls return the same. Raises OptionsError."""
        if self._initial is None:
            infos = self._looks.first()
            missing = self._channels.parts.missing(infos) if self._options.wait_for_channels else ()
            positions, complaints = self._channels.resolved(infos, self._options.start, "startingOffsets", missing)
            if complaints and self._options.fail_on_data_loss:
                raise OptionsError(complaints)
            uids = {name: info.uid for name, info in infos.items()}
            read_ms, tasks = newest_ms(infos), tasks_of(self._options.parallelism)
            self._initial = Offset(positions, positions, uids, tasks, cluster=cluster_of(infos), read_ms=read_ms)
        return self._initial.to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the batch that begins at *start*; *start* itself if there is no batch to run now.

        Raises:
            DataLossError: a channel was deleted, ends before its position, has other messages below it than those that were read,
                or is another cluster's, and failOnDataLoss is set.
            OptionsError: there is no channel of a name, and never was one, and waitForChannels is not set. Others as of
                `with_retries`.
        """
        begin = from_json(start)
        infos = self._looks.at(begin)
        self._unread.note_ends(infos)
        found = self._with_found(self._of_cluster(begin, infos), infos)
        self._note_missing(begin, infos)
        begun = self._begun_again(found, infos)
        known = self._without_holes(begin, begun, infos)
        self._unread.note(infos, known.positions)
        wants = self._unread_rows(known, infos)
        if self._waits_for_more(sum(wants.values()), limit):
            return start
        if not wants and begun.positions == begin.positions:
            self._looks.rest(begin, {name: at for name, at in known.positions.items() if self._reads(name)})
            return start
        self._moved_at = time.monotonic()
        shares = self._within(wants, infos, limit)
        positions = {name: at + shares.get(name, 0) for name, at in known.positions.items()}
        self._unread.note(infos, positions)
        end = known._replace(positions=positions, tasks=self._options.parallelism or known.tasks)
        moved = {name: info for name, info in infos.items() if end.place(name) != begin.place(name)}
        return end._replace(read_ms={**known.read_ms, **newest_ms(moved)}).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return `Unread.report` for Spark's progress report; None before the first batch."""
        return self._unread.report() or None

    def _of_cluster(self, begin: Offset, infos: Infos) -> Offset:
        """Return *begin*; without any position if its channels were those of another cluster."""
        cluster = cluster_of(infos) or begin.cluster
        if begin.cluster in ("", cluster):
            return begin._replace(cluster=cluster)
        text = "the channels are those of another cluster now: messages that were not read are lost"
        why = f"the server was set up anew, the cluster was rescued, or it is another one: {CHECK_SERVER}"
        self._note_once("", cluster, text, why, "reads the channels from their beginning")
        return Offset({}, {}, {}, begin.tasks, cluster=cluster)

    def _with_found(self, begin: Offset, infos: Infos) -> Offset:
        """Return *begin* with the channels that it does not have yet, and with the new uid of channels that were made again."""
        positions, initial, uids = dict(begin.positions), dict(begin.initial), dict(begin.incarnations)
        read_ms = dict(begin.read_ms)
        for name, info in infos.items():
            uid = uids.get(name, info.uid)
            if name in positions and uid == info.uid:
                uids[name] = uid
                continue
            if name in positions:
                self._lose(name, info.uid, "was deleted and made again")
            before, _ = self._channels.parts.before(name) or ("", 0)
            positions[name] = initial[name] = 1 if before in begin.positions else oldest(info)
            uids[name] = info.uid
            read_ms.pop(name, None)
        for name in self._channels.parts.missing(infos):
            initial.setdefault(name, 1)
            positions.setdefault(name, 1)
        for name in uids.keys() - infos.keys():
            if self._reads(name):
                self._lose(name, 0, "was deleted")
        return begin._replace(positions=positions, initial=initial, incarnations=uids, read_ms=read_ms)

    def _note_missing(self, begin: Offset, infos: Infos) -> None:
        """Refuse names of channels that do not exist; one that the stream is to wait for gets a line in the log. A channel that
        has been read was deleted, which is reported as a loss."""
        known = {*begin.incarnations, *map(whole_in, begin.incarnations)}
        missing = [name for name in self._channels.parts.missing(infos) if name not in known]
        if missing and not self._options.wait_for_channels:
            why = "waitForChannels=true waits for it"
            raise OptionsError([f"subscribe: there is no channel {name} ({why})" for name in missing])
        for name in missing:
            note = name, 0, "missing"
            if note not in self._noted:
                self._noted.add(note)
                log.warning("there is no channel %s; the stream waits for it", name)

    def _begun_again(self, known: Offset, infos: Infos) -> Offset:
        """Return *known* with the beginnings of channels that end before their positions, or have other messages below them than
        those that were read."""
        texts = {}
        for name in _beyond_end(known, infos):
            ends, position = behind(infos[name]), known.positions[name]
            texts[name] = f"ends before message {ends}, and {position} is the next to be read"
        for name, position in known.positions.items():
            if name in infos and has_others(known, infos[name]):
                texts.setdefault(name, f"has other messages before message {position} than those that were read")
        for name, text in texts.items():
            why = f"the channel has lost its end, or the server has an older copy of its data: {CHECK_SERVER}"
            self._lose(name, infos[name].uid, text, why, "reads the channel from its oldest message")
        oldest_of = {name: oldest(infos[name]) for name in texts}
        return known._replace(
            positions={**known.positions, **oldest_of},
            initial={**known.initial, **oldest_of},
            again={**known.again, **{name: known.again.get(name, 0) + 1 for name in texts}},
        )

    def _without_holes(self, begin: Offset, known: Offset, infos: Infos) -> Offset:
        """Return *known* after messages that are gone: the limits of a batch count from there. What retention has removed stays
        in the next batch, which reports the loss. *infos* are of a look at *begin*."""

        def behind_hole(name: str, position: int) -> int:
            info = infos.get(name)
            if info is None or (self._fail and info.lost_until >= position):
                return position
            following = info.next if known.place(name) == begin.place(name) else 0
            return max(position, oldest(info), following)

        return known._replace(positions={name: behind_hole(name, at) for name, at in known.positions.items()})

    def _unread_rows(self, known: Offset, infos: Infos) -> dict[str, int]:
        """Return how many sequences each channel has to read; parts that have to wait for another one are left out."""
        lengths = {name: behind(infos[name]) - at for name, at in known.positions.items() if name in infos}
        waits = self._channels.parts.waits
        return {
            name: length for name, length in lengths.items() if length > 0 and not waits(name, known.positions, infos)
        }

    def _reads(self, name: str) -> bool:
        options = self._options
        if options.pattern:
            return bool(re.fullmatch(options.pattern, name))
        return name in options.channels or whole_in(name) in options.channels

    def _lose(self, name: str, uid: int, what: str, *why_and_then: str) -> None:
        self._note_once(name, uid, f"channel {name} {what}: messages of it that were not read are lost", *why_and_then)

    def _note_once(self, name: str, identity: int | str, text: str, *why_and_then: str) -> None:
        from pyspark_stan.reading.reading import note_loss  # noqa: PLC0415 - pyarrow comes with it

        if (name, identity, text) not in self._noted:
            note_loss(text, *why_and_then, fail=self._fail)
            self._noted.add((name, identity, text))

    @property
    def _fail(self) -> bool:
        return self._options.fail_on_data_loss

    def _waits_for_more(self, rows: int, limit: ReadLimit) -> bool:
        options = self._options
        return (
            0 < rows < options.rows_at_least
            and not self._looks.are_frozen
            and (not isinstance(limit, ReadAllAvailable) or self.getDefaultReadLimit() == limit)
            and time.monotonic() - self._moved_at < options.trigger_delay_s
        )

    def _within(self, wants: dict[str, int], infos: Infos, limit: ReadLimit) -> dict[str, int]:
        """Return as much of *wants* as the limits of rows and bytes allow. Spark passes one of the limits, the other comes
        from the options; with the trigger `once` Spark wants everything in spite of the limits."""
        if isinstance(limit, ReadAllAvailable):
            return wants
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.rows_per_trigger
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.bytes_per_trigger
        if rows:
            wants = share(wants, rows)
        if size:
            wants = rows_for_bytes(wants, {name: row_bytes(infos[name]) for name in wants}, size)
        return wants

    # --- what a batch holds ---------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[StanPartition]:
        """Return the partitions of the batch between two offsets; they are the same each time."""
        until = from_json(end)
        ranges = ranges_between(from_json(start), until)
        return _planned(self._options, ranges, until.tasks)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the messages of *partition*; called in a task. Errors as of `read_partition`."""
        return _read(self._options, self._columns, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Handle Spark's notice that all batches before *end* are finished: report the position, if the consumer has a name."""
        if self._options.consumer:
            self._channels.report(from_json(end))

    def stop(self) -> None:
        """Do nothing: the connection belongs to the process, not to the query."""


def _planned(options: SourceOptions, ranges: Sequence[Range], tasks: int) -> list[StanPartition]:
    rows_max = options.rows_per_partition or rows_of_partition(ranges, tasks)
    return plan(ranges, tasks, options.partitions_at_least, rows_max)


def _beyond_end(offset: Offset, infos: Infos) -> list[str]:
    """Return the channels that end before their positions, as the same channel as before."""
    return [
        name
        for name, position in offset.positions.items()
        if name in infos
        and offset.incarnations.get(name, infos[name].uid) == infos[name].uid
        and position > behind(infos[name])
    ]

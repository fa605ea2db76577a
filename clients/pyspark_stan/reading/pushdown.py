"""Filter pushdown: filters on sequence, timestamp and channel narrow the ranges of a batch. Only on the user's request.

Spark refuses a reader with the method pushFilters while spark.sql.python.filterPushdown.enabled is false, so this is a class of
its own. The filters here only narrow ranges: Spark gets all of them back and applies them to the rows that were read.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from pyspark_stan.options import ReadBound, SourceOptions, source_options
from pyspark_stan.reading.offsets import Range, Resolver
from pyspark_stan.reading.source import ReadColumns, StanBatchReader, columns_read

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_BOUNDS: Final[Mapping[type[Filter], tuple[int | None, int | None]]] = {
    # added to the filter's value: for the first matching one, and for the one after the last
    EqualTo: (0, 1),
    GreaterThan: (1, None),
    GreaterThanOrEqual: (0, None),
    LessThan: (None, 0),
    LessThanOrEqual: (None, 1),
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def batch_reader(options: Mapping[str, str], schema: "StructType") -> StanBatchReader:
    """Return the reader of `spark.read`, with filter pushdown if the options say so. Raises OptionsError."""
    checked = source_options(options, "batch")
    columns = columns_read(checked, schema)
    return StanPushdownBatchReader(checked, columns) if checked.pushdown else StanBatchReader(checked, columns)


class StanPushdownBatchReader(StanBatchReader):
    """A batch reader that narrows its ranges by Spark's filters."""

    def __init__(self, options: "SourceOptions", columns: ReadColumns) -> None:
        super().__init__(options, columns)
        self._prefix = "_" if options.typed else ""  # of the columns that are no payload's
        self._channels: set[str] | None = None  # None: all
        self._sequences = [0, 1 << 63]  # the first, and the one after the last
        self._micros = [0, 1 << 63]  # the same for timestamps, in Unix µs

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Note the filters that narrow the ranges; all are returned to Spark, which applies them too."""
        for condition in filters:
            of: tuple[str, ...] = getattr(condition, "attribute", ())
            column = of[0].removeprefix(self._prefix) if len(of) == 1 and of[0].startswith(self._prefix) else ""
            value: Any = getattr(condition, "value", None)
            if column == "channel" and isinstance(condition, EqualTo | In):
                names = set(value if isinstance(condition, In) else [value])
                self._channels = names if self._channels is None else self._channels & names
            elif column == "sequence" and type(condition) in _BOUNDS:
                _narrow(self._sequences, condition, value)
            elif column == "timestamp" and type(condition) in _BOUNDS:
                _narrow(self._micros, condition, _micros_of(value))
        return filters

    def narrowed(self, ranges: list[Range], resolver: Resolver) -> list[Range]:
        """Narrow *ranges* by the filters."""
        left = [each for each in ranges if self._channels is None or each.channel in self._channels]
        names = [each.channel for each in left]
        starts, ends = dict.fromkeys(names, self._sequences[0]), dict.fromkeys(names, self._sequences[1])
        for bounds, micros, better in ((starts, self._micros[0], max), (ends, self._micros[1], min)):
            if 0 < micros < 1 << 53:  # larger values may not fit into 64 bits of nanoseconds
                place = ReadBound(time_ns=micros * 1000, latest_if_later=True)
                at, _ = resolver.resolve(names, place, "timestamp")
                bounds.update({name: better(bounds[name], at[name]) for name in names})
        narrow = [
            each._replace(first=max(each.first, starts[each.channel]), end=min(each.end, ends[each.channel]))
            for each in left
        ]
        return [each for each in narrow if each.first < each.end]


def _narrow(bounds: list[int], condition: Filter, value: int) -> None:
    first, end = _BOUNDS[type(condition)]
    if first is not None:
        bounds[0] = max(bounds[0], value + first)
    if end is not None:
        bounds[1] = min(bounds[1], value + end)


def _micros_of(value: datetime) -> int:
    """Return Unix µs of a filter's datetime; one without a time zone is in the time zone of this process."""
    since = value.astimezone(UTC) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds

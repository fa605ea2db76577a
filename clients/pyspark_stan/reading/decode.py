"""Decodes answers of the broker into Arrow record batches: the columns use the kernel's buffers, without Python code per message.

Headers are the exception: they are made of Python objects, and only if the user asks for them. Neither pa.array nor pa.scalar is
used: both import pandas where it is installed, which takes a worker a third of a second.
"""

from array import array
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from stan_protocol.channels import whole_and_part
from stan_protocol.kernel.rows import Columns, columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType
    from stan_client import Fetched

_NANOSECONDS: Final = pa.timestamp("ns", tz="UTC")
_MICROSECONDS: Final = pa.timestamp("us", tz="UTC")


class Decoder:
    """Makes record batches of one schema; *schema* has only columns of pyspark_stan.schema."""

    def __init__(self, schema: "StructType") -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")  # Spark compares the schema of the first batch with it
        self._headers = "headers" in schema.names
        self._key = "key" in schema.names

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self._schema.names)

    def cold(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of a lake with these columns as one of this schema."""
        arrays = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def batch(self, answer: "Fetched") -> pa.RecordBatch:
        """Return the messages of an answer as one record batch. Raises ValueError: they are damaged."""
        count = answer.count
        parts = columns(answer.records, count, headers=self._headers, keys=self._key)
        arrays = [
            _OF_CHANNEL[field.name](answer.channel.encode(), count, field.type)
            if field.name in _OF_CHANNEL
            else _ARRAYS[field.name](parts, count, field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _sequence(parts: Columns, count: int, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(parts.sequences)])


def _timestamp(parts: Columns, count: int, _kind: pa.DataType) -> pa.Array:
    exact = pa.Array.from_buffers(_NANOSECONDS, count, [None, pa.py_buffer(parts.timestamps)])
    return exact.cast(_MICROSECONDS, safe=False)


def _value(parts: Columns, count: int, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(parts.data_offsets), pa.py_buffer(parts.data)])


def _reply(parts: Columns, count: int, kind: pa.DataType) -> pa.Array:
    return _null_if_empty(parts.reply_offsets, parts.replies, count, kind)


def _key(parts: Columns, count: int, kind: pa.DataType) -> pa.Array:
    offsets, keys = parts.keys or (b"", b"")
    return _null_if_empty(offsets, keys, count, kind)


def _null_if_empty(offsets: bytes, values: bytes, count: int, kind: pa.DataType) -> pa.Array:
    if not values:
        return pa.nulls(count, kind)
    column = pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(values)])
    return pa.compute.if_else(pa.compute.binary_length(column).cast(pa.bool_()), column, pa.nulls(count, kind))


def _headers(parts: Columns, _count: int, kind: pa.DataType) -> pa.Array:
    rows = parts.headers or []
    keys = [key.decode("utf-8", "replace").encode() for pairs in rows for key, _ in pairs]
    values = [value for pairs in rows for _, value in pairs]
    fields = [text_array(keys, pa.string()), text_array(values, pa.binary())]
    pairs = pa.StructArray.from_arrays(fields, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(numbers(accumulate(map(len, rows), initial=0)), pairs, type=kind)


def text_array(values: list[bytes], kind: pa.DataType | None = None) -> pa.Array:
    """Return an array of texts in UTF-8, or of another *kind* that is stored as texts are."""
    offsets = pa.py_buffer(array("i", accumulate(map(len, values), initial=0)))
    return pa.Array.from_buffers(kind or pa.string(), len(values), [None, offsets, pa.py_buffer(b"".join(values))])


def numbers(values: Iterable[int]) -> pa.Array:
    """Return an array of 32-bit numbers."""
    packed = array("i", values)
    return pa.Array.from_buffers(pa.int32(), len(packed), [None, pa.py_buffer(packed)])


def mask(count: int, rows: Iterable[int]) -> pa.BooleanArray:
    """Return an array of *count* booleans: true for *rows*."""
    flags = bytearray(count)
    for row in rows:
        flags[row] = 1
    return pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(flags)]).cast(pa.bool_())


def _channel(name: bytes, count: int, kind: pa.DataType) -> pa.Array:
    return text_array([name] * count, kind)


def _partition(name: bytes, count: int, _kind: pa.DataType) -> pa.Array:
    part = whole_and_part(name)
    return numbers([part[1] if part else 0] * count)


_OF_CHANNEL: Final = {"channel": _channel, "partition": _partition}
"""Columns that are the same for all messages of an answer."""
_ARRAYS: Final[dict[str, Callable[[Columns, int, pa.DataType], pa.Array]]] = {
    "sequence": _sequence,
    "timestamp": _timestamp,
    "value": _value,
    "reply": _reply,
    "headers": _headers,
    "key": _key,
}

"""Messages as columns: answers of the broker become Arrow tables, and these become Parquet.

The columns use the kernel's buffers, without Python code per message; messages with headers or with a time of expiry are the
exception. Times are microseconds.
"""

from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from stan_protocol.fetches import messages
from stan_protocol.kernel.client import decode_message
from stan_protocol.kernel.rows import Columns, columns

if TYPE_CHECKING:
    from stan_client import Fetched

MICROSECONDS: Final = pa.timestamp("us", tz="UTC")
_NANOSECONDS: Final = pa.timestamp("ns", tz="UTC")


def _field(number: int, name: str, kind: pa.DataType, *, nullable: bool = True) -> pa.Field:
    """Return a column with the number by which Iceberg's readers know it, which never changes."""
    return pa.field(name, kind, nullable, {"PARQUET:field_id": str(number)})


_PAIR: Final = pa.struct([_field(10, "key", pa.string()), _field(11, "value", pa.binary())])
_HEADERS: Final = pa.list_(_field(9, "element", _PAIR))
SCHEMA: Final = pa.schema(
    [
        _field(1, "channel", pa.string(), nullable=False),
        _field(2, "sequence", pa.int64(), nullable=False),
        _field(3, "timestamp", MICROSECONDS, nullable=False),
        _field(4, "key", pa.binary()),  # null: none
        _field(5, "value", pa.binary(), nullable=False),
        _field(6, "reply", pa.string()),  # null: none
        _field(7, "headers", _HEADERS, nullable=False),  # empty: none
        _field(8, "expires_at", MICROSECONDS),  # null: never
    ]
)
ROW_GROUP_ROWS: Final = 1 << 17
"""Rows that a reader can skip as a whole, or read without the rest."""
_HEADERS_TAG: Final = b"\x82\x01"
_EXPIRES_TAG: Final = b"\x90\x01"
"""Of MsgProto.headers and .expires_at: an answer without these bytes has no message with them."""


def batch_of(answer: "Fetched") -> pa.RecordBatch:
    """Return the messages of an answer as one record batch. Raises ValueError: they are damaged."""
    count = answer.count
    with_headers = _HEADERS_TAG in answer.records
    parts = columns(answer.records, count, headers=with_headers, keys=True)
    exact = pa.Array.from_buffers(_NANOSECONDS, count, [None, pa.py_buffer(parts.timestamps)])
    channel = answer.channel.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    arrays = [
        pa.repeat(pa.scalar(channel, pa.string()), count),
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(parts.sequences)]),
        exact.cast(MICROSECONDS, safe=False),
        _null_if_empty(*(parts.keys or (b"", b"")), count),
        _binary(parts.data_offsets, parts.data, count),
        _texts(_null_if_empty(parts.reply_offsets, parts.replies, count)),
        _headers(parts, count),
        _expiries(answer),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _binary(offsets: bytes, values: bytes, count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(values)])


def _null_if_empty(offsets: bytes, values: bytes, count: int) -> pa.Array:
    if not values:
        return pa.nulls(count, pa.binary())
    column = _binary(offsets, values, count)
    return pa.compute.if_else(pa.compute.equal(pa.compute.binary_length(column), 0), None, column)


def _texts(column: pa.Array) -> pa.Array:
    """Return bytes as text; NATS takes more than UTF-8 in a subject, Parquet does not."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([one and one.decode("utf-8", "replace") for one in column.to_pylist()], pa.string())


def _headers(parts: Columns, count: int) -> pa.Array:
    rows = parts.headers if parts.headers is not None else [()] * count
    keys = [key.decode("utf-8", "replace") for pairs in rows for key, _ in pairs]
    values = [value for pairs in rows for _, value in pairs]
    offsets = pa.array(accumulate(map(len, rows), initial=0), pa.int32())
    fields = [pa.array(keys, pa.string()), pa.array(values, pa.binary())]
    pairs = pa.StructArray.from_arrays(fields, fields=list(_HEADERS.value_type))
    return pa.ListArray.from_arrays(offsets, pairs, type=_HEADERS)


def _expiries(answer: "Fetched") -> pa.Array:
    if _EXPIRES_TAG not in answer.records:
        return pa.nulls(answer.count, MICROSECONDS)
    times = [decode_message(one)[-1] for one in messages(answer.records, answer.runs)]
    exact = pa.array([time or None for time in times], pa.int64())
    return pa.compute.divide(exact, 1000).cast(MICROSECONDS)


def parquet(table: pa.Table) -> bytes:
    """Return a Parquet file with these rows of SCHEMA."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=ROW_GROUP_ROWS,
        compression="zstd",
        compression_level=1,
        use_dictionary=["channel", "key", "headers.list.element.key"],
        column_encoding={"sequence": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
        write_statistics=["sequence", "timestamp", "expires_at"],
        write_page_checksum=True,
    )
    data: bytes = sink.getvalue().to_pybytes()
    return data


def opened_file(source: Any) -> pq.ParquetFile:
    """Open a Parquet file, a path or a file for pyarrow. What is read of it is checked by its checksums, if it has some."""
    return pq.ParquetFile(source, memory_map=True, pre_buffer=True, page_checksum_verification=True)


def bounds(table: pa.Table) -> dict[str, Any]:
    """Return the manifest's fields for a file with these rows, in order of their sequences, of which there is at least one."""
    times = pa.compute.min_max(table["timestamp"].cast(pa.int64())).as_py()
    expiry = pa.compute.min(table["expires_at"].cast(pa.int64())).as_py()
    return {
        "first": table["sequence"][0].as_py(),
        "last": table["sequence"][-1].as_py(),
        "rows": table.num_rows,
        "message_bytes": table.nbytes,
        "first_time_ns": 1000 * times["min"],
        "last_time_ns": 1000 * times["max"],
        "expires_at_ns": 1000 * (expiry or 0),
    }

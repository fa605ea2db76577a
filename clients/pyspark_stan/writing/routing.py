"""Prepares rows for publishing: finds faulty rows, groups the others by channel, and packs them into requests.

Promises that the rows of one channel keep their order, that no request exceeds the limits, and that every row is in a request,
counted as left out, or the reason of an error. Works on Arrow columns; Python handles single rows only if they are faulty, have
headers, or need ids of more than their values. For valid rows neither pa.array nor pa.scalar is used: both import pandas where it
is installed, which takes a worker a third of a second.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from stan_protocol.channels import is_channel_name
from stan_protocol.kernel.rows import ID_BYTES, Headers, pack_rows
from stan_protocol.limits import CHANNEL_NAME_BYTES_MAX, KEY_BYTES_MAX, MESSAGE_PAYLOAD_BYTES_MAX
from stan_protocol.scalars import MiB

from pyspark_stan.errors import RowError
from pyspark_stan.writing.identity import ContentIds, ids_of_column
from pyspark_stan.writing.sink_options import SinkOptions

if TYPE_CHECKING:
    from pyspark_stan.writing.partitions import Partitions

ROW_OVERHEAD: Final = 16
"""Largest number of bytes of a row's lengths and tags, with a reply."""
KEY_OVERHEAD: Final = 4
"""Largest number of bytes of a key's length and tag."""
HEADER_OVERHEAD: Final = 20
"""Largest number of bytes of a header's lengths and tags."""
REQUEST_OVERHEAD: Final = 1024
"""Largest number of bytes of a request beside its channel and rows; a message delivered to a subscriber needs no more."""
PENDING_BYTES_MAX: Final = 32 * MiB
"""Packed rows of all channels that wait in requests that are not full; beyond this all requests are sent."""
_I32: Final = "i"


@dataclass(frozen=True, slots=True)
class Request:
    """Packed rows of one channel, to be sent together."""

    channel: str
    rows: bytes
    count: int
    ids: bytes  # ID_BYTES for each row, or b""


class _Pile:
    """Packed rows of one channel that wait until they fill a request."""

    __slots__ = ("channel", "count", "ids", "rows", "size")

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self.clear()

    def clear(self) -> None:
        self.rows: list[bytes] = []
        self.ids: list[bytes] = []
        self.count = 0
        self.size = 0  # bytes of rows and ids

    def add(self, rows: bytes, count: int, ids: bytes) -> None:
        self.rows.append(rows)
        self.ids.append(ids)
        self.count += count
        self.size += len(rows) + len(ids)

    def pop(self) -> Request:
        request = Request(self.channel, b"".join(self.rows), self.count, b"".join(self.ids))
        self.clear()
        return request


class _Lot(NamedTuple):
    """Consecutive rows of one channel, all valid."""

    value: pa.Array
    reply: pa.Array | None
    headers: list[Headers] | None
    key: pa.Array | None
    ids: pa.Array | None


class Router:
    """Packs the record batches of one task into requests."""

    def __init__(
        self,
        options: SinkOptions,
        payload_max: int,
        message_max: Callable[[], int],
        content_ids: ContentIds | None,
        partitions: "Partitions | None" = None,
    ) -> None:
        """Make a router.

        Args:
            options: of the sink.
            payload_max: largest payload that NATS accepts, in bytes.
            message_max: asks the broker for the largest payload of a message, in bytes; called if a row is above the usual one.
            content_ids: makes ids of the rows' content if there is no id column; None: rows need no ids.
            partitions: makes channels of the column `partition`; None: without it.
        """
        self._options = options
        self._request_room = payload_max - REQUEST_OVERHEAD
        self._room = min(payload_max, MESSAGE_PAYLOAD_BYTES_MAX) - REQUEST_OVERHEAD  # of a row
        self._message_max: Callable[[], int] | None = message_max  # None: known from the broker
        self._ids = content_ids
        self._partitions = partitions
        self._piles: dict[str, _Pile] = {}
        self._pending = 0  # bytes in all piles
        self._rows_before = 0  # rows of earlier record batches
        self.skipped = 0  # rows left out
        self.dead = 0  # rows that went to the dead-letter channel

    def add(self, batch: pa.RecordBatch) -> Iterator[Request]:
        """Add the rows of *batch*; yields the requests that are full. Raises RowError."""
        columns = self._columns(batch)
        faults = self._faults(columns, batch.num_rows)
        if faults:
            bad = faults[0][1]
            for _, mask in faults[1:]:
                bad = pc.or_(bad, mask)
            yield from self._leave_out(columns, faults, pc.sum(bad).as_py())
            columns = {name: column.filter(pc.invert(bad)) for name, column in columns.items()}
        for channel, mine in self._by_channel(columns):
            headers = _pairs(mine["headers"]) if "headers" in mine else None
            lot = _Lot(mine["value"], mine.get("reply"), headers, mine.get("key"), mine.get("id"))
            yield from self._pile(channel, lot)
        self._rows_before += batch.num_rows
        if self._pending > PENDING_BYTES_MAX:
            yield from self.rest()

    def rest(self) -> Iterator[Request]:
        """Yield all requests that are not full."""
        for pile in self._piles.values():
            if pile.count:
                yield self._pop(pile)

    # --- columns ---------------------------------------------------------------------------------------------------------

    def _columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the columns that are published, as bytes; `headers` unchanged."""
        options = self._options
        sources = {"value": "value", "id": options.id_column}
        if not options.channel:
            sources["channel"] = "channel"
        if options.include_reply:
            sources["reply"] = "reply"
        if options.include_key:
            sources["key"] = "key"
        columns = {name: _binary(batch.column(column)) for name, column in sources.items() if column}
        if options.include_headers:
            columns["headers"] = batch.column("headers")
        if self._partitions is not None:
            names = columns["channel"].to_pylist() if "channel" in columns else [options.channel.encode()] * len(batch)
            found = self._partitions.channels(names, batch.column("partition").to_pylist())
            columns["channel"], columns["misplaced"] = found
        return columns

    def _by_channel(self, columns: dict[str, pa.Array]) -> Iterator[tuple[str, dict[str, pa.Array]]]:
        """Yield each channel with the columns of its rows, in their order."""
        if "channel" not in columns:
            yield self._options.channel, columns
            return
        names = columns["channel"].dictionary_encode()
        others = {name: column for name, column in columns.items() if name != "channel"}
        if len(names.dictionary) == 1:
            yield names.dictionary[0].as_py().decode(), others
            return
        order = pc.sort_indices(names.indices)  # a stable sort
        sorted_columns = {name: column.take(order) for name, column in others.items()}
        runs = pc.run_end_encode(names.indices.take(order))
        begin = 0
        for number, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            part = {name: column.slice(begin, end - begin) for name, column in sorted_columns.items()}
            yield names.dictionary[number].as_py().decode(), part
            begin = end

    # --- faults ----------------------------------------------------------------------------------------------------------

    def _faults(self, columns: dict[str, pa.Array], count: int) -> list[tuple[str, pa.Array]]:
        """Return (reason, mask of the faulty rows) for each kind of fault; empty if all rows are valid."""
        value, channel, ident, key = columns["value"], columns.get("channel"), columns.get("id"), columns.get("key")
        masks = [("value is null", value.is_null())] if value.null_count else []
        if channel is not None:
            masks += _channel_faults(channel)
        if "misplaced" in columns and pc.any(columns["misplaced"]).as_py():
            masks.append(("partition is none of the channel's parts", columns["misplaced"]))
        if ident is not None and ident.null_count:
            masks.append((f"{self._options.id_column} is null", ident.is_null()))
        if key is not None and (pc.max(pc.binary_length(key)).as_py() or 0) > KEY_BYTES_MAX:
            masks.append((f"key of more than {KEY_BYTES_MAX} bytes", pc.greater(pc.binary_length(key), KEY_BYTES_MAX)))
        if count:
            sizes, fixed = self._sizes(columns), self._fixed_size(columns)
            largest = fixed + (pc.max(sizes).as_py() or 0)
            if largest > self._room and self._message_max is not None:
                self._room, self._message_max = self._message_max() - REQUEST_OVERHEAD, None
            if largest > self._room:
                too_large = pc.greater(sizes, self._room - fixed)
                masks.append((f"larger than the {self._room} bytes that fit", too_large))
        return [(reason, pc.fill_null(mask, fill_value=False)) for reason, mask in masks]

    def _sizes(self, columns: dict[str, pa.Array]) -> pa.Array:
        """Return the largest size of each packed row in bytes, including the name of its channel, beside _fixed_size()."""
        sizes = pc.cast(pc.binary_length(columns["value"]), pa.int64())
        zeros = pa.Array.from_buffers(pa.int32(), len(sizes), [None, pa.py_buffer(bytes(4 * len(sizes)))])
        for name in ("reply", "key", "channel"):
            if name in columns:
                sizes = pc.add(sizes, pc.cast(pc.coalesce(pc.binary_length(columns[name]), zeros), pa.int64()))
        if "headers" in columns:
            sizes = pc.add(sizes, pa.array(map(_header_size, _pairs(columns["headers"])), pa.int64()))
        return sizes

    def _fixed_size(self, columns: dict[str, pa.Array]) -> int:
        """Return the bytes of each packed row at most beside its own."""
        return ROW_OVERHEAD + ID_BYTES + len(self._options.channel.encode()) + ("key" in columns) * KEY_OVERHEAD

    def _leave_out(
        self, columns: dict[str, pa.Array], faults: list[tuple[str, pa.Array]], count: int
    ) -> Iterator[Request]:
        """Handle the faulty rows as onError says: raise RowError, count them, or send them to the dead-letter channel."""
        options = self._options
        if options.on_error == "fail":
            reason, mask = faults[0]
            row = pc.index(mask, value=True).as_py()
            raise RowError(
                f"{count} rows cannot be published; row {self._rows_before + row} of its partition: {reason} "
                f"(channel {_shown(columns, row) or options.channel!r}; the option onError can leave such rows out)"
            )
        if options.on_error == "skip":
            self.skipped += count
            return
        self.dead += count
        done: set[int] = set()
        for reason, mask in faults:
            rows = [row for row in pc.indices_nonzero(mask).to_pylist() if row not in done]
            done.update(rows)
            for row in rows:
                yield from self._pile(options.dead_letter, self._dead_letter(columns, row, reason))

    def _dead_letter(self, columns: dict[str, pa.Array], row: int, reason: str) -> _Lot:
        """Return a faulty row for the dead-letter channel: its value cut to the size that fits, its key, and headers with the
        reason, the channel and the full size."""
        value = columns["value"][row].as_py() or b""
        channel = columns["channel"][row].as_py() or b"" if "channel" in columns else self._options.channel.encode()
        added: list[tuple[bytes, bytes]] = [
            (b"stan-error", reason.encode()),
            (b"stan-channel", channel[:CHANNEL_NAME_BYTES_MAX]),
            (b"stan-bytes", b"%d" % len(value)),
        ]
        headers = list(_pairs(columns["headers"].slice(row, 1))[0]) if "headers" in columns else []
        key = columns["key"].slice(row, 1) if "key" in columns else None
        key_size = pc.binary_length(key)[0].as_py() or 0 if key is not None else 0
        if key_size > KEY_BYTES_MAX:
            key, key_size = None, 0
        room = self._room - ROW_OVERHEAD - ID_BYTES - KEY_OVERHEAD - key_size - len(self._options.dead_letter.encode())
        if _header_size([*headers, *added]) > room // 2:
            headers = []
        room -= _header_size([*headers, *added])
        return _Lot(pa.array([value[:room]], pa.binary()), None, [[*headers, *added]], key, None)

    # --- requests --------------------------------------------------------------------------------------------------------

    def _pile(self, channel: str, lot: _Lot) -> Iterator[Request]:
        """Add rows to the pile of their channel; yields the requests that get full."""
        count = len(lot.value)
        if not count:
            return
        pile = self._piles.get(channel)
        if pile is None:
            pile = self._piles[channel] = _Pile(channel)
        options = self._options
        full = min(options.batch_bytes, self._request_room - len(channel.encode()))
        ids, offsets, data = self._ids_of(channel, lot), *_buffers(lot.value)
        weight = _weights(lot, offsets, with_ids=bool(ids))
        at = 0
        while at < count:
            most = min(count, at + options.batch_rows - pile.count)
            end = bisect_right(range(most + 1), weight(at) + full - pile.size, lo=at, key=weight) - 1
            if end <= at and not pile.count:
                end = at + 1  # a row on its own either fits, or NATS or the broker refuses it
            if end > at:
                packed = pack_rows(
                    offsets,
                    data,
                    lot.value.offset + at,
                    end - at,
                    replies=None if lot.reply is None else (*_buffers(lot.reply), lot.reply.offset + at),
                    headers=None if lot.headers is None else lot.headers[at:end],
                    keys=None if lot.key is None else (*_buffers(lot.key), lot.key.offset + at),
                )
                before = pile.size
                pile.add(packed, end - at, ids[ID_BYTES * at : ID_BYTES * end])
                self._pending += pile.size - before
                at = end
            if at < count or pile.count == options.batch_rows:
                yield self._pop(pile)

    def _pop(self, pile: _Pile) -> Request:
        self._pending -= pile.size
        return pile.pop()

    def _ids_of(self, channel: str, lot: _Lot) -> bytes:
        count = len(lot.value)
        if lot.ids is not None:
            return ids_of_column((*_buffers(lot.ids), lot.ids.offset), count)
        if self._ids is None:
            return b""
        contents = lot.value
        if lot.reply is not None or lot.headers is not None or lot.key is not None:
            replies = lot.reply.to_pylist() if lot.reply is not None else [None] * count
            headers = lot.headers if lot.headers is not None else [()] * count
            keys = [(key,) for key in lot.key.to_pylist()] if lot.key is not None else [()] * count
            each = zip(lot.value.to_pylist(), replies, headers, keys, strict=True)
            texts = [b"%d %b%r" % (len(value), value, (reply, head, *key)) for value, reply, head, key in each]
            contents = pa.array(texts, pa.binary())
        return self._ids.of(channel, (*_buffers(contents), contents.offset), count)


def _weights(lot: _Lot, offsets: pa.Buffer, *, with_ids: bool) -> Callable[[int], int]:
    """Return a function: row number -> largest packed size, in bytes, of all rows before it."""
    places = memoryview(offsets).cast("B").cast(_I32)[lot.value.offset :]
    each = ROW_OVERHEAD + (ID_BYTES if with_ids else 0) + (KEY_OVERHEAD if lot.key is not None else 0)
    sizes: list[Iterable[int | None]] = [
        pc.binary_length(texts).to_pylist() for texts in (lot.reply, lot.key) if texts is not None
    ]
    if lot.headers is not None:
        sizes.append(map(_header_size, lot.headers))
    if not sizes:
        return lambda row: places[row] + each * row
    extra = list(accumulate((sum(size or 0 for size in row) for row in zip(*sizes, strict=True)), initial=0))
    return lambda row: places[row] + each * row + extra[row]


def _channel_faults(channel: pa.Array) -> list[tuple[str, pa.Array]]:
    names = channel.dictionary_encode()
    bad = [not is_channel_name(name) for name in names.dictionary.to_pylist()]
    masks = [("channel is null", channel.is_null())] if channel.null_count else []
    if any(bad):
        masks.append(("not a channel name", pa.array(bad).take(names.indices)))
    return masks


def _shown(columns: dict[str, pa.Array], row: int) -> str:
    return repr(columns["channel"][row].as_py()) if "channel" in columns else ""


def _binary(column: pa.Array) -> pa.Array:
    """Return a column as binary; numbers become their decimal digits."""
    if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
        column = column.cast(pa.binary() if wide else pa.string())
    return column.cast(pa.binary())


def _buffers(column: pa.Array) -> tuple[pa.Buffer, pa.Buffer]:
    """Return the offsets and the data of a column that is not empty."""
    _, offsets, data = column.buffers()
    return offsets, data if data is not None else pa.py_buffer(b"")


def _pairs(headers: pa.Array) -> list[Headers]:
    """Return the pairs of key and value of each row; null becomes no pairs, or an empty key or value."""
    return [
        [((head["key"] or "").encode(), head["value"] or b"") for head in heads or () if head is not None]
        for heads in headers.to_pylist()
    ]


def _header_size(pairs: Headers) -> int:
    return sum(len(key) + len(value) + HEADER_OVERHEAD for key, value in pairs)

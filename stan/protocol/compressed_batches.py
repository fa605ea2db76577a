"""Compressed record batches as the log stores them, from which readers make records. Pure.

    rows, as they were published ─► frame ─► stored: codec u8 | length of the channel's name u16 | name | frame
    stored, the batch's header ─► rows ─► seal ─► records, as if they had never been compressed

A node without zstd does not start (`require`).
"""

from struct import Struct
from typing import Final

from stan_protocol.compression import Compressor, rows_of, zstd_module
from stan_protocol.fetches import FetchedBatch
from stan_protocol.kernel.rows import seal

from stan.errors import Damage, StartError
from stan.limits import COMPRESSED_BYTES_MAX
from stan.protocol.entries import RecordBatch

ZSTD: Final = 1
"""Codecs: the first byte of a stored batch. Written to disk, so numbers are never reused."""
_FRONT = Struct("<BH")

Bytes = bytes | memoryview


def require() -> None:
    """Raise StartError if compressed batches cannot be read here."""
    try:
        zstd_module()
    except ImportError as error:
        raise StartError("compressed batches need the package backports.zstd: pip install backports.zstd") from error


class BatchCompressor(Compressor):
    """Compresses batches for the log; for one thread."""

    def stored_form(self, channel: bytes, rows: Bytes, records: bytes) -> tuple[bytes, int]:
        """Return the stored form of a batch and the size in its header; *records* and 0 if compression does not pay.

        Args:
            channel: its name.
            rows: of the batch.
            records: that `seal` has made of them.
        """
        return stored_form(channel, self.frame(rows) if len(records) <= COMPRESSED_BYTES_MAX else b"", records)


def stored_form(channel: bytes, frame: bytes, records: bytes) -> tuple[bytes, int]:
    """Return the stored form of rows that are compressed as *frame* (b"": they are not); see `BatchCompressor.stored_form`."""
    stored = b"".join((_FRONT.pack(ZSTD, len(channel)), channel, frame)) if frame else b""
    return (stored, len(records)) if 0 < len(stored) < len(records) <= COMPRESSED_BYTES_MAX else (records, 0)


def parts_of(stored: Bytes) -> tuple[bytes, Bytes]:
    """The channel's name and the frame of a stored batch. Raises Damage: it is none, or of an unknown codec."""
    if len(stored) < _FRONT.size:
        raise Damage("compressed batch cut off")
    codec, length = _FRONT.unpack_from(stored)
    start = _FRONT.size + length
    if codec != ZSTD:
        raise Damage(f"batch compressed in a way that this version does not know ({codec})")
    if start > len(stored):
        raise Damage("compressed batch cut off")
    return bytes(stored[_FRONT.size : start]), stored[start:]


def in_clear(batch: RecordBatch) -> Bytes:
    """The records of a batch as readers get them. Raises Damage: they are compressed, and not as they were."""
    return records_of(batch.records, batch.base_sequence, batch.timestamp, batch.size) if batch.size else batch.records


def stored_rows(stored: Bytes, size: int) -> bytes:
    """The rows of a stored batch whose records have *size* bytes. Raises Damage."""
    try:
        return rows_of(parts_of(stored)[1], size)
    except ValueError as error:
        raise Damage(f"compressed batch cannot be read: {error}") from error


def records_of(stored: Bytes, base_sequence: int, timestamp: int, size: int) -> bytes:
    """The records of a stored batch.

    Args:
        stored: its stored form.
        base_sequence: of its first message.
        timestamp: of its messages.
        size: bytes of the records, from the batch's header.

    Raises:
        Damage: it is not a compressed batch of such records.
    """
    channel, rows = parts_of(stored)[0], stored_rows(stored, size)
    try:
        records = seal(channel, base_sequence, timestamp, [rows])
    except ValueError as error:
        raise Damage(f"compressed batch cannot be read: {error}") from error
    if len(records) != size:
        raise Damage(f"compressed batch of {len(records)} bytes of records, {size} announced")
    return records


def framed(batch: FetchedBatch) -> FetchedBatch:
    """Return *batch*, whose records are in stored form, with only their frame. Raises Damage."""
    return batch._replace(records=parts_of(batch.records)[1], rows=batch.count)

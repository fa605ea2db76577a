"""Compressed record batches: the rows of a batch in one zstd frame, from which whoever reads makes its records. Pure.

    rows, as they were published ─► frame ─► stored: codec u8 | length of the channel's name u16 | name | frame
    stored, the batch's header ─► rows ─► kernel.seal ─► records, as if they had never been compressed

A frame holds no sequences and no timestamps, so whoever publishes can make it, and the log keeps it as it came. Promises: nothing
is decompressed before the frame has told how much it will be, and that is within the caller's bound; bytes of any form give an
error and no more memory than that bound. A node without the package `zstandard` does not start (`require`).
"""

from struct import Struct
from typing import TYPE_CHECKING, Final

from stan.errors import Damage, StartError
from stan.limits import COMPRESSED_BYTES_MAX, COMPRESSED_BYTES_MIN
from stan.protocol.entries import RecordBatch

if TYPE_CHECKING:
    import zstandard

ZSTD: Final = 1
"""Codecs: what the first byte of a stored batch says. Written to disk, so numbers are never reused."""
LEVEL: Final = 1
"""Of zstd: higher ones take twice the time, and batches of events get hardly smaller."""
_FRONT = Struct("<BH")

Bytes = bytes | memoryview


def require() -> None:
    """Raises StartError if compressed batches cannot be read here."""
    try:
        import zstandard  # noqa: F401, PLC0415 - takes time to import; most processes never need it
    except ImportError as error:
        raise StartError("compressed batches need the package zstandard: pip install zstandard") from error


class Compressor:
    """Compresses rows; for one thread."""

    def __init__(self) -> None:
        self._zstd: zstandard.ZstdCompressor | None = None

    def frame(self, rows: Bytes) -> bytes:
        """The frame of *rows*; b"" if they are too few, or do not get at least a tenth smaller."""
        if len(rows) < COMPRESSED_BYTES_MIN:
            return b""
        if self._zstd is None:
            import zstandard  # noqa: PLC0415 - see `require`

            self._zstd = zstandard.ZstdCompressor(level=LEVEL, write_content_size=True)
        found = self._zstd.compress(rows)
        return found if 10 * len(found) < 9 * len(rows) else b""

    def kept(self, channel: bytes, rows: Bytes, records: bytes) -> tuple[bytes, int]:
        """What the log keeps of a batch, and the size that its header tells: *records* and 0 if compression is not worth it.

        Args:
            channel: its name.
            rows: of the batch.
            records: that `kernel.seal` has made of them.
        """
        return kept(channel, self.frame(rows) if len(records) <= COMPRESSED_BYTES_MAX else b"", records)


def rows_of(frame: Bytes, bytes_max: int) -> bytes:
    """The rows in a frame.

    Raises:
        ValueError: it is no frame, does not tell its size, or has more than *bytes_max* bytes of rows; the last two are known
            before anything is decompressed.
    """
    import zstandard  # noqa: PLC0415 - see `require`

    try:
        told = zstandard.get_frame_parameters(frame)
        if told.content_size > bytes_max:  # also one that is not told, which is the largest number of all
            raise ValueError("more than may be decompressed, or of unknown size")
        if told.dict_id:
            raise ValueError("made with a dictionary")
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=told.content_size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


def kept(channel: bytes, frame: bytes, records: bytes) -> tuple[bytes, int]:
    """As `Compressor.kept`, of rows whose *frame* is there already; b"": they have none."""
    stored = b"".join((_FRONT.pack(ZSTD, len(channel)), channel, frame)) if frame else b""
    return (stored, len(records)) if 0 < len(stored) < len(records) <= COMPRESSED_BYTES_MAX else (records, 0)


def parts_of(stored: Bytes) -> tuple[bytes, Bytes]:
    """The channel's name and the frame of a stored batch. Raises Damage: it is none, or of a codec that is not known here."""
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
        stored: what the log keeps of it.
        base_sequence: of its first message.
        timestamp: of its messages.
        size: bytes of the records, as the batch's header tells.

    Raises:
        Damage: it is not a compressed batch of such records.
    """
    from stan.protocol.kernel import server as kernel  # noqa: PLC0415 - clients, which make frames, have no use for it

    channel, rows = parts_of(stored)[0], stored_rows(stored, size)
    try:
        records = kernel.seal(channel, base_sequence, timestamp, [rows])
    except ValueError as error:
        raise Damage(f"compressed batch cannot be read: {error}") from error
    if len(records) != size:
        raise Damage(f"compressed batch of {len(records)} bytes of records, {size} announced")
    return records

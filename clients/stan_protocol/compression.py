"""Frames of compressed rows: the rows of a batch in one zstd frame. Pure.

A frame holds no sequences and no timestamps, so publishers can make it, and the log stores it as it came. Promises: nothing is
decompressed before the frame has named its content size, and that is within the caller's bound; bytes of any form give an
error and no more memory than that bound.
"""

from typing import TYPE_CHECKING, Final

from stan_protocol.limits import COMPRESSED_BYTES_MIN

if TYPE_CHECKING:
    import zstandard

LEVEL: Final = 1
"""Of zstd: higher ones take twice the time, and batches of events get hardly smaller."""

Bytes = bytes | memoryview


class Compressor:
    """Compresses rows; for one thread."""

    def __init__(self) -> None:
        self._zstd: zstandard.ZstdCompressor | None = None

    def frame(self, rows: Bytes) -> bytes:
        """The frame of *rows*; b"" if they are too few, or do not get at least a tenth smaller."""
        if len(rows) < COMPRESSED_BYTES_MIN:
            return b""
        if self._zstd is None:
            import zstandard  # noqa: PLC0415 - takes time to import; most processes never need it

            self._zstd = zstandard.ZstdCompressor(level=LEVEL, write_content_size=True)
        found = self._zstd.compress(rows)
        return found if 10 * len(found) < 9 * len(rows) else b""


def rows_of(frame: Bytes, bytes_max: int) -> bytes:
    """The rows in a frame.

    Raises:
        ValueError: it is no frame, does not tell its size, or has more than *bytes_max* bytes of rows; the last two are known
            before anything is decompressed.
    """
    import zstandard  # noqa: PLC0415 - takes time to import; most processes never need it

    try:
        told = zstandard.get_frame_parameters(frame)
        if told.content_size > bytes_max:  # also one that is not told, which is the largest number of all
            raise ValueError("more than may be decompressed, or of unknown size")
        if told.dict_id:
            raise ValueError("made with a dictionary")
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=told.content_size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error

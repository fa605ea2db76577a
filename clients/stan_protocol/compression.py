"""Frames of compressed rows: the rows of a batch in one zstd frame. Pure.

A frame holds no sequences and no timestamps, so publishers can make it, and the log stores it as it came. Promises: nothing is
decompressed before the frame has named its content size, and that is within the caller's bound; bytes of any form give an
error and no more memory than that bound.
"""

import sys
from typing import TYPE_CHECKING, Any, Final

from stan_protocol.limits import COMPRESSED_BYTES_MIN

if TYPE_CHECKING:
    from backports import zstd

LEVEL: Final = 1
"""Of zstd: higher ones take twice the time, and batches of events get hardly smaller."""

Bytes = bytes | memoryview


def zstd_module() -> Any:
    """Python's own module for zstd; before Python 3.14 the one of the package backports.zstd. ImportError: it is missing."""
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415 - takes time to import; most processes never need it
    else:
        from backports import zstd  # noqa: PLC0415
    return zstd


class Compressor:
    """Compresses rows; for one thread."""

    def __init__(self) -> None:
        self._zstd: zstd.ZstdCompressor | None = None

    def frame(self, rows: Bytes) -> bytes:
        """The frame of *rows*; b"" if they are too few, or do not get at least a tenth smaller."""
        if len(rows) < COMPRESSED_BYTES_MIN:
            return b""
        if self._zstd is None:
            self._zstd = zstd_module().ZstdCompressor(level=LEVEL)
        frame = self._zstd.compress(rows, self._zstd.FLUSH_FRAME)
        return frame if 10 * len(frame) < 9 * len(rows) else b""


def rows_of(frame: Bytes, bytes_max: int) -> bytes:
    """The rows in a frame.

    Raises:
        ValueError: it is no frame, does not tell its size, or has more than *bytes_max* bytes of rows; the last two are known
            before anything is decompressed.
    """
    zstd = zstd_module()
    try:
        info = zstd.get_frame_info(frame)
        if info.decompressed_size is None or info.decompressed_size > bytes_max:
            raise ValueError("more than may be decompressed, or of unknown size")
        if info.dictionary_id:
            raise ValueError("made with a dictionary")
        decompressor = zstd.ZstdDecompressor()
        rows: bytes = decompressor.decompress(frame, max_length=info.decompressed_size)
    except zstd.ZstdError as error:
        raise ValueError(str(error)) from error
    if not decompressor.eof or decompressor.unused_data or len(rows) != info.decompressed_size:
        raise ValueError("cut off, or followed by something else")
    return rows

"""The data of a socket, put together until a whole frame is there.

Promises that a large frame, which comes in many reads, is copied once and not with each of them. Never looks into a frame after
its first line.
"""

from typing import Final

LARGE: Final = 16 * 1024
"""A beginning of fewer bytes is joined with the next data, without a look at how much is missing."""
_LINE_END: Final = b"\r\n"


class Pieces:
    """The received beginning of an incomplete frame."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._missing = 0  # bytes missing to the whole frame; 0 or less: not known

    def joined(self, data: bytes) -> bytes | None:
        """Return the pending pieces with *data*, and drop them; None, with *data* pending, too, if the frame is incomplete."""
        if not self._parts:
            return data
        self._parts.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return None
        frame = b"".join(self._parts)
        self._parts.clear()
        return frame

    def keep(self, beginning: bytes) -> None:
        """Keep the *beginning* of a frame, if there is one."""
        self._parts = [beginning] if beginning else []
        self._missing = _size_of(beginning) - len(beginning) if len(beginning) > LARGE else 0


def _size_of(beginning: bytes) -> int:
    """Return the size of the message that begins so, as its first line has it; 0: it does not."""
    end = beginning.find(_LINE_END)
    size = beginning[: max(end, 0)].rpartition(b" ")[2]
    return end + int(size) + 2 * len(_LINE_END) if size.isdigit() else 0

"""What the socket brings, put together until a whole frame is there.

Promises that a large frame, which comes in many reads, is copied once and not with each of them. Never looks into a frame behind
its first line.
"""

from typing import Final

LARGE: Final = 16 * 1024
"""A beginning of fewer bytes is joined with what comes next, without a look at how much is missing."""
_LINE_END: Final = b"\r\n"


class Pieces:
    """The beginning of a frame that is not whole, as it came."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._missing = 0  # bytes that have to come before the frame is whole; 0 or less: not known

    def joined(self, data: bytes) -> bytes | None:
        """Return *data* behind what was kept, which is forgotten; None, and *data* is kept, while the frame cannot be whole."""
        if not self._parts:
            return data
        self._parts.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return None
        whole = b"".join(self._parts)
        self._parts.clear()
        return whole

    def keep(self, beginning: bytes) -> None:
        """Keep the *beginning* of a frame, if there is one."""
        self._parts = [beginning] if beginning else []
        self._missing = _size_of(beginning) - len(beginning) if len(beginning) > LARGE else 0


def _size_of(beginning: bytes) -> int:
    """Return the size of the message that begins so, as its first line tells; 0: it does not tell."""
    end = beginning.find(_LINE_END)
    size = beginning[: max(end, 0)].rpartition(b" ")[2]
    return end + int(size) + 2 * len(_LINE_END) if size.isdigit() else 0

"""One link to one peer: a FIFO without loss or repeats, for as long as it lasts, over frames that may be lost, late or repeated.

    frame   magic u8 | flags u8 | mine u64 | theirs u64 | number u64 | CRC-32 u32 | content

Both ends make a number for each session and prove that they know the other's: content counts only in frames that carry both.

    down ── frame with their number ──► heard ── frame with both ──► up ── gap, other number, silence, garbage ──► down

Promises: while up, content arrives whole, in order and once; whoever misses one frame ends the session, and both ends hear of it.
A frame of an earlier life of either end is never taken for one of this. Frames are bounded; longer content is cut and put
together. Pure.
"""

import zlib
from random import Random
from struct import Struct

from stan import limits
from stan.raft.transport.codec import FrameError
from stan.types import Nanos

_FRAME = Struct("<BBQQQI")
_MAGIC = 0x52
_MORE, _CONTINUES = 1, 2
HEADER_BYTES = _FRAME.size


class Link:
    """This node's end. `frames` and `take` do the work; the mux looks at `up` after each `take`."""

    def __init__(self, random: Random, now: Nanos) -> None:
        self.up = False
        self.heard_at = now  # last frame of the session
        self.spoke_at = Nanos(now - limits.RAFT_PING_INTERVAL)
        self.wants_to_speak = False  # the other end should hear our numbers now
        self._random = random
        self._mine = self._number()
        self._theirs = 0
        self._sent = 0
        self._taken = 0
        self._partial: list[bytes] = []
        self._partial_bytes = 0

    def frames(self, content: bytes, now: Nanos) -> list[bytes]:
        """Content as frames; without content one frame that says that this end is alive."""
        self.spoke_at = now
        self.wants_to_speak = False
        size = limits.RAFT_FRAME_BYTES_MAX
        pieces = [content[at : at + size] for at in range(0, len(content), size)] or [b""]
        frames = []
        for at, piece in enumerate(pieces, 1):
            self._sent += 1
            flags = (_MORE if at < len(pieces) else 0) | (_CONTINUES if at > 1 else 0)
            head = _FRAME.pack(_MAGIC, flags, self._mine, self._theirs, self._sent, zlib.crc32(piece))
            frames.append(head + piece)
        return frames

    def take(self, frame: bytes | memoryview, now: Nanos) -> bytes | memoryview:
        """A frame of the peer; returns the content that is complete with it, perhaps a view of the frame, else nothing. Raises
        FrameError."""
        if not HEADER_BYTES <= len(frame) <= HEADER_BYTES + limits.RAFT_FRAME_BYTES_MAX:
            raise FrameError(f"a frame of {len(frame)} bytes")
        magic, flags, theirs, mine, number, crc = _FRAME.unpack_from(frame)
        if magic != _MAGIC or flags & ~(_MORE | _CONTINUES) or not theirs:
            raise FrameError("not a frame of a link")
        if theirs != self._theirs:
            self._on_new_session(theirs, mine, number)
        if mine != self._mine or theirs != self._theirs:
            self.wants_to_speak = True
            return b""
        if number <= self._taken:
            return b""  # a repeat
        if number != self._taken + 1 and self.up:
            self.reset()
            return b""
        self.heard_at, self._taken = now, number
        if not self.up:
            self.up = True
            self.wants_to_speak = True
        return self._join(frame, flags, crc)

    def _join(self, frame: bytes | memoryview, flags: int, crc: int) -> bytes | memoryview:
        piece = memoryview(frame)[HEADER_BYTES:]
        if bool(flags & _CONTINUES) != bool(self._partial):
            raise FrameError("a frame that does not continue the one before")
        if zlib.crc32(piece) != crc:
            raise FrameError("a frame with a wrong CRC")
        if not flags:
            return piece
        self._partial_bytes += len(piece)
        if self._partial_bytes > limits.RAFT_MESSAGE_BYTES_MAX + limits.RAFT_FRAME_BYTES_MAX:
            raise FrameError(f"content of more than {self._partial_bytes} bytes")
        self._partial.append(bytes(piece))
        if flags & _MORE:
            return b""
        content = b"".join(self._partial)
        self._partial.clear()
        self._partial_bytes = 0
        return content

    def _on_new_session(self, theirs: int, mine: int, number: int) -> None:
        """A frame with a number of the peer that is not the session's."""
        if mine == self._mine:  # they know this session already
            self._end(theirs)
            self._taken = number - 1
        elif mine == 0:  # they know nobody yet: a new life
            self._end(theirs)
        else:  # they speak to an earlier life of this end: they must learn of this one
            self._end(0)

    def reset(self) -> None:
        """End the session; what was on the way, in both directions, is lost."""
        self._end(0)

    def is_silent(self, now: Nanos, patience: int = limits.RAFT_PEER_TIMEOUT) -> bool:
        """True if the peer counts as down, because it was silent for longer than *patience* nanoseconds."""
        return self.up and now - self.heard_at > patience

    def is_due(self, now: Nanos) -> bool:
        """True if this end has been silent for too long, or has something to send about the session."""
        return self.wants_to_speak or now - self.spoke_at >= limits.RAFT_PING_INTERVAL

    def _end(self, theirs: int) -> None:
        if self.up:
            self._mine = self._number()
            self._sent = 0
        self.up = False
        self.wants_to_speak = True
        self._theirs = theirs
        self._taken = 0
        self._partial.clear()
        self._partial_bytes = 0

    def _number(self) -> int:
        return self._random.getrandbits(63) + 1

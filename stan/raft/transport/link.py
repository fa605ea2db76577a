"""The link to a peer: while it is up, content arrives in order and once, over frames that may be lost, late or repeated.

    frame   magic u8 | flags u8 | mine u64 | theirs u64 | number u64 | CRC-32 u32 | content
            with an epoch: another magic, and epoch u64 after the CRC-32

*mine* and *theirs* identify a session: each end draws a random number for it, and *number* counts the frames of the session. The
content of a frame counts only if the frame carries the current numbers of both ends, which proves that its sender knows both.

    down ── frame with their number ──► known ── frame with both ──► up ── gap, other number, silence, garbage ──► down

Promises: an end that misses a frame ends the session, and the other end learns of it from the next frame. A frame from before a
restart of either end never counts for the current session. A frame of another epoch than this end's is ignored:
its sender is from before or after a rescue of the cluster (stan.edge.cluster.rescue). A frame's content is at most
RAFT_FRAME_BYTES_MAX; longer content is cut into frames and joined again. Pure.
"""

import zlib
from random import Random
from struct import Struct

from stan_protocol.scalars import Nanos

from stan import limits
from stan.raft.transport.codec import FrameError

_FRAME = Struct("<BBQQQI")
_FRAME_OF_EPOCH = Struct(_FRAME.format + "Q")
_MAGIC, _MAGIC_OF_EPOCH = 0x52, 0x53
_MORE, _CONTINUES = 1, 2
HEADER_BYTES = _FRAME_OF_EPOCH.size
"""Of the longest header."""


class Link:
    """This node's end of a link. `accept` may change `up`: the mux compares it before and after."""

    def __init__(self, random: Random, now: Nanos, epoch: int = 0) -> None:
        self.up = False
        self.received_at = now  # when the newest frame of the session arrived
        self.sent_at = Nanos(now - limits.RAFT_PING_INTERVAL)  # when the newest frame was made
        self.must_send = False  # a frame should leave now, if only with this end's numbers
        self._random = random
        self._mine = self._number()
        self._theirs = 0  # the peer's number; 0: unknown
        self._sent = 0  # number of the newest frame made
        self._accepted = 0  # number of the newest accepted frame
        self._partial: list[bytes] = []  # content of which more frames are to come
        self._partial_bytes = 0
        self._epoch = epoch

    def frames(self, content: bytes, now: Nanos) -> list[bytes]:
        """Cut *content* into frames; empty content makes one frame, a ping."""
        self.sent_at = now
        self.must_send = False
        frames, at, more = [], 0, True
        while more:
            piece = content[at : at + limits.RAFT_FRAME_BYTES_MAX]
            more = at + len(piece) < len(content)
            flags = (_MORE if more else 0) | (_CONTINUES if at else 0)
            self._sent += 1
            crc = zlib.crc32(piece)
            if self._epoch:
                head = _FRAME_OF_EPOCH.pack(
                    _MAGIC_OF_EPOCH, flags, self._mine, self._theirs, self._sent, crc, self._epoch
                )
            else:
                head = _FRAME.pack(_MAGIC, flags, self._mine, self._theirs, self._sent, crc)
            frames.append(head + piece)
            at += len(piece)
        return frames

    def accept(self, frame: bytes | memoryview, now: Nanos) -> bytes | memoryview:
        """Accept a frame of the peer.

        Returns the content that this frame completes, which may be a view of *frame*; empty if it completes none.

        Raises:
            FrameError: the frame is damaged, or no frame of this protocol; the caller has to `reset` the link.
        """
        if not _FRAME.size <= len(frame) <= HEADER_BYTES + limits.RAFT_FRAME_BYTES_MAX:
            raise FrameError(f"a frame of {len(frame)} bytes")
        magic, flags, theirs, mine, number, crc = _FRAME.unpack_from(frame)
        if magic not in (_MAGIC, _MAGIC_OF_EPOCH) or flags & ~(_MORE | _CONTINUES) or not theirs:
            raise FrameError("not a frame of a link")
        if (magic != _MAGIC or self._epoch) and self._epoch_of(frame) != self._epoch:
            return b""
        if theirs != self._theirs:
            self._on_new_session(theirs, mine, number)
        if mine != self._mine or theirs != self._theirs:
            self.must_send = True
            return b""
        if number <= self._accepted:
            return b""  # a frame that came twice
        if number != self._accepted + 1 and self.up:
            self.reset()
            return b""
        self.received_at, self._accepted = now, number
        if not self.up:
            self.up = True
            self.must_send = True
        return self._content(frame, flags, crc)

    def _content(self, frame: bytes | memoryview, flags: int, crc: int) -> bytes | memoryview:
        """The content that a frame of the session completes. Raises FrameError."""
        if bool(flags & _CONTINUES) != bool(self._partial):
            raise FrameError("a frame that does not continue the one before")
        piece = memoryview(frame)[HEADER_BYTES if self._epoch else _FRAME.size :]
        if zlib.crc32(piece) != crc:
            raise FrameError("a frame with a wrong CRC")
        return self._join(piece, flags) if flags else piece

    def _epoch_of(self, frame: bytes | memoryview) -> int:
        """The epoch of a frame; 0 without one."""
        if frame[0] == _MAGIC or len(frame) < HEADER_BYTES:
            return 0
        return int(_FRAME_OF_EPOCH.unpack_from(frame)[-1])

    def _join(self, piece: memoryview, flags: int) -> bytes:
        """Join a frame's content to that of earlier frames; returns the complete content, b"" if more is to come."""
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
        """Begin another session, as a frame carries another number of the peer."""
        if mine == self._mine:  # the peer has read this end's number, and has drawn its own for the session
            self._end(theirs)
            self._accepted = number - 1
        elif mine == 0:  # the peer knows no number of this end yet: it has just started, or ended its session
            self._end(theirs)
        else:  # the peer uses a number of an earlier session of this end, and has to learn the current one
            self._end(0)

    def reset(self) -> None:
        """End the session: content on the way, in both directions, is lost."""
        self._end(0)

    def is_silent(self, now: Nanos, patience: int = limits.RAFT_PEER_TIMEOUT) -> bool:
        """True if the link is up and no frame has arrived for longer than *patience* nanoseconds."""
        return self.up and now - self.received_at > patience

    def is_due(self, now: Nanos) -> bool:
        """True if a frame should leave: this end sent none for RAFT_PING_INTERVAL, or the peer lacks its numbers."""
        return self.must_send or now - self.sent_at >= limits.RAFT_PING_INTERVAL

    def _end(self, theirs: int) -> None:
        """End the session; *theirs* is the peer's number in the next one, 0 if it is unknown."""
        if self.up:
            self._mine = self._number()
            self._sent = 0
        self.up = False
        self.must_send = True
        self._theirs = theirs
        self._accepted = 0
        self._partial.clear()
        self._partial_bytes = 0

    def _number(self) -> int:
        return self._random.getrandbits(63) + 1

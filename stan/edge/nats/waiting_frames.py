"""Frames of clients received before the broker leads; it handles them once it does.

Promises: in their order of arrival, bounded in bytes. Requests whose clients have given up are dropped.
"""

from collections.abc import Callable

from stan_protocol.frames import Frame
from stan_protocol.scalars import Nanos

from stan import limits
from stan.edge.nats.subscriptions import FIRST_REQUEST_SID


class WaitingFrames:
    """Frames, with their times of arrival."""

    def __init__(self, now: Callable[[], Nanos]) -> None:
        """*now*: the monotonic clock."""
        self._now = now
        self._frames: list[tuple[Nanos, Frame]] = []
        self._bytes = 0

    def add(self, frame: Frame) -> None:
        """Add a frame; beyond REPLAY_BYTES_MAX it is lost, as without a connection."""
        size = len(frame.payload) + len(frame.header) + len(frame.subject)
        if self._bytes + size <= limits.REPLAY_BYTES_MAX:
            self._bytes += size
            self._frames.append((self._now(), frame))

    def encoded(self) -> bytes:
        """Encode the frames as received from NATS, without requests that are older than REPLAY_REQUEST_AGE_MAX."""
        oldest = self._now() - limits.REPLAY_REQUEST_AGE_MAX
        return b"".join(
            [frame.encoded() for at, frame in self._frames if frame.sid < FIRST_REQUEST_SID or at >= oldest]
        )

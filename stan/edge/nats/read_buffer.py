"""The read buffer: bytes that the connection to NATS has brought since the driver's last turn, in order of arrival; and those
beyond a turn's work, by sender.

Promises: bytes of one connection are never joined with bytes of the next, so that a frame which was cut off is never completed by
the wrong bytes.
"""

from collections import deque
from typing import TYPE_CHECKING

from stan.edge.nats.gathering import BULK_SHARE, Gathering, Later, UnreadBytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from stan.edge.nats.waiting_frames import WaitingFrames


class Backlog:
    """Complete frames that wait for later turns, each sender's in order of arrival; senders take turns."""

    def __init__(self) -> None:
        # By sender: bytes, and the place of the first frame in them.
        self._frames: dict[bytes, deque[tuple[bytes, int]]] = {}
        self._sender = b""  # of the bytes popped last
        self.size = 0  # in bytes

    def add(self, frames: dict[bytes, bytes]) -> None:
        """Add received frames, by sender."""
        for sender, data in frames.items():
            self._frames.setdefault(sender, deque()).append((data, 0))
            self.size += len(data)

    @property
    def senders(self) -> int:
        """Number of waiting senders."""
        return len(self._frames)

    def pop(self) -> tuple[bytes, int]:
        """Pop the oldest bytes of the sender whose turn it is; returns them, and the place of the next frame in them."""
        self._sender, waiting = next(iter(self._frames.items()))
        data, at = waiting.popleft()
        del self._frames[self._sender]
        if waiting:
            self._frames[self._sender] = waiting  # after the others
        self.size -= len(data) - at
        return data, at

    def put_back(self, data: bytes, at: int) -> None:
        """Put back the bytes that were popped last and are handled up to *at*, before all others of their sender."""
        self._frames.setdefault(self._sender, deque()).appendleft((data, at))
        self.size += len(data) - at


class ReadBuffer:
    """Bytes that are not scanned yet, and whether the connection was made or lost. `wake` asks for a turn of the driver."""

    def __init__(self) -> None:
        self.runs: list[list[bytes]] = [[]]  # chunks; a new run begins wherever the connection was made or lost
        self.rest = b""  # scanned bytes of the first run that are the beginning of an incomplete frame
        self.backlog = Backlog()
        self.waiting: WaitingFrames | None = None  # of clients, before the broker leads; None if nothing has to wait
        self.went_up = False
        self.went_down = False
        self.unread = UnreadBytes()
        self.wake: Callable[[], None]

    def gather(self, look: "Callable[[], None]", later: Later) -> None:
        """Have a turn by *look* when bytes have come, of a bulk when enough of it has."""
        self.wake = Gathering(self.unread, look, later).arrived

    def on_data(self, data: bytes) -> None:
        """Add read bytes."""
        self.runs[-1].append(bytes(data))
        self.unread.count += len(data)
        self.wake()

    def on_up(self) -> None:
        """Note a new connection."""
        self.went_up = True
        self.runs.append([])  # frames sent before this connection was made are missed
        self.wake()

    def on_down(self) -> None:
        """Note the loss of the connection."""
        self.went_down = True
        self.runs.append([])
        self.wake()

    def pop(self) -> bytes:
        """Pop the chunks of the first run, joined, after the rest of the frame that they complete."""
        chunks, unread = self.runs[0], self.unread
        unread.bulk = max(unread.count, unread.bulk - unread.bulk // BULK_SHARE)
        unread.count = 0
        data = b"".join((self.rest, *chunks)) if self.rest or len(chunks) > 1 else chunks[0]
        chunks.clear()
        return data

    def put_back(self) -> None:
        """End the waiting: waiting frames are read again, first of all."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            self.runs[0].insert(0, waiting.encoded() + self.rest)
            self.rest = b""

    def next_run(self) -> None:
        """Go on to the run of the next connection: the rest of a frame cut off by the end of its connection never arrives."""
        del self.runs[0]
        self.rest = b""

"""The read buffer: bytes that the connection to NATS has brought since the driver's last turn, in order of arrival.

Promises: bytes of one connection are never joined with bytes of the next, so that a frame which was cut off is never completed by
the wrong bytes.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from stan.edge.nats.waiting_frames import WaitingFrames


class ReadBuffer:
    """Bytes that are not scanned yet, and whether the connection was made or lost. `wake` asks for a turn of the driver."""

    def __init__(self) -> None:
        self.runs: list[list[bytes]] = [[]]  # chunks; a new run begins wherever the connection was made or lost
        self.rest = b""  # scanned bytes of the first run that are the beginning of an incomplete frame
        self.waiting: WaitingFrames | None = None  # of clients, before the broker leads; None if nothing has to wait
        self.went_up = False
        self.went_down = False
        self.wake: Callable[[], None]

    def on_data(self, data: bytes) -> None:
        """Bytes were read."""
        self.runs[-1].append(bytes(data))
        self.wake()

    def on_up(self) -> None:
        """Connected."""
        self.went_up = True
        self.runs.append([])  # frames sent before this connection was made are missed
        self.wake()

    def on_down(self) -> None:
        """The connection is lost."""
        self.went_down = True
        self.runs.append([])
        self.wake()

    def take(self) -> bytes:
        """Take the chunks of the first run, joined, behind the rest of the frame that they complete."""
        chunks = self.runs[0]
        data = self.rest + b"".join(chunks) if self.rest or len(chunks) > 1 else chunks[0]
        chunks.clear()
        return data

    def put_back(self) -> None:
        """Nothing waits any longer: the frames that do are to be taken once more, first of all."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            self.runs[0].insert(0, waiting.encoded() + self.rest)
            self.rest = b""

    def next_run(self) -> None:
        """Go on to the run of the next connection: the rest of a frame that the end of its connection cut off never arrives."""
        del self.runs[0]
        self.rest = b""

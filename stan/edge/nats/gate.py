"""The gate of an embedded nats-server: no client gets in before the broker's connection.

nats-server listens, logs that it does, and only then takes the first connection. So its log goes through a pipe with room for one
line, where each further line waits until the one before it is read; and a line is read only while nats-server waits in this way
and nothing listens at its port yet. It therefore stops where it listens, we make the first connection, and the broker's
bytes are there before nats-server reads any connection.

Only Linux shows waiters at a pipe, and a log in a file of its own is not waited for. There the gate does not stop nats-server:
then the broker is merely the first of those that connect.
"""

import fcntl
import os
import select
import socket
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from stan_protocol.scalars import SECOND

from stan import limits

if TYPE_CHECKING:
    from collections.abc import Callable

_SET_SIZE = getattr(fcntl, "F_SETPIPE_SZ", 0)
_PACKETS = getattr(os, "O_DIRECT", 0) if _SET_SIZE else 0
"""Each write into the pipe is a packet with a page of its own."""
_SIZE_OPEN = 1 << 20
"""Size of the pipe once the gate is open, in bytes; without privileges no pipe is larger."""
_LOOK_INTERVAL_MS = 1
_READ_BYTES = 1 << 16


def log_pipe() -> tuple[int, int]:
    """Return the ends of a pipe for a log, to read and to write; where the system can, it has room for one line."""
    ends = os.pipe2(os.O_CLOEXEC | _PACKETS) if _PACKETS else os.pipe()
    if _PACKETS:
        fcntl.fcntl(ends[1], _SET_SIZE, 1)  # rounded up to a page
    return ends


class Gate:
    """Stops a nats-server at *address* until `open`. `follow` runs in a thread of its own, the rest may be called from any."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.reached = False
        """True once nats-server listens, and the first connection to it is made."""
        self._address = address
        self._first: deque[socket.socket] = deque()  # none or one
        self._opened = threading.Event()

    def pop_first(self) -> socket.socket | None:
        """Return the first connection, for the caller to use and to close; None if it is not made yet, or handed out already."""
        try:
            return self._first.pop()
        except IndexError:
            return None

    def open(self) -> None:
        """Let nats-server accept connections; the first one is closed if it was not handed out."""
        self._opened.set()
        first = self.pop_first()
        if first is not None:
            first.close()

    def follow(self, log: int, pid: int, pass_on: "Callable[[bytes], None]") -> None:
        """Read the log of process *pid* from the descriptor *log* until the gate is open or the log ends; *pass_on* gets its
        lines. The gate opens by itself after NATS_GATE_PATIENCE."""
        poll = select.poll()
        poll.register(log, select.POLLIN)
        while not (self.reached or self._opened.is_set()):
            events = poll.poll(_LOOK_INTERVAL_MS)
            if events and events[0][1] & select.POLLHUP:
                break
            waits = bool(events) and _waits(pid)  # before the look at the port: a later listener logs later
            self._look()
            if waits and not self.reached:
                pass_on(os.read(log, _READ_BYTES))
        if self.reached:
            self._opened.wait(limits.NATS_GATE_PATIENCE / SECOND)
        self.open()
        if _PACKETS:
            with suppress(OSError):  # the user's pipes have much room already: it stays small
                fcntl.fcntl(log, _SET_SIZE, _SIZE_OPEN)

    def _look(self) -> None:
        with suppress(OSError):
            self._first.append(socket.create_connection(self._address, limits.NATS_GATE_PATIENCE / SECOND))
            self.reached = True


def _waits(pid: int) -> bool:
    """Return True if process *pid* waits until there is room in a pipe, or if the system does not show it."""
    places = set()
    for file in Path(f"/proc/{pid}/task").glob("*/wchan"):
        with suppress(OSError):  # the thread has ended
            places.add(file.read_text())
    return any("pipe_write" in place for place in places) or places <= {"0", ""}

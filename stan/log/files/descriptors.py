"""A bounded number of open segment files, shared by the event loop and the worker threads.

Promises that a descriptor is never closed while it is in use: a number closed under a reader could already belong
to another file. Never looks into a file.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from stan.log.files.disk import Files


class Pin:
    """An open file with a count of its users; it is closed only when it has none."""

    __slots__ = ("descriptor", "removed", "users")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.users = 1
        self.removed = False  # the segment is removed: the last user closes the file


class Descriptors:
    """Open files by segment number, the least recently used one closed first.

    The lock is held for dictionary work, open and close, never for reading, writing or syncing.
    """

    def __init__(self, files: Files, open_max: int) -> None:
        self._files = files
        self._open_max = open_max
        self._open: OrderedDict[int, Pin] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._open)

    def adopt(self, number: int, descriptor: int) -> Pin:
        """Take over an open descriptor; in use until unpin()."""
        with self._lock:
            pin = self._open[number] = Pin(descriptor)
            return pin

    def pin(self, number: int, path: str) -> Pin:
        """The segment's file, opened if necessary; in use until unpin(). Raises OSError."""
        with self._lock:
            pin = self._open.get(number)
            if pin is None:
                pin = self._open[number] = Pin(self._files.open(path))
                if len(self._open) > self._open_max:
                    self._evict()
            else:
                pin.users += 1
                self._open.move_to_end(number)
            return pin

    def pin_open(self, number: int) -> Pin | None:
        """The segment's file if it is open, in use until unpin(); None if it would have to be opened."""
        with self._lock:
            pin = self._open.get(number)
            if pin is not None:
                pin.users += 1
                self._open.move_to_end(number)
            return pin

    def unpin(self, pin: Pin) -> None:
        """End a use of the file."""
        with self._lock:
            pin.users -= 1
            if pin.removed and not pin.users:
                self._files.close(pin.descriptor)
            elif len(self._open) > self._open_max:
                self._evict()

    @contextmanager
    def using(self, number: int, path: str) -> Iterator[int]:
        """Descriptor of the segment's file for the time of a `with`. Raises OSError."""
        pin = self.pin(number, path)
        try:
            yield pin.descriptor
        finally:
            self.unpin(pin)

    def forget(self, number: int) -> None:
        """Forget the segment; its file is closed now or by its last user."""
        with self._lock:
            pin = self._open.pop(number, None)
            if pin is not None:
                self._retire(pin)

    def close(self) -> None:
        """Forget all, and from now on close each file after its last use."""
        with self._lock:
            self._open_max = 0
            for pin in self._open.values():
                self._retire(pin)
            self._open.clear()

    def _retire(self, pin: Pin) -> None:
        pin.removed = True
        if not pin.users:
            self._files.close(pin.descriptor)

    def _evict(self) -> None:
        """Close unused files, the least recently used one first, until no more are open than allowed."""
        for number in [number for number, pin in self._open.items() if not pin.users]:
            if len(self._open) <= self._open_max:
                return
            self._files.close(self._open.pop(number).descriptor)

"""Requests on their way: many at a time, bounded in number and bytes, and asked again when no answer came.

Promises that `drain` returns only when every request was answered well, and that the first refusal is raised. Only one answer is
waited for at a time, the oldest.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from stan_client.errors import RequestTimeoutError

from stan.types import MiB

if TYPE_CHECKING:
    from concurrent.futures import Future

IN_FLIGHT_BYTES_MAX: Final = 16 * MiB
"""Rows on their way of one task: nats-server ends a connection for which it has to keep 64 MiB."""

Submit = Callable[[], "Future[Any]"]


class InFlightRequests:
    """Requests on their way."""

    def __init__(self, in_flight_max: int, retries: int) -> None:
        """Take how many requests may wait for their answers, and how often each is made again after a timeout."""
        self._most = in_flight_max
        self._retries = retries
        self._waiting: deque[tuple[int, Submit, Future[Any]]] = deque()
        self._bytes = 0
        self.duplicates = 0  # rows that the broker had already

    def send(self, size: int, submit: Submit) -> None:
        """Make a request of *size* bytes, after waiting for room."""
        while self._waiting and (len(self._waiting) >= self._most or self._bytes + size > IN_FLIGHT_BYTES_MAX):
            self._settle()
        self._waiting.append((size, submit, submit()))
        self._bytes += size

    def drain(self) -> None:
        """Wait for all answers."""
        while self._waiting:
            self._settle()

    def _settle(self) -> None:
        size, submit, answer = self._waiting.popleft()
        self._bytes -= size
        for left in range(self._retries, -1, -1):
            try:
                self.duplicates += getattr(answer.result(), "duplicates", 0)
            except RequestTimeoutError:
                if not left:
                    raise
                answer = submit()
            else:
                return

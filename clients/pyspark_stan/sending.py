"""Requests in flight: many at a time, bounded in number and bytes, and repeated after a timeout.

Promises that `drain` returns only after every request has succeeded, and that the first error is raised. The oldest request is
always waited for first.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from stan_client.errors import RequestTimeoutError

from stan.types import MiB

if TYPE_CHECKING:
    from concurrent.futures import Future

IN_FLIGHT_BYTES_MAX: Final = 16 * MiB
"""Rows in flight of one task: nats-server closes a connection for which it would have to buffer more than 64 MiB."""

Submit = Callable[[], "Future[Any]"]


class InFlightRequests:
    """The requests of one task that wait for their answers."""

    def __init__(self, in_flight_max: int, retries: int) -> None:
        """*in_flight_max*: requests that may wait for answers; *retries*: repetitions of one request after timeouts."""
        self._most = in_flight_max
        self._retries = retries
        self._waiting: deque[tuple[int, Submit, Future[Any]]] = deque()
        self._bytes = 0
        self.duplicates = 0  # rows that the broker had stored before

    def send(self, size: int, submit: Submit) -> None:
        """Wait for room, then send a request of *size* bytes with *submit*. Raises the error of an earlier request."""
        while self._waiting and (len(self._waiting) >= self._most or self._bytes + size > IN_FLIGHT_BYTES_MAX):
            self._settle()
        self._waiting.append((size, submit, submit()))
        self._bytes += size

    def drain(self) -> None:
        """Wait for all answers. Raises the first error."""
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

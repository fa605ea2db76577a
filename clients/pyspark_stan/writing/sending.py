"""Requests that stage rows of many channels, and requests in flight: many at a time, bounded in number and bytes. Those are
repeated after a timeout, and over a new connection if theirs was closed.

Promises that `drain` returns only after every request has succeeded, and that the first error is raised. The oldest request is
always waited for first.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from stan_client.errors import ConnectionClosedError, RequestTimeoutError, ServerError
from stan_client.requests.transactions import StagedRows
from stan_protocol.limits import STAGE_CHANNELS_MAX
from stan_protocol.scalars import MiB

from pyspark_stan import transport
from pyspark_stan.options import ConnectionOptions

if TYPE_CHECKING:
    from concurrent.futures import Future

    from stan_client.blocking import BlockingClient

IN_FLIGHT_BYTES_MAX: Final = 16 * MiB
"""Rows in flight of one task: nats-server closes a connection for which it would have to buffer more than 64 MiB."""

PART_OVERHEAD: Final = 32
"""Largest number of bytes of a part in a shared request beside its channel and rows."""

Submit = Callable[["BlockingClient"], "Future[Any]"]
Refused = Callable[[ServerError], bool]
"""Called if the broker has refused a request; True: something else was sent in its place."""


class SharedRequest:
    """Staged rows that wait for company, until they fill a request: of each channel at most one part."""

    def __init__(self, room: int, rows_max: int) -> None:
        """Make an empty one; it takes *room* bytes and *rows_max* rows, or a single part that is larger."""
        self._room = room
        self._rows_max = rows_max
        self._parts: dict[str, StagedRows] = {}
        self._bytes = self._rows = 0

    def __len__(self) -> int:
        return len(self._parts)

    def add(self, part: StagedRows) -> list[StagedRows]:
        """Add rows; returns those that have waited and are to be sent first, because there is no room for these beside them."""
        size = len(part.rows) + len(part.channel.encode()) + PART_OVERHEAD
        full = (
            part.channel in self._parts
            or len(self._parts) >= STAGE_CHANNELS_MAX
            or self._bytes + size > self._room
            or self._rows + part.count > self._rows_max
        )
        before = self.pop() if full else []
        self._parts[part.channel] = part
        self._bytes += size
        self._rows += part.count
        return before

    def pop(self) -> list[StagedRows]:
        """Return what waits, and forget it."""
        parts, self._parts = [*self._parts.values()], {}
        self._bytes = self._rows = 0
        return parts


class InFlightRequests:
    """The requests of one task that wait for their answers."""

    def __init__(self, connection: ConnectionOptions, in_flight_max: int, retries: int) -> None:
        """Make the requests of *connection*, none in flight.

        Args:
            connection: where requests go.
            in_flight_max: requests that may wait for answers.
            retries: repetitions of one request after timeouts.
        """
        self._connection = connection
        self._most = in_flight_max
        self._retries = retries
        self._waiting: deque[tuple[int, Submit, Refused | None, BlockingClient, Future[Any]]] = deque()
        self._bytes = 0
        self.duplicates = 0  # rows that the broker had stored before

    def send(self, size: int, submit: Submit, refused: Refused | None = None) -> None:
        """Wait for room, then send a request of *size* bytes with *submit*. Raises the error of an earlier request; *refused* may
        send others in place of this one if the broker refuses it."""
        while self._waiting and (len(self._waiting) >= self._most or self._bytes + size > IN_FLIGHT_BYTES_MAX):
            self._settle()
        self._waiting.append((size, submit, refused, *self._begin(submit)))
        self._bytes += size

    def drain(self) -> None:
        """Wait for all answers. Raises the first error."""
        while self._waiting:
            self._settle()

    def _settle(self) -> None:
        size, submit, refused, client, answer = self._waiting.popleft()
        self._bytes -= size
        late = closed = 0
        while True:
            try:
                self.duplicates += getattr(answer.result(), "duplicates", 0)
            except RequestTimeoutError as error:
                late += 1
                if late > self._retries:
                    raise (RequestTimeoutError(f"{error}, {late} times") if late > 1 else error) from None
            except ConnectionClosedError:
                closed += 1
                if closed > transport.REPLACED_MAX:
                    raise
                transport.forget(self._connection, client)
            except ServerError as error:
                if refused is None or not refused(error):
                    raise
                return
            else:
                return
            client, answer = self._begin(submit)

    def _begin(self, submit: Submit) -> "tuple[BlockingClient, Future[Any]]":
        """Send a request; returns the client that waits for the answer, and the answer."""
        return transport.with_reconnect(self._connection, lambda client: (client, submit(client)))

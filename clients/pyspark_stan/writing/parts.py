"""Divides requests among the parts of a channel that has parts, as the servers do it with publishes.

    orders: 10,000 rows ─► by key (else by JSON data, else by the writer's name) ─► orders.~0: 2,480 rows, …

Loaded only once the broker has refused rows for a channel, because it has parts. The rows of a key stay in order.
"""

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from stan_client.errors import ServerError
from stan_protocol.channels import part_name
from stan_protocol.kernel.rows import pick_ids, pick_rows, slots
from stan_protocol.parted import NO_SLOT, key_in, key_path, part_of
from stan_protocol.proto.wire_pb2 import MsgProto

from pyspark_stan import transport
from pyspark_stan.options import ConnectionOptions
from pyspark_stan.writing.routing import Request

if TYPE_CHECKING:
    from stan_client.blocking import BlockingClient

_LENGTH: Final = 4
"""Bytes before each row."""


class Division:
    """The division of rows among the parts of one channel."""

    def __init__(self, channel: str, parts: int, path: tuple[str, ...], writer: str) -> None:
        """*path*: where JSON data has the key of a row without one; *writer*: whose name is the key of rows without any."""
        self._names = [part_name(channel.encode(), number).decode() for number in range(parts)]
        self._path = path
        self._without = part_of(writer.encode(), parts)
        self._masks = [bytes(number == at for at in range(256)) for number in range(parts)]

    def of(self, request: Request) -> list[Request]:
        """The requests for the parts that get rows of *request*, by part."""
        numbers = bytes(self._numbers(request.rows))
        requests = []
        for number in sorted(set(numbers)):
            mask = numbers.translate(self._masks[number])
            part = replace(request, channel=self._names[number])
            if (count := mask.count(1)) < len(mask):
                ids = pick_ids(request.ids, mask) if request.ids else b""
                part = replace(part, rows=pick_rows(request.rows, mask), count=count, ids=ids)
            requests.append(part)
        return requests

    def _numbers(self, rows: bytes) -> list[int]:
        of_keys, ends = slots(rows)
        parts, without, all_slots = len(self._names), self._without, array("H", of_keys)
        numbers = [without if slot == NO_SLOT else slot % parts for slot in all_slots]
        if self._path and NO_SLOT in all_slots:
            places = array("I", ends)
            for row, slot in enumerate(all_slots):
                if slot == NO_SLOT:
                    begin = (places[row - 1] if row else 0) + _LENGTH
                    key = key_in(MsgProto.FromString(rows[begin : places[row]]).data, self._path)
                    numbers[row] = part_of(key, parts) if key else without
        return numbers


def division_of(connection: ConnectionOptions, channel: str, writer: str) -> Division:
    """Ask how the parts of *channel* are divided; *writer*: as of Division.

    Raises:
        ServerError: it has no parts any more. UnreachableError, or another error of stan_client.
    """

    def ask(client: "BlockingClient") -> Division:
        parted = client.parts(channel)
        if not parted:
            raise ServerError(f"stan: channel {channel} has no parts any more")
        return Division(channel, parted[0].parts, key_path(parted[0].key.encode()) or (), writer)

    return transport.with_reconnect(connection, ask)

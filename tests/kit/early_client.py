"""A client that is there as soon as a port answers: it connects in a tight loop, speaks NATS's protocol itself, and registers."""

import contextlib
import json
import socket
import time
from collections.abc import Callable, Mapping
from secrets import token_hex

from stan.protocol.proto import wire_pb2 as wire
from tests.kit.server import CLUSTER_ID, START_SECONDS_MAX

CLIENT_SECONDS = 2.0
"""The timeout of STAN's clients for a connect."""


class EarlyClient:
    """One connection to NATS, and the requests over it."""

    def __init__(self, connection: socket.socket, login: Mapping[str, str]) -> None:
        self._socket = connection
        self._lines = connection.makefile("rb")
        assert self._lines.readline().startswith(b"INFO "), "no INFO of NATS"
        options = {"verbose": False, "protocol": 1, **login}
        self._socket.sendall(b"CONNECT %b\r\nPING\r\n" % json.dumps(options).encode())
        self._until(b"PONG")
        self._inbox = f"_INBOX.{token_hex(8)}".encode()

    def _until(self, word: bytes) -> bytes:
        while not (line := self._lines.readline()).startswith(word):
            assert line, "the connection was closed"
            assert not line.startswith(b"-ERR"), line
            if line == b"PING\r\n":
                self._socket.sendall(b"PONG\r\n")
        return line

    def request(self, subject: str, payload: bytes) -> bytes:
        """Send one request and return its answer; TimeoutError after CLIENT_SECONDS, as the clients of STAN have it."""
        self._socket.settimeout(CLIENT_SECONDS)
        self._socket.sendall(
            b"SUB %b 1\r\nPUB %b %b %d\r\n%b\r\n" % (self._inbox, subject.encode(), self._inbox, len(payload), payload)
        )
        size = int(self._until(b"MSG").split()[-1])
        return self._lines.read(size)

    def register(self, client_id: str) -> wire.ConnectResponse:
        """Send the connect request of a client of STAN; TimeoutError without an answer in time."""
        inbox = self._inbox + b".hb"
        request = wire.ConnectRequest(
            client_id=client_id.encode(), heartbeat_inbox=inbox, protocol=1, conn_id=client_id.encode()
        )
        answer = self.request(f"_STAN.discover.{CLUSTER_ID}", request.SerializeToString())
        return wire.ConnectResponse.FromString(answer)

    def close(self) -> None:
        """Close the connection."""
        self._lines.close()
        self._socket.close()


def first_accepted(port: int, running: Callable[[], bool]) -> socket.socket:
    """Connect in a tight loop until the port answers. AssertionError if it does not, or the server has ended."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and running():
        with contextlib.suppress(ConnectionError):
            return socket.create_connection(("127.0.0.1", port))
    raise AssertionError("the port does not answer")


def register_early(
    port: int, running: Callable[[], bool], name: str, clients: int, login: Mapping[str, str] | None = None
) -> None:
    """Register *clients* clients one after the other, the first as soon as the port answers."""
    for number in range(clients):
        client = EarlyClient(first_accepted(port, running), login or {})
        try:
            answer = client.register(f"{name}-{number}")
            assert not answer.error, answer.error
            assert answer.pub_prefix
        finally:
            client.close()

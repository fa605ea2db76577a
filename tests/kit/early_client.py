"""Clients that are there as soon as a port answers: each connects once, by nats-py, and sends the connect request of STAN."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from typing import Any

import nats
from stan_protocol.proto import wire_pb2 as wire

from tests.kit.server import CLUSTER_ID, START_SECONDS_MAX

CLIENT_SECONDS = 2.0
"""The timeout of STAN's clients for a connect."""


def wait_for_port(port: int, running: Callable[[], bool]) -> None:
    """Connect in a tight loop until the port answers. AssertionError if it does not, or the server has ended."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and running():
        with contextlib.suppress(ConnectionError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
    raise AssertionError("the port does not answer")


async def register(port: int, client_id: str, seconds: float = CLIENT_SECONDS) -> wire.ConnectResponse:
    """Connect to NATS and register a client of STAN, each asked for once; TimeoutError without an answer in time."""
    options: dict[str, Any] = {"allow_reconnect": False, "connect_timeout": START_SECONDS_MAX}
    client = await nats.connect(f"nats://127.0.0.1:{port}", **options)
    try:
        name = client_id.encode()
        asked = wire.ConnectRequest(
            client_id=name, heartbeat_inbox=f"_INBOX.{client_id}".encode(), protocol=1, conn_id=name
        )
        answer = await client.request(f"_STAN.discover.{CLUSTER_ID}", asked.SerializeToString(), timeout=seconds)
        return wire.ConnectResponse.FromString(answer.data)
    finally:
        await client.close()


def register_early(port: int, running: Callable[[], bool], name: str, clients: int) -> int:
    """Register *clients* clients one after the other, the first as soon as the port answers; returns how many had no answer, in
    time or at all. NATS takes the connections of the broker and of the first client in the same millisecond."""
    wait_for_port(port, running)
    lost = 0
    for number in range(clients):
        try:
            answer = asyncio.run(register(port, f"{name}-{number}"))
        except nats.errors.Error:
            lost += 1
        else:
            assert not answer.error, answer.error
            assert answer.pub_prefix
    return lost

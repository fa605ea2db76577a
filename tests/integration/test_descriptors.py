"""Descriptors of a real server: strangers at its HTTP port cannot use them up, and a lack of them passes without a restart."""

import asyncio
import resource
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.conformance.wire import speaking
from tests.kit.ports import free_port
from tests.kit.server import StanServer

FEW = 128
LARGE = bytes(900_000)
SEGMENTS = 90
"""Publishes of LARGE that fill more than one segment."""


def descriptors(server):
    """Open descriptors of the server."""
    return list(Path(f"/proc/{server.pid}/fd").iterdir())


def few(directory, *flags):
    """A server that can open FEW files, and no more."""
    return StanServer(directory, *flags, command=(sys.executable, "-m", "tests.kit.few_files", f"{FEW}:{FEW}"))


def half_requests(stack, port, count):
    """Connections that have sent half the head of a request."""
    opened = []
    for _ in range(count):
        one = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        one.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n")
        opened.append(one)
    return opened


def test_half_requests_take_no_descriptor_that_segments_need(tmp_path):
    port = free_port()

    async def use(server):
        async with speaking(server.url) as wire:
            session = await wire.connect("me")
            for _ in range(SEGMENTS):
                assert await session.publish("foo", LARGE) == [""]

    with few(tmp_path, "-m", str(port)) as server, ExitStack() as stack:
        half_requests(stack, port, 3 * FEW)
        asyncio.run(use(server))
        assert len(descriptors(server)) < FEW
        assert len(list((tmp_path / "store").glob("groups/1/*.log"))) > 1, "a segment was begun meanwhile"
        with socket.create_connection(("127.0.0.1", port)) as honest:
            honest.sendall(b"GET /healthz/ready HTTP/1.0\r\nHost: localhost\r\n\r\n")
            assert honest.recv(100).startswith(b"HTTP/1.0 200")
        assert "[ERR]" not in server.log()


def test_lack_of_descriptors_refuses_publishes_and_passes_without_a_restart(tmp_path):
    async def use(server):
        async with speaking(server.url) as wire:
            session = await wire.connect("me")
            assert await session.publish("foo", b"first") == [""]
            soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (3, hard))
            refused = ""
            for _ in range(SEGMENTS):
                (refused,) = await session.publish("foo", LARGE)
                if refused:
                    break
            assert refused == "stan: the server is short of open files or memory"
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (soft, hard))
            assert await session.publish("foo", LARGE) == [""]

    with StanServer(tmp_path) as server:
        asyncio.run(use(server))
        assert "until a restart" not in server.log()


def test_server_raises_its_limit_of_descriptors_to_what_it_may_have(tmp_path):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    command = (sys.executable, "-m", "tests.kit.few_files", "256")
    with StanServer(tmp_path, command=command) as server:
        assert resource.prlimit(server.pid, resource.RLIMIT_NOFILE) == (hard, hard)

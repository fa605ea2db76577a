"""A real server on a full disk: what it does not do there, and that a life which ends there leaves nothing untold."""

import asyncio
import json
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from tests.conformance.wire import speaking
from tests.kit.ports import free_port
from tests.kit.server import CLUSTER_ID, StanServer, until


@pytest.fixture
def full(tmp_path):
    """While this file exists the server's disk is full."""
    return tmp_path / "full"


def stan(server, *words):
    """The output of the command, whose last word is --json, as its document."""
    command = [
        sys.executable,
        "-m",
        "stan.cli.main",
        *words,
        "--server",
        server.url,
        "--cluster-id",
        CLUSTER_ID,
        "--json",
    ]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout)


def page(port, path):
    """(status, document) of a page."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as found:
            return found.status, json.load(found)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.fixture
def server(tmp_path, full):
    with StanServer(tmp_path, command=(sys.executable, "-m", "tests.kit.full_disk", str(full))) as running:
        yield running


def flags(messages):
    """(sequence, whether it is flagged as redelivered) of each."""
    return [(message.sequence, message.redelivered) for message in messages]


@pytest.mark.parametrize("end", ["kill9", "terminate", None])
def test_nothing_comes_again_unflagged_after_a_full_disk(server, full, end):
    async def use():
        async with speaking(server.url) as wire:
            session = await wire.connect("me")
            sub = await session.subscribe("foo", durable="ledger", in_flight=3, wait=2)
            assert await session.publish("foo", *(b"%d" % number for number in range(1, 8))) == [""] * 7
            assert flags(await sub.many(3)) == [(1, False), (2, False), (3, False)]
            full.touch()
            await sub.ack(1, 2, 3)
            (refused,) = await session.publish("foo", b"no room")
            assert "no space left on the server's disk" in refused
            assert len(sub.came) == sub.taken  # what was acked found no room: nothing follows it

            if end:
                await asyncio.to_thread(getattr(server, end))
                full.unlink()
                await asyncio.to_thread(server.start)
                await wire.back()
                assert flags(await sub.many(3)) == [(1, True), (2, True), (3, True)]  # the acks found no room
                await sub.ack(1, 2, 3)
            else:
                full.unlink()
            assert flags(await sub.many(3)) == [(4, False), (5, False), (6, False)]

    asyncio.run(use())


def test_disk_that_has_room_again_needs_no_restart(server, full):
    async def use():
        async with speaking(server.url) as wire:
            session = await wire.connect("me")
            full.touch()
            assert await session.publish("foo", b"no room") != [""]
            full.unlink()
            assert await session.publish("foo", b"room") == [""]
            sub = await session.subscribe("foo", acking=True)
            assert flags(await sub.many(1)) == [(1, False)]

    asyncio.run(use())


def test_full_disk_is_trouble_for_everybody_who_asks_until_there_is_room_and_no_longer(tmp_path, full):
    """Nobody publishes meanwhile: the server finds out by itself that there is room."""
    port = free_port()
    command = (sys.executable, "-m", "tests.kit.full_disk", str(full))

    async def refused(url):
        async with speaking(url) as wire:
            session = await wire.connect("me")
            assert await session.publish("foo", b"room") == [""]
            full.touch()
            assert await session.publish("foo", b"no room") == ["stan: no space left on the server's disk"]

    def seen():
        """How the four see the group."""
        levels = {found["level"] for found in stan(server, "doctor")["findings"] if found["kind"] == "group"}
        checked = {found["level"] for found in stan(server, "check", "--disk", "")["found"]}
        return levels, checked, page(port, "/healthz/ready")[0], page(port, "/api/v1/overview")[1]["state"]

    with StanServer(tmp_path, "-m", str(port), command=command) as server:
        asyncio.run(refused(server.url))
        until(lambda: page(port, "/api/v1/overview")[1]["state"] == "bad")
        assert seen() == ({"broken"}, {"CRITICAL"}, 503, "bad")
        assert server.log().count("STREAM: group 1:") == 1
        full.unlink()
        until(lambda: "group 1: takes publishes again" in server.log())
        until(lambda: page(port, "/api/v1/overview")[1]["state"] != "bad")
        assert seen()[:3] == (set(), set(), 200)

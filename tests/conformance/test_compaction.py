"""A channel that is compacted by key, compressed or not, used by published clients, which know nothing of keys: they see
sequences jump, and what they get is what was published."""

import asyncio
import random
import sys

import pytest
from stan_client import Direct, everything
from stan_client import connect as connect_new

from tests.conformance.clients import payloads, sequences
from tests.integration.test_compaction_server import SMALL
from tests.kit.server import CLUSTER_ID, StanServer, until

MANY = 600
KEEPS = 50
"""Each so many-th message has a key of its own."""
SIZE = 300
TOGETHER = 20
SLOW_MS = 1000


@pytest.fixture(scope="module", params=["none", "zstd"])
def small_server(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("small")
    policy = f'compact: last, min_age: "0s", compress: {request.param}'
    (directory / "stan.conf").write_text(f'streaming {{ policies {{ ">" {{ {policy} }} }} }}')
    program = (sys.executable, "-c", SMALL)
    with StanServer(directory, "-mc", "0", "-sc", str(directory / "stan.conf"), command=program) as server:
        yield server


def payload(number):
    """What message *number* of a channel carries: a third of it is nothing but zeros."""
    return random.Random(number).randbytes(2 * SIZE // 3) + bytes(SIZE // 3)


def kept(first, last):
    """The sequences of messages that have a key of their own."""
    return {number for number in range(first, last + 1) if number % KEEPS == 0}


async def publish(client, channel, first, last):
    def key(number):
        return b"own %d" % number if number % KEEPS == 0 else b"same"

    for at in range(first, last + 1, TOGETHER):
        together = range(at, min(at + TOGETHER, last + 1))
        await asyncio.gather(*(client.publish(channel, payload(number), key=key(number)) for number in together))


async def left(client, channel, most):
    """The sequences of the channel, once there are no more than *most*."""
    async with asyncio.timeout(60):
        while True:
            found = [message.sequence async for message in client.read(channel, start=everything())]
            if len(found) <= most:
                return found
            await asyncio.sleep(0.1)


async def fill(server, channel, first=1, last=MANY):
    """Publish, and return the sequences that are left once much has gone."""
    async with await connect_new(server.url, cluster_id=CLUSTER_ID, client_id=f"filler-{channel}") as client:
        await publish(client, channel, first, last)
        found = await left(client, channel, MANY // 2)
    async with Direct(server.url, cluster_id=CLUSTER_ID) as direct:
        status = await direct.admin.channel(channel)
    assert bool(status.compress) == bool(status.kept_bytes), "what is left is compressed where it should be"
    return found


_filled: dict[tuple[str, str], list[int]] = {}


@pytest.fixture
def filled(small_server):
    """A channel of which much has gone, and the sequences that were left; the same one for all tests of a server."""
    key = small_server.url, "filled"
    if key not in _filled:
        _filled[key] = asyncio.run(fill(small_server, "filled"))
    return _filled[key]


def unchanged(messages):
    """What was delivered is what was published, in order, and not flagged."""
    assert payloads(messages) == [payload(number) for number in sequences(messages)]
    assert sequences(messages) == sorted(set(sequences(messages)))
    assert not any(message["redelivered"] for message in messages)


@pytest.mark.parametrize("start", ["first", "sequence:1", "sequence:2", "delta:3600000"])
def test_sequences_jump(connect, small_server, filled, start):
    client = connect(server=small_server)
    client.subscribe("s", "filled", start=start)
    client.messages("s", 1, sequence=MANY)
    messages = client.messages("s", 1)
    unchanged(messages)
    assert kept(1, MANY) <= set(sequences(messages)) <= set(filled)
    assert sequences(messages)[-1] == MANY


def test_start_in_a_hole_and_at_the_end(connect, small_server, filled):
    hole = next(number for number in range(2, MANY) if number not in filled)
    client = connect(server=small_server)
    client.subscribe("hole", "filled", start=f"sequence:{hole}")
    client.subscribe("end", "filled", start="last")
    client.messages("hole", 1, sequence=MANY)
    got = sequences(client.messages("hole", 1))
    assert got[0] == min(number for number in got if number > hole)
    assert {number for number in kept(1, MANY) if number > hole} <= set(got)
    assert sequences(client.messages("end", 1)) == [MANY]


def test_queue_group_shares_what_is_left(connect, small_server, filled, name):
    members = [connect(server=small_server) for _ in range(2)]
    for member in members:
        member.subscribe("s", "filled", queue=name, start="first", max_in_flight=5)

    def taken():
        return [number for member in members for number in sequences(member.seen("message", sub="s"))]

    until(lambda: kept(1, MANY) <= set(taken()))
    both = taken()
    assert len(both) == len(set(both))
    assert set(both) <= set(filled)


def test_durable_that_was_away_goes_on_behind_what_has_gone(connect, small_server, name):
    channel = f"{name}-away"
    client = connect(f"{name}-me", server=small_server)
    client.subscribe("s", channel, durable="d", start="first")
    client.publish_and_wait(channel, payload(1))
    client.messages("s", 1, sequence=1)
    client.close("s")
    client.disconnect()
    found = asyncio.run(fill(small_server, channel, first=2))
    client = connect(f"{name}-me", server=small_server)
    client.subscribe("s", channel, durable="d", start="first")
    client.messages("s", 1, sequence=MANY)
    messages = [message for message in client.messages("s", 1) if message["sequence"] != 1]
    unchanged(messages)  # the ack of message 1 may not have come before the close
    assert kept(2, MANY) <= set(sequences(messages)) <= set(found)


def test_pending_messages_that_have_gone_hold_no_window(connect, small_server, name):
    """A newer message of their key comes in their place, and the window does not stay full of them."""
    channel = f"{name}-pending"
    client = connect(server=small_server)
    client.subscribe("s", channel, durable="d", start="first", manual=1, ack_wait=SLOW_MS, max_in_flight=5)
    found = asyncio.run(fill(small_server, channel))
    acked = set()

    def ack_what_is_left():
        new = {one["sequence"] for one in client.seen("message", sub="s") if one["sequence"] in found} - acked
        client.ack("s", *new)
        acked.update(new)
        return MANY in acked

    until(ack_what_is_left)
    messages = client.messages("s", 1)
    assert payloads(messages) == [payload(number) for number in sequences(messages)]
    assert kept(1, MANY) <= acked

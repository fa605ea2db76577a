"""A channel that is compacted by key, used by published clients, which know nothing of keys: they see sequences jump."""

import asyncio
import sys

import pytest
from stan_client import connect as connect_new
from stan_client import everything

from tests.conformance.clients import sequences
from tests.integration.test_compaction_server import SMALL
from tests.kit.server import CLUSTER_ID, StanServer

POLICY = 'streaming { policies { ">" { compact: last, min_age: "0s" } } }'
MANY = 600
KEEPS = 50
"""Each so many-th message has a key of its own."""


@pytest.fixture(scope="module")
def small_server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("small")
    (directory / "stan.conf").write_text(POLICY)
    program = (sys.executable, "-c", SMALL)
    with StanServer(directory, "-mc", "0", "-sc", str(directory / "stan.conf"), command=program) as server:
        yield server


async def fill(server, channel):
    """Returns the sequences that are left once much has gone."""
    async with await connect_new(CLUSTER_ID, "filler", servers=server.url) as client:
        for number in range(1, MANY + 1):
            await client.publish(channel, bytes(300), key=b"own %d" % number if number % KEEPS == 0 else b"same")
        async with asyncio.timeout(30):
            while True:
                left = [message.sequence async for message in client.read(channel, start_at=everything())]
                if len(left) < MANY // 2:
                    return left
                await asyncio.sleep(0.1)


def test_sequences_jump(connect, small_server, name):
    channel = f"{name}-compacted"
    left = asyncio.run(fill(small_server, channel))
    assert set(range(KEEPS, MANY + 1, KEEPS)) <= set(left)

    client = connect(server=small_server)
    client.subscribe("s", channel, durable="d", start="sequence:1")
    client.messages("s", 1, sequence=MANY)
    got = sequences(client.messages("s", 1))
    assert set(range(KEEPS, MANY + 1, KEEPS)) <= set(got)
    assert set(got) <= set(left)
    assert got == sorted(got)
    assert got[-1] == MANY

"""The newest messages of a channel, by everything that reads without a subscription, whatever the channel has lost."""

import os
import subprocess
import sys
from contextlib import aclosing

import pytest
import stan_client
from stan_protocol import refusals

from tests.kit.server import StanServer

HUGE = 10**30
LIMIT = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with StanServer(tmp_path_factory.mktemp("newest"), "-mm", str(LIMIT)) as server:
        yield server


@pytest.fixture
async def client(server):
    async with await stan_client.connect(
        server.url, client_id="me", cluster_id=server.cluster_id, ack_timeout_s=10
    ) as client:
        yield client


@pytest.fixture
async def direct(server):
    async with stan_client.Direct(server.url, cluster_id=server.cluster_id) as direct:
        yield direct


def get(server, channel, *options, code=0):
    """`stan channel get`; returns its lines."""
    done = subprocess.run(
        [sys.executable, "-m", "stan.cli.main", "channel", "get", channel, "-s", server.url, *map(str, options)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "STAN_CONTEXT": ""},
    )
    assert done.returncode == code, done.stderr
    return done.stdout.splitlines() if not code else done.stderr


async def by_each(client, direct, channel, count):
    """The sequences, by fetch and read of a client and of one without registration; all give the same."""
    start = stan_client.newest(count)
    found = []
    for reader in (client, direct):
        found.append([message.sequence for message in await reader.fetch(channel, start=start, count=1000)])
        async with aclosing(reader.read(channel, start=start)) as messages:
            found.append([message.sequence async for message in messages])
    assert all(one == found[0] for one in found), found
    return found[0]


async def fill(client, channel, count, first=1):
    await client.publish_many(channel, [b"%d" % number for number in range(first, first + count)])


async def test_more_than_there_are_gives_all(server, client, direct) -> None:
    await fill(client, "few", 5)
    for count in (5, 6, 1 << 40, (1 << 64) - 1, 1 << 64, HUGE):
        assert await by_each(client, direct, "few", count) == [1, 2, 3, 4, 5]
    assert get(server, "few", "--newest", HUGE) == ["1", "2", "3", "4", "5"]
    assert get(server, "few", "--newest", HUGE, "--count", 2) == ["1", "2"]
    assert get(server, "few", "--newest", 2) == ["4", "5"]


async def test_deleted_messages_are_not_counted(server, client, direct) -> None:
    await fill(client, "holes", 20)
    for sequence in (1, 6, 7, 15, 18, 20):
        await direct.admin.delete_message("holes", sequence)
    left = [at for at in range(1, 21) if at not in (1, 6, 7, 15, 18, 20)]
    for count in (1, 2, 3, 4, 9, 10, len(left), len(left) + 1, HUGE):
        assert await by_each(client, direct, "holes", count) == left[-count:]
    assert get(server, "holes", "--newest", 3) == ["16", "17", "19"]


async def test_what_a_limit_has_removed_is_not_counted(server, client, direct) -> None:
    await fill(client, "limited", LIMIT + 12)
    there = list(range(13, LIMIT + 13))
    for count in (1, LIMIT - 1, LIMIT, LIMIT + 1, HUGE):
        assert await by_each(client, direct, "limited", count) == there[-count:]
    await direct.admin.purge("limited", keep=2)
    assert await by_each(client, direct, "limited", 10) == there[-2:]
    assert get(server, "limited", "--newest", 10) == [str(at) for at in there[-2:]]


async def test_what_has_expired_is_not_counted(client, direct, tmp_path) -> None:
    with StanServer(tmp_path, "-ma", "1s") as short:
        async with await stan_client.connect(
            short.url, client_id="me", cluster_id=short.cluster_id, ack_timeout_s=10
        ) as brief:
            await fill(brief, "old", 4)
            async with stan_client.Direct(short.url, cluster_id=short.cluster_id) as asked:

                async def gone():
                    info = (await asked.channels.info(["old"]))["old"]
                    return info.first > info.last

                while not await gone():
                    pass
                assert await asked.fetch("old", start=stan_client.newest(3)) == []
                await fill(brief, "old", 2, first=5)
                assert [m.sequence for m in await asked.fetch("old", start=stan_client.newest(3))] == [5, 6]


async def test_an_empty_channel_has_none(server, client, direct) -> None:
    await fill(client, "emptied", 3)
    await direct.admin.purge("emptied", up_to=3)
    for count in (1, HUGE):
        assert await by_each(client, direct, "emptied", count) == []
    assert "it is empty" in get(server, "emptied", "--newest", 4, code=1)


async def test_none_is_refused(client, direct) -> None:
    await fill(client, "some", 1)
    for reader in (client, direct):
        with pytest.raises(stan_client.ServerError, match=refusals.INVALID_FETCH):
            await reader.fetch("some", start=stan_client.newest(0))
    with pytest.raises(ValueError, match="cannot start with the -1 newest"):
        stan_client.newest(-1)


async def test_a_subscription_cannot_begin_with_the_newest(client) -> None:
    with pytest.raises(ValueError, match="fetch or read them, then subscribe"):
        await client.subscribe("some", start=stan_client.newest(3))


async def test_large_messages_come_in_several_answers(client, direct) -> None:
    await client.publish_many("large", [b"x" * 300_000] * 12)
    assert len(await by_each_read(client, "large", 8)) == 8


async def by_each_read(client, channel, count):
    async with aclosing(client.read(channel, start=stan_client.newest(count))) as messages:
        return [message.sequence async for message in messages]

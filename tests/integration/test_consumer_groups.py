"""Members of consumer groups against a real server: channels are divided, change hands, come and go; positions are fenced."""

import asyncio
import json
from collections import Counter

import pytest
import stan_client
from stan_client import GroupConsumer
from stan_client.reading.direct import Direct
from stan_protocol import refusals

from tests.integration.test_cli_operator import stan
from tests.kit.fake_broker import eventually
from tests.kit.server import StanServer

LEASE_S = 1.5


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with StanServer(tmp_path_factory.mktemp("consumer-groups")) as server:
        yield server


@pytest.fixture
async def direct(server):
    async with Direct(server.url, cluster_id=server.cluster_id, timeout_s=10) as direct:
        yield direct


def rows(*datas: bytes) -> bytes:
    """Messages as a batch has them: length, then field 4."""
    return b"".join((len(data) + 2).to_bytes(4, "little") + b"\x22%c" % len(data) + data for data in datas)


async def fill(direct, channel, first, last):
    datas = [b"%d" % number for number in range(first, last + 1)]
    await direct.batches.publish(channel, rows(*datas), len(datas))


def member(direct, pattern, group, **more):
    return GroupConsumer(direct, pattern, group=group, lease_s=LEASE_S, **more)


async def test_one_member_reads_all_channels_and_those_that_come(direct) -> None:
    for at in range(3):
        await fill(direct, f"one.{at}", 1, 10)
    got = Counter()
    async with member(direct, "one.*", "one") as consumer:
        assert consumer.channels == ["one.0", "one.1", "one.2"]
        async for batch in consumer:
            got[batch.channel] += batch.count
            if got.total() == 30:
                await fill(direct, "one.new", 1, 5)
            if got["one.new"] == 5:
                await batch.commit()
                break
    assert got == {"one.0": 10, "one.1": 10, "one.2": 10, "one.new": 5}
    positions = (await direct.bookmarks.all("one"))["one"]
    assert {name: cursor.sequence for name, cursor in positions.items()} == {
        "one.0": 11,
        "one.1": 11,
        "one.2": 11,
        "one.new": 6,
    }


async def test_second_member_gets_half_and_all_when_the_first_leaves(direct) -> None:
    for at in range(6):
        await fill(direct, f"two.{at}", 1, 5)
    got = Counter()

    async def handle(batch):
        got.update((batch.channel, message.sequence) for message in batch.messages())

    async with member(direct, "two.*", "two") as second:
        async with member(direct, "two.*", "two") as first:
            tasks = [asyncio.create_task(one.run(handle)) for one in (first, second)]
            await eventually(lambda: len(first.channels) == len(second.channels) == 3 and got.total() == 30)
            assert sorted(first.channels + second.channels) == [f"two.{at}" for at in range(6)]
            tasks[0].cancel()
        await eventually(lambda: len(second.channels) == 6)
        for at in range(6):
            await fill(direct, f"two.{at}", 6, 8)
        await eventually(lambda: got.total() == 48)
        tasks[1].cancel()
    assert set(got.values()) == {1}


async def test_member_that_was_silent_cannot_commit(server, direct) -> None:
    await fill(direct, "late.1", 1, 5)
    async with (
        Direct(server.url, cluster_id=server.cluster_id, timeout_s=10) as other,
        member(other, "late.*", "late") as first,
    ):
        batch = await anext(first)
        assert batch.valid
        first._membership._task.cancel()  # it says nothing more, as a process that is stopped
        async with member(direct, "late.*", "late") as second:
            again = await anext(second)
            assert [m.sequence for m in again.messages()] == [m.sequence for m in batch.messages()]
            with pytest.raises(stan_client.ChannelLostError):
                await batch.commit()
            assert not batch.valid
            await again.commit()
    assert (await direct.bookmarks.all("late"))["late"]["late.1"].sequence == 6


async def test_deleted_channel_leaves_and_the_others_go_on(direct) -> None:
    for name in ("gone.a", "gone.b"):
        await fill(direct, name, 1, 3)
    async with member(direct, "gone.*", "gone") as consumer:
        await direct.admin.delete_channel("gone.a")
        await eventually(lambda: consumer.channels == ["gone.b"])
        await fill(direct, "gone.b", 4, 6)
        await fill(direct, "gone.a", 1, 2)
        got = Counter()
        async for batch in consumer:
            got.update((batch.channel, message.sequence) for message in batch.messages())
            if {("gone.a", 2), ("gone.b", 6)} <= got.keys():
                break
    assert max(count for (name, _), count in got.items() if name == "gone.b") == 1


async def test_uncommitted_batch_comes_again(direct) -> None:
    await fill(direct, "manual.1", 1, 3)
    async with member(direct, "manual.*", "manual", auto_commit=False) as consumer:
        assert (await anext(consumer)).next_sequence == 4
    async with member(direct, "manual.*", "manual", start=stan_client.new_only()) as consumer:
        assert (await anext(consumer)).next_sequence == 4  # `start` is for channels without a position


async def test_new_only_begins_at_the_end(direct) -> None:
    await fill(direct, "end.1", 1, 3)
    async with member(direct, "end.*", "end", start=stan_client.new_only()) as consumer:
        await eventually(lambda: consumer.channels == ["end.1"])
        for _ in range(1000):
            if "end" in await direct.bookmarks.all("end"):
                break
            await asyncio.sleep(0.01)
        await fill(direct, "end.1", 4, 4)
        assert [message.sequence for message in (await anext(consumer)).messages()] == [4]


async def test_operators_see_who_owns_what(server, direct, tmp_path) -> None:
    for name in ("seen.a", "seen.b"):
        await fill(direct, name, 1, 3)
    assert "consumer groups" not in await asyncio.to_thread(stan, server.url, tmp_path, "consumer-group", "list")
    async with member(direct, "seen.*", "seen", name="worker-1") as consumer:
        batch = await anext(consumer)
        await batch.commit()
        listed = await asyncio.to_thread(stan, server.url, tmp_path, "consumer-group", "list", "--names")
        assert listed.split() == ["seen"]
        shown = await asyncio.to_thread(stan, server.url, tmp_path, "consumer-group", "show", "seen", "--json")
        found = json.loads(shown)
        assert {one["channel"] for one in found["channel_list"]} == {"seen.a", "seen.b"}
        assert found["positions"][batch.channel] == {"sequence": 4, "last": 3}
        text = await asyncio.to_thread(stan, server.url, tmp_path, "consumer-group", "show", "seen")
        assert "worker-1" in text
        assert "seen.b" in text


async def test_impossible_pattern_is_refused(direct) -> None:
    with pytest.raises(stan_client.ServerError, match=refusals.INVALID_CONSUMER):
        async with member(direct, "a..b", "wrong"):
            pass

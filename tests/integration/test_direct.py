"""Clients without registration against a real server: looking, waiting, reading, storing, positions; in asyncio and in plain
calls."""

import asyncio
import os
import threading

import pytest
import stan_client
from stan_client import Position, PullConsumer
from stan_client.blocking import BlockingClient
from stan_client.reading.direct import Direct
from stan_protocol import refusals

from stan.limits import EMBEDDED_PAYLOAD_BYTES_MAX, MESSAGE_PAYLOAD_BYTES_MAX
from tests.kit.fake_broker import eventually, nats_server
from tests.kit.server import StanServer, until


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with StanServer(tmp_path_factory.mktemp("direct")) as server:
        yield server


@pytest.fixture
async def direct(server):
    async with Direct(server.url, cluster_id=server.cluster_id, timeout_s=10) as direct:
        yield direct


@pytest.fixture
def blocking(server):
    with BlockingClient(server.url, cluster_id=server.cluster_id, timeout_s=10) as client:
        yield client


def rows(*datas: bytes) -> bytes:
    """Messages as a batch has them: length, then field 4."""
    assert all(len(data) < 128 for data in datas)
    return b"".join((len(data) + 2).to_bytes(4, "little") + b"\x22%c" % len(data) + data for data in datas)


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


async def fill(direct, channel, first, last):
    datas = numbers(first, last)
    return await direct.batches.publish(channel, rows(*datas), len(datas))


# --- asyncio ------------------------------------------------------------------------------------------------------------


async def test_batch_is_there_as_a_whole(direct) -> None:
    assert await fill(direct, "batch", 1, 1000) == stan_client.BatchAck(1, 1000, 0)
    assert [message.data for message in await direct.fetch("batch")] == numbers(1, 1000)
    info = (await direct.channels.info(["batch", "nope"]))["batch"]
    assert (info.first, info.last) == (1, 1000)
    assert info.first_time_ns == info.last_time_ns > 0
    assert info.bytes > 3000
    assert await direct.channels.sequence_at("batch", info.last_time_ns + 1) == 1001
    with pytest.raises(stan_client.ServerError, match=refusals.UNKNOWN_CHANNEL):
        await direct.channels.sequence_at("nope", 1)


async def test_client_that_is_registered_can_do_the_same(server, direct) -> None:
    async with await stan_client.connect(server.url, client_id="me", cluster_id=server.cluster_id) as client:
        await client.publish("same", b"1")
        assert await fill(client, "same", 2, 3) == stan_client.BatchAck(2, 3, 0)
        assert await client.channels.info(["same"]) == await direct.channels.info(["same"])
        assert client.batches.bytes_max == direct.batches.bytes_max == EMBEDDED_PAYLOAD_BYTES_MAX


async def test_info_by_pattern(direct) -> None:
    for channel in ("a.x", "a.y", "a.y.z", "b.x"):
        await fill(direct, channel, 1, 1)
    assert sorted(await direct.channels.info(pattern="a.*")) == ["a.x", "a.y"]
    assert sorted(await direct.channels.info(pattern="a.>")) == ["a.x", "a.y", "a.y.z"]
    assert sorted(await direct.channels.info(["b.x"], pattern="*.y")) == ["a.y", "b.x"]
    assert {"a.x", "b.x"} < set(await direct.channels.info())


async def test_info_waits_for_news(direct) -> None:
    await fill(direct, "news", 1, 1)
    pending = asyncio.create_task(direct.channels.info(newer_than={"news": 1, "later": 0}, wait_s=30))
    await direct.channels.info(["news"])  # the server has taken the other request before
    assert not pending.done()
    await fill(direct, "later", 1, 2)
    found = await pending
    assert {name: info.last for name, info in found.items()} == {"news": 1, "later": 2}


async def test_range_is_read_with_several_requests_on_their_way(direct) -> None:
    for first in range(1, 20_001, 1000):
        await fill(direct, "range", first, first + 999)
    uid = (await direct.channels.info(["range"]))["range"].uid
    got = [
        message.data
        async for found in direct.batches.read_range("range", 501, 19_500, uid=uid, max_bytes=20_000)
        for message in found.messages()
    ]
    assert got == numbers(501, 19_500)
    with pytest.raises(stan_client.ChannelReplacedError):
        await anext(direct.batches.read_range("range", 1, 10, uid=uid + 1))


async def test_named_positions(direct) -> None:
    await fill(direct, "p1", 1, 10)
    await fill(direct, "p2", 1, 10)
    await direct.bookmarks.set("job", {"p1": 4, "p2": 11})
    assert (await direct.bookmarks.all("job")) == {
        "job": {"p1": stan_client.Bookmark(4, 10), "p2": stan_client.Bookmark(11, 10)}
    }
    await direct.bookmarks.set("job", {"p1": 0})
    assert list((await direct.bookmarks.all())["job"]) == ["p2"]


async def test_follower_gets_what_comes_at_once(direct) -> None:
    await fill(direct, "follow", 1, 10)
    reader = direct.read("follow", follow=True)
    got = [(await anext(reader)).data for _ in range(10)]
    for number in range(11, 21):
        pending = asyncio.ensure_future(anext(reader))
        await direct.channels.info(["follow"])
        await fill(direct, "follow", number, number)
        got.append((await pending).data)
    await reader.aclose()
    assert got == numbers(1, 20)


async def test_consumer_keeps_its_place_and_tells_it(direct) -> None:
    await fill(direct, "consumer", 1, 500)
    consumer = PullConsumer(direct, "consumer", max_bytes=5000, bookmark="reader")
    first = await anext(consumer)
    await anext(consumer)
    position = consumer.position
    await consumer.aclose()
    assert await direct.bookmarks.all("reader") == {
        "reader": {"consumer": stan_client.Bookmark(first.next_sequence, 500)}
    }
    again = PullConsumer(direct, "consumer", position, follow=False)
    got = [message.data async for batch in again for message in batch.messages()]
    assert got == numbers(position.sequence, 500)


async def test_consumer_hears_of_what_the_limits_removed(tmp_path) -> None:
    with StanServer(tmp_path, "-mm", "100") as server:
        async with Direct(server.url, cluster_id=server.cluster_id, timeout_s=10) as direct:
            await fill(direct, "limited", 1, 50)
            position = Position(1, (await direct.channels.info(["limited"]))["limited"].uid)
            await fill(direct, "limited", 51, 120)
            with pytest.raises(stan_client.DataLossError, match="messages 1 to 20"):
                await anext(PullConsumer(direct, "limited", position))
            consumer = PullConsumer(direct, "limited", position, follow=False, skip_lost=True)
            assert [m.sequence async for batch in consumer for m in batch.messages()] == list(range(21, 121))
            assert consumer.lost == 20


async def test_what_is_asked_while_the_server_is_away_is_answered_later(tmp_path) -> None:
    with nats_server() as url, StanServer(tmp_path, nats_url=url) as server:
        async with Direct(url, cluster_id=server.cluster_id, timeout_s=30) as direct:
            await fill(direct, "away", 1, 3)
            await direct.bookmarks.set("job", {"away": 2})
            server.kill9()
            pending = asyncio.create_task(direct.channels.info(["away"]))
            reading = asyncio.create_task(direct.fetch("away"))
            await asyncio.to_thread(server.start)
            assert (await pending)["away"].last == 3
            assert len(await reading) == 3
            kept = {"job": {"away": stan_client.Bookmark(2, 3)}}
            assert await direct.bookmarks.all() == kept
            await asyncio.to_thread(server.restart)  # in order: from the rows, not from the log
            assert await direct.bookmarks.all() == kept


async def test_close_ends_what_is_under_way(server) -> None:
    direct = Direct(server.url, cluster_id="nobody-home", timeout_s=30)
    await direct.open()
    pending = asyncio.create_task(direct.channels.info())
    await eventually(lambda: direct._inbox is not None)
    await asyncio.sleep(0)
    await direct.close()
    with pytest.raises(stan_client.ConnectionClosedError):
        await pending
    with pytest.raises(stan_client.ConnectionClosedError):
        await direct.channels.info()
    await direct.close()


@pytest.mark.parametrize("cluster_id", ["", "a b"])
def test_impossible_cluster_ids_are_refused(cluster_id) -> None:
    with pytest.raises(stan_client.InvalidNameError):
        Direct("nats://127.0.0.1:1", cluster_id=cluster_id)


# --- plain calls ----------------------------------------------------------------------------------------------------------


def test_plain_calls(blocking) -> None:
    datas = numbers(1, 3000)
    assert blocking.publish_batch("plain", rows(*datas), 3000).last == 3000
    info = blocking.info(["plain"])["plain"]
    got = [m for found in blocking.read_range("plain", 1, 3000, uid=info.uid, max_bytes=9000) for m in found.messages()]
    assert [message.data for message in got] == datas
    assert len(blocking.fetch("plain", count=7)) == 7
    assert blocking.fetch_batch("plain", start=stan_client.newest(2)).count == 2
    assert blocking.sequence_at("plain", 0) == 1
    blocking.set_bookmark("plain", {"plain": 5})
    assert blocking.bookmarks("plain") == {"plain": {"plain": stan_client.Bookmark(5, 3000)}}
    assert blocking.max_payload == EMBEDDED_PAYLOAD_BYTES_MAX


def test_range_that_is_left_early_leaves_nothing_behind(blocking) -> None:
    blocking.publish_batch("early", rows(*numbers(1, 3000)), 3000)
    found = blocking.read_range("early", 1, 3000, max_bytes=2000)
    next(found)
    found.close()
    until(lambda: len(asyncio.all_tasks(blocking._loop)) <= 4)  # those of nats-py


def test_transaction_in_plain_calls(blocking) -> None:
    staged = [
        blocking.stage_nowait("app", 1, "t", part, "plain.tx", rows(*numbers(10 * part, 10 * part + 9)), 10)
        for part in range(20)
    ]
    blocking.stage("app", 1, "other", 0, "plain.tx", rows(b"x"), 1)
    for future in staged:
        future.result()
    assert blocking.info(["plain.tx"]).get("plain.tx") is None or blocking.info(["plain.tx"])["plain.tx"].last == 0
    blocking.abort({"plain.tx": ["other"]})
    txns = {"plain.tx": [("t", 20)]}
    assert blocking.commit("app", 1, txns) == {"plain.tx": stan_client.Committed(already=False, first=1, last=200)}
    assert blocking.commit("app", 1, txns)["plain.tx"].already
    assert blocking.last_committed("app") == 1
    assert [message.data for message in blocking.fetch("plain.tx")] == numbers(0, 199)


def test_ids_make_a_batch_repeatable(blocking) -> None:
    ids = b"".join(number.to_bytes(16, "big") for number in range(3))
    for expected in [(1, 3, 0), (0, 0, 3)]:
        ack = blocking.publish_batch("plain.ids", rows(b"a", b"b", b"c"), 3, producer="me", version=1, ids=ids)
        assert ack == expected


def test_many_batches_on_their_way(blocking) -> None:
    futures = [blocking.publish_batch_nowait("plain.many", rows(*numbers(1, 100)), 100) for _ in range(200)]
    places = sorted(future.result()[:2] for future in futures)
    assert places == [(first, first + 99) for first in range(1, 20_001, 100)]


def test_threads_share_a_client(blocking) -> None:
    blocking.publish_batch("plain.threads", rows(b"1"), 1)
    failed = []

    def ask():
        try:
            for _ in range(50):
                assert blocking.info(["plain.threads"])["plain.threads"].last == 1
        except Exception as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_closed_client_says_so(server) -> None:
    client = BlockingClient(server.url, cluster_id=server.cluster_id)
    client.close()
    client.close()
    for call in (
        client.info,
        lambda: next(client.read_range("a", 1, 2)),
        lambda: client.stage("a", 1, "t", 0, "c", b"", 0),
    ):
        with pytest.raises(stan_client.ConnectionClosedError):
            call()
    assert not client._thread.is_alive()


def test_nats_that_is_not_there_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(OSError, match=r"refused|Connect"):
        BlockingClient("nats://127.0.0.1:1")
    assert threading.active_count() == before


def test_patience_of_plain_calls_ends(server) -> None:
    with (
        BlockingClient(server.url, cluster_id="nobody-home", timeout_s=0.2) as client,
        pytest.raises(stan_client.RequestTimeoutError, match="nobody listens"),
    ):
        client.last_committed("app")


def test_forked_process_is_told_to_make_its_own(blocking) -> None:
    child = os.fork()
    if not child:
        code = 1
        try:
            blocking.close()
            blocking.info()
        except stan_client.ConnectionClosedError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert isinstance(blocking.info(), dict)


def test_call_that_is_given_up_ends(blocking) -> None:
    future = blocking._begin(asyncio.sleep(60))
    future.cancel()
    until(lambda: len(asyncio.all_tasks(blocking._loop)) <= 4)


# --- who may connect --------------------------------------------------------------------------------------------------------


def test_user_and_password_are_told_to_nats() -> None:
    with nats_server("--user", "me", "--pass", "secret") as url:
        with BlockingClient(url, nats_options={"user": "me", "password": "secret"}) as client:
            assert client.max_payload == MESSAGE_PAYLOAD_BYTES_MAX
        with pytest.raises(Exception, match=r"(?i)authorization"):
            BlockingClient(url, nats_options={"user": "me", "password": "wrong"})


def test_token_is_told_to_nats() -> None:
    with nats_server("--auth", "secret") as url, BlockingClient(url, nats_options={"token": "secret"}) as client:
        assert client.max_payload == MESSAGE_PAYLOAD_BYTES_MAX

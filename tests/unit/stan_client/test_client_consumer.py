"""PullConsumer beside a channel in memory: where it is, what it does about losses, what it tells the servers."""

import asyncio

import pytest
import stan_client
from stan_client.reading import consumer as consumers
from stan_client.reading.connected import Connected
from stan_client.reading.consumer import Position, PullConsumer

from tests.kit.fake_broker import eventually
from tests.kit.pulled_channel import PulledChannel


class Client(Connected):
    """A client of that channel."""

    def __init__(self, server):
        super().__init__(server.ready, "c", 30.0, int)
        self.server = server
        self.told = []

    @property
    def channels(self):
        return self

    @property
    def bookmarks(self):
        return self

    async def info(self, *, newer_than, wait_s, timeout_s):
        assert newer_than == {"ch": 0}
        await eventually(lambda: self.server.uid)
        return {}

    async def set(self, name, positions, **_identity):
        self.told.append((name, positions))


@pytest.fixture
def server():
    return PulledChannel(last=700)


@pytest.fixture
def client(server):
    return Client(server)


def sequences(batch):
    return [message.sequence for message in batch.messages()]


async def read(consumer):
    return [sequence async for batch in consumer for sequence in sequences(batch)]


async def test_everything_comes_once_and_the_position_is_behind_it(client, server) -> None:
    consumer = PullConsumer(client, "ch", follow=False, max_bytes=2000)
    got = []
    async for batch in consumer:
        got += sequences(batch)
        assert consumer.position == Position(got[-1] + 1, server.uid, read_ns=server.time_of(700))
    assert got == list(range(1, 701))


@pytest.mark.parametrize(
    "damaged",
    [Position(0), Position(-1), Position("7"), Position(7, None), Position(7, 1, "x"), Position(7, 1, "", 1.5)],
)
def test_position_that_is_damaged_says_so(client, damaged) -> None:
    with pytest.raises(ValueError, match=r"Position\(sequence=.* is damaged: restore the stored position, or begin"):
        PullConsumer(client, "ch", damaged)


async def test_consumer_goes_on_where_another_was(client) -> None:
    first = PullConsumer(client, "ch", follow=False, max_bytes=2000)
    got = sequences(await anext(first))
    await first.aclose()
    assert got + await read(PullConsumer(client, "ch", first.position, follow=False)) == list(range(1, 701))
    assert await read(PullConsumer(client, "ch", 695, follow=False)) == list(range(695, 701))
    assert await read(PullConsumer(client, "ch", 701, follow=False)) == []


async def test_follower_gets_what_comes_later(client, server) -> None:
    consumer = PullConsumer(client, "ch", 701)
    pending = asyncio.create_task(anext(consumer))
    await eventually(lambda: server.waits)
    server.last = 707
    assert sequences(await pending) == list(range(701, 708))
    await consumer.aclose()


async def test_removed_messages_are_an_error(client, server) -> None:
    server.first = 50
    consumer = PullConsumer(client, "ch", 20)
    with pytest.raises(stan_client.DataLossError, match="messages 20 to 49 of channel ch are lost") as caught:
        await anext(consumer)
    assert (caught.value.first, caught.value.last) == (20, 49)
    assert consumer.position == Position(20)


async def test_removed_messages_are_skipped_if_that_is_wanted(client, server, caplog) -> None:
    server.first = 50
    consumer = PullConsumer(client, "ch", 20, follow=False, skip_lost=True)
    assert await read(consumer) == list(range(50, 701))
    assert consumer.lost == 30
    assert "messages 20 to 49 of channel ch are lost" in caplog.text


async def test_messages_removed_while_it_reads_are_noticed(client, server) -> None:
    consumer = PullConsumer(client, "ch", follow=False, max_bytes=500, requests_in_flight=1)
    at = sequences(await anext(consumer))[-1] + 1
    server.first = 400
    with pytest.raises(stan_client.DataLossError) as caught:
        await read(consumer)
    assert (caught.value.first, caught.value.last) == (at, 399)


async def test_messages_that_no_limit_has_removed_are_no_loss(client, server) -> None:
    server.first, server.lost_until = 50, 0
    assert await read(PullConsumer(client, "ch", 20, follow=False)) == list(range(50, 701))
    server.lost_until = 30
    with pytest.raises(stan_client.DataLossError) as caught:
        await read(PullConsumer(client, "ch", 20, follow=False))
    assert (caught.value.first, caught.value.last) == (20, 30)


async def test_channel_of_which_nothing_is_left_has_lost_it(client, server) -> None:
    server.first = 701
    with pytest.raises(stan_client.DataLossError) as caught:
        await read(PullConsumer(client, "ch", follow=False))
    assert (caught.value.first, caught.value.last) == (1, 700)


@pytest.mark.parametrize("position", [Position(100, 1), Position(800, 0)], ids=["another", "shorter"])
async def test_channel_made_again_is_an_error_or_read_from_its_start(client, server, position, caplog) -> None:
    server.uid = 2
    with pytest.raises(stan_client.ChannelReplacedError):
        await read(PullConsumer(client, "ch", position, follow=False))
    consumer = PullConsumer(client, "ch", position, follow=False, skip_lost=True)
    assert await read(consumer) == list(range(1, 701))
    assert consumer.position == Position(701, 2, read_ns=server.time_of(700))
    assert "is another one now" in caplog.text


@pytest.mark.parametrize("others_from", [1, 92, 99])
@pytest.mark.parametrize("last", [98, 105, 700])
async def test_channel_that_has_lost_its_end_is_an_error_or_read_from_its_start(
    client, server, last, others_from
) -> None:
    """What was read are the messages 1 to 98; *last*: the newest one now, *others_from*: the first that is another one."""
    position = Position(99, 1, "", server.time_of(98))
    server.last, server.others_from, server.later = last, others_from, 10_000
    if others_from <= 98:
        with pytest.raises(stan_client.ChannelReplacedError):
            await read(PullConsumer(client, "ch", position, follow=False))
        consumer = PullConsumer(client, "ch", position, follow=False, skip_lost=True)
        assert await read(consumer) == list(range(1, last + 1))
    else:
        assert await read(PullConsumer(client, "ch", position, follow=False)) == list(range(99, last + 1))


@pytest.mark.parametrize("left", [343, 350, 700])
async def test_channel_that_loses_its_end_while_it_is_read(client, server, left) -> None:
    consumer = PullConsumer(client, "ch", max_bytes=500)
    while sequences(await anext(consumer))[-1] < 350:
        pass
    server.last, server.others_from, server.later = left, 344, 10_000
    with pytest.raises(stan_client.ChannelReplacedError):
        await read(consumer)


async def test_follower_waits_for_a_channel_that_is_not_there_yet(client, server) -> None:
    server.uid = 0
    consumer = PullConsumer(client, "ch")
    pending = asyncio.create_task(anext(consumer))
    await eventually(lambda: server.asked)
    server.uid = 1
    assert sequences(await pending)[0] == 1
    await consumer.aclose()

    server.uid = 0
    with pytest.raises(stan_client.ServerError, match="unknown channel"):
        await read(PullConsumer(client, "ch", follow=False))


async def test_deleted_channel_is_an_error_or_waited_for(client, server) -> None:
    server.uid = 0
    with pytest.raises(stan_client.ChannelReplacedError):
        await anext(PullConsumer(client, "ch", Position(5, 1)))
    consumer = PullConsumer(client, "ch", Position(5, 1), skip_lost=True)
    pending = asyncio.create_task(anext(consumer))
    await eventually(lambda: server.asked)
    server.uid = 2
    assert sequences(await pending)[0] == 1
    await consumer.aclose()


async def test_position_is_told_under_a_name(client, server, monkeypatch) -> None:
    monkeypatch.setattr(consumers, "NOTE_INTERVAL_S", 0.01)
    consumer = PullConsumer(client, "ch", max_bytes=500, bookmark="me")
    first = await anext(consumer)
    await anext(consumer)
    await eventually(lambda: client.told)
    assert client.told == [("me", {"ch": first.next_sequence})]  # the second one is still in the caller's hands
    third = await anext(consumer)
    await consumer.aclose()
    assert client.told[-1] == ("me", {"ch": third.runs[0].first_sequence})
    assert len(asyncio.all_tasks()) == 1


async def test_servers_that_take_no_position_do_no_harm(client, monkeypatch) -> None:
    monkeypatch.setattr(consumers, "NOTE_INTERVAL_S", 0.001)

    async def refuse(_name, _positions, **_identity):
        client.told.append(1)
        raise stan_client.RequestTimeoutError

    client.set = refuse
    consumer = PullConsumer(client, "ch", follow=False, max_bytes=500, bookmark="me")
    await anext(consumer)
    await anext(consumer)
    await eventually(lambda: len(client.told) > 1)
    assert (await read(consumer))[-1] == 700

"""How stan_client pulls, beside a server in a few lines: what it asks again, whom it asks, and in which order messages come."""

import asyncio

import pytest
import stan_client
from stan_client.reading import fetching
from stan_client.reading.fetching import Fetcher, Reader, ReadOptions
from stan_protocol import fetches, refusals
from stan_protocol.frames import Frame
from stan_protocol.proto.extension_pb2 import FetchRequest, FetchResponse

from tests.kit.fake_broker import eventually
from tests.kit.pulled_channel import LEADER, REPLICA, UNKNOWN, PulledChannel, sealed

NOBODY = Frame(1, b"in", b"", b"NATS/1.0 503\r\n\r\n", b"")
BUSY = FetchResponse(error=refusals.BUSY.encode(), retry=True)
INVALID = FetchResponse(error=refusals.INVALID_FETCH.encode())


@pytest.fixture
def server():
    return PulledChannel(last=700)


def fetcher(server, patience_s=30.0):
    return Fetcher(server.ready, "c", patience_s)


async def fetch(server, *, from_replica=False, patience_s=30.0):
    request = FetchRequest(channel=b"ch", from_sequence=1)
    return await fetcher(server, patience_s).fetch(request, from_replica=from_replica)


async def read(server, patience_s=30.0, until=None, **options):
    reader = Reader(fetcher(server, patience_s), "ch", ReadOptions(**options))
    got = []
    async for found in reader.answers(stan_client.everything()):
        got += [message.sequence for message in found.messages()]
        if until is not None and until(got):
            break
    return got


@pytest.mark.parametrize("first", [BUSY, NOBODY, None], ids=["busy", "nobody", "late"])
async def test_what_may_pass_is_asked_again(server, first) -> None:
    server.script = [first, first]

    assert (await fetch(server)).count == 700
    assert [subject for subject, _ in server.asked] == [LEADER] * 3


async def test_what_does_not_pass_is_told_at_once(server) -> None:
    server.script = [INVALID]
    with pytest.raises(stan_client.ServerError, match=refusals.INVALID_FETCH):
        await fetch(server)

    server.script = [Frame(1, b"in", b"", b"", b"\xff")]
    with pytest.raises(stan_client.ServerError, match="malformed"):
        await fetch(server)


async def test_patience_ends(server) -> None:
    server.script = [BUSY] * 1000
    with pytest.raises(stan_client.FetchTimeoutError):
        await fetch(server, patience_s=0.05)


@pytest.mark.parametrize("first", [NOBODY, None, UNKNOWN], ids=["nobody", "late", "unknown"])
async def test_what_no_replica_can_tell_is_asked_of_the_leader(server, first) -> None:
    server.script = [first]

    assert (await fetch(server, from_replica=True)).count == 700
    assert [subject for subject, _ in server.asked] == [REPLICA, LEADER]


async def test_busy_replica_is_asked_again(server) -> None:
    server.script = [BUSY]

    await fetch(server, from_replica=True)
    assert [subject for subject, _ in server.asked] == [REPLICA, REPLICA]


@pytest.mark.parametrize("requests_in_flight", [1, 3])
@pytest.mark.parametrize("max_bytes", [0, 100, 2000])
async def test_reader_gives_each_message_once_in_order_with_no_more_requests_than_allowed(
    server, requests_in_flight, max_bytes
) -> None:
    assert await read(server, requests_in_flight=requests_in_flight, max_bytes=max_bytes) == list(range(1, 701))
    assert server.most_under_way <= requests_in_flight
    if max_bytes:
        assert server.most_under_way == requests_in_flight


async def test_reader_asks_for_no_more_bytes_at_once_than_nats_keeps_for_it(server, monkeypatch) -> None:
    monkeypatch.setattr(fetching, "IN_FLIGHT_BYTES_MAX", 1100)

    assert await read(server, requests_in_flight=8, max_bytes=500) == list(range(1, 701))
    assert server.most_under_way == 2


async def test_reader_ends_at_what_was_there_at_the_beginning(server) -> None:
    def more(got):
        server.last += 7
        return False

    assert await read(server, max_bytes=500, until=more) == list(range(1, 701))


async def test_reader_that_follows_gets_what_comes_later(server) -> None:
    def more(got):
        if got[-1] == server.last:
            server.last += 70
        return len(got) >= 1400

    got = await read(server, follow=True, max_bytes=500, until=more)
    assert got == list(range(1, len(got) + 1))


async def test_reader_that_follows_asks_for_messages_once_there_are_some(server) -> None:
    reader = Reader(fetcher(server), "ch", ReadOptions(follow=True))
    answers = reader.answers(stan_client.everything())
    assert (await anext(answers)).next_sequence == 701
    pending = asyncio.create_task(anext(answers))
    await eventually(lambda: server.waits)
    asked = len(server.asked)
    for _ in range(20):
        await asyncio.sleep(0)
    assert (server.waits, len(server.asked)) == ([700], asked)
    server.last = 707
    assert (await pending).count == 7
    await answers.aclose()


async def test_reader_waits_for_a_replica_that_lags_behind_another(server) -> None:
    server.script = [server.answer(FetchRequest(from_sequence=1, max_bytes=400), 700)]
    server.lag[REPLICA] = 350

    def catch_up(got):
        if got[-1] == 350:
            server.lag[REPLICA] = 0
        return False

    assert await read(server, from_replica=True, max_bytes=400, until=catch_up) == list(range(1, 701))


async def test_reader_turns_to_the_leader_if_a_replica_lags_for_long(server, monkeypatch) -> None:
    monkeypatch.setattr(fetching, "REPLICA_PATIENCE_S", 0.05)
    server.script = [server.answer(FetchRequest(from_sequence=1, max_bytes=400), 700)]
    server.lag[REPLICA] = 350

    assert await read(server, from_replica=True, max_bytes=400) == list(range(1, 701))
    assert server.asked[-1][0] == LEADER


@pytest.mark.parametrize("from_replica", [False, True])
@pytest.mark.parametrize(("first", "last"), [(1, 700), (5, 9), (300, 300), (650, 10_000), (701, 800)])
async def test_range_is_read_whole_and_no_further(server, first, last, from_replica, monkeypatch) -> None:
    monkeypatch.setattr(fetching, "REPLICA_PATIENCE_S", 0.05)
    server.lag[REPLICA] = 80
    options = ReadOptions(last=last, max_bytes=400, from_replica=from_replica)
    reader = Reader(fetcher(server), "ch", options)
    got = [
        message.sequence
        async for found in reader.answers(stan_client.from_sequence(first))
        for message in found.messages()
    ]
    assert got == list(range(first, min(last, 700) + 1))


async def test_range_of_another_channel_of_that_name_is_refused(server) -> None:
    reader = Reader(fetcher(server), "ch", ReadOptions(last=700, uid=2))
    with pytest.raises(stan_client.ChannelReplacedError):
        await anext(reader.answers(stan_client.from_sequence(1)))


async def test_reader_of_a_channel_that_is_made_again_says_so(server) -> None:
    def replace(got):
        server.uid = 2
        return False

    with pytest.raises(stan_client.ChannelReplacedError):
        await read(server, max_bytes=500, until=replace)


async def test_reader_learns_the_end_if_the_first_message_leaves_no_room_for_it(server) -> None:
    server.script = [FetchResponse(records=sealed(1, 1))]

    assert await read(server) == list(range(1, 701))


async def test_requests_are_as_large_as_the_messages_let_them(server) -> None:
    server.last = 7000
    assert await read(server, max_bytes=2000) == list(range(1, 7001))
    answered = 15 * 7 + fetches.RUN_ROOM  # a batch of seven
    assert len(server.asked) < 1.3 * 7000 / (7 * (2000 // answered))


async def test_requests_of_a_reader_that_is_left_end(server) -> None:
    reader = Reader(fetcher(server), "ch", ReadOptions(max_bytes=100))
    answers = reader.answers(stan_client.everything())
    server.answers_max = 2
    await anext(answers)
    await anext(answers)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    assert len(tasks) == 3
    await answers.aclose()
    await asyncio.wait(tasks)


@pytest.mark.parametrize(
    ("start", "asked"),
    [
        (stan_client.new_only(), {}),
        (stan_client.last_received(), {"newest": 1}),
        (stan_client.newest(3), {"newest": 3}),
        (stan_client.from_sequence(9), {"from_sequence": 9}),
        (stan_client.everything(), {"from_sequence": 1}),
    ],
)
def test_start_positions_are_those_of_a_subscription_and_one_more(start, asked) -> None:
    assert start.fetch_start() == asked

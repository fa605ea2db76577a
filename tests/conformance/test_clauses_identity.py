"""Conformance checklist A: connect, duplicate check, heartbeats, pings, close (STAN-SPEC 3, 16 A), byte by byte."""

import asyncio

import pytest
from stan_protocol.proto import wire_pb2 as pb

from tests.conformance import wire
from tests.conformance.wire import CLOSE, DISCOVER, PINGS, speaking, unique
from tests.kit.server import StanServer

BAD_ID = "stan: invalid clientID: only alphanumeric and `-` or `_` characters allowed"
REGISTERED = b"stan: clientID already registered"
REPLACED = "client has been replaced or is no longer registered"


@pytest.fixture(scope="module", params=["FILE", "MEMORY"])
def server(request, tmp_path_factory):
    with StanServer(tmp_path_factory.mktemp("server"), "-mc", "0", store=request.param) as server:
        yield server


async def raw_connect(talk, **fields):
    return await talk.ask(DISCOVER, pb.ConnectRequest(**fields), pb.ConnectResponse)


async def test_01_good_request_gets_every_subject_and_protocol_1(talk):
    response = (await talk.connect(unique("c"), protocol=0)).response

    assert response == pb.ConnectResponse(
        pub_prefix=b"_STAN.pub.test-cluster",
        sub_requests=b"_STAN.sub.test-cluster",
        unsub_requests=b"_STAN.unsub.test-cluster",
        close_requests=b"_STAN.close.test-cluster",
        sub_close_requests=b"_STAN.subclose.test-cluster",
        protocol=1,
    )


@pytest.mark.parametrize("payload", [b"dummy", b""])
async def test_02_garbage_is_an_invalid_connection_request(talk, payload):
    assert await talk.ask(DISCOVER, payload, pb.ConnectResponse) == pb.ConnectResponse(
        error=b"stan: invalid connection request"
    )


@pytest.mark.parametrize("inbox", [b"", b"a b", b"x" * 4000, b"a\r\nPUB x 0\r\n"])
async def test_03_without_a_usable_heartbeat_inbox_it_is_invalid_too_and_the_server_goes_on(server, talk, inbox):
    lost = server.log().count("Connection to NATS lost")
    response = await raw_connect(talk, client_id=unique("c").encode(), heartbeat_inbox=inbox)

    assert response.error == b"stan: invalid connection request"
    assert not (await talk.connect(unique("c"))).response.error
    assert server.log().count("Connection to NATS lost") == lost


@pytest.mark.parametrize(
    "client_id", ["", "id with spaces", "id:with:columns", "id,with,commas", "id.with.dots", "id\n", "é", *"!@#$%^&*()"]
)
async def test_04_client_id_with_other_characters_is_refused(talk, client_id):
    response = await raw_connect(talk, client_id=client_id.encode(), heartbeat_inbox=b"hb")

    assert response.error.decode() == BAD_ID


async def test_05_letters_digits_underscores_and_hyphens_are_accepted(talk):
    for client_id in ("id", "id_with_underscores", "id-with-hypens", "0", "A" * 500):
        session = await talk.connect(client_id)
        assert not session.response.error
        assert not await session.close()


async def test_06_protocol_1_echoes_the_ping_values(talk):
    response = (await talk.connect(unique("c"), protocol=1)).response

    assert (response.ping_interval, response.ping_max_out, response.ping_requests) == (1, 3, PINGS.encode())


async def test_07_id_of_a_client_that_answers_is_refused_and_it_goes_on(talk):
    first = await talk.connect(unique("c"))

    assert (await talk.connect(first.client_id)).response == pb.ConnectResponse(error=REGISTERED)
    assert first.heartbeats == 1
    assert await first.ping() == ""


async def test_08_id_of_a_client_that_is_gone_is_given_away(server, talk):
    client_id = unique("c")
    async with speaking(server.url) as gone:
        await gone.connect(client_id)
    second = await talk.connect(client_id)

    assert not second.response.error
    assert (await talk.connect(client_id)).response.error == REGISTERED
    assert second.heartbeats == 1


async def test_09_10_12_check_of_one_id_refuses_that_id_and_delays_no_other(talk):
    silent = await talk.connect(unique("c"), answering=False)
    waiting = asyncio.ensure_future(talk.connect(silent.client_id))
    await talk.until(lambda: silent.heartbeats, "the check")

    assert (await talk.connect(silent.client_id)).response.error == REGISTERED
    assert not (await talk.connect(unique("other"))).response.error
    assert not waiting.done()
    assert not (await waiting).response.error


async def test_11_ten_crashed_clients_come_back_at_once(server, talk):
    ids = [unique("c") for _ in range(10)]
    async with speaking(server.url) as gone:
        for client_id in ids:
            await gone.connect(client_id)
    async with asyncio.timeout(5):
        again = await asyncio.gather(*(talk.connect(client_id) for client_id in ids))

    assert [session.response.error for session in again] == [b""] * 10


async def test_11_ten_silent_clients_are_checked_side_by_side(talk):
    silent = [await talk.connect(unique("c"), answering=False) for _ in range(10)]
    async with asyncio.timeout(4.5):  # one after the other it would take 5 s at least
        again = await asyncio.gather(*(talk.connect(session.client_id) for session in silent))

    assert [session.response.error for session in again] == [b""] * 10


async def test_19_22_ping_of_nobody_is_told_and_one_that_is_none_is_ignored(talk):
    assert await talk.ask(PINGS, pb.Ping(conn_id=b"nobody"), pb.PingResponse) == pb.PingResponse(
        error=REPLACED.encode()
    )
    session = await talk.connect(unique("c"))
    inbox, came = talk.nats.new_inbox(), []

    async def note(message):
        came.append(message.data)

    await talk.nats.subscribe(inbox, cb=note)
    for payload in (b"", b"dummy"):
        await talk.nats.publish(PINGS, payload, inbox)
    answer = await talk.nats.request(PINGS, pb.Ping(conn_id=session.conn_id).SerializeToString(), 5)
    assert answer.data == b""
    assert came == []


async def test_20_replaced_client_is_told_by_ping_and_publish(talk):
    old = await talk.connect(unique("c"), answering=False)
    new = await talk.connect(old.client_id)

    assert await old.ping() == REPLACED
    assert await old.publish(unique("ch"), b"x") == ["stan: invalid publish request"]
    assert await new.ping() == ""


async def test_23_24_close_that_is_none_or_of_nobody_is_refused(talk):
    assert (await talk.ask(CLOSE, b"dummy", pb.CloseResponse)).error == b"stan: invalid close request"
    for client_id in (b"", b"nobody"):
        request = pb.CloseRequest(client_id=client_id)
        assert (await talk.ask(CLOSE, request, pb.CloseResponse)).error == b"stan: unknown clientID"


async def test_25_closed_id_is_free_without_a_check(talk):
    first = await talk.connect(unique("c"), answering=False)
    assert not await first.close()
    assert not (await talk.connect(first.client_id)).response.error

    assert first.heartbeats == 0


async def test_28_requests_of_a_closed_client_are_each_answered(talk):
    session = await talk.connect(unique("c"))
    await session.close()
    subs = await asyncio.gather(*(session.subscribe(unique("ch")) for _ in range(20)))

    assert {sub.error for sub in subs} == {"stan: unknown clientID"}


# --- short heartbeats -----------------------------------------------------------------------------------------------------

BEATS = ("-hbi", "100ms", "-hbt", "100ms", "-hbf", "3")


@pytest.fixture(scope="module")
def beating(tmp_path_factory):
    """A server that calls a client dead on its fourth failure."""
    with StanServer(tmp_path_factory.mktemp("beating"), *BEATS) as server:
        yield server


async def test_13_client_that_answers_stays(beating):
    async with speaking(beating.url) as talk:
        session = await talk.connect(unique("c"))
        await talk.until(lambda: session.heartbeats >= 10, "ten heartbeats")

        assert await session.ping() == ""


async def test_14_client_that_is_gone_is_removed(beating):
    client_id = unique("c")
    async with speaking(beating.url) as gone:
        conn_id = (await gone.connect(client_id)).conn_id
    async with speaking(beating.url) as talk:
        await talk.until(
            lambda: f"[Client:{client_id}] Timed out on heartbeats" in beating.log(), "the line in the log"
        )
        assert (await talk.ask(PINGS, pb.Ping(conn_id=conn_id), pb.PingResponse)).error == REPLACED.encode()


async def test_15_silent_client_is_served_while_its_heartbeats_fail_and_then_removed(beating):
    async with speaking(beating.url) as talk:
        session = await talk.connect(unique("c"), answering=False)
        sub = await session.subscribe(unique("ch"))
        await talk.until(lambda: session.heartbeats, "a heartbeat")
        assert await session.publish(sub.channel, b"x") == [""]
        assert await sub.sequences(1) == [1]
        await talk.until(lambda: session.heartbeats == 4, "the last heartbeat")
        await talk.until(
            lambda: f"[Client:{session.client_id}] Timed out on heartbeats" in beating.log(), "the line in the log"
        )
        assert await session.ping() == REPLACED
        assert session.heartbeats == 4


# --- restarts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["terminate", "kill9"])
async def test_16_17_21_clients_are_recovered_with_their_connection_and_removed_if_they_are_silent(tmp_path, ending):
    with StanServer(tmp_path, *BEATS) as server:
        async with speaking(server.url) as talk:
            alive = await talk.connect("alive")
            silent = await talk.connect("silent", answering=False)
            getattr(server, ending)()
            server.start()
            await talk.back()
            assert await alive.ping() == ""
            assert await alive.publish("foo", b"x") == [""]
            assert (await talk.connect("alive")).response.error == REGISTERED
            await talk.until(lambda: "[Client:silent] Timed out on heartbeats" in server.log(), "the line in the log")
            assert await silent.ping() == REPLACED
            assert await alive.ping() == ""


async def test_22_server_that_forgot_everything_says_so(tmp_path):
    with StanServer(tmp_path, store="MEMORY") as server:
        async with speaking(server.url) as talk:
            session = await talk.connect("c")
            server.restart()
            await talk.back()

            assert await session.ping() == REPLACED
            assert await session.publish("foo", b"x") == ["stan: invalid publish request"]
            assert (await session.subscribe("foo")).error == "stan: unknown clientID"
            assert await session.close() == "stan: unknown clientID"


async def test_26_second_server_with_the_same_cluster_id_does_not_start(server, tmp_path):
    second = StanServer(tmp_path, store="MEMORY", nats_url=server.url)
    with pytest.raises(AssertionError, match='discovered another streaming server with cluster ID "test-cluster"'):
        second.start()

    async with wire.speaking(server.url) as talk:
        assert not (await talk.connect(unique("c"))).response.error

"""Requests that are messages, and their answers: stan_client against a real broker, whose workers die and repeat themselves."""

import asyncio
import random

import nats
import pytest
import stan_client

from tests.integration.test_config_file import FromFile
from tests.kit.fake_broker import eventually

FILE = """
listen: "127.0.0.1:{port}"
streaming {{
  store: FILE
  dir: {directory}
  hb_interval: "100ms"
  hb_timeout: "200ms"
  hb_fail_count: 5
}}
"""
REQUESTS = 1000


@pytest.fixture
def url(tmp_path):
    with FromFile(tmp_path, "-sc", FILE) as server:
        yield server.url


async def connect(url: str, client_id: str) -> stan_client.Client:
    return await stan_client.connect(url, client_id=client_id)


async def test_each_of_many_requests_has_its_own_answer_or_its_own_timeout(url) -> None:
    """Answers come out of order; workers die with requests in hand, which others answer; some are never answered."""
    chance = random.Random(7)
    handled: list[bytes] = []

    async def work(name: str, *, dies_after: int) -> stan_client.Client:
        worker = await connect(url, name)
        tasks: set[asyncio.Task[None]] = set()

        async def one(message: stan_client.Message) -> None:
            nonlocal dies_after
            await asyncio.sleep(chance.random() * 0.3)
            if int(message.data) % 100 == 99 or worker.closed:
                return  # it is never answered
            handled.append(message.data)
            message.respond(b"answer to " + message.data)
            if int(message.data) % 5 == 0:
                message.respond(b"a second answer, which nobody gets")
            message.ack()
            if 0 < dies_after <= len(handled):
                dies_after = 0
                await worker._sessions.link.shut()  # as a process that is killed: nothing more is said
                await worker.close()

        def take(message: stan_client.Message) -> None:
            task = asyncio.create_task(one(message))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        await worker.subscribe("jobs", take, queue="workers", manual_acks=True, ack_wait_s=1, max_in_flight=100)
        return worker

    async def ask(number: int) -> bytes | str:
        timeout_s = 4 if number % 100 == 99 else 60
        try:
            return await client.request("jobs", b"%d" % number, timeout_s=timeout_s)
        except stan_client.ReplyTimeoutError as late:
            return str(late)

    mortal, steady = await work("mortal", dies_after=REQUESTS // 4), await work("steady", dies_after=0)
    async with await connect(url, "asker") as client:
        answers = await asyncio.gather(*[ask(number) for number in range(REQUESTS)])
        assert not client._sessions.replies
    late = "stan: no reply in time"
    assert answers == [late if number % 100 == 99 else b"answer to %d" % number for number in range(REQUESTS)]
    assert mortal.closed
    await steady.close()


async def test_a_request_that_nobody_takes_is_stored_and_a_late_answer_is_dropped(url) -> None:
    async with await connect(url, "asker") as client, await connect(url, "worker") as worker:
        with pytest.raises(stan_client.ReplyTimeoutError):
            await client.request("jobs", b"first", timeout_s=0.2)
        answered: list[bytes] = []

        def take(message: stan_client.Message) -> None:
            message.respond(b"to " + message.data)
            answered.append(message.data)

        await worker.subscribe("jobs", take, start=stan_client.everything())
        await eventually(lambda: answered == [b"first"])
        assert await client.request("jobs", b"second", timeout_s=10) == b"to second"
        await worker.subscribe("dull", lambda message: message.respond(b""), start=stan_client.everything())
        assert await client.request("dull", b"an empty answer is one", headers={"a": "b"}, key="k", ttl_s=60) == b""


async def test_what_asks_for_no_reply_is_told_apart(url) -> None:
    """Also reply subjects on which others than clients listen, and ones that would break the NATS protocol."""
    async with await connect(url, "me") as client:
        subscription = await client.subscribe("jobs", manual_acks=True)
        for reply in ("", "orders", "$SYS.REQ", "_STAN.pub.x.orders", "_INBOX._STAN.x", "_INBOX.>", "_INBOX.a b"):
            await client.publish("jobs", b"x", reply=reply)
            message = await subscription.next(10)
            with pytest.raises(stan_client.NotARequestError):
                message.respond(b"y")
            message.ack()
        await client.publish("jobs", b"x", reply="_INBOX.a")
        message = await subscription.next(10)
        with pytest.raises(stan_client.MessageTooLargeError):
            message.respond(bytes(client.batches.bytes_max + 1))
        assert await message.respond(b"y")
        assert await message.ack()
        (read,) = await client.fetch("jobs", count=1)
        with pytest.raises(stan_client.NilMessageError):
            read.respond(b"y")


async def test_requests_end_with_the_client(url) -> None:
    client = await connect(url, "me")
    waiting = asyncio.create_task(client.request("jobs", b"x", timeout_s=60))
    await eventually(lambda: client._publisher.in_flight == 0 and len(client._sessions.replies) == 1)
    await client.close()
    with pytest.raises(stan_client.ConnectionClosedError):
        await waiting
    with pytest.raises(stan_client.ConnectionClosedError):
        await client.request("jobs", b"x")


async def test_requests_go_on_over_a_new_session(nats_url, broker) -> None:
    """The session is lost while a request waits: its answer comes all the same."""
    async with (
        await stan_client.connect(nats_url, client_id="asker", ping_interval_s=1) as client,
        await stan_client.connect(nats_url, client_id="worker") as worker,
    ):
        jobs = await worker.subscribe("jobs", manual_acks=True)
        asked = asyncio.create_task(client.request("jobs", b"x", timeout_s=60))
        message = await jobs.next(10)
        await eventually(lambda: client._publisher.in_flight == 0)
        first = client._sessions.current
        broker._drop_client(b"asker")
        await eventually(lambda: client._sessions.current not in (None, first))
        assert message.respond(b"y")
        assert await asked == b"y"
        broker.refuse["pub"] = "stan: no"
        with pytest.raises(stan_client.ServerError, match="stan: no"):
            await client.request("jobs", b"x")


async def test_requests_over_a_connection_of_the_callers(broker, nats_url) -> None:
    borrowed = await nats.connect(nats_url)
    async with await stan_client.connect(client_id="me", nats=borrowed) as client:
        await client.subscribe("jobs", lambda message: message.respond(message.data.upper()))
        assert await asyncio.gather(*[client.request("jobs", b"%d a" % n) for n in range(20)]) == [
            b"%d A" % n for n in range(20)
        ]
    await borrowed.close()


async def test_a_request_without_a_session_was_not_sent(broker, nats_url) -> None:
    client = await stan_client.connect(nats_url, client_id="me")
    session, client._sessions.current = client._sessions.current, None
    with pytest.raises(stan_client.NotSentError):
        await client.request("jobs", b"x", timeout_s=0.05)
    assert not client._sessions.replies
    client._sessions.current = session
    await client.close()

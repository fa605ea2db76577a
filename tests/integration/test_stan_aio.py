"""Programs for asyncio-nats-streaming, of the shapes that such programs have, over `stan.aio.client` and a real broker.

They use what the original had, as they did then, with `io_loop` for nats-py, underscores and all.
"""

import asyncio
import json
import time
import uuid

import nats.errors
import pytest
import stan.aio.client as aliased
import stan.pb.protocol_pb2 as protocol
from nats.aio.client import Client as Nats
from nats.aio.errors import ErrConnectionClosed, ErrMaxPayload
from stan.aio.client import DEFAULT_ACK_WAIT, DEFAULT_MAX_INFLIGHT, Msg, Subscription
from stan.aio.client import Client as Stan
from stan.aio.errors import ErrConnectReqTimeout, ErrTimeoutError, StanError

from tests.kit.server import StanServer

SECONDS_MAX = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with StanServer(tmp_path_factory.mktemp("server"), store="MEMORY") as server:
        yield server


@pytest.fixture
def channel():
    return f"channel.{uuid.uuid4().hex}"


@pytest.fixture
def client_id():
    return uuid.uuid4().hex


@pytest.fixture
async def nc(server):
    nc = Nats()
    await nc.connect(server.url, io_loop=asyncio.get_running_loop())
    yield nc
    if not nc.is_closed:
        await nc.close()


@pytest.fixture
async def sc(nc, client_id):
    sc = Stan()
    await sc.connect("test-cluster", client_id, nats=nc)
    yield sc
    if sc._open:
        await sc.close()


class Taker:
    """A callback that keeps what comes, and can be waited for."""

    def __init__(self):
        self.came = []
        self._more = asyncio.Condition()

    async def __call__(self, what):
        async with self._more:
            self.came.append(what)
            self._more.notify_all()

    async def wait_for(self, count):
        async with asyncio.timeout(SECONDS_MAX), self._more:
            await self._more.wait_for(lambda: len(self.came) >= count)
        return self.came[:count]


# --- the shortest programs --------------------------------------------------------------------------------------------------


async def test_publish_and_read_from_the_beginning(sc, channel):
    for number in range(10):
        ack = await sc.publish(channel, f"hello {number}".encode())
        assert ack.guid
        assert ack.error == ""
    future = asyncio.get_running_loop().create_future()
    seen = []

    async def cb(msg):
        seen.append((msg.seq, msg.sequence, msg.data, msg.proto.subject))
        if len(seen) == 10:
            future.set_result(True)

    began = time.time_ns()
    sub = await sc.subscribe(channel, start_at="first", cb=cb)
    await asyncio.wait_for(future, SECONDS_MAX)
    assert seen == [(n + 1, n + 1, f"hello {n}".encode(), channel) for n in range(10)]
    await sub.unsubscribe()
    await sc.publish(channel, b"for nobody")
    await sc.close()
    assert len(seen) == 10
    assert began > 0


def test_a_publisher_that_runs_a_loop_for_each_message(server, channel, client_id):
    """As web applications do that are not async themselves."""

    async def publish(payload):
        nc, sc = Nats(), Stan()

        async def quiet(_error):
            pass

        try:
            await nc.connect(servers=[server.url], error_cb=quiet, closed_cb=None, name="web")
            await sc.connect(cluster_id="test-cluster", client_id=client_id, nats=nc)
            ack = await sc.publish(subject=channel, payload=json.dumps(payload).encode("utf-8"))
            return ack.error
        finally:
            await sc.close()
            await nc.close()

    assert [asyncio.run(publish({"paid": number})) for number in range(3)] == ["", "", ""]


def test_calls_that_wait_on_a_loop_which_stands_still_between_them(server, channel, client_id):
    """A wrapper for programs that are not async: messages come while something else is waited for."""
    loop = asyncio.new_event_loop()
    wait = loop.run_until_complete
    nc, sc = aliased.Nats(), aliased.Client()
    messages = []

    async def cb(msg):
        messages.append(msg)

    wait(nc.connect(servers=[server.url]))
    wait(sc.connect(client_id=client_id, cluster_id="test-cluster", nats=nc))
    options = {"durable_name": "one", "max_inflight": 1, "manual_acks": True}
    sub = wait(sc.subscribe(channel, cb=cb, **options))
    for number in range(3):
        wait(sc.publish(channel, b"%d" % number))
    handled = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(handled) < 3 and time.monotonic() < deadline:
        for message in messages:
            handled.append(message.data)
            wait(sc.ack(message))
        messages.clear()
        wait(sc.publish(f"{channel}.tick", b""))
    assert handled == [b"0", b"1", b"2"]
    wait(sub.close())
    wait(sc.close())
    wait(nc.close())
    loop.close()


# --- publishers ---------------------------------------------------------------------------------------------------------------


async def test_acks_that_a_handler_takes(sc, channel):
    taker = Taker()
    for number in range(1000):
        assert await sc.publish(channel, b"%d" % number, ack_handler=taker, ack_wait=60) is None
    acks = await taker.wait_for(1000)
    assert len({ack.guid for ack in acks}) == 1000
    assert {ack.error for ack in acks} == {""}
    assert not sc._pub_ack_map
    assert sc._pending_pub_acks_queue.empty()


async def test_a_handler_that_fails_and_one_that_publishes(sc, channel):
    told = Taker()

    async def handler(ack):
        again = await sc.publish(f"{channel}.log", ack.guid.encode())
        await told(again)
        raise ValueError

    for _ in range(3):
        await sc.publish(channel, b"x", ack_handler=handler)
    assert [ack.error for ack in await told.wait_for(3)] == [""] * 3


async def test_publishers_wait_while_many_acks_are_out(nc, client_id, channel):
    sc, go_on, taker, published = Stan(), asyncio.Event(), Taker(), []

    async def slow(ack):
        await taker(ack)
        await go_on.wait()

    async def publish_all():
        for number in range(20):
            await sc.publish(channel, b"x", ack_handler=slow)
            published.append(number)

    await sc.connect("test-cluster", client_id, nats=nc, max_pub_acks_inflight=5)
    publishing = asyncio.create_task(publish_all())
    await taker.wait_for(1)
    async with asyncio.timeout(SECONDS_MAX):
        while sc._pending_pub_acks_queue.qsize() < 5:
            await sc.publish(f"{channel}.tick", b"")
    assert len(published) == 6
    assert not publishing.done()
    go_on.set()
    await taker.wait_for(20)
    await publishing
    await sc.close()


async def test_channels_that_are_none_are_told_in_the_ack(sc):
    taker = Taker()
    for name in ("", "a b", "a.*", "a.>"):
        assert (await sc.publish(name, b"x")).error == "stan: invalid publish request", name
        await sc.publish(name, b"x", ack_handler=taker)
    assert {ack.error for ack in await taker.wait_for(4)} == {"stan: invalid publish request"}


async def test_too_large_a_message_is_an_error_of_nats(nc, sc, channel):
    with pytest.raises(ErrMaxPayload):
        await sc.publish(channel, bytes(nc.max_payload + 1))
    assert (await sc.publish(channel, b"x")).error == ""


# --- subscribers --------------------------------------------------------------------------------------------------------------


async def test_manual_acks_and_what_is_not_acked(sc, channel):
    first, again = Taker(), Taker()

    async def cb(msg):
        assert msg.sub is sub
        if msg.proto.redelivered:
            await sc.ack(msg)
            await again(msg.seq)
        else:
            if msg.seq % 2:
                await sc.ack(msg)
            await first(msg.seq)

    for _ in range(4):
        await sc.publish(channel, b"x")
    sub = await sc.subscribe(
        channel, cb=cb, deliver_all_available=True, manual_acks=True, ack_wait=1, max_inflight=DEFAULT_MAX_INFLIGHT
    )
    assert await first.wait_for(4) == [1, 2, 3, 4]
    assert sorted(await again.wait_for(2)) == [2, 4]


async def test_acks_that_are_made_elsewhere_from_what_was_noted(nc, sc, channel):
    """A framework that keeps sequence, subject and inbox of a message, and makes a Msg of them when its work is done."""
    taker = Taker()
    for _ in range(3):
        await sc.publish(channel, b"x")
    sub = await sc.subscribe(channel, cb=taker, start_at="first", manual_acks=True, max_inflight=1)
    for number in range(1, 4):
        noted = (await taker.wait_for(number))[-1]
        msg = Msg()
        msg.proto = protocol.MsgProto(subject=noted.proto.subject, sequence=noted.sequence)
        msg.sub = Subscription(ack_inbox=sub.ack_inbox, stan=sc)
        await sc.ack(msg)
    assert [msg.sequence for msg in taker.came] == [1, 2, 3]
    raw = protocol.Ack()
    raw.ParseFromString(protocol.Ack(subject=channel, sequence=3).SerializeToString())
    await nc.publish(sub.ack_inbox, raw.SerializeToString())


async def test_a_durable_queue_of_workers_with_options_from_a_dictionary(nc, channel):
    counts, everything = {}, Taker()
    clients = []
    for worker in ("a", "b"):

        async def cb(msg, worker=worker):
            counts[worker] = counts.get(worker, 0) + 1
            await everything(msg.seq)

        sc = Stan()
        connecting = {"cluster_id": "test-cluster", "client_id": uuid.uuid4().hex, "nats": nc, "loop": None}
        await sc.connect(**connecting)
        options = {"subject": channel, "queue": "workers", "durable_name": "workers_durable", "cb": cb}
        await sc.subscribe(**options)
        clients.append(sc)
    for _ in range(50):
        await clients[0].publish(channel, b"x")
    assert sorted(await everything.wait_for(50)) == list(range(1, 51))
    assert set(counts) == {"a", "b"}
    for sc in clients:
        await sc.close()
    assert nc.is_connected


async def test_a_durable_goes_on_under_another_connection(server, channel, client_id):
    seen = []
    for _ in range(3):
        nc, sc, taker = Nats(), Stan(), Taker()
        await nc.connect(server.url)
        await sc.connect("test-cluster", client_id, nats=nc)
        sub = await sc.subscribe(channel, durable_name="kept", deliver_all_available=True, cb=taker)
        await sc.publish(channel, b"x")
        seen += [msg.seq for msg in await taker.wait_for(1)]
        await sub.close()
        await sc.close()
        await nc.close()
    assert seen == [1, 2, 3]


async def test_start_positions(sc, channel):
    for _ in range(5):
        await sc.publish(channel, b"x")
    for options, first in (
        ({"start_at": "sequence", "sequence": 3}, 3),
        ({"start_at": "last_received"}, 5),
        ({"start_at": "time", "time": time.time() - 3600}, 1),
        ({"start_at": "first"}, 1),
        ({"deliver_all_available": True, "start_at": "last_received"}, 1),
    ):
        taker = Taker()
        sub = await sc.subscribe(channel, cb=taker, **options)
        expected = list(range(first, 6))
        assert [msg.seq for msg in await taker.wait_for(len(expected))] == expected
        await sub.unsubscribe()
    taker = Taker()
    await sc.subscribe(channel, cb=taker, start_at="new_only")
    await sc.publish(channel, b"x")
    assert [msg.seq for msg in await taker.wait_for(1)] == [6]


async def test_a_callback_that_fails_is_told_and_its_message_comes_again(sc, channel):
    errors, done = Taker(), Taker()

    async def cb(msg):
        if not msg.proto.redelivered:
            raise ValueError(msg.data)
        await done(msg.data)

    await sc.subscribe(channel, cb=cb, error_cb=errors, ack_wait=1)
    await sc.publish(channel, b"one")
    assert await done.wait_for(1) == [b"one"]
    assert [(type(error), error.args) for error in errors.came] == [(ValueError, (b"one",))]


async def test_a_callback_that_unsubscribes_and_one_that_closes(nc, sc, channel, client_id):
    told = Taker()

    async def leave(msg):
        await sub.unsubscribe()
        await told(msg.seq)

    async def end(msg):
        await other.close()
        await told(msg.seq)

    sub = await sc.subscribe(channel, cb=leave)
    other = Stan()
    await other.connect("test-cluster", f"{client_id}-other", nats=nc)
    await other.subscribe(channel, cb=end)
    for _ in range(3):
        await sc.publish(channel, b"x")
    assert await told.wait_for(2) == [1, 1]
    assert nc.is_connected


async def test_pending_messages_are_counted(sc, channel):
    go_on, taker = asyncio.Event(), Taker()

    async def cb(msg):
        await taker(msg)
        await go_on.wait()

    for _ in range(5):
        await sc.publish(channel, b"x")
    sub = await sc.subscribe(channel, cb=cb, start_at="first", ack_wait=DEFAULT_ACK_WAIT)
    await taker.wait_for(1)
    async with asyncio.timeout(SECONDS_MAX):
        while sub.pending_queue_size != 4:
            await sc.publish(f"{channel}.tick", b"")
    assert len(taker.came) == 1
    go_on.set()
    await taker.wait_for(5)
    assert sub.pending_queue_size == 0


# --- connections --------------------------------------------------------------------------------------------------------------


async def test_a_connection_of_its_own(server, client_id, channel):
    sc = Stan()
    await sc.connect("test-cluster", client_id, nats_kwargs={"servers": server.url, "io_loop": None})
    assert (await sc.publish(channel, b"x")).error == ""
    await sc.close()
    assert sc._nc.is_closed
    with pytest.raises(ErrConnectionClosed):
        await sc.close()


async def test_what_programs_look_at(nc, sc, client_id):
    assert sc._conn_id
    assert sc._pub_prefix.startswith("_STAN.pub.")
    assert sc._sub_req_subject
    assert sc._nc is nc
    with pytest.raises(ValueError, match="nats_kwargs"):
        await Stan().connect("test-cluster", client_id, nats=nc, nats_kwargs={})
    await sc.close()
    with pytest.raises(StanError, match="unknown clientID"):
        await sc.close()
    assert sc._hb_inbox is None
    assert not nc._subs


async def test_refusals_and_timeouts(nc, sc, client_id, channel):
    with pytest.raises(StanError, match="already registered"):
        await Stan().connect("test-cluster", client_id, nats=nc)
    with pytest.raises(ErrConnectReqTimeout, match="failed connecting to 'another-cluster'"):
        await Stan().connect("another-cluster", client_id, nats=nc, connect_timeout=0.2)
    with pytest.raises(StanError, match="MaxInflight"):
        await sc.subscribe(channel, cb=Taker(), max_inflight=0)
    sub = await sc.subscribe(channel, cb=Taker(), durable_name="d")
    with pytest.raises(StanError, match="duplicate"):
        await sc.subscribe(channel, cb=Taker(), durable_name="d")
    await sub.close()
    with pytest.raises(StanError, match="invalid subscription"):
        await sub.close()
    await sc.close()
    with pytest.raises(StanError):
        await sc.publish(channel, b"x")
    with pytest.raises(StanError):
        await sc.subscribe(channel, cb=Taker())
    await nc.close()
    with pytest.raises(nats.errors.ConnectionClosedError):
        await sc.publish(channel, b"x")
    assert issubclass(ErrTimeoutError, asyncio.TimeoutError)


class Service:
    """Connects, subscribes, and does all of it again when the connection is lost, as long-running services do."""

    def __init__(self, url, client_id, channel):
        self.url, self.client_id, self.channel = url, client_id, channel
        self.nc, self.sc = Nats(), Stan()
        self.lost, self.taken, self.connected = Taker(), Taker(), 0

    async def connect(self):
        if not self.nc.is_connected:
            await self.nc.connect(self.url, reconnect_time_wait=0.1, max_reconnect_attempts=-1)
        await self.sc.connect(
            "test-cluster",
            self.client_id,
            nats=self.nc,
            ping_interval=1,
            ping_max_out=60,
            conn_lost_cb=self.conn_lost_cb,
        )
        await self.sc.subscribe(self.channel, cb=self.taken)
        self.connected += 1

    async def conn_lost_cb(self, error):
        while True:
            try:
                await self.connect()
                break
            except (TimeoutError, StanError):
                continue
        await self.lost(error)


async def test_a_service_that_connects_again_when_the_connection_is_lost(tmp_path, client_id, channel):
    with StanServer(tmp_path, store="MEMORY") as server:
        service = Service(server.url, client_id, channel)
        await service.connect()
        await service.sc.publish(channel, b"before")
        await asyncio.to_thread(server.restart)
        (error,) = await service.lost.wait_for(1)
        assert isinstance(error, StanError)
        assert "no longer registered" in str(error)
        await service.sc.publish(channel, b"after")
        assert [msg.data for msg in await service.taken.wait_for(2)] == [b"before", b"after"]
        await service.sc.close()
        await service.nc.close()
        assert service.connected == 2


async def test_a_client_of_which_the_nats_connection_is_closed_is_lost(server, client_id, channel):
    nc, sc, lost = Nats(), Stan(), Taker()
    await nc.connect(server.url)
    await sc.connect("test-cluster", client_id, nats=nc, ping_interval=1, conn_lost_cb=lost)
    await nc.close()
    (error,) = await lost.wait_for(1)
    assert isinstance(error, StanError)
    with pytest.raises(ErrConnectionClosed):
        await sc.publish(channel, b"x")
    with pytest.raises(ErrConnectionClosed):
        await sc.close()

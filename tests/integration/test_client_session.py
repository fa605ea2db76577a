"""stan_client against a fake broker: connect, close, heartbeats, pings, loss and return (STAN-SPEC 3, 14, 16.M)."""

import asyncio

import nats
import pytest
import stan_client
from stan_protocol import refusals

from tests.kit.fake_broker import FakeBroker, eventually, fake_broker, free_port, nats_server
from tests.kit.running import settled


async def connect(url: str, client_id: str = "me", **options) -> stan_client.Client:
    return await stan_client.connect(url, client_id=client_id, **options)


def requests(broker: FakeBroker, kind: str) -> list:
    return [request for name, request in broker.requests if name == kind]


async def test_connect_registers_with_protocol_1_and_its_ping_values(nats_url, broker) -> None:
    async with await connect(nats_url, ping_interval_s=7, ping_max_out=9):
        (request,) = requests(broker, "connect")

    assert (request.protocol, request.ping_interval, request.ping_max_out) == (1, 7, 9)
    assert len(request.conn_id) == 22
    assert requests(broker, "close")
    assert broker.clients == {}


async def test_connect_without_nats_raises_the_reason() -> None:
    with pytest.raises(stan_client.CannotConnectError, match="Connect call failed"):
        await connect(f"nats://127.0.0.1:{free_port()}")


async def test_connect_without_credentials_raises_the_reason_of_nats() -> None:
    with nats_server("--user", "u", "--pass", "p") as url:
        with pytest.raises(stan_client.CannotConnectError, match="Authorization Violation"):
            await connect(url)

        async with (
            fake_broker(url.replace("//", "//u:p@")),
            await connect(url, nats_options={"user": "u", "password": "p"}) as client,
        ):
            await client.publish("ch", b"one")


async def test_callbacks_of_nats_py_tell_when_the_nats_connection_has_ended_and_is_there_again(
    nats_url, broker
) -> None:
    seen: list[str] = []

    async def disconnected() -> None:
        seen.append("ended")

    async def reconnected() -> None:
        seen.append("there again")

    callbacks = {"disconnected_cb": disconnected, "reconnected_cb": reconnected}
    async with await connect(nats_url, nats_options=callbacks) as client:
        client._sessions.link._transport._io_writer.transport.abort()
        await eventually(lambda: len(seen) == 2)
        await client.publish("ch", b"one")
        assert seen == ["ended", "there again"]


async def test_connect_to_impossible_cluster_id_is_refused() -> None:
    with pytest.raises(stan_client.InvalidNameError):
        await stan_client.connect(client_id="me", cluster_id="two words")


async def test_connect_to_unknown_cluster_times_out(nats_url, broker) -> None:
    with pytest.raises(stan_client.ConnectRequestTimeoutError, match="possibly wrong cluster ID"):
        await stan_client.connect(nats_url, client_id="me", cluster_id="other-cluster")


async def test_connect_unanswered_times_out(nats_url, broker) -> None:
    broker.mute.add("connect")

    with pytest.raises(stan_client.ConnectRequestTimeoutError):
        await connect(nats_url, connect_timeout_s=0.1)


async def test_connect_that_nobody_hears_is_sent_again_until_a_server_is_there(nats_url) -> None:
    late = FakeBroker()
    connecting = asyncio.create_task(connect(nats_url, connect_timeout_s=20))
    listener = await nats.connect(nats_url)
    heard = await listener.subscribe("_STAN.discover.>")
    await heard.next_msg(20)
    await heard.unsubscribe()
    await late.start(nats_url)

    client = await connecting

    await client.close()
    await late.stop()
    await listener.close()


async def test_connect_without_an_answer_is_sent_again_with_the_same_ids(nats_url, broker) -> None:
    broker.mute.add("connect")
    connecting = asyncio.create_task(connect(nats_url, connect_timeout_s=2))
    await eventually(lambda: broker.requests)
    broker.mute.clear()

    client = await connecting

    sent = [request.conn_id for kind, request in broker.requests if kind == "connect"]
    assert len(sent) > 1
    assert len(set(sent)) == 1
    await client.close()


async def test_connect_with_an_id_in_use_is_refused(nats_url, broker) -> None:
    async with await connect(nats_url):
        with pytest.raises(stan_client.ServerError, match=refusals.CLIENT_REGISTERED):
            await connect(nats_url)


@pytest.mark.parametrize(("interval", "max_out"), [(0, 2), (1, 1)])
async def test_connect_with_bad_ping_values_is_refused(interval, max_out) -> None:
    with pytest.raises(stan_client.PingOptionsError, match="invalid ping values"):
        await connect("nats://127.0.0.1:1", ping_interval_s=interval, ping_max_out=max_out)


async def test_heartbeat_is_answered(nats_url, broker) -> None:
    async with await connect(nats_url):
        assert await broker.heartbeat("me")


async def test_borrowed_connection_stays_open_and_keeps_no_subscription(nats_url, broker) -> None:
    own = await nats.connect(nats_url)
    client = await stan_client.connect(client_id="me", nats=own)
    got = await client.subscribe("ch", start=stan_client.everything())
    await client.publish("ch", b"one")
    assert (await anext(got)).data == b"one"

    await client.close()

    assert own.is_connected
    assert not own._subs
    await own.close()


async def test_failed_connects_on_a_borrowed_connection_leak_no_subscription(nats_url, broker) -> None:
    own = await nats.connect(nats_url)
    broker.refuse["connect"] = refusals.CLIENT_REGISTERED

    for _ in range(3):
        with pytest.raises(stan_client.ServerError):
            await stan_client.connect(client_id="me", nats=own)

    assert not own._subs
    await own.close()


async def test_borrowed_connection_that_is_closed_is_refused(nats_url) -> None:
    own = await nats.connect(nats_url)
    await own.close()

    with pytest.raises(stan_client.BadConnectionError):
        await stan_client.connect(client_id="me", nats=own)


async def test_close_unanswered_raises_and_closes_all_the_same(nats_url, broker) -> None:
    client = await connect(nats_url, connect_timeout_s=2)
    broker.mute.add("close")

    with pytest.raises(stan_client.CloseRequestTimeoutError):
        await client.close()

    assert client.closed
    await client.close()
    with pytest.raises(stan_client.ConnectionClosedError):
        await client.publish("ch", b"")


async def test_close_fails_publishes_without_ack_and_calls_no_loss_callback(nats_url, broker) -> None:
    lost: list[stan_client.StanClientError] = []
    broker.mute.add("pub")
    client = await connect(nats_url, connection_lost=lost.append)
    publish = asyncio.create_task(client.publish("ch", b"one"))
    await eventually(lambda: broker.publishes)

    await client.close()

    with pytest.raises(stan_client.ConnectionClosedError):
        await publish
    assert lost == []


async def test_unanswered_pings_lose_the_connection_once(nats_url, broker) -> None:
    lost: list[stan_client.StanClientError] = []
    client = await connect(nats_url, ping_interval_s=1, ping_max_out=2, resubscribe=False, connection_lost=lost.append)
    broker.mute.add("ping")

    await eventually(lambda: client.closed)

    assert [type(error) for error in lost] == [stan_client.PingFailureError]
    with pytest.raises(stan_client.ConnectionClosedError):
        await client.publish("ch", b"one")


async def test_replaced_client_comes_back_with_a_new_connection_id(nats_url, broker) -> None:
    lost: list[stan_client.StanClientError] = []
    client = await connect(nats_url, ping_interval_s=1, connection_lost=lost.append)
    broker.forget_clients()

    await eventually(lambda: len(requests(broker, "connect")) == 2 and client.connected)

    first, second = requests(broker, "connect")
    assert first.client_id == second.client_id == b"me"
    assert first.conn_id != second.conn_id
    assert first.heartbeat_inbox != second.heartbeat_inbox
    assert [str(error) for error in lost] == [refusals.CLIENT_REPLACED]
    await client.publish("ch", b"again")
    await client.close()


async def test_a_refused_publish_asks_at_once_whether_the_session_is_known(nats_url, broker) -> None:
    """Not only with the next ping, which may be long in coming: until then all publishes would be refused."""
    client = await connect(nats_url, ping_interval_s=3600)
    broker.refuse["pub"] = refusals.INVALID_PUBLISH
    for _ in range(3):
        with pytest.raises(stan_client.ServerError, match=refusals.INVALID_PUBLISH):
            await client.publish("ch", b"of another cause")
    assert len(requests(broker, "connect")) == 1  # the session is known, and stays

    broker.refuse.clear()
    broker.forget_clients()
    with pytest.raises(stan_client.ServerError, match=refusals.INVALID_PUBLISH):
        await client.publish("ch", b"one")
    await eventually(lambda: len(requests(broker, "connect")) == 2 and client.connected)
    await client.publish("ch", b"two")
    await client.close()


async def test_a_client_of_a_rescued_cluster_does_not_go_back_to_the_old_one(nats_url, broker) -> None:
    """Lost nodes that run where they hear no survivor would acknowledge what the rescued cluster never gets."""
    broker.epoch = 2 << 32 | 99
    client = await connect(nats_url, ping_interval_s=1)
    broker.epoch = 1 << 32 | 7
    broker.forget_clients()
    await eventually(lambda: len(requests(broker, "connect")) >= 3 and not client.connected)

    broker.epoch = 2 << 32 | 99
    await eventually(lambda: client.connected)
    broker.epoch = 3 << 32 | 1
    before = len(requests(broker, "connect"))
    broker.forget_clients()
    await eventually(lambda: len(requests(broker, "connect")) > before and client.connected)
    await client.publish("ch", b"again")
    await client.close()


async def test_lost_session_resumes_durables_and_continues_the_others(nats_url, broker) -> None:
    client = await connect(nats_url, ping_interval_s=1)
    plain: list[int] = []
    durable: list[tuple[int, bool]] = []
    await client.subscribe("ch", lambda message: plain.append(message.sequence), start=stan_client.everything())
    first_ones: list[stan_client.Message] = []

    def take(message: stan_client.Message) -> None:
        durable.append((message.sequence, message.redelivered))
        first_ones.append(message)

    await client.subscribe(
        "ch",
        take,
        durable="d",
        start=stan_client.everything(),
        manual_acks=True,
    )
    await client.publish("ch", b"one")
    await client.publish("ch", b"two")
    await eventually(lambda: len(plain) == len(durable) == 2)
    first_ones[0].ack()
    await eventually(lambda: ("ch", 1) in broker.acks)

    broker.forget_clients()
    await eventually(lambda: len(requests(broker, "sub")) == 4)
    await eventually(lambda: client.connected)
    await client.publish("ch", b"three")

    await eventually(lambda: len(durable) == 4 and len(plain) == 3)
    assert plain == [1, 2, 3]
    assert durable == [(1, False), (2, False), (2, True), (3, False)]
    await client.close()


async def test_new_only_subscription_without_messages_gets_what_was_published_during_the_loss(nats_url, broker) -> None:
    async with await connect(nats_url, "pub") as publisher:
        client = await connect(nats_url, ping_interval_s=1)
        got: list[bytes] = []
        await client.subscribe("ch", lambda message: got.append(message.data))
        conn_id = broker.clients.pop(b"me").conn_id
        broker.subscriptions.clear()
        await publisher.publish("ch", b"meanwhile")

        await eventually(lambda: got)

        assert got == [b"meanwhile"]
        assert broker.clients[b"me"].conn_id != conn_id
        await client.close()


async def test_loss_fails_publishes_without_ack_by_default(nats_url, broker) -> None:
    client = await connect(nats_url, ping_interval_s=1)
    broker.mute.add("pub")
    publish = asyncio.create_task(client.publish("ch", b"one"))
    await eventually(lambda: broker.publishes)
    broker.forget_clients()

    with pytest.raises(stan_client.ServerError, match=refusals.CLIENT_REPLACED):
        await publish
    await client.close()


async def test_loss_with_republish_sends_them_again_with_the_same_guid(nats_url, broker) -> None:
    client = await connect(nats_url, ping_interval_s=1, republish=True)
    broker.mute.add("pub")
    publish = asyncio.create_task(client.publish("ch", b"one"))
    await eventually(lambda: broker.publishes)
    broker.mute.clear()
    broker.forget_clients()

    published = await publish

    first, second = broker.publishes
    assert first.guid == second.guid == published.guid.encode()
    assert first.conn_id != second.conn_id
    await client.close()


async def test_publish_that_nobody_took_is_sent_again_until_a_server_is_there(nats_url) -> None:
    first, second = FakeBroker(), FakeBroker()
    await first.start(nats_url)
    client = await connect(nats_url, ack_timeout_s=20)
    second.clients = first.clients
    await first.stop()
    untaken: list[bool] = []
    client._publisher._send_untaken, send = lambda: (untaken.append(True), send()), client._publisher._send_untaken

    publish = asyncio.create_task(client.publish("ch", b"one"))
    await eventually(lambda: untaken)
    await second.start(nats_url)

    await publish
    assert [message.data for message in second.channels["ch"]] == [b"one"]
    await client.close()
    await second.stop()


async def test_publishes_of_which_one_was_not_taken_are_not_sent_again(nats_url, broker) -> None:
    client = await connect(nats_url, ack_timeout_s=0.5)
    broker.mute.add("pub")
    stored = asyncio.create_task(client.publish("ch", b"stored"))
    await eventually(lambda: broker.publishes)
    await broker.stop()

    with pytest.raises(stan_client.PublishAckTimeoutError):
        await client.publish("ch", b"not taken")

    assert client._publisher._untaken == set()
    with pytest.raises(stan_client.PublishAckTimeoutError):
        await stored
    with pytest.raises(stan_client.CloseRequestTimeoutError):
        await client.close()


async def test_id_taken_by_somebody_alive_closes_the_client(nats_url, broker, monkeypatch) -> None:
    monkeypatch.setattr("stan_client.sessions.RETRY_FIRST_S", 0.01)
    client = await connect(nats_url, ping_interval_s=1)
    iterator = await client.subscribe("ch")
    broker.forget_clients()
    async with await connect(nats_url):
        await eventually(lambda: client.closed)

    with pytest.raises(stan_client.ConnectionClosedError) as caught:
        await anext(iterator)
    assert str(caught.value.__cause__) == refusals.CLIENT_REGISTERED


async def test_nats_restart_keeps_session_and_subscriptions() -> None:
    port = free_port()
    got: list[bytes] = []
    with nats_server(port=port) as url:
        broker = FakeBroker()
        await broker.start(url)
        client = await connect(url)
        await client.subscribe("ch", lambda message: got.append(message.data))
        await client.publish("ch", b"before")
        session = client._sessions.current
    with nats_server(port=port):
        for link in (broker._nats, client._sessions.link):
            await eventually(lambda link=link: link.stats["reconnects"] and link.is_connected)
            await settled(link)

        await client.publish("ch", b"after")

        await eventually(lambda: len(got) == 2)
        assert got == [b"before", b"after"]
        assert client._sessions.current is session
        await client.close()
        await broker.stop()

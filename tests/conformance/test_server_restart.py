"""`kill -9` of the server in the middle of the work (STAN-SPEC 6.10): clients come back, nothing acknowledged is lost."""

import contextlib
import socket

from tests.conformance.clients import numbered, payloads, sequences
from tests.kit.ports import free_port
from tests.kit.server import NatsServer, StanServer, until

FLOOD = 10_000


def test_killed_server_loses_no_acked_message(connect, name, stan_server):
    """Killed while publishes are on their way: whatever was acked before the kill is delivered after it."""
    subscriber, publisher = connect(server=stan_server), connect(server=stan_server)
    subscriber.subscribe("d", name, durable="dur", ack_wait=1000)  # its acks on the way to the killed server are lost
    publisher.publish(name, *numbered("m", FLOOD))
    publisher.wait("acked", FLOOD // 10)

    stan_server.kill9()
    acked = payloads([event for event in publisher.seen("acked") if not event["error"]])
    stan_server.start()
    publisher.wait("reconnected")
    publisher.publish_and_wait(f"{name}.other", b"back")
    late = connect(server=stan_server)
    late.subscribe("all", name, start="first")
    late.subscribe("end", f"{name}.other", start="first")

    late.messages("end", 1)
    late.publish_and_wait(name, b"end")
    late.wait("message", 1, sub="all", data=b"end".hex())
    kept = payloads(late.seen("message", sub="all"))
    assert set(acked) <= set(kept)
    assert len(kept) == len(set(kept)), "a message is in the channel twice"
    assert sequences(late.seen("message", sub="all")) == list(range(1, len(kept) + 1))
    subscriber.wait("message", 1, sub="d", data=b"end".hex())
    assert set(acked) <= set(payloads(subscriber.seen("message", sub="d")))


def test_restarted_server_goes_on_with_plain_and_durable_subscriptions(connect, name, stan_server):
    """The clients do nothing but reconnect to NATS; publishing goes on, and each message comes once."""
    client = connect(server=stan_server)
    client.subscribe("plain", name)
    client.subscribe("durable", name, durable="dur")
    client.subscribe("group", name, queue="workers")
    client.publish_and_wait(name, *numbered("a", 20))
    for sub in ("plain", "durable", "group"):
        client.messages(sub, 20)

    stan_server.restart()
    client.wait("reconnected")
    client.publish_and_wait(name, *numbered("b", 20))

    for sub in ("plain", "durable", "group"):
        client.wait("message", 1, sub=sub, data=b"b20".hex())
        first = [message for message in client.seen("message", sub=sub) if not message["redelivered"]]
        assert payloads(first) == numbered("a", 20) + numbered("b", 20)
        assert sequences(first) == list(range(1, 41))


def test_killed_server_gives_unacked_messages_again_flagged(connect, name, stan_server):
    client = connect(server=stan_server)
    client.subscribe("s", name, manual=1, ack_wait=1000)
    client.publish_and_wait(name, b"m1", b"m2")
    client.messages("s", 2)
    client.ack("s", 1)
    client.messages("s", 2, sequence=2)  # redelivered: by then the ack of the first has been taken

    stan_server.kill9()
    before = len(client.seen("message", sub="s", sequence=2))
    stan_server.start()

    again = client.messages("s", before + 1, sequence=2)[before]
    assert again["redelivered"]
    assert payloads([again]) == [b"m2"]


def test_killed_server_keeps_a_durable_of_a_client_that_is_away(connect, name, stan_server):
    worker, publisher = connect(f"{name}-worker", stan_server), connect(server=stan_server)
    worker.subscribe("d", name, durable="dur", start="first")
    publisher.publish_and_wait(name, *numbered("m", 5))
    worker.messages("d", 5)
    worker.disconnect()

    stan_server.kill9()
    stan_server.start()
    publisher.wait("reconnected")
    publisher.publish_and_wait(name, b"m6")
    worker = connect(f"{name}-worker", stan_server)
    worker.subscribe("d", name, durable="dur", start="first")

    worker.wait("message", 1, sub="d", data=b"m6".hex())
    first = [message for message in worker.seen("message", sub="d") if not message["redelivered"]]
    assert payloads(first) == [b"m6"]


def test_killed_server_on_external_nats_goes_on_unnoticed(connect, name, external_nats, tmp_path):
    """NATS stays up, so the clients see nothing but a pause."""
    with StanServer(tmp_path, nats_url=external_nats) as server:
        client = connect(server=server)
        client.subscribe("s", name)
        client.publish_and_wait(name, b"m1")
        client.messages("s", 1)

        server.kill9()
        server.start()
        client.publish_and_wait(name, b"m2")

        client.wait("message", 1, sub="s", data=b"m2".hex())
        assert not client.seen("reconnected")
        assert not client.seen("connection_lost")


def until_acked(client, channel, payload):
    """Publish until one is acked. nats-server may read a client's publish before the subscriptions that the broker has just sent
    on another connection: then nobody gets the publish, and nobody acks it."""
    for seconds in (2, 10, 30):
        client.publish(channel, payload)
        with contextlib.suppress(AssertionError):
            until(lambda: client.seen("acked", channel=channel, data=payload.hex(), error=""), seconds=seconds)
            return
    raise AssertionError(client.history())


def greeting(nats):
    """What a nats-server tells a new connection about itself and its cluster."""
    with socket.create_connection(("127.0.0.1", nats.port)) as connection, connection.makefile("rb") as lines:
        return lines.readline().decode()


def test_server_whose_nats_dies_moves_to_another_of_its_cluster(connect, name, tmp_path):
    """It was given only the first one, and hears of the second, which joins later, from the first."""
    route, second_route = (f"nats://127.0.0.1:{free_port()}" for _ in range(2))
    joining = ("--cluster_name", "c", "--cluster", second_route, "--routes", route)
    with (
        NatsServer(tmp_path, "--cluster_name", "c", "--cluster", route) as first,
        StanServer(tmp_path, nats_url=first.url) as server,
        NatsServer(tmp_path, *joining) as second,
    ):
        until(lambda: f'"127.0.0.1:{second.port}"' in greeting(first))
        server.url = second.url
        client = connect(server=server)
        client.subscribe("s", name)
        client.publish_and_wait(name, b"m1")

        first.kill()
        until(lambda: "Connection to NATS is back" in server.log(), why=server.log)
        until_acked(client, name, b"m2")

        assert payloads(client.messages("s", 2)[:2]) == [b"m1", b"m2"]

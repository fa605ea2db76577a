"""Publishing and plain delivery with published clients (STAN-SPEC 16 B, C, G)."""

import pytest

from tests.conformance.clients import numbered, payloads, sequences
from tests.kit.server import StanServer

MANY = 1000


def test_publish_many_async_acks_each_once(connect, name):
    """The client finds the callback of a publish by the guid in its PubAck, so a guid not echoed is an ack that never comes."""
    client = connect()

    acked = client.publish_and_wait(name, *numbered("m", MANY))

    assert sorted(payloads(acked)) == sorted(numbered("m", MANY))
    assert len({event["guid"] for event in acked}) == MANY


def test_publish_many_async_is_delivered_in_order(connect, name):
    subscriber, publisher = connect(), connect()
    subscriber.subscribe("s", name)

    publisher.publish(name, *numbered("m", MANY))

    messages = subscriber.messages("s", MANY)
    assert payloads(messages) == numbered("m", MANY)
    assert sequences(messages) == list(range(1, MANY + 1))
    assert not any(message["redelivered"] for message in messages)
    stamps = [message["timestamp"] for message in messages]
    assert stamps == sorted(stamps)
    assert stamps[0] > 0


@pytest.mark.parametrize(
    "payload", [b"", bytes(range(256)), b"\r\n", b"x" * 100_000], ids=["empty", "binary", "lines", "large"]
)
def test_payload_of_any_kind_arrives_unchanged(connect, name, payload):
    client = connect()
    client.subscribe("s", name)

    client.publish_and_wait(name, payload)

    assert payloads(client.messages("s", 1)) == [payload]


@pytest.mark.parametrize("channel", ["foo/bar", "foo*", "foo.>"])
def test_publish_to_invalid_channel_is_refused(connect, channel):
    client = connect()

    client.publish(channel, b"m")

    (event,) = client.wait("acked")
    assert event["error"] == "stan: invalid publish request"


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ("orders.* start=first", "stan: invalid subject"),
        (
            "orders queue=q durable=a:b",
            "stan: durable name of a durable queue subscriber can't contain the character ':'",
        ),
    ],
)
def test_subscribe_with_bad_request_is_refused(connect, settings, error):
    client = connect()

    client.tell(f"subscribe s {settings}")

    assert client.wait("failed")[0]["error"] == error


def test_subscriptions_of_several_clients_each_get_everything(connect, name):
    subscribers = [connect() for _ in range(3)]
    for subscriber in subscribers:
        subscriber.subscribe("s", name)

    subscribers[0].publish_and_wait(name, *numbered("m", 10))

    for subscriber in subscribers:
        assert payloads(subscriber.messages("s", 10)) == numbered("m", 10)


def test_closed_connection_leaves_its_publishes_to_others(connect, name):
    """A publish straight before the close of its client is accepted."""
    subscriber, publisher = connect(), connect()
    subscriber.subscribe("s", name)

    publisher.publish(name, *numbered("m", 10))
    publisher.disconnect()

    assert payloads(subscriber.messages("s", 10)) == numbered("m", 10)


def test_server_on_external_nats_serves_clients_of_that_nats(connect, name, external_nats, tmp_path):
    with StanServer(tmp_path, nats_url=external_nats) as server:
        client = connect(server=server)
        client.subscribe("s", name)

        client.publish_and_wait(name, b"m")

        assert payloads(client.messages("s", 1)) == [b"m"]


def test_clients_of_all_languages_understand_each_other(connect, name, js_program, c_program, py_program):
    clients = [connect(language=program) for program in (js_program, c_program, py_program)]
    for client in clients:
        client.subscribe("s", name)

    for client in clients:
        client.publish_and_wait(name, *numbered(client.program.name, 5))

    expected = numbered("js", 5) + numbered("c", 5) + numbered("py", 5)
    for client in clients:
        assert payloads(client.messages("s", 15)) == expected

"""Durable subscriptions (STAN-SPEC 5.4, 6.7, 16 E): resumed after a close and after a death, ended by unsubscribe."""

import pytest

from tests.conformance.clients import numbered, payloads


@pytest.mark.parametrize("ending", ["close", "disconnect", "kill"])
def test_durable_resumes_after_the_last_acked_message(connect, name, ending):
    """A start position given on resuming is ignored. What was published meanwhile comes, what was acked does not."""
    first, publisher = connect(f"{name}-worker"), connect()
    first.subscribe("d", name, durable="dur", start="first", manual=1, max_in_flight=3)
    publisher.publish_and_wait(name, *numbered("m", 5))
    first.messages("d", 3)
    first.ack("d", 1, 2, 3)
    first.messages("d", 5)
    first.ack("d", 4, 5)
    match ending:
        case "close":
            first.close("d")
            second = first
        case "disconnect":
            first.disconnect()
            second = connect(f"{name}-worker")
        case _:
            first.subscribe("witness", name)  # answered after the acks, so they have arrived
            first.kill()
            second = connect(f"{name}-worker")
    publisher.publish_and_wait(name, b"m6")

    second.subscribe("again", name, durable="dur", start="first")
    publisher.publish_and_wait(name, b"m7")

    assert payloads(second.messages("again", 2)) == [b"m6", b"m7"]


def test_durable_with_pending_messages_gets_them_again_first(connect, name):
    first, publisher = connect(f"{name}-worker"), connect()
    first.subscribe("d", name, durable="dur", start="first", manual=1)
    publisher.publish_and_wait(name, *numbered("m", 4))
    first.messages("d", 4)
    first.ack("d", 2)
    first.close("d")
    publisher.publish_and_wait(name, b"m5")

    first.subscribe("again", name, durable="dur")

    messages = first.messages("again", 4)
    assert payloads(messages) == [b"m1", b"m3", b"m4", b"m5"]
    assert [message["redelivered"] for message in messages] == [True, True, True, False]


def test_durable_unsubscribed_starts_anew(connect, name):
    client = connect()
    client.subscribe("d", name, durable="dur", start="first")
    client.publish_and_wait(name, b"m1", b"m2")
    client.messages("d", 2)
    client.unsubscribe("d")

    client.subscribe("again", name, durable="dur", start="first")

    messages = client.messages("again", 2)
    assert payloads(messages) == [b"m1", b"m2"]
    assert not any(message["redelivered"] for message in messages)


def test_durable_in_use_is_refused_a_second_time(connect, name):
    client = connect()
    client.subscribe("d", name, durable="dur")

    client.tell(f"subscribe second {name} durable=dur")

    assert client.wait("failed", sub="second")[0]["error"] == "stan: duplicate durable registration"


def test_durable_belongs_to_its_client(connect, name):
    """The same name of another client is another durable."""
    one, other = connect(), connect()
    one.subscribe("d", name, durable="dur", start="first")
    one.publish_and_wait(name, b"m1")
    one.messages("d", 1)

    other.subscribe("d", name, durable="dur", start="first")

    assert payloads(other.messages("d", 1)) == [b"m1"]

"""Acks, the window, and redelivery (STAN-SPEC 6.2, 6.3, 6.6, 16 G)."""

from tests.conformance.clients import numbered, payloads, sequences
from tests.kit.server import until

ACK_WAIT_MS = 1000


def test_unacked_message_comes_again_flagged_and_counted(connect, name):
    client = connect()
    client.subscribe("s", name, manual=1, ack_wait=ACK_WAIT_MS)

    client.publish_and_wait(name, b"m1")

    messages = client.messages("s", 3)[:3]
    assert sequences(messages) == [1, 1, 1]
    assert payloads(messages) == [b"m1"] * 3
    assert len({message["timestamp"] for message in messages}) == 1
    assert [message["redelivered"] for message in messages] == [False, True, True]
    if client.program.counts_redeliveries:
        assert [message["count"] for message in messages] == [0, 1, 2]


def test_acked_message_never_comes_again(connect, name):
    """While another message of the same subscription is redelivered three times."""
    client = connect()
    client.subscribe("s", name, manual=1, ack_wait=ACK_WAIT_MS)
    client.publish_and_wait(name, b"m1", b"m2")
    client.messages("s", 2)

    client.ack("s", 1)
    client.messages("s", 3, sequence=2)

    assert len(client.seen("message", sub="s", sequence=1)) == 1


def test_ack_after_redelivery_ends_it(connect, name):
    client = connect()
    client.subscribe("s", name, manual=1, ack_wait=ACK_WAIT_MS)
    client.publish_and_wait(name, b"m1")
    client.messages("s", 2)
    client.ack("s", 1)
    client.wait("ack_sent")
    before = len(client.seen("message", sub="s"))

    client.publish_and_wait(name, b"m2")
    client.messages("s", 3, sequence=2)

    assert len(client.seen("message", sub="s", sequence=1)) == before


def test_only_the_subscription_that_did_not_ack_gets_redeliveries(connect, name):
    client = connect()
    client.subscribe("silent", name, manual=1, ack_wait=ACK_WAIT_MS)
    client.subscribe("eager", name, ack_wait=ACK_WAIT_MS)

    client.publish_and_wait(name, b"m1")
    client.messages("silent", 3)

    (message,) = client.seen("message", sub="eager")
    assert not message["redelivered"]


def test_window_holds_back_what_exceeds_it(connect, name):
    """At most max_in_flight messages are unacked at any time, and each ack lets the next one through, in order."""
    client = connect()
    client.subscribe("s", name, manual=1, max_in_flight=3)
    client.subscribe("witness", name)
    client.publish_and_wait(name, *numbered("m", 10))
    client.messages("witness", 10)

    for sequence in range(1, 11):
        client.messages("s", min(sequence + 2, 10))
        client.ack("s", sequence)
    client.wait("ack_sent", 10)

    unacked = 0
    for event in client.history():
        if event["event"] == "message" and event["sub"] == "s":
            unacked += 1
        elif event["event"] == "acking":  # the next message may come before the client has told that the ack is sent
            unacked -= 1
        assert unacked <= 3
    messages = client.seen("message", sub="s")
    assert payloads(messages) == numbered("m", 10)
    assert not any(message["redelivered"] for message in messages)


def test_stalled_subscription_still_gets_redeliveries(connect, name):
    client = connect()
    client.subscribe("s", name, manual=1, max_in_flight=1, ack_wait=ACK_WAIT_MS)
    client.publish_and_wait(name, b"m1", b"m2")
    client.messages("s", 2, sequence=1)
    assert not client.seen("message", sequence=2)

    client.ack("s", 1)

    message = client.messages("s", 1, sequence=2)[0]
    assert not message["redelivered"]


def test_acks_in_any_order_are_taken_one_by_one(connect, name):
    client = connect()
    client.subscribe("s", name, manual=1, ack_wait=ACK_WAIT_MS)
    client.publish_and_wait(name, *numbered("m", 4))
    client.messages("s", 4)

    client.ack("s", 4, 2)

    def repeats(sequence):
        return len(client.seen("message", sub="s", sequence=sequence, redelivered=True))

    def wait_for_repeats(count):  # each on its own: on a slow machine the first is sent long before the third
        wanted = {sequence: repeats(sequence) + count for sequence in (1, 3)}
        until(lambda: all(repeats(sequence) >= least for sequence, least in wanted.items()))

    wait_for_repeats(1)  # what was on its way before the acks has come
    acked = repeats(2), repeats(4)
    wait_for_repeats(2)

    assert (repeats(2), repeats(4)) == acked

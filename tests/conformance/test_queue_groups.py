"""Queue groups (STAN-SPEC 5.5, 6.4, 6.8, 16 F): each message to one member; durable groups outlive their members."""

from collections import Counter

import pytest

from tests.conformance.clients import numbered, payloads
from tests.kit.server import until

COUNT = 200


def received(members):
    """What all members have got together, each payload with its number of deliveries."""
    return Counter(payload for member in members for payload in payloads(member.seen("message", sub="q")))


@pytest.mark.parametrize("durable", [{}, {"durable": "dur"}], ids=["plain", "durable"])
def test_group_gives_each_message_to_exactly_one_member(connect, name, durable):
    members = [connect() for _ in range(3)]
    for member in members:
        member.subscribe("q", name, queue="workers", **durable)

    members[0].publish_and_wait(name, *numbered("m", COUNT))
    until(lambda: received(members).total() >= COUNT)
    members[0].publish_and_wait(name, b"last")
    until(lambda: received(members)[b"last"])

    assert received(members) == Counter([*numbered("m", COUNT), b"last"])
    assert all(member.seen("message", sub="q") for member in members), "a member got nothing"


def test_group_of_all_languages_shares_the_messages(connect, name, js_program, c_program, py_program):
    members = [connect(language=program) for program in (js_program, c_program, py_program)]
    for member in members:
        member.subscribe("q", name, queue="workers")

    members[1].publish_and_wait(name, *numbered("m", COUNT))

    until(lambda: received(members).total() >= COUNT)
    assert received(members) == Counter(numbered("m", COUNT))
    assert all(member.seen("message", sub="q") for member in members), "a member got nothing"


def test_groups_and_plain_subscriptions_each_get_everything(connect, name):
    client = connect()
    client.subscribe("plain", name)
    client.subscribe("a", name, queue="a")
    client.subscribe("b", name, queue="b")
    client.subscribe("a-durable", name, queue="a", durable="dur")

    client.publish_and_wait(name, *numbered("m", 5))

    for sub in ("plain", "a", "b", "a-durable"):
        assert payloads(client.messages(sub, 5)) == numbered("m", 5)


@pytest.mark.parametrize("ending", ["close", "disconnect"])
def test_durable_group_without_members_goes_on_with_the_next_one(connect, name, ending):
    """Any client may be that member, and its start position is ignored."""
    first, publisher = connect(), connect()
    first.subscribe("q", name, queue="workers", durable="dur", start="first", manual=1)
    publisher.publish_and_wait(name, *numbered("m", 3))
    first.messages("q", 3)
    first.ack("q", 1, 2, 3)  # a client that acks by itself tells of a message before it has acked it
    first.wait("ack_sent", 3)
    if ending == "close":
        first.close("q")
    else:
        first.disconnect()
    publisher.publish_and_wait(name, b"m4", b"m5")

    second = connect()
    second.subscribe("q", name, queue="workers", durable="dur", start="first")

    messages = second.messages("q", 2)
    assert payloads(messages) == [b"m4", b"m5"]
    assert not any(message["redelivered"] for message in messages)


def test_durable_group_unsubscribed_by_its_last_member_starts_anew(connect, name):
    client = connect()
    client.subscribe("q", name, queue="workers", durable="dur", start="first")
    client.publish_and_wait(name, b"m1", b"m2")
    client.messages("q", 2)
    client.unsubscribe("q")

    client.subscribe("again", name, queue="workers", durable="dur", start="first")

    assert payloads(client.messages("again", 2)) == [b"m1", b"m2"]


def test_member_that_leaves_hands_its_pending_messages_over(connect, name):
    leaver, stayer = connect(), connect()
    for member in (leaver, stayer):
        member.subscribe("q", name, queue="workers", manual=1)
    leaver.publish_and_wait(name, *numbered("m", 10))
    until(lambda: received([leaver, stayer]).total() >= 10)
    own = payloads(stayer.seen("message", sub="q"))
    left = payloads(leaver.seen("message", sub="q"))
    assert own
    assert left

    leaver.close("q")

    messages = stayer.messages("q", 10)
    assert payloads(messages)[: len(own)] == own
    assert sorted(payloads(messages)[len(own) :]) == sorted(left)
    assert all(message["redelivered"] for message in messages[len(own) :])


def test_message_unacked_by_a_member_comes_again_in_the_group(connect, name):
    silent, eager = connect(), connect()
    silent.subscribe("q", name, queue="workers", manual=1, ack_wait=1000)
    silent.publish_and_wait(name, b"m1")
    silent.messages("q", 1)
    eager.subscribe("q", name, queue="workers", ack_wait=1000)

    until(lambda: received([eager])[b"m1"])

    (message,) = eager.seen("message", sub="q")
    assert message["redelivered"]
    assert message["sequence"] == 1

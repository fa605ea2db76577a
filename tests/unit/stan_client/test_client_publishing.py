"""Publishes beside a NATS connection in memory: how long each waits, and what is sent again to which server."""

import asyncio
import time
from types import SimpleNamespace

import pytest
import stan_client
from stan_client.messages.new_message import encode_context, encode_due, encode_ttl
from stan_client.publishing import Publisher
from stan_protocol.features import Feature
from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire

from tests.kit.fake_broker import eventually

CONTEXT = encode_context({"trace": "1"}, "customer 7")


class Link:
    """A NATS connection that keeps what is sent."""

    max_payload = 1_000_000
    closed = connected = True

    def __init__(self):
        self.sent = []
        self.handler = None

    def send(self, frame):
        head, _, body = frame.partition(b"\r\n")
        self.sent.append(wire.PubMsg.FromString(body[: int(head.split()[-1])]))

    async def listen(self, _subject, handler):
        self.handler = handler
        return 1

    async def unlisten(self, _sid):
        self.handler = None

    def ack(self, guid, **fields):
        payload = wire.PubAck(guid=guid.encode(), **fields).SerializeToString()
        self.handler([Frame(1, b"", b"", b"", payload)])


def session(features=Feature.CONTEXT):
    return SimpleNamespace(
        link=Link(),
        answer=wire.ConnectResponse(pub_prefix=b"pub", features=features),
        options=SimpleNamespace(client_id="me"),
        ask=lambda: None,
        conn_id=b"c",
    )


class Told:
    """What the publishes were told, by guid."""

    def __init__(self):
        self.of = {}

    def __call__(self, published, error):
        assert published.guid not in self.of
        self.of[published.guid] = type(error) if error is not None else published.sequence


@pytest.fixture
def told():
    return Told()


async def attached(where, *, republish=False, ack_timeout_s=30.0):
    publisher = Publisher(in_flight_max=100, ack_timeout_s=ack_timeout_s, republish=republish)
    await publisher.attach(where)
    return publisher


async def test_the_sequence_is_asked_for_where_the_server_can_tell_it(told) -> None:
    for features, asked in ((Feature.CONTEXT, True), (Feature(0), False)):
        where = session(features)
        publisher = await attached(where)
        guid = publisher.publish("ch", b"x", "", told, numbered=True)
        other = publisher.publish("ch", b"x", "", told)
        assert [message.numbered for message in where.link.sent] == [asked, False]
        where.link.ack(guid, sequence=7 if asked else 0)
        where.link.ack(other)
        assert told.of == {guid: 7 if asked else None, other: None}
        told.of.clear()
        publisher.stop()


async def test_context_is_not_sent_to_a_server_that_would_drop_it(told) -> None:
    where = session(Feature(0))
    publisher = await attached(where)
    with pytest.raises(stan_client.NotSupportedError, match="headers and keys"):
        publisher.publish("ch", b"x", "", told, CONTEXT)
    assert (where.link.sent, publisher.in_flight) == ([], 0)


async def test_a_delay_is_not_sent_to_a_server_that_would_deliver_at_once(told) -> None:
    for features in (Feature.CONTEXT, Feature.CONTEXT | Feature.DELAYS):
        where = session(features)
        publisher = await attached(where)
        if features & Feature.DELAYS:
            publisher.publish("ch", b"x", "", told, encode_due(5, None) + CONTEXT)
            (message,) = where.link.sent
            assert message.deliver_at > time.time_ns()
        else:
            with pytest.raises(stan_client.NotSupportedError, match="delayed messages"):
                publisher.publish("ch", b"x", "", told, encode_due(5, None) + CONTEXT)
            assert where.link.sent == []
        publisher.stop()


async def test_each_publish_waits_for_its_own_time(told) -> None:
    where = session()
    publisher = await attached(where, ack_timeout_s=0.3)
    usual = [publisher.publish("ch", b"x", "", told) for _ in range(3)]
    long = publisher.publish("ch", b"x", "", told, timeout_s=60)
    short = publisher.publish("ch", b"x", "", told, timeout_s=0.01)
    await eventually(lambda: told.of)
    assert told.of == {short: stan_client.PublishAckTimeoutError}
    where.link.ack(usual[1])
    await eventually(lambda: len(told.of) == 4)
    assert told.of == {
        short: stan_client.PublishAckTimeoutError,
        usual[0]: stan_client.PublishAckTimeoutError,
        usual[1]: None,
        usual[2]: stan_client.PublishAckTimeoutError,
    }
    assert publisher.in_flight == 1
    where.link.ack(long)
    assert told.of[long] is None
    publisher.stop()


async def test_one_timer_watches_all_publishes(told) -> None:
    publisher = await attached(session())
    loop = asyncio.get_running_loop()
    timers = []
    call_at = loop.call_at
    loop.call_at = lambda *given, **named: timers.append(call_at(*given, **named)) or timers[-1]
    try:
        for timeout_s in (None, None, 60, 60, 31, None):
            publisher.publish("ch", b"x", "", told, timeout_s=timeout_s)
        assert len(timers) == 1
        publisher.publish("ch", b"x", "", told, timeout_s=5)
        assert [timer.cancelled() for timer in timers] == [True, False]
    finally:
        del loop.call_at
        publisher.stop()
    assert all(timer.cancelled() for timer in timers)


async def test_a_publish_in_the_answer_to_one_that_was_late_is_watched_too(told) -> None:
    publisher = await attached(session())

    def again(guid, error):
        told(guid, error)
        publisher.publish("ch", b"x", "", told, timeout_s=0.01)

    publisher.publish("ch", b"x", "", again, timeout_s=0.01)
    await eventually(lambda: len(told.of) == 2)
    assert publisher.in_flight == 0
    publisher.stop()


async def test_sending_again_keeps_headers_key_and_the_wish_for_the_sequence(told) -> None:
    first, second = session(), session()
    publisher = await attached(first, republish=True)
    guid = publisher.publish("ch", b"x", "r", told, CONTEXT, numbered=True)
    await publisher.detach(stan_client.PingFailureError(), final=False)
    await publisher.attach(second)
    assert first.link.sent == second.link.sent
    assert second.link.sent[0].key == b"customer 7"
    second.link.ack(guid, sequence=3)
    assert told.of == {guid: 3}
    publisher.stop()


async def test_on_an_older_server_a_publish_with_context_fails_and_the_others_are_sent_again(told) -> None:
    first, second = session(), session(Feature(0))
    publisher = await attached(first, republish=True)
    plain = publisher.publish("ch", b"one", "", told, numbered=True)
    carrying = publisher.publish("ch", b"two", "", told, CONTEXT, numbered=True)
    last = publisher.publish("ch", b"three", "", told)
    await publisher.detach(stan_client.PingFailureError(), final=False)
    await publisher.attach(second)
    assert told.of == {carrying: stan_client.NotSupportedError}
    assert [(message.data, message.numbered) for message in second.link.sent] == [(b"one", False), (b"three", False)]
    second.link.ack(plain)
    second.link.ack(last)
    assert told.of == {carrying: stan_client.NotSupportedError, plain: None, last: None}
    publisher.stop()


async def test_a_time_that_the_caller_has_set_does_not_begin_anew(told) -> None:
    publisher = await attached(session(), republish=True)
    usual = publisher.publish("ch", b"x", "", told)
    own = publisher.publish("ch", b"x", "", told, timeout_s=40)
    before = {guid.decode(): publish.deadline for guid, publish in publisher._pending.items()}
    await asyncio.sleep(0)
    publisher.send_again()
    after = {guid.decode(): publish.deadline for guid, publish in publisher._pending.items()}
    assert after[own] == before[own]
    assert after[usual] > before[usual]
    assert list(after) == [usual, own]
    publisher.stop()


async def test_a_time_to_live_is_not_sent_to_a_server_that_would_keep_the_message(told) -> None:
    for features in (Feature(0), Feature.CONTEXT | Feature.DELAYS, Feature.CONTEXT | Feature.DELAYS | Feature.TTL):
        where = session(features)
        publisher = await attached(where)
        if features & Feature.TTL:
            publisher.publish("ch", b"x", "", told, encode_ttl(1.5) + encode_due(5, None) + CONTEXT)
            (message,) = where.link.sent
            assert (message.ttl, message.deliver_at > time.time_ns()) == (1_500_000_000, True)
        else:
            with pytest.raises(stan_client.NotSupportedError, match="time to live"):
                publisher.publish("ch", b"x", "", told, encode_ttl(1.5) + encode_due(5, None) + CONTEXT)
            assert where.link.sent == []
        publisher.stop()

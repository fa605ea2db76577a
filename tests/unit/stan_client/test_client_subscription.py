"""A subscription beside a session in memory: its queue, its path on each session, and its acks."""

import asyncio
from types import SimpleNamespace

import pytest
from stan_client.errors import ConnectionClosedError, NotSupportedError
from stan_client.messages.messages import Message, SubscriptionOptions
from stan_client.subscribing.delivery import SubscriptionDelivery
from stan_client.subscribing.message_queue import QUEUED_WINDOWS_MAX, MessageQueue
from stan_client.subscribing.subscription import Subscription
from stan_protocol.features import Feature
from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire


class Link:
    """A NATS connection that keeps what was sent."""

    def __init__(self):
        self.sent = b""
        self.handlers = {}

    def send(self, frames):
        self.sent += frames

    async def listen(self, subject, handler):
        self.handlers[len(self.handlers) + 1] = handler
        return len(self.handlers)

    async def unlisten(self, sid):
        self.handlers[sid] = None


class Session:
    """A session whose server answers every subscription request with one ack inbox."""

    def __init__(self, ack_inbox, features=0):
        self.ack_inbox = ack_inbox
        self.link = Link()
        self.answer = wire.ConnectResponse(
            sub_requests=b"sub", unsub_requests=b"unsub", sub_close_requests=b"close", features=features
        )
        self.options = SimpleNamespace(client_id="me")
        self.requests = []

    async def request(self, subject, payload, _late, _timeout_s=None):
        self.requests.append((subject, payload))
        await asyncio.sleep(0)
        return wire.SubscriptionResponse(ack_inbox=self.ack_inbox).SerializeToString()


class Owner:
    """A client; *session* is None while it is lost."""

    closed = False

    def __init__(self, session):
        self.session = session
        self.recovered = asyncio.Event()
        self.forgotten = []

    async def ready(self):
        if self.session is None:
            await self.recovered.wait()
        return self.session

    def forget(self, ended):
        self.forgotten.append(ended)


async def handled(message, callback):
    callback(message)


def delivery(*sequences, redelivered=False):
    return [
        Frame(1, b"", b"", b"", wire.MsgProto(sequence=one, subject=b"ch", redelivered=redelivered).SerializeToString())
        for one in sequences
    ]


async def subscribed(session, callback=None, **options):
    owner = Owner(session)
    owner.delivery = SubscriptionDelivery(owner, "ch", callback, SubscriptionOptions(**options))
    await owner.delivery.make(session)
    return owner, Subscription(owner.delivery, handled)


async def test_acks_of_one_turn_leave_together_for_the_ack_inbox_of_the_session() -> None:
    session = Session(b"acks.1.1")
    _, subscription = await subscribed(session, lambda _message: None)
    session.link.handlers[1](delivery(1, 2, 3))
    assert session.link.sent == b""
    await asyncio.sleep(0)
    assert session.link.sent.count(b"PUB acks.1.1 ") == 3
    assert subscription.last_sequence == 3


async def test_messages_before_the_answer_are_delivered_after_it() -> None:
    session, got = Session(b"acks.1.1"), []
    owner = Owner(session)
    made = SubscriptionDelivery(owner, "ch", lambda message: got.append(message.sequence), SubscriptionOptions())
    making = asyncio.create_task(made.make(session))
    await asyncio.sleep(0)
    session.link.handlers[1](delivery(1, 2))
    assert got == []
    await making
    assert got == [1, 2]


@pytest.mark.parametrize("leave", ["close", "unsubscribe"])
async def test_end_requested_while_the_session_is_lost_names_the_ack_inbox_of_the_next_one(leave) -> None:
    first, second = Session(b"acks.1.1"), Session(b"acks.1.2")
    owner, subscription = await subscribed(first, durable="d")
    owner.session = None
    leaving = asyncio.create_task(getattr(subscription, leave)())
    await asyncio.sleep(0)
    await owner.delivery.make(second)
    owner.session = second
    owner.recovered.set()
    await leaving

    subject, payload = second.requests[-1]
    assert subject == {"close": b"close", "unsubscribe": b"unsub"}[leave]
    assert wire.UnsubscribeRequest.FromString(payload).inbox == b"acks.1.2"
    assert subscription.closed
    assert owner.forgotten == [owner.delivery]
    assert list(first.link.handlers.values()) == list(second.link.handlers.values()) == [None]


async def test_acks_before_the_end_are_sent_and_later_ones_dropped() -> None:
    session = Session(b"acks.1.1")
    owner, _ = await subscribed(session, lambda _message: None)
    session.link.handlers[1](delivery(1))
    await owner.delivery.end()
    assert session.link.sent.count(b"PUB acks.1.1 ") == 1
    owner.delivery.settle([Message(2, "ch")])
    await asyncio.sleep(0)
    assert session.link.sent.count(b"PUB acks.1.1 ") == 1


async def test_iteration_ends_with_the_error_of_the_session() -> None:
    owner, subscription = await subscribed(Session(b"acks.1.1"))
    waiting = asyncio.create_task(anext(subscription))
    await asyncio.sleep(0)
    await owner.delivery.end(ConnectionClosedError())
    with pytest.raises(ConnectionClosedError):
        await waiting


async def test_full_queue_drops_only_messages_that_come_again() -> None:
    queue = MessageQueue(2)
    queue.put([Message(number, "ch") for number in range(1, 2 * QUEUED_WINDOWS_MAX + 1)])
    queue.put([Message(1, "ch", redelivered=True), Message(9, "ch")])
    assert [message.sequence for message in queue] == [*range(1, 2 * QUEUED_WINDOWS_MAX + 1), 9]


async def test_closed_queue_gives_nothing_even_if_messages_wait() -> None:
    queue = MessageQueue(2)
    assert not queue.closed
    queue.put([Message(1, "ch")])
    assert await queue.arrived()
    queue.close(None)
    assert not await queue.arrived()


async def test_queue_that_drains_gives_what_is_there_and_then_says_that_it_is_empty() -> None:
    queue = MessageQueue(2)
    queue.put([Message(1, "ch")])
    queue.drain()

    async def take_all():
        while await queue.arrived():
            queue.popleft()

    taking = asyncio.create_task(take_all())
    await queue.drained(taking, None)
    assert taking.done()
    assert not queue.closed
    await queue.drained(taking, None)  # again, and at once


async def test_all_that_wait_for_a_message_hear_of_the_end() -> None:
    queue = MessageQueue(2)
    waiting = [asyncio.create_task(queue.arrived()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.close(None)
    assert await asyncio.gather(*waiting) == [False] * 3


async def test_callback_that_fails_after_a_recovery_judges_nothing_on_the_new_path(caplog) -> None:
    go = asyncio.Event()

    async def fail(_message):
        await go.wait()
        raise LookupError("gone")

    first, second = Session(b"acks.1.1", Feature.VERDICTS), Session(b"acks.1.2", Feature.VERDICTS)
    owner, _ = await subscribed(first, fail, durable="d", on_error="reject")
    first.link.handlers[1](delivery(1))
    await asyncio.sleep(0)
    await owner.delivery.make(second)
    go.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (first.link.sent, second.link.sent) == (b"", b"")
    assert "is not acked and will come again" in caplog.text
    await owner.delivery.end()


async def test_ack_of_a_message_of_an_earlier_path_goes_to_the_newest_one_and_its_verdict_nowhere() -> None:
    first, second = Session(b"acks.1.1", Feature.VERDICTS), Session(b"acks.1.2", Feature.VERDICTS)
    owner, subscription = await subscribed(first, durable="d", manual_acks=True)
    first.link.handlers[1](delivery(1))
    message = await subscription.next(5)
    await owner.delivery.make(second)
    assert not await message.reject()
    assert await message.ack()
    await asyncio.sleep(0)
    assert first.link.sent == b""
    assert second.link.sent.count(b"PUB acks.1.2 ") == 1


async def test_what_a_server_knows_is_judged_by_the_session_on_which_the_message_came() -> None:
    old, new = Session(b"acks.1.1"), Session(b"acks.1.2", Feature.VERDICTS)
    owner, subscription = await subscribed(old, manual_acks=True)
    old.link.handlers[1](delivery(1))
    await owner.delivery.make(new)
    new.link.handlers[1](delivery(2))
    with pytest.raises(NotSupportedError):
        (await subscription.next(5)).nak()
    assert await (await subscription.next(5)).nak()
    assert (old.link.sent.count(b"PUB "), new.link.sent.count(b"PUB ")) == (0, 1)


@pytest.mark.parametrize("batch", [False, True])
async def test_plain_function_around_an_async_one_is_awaited_before_the_ack_in_order(batch) -> None:
    handled, go = [], asyncio.Event()

    async def handle(given):
        await go.wait()
        handled.extend([one.sequence for one in given] if batch else [given.sequence])

    session = Session(b"acks.1.1")
    _, subscription = await subscribed(session, lambda given: handle(given), batch=batch)  # noqa: PLW0108 - the point of it
    session.link.handlers[1](delivery(1, 2))
    session.link.handlers[1](delivery(3))
    await asyncio.sleep(0)
    assert (handled, session.link.sent) == ([], b"")
    go.set()
    assert await subscription_drained(subscription)
    assert handled == [1, 2, 3]
    assert session.link.sent.count(b"PUB acks.1.1 ") == 3


async def subscription_drained(subscription):
    async with asyncio.timeout(10):
        return await subscription.drain()


async def test_failure_of_an_async_function_in_a_plain_one_is_judged() -> None:
    async def fail(_message):
        raise LookupError("gone")

    session = Session(b"acks.1.1", Feature.VERDICTS)
    _, subscription = await subscribed(session, lambda message: fail(message), on_error="reject")  # noqa: PLW0108
    session.link.handlers[1](delivery(1, 2))
    await subscription_drained(subscription)
    said = [frame for frame in session.link.sent.split(b"PUB ") if frame]
    assert len(said) == 2
    assert all(b"LookupError: gone" in verdict for verdict in said)

"""BlockingClient with a registration: publish, and subscriptions as iterators, from threads of a program without asyncio."""

import threading

import pytest
import stan_client
from stan_client.blocking import BlockingClient

from tests.kit.server import CLUSTER_ID, StanServer


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with StanServer(tmp_path_factory.mktemp("server"), "-mc", "0") as server:
        yield server


@pytest.fixture
def connect(server):
    clients = []

    def connect(client_id=""):
        clients.append(BlockingClient(server.url, cluster_id=CLUSTER_ID, client_id=client_id))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def test_a_message_is_published_as_the_async_client_does(connect):
    client = connect("writer")
    published = client.publish("one", b'{"n": 1}', key="k", headers={"a": "b"})
    assert (published.sequence, published.acked_as) == (1, "synced")
    futures = [client.publish_nowait("one", b"%d" % number) for number in range(100)]
    assert sorted(future.result().sequence for future in futures) == list(range(2, 102))
    (message,) = client.fetch("one", start=stan_client.from_sequence(1), count=1)
    assert (message.text, message.json(), message.key, message.headers["a"]) == ('{"n": 1}', {"n": 1}, b"k", b"b")
    with pytest.raises(stan_client.InvalidNameError):
        client.publish("a.*", b"x")


def test_messages_are_acked_when_the_next_one_is_asked_for(connect):
    first = connect("reader")
    for number in range(5):
        first.publish("read", b"%d" % number)
    start = stan_client.everything()
    with first.subscribe("read", durable="d", start=start, max_in_flight=2) as messages:
        for message in messages:
            if message.sequence == 3:
                break
    with first.subscribe("read", durable="d") as messages:
        message = messages.next(timeout_s=20)
        assert message.sequence == 4
        messages.close()
        assert messages.next() is None
        assert list(messages) == []


def test_a_message_whose_handler_fails_comes_again(connect):
    client = connect("failing")
    client.publish("fails", b"x")

    def handle(messages):
        for message in messages:
            raise RuntimeError(message.sequence)

    with (
        pytest.raises(RuntimeError),
        client.subscribe("fails", durable="e", start=stan_client.everything()) as messages,
    ):
        handle(messages)
    with client.subscribe("fails", durable="e") as messages:
        message = messages.next(timeout_s=20)
        assert (message.sequence, message.redelivered) == (1, True)


def test_verdicts_are_given_from_the_threads_of_the_program(connect):
    client = connect("judging")
    for number in range(4):
        client.publish("judged", b"%d" % number)
    subscription = client.subscribe("judged", durable="d", start=stan_client.everything(), manual_acks=True)
    seen = []

    def work():
        while len(seen) < 5:
            message = subscription.next(timeout_s=20)
            seen.append((message.sequence, message.redelivered))
            if message.sequence == 2 and not message.redelivered:
                message.nak()
            else:
                message.ack()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(40)
    assert sorted(seen) == [(1, False), (2, False), (2, True), (3, False), (4, False)]
    with pytest.raises(stan_client.NoMessageError):
        subscription.next(timeout_s=0.05)


def test_a_registration_that_fails_is_tried_again(connect):
    holder, other = connect("taken"), connect("taken")
    holder.publish("ids", b"x")
    with pytest.raises(stan_client.ServerError, match="clientID already registered"):
        other.publish("ids", b"y")
    holder.close()
    assert other.publish("ids", b"y").sequence == 2
    with pytest.raises(stan_client.ConnectionClosedError):
        holder.publish("ids", b"z")


def test_who_only_reads_registers_nobody(connect):
    client = connect("silent")
    client.info(["one"])
    watcher = connect()
    watcher.publish("one", b"x")
    known = [one.client_id for one in watcher._wait(watcher._direct.admin.clients())]
    assert "silent" not in known

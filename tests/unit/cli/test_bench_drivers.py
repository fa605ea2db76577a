"""Drivers of `stan bench`, without a connection: what they make of acks and messages."""

from collections import deque
from types import SimpleNamespace

import pytest
from stan_bench.bench.bench_drivers import Job, PublishDriver
from stan_bench.bench.bench_jetstream import JetStreamConnection, JetStreamPublishDriver, JetStreamSubscribeDriver
from stan_client.errors import ServerError


@pytest.fixture
async def driver():
    """A publisher of 10 messages, 4 without ack at most; what it sends is in `nats.blobs`."""
    job = Job(role="pub", names=["p"], counts=[10], channel="c", size=1, server="", cluster_id="c", window=4)
    made = PublishDriver(job, 0)
    made.sent = made.refused = 0
    made.blobs = deque()
    made.blob_max = 100
    made.address = (b"s", b"a", b"p", b"c", b"conn", b"g")
    made.data = b"x"
    blobs: list[bytes] = []
    made.nats = SimpleNamespace(send=blobs.append, blobs=blobs)
    made.send()
    return made


async def test_acks_make_room_for_more(driver):
    driver.on_acks(3, 0)
    assert (driver.done, driver.sent) == (3, 7)
    driver.on_acks(4, 0)
    driver.on_acks(3, 0)
    assert (driver.done, driver.sent, driver.finished.done()) == (10, 10, True)


async def test_repeated_acks_count_for_nothing_that_was_not_sent(driver):
    driver.on_acks(50, 0)
    assert (driver.done, driver.sent, driver.finished.done()) == (4, 8, False)
    driver.on_acks(50, 0)
    driver.on_acks(50, 0)
    assert (driver.done, driver.sent, driver.finished.done()) == (10, 10, True)


# --- JetStream -----------------------------------------------------------------------------------------------------


class Wire(JetStreamConnection):
    """A connection without a socket: subscription 1 is counted, what is sent is in `sent`."""

    def __init__(self):
        super().__init__()
        self.counted_sid, self.sent = 1, b""

    def send(self, frames):
        self.sent += frames


def jetstream(kind):
    """A driver of 10 messages of 2 bytes, 4 without ack at most, that is prepared but for its connection."""
    made = kind(Job(role="x", names=["x"], counts=[10], channel="s", size=2, server="", cluster_id="", window=4), 0)
    made.nats = Wire()
    made.nats.on_read = made.on_read
    return made


@pytest.fixture
async def publisher():
    made = jetstream(JetStreamPublishDriver)
    made.begin()
    made.address = b"s inbox"
    made.send()
    return made


@pytest.fixture
async def subscriber():
    made = jetstream(JetStreamSubscribeDriver)
    made.begin()
    return made


def ack(text):
    return b"MSG inbox 1 %d\r\n%b\r\n" % (len(text), text)


def delivery(sequence, *, delivered=1, prefix="$JS.ACK.s.c", payload=b"\r\n"):
    reply = f"{prefix}.{delivered}.{sequence}.{sequence}.1700000000000000000.0"
    if prefix.count(".") > 3:
        reply += ".token"
    return reply, b"MSG s 1 %b %d\r\n%b\r\n" % (reply.encode(), len(payload), payload)


async def test_acks_of_jetstream_make_room_for_more(publisher):
    assert publisher.nats.sent == b"PUB s inbox 2\r\n\0\0\r\n" * 4
    good = ack(b'{"stream":"s", "seq":1}')
    assert publisher.nats.handle_data(good * 2 + good[:5]) == 2 * len(good)
    assert (publisher.done, publisher.sent) == (2, 6)
    publisher.nats.handle_data(good * 4)
    publisher.nats.handle_data(good * 4)
    assert (publisher.done, publisher.sent, publisher.finished.result()) == (10, 10, None)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ack(b'{"error":{"code":503,"description":"maximum bytes exceeded"},"seq":0}'), "maximum bytes exceeded"),
        (ack(b'{"error":{"code":503}}'), "no stream takes them"),
        (b"HMSG inbox 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", "no stream takes them"),
    ],
)
async def test_an_ack_that_is_an_error_ends_the_run(publisher, answer, reason):
    publisher.nats.handle_data(ack(b'{"stream":"s", "seq":1}') + answer)

    with pytest.raises(ServerError, match=f"refused publishes of x: {reason}"):
        publisher.finished.result()


async def test_an_error_behind_the_whole_frames_of_a_read_waits_for_its_end(publisher):
    publisher.nats.handle_data(ack(b'{"stream":"s", "seq":1}') + ack(b'{"error":{}}')[:-2])

    assert (publisher.done, publisher.finished.done()) == (1, False)


@pytest.mark.parametrize("prefix", ["$JS.ACK.s.c", "$JS.ACK.domain.account.s.c"])
async def test_messages_of_a_read_are_acked_together(subscriber, prefix):
    replies, frames = zip(*[delivery(sequence, prefix=prefix) for sequence in range(1, 11)], strict=True)
    subscriber.nats.handle_data(b"".join(frames[:3]) + frames[3][:-1])
    subscriber.nats.handle_data(b"".join(frames[3:]))

    assert subscriber.nats.sent.decode() == "".join(f"PUB {reply} 4\r\n+ACK\r\n" for reply in replies)
    assert (subscriber.done, subscriber.redelivered, subscriber.out_of_order) == (10, 0, False)
    assert subscriber.finished.done()


async def test_repeats_and_disorder_are_seen(subscriber):
    for sequence, delivered in ((1, 1), (2, 1), (2, 2)):
        subscriber.nats.handle_data(delivery(sequence, delivered=delivered)[1])
    assert (subscriber.done, subscriber.redelivered, subscriber.out_of_order) == (2, 1, False)
    subscriber.nats.handle_data(delivery(4)[1] + delivery(3)[1])
    assert (subscriber.done, subscriber.redelivered, subscriber.out_of_order) == (4, 1, True)


async def test_what_is_no_message_of_the_stream_ends_the_run(subscriber):
    subscriber.nats.handle_data(delivery(1)[1] + delivery(2, payload=b"longer")[1])

    with pytest.raises(ServerError, match="what is no message of the stream"):
        subscriber.finished.result()

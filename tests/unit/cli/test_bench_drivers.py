"""The publisher of `stan bench`, without a connection: what it makes of acks."""

from collections import deque
from types import SimpleNamespace

import pytest
from stan_bench.bench.bench_drivers import Job, PublishDriver


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

"""What the load of the chaos tests holds for loose: published, and without an answer when the writer's NATS connection ended."""

import stan_client
from stan_client.publishing import OnAck

from tests.chaos.load import Lane


class Settled:
    """A client whose publishes are settled by hand."""

    def __init__(self) -> None:
        self.waiting: dict[bytes, OnAck] = {}
        self.window = self

    def publish(self, _channel: str, data: bytes, *, on_ack: OnAck) -> str:
        """Only remember it."""
        self.waiting[data] = on_ack
        return "guid"


def test_all_that_has_no_ack_is_loose_also_what_its_client_has_given_up():
    lane, client = Lane("c"), Settled()
    for number in range(1, 6):
        lane.publish(client, b"0-%d" % number)
        lane.publish(client, b"1-%d" % number)
    client.waiting[b"0-1"](stan_client.Published("guid"), None)
    client.waiting[b"0-2"](stan_client.Published("guid"), stan_client.ServerError("refused"))
    client.waiting[b"0-3"](stan_client.Published("guid"), stan_client.PublishAckTimeoutError())
    lane.disconnected(b"0")
    lane.publish(client, b"0-6")
    client.waiting[b"0-4"](stan_client.Published("guid"), None)
    lane.disconnected(b"0")
    assert lane.history.loose == {b"0-3": 2, b"0-4": 1, b"0-5": 2, b"0-6": 1}


def test_writer_that_never_published_has_nothing_loose():
    lane = Lane("c")
    lane.disconnected(b"0")
    assert not lane.history.loose


def test_gap_is_the_time_in_which_writers_could_write_and_nothing_was_acked():
    lane, client = Lane("c"), Settled()
    for number, seconds in ((1, 0.05), (2, 0.5), (3, 0.2)):
        lane.publish(client, b"0-%d" % number)
        lane.live(seconds)
        client.waiting[b"0-%d" % number](stan_client.Published("guid"), None)
    assert lane.longest_gap == 0.5
    lane.forget_gap()
    assert lane.longest_gap == 0

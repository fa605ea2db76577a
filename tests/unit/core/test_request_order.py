"""Which of two requests was heard first, and for how long that is known."""

import pytest
from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan import limits
from stan.core.metadata.registered_clients import Client
from stan.core.requests.request_order import ArrivalOrder

DISCOVER, SUB = b"discover", b"sub"
NEW = Client(b"me", b"c2", b"hb.2", 1, 5, 3, 7, failing=False)
OLD = Client(b"me", b"c1", b"hb.1", 1, 5, 3, 4, failing=False)


@pytest.fixture
def order():
    return ArrivalOrder(DISCOVER, SUB)


def subscribe(reply):
    return Frame(10, SUB, reply, b"", b"")


def connect(client):
    request = wire.ConnectRequest(
        client_id=client.client_id, conn_id=client.conn_id, heartbeat_inbox=client.heartbeat_inbox
    )
    return Frame(10, DISCOVER, b"c", b"", request.SerializeToString())


def test_what_was_asked_before_a_connection_is_of_an_earlier_one(order):
    for frame in (connect(OLD), subscribe(b"r1"), connect(NEW), subscribe(b"r2")):
        order.add(frame, SECOND, 0)
    assert order.is_of_earlier(b"r1", NEW)
    assert not order.is_of_earlier(b"r1", OLD)
    assert not order.is_of_earlier(b"r2", NEW)


def test_what_was_not_heard_is_taken_for_the_newest_connections(order):
    order.add(connect(NEW), SECOND, 0)
    order.add(subscribe(b""), SECOND, 0)
    order.add(Frame(10, DISCOVER, b"c", b"", b"\xff"), SECOND, 0)
    assert not order.is_of_earlier(b"r", NEW)
    assert not order.is_of_earlier(b"", NEW)


def test_a_request_that_is_heard_again_counts_from_then_on(order):
    for frame in (subscribe(b"r"), connect(NEW), subscribe(b"r")):
        order.add(frame, SECOND, 0)
    assert not order.is_of_earlier(b"r", NEW)


def test_a_connection_made_while_this_node_was_cut_off_may_be_later_than_what_it_received_before(order):
    """It did not receive the ConnectRequest, and once took a request of the connection before for one of the new connection: the
    group then had a member at an inbox that nobody listened to."""
    order.add(connect(OLD), SECOND, 3)
    order.add(subscribe(b"before"), SECOND, OLD.incarnation)
    order.gap()
    order.add(subscribe(b"after"), 2 * SECOND, OLD.incarnation)
    assert order.is_of_earlier(b"before", NEW) is None
    assert not order.is_of_earlier(b"before", OLD)
    assert not order.is_of_earlier(b"after", NEW)


def test_a_connection_that_was_known_when_the_request_came_is_its_own(order):
    order.add(subscribe(b"r"), SECOND, NEW.incarnation)
    order.gap()
    assert not order.is_of_earlier(b"r", NEW)


def test_a_connect_that_is_passed_on_behind_its_requests_changes_nothing(order):
    """Clients of a cluster that had just started were once told that their id is unknown."""
    for frame in (connect(NEW), subscribe(b"r"), connect(NEW)):
        order.add(frame, SECOND, OLD.incarnation)
    assert not order.is_of_earlier(b"r", NEW)


def test_a_connect_that_comes_late_to_a_node_that_knows_the_client_changes_nothing(order):
    order.add(subscribe(b"r"), SECOND, NEW.incarnation)
    order.add(connect(NEW), SECOND, NEW.incarnation)
    assert not order.is_of_earlier(b"r", NEW)


def test_without_having_been_cut_off_what_was_not_heard_is_taken_for_the_newest_connections(order):
    order.add(subscribe(b"r"), SECOND, OLD.incarnation)
    assert not order.is_of_earlier(b"r", NEW)


def test_it_is_forgotten_in_time(order):
    order.add(subscribe(b"r"), SECOND, 0)
    order.add(connect(NEW), SECOND + limits.ARRIVAL_ORDER_AGE_MAX, 0)
    assert order.is_of_earlier(b"r", NEW)
    order.add(subscribe(b"other"), SECOND + limits.ARRIVAL_ORDER_AGE_MAX + 1, 0)
    assert not order.is_of_earlier(b"r", NEW)


def test_only_so_many_are_kept(order, monkeypatch):
    monkeypatch.setattr(limits, "ARRIVAL_ORDER_MAX", 2)
    order.add(subscribe(b"r"), SECOND, 0)
    order.add(connect(NEW), SECOND, 0)
    assert order.is_of_earlier(b"r", NEW)
    order.add(subscribe(b"other"), SECOND, 0)
    assert not order.is_of_earlier(b"r", NEW)

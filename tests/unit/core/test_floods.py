"""What one client sends in masses costs the broker a bounded amount of work for each: counted in calls, by no clock."""

import gc
import itertools
import sys

from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire

from stan import limits
from stan.config import Config, StoreLimits
from stan.permissions import Permissions, Right, Rule
from tests.kit.core_harness import CoreHarness

NUMBERS = itertools.count()


def calls_of(work, *args):
    """Calls of functions, those written in C too, while *work* runs."""
    counted = [0]

    def note(_frame, event, _argument):
        counted[0] += event.endswith("call")

    gc.disable()  # what it collects of other tests would count
    sys.setprofile(note)
    try:
        work(*args)
    finally:
        sys.setprofile(None)
        gc.enable()
    return counted[0]


def subscribe_to_new_channels(harness, count):
    for _ in range(count):
        name = f"new.{next(NUMBERS)}"
        request = wire.SubscriptionRequest(
            client_id=b"me", subject=name.encode(), inbox=b"in", max_in_flight=1, ack_wait_s=30, start_position=4
        )
        harness.asks("_STAN.sub.test-cluster", request, f"reply.{name}")
    harness.turn()


def test_a_channel_that_is_made_costs_the_same_however_many_are_being_made():
    harness = CoreHarness(config=Config(limits=StoreLimits(channels=0)))
    harness.connect()
    few = calls_of(subscribe_to_new_channels, harness, 20)
    many = calls_of(subscribe_to_new_channels, harness, 200)

    assert many / 200 < 1.1 * few / 20


def refused(harness, count):
    for _ in range(count):
        (error,) = harness.publish(f"other.{next(NUMBERS)}", b"x", conn_id="conn")
        assert "no permission to publish" in error


def test_a_refused_publish_costs_no_log_line_once_there_are_too_many():
    rule = Rule(client="me", rights={Right.PUBLISH: ("mine",)})
    harness = CoreHarness(config=Config(permissions=Permissions([rule])))
    harness.connect(conn_id="conn")
    told = calls_of(refused, harness, limits.COMPLAINTS_MAX // 2)
    refused(harness, limits.COMPLAINTS_MAX)
    left_out = calls_of(refused, harness, limits.COMPLAINTS_MAX // 2)

    assert left_out < 0.9 * told


def acked(harness, sequences):
    sub = harness.subscribe("foo", f"in.{next(NUMBERS)}", in_flight=10_000)
    frames = calls_of(harness.read_acks, b"_INBOX.NUID.1.0", *sequences)  # of nobody: to make and to scan them
    return calls_of(harness.read_acks, sub.ack_inbox, *sequences) - frames


def test_acks_from_the_newest_to_the_oldest_are_taken_out_of_the_window_in_one_go(harness):
    harness.publish("foo", *[b"x"] * 4000)

    few = acked(harness, range(199, 0, -2))
    assert acked(harness, range(3999, 0, -2)) < 5 * few


def said(harness, ack_inbox, count):
    payload = wire.Ack(subject=b"foo", sequence=1, kind=wire.WORKING).SerializeToString()
    frame = Frame(2, ack_inbox, b"", b"", payload)
    return calls_of(harness.broker.frames.step_verdicts, [frame] * count)


def test_verdicts_in_a_row_on_one_inbox_are_judged_once(harness):
    sub = harness.subscribe("foo", in_flight=10_000)
    harness.publish("foo", *[b"x"] * 1000)

    assert said(harness, sub.ack_inbox, 101) - said(harness, sub.ack_inbox, 1) < 3500

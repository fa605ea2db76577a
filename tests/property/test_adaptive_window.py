"""Adaptive windows: consumers that are slower than their max in flight get few messages twice, and no storm of them."""

from collections import Counter, deque
from dataclasses import dataclass, field

import pytest
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.scalars import MILLISECOND, SECOND

from stan.core.base.delivery_policy import DEFAULT, DeliveryPolicy
from tests.kit.core_harness import CoreHarness

ADAPTIVE = DeliveryPolicy(adaptive_window=True)
STEP = 5 * MILLISECOND


@dataclass
class Consumer:
    """Handles one message at a time, each in so long, and acks every delivery of it; time goes by in steps."""

    harness: CoreHarness
    takes: int = 10 * MILLISECOND
    in_flight: int = 1024
    channel: str = "foo"
    inbox: str = "inbox"
    lost: frozenset = frozenset()  # sequences that it never acks
    queue: deque = field(default_factory=deque)
    sent: list = field(default_factory=list)  # (time, sequence, repeated) of every delivery
    handled: list = field(default_factory=list)  # (time, sequence) of every ack
    smallest: int = 1 << 62
    free_at: int = 0

    def subscribe(self, policy=DEFAULT, **how):
        answer = self.harness.subscribe(self.channel, self.inbox, in_flight=self.in_flight, wait=1, seq=1, **how)
        assert not answer.error
        self.ack_inbox = answer.ack_inbox
        self.harness.set_policy(policy)

    @property
    def window(self):
        return self.harness.state.live_positions()[0].members[0].window_now

    def run(self, seconds):
        harness = self.harness
        end = harness.now + round(seconds * SECOND)
        self.free_at = max(self.free_at, harness.now)
        while harness.now < end:
            for sequence, count in harness.received(self.inbox):
                self.queue.append(sequence)
                self.sent.append((harness.now, sequence, bool(count)))
            done = []
            while self.queue and self.free_at <= harness.now:
                done.append(self.queue.popleft())
                self.free_at = max(self.free_at, harness.now - STEP) + self.takes
            if not self.queue:
                self.free_at = max(self.free_at, harness.now)
            acked = [sequence for sequence in done if sequence not in self.lost]
            if acked:
                self.handled += [(harness.now, sequence) for sequence in acked]
                harness.ack(self.ack_inbox, *acked, channel=self.channel.encode())
            harness.pass_time(STEP / SECOND)
            self.smallest = min(self.smallest, self.window)

    def repeats(self, since=0):
        """The part of the deliveries that were repeats."""
        later = [repeated for at, _, repeated in self.sent if at >= since]
        return sum(later) / len(later)

    def new(self, since):
        """Messages handled for the first time."""
        seen, out = set(), 0
        for at, sequence in self.handled:
            out += at >= since and sequence not in seen
            seen.add(sequence)
        return out


@pytest.fixture
def harness():
    made = CoreHarness()
    made.connect()
    for _ in range(10):
        made.publish("foo", *[b"x"] * 1000)
    return made


def test_a_slow_consumer_with_a_fixed_window_gets_nearly_all_of_it_again(harness):
    consumer = Consumer(harness)
    consumer.subscribe()
    began = harness.now
    consumer.run(8)
    assert consumer.window == 1024
    assert consumer.repeats(began + SECOND) > 0.85


def test_a_slow_consumer_with_an_adaptive_window_works_at_its_rate_with_few_repeats(harness):
    consumer = Consumer(harness)
    consumer.subscribe(ADAPTIVE)
    began = harness.now
    consumer.run(40)
    assert consumer.repeats() < 0.02
    assert consumer.repeats(began + 10 * SECOND) < 0.02
    assert consumer.repeats(began + 20 * SECOND) == 0
    assert consumer.new(began + 10 * SECOND) >= 0.95 * 30 * 100
    assert len(consumer.queue) <= consumer.window


@pytest.mark.parametrize("takes", [3 * SECOND // 2, 300 * MILLISECOND, 40 * MILLISECOND])
def test_there_is_no_storm_of_repeats_however_slow_the_consumer_is(harness, takes):
    consumer = Consumer(harness, takes=takes, in_flight=64)
    consumer.subscribe(ADAPTIVE)
    consumer.run(120)
    began = harness.now
    consumer.run(60)
    handled = 60 * SECOND // takes
    assert sum(at >= began for at, _, _ in consumer.sent) <= handled * 1.1 + 60 * (takes > SECOND)
    assert len(consumer.queue) <= 64
    assert consumer.smallest >= 1


def test_a_consumer_that_recovers_gets_its_window_back(harness):
    for _ in range(20):
        harness.publish("foo", *[b"x"] * 1000)
    consumer = Consumer(harness)
    consumer.subscribe(ADAPTIVE)
    consumer.run(20)
    assert consumer.window < 100
    consumer.takes = MILLISECOND // 100
    began = harness.now
    consumer.run(5)
    assert consumer.window == 1024
    assert consumer.repeats(began) == 0
    assert consumer.handled[-1][1] == 30_000


def test_a_healthy_consumer_gets_the_same_deliveries_as_with_a_fixed_window():
    sent = []
    for policy in (DEFAULT, ADAPTIVE):
        harness = CoreHarness()
        harness.connect()
        harness.publish("foo", *[b"x"] * 3000)
        consumer = Consumer(harness, takes=MILLISECOND // 100, in_flight=100)
        consumer.subscribe(policy)
        for _ in range(20):
            harness.publish("foo", b"y", b"z")
            consumer.run(0.1)
        assert consumer.window == consumer.smallest == 100
        sent.append(consumer.sent)
    assert sent[0] == sent[1]
    assert [sequence for _, sequence, _ in sent[0]] == list(range(1, 3041))


def test_what_a_client_never_acks_comes_again_while_the_rest_flows(harness):
    consumer = Consumer(harness, takes=MILLISECOND, in_flight=100, lost=frozenset({7, 500}))
    consumer.subscribe(ADAPTIVE)
    consumer.run(20)
    times = Counter(sequence for _, sequence, _ in consumer.sent)
    assert min(times[7], times[500]) >= 10
    assert max(count for sequence, count in times.items() if sequence not in consumer.lost) == 1
    assert len(times) == 10_000


def test_messages_that_a_client_never_acks_do_not_fill_its_window_for_ever():
    """Such a window once shrank to one message, the oldest of these: it came again and again, the others and new ones never."""
    harness = CoreHarness()
    harness.connect()
    never = frozenset({1, 3, 4})
    consumer = Consumer(harness, takes=MILLISECOND, in_flight=16, lost=never)
    consumer.subscribe(ADAPTIVE)
    harness.publish("foo", *[b"x"] * 4)
    consumer.run(30)
    began = harness.now
    harness.publish("foo", *[b"y"] * 100)
    consumer.run(10)
    later = Counter(sequence for at, sequence, _ in consumer.sent if at >= began)
    assert min(later[sequence] for sequence in never) >= 5
    assert set(range(5, 105)) <= later.keys()
    assert consumer.window > len(never)


def test_a_client_that_lost_all_it_had_gets_it_again_after_another_ack_wait(harness):
    consumer = Consumer(harness, in_flight=100, free_at=1000 * SECOND)
    consumer.subscribe(ADAPTIVE)
    consumer.run(1.5)
    assert consumer.window == 50
    consumer.queue.clear()  # its process was put to sleep, say, and what came was dropped
    consumer.free_at, consumer.takes = 0, MILLISECOND
    consumer.run(5)
    assert len({sequence for _, sequence in consumer.handled}) >= 4000
    assert set(range(1, 101)) <= {sequence for _, sequence in consumer.handled}


def test_what_a_slow_member_of_a_group_cannot_take_goes_to_the_others(harness):
    slow = Consumer(harness, in_flight=100, takes=100 * MILLISECOND)
    slow.subscribe(ADAPTIVE, queue="g")
    slow.run(3)
    assert slow.window < 100
    answer = harness.subscribe("foo", "other", in_flight=1000, wait=1, seq=1, queue="g")
    other = []
    for _ in range(400):
        got = [sequence for sequence, _ in harness.received("other")]
        if got:
            other += got
            harness.ack(answer.ack_inbox, *got)
        slow.run(0.005)
    assert set(other) | {sequence for _, sequence in slow.handled} == set(range(1, 10_001))
    assert max(member.window_now for member in harness.state.live_position().members) == 1000


def test_the_listing_tells_the_window(harness):
    consumer = Consumer(harness, in_flight=100)
    consumer.subscribe(ADAPTIVE)

    def told():
        request = admin.SubscriptionsRequest(version=1, pattern=b">")
        (cursor,) = harness.ask(
            "_STAN.x.test-cluster.admin.subscriptions", request, admin.SubscriptionsResponse
        ).cursors
        (member,) = cursor.members
        return member.window_now, member.max_in_flight

    assert told() == (100, 100)
    harness.pass_time(1.5)
    assert told() == (50, 100)
    harness.set_policy(DEFAULT)
    assert told() == (100, 100)


def test_an_outage_of_nats_cuts_no_window(harness):
    consumer = Consumer(harness, in_flight=100)
    consumer.subscribe(ADAPTIVE)
    consumer.run(0.1)
    harness.broker.step_disconnected()
    harness.pass_time(30)
    harness.broker.step_reconnected(30 * SECOND)
    consumer.run(0.5)
    assert consumer.window == 100
    assert consumer.repeats() == 0


def test_a_new_leader_starts_with_a_full_window_also_if_old_deliveries_are_due(harness):
    consumer = Consumer(harness, in_flight=100)
    consumer.subscribe(ADAPTIVE, durable="d")
    consumer.run(3)
    assert consumer.window < 100
    harness.pass_time(0.1)
    harness.restart()
    harness.pass_time(0.2)
    assert consumer.window == 100


def test_a_policy_that_is_taken_back_fixes_the_window_again(harness):
    consumer = Consumer(harness, in_flight=100)
    consumer.subscribe(ADAPTIVE)
    consumer.run(3)
    assert consumer.window < 100
    harness.set_policy(ADAPTIVE)
    assert consumer.window < 100
    harness.set_policy(DEFAULT)
    assert consumer.window == 100


def test_light_traffic_says_nothing_about_a_larger_window():
    harness = CoreHarness()
    harness.connect()
    harness.publish("foo", *[b"x"] * 1500)
    consumer = Consumer(harness)
    consumer.subscribe(ADAPTIVE)
    consumer.run(20)
    assert consumer.handled[-1][1] == 1500
    window = consumer.window
    for _ in range(100):
        harness.publish("foo", b"x")
        consumer.run(0.05)
    assert consumer.window == window
    began = harness.now
    harness.publish("foo", *[b"x"] * 1000)
    consumer.run(12)
    assert consumer.repeats(began) < 0.02

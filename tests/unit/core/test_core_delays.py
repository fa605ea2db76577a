"""Channels with a delay: their messages go to the target when they are due, once, in order, and nothing is lost on the way."""

from dataclasses import replace

import pytest
from stan_protocol.patterns import ChannelLimits
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import Config, StoreConfig, StoreLimits
from stan.policies import PolicyRule
from tests.kit.core_harness import CoreHarness

PREFIX = "_STAN.x.test-cluster.admin"
DELAY = 5


def delayed(*, target="orders", **more):
    rule = PolicyRule(pattern="orders.in5s", delay=DELAY * SECOND, target=target, **more)
    return CoreHarness(Config(policies=(rule,)))


@pytest.fixture
def harness():
    harness = delayed()
    harness.connect()
    return harness


def uid_of(harness, name):
    return harness.state.channels[name].uid


def stored(harness, name):
    """(sequence, timestamp, data) of the messages of a channel that are there."""
    info = harness.state.channels.get(name)
    if info is None:
        return []
    index = harness.indexes[info.group, info.uid]
    found = []
    for _, _, _, records in index.batches:
        at = 0
        while at < len(records):
            size = int.from_bytes(records[at : at + 4], "little")
            message = wire.MsgProto.FromString(records[at + 4 : at + 4 + size])
            at += 4 + size
            if message.sequence >= index.first_sequence:
                found.append(message)
    return found


def data(harness, name):
    return [message.data for message in stored(harness, name)]


def test_a_message_goes_to_the_target_when_it_is_due_and_not_before(harness) -> None:
    assert harness.publish("orders.in5s", b"1", b"2") == ["", ""]
    published = harness.wall
    harness.pass_time(2)
    harness.publish("orders.in5s", b"3")
    harness.pass_time(2.99)
    assert data(harness, b"orders") == []
    harness.pass_time(0.011)
    assert data(harness, b"orders") == [b"1", b"2"]
    assert [message.sequence for message in stored(harness, b"orders")] == [1, 2]
    assert all(message.timestamp >= published + DELAY * SECOND for message in stored(harness, b"orders"))
    assert data(harness, b"orders.in5s") == [b"3"]
    harness.pass_time(3)
    assert data(harness, b"orders") == [b"1", b"2", b"3"]
    assert data(harness, b"orders.in5s") == []
    harness.publish("orders.in5s", b"4")
    assert [message.sequence for message in stored(harness, b"orders.in5s")] == [4]


def test_subscribers_of_the_target_get_what_was_delayed(harness) -> None:
    harness.subscribe("orders")
    harness.publish("orders.in5s", b"1")
    harness.publish("orders", b"now")
    assert harness.received() == [(1, 0)]
    harness.pass_time(DELAY + 0.01)
    assert harness.received() == [(2, 0)]


def test_a_restart_forgets_nothing_and_moves_nothing_twice(harness) -> None:
    harness.publish("orders.in5s", *(b"%d" % n for n in range(10)))
    harness.restart()
    harness.pass_time(DELAY + 0.01)
    assert len(data(harness, b"orders")) == 10
    harness.publish("orders.in5s", b"10")
    harness.restart()
    harness.pass_time(2 * DELAY)
    assert data(harness, b"orders") == [b"%d" % n for n in range(11)]
    assert [message.sequence for message in stored(harness, b"orders")] == [*range(1, 12)]


def test_what_is_late_goes_at_once_in_bounded_batches(monkeypatch) -> None:
    monkeypatch.setattr(limits, "DELAY_MESSAGES_MAX", 4)
    harness = delayed()
    harness.connect()
    harness.publish("orders.in5s", *(b"%d" % n for n in range(10)))
    harness.wall += 3600 * SECOND
    harness.restart()
    harness.pass_time(0.01)
    assert data(harness, b"orders") == [b"%d" % n for n in range(10)]
    uid = uid_of(harness, b"orders")
    assert [batch[1] for batch in harness.indexes[1, uid].batches] == [4, 4, 2]


def test_a_clock_that_is_set_forward_makes_messages_due_and_one_set_back_only_delays_them(harness) -> None:
    harness.publish("orders.in5s", b"1")
    harness.pass_time(1)
    harness.wall -= 3600 * SECOND
    harness.pass_time(DELAY + 60)
    assert data(harness, b"orders") == []
    harness.wall += 3600 * SECOND
    harness.pass_time(limits.DELAY_LOOK / SECOND)
    assert data(harness, b"orders") == [b"1"]


def test_a_clock_that_is_set_back_while_messages_are_read_keeps_them_where_they_are(harness) -> None:
    harness.publish("orders.in5s", b"1")
    broker, real = harness.broker, harness.broker.reads.step_fetched

    def set_back(fetch, found):
        harness.wall -= 60 * SECOND
        broker.tick(harness.now, harness.wall)
        broker.reads.step_fetched = real
        real(fetch, found)

    broker.reads.step_fetched = set_back
    harness.pass_time(DELAY + 50)
    assert data(harness, b"orders") == []
    harness.pass_time(12)
    assert data(harness, b"orders") == [b"1"]


def test_what_was_deleted_one_by_one_is_not_moved(harness) -> None:
    harness.publish("orders.in5s", b"1", b"2", b"3")
    request = admin.DeleteMessageRequest(version=1, channel=b"orders.in5s", sequence=2)
    assert not harness.ask(f"{PREFIX}.delete_message", request, admin.ChangeResponse).error
    harness.pass_time(DELAY + 0.01)
    assert data(harness, b"orders") == [b"1", b"3"]


def test_headers_keys_and_replies_go_with_a_message(harness) -> None:
    sent = wire.PubMsg(
        client_id=b"me",
        guid=b"guid",
        subject=b"orders.in5s",
        reply=b"back",
        data=b"x",
        key=b"k",
        headers=[wire.Header(key=b"a", value=b"b")],
    ).SerializeToString()
    frame = b"MSG _STAN.pub.test-cluster.orders.in5s 1 _INBOX.acks %d\r\n%b\r\n" % (len(sent), sent)
    harness.broker.frames.step_publishes(harness._scan([frame]).publishes)
    harness.turn()
    harness.pass_time(DELAY + 0.01)
    (message,) = stored(harness, b"orders")
    assert (message.subject, message.reply, message.data, message.key) == (b"orders", b"back", b"x", b"k")
    assert [(header.key, header.value) for header in message.headers] == [(b"a", b"b")]


@pytest.mark.parametrize("name", ["", ".dead"])
def test_what_is_too_late_is_given_up(name) -> None:
    harness = delayed(max_late=60 * SECOND, dead_letter=name)
    harness.connect()
    harness.publish("orders.in5s", b"1")
    published = harness.wall
    harness.wall += 50 * SECOND
    harness.publish("orders.in5s", b"2")
    harness.wall += 30 * SECOND
    harness.restart()
    harness.pass_time(0.1)
    assert data(harness, b"orders") == [b"2"]
    assert [event.kind for event in harness.events if event.kind == "late_messages"] == ["late_messages"]
    found = stored(harness, b"orders.dead")
    assert [message.data for message in found] == ([b"1"] if name else [])
    for message in found:
        assert {header.key: header.value for header in message.headers} == {
            b"stan-reason": b"late",
            b"stan-channel": b"orders.in5s",
            b"stan-sequence": b"1",
            b"stan-published": b"%d" % published,
        }


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        ([PolicyRule(pattern="a", delay=SECOND)], 'stan: channel "a" has a delay, and no target'),
        (
            [PolicyRule(pattern="*", delay=SECOND, target="b")],
            'stan: channel "a" has a delay, and so has its target "b"',
        ),
        (
            [PolicyRule(pattern="a", delay=SECOND, target="a")],
            'stan: channel "a" has a delay, and so has its target "a"',
        ),
    ],
)
def test_a_delay_that_cannot_work_refuses_publishes(rules, error) -> None:
    harness = CoreHarness(Config(policies=tuple(rules)))
    harness.connect()
    for _ in range(2):
        (said,) = harness.publish("a", b"1")
        assert said.startswith(error)


def test_a_channel_with_a_delay_is_made_in_the_group_of_its_target() -> None:
    rules = (PolicyRule(pattern="*.later", delay=SECOND, target="orders"),)
    harness = CoreHarness(Config(policies=rules, store=StoreConfig(raft_groups=8)))
    harness.connect()
    for number in range(20):
        assert harness.publish(f"c{number}.later", b"1") == [""]
    harness.pass_time(1.1)
    channels = harness.state.channels
    assert {info.group for info in channels.values()} == {channels[b"orders"].group}
    assert len(data(harness, b"orders")) == 20


def fault(harness, channel):
    """What operators are told of a channel's delayed messages."""
    request = admin.ChannelsRequest(version=1, pattern=channel.encode())
    answer = harness.ask("_STAN.x.test-cluster.admin.channels", request, admin.ChannelsResponse)
    return answer.channels[0].delay_fault.decode()


def test_one_that_is_in_another_group_already_refuses_publishes_and_keeps_what_it_has() -> None:
    harness = CoreHarness(Config(store=StoreConfig(raft_groups=8)))
    harness.connect()
    group_of = harness.broker.view.group_number
    elsewhere = next(name for name in map("c{}".format, range(20)) if group_of(name.encode()) != group_of(b"t"))
    harness.publish(elsewhere, b"1")
    rules = (PolicyRule(pattern=elsewhere, delay=SECOND, target="t"),)
    harness.broker.reconfigure(replace(harness.config, policies=rules))
    (error,) = harness.publish(elsewhere, b"2")
    assert "is in another group than its target" in error
    harness.pass_time(3)
    assert data(harness, elsewhere.encode()) == [b"1"]
    assert "is in another group than its target" in fault(harness, elsewhere)
    harness.broker.reconfigure(harness.config)
    assert fault(harness, elsewhere) == ""
    assert harness.publish(elsewhere, b"3") == [""]


def test_limits_refuse_publishes_where_messages_wait_instead_of_removing_them() -> None:
    rule = PolicyRule(pattern="orders.in5s", delay=DELAY * SECOND, target="orders")
    config = Config(policies=(rule,), limits=StoreLimits(default=ChannelLimits(msgs=3)))
    harness = CoreHarness(config)
    harness.connect()
    assert harness.publish("orders.in5s", b"1", b"2", b"3") == ["", "", ""]
    assert harness.publish("orders.in5s", b"4") == ["stan: too many messages wait for their time"]
    harness.pass_time(DELAY + 0.01)
    assert harness.publish("orders.in5s", b"5") == [""]
    harness.pass_time(DELAY + 0.01)
    assert data(harness, b"orders") == [b"2", b"3", b"5"]


def test_a_policy_that_goes_leaves_its_messages_where_they_are(harness) -> None:
    harness.publish("orders.in5s", b"1")
    harness.broker.reconfigure(Config())
    harness.pass_time(2 * DELAY)
    assert data(harness, b"orders.in5s") == [b"1"]
    assert data(harness, b"orders") == []


def test_a_read_that_fails_is_tried_again(harness) -> None:
    harness.publish("orders.in5s", b"1")
    batches = harness.indexes[1, uid_of(harness, b"orders.in5s")].batches
    broker, real = harness.broker, harness.broker.reads.step_fetched
    broker.reads.step_fetched = lambda fetch, _found: broker.reads.step_fetch_failed(fetch, "bad disk")
    harness.pass_time(DELAY + 0.5)
    broker.reads.step_fetched = real
    assert any("bad disk" in text for _, text in harness.notes)
    assert data(harness, b"orders") == []
    harness.pass_time(limits.DELAY_RETRY / SECOND + 1)
    assert data(harness, b"orders") == [b"1"]
    assert batches

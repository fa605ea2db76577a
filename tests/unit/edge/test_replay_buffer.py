"""What was read from NATS in the last seconds, and how it is looked at again."""

import gc
import re
import sys

import pytest
from stan_protocol.kernel import rows
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan import limits
from stan.edge.nats.gateway import Gateway
from stan.edge.nats.replay_buffer import ReplayBuffer
from stan.edge.nats.scan_scope import ChannelFilter
from stan.protocol.kernel import server as kernel
from tests.kit.core_harness import CoreHarness, Node, RecordingLink, pub_frame


def chunk(at, size=1):
    return at * SECOND, b"x" * size, size


def ages(buffer):
    """When each chunk was buffer: none is joined with one of another second."""
    return [at // SECOND for at, _ in buffer.joined(*(second * SECOND for second in range(100)))]


# --- the ring -----------------------------------------------------------------------------------------------------------


def test_pieces_are_kept_in_order_for_their_time():
    buffer = ReplayBuffer()
    kept = limits.REPLAY_AGE_MAX // SECOND
    for at in range(10, 20 + kept):
        buffer.add(*chunk(at))
    assert ages(buffer) == list(range(19, 20 + kept))
    assert buffer.since((19 + kept) * SECOND) == 19 * SECOND


def test_bytes_are_bounded_and_it_says_since_when_it_is_complete(monkeypatch):
    monkeypatch.setattr(limits, "REPLAY_BYTES_MAX", 100)
    buffer = ReplayBuffer()
    buffer.add(*chunk(10, 60))
    buffer.add(*chunk(11, 60))
    buffer.add(*chunk(12, 40))
    assert ages(buffer) == [11, 12]
    assert buffer.since(12 * SECOND) == 10 * SECOND
    buffer.add(*chunk(13, 101))
    assert ages(buffer) == []
    assert buffer.since(13 * SECOND) == 13 * SECOND
    buffer.add(*chunk(14, 100))
    assert ages(buffer) == [14]


def test_a_gap_makes_everything_before_incomplete():
    buffer = ReplayBuffer()
    buffer.add(*chunk(10))
    buffer.add(*chunk(11))
    buffer.gap(11 * SECOND)
    buffer.add(*chunk(11))
    buffer.add(*chunk(12))
    forgotten = buffer.forgotten(1)
    assert [(at > forgotten, len(data)) for at, data in buffer.joined(forgotten)] == [(False, 2), (True, 2)]
    assert buffer.since(12 * SECOND) == 11 * SECOND
    assert buffer.since(90 * SECOND) == 90 * SECOND - limits.REPLAY_AGE_MAX


def test_pieces_are_joined_up_to_a_size_and_not_over_a_bound(monkeypatch):
    monkeypatch.setattr("stan.edge.nats.replay_buffer.JOINED_BYTES", 4)
    buffer = ReplayBuffer()
    for at, data in enumerate((b"a", b"bcd-", b"ef", b"g", b"hij"), 1):
        buffer.add(at * SECOND, data, len(data.strip(b"-")))
    assert [*buffer.joined()] == [(1 * SECOND, b"abcd"), (3 * SECOND, b"efghij")]
    assert [*buffer.joined(3 * SECOND, 0)] == [(1 * SECOND, b"abcd"), (3 * SECOND, b"ef"), (4 * SECOND, b"ghij")]


# --- who takes publishes ------------------------------------------------------------------------------------------------


def test_whether_a_channel_is_taken_is_asked_once_until_roles_change(monkeypatch):
    node = Node()
    channel_filter = ChannelFilter(node.broker.view.scope)
    assert not channel_filter[b"foo"]
    node.lead()
    assert not channel_filter[b"foo"]
    channel_filter.clear()
    assert channel_filter[b"foo"]
    monkeypatch.setattr("stan.remembered.REMEMBERED_MAX", 3)
    for name in (b"a", b"b", b"c", b"d", b"e"):
        assert channel_filter[name]
    assert len(channel_filter) <= 3


# --- through the gateway ------------------------------------------------------------------------------------------------


@pytest.fixture
def node():
    made = Node()
    made.feed_client()
    made.feed_channel()
    return made


def test_alone_nothing_is_kept():
    assert Gateway(CoreHarness().broker, "_INBOX.x.>", lambda *_: None).replay_buffer is None


def test_frames_that_came_in_two_reads_are_heard_whole(node):
    frame = pub_frame("foo", "a", b"a")
    for cut in range(0, len(frame), 7):
        node.hears(frame[:cut])
        node.hears(frame[cut:])
    node.lead()
    assert set(node.stored()) == {b"a"}
    assert len(node.stored()) == len(range(0, len(frame), 7))


def test_publishes_acks_and_requests_of_other_groups_are_left_out(node):
    request = wire.CloseRequest(client_id=b"me")
    node.hears(
        pub_frame("foo", "a", b"a"), node.request("_STAN.close.test-cluster", request, "r"), pub_frame("foo", "b", b"b")
    )
    node.lead(1)
    assert node.stored() == [b"a", b"b"]
    assert node.hear("r") == []
    node.lead(0)
    assert len(node.hear("r")) == 1
    assert node.stored() == [b"a", b"b"]


def connect(node, client_id, reply, inbox="hb.x"):
    request = wire.ConnectRequest(
        client_id=client_id.encode(), heartbeat_inbox=inbox.encode(), conn_id=f"conn-{client_id}".encode()
    )
    return node.request("_STAN.discover.test-cluster", request, reply)


def passed_on(node):
    """Reply subjects of the connects that the node passes on."""
    link = node.gateway.connection = RecordingLink()
    node.gateway.pass_on_connects()
    return re.findall(rb"PUB _STAN.discover.test-cluster (\S+) ", link.written)


def test_recent_connects_are_passed_on_once_to_a_leader_that_may_have_missed_them(node):
    node.hears(connect(node, "old", "r1"))
    node.pass_time(limits.REPLAY_REQUEST_AGE_MAX / SECOND + 1)
    node.hears(connect(node, "new", "r2"), pub_frame("foo", "a", b"a"))
    assert passed_on(node) == [b"r2"]
    assert passed_on(node) == []


def test_connects_that_were_answered_or_whose_client_has_given_up_are_not_passed_on(node):
    node.feed_client("known")
    inbox = node.state.clients[b"known"].heartbeat_inbox.decode()
    node.hears(connect(node, "known", "r1", inbox), connect(node, "closed", "r2"), connect(node, "again", "r3"))
    node.hears(node.request("_STAN.close.test-cluster", wire.CloseRequest(client_id=b"closed"), "r4"))
    node.hears(connect(node, "again", "r5", "hb.y"), node.request("_STAN.discover.test-cluster", b"\xff", "r6"))
    assert passed_on(node) == [b"r5"]


def test_no_more_connects_are_passed_on_than_the_leader_can_bear(node, monkeypatch):
    monkeypatch.setattr(limits, "CONNECTS_PASSED_ON_MAX", 2)
    node.hears(*(connect(node, f"c{number}", f"r{number}") for number in range(3)))
    assert passed_on(node) == [b"r0", b"r1"]


def test_what_nodes_say_to_each_other_is_not_kept(node):
    node.gateway.subscriptions.handlers[5] = lambda frame: None
    node.hears(b"MSG _STAN.raft.test-cluster.me.you 5 3\r\nabc\r\n")
    assert not [*node.gateway.replay_buffer.joined()]
    node.hears(b"MSG _STAN.raft.test-cluster.me.you 5 3\r\nabc\r\n", pub_frame("foo", "a", b"a"))
    node.lead()
    assert node.stored() == [b"a"]


def test_who_looks_at_much_again_lets_heartbeats_leave_meanwhile(node, monkeypatch):
    monkeypatch.setattr("stan.edge.nats.replay_buffer.JOINED_BYTES", 1)
    for number in range(5):
        node.hears(pub_frame("foo", f"{number}", b"x"))
    breaths = []
    node.broker.roles.lead_group(1, unconfirmed=True)
    node.gateway.scope.roles_changed()
    node.gateway.replay(1, lambda: breaths.append(1))
    assert len(breaths) == 5


def calls_to_take_over(count):
    """Python calls to look again at *count* publishes, of which the first half is in the log."""
    node, leader = Node(), Node()
    for one in (node, leader):
        one.feed_client()
        one.feed_client("you")
        one.feed_channel()
    frames = [
        pub_frame("foo", f"{number:08}", b"x", *(("you", "conn-you") if number % 3 else ())) for number in range(count)
    ]
    leader.lead()
    leader.hears(*frames[: count // 2])
    for group, kind, body in leader.committed:
        if group:
            node.feed(group, kind, body)
    node.hears(*frames[: count // 2])
    node.hears(*frames[count // 2 :])
    node.broker.roles.lead_group(1, unconfirmed=True)
    node.gateway.scope.roles_changed()
    calls = []
    gc.collect()
    gc.disable()  # libraries of the tests have Python functions called when it runs
    sys.setprofile(lambda _frame, event, _arg: calls.append(event) if event.endswith("call") else None)
    try:
        node.gateway.replay(1)
    finally:
        sys.setprofile(None)
        gc.enable()
    node.turn()
    assert len(node.stored()) == count
    return len(calls)


@pytest.mark.skipif("python" in (kernel.NAME, rows.NAME), reason="the plain kernels look at each message")
def test_looking_again_at_more_messages_takes_no_more_calls(monkeypatch):
    """At hundreds of thousands, the links to the other nodes went down meanwhile, and with them the leadership."""
    monkeypatch.setattr(
        "stan.edge.nats.replay_buffer.JOINED_BYTES", 1
    )  # no batch has both what is in the log and what is not
    assert calls_to_take_over(2000) == calls_to_take_over(200)


@pytest.mark.parametrize("event", ["on_down", "on_up"])
def test_a_connection_that_was_lost_makes_a_gap(node, event):
    node.hears(pub_frame("foo", "a", b"a"))
    node.hears(pub_frame("foo", "b", b"b")[:-5])
    node.pass_time(1)
    getattr(node.gateway.read_buffer, event)()
    node.hears(pub_frame("foo", "c", b"c"))
    assert node.gateway.replay_buffer.since(node.now) == node.now
    node.lead()
    assert node.stored() == [b"c"]


def test_acks_of_before_a_connection_was_lost_are_looked_at_again(node):
    """They change nothing twice; without them, what was acked while nobody led came a second time from who leads next."""
    ack = wire.Ack(subject=b"foo", sequence=1).SerializeToString()
    close = node.request("_STAN.close.test-cluster", wire.CloseRequest(client_id=b"me"), "r")
    node.hears(pub_frame("foo", "a", b"a"), b"MSG _INBOX.NUID.1.7 2 %d\r\n%b\r\n" % (len(ack), ack), close)
    node.pass_time(0.1)
    node.gateway.read_buffer.on_down()
    node.gateway.take_in()
    acked = []
    node.broker.frames.step_acks = lambda batches: acked.extend((batch.key, batch.ranges) for batch in batches)
    node.lead(1)
    assert acked == [(7, [(1, 1)])]
    node.lead(0)
    assert node.stored() == []
    assert node.hear("r") == []


def test_who_has_only_begun_to_listen_has_heard_nothing_before(node):
    node.gateway.listen("_INBOX.NUID.>")
    assert node.gateway.replay_buffer.since(node.now) == node.now


def test_an_entry_of_before_this_node_listened_makes_it_miss_nothing_afterwards(node):
    other = Node()
    other.feed_client()
    other.feed_channel()
    other.lead()
    other.publish("foo", b"old")
    node.pass_time(2)
    node.gateway.listen("_INBOX.NUID.>")
    for group, kind, body in other.committed:
        if group == 1:
            node.feed(group, kind, body)
    node.publish("foo", b"new")
    node.lead()
    assert node.stored() == [b"old", b"new"]


def test_of_a_group_whose_messages_came_by_another_way_only_acks_are_looked_at_again(node):
    ack = wire.Ack(subject=b"foo", sequence=1).SerializeToString()
    close = node.request("_STAN.close.test-cluster", wire.CloseRequest(client_id=b"me"), "r")
    node.hears(pub_frame("foo", "a", b"a"), b"MSG _INBOX.NUID.1.7 2 %d\r\n%b\r\n" % (len(ack), ack), close)
    node.gateway.forget_replay(1)
    node.pass_time(0.1)
    node.hears(pub_frame("foo", "b", b"b"))
    acked = []
    node.broker.frames.step_acks = lambda batches: acked.extend((batch.key, batch.ranges) for batch in batches)
    node.lead(1)
    assert node.stored() == [b"b"]
    assert acked == [(7, [(1, 1)])]
    node.lead(0)
    assert len(node.hear("r")) == 1

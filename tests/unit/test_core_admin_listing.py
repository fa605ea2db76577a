"""What operators are shown by the core: channels, positions, clients; in pages, in versions, in bounded turns."""

import pytest

from stan import errors, limits
from stan.config import ClusterConfig, Config, StoreConfig
from stan.protocol.entries import Kind
from stan.protocol.frames import Frame
from stan.protocol.proto import admin_pb2 as pb
from stan.protocol.proto import entries_pb2 as entries
from stan.types import SECOND
from tests.kit.desk import Desk, Node

PREFIX = "_STAN.x.test-cluster.admin"
KINDS = {
    "channels": (pb.ChannelsRequest, pb.ChannelsResponse),
    "subscriptions": (pb.SubscriptionsRequest, pb.SubscriptionsResponse),
    "clients": (pb.ClientsRequest, pb.ClientsResponse),
}
NODE = Config(cluster=ClusterConfig(node_id="n1", peers=("n2", "n3")), store=StoreConfig(raft_groups=2))


def begin(desk, kind, payload=None, reply="answer", **asked):
    """Ask without waiting."""
    payload = KINDS[kind][0](**asked).SerializeToString() if payload is None else payload
    desk.broker.tick(desk.now, desk.wall)
    desk.broker.routes[f"{PREFIX}.{kind}"](Frame(20, f"{PREFIX}.{kind}".encode(), reply.encode(), b"", payload))
    desk.turn()


def answers(desk, kind, reply="answer"):
    return [KINDS[kind][1].FromString(said.payload) for said in desk.hear(reply)]


def ask(desk, kind, **asked):
    begin(desk, kind, **asked)
    desk.pass_time(0.001)
    heard = answers(desk, kind)
    assert len(heard) <= 1
    return heard[0] if heard else None


def channels(desk, **asked):
    return [channel.name.decode() for channel in ask(desk, "channels", **asked).channels]


def position(desk, **asked):
    (found,) = ask(desk, "subscriptions", **asked).cursors
    return found


@pytest.fixture
def desk():
    desk = Desk()
    desk.connect()
    desk.publish("foo", b"1", b"2")
    desk.pass_time(1)
    desk.publish("foo", b"3")
    desk.publish("foo.bar", b"1")
    desk.publish("baz", b"1")
    return desk


# --- channels -----------------------------------------------------------------------------------------------------------


def test_channel_is_told_with_its_messages_and_limits(desk) -> None:
    desk.subscribe("foo", "a")
    desk.subscribe("foo", "b", durable="d")
    desk.leave("foo", b"b")
    response = ask(desk, "channels", version=1, pattern=b"foo")
    assert (response.error, response.pool, list(response.groups), response.more) == (b"", 1, [1], False)
    (shown,) = response.channels
    index = desk.indexes[1, shown.uid]
    assert (shown.name, shown.group, shown.first_sequence, shown.last_sequence, shown.messages) == (b"foo", 1, 1, 3, 3)
    assert (shown.bytes, shown.first_timestamp, shown.last_timestamp) == (
        index.bytes,
        index.first_timestamp,
        index.last_timestamp,
    )
    assert (shown.subscriptions, shown.offline) == (1, 1)
    assert (shown.limits.max_msgs, shown.limits.max_subs, shown.limits.max_age) == (1_000_000, 1000, 0)
    assert shown.limits.HasField("max_inactivity")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (b"", ["baz", "foo", "foo.bar"]),
        (b">", ["baz", "foo", "foo.bar"]),
        (b"*", ["baz", "foo"]),
        (b"foo.>", ["foo.bar"]),
        (b"foo", ["foo"]),
        (b"nope", []),
    ],
)
def test_pattern_chooses_channels(desk, pattern, expected) -> None:
    assert channels(desk, pattern=pattern) == expected


def test_channels_come_in_pages_by_number(desk) -> None:
    first = ask(desk, "channels", max=2)
    assert ([channel.name for channel in first.channels], first.more) == ([b"baz", b"foo"], True)
    second = ask(desk, "channels", max=2, after=b"foo")
    assert ([channel.name for channel in second.channels], second.more) == ([b"foo.bar"], False)


def test_page_is_no_larger_than_what_nats_takes(desk) -> None:
    (shown,) = ask(desk, "channels", pattern=b"baz").channels
    desk.broker.context.payload_bytes_max = 8 * limits.RAFT_GROUPS_MAX + 64 + 2 * shown.ByteSize() + 20
    response = ask(desk, "channels")
    assert (len(response.channels), response.more) == (2, True)
    desk.broker.context.payload_bytes_max = 10
    response = ask(desk, "channels")
    assert (len(response.channels), response.more) == (1, True)  # else it would never go on


def test_empty_channel_and_one_that_is_gone(desk) -> None:
    desk.subscribe("empty")
    (shown,) = ask(desk, "channels", pattern=b"empty").channels
    assert (shown.first_sequence, shown.last_sequence, shown.messages) == (0, 0, 0)
    desk.broker.channels.delete(desk.broker.channels.by_name[b"baz"])
    desk.turn()
    assert channels(desk) == ["empty", "foo", "foo.bar"]


# --- positions ----------------------------------------------------------------------------------------------------------


def test_plain_subscription_with_what_is_pending(desk) -> None:
    desk.publish("foo", b"4", b"5")
    response = desk.subscribe("foo", "in", in_flight=3, wait=20)
    desk.received("in")
    desk.ack(response.ack_inbox, 2)
    shown = position(desk)
    assert (shown.channel, shown.kind, shown.client_id, shown.group) == (b"foo", pb.PLAIN, b"me", 1)
    assert (shown.last_sent, shown.acked_up_to, shown.pending, shown.owed, shown.waiting) == (4, 0, 3, 0, 1)
    assert (shown.first_sequence, shown.last_sequence) == (1, 5)
    assert list(shown.pending_runs) == [1, 1, 3, 4]
    assert shown.last_ack == desk.wall - 1_000_000  # one turn ago
    assert (shown.max_in_flight, shown.ack_wait_s, shown.inbox) == (3, 20, b"in")
    (member,) = shown.members
    assert (member.client_id, member.inbox) == (b"me", b"in")
    assert response.ack_inbox not in shown.SerializeToString()
    assert (member.pending, member.last_sent, member.stalled, member.failing) == (3, 4, True, False)
    assert 0 < shown.oldest_pending == member.oldest_pending <= desk.wall


def test_oldest_pending_is_when_it_was_sent_first(desk) -> None:
    sent = desk.wall
    desk.subscribe("baz", "in", wait=5)
    desk.pass_time(12)
    shown = position(desk)
    assert shown.redelivered == 2
    assert abs(shown.oldest_pending - sent) < SECOND


def test_durable_that_is_offline_keeps_what_is_owed(desk) -> None:
    response = desk.subscribe("foo", "in", durable="dur", in_flight=2)
    desk.publish("foo", b"4")
    desk.ack(response.ack_inbox, 1)
    desk.leave("foo", response.ack_inbox)
    shown = position(desk)
    assert (shown.kind, shown.durable_name, shown.client_id, len(shown.members)) == (pb.DURABLE, b"dur", b"me", 0)
    assert (shown.last_sent, shown.acked_up_to, shown.pending, shown.owed, shown.waiting) == (3, 1, 2, 2, 1)
    assert (list(shown.owed_runs), list(shown.pending_runs)) == ([2, 3], [])
    assert (shown.max_in_flight, shown.inbox, shown.oldest_pending) == (2, b"in", 0)


def test_queue_group_has_members_and_both_names(desk) -> None:
    desk.subscribe("foo", "a", queue="q", durable="d", in_flight=1)
    desk.subscribe("foo", "b", queue="q", durable="d", in_flight=1)
    shown = position(desk)
    assert (shown.kind, shown.durable_name, shown.queue_group) == (pb.DURABLE_QUEUE, b"d", b"q")
    assert [member.inbox for member in shown.members] == [b"a", b"b"]
    assert (shown.pending, list(shown.pending_runs), shown.waiting) == (2, [1, 2], 1)
    assert all(member.stalled for member in shown.members)


def test_positions_can_be_chosen(desk) -> None:
    desk.connect("you")
    desk.subscribe("foo", "1")
    desk.subscribe("foo", "2", durable="a:b")
    desk.subscribe("foo", "3", client_id="you", queue="q")
    desk.subscribe("baz", "4", client_id="you", queue="q", durable="d")
    desk.subscribe("baz", "5", client_id="you", durable="a:b")
    desk.leave("baz", b"5", client_id="you")

    def chosen(**asked):
        return [shown.inbox.decode() for shown in ask(desk, "subscriptions", **asked).cursors]

    assert chosen() == ["4", "5", "1", "2", "3"]
    assert chosen(pattern=b"foo") == ["1", "2", "3"]
    assert chosen(name=b"q") == ["4", "3"]
    assert chosen(name=b"d:q") == chosen(name=b"d") == ["4"]
    assert chosen(name=b"a:b") == ["5", "2"]
    assert chosen(client_id=b"you") == ["4", "5", "3"]
    assert chosen(durable_only=True) == ["4", "5", "2"]
    assert chosen(client_id=b"me", durable_only=True, pattern=b"*") == ["2"]


def test_positions_come_in_pages(desk) -> None:
    for number in range(5):
        desk.subscribe("foo", f"in.{number}")
    desk.subscribe("foo.bar", "last")
    found, after = [], (b"", 0)
    while True:
        response = ask(desk, "subscriptions", max=2, after_channel=after[0], after_cursor=after[1])
        found += [shown.inbox.decode() for shown in response.cursors]
        if not response.more:
            break
        assert len(response.cursors) == 2
        after = response.cursors[-1].channel, response.cursors[-1].cursor_id
    assert found == ["in.0", "in.1", "in.2", "in.3", "in.4", "last"]


def test_runs_that_do_not_fit_are_cut_and_said_to_be(desk, monkeypatch) -> None:
    response = desk.subscribe("foo", "in", in_flight=100)
    desk.publish("foo", *[b"x"] * 20)
    desk.ack(response.ack_inbox, *range(1, 23, 2))
    assert not position(desk).runs_cut
    monkeypatch.setattr(limits, "REPORT_RUNS_MAX", 3)
    shown = position(desk)
    assert (shown.runs_cut, list(shown.pending_runs)) == (True, [2, 2, 4, 4, 6, 6])
    monkeypatch.setattr(limits, "REPORT_RUNS_MAX", 1000)
    desk.broker.context.payload_bytes_max = 10
    shown = position(desk)
    assert (shown.runs_cut, list(shown.pending_runs), shown.pending) == (True, [], 12)


# --- clients ------------------------------------------------------------------------------------------------------------


def test_clients_by_id(desk) -> None:
    for name in ("b", "a", "c"):
        desk.connect(name)
    response = ask(desk, "clients", max=2)
    assert ([client.client_id for client in response.clients], response.more, response.total) == ([b"a", b"b"], True, 4)
    response = ask(desk, "clients", after=b"b")
    assert ([client.client_id for client in response.clients], response.more) == ([b"c", b"me"], False)
    (client,) = ask(desk, "clients", client_id=b"a").clients
    known = desk.broker.context.meta.clients[b"a"]
    assert client.heartbeat_inbox == known.heartbeat_inbox
    assert known.conn_id not in client.SerializeToString()
    assert (client.protocol, client.ping_interval_s, client.ping_max_out, client.failing) == (1, 5, 3, False)
    assert not ask(desk, "clients", client_id=b"nope").clients


# --- requests -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_garbage_and_unknown_versions_are_refused(desk, kind) -> None:
    assert ask(desk, kind, version=2).error.decode() == errors.UNKNOWN_VERSION
    assert ask(desk, kind, version=1).error == ask(desk, kind).error == b""
    begin(desk, kind, b"\xff")
    assert [answer.error.decode() for answer in answers(desk, kind)] == [errors.INVALID_ADMIN]
    begin(desk, kind, b"", reply="")
    assert not desk.hear("")


def test_impossible_patterns_are_refused(desk) -> None:
    for kind in ("channels", "subscriptions"):
        assert ask(desk, kind, pattern=b"a..b").error.decode() == errors.INVALID_ADMIN


def test_one_turn_looks_at_a_bounded_part(desk, monkeypatch) -> None:
    monkeypatch.setattr(limits, "REPORT_STEPS", 2)
    for number in range(3):
        begin(desk, "channels", reply=f"answer.{number}")
    assert not any(answers(desk, "channels", f"answer.{number}") for number in range(3))
    desk.pass_time(0.1)
    for number in range(3):
        (response,) = answers(desk, "channels", f"answer.{number}")
        assert [channel.name for channel in response.channels] == [b"baz", b"foo", b"foo.bar"]


def test_channel_that_goes_while_an_answer_is_made_is_left_out(desk, monkeypatch) -> None:
    monkeypatch.setattr(limits, "REPORT_STEPS", 2)
    begin(desk, "channels")
    desk.broker.channels.delete(desk.broker.channels.by_name[b"foo.bar"])
    desk.pass_time(0.1)
    (response,) = answers(desk, "channels")
    assert [channel.name for channel in response.channels] == [b"baz", b"foo"]


def test_as_many_answers_are_made_at_once_as_the_limit_lets(desk, monkeypatch) -> None:
    monkeypatch.setattr(limits, "REPORTS_MAX", 1)
    monkeypatch.setattr(limits, "REPORT_STEPS", 1)
    begin(desk, "channels", reply="a")
    begin(desk, "channels", reply="b")
    (busy,) = answers(desk, "channels", "b")
    assert (busy.error.decode(), busy.retry) == (errors.BUSY, True)
    desk.pass_time(0.1)
    assert len(answers(desk, "channels", "a")) == 1


# --- in a cluster -------------------------------------------------------------------------------------------------------


@pytest.fixture
def node():
    node = Node(config=NODE)
    node.feed_client()
    node.feed_channel("foo", 1)
    node.feed_channel("bar", 2)
    node.lead(1)
    return node


def test_leader_answers_for_its_groups_from_the_newest_metadata(node) -> None:
    begin(node, "channels")
    assert not answers(node, "channels")  # it asks first how far the metadata are
    node.feed_channel("new", 1)
    node.meta_says(len(node.logs[0]))
    node.pass_time(0.01)
    (response,) = answers(node, "channels")
    assert [channel.name for channel in response.channels] == [b"foo", b"new"]
    assert (response.pool, list(response.groups)) == (2, [1])


def test_without_a_leader_of_the_metadata_what_is_known_is_told(node) -> None:
    begin(node, "channels")
    node.pass_time(limits.REPORT_PATIENCE / SECOND - 0.1)
    assert not answers(node, "channels")
    node.pass_time(0.2)
    (response,) = answers(node, "channels")
    assert [channel.name for channel in response.channels] == [b"foo"]
    node.pass_time(10)
    assert not answers(node, "channels")


def test_followers_are_silent(node) -> None:
    begin(node, "clients")  # for the leader of the metadata
    node.follow(1)
    begin(node, "channels")
    begin(node, "subscriptions")
    node.pass_time(2)
    assert not node.hear("answer")


def test_who_may_be_replaced_says_ask_again(node) -> None:
    node.lead(0)
    node.broker.context.groups[1].dispatch.lease_lapsed = True
    node.broker.context.meta_lease = False
    for kind in KINDS:
        begin(node, kind)
        (response,) = answers(node, kind)
        assert (response.error.decode(), response.retry) == (errors.BUSY, True)


def test_leadership_that_ends_while_an_answer_is_made_says_ask_again(node) -> None:
    begin(node, "channels")
    node.follow(1)
    node.pass_time(limits.REPORT_PATIENCE / SECOND + 0.1)
    (response,) = answers(node, "channels")
    assert (response.error.decode(), response.retry) == (errors.BUSY, True)


def test_new_leader_tells_what_the_log_has(node) -> None:
    """Positions as the last leader told them: a member's pending messages are its window."""
    uid = node.broker.context.meta.channels[b"foo"].uid
    node.follow(1)
    client = node.broker.context.meta.clients[b"me"]
    made = entries.Subscribe(
        uid=uid, client_id=b"me", incarnation=client.incarnation, inbox=b"in", durable_name=b"d", max_in_flight=5
    )
    node.feed(1, Kind.CHANGE, entries.GroupChange(subscribe=made).SerializeToString())
    node.lead(1)
    begin(node, "subscriptions")
    node.pass_time(2)
    (response,) = answers(node, "subscriptions")
    (shown,) = response.cursors
    assert (shown.durable_name, shown.pending, len(shown.members)) == (b"d", 0, 1)

"""What operators are shown by the core: channels, positions, clients; in pages, in versions, in bounded turns."""

import pytest
from stan_protocol import refusals
from stan_protocol.frames import Frame
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import ClusterConfig, Config, StoreConfig
from stan.protocol.part_status import unacked_for
from stan.protocol.proto import entries_pb2 as entries
from tests.kit.core_harness import Node, harness_with_channels

PREFIX = "_STAN.x.test-cluster.admin"
KINDS = {
    "channels": (pb.ChannelsRequest, pb.ChannelsResponse),
    "subscriptions": (pb.SubscriptionsRequest, pb.SubscriptionsResponse),
    "clients": (pb.ClientsRequest, pb.ClientsResponse),
}
NODE = Config(cluster=ClusterConfig(node_id="n1", peers=("n2", "n3")), store=StoreConfig(raft_groups=2))


def begin(harness, kind, payload=None, reply="answer", **asked):
    """Ask without waiting."""
    payload = KINDS[kind][0](**asked).SerializeToString() if payload is None else payload
    harness.broker.tick(harness.now, harness.wall)
    harness.broker.frames.routes[f"{PREFIX}.{kind}"](
        Frame(20, f"{PREFIX}.{kind}".encode(), reply.encode(), b"", payload)
    )
    harness.turn()


def answers(harness, kind, reply="answer"):
    return [KINDS[kind][1].FromString(said.payload) for said in harness.hear(reply)]


def ask(harness, kind, **asked):
    begin(harness, kind, **asked)
    harness.pass_time(0.001)
    heard = answers(harness, kind)
    assert len(heard) <= 1
    return heard[0] if heard else None


def channels(harness, **asked):
    return [channel.name.decode() for channel in ask(harness, "channels", **asked).channels]


def position(harness, **asked):
    (found,) = ask(harness, "subscriptions", **asked).cursors
    return found


@pytest.fixture
def harness():
    return harness_with_channels()


# --- channels -----------------------------------------------------------------------------------------------------------


def test_channel_is_told_with_its_messages_and_limits(harness) -> None:
    harness.subscribe("foo", "a")
    harness.subscribe("foo", "b", durable="d")
    harness.leave("foo", b"b")
    response = ask(harness, "channels", version=1, pattern=b"foo")
    assert (response.error, response.pool, list(response.groups), response.more) == (b"", 1, [1], False)
    (shown,) = response.channels
    index = harness.indexes[1, shown.uid]
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
def test_pattern_chooses_channels(harness, pattern, expected) -> None:
    assert channels(harness, pattern=pattern) == expected


def test_channels_come_in_pages_by_number(harness) -> None:
    first = ask(harness, "channels", max=2)
    assert ([channel.name for channel in first.channels], first.more) == ([b"baz", b"foo"], True)
    second = ask(harness, "channels", max=2, after=b"foo")
    assert ([channel.name for channel in second.channels], second.more) == ([b"foo.bar"], False)


def test_page_is_no_larger_than_what_nats_takes(harness) -> None:
    (shown,) = ask(harness, "channels", pattern=b"baz").channels
    harness.broker.step_payload_limit(8 * limits.RAFT_GROUPS_MAX + 64 + 2 * shown.ByteSize() + 20)
    response = ask(harness, "channels")
    assert (len(response.channels), response.more) == (2, True)
    harness.broker.step_payload_limit(10)
    response = ask(harness, "channels")
    assert (len(response.channels), response.more) == (1, True)  # else it would never go on


def test_empty_channel_and_one_that_is_gone(harness) -> None:
    harness.subscribe("empty")
    (shown,) = ask(harness, "channels", pattern=b"empty").channels
    assert (shown.first_sequence, shown.last_sequence, shown.messages) == (0, 0, 0)
    harness.broker.parts.channels.removal.delete(harness.broker.parts.channels.by_name[b"baz"])
    harness.turn()
    assert channels(harness) == ["empty", "foo", "foo.bar"]


# --- positions ----------------------------------------------------------------------------------------------------------


def test_plain_subscription_with_what_is_pending(harness) -> None:
    harness.publish("foo", b"4", b"5")
    response = harness.subscribe("foo", "in", in_flight=3, wait=20)
    harness.received("in")
    harness.ack(response.ack_inbox, 2)
    shown = position(harness)
    assert (shown.channel, shown.kind, shown.client_id, shown.group) == (b"foo", pb.PLAIN, b"me", 1)
    assert (shown.last_sent, shown.acked_up_to, shown.pending, shown.owed, shown.waiting) == (4, 0, 3, 0, 1)
    assert (shown.first_sequence, shown.last_sequence) == (1, 5)
    assert list(shown.pending_runs) == [1, 1, 3, 4]
    assert shown.last_ack == harness.wall - 1_000_000  # one turn ago
    assert (shown.max_in_flight, shown.ack_wait_s, shown.inbox) == (3, 20, b"in")
    (member,) = shown.members
    assert (member.client_id, member.inbox) == (b"me", b"in")
    assert response.ack_inbox not in shown.SerializeToString()
    assert (member.pending, member.last_sent, member.stalled, member.failing) == (3, 4, True, False)
    assert 0 < shown.oldest_pending == member.oldest_pending <= harness.wall


def test_oldest_pending_is_when_it_was_sent_first(harness) -> None:
    sent = harness.wall
    harness.subscribe("baz", "in", wait=5)
    harness.pass_time(12)
    shown = position(harness)
    assert shown.redelivered == 2
    assert abs(shown.oldest_pending - sent) < SECOND


def test_the_last_ack_and_how_long_none_came_outlive_the_leader(harness) -> None:
    inbox = harness.subscribe("foo", "in", durable="d", in_flight=2, wait=30).ack_inbox
    harness.pass_time(1)
    harness.ack(inbox, 1)
    acked_at = harness.wall
    harness.pass_time(100)
    before = position(harness)
    harness.restart()
    harness.pass_time(1)
    after = position(harness)
    for told in (before, after):
        assert abs(told.last_ack - acked_at) <= SECOND
        assert unacked_for(told, harness.wall) > 99 * SECOND
    harness.ack(inbox, 2)
    harness.pass_time(1)
    assert unacked_for(position(harness), harness.wall) == 0


def test_no_ack_counts_from_when_a_durable_came_back(harness) -> None:
    inbox = harness.subscribe("foo", "in", durable="d", wait=30).ack_inbox
    harness.pass_time(1)
    harness.leave("foo", inbox)
    harness.pass_time(1000)
    harness.subscribe("foo", "in", durable="d", wait=30)
    harness.pass_time(1)
    assert unacked_for(position(harness), harness.wall) == 0


def test_durable_that_is_offline_keeps_what_is_owed(harness) -> None:
    response = harness.subscribe("foo", "in", durable="dur", in_flight=2)
    harness.publish("foo", b"4")
    harness.ack(response.ack_inbox, 1)
    harness.leave("foo", response.ack_inbox)
    shown = position(harness)
    assert (shown.kind, shown.durable_name, shown.client_id, len(shown.members)) == (pb.DURABLE, b"dur", b"me", 0)
    assert (shown.last_sent, shown.acked_up_to, shown.pending, shown.owed, shown.waiting) == (3, 1, 2, 2, 1)
    assert (list(shown.owed_runs), list(shown.pending_runs)) == ([2, 3], [])
    assert (shown.max_in_flight, shown.inbox, shown.oldest_pending) == (2, b"in", 0)


def test_queue_group_has_members_and_both_names(harness) -> None:
    harness.subscribe("foo", "a", queue="q", durable="d", in_flight=1)
    harness.subscribe("foo", "b", queue="q", durable="d", in_flight=1)
    shown = position(harness)
    assert (shown.kind, shown.durable_name, shown.queue_group) == (pb.DURABLE_QUEUE, b"d", b"q")
    assert [member.inbox for member in shown.members] == [b"a", b"b"]
    assert (shown.pending, list(shown.pending_runs), shown.waiting) == (2, [1, 2], 1)
    assert all(member.stalled for member in shown.members)


def test_positions_can_be_chosen(harness) -> None:
    harness.connect("you")
    harness.subscribe("foo", "1")
    harness.subscribe("foo", "2", durable="a:b")
    harness.subscribe("foo", "3", client_id="you", queue="q")
    harness.subscribe("baz", "4", client_id="you", queue="q", durable="d")
    harness.subscribe("baz", "5", client_id="you", durable="a:b")
    harness.leave("baz", b"5", client_id="you")

    def chosen(**asked):
        return [shown.inbox.decode() for shown in ask(harness, "subscriptions", **asked).cursors]

    assert chosen() == ["4", "5", "1", "2", "3"]
    assert chosen(pattern=b"foo") == ["1", "2", "3"]
    assert chosen(name=b"q") == ["4", "3"]
    assert chosen(name=b"d:q") == chosen(name=b"d") == ["4"]
    assert chosen(name=b"a:b") == ["5", "2"]
    assert chosen(client_id=b"you") == ["4", "5", "3"]
    assert chosen(durable_only=True) == ["4", "5", "2"]
    assert chosen(client_id=b"me", durable_only=True, pattern=b"*") == ["2"]


def test_positions_come_in_pages(harness) -> None:
    for number in range(5):
        harness.subscribe("foo", f"in.{number}")
    harness.subscribe("foo.bar", "last")
    found, after = [], (b"", 0)
    while True:
        response = ask(harness, "subscriptions", max=2, after_channel=after[0], after_cursor=after[1])
        found += [shown.inbox.decode() for shown in response.cursors]
        if not response.more:
            break
        assert len(response.cursors) == 2
        after = response.cursors[-1].channel, response.cursors[-1].cursor_id
    assert found == ["in.0", "in.1", "in.2", "in.3", "in.4", "last"]


def test_runs_that_do_not_fit_are_cut_and_said_to_be(harness, monkeypatch) -> None:
    response = harness.subscribe("foo", "in", in_flight=100)
    harness.publish("foo", *[b"x"] * 20)
    harness.ack(response.ack_inbox, *range(1, 23, 2))
    assert not position(harness).runs_cut
    monkeypatch.setattr(limits, "REPORT_RUNS_MAX", 3)
    shown = position(harness)
    assert (shown.runs_cut, list(shown.pending_runs)) == (True, [2, 2, 4, 4, 6, 6])
    monkeypatch.setattr(limits, "REPORT_RUNS_MAX", 1000)
    harness.broker.step_payload_limit(10)
    shown = position(harness)
    assert (shown.runs_cut, list(shown.pending_runs), shown.pending) == (True, [], 12)


# --- clients ------------------------------------------------------------------------------------------------------------


def test_clients_by_id(harness) -> None:
    for name in ("b", "a", "c"):
        harness.connect(name)
    response = ask(harness, "clients", max=2)
    assert ([client.client_id for client in response.clients], response.more, response.total) == ([b"a", b"b"], True, 4)
    response = ask(harness, "clients", after=b"b")
    assert ([client.client_id for client in response.clients], response.more) == ([b"c", b"me"], False)
    (client,) = ask(harness, "clients", client_id=b"a").clients
    known = harness.state.clients[b"a"]
    assert client.heartbeat_inbox == known.heartbeat_inbox
    assert known.conn_id not in client.SerializeToString()
    assert (client.protocol, client.ping_interval_s, client.ping_max_out, client.failing) == (1, 5, 3, False)
    assert not ask(harness, "clients", client_id=b"nope").clients


# --- requests -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_garbage_and_unknown_versions_are_refused(harness, kind) -> None:
    assert ask(harness, kind, version=2).error.decode() == refusals.UNKNOWN_VERSION
    assert ask(harness, kind, version=1).error == ask(harness, kind).error == b""
    begin(harness, kind, b"\xff")
    assert [answer.error.decode() for answer in answers(harness, kind)] == [refusals.INVALID_ADMIN]
    begin(harness, kind, b"", reply="")
    assert not harness.hear("")


def test_impossible_patterns_are_refused(harness) -> None:
    for kind in ("channels", "subscriptions"):
        assert ask(harness, kind, pattern=b"a..b").error.decode() == refusals.INVALID_ADMIN


def test_one_turn_looks_at_a_bounded_part(harness, monkeypatch) -> None:
    monkeypatch.setattr(limits, "REPORT_STEPS", 2)
    for number in range(3):
        begin(harness, "channels", reply=f"answer.{number}")
    assert not any(answers(harness, "channels", f"answer.{number}") for number in range(3))
    harness.pass_time(0.1)
    for number in range(3):
        (response,) = answers(harness, "channels", f"answer.{number}")
        assert [channel.name for channel in response.channels] == [b"baz", b"foo", b"foo.bar"]


def test_channel_that_goes_while_an_answer_is_made_is_left_out(harness, monkeypatch) -> None:
    monkeypatch.setattr(limits, "REPORT_STEPS", 2)
    begin(harness, "channels")
    harness.broker.parts.channels.removal.delete(harness.broker.parts.channels.by_name[b"foo.bar"])
    harness.pass_time(0.1)
    (response,) = answers(harness, "channels")
    assert [channel.name for channel in response.channels] == [b"baz", b"foo"]


def test_as_many_answers_are_made_at_once_as_the_limit_lets(harness, monkeypatch) -> None:
    monkeypatch.setattr(limits, "REPORTS_MAX", 1)
    monkeypatch.setattr(limits, "REPORT_STEPS", 1)
    begin(harness, "channels", reply="a")
    begin(harness, "channels", reply="b")
    (busy,) = answers(harness, "channels", "b")
    assert (busy.error.decode(), busy.retry) == (refusals.BUSY, True)
    harness.pass_time(0.1)
    assert len(answers(harness, "channels", "a")) == 1


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
    node.broker.stops.step_lease(1, holds=False)
    node.broker.stops.step_lease(0, holds=False)
    for kind in KINDS:
        begin(node, kind)
        (response,) = answers(node, kind)
        assert (response.error.decode(), response.retry) == (refusals.BUSY, True)


def test_leadership_that_ends_while_an_answer_is_made_says_ask_again(node) -> None:
    begin(node, "channels")
    node.follow(1)
    node.pass_time(limits.REPORT_PATIENCE / SECOND + 0.1)
    (response,) = answers(node, "channels")
    assert (response.error.decode(), response.retry) == (refusals.BUSY, True)


def test_new_leader_tells_what_the_log_has(node) -> None:
    """Positions as the last leader told them: a member's pending messages are its window."""
    uid = node.state.channels[b"foo"].uid
    node.follow(1)
    client = node.state.clients[b"me"]
    made = entries.Subscribe(
        uid=uid, client_id=b"me", incarnation=client.incarnation, inbox=b"in", durable_name=b"d", max_in_flight=5
    )
    node.feed_group(subscribe=made)
    node.lead(1)
    begin(node, "subscriptions")
    node.pass_time(2)
    (response,) = answers(node, "subscriptions")
    (shown,) = response.cursors
    assert (shown.durable_name, shown.pending, len(shown.members)) == (b"d", 0, 1)

"""Questions about channels at the core: what is there, who waits for more, the place of a time, named positions."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stan_protocol import refusals
from stan_protocol.frames import Frame
from stan_protocol.patterns import matches, valid_name
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as pb
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import ClusterConfig, Config, StoreConfig
from stan.core.requests.channel_lookup import matcher
from stan.core.state.bookmarks import Bookmarks, NotedPlace
from stan.protocol.proto import entries_pb2 as entries
from tests.kit.core_harness import CoreHarness, Node, harness_with_channels
from tests.unit.core.test_transactions import Transacting, held_commit, let_go, one_entry, parts

PREFIX = "_STAN.x.test-cluster"
KINDS = {
    "info": (pb.InfoRequest, pb.InfoResponse),
    "seq_at_time": (pb.SeqAtTimeRequest, pb.SeqAtTimeResponse),
    "cursor_set": (pb.CursorSetRequest, pb.CursorSetResponse),
    "cursors": (pb.CursorsRequest, pb.CursorsResponse),
}


def begin(harness, kind, reply="answer", **asked):
    """Ask without waiting."""
    payload = KINDS[kind][0](**asked).SerializeToString()
    frame = Frame(20, f"{PREFIX}.{kind}".encode(), reply.encode(), b"", payload)
    harness.broker.tick(harness.now, harness.wall)
    harness.broker.frames.routes[f"{PREFIX}.{kind}"](frame)
    harness.turn()


def answers(harness, kind, reply="answer"):
    return [KINDS[kind][1].FromString(said.payload) for said in harness.hear(reply)]


def ask(harness, kind, **asked):
    begin(harness, kind, **asked)
    heard = answers(harness, kind)
    assert len(heard) <= 1
    return heard[0] if heard else None


def names(response):
    return [info.name.decode() for info in response.channels]


@pytest.fixture
def harness():
    return harness_with_channels()


def test_channel_is_told_as_its_index_has_it(harness) -> None:
    response = ask(harness, "info", channels=[b"foo", b"nope"])
    assert (response.error, response.pool, list(response.groups), response.more) == (b"", 1, [1], False)
    (info,) = response.channels
    index = harness.indexes[1, info.uid]
    assert (info.name, info.first_sequence, info.last_sequence, info.group) == (b"foo", 1, 3, 1)
    assert info.bytes == index.bytes > 0
    assert (info.first_timestamp, info.last_timestamp) == (index.first_timestamp, index.last_timestamp)
    assert info.last_timestamp - info.first_timestamp >= SECOND


def test_timestamp_of_a_position_is_that_of_the_newest_message_up_to_it(harness) -> None:
    def at(sequence):
        positions = [pb.Position(channel=b"foo", sequence=sequence)]
        (info,) = ask(harness, "info", channels=[b"foo"], newer_than=positions).channels
        return info.timestamp_at, info

    times = [at(sequence)[0] for sequence in range(5)]
    info = at(0)[1]
    assert times[0] == 0
    assert times[1] == info.first_timestamp < times[3] == times[4] == info.last_timestamp
    (without,) = ask(harness, "info", channels=[b"foo"]).channels
    assert without.timestamp_at == 0


def test_position_in_a_channel_that_has_lost_its_end_is_refused(harness) -> None:
    (info,) = ask(harness, "info", channels=[b"foo"]).channels
    place = {"name": b"n", "channel": b"foo"}
    for sequence, read, refused in (
        (4, info.last_timestamp, False),
        (4, info.last_timestamp - 1, True),
        (2, info.last_timestamp - 1, False),
        (5, info.last_timestamp, True),
        (5, 0, False),
    ):
        answer = ask(harness, "cursor_set", **place, sequence=sequence, read_timestamp=read)
        assert answer.error == (refusals.UNKNOWN_CHANNEL.encode() if refused else b""), (sequence, read)


def test_cluster_is_the_same_behind_a_restart_and_another_one_behind_a_rescue(harness) -> None:
    def cluster():
        return ask(harness, "info").cluster

    first = cluster()
    harness.restart()
    assert first == cluster() != b""
    harness.broker.cluster.step_epoch(7)
    rescued = cluster()
    assert rescued not in (first, b"")
    place = {"name": b"n", "channel": b"foo", "sequence": 2}
    assert ask(harness, "cursor_set", **place, cluster=rescued).error == b""
    assert ask(harness, "cursor_set", **place, cluster=first).error == refusals.UNKNOWN_CHANNEL.encode()


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (b">", ["baz", "foo", "foo.bar"]),
        (b"*", ["baz", "foo"]),
        (b"foo.*", ["foo.bar"]),
        (b"foo.>", ["foo.bar"]),
        (b"*.bar", ["foo.bar"]),
        (b"fo", []),
        (b"foo", ["foo"]),
        (b"*.*.*", []),
    ],
)
def test_pattern_covers_tokens_as_of_nats(harness, pattern, expected) -> None:
    assert names(ask(harness, "info", pattern=pattern)) == expected
    assert names(ask(harness, "info", pattern=pattern, channels=[b"baz"])) == sorted({*expected, "baz"})


@pytest.mark.parametrize("pattern", [b"a..b", b">.a", b"a*", b"."])
def test_what_is_no_pattern_is_refused(harness, pattern) -> None:
    response = ask(harness, "info", pattern=pattern)
    assert (response.error.decode(), response.retry) == (refusals.INVALID_QUERY, False)


def test_channels_come_in_pages(harness, monkeypatch) -> None:
    monkeypatch.setattr(limits, "INFO_CHANNELS_MAX", 2)
    first = ask(harness, "info", pattern=b">")
    assert (names(first), first.more) == (["baz", "foo"], True)
    second = ask(harness, "info", pattern=b">", after=b"foo")
    assert (names(second), second.more) == (["foo.bar"], False)
    assert names(ask(harness, "info", channels=[b"foo.bar", b"baz"], after=b"baz")) == ["foo.bar"]


def test_page_is_no_larger_than_what_nats_takes(harness) -> None:
    harness.broker.step_payload_limit(9000)
    for number in range(40):
        harness.publish(f"c{number:03}" + "x" * 200, b"1")
    first = ask(harness, "info", pattern=b">")
    assert first.more
    assert first.ByteSize() <= 9000


def test_new_channels_are_in_the_next_answer(harness) -> None:
    ask(harness, "info", pattern=b">")
    harness.publish("later", b"1")
    assert "later" in names(ask(harness, "info", pattern=b">"))


def test_dropped_channel_is_not_told(harness) -> None:
    channel = harness.broker.parts.channels.by_name[b"baz"]
    harness.broker.parts.channels.removal.delete(channel)
    harness.turn()
    assert ask(harness, "info", channels=[b"baz"]).channels == []


def test_garbage_is_refused(harness) -> None:
    for kind, (_, response) in KINDS.items():
        frame = Frame(20, b"s", b"answer", b"", b"\xff")
        harness.broker.frames.routes[f"{PREFIX}.{kind}"](frame)
        harness.turn()
        (said,) = harness.hear("answer")
        assert response.FromString(said.payload).error.decode() == refusals.INVALID_QUERY


# --- waiting ----------------------------------------------------------------------------------------------------------


def wait(harness, reply="answer", wait_ms=10_000, **positions):
    newer = [pb.Position(channel=name.encode(), sequence=at) for name, at in positions.items()]
    channels = [name.encode() for name in positions]
    begin(harness, "info", reply, channels=channels, newer_than=newer, wait_ms=wait_ms)
    return answers(harness, "info", reply)


def test_wait_ends_with_a_newer_message_of_the_channel(harness) -> None:
    assert wait(harness, foo=3) == []
    harness.publish("baz", b"2")
    assert answers(harness, "info") == []
    harness.publish("foo", b"4")
    (response,) = answers(harness, "info")
    assert response.channels[0].last_sequence == 4
    harness.publish("foo", b"5")
    assert answers(harness, "info") == []
    assert not harness.state.waiting().long_polls


def test_commit_that_is_not_whole_is_no_news() -> None:
    harness = Transacting()
    harness.connect()
    harness.publish("foo", b"1", b"2", b"3")
    parts(harness, 12)
    assert wait(harness, foo=3) == []
    held_commit(harness, (b"t", 12))
    one_entry(harness)
    assert harness.transactions.under_way
    assert answers(harness, "info") == []
    let_go(harness)
    assert answers(harness, "info")[0].channels[0].last_sequence == 15


def test_what_is_newer_already_is_told_at_once(harness) -> None:
    assert len(wait(harness, foo=2)) == 1
    assert len(wait(harness, foo=3, baz=0)) == 1
    assert len(wait(harness, foo=3, wait_ms=0)) == 1


def test_wait_ends_when_its_time_is_over(harness) -> None:
    assert wait(harness, foo=3, wait_ms=2000) == []
    harness.pass_time(1.9)
    assert answers(harness, "info") == []
    harness.pass_time(0.2)
    (response,) = answers(harness, "info")
    assert response.channels[0].last_sequence == 3
    assert not harness.state.waiting().long_polls


def test_no_wait_is_longer_than_the_limit(harness) -> None:
    assert wait(harness, foo=3, wait_ms=1 << 31) == []
    harness.pass_time(limits.INFO_WAIT_MAX / SECOND + 0.1)
    assert len(answers(harness, "info")) == 1


def test_channel_may_be_waited_for_before_it_exists(harness) -> None:
    assert wait(harness, later=0) == []
    harness.publish("later", b"1")
    (response,) = answers(harness, "info")
    assert (names(response), response.channels[0].last_sequence) == (["later"], 1)


def test_wait_ends_with_the_channel(harness) -> None:
    assert wait(harness, foo=3) == []
    harness.broker.parts.channels.removal.delete(harness.broker.parts.channels.by_name[b"foo"])
    harness.turn()
    (response,) = answers(harness, "info")
    assert names(response) == []
    assert not harness.state.waiting().long_polls


def test_all_who_wait_are_answered_each_once(harness) -> None:
    for number in range(5):
        assert wait(harness, f"answer.{number}", foo=3, baz=1) == []
    harness.publish("baz", b"2")
    assert [len(answers(harness, "info", f"answer.{number}")) for number in range(5)] == [1] * 5
    harness.publish("foo", b"4")
    harness.pass_time(20)
    assert [len(answers(harness, "info", f"answer.{number}")) for number in range(5)] == [0] * 5


def test_as_many_may_wait_as_the_limit_lets(harness, monkeypatch) -> None:
    monkeypatch.setattr(limits, "WATCHED_MAX", 3)
    assert wait(harness, "a", foo=3, baz=1) == []
    (response,) = wait(harness, "b", foo=3, baz=1)
    assert (response.error.decode(), response.retry) == (refusals.BUSY, True)
    harness.publish("foo", b"4")
    assert len(answers(harness, "info", "a")) == 1
    assert wait(harness, "b", foo=4, baz=1) == []


# --- the place of a time ------------------------------------------------------------------------------------------------


def test_sequence_at_a_time(harness) -> None:
    info = ask(harness, "info", channels=[b"foo"]).channels[0]
    for time, expected in [
        (0, 1),
        (info.first_timestamp, 1),
        (info.first_timestamp + 1, 3),
        (info.last_timestamp, 3),
        (info.last_timestamp + 1, 4),
    ]:
        response = ask(harness, "seq_at_time", channel=b"foo", time=time)
        assert (response.error, response.uid, response.sequence) == (b"", info.uid, expected)


def test_sequence_at_a_time_in_an_empty_channel(harness) -> None:
    harness.subscribe("empty")
    assert ask(harness, "seq_at_time", channel=b"empty", time=0).sequence == 1


def test_unknown_channel_is_refused(harness) -> None:
    for kind in ("seq_at_time", "cursor_set"):
        response = ask(harness, kind, channel=b"nope")
        assert (response.error.decode(), response.retry) == (refusals.UNKNOWN_CHANNEL, False)


# --- named positions ----------------------------------------------------------------------------------------------------


def cursors(harness, **asked):
    response = ask(harness, "cursors", **asked)
    assert response.error == b""
    return [(c.name.decode(), c.channel.decode(), c.sequence, c.last_sequence) for c in response.cursors]


def note(harness, name, channel, sequence):
    response = ask(harness, "cursor_set", name=name.encode(), channel=channel.encode(), sequence=sequence)
    return response.error.decode()


def test_positions_are_noted_replaced_and_forgotten(harness) -> None:
    assert note(harness, "b", "foo", 2) == note(harness, "a", "foo", 3) == note(harness, "b", "baz", 1) == ""
    assert cursors(harness) == [("a", "foo", 3, 3), ("b", "baz", 1, 1), ("b", "foo", 2, 3)]
    assert cursors(harness, name=b"b") == [("b", "baz", 1, 1), ("b", "foo", 2, 3)]
    assert note(harness, "b", "foo", 4) == note(harness, "a", "foo", 0) == note(harness, "x", "foo", 0) == ""
    assert cursors(harness) == [("b", "baz", 1, 1), ("b", "foo", 4, 3)]


def test_positions_come_in_pages(harness) -> None:
    for channel in ("foo", "baz", "foo.bar"):
        note(harness, "n", channel, 1)
    harness.broker.step_payload_limit(8 * limits.RAFT_GROUPS_MAX + 64 + 50)
    response = ask(harness, "cursors")
    assert response.more
    assert [cursor.channel for cursor in response.cursors] == [b"baz", b"foo"]
    response = ask(harness, "cursors", after_name=b"n", after_channel=b"foo")
    assert not response.more
    assert [cursor.channel for cursor in response.cursors] == [b"foo.bar"]


def test_positions_outlive_the_process_and_go_with_the_channel(harness) -> None:
    note(harness, "n", "foo", 2)
    note(harness, "n", "baz", 2)
    harness.restart()
    assert [channel for _, channel, *_ in cursors(harness)] == ["baz", "foo"]
    harness.broker.parts.channels.removal.delete(harness.broker.parts.channels.by_name[b"foo"])
    harness.turn()
    assert [channel for _, channel, *_ in cursors(harness)] == ["baz"]


@pytest.mark.parametrize("name", ["", "x" * (limits.BOOKMARK_NAME_BYTES_MAX + 1)])
def test_impossible_names_are_refused(harness, name) -> None:
    assert note(harness, name, "foo", 2) == refusals.INVALID_BOOKMARK


def test_there_are_as_many_positions_as_the_limit_lets(harness, monkeypatch) -> None:
    monkeypatch.setattr(limits, "BOOKMARKS_MAX", 2)
    assert note(harness, "a", "foo", 1) == note(harness, "b", "foo", 1) == ""
    assert note(harness, "c", "foo", 1) == refusals.TOO_MANY_BOOKMARKS
    assert note(harness, "a", "foo", 2) == note(harness, "b", "foo", 0) == ""
    assert note(harness, "c", "foo", 1) == ""


def test_full_disk_passes(harness) -> None:
    harness.full = True
    response = ask(harness, "cursor_set", name=b"a", channel=b"foo", sequence=1)
    assert (bool(response.error), response.retry) == (True, True)


def test_rows_of_bookmarks_are_their_state() -> None:
    one, other = Bookmarks(), Bookmarks()
    for uid, name, sequence in [(1, b"a", 5), (2, b"a", 1 << 40), (1, b"", 7), (2, b"a", 0), (1, b"a", 6)]:
        one.apply("bookmark", entries.Bookmark(uid=uid, name=name, sequence=sequence), 1)
    assert {key: one.row(key) for key in one.dirty} == {key: one.row(key) for key in {*one.keys(), *one.dirty}}
    assert sum(one.row(key) is None for key in one.dirty) == 1
    for key in sorted(one.keys()):
        other.load(key, one.row(key))
    expected = {1: {b"a": NotedPlace(6), b"": NotedPlace(7)}}
    assert (other.by_channel, other.shares.used) == (one.by_channel, one.shares.used) == (expected, 2)
    one.dirty.clear()
    one.drop_channel(1)
    assert (one.by_channel, one.shares.used, len(one.dirty)) == ({}, 0, 2)


# --- in a cluster -------------------------------------------------------------------------------------------------------

TWO_GROUPS = Config(cluster=ClusterConfig(node_id="n1", peers=("n2", "n3")), store=StoreConfig(raft_groups=2))


@pytest.fixture
def node():
    node = Node(TWO_GROUPS)
    node.feed_client()
    node.feed_channel("one", 1)
    node.feed_channel("two", 2)
    return node


def test_node_that_leads_nothing_is_silent(node) -> None:
    assert ask(node, "info", pattern=b">") is None
    assert ask(node, "cursors") is None
    assert ask(node, "seq_at_time", channel=b"one") is None


def test_leader_answers_for_its_groups(node) -> None:
    node.lead(1)
    node.publish("one", b"1")
    response = ask(node, "info", channels=[b"one", b"two"])
    assert (names(response), response.pool, list(response.groups)) == (["one"], 2, [1])
    node.lead(2)
    assert list(ask(node, "info", channels=[b"one", b"two"]).groups) == [1, 2]


def test_pattern_waits_for_the_metadata(node) -> None:
    node.lead(1)
    begin(node, "info", pattern=b">")
    assert answers(node, "info") == []
    node.feed_channel("three", 1)
    assert node.meta_says(len(node.logs[0]))
    (response,) = answers(node, "info")
    assert names(response) == ["one", "three"]


def test_metadata_that_cannot_be_had_is_no_answer(node) -> None:
    node.lead(1)
    begin(node, "info", pattern=b">")
    node.pass_time(limits.CATCHUP_PATIENCE / SECOND + 1)
    (response,) = answers(node, "info")
    assert (response.error.decode(), response.retry) == (refusals.BUSY, True)


def test_leader_without_a_lease_says_nothing_about_channels(node) -> None:
    node.lead(1)
    node.broker.stops.step_lease(1, holds=False)
    for kind, asked in [("info", {"channels": [b"one"]}), ("cursors", {}), ("seq_at_time", {"channel": b"one"})]:
        response = ask(node, kind, **asked)
        assert (response.error.decode(), response.retry) == (refusals.BUSY, True)


def test_leader_that_loses_its_lease_while_it_waits_for_the_metadata_says_so(node) -> None:
    node.lead(1)
    begin(node, "seq_at_time", channel=b"three")
    node.broker.stops.step_lease(1, holds=False)
    node.meta_says(len(node.logs[0]))
    (response,) = answers(node, "seq_at_time")
    assert (response.error.decode(), response.retry) == (refusals.BUSY, True)


def test_channel_that_its_group_has_dropped_is_gone_although_it_is_registered(node) -> None:
    node.lead(1)
    uid = node.state.channels[b"one"].uid
    node.feed_group(drop_channel=entries.DropChannel(uid=uid))
    assert names(ask(node, "info", channels=[b"one"])) == []
    assert ask(node, "seq_at_time", channel=b"one").error.decode() == refusals.UNKNOWN_CHANNEL


def test_who_waits_is_sent_to_the_next_leader(node) -> None:
    node.lead(1, 2)
    assert wait(node, one=0) == []
    node.follow(2)
    assert answers(node, "info") == []
    node.follow(1)
    (response,) = answers(node, "info")
    assert (response.error.decode(), response.retry) == (refusals.BUSY, True)


def test_leader_of_nothing_that_is_watched_answers_at_once(node) -> None:
    node.lead(2)
    (response,) = wait(node, one=0)
    assert (names(response), list(response.groups)) == ([], [2])


def test_news_are_not_told_without_a_lease(node) -> None:
    node.lead(1)
    assert wait(node, one=0) == []
    node.broker.stops.step_lease(1, holds=False)
    node.publish("one", b"1")
    assert answers(node, "info") == []
    node.broker.stops.step_lease(1, holds=True)
    node.turn()
    assert answers(node, "info")[0].channels[0].last_sequence == 1


def steps_of(call):
    """How many lines of Python a call takes."""
    count, before = 0, sys.gettrace()

    def step(_frame, _event, _arg):
        nonlocal count
        count += 1
        return step

    sys.settrace(step)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("pattern", [b"*." * 2000 + b">", b"*." * 2000 + b"*", b"*.a." * 1000 + b">", b">"])
def test_hostile_patterns_take_a_step_for_each_token_of_a_name_at_most(pattern):
    """There is nothing to try twice, and nothing that is made of the pattern for long."""
    for name in (b"a." * 2000 + b"a", b"b." * 2000 + b"a", b"a." * 1999 + b"a", b"a" * 4096, b"a." * 2040):
        assert steps_of(lambda name=name: matcher(pattern)(name)) < 20 * (pattern.count(b".") + name.count(b".") + 10)


@given(st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=4), st.booleans(), st.text("ab.", max_size=8))
def test_matcher_and_patterns_say_the_same(tokens, rest, name):
    pattern = ".".join([*tokens, ">"] if rest else tokens)
    if valid_name(name, wildcards=False):
        assert matcher(pattern.encode())(name.encode()) is matches(pattern, name)


def test_pattern_above_the_longest_name_is_refused(harness):
    answer = ask(harness, "info", pattern=b"a." * 2048 + b">")
    assert answer.error == b"stan: invalid request about channels: pattern is longer than 4096 bytes"
    assert ask(harness, "info", pattern=b"a." * 2047 + b">").error == b""


def test_the_next_message_behind_a_position_is_told():
    """Whether messages are deleted amid the channel or at its beginning; of channels without a position nothing is."""
    harness = CoreHarness()
    harness.connect()
    harness.publish("foo", *[b"x"] * 9)
    harness.publish("bar", b"x")
    for sequence in (1, 4, 5, 9):
        request = admin.DeleteMessageRequest(version=1, channel=b"foo", sequence=sequence)
        assert not harness.ask("_STAN.x.test-cluster.admin.delete_message", request, admin.ChangeResponse).error

    def following(position):
        positions = [pb.Position(channel=b"foo", sequence=position)]
        request = pb.InfoRequest(channels=[b"foo", b"bar"], newer_than=positions)
        channels = harness.ask("_STAN.x.test-cluster.info", request, pb.InfoResponse).channels
        assert [info.next_sequence for info in channels if info.name == b"bar"] == [0]
        return next(info.next_sequence for info in channels if info.name == b"foo")

    assert [following(position) for position in range(11)] == [2, 2, 3, 6, 6, 6, 7, 8, 10, 10, 10]
    assert following((1 << 64) - 1) == 10

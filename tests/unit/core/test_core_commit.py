"""What an ack means is changed of channels without messages only: refusals, all at once, and messages that come meanwhile."""

from dataclasses import replace
from pathlib import Path

import pytest
from stan_protocol.ack_levels import AckLevel
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import NOT_A_CLUSTER, UNKNOWN_CHANNEL

from stan.config import Config, StoreConfig
from stan.core.features.moves.source import MoveSource
from stan.policies import REPLICATED, SYNCED
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import CLUSTERED, CoreHarness, pub_frame
from tests.kit.everywhere import Everywhere

PREFIX = "_STAN.x.test-cluster.admin"
OLD, MORE = 2, 4


class Kinds(Everywhere):
    """Groups 1 and 2 are synced, 3 and 4 replicated; the channel foo is in group 1."""

    def __init__(self, commit=REPLICATED):
        super().__init__()
        nodes = [pb.FoundingNode(node=f"n{at}", store=b"%d" % at * 16) for at in (1, 2, 3)]
        voters = [pb.FirstVoters(nodes=[0, 1, 2])] * (MORE - OLD)
        self.feed_meta(grow_pool=pb.GrowPool(groups=MORE, before=OLD, nodes=nodes, voters=voters, commit=commit))
        self.feed_meta(open_pool=MORE)
        for number in (3, 4):
            self.broker.states.reset(number)
        self.lead(0, 1, 2, 3, 4)
        self.feed_client()
        self.feed_channel("foo", 1)
        self.pass_time(20)

    def change(self, commit, channel=b"foo"):
        request = admin.ChangeCommitRequest(version=1, channel=channel, commit=commit)
        answer = self.ask(f"{PREFIX}.change_commit", request, admin.ChangeResponse)
        return answer.error.decode(), answer.changed

    def purge(self):
        request = admin.PurgeRequest(version=1, channel=b"foo", keep=0)
        assert not self.ask(f"{PREFIX}.purge", request, admin.ChangeResponse).error

    @property
    def info(self):
        return self.broker.view.meta.channels[b"foo"]

    @property
    def commit_now(self):
        return self.broker.view.meta.commit_of(self.info.group)


@pytest.fixture
def node():
    return Kinds()


def test_a_channel_with_messages_stays_what_it_is(node) -> None:
    assert node.publish("foo", b"1") == [""]
    error, changed = node.change(REPLICATED)
    assert error == 'stan: commit: channel "foo" has messages, acked as synced: purge it first'
    assert (changed, node.info.move, node.info.group) == (0, 0, 1)


def test_a_channel_that_is_emptied_goes_on_in_a_group_of_the_other_kind_and_back(node) -> None:
    assert node.publish("foo", b"1", b"2") == ["", ""]
    node.subscribe("foo", "dur", durable="d")
    node.purge()
    assert node.change(REPLICATED) == ("", 1)
    node.pass_time(3)
    assert (node.commit_now, node.info.move) == (REPLICATED, 0)
    assert node.change(REPLICATED) == ("", 0)
    assert node.pub_acks() == ["", ""], "those of before are acknowledged again, as by any next leader"
    assert node.publish("foo", b"3") == [""]
    assert [number for number, _ in node.received("dur")][-1] == 3, "sequences and durables go on"
    assert node.change(SYNCED)[0] == 'stan: commit: channel "foo" has messages, acked as replicated: purge it first'
    node.pass_time(30)
    node.purge()
    assert node.change(SYNCED) == ("", 1)
    node.pass_time(20)
    assert (node.commit_now, node.info.group) == (SYNCED, 2), "it cannot come back to the group that it has left"
    node.pass_time(60)
    node.purge()
    assert node.change(REPLICATED) == ("", 1)
    node.pass_time(20)
    error, _ = node.change(SYNCED)
    assert error.startswith("stan: commit: the channel was in each group for channels with commit synced before")


def test_it_stays_where_it_has_gone_whatever_the_hash_and_more_groups_say(node) -> None:
    assert node.change(REPLICATED) == ("", 1)
    node.pass_time(60)
    assert node.commit_now == REPLICATED
    assert node.broker.view.channels_to_move == 0


@pytest.mark.parametrize("at", range(0, 120, 10))
def test_a_message_that_comes_meanwhile_is_kept_as_it_was_acked(at) -> None:
    """Whenever it comes: either it is stored before the channel is held, and the channel stays, or behind the move."""
    node = Kinds()
    assert node.change(REPLICATED) == ("", 1)
    node.pass_time(at / 1000)
    before, held = node.info.group, bool(node.state.held_here)
    node.publish("foo", b"1")
    node.pass_time(5)
    assert node.info.move == 0
    assert node.stored("foo", node.info.group) == [b"1"]
    if before == 1 and not held:
        assert node.commit_now == SYNCED
    else:
        assert node.commit_now == REPLICATED


def test_a_message_on_its_way_when_the_channel_is_held_keeps_it_where_it_is(node, monkeypatch) -> None:
    """It is in the log before the entry that holds the channel, and was not when its leader looked."""
    monkeypatch.setattr(MoveSource, "_has_messages", lambda *_: False)
    assert node.publish("foo", b"1") == [""]
    assert node.change(REPLICATED) == ("", 1)
    while not node.state.held() and node.info.move:
        node.pass_time(0.001)
    assert node.state.held()
    monkeypatch.undo()
    node.pass_time(5)
    assert (node.commit_now, node.info.move) == (SYNCED, 0)
    assert node.stored("foo", 1) == [b"1"]
    assert not node.state.held_here
    assert set(node.publish("foo", b"2")) == {""}


def test_everything_in_the_way_is_told_at_once() -> None:
    node = Kinds(commit=SYNCED)
    node.feed_meta(pin_channel=pb.Pin(channel=b"foo", group=1))
    assert node.publish("foo", b"1") == [""]
    error, _ = node.change(REPLICATED)
    assert error.split("; ") == [
        'stan: commit: channel "foo" has messages, acked as synced: purge it first',
        "there is no group for channels with commit replicated: stan cluster grow --commit replicated",
        'channel "foo" is pinned to group 1, which is not for that: take the pin back',
    ]


def test_channels_that_belong_together_have_to_be_empty_together(node) -> None:
    node.feed_meta(set_policy=pb.Policy(pattern=b"foo", dead_letter=b".dlq"))
    node.feed_channel("foo.dlq", 1)
    assert node.publish("foo.dlq", b"dead") == [""]
    assert 'channel "foo.dlq" has messages' in node.change(REPLICATED)[0]
    assert 'channel "foo.dlq" is kept where channel "foo" is' in node.change(REPLICATED, b"foo.dlq")[0]


def test_what_is_no_channel_or_no_kind_is_refused(node) -> None:
    assert node.change(REPLICATED, b"bar")[0] == UNKNOWN_CHANNEL
    assert node.change(7)[0] == "stan: commit is one of synced, replicated"
    request = admin.ChangeCommitRequest(version=1, channel=b"foo", commit=REPLICATED)
    assert CoreHarness().ask(f"{PREFIX}.change_commit", request, admin.ChangeResponse).error.decode() == NOT_A_CLUSTER


def test_nobody_there_to_tell_of_messages_is_asked_again(node) -> None:
    node.follow(1)
    assert (
        node.ask(
            f"{PREFIX}.change_commit",
            admin.ChangeCommitRequest(version=1, channel=b"foo", commit=1),
            admin.ChangeResponse,
        )
        is None
    )
    node.pass_time(5)
    answer = admin.ChangeResponse.FromString(node.hear(f"reply.{node.inboxes}")[0].payload)
    assert answer.retry
    assert not node.info.move


def test_parts_are_what_the_policy_of_their_channel_says_and_stay_that_when_they_are_doubled(node) -> None:
    node.feed_meta(set_policy=pb.Policy(pattern=b"orders", commit=REPLICATED))
    create = admin.CreatePartsRequest(version=1, channel=b"orders", parts=2)
    assert not node.ask(f"{PREFIX}.create_parts", create, admin.ChangeResponse).error
    view = node.broker.view
    assert {view.meta.channels[b"orders.~%d" % at].group for at in (0, 1)} == {3, 4}
    node.feed_meta(set_policy=pb.Policy(pattern=b"orders"))
    assert node.change(SYNCED, b"orders")[0] == 'stan: commit: channel "orders" has parts: change each of them'
    policy = admin.SetPolicyRequest(version=1, pattern=b"orders", policy=admin.DeliveryPolicy(commit=SYNCED))
    assert b'"orders" is there and replicated' in node.ask(f"{PREFIX}.set_policy", policy, admin.ChangeResponse).error
    double = admin.DoublePartsRequest(version=1, channel=b"orders", parts=2)
    assert not node.ask(f"{PREFIX}.double_parts", double, admin.ChangeResponse).error
    node.pass_time(5)
    found = [view.meta.channels[b"orders.~%d" % at].group for at in range(4)]
    assert [view.meta.commit_of(group) for group in found] == [REPLICATED] * 4, (
        "half of the keys keep their promise, too"
    )


@pytest.mark.parametrize(("pattern", "refused"), [("foo", True), ("*", False), ("bar", False)])
def test_a_policy_of_one_channel_that_is_there_is_refused(node, pattern, refused) -> None:
    request = admin.SetPolicyRequest(
        version=1, pattern=pattern.encode(), policy=admin.DeliveryPolicy(commit=REPLICATED, delay=1 << 62)
    )
    error = node.ask(f"{PREFIX}.set_policy", request, admin.ChangeResponse).error.decode()
    assert ('commit: channel "foo" is there and synced' in error) == refused
    assert "delay must be between" in error, "all complaints at once"


# --- what acks tell ---------------------------------------------------------------------------------------------------


FILE = StoreConfig(kind="file", directory=Path("/data"), raft_groups=2)


@pytest.mark.parametrize(
    ("cluster", "store", "told"),
    [
        (None, StoreConfig(kind="memory"), AckLevel.MEMORY),
        (None, FILE, AckLevel.SYNCED),
        (None, replace(FILE, sync="never"), AckLevel.MEMORY),
        (CLUSTERED.cluster, FILE, AckLevel.SYNCED),
        (CLUSTERED.cluster, replace(FILE, sync="interval"), AckLevel.REPLICATED),
        (CLUSTERED.cluster, replace(FILE, kind="memory"), AckLevel.REPLICATED),
    ],
)
def test_the_level_of_acks_is_that_of_the_store(cluster, store, told) -> None:
    harness = CoreHarness(config=Config(store=store, cluster=cluster))
    assert harness.state.ack_level() == told


def test_a_channel_tells_what_its_acks_mean_by_the_store(harness) -> None:
    harness.publish("foo", b"x")
    for store, level_told in ((StoreConfig(kind="memory"), AckLevel.MEMORY), (FILE, AckLevel.SYNCED)):
        harness.broker.reconfigure(replace(harness.config, store=store))
        asked = harness.ask("_STAN.x.test-cluster.admin.channels", admin.ChannelsRequest(), admin.ChannelsResponse)
        assert [(one.commit, one.ack_level) for one in asked.channels] == [(0, level_told)]


def test_acks_tell_what_they_mean_to_who_asks_and_to_nobody_else(node) -> None:
    node.feed_channel("fast", 3)
    levels = {"foo": AckLevel.REPLICATED, "fast": AckLevel.REPLICATED}  # of a store in memory
    for channel, level_told in levels.items():
        for numbered in (True, False):
            node.hears(pub_frame(channel, b"guid %d" % numbered, b"data", numbered=numbered))
            (ack,) = [wire.PubAck.FromString(said.payload) for said in node.hear("_INBOX.acks")]
            assert (ack.ack_level, ack.sequence) == ((level_told, 1) if numbered else (0, 0))
    node.broker.reconfigure(replace(node.config, store=replace(node.config.store, kind="file")))
    for channel, level_told in (("foo", AckLevel.SYNCED), ("fast", AckLevel.REPLICATED)):
        node.hears(pub_frame(channel, b"guid 3", b"data", numbered=True), pub_frame(channel, b"guid 4", reply=""))
        (ack,) = [wire.PubAck.FromString(said.payload) for said in node.hear("_INBOX.acks")]
        assert (ack.ack_level, ack.sequence) == (level_told, 3)
    assert node.broker.view.totals().acked_messages == {AckLevel.SYNCED: 3, AckLevel.REPLICATED: 3, AckLevel.MEMORY: 0}
    assert node.broker.view.totals().unanswered_messages == 2

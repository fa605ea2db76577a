"""Ephemeral channels on their leader: their messages are in no log, each leadership has an epoch, acks leave under the lease."""

from collections import Counter
from dataclasses import replace

import pytest
from stan_protocol import refusals
from stan_protocol.ack_levels import AckLevel
from stan_protocol.patterns import ChannelLimits
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import Config, StoreLimits
from stan.core.base.ready import LeaseAnswer
from stan.core.publishing.ephemeral import EphemeralChannels
from stan.core.state.ephemeral import BLOCK_BITS
from stan.policies import EPHEMERAL, PolicyRule
from stan.protocol.entries import Kind
from stan.protocol.proto import entries_pb2 as pb
from tests.kit import core_harness
from tests.kit.core_harness import CLUSTERED, CoreHarness, Node, pub_frame

BLOCK = 1 << BLOCK_BITS
RULES = (PolicyRule(pattern="e", commit=EPHEMERAL), PolicyRule(pattern="e.>", commit=EPHEMERAL))


def alone(**config):
    harness = CoreHarness(Config(policies=RULES, **config))
    harness.connect()
    return harness


@pytest.fixture
def harness():
    return alone()


@pytest.fixture
def node():
    """Leads the metadata and the group."""
    return leading()


def leading(groups=1):
    store = replace(CLUSTERED.store, raft_groups=groups)
    node = Node(Config(cluster=CLUSTERED.cluster, store=store, policies=RULES))
    node.lead(*range(groups + 1))
    node.connect()
    return node


def epoch_of(harness, channel=b"e"):
    uid = harness.state.channels[channel].uid
    return harness.follower().epochs.of(uid)


def kinds(harness, group=1):
    return [kind for _, kind, _ in harness.logs[group]]


def sequences(harness, inbox="inbox"):
    return [sequence - BLOCK for sequence, _ in harness.received(inbox)]


def test_what_is_published_is_delivered_and_acknowledged_and_in_no_log(harness):
    joined = harness.subscribe("e", in_flight=3)
    assert joined.error == b""
    assert harness.publish("e", b"1", b"2", b"3", b"4") == [""] * 4
    assert harness.received() == [(BLOCK + 1, 0), (BLOCK + 2, 0), (BLOCK + 3, 0)]
    harness.ack(joined.ack_inbox, BLOCK + 1, BLOCK + 3)
    assert harness.received() == [(BLOCK + 4, 0)]
    harness.pass_time(31)
    assert harness.received() == [(BLOCK + 2, 1), (BLOCK + 4, 1)]
    assert Kind.RECORDS not in kinds(harness)
    assert [epoch_of(harness).number, epoch_of(harness).first] == [1, BLOCK + 1]


def test_other_channels_of_the_group_are_in_its_log(harness):
    harness.subscribe("e")
    harness.subscribe("foo", "foo")
    assert harness.publish("e", b"1") == harness.publish("foo", b"1") == [""]
    assert (harness.received(), harness.received("foo")) == ([(BLOCK + 1, 0)], [(1, 0)])
    assert kinds(harness).count(Kind.RECORDS) == 1


@pytest.mark.parametrize(
    ("start", "seq", "expected"),
    [(0, 0, []), (1, 0, [3]), (3, BLOCK + 2, [2, 3]), (3, 1, [1, 2, 3]), (3, BLOCK * 9, []), (4, 0, [1, 2, 3])],
)
def test_subscriptions_start_where_they_say(harness, start, seq, expected):
    harness.publish("e", b"1", b"2", b"3")
    assert harness.subscribe("e", start=start, seq=seq).error == b""
    assert sequences(harness) == expected


def test_queue_groups_share_and_what_a_member_leaves_is_sent_to_another(harness):
    first = harness.subscribe("e", "a", queue="q", in_flight=2)
    harness.publish("e", b"1", b"2")
    assert sequences(harness, "a") == [1, 2]
    harness.subscribe("e", "b", queue="q")
    harness.leave("e", first.ack_inbox)
    assert [(sequence - BLOCK, count) for sequence, count in harness.received("b")] == [(1, 1), (2, 1)]


def test_limits_hold_and_what_they_remove_is_not_sent():
    harness = alone(limits=StoreLimits(default=ChannelLimits(msgs=2)))
    assert harness.publish("e", b"1", b"2", b"3", b"4") == [""] * 4
    harness.publish("e", b"5")
    harness.subscribe("e")
    assert sequences(harness) == [4, 5]
    assert Kind.RECORDS not in kinds(harness)
    assert "trim" not in changes(harness)


def test_age_removes_messages_without_an_entry():
    harness = alone(limits=StoreLimits(default=ChannelLimits(age_ns=5 * SECOND)))
    harness.publish("e", b"1")
    harness.pass_time(3)
    harness.publish("e", b"2")
    harness.pass_time(3)
    harness.subscribe("e")
    assert sequences(harness) == [2]
    assert "trim" not in changes(harness)


def changes(harness, group=1):
    return core_harness.Node.entries(harness, group)


def test_a_deleted_channel_is_made_anew(harness):
    harness.publish("e", b"1")
    channels = harness.broker.parts.channels
    channels.removal.delete(channels.by_name[b"e"])
    harness.turn()
    assert not channels.stores.by_uid
    harness.pass_time(1)
    assert harness.publish("e", b"2") == [""]
    harness.subscribe("e")
    assert sequences(harness) == [1]


@pytest.mark.parametrize("more", [{"durable": "d"}, {"durable": "d", "queue": "q"}])
def test_durables_are_refused(harness, more):
    harness.publish("e", b"1")
    found = harness.subscribe("e", **more)
    assert found.error.decode() == refusals.NOT_OF_EPHEMERAL.format('"e"', "durables")


@pytest.mark.parametrize("more", [{"ttl": SECOND}, {"deliver_at": core_harness.START + 99 * SECOND}])
def test_messages_with_a_time_are_refused(node, more):
    assert node.publish("e", b"0", conn_id="") == [""]
    node.hears(pub_frame("e", "1" * 22, b"1", conn_id="", **more))
    (error,) = node.pub_acks()
    assert "is ephemeral" in error
    assert node.publish("e", b"2", conn_id="") == [""]


def test_a_restart_begins_another_epoch_which_is_empty(harness):
    harness.subscribe("e")
    harness.publish("e", b"1", b"2")
    assert sequences(harness) == [1, 2]
    harness.restart()
    assert harness.publish("e", b"3") == [""]
    harness.pass_time(31)
    assert {sequence for sequence, _ in harness.received()} == {2 * BLOCK + 1}
    assert epoch_of(harness).number == 2
    assert any("is empty" in text for _, text in harness.notes)


def test_room_in_memory_is_bounded_over_all_channels(monkeypatch, harness):
    monkeypatch.setattr(limits, "EPHEMERAL_BYTES_MAX", 2000)
    for number in range(40):
        assert harness.publish(f"e.{number % 2}", b"x" * 100) == [""]
    assert 0 < harness.broker.parts.channels.stores.bytes <= 2000
    assert sum("the oldest messages of" in text for _, text in harness.notes) <= 2


def test_messages_that_are_given_up_stay_with_their_position_as_there_are_no_dead_letters():
    rule = PolicyRule(pattern="e", commit=EPHEMERAL, max_deliver=2, dead_letter=".dlq")
    harness = CoreHarness(Config(policies=(rule,)))
    harness.connect()
    harness.subscribe("e", wait=1)
    harness.publish("e", b"1", b"2")
    harness.pass_time(10)
    assert [count for _, count in harness.received()] == [0, 0, 1, 1]
    assert b"e.dlq" not in harness.state.channels
    live = harness.state.live_position()
    assert [(run.first, run.last) for run in live.exhausted] == [(BLOCK + 1, BLOCK + 2)]


def test_policies_of_stored_messages_have_no_effect():
    rule = PolicyRule(pattern="e", commit=EPHEMERAL, ttl=SECOND, compact=1, min_age=0, delay=0)
    harness = CoreHarness(Config(policies=(rule,)))
    harness.connect()
    harness.publish("e", b"1")
    harness.pass_time(60)
    harness.subscribe("e")
    assert sequences(harness) == [1]
    assert not {"expired", "compacted"} & set(changes(harness))


# --- in a cluster -----------------------------------------------------------------------------------------------------------


def test_acks_leave_under_the_lease_alone(node):
    said = []
    say = node._say
    node._say = lambda send: (said.append(send), say(send))[1]
    assert node.publish("e", b"1", conn_id="") == [""]
    acks = [one for one in said if isinstance(one, LeaseAnswer)]
    assert [one.groups for one in acks] == [(1,)]
    assert b"_INBOX.acks" in acks[0].data


def test_acks_wait_for_the_lease_in_their_order_as_long_as_the_leader_stays(node):
    node.subscribe("e", "in")
    node.lapsed = {1}
    assert node.publish("e", b"1", b"2", conn_id="") == node.publish("e", b"3", conn_id="") == []
    assert node.received("in") == []
    node.lapsed = set()
    node.turn()
    assert node.pub_acks() == [], "nobody has said that the lease holds"
    node.broker.stops.step_lease(1, holds=True)
    assert node.publish("e", b"4", conn_id="") == [""] * 4
    assert [sequence % BLOCK for sequence, _ in node.received("in")] == [1, 2, 3, 4]
    assert (node.state.waiting().answers, node.state.waiting().answer_bytes) == (0, 0)


def refused(number=0):
    """A publish that the leader refuses."""
    return pub_frame("e", b"refused %d" % number, b"x", conn_id="", deliver_at=1 << 60, reply="_INBOX.refused")


def test_refusals_and_answers_to_requests_wait_for_the_lease_too():
    node = leading(2)
    home = node.broker.view.group_number(b"e")
    node.publish("e", b"0", conn_id="")
    node.lapsed = {1, 2}
    node.asks("_STAN.x.test-cluster.admin.channels", admin.ChannelsRequest(version=1), "asked")
    node.hears(refused())
    assert node.said == []
    node.lapsed = set()
    node.broker.stops.step_lease(home, holds=True)
    node.turn()
    assert [said.subject for said in node.said] == ["_INBOX.refused"]
    node.broker.stops.step_lease(3 - home, holds=True)
    node.turn()
    assert [said.subject for said in node.said] == ["_INBOX.refused", "asked"]


def test_acks_that_wait_for_a_lease_end_with_the_leadership(node):
    node.lapsed = {1}
    assert node.publish("e", b"1", conn_id="") == []
    node.follow(1)
    node.lapsed = set()
    node.lead(1)
    assert set(node.pub_acks()) == {refusals.EPHEMERAL_EMPTIED}
    assert node.state.waiting().answer_bytes == 0


def test_where_too_many_acks_wait_for_a_lease_nothing_more_is_published(node, monkeypatch):
    monkeypatch.setattr(limits, "UNCOMMITTED_BYTES_MAX", 1000)
    monkeypatch.setattr(limits, "WAITING_ANSWERS_BYTES_MAX", 2000)
    node.publish("e", b"0", conn_id="")
    node.lapsed = {1}
    for number in range(50):
        assert node.publish("e", b"%d" % number, conn_id="") == []
    (store,) = node.broker.parts.channels.stores.by_uid.values()
    stored = store.last_sequence - store.first_sequence + 1
    assert 1 < stored < 50
    monkeypatch.setattr(limits, "UNCOMMITTED_BYTES_MAX", 1 << 20)
    node.hears(*map(refused, range(50)))
    assert node.state.waiting().answer_bytes <= 2000
    assert any("too many wait for a lease" in text for _, text in node.notes)
    node.lapsed = set()
    node.broker.stops.step_lease(1, holds=True)
    node.turn()
    assert node.pub_acks() == [""] * (stored - 1), "each that was stored is acked"


def test_an_ack_tells_its_level(node):
    node.hears(pub_frame("e", "1" * 22, b"1", conn_id="", numbered=True))
    (ack,) = [wire.PubAck.FromString(said.payload) for said in node.hear("_INBOX.acks")]
    assert (ack.error, ack.sequence, ack.ack_level) == (b"", BLOCK + 1, AckLevel.MEMORY)
    assert +Counter(node.broker.view.totals().acked_messages) == {AckLevel.MEMORY: 1}


def test_nothing_is_sealed_before_the_epoch_is_in_the_log(node):
    node.feed_channel("e")
    node.hold = True
    assert node.publish("e", b"1", conn_id="") == []
    assert not node.broker.parts.channels.stores.by_uid
    node.hold = False
    node.commit()
    node.turn()
    assert node.pub_acks() == [""]


def test_what_waits_for_an_epoch_waits_once_and_in_order(node):
    node.feed_meta(create_channels=pb.CreateChannels(channels=[pb.Channel(name=b"e", group=1, commit=EPHEMERAL)]))
    node.subscribe("e", "in")
    node.follow(1)
    node.lead(1)
    node.hold = True
    for number in range(5):
        assert node.publish("e", b"%d" % number, conn_id="") == []
    changes = [pb.GroupChange.FromString(body) for _, _, kind, body in node.uncommitted if kind == Kind.CHANGE]
    assert [change.WhichOneof("change") for change in changes] == ["ephemeral_epoch"]
    node.hold = False
    node.commit()
    node.turn()
    assert node.pub_acks() == [""] * 5
    assert [sequence % BLOCK for sequence, _ in node.received("in")] == [1, 2, 3, 4, 5]


def test_an_epoch_that_nobody_knows_of_is_asked_for_again_unless_the_channel_has_left(node):
    assert node.publish("e", b"1", conn_id="") == [""]
    node.follow(1)
    node.lead(1)
    node.hear()
    channels, epochs = node.broker.parts.channels, node.leader_part(EphemeralChannels)
    channel = channels.by_name[b"e"]
    heard = []
    node.in_doubt = True
    epochs.open(channel, heard.append)
    node.turn()
    node.in_doubt = False
    assert heard == []
    node.pass_time(2)
    assert heard == [""]
    node.follow(1)
    node.lead(1)
    epochs, channel = node.leader_part(EphemeralChannels), channels.by_name[b"e"]
    node.in_doubt = True
    epochs.open(channel, heard.append)
    node.turn()
    node.in_doubt = False
    channels.leave(channel.info)
    before = len(node.logs[1])
    node.pass_time(2)
    assert (heard, len(node.logs[1])) == ([""], before)


def test_the_next_leadership_is_empty_and_tells_late_publishers(node):
    node.subscribe("e", "in")
    assert node.publish("e", b"1", conn_id="") == [""]
    node.pass_time(1)
    assert sequences(node, "in") == [1]
    node.follow(1)
    node.hears(pub_frame("e", "late" + "1" * 18, b"late", conn_id=""))
    assert node.pub_acks() == []
    node.lead(1)
    assert set(node.pub_acks()) == {refusals.EPHEMERAL_EMPTIED}
    assert node.publish("e", b"2", conn_id="") == [""]
    assert [sequence for sequence, _ in node.received("in")] == [2 * BLOCK + 1]
    assert "progress" not in node.entries()


def test_what_was_heard_before_is_not_stored_once_more_where_the_metadata_lag():
    """A client of the original found this: all that it had published came a second time, under other sequences."""
    first = leading()
    first.feed_channel("e")
    assert first.publish("e", b"1", b"2", conn_id="") == ["", ""]
    node = Node(Config(cluster=CLUSTERED.cluster, store=CLUSTERED.store, policies=RULES))
    node.feed_client()
    for index, kind, body in first.logs[1]:
        node.feed(1, kind, body)
        assert index
    node.hears(*(pub_frame("e", data + core_harness.GUID_TAIL, data, conn_id="conn-me") for data in (b"1", b"2")))
    node.lead(1)
    assert not node.pub_acks()
    node.feed_meta(create_channels=pb.CreateChannels(channels=[pb.Channel(name=b"e", group=1, commit=EPHEMERAL)]))
    node.turn()
    node.pass_time(1)
    assert set(node.pub_acks()) == {refusals.EPHEMERAL_EMPTIED}
    assert node.publish("e", b"3", conn_id="conn-me") == [""]
    store = node.broker.parts.channels.stores.by_uid[1]
    assert store.last_sequence - store.first_sequence + 1 == 1


def test_an_epoch_of_an_earlier_leadership_is_none_of_this_one(node):
    assert node.publish("e", b"1", conn_id="") == [""]
    node.follow(1)
    node.hold = True
    node.lead(1)
    node.hear()  # what was heard before is refused
    assert node.publish("e", b"2", conn_id="") == []
    node.hold = False
    node.commit()
    node.turn()
    assert epoch_of(node).number == 2
    assert node.publish("e", b"3", conn_id="") == ["", ""]


def test_a_member_that_stays_gets_what_comes_in_each_epoch(node):
    joined = node.subscribe("e", "in", in_flight=1)
    for epoch in range(1, 4):
        assert node.publish("e", b"1", b"2", conn_id="") == ["", ""]
        assert [sequence for sequence, _ in node.received("in")] == [epoch * BLOCK + 1]
        node.ack(joined.ack_inbox, epoch * BLOCK + 1, channel=b"e")
        assert [sequence for sequence, _ in node.received("in")] == [epoch * BLOCK + 2]
        node.follow(1)
        node.lead(1)
        node.hear()


def test_sequences_that_run_out_are_followed_by_more(node, monkeypatch):
    assert node.publish("e", b"1", conn_id="") == [""]
    channel = node.broker.parts.channels.by_name[b"e"]
    store = node.broker.parts.channels.stores.by_uid[channel.info.uid]
    channel.next_sequence = epoch_of(node).last - 1
    store.last_sequence = channel.next_sequence - 1
    node.hold = True
    assert node.publish("e", b"2", b"3", conn_id="") == ["", ""]
    assert node.publish("e", b"4", conn_id="") == []
    node.hold = False
    node.commit()
    node.turn()
    assert node.pub_acks() == [""]
    assert channel.next_sequence == 2 * BLOCK + 2
    assert epoch_of(node).number == 1


def test_the_first_message_of_an_epoch_reaches_no_limit():
    harness = alone(limits=StoreLimits(default=ChannelLimits(msgs=10)))
    harness.publish("e", b"a")
    assert not [text for _, text in harness.notes if "Reached limits" in text]
    harness.publish("e", *[b"%d" % n for n in range(10)])
    assert len([text for _, text in harness.notes if "Reached limits" in text]) == 1

"""Waiting for the metadata, and asking its leader for channels, on a node that does not lead it."""

import pytest
from stan_protocol.refusals import NO_METADATA, TOO_MANY_CHANNELS
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import Config, StoreLimits
from stan.core.boundary.loading import restored
from stan.protocol.entries import Kind
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import CLUSTERED, CoreHarness, Node

PATIENCE = limits.CATCHUP_PATIENCE / SECOND
META = "_STAN.node.test-cluster.meta"
READ_INDEX = "_STAN.node.test-cluster.read_index"


@pytest.fixture
def node():
    made = Node()
    made.feed_client()
    return made


class Calls(list):
    """Who was told what, in order."""

    def of(self, name):
        return lambda new: self.append((name, new))


@pytest.fixture
def calls():
    return Calls()


def questions(node):
    node.turn()
    return [said.reply for said in node.hear(READ_INDEX)]


def answer(node, reply, applied):
    node.hears(b"MSG %b 3 %d\r\n%b\r\n" % (reply.encode(), len(str(applied)), str(applied).encode()))


# --- catching up --------------------------------------------------------------------------------------------------------


def test_alone_and_on_the_leader_nobody_waits(node, calls):
    CoreHarness().broker.parts.read_index.wait(calls.of("alone"), 0)
    node.lead(0)
    node.broker.parts.read_index.wait(calls.of("leader"), 0)
    assert calls == [("alone", True), ("leader", True)]


def test_a_leader_that_may_have_been_replaced_asks_like_everybody(node, calls):
    node.lead(0)
    node.broker.stops.step_lease(0, holds=False)
    node.broker.parts.read_index.wait(calls.of("a"), 0)
    assert calls == []
    node.broker.stops.step_lease(0, holds=True)
    node.pass_time(0.3)
    node.meta_says(len(node.logs[0]))
    assert calls == [("a", True)]


def test_one_question_serves_all_who_came_before_it_and_later_ones_get_another(node, calls):
    read_index = node.broker.parts.read_index
    read_index.wait(calls.of("a"), 0)
    first = questions(node)
    read_index.wait(calls.of("b"), 0)
    read_index.wait(calls.of("c"), 0)
    assert questions(node) == []
    answer(node, *first, len(node.logs[0]))
    assert calls == [("a", True)]
    answer(node, *questions(node), len(node.logs[0]))
    assert calls == [("a", True), ("b", True), ("c", True)]
    assert questions(node) == []


def test_the_copy_has_to_get_there(node, calls):
    node.broker.parts.read_index.wait(calls.of("a"), 0)
    answer(node, *questions(node), len(node.logs[0]) + 2)
    node.feed_channel("x")
    assert calls == []
    node.feed_channel("y")
    assert calls == [("a", True)]


def test_a_leader_that_was_restarted_behind_an_entry_without_a_change_is_not_ahead_of_the_others(node, calls):
    """The first entry of a leader changes nothing; a copy that is read from the disk stands at it all the same."""
    node.feed(0, Kind.NOOP, b"")
    restarted = restored(0, pb.Snapshot(applied_index=len(node.logs[0])), changed=False)
    node.broker.parts.read_index.wait(calls.of("a"), 0)
    answer(node, *questions(node), restarted.applied)
    assert calls == [("a", True)]


def test_a_copy_gets_there_by_an_entry_without_a_change(node, calls):
    node.broker.parts.read_index.wait(calls.of("a"), 0)
    answer(node, *questions(node), len(node.logs[0]) + 1)
    assert calls == []
    node.feed(0, Kind.NOOP, b"")
    assert calls == [("a", True)]
    other = Node()
    other.broker.states.replay_entry(0, 3, Kind.NOOP, b"")
    assert other.state.applied == 3


def test_a_lost_answer_is_asked_for_again(node, calls):
    node.broker.parts.read_index.wait(calls.of("a"), 0)
    lost = questions(node)
    node.pass_time(limits.FORWARD_INTERVAL / SECOND)
    again = questions(node)
    assert len(again) == 1
    assert again != lost
    answer(node, *lost, 1)
    assert calls == []
    answer(node, *again, 1)
    assert calls == [("a", True)]


@pytest.mark.parametrize("garbage", ["", "x", "-1", "9" * 5000])
def test_an_answer_that_is_no_number_is_none(node, calls, garbage):
    node.broker.parts.read_index.wait(calls.of("a"), 0)
    answer(node, *questions(node), garbage)
    assert calls == []
    assert len(questions(node)) == 1


def test_without_a_leader_each_waits_for_its_own_patience(node, calls):
    node.broker.parts.read_index.wait(calls.of("a"), 0)
    node.pass_time(1)
    node.broker.parts.read_index.wait(calls.of("b"), 0)
    node.pass_time(PATIENCE - 0.5)
    assert calls == [("a", False)]
    node.pass_time(1.5)
    assert calls == [("a", False), ("b", False)]
    assert node.state.next_timer > node.now
    assert not node.state.waiting().requests


def test_a_copy_that_never_gets_there_is_not_waited_for_for_ever(node, calls):
    node.broker.parts.read_index.wait(calls.of("a"), 0)
    answer(node, *questions(node), 1000)
    node.broker.parts.read_index.wait(calls.of("b"), 0)
    node.pass_time(2 * PATIENCE + 1)
    assert calls == [("a", False), ("b", False)]


def test_becoming_the_leader_answers_everything_in_order(node, calls):
    read_index = node.broker.parts.read_index
    read_index.wait(calls.of("a"), 0)
    questions(node)
    read_index.wait(calls.of("b"), 0)
    node.lead(0)
    read_index.wait(calls.of("c"), 0)
    assert calls == [("a", True), ("b", True), ("c", True)]


def test_the_answer_to_an_older_question_says_nothing(node, calls):
    read_index = node.broker.parts.read_index
    read_index.wait(calls.of("a"), 0)
    old = questions(node)
    node.lead(0)
    node.follow(0)
    read_index.wait(calls.of("b"), 0)
    questions(node)
    answer(node, *old, 1)
    assert calls == [("a", True)]


def test_who_waits_while_others_are_called_comes_after_them(node, calls):
    read_index = node.broker.parts.read_index

    def first(new):
        calls.append(("a", new))
        read_index.wait(calls.of("c"), 0)

    read_index.wait(first, 0)
    read_index.wait(calls.of("b"), 0)
    for _ in range(4):
        for reply in questions(node):
            answer(node, reply, 1)
    assert calls == [("a", True), ("b", True), ("c", True)]


def test_only_a_leader_with_a_lease_answers(node):
    asked = node.request(READ_INDEX, b"", "_INBOX._STAN.other.1")
    node.hears(asked)
    assert node.hear("_INBOX._STAN.other.1") == []
    node.lead(0, replay=False)
    node.broker.stops.step_lease(0, holds=False)
    node.hears(asked)
    assert node.hear("_INBOX._STAN.other.1") == []
    node.broker.stops.step_lease(0, holds=True)
    node.hears(asked)
    assert [said.payload for said in node.hear("_INBOX._STAN.other.1")] == [b"%d" % len(node.logs[0])] * 2


# --- creating -----------------------------------------------------------------------------------------------------------


def test_a_channel_is_asked_for_again_until_the_metadata_tells_of_it(node):
    node.lead()
    assert node.publish("foo", b"1") == []
    assert node.forwarded() == ["create_channels"]
    node.pass_time(0.6)
    assert node.forwarded() == ["create_channels"] * 2
    assert node.publish("foo", b"2") == []
    node.feed_channel()
    node.turn()
    assert node.pub_acks() == ["", ""]
    assert node.stored() == [b"1", b"2"]
    node.pass_time(1)
    assert node.forwarded() == []


def test_who_waits_for_a_channel_is_not_answered_when_there_is_no_metadata(node):
    """The next leader may have it, and then stores what this one has heard."""
    node.lead()
    node.publish("foo", b"1")
    node.pass_time(limits.FORWARD_PATIENCE / SECOND + 1)
    assert node.pub_acks() == []
    assert not node.broker.parts.channels.openings.pending
    assert ("WRN", f"publishes are not answered ({NO_METADATA})") in node.notes
    node.hear()
    node.pass_time(1)
    assert node.forwarded() == []


def test_another_spelling_is_refused_as_soon_as_the_metadata_tells_of_it(node):
    node.lead()
    node.publish("foo", b"1")
    node.feed_channel("FOO")
    node.pass_time(0.3)
    (error,) = node.pub_acks()
    assert "FOO" in error


def test_too_many_channels_are_refused_by_who_was_asked_too_late():
    node = Node(Config(cluster=CLUSTERED.cluster, store=CLUSTERED.store, limits=StoreLimits(channels=1)))
    node.feed_client()
    node.lead()
    node.publish("foo", b"1")
    node.feed_channel("bar")
    node.pass_time(0.3)
    assert node.pub_acks() == [TOO_MANY_CHANNELS]


def test_a_creation_that_was_lost_with_the_leadership_of_the_metadata_is_asked_for_again(node):
    node.lead(0, 1)
    node.hold = True
    assert node.publish("foo", b"1") == []
    node.follow(0)
    node.hold = False
    node.pass_time(0.3)
    assert node.forwarded() == ["create_channels"]
    node.feed_channel()
    node.turn()
    assert node.pub_acks() == [""]


def test_who_waited_for_a_channel_is_left_to_the_next_leader(node):
    node.lead()
    node.publish("foo", b"1")
    node.follow()
    node.feed_channel()
    node.turn()
    assert node.pub_acks() == []
    assert not node.logs[1]
    assert not node.broker.parts.channels.openings.pending


def test_a_race_for_a_spelling_on_the_leader_itself_is_told_as_such(node):
    node.lead(0, 1)
    node.hold = True
    node.publish("foo", b"1")
    body = pb.MetaChange(create_channels=pb.CreateChannels(channels=[pb.Channel(name=b"FOO", group=1)]))
    node.uncommitted.insert(0, (0, len(node.logs[0]), Kind.META, body.SerializeToString()))
    node.hold = False
    node.turn()
    (error,) = node.pub_acks()
    assert "FOO" in error


def test_the_leader_of_the_metadata_creates_what_others_ask_for_once(node):
    node.lead(0)
    create = pb.MetaChange(create_channels=pb.CreateChannels(channels=[pb.Channel(name=b"foo", group=1)]))
    for _ in range(2):
        node.hears(node.request(META, create, ""))
    assert [channel.uid for channel in node.state.channels.values()] == [1]
    node.follow(0)
    node.hears(node.request(META, create, ""))
    assert len(node.logs[0]) == 4


def test_garbage_between_nodes_changes_nothing(node):
    node.lead(0)
    node.hears(node.request(META, b"\xff\xff", "x"))
    assert node.hear("x") == []


# --- deleting -----------------------------------------------------------------------------------------------------------


def drop(node):
    node.broker.parts.channels.removal.delete(node.broker.parts.channels.by_name[b"foo"])
    node.turn()


def test_a_dropped_channel_is_asked_out_of_the_registry_until_it_is(node):
    node.feed_channel()
    node.lead()
    drop(node)
    node.pass_time(0.6)
    assert node.forwarded() == ["delete_channel"] * 3
    node.feed_meta(delete_channel=pb.DeleteChannel(uid=1))
    node.pass_time(1)
    assert node.forwarded() == []
    assert not node.broker.parts.channels.by_uid


def test_a_removal_that_was_lost_with_the_leadership_of_the_metadata_is_asked_for_again(node):
    node.feed_channel()
    node.lead(0, 1)
    node.broker.stops.step_room(0, closed=True, full=False)
    drop(node)
    node.follow(0)
    node.broker.stops.step_room(1, closed=False, full=False)
    node.pass_time(0.3)
    assert node.forwarded() == ["delete_channel"]


def test_nobody_asks_on_when_the_group_is_led_elsewhere(node):
    node.feed_channel()
    node.lead()
    drop(node)
    node.follow()
    node.hear()
    node.pass_time(1)
    assert node.forwarded() == []


def test_the_next_leader_finishes_a_removal_and_may_make_the_channel_anew(node):
    node.feed_channel()
    node.feed_group(drop_channel=pb.DropChannel(uid=1))
    node.lead(0, 1)
    assert b"foo" not in node.state.channels
    assert node.publish("foo", b"1") == [""]
    assert node.state.channels[b"foo"].uid == 2


# --- a node that got the metadata as a whole ----------------------------------------------------------------------------


def test_metadata_that_was_replaced_as_a_whole_is_taken_in(node, calls):
    node.feed_channel("old")
    node.lead()
    node.publish("new", b"1")
    node.subscribe("old", "in")
    node.meta_says(len(node.logs[0]))
    assert node.state.subscriptions()
    snapshot = pb.Snapshot(channels=[pb.Channel(name=b"new", uid=9, group=1)], applied_index=50)
    node.broker.parts.read_index.wait(calls.of("a"), 0)
    answer(node, *[reply for reply in questions(node) if reply], 40)
    node.broker.states.reset(0, restored(0, snapshot, changed=False))
    node.broker.roles.was_reset(0)
    node.broker.roles.was_reset(0)  # what is on its way already is not told twice
    node.turn()
    assert calls == [("a", True)]
    assert set(node.broker.parts.channels.by_name) == {b"new"}
    assert not node.state.subscriptions()
    assert node.pub_acks() == [""]

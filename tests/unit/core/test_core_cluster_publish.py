"""Publishes on one node of a cluster: who takes them, what waits, what the next leader takes over."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import CHANNEL_DELETING, INVALID_PUBLISH, MESSAGE_TOO_LARGE, TOO_MUCH_WAITING
from stan_protocol.scalars import SECOND

from stan import limits
from stan.protocol.entries import Kind, decode_records
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import Node, pub_frame

FOO = b"foo"


def other():
    """Another node with the same metadata."""
    made = Node()
    made.feed_client()
    made.feed_channel()
    return made


@pytest.fixture
def leader():
    leader = other()
    leader.lead()
    return leader


def hand_over(leader, to):
    """Everything that *leader* committed in group 1 reaches *to*."""
    taken, leader.committed = leader.committed, []
    for group, kind, body in taken:
        if group:
            to.feed(group, kind, body)


# --- who takes them -----------------------------------------------------------------------------------------------------


def test_a_node_that_does_not_lead_the_group_neither_answers_nor_writes(node):
    assert node.publish("foo", b"1") == []
    assert not node.logs[1]
    assert node.broker.view.totals().unsealed_bytes == 0


def test_malformed_publishes_are_refused_by_the_leader_alone(node):
    bad = b"MSG _STAN.pub.test-cluster.foo 1 _INBOX.acks 3\r\nabc\r\n"
    node.hears(bad)
    assert node.pub_acks() == []
    node.lead(replay=False)
    node.hears(bad)
    assert node.pub_acks() == [INVALID_PUBLISH]


# --- what the next leader takes -----------------------------------------------------------------------------------------


def test_the_next_leader_takes_what_it_heard_and_the_log_lacks(node):
    node.publish("foo", b"1", b"2")
    node.lead()
    assert node.stored() == [b"1", b"2"]
    assert node.pub_acks() == ["", ""]


def later(node, *payloads):
    """Publishes that are due in five seconds, as a node hears them; one in between is due at once."""
    frames = []
    for payload in payloads:
        message = wire.PubMsg(
            client_id=b"me",
            guid=payload + b" of the same publisher",
            subject=FOO,
            data=payload,
            conn_id=b"conn-me",
            deliver_at=0 if payload == b"now" else node.wall + 5 * SECOND,
        ).SerializeToString()
        frames.append(b"MSG _STAN.pub.test-cluster.foo 1 _INBOX.acks %d\r\n%b\r\n" % (len(message), message))
    node.hears(*frames)


def test_deferred_publishes_in_the_log_are_not_taken_again_and_the_rest_is(leader, node):
    later(leader, b"1", b"now", b"2")
    assert leader.pub_acks() == ["", "", ""]
    later(node, b"1", b"now", b"2", b"3")
    hand_over(leader, node)
    node.lead()
    assert node.stored() == [b"now"]
    assert node.pub_acks() == ["", "", "", ""]
    assert node.follower().deferred.waiting == 3
    node.pass_time(5.1)
    assert node.stored() == [b"now", b"1", b"2", b"3"]
    assert node.follower().deferred.waiting == 0


def test_deferred_messages_go_whoever_leads_when_they_are_due(leader, node):
    later(leader, b"1", b"2")
    hand_over(leader, node)
    leader.pass_time(5.1)
    assert leader.stored() == [b"1", b"2"]
    node.wall = leader.wall
    hand_over(leader, node)
    node.lead(replay=False)
    node.pass_time(5.1)
    assert node.stored() == [b"1", b"2"]


def test_what_is_in_the_log_is_not_taken_again_and_the_rest_is(leader, node):
    leader.publish("foo", b"1", b"2")
    node.publish("foo", b"1", b"2", b"3")
    hand_over(leader, node)
    node.lead()
    assert node.stored() == [b"1", b"2", b"3"]
    assert node.pub_acks() == ["", "", ""]  # the last leader may have failed before it did


@pytest.mark.parametrize("tail", [b"89abcdef", b"0" * 200])
def test_publishes_whose_guids_differ_only_in_front_are_all_stored_by_the_next_leader(leader, node, tail):
    """Those that nobody has stored are acknowledged, too: taken for the one in the log they would be lost."""
    frames = [pub_frame("foo", b"%d" % n + tail, b"%d" % n) for n in range(3)]
    leader.hears(frames[0])
    node.hears(*frames)
    hand_over(leader, node)
    node.lead()
    assert node.stored() == [b"0", b"1", b"2"]
    assert node.pub_acks() == ["", "", ""]


def test_marks_of_an_older_version_make_nothing_that_was_heard_count_as_logged(leader, node):
    """They hold parts of guids, in another field."""
    leader.publish("foo", b"1")
    (records,) = [body for _, kind, body in leader.committed if kind == Kind.RECORDS]
    marks = decode_records(records)[1]
    older = b"\x0a" + bytes(marks)[1:]
    assert marks[0] == 2 << 3 | 2
    leader.committed = [(1, Kind.RECORDS, bytes(records).replace(bytes(marks), older))]
    node.publish("foo", b"1", b"2")
    hand_over(leader, node)
    node.lead()
    assert node.stored() == [b"1", b"1", b"2"]
    assert node.pub_acks() == ["", ""]


def test_publishers_mixed_in_one_batch_are_told_apart(node):
    node.feed_client("you")
    leader = other()
    leader.feed_client("you")
    leader.lead()
    mine = [pub_frame("foo", f"m{n}", b"m%d" % n) for n in range(4)]
    yours = [pub_frame("foo", f"y{n}", b"y%d" % n, "you", "conn-you") for n in range(4)]
    leader.hears(mine[0], mine[1], mine[2], yours[0])
    node.hears(mine[0], yours[0], mine[1], yours[1], mine[2], mine[3], yours[2])
    hand_over(leader, node)
    node.lead()
    assert node.stored() == [b"m0", b"m1", b"m2", b"y0", b"y1", b"m3", b"y2"]


def test_a_mark_that_was_not_heard_yet_holds_its_publisher_back_and_nobody_else(node):
    node.feed_client("you")
    leader = other()
    leader.lead()
    node.pass_time(2)
    frames = [pub_frame("foo", f"m{n}", b"m%d" % n) for n in range(4)]
    leader.hears(*frames[:3])
    node.hears(frames[0])
    hand_over(leader, node)
    node.lead()
    assert node.stored() == [b"m0", b"m1", b"m2"]
    node.hears(frames[1], pub_frame("foo", "y", b"y", "you", "conn-you"))
    node.hears(frames[2], frames[3])
    assert node.stored() == [b"m0", b"m1", b"m2", b"y", b"m3"]


def test_a_mark_that_never_comes_is_waited_for_no_longer_than_its_patience(leader, node):
    node.pass_time(2)
    leader.publish("foo", b"1")
    hand_over(leader, node)
    node.lead()
    node.publish("foo", b"2")
    assert node.stored() == [b"1"]
    node.pass_time(limits.FINGERPRINT_PATIENCE / SECOND)
    node.publish("foo", b"3")
    assert node.stored() == [b"1", b"3"]


def test_what_the_network_held_back_is_acknowledged_and_not_stored_again(leader, node):
    node.pass_time(2)
    frames = [pub_frame("foo", f"g{n}", b"%d" % n) for n in range(3)]
    leader.hears(*frames[:2])
    hand_over(leader, node)
    node.lead()
    node.pass_time(2 * limits.FINGERPRINT_PATIENCE / SECOND)
    node.hears(*frames)
    assert node.stored() == [b"0", b"1", b"2"]
    assert node.pub_acks() == ["", "", ""]


def test_a_mark_of_before_this_node_started_is_not_waited_for(leader, node):
    leader.publish("foo", b"1")
    node.broker.states.step_loaded(1, len(leader.logs[1]))
    node.pass_time(2)
    node.publish("foo", b"2")
    node.pass_time(2)
    hand_over(leader, node)
    node.lead()
    node.publish("foo", b"3")
    assert node.stored() == [b"1", b"2", b"3"]


def test_publishers_who_fall_silent_do_not_slow_the_others_down_for_ever(node):
    node.feed_client("you")
    leader = other()
    leader.lead()
    node.pass_time(2)
    leader.publish("foo", b"1")
    hand_over(leader, node)
    node.lead()
    assert node.state.lags()
    node.pass_time(limits.FINGERPRINT_MEMORY / SECOND)
    node.publish("foo", b"y", client_id="you")
    assert not node.state.lags()


def test_messages_without_reply_are_taken_over_once_too(leader, node):
    frames = [pub_frame("foo", f"g{n}", b"%d" % n, reply="") for n in range(3)]
    for frame in frames[:2]:
        leader.hears(frame)
    for frame in frames:
        node.hears(frame)
    hand_over(leader, node)
    node.lead()
    assert node.stored() == [b"0", b"1", b"2"]


def test_messages_with_and_without_reply_in_one_read(leader, node):
    frames = [pub_frame("foo", f"g{n}", b"%d" % n, reply="_INBOX.acks" if n % 2 else "") for n in range(6)]
    leader.hears(*frames[:4])
    node.hears(*frames)
    hand_over(leader, node)
    node.lead()
    assert node.stored() == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_channel_that_the_metadata_does_not_tell_of_yet_has_its_marks_all_the_same():
    node = Node()
    node.feed_client()
    leader = other()
    leader.lead()
    leader.publish("foo", b"1")
    node.publish("foo", b"1")
    hand_over(leader, node)
    node.publish("foo", b"2")
    node.lead()
    node.feed_channel()
    node.turn()
    assert node.stored() == [b"1", b"2"]


def test_a_message_that_is_too_large_is_refused_and_not_taken_over(node):
    leader = other()
    for each in (leader, node):
        each.broker.step_payload_limit(400)
    leader.lead()
    large = b"x" * 390
    frames = [pub_frame("foo", "1", b"1"), pub_frame("foo", "l", large), pub_frame("foo", "2", b"2")]
    leader.hears(*frames[:2])
    assert leader.pub_acks() == [MESSAGE_TOO_LARGE, ""]
    node.hears(*frames)
    hand_over(leader, node)
    node.lead()
    assert node.stored() == [b"1", b"2"]
    assert node.pub_acks() == ["", MESSAGE_TOO_LARGE, ""]


def test_each_channel_has_marks_of_its_own(node):
    leader = other()
    for each in (leader, node):
        each.feed_channel("bar")
    leader.lead()
    leader.publish("foo", b"1")
    node.publish("bar", b"a")
    node.publish("foo", b"1")
    hand_over(leader, node)
    node.lead()
    assert node.stored("foo") == [b"1"]
    assert node.stored("bar") == [b"a"]


def test_a_leader_that_is_elected_again_takes_what_its_first_life_could_not_commit(node):
    node.lead()
    node.publish("foo", b"1")
    node.hold = True
    node.publish("foo", b"2")
    node.follow()
    node.hold = False
    node.lead()
    assert node.stored() == [b"1", b"2"]
    assert node.pub_acks() == ["", ""]
    assert node.broker.view.uncommitted_bytes == node.broker.view.totals().unsealed_bytes == 0


def test_nothing_is_left_of_a_life_that_ended(node):
    node.lead()
    node.broker.stops.step_room(1, closed=False, full=True)
    node.publish("foo", b"1")
    node.broker.stops.step_room(1, closed=False, full=False)
    node.hold = True
    node.publish("foo", b"2")
    assert node.broker.view.uncommitted_bytes
    node.follow()
    view, publishing = node.broker.view, node.broker.parts.publishing
    assert (view.uncommitted_bytes, view.totals().unsealed_bytes, publishing.waiting) == (0, 0, {})
    assert not node.state.waiting().proposals
    assert not node.broker.has_work


@pytest.mark.parametrize("outcome", ["refused", "in doubt", "committed"])
def test_the_outcome_of_a_proposal_is_nothing_to_a_later_life(node, outcome):
    node.lead()
    node.broker.stops.step_room(1, closed=True, full=False)
    node.publish("foo", b"1")
    node.broker.stops.step_room(1, closed=False, full=False)
    (proposal,) = node.broker.ready(node.now, node.wall, 1 << 20).proposals
    node.follow()
    node.lead(replay=False)
    entries = node.broker.entries
    if outcome == "refused":
        entries.step_refused(proposal, "the disk is full")
    elif outcome == "in doubt":
        entries.step_in_doubt(proposal)
    else:
        entries.step_written(proposal, 1)
        node.feed(1, proposal.kind, proposal.body)
    node.turn()
    assert node.pub_acks() == []
    assert not node.state.waiting().proposals


def test_a_full_group_grows_a_batch_and_a_closed_one_waits(node):
    node.lead()
    for closed, full in ((False, True), (True, False)):
        node.broker.stops.step_room(1, closed=closed, full=full)
        assert node.publish("foo", b"closed" if closed else b"full") == []
        assert not node.broker.has_work
        node.broker.stops.step_room(1, closed=False, full=False)
        node.turn()
        assert node.pub_acks() == [""]


def test_more_than_may_wait_is_not_taken_and_not_answered(node, monkeypatch):
    """The next leader may store it: who was told of an error must not find it there."""
    monkeypatch.setattr(limits, "UNCOMMITTED_BYTES_MAX", 10)
    node.lead()
    node.hold = True
    assert node.publish("foo", b"x" * 20) == []
    assert node.publish("foo", b"x") == []
    assert node.notes == [("WRN", f"publishes are not answered ({TOO_MUCH_WAITING})")]
    node.commit()
    node.turn()
    node.hold = False
    assert node.publish("foo", b"y") == ["", ""]
    assert node.stored() == [b"x" * 20, b"y"]


# --- connections that the metadata does not tell of yet -----------------------------------------------------------------


def test_publishes_of_an_unknown_connection_wait_for_the_metadata_in_order(node):
    node.lead()
    assert node.publish("foo", b"1", client_id="new") == []
    node.feed_client("new")
    assert node.publish("foo", b"2", client_id="new") == []
    assert node.meta_says(len(node.logs[0]))
    assert node.pub_acks() == ["", ""]
    assert node.stored() == [b"1", b"2"]
    assert not node.broker.parts.filters.waiting.for_metadata
    assert not node.broker.parts.filters.waiting.publishers


def test_what_waited_for_the_metadata_is_left_to_the_leader_of_the_group_in_which_the_channel_was_made(node):
    """It has heard the publishes, too; a refusal here would say of a stored message that it is not."""
    node.lead()
    assert node.publish("bar", b"1", client_id="new") == []
    node.feed_client("new")
    node.feed_channel("bar", group=2)
    node.meta_says(len(node.logs[0]))
    assert node.pub_acks() == []
    assert node.publish("bar", b"2", client_id="new") == []
    waiting = node.broker.parts.filters.waiting
    assert not waiting.for_metadata
    assert not any(waiting.bytes.values())


def test_others_do_not_wait_with_them(node):
    node.lead()
    new, known = pub_frame("foo", "n", b"n", "new", "conn-new"), pub_frame("foo", "k", b"k")
    node.hears(new, known)
    assert node.pub_acks() == [""]
    assert node.stored() == [b"k"]
    node.meta_says(len(node.logs[0]))
    assert node.pub_acks() == [INVALID_PUBLISH]


def test_what_waits_is_not_answered_when_the_metadata_has_no_leader(node):
    node.lead()
    node.publish("foo", b"1", client_id="new")
    node.pass_time(limits.CATCHUP_PATIENCE / SECOND + 1)
    assert node.pub_acks() == []
    assert not node.broker.parts.filters.waiting.for_metadata
    assert not node.broker.parts.filters.waiting.publishers


def test_what_waited_when_leadership_was_lost_is_not_taken_twice(node):
    node.lead()
    node.publish("foo", b"1", client_id="new")
    node.follow()
    node.lead()
    node.feed_client("new")
    node.meta_says(len(node.logs[0]))
    node.pass_time(0.3)
    node.meta_says(len(node.logs[0]))
    assert node.stored() == [b"1"]
    assert node.pub_acks() == [""]


def test_what_waits_for_the_metadata_or_for_a_channel_is_bounded(node, monkeypatch):
    monkeypatch.setattr(limits, "UNCOMMITTED_BYTES_MAX", 10)
    node.lead()
    assert node.publish("foo", b"x" * 20, client_id="new") == []
    assert node.publish("foo", b"x", client_id="new") == []
    node.feed_client("new")
    node.meta_says(len(node.logs[0]))
    assert node.pub_acks() == [""]
    assert node.publish("bar", b"x" * 20) == []
    assert node.publish("bar", b"x") == []
    node.feed_channel("bar")
    node.turn()
    assert node.pub_acks() == [""]
    assert node.publish("bar", b"x") == [""]


def test_what_waited_for_a_channel_is_not_counted_any_more_once_leadership_is_lost(node, monkeypatch):
    monkeypatch.setattr(limits, "UNCOMMITTED_BYTES_MAX", 10)
    node.lead()
    assert node.publish("bar", b"x" * 20) == []
    node.follow()
    node.lead(replay=False)
    assert node.publish("foo", b"x") == [""]


# --- channels that are being removed ------------------------------------------------------------------------------------


def test_a_channel_that_its_group_has_dropped_takes_nothing_on_the_next_leader(node):
    node.feed_group(drop_channel=pb.DropChannel(uid=1))
    node.lead()
    assert node.forwarded() == ["delete_channel"]
    assert node.publish("foo", b"1") == [CHANNEL_DELETING]
    assert node.subscribe("foo") is None
    node.meta_says(len(node.logs[0]))
    assert not node.logs[1][1:]


def test_a_dropped_channel_of_which_the_metadata_tells_late_is_removed_again():
    node = Node()
    node.feed_client()
    node.feed_group(drop_channel=pb.DropChannel(uid=1))
    node.lead()
    node.feed_channel()
    node.turn()
    assert node.forwarded() == ["delete_channel"]
    assert node.publish("foo", b"1") == [CHANNEL_DELETING]


# --- any history --------------------------------------------------------------------------------------------------------


def reads_of(data, streams):
    """An interleaving of the publishers' streams that keeps each one's order, cut into reads."""
    rest = {name: list(frames) for name, frames in streams.items()}
    order = data.draw(st.permutations([name for name, frames in streams.items() for _ in frames]))
    frames = [rest[name].pop(0) for name in order]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(frames)), max_size=5)))
    return [frames[a:b] for a, b in zip([0, *cuts], [*cuts, len(frames)], strict=True) if a < b]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_message_is_stored_once_and_in_its_publishers_order(data):
    names = ["a", "b", "c"][: data.draw(st.integers(1, 3))]
    counts = {name: data.draw(st.integers(1, 6)) for name in names}
    silent = data.draw(st.sampled_from(names) | st.none())
    streams = {
        name: [
            pub_frame(
                "foo",
                f"{name}{n}",
                b"%s%d" % (name.encode(), n),
                name,
                f"conn-{name}",
                "" if name == silent and n % 2 else "_INBOX.acks",
            )
            for n in range(counts[name])
        ]
        for name in names
    }
    nodes = [Node(), Node(), Node()]
    for each in nodes:
        each.feed_channel()
        for name in names:
            each.feed_client(name)
        each.pass_time(2)
    first, second, third = nodes
    first.lead()
    heard = data.draw(st.integers(0, 3))
    for read in reads_of(data, streams)[: data.draw(st.integers(0, 6))]:
        first.hears(*read)
    for at, read in enumerate(reads_of(data, streams)):
        if at == heard:
            hand_over(first, second)
            second.lead()
        second.hears(*read)
    if not second.broker.view.leads(1):
        hand_over(first, second)
        second.lead()
    log = [(1, kind, body) for _, kind, body in second.logs[1]]
    for read in reads_of(data, streams):
        third.hears(*read)
    for entry in log:
        third.feed(*entry)
    third.lead()
    stored = third.stored()
    assert sorted(stored) == sorted(b"%s%d" % (name.encode(), n) for name in names for n in range(counts[name]))
    replied = {f"{name}{n}".encode() for name in names for n in range(counts[name]) if name != silent or n % 2 == 0}
    assert {wire.PubAck.FromString(said.payload).guid for each in nodes for said in each.hear("_INBOX.acks")} == replied
    for name in names:
        mine = [said for said in stored if said.startswith(name.encode())]
        assert mine == sorted(mine)


def test_acks_name_their_messages(node):
    node.hears(pub_frame("foo", "one"), pub_frame("foo", "two", reply=""), pub_frame("foo", "three"))
    node.lead()
    assert [wire.PubAck.FromString(said.payload).guid for said in node.hear("_INBOX.acks")] == [b"one", b"three"]

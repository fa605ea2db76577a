"""Streams in a cluster: which node answers, and when it knows enough for that."""

from dataclasses import replace

import pytest

from stan.core.boundary.loading import restored
from stan.core.metadata.streams import CHANGED
from stan.protocol.entries import Kind
from stan.protocol.jetstream.streams import requested
from stan.protocol.proto import entries_pb2 as pb
from tests.kit import jetstream as js
from tests.kit.consumers import asks, consumer, got, listens, pull
from tests.kit.core_harness import CLUSTERED, Node

CONFIG = replace(CLUSTERED, jetstream_api=True)
CREATED = "$JS.API.STREAM.CREATED.S"


@pytest.fixture
def node():
    return Node(config=CONFIG)


def change(name="S", subjects=("a.*",), **more):
    config = requested({"name": name, "subjects": list(subjects)} | more, name, 3)
    return pb.StreamChange(name=name.encode(), config=config.encoded(), channel=config.channel, group=1)


def create(node, **more):
    return js.asks(node, "STREAM.CREATE.S", {"name": "S", "subjects": ["a.*"]} | more)


def test_the_leader_of_the_metadata_makes_a_stream_and_that_of_the_channel_answers(node):
    node.lead(0)
    reply = create(node)
    node.turn()
    assert js.answer_to(node, reply) is None
    (handed_on,) = node.hear(CREATED)
    assert handed_on.reply == reply
    other = Node(config=CONFIG)
    for group, kind, body in node.committed:
        other.feed(group, kind, body)
    other.lead(1)
    assert js.hears(other, CREATED, b"", reply)
    other.turn()
    assert b'"did_create":true' in js.answer_to(other, reply).payload
    assert "a.*" in other.broker.view.scope.more_subjects


def test_who_begins_to_lead_the_channel_a_moment_later_answers_too(node):
    """Once a stream that was made while its group had no leader yet was never told to the client."""
    node.feed_meta(stream=change())
    node.feed_meta(stream=change("T", ["t.*"]))
    for name in "ST":
        assert js.hears(node, f"$JS.API.STREAM.CREATED.{name}", b"", f"reply.{name}")
    node.turn()
    assert js.answer_to(node, "reply.S") is None
    node.lead(1)
    assert b'"did_create":true' in js.answer_to(node, "reply.S").payload
    assert b'"did_create":true' in js.answer_to(node, "reply.T").payload
    node.follow(1)
    assert js.hears(node, CREATED, b"", "reply.late")
    node.turn()
    node.pass_time(4)
    node.lead(1)
    assert js.answer_to(node, "reply.late") is None
    assert js.answer_to(node, "reply.S") is None


def test_who_leads_both_answers_at_once(node):
    node.lead(0, 1)
    answer = js.api(node, "STREAM.CREATE.S", {"name": "S", "subjects": ["a.*"], "num_replicas": 3})
    assert answer["config"]["num_replicas"] == 3
    assert answer["cluster"] == {"name": "test-cluster", "leader": node.broker.view.node or "test-cluster"}
    assert js.api(node, "STREAM.LEADER.STEPDOWN.S")["error"]["err_code"] == 10036
    made = js.api(node, "CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {"ack_policy": "explicit"}})
    assert made["cluster"] == {"name": "test-cluster", "leader": node.broker.view.node or "test-cluster"}
    assert js.api(node, "CONSUMER.LEADER.STEPDOWN.S.c")["error"]["err_code"] == 10036


def test_who_does_not_lead_is_silent_and_listens(node):
    node.feed_meta(stream=change())
    assert js.api(node, "STREAM.INFO.S") is None
    assert js.api(node, "STREAM.NAMES") is None
    assert js.publish(node, "a.b", b"1") == [None]
    assert node.stored("S") == []


def test_clients_whose_leader_hands_over_ask_again_and_meet_the_next_one(node):
    """Once they waited until a heartbeat was missing, half a minute by default."""
    node.lead(0, 1)
    js.api(node, "STREAM.CREATE.S", {"name": "S", "subjects": ["a.*"]})
    consumer(node, "c", "S")
    pull(node, "c", 5, "S", "_INBOX.c")
    node.follow(1)
    (over,) = got(node, "_INBOX.c")
    assert over.status == "409 Leadership Change"
    asks(node, "c", "_INBOX.c", "S", batch=5)
    node.lead(1)
    js.publish(node, "a.b", b"1")
    assert [one.payload for one in got(node, "_INBOX.c")] == [b"1"]


def test_who_begins_to_lead_knows_nothing_of_earlier_requests_for_messages(node):
    node.lead(0, 1)
    js.api(node, "STREAM.CREATE.S", {"name": "S", "subjects": ["a.*"]})
    consumer(node, "c", "S")
    node.follow(1)
    listens(node, "_INBOX.c")
    asks(node, "c", "_INBOX.c", "S", batch=5)
    node.pass_time(1)
    node.lead(1)
    js.publish(node, "a.b", b"1")
    assert got(node, "_INBOX.c") == []


def test_a_stream_that_this_copy_does_not_know_yet_is_looked_for_again(node):
    node.lead(1)
    reply = js.asks(node, "STREAM.INFO.S")
    node.turn()
    assert js.answer_to(node, reply) is None
    node.feed_meta(stream=change())
    assert node.meta_says(len(node.logs[0]))
    node.turn()
    assert b'"config"' in js.answer_to(node, reply).payload


def test_that_there_is_no_stream_only_the_leader_of_the_metadata_says(node):
    node.lead(1)
    reply = js.asks(node, "STREAM.INFO.S")
    node.turn()
    assert node.meta_says(len(node.logs[0]))
    node.turn()
    assert js.answer_to(node, reply) is None
    leader = Node(config=CONFIG)
    leader.lead(0)
    assert js.api(leader, "STREAM.INFO.S")["error"]["err_code"] == 10059


def test_the_next_leader_knows_the_ids_of_the_one_before(node):
    node.lead(0, 1)
    js.api(node, "STREAM.CREATE.S", {"name": "S", "subjects": ["a.*"]})
    field = [("Nats-Msg-Id", "one")]
    assert js.publish(node, "a.b", b"1", fields=field)[0]["seq"] == 1
    node.follow(1)
    node.lead(1)
    assert js.publish(node, "a.b", b"1", fields=field)[0]["duplicate"]


def test_publishes_that_are_in_doubt_get_no_answer(node):
    node.lead(0, 1)
    js.api(node, "STREAM.CREATE.S", {"name": "S", "subjects": ["a.*"]})
    node.hold = True
    assert js.publish(node, "a.b", b"1") == [None]
    node.follow(1)
    node.hold = False
    node.lead(1)
    assert node.stored("S") == []
    assert js.publish(node, "a.b", b"2")[0]["seq"] == 1


def test_of_two_who_make_a_stream_at_once_both_get_it(node):
    node.lead(0, 1)
    node.hold = True
    replies = [create(node), create(node)]
    other = create(node, max_age=10**9)
    node.turn()
    node.hold = False
    node.turn()
    answers = [js.answer_to(node, reply).payload for reply in replies]
    assert all(b'"did_create":true' in answer for answer in answers)
    assert b"10058" in js.answer_to(node, other).payload


def test_a_change_that_was_made_for_another_state_is_not_taken(node):
    node.feed_meta(stream=change())
    taken = node.broker.view.meta.channels.keys()
    late = change(subjects=["b.*"])
    assert node.follower(0).streams.refusal(late) == CHANGED
    node.feed(0, Kind.META, pb.MetaChange(stream=late).SerializeToString())
    assert node.broker.view.meta.channels.keys() == taken
    assert "b.*" not in node.broker.view.scope.more_subjects


def test_a_stream_whose_channel_cannot_be_made_is_not_there(node):
    node.feed_channel("s")
    node.feed_meta(stream=change())
    assert not node.follower(0).streams.by_name
    assert "a.*" not in node.broker.view.scope.more_subjects


def test_a_loaded_copy_of_the_metadata_has_its_streams(node):
    node.feed_meta(stream=change())
    loaded = Node(config=CONFIG)
    loaded.broker.states.reset(0, restored(0, node.state.snapshot(0), changed=False))
    loaded.broker.roles.was_reset(0)
    loaded.turn()
    assert "a.*" in loaded.broker.view.scope.more_subjects

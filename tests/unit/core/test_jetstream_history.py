"""Streams that keep so many messages of each subject, on one leader: what readers see at once, before compaction comes."""

import pytest
from stan_protocol.scalars import SECOND

from stan import limits
from tests.kit import jetstream as js
from tests.kit.consumers import consumer, pull, served

ROLLUP = [("Nats-Rollup", "sub")]


def bucket(history, **config):
    return served(("b.*",), "B", max_msgs_per_subject=history, allow_rollup_hdrs=True, **config)


def filled(history, keys, **config):
    broker = bucket(history, **config)
    for key in keys:
        js.publish(broker, f"b.{key}", b"")
    return broker


def shown(broker, last):
    """The sequences that can be got."""
    found = (js.api(broker, "STREAM.MSG.GET.B", {"seq": at}) for at in range(1, last + 1))
    return [answer["message"]["seq"] for answer in found if "error" not in answer]


def state(broker, **asked):
    return js.api(broker, "STREAM.INFO.B", asked or None)["state"]


def sequences(found):
    return [one.sequence for one in found if not one.status]


@pytest.mark.parametrize("restarted", [False, True])
def test_readers_see_the_newest_messages_of_each_subject(restarted):
    broker = filled(2, "xyxxyx")
    if restarted:
        broker.restart()
    assert shown(broker, 6) == [2, 4, 5, 6]
    told = state(broker)
    assert (told["messages"], told["first_seq"], told["num_deleted"], told["num_subjects"]) == (4, 2, 1, 2)
    assert state(broker, subjects_filter="b.x")["subjects"] == {"b.x": 2}
    answer = js.api(broker, "STREAM.MSG.GET.B", {"next_by_subj": "b.x"})
    assert answer["message"]["seq"] == 4
    assert js.api(broker, "STREAM.MSG.DELETE.B", {"seq": 3})["error"]["err_code"] == 10043


@pytest.mark.parametrize("restarted", [False, True])
def test_a_message_that_takes_the_place_of_its_subject_stays_alone(restarted):
    broker = filled(3, "xyxx")
    assert js.publish(broker, "b.x", b"", fields=ROLLUP)[0]["seq"] == 5
    js.publish(broker, "b.x", b"")
    if restarted:
        broker.restart()
    assert shown(broker, 6) == [2, 5, 6]
    assert state(broker, deleted_details=True).get("deleted") is None, "it leaves no gap of its own"


def test_many_subjects_can_be_rolled_up_again_and_again(monkeypatch):
    monkeypatch.setattr(limits, "DELETED_RUNS_MAX", 2)
    broker = filled(3, "xyxyxyxyxy")
    for _ in range(9):
        assert "error" not in js.publish(broker, "b.x", b"", b"", fields=ROLLUP)[0]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("history", [1, 3])
def test_no_earlier_message_comes_back_when_a_newer_one_is_deleted_or_expires(history, restarted):
    broker = filled(history, "xxxxx", allow_msg_ttl=True)
    js.publish(broker, "b.x", b"", fields=[("Nats-TTL", "1s")])
    assert js.api(broker, "STREAM.MSG.DELETE.B", {"seq": 5}).get("success", history == 1)
    broker.pass_time(3)
    if restarted:
        broker.restart()
    assert shown(broker, 6) == [4][: history - 1]
    told = js.publish(broker, "b.x", b"", fields=[("Nats-Expected-Last-Subject-Sequence", "4" if history > 1 else "0")])
    assert told[0]["seq"] == 7


@pytest.mark.parametrize(
    ("asked", "purged", "left"),
    [
        ({}, 4, []),
        ({"keep": 1}, 3, [6]),
        ({"seq": 5}, 2, [5, 6]),
        ({"filter": "b.x"}, 2, [2, 5]),
        ({"filter": "b.x", "keep": 1}, 1, [2, 5, 6]),
        ({"filter": "b.x", "seq": 6}, 1, [2, 5, 6]),
    ],
)
def test_a_purge_counts_what_is_shown(asked, purged, left):
    broker = filled(2, "xyxxyx")
    assert js.api(broker, "STREAM.PURGE.B", asked)["purged"] == purged
    assert shown(broker, 6) == left


def test_a_consumer_gets_the_newest_messages_of_each_subject():
    broker = filled(2, "xyxxyx")
    assert consumer(broker, "all", "B")["num_pending"] == 4
    assert sequences(pull(broker, "all", 9, "B")) == [2, 4, 5, 6]
    assert consumer(broker, "one", "B", filter_subject="b.x")["num_pending"] == 2
    assert sequences(pull(broker, "one", 9, "B")) == [4, 6]
    assert consumer(broker, "last", "B", deliver_policy="last_per_subject", filter_subject=">")["num_pending"] == 2
    assert sequences(pull(broker, "last", 9, "B")) == [5, 6]


def test_the_next_leader_sends_nothing_that_does_not_stay():
    broker = filled(2, "xxxx")
    consumer(broker, "all", "B", ack_wait=60 * SECOND)
    broker.restart()
    assert sequences(pull(broker, "all", 9, "B")) == [3, 4]


@pytest.mark.parametrize("discard", ["old", "new"])
def test_a_stream_of_one_subject_keeps_so_many_messages(discard):
    broker = js.harness()
    asked = {"name": "B", "subjects": ["b"], "max_msgs_per_subject": 2, "discard": discard}
    assert js.api(broker, "STREAM.CREATE.B", asked)["config"]["max_msgs_per_subject"] == 2
    for _ in range(5):
        js.publish(broker, "b", b"")
    assert shown(broker, 5) == [4, 5]


def test_the_decision_about_compaction_says_how_many_stay():
    broker = filled(3, "xxxx")
    uid = broker.broker.view.meta.channels[b"B"].uid
    wait = limits.COMPACTION_INTERVAL / SECOND + 2 * limits.RETENTION_INTERVAL / SECOND
    broker.pass_time(wait)
    assert broker.follower().compactions.of(uid)[::5] == (4, 2)
    asked = {"name": "B", "subjects": ["b.*"], "max_msgs_per_subject": 1, "allow_rollup_hdrs": True}
    js.api(broker, "STREAM.UPDATE.B", asked)
    broker.pass_time(wait)
    assert broker.follower().compactions.of(uid)[::5] == (4, 0)


def test_messages_that_an_index_may_not_know_any_more_are_told_apart_from_those_that_are_gone(monkeypatch):
    monkeypatch.setattr(limits, "STREAM_EARLIER_MAX", 2)
    broker = filled(4, "xyxx")
    assert js.api(broker, "STREAM.MSG.GET.B", {"last_by_subj": "b.x"})["message"]["seq"] == 4
    js.publish(broker, "b.x", b"")
    assert js.api(broker, "STREAM.MSG.GET.B", {"last_by_subj": "b.x"})["error"]["err_code"] == 10023


def full(**config):
    return served(("b.*",), "B", max_msgs_per_subject=2, discard="new", discard_new_per_subject=True, **config)


def codes(answers):
    return [answer.get("error", {}).get("err_code", answer["seq"]) for answer in answers]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_subject_that_is_full_takes_no_more_messages(restarted):
    broker = full()
    assert codes(js.publish(broker, "b.x", b"", b"", b"")) == [1, 2, 10077]
    assert codes(js.publish(broker, "b.y", b"")) == [3]
    if restarted:
        broker.restart()
    assert codes(js.publish(broker, "b.x", b"")) == [10077]
    assert js.api(broker, "STREAM.MSG.DELETE.B", {"seq": 1})["success"]
    assert codes(js.publish(broker, "b.x", b"", b"")) == [4, 10077]
    assert shown(broker, 4) == [2, 3, 4]
    broker.pass_time(2 * limits.COMPACTION_INTERVAL / SECOND)
    assert broker.follower().compactions.of(broker.broker.view.meta.channels[b"B"].uid).until == 0, "nothing goes"


def test_the_number_of_messages_of_a_full_subject_is_not_lowered():
    broker = full()
    asked = {"name": "B", "subjects": ["b.*"], "max_msgs_per_subject": 1, "discard": "new"}
    answer = js.api(broker, "STREAM.UPDATE.B", asked | {"discard_new_per_subject": True})
    assert answer["error"]["err_code"] == 10052
    assert "error" not in js.api(broker, "STREAM.UPDATE.B", asked), "the newest one stays"


def test_a_subject_with_more_messages_than_can_be_counted_takes_none(monkeypatch):
    monkeypatch.setattr(limits, "STREAM_INDEXED_MAX", 3)
    broker = full()
    for subject in ("b.x", "b.x", "b.y", "b.y", "b.z"):
        js.publish(broker, subject, b"")
    broker.connect()
    for _ in range(3):
        broker.publish("B", b"", key_of=lambda _payload: b"b.z")
    assert codes(js.publish(broker, "b.z", b"")) == [10077]

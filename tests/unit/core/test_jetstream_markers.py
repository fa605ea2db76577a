"""Delete markers: what the last message of a subject leaves when its time to live is over, and what leaves none."""

from base64 import b64decode

import pytest
from stan_protocol.scalars import SECOND

from stan import limits
from tests.kit import jetstream as js

MARKED = {"allow_msg_ttl": True, "subject_delete_marker_ttl": 60 * SECOND}
KINDS = [
    {},
    {"max_msgs_per_subject": 1},
    {"max_msgs_per_subject": 3},
]


@pytest.fixture
def broker():
    return js.harness()


def create(broker, name="T", subjects=("t.>",), **config):
    return js.api(broker, f"STREAM.CREATE.{name}", {"name": name, "subjects": [*subjects]} | MARKED | config)


def put(broker, subject, payload=b"m", ttl="", **fields):
    named = [("Nats-TTL", ttl)] if ttl else []
    return js.publish(broker, subject, payload, fields=[*named, *fields.items()])[0]


def shown(broker, name="T"):
    """The messages that are there: sequence, subject, and the reason of a marker or the payload."""
    found, at = [], 1
    while True:
        answer = js.api(broker, f"STREAM.MSG.GET.{name}", {"seq": at, "next_by_subj": ">"})
        if "error" in answer:
            return found
        message = answer["message"]
        block = b64decode(message.get("hdrs", ""))
        marked = "MaxAge" if b"Nats-Marker-Reason: MaxAge" in block else b64decode(message.get("data", ""))
        found.append((message["seq"], message["subject"], marked))
        at = message["seq"] + 1


@pytest.mark.parametrize("config", KINDS)
def test_the_last_message_of_a_subject_leaves_a_marker_that_goes_in_turn(broker, config):
    create(broker, **config)
    put(broker, "t.a", ttl="70s")
    put(broker, "t.b")
    broker.pass_time(80)
    assert shown(broker) == [(2, "t.b", b"m"), (3, "t.a", "MaxAge")]
    broker.pass_time(70)
    assert shown(broker) == [(2, "t.b", b"m")]


@pytest.mark.parametrize("config", KINDS)
def test_a_subject_with_newer_messages_has_no_marker(broker, config):
    create(broker, **config)
    put(broker, "t.a", b"1", ttl="70s")
    put(broker, "t.a", b"2")
    broker.pass_time(80)
    assert shown(broker) == [(2, "t.a", b"2")]


def test_a_subject_with_older_messages_that_stay_has_no_marker(broker):
    create(broker)
    put(broker, "t.a", b"1")
    put(broker, "t.a", b"2", ttl="70s")
    broker.pass_time(80)
    assert shown(broker) == [(1, "t.a", b"1")]


def test_messages_of_a_subject_that_go_together_leave_one_marker(broker):
    create(broker)
    for payload in (b"1", b"2", b"3"):
        put(broker, "t.a", payload, ttl="70s")
    broker.pass_time(80)
    assert shown(broker) == [(4, "t.a", "MaxAge")]


def test_a_purged_key_leaves_no_marker(broker):
    create(broker, max_msgs_per_subject=1)
    put(broker, "t.a", b"", ttl="70s", **{"KV-Operation": "PURGE", "Nats-Rollup": "sub"})
    broker.pass_time(80)
    assert shown(broker) == []


@pytest.mark.parametrize("config", KINDS)
def test_messages_that_are_too_old_leave_markers_too(broker, config):
    assert create(broker, max_age=100 * SECOND, **config)["config"]["max_age"] == 100 * SECOND
    put(broker, "t.a")
    broker.pass_time(50)
    put(broker, "t.b")
    broker.pass_time(60)
    assert shown(broker) == [(2, "t.b", b"m"), (3, "t.a", "MaxAge")]


def test_a_stream_of_one_subject_leaves_a_marker_when_nothing_is_left(broker):
    create(broker, subjects=["a"])
    put(broker, "a", b"1", ttl="70s")
    put(broker, "a", b"2", ttl="90s")
    broker.pass_time(80)
    assert shown(broker) == [(2, "a", b"2")]
    broker.pass_time(20)
    assert shown(broker) == [(3, "a", "MaxAge")]


def test_what_stan_clients_publish_counts(broker):
    create(broker)
    broker.connect()
    put(broker, "t.a", ttl="70s")
    broker.publish("T", b"newer", key_of=lambda _payload: b"t.a")
    broker.pass_time(80)
    assert shown(broker) == [(2, "t.a", b"newer")]


def test_many_subjects_that_end_at_once_have_a_marker_each(broker):
    create(broker)
    count = 2 * limits.EXPIRED_MARKED_MAX + 5
    replies = [f"_INBOX.many.{number}" for number in range(count)]
    fields = [("Nats-TTL", "70s")]
    assert js.arrive(broker, *((f"t.{number}", b"m", replies[number], fields) for number in range(count)))
    broker.turn()
    broker.pass_time(80)
    state = js.api(broker, "STREAM.INFO.T", {"subjects_filter": ">"})["state"]
    assert (state["messages"], state["last_seq"], state["num_subjects"]) == (count, 2 * count, count)


def test_markers_are_there_after_a_crash_before_their_time(broker):
    create(broker)
    put(broker, "t.a", ttl="70s")
    broker.restart()
    broker.pass_time(80)
    broker.restart()
    assert shown(broker) == [(2, "t.a", "MaxAge")]


@pytest.mark.parametrize("restarts", [False, True])
def test_without_room_nothing_goes_and_no_marker_comes(broker, restarts):
    create(broker)
    put(broker, "t.a", ttl="70s")
    broker.full = True
    broker.pass_time(80)
    assert broker.stored("T") == [b"m"]
    broker.full = False
    if restarts:
        broker.restart()
    else:
        broker.broker.stops.step_room(1, closed=False, full=False)
    broker.pass_time(2)
    assert shown(broker) == [(2, "t.a", "MaxAge")]


def test_a_message_lives_as_long_as_a_marker_of_its_subject_may(broker):
    create(broker)
    create(broker, "ONE", ["one.>"], max_msgs_per_subject=1)
    put(broker, "t.a", ttl="5s")
    put(broker, "one.a", ttl="5s")
    message = js.api(broker, "STREAM.MSG.GET.T", {"seq": 1})["message"]
    assert b"Nats-TTL: 60\r\n" in b64decode(message["hdrs"])
    broker.pass_time(10)
    assert shown(broker) == [(1, "t.a", b"m")]
    assert shown(broker, "ONE") == [(2, "one.a", "MaxAge")]


def test_markers_bring_what_they_need(broker):
    told = create(broker, allow_msg_ttl=False, allow_rollup_hdrs=False, deny_purge=True)["config"]
    assert (told["allow_msg_ttl"], told["allow_rollup_hdrs"], told["deny_purge"]) == (True, True, False)
    for wrong in (-SECOND, SECOND // 2):
        assert create(broker, "U", ["u"], subject_delete_marker_ttl=wrong)["error"]["err_code"] == 10052


def begun(broker, **config):
    """Three messages, of which the first and the last are being read to be removed, and then the second is due as well."""
    create(broker, **config)
    for subject, ttl in (("t.a", "70s"), ("t.b", "75s"), ("t.c", "70s")):
        put(broker, subject, ttl=ttl)
    js.api(broker, "STREAM.MSG.GET.T", {"last_by_subj": "t.a"})  # so that the index is there
    broker.slow = True
    broker.pass_time(72)
    broker.pass_time(10)
    broker.slow = False


def test_messages_that_are_due_while_others_are_read_leave_markers_too(broker):
    begun(broker)
    broker.answer_reads()
    broker.pass_time(2)
    assert sorted(shown(broker)) == [(4, "t.a", "MaxAge"), (5, "t.c", "MaxAge"), (6, "t.b", "MaxAge")]


@pytest.mark.parametrize("request_", ["STREAM.DELETE.T", "STREAM.UPDATE.T"])
def test_a_stream_that_changes_while_messages_are_read_fails_nothing(broker, request_):
    begun(broker)
    update = {"name": "T", "subjects": ["t.>"], "allow_msg_ttl": True}
    assert "error" not in js.api(broker, request_, update if "UPDATE" in request_ else None)
    broker.answer_reads()
    broker.pass_time(3)
    create(broker, subject_delete_marker_ttl=0)
    put(broker, "t.d")
    assert [subject for _, subject, _ in shown(broker)] == ["t.d"]

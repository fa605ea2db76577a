"""Streams of JetStream on one leader: requests of the API, publishes with what they expect, and what is left after a crash."""

import json
from base64 import b64decode

import pytest
from stan_protocol import refusals
from stan_protocol.channels import part_name
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import ChannelLimits, Config, RequestLimits, StoreLimits
from stan.core.features.jetstream.streams.infos import StreamInfos
from stan.core.metadata.meta import MetaMachine
from stan.policies import EPHEMERAL, PolicyRule
from stan.protocol.jetstream.api import ASKS_SERVER
from stan.protocol.proto import entries_pb2 as pb
from tests.kit import jetstream as js
from tests.kit.core_harness import CoreHarness

KV = {"max_msgs_per_subject": 1, "allow_rollup_hdrs": True, "allow_direct": True, "discard": "new", "deny_delete": True}


@pytest.fixture
def broker():
    return js.harness()


def create(broker, name="S", subjects=("a.b",), **config):
    return js.api(broker, f"STREAM.CREATE.{name}", {"name": name, "subjects": list(subjects)} | config)


def refusal(answer):
    return answer["error"]["err_code"]


def sequences(answers):
    return [answer["seq"] for answer in answers]


def got(broker, name, **wanted):
    """Subject, sequence and data of one message; the error's code if there is none."""
    answer = js.api(broker, f"STREAM.MSG.GET.{name}", wanted)
    if "error" in answer:
        return refusal(answer)
    message = answer["message"]
    return message["subject"], message["seq"], b64decode(message.get("data", ""))


# --- the switch -----------------------------------------------------------------------------------------------------------


def test_switched_off_the_broker_listens_to_nothing_of_it():
    assert not CoreHarness().broker.view.scope.more_subjects


@pytest.mark.parametrize("leaf", ["nats", "host:", ":7422", "host:70000", "host:x"])
def test_the_leafnode_listener_is_a_host_and_a_port(leaf):
    assert any("jetstream_leaf" in complaint for complaint in Config(jetstream_leaf=leaf).validate())


@pytest.mark.parametrize(
    ("name", "subjects", "allowed"),
    [
        ("S", ["orders.new"], True),
        ("S", ["orders.new.eu"], False),
        ("S", ["orders"], False),
        ("KV_cfg", ["$KV.cfg.>"], True),
        ("KV_cfg", ["$KV.*.>"], True),
        ("KV_cfg", ["$KV.>", "orders.*"], True),
        ("KV_cfg", ["orders.>"], False),
        ("KV_cfg", [">"], False),
        ("KV_cfg", ["*.new"], False),
        ("OTHER", ["$KV.cfg.>"], False),
    ],
)
def test_streams_have_the_channels_and_subjects_for_which_it_is_on(name, subjects, allowed):
    broker = js.harness(jetstream_channels=("orders.*", "KV_*", "$KV.>"))
    answer = create(broker, name, subjects)
    if allowed:
        assert "error" not in answer
        assert js.api(broker, f"STREAM.UPDATE.{name}", answer["config"] | {"subjects": ["x.*", *subjects]})["error"]
    else:
        assert refusal(answer) == 10052
        assert not js.api(broker, "STREAM.NAMES")["streams"]


# --- streams --------------------------------------------------------------------------------------------------------------


def test_a_stream_of_one_subject_takes_its_channel_over_with_its_messages(broker):
    broker.connect()
    broker.publish("a.b", b"before")
    state = create(broker)["state"]
    assert (state["messages"], state["last_seq"]) == (1, 1)
    assert sequences(js.publish(broker, "a.b", b"after")) == [2]
    assert broker.stored("a.b") == [b"before", b"after"]


def test_subscribers_of_stan_get_what_is_published_to_a_stream(broker):
    create(broker)
    broker.connect()
    broker.subscribe("a.b")
    js.publish(broker, "a.b", b"one", b"two", fields=[("who", "me")])
    messages = [said.message for said in broker.hear("inbox")]
    assert [(one.data, one.headers[0].value) for one in messages] == [(b"one", b"me"), (b"two", b"me")]


def test_a_stream_of_several_subjects_keeps_them_as_keys(broker):
    create(broker, "T", ["t.>", "other"])
    js.publish(broker, "t.x", b"1")
    js.publish(broker, "other", b"2")
    assert [got(broker, "T", seq=1), got(broker, "T", seq=2)] == [("t.x", 1, b"1"), ("other", 2, b"2")]
    assert broker.stored("T") == [b"1", b"2"]


def test_a_message_of_stan_without_a_key_has_the_channel_as_its_subject(broker):
    create(broker, "T", ["t.>"])
    broker.connect()
    broker.publish("T", b"plain")
    assert got(broker, "T", seq=1) == ("T", 1, b"plain")


def test_the_same_stream_again_is_the_same(broker):
    first = create(broker)
    js.publish(broker, "a.b", b"1")
    again = create(broker)
    assert again["created"] == first["created"]
    assert again["state"]["messages"] == 1
    assert refusal(create(broker, max_age=SECOND)) == 10058


def test_streams_with_the_same_subjects_are_refused(broker):
    create(broker)
    assert refusal(create(broker, "T", ["a.*"])) == 10065
    assert refusal(create(broker, "T", ["t.x", "t.*"])) == 10052


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"retention": "wild"}, 10052),
        ({"mirror": {"name": "S"}}, 10052),
        ({"sources": [{"name": "S"}]}, 10052),
        ({"republish": {"dest": "x"}}, 10052),
        ({"placement": {"cluster": "x"}}, 10052),
        ({"subject_transform": {"src": "a", "dest": "b"}}, 10052),
        ({"sealed": True}, 10052),
        ({"compression": "s3"}, 10052),
        ({"first_seq": 7}, 10052),
        ({"subjects": ["a.*"], "max_msgs_per_subject": limits.STREAM_HISTORY_MAX + 1}, 10052),
        ({"subjects": ["a.*"], "max_msgs_per_subject": 2, "max_msgs": 9}, 10052),
        ({"max_msgs_per_subject": 2, "discard_new_per_subject": True}, 10052),
        ({"discard": "new", "discard_new_per_subject": True}, 10052),
        ({"max_age": -1}, 10052),
        ({"max_age": 7}, 10052),
        ({"duplicate_window": 2 * SECOND, "max_age": SECOND}, 10052),
        ({"duplicate_window": limits.STREAM_WINDOW_MAX + 1}, 10052),
        ({"allow_rollup_hdrs": True, "deny_purge": True}, 10052),
        ({"num_replicas": 3}, 10074),
        ({"num_replicas": 6}, 10052),
        ({"subjects": [">"]}, 10052),
        ({"subjects": [">"], "no_ack": True}, 10052),
        ({"subjects": ["$JS.API.x"]}, 10052),
        ({"subjects": ["_STAN.>"]}, 10052),
        ({"subjects": ["x..y"]}, 10052),
        ({"subjects": ["x y"]}, 10052),
        ({"subjects": 3}, 10025),
        ({"max_bytes": "x"}, 10025),
        ({"max_msgs": True}, 10025),
        ({"max_msgs": 1 << 70}, 10025),
        ({"wild": 1}, 10025),
        ({"name": "other"}, 10056),
        ({"description": "d" * 5000}, 10052),
        ({"metadata": {"k": 1}}, 10025),
        ({"metadata": {"k": "v" * 20_000}}, 10052),
    ],
)
def test_what_cannot_be_had_is_refused(broker, config, code):
    asked = {"name": "S", "subjects": ["a.b"]} | config
    assert refusal(js.api(broker, "STREAM.CREATE.S", asked)) == code
    assert js.api(broker, "STREAM.NAMES")["streams"] is None


@pytest.mark.parametrize("payload", [b"{", b"[]", b"7", b'{"name":"S","max_age":NaN}', b"[" * 1000, b"\xff\xfe"])
def test_a_request_that_is_no_json_object_is_refused(broker, payload):
    assert refusal(js.api(broker, "STREAM.CREATE.S", payload)) == 10025


def test_a_request_that_is_too_long_is_refused_before_it_is_read(broker):
    payload = b" " * limits.API_REQUEST_BYTES_MAX + b"{}"
    assert refusal(js.api(broker, "STREAM.CREATE.S", payload)) == 10025


def test_streams_and_their_subjects_are_bounded(broker, monkeypatch):
    monkeypatch.setattr(limits, "STREAMS_MAX", 2)
    monkeypatch.setattr(limits, "STREAMS_SUBJECTS_MAX", 4)
    create(broker, "A", ["a.1", "a.2"])
    assert refusal(create(broker, "B", ["b.1", "b.2", "b.3"])) == 10027
    create(broker, "B", ["b"])
    assert refusal(create(broker, "C", ["c"])) == 10027


def test_channels_that_cannot_be_streams_are_refused():
    policies = PolicyRule(pattern="late.*", delay=SECOND, target="there"), PolicyRule(pattern="live", commit=EPHEMERAL)
    broker = js.harness(policies=policies)
    broker.feed_meta(create_parted=pb.CreateParted(name=b"parted", groups=[1, 1]))
    part = part_name(b"parted", 1).decode()
    refused = [refusal(create(broker, "S", [name])) for name in ("late.x", "live", "parted", part)]
    assert refused == [10052] * 4


def test_names_and_lists_come_page_by_page(broker, monkeypatch):
    for name in "CAB":
        create(broker, name, [f"{name}.>"])
    monkeypatch.setattr(limits, "STREAM_NAMES_PAGE", 2)
    monkeypatch.setattr(limits, "STREAMS_PAGE", 2)
    pages = [js.api(broker, "STREAM.NAMES", {"offset": at})["streams"] for at in (0, 2, 3)]
    assert pages == [["A", "B"], ["C"], None]
    assert js.api(broker, "STREAM.NAMES", {"subject": "B.x"})["streams"] == ["B"]
    listed = js.api(broker, "STREAM.LIST", {"offset": 1})
    assert ([one["config"]["name"] for one in listed["streams"]], listed["total"]) == (["B", "C"], 3)


def test_an_update_changes_what_may_change(broker):
    create(broker, "T", ["t.>"])
    js.publish(broker, "t.x", b"1")
    changed = js.api(broker, "STREAM.UPDATE.T", {"name": "T", "subjects": ["t.>", "u"], "max_msgs": 1})
    assert changed["config"]["max_msgs"] == 1
    assert sequences(js.publish(broker, "u", b"2")) == [2]
    assert js.api(broker, "STREAM.INFO.T")["state"]["messages"] == 1
    assert refusal(js.api(broker, "STREAM.UPDATE.U", {"name": "U", "subjects": ["t.x"]})) == 10059
    create(broker)
    assert refusal(create(broker, subjects=["t.x"])) == 10058, "the name comes before the subjects"


@pytest.mark.parametrize("option", ["deny_delete", "deny_purge", "allow_msg_ttl"])
def test_what_a_stream_promises_for_ever_is_not_taken_back(broker, option):
    promised = create(broker, **{option: True})["config"]
    assert refusal(js.api(broker, "STREAM.UPDATE.S", promised | {option: False})) == 10052
    assert js.api(broker, "STREAM.INFO.S")["config"][option]
    assert "error" not in js.api(broker, "STREAM.UPDATE.S", promised | {"max_msgs": 5})


def test_the_storage_that_a_client_has_named_is_told_and_stays(broker):
    assert create(broker)["config"]["storage"] == "file"
    assert create(broker, "M", ["m"], storage="memory")["config"]["storage"] == "memory"
    assert js.api(broker, "STREAM.INFO.M")["config"]["storage"] == "memory"
    assert refusal(create(broker, "M", ["m"])) == 10058
    assert refusal(js.api(broker, "STREAM.UPDATE.M", {"name": "M", "subjects": ["m"], "storage": "file"})) == 10052
    assert refusal(create(broker, "N", ["n"], storage="tape")) == 10052


@pytest.mark.parametrize("subjects", [["a.b", "c"], ["c"], ["a.*"]])
def test_a_stream_of_one_subject_keeps_its_channel_when_it_gets_others(broker, subjects):
    create(broker)
    js.publish(broker, "a.b", b"1")
    changed = js.api(broker, "STREAM.UPDATE.S", {"name": "S", "subjects": subjects})
    assert changed["config"]["subjects"] == subjects
    named = subjects[-1].replace("*", "b")
    assert sequences(js.publish(broker, named, b"2")) == [2]

    assert got(broker, "S", seq=1) == ("a.b", 1, b"1")
    assert got(broker, "S", last_by_subj=named) == (named, 2, b"2")
    assert list(broker.broker.view.meta.channels) == [b"a.b"]
    assert create(broker, subjects=subjects)["config"]["subjects"] == subjects
    assert refusal(create(broker)) == 10058
    assert refusal(create(broker, "OTHER", ["a.b"])) in (10052, 10065)


def test_a_stream_that_is_left_with_one_subject_keeps_its_channel(broker):
    create(broker, "T", ["t.x", "u"])
    js.publish(broker, "u", b"1")
    assert "error" not in js.api(broker, "STREAM.UPDATE.T", {"name": "T", "subjects": ["t.x"]})
    assert sequences(js.publish(broker, "t.x", b"2")) == [2]
    assert not js.hears(broker, "u")

    assert got(broker, "T", seq=1) == ("u", 1, b"1")
    assert got(broker, "T", last_by_subj="t.x") == ("t.x", 2, b"2")
    assert list(broker.broker.view.meta.channels) == [b"T"]


def test_a_stream_of_one_subject_gets_no_others_with_limits_that_it_cannot_have_then(broker):
    create(broker, max_msgs=5, max_msgs_per_subject=2)
    wanted = {"name": "S", "subjects": ["a.b", "c"], "max_msgs": 5, "max_msgs_per_subject": 2}
    assert refusal(js.api(broker, "STREAM.UPDATE.S", wanted)) == 10052


def test_a_stream_goes_with_the_channel_that_it_has_made(broker):
    create(broker)
    js.publish(broker, "a.b", b"1")
    assert js.api(broker, "STREAM.DELETE.S")["success"]
    assert not broker.broker.view.meta.channels
    assert not js.hears(broker, "a.b")
    assert refusal(js.api(broker, "STREAM.DELETE.S")) == 10059


def test_a_channel_that_was_there_before_its_stream_stays(broker):
    broker.connect()
    broker.publish("a.b", b"before")
    create(broker)
    assert js.api(broker, "STREAM.DELETE.S")["success"]
    assert broker.stored("a.b") == [b"before"]
    assert create(broker)["state"]["messages"] == 1


def test_a_stream_is_gone_once_its_channel_is_deleted(broker):
    create(broker)
    uid = broker.broker.view.meta.channels[b"a.b"].uid
    broker.feed_group(drop_channel=pb.DropChannel(uid=uid))
    broker.feed_meta(delete_channel=pb.DeleteChannel(uid=uid))
    broker.turn()
    assert refusal(js.api(broker, "STREAM.INFO.S")) == 10059


def test_a_stream_of_several_subjects_takes_over_a_channel_of_its_name(broker):
    """So a channel that was restored from a backup gets its stream again."""
    broker.connect()
    broker.publish("T", b"1", key_of=lambda _payload: b"t.x")
    assert create(broker, "T", ["t.>"])["state"]["messages"] == 1
    assert got(broker, "T", last_by_subj="t.x") == ("t.x", 1, b"1")


def test_a_channel_is_that_of_one_stream(broker):
    broker.connect()
    broker.publish("ORDERS", b"1")
    create(broker, "S", ["taken"])
    assert refusal(create(broker, "taken", ["t.>"])) == 10052
    assert refusal(create(broker, "orders", ["o.>"])) == 10052, "names of channels differ by more than case"


def test_limits_of_a_stream_are_those_of_its_channel(broker):
    create(broker, "T", ["t.>"], max_msgs=2)
    assert sequences(js.publish(broker, "t.x", b"1", b"2", b"3")) == [1, 2, 3]
    js.publish(broker, "t.x", b"4")
    assert got(broker, "T", seq=1) == 10037
    assert got(broker, "T", seq=4) == ("t.x", 4, b"4")


def test_a_stream_that_discards_new_messages_removes_none(broker):
    create(broker, "T", ["t.>"], max_msgs=2, discard="new")
    answers = js.publish(broker, "t.x", b"1", b"2", b"3")
    assert [answer.get("error", {}).get("err_code") for answer in answers] == [None, None, 10077]
    assert answers[2]["error"]["description"] == "maximum messages exceeded"
    assert broker.stored("T") == [b"1", b"2"]


def test_all_of_it_is_there_after_a_restart(broker):
    create(broker, "T", ["t.>"], metadata={"a": "b"}, description="d")
    js.publish(broker, "t.x", b"1")
    before = js.api(broker, "STREAM.INFO.T")
    broker.restart()
    assert js.api(broker, "STREAM.INFO.T") == before
    assert sequences(js.publish(broker, "t.y", b"2")) == [2]


def test_streams_are_in_snapshots_and_rows(broker):
    create(broker, "T", ["t.>"])
    create(broker)
    meta = broker.follower(0)
    loaded = MetaMachine()
    loaded.restore(broker.state.snapshot(0))
    assert loaded.streams.by_name == meta.streams.by_name
    assert [key for kind, key, row in meta.take_changed_rows().parts if kind == "streams" and row] == [b"S", b"T"]


# --- publishing -----------------------------------------------------------------------------------------------------------


def test_publishes_of_one_read_are_one_entry(broker):
    create(broker)
    before = len(broker.logs[1])
    js.publish(broker, "a.b", *[b"x"] * 50)
    assert len(broker.logs[1]) == before + 1


def test_a_publish_without_a_reply_is_stored(broker):
    create(broker)
    js.hears(broker, "a.b", b"quiet")
    broker.turn()
    assert broker.stored("a.b") == [b"quiet"]
    assert not broker.hear("")


def test_a_pub_ack_leaves_after_the_commit(broker):
    create(broker)
    broker.hold = True
    assert js.publish(broker, "a.b", b"1") == [None]
    broker.hold = False
    broker.turn()
    assert json.loads(broker.hear("_INBOX.2")[0].payload) == {"stream": "S", "seq": 1}


def test_what_is_not_stored_is_answered_with_an_error(broker):
    create(broker)
    broker.full = True
    assert refusal(js.publish(broker, "a.b", b"1")[0]) == 10077
    broker.full = False
    assert sequences(js.publish(broker, "a.b", b"2")) == [1]


@pytest.mark.parametrize("again", ["at once", "later", "after a restart"])
def test_of_messages_with_one_id_one_is_stored(broker, again):
    create(broker, "T", ["t.>"])
    field = [("Nats-Msg-Id", "id " * 20)]
    if again == "at once":
        first, second = js.publish(broker, "t.x", b"1", b"1", fields=field)
    else:
        (first,) = js.publish(broker, "t.x", b"1", fields=field)
        if again == "after a restart":
            broker.restart()
        (second,) = js.publish(broker, "t.y", b"2", fields=field)
    assert first == {"stream": "T", "seq": 1}
    assert second == {"stream": "T", "seq": 1, "duplicate": True}
    assert broker.stored("T") == [b"1"]


@pytest.mark.parametrize("fields", [(), [("Nats-Msg-Id", "one")]])
def test_a_stream_without_acks_stores_and_does_not_answer(broker, fields):
    told = create(broker, no_ack=True, max_msg_size=100)
    assert told["config"]["no_ack"]
    assert js.publish(broker, "a.b", b"1", b"2", b"x" * 200, fields=fields) == [None] * 3
    assert broker.stored("a.b") == ([b"1"] if fields else [b"1", b"2"])
    broker.restart()
    assert js.publish(broker, "a.b", b"3") == [None]
    assert "no_ack" not in js.api(broker, "STREAM.UPDATE.S", {"name": "S", "subjects": ["a.b"]})["config"]
    assert sequences(js.publish(broker, "a.b", b"4")) == [3 if fields else 4]


def test_an_id_is_known_for_the_duplicate_window(broker):
    create(broker, duplicate_window=2 * SECOND)
    field = [("Nats-Msg-Id", "i")]
    js.publish(broker, "a.b", b"1", fields=field)
    broker.pass_time(1)
    assert js.publish(broker, "a.b", b"1", fields=field)[0]["duplicate"]
    broker.pass_time(2)
    assert js.publish(broker, "a.b", b"1", fields=field) == [{"stream": "S", "seq": 2}]


@pytest.mark.parametrize("restarted", [False, True])
def test_expectations_are_compared_with_what_is_there(broker, restarted):
    create(broker, "T", ["t.>"])
    js.publish(broker, "t.x", b"1", fields=[("Nats-Msg-Id", "one")])
    js.publish(broker, "t.y", b"2", fields=[("Nats-Msg-Id", "two")])
    if restarted:
        broker.restart()
    for name, wrong, code in (
        ("Nats-Expected-Stream", "S", 10060),
        ("Nats-Expected-Last-Sequence", "1", 10071),
        ("Nats-Expected-Last-Msg-Id", "one", 10070),
        ("Nats-Expected-Last-Subject-Sequence", "2", 10071),
        ("Nats-Expected-Last-Subject-Sequence", "zz", 10071),
        ("Nats-Expected-Last-Subject-Sequence-Subject", "t.y", 10193),
        ("Nats-TTL", "1s", 10166),
        ("Nats-Rollup", "sub", 10111),
        ("Nats-Batch-Id", "b", 10174),
        ("Nats-Incr", "+1", 10168),
        ("Nats-Schedule", "@at 1", 10188),
    ):
        assert refusal(js.publish(broker, "t.x", b"3", fields=[(name, wrong)])[0]) == code
    for name, right in (
        ("Nats-Expected-Stream", "T"),
        ("Nats-Expected-Last-Sequence", "3"),
        ("Nats-Expected-Last-Subject-Sequence", "4"),
    ):
        assert "error" not in js.publish(broker, "t.x", b"4", fields=[(name, right)])[0]
    assert js.publish(broker, "t.z", b"5", fields=[("Nats-Expected-Last-Subject-Sequence", "0")])[0]["seq"] == 6


def test_fast_batches_are_refused_and_not_stored(broker):
    create(broker)
    reply = "reply.id.10.ok.1.0.$FI"
    assert js.hears(broker, "a.b", b"1", reply)
    broker.turn()
    assert refusal(json.loads(js.answer_to(broker, reply).payload)) == 10205
    assert sequences(js.publish(broker, "a.b", b"2")) == [1]


def test_of_two_publishes_that_expect_the_same_the_first_is_stored(broker):
    create(broker, "T", ["t.>"])
    answers = js.publish(broker, "t.x", b"1", b"2", fields=[("Nats-Expected-Last-Subject-Sequence", "0")])
    assert (answers[0]["seq"], refusal(answers[1])) == (1, 10071)
    broker.hold = True
    js.publish(broker, "t.x", b"3", fields=[("Nats-Expected-Last-Subject-Sequence", "1")])
    assert refusal(js.publish(broker, "t.x", b"4", fields=[("Nats-Expected-Last-Subject-Sequence", "1")])[0]) == 10071
    broker.hold = False
    broker.turn()
    assert broker.stored("T") == [b"1", b"3"]


def test_in_a_stream_of_one_subject_messages_of_others_are_in_order(broker):
    create(broker)
    assert refusal(js.publish(broker, "a.b", b"", fields=[("Nats-Expected-Last-Subject-Sequence", "1")])[0]) == 10071
    broker.connect()
    broker.hold = True
    broker.publish("a.b", b"1")
    late = js.publish(broker, "a.b", b"2", fields=[("Nats-Expected-Last-Subject-Sequence", "0")])[0]
    assert refusal(late) == 10071
    broker.hold = False
    broker.turn()
    js.publish(broker, "a.b", b"2", fields=[("Nats-Expected-Last-Subject-Sequence", "1")])
    js.api(broker, "STREAM.MSG.DELETE.S", {"seq": 2})
    assert js.publish(broker, "a.b", b"3", fields=[("Nats-Expected-Last-Subject-Sequence", "1")])[0]["seq"] == 3


def test_messages_of_others_on_their_way_make_an_expectation_wait(broker):
    create(broker, "T", ["t.>"])
    field = [("Nats-Expected-Last-Subject-Sequence", "0")]
    js.publish(broker, "t.x", b"1", fields=field)
    broker.connect()
    broker.hold = True
    broker.publish("T", b"other", key_of=lambda _payload: b"t.y")
    assert refusal(js.publish(broker, "t.y", b"2", fields=field)[0]) == 10163
    broker.hold = False
    broker.turn()
    assert refusal(js.publish(broker, "t.y", b"2", fields=field)[0]) == 10071


def test_messages_wait_in_order_while_the_index_is_read(broker):
    create(broker, "T", ["t.>"])
    js.publish(broker, "t.x", b"1")
    broker.restart()
    broker.slow = True
    js.publish(broker, "t.x", b"2", fields=[("Nats-Expected-Last-Subject-Sequence", "1")])
    js.publish(broker, "t.x", b"3")
    assert broker.stored("T") == [b"1"]
    broker.answer_reads()
    broker.turn()
    assert broker.stored("T") == [b"1", b"2", b"3"]


def test_what_waits_for_the_index_is_bounded(broker, monkeypatch):
    monkeypatch.setattr(limits, "STREAM_WAITING_BYTES_MAX", 100)
    create(broker, "T", ["t.>"])
    js.publish(broker, "t.x", b"1")
    broker.restart()
    broker.slow = True
    js.publish(broker, "t.x", b"2", fields=[("Nats-Msg-Id", "1")])
    assert refusal(js.publish(broker, "t.x", b"3" * 100)[0]) == 10008


def test_messages_and_headers_that_are_too_large_are_refused(broker):
    create(broker, max_msg_size=5)
    create(broker, "T", ["t.>"])
    assert refusal(js.publish(broker, "a.b", b"123456")[0]) == 10054
    assert refusal(js.publish(broker, "t.x", bytes(limits.MESSAGE_PAYLOAD_BYTES_MAX))[0]) == 10054
    assert refusal(js.publish(broker, "t.x", b"", fields=[("h", "x" * limits.HEADERS_BYTES_MAX)])[0]) == 10097
    assert refusal(js.publish(broker, "t." + "x" * limits.KEY_BYTES_MAX, b"")[0]) == 10077


def test_a_rollup_of_all_takes_the_place_of_everything_before_it(broker):
    create(broker, "T", ["t.>"], allow_rollup_hdrs=True)
    js.publish(broker, "t.x", b"1", b"2")
    assert sequences(js.publish(broker, "t.y", b"3", fields=[("Nats-Rollup", "all")])) == [3]
    assert js.api(broker, "STREAM.INFO.T")["state"]["first_seq"] == 3
    assert refusal(js.publish(broker, "t.y", b"4", fields=[("Nats-Rollup", "half")])[0]) == 10111


@pytest.mark.parametrize("restarted", [False, True])
def test_a_rollup_of_a_subject_takes_the_place_of_its_messages(broker, restarted):
    create(broker, "T", ["t.>"], allow_rollup_hdrs=True)
    for subject in ("t.x", "t.y", "t.x", "t.y"):
        js.publish(broker, subject, b"")
    if restarted:
        broker.restart()
    rollup = [("Nats-Rollup", "sub")]
    assert sequences(js.publish(broker, "t.x", b"new", fields=rollup)) == [5]
    assert [at for at in range(1, 6) if got(broker, "T", seq=at) != 10037] == [2, 4, 5]
    first, second = js.publish(broker, "t.y", b"1", b"2", fields=rollup)
    assert (first["seq"], refusal(second)) == (6, 10163), "the first one is on its way"
    assert [at for at in range(1, 7) if got(broker, "T", seq=at) != 10037] == [5, 6]
    assert js.api(broker, "STREAM.PURGE.T", {"filter": "t.y"})["purged"] == 1
    assert got(broker, "T", last_by_subj="t.y") == 10037


def test_a_message_with_a_time_to_live_goes_after_it(broker):
    create(broker, "T", ["t.>"], allow_msg_ttl=True)
    assert sequences(js.publish(broker, "t.x", b"1", fields=[("Nats-TTL", "2s")])) == [1]
    assert sequences(js.publish(broker, "t.x", b"2", fields=[("Nats-TTL", "never")])) == [2]
    assert refusal(js.publish(broker, "t.x", b"3", fields=[("Nats-TTL", "1ms")])[0]) == 10165
    broker.pass_time(5)
    assert [got(broker, "T", seq=1), got(broker, "T", seq=2)] == [10037, ("t.x", 2, b"2")]


# --- reading and removing ---------------------------------------------------------------------------------------------------


def test_messages_are_found_by_sequence_and_subject(broker):
    create(broker, "T", ["t.>"])
    for subject, payload in (("t.x", b"1"), ("t.y", b"2"), ("t.x", b"3"), ("t.z.a", b"4")):
        js.publish(broker, subject, payload)
    assert got(broker, "T", last_by_subj="t.x") == ("t.x", 3, b"3")
    assert got(broker, "T", last_by_subj="t.*") == ("t.x", 3, b"3")
    assert [got(broker, "T", last_by_subj=subject) for subject in ("t.q", "t.", "t..x", "t.a b")] == [10037] * 4
    assert got(broker, "T", seq=2, next_by_subj="t.x") == ("t.x", 3, b"3")
    assert got(broker, "T", next_by_subj="t.>") == ("t.x", 1, b"1")
    assert got(broker, "T", seq=4, next_by_subj="t.x") == 10037
    assert [got(broker, "T", seq=9), got(broker, "T"), got(broker, "T", seq=1, last_by_subj="t.x")] == [
        10037,
        10003,
        10003,
    ]
    assert js.api(broker, "STREAM.INFO.T", {"subjects_filter": "t.*"})["state"]["subjects"] == {"t.x": 2, "t.y": 1}
    some = js.api(broker, "STREAM.INFO.T", {"subjects_filter": "t.y"})
    assert (some["state"]["subjects"], some["total"], some["state"]["num_subjects"]) == ({"t.y": 1}, 1, 3)


def test_the_newest_message_of_a_subject_is_the_one_before_if_that_is_deleted(broker):
    create(broker, "T", ["t.>"])
    js.publish(broker, "t.x", b"1", b"2")
    assert got(broker, "T", last_by_subj="t.x") == ("t.x", 2, b"2")
    assert js.api(broker, "STREAM.MSG.DELETE.T", {"seq": 2})["success"]
    assert got(broker, "T", last_by_subj="t.x") == ("t.x", 1, b"1")
    assert refusal(js.api(broker, "STREAM.MSG.DELETE.T", {"seq": 2})) == 10043
    assert js.api(broker, "STREAM.INFO.T", {"deleted_details": True})["state"]["messages"] == 1


def test_messages_of_stan_are_in_the_index(broker):
    create(broker, "T", ["t.>"])
    js.publish(broker, "t.x", b"1")
    assert got(broker, "T", last_by_subj="t.x") == ("t.x", 1, b"1")
    broker.connect()
    broker.publish("T", b"2", key_of=lambda _payload: b"t.x")
    assert got(broker, "T", last_by_subj="t.x") == ("t.x", 2, b"2")


def test_direct_answers_are_the_messages_themselves(broker):
    create(broker, "T", ["t.>"], allow_direct=True)
    create(broker)
    js.publish(broker, "t.x", b"1", fields=[("a", "b")])
    answer = js.direct(broker, "DIRECT.GET.T", {"seq": 1})
    expected = {"a": "b", "Nats-Stream": "T", "Nats-Subject": "t.x", "Nats-Sequence": "1"}
    assert (answer.payload, answer.header | expected) == (b"1", answer.header)
    assert js.direct(broker, "DIRECT.GET.T.t.x").payload == b"1"
    assert js.direct(broker, "DIRECT.GET.T.t.y").status == "404 Message Not Found"
    assert js.direct(broker, "DIRECT.GET.T", {}).status == "408 Empty Request"
    assert js.direct(broker, "DIRECT.GET.T", {"batch": 5}).status == "408 Empty Request"
    assert js.direct(broker, "DIRECT.GET.T", {"seq": 1, "last_by_subj": "t.x"}).status == "408 Bad Request"
    assert js.direct(broker, "DIRECT.GET.S", {"seq": 1}).status == "503"
    assert js.direct(broker, "DIRECT.GET.NONE", {"seq": 1}).status == "503"
    assert "a" not in js.direct(broker, "DIRECT.GET.T", {"seq": 1, "no_hdr": True}).header
    assert "hdrs" not in js.api(broker, "STREAM.MSG.GET.T", {"seq": 1, "no_hdr": True})["message"]


def test_a_key_cannot_bring_headers_of_its_own(broker):
    create(broker, "T", ["t.>"], allow_direct=True)
    broker.connect()
    broker.publish("T", b"1", key_of=lambda _payload: b"t.x\r\nadmin: yes\r\n\r\nPUB")
    answer = js.direct(broker, "DIRECT.GET.T", {"seq": 1})
    assert answer.payload == b"1"
    assert answer.header["Nats-Subject"] == "t.x  admin: yes    PUB"
    assert "admin" not in answer.header


@pytest.mark.parametrize(
    ("asked", "purged", "left"),
    [
        ({}, 5, []),
        ({"seq": 3}, 2, [3, 4, 5]),
        ({"keep": 1}, 4, [5]),
        ({"filter": "t.x"}, 3, [2, 4]),
        ({"filter": "t.x", "keep": 1}, 2, [2, 4, 5]),
        ({"filter": "t.x", "seq": 4}, 2, [2, 4, 5]),
        ({"filter": "t.q"}, 0, [1, 2, 3, 4, 5]),
    ],
)
def test_a_purge_removes_what_it_names(broker, asked, purged, left):
    create(broker, "T", ["t.>"])
    for subject in ("t.x", "t.y", "t.x", "t.y", "t.x"):
        js.publish(broker, subject, b"")
    assert js.api(broker, "STREAM.PURGE.T", asked)["purged"] == purged
    assert [at for at in range(1, 6) if got(broker, "T", seq=at) != 10037] == left
    assert refusal(js.api(broker, "STREAM.PURGE.T", {"seq": 1, "keep": 1})) == 10003


def test_what_a_stream_denies_is_not_done(broker):
    create(broker, "T", ["t.>"], deny_delete=True, deny_purge=True)
    js.publish(broker, "t.x", b"1")
    assert refusal(js.api(broker, "STREAM.MSG.DELETE.T", {"seq": 1})) == 10057
    assert refusal(js.api(broker, "STREAM.PURGE.T")) == 10110


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"deny_delete": True}, {}),
        ({"deny_purge": True}, {}),
        ({"allow_msg_ttl": True}, {}),
        ({"retention": "workqueue"}, {}),
        ({"max_msgs_per_subject": 3, "discard_new_per_subject": True, "discard": "new"}, {"max_msgs_per_subject": 2}),
        ({}, {"storage": "memory"}),
    ],
)
def test_an_update_takes_no_promise_back(broker, before, after):
    told = create(broker, **before)["config"]
    wanted = {"name": "S", "subjects": ["a.b"]} | (before | after if after else {})
    assert refusal(js.api(broker, "STREAM.UPDATE.S", wanted)) == 10052
    assert js.api(broker, "STREAM.INFO.S")["config"] == told


def sealed(broker, **config):
    """A stream with one message that is sealed."""
    create(broker, **config)
    js.publish(broker, "a.b", b"1")
    return js.api(broker, "STREAM.UPDATE.S", {"name": "S", "subjects": ["a.b"], "sealed": True} | config)


def test_a_sealed_stream_keeps_what_it_has(broker):
    config = sealed(broker, max_age=60 * SECOND, allow_rollup_hdrs=True)["config"]
    assert config["sealed"]
    assert (config["max_age"], config["discard"], config["allow_rollup_hdrs"]) == (0, "new", False)
    assert refusal(js.publish(broker, "a.b", b"2")[0]) == 10109
    assert refusal(js.publish(broker, "a.b", b"2", fields=[("Nats-Rollup", "all")])[0]) == 10109
    assert refusal(js.api(broker, "STREAM.MSG.DELETE.S", {"seq": 1})) == 10109
    assert refusal(js.api(broker, "STREAM.PURGE.S")) == 10109
    broker.pass_time(61)
    assert got(broker, "S", seq=1) == ("a.b", 1, b"1")


def test_a_seal_outlives_a_crash_and_is_not_taken_back(broker):
    sealed(broker)
    broker.restart()
    assert refusal(js.publish(broker, "a.b", b"2")[0]) == 10109
    assert refusal(js.api(broker, "STREAM.UPDATE.S", {"name": "S", "subjects": ["a.b"]})) == 10052
    assert js.api(broker, "STREAM.DELETE.S")["success"]


def test_publishers_of_stan_store_nothing_in_a_sealed_stream(broker):
    broker.connect()
    sealed(broker)
    assert broker.publish("a.b", b"2") == [refusals.STREAM_SEALED]
    assert broker.stored("a.b") == [b"1"]


@pytest.mark.parametrize(
    "limit",
    [
        {"max_msgs": 3},
        {"max_msgs_per_subject": 3, "discard_new_per_subject": True},
        {"max_bytes": 400},
    ],
)
def test_a_full_stream_takes_no_messages_of_stan(broker, limit):
    create(broker, discard="new", **limit)
    broker.connect()
    errors = [broker.publish("a.b", b"x" * 100)[0] for _ in range(6)]
    stored = errors.count("")
    assert 1 < stored < 5
    assert errors == [""] * stored + [refusals.STREAM_FULL] * (6 - stored)
    assert len(broker.stored("a.b")) == stored


def test_of_a_batch_of_stan_a_stream_takes_what_it_has_room_for(broker):
    create(broker, discard="new", max_msgs=3)
    broker.connect()
    told = broker.publish("a.b", *(b"%d" % number for number in range(5)))
    assert sorted(told) == ["", "", "", refusals.STREAM_FULL, refusals.STREAM_FULL]
    assert broker.stored("a.b") == [b"0", b"1", b"2"]


def test_a_bucket_shows_one_revision_of_a_key(broker):
    create(broker, "KV_B", ["$KV.B.>"], **KV)
    js.publish(broker, "$KV.B.k", b"1", b"2")
    js.publish(broker, "$KV.B.l", b"3")
    assert got(broker, "KV_B", last_by_subj="$KV.B.k") == ("$KV.B.k", 2, b"2")
    assert got(broker, "KV_B", seq=1) == 10037
    assert got(broker, "KV_B", seq=2) == ("$KV.B.k", 2, b"2")
    assert js.api(broker, "STREAM.INFO.KV_B")["state"]["messages"] == 2
    assert js.publish(broker, "$KV.B.k", b"", fields=[("KV-Operation", "PURGE"), ("Nats-Rollup", "sub")])[0]["seq"] == 4
    assert got(broker, "KV_B", last_by_subj="$KV.B.k") == ("$KV.B.k", 4, b"")


def test_a_bucket_is_compacted(broker):
    create(broker, "KV_B", ["$KV.B.>"], **KV)
    js.publish(broker, "$KV.B.k", b"1", b"2")
    broker.pass_time(limits.COMPACTION_INTERVAL / SECOND + 2 * limits.RETENTION_INTERVAL / SECOND)
    uid = broker.broker.view.meta.channels[b"KV_B"].uid
    assert broker.follower().compactions.of(uid).until == 2


# --- who answers ------------------------------------------------------------------------------------------------------------


def test_without_a_lease_the_answer_is_to_ask_again(broker):
    create(broker)
    for group in (0, 1):
        broker.broker.stops.step_lease(group, holds=False)
    assert refusal(js.api(broker, "STREAM.INFO.S")) == 10008
    assert refusal(js.api(broker, "STREAM.NAMES")) == 10008


def test_requests_that_nobody_knows_or_that_want_no_answer_are_left_alone(broker):
    assert js.api(broker, "STREAM.WILD.S") is None
    assert js.hears(broker, "$JS.API.STREAM.CREATE.S", b'{"name":"S"}')
    broker.turn()
    assert js.api(broker, "STREAM.NAMES")["total"] == 0


def test_a_request_that_fails_is_logged_and_harms_nobody(broker, monkeypatch):
    create(broker)
    monkeypatch.setattr(limits, "API_NESTED_MAX", None)  # what is compared with it raises
    assert js.api(broker, "STREAM.MSG.GET.S", {"seq": 1}) is None
    monkeypatch.undo()
    assert any(level == "ERR" and "STREAM.MSG.GET.S failed" in text for level, text in broker.notes)
    assert sequences(js.publish(broker, "a.b", b"1")) == [1]


def test_a_request_that_needs_a_newer_api_is_refused(broker):
    create(broker)
    for level, code in (("0", None), ("5", None), ("6", 10185), ("x", 10185)):
        fields = [("Nats-Required-Api-Level", level)]
        assert js.hears(broker, "$JS.API.STREAM.INFO.S", b"", f"reply.{level}", fields)
        broker.turn()
        answer = json.loads(js.answer_to(broker, f"reply.{level}").payload)
        assert answer.get("error", {}).get("err_code") == code


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"max_msgs": -2}, "max_msgs must be set to -1"),
        ({"max_age": SECOND}, "duplicate window cannot be bigger than max age"),
        ({"max_age": SECOND, "duplicate_window": SECOND}, None),
    ],
)
def test_a_pedantic_client_is_refused_what_would_be_changed(broker, config, why):
    answer = create(broker, pedantic=True, **config)
    told = answer.get("error", {})
    assert (told.get("err_code"), told.get("description")) == (
        (10157, f"pedantic mode: {why}") if why else (None, None)
    )
    assert "error" not in create(broker, **config)


def test_requests_about_streams_are_rated_as_those_of_operators_are():
    broker = js.harness(requests=RequestLimits(rate=1))
    codes = [answer.get("error", {}).get("err_code") for answer in (js.api(broker, "STREAM.NAMES") for _ in range(9))]
    assert codes[0] is None
    assert 10167 in codes
    assert "error" not in js.api(broker, "INFO")


def test_a_compressed_stream_has_a_compressed_channel(broker):
    told = create(broker, compression="s2")
    assert told["config"]["compression"] == "s2"
    assert broker.state.policy(b"a.b").compress == 1
    assert create(broker, "T", ("t",), compression="none")["config"]["compression"] == "none"
    assert broker.state.policy(b"t").compress == 0


def test_consumers_have_the_limits_of_their_stream(broker):
    most = {"max_ack_pending": 10, "inactive_threshold": 60 * SECOND}
    assert create(broker, consumer_limits=most)["config"]["consumer_limits"] == most
    assert create(broker, "T", ("t",), consumer_limits={"max_ack_pending": 5})["config"]["consumer_limits"] == {
        "max_ack_pending": 5
    }

    def made(name, **config):
        asked = {"stream_name": "S", "config": {"durable_name": name, "ack_policy": "explicit", **config}}
        return js.api(broker, f"CONSUMER.CREATE.S.{name}", asked)

    config = made("a")["config"]
    assert (config["max_ack_pending"], config["inactive_threshold"]) == (10, 60 * SECOND)
    assert made("b", max_ack_pending=3)["config"]["max_ack_pending"] == 3
    assert refusal(made("c", max_ack_pending=11)) == 10121
    assert refusal(made("c", max_ack_pending=-1)) == 10121
    assert refusal(made("c", inactive_threshold=61 * SECOND)) == 10153
    assert (
        refusal(js.api(broker, "STREAM.CREATE.U", {"name": "U", "consumer_limits": {"max_ack_pending": -1}})) == 10052
    )
    assert refusal(js.api(broker, "STREAM.CREATE.U", {"name": "U", "consumer_limits": {"more": 1}})) == 10025


def test_the_account_tells_servers_alone_which_cluster_answers(broker):
    """Some clients refuse an answer with a field that they do not know."""
    assert "stan" not in js.api(broker, "INFO")
    assert js.api(broker, "INFO", ASKS_SERVER)["stan"] == "test-cluster"


def test_requests_that_are_not_built_are_refused(broker):
    create(broker)
    for request in ("SNAPSHOT", "LEADER.STEPDOWN", "RESTORE", "PEER.REMOVE"):
        assert refusal(js.api(broker, f"STREAM.{request}.S")) == 10010


def test_a_message_that_names_no_client_counts_as_received(broker):
    create(broker)
    js.publish(broker, "a.b", b"123", b"4")
    totals = broker.broker.view.totals()
    assert (totals.in_messages, totals.in_bytes) == (2, 4)


def test_an_id_is_known_on_when_its_message_is_deleted(broker):
    """Once the index was made again without it: in a work queue each retry behind the ack was stored again."""
    create(broker, subjects=("s.*",))

    def publish(subject, name):
        return js.publish(broker, subject, b"x", fields=[("Nats-Msg-Id", name)])[0]

    assert publish("s.a", "one")["seq"] == 1
    assert publish("s.b", "two")["seq"] == 2
    assert js.api(broker, "STREAM.MSG.DELETE.S", {"seq": 1})["success"]
    again = publish("s.a", "one")
    assert (again["seq"], again.get("duplicate")) == (1, True)


def test_a_stream_alone_is_made_without_a_cluster_and_without_subjects_that_nothing_has(broker):
    assert "cluster" not in create(broker, subjects=("s.*",))
    assert js.api(broker, "STREAM.INFO.S")["cluster"] == {"leader": "test-cluster"}
    assert "subjects" not in js.api(broker, "STREAM.INFO.S", {"subjects_filter": "s.none"})["state"]


def test_a_stream_that_makes_its_channel_has_its_own_limits_alone():
    """Those for all channels once took the millionth message of a bucket away."""
    broker = js.harness(limits=StoreLimits(channels=1, default=ChannelLimits(msgs=3, bytes=10_000)))
    assert create(broker, subjects=("s.*",))["config"]["max_msgs"] == -1
    assert create(broker, "T", ("t.*",), max_msgs=2)["config"]["max_msgs"] == 2
    js.publish(broker, "s.a", *[b"x"] * 5)
    assert js.api(broker, "STREAM.INFO.S")["state"]["messages"] == 5


def test_a_request_that_fails_while_it_reads_fails_alone(monkeypatch):
    def fails(*_):
        raise ZeroDivisionError

    h = js.harness()
    js.api(h, "STREAM.CREATE.S", {"name": "S", "subjects": ["a.*"]})
    js.publish(h, "a.b", b"1")
    monkeypatch.setattr(StreamInfos, "_describe", fails)
    assert js.api(h, "STREAM.INFO.S", {"subjects_filter": ">"}) is None
    monkeypatch.undo()

    assert js.api(h, "STREAM.INFO.S", {"subjects_filter": ">"})["state"]["subjects"] == {"a.b": 1}
    assert js.publish(h, "a.b", b"2")[0]["seq"] == 2
    assert any("failed" in text for level, text in h.notes if level == "ERR")

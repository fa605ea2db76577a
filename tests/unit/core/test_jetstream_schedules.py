"""Schedules of streams on one leader: what is taken and what is refused, what is published when, and what ends a schedule."""

from base64 import b64decode

import pytest
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.scalars import SECOND
from stan_protocol.units import rfc3339

from stan import limits
from stan.core.publishing.row_batch import row_of
from stan.permissions import Right
from stan.protocol.jetstream import headers
from tests.kit import jetstream as js
from tests.kit.core_harness import START
from tests.unit.core.test_core_delays import stored
from tests.unit.core.test_core_restore_requests import ask
from tests.unit.core.test_jetstream_permissions import RIGHTS, House

S = ["t.>"]


@pytest.fixture
def broker():
    made = js.harness()
    assert "error" not in create(made)
    return made


def create(broker, name="T", subjects=S, **config):
    asked = {"name": name, "subjects": subjects, "allow_msg_schedules": True} | config
    return js.api(broker, f"STREAM.CREATE.{name}", asked)


def at(seconds):
    """The moment so long after the start of the harness, as a schedule has it."""
    return f"@at {rfc3339(START + int(seconds * SECOND))}"


def schedule(broker, subject="t.later", target="t.now", when=5.0, data=b"data", **more):
    """Publish a schedule; returns the error's code, or its sequence."""
    pattern = when if isinstance(when, str) else at(when)
    named = {name.replace("_", "-"): value for name, value in more.items()}
    fields = {"Nats-Schedule": pattern, "Nats-Schedule-Target": target} | named
    (answer,) = js.publish(broker, subject, data, fields=[*fields.items()])
    return answer["error"]["err_code"] if "error" in answer else answer["seq"]


def there(broker, name="T"):
    """Subject and data of each message of a stream, by sequence."""
    last = js.api(broker, f"STREAM.INFO.{name}")["state"]["last_seq"]
    found = {}
    for sequence in range(1, last + 1):
        answer = js.api(broker, f"STREAM.MSG.GET.{name}", {"seq": sequence})
        if "error" not in answer:
            message = answer["message"]
            found[sequence] = message["subject"], b64decode(message.get("data", ""))
    return found


def fields_of(broker, sequence, name="T"):
    message = js.api(broker, f"STREAM.MSG.GET.{name}", {"seq": sequence})["message"]
    return [(key.decode(), value.decode()) for key, value in headers.parse(b64decode(message["hdrs"]))]


def rows(broker):
    return sorted(broker.follower().schedules.keys())


# --- configuration --------------------------------------------------------------------------------------------------------


def test_a_stream_with_schedules_has_rollups_and_keeps_both():
    broker = js.harness()
    config = create(broker, deny_purge=True)["config"]
    assert (config["allow_msg_schedules"], config["allow_rollup_hdrs"], config["deny_purge"]) == (True, True, False)
    answer = js.api(broker, "STREAM.UPDATE.T", {"name": "T", "subjects": S, "allow_rollup_hdrs": True})
    assert answer["error"]["description"] == "message schedules can not be disabled"
    again = js.api(broker, "STREAM.UPDATE.T", {"name": "T", "subjects": ["t.>", "u"], "allow_msg_schedules": True})
    assert again["config"]["subjects"] == ["t.>", "u"]


@pytest.mark.parametrize("config", [{"discard": "new"}, {"pedantic": True}])
def test_what_does_not_go_with_schedules_is_refused(config):
    assert create(js.harness(), **config)["error"]["err_code"] == 10052


def test_schedules_can_be_switched_on_later():
    broker = js.harness()
    create(broker, allow_msg_schedules=False)
    assert schedule(broker) == 10188
    assert "error" not in js.api(broker, "STREAM.UPDATE.T", {"name": "T", "subjects": S, "allow_msg_schedules": True})
    assert schedule(broker) == 1


# --- what is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"when": "@at soon"}, 10189),
        ({"when": "@at"}, 10189),
        ({"when": "@every 5"}, 10189),
        ({"when": "@every 999ms"}, 10189),
        ({"when": "@every -5s"}, 10189),
        ({"when": "@every 9999h"}, 10189),
        ({"when": "0 * * * *"}, 10189),
        ({"when": "@often"}, 10189),
        ({"when": "@hourly", "Nats_Schedule_Time_Zone": "Europe/Paris"}, 10223),
        ({"when": limits.DELAY_MAX / SECOND + 60}, 10189),
        ({"Nats_Schedule_Time_Zone": "Europe/Paris"}, 10189),
        ({"target": "t.*"}, 10190),
        ({"target": ""}, 10190),
        ({"target": "t.later"}, 10190),
        ({"target": "other"}, 10190),
        ({"target": "t..x"}, 10190),
        ({"Nats_Schedule_TTL": "1ms"}, 10191),
        ({"Nats_Schedule_TTL": "5s"}, 10166),
        ({"Nats_Schedule_Rollup": "sub"}, 10192),
        ({"Nats_Rollup": "all"}, 10192),
        ({"Nats_Schedule_Source": "t.source"}, 10203),
        ({"Nats_Scheduler": "t.x"}, 10212),
        ({"Nats_Schedule_Next": "purge"}, 10212),
    ],
)
def test_a_schedule_that_cannot_be_carried_out_is_refused(broker, how, code):
    assert schedule(broker, **how) == code
    assert not there(broker)


@pytest.mark.parametrize("when", ["@every 1s", 5.0])
def test_the_message_of_a_schedule_that_just_fits_fits_too(broker, when):
    create(broker, "L", ["l.>"], allow_msg_ttl=True)
    wanted = {"when": when, "Nats_Schedule_TTL": "3600s"}
    target, size = f"l.{'n' * 60}", 4_000
    broker.broker.step_payload_limit(5_000)
    while schedule(broker, f"l.{'s' * 200}", target, data=b"x" * size, **wanted) != 10054:
        size += 1
    assert size > 4_000
    broker.pass_time(6)
    came = [one for one in stored(broker, b"L") if one.key == target.encode()]
    assert {len(one.data) for one in came} == {size - 1}
    assert all(len(one.SerializeToString()) <= 5_000 for one in came)


def test_only_servers_say_that_a_message_comes_from_a_schedule(broker):
    (answer,) = js.publish(broker, "t.x", b"", fields=[("Nats-Scheduler", "t.y")])
    assert answer["error"]["err_code"] == 10212


def test_a_stream_takes_a_bounded_number_of_schedules(broker, monkeypatch):
    monkeypatch.setattr(limits, "DELETED_RUNS_MAX", 2)
    assert [schedule(broker, f"t.{n}", when=50) for n in range(3)] == [1, 2, 10077]
    assert js.api(broker, "STREAM.PURGE.T", {"filter": "t.0"})["purged"] == 1
    assert schedule(broker, "t.3", when=50) == 3


# --- what is published ----------------------------------------------------------------------------------------------------


def test_a_schedule_is_a_message_until_its_time_and_then_another_one(broker):
    assert schedule(broker, when=5, a="b", Nats_Msg_Id="once") == 1
    assert there(broker) == {1: ("t.later", b"data")}
    kept = [("Nats-Schedule", at(5)), ("Nats-Schedule-Target", "t.now"), ("a", "b"), ("Nats-Msg-Id", "once")]
    assert fields_of(broker, 1) == [*kept, ("Nats-Rollup", "sub")]
    broker.pass_time(4.9)
    assert there(broker) == {1: ("t.later", b"data")}
    broker.pass_time(0.2)
    assert there(broker) == {2: ("t.now", b"data")}
    assert fields_of(broker, 2) == [("a", "b"), ("Nats-Scheduler", "t.later"), ("Nats-Schedule-Next", "purge")]
    assert not rows(broker)
    broker.pass_time(60)
    assert there(broker) == {2: ("t.now", b"data")}


def test_what_is_late_goes_at_once_in_the_order_of_its_times(broker):
    for number, when in enumerate((3, 1, 2)):
        schedule(broker, f"t.{number}", when=when, data=b"%d" % when)
    assert schedule(broker, "t.past", when=-100, data=b"past") == 4
    broker.pass_time(0.1)
    assert there(broker)[5] == ("t.now", b"past")
    broker.restart()
    broker.turn()
    broker.pass_time(10)
    assert [data for _, data in there(broker).values()] == [b"past", b"1", b"2", b"3"]


def test_what_a_schedule_publishes_may_have_a_time_to_live(broker):
    create(broker, "L", ["l.>"], allow_msg_ttl=True)
    assert schedule(broker, "l.later", "l.now", when=1, Nats_Schedule_TTL="3s") == 1
    broker.pass_time(1.1)
    assert ("Nats-TTL", "3s") in fields_of(broker, 2, "L")
    broker.pass_time(2)
    assert list(there(broker, "L")) == [2]
    broker.pass_time(3)
    assert not there(broker, "L")


def test_a_schedule_whose_own_time_to_live_ends_before_publishes_nothing(broker):
    create(broker, "L", ["l.>"], allow_msg_ttl=True)
    assert schedule(broker, "l.later", "l.now", when=10, Nats_TTL="3s") == 1
    broker.pass_time(20)
    assert (there(broker, "L"), rows(broker)) == ({}, [])


def test_schedules_are_known_after_a_restart(broker):
    schedule(broker, when=5)
    before = rows(broker)
    broker.restart()
    assert rows(broker) == before
    broker.pass_time(6)
    assert there(broker) == {2: ("t.now", b"data")}
    broker.restart()
    broker.pass_time(6)
    assert (there(broker), rows(broker)) == ({2: ("t.now", b"data")}, [])


def test_a_schedule_that_repeats_stays_and_publishes_again(broker):
    assert schedule(broker, when="@every 5s") == 1
    for count in range(4):
        broker.pass_time(4.9)
        assert len(there(broker)) == 1 + count
        broker.pass_time(0.1)
        assert there(broker)[2 + count] == ("t.now", b"data")
        following = rfc3339(START + 5 * (count + 2) * SECOND).replace(".000000000", "")
        assert fields_of(broker, 2 + count) == [("Nats-Scheduler", "t.later"), ("Nats-Schedule-Next", following)]
        if count == 1:
            broker.restart()
    assert there(broker)[1] == ("t.later", b"data")
    js.api(broker, "STREAM.PURGE.T", {"filter": "t.later"})
    broker.pass_time(20)
    assert (len(there(broker)), rows(broker)) == (4, [])


def test_of_a_schedule_that_repeats_what_was_missed_is_left_out(broker):
    schedule(broker, when="@every 5s")
    broker.wall += 3600 * SECOND
    broker.pass_time(2)
    assert list(there(broker)) == [1, 2]
    broker.pass_time(10)
    assert list(there(broker)) == [1, 2, 3, 4]


def test_streams_that_change_do_not_make_a_schedule_repeat_faster(broker):
    schedule(broker, when="@every 5s")
    for number in range(4):
        create(broker, f"U{number}", [f"u.{number}"])
        broker.pass_time(2.5)
    assert list(there(broker)) == [1, 2, 3]
    broker.pass_time(5)
    assert list(there(broker)) == [1, 2, 3, 4]


def test_a_clock_that_is_set_back_delays_a_schedule(broker):
    schedule(broker, when=5)
    broker.wall -= 60 * SECOND
    broker.pass_time(6)
    assert list(there(broker)) == [1]
    broker.wall += 60 * SECOND
    broker.pass_time(1)
    assert list(there(broker)) == [2]


def test_many_schedules_of_a_moment_go_together(broker):
    for number in range(30):
        schedule(broker, f"t.{number}", when=5, data=b"%d" % number)
    broker.pass_time(6)
    assert [data for _, data in there(broker).values()] == [b"%d" % number for number in range(30)]


# --- what ends a schedule -------------------------------------------------------------------------------------------------


def test_a_schedule_takes_the_place_of_the_one_before_of_its_subject(broker):
    schedule(broker, when=5, data=b"old")
    assert schedule(broker, when=8, data=b"new") == 2
    assert there(broker) == {2: ("t.later", b"new")}
    broker.pass_time(6)
    assert list(there(broker)) == [2]
    broker.pass_time(3)
    assert there(broker) == {3: ("t.now", b"new")}


@pytest.mark.parametrize(
    ("request_", "asked"),
    [("PURGE", {"filter": "t.later"}), ("PURGE", {}), ("MSG.DELETE", {"seq": 1})],
)
def test_a_schedule_that_is_removed_publishes_nothing(broker, request_, asked):
    schedule(broker)
    assert js.api(broker, f"STREAM.{request_}.T", asked)["success"]
    assert not rows(broker)
    broker.pass_time(10)
    assert not there(broker)


def test_a_rollup_of_all_removes_schedules(broker):
    schedule(broker)
    js.publish(broker, "t.x", b"all", fields=[("Nats-Rollup", "all")])
    broker.pass_time(10)
    assert there(broker) == {2: ("t.x", b"all")}


def test_limits_remove_schedules():
    broker = js.harness()
    create(broker, max_msgs=2)
    schedule(broker)
    js.publish(broker, "t.x", b"1", b"2")
    assert not rows(broker)
    broker.pass_time(10)
    assert there(broker) == {2: ("t.x", b"1"), 3: ("t.x", b"2")}


@pytest.mark.parametrize("together", [False, True])
def test_another_message_of_its_subject_ends_a_schedule(broker, together):
    if together:
        schedules = [("Nats-Schedule", at(5)), ("Nats-Schedule-Target", "t.now")]
        for fields, data in ((schedules, b"data"), ([], b"plain")):
            assert js.hears(broker, "t.later", data, "", fields)
        broker.turn()
    else:
        schedule(broker)
        js.publish(broker, "t.later", b"plain")
    assert not rows(broker)
    broker.pass_time(10)
    assert there(broker) == {1: ("t.later", b"data"), 2: ("t.later", b"plain")}


def test_a_message_of_another_subject_does_not(broker):
    schedule(broker)
    js.publish(broker, "t.x", b"plain")
    broker.pass_time(10)
    assert there(broker) == {2: ("t.x", b"plain"), 3: ("t.now", b"data")}


def test_a_bucket_may_have_schedules():
    broker = js.harness()
    create(broker, max_msgs_per_subject=1)
    schedule(broker, when=5, data=b"old")
    schedule(broker, when=6, data=b"new")
    assert len(rows(broker)) == 1
    broker.pass_time(10)
    assert there(broker) == {3: ("t.now", b"new")}


def test_a_stream_that_is_gone_takes_its_schedules_along(broker):
    schedule(broker)
    assert js.api(broker, "STREAM.DELETE.T")["success"]
    broker.turn()
    assert not rows(broker)
    broker.pass_time(10)


def test_a_channel_that_stays_keeps_schedules_until_a_stream_has_it_again():
    broker = js.harness()
    broker.connect()
    broker.publish("T", b"before")
    create(broker)
    schedule(broker)
    js.api(broker, "STREAM.DELETE.T")
    broker.pass_time(10)
    assert (broker.stored("T"), len(rows(broker))) == ([b"before", b"data"], 1)
    create(broker)
    broker.pass_time(1)
    assert there(broker) == {1: ("T", b"before"), 3: ("t.now", b"data")}


def test_a_target_that_is_no_subject_any_more_waits_until_it_is_again(broker):
    schedule(broker, when=5, target="t.now")
    change = {"name": "T", "subjects": ["t.later"], "allow_msg_schedules": True}
    js.api(broker, "STREAM.UPDATE.T", change | {"subjects": ["t.later", "u.*"]})
    broker.pass_time(10)
    assert list(there(broker)) == [1]
    js.api(broker, "STREAM.UPDATE.T", change | {"subjects": S})
    broker.pass_time(1)
    assert there(broker) == {2: ("t.now", b"data")}


def test_published_messages_leave_as_many_gaps_as_there_were_schedules(broker, monkeypatch):
    monkeypatch.setattr(limits, "DELETED_RUNS_MAX", 4)
    js.publish(broker, "t.x", b"first")
    for number in range(3):
        schedule(broker, f"t.{number}", when=5)
        js.publish(broker, "t.x", b"between")
    js.api(broker, "STREAM.MSG.DELETE.T", {"seq": 1})
    js.api(broker, "STREAM.MSG.DELETE.T", {"seq": 3})
    broker.pass_time(10)
    assert [subject for subject, _ in there(broker).values()] == ["t.x"] * 2 + ["t.now"] * 3


# --- permissions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Nats-Schedule-Target", "Nats-Rollup"])
def test_headers_that_are_too_large_are_not_parsed_to_judge_rights(monkeypatch, name):
    house = House()
    house.told(RIGHTS[Right.ADMIN_WRITE], "STREAM.CREATE.T", {"name": "T", "subjects": ["t.*"]})
    monkeypatch.setattr(headers, "parse", lambda _block: pytest.fail("parsed"))
    fields = [(name, "t.now"), *((f"a{number}", "b") for number in range(10_000))]
    assert house.publish("half", "t.x", fields=fields)["error"]["err_code"] == 10097


def test_who_schedules_has_to_be_allowed_to_publish_to_the_target():
    house, write = House(), RIGHTS[Right.ADMIN_WRITE]
    config = {"name": "T", "subjects": ["t.*", "a.*"], "allow_msg_schedules": True}
    assert "error" not in house.told(write, "STREAM.CREATE.T", config)

    def told(user, target):
        answer = house.publish(user, "t.x", fields=[("Nats-Schedule", at(5)), ("Nats-Schedule-Target", target)])
        return answer.get("error", {}).get("err_code", 0)

    assert [told("half", "t.y"), told("half", "a.b"), told(RIGHTS[Right.PUBLISH], "t.y")] == [10403, 0, 0]
    assert told(write, "t.y") == 10403


# --- restored -------------------------------------------------------------------------------------------------------------


def restore(saved, *, late=False, ahead=0):
    """Restore the messages of another broker's stream, which comes behind its channel. Returns the new broker, whose clock is
    *ahead* of the other one's, in seconds."""
    broker = js.harness()
    broker.wall += ahead * SECOND
    messages = stored(saved, b"T")
    runs = [pb.RestoredRun(first_sequence=one.sequence, count=1, timestamp=one.timestamp) for one in messages]
    asked = {"runs": runs, "rows": b"".join(map(row_of, messages))}
    for kind, more in (
        ("restore_channel", {"first_sequence": 1}),
        ("restore_rows", asked),
        ("restore_rows", asked),
        ("restore_end", {}),
    ):
        assert ask(broker, kind, channel=b"T", **more).error == b""
        broker.pass_time(7 if late else 0)
    create(broker)
    return broker


@pytest.mark.parametrize("late", [False, True])
def test_restored_schedules_publish_once_at_their_time(broker, late):
    schedule(broker, "t.1", when=5, data=b"1")
    schedule(broker, "t.2", when=50, data=b"2")
    js.publish(broker, "t.x", b"plain")
    again = restore(broker, late=late)
    assert len(rows(again)) == 2
    again.pass_time(6)
    assert there(again) == {2: ("t.2", b"2"), 3: ("t.x", b"plain"), 4: ("t.now", b"1")}
    again.restart()
    again.pass_time(50)
    assert there(again) == {3: ("t.x", b"plain"), 4: ("t.now", b"1"), 5: ("t.now", b"2")}


def test_a_restored_schedule_that_repeats_comes_at_its_next_time(broker):
    schedule(broker, "t.1", when="@every 10s")
    again = restore(broker, ahead=3_605)
    again.pass_time(9)
    assert list(there(again)) == [1]
    again.pass_time(1)
    assert list(there(again)) == [1, 2]
    again.pass_time(10)
    assert list(there(again)) == [1, 2, 3]


def test_a_restore_with_too_many_schedules_is_refused(broker, monkeypatch):
    schedule(broker, "t.1", when=50)
    schedule(broker, "t.2", when=50)
    monkeypatch.setattr(limits, "DELETED_RUNS_MAX", 1)
    with pytest.raises(AssertionError):
        restore(broker)

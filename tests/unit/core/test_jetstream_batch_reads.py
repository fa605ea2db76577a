"""Many messages for one direct request, on one leader: from a sequence on, and the newest ones of several subjects."""

import pytest

from stan import limits
from tests.kit import jetstream as js

SUBJECTS = ("t.x", "t.y", "t.x", "t.x", "t.y", "t.z")


@pytest.fixture
def broker():
    h = js.harness()
    made(h, "T", ["t.*"])
    for number, subject in enumerate(SUBJECTS, 1):
        js.publish(h, subject, b"%d" % number, fields=[("a", "b")])
        h.pass_time(1)
    return h


def made(h, name, subjects, **config):
    answer = js.api(h, f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects, "allow_direct": True} | config)
    assert "error" not in answer


def answers(h, stream="T", **wish):
    """The answers to one request, without the one that says that these were all; and that one."""
    reply = js.asks(h, f"DIRECT.GET.{stream}", wish)
    h.turn()
    *found, last = [js.answer_of(one.payload) for one in h.hear(reply)]
    return found, last


def sequences(found):
    return [int(one.header["Nats-Sequence"]) for one in found]


def numbers(answer):
    return int(answer.header["Nats-Num-Pending"]), int(answer.header["Nats-Last-Sequence"])


def time_of(h, sequence):
    return js.direct(h, "DIRECT.GET.T", {"seq": sequence}).header["Nats-Time-Stamp"]


# --- from a sequence on ---------------------------------------------------------------------------------------------------


def test_a_batch_has_messages_each_with_the_number_of_those_that_follow(broker):
    found, end = answers(broker, seq=2, batch=3)
    assert [(one.payload, numbers(one)) for one in found] == [(b"2", (4, 0)), (b"3", (3, 2)), (b"4", (2, 3))]
    assert [one.header["Nats-Subject"] for one in found] == ["t.y", "t.x", "t.x"]
    assert [one.header["a"] for one in found] == ["b"] * 3
    assert (end.status, numbers(end)) == ("204 EOB", (2, 4))
    found, end = answers(broker, seq=5, batch=9)
    assert (sequences(found), numbers(end)) == ([5, 6], (0, 6))
    assert "a" not in answers(broker, seq=5, batch=9, no_hdr=True)[0][0].header


def test_a_batch_of_a_subject_passes_over_the_others(broker):
    found, end = answers(broker, batch=2, next_by_subj="t.x")
    assert (sequences(found), [numbers(one) for one in found], numbers(end)) == ([1, 3], [(2, 0), (1, 1)], (1, 3))
    found, end = answers(broker, seq=4, batch=5, next_by_subj="t.x")
    assert (sequences(found), numbers(end)) == ([4], (0, 4))
    assert answers(broker, batch=5, next_by_subj="t.q")[1].status == "404 Message Not Found"


def test_a_batch_passes_over_deleted_messages(broker):
    js.api(broker, "STREAM.MSG.DELETE.T", {"seq": 3})
    found, end = answers(broker, seq=1, batch=2)
    assert (sequences(found), numbers(end)) == ([1, 2], (3, 2))
    assert sequences(answers(broker, seq=3, batch=2)[0]) == [4, 5]


def test_a_batch_begins_at_a_time(broker):
    assert sequences(answers(broker, start_time=time_of(broker, 5), batch=9)[0]) == [5, 6]
    assert js.direct(broker, "DIRECT.GET.T", {"start_time": time_of(broker, 5)}).payload == b"5"
    assert js.direct(broker, "DIRECT.GET.T", {"start_time": time_of(broker, 2), "next_by_subj": "t.z"}).payload == b"6"
    late = js.direct(broker, "DIRECT.GET.T", {"start_time": "2999-01-01T00:00:00Z"})
    assert late.status == "404 Message Not Found"


def test_a_batch_has_so_many_bytes_and_one_message_at_least(broker):
    assert sequences(answers(broker, seq=1, batch=9, max_bytes=1)[0]) == [1]


def test_a_batch_is_bounded_and_tells_that_there_is_more(broker, monkeypatch):
    monkeypatch.setattr(limits, "DIRECT_BATCH_MAX", 2)
    found, end = answers(broker, seq=1, batch=9)
    assert (sequences(found), numbers(end)) == ([1, 2], (4, 2))
    monkeypatch.setattr(limits, "STREAM_PENDING_COUNTED_MAX", 0)
    found, end = answers(broker, batch=1, next_by_subj="t.x")
    assert sequences(found) == [1]
    assert numbers(end)[0] > 0


def test_a_batch_of_a_bucket_has_the_newest_messages(broker):
    made(broker, "B", ["b.*"], max_msgs_per_subject=1)
    for subject in ("b.x", "b.y", "b.x"):
        js.publish(broker, subject, b"1")
    found, end = answers(broker, "B", seq=1, batch=9)
    assert (sequences(found), numbers(end)) == ([2, 3], (0, 3))


@pytest.mark.parametrize(
    "wish",
    [
        {"seq": 1, "start_time": "2020-01-01T00:00:00Z"},
        {"batch": 2, "last_by_subj": "t.x"},
        {"multi_last": ["t.x"], "next_by_subj": "t.x"},
        {"multi_last": ["t.x"], "up_to_seq": 3, "up_to_time": "2020-01-01T00:00:00Z"},
        {"multi_last": ["t..x"]},
        {"multi_last": ["t.*"] * 33},
        {"seq": 1, "batch": -1},
        {"seq": 1, "start_time": "x"},
    ],
)
def test_wishes_that_do_not_go_together_are_refused(broker, wish):
    assert js.direct(broker, "DIRECT.GET.T", wish).status == "408 Bad Request"
    assert js.api(broker, "STREAM.MSG.GET.T", wish)["error"]["code"] == 400


def test_a_stream_without_direct_reads_gives_none(broker):
    made(broker, "D", ["d"], allow_direct=False)
    assert js.direct(broker, "DIRECT.GET.D", {"seq": 1, "batch": 2}).status == "503"
    assert js.direct(broker, "DIRECT.GET.D", {"multi_last": ["d"]}).status == "503"


# --- the newest of each subject -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({"multi_last": ["t.x"]}, [4]),
        ({"multi_last": ["t.>"]}, [4, 5, 6]),
        ({"multi_last": ["t.x", "t.*", "t.q"]}, [4, 5, 6]),
        ({"multi_last": ["t.x", "t.y"], "up_to_seq": 3}, [2, 3]),
        ({"multi_last": ["t.*"], "seq": 5}, [5, 6]),
        ({"multi_last": ["t.*"], "batch": 2}, [4, 5]),
        ({"multi_last": ["t.*"], "max_bytes": 1}, [4]),
    ],
)
def test_the_newest_messages_of_subjects_come_together(broker, wish, expected):
    found, end = answers(broker, **wish)
    assert sequences(found) == expected
    until = wish.get("up_to_seq", 6)
    assert (end.status, end.header["Nats-UpTo-Sequence"]) == ("204 EOB", str(until))
    every = 3 if wish["multi_last"] in (["t.>"], ["t.*"]) and "seq" not in wish else len(expected)
    assert numbers(end) == (every - len(expected), expected[-1])


def test_the_newest_messages_before_a_time_come_together(broker):
    wish = {"multi_last": ["t.*"], "up_to_time": time_of(broker, 5)}
    assert sequences(answers(broker, **wish)[0]) == [2, 4]
    wish["up_to_time"] = time_of(broker, 1)
    assert answers(broker, **wish)[1].status == "404 No Results"


def test_nothing_is_told_of_subjects_without_messages_and_of_too_many(broker, monkeypatch):
    assert answers(broker, multi_last=["t.q"])[1].status == "404 No Results"
    monkeypatch.setattr(limits, "DIRECT_SUBJECTS_MAX", 2)
    assert answers(broker, multi_last=["t.*"])[1].status == "413 Too Many Results"
    assert answers(broker, multi_last=["t.*"], up_to_seq=6)[1].status == "413 Too Many Results"


def test_the_stream_of_one_subject_tells_its_newest_message(broker):
    made(broker, "O", ["only"])
    js.publish(broker, "only", b"1", b"2")
    assert sequences(answers(broker, "O", multi_last=["only"])[0]) == [2]
    assert sequences(answers(broker, "O", seq=1, batch=5)[0]) == [1, 2]

"""Offsets, budgets and partitions: pure functions, and what Spark's checkpoint makes of them."""

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_stan.reading.offsets import Offset, Range, from_json, ranges_between
from pyspark_stan.reading.planning import StanPartition, plan, rows_for_bytes, rows_of_partition, share

NAMES = st.sampled_from(["a", "b", "c", "d.e"])


def test_equal_places_are_equal_text_whatever_the_order():
    one = Offset({"b": 2, "a": 1}, {"b": 1, "a": 1}, {"b": 8, "a": 9})
    two = Offset({"a": 1, "b": 2}, {"a": 1, "b": 1}, {"a": 9, "b": 8})
    assert json.dumps(one.to_json()) == json.dumps(two.to_json())
    assert json.dumps(from_json(json.loads(json.dumps(one.to_json()))).to_json()) == json.dumps(one.to_json())


def test_offsets_of_many_channels_are_packed():
    names = [f"devices.hall-{number % 7}.{number:05}" for number in range(5000)]
    positions = {name: 100_000 + 7 * at for at, name in enumerate(names)}
    offset = Offset(positions, dict.fromkeys(names, 1), {name: at for at, name in enumerate(names)}, 8)
    text = json.dumps(offset.to_json())
    assert from_json(json.loads(text)) == offset
    assert text == json.dumps(from_json(json.loads(text)).to_json())
    assert len(text) < 100_000 < len(json.dumps(positions))


@pytest.mark.parametrize("text", ["", "no base64!", "AAAA", "eNqrVg=="])
def test_an_offset_that_cannot_be_unpacked_is_refused(text):
    with pytest.raises(ValueError, match="the checkpoint has an offset that is damaged"):
        from_json({"*packed": text})


@pytest.mark.parametrize(
    "more",
    [
        {"*from": {"a": 1}},
        {"*tasks": "4"},
        {"*init": {}},
        {"*init": [], "*inc": 5},
        {"*again": 1},
        {"*read": {"a": 1}},
        {"*read": ["x"]},
        {"*read": [1, 2]},
        {"a": -7},
        {"*packed": 7},
    ],
)
def test_an_offset_of_a_later_version_or_a_damaged_one_says_so(more):
    said = {"a": 7, "*init": {"a": 1}, "*inc": {"a": 3}, "*tasks": 1, **more}
    with pytest.raises(
        ValueError, match=r"stan: the checkpoint has .*(go on with that version|damaged).* with a new"
    ) as refused:
        from_json(said)
    assert json.dumps(said) in str(refused.value)


@pytest.mark.parametrize("offset", [[], "7", 7, None])
def test_an_offset_that_is_no_object_is_damaged(offset):
    with pytest.raises(ValueError, match="the checkpoint has an offset that is damaged"):
        from_json(offset)


def test_an_offset_of_another_source_is_refused():
    for said in ({"orders": 7}, {"orders": 7, "*init": {"orders": 1}}):
        with pytest.raises(ValueError, match="an offset of another source"):
            from_json(said)


def test_no_range_between_equal_offsets():
    offset = Offset({"a": 5}, {"a": 1}, {"a": 1})
    assert ranges_between(offset, offset) == []


def test_the_first_batch_is_repeated_from_where_it_began_the_first_time():
    logged = Offset({"a": 9}, {"a": 3}, {"a": 1})
    asked_again = Offset({"a": 9}, {"a": 9}, {"a": 1})  # "latest" is another place by now
    assert ranges_between(asked_again, logged) == [Range("a", 1, 3, 9)]


def test_a_channel_that_has_come_along_begins_where_it_was_found():
    before, after = Offset({"a": 9}, {"a": 3}, {"a": 1}), Offset({"a": 9, "b": 8}, {"a": 3, "b": 5}, {"a": 1, "b": 2})
    assert ranges_between(before, after) == [Range("b", 2, 5, 8)]


def test_a_channel_made_again_is_read_from_its_beginning():
    before, after = Offset({"a": 100}, {"a": 1}, {"a": 1}), Offset({"a": 4}, {"a": 1}, {"a": 2})
    assert ranges_between(before, after) == [Range("a", 2, 1, 4)]


def test_a_channel_whose_uid_is_heard_of_later_is_the_same():
    before, after = Offset({"a": 3}, {"a": 1}, {}), Offset({"a": 6}, {"a": 1}, {"a": 2})
    assert ranges_between(before, after) == [Range("a", 2, 3, 6)]


ranges = st.lists(st.tuples(NAMES, st.integers(1, 50), st.integers(1, 400)), unique_by=lambda row: row[0]).map(
    lambda rows: [Range(name, 1, first, first + size) for name, first, size in rows]
)


@given(ranges, st.integers(0, 12), st.integers(0, 100), st.integers(1, 8))
def test_partitions_hold_each_sequence_once_in_order(found, at_least, rows_max, tasks):
    parts = plan(found, tasks, at_least, rows_max)
    assert parts == plan(found, tasks, at_least, rows_max)
    if not rows_max:
        assert len(parts) <= max(tasks, at_least, 0 if found else 1)
    for channel, uid, first, end, _ in found:
        mine = [one for part in parts for one in part.ranges if one.channel == channel]
        assert [one.first for one in mine] == [first, *(one.end for one in mine[:-1])]
        assert mine[-1].end == end
        assert all(one.first < one.end and one.uid == uid for one in mine)
    if rows_max:
        assert all(sum(one.end - one.first for one in part.ranges) <= rows_max for part in parts)


def test_small_channels_are_read_together_and_a_large_one_by_tasks_of_its_own():
    small = [Range(f"device.{number:03}", 1, 1, 51) for number in range(100)]
    parts = plan(small, tasks=2)
    assert [len(part.ranges) for part in parts] == [50, 50]
    assert len(plan(small, tasks=2, at_least=4)) == 4
    large = plan([*small, Range("orders", 1, 1, 1_000_001)], rows_max=500_000, tasks=4)
    assert [[one.channel for one in part.ranges] for part in large[-2:]] == [["orders"]] * 2
    assert len(large) <= 4


@pytest.mark.parametrize(
    ("channels", "rows", "parts"), [(2, 5, 1), (200, 1, 5), (200, 10_000, 44), (5000, 1, 64), (3, 60_000, 3)]
)
def test_there_are_as_many_tasks_as_there_is_work_for(channels, rows, parts):
    found = [Range(f"device.{number:04}", 1, 1, rows + 1) for number in range(channels)]
    assert len(plan(found, tasks=64)) == parts


def test_partitions_survive_pickling():
    part = StanPartition((Range("a", 1, 2, 3), Range("b", 2, 1, 9)))
    assert pickle.loads(pickle.dumps(part)) == part  # noqa: S301 - its own


wants = st.dictionaries(NAMES, st.integers(1, 1000))


@given(wants, st.integers(1, 3000))
def test_a_budget_is_used_up_and_never_exceeded(found, budget):
    shares = share(found, budget)
    assert sum(shares.values()) == min(budget, sum(found.values()))
    assert all(0 <= shares[name] <= want for name, want in found.items())


@given(wants, st.integers(1, 3000))
def test_bytes_are_not_exceeded_but_by_one_message(found, budget):
    weights = dict.fromkeys(found, 10.0)
    rows = rows_for_bytes(found, weights, budget)
    assert sum(rows.values()) * 10 <= max(budget, 10)
    assert any(rows.values()) == bool(found)


def test_a_small_channel_beside_a_large_one_gets_its_turn():
    left = {"large": 1000, "small": 1}
    for _ in range(400):
        taken = share({name: rows for name, rows in left.items() if rows}, 10)
        left["large"] += 10
        for name, rows in taken.items():
            left[name] -= rows
        if not left["small"]:
            return
    pytest.fail("starved")


@pytest.mark.parametrize(
    ("rows", "tasks", "parts"),
    [(100_000, 2, 1), (900_000, 2, 2), (4_000_000, 2, 2), (4_000_000, 16, 8), (9_000_000, 2, 6)],
)
def test_a_large_range_gives_each_core_the_same_number_of_large_partitions(rows, tasks, parts):
    found = [Range("orders", 1, 1, rows + 1)]
    planned = plan(found, rows_max=rows_of_partition(found, tasks), tasks=tasks)
    sizes = [one.ranges[0].end - one.ranges[0].first for one in planned]

    assert (len(planned), sum(sizes)) == (parts, rows)
    assert max(sizes) - min(sizes) <= 1

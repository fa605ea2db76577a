"""Offsets, budgets and partitions: pure functions, and what Spark's checkpoint makes of them."""

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_stan.offsets import Offset, Range, from_json, ranges_between
from pyspark_stan.planning import StanPartition, plan, rows_for_bytes, share

NAMES = st.sampled_from(["a", "b", "c", "d.e"])


def test_equal_places_are_equal_text_whatever_the_order():
    one = Offset({"b": 2, "a": 1}, {"b": 1, "a": 1}, {"b": 8, "a": 9})
    two = Offset({"a": 1, "b": 2}, {"a": 1, "b": 1}, {"a": 9, "b": 8})
    assert json.dumps(one.to_json()) == json.dumps(two.to_json())
    assert json.dumps(from_json(json.loads(json.dumps(one.to_json()))).to_json()) == json.dumps(one.to_json())


def test_an_offset_of_another_source_is_refused():
    with pytest.raises(ValueError, match="no offset of this source"):
        from_json({"orders": 7})


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


@given(ranges, st.integers(0, 12), st.integers(0, 100))
def test_partitions_hold_each_sequence_once_in_order(found, at_least, rows_max):
    parts = plan(found, at_least, rows_max)
    assert parts == plan(found, at_least, rows_max)
    for channel, uid, first, end in found:
        mine = [part for part in parts if part.channel == channel]
        assert [part.first for part in mine] == [first, *(part.last + 1 for part in mine[:-1])]
        assert mine[-1].last == end - 1
        assert all(part.first <= part.last and part.uid == uid for part in mine)
    if rows_max:
        assert all(part.last - part.first < rows_max for part in parts)
    total = sum(end - first for _, _, first, end in found)
    if found:
        assert len(parts) >= min(at_least, total if len(found) == 1 else at_least)


def test_partitions_survive_pickling():
    part = StanPartition("a", 1, 2, 3)
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

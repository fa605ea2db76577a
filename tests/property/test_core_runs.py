"""Runs against the dumbest model there is: a dictionary with one entry per sequence."""

from itertools import pairwise
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from stan.core.base import runs as core_runs
from stan.core.base.runs import Run, Runs, from_flat, joined

SPAN = 24
intervals = st.tuples(st.integers(1, SPAN), st.integers(0, 6)).map(lambda pair: (pair[0], pair[0] + pair[1]))
operations = st.lists(
    st.one_of(
        st.tuples(st.just("merge"), intervals, st.integers(0, 3), st.integers(0, 2)),
        st.tuples(st.just("remove"), intervals, st.just(0), st.just(0)),
        st.tuples(st.just("remove each"), st.lists(intervals, max_size=5), st.integers(1, 50), st.just(0)),
        st.tuples(st.just("peek"), st.tuples(st.integers(0, 9), st.just(0)), st.just(0), st.just(0)),
    ),
    max_size=30,
)


def spread(runs):
    return {sequence: (run.deadline, run.count) for run in runs for sequence in range(run.first, run.last + 1)}


@settings(max_examples=300)
@given(operations)
def test_runs_hold_what_a_dictionary_would(steps):
    runs, model = Runs(), {}
    for name, given_intervals, deadline, count in steps:
        first, last = (0, 0) if name == "remove each" else given_intervals
        if name == "merge":
            runs.merge(Run(first, last, deadline, count))
            for sequence in range(first, last + 1):
                model.setdefault(sequence, (deadline, count))
        elif name == "remove":
            removed = spread(runs.remove(first, last))
            assert removed == {s: model.pop(s) for s in range(first, last + 1) if s in model}
        elif name == "remove each":
            parts = [(run.first, run.last) for run in joined(given_intervals)]
            gone = {s for first, last in parts for s in range(first, last + 1)} & model.keys()
            with mock.patch.object(core_runs, "_MANY", deadline):
                assert spread(runs.cut_each(parts)) == {s: model[s] for s in gone}
                assert runs.remove_each(parts) == bool(gone)
            for sequence in gone:
                del model[sequence]
        else:
            assert spread(runs.peek(first)) == {s: model[s] for s in sorted(model)[:first]}

        assert spread(runs) == model
        assert len(runs) == len(model)
        assert (runs.first, runs.last) == (min(model, default=0), max(model, default=0))
        assert runs.earliest == min((deadline for deadline, _ in model.values()), default=0)


@settings(max_examples=200)
@given(operations, intervals)
def test_parts_inside_and_outside_of_an_interval_make_it_whole(steps, interval):
    runs = Runs()
    for name, span, deadline, count in steps:
        first, last = (0, 0) if name == "remove each" else span
        if name == "merge":
            runs.merge(Run(first, last, deadline, count))
        elif name == "remove":
            runs.remove(first, last)
    first, last = interval
    inside = set(spread(runs.within(first, last)))
    outside = {s for a, b in runs.missing(first, last) for s in range(a, b + 1)}

    assert not inside & outside
    assert inside | outside == set(range(first, last + 1))
    assert all((sequence in runs) == (sequence in inside) for sequence in range(first, last + 1))
    assert from_flat(runs.flat()).flat() == runs.flat()


@given(operations, st.integers(0, 4))
def test_due_is_sorted_by_deadline_and_changes_nothing(steps, now):
    runs = Runs()
    for name, span, deadline, count in steps:
        if name == "merge":
            runs.merge(Run(*span, deadline, count))
    before = list(runs)
    due = runs.due(now)

    assert due == sorted((run for run in before if run.deadline <= now), key=lambda run: (run.deadline, run.first))
    assert list(runs) == before
    runs.shift(5)
    assert [run.deadline for run in runs] == [run.deadline + 5 for run in before]


@given(st.lists(intervals, max_size=8))
def test_joined_parts_are_those_that_were_given(parts):
    runs = joined(parts)
    assert set(spread(runs)) == {s for first, last in parts for s in range(first, last + 1)}
    assert all(one.last + 1 < other.first for one, other in pairwise(runs))


@settings(max_examples=300)
@given(st.lists(intervals, max_size=8), st.lists(intervals, max_size=8))
def test_what_two_sets_share_is_what_both_have(mine, others):
    runs, wanted = Runs(joined(mine)), joined(others)
    found = runs.shared(wanted)
    assert {s for first, last in found for s in range(first, last + 1)} == spread(runs).keys() & spread(wanted).keys()
    assert found == sorted(found)


@settings(max_examples=300)
@given(st.lists(intervals, max_size=8), st.lists(intervals, max_size=8), st.sampled_from([1, 64]), st.integers(0, 2))
def test_many_parts_are_taken_out_and_added_at_once(mine, others, many, count):
    with mock.patch.object(core_runs, "_MANY", many):
        runs, parts = Runs(Run(first, last, 5, 1) for first, last, *_ in joined(mine)), joined(others)
        before, wanted = spread(runs), spread(parts).keys()
        assert spread(runs.cut_each(parts)) == {s: what for s, what in before.items() if s in wanted}
        assert spread(runs) == before
        taken = runs.take_each(parts)
        assert spread(taken) == {s: what for s, what in before.items() if s in wanted}
        left = {s: what for s, what in before.items() if s not in wanted}
        assert (spread(runs), len(runs)) == (left, len(left))
        if not parts:
            return
        firsts, lasts = [run.first for run in parts], [run.last for run in parts]
        if count:
            runs.add_each(firsts, lasts, 7, count)
        else:
            runs.add_counted([end for run in parts for end in run[:2]], [])
        added = dict.fromkeys(wanted, (7, count) if count else (0, 0))
        assert (spread(runs), len(runs)) == (left | added, len(left | added))
        assert list(runs) == sorted(runs)

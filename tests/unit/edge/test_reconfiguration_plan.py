"""What a group's leader does next when nodes come and go, and who keeps a copy."""

import itertools

import pytest

from stan.edge.cluster.reconfiguration_plan import CopyView, ReconfigurationView, Step, may_close, next_step, observers

EVERYBODY = "abcdef"


def seen(voters, target, *, me="a", alive=EVERYBODY, close=EVERYBODY, counting=None):
    counting = voters if counting is None else counting
    return ReconfigurationView(
        me, frozenset(voters), tuple(target), frozenset(alive), frozenset(close), frozenset(counting)
    )


def voters(names):
    return Step(frozenset(names))


@pytest.mark.parametrize(
    ("situation", "wanted"),
    [
        (seen("abc", "abc"), None),
        (seen("abc", "abd"), voters("abcd")),
        (seen("abcd", "abd"), voters("abd")),
        (seen("abc", "abd", close="abc"), None),
        (seen("abc", "abd", alive="abc"), None),
        (seen("abc", "abde", close="abce"), voters("abce")),
        # the leader goes last, and gives leadership away first
        (seen("abcd", "bcd"), Step(successor="b")),
        (seen("abcd", "dbc"), Step(successor="d")),
        (seen("abcd", "dbc", alive="abc"), Step(successor="b")),
        (seen("abcd", "dbc", close="ac"), Step(successor="c")),
        (seen("abcd", "bc"), voters("abc")),
        # who is away and not wanted is dropped first, if all others are there
        (seen("abc", "abd", alive="abd"), voters("ab")),
        (seen("abc", "abd", alive="ad"), None),
        (seen("abcd", "abd", alive="acd"), None),
        (seen("abc", "abd", alive="abd", counting="a"), None),
        # a newcomer that does not count yet must not be needed
        (seen("abc", "abcd", alive="abd"), None),
        (seen("abc", "abcd", alive="abd", counting="abcd"), voters("abcd")),
        (seen("a", "ab"), None),
        (seen("a", "ab", counting="ab"), voters("ab")),
        (seen("ab", "abc"), voters("abc")),
        # a voter that has forgotten everything is as good as away
        (seen("abc", "abcd", counting="ab"), None),
        (seen("abcd", "abd", counting="ad"), voters("abd")),
        (seen("abcd", "abd", counting="a"), None),
    ],
)
def test_next_step(situation, wanted):
    assert next_step(situation) == wanted


def test_every_walk_ends_where_it_should_and_no_step_is_long():
    names = "abcd"
    sets = [set(some) for size in (1, 2, 3, 4) for some in itertools.combinations(names, size)]
    for start, target in itertools.product(sets, sets):
        leader, now = min(start), frozenset(start)
        for _ in range(20):
            found = next_step(seen(now, sorted(target), me=leader, counting=names))
            if found is None:
                break
            if found.successor:
                assert found.successor in now & target
                leader = found.successor
                continue
            assert len(found.voters ^ now) == 1
            now = found.voters
            assert leader in now
        assert now == target


def test_no_step_without_a_majority_that_is_there_and_counts():
    names = "abcd"
    some = [set(chosen) for size in (1, 2, 3) for chosen in itertools.combinations(names, size)]
    for now, target, alive, counting in itertools.product(some, some, some, some):
        me = min(now)
        found = next_step(seen(now, sorted(target), me=me, alive=alive | {me}, counting=counting | {me}))
        if found is None or found.successor:
            continue
        gone, there = now - found.voters, found.voters & (alive | {me})
        if gone:
            assert found.voters == there
        assert 2 * len(there & (counting | {me})) > len(found.voters)


def test_observers():
    assert observers(1, "abc", "abd", "abcdx", "cd") == ["d"]
    assert observers(1, "abd", "abd", "abcdx", "cr") == ["c", "r"]
    assert observers(0, "abc", "abc", "abcdx", "r") == ["d", "r", "x"]


@pytest.mark.parametrize(("placed", "votes", "agreed"), list(itertools.product([False, True], repeat=3)))
def test_a_copy_is_given_up_only_if_nobody_counts_on_it(placed, votes, agreed):
    assert may_close(CopyView(placed, votes, agreed)) == (not placed and not votes and agreed)

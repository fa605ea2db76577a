"""Which leaderships are handed over: few and late for the balance's sake, all and at once by a node that drains."""

import pytest
from stan_protocol.scalars import SECOND

from stan import limits
from stan.edge.cluster.balance import Balance, leaders
from stan.raft.placement import Placement

NOW = 1000 * SECOND
LONG_AGO = NOW - 100 * SECOND
PLACEMENT = {group: Placement(("a", "b", "c"), "abc"[group % 3]) for group in range(9)}
ALIVE = dict.fromkeys("abc", LONG_AGO)
LEVEL = {group: dict.fromkeys("abc", 0) for group in PLACEMENT}


def led(*groups, since=LONG_AGO):
    return dict.fromkeys(groups, since)


@pytest.fixture
def balance():
    """Of node a, which is preferred for groups 0, 3 and 6."""
    return Balance("a", PLACEMENT)


def moves(balance, *, now=NOW, groups, alive=ALIVE, draining=(), lag=LEVEL):
    return balance.moves(now, groups, alive, draining, lag)


def test_group_goes_to_its_preferred_leader(balance):
    assert moves(balance, groups=led(0, 1, 3)) == [(1, "b")]


def test_nothing_is_handed_over_by_who_leads_only_its_own(balance):
    assert moves(balance, groups=led(0, 3, 6)) == []


def test_leadership_lasts_for_a_while(balance):
    begun = NOW - limits.BALANCE_SETTLE

    assert moves(balance, groups=led(1, since=begun + 1)) == []
    assert moves(balance, groups=led(1, since=begun)) == [(1, "b")]


def test_node_that_came_back_is_left_in_peace_for_a_while(balance):
    begun = NOW - limits.BALANCE_SETTLE

    assert moves(balance, groups=led(1), alive={**ALIVE, "b": begun + 1}) == []
    assert moves(balance, groups=led(1), alive={**ALIVE, "b": begun}) == [(1, "b")]


def test_node_leads_on_although_it_began_to_listen_just_now(balance):
    assert moves(balance, groups=led(0), alive={**ALIVE, "a": NOW}) == []


@pytest.mark.parametrize("lag", [{"b": limits.BALANCE_LAG_MAX + 1}, {"c": 0}, {}])
def test_group_waits_for_a_leader_that_lags_or_is_not_known(balance, lag):
    assert moves(balance, groups=led(1), lag={1: lag}) == []


def test_a_little_lag_is_made_up_for(balance):
    assert moves(balance, groups=led(1), lag={1: {"b": limits.BALANCE_LAG_MAX}}) == [(1, "b")]


def test_few_groups_at_a_time_with_a_pause(balance):
    first = moves(balance, groups=led(1, 2, 4, 5))
    assert first == [(1, "b"), (2, "c")]

    rest = led(4, 5)
    assert moves(balance, now=NOW + limits.BALANCE_PAUSE - 1, groups=rest) == []
    assert moves(balance, now=NOW + limits.BALANCE_PAUSE, groups=rest) == [(4, "b"), (5, "c")]


def test_handover_that_does_not_happen_is_asked_for_less_and_less_often(balance):
    asked = [at for at in range(200) if moves(balance, now=NOW + at * SECOND, groups=led(1))]

    assert asked == [0, 2, 6, 14, 30, 62, 126, 190]


def test_handover_that_happened_is_forgotten(balance):
    for at in (0, 2, 6):
        assert moves(balance, now=NOW + at * SECOND, groups=led(1))
    moves(balance, now=NOW + 7 * SECOND, groups={})

    again = led(1, since=NOW + 7 * SECOND)
    assert moves(balance, now=NOW + 7 * SECOND + limits.BALANCE_SETTLE, groups=again) == [(1, "b")]


def test_handover_that_is_under_way_need_not_be_named_to_be_remembered(balance):
    moves(balance, groups=led(1))
    moves(balance, now=NOW + SECOND, groups={})

    assert moves(balance, now=NOW + 2 * SECOND - 1, groups=led(1)) == []


def test_another_leader_is_asked_without_delay_if_the_wanted_one_goes_away(balance):
    for at in (0, 2, 6):
        assert moves(balance, now=NOW + at * SECOND, groups=led(4))

    without_b = {"a": LONG_AGO, "c": LONG_AGO}
    assert leaders(PLACEMENT, without_b)[4] == "c"
    assert moves(balance, now=NOW + 8 * SECOND, groups=led(4), alive=without_b) == [(4, "c")]


def test_groups_of_a_node_that_is_away_or_drains_are_spread_evenly():
    wanted = leaders(PLACEMENT, {"a", "c"})

    assert [wanted[group] for group in (0, 3, 6)] == ["a", "a", "a"]
    assert [wanted[group] for group in (2, 5, 8)] == ["c", "c", "c"]
    assert sorted(wanted[group] for group in (1, 4, 7)) in (["a", "a", "c"], ["a", "c", "c"])


def test_groups_without_an_available_voter_have_no_leader():
    assert leaders({1: Placement(("a", "b"), "a"), 2: Placement(("c",), "c")}, {"c"}) == {2: "c"}


def test_nothing_goes_to_a_node_that_drains(balance):
    found = moves(balance, groups=led(*range(9)), draining={"b"})

    assert found
    assert all(to == "c" for _, to in found)


def test_draining_node_hands_over_everything_at_once_however_short_it_led(balance):
    found = moves(balance, groups=led(*range(9), since=NOW), alive=dict.fromkeys("abc", NOW), draining={"a"})

    assert [group for group, _ in found] == list(range(9))
    assert [to for _, to in found].count("b") in (4, 5)
    assert {to for _, to in found} == {"b", "c"}


def test_draining_node_does_not_repeat_what_is_under_way(balance):
    moves(balance, groups=led(1, 2), draining={"a"})

    assert moves(balance, now=NOW + SECOND, groups=led(1, 2, 4), draining={"a"}) == [(4, "b")]


def test_draining_node_tries_another_voter_if_one_does_not_take_over(balance):
    assert moves(balance, groups=led(1), draining={"a"}) == [(1, "b")]
    assert moves(balance, now=NOW + 2 * SECOND, groups=led(1), draining={"a"}) == [(1, "c")]
    assert moves(balance, now=NOW + 4 * SECOND, groups=led(1), draining={"a"}) == [(1, "b")]


def test_draining_node_does_not_wait_for_what_it_tried_in_vain_before(balance):
    for at in (0, 2, 6):
        assert moves(balance, now=NOW + at * SECOND, groups=led(1))

    assert moves(balance, now=NOW + 8 * SECOND, groups=led(1), draining={"a"}) == [(1, "c")]


def test_draining_node_prefers_who_is_closest_if_the_wanted_one_lags(balance):
    placement = {1: Placement(("a", "b", "c", "d"), "b")}
    lag = {1: {"b": limits.BALANCE_LAG_MAX + 1, "c": 5, "d": 4}}

    found = Balance("a", placement).moves(NOW, led(1), dict.fromkeys("abcd", NOW), {"a"}, lag)

    assert found == [(1, "d")]


def test_draining_node_waits_if_nobody_can_take_over(balance):
    assert moves(balance, groups=led(1), alive={"a": LONG_AGO}, draining={"a"}) == []
    assert moves(balance, groups=led(1), draining={"a", "b", "c"}) == []
    assert moves(balance, groups=led(1), draining={"a"}, lag={}) == []

"""Where groups live: the same for everybody, moved by nothing but need, led evenly."""

from collections import Counter

from hypothesis import assume, given
from hypothesis import strategies as st

from stan.raft.placement import place, spread

names = st.text("abcxyz019-_", min_size=1, max_size=8)
clusters = st.lists(names, min_size=1, max_size=9, unique=True)
pools = st.integers(1, 40)
replicas = st.integers(1, 5)


@given(pools, clusters, replicas, st.randoms())
def test_order_of_the_names_changes_nothing(groups, nodes, copies, random):
    shuffled = random.sample(nodes, len(nodes))

    assert place(groups, shuffled, copies) == place(groups, nodes, copies)


@given(pools, clusters, replicas)
def test_each_group_has_as_many_voters_as_there_can_be_and_one_of_them_is_preferred(groups, nodes, copies):
    placed = place(groups, nodes, copies)

    assert list(placed) == list(range(groups + 1))
    for voters, preferred in placed.values():
        assert len(set(voters)) == len(voters) == min(copies, len(nodes))
        assert set(voters) <= set(nodes)
        assert preferred in voters


@given(pools, clusters, replicas, names)
def test_another_node_takes_groups_over_and_nothing_else_moves(groups, nodes, copies, added):
    assume(added not in nodes)
    before, after = place(groups, nodes, copies), place(groups, [*nodes, added], copies)

    for group, (voters, _) in after.items():
        assert set(voters) <= {*before[group].voters, added}
        if added not in voters:
            assert voters == before[group].voters


@given(pools, clusters, st.integers(0, 3))
def test_where_everybody_has_everything_all_lead_equally_many(groups, nodes, more):
    led = Counter(placed.preferred for placed in place(groups, nodes, len(nodes) + more).values())

    counts = [led[node] for node in nodes]
    assert max(counts) - min(counts) <= 1


@given(pools)
def test_a_larger_pool_moves_no_group(groups):
    small, large = place(groups, "abcde", 3), place(groups + 5, "abcde", 3)

    assert all(large[group] == placed for group, placed in small.items())


def test_groups_are_kept_by_all_nodes_about_equally():
    kept = Counter(node for placed in place(999, [f"n{at}" for at in range(5)], 3).values() for node in placed.voters)

    assert sum(kept.values()) == 3000
    assert all(500 < count < 700 for count in kept.values())


def test_placement_never_changes_between_versions():
    """Which node keeps which group is on disk: another hash would be another cluster."""
    placed = place(3, ["a", "b", "c", "d"], 2)

    assert {group: "".join(voters) + ":" + leader for group, (voters, leader) in placed.items()} == {
        0: "ca:c",
        1: "ca:a",
        2: "ab:b",
        3: "ab:a",
    }


def test_what_is_led_already_counts():
    assert spread({1: ("a", "b"), 2: ("a", "b"), 3: ()}, {"a": 5, "b": 4}) == {1: "b", 2: "a"}

"""Where groups live when nodes have labels: in as many zones as can be, moved by nothing but need."""

from collections import Counter

from hypothesis import assume, given
from hypothesis import strategies as st

from stan.labels import Labels
from stan.raft.placement import place

names = st.text("abcxyz019-_", min_size=1, max_size=8)
labels = st.builds(Labels, *(st.sampled_from(("", *few)) for few in ("ab", "12", "hk")))
clusters = st.dictionaries(names, labels, min_size=1, max_size=9)
pools = st.integers(1, 20)
replicas = st.integers(1, 5)


def spread_of(voters, places, depth):
    """Of how many kinds the voters are, down to zone (1), rack (2) or host (3); whoever does not tell is of its own."""
    known = {places[name][:depth] if places[name][depth - 1] else name for name in voters}
    return len(known)


@given(pools, clusters, replicas, st.randoms())
def test_order_of_the_names_changes_nothing(groups, places, copies, random):
    shuffled = random.sample(list(places), len(places))

    assert place(groups, shuffled, copies, places) == place(groups, list(places), copies, places)


@given(pools, clusters, replicas)
def test_without_labels_all_is_as_it_was(groups, places, copies):
    nodes = list(places)

    assert place(groups, nodes, copies, dict.fromkeys(nodes, Labels())) == place(groups, nodes, copies)
    apart = {name: Labels(zone=f"z{at}") for at, name in enumerate(nodes)}
    assert place(groups, nodes, copies, apart) == place(groups, nodes, copies)


@given(pools, clusters, replicas)
def test_copies_are_in_as_many_zones_as_there_are(groups, places, copies):
    for voters, preferred in place(groups, list(places), copies, places).values():
        assert len(set(voters)) == len(voters) == min(copies, len(places))
        assert preferred in voters
        assert spread_of(voters, places, 1) == min(copies, spread_of(places, places, 1))


@given(
    pools,
    st.dictionaries(names, st.builds(Labels, st.just("z"), st.sampled_from("123"), st.sampled_from("hk"))),
    replicas,
)
def test_within_a_zone_copies_are_in_as_many_racks_as_there_are(groups, places, copies):
    assume(places)
    for voters, _ in place(groups, list(places), copies, places).values():
        assert spread_of(voters, places, 2) == min(copies, spread_of(places, places, 2))
        assert spread_of(voters, places, 3) == min(copies, spread_of(places, places, 3))


@given(pools, clusters, replicas, names, labels)
def test_another_node_takes_groups_over_and_nothing_else_moves(groups, places, copies, added, of_added):
    assume(added not in places)
    before = place(groups, list(places), copies, places)
    after = place(groups, [*places, added], copies, places | {added: of_added})

    for group, (voters, _) in after.items():
        assert set(voters) <= {*before[group].voters, added}
        if added not in voters:
            assert voters == before[group].voters


@given(pools, clusters)
def test_a_single_copy_stays_where_it_is_whatever_the_labels(groups, places):
    labelled = place(groups, list(places), 1, places)

    assert labelled == place(groups, list(places), 1)


def test_each_zone_holds_a_copy_of_every_group():
    places = {f"n{at}": Labels(zone="abc"[at % 3]) for at in range(9)}
    kept = place(300, list(places), 3, places)

    assert all({places[name].zone for name in one.voters} == set("abc") for one in kept.values())
    counts = Counter(name for one in kept.values() for name in one.voters)
    assert all(70 < count < 130 for count in counts.values())

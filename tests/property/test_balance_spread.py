"""Whole clusters that hand leaderships over: it comes to an end, at an even spread, and never hits the wrong node."""

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from stan_protocol.scalars import SECOND

from stan import limits
from stan.edge.cluster.balance import Balance, leaders
from stan.raft.placement import place

NODES = "abcde"
ROUND = SECOND // 2
seeds = st.integers(0, 1 << 32).map(Random)  # a cluster takes more chance than Hypothesis likes to give


class Cluster:
    """Nodes that all see the same; a handover takes effect at once."""

    def __init__(self, groups, replicas, random):
        self.now = 1000 * SECOND
        self.random = random
        self.placement = place(groups, NODES, replicas)
        self.balances = {node: Balance(node, self.placement) for node in NODES}
        self.alive = dict.fromkeys(NODES, self.now)
        self.draining = set()
        self.lagging = set()
        self.led = {}  # group -> (leader, since)

    def elect(self):
        """Groups whose leader is away get another one, whichever it is."""
        for group, placed in self.placement.items():
            if self.led.get(group, ("", 0))[0] not in self.alive:
                voters = [voter for voter in placed.voters if voter in self.alive]
                if voters:
                    self.led[group] = (self.random.choice(voters), self.now)
                else:
                    self.led.pop(group, None)

    def round(self):
        """Everybody hands over once; returns how many groups moved."""
        self.now += ROUND
        self.elect()
        lag = {
            group: {
                voter: 10_000 if voter in self.lagging else self.random.randrange(limits.BALANCE_LAG_MAX + 1)
                for voter in placed.voters
            }
            for group, placed in self.placement.items()
        }
        count = 0
        for node in sorted(self.alive):
            led = {group: since for group, (leader, since) in self.led.items() if leader == node}
            for group, to in self.balances[node].moves(self.now, led, self.alive, self.draining, lag):
                assert to != node
                assert to in self.alive
                assert to not in self.draining
                assert to not in self.lagging
                assert to in self.placement[group].voters
                self.led[group] = (to, self.now)
                count += 1
        return count

    def disturb(self):
        """One node goes, comes back, drains, or lags, or does so no more; somebody always stays."""
        node = self.random.choice(NODES)
        what = self.random.randrange(3)
        if what == 0 and node in self.alive and len(self.alive) > 2:
            del self.alive[node]
            self.draining.discard(node)
        elif what == 0:
            self.alive.setdefault(node, self.now)
        elif what == 1 and node in self.alive:
            self.draining ^= {node}
        elif what == 2:
            self.lagging ^= {node}


def spread_of(cluster, among):
    counts = Counter(leader for leader, _ in cluster.led.values())
    return [counts[node] for node in among]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 20), st.integers(1, 5), seeds)
def test_nothing_is_handed_to_the_wrong_node_and_it_comes_to_an_end(groups, replicas, random):
    cluster = Cluster(groups, replicas, random)
    for _ in range(30):
        cluster.disturb()
        cluster.round()
    cluster.lagging.clear()

    for _ in range(200):
        cluster.round()

    wanted = leaders(cluster.placement, cluster.alive.keys() - cluster.draining)
    assert {group: leader for group, (leader, _) in cluster.led.items() if group in wanted} == wanted
    assert not any(cluster.round() for _ in range(20))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 20), seeds, st.sets(st.sampled_from(NODES), max_size=4))
def test_spread_ends_even_where_everybody_has_everything(groups, random, drained):
    cluster = Cluster(groups, len(NODES), random)
    cluster.draining = drained

    for _ in range(60):
        cluster.round()

    counts = spread_of(cluster, set(NODES) - drained)
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == groups + 1


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_node_that_drains_leads_nothing_after_one_round(random):
    cluster = Cluster(12, 3, random)
    cluster.round()
    cluster.draining = {"c"}

    cluster.round()

    assert "c" not in {leader for leader, _ in cluster.led.values()}

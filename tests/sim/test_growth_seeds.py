"""Simulated clusters whose pool of groups grows amid all faults: nothing is lost, channels go to new groups, or begin there."""

import os

import pytest

from stan.core.admin.spreading import Spreading
from stan.edge.cluster.growth import PoolGrowth
from stan.edge.storage.storage import Storage
from tests.sim.growth_worlds import GrowthWorld, MemberGrowth

SEEDS = int(os.environ.get("STAN_GROWTH_SEEDS", "3"))


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("world", "name"), [(GrowthWorld, "growth"), (MemberGrowth, "member-growth")])
def test_a_pool_grows_amid_all_faults(world, name):
    grown = in_new = moved = 0
    for seed in range(SEEDS):
        one = world(seed)
        assert one.run() == [], f"replay with: python -m tests.sim --world {name} --seed {seed}"
        grown += one.growths
        in_new += one.in_new
        moved += one.moved

    assert grown >= SEEDS
    assert in_new
    assert moved


def test_a_pool_that_is_opened_before_its_groups_have_leaders_is_found_out(monkeypatch):
    """Groups that nobody made have no leaders."""
    monkeypatch.setattr(PoolGrowth, "heed", lambda _self, _now: False)
    monkeypatch.setattr(PoolGrowth, "waits_for", lambda _self: "")

    said = [text for seed in (2, 3) for text in GrowthWorld(seed).run()]
    found = ("counts", "has no leader", "no progress: ")  # channels on their way to such a group never arrive
    assert any(text in one for one in said for text in found)


def test_a_pool_that_has_to_wait_for_a_node_that_is_away_grows_once_it_is_back(monkeypatch):
    """Groups that nobody could make yet need no leader meanwhile."""
    world = GrowthWorld(0, calm=True)
    with monkeypatch.context() as patch:
        patch.setattr(world, "_want", lambda: None)
        world.begin()
    world.run_for(2)
    away = world.nodes["n1"]
    away.kept_down = True
    away.crash(power=False)
    world.run_for(5)
    world._want()
    world.run_for(5)

    assert world.leader(0).broker.view.pool == world.raft_groups
    assert world.finish(away) == []
    assert world.growths == 1


def test_channels_that_stay_although_the_hash_has_moved_them_are_found_out(monkeypatch):
    monkeypatch.setattr(Spreading, "_go_on", lambda _self, _now: None)

    assert any("have still to move" in text for text in GrowthWorld(2).run())


def test_a_node_that_counts_groups_without_their_directories_is_found_out(monkeypatch):
    """It has no vote in any of them, so none is led."""
    found = Storage.found_groups
    monkeypatch.setattr(Storage, "found_groups", lambda self, _voters, pool, votes: found(self, {}, pool, votes=votes))

    assert any("has no leader" in text for text in GrowthWorld(1).run())

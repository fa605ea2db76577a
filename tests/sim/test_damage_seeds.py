"""Simulated runs in which one disk loses its newest entries: others still have them, or an operator is told, and nothing else."""

from functools import partial

from stan.raft.pysyncobj.hard_state import HardState
from tests.sim.damage_worlds import ClusterDamage

WORST = (7, 4, *range(4))  # another schedule may move what is found to another seed


def test_damage_of_what_others_lag_behind_leaves_nothing_to_complain_about():
    assert [found for seed in WORST for found in ClusterDamage(seed, calm=True).beside_laggards()] == []


def is_found(wanted, run, seeds):
    """Whether a run complains of something that is *wanted*, or ends early of it."""
    for seed in seeds:
        try:
            found = run(seed)
        except Exception as error:  # noqa: BLE001 - a node that ends of it is as good
            found = [repr(error)]
        if any(word in text for text in found for word in wanted):
            return True
    return False


def test_node_that_votes_after_its_newest_entries_were_damaged_is_found_out(monkeypatch):
    monkeypatch.setattr(HardState, "mark_amnesiac", lambda self: None)
    wanted = ["is committed here, for the leader", "check_lost", "check_one_order"]
    assert is_found(wanted, lambda seed: ClusterDamage(seed, calm=True).beside_laggards(), (*WORST, *range(5, 20)))


def test_logs_that_are_spliced_from_two_are_found_out(monkeypatch):
    world = ClusterDamage(0, calm=True)
    world.begin()
    world.run_for(3)
    monkeypatch.setattr(world, "_compare_logs", partial(_compare_spliced, world, world._compare_logs))
    assert any("entry 2: n0 has (" in text for text in world.finish())


def _compare_spliced(world, compare):
    """One node's log of the metadata has an entry of another term."""
    log = world.nodes["n0"].storage.logs[0]
    found = log.entries
    log.entries = lambda *which: [one._replace(term=9) if one.index == 2 else one for one in found(*which)]
    compare()
    log.entries = found

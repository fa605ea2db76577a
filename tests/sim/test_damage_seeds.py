"""Simulated runs in which one disk loses its newest entries: others still have them, or an operator is told, and nothing else."""

import os

import pytest

from stan.log.durable import DurableMark
from stan.raft.hard_state import HardState
from stan.raft.shell import Shell
from tests.sim.worlds import make, play

SEEDS = int(os.environ.get("STAN_DAMAGE_SEEDS", "10"))
MUTANT_SEEDS = 40


@pytest.mark.parametrize(("kind", "seeds"), [("damage", SEEDS), ("cluster-damage", SEEDS)])
def test_damage_of_newest_entries_leaves_nothing_to_complain_about(kind, seeds):
    damaged = 0
    for seed in range(seeds):
        world = make(kind, seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world {kind} --seed {seed}"
        damaged += world.damaged
    assert damaged >= seeds // 2


def is_found(wanted, kind, seeds):
    """Whether a run complains of what is *wanted*. Another schedule may move it to another seed."""
    for seed in seeds:
        _, _, found, *_ = play(kind, seed)
        if any(wanted in text for text in found):
            return True
    return False


def test_server_that_does_not_know_how_far_its_log_was_durable_is_found_out(monkeypatch):
    monkeypatch.setattr(DurableMark, "settle", lambda self, index: None)
    assert is_found("does not miss what was damaged", "damage", range(MUTANT_SEEDS))


def test_node_that_votes_after_its_newest_entries_were_damaged_is_found_out(monkeypatch):
    monkeypatch.setattr(HardState, "doubt", lambda self: None)
    assert is_found("check_lost", "cluster-damage", (107, *range(MUTANT_SEEDS)))


def test_node_that_goes_on_behind_another_beginning_is_found_out(monkeypatch):
    monkeypatch.setattr(HardState, "doubt", lambda self: None)
    monkeypatch.setattr(Shell, "_compare", lambda self, index, term: None)
    assert is_found(" has (", "cluster-damage", (107, 102, *range(MUTANT_SEEDS)))

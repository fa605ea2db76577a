"""Simulated runs with an operator who purges and deletes: by brokers and clients that die and come back."""

import os

import pytest

from stan.core.leader.dispatch import Dispatch
from stan.core.state.tombstones import Tombstones
from tests.sim.removal_worlds import NodeRemovals
from tests.sim.worlds import make

SEEDS = int(os.environ.get("STAN_REMOVAL_SEEDS", "8"))
MUTANT_SEEDS = 12


@pytest.mark.parametrize(("kind", "seeds"), [("removals", SEEDS), ("cluster-removals", SEEDS // 2)])
def test_removals_leave_nothing_to_complain_about(kind, seeds):
    done = restored = 0
    for seed in range(seeds):
        world = make(kind, seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world {kind} --seed {seed}"
        assert not world.waiting()
        done += world.operator.done
        restored += len(world.operator.restored)
    assert done > 5 * seeds
    assert restored > seeds // 2


def forgets_at_a_restart(monkeypatch):
    monkeypatch.setattr(Tombstones, "load", lambda self, key, state: None)


def delivers_what_was_deleted(monkeypatch):
    monkeypatch.setattr(Dispatch, "removed", lambda self, uid, removal: None)
    monkeypatch.setattr(Tombstones, "apply", lambda self, name, change, index: "")


def removes_one_too_many(monkeypatch):
    apply = Tombstones.apply

    def wrong(self, name, change, index):
        if change.deleted and change.deleted[0] > 1:
            change.deleted[0] -= 1
        return apply(self, name, change, index)

    monkeypatch.setattr(Tombstones, "apply", wrong)


@pytest.mark.parametrize(
    ("mutate", "check"),
    [
        (forgets_at_a_restart, "differs after a restart"),
        (delivers_what_was_deleted, "check_removed"),
        (removes_one_too_many, "check_lost"),
    ],
)
def test_a_broken_broker_is_found_out(monkeypatch, mutate, check):
    mutate(monkeypatch)
    assert any(check in text for seed in range(MUTANT_SEEDS) for text in NodeRemovals(seed).run())

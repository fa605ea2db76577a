"""Simulated runs with an operator who purges and deletes: by brokers and clients that die and come back."""

import os

import pytest
from stan_protocol.scalars import SECOND

from stan.core.leader.dispatch import Dispatch
from stan.core.state.tombstones import Tombstones
from tests.sim.removal_worlds import ClusterRemovals, NodeRemovals
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


def test_what_was_restored_is_looked_up_although_its_group_is_just_handed_over():
    world = next(one for one in (ClusterRemovals(seed, calm=True) for seed in range(50)) if len(one.names) == 3)
    world.begin()
    world.run_for(5)
    group = world.history.group_of["a"]
    world.leader(group).crash(power=False)
    assert world.leader(group) is None
    _, _, info = world.look_up(b"a")
    assert info.name == b"a"
    assert world.look_up(b"never made") is None
    assert world.problems == ["%.4f never made is not there" % (world.loop.now / SECOND)]
    assert world.finish()[1:] == []


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

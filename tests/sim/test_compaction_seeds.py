"""Simulated compaction by key: who folds by key gets what all messages give, whatever goes, and wherever a position sleeps."""

import os

import pytest

from stan.core.state.group import GroupMachine
from stan.log.compaction import KeyMap
from tests.sim.compaction_worlds import ClusterCompaction, NodeCompaction
from tests.sim.worlds import found_out

SEEDS = int(os.environ.get("STAN_COMPACTION_SEEDS", "3"))


@pytest.mark.parametrize(("kind", "name"), [(NodeCompaction, "compaction"), (ClusterCompaction, "cluster-compaction")])
def test_compaction_leaves_nothing_to_complain_about(kind, name):
    decided = rewritten = 0
    for seed in range(SEEDS):
        world = kind(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world {name} --seed {seed}"
        decided += world.compacted
        rewritten += world.saved

    assert (decided > 50, rewritten > 1000) == (True, True), "the runs did something"


def forgets_positions(monkeypatch):
    monkeypatch.setattr(GroupMachine, "passed", lambda _self, _uid: None)


def keeps_no_newest(monkeypatch):
    learn = KeyMap.learn

    def wrong(self, row, records):
        learn(self, row, records)
        for name in list(self.places)[:1]:
            self.places[name] += 1

    monkeypatch.setattr(KeyMap, "learn", wrong)


def tombstones_go_at_once(monkeypatch):
    gone = KeyMap._gone

    def wrong(self, row, target, keys, tombstones):
        return sorted({*gone(self, row, target, keys, tombstones), *(at for at in tombstones if at < target.until)})

    monkeypatch.setattr(KeyMap, "_gone", wrong)


@pytest.mark.parametrize("mutate", [forgets_positions, keeps_no_newest, tombstones_go_at_once])
def test_a_broken_broker_is_found_out(monkeypatch, mutate):
    mutate(monkeypatch)

    assert any(found_out(NodeCompaction, seed) for seed in range(12))

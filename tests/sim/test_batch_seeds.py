"""Simulated runs with producers of batches: each id is stored once, also by brokers and clients that die and come back."""

import os

import pytest

from stan.core.publishing.batching import Batching
from stan.core.state.dedup import ProducerDedup
from tests.sim.batch_world import BatchWorld
from tests.sim.worlds import make

SEEDS = int(os.environ.get("STAN_BATCH_SEEDS", "8"))
MUTANT_SEEDS = 26


@pytest.mark.parametrize(("kind", "seeds"), [("batch-node", SEEDS), ("batch-cluster", SEEDS // 2)])
def test_batches_leave_nothing_to_complain_about(kind, seeds):
    answers = 0
    for seed in range(seeds):
        world = make(kind, seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world {kind} --seed {seed}"
        assert not world.waiting()
        answers += sum(batcher.answers for batcher in world.batchers)
    assert answers > 5 * seeds


def knows_nothing(monkeypatch):
    monkeypatch.setattr(ProducerDedup, "missing", lambda self, uid, producer, ids: b"\1" * (len(ids) // 16))


def forgets_at_a_restart(monkeypatch):
    monkeypatch.setattr(ProducerDedup, "load", lambda self, key, state: None)


def answers_too_early(monkeypatch):
    propose = Batching._propose

    def early(self, line, named, taken, windows):
        for found in taken:
            found.asked.answer(duplicates=found.number)
        propose(self, line, named, taken, windows)

    monkeypatch.setattr(Batching, "_propose", early)


@pytest.mark.parametrize(
    ("mutate", "check"),
    [
        (knows_nothing, "check_one_order"),
        (forgets_at_a_restart, "differs after a restart"),
        (answers_too_early, "check_lost"),
    ],
)
def test_a_broken_broker_is_found_out(monkeypatch, mutate, check):
    mutate(monkeypatch)
    assert any(check in text for seed in range(MUTANT_SEEDS) for text in BatchWorld(seed).run())

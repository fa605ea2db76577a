"""Simulated consumer groups: one owner at a time, positions that never go back, every message handled, no channel forgotten."""

import os

import pytest

from stan.core.admin.live_consumer_group import LiveConsumerGroup
from stan.core.state.bookmarks import Bookmarks, NotedPlace
from tests.sim.consumer_group_worlds import ClusterConsumerGroup

SEEDS = int(os.environ.get("STAN_CONSUMER_GROUP_SEEDS", "4"))
MUTANT_SEEDS = (6, 23, *range(30))
"""The first two find that a stale generation is taken, which needs a process that was stopped amid a batch."""


def test_consumer_groups_leave_nothing_to_complain_about():
    handled = owners = 0
    for seed in range(SEEDS):
        world = ClusterConsumerGroup(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world consumer-groups --seed {seed}"
        handled += sum(len(share.batches) for share in world.shares)
        owners += len(world.shares)

    assert handled > 20, "the runs did something"
    assert owners > 5


def takes_any_generation(monkeypatch):
    apply = Bookmarks.apply

    def careless(self, name, change, index):
        known = self.by_channel.get(change.uid, {}).get(change.name)
        if known is not None and change.generation < known.generation:
            change.generation = known.generation
        return apply(self, name, change, index)

    monkeypatch.setattr(Bookmarks, "apply", careless)


def forgets_the_position(monkeypatch):
    apply = Bookmarks.apply

    def forgetful(self, name, change, index):
        known = self.by_channel.get(change.uid, {}).get(change.name)
        if change.claim and known is not None and change.generation > known.generation:
            self.by_channel[change.uid][change.name] = NotedPlace(max(1, known.sequence - 7), known.generation)
        return apply(self, name, change, index)

    monkeypatch.setattr(Bookmarks, "apply", forgetful)


def never_ends_a_lease(monkeypatch):
    staying = LiveConsumerGroup.staying
    monkeypatch.setattr(LiveConsumerGroup, "staying", lambda self, known, _now: staying(self, known, 0))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("spoil", [takes_any_generation, forgets_the_position, never_ends_a_lease])
def test_mutants_are_found(monkeypatch, spoil):
    spoil(monkeypatch)
    for seed in MUTANT_SEEDS:
        if ClusterConsumerGroup(seed).run():
            return
    pytest.fail(f"{spoil.__name__} was not found")

"""Simulated consumer groups: one owner at a time, positions that never go back, every message handled, no channel forgotten."""

import os

import pytest

from stan.core.admin.live_consumer_group import LiveConsumerGroup
from stan.core.state.bookmarks import Bookmarks, NotedPlace
from tests.sim.consumer_group_worlds import ClusterConsumerGroup, Noted, Share, check_handled, check_owners

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


# --- the checks: a right story passes, and each way of spoiling it is caught -----------------------------------------------


def noted(generation, asked_at, told_at, asked, sequence):
    return Noted("a", 1, generation, asked_at, told_at, asked, sequence)


STORY = [noted(5, 1, 2, 0, 1), noted(5, 3, 4, 6, 6), noted(9, 5, 6, 0, 6), noted(9, 7, 8, 11, 11)]


def shares():
    first, second = Share("a", 1, 5, "m"), Share("a", 1, 9, "n")
    first.batches = [[1, 2, 3, 4, 5], [6, 7]]
    second.batches = [[6, 7, 8, 9, 10]]
    return [first, second]


def test_right_story_passes():
    assert list(check_owners(STORY)) == []
    assert list(check_handled(shares(), STORY)) == []
    assert list(check_owners([*STORY, noted(5, 4, 9, 8, 8)])) == []  # it was asked before the claim was answered


def test_spoiled_stories_are_caught():
    assert "generation 5 was taken after 9" in next(check_owners([*STORY, noted(5, 9, 10, 12, 12)]))
    assert "the position is 9, and was 11" in next(check_owners([*STORY, noted(9, 9, 10, 9, 9)]))
    twice = shares()
    twice[1].batches.append([10])
    assert "came twice" in next(check_handled(twice, STORY))
    early = shares()
    early[1].batches[0].insert(0, 5)
    found = list(check_handled(early, STORY))
    assert any("not with the last batch" in one for one in found)
    assert any("is before" in one for one in found)

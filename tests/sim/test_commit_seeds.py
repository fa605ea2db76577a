"""Simulated clusters with a synced and a replicated channel: what each promises when power is lost; broken rules are found."""

import os
from collections import defaultdict

import pytest

from stan.edge.cluster import copies
from stan.raft.group import RaftGroup
from stan.raft.pysyncobj.election import Election
from stan.raft.pysyncobj.hard_state import HardState
from tests.sim.commit_worlds import FAST, SAFE, CommitWorld, PartedCommit, PowerWorld
from tests.sim.worlds import play

SEEDS = int(os.environ.get("STAN_COMMIT_SEEDS", "4"))


def test_nothing_acked_is_lost_in_either_channel_while_a_minority_loses_power():
    losses, acked = 0, defaultdict(int)
    for seed in range(SEEDS):
        world = CommitWorld(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world commit-kinds --seed {seed}"
        losses += world.losses
        for publish in world.history.acknowledged:
            acked[publish.channel] += 1
    assert losses > SEEDS / 2
    assert min(acked[SAFE], acked[FAST]) > 10 * SEEDS


def test_nothing_acked_is_lost_in_parts_that_are_replicated():
    acked = 0
    for seed in range(2):
        world = PartedCommit(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world commit-parts --seed {seed}"
        acked += len(world.history.acknowledged)
        assert min(world.history.group_of[channel] for channel in world.channels) > world.raft_groups
    assert acked > 40


def test_an_outage_costs_the_replicated_channel_its_newest_messages_and_the_synced_one_nothing():
    outages = forgotten = 0
    for seed in range(SEEDS):
        world = PowerWorld(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world commit-outage --seed {seed}"
        outages += len(world.outages)
        forgotten += len(world.forgotten)
    assert outages > SEEDS / 2
    assert forgotten, "the worst case is among the runs"


# --- the worlds can fail: each part of the rule taken out is found ------------------------------------------------------


def votes_on(monkeypatch):
    """Who has lost power votes as if nothing had happened."""
    monkeypatch.setattr(HardState, "mark_entries_forgotten", lambda _self: None)


def counts_at_once(monkeypatch):
    """Votes and answers of who has lost power count."""
    monkeypatch.setattr(Election, "is_amnesiac", property(lambda _self: False))


@pytest.mark.parametrize(("broken", "seeds"), [(votes_on, (5, 27)), (counts_at_once, range(60))])
def test_a_member_that_has_lost_power_and_votes_all_the_same_is_found(broken, seeds, monkeypatch):
    broken(monkeypatch)
    assert any(play("commit-kinds", seed)[2] for seed in seeds)


def test_a_synced_channel_that_is_acked_before_its_disks_is_found(monkeypatch):
    """All groups answer what they have written: only the replicated channel may do so."""

    def unsynced(*arguments, sync, **more):
        return RaftGroup(*arguments, sync="interval", **more)

    monkeypatch.setattr(copies, "RaftGroup", unsynced)
    assert any(text.startswith(f"check_lost: {SAFE}:") for seed in range(12) for text in play("commit-outage", seed)[2])

"""Simulated groups whose entries are answered before they are synced: what they promise holds, and after an outage they go on."""

import os

import pytest

from stan.raft.pysyncobj.election import Election, Votes
from stan.raft.pysyncobj.hard_state import HardState
from tests.sim.unsynced_world import OutageWorld, UnsyncedWorld

SEEDS = int(os.environ.get("STAN_UNSYNCED_SEEDS", "20"))


def test_nothing_acknowledged_is_lost_while_a_minority_loses_power():
    acknowledged = lost = 0
    for seed in range(SEEDS):
        world = UnsyncedWorld(seed)
        assert world.run() == [], f"replay with: python -m tests.sim.unsynced_world minority --seed {seed}"
        acknowledged += len(world.history.applied)
        lost += len(world.history.forgotten)
    assert acknowledged > 80 * SEEDS, "the runs did something"
    assert lost > SEEDS / 2, "power was lost"


def test_after_an_outage_the_members_agree_on_what_is_left_and_go_on():
    outages = 0
    for seed in range(SEEDS):
        world = OutageWorld(seed)
        assert world.run() == [], f"replay with: python -m tests.sim.unsynced_world outage --seed {seed}"
        outages += world.outages
    assert outages > SEEDS / 2


# --- the checks can fail: each part of the rule taken out is found ------------------------------------------------------


def votes_on(monkeypatch):
    """Who has lost power votes as if nothing had happened."""
    monkeypatch.setattr(HardState, "mark_entries_forgotten", lambda _self: None)


def all_votes_alike(monkeypatch):
    """A majority of whatever votes elects."""
    monkeypatch.setattr(Votes, "whole_majority", lambda votes, others, *, partial: 2 * (votes.count + 1) > others + 1)


def counts_at_once(monkeypatch):
    """Votes and answers of who has lost power count."""
    monkeypatch.setattr(Election, "is_amnesiac", property(lambda _self: False))


@pytest.mark.parametrize("broken", [votes_on, all_votes_alike, counts_at_once])
def test_a_broken_rule_is_found(broken, monkeypatch):
    broken(monkeypatch)
    assert any(UnsyncedWorld(seed).run() for seed in range(120))

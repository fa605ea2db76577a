"""Simulated publishers that want no ack of every second message: a fault may take some of these and no other ones, and what is
stored keeps the order in which it was published."""

import os

import pytest

from stan.core.publishing.publishing import Publishing
from tests.sim.history import places
from tests.sim.silent_worlds import ClusterSilent, NodeSilent

SEEDS = int(os.environ.get("STAN_SILENT_SEEDS", "4"))
FIRST = 5
"""Faults take something in some of the first runs from here on."""


@pytest.mark.parametrize(("kind", "name"), [(NodeSilent, "silent"), (ClusterSilent, "cluster-silent")])
def test_a_fault_takes_only_what_was_published_without_an_ack(kind, name):
    stored = lost = 0
    for seed in range(FIRST, FIRST + SEEDS):
        world = kind(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world {name} --seed {seed}"
        gone = len(world.lost(places(world.history)))
        lost += gone
        stored += len(world.silent) - gone

    assert lost, "faults took some"
    assert stored > lost, "most are there"


def test_a_broker_that_drops_what_wants_no_ack_is_found_out(monkeypatch):
    publishes = Publishing.publishes
    monkeypatch.setattr(
        Publishing, "publishes", lambda self, batch: None if batch.replied.count(0) else publishes(self, batch)
    )

    assert any("check_silent" in text for text in NodeSilent(0).run())


def test_a_broker_that_stores_what_wants_no_ack_later_is_found_out(monkeypatch):
    publishes = Publishing.publishes
    held = []

    def late(publishing, batch):
        if batch.replied.count(0) == batch.count and not held:
            held.append(batch)
            return
        publishes(publishing, batch)
        if held:
            publishes(publishing, held.pop())

    monkeypatch.setattr(Publishing, "publishes", late)

    assert any("check_real_time" in text for seed in range(3) for text in NodeSilent(seed).run())

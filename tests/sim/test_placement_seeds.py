"""Simulated clusters with labels and pins: things are where they are told to be, over changes of nodes, deaths and cuts."""

import os

from stan.core.state.meta import MetaMachine
from stan.edge.cluster.node import ClusterNode
from tests.sim.label_world import LabelWorld
from tests.sim.pin_world import PinWorld

SEEDS = int(os.environ.get("STAN_PLACEMENT_SEEDS", "3"))


def test_groups_follow_the_labels_of_nodes():
    labelled = 0
    for seed in range(SEEDS):
        world = LabelWorld(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world labels --seed {seed}"
        labelled += world.labelled

    assert labelled


def test_a_cluster_that_does_not_heed_labels_is_found_out(monkeypatch):
    monkeypatch.setattr(ClusterNode, "_labels", lambda _self: {})

    assert any("labels are" in text for seed in range(4) for text in LabelWorld(seed).run())


def test_channels_are_made_where_they_are_pinned():
    moved = 0
    for seed in range(SEEDS):
        world = PinWorld(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world pins --seed {seed}"
        moved += world.pinned

    assert moved


def test_a_registry_that_does_not_heed_pins_is_found_out(monkeypatch):
    create = MetaMachine._create

    def heedless(self, change):
        change.exact = True
        return create(self, change)

    monkeypatch.setattr(MetaMachine, "_create", heedless)
    monkeypatch.setattr("stan.core.context.BrokerContext.home", lambda _self, _channel: 1)

    assert any("and pinned to" in text for seed in range(12) for text in PinWorld(seed).run())

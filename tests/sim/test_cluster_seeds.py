"""Simulated runs of whole clusters: nothing acknowledged is lost, one order everywhere, everything delivered in the end."""

import os
import subprocess
import sys

import pytest

from tests.sim.cluster_world import ClusterWorld

SEEDS = int(os.environ.get("STAN_CLUSTER_SEEDS", "15"))
BATCH = 5


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_clusters_leave_nothing_to_complain_about(first):
    acked = leaders = deaths = 0
    for seed in range(first, first + BATCH):
        world = ClusterWorld(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world cluster --seed {seed}"
        acked += len(world.history.acknowledged)
        leaders += len(world.history.leaders)
        deaths += sum(node.lives - 1 for node in world.nodes.values())

    assert acked > 20 * BATCH, "the runs did something"
    assert leaders > 2 * BATCH
    assert deaths > 0


def test_one_cluster_seed_gives_one_trace_in_two_processes():
    digests = {
        subprocess.run(
            [sys.executable, "-m", "tests.sim", "--world", "cluster", "--seed", "3", "--digest"],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }

    assert len(digests) == 1
    assert len(digests.pop().strip()) == 64

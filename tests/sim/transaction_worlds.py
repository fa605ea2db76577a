"""Worlds in which apps stage rows and commit them: one of a node alone, one of a cluster."""

from tests.sim.cluster_world import ClusterWorld
from tests.sim.transactor import Transacting
from tests.sim.world import World


class NodeTransactions(Transacting, World):
    """A node alone."""


class ClusterTransactions(Transacting, ClusterWorld):
    """A cluster, whose nodes often die right after a step of a commit."""

    def __init__(self, seed):
        super().__init__(seed)
        self.aimed["commit"] = self.random.choice((0, 0.02, 0.1))

    def stored(self, node, batch):
        super().stored(node, batch)
        if bytes(batch.records).find(b"app", 0, 64) >= 0:
            self.aim(node, "commit")

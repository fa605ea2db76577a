"""Worlds in which apps stage rows and commit them: one of a node alone, one of a cluster."""

from stan_protocol.scalars import MICROSECOND

from stan.protocol.entries import Kind, decode_batches
from tests.sim.cluster_world import ClusterWorld
from tests.sim.transactor import Transacting
from tests.sim.world import World


class NodeTransactions(Transacting, World):
    """A node alone, which often dies right after a commit."""

    def __init__(self, seed):
        super().__init__(seed)
        self.aimed = self.random.choice((0, 0.05, 0.2))

    def boot(self):
        super().boot()
        node, draw = self.node, self.random
        commit = node.broker.entries.step_committed

        def committed(group, index, kind, body):
            commit(group, index, kind, body)
            step = kind == Kind.RECORDS and any(
                batch.staged or b"app" in batch.records[:64].tobytes() for batch in decode_batches(body)
            )
            if step and not self.quiet and draw.random() < self.aimed:
                self.loop.after(draw.randint(0, 900) * MICROSECOND, strike)

        def strike():
            if self.node is node:
                self.faults.append((self.loop.now, "aimed"))
                self._node_dies(draw.random() < 0.5)

        node.broker.entries.step_committed = committed


class ClusterTransactions(Transacting, ClusterWorld):
    """A cluster, whose nodes often die right after a commit."""

    def __init__(self, seed):
        super().__init__(seed)
        self.aimed["commit"] = self.random.choice((0, 0.05, 0.3))

    def stored(self, node, batch):
        super().stored(node, batch)
        if bytes(batch.records).find(b"app", 0, 64) >= 0:
            self.aim(node, "commit")

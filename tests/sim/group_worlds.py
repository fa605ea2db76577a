"""Worlds whose queue groups have a policy of their own: one member gets everything, or the messages of a key come in order."""

from unittest import mock

from stan.core.base.delivery_policy import DeliveryPolicy
from stan.core.boundary import loading
from tests.sim.cluster_world import ClusterWorld
from tests.sim.world import World


class _Failover:
    """All queue groups are failover groups; members come and go more often."""

    def make_clients(self, restless=0.0, **pace):
        super().make_clients(restless=restless or 0.02, **pace)
        self.history.failover = True

    def run(self, **patience):
        with mock.patch.object(loading, "_policy_of", return_value=DeliveryPolicy(failover=True)):
            return super().run(**patience)


class NodeFailover(_Failover, World):
    """One node."""


class ClusterFailover(_Failover, ClusterWorld):
    """A cluster."""

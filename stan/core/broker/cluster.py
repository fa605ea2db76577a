"""The node's place in its cluster: its name, the other nodes, the pool of groups, a rescue."""

from collections.abc import Sequence

from stan.core.clients.nodes import HeardNodes
from stan.core.features import BrokerFeature, BrokerParts
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services


class ClusterPlace:
    """Follows what the edge knows of the cluster; a node alone has none of it."""

    def __init__(self, services: Services, parts: BrokerParts, features: Sequence[BrokerFeature]) -> None:
        self.leading, self.node = services.leading, services.node
        self.parts = parts
        self.features = features

    def join(self, node: str, founders: tuple[str, ...], heard: HeardNodes) -> None:
        """Set this node's name in the cluster. *founders*: the nodes to assume while the metadata lists none."""
        self.node.name = node
        self.parts.nodes.founders, self.parts.nodes.heard = founders, heard

    def step_epoch(self, epoch: int) -> None:
        """The epoch of the cluster, as clients get it; 0: it was never rescued."""
        self.node.epoch = epoch

    def step_survivors(self, names: tuple[str, ...], version: int) -> None:
        """The cluster was rescued: *names* are its nodes, in place of those of *version* in the metadata or before."""
        if self.leading.concerns(META_GROUP):
            self.parts.nodes.keep_survivors(names, version)

    def follow_labels(self) -> None:
        """Take the labels of live nodes into the metadata if they are others; call now and then."""
        self.parts.nodes.follow_labels()

    def follow_pool(self) -> None:
        """Open the pool of groups if all of its new groups have leaders; call now and then."""
        for feature in self.features:
            feature.nodes_seen()

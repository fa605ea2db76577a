"""The requests of operators that a node answers from its logs."""

from collections.abc import Mapping

from stan_protocol.scalars import GroupId

from stan.core.broker.broker import Broker
from stan.edge.nats.gateway import Gateway
from stan.edge.runtime import Runtime
from stan.edge.serving.explaining import Explaining
from stan.edge.serving.scrub import Scrubber
from stan.raft.consensus import Consensus


def serve_log_requests(
    broker: Broker, groups: Mapping[GroupId, Consensus], gateway: Gateway, runtime: Runtime, node: str
) -> None:
    """Serve these requests from now on. *node*: the name of this node; "" outside of a cluster."""
    Scrubber(broker, groups, gateway, runtime, node)
    Explaining(broker, groups, gateway, runtime)

"""Both sides of serving subscriptions by other nodes than the leader, as parts of one broker."""

from typing import NamedTuple

from stan_protocol.scalars import GroupId

from stan.core.clients.nodes import NodeRequests
from stan.core.clients.serving_leader import ServingLeader
from stan.core.clients.serving_node import ServingNode
from stan.core.context import BrokerContext
from stan.core.state.group import Cursor


class Serving(NamedTuple):
    """What this node gives to others, and what it serves for them."""

    leader: ServingLeader
    node: ServingNode

    def applied(self, number: GroupId, cursors: list[Cursor], *, leads: bool) -> None:
        """A Serve entry was applied; *leads*: this node leads the group."""
        part = self.leader if leads else self.node
        part.applied(number, cursors)


def make_serving(context: BrokerContext, nodes: NodeRequests) -> Serving:
    """Make both sides."""
    return Serving(ServingLeader(context, nodes), ServingNode(context, nodes))

"""Both sides of serving subscriptions by other nodes than the leader, as parts of one broker."""

from collections.abc import Iterable

from google.protobuf.message import DecodeError
from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import GroupId

from stan.core.clients.nodes import NodeRequests
from stan.core.clients.serving_leader import ServingLeader
from stan.core.clients.serving_node import ServingNode
from stan.core.context import BrokerContext
from stan.core.leader.local_group import Leadership
from stan.core.state.group import Cursor, CursorKind, Subscription, kind_and_name
from stan.core.state.serving import ANY
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.proto.node_pb2 import ServingReport


class Serving:
    """Subscriptions that this node gives to others, in the groups that it leads, and those that it serves for them."""

    def __init__(self, context: BrokerContext, nodes: NodeRequests) -> None:
        self.context = context
        self.nodes = nodes
        self.node = ServingNode(context, nodes)

    def wish(self, request: wire.SubscriptionRequest) -> bytes:
        """Return the nodes that may serve a subscription, as its request or an operator's policy names them; b"": the leader
        does."""
        context = self.context
        kind, _ = kind_and_name(request.queue_group, request.durable_name)
        if not context.clustered or kind is not CursorKind.PLAIN:
            return b""
        return request.replica or (ANY if context.policies.of(request.subject, b"").from_replica else b"")

    def lead(self, leadership: Leadership, unreported: Iterable[pb.GroupChange]) -> None:
        """This node leads a group from now on. *unreported*: what it has served before, and the leader before may not know."""
        leader = ServingLeader(self.context, leadership, self.nodes)
        leadership.keep(leader)
        leader.lead(unreported)

    def joined(self, number: GroupId, sub: Subscription) -> None:
        """A subscription with a wish has begun, and its client is answered."""
        leader = self.context.part(number, ServingLeader)
        if leader is not None:
            leader.joined(sub)

    def applied(self, number: GroupId, cursors: list[Cursor]) -> None:
        """A Serve entry was applied."""
        leader = self.context.part(number, ServingLeader)
        if leader is not None:
            leader.applied(cursors)
        else:
            self.node.applied(number, cursors)

    def reported(self, frame: Frame) -> None:
        """A node that serves subscriptions reports to the leader of their group."""
        context = self.context
        try:
            report = ServingReport.FromString(frame.payload)
        except DecodeError:
            context.complain("WRN", "a report about served subscriptions cannot be read")
            return
        number = GroupId(report.group)
        leader = context.part(number, ServingLeader)
        if leader is not None and context.leading.replaying is None and context.holds((number,)):
            context.within(number, leader.reported, report, frame.reply)

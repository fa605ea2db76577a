"""Both sides of serving subscriptions by other nodes than the leader, as parts of one broker."""

from collections.abc import Iterable

from google.protobuf.message import DecodeError
from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import GroupId

from stan.core.clients.nodes import NodeRequests
from stan.core.clients.serving_leader import ServingLeader
from stan.core.clients.serving_node import ServingNode
from stan.core.leader.local_group import Leadership
from stan.core.services.services import Services
from stan.core.state.cursors import Cursor, CursorKind, Subscription, kind_and_name
from stan.core.state.serving import ANY
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.proto.node_pb2 import ServingReport


class Serving:
    """Subscriptions that this node gives to others, in the groups that it leads, and those that it serves for them."""

    def __init__(self, services: Services, nodes: NodeRequests) -> None:
        self._services = services
        self.faults, self.leading, self.node = services.faults, services.leading, services.node
        self.placement, self.reports = services.placement, services.reports
        self.nodes = nodes
        self.of_others = ServingNode(services, nodes)

    def wish(self, request: wire.SubscriptionRequest) -> bytes:
        """Return the nodes that may serve a subscription, as its request or an operator's policy names them; b"": the leader
        does."""
        kind, _ = kind_and_name(request.queue_group, request.durable_name)
        if not self.node.clustered or kind is not CursorKind.PLAIN:
            return b""
        return request.replica or (ANY if self.placement.policies.of(request.subject, b"").from_replica else b"")

    def lead(self, leadership: Leadership, unreported: Iterable[pb.GroupChange]) -> None:
        """This node leads a group from now on. *unreported*: what it has served before, and the leader before may not know."""
        leader = ServingLeader(self._services, leadership, self.nodes)
        leadership.keep(leader)
        leader.lead(unreported)

    def joined(self, number: GroupId, sub: Subscription) -> None:
        """A subscription with a wish has begun, and its client is answered."""
        leader = self.leading.part(number, ServingLeader)
        if leader is not None:
            leader.joined(sub)

    def applied(self, number: GroupId, cursors: list[Cursor]) -> None:
        """A Serve entry was applied."""
        leader = self.leading.part(number, ServingLeader)
        if leader is not None:
            leader.applied(cursors)
        else:
            self.of_others.applied(number, cursors)

    def reported(self, frame: Frame) -> None:
        """A node that serves subscriptions reports to the leader of their group."""
        try:
            report = ServingReport.FromString(frame.payload)
        except DecodeError:
            self.reports.complain("WRN", "a report about served subscriptions cannot be read")
            return
        number = GroupId(report.group)
        leader = self.leading.part(number, ServingLeader)
        if leader is not None and self.leading.replaying is None and self.leading.holds((number,)):
            self.faults.within(number, leader.reported, report, frame.reply)

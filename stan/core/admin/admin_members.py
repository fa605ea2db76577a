"""Changes that operators ask of the leader of the metadata: a client is put out, a node is added or removed, the level raised,
a policy set, a channel pinned, made with parts or given another commit, a schema registered, the pool of groups grown."""

from functools import partial

from stan_protocol import refusals
from stan_protocol.refusals import NOT_A_CLUSTER

from stan.core.admin.channel_moves import ChannelMoves
from stan.core.admin.commit_requests import CommitRequests
from stan.core.admin.part_requests import PartRequests
from stan.core.admin.pin_requests import PinRequests
from stan.core.admin.policy_requests import PolicyRequests
from stan.core.admin.pool_requests import PoolRequests
from stan.core.admin.schema_requests import SchemaRequests
from stan.core.base.names import text
from stan.core.clients.nodes import NodeRequests
from stan.core.clients.registration import Registration
from stan.core.requests.request import AcceptedRequest
from stan.core.requests.router import Handler
from stan.core.services.services import Services
from stan.core.state.meta import MetaResult


class AdminMembers:
    """Handles operators' requests about clients, nodes and policies."""

    def __init__(self, services: Services, nodes: NodeRequests, moves: ChannelMoves) -> None:
        self.node, self.reports = services.node, services.reports
        self.nodes = nodes
        self.policies = PolicyRequests(services)
        self.schemas = SchemaRequests(services)
        self.pool = PoolRequests(services, nodes)
        self.pins = PinRequests(services, moves)
        self.commits = CommitRequests(services, moves)
        self.parted = PartRequests(services)

    def handlers(self) -> dict[str, Handler]:
        """The handler of each request, by name."""
        return {
            "evict_client": self._evict_client,
            "add_node": partial(self._change, add=True),
            "remove_node": partial(self._change, add=False),
            "raise_level": self._raise_level,
            **self.policies.handlers(),
            **self.pins.handlers(),
            **self.commits.handlers(),
            **self.parted.handlers(),
            **self.schemas.handlers(),
            **self.pool.handlers(),
        }

    def _evict_client(self, accepted: AcceptedRequest) -> None:
        """End a client's connection as if it had closed it; the client notices that by its next ping or publish."""
        client = self.node.meta.clients.get(accepted.request.client_id)
        if client is None:
            accepted.answer()  # it is gone already
            return

        def done(result: object, error: str) -> None:
            if not isinstance(result, MetaResult):
                accepted.refuse(error or refusals.BUSY, retry=True)
                return
            self.reports.note("INF", f"[Client:{text(client.client_id)}] Evicted by an operator")
            accepted.answer(changed=int(result.gone is not None))

        accepted.part(Registration).disconnect(client, done, asked=False)

    def _change(self, accepted: AcceptedRequest, *, add: bool) -> None:
        if not self.node.clustered:
            accepted.refuse(NOT_A_CLUSTER)
            return
        before = self.nodes.names

        def done(why: str, retry: bool) -> None:  # noqa: FBT001 - as Told has it
            if why:
                accepted.refuse(refusals.NODES_REFUSED.format(why), retry=retry)
            else:
                accepted.answer(changed=int(self.nodes.names != before))

        self.nodes.change(accepted.request.node, done, add=add)

    def _raise_level(self, accepted: AcceptedRequest) -> None:
        before = self.node.meta.level

        def done(why: str, retry: bool) -> None:  # noqa: FBT001 - as Told has it
            if why:
                accepted.refuse(refusals.LEVEL_REFUSED.format(why), retry=retry)
            else:
                accepted.answer(changed=int(self.node.meta.level != before))

        self.nodes.raise_level(accepted.request.to, done)

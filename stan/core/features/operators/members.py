"""Requests of operators to the leader of the metadata about clients, nodes and the level."""

from functools import partial

from stan_protocol import refusals
from stan_protocol.refusals import NOT_A_CLUSTER

from stan.core.base.names import text
from stan.core.clients.nodes import NodeRequests
from stan.core.clients.registration import Registration
from stan.core.metadata.meta import MetaResult
from stan.core.requests.request import AcceptedRequest
from stan.core.requests.router import Handler
from stan.core.services.services import Services


class AdminMembers:
    """Handles operators' requests about clients and nodes."""

    def __init__(self, services: Services, nodes: NodeRequests) -> None:
        self.node, self.reports = services.node, services.reports
        self.nodes = nodes

    def handlers(self) -> dict[str, Handler]:
        """The handler of each request, by name."""
        return {
            "admin.evict_client": self._evict_client,
            "admin.add_node": partial(self._change, add=True),
            "admin.remove_node": partial(self._change, add=False),
            "admin.raise_level": self._raise_level,
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

"""Changes that operators ask of the leader of the metadata: a client is put out, a node is added or removed."""

from stan import errors
from stan.core.clients.clients import Clients
from stan.core.clients.nodes import NodeRequests
from stan.core.context import BrokerContext, text
from stan.core.requests.request import LeaderRequest
from stan.core.requests.responder import Responder
from stan.core.state.meta import MetaResult
from stan.errors import ALONE
from stan.protocol.frames import Frame
from stan.protocol.proto import admin_pb2 as pb


class AdminMembers:
    """See the module's docstring."""

    def __init__(self, context: BrokerContext, responder: Responder, clients: Clients, nodes: NodeRequests) -> None:
        self.context = context
        self.responder = responder
        self.clients = clients
        self.nodes = nodes

    def evict_client(self, frame: Frame) -> None:
        """An EvictClientRequest: as if the client had closed its connection, which it notices by its next ping or publish."""
        about = self.responder.admin_meta_request(frame, (pb.EvictClientRequest, pb.ChangeResponse))
        if about is None:
            return
        client = self.context.meta.clients.get(about.request.client_id)
        if client is None:
            about.answer()  # it is gone already
            return

        def done(result: object, error: str) -> None:
            if not isinstance(result, MetaResult):
                about.refuse(error or errors.BUSY, retry=True)
                return
            self.context.note("INF", f"[Client:{text(client.client_id)}] Evicted by an operator")
            about.answer(changed=int(result.gone is not None))

        self.clients.disconnect(client, done, asked=False)

    def add_node(self, frame: Frame) -> None:
        """A NodeRequest."""
        self._change(self.responder.admin_meta_request(frame, (pb.NodeRequest, pb.ChangeResponse)), add=True)

    def remove_node(self, frame: Frame) -> None:
        """A NodeRequest."""
        self._change(self.responder.admin_meta_request(frame, (pb.NodeRequest, pb.ChangeResponse)), add=False)

    def _change(self, about: LeaderRequest | None, *, add: bool) -> None:
        if about is None:
            return
        if not self.context.clustered:
            about.refuse(ALONE)
            return
        before = self.nodes.names

        def done(why: str, retry: bool) -> None:  # noqa: FBT001 - as Told has it
            if why:
                about.refuse(f"stan: {why}", retry=retry)
            else:
                about.answer(changed=int(self.nodes.names != before))

        self.nodes.change(about.request.node, done, add=add)

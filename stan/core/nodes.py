"""Requests to add or remove a node of the cluster (STAN-SPEC 9.7), answered by the leader of the metadata.

What becomes of the groups is the matter of stan.edge.membership; here only the names change, one at a time.
"""

from collections.abc import Callable
from functools import partial

from stan.config import is_node_id
from stan.core.meta import MetaResult
from stan.core.shared import META_GROUP, Shared
from stan.errors import go_quote
from stan.protocol import entries_pb2 as pb
from stan.protocol.frames import Frame

OK = b"+OK"
INVALID = "invalid node ID"
LAST = "it is the last node"
ALONE = "a group with a single voter cannot be moved: it takes two nodes, and two replicas"
TOO_EARLY = "the cluster has no identity yet"

Why = Callable[[], str]
"""Says why something has to wait, "" if it need not."""


class Nodes:
    """See the module's docstring."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.founders: tuple[str, ...] = ()  # the nodes while the metadata tells of none: those of the settings
        self.under_way: Why = str  # the groups are not yet where the last change wants them

    @property
    def replicas(self) -> int:
        """Nodes that keep each group, at most."""
        cluster = self.shared.config.cluster
        return cluster.replicas if cluster is not None else 1

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes that keep groups, sorted."""
        return tuple(self.shared.meta.nodes.names) or self.founders

    def add(self, frame: Frame) -> None:
        """Answer a request to add a node, which need not run yet."""
        name = frame.payload.decode(errors="replace")
        if self.shared.concerns(META_GROUP):
            self._change(frame.reply, "adding", name, sorted({*self.names, name}))

    def remove(self, frame: Frame) -> None:
        """Answer a request to remove a node, which need not exist."""
        name = frame.payload.decode(errors="replace")
        if self.shared.concerns(META_GROUP):
            self._change(frame.reply, "removing", name, [other for other in self.names if other != name])

    def _change(self, reply: bytes, doing: str, name: str, names: list[str]) -> None:
        shared, nodes = self.shared, self.shared.meta.nodes
        done = partial(self._changed, reply, doing, name)
        if not is_node_id(name):
            done(None, INVALID)
        elif tuple(names) == self.names:
            done(MetaResult(), "")
        elif not names:
            done(None, LAST)
        elif (
            min(len(self.names), self.replicas) == 1
        ):  # who is new counts for nothing before an entry is committed without it
            done(None, ALONE)
        elif shared.meta.info is None:
            done(None, TOO_EARLY)
        elif name != nodes.changed and (why := self.under_way()):  # the change under way may be taken back
            done(None, why)
        else:
            shared.change_meta(done, nodes=pb.Nodes(names=names, version=nodes.version + 1, changed=name))

    def _changed(self, reply: bytes, doing: str, name: str, result: object, error: str) -> None:
        why = error or (result.error if isinstance(result, MetaResult) else "")
        self.shared.respond(reply, f"-ERR {doing} node {go_quote(name)}: {why}".encode() if why else OK)

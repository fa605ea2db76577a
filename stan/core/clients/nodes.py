"""The nodes of the cluster in the metadata: requests to add or remove one (STAN-SPEC 9.7), their labels, the cluster's level.

Requests are answered by the leader of the metadata, who also follows the labels that nodes tell. Only the names of the nodes, one
at a time, and their labels change here; stan.edge.cluster.reconfiguration_plan moves the groups.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from stan_protocol.frames import Frame
from stan_protocol.refusals import go_quote
from stan_protocol.scalars import GroupId, Nanos

from stan import level
from stan.config import is_node_id
from stan.core.metadata.meta import MetaResult
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.labels import Labels, place_rows, places_of
from stan.limits import LABELS_SETTLE
from stan.protocol.proto import entries_pb2 as pb

OK = b"+OK"
INVALID = "invalid node ID"
LAST = "it is the last node"
ALONE = "a group with a single voter cannot be moved: it takes two replicas"
TOO_EARLY = "the cluster has no identity yet"

Told = Callable[[str, bool], None]
"""Called with the reason why the change is refused ("" if it is made), and True if the reason passes."""


class CopyHolder(NamedTuple):
    """A live node with a copy of a group."""

    replica: bool  # a read replica
    instance: int  # of its process


class HeardNodes(NamedTuple):
    """What the nodes of the cluster tell each other; the defaults are those of a server that runs alone."""

    under_way: Callable[[], str] = str
    """Returns why groups are not yet where the last change wants them; "" if they are."""
    levels: Callable[[], Mapping[str, int]] = lambda: {"": level.KNOWN}
    """Returns the highest level that each live node knows, this one and read replicas included, by name."""
    labels: Callable[[], Mapping[str, Labels]] = dict
    """Returns the labels that each live node's settings tell, by name; nodes without labels are in it, too."""
    holders: Callable[[GroupId], Mapping[str, CopyHolder]] = lambda _number: {}
    """Returns the live nodes that have a copy of a group, this one included, by name."""
    instance: Callable[[], int] = int
    """Returns the instance of this process."""
    growth: Callable[[int], pb.GrowPool | str] = lambda _groups: "this server runs alone"
    """Returns how the pool grows to so many groups on the nodes as they are now; or why it has to wait."""
    growth_waits_for: Callable[[], str] = lambda: "this server runs alone"
    """Returns why new groups are not opened yet, and for which nodes they wait; "" if nothing is waited for."""


class NodeRequests:
    """Handles requests to add or remove a node, and takes over the labels of nodes."""

    def __init__(self, services: Services) -> None:
        self.leading, self.node, self.outgoing = services.leading, services.node, services.outgoing
        self.proposals, self.reports = services.proposals, services.reports
        self.founders: tuple[str, ...] = ()  # the nodes of the settings, while the metadata lists none
        self.heard = HeardNodes()
        self._labels_told: tuple[list[pb.PlacedNode], Nanos] = ([], Nanos(0))  # what nodes told last, and since when
        self._rescuing = False  # a change to the survivors of a rescue is on its way

    @property
    def replicas(self) -> int:
        """Nodes that keep each group, at most."""
        cluster = self.node.config.cluster
        return cluster.replicas if cluster is not None else 1

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes that keep groups, sorted."""
        return tuple(self.node.meta.nodes.names) or self.founders

    def add(self, frame: Frame) -> None:
        """Answer a request to add a node, which need not run yet."""
        self._asked(frame, "adding", add=True)

    def remove(self, frame: Frame) -> None:
        """Answer a request to remove a node, which need not exist."""
        self._asked(frame, "removing", add=False)

    def _asked(self, frame: Frame, doing: str, *, add: bool) -> None:
        name = frame.payload.decode(errors="replace")

        def done(why: str, _retry: bool) -> None:  # noqa: FBT001 - as Told has it
            answer = f"-ERR {doing} node {go_quote(name)}: {why}".encode() if why else OK
            self.outgoing.respond(frame.reply, answer)

        if self.leading.concerns(META_GROUP):
            self.change(name, done, add=add)

    def change(self, name: str, done: Told, *, add: bool) -> None:
        """Add or remove a node; only on the leader of the metadata."""
        names = sorted({*self.names, name}) if add else [other for other in self.names if other != name]
        passes = False
        if not is_node_id(name):
            why = INVALID
        elif tuple(names) == self.names:
            why = ""
        elif not names:
            why = LAST
        elif self.replicas == 1:
            # A voter is removed by its successor, and a group that may have one voter never has one.
            why = ALONE
        elif self.node.meta.info is None:
            why, passes = TOO_EARLY, True
        elif not self._may_overtake(name) and (why := self.heard.under_way()):
            passes = True
        else:
            told = self._nodes(names, name)
            self.proposals.change_meta(partial(self._changed, name, done, add=add), nodes=told)
            return
        done(why, passes)

    def keep_survivors(self, names: tuple[str, ...], version: int) -> None:
        """After a rescue: make these the nodes, if *version* of them is the newest still; only on the leader of the metadata."""
        meta = self.node.meta
        if meta.info is None or meta.nodes.version > version or self._rescuing:
            return
        self._rescuing = True
        lost = [name for name in self.names if name not in names]
        # As their manifests have it by now: labels are taken over later.
        told = pb.Nodes(names=sorted(names), version=meta.nodes.version + 1)
        self.proposals.change_meta(partial(self._rescued, lost), nodes=told)

    def _rescued(self, lost: list[str], result: object, error: str) -> None:
        self._rescuing = False
        if not error and not (isinstance(result, MetaResult) and result.error):
            for name in lost:
                self.reports.emit("node_removed", f"node {name} was lost, and the cluster was rescued without it")

    def _may_overtake(self, name: str) -> bool:
        """True if a change of node *name* need not wait for the one under way: it takes that back; or only labels have changed,
        and groups may wait for a node that never comes back and has to be removed."""
        nodes = self.node.meta.nodes
        return name == nodes.changed or (nodes.version > 0 and not nodes.changed)

    def _nodes(self, names: Iterable[str], changed: str) -> pb.Nodes:
        """The nodes after a change: with the labels that live ones tell now, and those known before of the others."""
        meta = self.node.meta
        known = {**places_of(meta.nodes.labels), **self.heard.labels()}
        places = {name: known[name] for name in names if name in known}
        rows = place_rows(places, pb.PlacedNode)
        return pb.Nodes(names=names, version=meta.nodes.version + 1, changed=changed, labels=rows)

    def follow_labels(self) -> None:
        """Take over the labels of live nodes, all at once, once they have stayed the same for LABELS_SETTLE and groups are where
        the last change wants them."""
        now = self.node.clock.now
        meta = self.node.meta
        if not self.node.leads_meta or meta.info is None:
            return
        told = self._nodes(self.names, "")
        rows, (before, since) = list(told.labels), self._labels_told
        if rows != before:
            self._labels_told = rows, now
        elif rows != list(meta.nodes.labels) and now >= since + LABELS_SETTLE and not self.heard.under_way():
            self._labels_told = rows, now
            self.proposals.change_meta(self._labelled, nodes=told)

    def _labelled(self, result: object, _error: str) -> None:
        if isinstance(result, MetaResult) and not result.error:
            places = places_of(self.node.meta.nodes.labels)
            told = "; ".join(f"{node} {labels}" for node, labels in places.items()) or "none"
            self.reports.emit("labels_changed", f"labels of the nodes: {told}")

    def raise_level(self, to: int, done: Told) -> None:
        """Raise the cluster's level to *to*, 0: the highest that all nodes know; only on the leader of the metadata."""
        levels, meta = self.heard.levels(), self.node.meta
        to = to or max(min(levels.values()), meta.level)
        absent = [name for name in self.names if name not in levels]
        why, passes = "", False
        if meta.info is None:
            why, passes = TOO_EARLY, True
        elif to > level.KNOWN:
            why = f"level {to} is not known to this version, which knows levels up to {level.KNOWN}"
        elif to <= meta.level:
            why = "" if to == meta.level else f"the cluster is at level {meta.level}, and a level never goes down"
        elif absent:
            why, passes = f"not heard, so it is not known if they know level {to}: {', '.join(absent)}", True
        elif old := level.too_old(levels, to):
            why = f"these nodes run a version that does not know level {to}: {', '.join(old)}"
        else:
            self.proposals.change_meta(partial(self._raised, to, done), raise_level=to)
            return
        done(why, passes)

    def _raised(self, to: int, done: Told, result: object, error: str) -> None:
        if isinstance(result, MetaResult) and result.raised:
            self.reports.emit("level_raised", f"the cluster is at level {to}")
        done(error, True)  # noqa: FBT003 - as Told has it

    def _changed(self, name: str, done: Told, result: object, error: str, *, add: bool) -> None:
        why = error or (result.error if isinstance(result, MetaResult) else "")
        if not why:
            kind, verb = ("node_added", "added to") if add else ("node_removed", "taken out of")
            self.reports.emit(kind, f"node {name} was {verb} the cluster")
        done(why, True)  # noqa: FBT003 - as Told has it

"""The pool of groups grows on request: the metadata's leader decides how, and opens the new groups once they have leaders."""

from stan_protocol import refusals
from stan_protocol.refusals import INVALID_ADMIN, NOT_A_CLUSTER, POOL_GROWS, POOL_ONLY_GROWS
from stan_protocol.scalars import SECOND, Nanos

from stan.core.clients.nodes import NodeRequests
from stan.core.metadata.meta import MetaResult
from stan.core.requests.request import AcceptedRequest
from stan.core.requests.router import Handler
from stan.core.services.services import Services
from stan.limits import RAFT_GROUPS_MAX
from stan.policies import GROUP_COMMITS

TOO_MANY_GROUPS = refusals.TOO_MANY_GROUPS.format(RAFT_GROUPS_MAX)
GROWTH_TOLD = 5 * SECOND
"""After so long a wait operators are told what a growth waits for."""


class PoolRequests:
    """Handles an operator's request for a larger pool, and opens what has grown."""

    def __init__(self, services: Services, nodes: NodeRequests) -> None:
        self.node, self.placement, self.proposals = services.node, services.placement, services.proposals
        self.reports = services.reports
        self.nodes = nodes
        self.waits_since = Nanos(0)  # for leaders of new groups; 0: no such wait is known
        self.told = ""  # what it waits for, as last told

    def handlers(self) -> dict[str, Handler]:
        """The handler of each request, by name."""
        return {"admin.grow_pool": self._grow}

    def _grow(self, accepted: AcceptedRequest) -> None:
        groups = accepted.request.groups
        if not self.node.clustered:
            accepted.refuse(NOT_A_CLUSTER)
        elif self.node.meta.info is None:
            accepted.busy()
        elif groups == self.placement.pool and self.node.meta.pool.growths:
            accepted.answer()  # asked again: the answer to the first request was lost
        elif refusal := self._refusal(groups, accepted.request.commit):
            accepted.refuse(refusal)
        elif isinstance(growth := self.nodes.heard.growth(groups), str):
            accepted.refuse(refusals.GROWTH_REFUSED.format(growth), retry=True)
        else:
            more, growth.commit = growth.groups - growth.before, accepted.request.commit
            accepted.change_meta(lambda _result: {"changed": more}, grow_pool=growth)

    def _refusal(self, groups: int, commit: int) -> str:
        """Why the metadata does not have so many groups; "" if it may."""
        meta, there = self.node.meta, self.placement.pool
        if commit >= len(GROUP_COMMITS):
            return INVALID_ADMIN
        if groups > RAFT_GROUPS_MAX:
            return TOO_MANY_GROUPS
        if groups <= there:
            return POOL_ONLY_GROWS.format(there)
        return POOL_GROWS if meta.pool.open < meta.pool.groups else ""

    def follow(self) -> None:
        """Open the pool once all of its new groups have leaders; call now and then."""
        pool = self.node.meta.pool
        if not self.node.leads_meta or pool.open == pool.groups:
            self.waits_since, self.told = Nanos(0), ""
        elif waits_for := self.nodes.heard.growth_waits_for():
            self._tell(waits_for)
        else:
            self.proposals.change_meta(self._opened, open_pool=pool.groups)

    def _tell(self, waits_for: str) -> None:
        """Tell operators what a growth waits for, once it has waited for a while, and again when that is something else."""
        now, pool = self.node.clock.now, self.node.meta.pool
        self.waits_since = self.waits_since or now
        if now - self.waits_since < GROWTH_TOLD or waits_for == self.told:
            return
        self.waits_since, self.told = now, waits_for
        text = f"the pool grows to {pool.groups} groups and waits: {waits_for}"
        self.reports.note("WRN", text)
        self.reports.emit("pool_waits", text)

    def _opened(self, result: object, _error: str) -> None:
        if isinstance(result, MetaResult) and result.pool_changed:
            self.reports.emit("pool_grown", f"there are {self.placement.pool} groups of channels now")

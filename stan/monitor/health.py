"""Health checks for orchestrators: live, startup and ready, with the reasons if a check fails.

live: restart the node if it fails. startup: clients are or were served, or the node is a standby. ready: everything that this
node takes part in works now; a full disk is not ready either (stan.troubles).
"""

from collections.abc import Iterator

from stan_protocol.scalars import GroupId

from stan import troubles
from stan.edge.process import BrokerProcess
from stan.errors import NO_LEADER, NO_VOTE
from stan.monitor.view import NodeView
from stan.raft.consensus import Consensus
from stan.raft.group import RaftGroup
from stan.troubles import Trouble


def live(view: NodeView) -> list[str]:
    """Return why the node is not alive; an answer at all is most of the proof."""
    node = view.node
    return ["the broker has failed, and ends"] if node is not None and node.crash.done() else []


def startup(view: NodeView) -> list[str]:
    """Return why the node has not started."""
    if view.node is None:
        return [] if view.ft_state == "FT_STANDBY" else ["the store is not open yet"]
    return [] if view.node.serving else ["clients are not served yet", *_missing(view.node)]


def ready(view: NodeView) -> list[str]:
    """Return why the node is not ready."""
    reasons = live(view) or startup(view)
    node = view.node
    if node is None and not reasons:
        return ["it is the standby of a fault tolerance group"]
    if reasons or node is None:
        return reasons
    if node.driver.turns.stopped:
        return ["it is shutting down"]
    return [*_missing(node), *_of_groups(node)]


def _missing(node: BrokerProcess) -> Iterator[str]:
    if node.connection is None or not node.connection.up:
        yield "there is no connection to NATS"
    if not node.broker.view.meta.founded:
        yield "the metadata is not known yet"


def _of_groups(node: BrokerProcess) -> Iterator[str]:
    for number, group in sorted(node.driver.groups.items()):
        fault = trouble(node, number, group)
        if fault is not None and not fault.kind.ready:
            yield f"group {number}: {fault.text}"


def trouble(node: BrokerProcess, number: GroupId, group: Consensus) -> Trouble | None:
    """Return the trouble of a group on a node, the worst if there are several.

    A leader without a lease is none: on a node short of CPU leases end for moments, and all goes on. One that hears no majority
    for longer than its patience steps down, and then the group has no leader."""
    faults = node.driver.faults
    if number in faults.frozen:
        return Trouble(troubles.FROZEN, f"it is frozen until a restart: {faults.frozen[number]}")
    if isinstance(group, RaftGroup):
        fault = _of_replicated(node, number, group)
        if fault is not None:
            return fault
    refusal = faults.refusals.get(number)
    if refusal is None or (
        isinstance(group, RaftGroup) and not group.leads
    ):  # another node takes what this one refused
        return None
    kind = troubles.FULL if refusal.short else troubles.REFUSING
    return Trouble(kind, f"it takes nothing: {refusal.why}", refusal.since)


def _of_replicated(node: BrokerProcess, number: GroupId, group: RaftGroup) -> Trouble | None:
    if group.leader is None:
        view = node.broker.view
        if view.pool_open < number <= view.pool:  # new groups hold nothing before all have leaders
            return None
        if number in node.driver.faults.voteless:
            return Trouble(troubles.VOTELESS, NO_VOTE)
        return Trouble(troubles.LEADERLESS, NO_LEADER)
    if not node.storage.is_intact(number):
        return Trouble(troubles.INCOMPLETE, "this node's copy is not whole")
    differs = node.storage.differs.get(number, "")
    return Trouble(troubles.DIFFERS, differs) if differs else None

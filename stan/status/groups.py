"""The groups of channels and the levels of nodes, put together from the reports of the nodes. Pure."""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from stan_protocol.admin_types import GroupStatus, NodeStatus
from stan_protocol.units import counted

from stan.labels import Labels, places_of


class NodeReports(Protocol):
    """Reports of nodes, and the names of those that should be there and do not answer."""

    @property
    def answers(self) -> Sequence[NodeStatus]:
        """The reports."""

    @property
    def missing(self) -> Collection[str]:
        """The names."""


def node_name(node: NodeStatus) -> str:
    """Return the id of a node; a server alone has none."""
    return node.node or "(alone)"


def labels_of(nodes: NodeReports) -> dict[str, Labels]:
    """Return labels of nodes by name, as the newest metadata has them of which an answer tells."""
    newest = max(nodes.answers, key=lambda one: one.nodes_version, default=None)
    return {} if newest is None else places_of(newest.places)


def cluster_level(nodes: NodeReports) -> int:
    """Return the level of the cluster, as the nodes have it that are furthest."""
    return max((one.level for one in nodes.answers), default=0)


class Pool(NamedTuple):
    """How many groups of channels there are."""

    groups: int
    opened: int  # of them, those over which channels are spread: all but new ones that may have no leader yet
    to_move: int = 0  # channels that are not in the group where they belong yet
    paused: bool = False  # no channel goes there by itself


def pool_of(nodes: NodeReports) -> Pool:
    """Return the pool as the nodes have it that are furthest; zeros if none reports it."""
    return Pool(
        max((one.pool_groups for one in nodes.answers), default=0),
        max((one.pool_open for one in nodes.answers), default=0),
        max((one.channels_to_move for one in nodes.answers), default=0),
        any(one.moves_paused for one in nodes.answers),
    )


class GroupSummary(NamedTuple):
    """A group, as all nodes see it."""

    number: int
    leader: str  # "": none
    term: int
    copies: list[tuple[str, GroupStatus]]  # by node
    products: frozenset[str] = frozenset()  # versions of these nodes
    is_open: bool = True  # False: it is new, and holds nothing before all new groups have leaders

    @property
    def of_leader(self) -> GroupStatus | None:
        """The report of the group's leader."""
        return next((status for node, status in self.copies if node == self.leader), None)


def groups_of(nodes: NodeReports, pool_min: int = 0) -> list[GroupSummary]:
    """Return the groups by number, also those of which no node reports a copy.

    The leader of a group is the node that says so of itself, in the newest term; else the one that others name, unless it does
    not answer: nodes report one after the other, and leadership may move in between. *pool_min*: number of groups of channels,
    as long as no node reports a larger one.
    """
    pool = pool_of(nodes)
    by_number: dict[int, list[tuple[str, GroupStatus]]] = {}
    for node in nodes.answers:
        for status in node.groups:
            by_number.setdefault(status.group, []).append((node_name(node), status))
    if by_number and (channels := max(pool.opened, pool_min)):
        by_number = {number: [] for number in range(channels + 1)} | by_number
    products = frozenset(one.product for one in nodes.answers)
    groups = []
    for number, copies in sorted(by_number.items()):
        leading = [(one.term, node) for node, one in copies if one.role == "leader"]
        named = [(one.term, one.leader) for node, one in copies if one.leader not in {"", node, *nodes.missing}]
        term, leader = max(leading or named, default=(max((one.term for _, one in copies), default=0), ""))
        groups.append(GroupSummary(number, leader, term, copies, products, number <= pool.opened or not pool.opened))
    return groups


def format_growth(nodes: NodeReports) -> str:
    """Say how far the number of groups has grown while it grows; else ""."""
    pool = pool_of(nodes)
    if pool.opened == pool.groups:
        return ""
    until = f"channels are made in the new ones once all of them have leaders, until then in groups 1 to {pool.opened}."
    return f"The pool grows to {pool.groups} groups: {until} {growth_waits_for(nodes)}".rstrip()


def growth_waits_for(nodes: NodeReports) -> str:
    """Say for which nodes a growth waits; "" if that is not known."""
    pool = pool_of(nodes)
    led = {group.number for group in groups_of(nodes) if group.leader}
    behind = sorted(node_name(one) for one in nodes.answers if one.pool_groups < pool.groups and not one.replica)
    leaderless = [str(number) for number in range(1, pool.groups + 1) if number not in led]
    waits = [f"{name} (does not answer)" for name in sorted(nodes.missing) if leaderless]
    waits += [f"{name} (has not made the directories of its new groups)" for name in behind]
    groups = f"; without a leader: {', '.join(leaderless)}" if leaderless else ""
    return f"It waits for {', '.join(waits)}{groups}." if waits else ""


def format_moves(nodes: NodeReports) -> str:
    """Say how many channels are not in the groups where they belong; "" if all are."""
    pool = pool_of(nodes)
    if not pool.to_move:
        return ""
    left = f"{counted(pool.to_move, 'channel has', 'channels have')} still to move to another group"
    return f"{left}, and moves are paused." if pool.paused else f"{left}; they go one by one."


def commits_of(groups: Sequence[GroupSummary]) -> dict[int, int]:
    """Return the groups over which channels are spread, each with what its acks mean."""
    return {one.number: one.of_leader.commit if one.of_leader else 0 for one in groups if one.number and one.is_open}


def leaderless(groups: Sequence[GroupSummary]) -> list[GroupSummary]:
    """Return the groups without a leader that should have one."""
    return [group for group in groups if not group.leader and group.is_open]


def behind(group: GroupSummary) -> int:
    """Return the number of entries that the copy lacks which lags most."""
    head = group.of_leader
    return max((max(0, head.committed - status.applied) for _, status in group.copies), default=0) if head else 0


def odd_hashes(group: GroupSummary) -> bool:
    """Return True if copies that have applied the same entries differ in state, which must never be. Hashes of nodes of
    different versions are not compared, because versions may encode the state differently."""
    by_entry: dict[int, set[bytes]] = {}
    for _, status in group.copies if len(group.products) < 2 else ():
        if status.state_hash:
            by_entry.setdefault(status.hashed, set()).add(status.state_hash)
    return any(len(hashes) > 1 for hashes in by_entry.values()) or any(status.differs for _, status in group.copies)


def odd_words(group: GroupSummary) -> str:
    """Describe whose state differs, as far as nodes have reported it."""
    differ = [f"{node}: {status.differs}" for node, status in group.copies if status.differs]
    return "; ".join(differ) or "nodes that have applied the same have another state"

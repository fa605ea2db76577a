"""The groups of channels, put together from the nodes' reports about their copies. Pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from stan_client.requests.admin import Nodes
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.scalars import WallNanos
from stan_protocol.units import counted

from stan.errors import NO_LEADER, NO_VOTE
from stan.troubles import LEADERLESS, VOTELESS, Trouble, kind_of


def name_of(node: pb.NodeStatus) -> str:
    """The id of a node; a server alone has none."""
    return node.node or "(alone)"


class Pool(NamedTuple):
    """How many groups of channels there are."""

    groups: int
    opened: int  # of them, those over which channels are spread: all but new ones that may have no leader yet
    to_move: int = 0  # channels that are not in the group where they belong yet
    paused: bool = False  # no channel goes there by itself


def pool_of(nodes: Nodes) -> Pool:
    """As the nodes have it that are furthest; zeros if none tells it."""
    return Pool(
        max((one.pool_groups for one in nodes.answers), default=0),
        max((one.pool_open for one in nodes.answers), default=0),
        max((one.channels_to_move for one in nodes.answers), default=0),
        any(one.moves_paused for one in nodes.answers),
    )


class GroupSummary(NamedTuple):
    """One group, as all nodes see it."""

    number: int
    leader: str  # "": none
    term: int
    copies: list[tuple[str, pb.GroupStatus]]  # by node
    products: frozenset[str] = frozenset()  # versions of these nodes
    is_open: bool = True  # False: it is new, and holds nothing before all new groups have leaders

    @property
    def of_leader(self) -> pb.GroupStatus | None:
        """The report of the group's leader."""
        return next((status for node, status in self.copies if node == self.leader), None)


def groups_of(nodes: Nodes) -> list[GroupSummary]:
    """The groups, by number. A leader is who says so of itself, in the newest term."""
    numbers, pool = sorted({group.group for one in nodes.answers for group in one.groups}), pool_of(nodes)
    found = []
    for number in numbers:
        copies = [(name_of(one), group) for one in nodes.answers for group in one.groups if group.group == number]
        leading = [(group.term, node) for node, group in copies if group.role == "leader"]
        term, leader = max(leading, default=(max(group.term for _, group in copies), ""))
        products = frozenset(one.product for one in nodes.answers)
        found.append(GroupSummary(number, leader, term, copies, products, number <= pool.opened or not pool.opened))
    return found


def format_growth(nodes: Nodes) -> str:
    """What there is to say while the number of groups grows; else ""."""
    pool = pool_of(nodes)
    if pool.opened == pool.groups:
        return ""
    told = (
        f"The pool grows to {pool.groups} groups: channels are made in the new ones once all of them have leaders, until then in "
        f"groups 1 to {pool.opened}."
    )
    waits_for = growth_waits_for(nodes)
    return f"{told} {waits_for}" if waits_for else told


def growth_waits_for(nodes: Nodes) -> str:
    """For which nodes a growth waits, in a sentence; "" if that is not known."""
    pool = pool_of(nodes)
    led = {group.number for group in groups_of(nodes) if group.leader}
    behind = sorted(name_of(one) for one in nodes.answers if one.pool_groups < pool.groups and not one.replica)
    leaderless = [str(number) for number in range(1, pool.groups + 1) if number not in led]
    waits = [f"{name} (does not answer)" for name in sorted(nodes.missing) if leaderless]
    waits += [f"{name} (has not made the directories of its new groups)" for name in behind]
    groups = f"; without a leader: {', '.join(leaderless)}" if leaderless else ""
    return f"It waits for {', '.join(waits)}{groups}." if waits else ""


def format_moves(nodes: Nodes) -> str:
    """What there is to say while channels are not in the groups where they belong; else ""."""
    pool = pool_of(nodes)
    if not pool.to_move:
        return ""
    told = f"{counted(pool.to_move, 'channel has', 'channels have')} still to move to another group"
    return f"{told}, and moves are paused." if pool.paused else f"{told}; they go one by one."


def leaderless(groups: Iterable[GroupSummary]) -> list[GroupSummary]:
    """Return the groups without a leader that should have one."""
    return [group for group in groups if not group.leader and group.is_open]


def format_leaderless(groups: Iterable[GroupSummary]) -> str:
    """`group 3 has no leader`, `groups 0, 1 and 3 have no leader`; "" if all have one."""
    names = [str(group.number) if group.number else "0 (metadata)" for group in leaderless(groups)]
    if len(names) < 2:
        return f"group {names[0]} has no leader" if names else ""
    return f"groups {', '.join(names[:-1])} and {names[-1]} have no leader"


def without_vote(groups: Iterable[GroupSummary]) -> str:
    """Say which nodes run and have no vote in groups without a leader; "" if all have one."""
    copies = [copy for group in leaderless(groups) for copy in group.copies]
    names = sorted({node for node, status in copies if status.trouble_kind == VOTELESS.name})
    if len(names) < 2:
        return f"Node {names[0]} runs and has no vote: its disk has lost what it had." if names else ""
    who = f"Nodes {', '.join(names[:-1])} and {names[-1]}"
    return f"{who} run and have no vote: their disks have lost what they had."


def leader_step(nodes: Nodes) -> str:
    """Return what helps groups without a leader: nodes that do not answer, if they are enough for a majority, else disks."""
    for group in leaderless(groups_of(nodes)):
        voters = {voter for _, status in group.copies for voter in status.voters}
        lost = {node for node, status in group.copies if status.trouble_kind == VOTELESS.name}
        if lost and 2 * len(voters - lost) <= len(voters):
            return VOTELESS.step
    return LEADERLESS.step


def troubles(group: GroupSummary) -> Iterator[tuple[str, Trouble]]:
    """Yield node and trouble of a group's copies. Without a leader, what says only that is left out: it concerns the whole
    group."""
    told = {""} if group.leader else {"", NO_LEADER, NO_VOTE}
    for node, status in group.copies:
        if status.trouble not in told:
            yield node, Trouble(kind_of(status.trouble_kind), status.trouble, WallNanos(status.trouble_since))


def reasons(node: pb.NodeStatus) -> list[str]:
    """Return why a node is not ready, except for what `troubles` and `leaderless` report of its groups."""
    return [reason for reason in node.not_ready if not reason.startswith("group ")]


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
    told = [f"{node}: {status.differs}" for node, status in group.copies if status.differs]
    return "; ".join(told) or "nodes that have applied the same have another state"

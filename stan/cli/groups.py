"""The groups of channels, put together from what each node tells of its copies. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from stan_client.admin import Nodes

from stan.protocol import admin_pb2 as pb


def name_of(node: pb.NodeStatus) -> str:
    """The id of a node; a server alone has none."""
    return node.node or "(alone)"


class Group(NamedTuple):
    """One group, as all nodes see it."""

    number: int
    leader: str  # "": none
    term: int
    copies: list[tuple[str, pb.GroupStatus]]  # by node

    @property
    def of_leader(self) -> pb.GroupStatus | None:
        """What its leader says."""
        return next((status for node, status in self.copies if node == self.leader), None)


def groups_of(nodes: Nodes) -> list[Group]:
    """The groups, by number. A leader is who says so of itself, in the newest term."""
    numbers = sorted({group.group for one in nodes.answers for group in one.groups})
    found = []
    for number in numbers:
        copies = [(name_of(one), group) for one in nodes.answers for group in one.groups if group.group == number]
        leading = [(group.term, node) for node, group in copies if group.role == "leader"]
        term, leader = max(leading, default=(max(group.term for _, group in copies), ""))
        found.append(Group(number, leader, term, copies))
    return found


def leaderless(groups: Iterable[Group]) -> list[Group]:
    """Those that nobody leads."""
    return [group for group in groups if not group.leader]


def behind(group: Group) -> int:
    """Entries that the copy lacks which is furthest behind."""
    head = group.of_leader
    return max((max(0, head.committed - status.applied) for _, status in group.copies), default=0) if head else 0


def odd_hashes(group: Group) -> bool:
    """Whether copies that have applied the same have another state: that must never be."""
    by_applied: dict[int, set[bytes]] = {}
    for _, status in group.copies:
        if status.state_hash:
            by_applied.setdefault(status.applied, set()).add(status.state_hash)
    return any(len(hashes) > 1 for hashes in by_applied.values())

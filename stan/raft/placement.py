"""Placement: the nodes that have each group, and its preferred leader (DESIGN 5). Pure.

Promises: the result is the same on every node, whatever the order of the names; a node that is added takes over groups of others,
but no group moves between two nodes that were there before; preferred leaders are spread as evenly as the voters allow. The
voters of a group stand in as many zones as can be, then in as many racks, then on as many hosts (stan.labels).

Voters by rendezvous hashing (Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", 1998): each node has a
weight for each group, and the heaviest ones have it; where nodes have labels, the heaviest of those that share least with the
voters chosen before.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from hashlib import blake2b
from types import MappingProxyType
from typing import Final, NamedTuple

from stan_protocol.scalars import GroupId

from stan.invariant import invariant
from stan.labels import NO_LABELS, Labels

Places = Mapping[str, Labels]
"""Labels of nodes by name; a node that is missing has none."""
NOWHERE: Final[Places] = MappingProxyType({})


class Placement(NamedTuple):
    """The placement of one group."""

    voters: tuple[str, ...]  # in the order in which they were chosen; without labels the heaviest first
    preferred: str  # the voter that should lead it if it is available


def place(groups: int, nodes: Seq[str], replicas: int, labels: Places = NOWHERE) -> dict[GroupId, Placement]:
    """Placement of the metadata group and of channel groups 1..*groups*, each on at most *replicas* of the nodes."""
    invariant(len(nodes) > 0 and replicas > 0, "a group is on at least one node", nodes=len(nodes), replicas=replicas)
    invariant(len(set(nodes)) == len(nodes), "a node has one name", nodes=nodes)
    voters = {
        group: _apart(heaviest(group, nodes), replicas, labels) if labels else heaviest(group, nodes)[:replicas]
        for group in map(GroupId, range(groups + 1))
    }
    preferred = spread(voters)
    return {group: Placement(kept_by, preferred[group]) for group, kept_by in voters.items()}


def heaviest(group: GroupId, nodes: Iterable[str]) -> tuple[str, ...]:
    """The nodes by their weight for the group, heaviest first."""
    return tuple(sorted(nodes, key=lambda node: (_weight(group, node), node), reverse=True))


def _apart(nodes: Seq[str], replicas: int, labels: Places) -> tuple[str, ...]:
    """The first *replicas* of the nodes, each time passing over those that share more with the ones chosen before.

    A node that is added takes the place of one node at most, and moves nothing else, because places lie in each other: a rack
    counts as one of its zone, and a host as one of its rack.
    """
    left, chosen = list(nodes), list[str]()
    used: dict[tuple[str, ...], int] = {}
    while left and len(chosen) < replicas:
        node = min(left, key=lambda node: [used.get(place, 0) for place in _places(labels.get(node, NO_LABELS))])
        left.remove(node)
        chosen.append(node)
        for place in _places(labels.get(node, NO_LABELS)):
            if place:
                used[place] = used.get(place, 0) + 1
    return tuple(chosen)


def _places(labels: Labels) -> tuple[tuple[str, ...], ...]:
    """The node's zone, rack and host, each with those that contain it; () in place of an unknown one."""
    return tuple(labels[: at + 1] if label else () for at, label in enumerate(labels))


def spread(voters: Mapping[GroupId, Seq[str]], load: Mapping[str, int] | None = None) -> dict[GroupId, str]:
    """Choose a leader for each group, in the order of group numbers: the voter that leads fewest groups; of equals the first.

    Args:
        voters: of each group; groups without any are left out of the result.
        load: number of groups that each node leads already.
    """
    load = dict(load or {})
    chosen: dict[GroupId, str] = {}
    for group in sorted(voters):
        if voters[group]:
            node = min(voters[group], key=lambda node: load.get(node, 0))  # the first of equals
            load[node] = load.get(node, 0) + 1
            chosen[group] = node
    return chosen


def _weight(group: GroupId, node: str) -> bytes:
    return blake2b(b"%d %b" % (group, node.encode()), digest_size=8).digest()

"""The plan of a migration: the next step of a group's leader to move it to the nodes where it is placed. Pure.

    placed here, no voter ─► observer ─► caught up ─► voter        voter, not placed here ─► removed, the leader itself last

Promises: a step adds or removes one voter, so any two majorities of neighbouring configurations share a member; after each step
a majority of the voters is alive and counts; a voter is removed only while all remaining voters are alive.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from stan_protocol.scalars import GroupId

from stan.core.services.node import META_GROUP


class ReconfigurationView(NamedTuple):
    """A group as its leader sees it."""

    me: str
    voters: frozenset[str]
    target: tuple[str, ...]  # nodes that should vote in it, the preferred leader first
    alive: frozenset[str]  # live nodes, this one included
    close: frozenset[str]  # members that lack at most BALANCE_LAG_MAX entries
    counting: frozenset[str]  # members that count for a majority as soon as they vote, this one included


class Step(NamedTuple):
    """A step of a migration: either the new voters, or the node to hand the leadership to."""

    voters: frozenset[str] = frozenset()
    successor: str = ""


def next_step(view: ReconfigurationView) -> Step | None:
    """Return the next step; None if the group is where it is placed, or has to wait for a node."""
    voters, target = view.voters, frozenset(view.target)
    superfluous = sorted(voters - target)
    for name in superfluous:  # first those that are away: they only weaken the group
        if name not in view.alive and _may_drop(name, view):
            return Step(voters - {name})
    missing = target - voters
    for name in sorted(missing & view.alive & view.close):
        if _has_majority(voters | {name}, view):
            return Step(voters | {name})
    if missing:
        return None
    for name in superfluous:
        if name != view.me and _may_drop(name, view):
            return Step(voters - {name})
    if superfluous == [view.me]:
        fit = [name for name in view.target if name in view.alive & view.close]
        return Step(successor=fit[0]) if fit else None
    return None


def _may_drop(name: str, view: ReconfigurationView) -> bool:
    rest = view.voters - {name}
    return rest <= view.alive and _has_majority(rest, view)


def _has_majority(voters: frozenset[str], view: ReconfigurationView) -> bool:
    return 2 * len(voters & view.alive & view.counting) > len(voters)


def observers(
    group: GroupId, voters: Collection[str], target: Collection[str], nodes: Iterable[str], holding: Iterable[str]
) -> list[str]:
    """Names of the nodes that get a copy of a group without a vote, sorted.

    These are nodes that are to become voters, nodes with a copy (read replicas, too), and for the metadata all *nodes*. A
    node with a superfluous copy gets the entries on, so that it learns that it has no vote anymore.
    """
    names = {*target, *holding, *(nodes if group == META_GROUP else ())}
    return sorted(names.difference(voters))


class CopyView(NamedTuple):
    """A node's copy of a group, as the node sees it."""

    placed: bool  # the placement names this node
    votes: bool  # the newest configuration known here names this node
    agreed: bool  # the group's leader knows the same nodes, and does not migrate the group


def may_close(copy: CopyView) -> bool:
    """True if a copy is not needed anymore. A voter needs its copy, because it must keep its promises."""
    return not copy.placed and not copy.votes and copy.agreed

"""Where a group should be and what its leader does next to get it there: one voter at a time, a learner first. Pure.

    wanted, not there ─► observer ─► caught up ─► voter          superfluous ─► voter no more, the leader itself last

Promises: a step changes one voter, so any two majorities of neighbouring configurations share a member; none leaves a group with
voters of whom no majority is there and counts; who stays is there when another one is dropped.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from stan.core.context import META_GROUP
from stan.types import GroupId


class ReconfigurationView(NamedTuple):
    """A group as its leader sees it."""

    me: str
    voters: frozenset[str]
    target: tuple[str, ...]  # who should vote in it, the one that had better lead it first
    alive: frozenset[str]  # nodes that are there, with this one
    close: frozenset[str]  # members that lack next to nothing
    counting: frozenset[str]  # members that count for a majority as soon as they vote, with this one


class Step(NamedTuple):
    """What to do: either a change of voters, or leadership goes to another one."""

    voters: frozenset[str] = frozenset()
    successor: str = ""


def next_step(view: ReconfigurationView) -> Step | None:
    """The next step; None if the group is where it belongs, or has to wait for somebody."""
    voters, target = view.voters, frozenset(view.target)
    superfluous = sorted(voters - target)
    for name in superfluous:  # who is away only weakens the group
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
    """Who gets a copy of a group without a vote: who is to vote, who holds it still or for reading, of the metadata all *nodes*.

    A node that holds what it need not hold gets it on, so that it hears that it has no vote any more.
    """
    names = {*target, *holding, *(nodes if group == META_GROUP else ())}
    return sorted(names.difference(voters))


class CopyView(NamedTuple):
    """A group as a node sees it that holds it, or should."""

    placed: bool  # the nodes in force place it here
    votes: bool  # the newest configuration known here names this node
    agreed: bool  # its leader goes by the same nodes, and knows this copy


def may_close(copy: CopyView) -> bool:
    """True if a copy is not needed anymore. A node that is named as a voter keeps its copy, because it must keep its promises."""
    return not copy.placed and not copy.votes and copy.agreed

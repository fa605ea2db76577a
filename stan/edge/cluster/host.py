"""Ports of a cluster node: its services for its parts, and its needs of the environment."""

from collections.abc import Callable, Coroutine
from random import Random
from typing import NamedTuple, Protocol, TypeVarTuple

from stan_protocol.scalars import GroupId, Nanos

from stan.core.broker.broker import Broker
from stan.edge.cluster.membership import Membership
from stan.edge.driver import Driver
from stan.edge.leadership import Leaderships
from stan.edge.nats.gateway import Gateway
from stan.edge.runtime import Runtime
from stan.edge.storage.storage import Storage
from stan.raft.group import RaftGroup
from stan.raft.placement import Placement
from stan.raft.scheduler import SchedulerRuntime

Parts = TypeVarTuple("Parts")
Done = Callable[[Exception | None], None]
"""Called with the error, or None if there was none."""


class Environment(NamedTuple):
    """Everything that a cluster node needs of its environment."""

    runtime: Runtime  # the driver's
    ticker: SchedulerRuntime  # the groups', with an alarm of its own
    random: Random
    note: Callable[[str, str], None]
    crashed: Callable[[BaseException], None]
    listening: Callable[[], None]  # called when clients are served
    # Runs a coroutine to its end, after the call has returned; *done* gets its error, also one of the program.
    run: Callable[[Coroutine[None, None, None], Done], None]
    ended: Callable[[], None] = lambda: None  # this node was removed from the cluster, and no group needs it
    make_driver: Callable[..., Driver] = Driver


class KeepsCopies(Protocol):
    """The part that begins, replaces and ends copies of groups."""

    def begin(self, number: GroupId, done: Done) -> None:
        """Begin a copy of a group, with an empty log."""

    def replace(self, number: GroupId, done: Done) -> None:
        """Replace this node's copy of a group by the copy that was received from another node."""

    def end(self, number: GroupId, done: Done) -> None:
        """End the copy of a group, which this node must not lead."""


class PlacesGroups(Protocol):
    """The part that knows the placement of the groups."""

    placement: dict[GroupId, Placement]

    def first_voters(self, number: GroupId) -> tuple[str, ...]:
        """Voters of a group while its log names none."""

    def observers(self, number: GroupId, voters: frozenset[str]) -> list[str]:
        """Names of the nodes that get a copy of a group without a vote."""

    def peers(self, now: Nanos) -> list[str]:
        """Nodes to have a link with, sorted."""


class ReceivesGroups(Protocol):
    """The part that exchanges copies of groups with other nodes."""

    def receives(self, number: GroupId) -> bool:
        """True while a group is being received."""

    def needs_snapshot(self, group: RaftGroup, peer: str) -> None:
        """Hint to a peer that it lacks entries that this leader's log no longer has."""


class HandsOver(Protocol):
    """The part that hands leaderships to other nodes."""

    def hand_over(self, number: GroupId, to: str, report: Callable[[bool], None] | None = None) -> None:
        """Hand a group's leadership to another voter, if this node still leads it."""

    def lag_of_voters(self, number: GroupId) -> dict[str, int]:
        """Entries that each voter within reach lacks of a group that this node leads."""


class Host(Protocol):
    """The cluster node as its parts see it, and each other through it."""

    environment: Environment
    broker: Broker
    gateway: Gateway
    driver: Driver
    storage: Storage
    membership: Membership
    groups: dict[GroupId, RaftGroup]

    def within(self, number: GroupId, call: Callable[[*Parts], object], *args: *Parts) -> None:
        """Call something on behalf of a group, which is frozen if that raises."""

    @property
    def leaderships(self) -> Leaderships:
        """The groups that this node leads."""

    @property
    def copies(self) -> KeepsCopies:
        """The copies of groups on this node."""

    @property
    def reconfiguration(self) -> PlacesGroups:
        """The placement of the groups."""

    @property
    def group_sync(self) -> ReceivesGroups:
        """The groups that this node receives."""

    @property
    def handovers(self) -> HandsOver:
        """The leaderships that this node hands to others."""

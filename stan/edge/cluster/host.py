"""Ports of a cluster node: what it offers to its parts, and what it needs of its environment."""

from collections.abc import Callable, Coroutine
from random import Random
from typing import NamedTuple, Protocol

from stan.config import ClusterConfig, Config
from stan.core.broker.broker import Broker
from stan.edge.cluster.membership import Membership
from stan.edge.driver import Driver
from stan.edge.leadership import Leaderships
from stan.edge.nats.gateway import Gateway
from stan.edge.runtime import Runtime
from stan.edge.storage.storage import Storage
from stan.raft.group import RaftGroup
from stan.raft.scheduler import SchedulerRuntime
from stan.types import GroupId

Done = Callable[[Exception | None], None]
"""Called with the error, or None if there was none."""


class Environment(NamedTuple):
    """Everything that a cluster node needs of its environment."""

    runtime: Runtime  # the driver's
    ticker: SchedulerRuntime  # the groups', with an alarm of its own
    random: Random
    note: Callable[[str, str], None]
    crashed: Callable[[BaseException], None]
    listening: Callable[[], None]  # clients are served from now on
    run: Callable[[Coroutine[None, None, None], Done], None]  # to its end; not from inside the call
    ended: Callable[[], None] = lambda: None  # this node is not needed anymore


class GroupReceiver(Protocol):
    """The part that receives groups from other nodes."""

    def receives(self, number: GroupId) -> bool:
        """True while a group is being received."""


class HandsOver(Protocol):
    """The part that hands leaderships to other nodes."""

    def hand_over(self, number: GroupId, to: str, told: Callable[[bool], None] | None = None) -> None:
        """Let another voter lead a group, if this one does still."""


class Host(Protocol):
    """The cluster node as its reconfiguration and its group sync see it."""

    me: str
    config: Config
    cluster: ClusterConfig
    environment: Environment
    broker: Broker
    gateway: Gateway
    driver: Driver
    storage: Storage
    membership: Membership
    groups: dict[GroupId, RaftGroup]

    @property
    def leaderships(self) -> Leaderships:
        """What this node leads."""

    @property
    def group_sync(self) -> GroupReceiver:
        """What it receives."""

    def replace_group(self, number: GroupId, done: Done) -> None:
        """Take part in a group with what was received of it instead of what this node had."""

    def begin_group(self, number: GroupId, done: Done) -> None:
        """Hold a group from now on, empty at first."""

    def end_group(self, number: GroupId, done: Done) -> None:
        """Stop holding a group, which this node must not lead."""

    @property
    def handovers(self) -> HandsOver:
        """What it gives to others."""

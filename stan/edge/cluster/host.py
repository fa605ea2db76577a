"""What a cluster node offers to its parts, and what it needs of its environment. Ports only."""

from collections.abc import Callable, Coroutine
from random import Random
from typing import NamedTuple, Protocol

from stan.config import ClusterConfig, Config
from stan.core.broker import Broker
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
"""Called with what went wrong, None if nothing did."""


class Environment(NamedTuple):
    """What a cluster node needs of the outside."""

    runtime: Runtime  # the driver's
    ticker: SchedulerRuntime  # the groups', with an alarm of its own
    random: Random
    note: Callable[[str, str], None]
    crashed: Callable[[BaseException], None]
    listening: Callable[[], None]  # clients are served from now on
    run: Callable[[Coroutine[None, None, None], Done], None]  # to its end; not from inside the call
    ended: Callable[[], None] = lambda: None  # this node is needed no more


class GroupReceiver(Protocol):
    """Who gets groups from other nodes."""

    def receives(self, number: GroupId) -> bool:
        """Whether a group is being received."""


class HandsOver(Protocol):
    """Who hands leaderships to other nodes."""

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
        """Hold a group no more, which this node does not lead."""

    @property
    def handovers(self) -> HandsOver:
        """What it gives to others."""

"""The state of one node: its settings, its clock, the metadata, and the channel groups that it holds."""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from stan_protocol.scalars import GroupId, Nanos, WallNanos

from stan.config import Config
from stan.core.base.admin_events import Clock
from stan.core.leader.local_group import ChannelGroup, LeaderParts
from stan.core.metadata.meta import ChannelInfo, MetaMachine

META_GROUP = GroupId(0)
CLUSTER_BYTES: Final = 12
"""Of the identity that readers get: two clusters have the same with a probability of 2^-96."""


@dataclass(slots=True)
class Node:
    """The state of one node; the edge replaces the settings, a loaded snapshot replaces the metadata or a group."""

    config: Config
    name: str = ""  # in the cluster; "": a node alone
    epoch: int = 0  # of the newest rescue; 0: the cluster was never rescued
    meta: MetaMachine = field(default_factory=MetaMachine)
    groups: dict[GroupId, ChannelGroup] = field(default_factory=dict)
    clock: Clock = field(default_factory=lambda: Clock(Nanos(0), WallNanos(0)))
    meta_leader: LeaderParts | None = None  # while this node leads the metadata

    @property
    def clustered(self) -> bool:
        """True if this broker is a node of a cluster."""
        return self.config.cluster is not None

    @property
    def nuid(self) -> bytes:
        """The unique id of the cluster; b"" while the cluster is not founded."""
        return self.meta.info.nuid if self.meta.info is not None else b""

    @property
    def cluster(self) -> bytes:
        """The identity of the cluster for its readers, CLUSTER_BYTES: another one after a rescue, because sequences may belong to
        other messages then; b"" while the cluster is not founded."""
        founded = b"%b %d" % (self.nuid, self.epoch)
        return blake2b(founded, digest_size=CLUSTER_BYTES).digest() if self.nuid else b""

    @property
    def channels_max(self) -> int:
        """The number of channels that there may be; 0: no limit. Those that streams have made have a limit of their own."""
        most = self.config.limits.channels
        return most + sum(not stream.adopted for stream in self.meta.streams.by_uid.values()) if most else 0

    @property
    def leads_meta(self) -> bool:
        """True if this node leads the metadata."""
        return self.meta_leader is not None

    def group_of(self, info: ChannelInfo) -> ChannelGroup:
        """The group that holds a channel."""
        return self.groups[info.group]

    def leader(self, group: GroupId) -> LeaderParts | None:
        """The leader of *group*; None if this node does not lead it."""
        if group == META_GROUP:
            return self.meta_leader
        found = self.groups.get(group)
        return None if found is None else found.leadership

    def leads(self, group: GroupId) -> bool:
        """True if this node leads *group*."""
        return self.leader(group) is not None

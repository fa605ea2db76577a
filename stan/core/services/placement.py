"""The group of a channel: from the registry, its pin, the channel that it is placed by, or the hash of its name."""

from collections.abc import Callable

from stan_protocol.ack_levels import AckLevel
from stan_protocol.scalars import GroupId

from stan.core.base.partition import ELSEWHERE, Partition
from stan.core.metadata.policies import Policies
from stan.core.metadata.pool import home
from stan.core.services.node import Node
from stan.policies import EPHEMERAL, SYNCED
from stan.protocol.placement import channel_group


class ChannelPlacement:
    """Knows to which group a channel belongs, or would belong if it were made now."""

    __slots__ = ("_followers", "_node", "_policies", "partition")

    def __init__(self, node: Node, partition: Partition | None) -> None:
        self._node = node
        self._policies = Policies()
        self._followers: list[Callable[[], None]] = []
        self.partition = partition
        """The channels of this server, if servers divide the channels among them."""

    @property
    def policies(self) -> Policies:
        """The policies of delivery, as the configuration and the metadata have them now."""
        return self._policies.brought_up_to(
            self._node.config.policies, self._node.meta.info, self._node.meta.streams.rules
        )

    def follow(self, call: Callable[[], None]) -> None:
        """Call *call* whenever names of channels may belong to other groups than before."""
        self._followers.append(call)

    def changed(self) -> None:
        """Names of channels may belong to other groups than before."""
        for call in self._followers:
            call()

    def owns(self, channel: bytes) -> bool:
        """True if a channel is this server's, or may be: servers of one cluster id can divide the channels among them."""
        return self.partition is None or self.partition[channel]

    def group_number(self, channel: bytes) -> GroupId:
        """The group of a channel: from the registry, else from the hash of its name; ELSEWHERE: the channel is another
        server's, or it is being moved to another group, and nobody leads it now."""
        if not self.owns(channel) or self.is_held(channel):
            return ELSEWHERE
        info = self._node.meta.channels.get(channel)
        return info.group if info is not None else self.home(channel)

    def is_held(self, channel: bytes) -> bool:
        """True if this node leads the group of a channel that is being moved to another group: nobody leads it now, and its next
        leader receives all messages to it, too."""
        info = self._node.meta.channels.get(channel)
        group = None if info is None else self._node.groups.get(info.group)
        return group is not None and group.leadership is not None and info is not None and group.is_held(info.uid)

    def groups_of(self, channel: bytes) -> tuple[GroupId, ...]:
        """The groups that publishes to a channel are for: that of the channel, or those of its parts."""
        parted = self._node.meta.channels.parted.by_name
        if not parted or channel not in parted:
            return (self.group_number(channel),)
        return tuple(map(self.group_number, parted[channel].names()))

    def home(self, channel: bytes) -> GroupId:
        """The group in which a channel is made that does not exist: that of the channel that it is placed by, or the one to which
        that is pinned, else by the hash of its name."""
        if self.policies.rules:
            channel = self.placed_by(channel)
            if (info := self._node.meta.channels.get(channel)) is not None:
                return info.group
        return self._node.meta.pins.get(channel) or self.hashed(channel, self.wanted_commit(channel), self.pool_open)

    def wanted_commit(self, channel: bytes) -> int:
        """The meaning of an ack in a channel that is made now: SYNCED, REPLICATED or EPHEMERAL. SYNCED, which promises more,
        where there are no groups for the other."""
        wanted = self.policies.of(channel, b"").commit if self.policies.rules else SYNCED
        return wanted if self.hashed(channel, wanted, self.pool_open) else SYNCED

    def ack_level(self, group: GroupId) -> AckLevel:
        """The meaning of an ack of a publish to a channel of the group."""
        store = self._node.config.store
        unsynced = store.kind == "memory" or store.sync != "always" or self._node.meta.commit_of(group) != SYNCED
        if not unsynced:
            return AckLevel.SYNCED
        return AckLevel.REPLICATED if self._node.clustered else AckLevel.MEMORY

    def hashed(self, channel: bytes, commit: int, opened: int) -> GroupId:
        """The group of a channel by the hash of its name, among groups 1 to *opened* of that kind; an ephemeral one is in a group
        whose other channels are synced."""
        return home(self._node.meta.pool, opened, SYNCED if commit == EPHEMERAL else commit, channel)

    def app_group(self, app: bytes) -> GroupId:
        """The group that keeps the state of an application by its name: for ever the one that the name had when the cluster
        was founded, whatever has become of a channel of the same name."""
        if self.partition is not None and not self.partition[app]:
            return ELSEWHERE
        return channel_group(app, self._node.config.store.raft_groups)

    @property
    def pool(self) -> int:
        """The number of channel groups."""
        return self._node.meta.pool.groups or self._node.config.store.raft_groups

    @property
    def pool_open(self) -> int:
        """The number of groups over which names of channels are hashed: all but those that are new and may have no leader yet."""
        return self._node.meta.pool.open or self._node.config.store.raft_groups

    def placed_by(self, channel: bytes) -> bytes:
        """The channel that determines the group in which *channel* is made: for one with a delay its target, for a dead letter
        channel that is called after its channel that one, else itself."""
        if not self.policies.rules:
            return channel
        policy = self.policies.of(channel, b"")
        return (policy.delay and policy.target_of(channel)) or self.policies.source_of(channel) or channel

    def reached(self, channel: bytes) -> tuple[bytes, ...]:
        """The channels in which a message published to *channel* is stored, now or later: itself, and the target of its delay."""
        policy = self.policies.of(channel, b"")
        target = policy.target_of(channel) if policy.delay else b""
        return (channel, target) if target else (channel,)

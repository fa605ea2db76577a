"""The metadata as the edge and the pages read it: channels, clients, nodes, the pool of groups."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from google.protobuf.message import Message
from stan_protocol.scalars import ChannelUid, GroupId

from stan.core.metadata.meta import ChannelInfo
from stan.core.services.node import Node
from stan.protocol.proto import entries_pb2 as pb

Copied = TypeVar("Copied", bound=Message)


class ClientFacts(NamedTuple):
    """A registered connection of a client id."""

    client_id: bytes
    heartbeat_inbox: bytes
    incarnation: int  # RaftIndex of its connect


class MetaView:
    """The read-only view of the metadata. Messages are copies, mappings follow the state and cannot be changed."""

    __slots__ = ("_node",)

    def __init__(self, node: Node) -> None:
        self._node = node

    # --- the cluster --------------------------------------------------------------------------------------------------

    @property
    def founded(self) -> bool:
        """True if the cluster has an identity."""
        return self._node.meta.info is not None

    @property
    def level(self) -> int:
        """The cluster's level (stan.level); 0 while it has no identity."""
        return self._node.meta.level

    @property
    def nodes_version(self) -> int:
        """The version of the nodes that keep groups; 0 while the settings' nodes are in force."""
        return self._node.meta.nodes.version

    @property
    def nodes(self) -> pb.Nodes:
        """The nodes that keep groups, and their labels."""
        return _copied(self._node.meta.nodes)

    @property
    def pool_groups(self) -> int:
        """Groups of the grown pool; 0 while it has not grown."""
        return self._node.meta.pool.groups

    @property
    def growths(self) -> tuple[pb.GrowPool, ...]:
        """How the pool of groups has grown, in order."""
        return tuple(map(_copied, self._node.meta.pool.growths))

    @property
    def moves_paused(self) -> bool:
        """True if channels do not move between groups by themselves."""
        return self._node.meta.moves_paused

    def commit_of(self, group: GroupId) -> int:
        """Return the meaning of an ack of the channels in a group: SYNCED or REPLICATED (stan.policies)."""
        return self._node.meta.commit_of(group)

    # --- clients ------------------------------------------------------------------------------------------------------

    def client_ids(self) -> list[bytes]:
        """The ids of all clients, sorted."""
        return sorted(self._node.meta.clients)

    def client(self, client_id: bytes) -> ClientFacts | None:
        """A client by its id; None: it is not registered."""
        found = self._node.meta.clients.get(client_id)
        return None if found is None else ClientFacts(found.client_id, found.heartbeat_inbox, found.incarnation)

    @property
    def client_count(self) -> int:
        """Registered clients."""
        return len(self._node.meta.clients)

    def consumer_groups(self) -> list[tuple[bytes, int, int]]:
        """(name, members, channels that they own) of each consumer group, by name."""
        groups = self._node.meta.consumer_groups.by_name
        return sorted((name, len(group.members), len(group.owners)) for name, group in groups.items())

    # --- channels -----------------------------------------------------------------------------------------------------

    @property
    def channels(self) -> Mapping[bytes, ChannelInfo]:
        """The channels by name; parts are channels."""
        return MappingProxyType(self._node.meta.channels)

    @property
    def by_uid(self) -> Mapping[ChannelUid, ChannelInfo]:
        """The channels by uid."""
        return MappingProxyType(self._node.meta.by_uid)

    @property
    def next_uid(self) -> int:
        """The uid of the next channel."""
        return self._node.meta.next_uid

    def whole(self, name: bytes) -> bytes:
        """The channel of which *name* is a part; *name* itself of all others."""
        return self._node.meta.channels.parted.whole(name)


def _copied(message: Copied) -> Copied:
    made = type(message)()
    made.CopyFrom(message)
    return made

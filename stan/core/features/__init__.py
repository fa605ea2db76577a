"""The features of the broker, a room each: none knows another, and the broker works without any of them.

A room has a `BrokerFeature` in its `__init__`, which names all that the feature takes part in. Its work for a group that this
node leads is in parts of the group's leader (`LeaderPart`), which the feature adds.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from stan_protocol.frames import Frame
from stan_protocol.scalars import GroupId, Nanos

from stan.core.clients.clients import Clients
from stan.core.clients.nodes import NodeRequests
from stan.core.clients.serving import Serving
from stan.core.clients.subscription_requests import SubscriptionRequests
from stan.core.leader.local_group import LeaderParts, Leadership
from stan.core.metadata.meta import MetaResult
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.filters import PublishFilters
from stan.core.publishing.part_routing import PartRouting
from stan.core.publishing.publishing import Publishing
from stan.core.requests.channel_lookup import ChannelLookup
from stan.core.requests.metadata_read_index import MetadataReadIndex
from stan.core.requests.request_order import ArrivalOrder
from stan.core.requests.router import Handler
from stan.core.services.services import Services
from stan.core.state.group_state import GroupResult
from stan.protocol.proto import entries_pb2 as pb


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """The parts of one broker that it cannot do without; none is ever replaced."""

    read_index: MetadataReadIndex
    lookup: ChannelLookup
    arrival_order: ArrivalOrder
    channels: LiveChannels
    publishing: Publishing
    filters: PublishFilters
    routing: PartRouting
    clients: Clients
    subscribing: SubscriptionRequests
    serving: Serving
    nodes: NodeRequests


class BrokerFeature:
    """A feature of one broker. The broker calls these methods; each does nothing unless the feature says otherwise."""

    follows: ClassVar[frozenset[str]] = frozenset()
    """Names of the changes of groups with which `applied` is called."""

    def __init__(self, services: Services, parts: BrokerParts) -> None:
        self.services, self.parts = services, parts

    def handlers(self) -> Mapping[str, Handler]:
        """The handlers of requests in `REQUESTS` (stan.core.requests.table), by name."""
        return {}

    def node_handlers(self) -> Mapping[str, Callable[[Frame], None]]:
        """The handlers of other nodes' requests in `ORIGINAL`, by name; called in a cluster."""
        return {}

    # --- leaders --------------------------------------------------------------------------------------------------------

    def lead_meta(self, leader: LeaderParts) -> None:
        """This node begins to lead the metadata: add parts."""

    def lead_group(self, leadership: Leadership) -> None:
        """This node begins to lead a group: add parts. The group has no live view yet."""

    def leads_group(self, number: GroupId) -> None:
        """The live view of a group that this node leads is complete."""

    def follow_group(self, number: GroupId) -> None:
        """This node no longer leads a group."""

    # --- entries --------------------------------------------------------------------------------------------------------

    def meta_applied(self, change: pb.MetaChange, result: MetaResult) -> None:
        """An entry of the metadata was applied, on every node; the live channels have followed it."""

    def meta_loaded(self) -> None:
        """The metadata were loaded as a whole: anything may have changed."""

    def policies_changed(self) -> None:
        """The configuration or the metadata have other limits or policies."""

    def applied(self, number: GroupId, name: str, change: pb.GroupChange, result: GroupResult) -> None:
        """A change in `follows` was applied, on every node that holds the group. *name*: its name."""

    # --- turns ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """The clock is set for the first time."""

    def nodes_seen(self) -> None:
        """Called now and then in a cluster, with fresh reports of the other nodes."""

    def look(self, now: Nanos) -> None:
        """Called at the interval at which retention looks."""

    def due(self) -> None:
        """Called in turns with a timer, with news in watched channels, or with channels that have a delay, and once the wall
        clock has reached `Timers.wall_next`."""

    def pump(self) -> None:
        """Called in turns with messages that were given up, or reads."""


class Features:
    """The features of one broker."""

    def __init__(self, services: Services, parts: BrokerParts, kinds: Iterable[type[BrokerFeature]]) -> None:
        self.all = [kind(services, parts) for kind in kinds]
        self.punctual = [one for one in self.all if type(one).due is not BrokerFeature.due]
        """Those with something to do in `due`."""
        self.pumped = [one for one in self.all if type(one).pump is not BrokerFeature.pump]
        """Those with something to do in `pump`."""
        self.followers: dict[str, list[BrokerFeature]] = {}
        """Those that follow a change of a group, by its name."""
        for one in self.all:
            for name in one.follows:
                self.followers.setdefault(name, []).append(one)

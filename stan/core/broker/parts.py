"""The parts of a broker, each made once, with what they need of each other."""

from dataclasses import dataclass

from stan.core.admin.admin_listing import AdminListing
from stan.core.admin.admin_members import AdminMembers
from stan.core.admin.channel_changes import ChannelChanges
from stan.core.admin.channel_moves import ChannelMoves
from stan.core.admin.channel_queries import ChannelQueries
from stan.core.admin.cursor_admin import CursorAdmin
from stan.core.admin.delayed_requests import DelayedRequests
from stan.core.admin.long_poll import LongPoll
from stan.core.admin.spreading import Spreading
from stan.core.clients.clients import Clients
from stan.core.clients.nodes import NodeRequests
from stan.core.clients.serving import Serving
from stan.core.clients.subscribing import Subscribing
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.committing import LedCommits
from stan.core.publishing.part_doubling import PartDoubling
from stan.core.publishing.publishing import Publishing
from stan.core.publishing.schema_checks import SchemaChecks
from stan.core.publishing.timed import TimedMessages, make_timed
from stan.core.requests.channel_lookup import ChannelLookup
from stan.core.requests.read_index import ReadIndex
from stan.core.requests.request_order import ArrivalOrder
from stan.core.services.services import Services


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """The parts of one broker; none is ever replaced."""

    read_index: ReadIndex
    lookup: ChannelLookup
    arrival_order: ArrivalOrder
    channels: LiveChannels
    publishing: Publishing
    doubling: PartDoubling
    commits: LedCommits
    timed: TimedMessages
    clients: Clients
    subscribing: Subscribing
    serving: Serving
    nodes: NodeRequests
    long_poll: LongPoll
    channel_queries: ChannelQueries
    channel_changes: ChannelChanges
    cursor_admin: CursorAdmin
    admin_listing: AdminListing
    admin_members: AdminMembers
    delayed_requests: DelayedRequests
    moves: ChannelMoves
    spreading: Spreading


def make_parts(services: Services) -> BrokerParts:
    """Make the parts of the broker with these services."""
    read_index = ReadIndex(services)
    arrival_order = ArrivalOrder(services.nats.subjects.discover.encode(), services.nats.subjects.sub.encode())
    channels = LiveChannels(services)
    publishing = Publishing(services, channels, SchemaChecks(services, channels, read_index))
    clients = Clients(services)
    nodes = NodeRequests(services)
    long_poll = LongPoll(services)
    lookup = ChannelLookup(services, read_index)
    serving = Serving(services, nodes)
    timed = make_timed(services, channels, publishing)
    subscribing = Subscribing(services, channels, clients, read_index, arrival_order, serving)
    moves = ChannelMoves(services, channels, publishing, clients, subscribing)
    return BrokerParts(
        read_index=read_index,
        lookup=lookup,
        arrival_order=arrival_order,
        channels=channels,
        publishing=publishing,
        doubling=PartDoubling(services, channels, publishing),
        commits=LedCommits(services),
        timed=timed,
        clients=clients,
        subscribing=subscribing,
        serving=serving,
        nodes=nodes,
        long_poll=long_poll,
        channel_queries=ChannelQueries(services, channels, lookup, long_poll),
        channel_changes=ChannelChanges(services, channels, lookup),
        cursor_admin=CursorAdmin(services, channels, lookup),
        admin_listing=AdminListing(services, channels, lookup, timed.compactions.of),
        admin_members=AdminMembers(services, nodes, moves),
        delayed_requests=DelayedRequests(services, lookup),
        moves=moves,
        spreading=Spreading(services, moves),
    )

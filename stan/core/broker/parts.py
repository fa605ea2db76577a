"""The parts of a broker, each made once, with what they need of each other."""

from dataclasses import dataclass

from stan.core.admin.admin_listing import AdminListing
from stan.core.admin.admin_members import AdminMembers
from stan.core.admin.channel_changes import ChannelChanges
from stan.core.admin.channel_moves import ChannelMoves
from stan.core.admin.channel_queries import ChannelQueries
from stan.core.admin.consumer_group_requests import ConsumerGroupRequests
from stan.core.admin.cursor_admin import CursorAdmin
from stan.core.admin.delayed_requests import DelayedRequests
from stan.core.admin.long_poll import LongPoll
from stan.core.admin.spreading import Spreading
from stan.core.clients.clients import Clients
from stan.core.clients.nodes import NodeRequests
from stan.core.clients.serving import Serving
from stan.core.clients.subscribing import Subscribing
from stan.core.context import BrokerContext
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.committing import LedCommits
from stan.core.publishing.part_doubling import PartDoubling
from stan.core.publishing.publishing import Publishing
from stan.core.publishing.schema_checks import SchemaChecks
from stan.core.publishing.timed import TimedMessages, make_timed
from stan.core.requests.channel_lookup import ChannelLookup
from stan.core.requests.read_index import ReadIndex
from stan.core.requests.request_order import ArrivalOrder


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
    consumer_groups: ConsumerGroupRequests
    moves: ChannelMoves
    spreading: Spreading


def make_parts(context: BrokerContext) -> BrokerParts:
    """Make the parts of the broker with that context."""
    read_index = ReadIndex(context)
    arrival_order = ArrivalOrder(context.nats.subjects.discover.encode(), context.nats.subjects.sub.encode())
    channels = LiveChannels(context)
    publishing = Publishing(context, channels, SchemaChecks(context, channels, read_index))
    clients = Clients(context)
    nodes = NodeRequests(context)
    long_poll = LongPoll(context)
    lookup = ChannelLookup(context, read_index)
    serving = Serving(context, nodes)
    timed = make_timed(context, channels, publishing)
    subscribing = Subscribing(context, channels, clients, read_index, arrival_order, serving)
    moves = ChannelMoves(context, channels, publishing, clients, subscribing)
    return BrokerParts(
        read_index=read_index,
        lookup=lookup,
        arrival_order=arrival_order,
        channels=channels,
        publishing=publishing,
        doubling=PartDoubling(context, channels, publishing),
        commits=LedCommits(context),
        timed=timed,
        clients=clients,
        subscribing=subscribing,
        serving=serving,
        nodes=nodes,
        long_poll=long_poll,
        channel_queries=ChannelQueries(context, channels, lookup, long_poll),
        channel_changes=ChannelChanges(context, channels, lookup),
        cursor_admin=CursorAdmin(context, channels, lookup),
        admin_listing=AdminListing(context, channels, lookup, timed.compactions.of),
        admin_members=AdminMembers(context, clients, nodes, moves),
        delayed_requests=DelayedRequests(context, lookup),
        consumer_groups=ConsumerGroupRequests(context),
        moves=moves,
        spreading=Spreading(context, moves),
    )

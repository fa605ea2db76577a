"""The parts of a broker, each made once, with what they need of each other."""

from dataclasses import dataclass

from stan.core.clients.clients import Clients
from stan.core.clients.nodes import NodeRequests
from stan.core.clients.serving import Serving
from stan.core.clients.subscribing import Subscribing
from stan.core.features.compaction.compacting import CompactionProgress
from stan.core.features.delays.channel_delays import DelayClock
from stan.core.features.delays.requests import DelayedRequests
from stan.core.features.moves.channel_moves import ChannelMoves
from stan.core.features.moves.commit_kinds import CommitRequests
from stan.core.features.moves.pins import PinRequests
from stan.core.features.moves.pool import PoolRequests
from stan.core.features.moves.spreading import Spreading
from stan.core.features.operators.channel_changes import ChannelChanges
from stan.core.features.operators.cursors import CursorAdmin
from stan.core.features.operators.listing import AdminListing
from stan.core.features.operators.members import AdminMembers
from stan.core.features.operators.policies import PolicyRequests
from stan.core.features.parts.doubling import PartDoubling
from stan.core.features.parts.requests import PartRequests
from stan.core.features.queries.channels import ChannelQueries
from stan.core.features.queries.long_poll import LongPoll
from stan.core.features.schemas.requests import SchemaRequests
from stan.core.features.transactions.committing import LedCommits
from stan.core.features.ttl.expiring import ExpiryClock
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.filters import PublishFilters
from stan.core.publishing.publishing import Publishing
from stan.core.publishing.schema_checks import SchemaChecks
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
    filters: PublishFilters
    doubling: PartDoubling
    commits: LedCommits
    delays: DelayClock
    expiries: ExpiryClock
    compactions: CompactionProgress
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
    policies: PolicyRequests
    schemas: SchemaRequests
    pool: PoolRequests
    pins: PinRequests
    commit_kinds: CommitRequests
    parted: PartRequests
    delayed_requests: DelayedRequests
    moves: ChannelMoves
    spreading: Spreading


def make_parts(services: Services) -> BrokerParts:
    """Make the parts of the broker with these services."""
    read_index = ReadIndex(services)
    arrival_order = ArrivalOrder(services.nats.subjects.discover.encode(), services.nats.subjects.sub.encode())
    channels = LiveChannels(services)
    publishing = Publishing(services, channels, SchemaChecks(services, channels, read_index))
    filters = PublishFilters(services, channels, publishing)
    clients = Clients(services)
    nodes = NodeRequests(services)
    long_poll = LongPoll(services)
    lookup = ChannelLookup(services, read_index)
    serving = Serving(services, nodes)
    compactions = CompactionProgress(services)
    subscribing = Subscribing(services, channels, clients, read_index, arrival_order, serving)
    moves = ChannelMoves(services, channels, publishing, clients, subscribing)
    return BrokerParts(
        read_index=read_index,
        lookup=lookup,
        arrival_order=arrival_order,
        channels=channels,
        publishing=publishing,
        filters=filters,
        doubling=PartDoubling(services, channels, filters),
        commits=LedCommits(services),
        delays=DelayClock(services, channels),
        expiries=ExpiryClock(services),
        compactions=compactions,
        clients=clients,
        subscribing=subscribing,
        serving=serving,
        nodes=nodes,
        long_poll=long_poll,
        channel_queries=ChannelQueries(services, channels, lookup, long_poll),
        channel_changes=ChannelChanges(services, channels, lookup),
        cursor_admin=CursorAdmin(services, channels, lookup),
        admin_listing=AdminListing(services, channels, lookup, compactions.of),
        admin_members=AdminMembers(services, nodes),
        policies=PolicyRequests(services),
        schemas=SchemaRequests(services),
        pool=PoolRequests(services, nodes),
        pins=PinRequests(services, moves),
        commit_kinds=CommitRequests(services, moves),
        parted=PartRequests(services),
        delayed_requests=DelayedRequests(services, lookup),
        moves=moves,
        spreading=Spreading(services, moves),
    )

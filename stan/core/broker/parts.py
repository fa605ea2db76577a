"""The broker put together: its parts, each made once with what they need of each other, and its features."""

from typing import Final

from stan.core.clients.clients import Clients
from stan.core.clients.nodes import NodeRequests
from stan.core.clients.serving import Serving
from stan.core.clients.subscription_requests import SubscriptionRequests
from stan.core.features import BrokerFeature, BrokerParts
from stan.core.features.compaction import CompactionFeature
from stan.core.features.consumer_groups import ConsumerGroupsFeature
from stan.core.features.dead_letters import DeadLettersFeature
from stan.core.features.delays import DelaysFeature
from stan.core.features.jetstream import JetStreamFeature
from stan.core.features.moves import MovesFeature
from stan.core.features.operators import OperatorsFeature
from stan.core.features.parts import PartsFeature
from stan.core.features.queries import QueriesFeature
from stan.core.features.restore import RestoreFeature
from stan.core.features.schemas import SchemasFeature
from stan.core.features.transactions import TransactionsFeature
from stan.core.features.ttl import TtlFeature
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.filters import PublishFilters
from stan.core.publishing.part_routing import PartRouting
from stan.core.publishing.publishing import Publishing
from stan.core.publishing.schema_checks import SchemaChecks
from stan.core.requests.channel_lookup import ChannelLookup
from stan.core.requests.metadata_read_index import MetadataReadIndex
from stan.core.requests.request_order import ArrivalOrder
from stan.core.services.services import Services

FEATURES: Final[tuple[type[BrokerFeature], ...]] = (
    MovesFeature,
    OperatorsFeature,
    TransactionsFeature,
    DeadLettersFeature,
    RestoreFeature,
    DelaysFeature,
    CompactionFeature,
    TtlFeature,
    PartsFeature,
    ConsumerGroupsFeature,
    QueriesFeature,
    SchemasFeature,
    JetStreamFeature,
)
"""All features, in the order in which they are called. The broker works without any of them."""


def make_parts(services: Services) -> BrokerParts:
    """Make the parts of the broker with these services."""
    read_index = MetadataReadIndex(services)
    arrival_order = ArrivalOrder(services.nats.subjects.discover.encode(), services.nats.subjects.sub.encode())
    channels = LiveChannels(services)
    publishing = Publishing(services, channels, SchemaChecks(services, channels, read_index))
    clients = Clients(services)
    nodes = NodeRequests(services)
    serving = Serving(services, nodes)
    return BrokerParts(
        read_index=read_index,
        lookup=ChannelLookup(services, read_index),
        arrival_order=arrival_order,
        channels=channels,
        publishing=publishing,
        filters=PublishFilters(services, channels, publishing),
        routing=PartRouting(services),
        clients=clients,
        subscribing=SubscriptionRequests(services, channels, clients, read_index, arrival_order, serving),
        serving=serving,
        nodes=nodes,
    )

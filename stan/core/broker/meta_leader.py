"""The leader of the metadata: its parts, made when this node begins to lead them, and dropped when that ends."""

from stan.core.broker.parts import BrokerParts
from stan.core.clients.registration import Registration
from stan.core.features.consumer_groups.leader import ConsumerGroupsLeader
from stan.core.leader.local_group import LeaderParts
from stan.core.services.services import Services


def make_meta_leader(services: Services, parts: BrokerParts) -> None:
    """Make the parts of the leader of the metadata."""
    leader = services.node.meta_leader = LeaderParts()
    clients = parts.clients
    leader.keep(Registration(services, leader, clients.template, clients.gone, clients.closing))
    leader.keep(ConsumerGroupsLeader(services, leader))

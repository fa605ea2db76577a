"""The record of a broker's services; each part takes those that it needs."""

from dataclasses import dataclass

from stan_protocol.channels import Subjects

from stan.config import Config
from stan.core.base.faults import Faults
from stan.core.base.leaf_state import LeafStates
from stan.core.base.partition import Partition
from stan.core.base.rate_limit import RateLimiter
from stan.core.base.ready import Indexes
from stan.core.base.timers import Timers
from stan.core.services.broker_requests import BrokerRequests
from stan.core.services.leading import Leading
from stan.core.services.listening import ListenedSubjects
from stan.core.services.nats import NatsState
from stan.core.services.node import Node
from stan.core.services.outgoing import Outgoing
from stan.core.services.placement import ChannelPlacement
from stan.core.services.proposals import ProposedChanges
from stan.core.services.reports import Reports
from stan.core.services.senders import Senders
from stan.core.services.stored import StoredMessages
from stan.protocol.user_subjects import with_users


@dataclass(frozen=True, slots=True)
class Services:
    """The services of one broker; none is ever replaced."""

    node: Node
    nats: NatsState
    placement: ChannelPlacement
    stored: StoredMessages
    outgoing: Outgoing
    reports: Reports
    faults: Faults
    timers: Timers
    proposals: ProposedChanges
    leading: Leading
    senders: Senders
    requests: BrokerRequests
    leaves: LeafStates
    listening: ListenedSubjects


def make_services(config: Config, written: Indexes, reply_prefix: bytes) -> Services:
    """Make the services of a broker that holds no channel group yet."""
    node, timers, faults = Node(config), Timers(), Faults()
    nats = NatsState(node, Subjects.of(config.cluster_id, config.discover_prefix), reply_prefix)
    placement = ChannelPlacement(node, Partition(config.limits.per_channel) if config.partitioning else None)
    outgoing = Outgoing(node)
    reports = Reports(node, outgoing, nats.subjects.events)
    proposals = ProposedChanges(node, nats, outgoing, timers)
    leading = Leading(node, faults)
    senders = Senders(node, leading, RateLimiter(config.requests))
    return Services(
        node=node,
        nats=nats,
        placement=placement,
        stored=StoredMessages(node, written),
        outgoing=outgoing,
        reports=reports,
        faults=faults,
        timers=timers,
        proposals=proposals,
        leading=leading,
        senders=senders,
        requests=BrokerRequests(node, nats, senders, outgoing, timers, faults),
        leaves=LeafStates(apart=with_users(config)),
        listening=ListenedSubjects(),
    )

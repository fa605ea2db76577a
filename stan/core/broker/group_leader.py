"""The leader of the metadata, and that of one channel group: their parts, made when this node begins to lead, and dropped when
that ends."""

from stan.core.admin.channel_changes import Deletions
from stan.core.admin.consumer_groups_leader import ConsumerGroupsLeader
from stan.core.admin.redriving import Redriving
from stan.core.admin.restore_requests import Restoring
from stan.core.broker.parts import BrokerParts
from stan.core.leader.local_group import LeaderParts, Leadership
from stan.core.publishing.batching import Batching
from stan.core.publishing.channels import DelayFaults, DroppedRuns
from stan.core.publishing.committing import Committing
from stan.core.publishing.compacting import Compacting
from stan.core.publishing.dead_letters import DeadLetters
from stan.core.publishing.deferring import Deferring
from stan.core.publishing.delaying import Delaying
from stan.core.publishing.ephemeral import EphemeralChannels
from stan.core.publishing.expiring import Expiring
from stan.core.publishing.staging import Staging
from stan.core.publishing.stored_reads import StoredReads
from stan.core.services.services import Services


def make_leader(services: Services, parts: BrokerParts, leadership: Leadership) -> None:
    """Make the parts of a group's leader that need nothing of the group's live view."""
    channels, publishing = parts.channels, parts.publishing
    leadership.keep(EphemeralChannels(services, leadership, parts.channels))
    for small in (StoredReads, DroppedRuns, Deletions):
        leadership.keep(small(services, leadership))
    for kind in (Batching, Staging, Committing, DeadLetters, Redriving, Restoring):
        leadership.keep(kind(services, leadership, channels, publishing))
    leadership.keep(DelayFaults())
    leadership.keep(Delaying(services, leadership, channels, publishing, parts.delays))
    leadership.keep(Deferring(services, leadership, channels, publishing))
    leadership.keep(Compacting(services, leadership, channels, parts.compactions))
    expiring = Expiring(services, leadership, channels, parts.expiries)
    leadership.keep(expiring)
    expiring.lead()


def make_meta_leader(services: Services, parts: BrokerParts) -> None:
    """Make the parts of the leader of the metadata."""
    leader = services.node.meta_leader = LeaderParts()
    leader.keep(parts.clients.make_registration(leader))
    leader.keep(ConsumerGroupsLeader(services, leader))

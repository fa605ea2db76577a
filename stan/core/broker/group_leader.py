"""The leader of one channel group: its parts, made when this node begins to lead the group, and dropped when that ends."""

from stan.core.broker.parts import BrokerParts
from stan.core.features.compaction.compacting import Compacting
from stan.core.features.dead_letters.moving import DeadLetters
from stan.core.features.dead_letters.redriving import Redriving
from stan.core.features.delays.channel_delays import Delaying
from stan.core.features.delays.publish_times import Deferring
from stan.core.features.operators.channel_changes import Deletions
from stan.core.features.restore.requests import Restoring
from stan.core.features.transactions.committing import Committing
from stan.core.features.transactions.staging import Staging
from stan.core.features.ttl.expiring import Expiring
from stan.core.leader.local_group import Leadership
from stan.core.publishing.batching import Batching
from stan.core.publishing.channel_policies import DelayFaults
from stan.core.publishing.channels import DroppedRuns
from stan.core.publishing.ephemeral import EphemeralChannels
from stan.core.publishing.stored_reads import StoredReads
from stan.core.services.services import Services


def make_leader(services: Services, parts: BrokerParts, leadership: Leadership) -> None:
    """Make the parts of a group's leader that need nothing of the group's live view."""
    channels, publishing = parts.channels, parts.publishing
    leadership.keep(EphemeralChannels(services, leadership, channels))
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

"""The leader of one channel group: its parts, made when this node begins to lead the group, and dropped when that ends."""

from stan.core.admin.channel_changes import Deletions
from stan.core.admin.redriving import Redriving
from stan.core.admin.restore_requests import Restoring
from stan.core.broker.parts import BrokerParts
from stan.core.leader.local_group import Leadership
from stan.core.publishing.batching import Batching
from stan.core.publishing.channels import DroppedRuns
from stan.core.publishing.committing import Committing
from stan.core.publishing.dead_letters import DeadLetters
from stan.core.publishing.ephemeral import EphemeralChannels
from stan.core.publishing.staging import Staging
from stan.core.publishing.stored_reads import StoredReads
from stan.core.services.services import Services


def make_leader(services: Services, parts: BrokerParts, leadership: Leadership) -> None:
    """Make the parts of a group's leader that need nothing of the group's live view."""
    leadership.keep(EphemeralChannels(services, leadership, parts.channels))
    for small in (StoredReads, DroppedRuns, Deletions):
        leadership.keep(small(services, leadership))
    for kind in (Batching, Staging, Committing, DeadLetters, Redriving, Restoring):
        leadership.keep(kind(services, leadership, parts.channels, parts.publishing))

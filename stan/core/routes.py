"""Which part of the broker handles each request of the table (stan.core.requests.table) that the core answers.

The edge serves the others, which read files or are about a single node.
"""

from collections.abc import Mapping

from stan.core.admin.admin_listing import AdminListing
from stan.core.admin.admin_members import AdminMembers
from stan.core.admin.channel_changes import ChannelChanges
from stan.core.admin.channel_queries import ChannelQueries
from stan.core.admin.cursor_admin import CursorAdmin
from stan.core.admin.restore_requests import RestoreRequests
from stan.core.publishing.batching import Batching
from stan.core.publishing.committing import Committing
from stan.core.publishing.staging import Staging
from stan.core.requests.router import Handler


def of_clients(
    batching: Batching, staging: Staging, committing: Committing, channel_queries: ChannelQueries
) -> Mapping[str, Handler]:
    """The handlers of clients' requests, by name."""
    return {
        "batch": batching.batch,
        "stage": staging.stage,
        "commit": committing.commit,
        "abort": staging.abort,
        "finish": staging.finish,
        "last_committed": staging.last_committed,
        **channel_queries.handlers(),
    }


def of_operators(
    *parts: AdminListing | AdminMembers | ChannelChanges | CursorAdmin | RestoreRequests,
) -> Mapping[str, Handler]:
    """The handlers of operators' requests, by name."""
    return {f"admin.{name}": handler for part in parts for name, handler in part.handlers().items()}

"""Requests that the original does not know, by subject: which part of the broker takes each.

Requests of operators (`.admin.<request>`, stan/protocol/proto/admin.proto) stand in a table of their own.
"""

from collections.abc import Callable, Mapping

from stan.core.admin.inquiries import Inquiries
from stan.core.admin.managing import Managing
from stan.core.admin.positions import Positions
from stan.core.admin.reporting import Reporting
from stan.core.publishing.batching import Batching
from stan.core.publishing.committing import Committing
from stan.core.publishing.staging import Staging
from stan.protocol.frames import Frame

Handle = Callable[[Frame], None]


def of_clients(
    batching: Batching, staging: Staging, committing: Committing, inquiries: Inquiries
) -> Mapping[str, Handle]:
    """Requests of clients, by kind."""
    return {
        "batch": batching.batch,
        "stage": staging.stage,
        "commit": committing.commit,
        "abort": staging.abort,
        "finish": staging.finish,
        "last_committed": staging.last_committed,
        "info": inquiries.info,
        "seq_at_time": inquiries.sequence_at_time,
        "cursor_set": inquiries.set_cursor,
        "cursors": inquiries.cursors,
    }


def of_operators(reporting: Reporting, managing: Managing, positions: Positions) -> Mapping[str, Handle]:
    """Requests of operators that the core answers, by kind; channel changes and restores have tables of their own."""
    return {
        "evict_client": managing.evict_client,
        "add_node": managing.add_node,
        "remove_node": managing.remove_node,
        "channels": reporting.list_channels,
        "subscriptions": reporting.list_subscriptions,
        "clients": reporting.list_clients,
        "move": positions.move,
        "skip": positions.skip,
        "redeliver": positions.redeliver,
        "pause": positions.pause,
        "resume": positions.resume,
        "evict_member": positions.evict,
        "delete_cursor": positions.delete,
    }

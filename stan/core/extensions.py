"""Requests that the original does not know, by subject: which part of the broker takes each.

Requests of operators (`.admin.<request>`, stan/protocol/admin.proto) stand in a table of their own.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from stan.core.admin.managing import Managing
from stan.core.admin.reporting import Reporting
from stan.protocol.frames import Frame

if TYPE_CHECKING:
    from stan.core.broker import Broker

Handle = Callable[[Frame], None]


def extensions(broker: "Broker") -> dict[str, Handle]:
    """By subject."""
    prefix = broker.shared.subjects.extension
    batching, staging, committing, inquiries = broker.batching, broker.staging, broker.committing, broker.inquiries
    taken: dict[str, Handle] = {
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
    taken |= {f"admin.{kind}": handle for kind, handle in admin_requests(broker).items()}
    return {f"{prefix}.{kind}": handle for kind, handle in taken.items()}


def admin_requests(broker: "Broker") -> dict[str, Handle]:
    """Requests of operators that the core answers, by kind."""
    reporting = Reporting(broker.shared, broker.channels, broker.answering)
    managing = Managing(broker.shared, broker.answering, broker.clients, broker.nodes)
    positions = broker.positions
    return {
        "evict_client": managing.evict_client,
        "add_node": managing.add_node,
        "remove_node": managing.remove_node,
        "channels": reporting.channels_asked,
        "subscriptions": reporting.subscriptions_asked,
        "clients": reporting.clients_asked,
        **broker.channel_changes.requests(),
        **broker.restoring.requests(),
        "move": positions.move,
        "skip": positions.skip,
        "redeliver": positions.redeliver,
        "pause": positions.pause,
        "resume": positions.resume,
        "evict_member": positions.evict,
        "delete_cursor": positions.delete,
    }

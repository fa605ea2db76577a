"""Requests that the original does not know, by subject: which part of the broker takes each.

Requests of operators (`.admin.<request>`, stan/protocol/proto/admin.proto) stand in a table of their own.
"""

from collections.abc import Callable, Mapping

from stan.core.admin.admin_listing import AdminListing
from stan.core.admin.admin_members import AdminMembers
from stan.core.admin.channel_queries import ChannelQueries
from stan.core.admin.cursor_admin import CursorAdmin
from stan.core.publishing.batching import Batching
from stan.core.publishing.committing import Committing
from stan.core.publishing.staging import Staging
from stan.protocol.frames import Frame

Handle = Callable[[Frame], None]


def of_clients(
    batching: Batching, staging: Staging, committing: Committing, channel_queries: ChannelQueries
) -> Mapping[str, Handle]:
    """Requests of clients, by kind."""
    return {
        "batch": batching.batch,
        "stage": staging.stage,
        "commit": committing.commit,
        "abort": staging.abort,
        "finish": staging.finish,
        "last_committed": staging.last_committed,
        "info": channel_queries.info,
        "seq_at_time": channel_queries.sequence_at_time,
        "cursor_set": channel_queries.set_cursor,
        "cursors": channel_queries.cursors,
    }


def of_operators(
    admin_listing: AdminListing, admin_members: AdminMembers, cursor_admin: CursorAdmin
) -> Mapping[str, Handle]:
    """Requests of operators that the core answers, by kind; channel changes and restores have tables of their own."""
    return {
        "evict_client": admin_members.evict_client,
        "add_node": admin_members.add_node,
        "remove_node": admin_members.remove_node,
        "channels": admin_listing.list_channels,
        "subscriptions": admin_listing.list_subscriptions,
        "clients": admin_listing.list_clients,
        "move": cursor_admin.move,
        "skip": cursor_admin.skip,
        "redeliver": cursor_admin.redeliver,
        "pause": cursor_admin.pause,
        "resume": cursor_admin.resume,
        "evict_member": cursor_admin.evict,
        "delete_cursor": cursor_admin.delete,
    }

"""The handlers of the requests of the table (stan.core.requests.table) that the core answers.

The edge serves the others, which read files or are about a single node.
"""

from collections.abc import Callable, Mapping
from typing import Final

from google.protobuf.message import DecodeError
from stan_protocol.frames import Frame

from stan.core.broker.parts import BrokerParts
from stan.core.features.consumer_groups.leader import ConsumerGroupsLeader
from stan.core.features.dead_letters.redriving import Redriving
from stan.core.features.restore.requests import Handle, Restoring
from stan.core.features.transactions.committing import Committing
from stan.core.features.transactions.staging import Staging
from stan.core.publishing.batching import Batching
from stan.core.requests.router import Handler
from stan.core.services.node import META_GROUP
from stan.core.services.proposals import nobody_waits
from stan.core.services.services import Services
from stan.protocol.proto import entries_pb2 as pb

_OF_NODES: Final = frozenset({"create_channels", "delete_channel", "part_closed", "doubling_ended", "end_move"})
"""The changes of the metadata that leaders of groups ask for."""


def handlers(parts: BrokerParts) -> Mapping[str, Handler]:
    """The handlers of the requests in `REQUESTS`, by name."""
    of_operators = (
        parts.admin_listing,
        parts.admin_members,
        parts.policies,
        parts.schemas,
        parts.pool,
        parts.pins,
        parts.commit_kinds,
        parts.parted,
        parts.channel_changes,
        parts.cursor_admin,
        parts.delayed_requests,
        parts.spreading,
    )
    return {
        "batch": lambda accepted: accepted.part(Batching).batch(accepted),
        "stage": lambda accepted: accepted.part(Staging).stage(accepted),
        "commit": lambda accepted: accepted.part(Committing).commit(accepted),
        "abort": lambda accepted: accepted.part(Staging).abort(accepted),
        "admin.redrive": parts.lookup.existing(
            lambda accepted, info: (
                accepted.services.leading.leadership(info.group).part(Redriving).redrive(accepted, info)
            )
        ),
        "finish": lambda accepted: accepted.part(Staging).finish(accepted),
        "last_committed": lambda accepted: accepted.part(Staging).last_committed(accepted),
        "consumer_group": lambda accepted: accepted.part(ConsumerGroupsLeader).poll(accepted),
        "admin.consumer_groups": lambda accepted: accepted.part(ConsumerGroupsLeader).list(accepted),
        "parts": parts.parted.listed,
        "schemas": parts.schemas.listed,
        **parts.channel_queries.handlers(),
        "admin.restore_channel": lambda accepted: accepted.part(Restoring).channel(accepted),
        "admin.restore_rows": _restoring(parts, Restoring.rows),
        "admin.restore_cursor": _restoring(parts, Restoring.cursor),
        "admin.restore_delayed": _restoring(parts, Restoring.delayed),
        "admin.restore_end": _restoring(parts, Restoring.end),
        **{f"admin.{name}": handler for part in of_operators for name, handler in part.handlers().items()},
    }


def _restoring(parts: BrokerParts, handle: Handle) -> Handler:
    """The handler of a request about a channel that is being restored."""
    return parts.lookup.existing(
        lambda accepted, info: (
            accepted.services.leading.leadership(info.group).part(Restoring).with_channel(handle, accepted, info)
        )
    )


def original_handlers(services: Services, parts: BrokerParts) -> dict[str, Callable[[Frame], None]]:
    """The handlers of the requests in `ORIGINAL` that this server answers, by name."""
    found: dict[str, Callable[[Frame], None]] = {
        "discover": parts.clients.connect,
        "pings": parts.clients.ping,
        "close": parts.clients.close,
        "sub": parts.subscribing.subscribe,
        "unsub": lambda frame: parts.subscribing.leave(frame, unsubscribe=True),
        "sub_close": lambda frame: parts.subscribing.leave(frame, unsubscribe=False),
    }
    cluster = services.node.config.cluster
    if cluster is not None:
        found["meta"] = lambda frame: _meta_change(services, frame)
        found["read_index"] = lambda frame: parts.read_index.answer(frame.reply)
        found["moves"] = parts.moves.answer
        found["serving"] = parts.serving.reported
        if cluster.allow_add_remove:
            found |= {"node_add": parts.nodes.add, "node_remove": parts.nodes.remove}
    return found


def _meta_change(services: Services, frame: Frame) -> None:
    """Propose a change of the metadata that another node asks of their leader."""
    try:
        change = pb.MetaChange.FromString(frame.payload)
    except DecodeError:
        return
    if not services.leading.concerns(META_GROUP):
        return
    name = change.WhichOneof("change")
    if name in _OF_NODES:
        services.proposals.change_meta(nobody_waits, **{name: getattr(change, name)})

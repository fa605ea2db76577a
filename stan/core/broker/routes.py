"""The handlers of the requests of the table (stan.core.requests.table) that the core answers.

The edge serves the others, which read files or are about a single node.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from google.protobuf.message import DecodeError
from stan_protocol.frames import Frame

from stan.core.features import BrokerFeature, BrokerParts
from stan.core.publishing.batching import Batching
from stan.core.requests.router import Handler
from stan.core.services.node import META_GROUP
from stan.core.services.proposals import nobody_waits
from stan.core.services.services import Services
from stan.protocol.proto import entries_pb2 as pb

_OF_NODES: Final = frozenset({"create_channels", "delete_channel", "part_closed", "doubling_ended", "end_move"})
"""The changes of the metadata that leaders of groups ask for."""


def handlers(features: Iterable[BrokerFeature]) -> Mapping[str, Handler]:
    """The handlers of the requests in `REQUESTS`, by name."""
    found: dict[str, Handler] = {"batch": lambda accepted: accepted.part(Batching).batch(accepted)}
    for feature in features:
        found |= feature.handlers()
    return found


def original_handlers(
    services: Services, parts: BrokerParts, features: Iterable[BrokerFeature]
) -> dict[str, Callable[[Frame], None]]:
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
        found["serving"] = parts.serving.reported
        for feature in features:
            found |= feature.node_handlers()
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

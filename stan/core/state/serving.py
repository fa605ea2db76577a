"""Who sends the messages of a subscription: the leader of its channel's group, or another node with a copy of the group.

    wish ANY: any other node, read replicas first · "zone=a": one in that zone · else the name of a node · b"": the leader

Only plain subscriptions have a wish, which stays what it was when they were made. Which node serves one is told by `Serve`
entries of the leader; without any the leader does.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from stan.labels import Labels

ANY: Final = b"any"
ZONE: Final = b"zone="


class ServedBy(NamedTuple):
    """Who serves a subscription."""

    wish: bytes = b""
    node: bytes = b""  # empty: the leader
    since: int = 0  # RaftIndex of the Serve entry
    instance: int = 0  # of the node's process; another one does not serve it


LEADER: Final = ServedBy()
"""Of subscriptions without a wish."""


def willing(wish: bytes, nodes: Iterable[str], labels: Mapping[str, Labels]) -> list[str]:
    """Those of *nodes* that *wish* is content with."""
    if wish == ANY:
        return list(nodes)
    if wish.startswith(ZONE):
        zone = wish[len(ZONE) :].decode(errors="replace")
        return [name for name in nodes if name in labels and labels[name].zone == zone]
    return [name for name in nodes if name.encode() == wish]

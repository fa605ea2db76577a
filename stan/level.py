"""Levels: what a version of the program understands, so that nodes of two versions can run beside each other.

Each node knows the levels up to `KNOWN`. A cluster is at one level, kept in the metadata: what came with a higher level is not
written before every node knows that level and an operator has raised the cluster's. Until then every node can go back to the
version before. A new cluster begins at the highest level that all its nodes know; a level never goes down.
"""

from collections.abc import Mapping
from typing import Final

OLDEST: Final = 1
"""The level of versions that know nothing of levels, and of data that was written before."""
DELIVERY: Final = 2
"""Delivery under control: keys of messages, policies of delivery, negative acks, dead letters, delays."""
SCALE: Final = 3
"""Scale out: consumer groups, labels of nodes, channels that are pinned to a group, subscriptions that other nodes serve, a pool
of groups that grows, commits that refer to staged rows."""
EPHEMERAL: Final = 4
"""Ephemeral channels: what the registry says of them, and their epochs. Durables, queue groups, named positions and
consumer groups that belong to their users."""
KNOWN: Final = EPHEMERAL
"""The highest level that this program knows."""


def too_old(levels: Mapping[str, int], level: int) -> list[str]:
    """Names of the nodes that do not know *level*, sorted; *levels*: the highest level that each node knows."""
    return sorted(name for name, known in levels.items() if known < level)

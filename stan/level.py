"""Levels: what a version of the program understands, so that nodes of two versions can run beside each other.

Each node knows the levels up to `KNOWN`. A cluster is at one level, kept in the metadata: what comes with a higher level is not
written before every node knows that level and an operator has raised the cluster's. Until then every node can go back to the
version before. A new cluster begins at the highest level that all its nodes know; a level never goes down.
"""

from collections.abc import Mapping
from typing import Final

KNOWN: Final = 1
"""The highest level that this program knows. The first release has level 1; docs/upgrading.md says when there is another one."""


def too_old(levels: Mapping[str, int], level: int) -> list[str]:
    """Names of the nodes that do not know *level*, sorted; *levels*: the highest level that each node knows."""
    return sorted(name for name, known in levels.items() if known < level)

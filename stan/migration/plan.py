"""The settings of a migration: a store, a target, and signs of the old server."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stan.migration.report import MigrationReport
from stan.migration.source import OldServerCheck, Source, StoreSink

WITHOUT_DURABLES = (
    "{why}. To move the messages alone, add --without-durables; then put each durable where it was before its client comes: "
    "stan durable create CHANNEL CLIENT/DURABLE --at SEQUENCE (the old server's page /streaming/channelsz?subs=1 tells last_sent)"
)
"""Refuses a store that does not tell durables, unless the plan does without them."""

OpenTarget = Callable[[MigrationReport], StoreSink]
"""Opens a target for the store of a report."""


def nobody_asked(_cluster_id: str) -> OldServerCheck:
    """Ask no server: for a migration without the address of the old server's NATS."""
    return OldServerCheck()


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationPlan:
    """The settings of one migration."""

    source: "OpenSource"
    target: Path | OpenTarget | None = None  # a new directory, or servers; None: only look
    key: bytes = b""
    plain: bool = False  # treat all payloads as not encrypted, whatever they look like
    cluster_id: str = ""  # for a store that does not record its own
    raft_groups: int = 1  # of a new directory
    without_durables: bool = False  # move a store that does not tell them: of a node of a cluster
    stopped: bool = False  # the old server, whatever it looks like
    watch_s: float = 0  # for how many seconds at least it is looked whether something changes
    ask: Callable[[str], OldServerCheck] = nobody_asked  # the old server, by its cluster id, on its NATS


OpenSource = Callable[[MigrationPlan], Source]
"""Opens a store as a plan says, and begins to watch it. Raises StartError."""

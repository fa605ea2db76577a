"""FILE stores as the source of a migration: that of a server alone, or those of the nodes of a cluster with their Raft logs."""

from collections.abc import Sequence
from pathlib import Path

from stan.errors import StartError
from stan.migration.cluster.nodes import ClusterStore, find_raft
from stan.migration.old_store import OldStore
from stan.migration.plan import WITHOUT_DURABLES, MigrationPlan, OpenSource
from stan.migration.quiet_watch import QuietWatch
from stan.migration.source import Source

ALONE = "give the directory of a server that is no node of a cluster alone, and one directory with --without-durables"
ONE_LOG_EACH = "give one --raft for each directory, in the same order"
INSIDE = "the new directory must not lie in the old one, where it would look like a channel"


def file_stores(directories: Sequence[Path], raft_logs: Sequence[Path] = ()) -> OpenSource:
    """Return the source for a plan.

    Args:
        directories: the store of the server, or of nodes of one cluster.
        raft_logs: the Raft directories of these nodes, in the same order; without any they are looked for.
    """
    directories = [directory.absolute() for directory in directories]  # as the report names them, wherever it is read

    def open_stores(plan: MigrationPlan) -> Source:
        target = plan.target.resolve() if isinstance(plan.target, Path) else None
        if target is not None and any(target.is_relative_to(directory.resolve()) for directory in directories):
            raise StartError(INSIDE)
        stores = [OldStore(directory, plan.watch_s) for directory in directories]
        if plan.without_durables or not all(store.node_id for store in stores):
            if len(stores) > 1:
                raise StartError(ALONE)
            return stores[0]
        given: Sequence[Path | None] = raft_logs or [None] * len(stores)
        if len(given) != len(stores):
            raise StartError(ONE_LOG_EACH)
        try:
            logs = [find_raft(store, path) for store, path in zip(stores, given, strict=True)]
        except StartError as error:
            raise StartError(WITHOUT_DURABLES.format(why=error)) from error
        watch = QuietWatch([*directories, *logs], plan.watch_s)
        return ClusterStore(stores, logs, watch, plan.key, plain=plan.plain)

    return open_stores

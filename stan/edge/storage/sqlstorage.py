"""Storage of a server alone with `-st sql`: one SQLite file with the logs of its groups and the rows of its state.

Beside it are SQLite's own files (`-wal`, `-shm`) and `<file>.lock`. There are no snapshots: the flushed state is in the same file
as the log, and would be lost with it.
"""

import os
from collections.abc import Callable, Container
from pathlib import Path

from stan_protocol.refusals import go_quote
from stan_protocol.scalars import GroupId, RaftIndex

from stan.config import Config
from stan.core.broker.broker import Broker
from stan.edge.storage.manifest import lock_file
from stan.edge.storage.state_rows import Marks, StateRows
from stan.edge.storage.storage import Storage
from stan.errors import Aborted, Frozen, NotNow, StartError
from stan.log.files.disk import OsFiles, close_to_others
from stan.log.sql.sqlfile import SqlError, SqlFile
from stan.log.sql.sqllog import SqlLog
from stan.state.database import Changes, Database

SHARED = ".ft"
"""Ends the name of the directory with the data of servers that share a file."""


def lock_path(source: Path) -> Path:
    """The file that a server which uses *source* has locked."""
    return source.with_name(f"{source.name}.lock")


def shared_path(source: Path) -> Path:
    """The directory in which a fault tolerance group has the content of *source*."""
    return source.with_name(source.name + SHARED)


class SqlRows(StateRows):
    """`StateRows` in the SQLite file of the logs."""

    def __init__(self, file: SqlFile) -> None:
        super().__init__()
        self._file = file

    async def write(self, changes: dict[GroupId, list[Changes]], marks: Marks, applied: Container[GroupId]) -> None:
        """Write as `StateRows` does, if the fence lets it. Raises NotNow if SQLite refuses."""
        if self._file.fence is not None:
            self._file.fence()
        try:
            await super().write(changes, marks, applied)
        except SqlError as error:
            raise NotNow(f"{self._file.path}: {error}") from error


class SqlStorage(Storage):
    """`Storage` over a SQLite file."""

    file: SqlFile
    _lock: int | None

    @classmethod
    async def open_file(cls, config: Config, fence: Callable[[], None] | None) -> "SqlStorage":
        """Open the file `config.store.source`; *fence* is called before each transaction. Raises StartError, Damage."""
        source = config.store.source
        if source is None:
            raise StartError("for SQL stores, --sql_source must name a SQLite file")
        if shared_path(source).exists():
            raise StartError(f"{source} is shared by the servers of a fault tolerance group; start it with -ft_group")
        OsFiles().makedirs(str(source.parent))
        lock = lock_file(lock_path(source), source)
        try:
            file = SqlFile(source)
            for ending in ("", "-wal", "-shm", ".lock"):
                close_to_others(f"{source}{ending}")
        except BaseException:
            os.close(lock)
            raise
        try:
            unconfirmed = _take_over(file, config)
            file.fence = fence
            self = cls({number: SqlLog(file, number) for number in map(GroupId, range(config.store.raft_groups + 1))})
            self.file, self.unconfirmed = file, unconfirmed
            self.rows = SqlRows(file)
            self.rows.database = await Database.open(source)
            file.make_views()
        except BaseException:
            file.close()
            os.close(lock)
            raise
        self._lock = lock
        return self

    async def release(self, broker: Broker) -> None:  # noqa: ARG002 - as Storage has it
        """Release the entries that the flushed state covers, and let the logs delete rows that nothing needs."""
        for number, log in list(self.logs.items()):
            log.release(self.rows.flushed.get(number, RaftIndex(0)))
            await self.offload(log.clean)

    async def close(self, *, clean: bool) -> None:
        """Close everything; *clean* when all writes are durable and flushed."""
        try:
            for log in self.logs.values():
                try:
                    log.close()
                except (Frozen, Aborted):
                    clean = False
            if clean:
                self.file.note(clean="yes")
        finally:
            if self.rows.database is not None:
                await self.rows.database.close()
            self.file.close()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None


def _take_over(file: SqlFile, config: Config) -> bool:
    """Mark the file as in use; returns True if the server that used it last did not close it in order.

    Then the log may lack deliveries that have left: entries without a waiter stay in memory until the next
    transaction. Raises StartError if the file is of another cluster, or has another number of groups.
    """
    known, groups = file.value("cluster_id"), file.value("raft_groups")
    if known and known != config.cluster_id:
        raise StartError(
            f"cluster ID {go_quote(config.cluster_id)} does not match recovered value of {go_quote(known)}"
        )
    if groups and groups != str(config.store.raft_groups):
        raise StartError(f"{file.path} was made with {groups} channel group(s), not {config.store.raft_groups}")
    unconfirmed = file.value("clean") == "no"
    file.note(cluster_id=config.cluster_id, raft_groups=str(config.store.raft_groups), clean="no")
    return unconfirmed

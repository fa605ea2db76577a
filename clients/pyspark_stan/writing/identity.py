"""The identity of a piece of work that the sink writes, and the ids of its rows: both are the same when Spark repeats the work.

Promises to guess nothing: where Spark does not give the work an identity, options must. A row's id is made of the row's content,
never of its position, because rows come in another order after each run of a shuffle. Modelled on Delta Lake's txnAppId and
txnVersion.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final, NamedTuple
from uuid import uuid4

from pyspark import TaskContext
from stan_protocol.kernel.rows import ID_BYTES, Buffer, IdSet, digests

from pyspark_stan.errors import IdentityError
from pyspark_stan.writing.sink_options import SinkOptions

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""Properties of a task of a streaming query; pyspark's own foreach() relies on BATCH_ID, too."""
BATCH_JOBS: Final = "batch"
"""The writer of saves outside of streaming queries."""
RUN_ID: Final = "spark.jobGroup.id"
EXECUTION_ID: Final = "spark.sql.execution.id"
"""Properties of a task that identify the run of a query, and the action in it."""
APP_BYTES_MAX: Final = 255
"""Length of the longest app that the broker accepts."""
SAVES_REMEMBERED_MAX: Final = 256
"""Saves of batch writers that a process remembers, to find two saves with one identity."""


class Identity(NamedTuple):
    """Identity of a piece of work: equal when Spark repeats the work, different for all other work."""

    app: str
    version: int


class Task(NamedTuple):
    """Number, attempt and properties of a task of Spark."""

    partition: int
    attempt: int
    property_of: Callable[[str], str | None]


def this_task() -> Task:
    """Return the task that runs in this thread; outside of a task, partition 0 without properties."""
    context = TaskContext.get()
    if context is None:
        return Task(0, 0, lambda _: None)
    return Task(context.partitionId(), context.attemptNumber(), context.getLocalProperty)


def writer_of(task: Task) -> str:
    """Return the writer: the streaming query, by its id, which its checkpoint has; all batch jobs are one writer. Of two writers
    with one app the broker refuses the later one, which would look like a repetition of the earlier one."""
    return task.property_of(QUERY_ID) or BATCH_JOBS


def identity_of(options: SinkOptions, task: Task, *, streaming: bool) -> Identity:
    """Return the identity of the rows of *task*: the app and version of the options, else the ids of the query and the batch.

    A query may save a batch several times inside foreachBatch, so there the channel is part of the app. The sink of a streaming
    query needs no more than the query's id.

    Raises:
        IdentityError: neither Spark nor the options give an identity.
    """
    app, version = options.app, options.version
    if not app:
        query = task.property_of(QUERY_ID) or ""
        app = query if streaming else f"{query}/{options.channel}" if query and options.channel else ""
    if version is None:
        batch = task.property_of(BATCH_ID)
        version = int(batch) if batch is not None else None
    missing = [name for name, there in (("txnAppId", app), ("txnVersion", version is not None)) if not there]
    if version is None or missing:
        raise IdentityError(
            f"delivery '{options.delivery}' needs {' and '.join(missing)}: outside of a streaming query's own thread, or for a "
            "save without the option channel, nothing else tells this work from other work (or use delivery 'at-least-once')"
        )
    if len(app.encode()) > APP_BYTES_MAX:
        raise IdentityError(f"txnAppId: longer than {APP_BYTES_MAX} bytes: {app}")
    return Identity(app, version)


class Save(NamedTuple):
    """An action in one run of a query."""

    run: str
    execution: str


_saves: OrderedDict[tuple[str, Identity], str] = OrderedDict()
"""The saves of this process: (run of a query, identity) -> the action that wrote it."""


def save_of(task: Task) -> Save | None:
    """Return the action that *task* belongs to; None outside of a streaming query."""
    run, execution = task.property_of(RUN_ID), task.property_of(EXECUTION_ID)
    return Save(run, execution) if run and execution and task.property_of(QUERY_ID) else None


def begin_save(identity: Identity, save: Save | None) -> None:
    """Note the action that writes under an identity which nobody has committed: an earlier action under it has failed, and is
    repeated, or the driver refuses one of the two."""
    if save is not None:
        _saves[save.run, identity] = save.execution
        while len(_saves) > SAVES_REMEMBERED_MAX:
            _saves.popitem(last=False)


def refuse_second_save(identity: Identity, save: Save | None) -> None:
    """Refuse a second save of one foreachBatch under the same identity: the broker would take it for a repetition of the first
    one, and its rows would be lost.

    Raises:
        IdentityError: this process has seen another save with this identity.
    """
    if save is None:
        return
    if _saves.get((save.run, identity), save.execution) != save.execution:
        raise IdentityError(
            f"version {identity.version} of '{identity.app}' was written by another save of the same batch: "
            "give each save a txnAppId of its own"
        )
    begin_save(identity, save)


def new_save(run: str | None) -> Save | None:
    """Return an action of its own in a run of a query; None: the run is not known."""
    return Save(run, uuid4().hex) if run else None


@contextmanager
def only_save(identity: Identity | None, save: Save | None) -> Iterator[None]:
    """Refuse a second save on the driver, which sees all saves of a query; a save that has failed may be repeated.

    Raises:
        IdentityError: as of refuse_second_save().
    """
    if identity is None or save is None:
        yield
        return
    refuse_second_save(identity, save)
    try:
        yield
    except BaseException:
        _saves.pop((save.run, identity), None)
        raise


# --- ids of rows ---------------------------------------------------------------------------------------------------------------


Column = tuple[Buffer, Buffer, int]
"""Offsets and data of a column of bytes, as Arrow has them, and the place of its first row."""


def ids_of_column(values: Column, count: int) -> bytes:
    """Return the ids of *count* rows that have an id column: ID_BYTES for each of *values*."""
    return digests(*values, count)


class ContentIds:
    """Makes ids from the contents of a task's rows; the number of equal rows before a row is part of its id.

    The partition is part of the id too, because equal rows may be in several partitions: so repeated work must be partitioned as
    before.
    """

    def __init__(self, identity: Identity, partition: int, writer: str = "") -> None:
        place = f"{identity.app}\0{identity.version}\0{partition}"
        if not identity.app.startswith(
            writer
        ):  # as by itself: else rows of two queries with one txnAppId had the same ids
            place += f"\0{writer}"
        self._salt = blake2b(place.encode(), digest_size=blake2b.SALT_SIZE).digest()
        self._seen = IdSet()
        self._repeats: Counter[bytes] = Counter()

    def of(self, channel: str, contents: Column, count: int) -> bytes:
        """Return the ids of *count* rows of *channel*: ID_BYTES for each of *contents*."""
        salt, person = self._salt, blake2b(channel.encode(), digest_size=blake2b.PERSON_SIZE).digest()
        digest = digests(*contents, count, salt=salt, person=person)
        new = self._seen.add(digest)
        row = new.find(0)
        if row < 0:
            return digest
        ids = bytearray(digest)
        while row >= 0:
            place = slice(ID_BYTES * row, ID_BYTES * (row + 1))
            first = digest[place]
            self._repeats[first] += 1
            again = b"%b%d" % (first, self._repeats[first])
            ids[place] = blake2b(again, digest_size=ID_BYTES, salt=salt, person=person).digest()
            row = new.find(0, row + 1)
        return bytes(ids)

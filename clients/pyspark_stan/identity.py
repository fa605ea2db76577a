"""Who writes: the identity of a piece of work, and the ids of its rows; the same again when Spark repeats it.

Promises that nothing is guessed: work whose identity Spark does not tell needs the options that name it, and a row's id comes
from the row, never from its place, because the order of rows behind a shuffle is another one each time. Modelled on Delta
Lake's txnAppId and txnVersion.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final, NamedTuple
from uuid import uuid4

from pyspark import TaskContext

from pyspark_stan.sink_options import SinkOptions
from stan.protocol.kernel.rows import ID_BYTES, IdSet

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""Properties of a task of a streaming query; pyspark's own foreach() needs the latter."""
RUN_ID: Final = "spark.jobGroup.id"
EXECUTION_ID: Final = "spark.sql.execution.id"
"""Properties that tell one run of a query, and one action in it, from another."""
APP_BYTES_MAX: Final = 255
"""Longest name the broker takes."""
SAVES_REMEMBERED_MAX: Final = 256
"""Saves of batch writers that a process remembers, to find two with one identity."""


class IdentityError(ValueError):
    """Work that cannot be told from other work."""


class Identity(NamedTuple):
    """A piece of work: the same again when Spark repeats it, another one for any other work."""

    app: str
    version: int


class Task(NamedTuple):
    """What Spark tells a task about itself."""

    partition: int
    attempt: int
    property_of: Callable[[str], str | None]


def this_task() -> Task:
    """The task that runs here; outside of one, partition 0 without properties."""
    context = TaskContext.get()
    if context is None:
        return Task(0, 0, lambda _: None)
    return Task(context.partitionId(), context.attemptNumber(), context.getLocalProperty)


def identity_of(options: SinkOptions, task: Task, *, streaming: bool) -> Identity:
    """The identity of what *task* writes.

    A save inside foreachBatch is told from others of its query by its channel, a streaming query's own sink by nothing else.

    Raises:
        IdentityError: Spark does not tell it, and the options do not either; or two saves have the same one.
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
    identity = Identity(app, version)
    if not streaming:
        refuse_second_save(identity, save_of(task))
    return identity


class Save(NamedTuple):
    """One action in one run of a query."""

    run: str
    execution: str


_saves: OrderedDict[tuple[str, Identity], str] = OrderedDict()
"""Of this process: which action wrote under which identity in which run of a query."""


def save_of(task: Task) -> Save | None:
    """The action that *task* belongs to; None outside of a query."""
    run, execution = task.property_of(RUN_ID), task.property_of(EXECUTION_ID)
    return Save(run, execution) if run and execution and task.property_of(QUERY_ID) else None


def refuse_second_save(identity: Identity, save: Save | None) -> None:
    """Two saves of one foreachBatch under one identity: the second would be taken for a repetition, and its rows lost.

    Raises:
        IdentityError: this process has seen another one.
    """
    if save is None:
        return
    if _saves.setdefault((save.run, identity), save.execution) != save.execution:
        raise IdentityError(
            f"version {identity.version} of '{identity.app}' was written by another save of the same batch: "
            "give each save a txnAppId of its own"
        )
    while len(_saves) > SAVES_REMEMBERED_MAX:
        _saves.popitem(last=False)


@contextmanager
def only_save(identity: Identity, run: str | None) -> Iterator[None]:
    """Around a save on the driver, where all saves of a query are seen; one that has failed may be made again.

    Raises:
        IdentityError: as of refuse_second_save().
    """
    save = Save(run, uuid4().hex) if run else None
    refuse_second_save(identity, save)
    try:
        yield
    except BaseException:
        if save is not None:
            _saves.pop((save.run, identity), None)
        raise


# --- ids of rows ---------------------------------------------------------------------------------------------------------------


def ids_of_column(values: Iterable[bytes]) -> bytes:
    """Ids out of values that identify their rows."""
    return b"".join([blake2b(value, digest_size=ID_BYTES).digest() for value in values])


class ContentIds:
    """Ids out of the rows themselves, for one task: equal rows are told apart by how often they came before.

    The partition is part of the id, because equal rows may be in several; so a repetition must be partitioned as before.
    """

    def __init__(self, identity: Identity, partition: int) -> None:
        place = f"{identity.app}\0{identity.version}\0{partition}"
        self._salt = blake2b(place.encode(), digest_size=blake2b.SALT_SIZE).digest()
        self._seen = IdSet()
        self._repeats: Counter[bytes] = Counter()

    def of(self, channel: str, contents: Iterable[bytes]) -> bytes:
        """The ids of rows of *channel*."""
        salt, person = self._salt, blake2b(channel.encode(), digest_size=blake2b.PERSON_SIZE).digest()
        found = [blake2b(each, digest_size=ID_BYTES, salt=salt, person=person).digest() for each in contents]
        new = self._seen.add(b"".join(found))
        row = new.find(0)
        while row >= 0:
            first = found[row]
            self._repeats[first] += 1
            again = b"%b%d" % (first, self._repeats[first])
            found[row] = blake2b(again, digest_size=ID_BYTES, salt=salt, person=person).digest()
            row = new.find(0, row + 1)
        return b"".join(found)

"""The sink: publishes the rows of a query to channels, with one of three deliveries.

transactional   Tasks stage their rows on the broker, durable but invisible; the driver commits all of them, the channels of a
                group at once, under the identity of the work. Repeated work finds itself committed and adds nothing: each row is
                published once, whatever crashes. Between two groups a commit is not atomic.
idempotent      Tasks publish directly; the broker drops rows whose id it has already. Each row is published once, as long as
                repeated work has the same ids.
at-least-once   Tasks publish directly. No row is lost; repeated work publishes its rows again.

In each of them a task ends only after the broker has acknowledged all of its rows. Modelled on Kafka's transactions, with the
idempotent commit of Delta Lake's writer.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from stan_client.errors import ServerError, StanClientError
from stan_client.requests.transactions import StagedRows

from pyspark_stan import transport
from pyspark_stan.errors import IdentityError
from pyspark_stan.writing.identity import (
    BATCH_JOBS,
    ContentIds,
    Identity,
    Save,
    Task,
    begin_save,
    identity_of,
    only_save,
    refuse_second_save,
    save_of,
    this_task,
    writer_of,
)
from pyspark_stan.writing.routing import REQUEST_OVERHEAD, Request, Router
from pyspark_stan.writing.sending import InFlightRequests, SharedRequest
from pyspark_stan.writing.sink_options import SinkOptions, sink_options

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from stan_client.requests.transactions import Committed

    from pyspark_stan.writing.parts import Division

COMMITTED_ROWS_PER_S_MIN: Final = 20_000
COMMITTED_REQUESTS_PER_S_MIN: Final = 500
"""A commit may take the usual patience and the time of its rows, and of the requests that staged them, at these rates; then it is
given up."""

_log: Final = logging.getLogger("pyspark_stan")


@dataclass
class StanCommitMessage(WriterCommitMessage):
    """The result of one task; its size does not depend on the number of rows."""

    identity: Identity | None = None  # None: delivery at-least-once
    writer: str = ""  # the writer under the identity's app: a query's id, or batch jobs
    partition: int = 0
    txn: str = ""  # name of the staged rows; empty: nothing is staged
    parts: dict[str, int] = field(default_factory=dict)  # channel -> staged requests
    rows: int = 0  # published or staged
    skipped: int = 0  # rows left out because of onError=skip
    dead: int = 0  # rows published to the dead-letter channel
    duplicates: int = 0  # rows dropped by the broker, which knew their ids
    done_before: bool = False  # the work was committed before: nothing was sent
    save: Save | None = None  # the action of the task, inside foreachBatch


class StanBatchWriter(DataSourceArrowWriter):
    """The writer of `df.write.format("stan")`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[RecordBatch]") -> StanCommitMessage:
        """Send the rows of one task; called on an executor.

        Raises:
            IdentityError, RowError, UnreachableError, or an error of stan_client.
        """
        return _write(self._options, iterator, streaming=False)

    def commit(self, messages: "Sequence[WriterCommitMessage | None]") -> None:
        """Commit the staged rows of the tasks; called on the driver after all tasks.

        Raises:
            IdentityError: two saves have one identity. UnreachableError, or an error of stan_client.
        """
        ours = _ours(messages)
        identity, save = (ours[0].identity, ours[0].save) if ours else (None, None)
        with only_save(identity, save):  # tasks see only those of their own process
            _commit(self._options, ours)

    def abort(self, messages: "Sequence[WriterCommitMessage | None]") -> None:
        """Drop staged rows after a failure; called on the driver. Committed rows stay."""
        _abort(self._options, _ours(messages))


class StanStreamWriter(DataSourceStreamArrowWriter):
    """The writer of `df.writeStream.format("stan")`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[RecordBatch]") -> StanCommitMessage:
        """Send the rows of one task of one micro-batch; called on an executor. Errors as of StanBatchWriter."""
        return _write(self._options, iterator, streaming=True)

    def commit(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:  # noqa: N803 - Spark's
        """Commit the staged rows of a micro-batch's tasks; called on the driver after all tasks.

        Raises:
            ValueError: Spark commits another batch than the tasks have written. UnreachableError, or an error of stan_client.
        """
        ours = _ours(messages)
        wrong = [each.identity for each in ours if each.identity is not None and each.identity.version != batchId]
        if wrong:
            raise ValueError(f"Spark commits batch {batchId}, but told a task that it was another one: {wrong[0]}")
        _commit(self._options, ours)

    def abort(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:  # noqa: N803, ARG002 - Spark's
        """Drop staged rows after a failure; called on the driver. Committed rows stay."""
        _abort(self._options, _ours(messages))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StanBatchWriter:  # noqa: FBT001 - Spark's
    """Return the writer of `df.write`. Raises OptionsError."""
    return StanBatchWriter(sink_options(options, schema, "batch", overwrite=overwrite))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StanStreamWriter:  # noqa: FBT001 - Spark's
    """Return the writer of `df.writeStream` for append mode, and for complete mode, which publishes the whole result each time.
    Raises OptionsError."""
    return StanStreamWriter(sink_options(options, schema, "stream", overwrite=overwrite))


# --- on the executors --------------------------------------------------------------------------------------------------------


class _Sender:
    """Sends the rows of one task to the broker, in the way of its delivery. Staged rows of many channels share a request.

    A channel with parts is detected by the broker's refusal of the first rows for it; further ones wait for that answer, so
    that rows stay in order.
    """

    def __init__(self, options: SinkOptions, message: StanCommitMessage, room: int) -> None:
        """*room*: bytes of the rows of one request, with the names of their channels."""
        self._message = message
        self._connection = options.connection
        self._window = InFlightRequests(options.connection, options.in_flight_max, options.retries)
        self._shared = SharedRequest(min(room, options.batch_bytes), options.batch_rows)
        self._divisions: dict[
            str, Division | None
        ] = {}  # of the channels for which something was sent; None: it has no parts
        self._first: set[str] = set()  # channels whose first request may have no answer yet

    def send(self, request: Request) -> None:
        """Send a request, without waiting for its answer unless too many are in flight."""
        channel = request.channel
        self._message.rows += request.count
        if channel in self._first:
            self._drain()
        if channel not in self._divisions:
            self._divisions[channel] = None
            self._first.add(channel)
        division = self._divisions[channel]
        for part in division.of(request) if division is not None else (request,):
            self._submit(part)

    def _submit(self, request: Request) -> None:
        message = self._message
        channel, rows, count, ids = request.channel, request.rows, request.count, request.ids
        if message.txn:
            number = message.parts.get(channel, 0)
            message.parts[channel] = number + 1
            self._stage(self._shared.add(StagedRows(channel, number, rows, count)))
            return
        if message.identity is not None:
            app, version = message.identity
            submit = methodcaller("publish_batch_nowait", channel, rows, count, producer=app, version=version, ids=ids)
        else:
            submit = methodcaller("publish_batch_nowait", channel, rows, count)
        self._window.send(len(rows) + len(ids), submit, partial(self._divided, request))

    def _stage(self, parts: list[StagedRows]) -> None:
        """Stage rows of different channels with one request, if there are any."""
        if parts and self._message.identity is not None:
            app, version = self._message.identity
            submit = methodcaller("stage_together_nowait", app, version, self._message.txn, parts)
            self._window.send(sum(len(part.rows) for part in parts), submit, partial(self._apart, parts))

    def _apart(self, parts: list[StagedRows], error: ServerError) -> bool:
        """Stage rows that were refused together channel by channel; those of one channel to its parts. False if they were refused
        for something else."""
        if len(parts) == 1:
            ((channel, _, rows, count),) = parts
            return self._divided(Request(channel, rows, count, b""), error)
        for part in parts:
            self._stage([part])
        return True

    def _divided(self, request: Request, error: ServerError) -> bool:
        """Send the first rows for a channel to its parts; False if they were refused for something else."""
        message, channel = self._message, request.channel
        if error.code != "has_parts" or channel not in self._first:
            return False
        from pyspark_stan.writing.parts import division_of  # noqa: PLC0415 - most workers have no use for it

        message.parts.pop(channel, None)
        writer = message.identity.app if message.identity is not None else f"spark.{message.partition}"
        division = self._divisions[channel] = division_of(self._connection, channel, writer)
        for part in division.of(request):
            self._submit(part)
        return True

    def _drain(self) -> None:
        waiting = True
        while waiting:
            self._stage(self._shared.pop())
            self._window.drain()
            waiting = bool(self._shared)  # rows of channels that turned out to have parts
        self._first.clear()

    def finish(self) -> None:
        """Wait until all requests are acknowledged."""
        self._drain()
        self._message.duplicates = self._window.duplicates


def _write(options: SinkOptions, iterator: "Iterator[RecordBatch]", *, streaming: bool) -> StanCommitMessage:
    task = this_task()
    message = StanCommitMessage(partition=task.partition)
    if options.delivery != "at-least-once":
        message.identity = identity_of(options, task, streaming=streaming)
        message.save, message.writer = save_of(task), writer_of(task)
        app, version = message.identity
        request = methodcaller("last_committed", app, writer=message.writer, version=version)
        if _of_writer(options, request) >= version:
            if not streaming:
                refuse_second_save(message.identity, message.save)
            message.done_before = True
            for _ in iterator:  # read to the end: stateful operators save their state after the last row
                pass
            return message
        if not streaming:
            begin_save(message.identity, message.save)
    if options.delivery == "transactional":
        message.txn = _txn(task)
    try:
        _send_all(options, message, iterator)
    except BaseException:
        _abort(options, [message])
        raise
    return message


def _send_all(options: SinkOptions, message: StanCommitMessage, iterator: "Iterator[RecordBatch]") -> None:
    content_ids = None
    if options.delivery == "idempotent" and message.identity is not None:
        content_ids = ContentIds(message.identity, message.partition, _query(message))
    connection = options.connection
    client, ask = transport.client_of(connection), partial(transport.message_bytes_max, connection)
    partitions = None
    if options.include_partition:
        from pyspark_stan.writing.partitions import Partitions  # noqa: PLC0415 - most workers have no use for it

        partitions = Partitions(connection)
    router = Router(options, client.max_payload, ask, content_ids, partitions)
    sender = _Sender(options, message, client.max_payload - REQUEST_OVERHEAD)
    for batch in iterator:
        for request in router.add(batch):
            sender.send(request)
    for request in router.rest():
        sender.send(request)
    sender.finish()
    message.skipped, message.dead = router.skipped, router.dead


def _query(message: StanCommitMessage) -> str:
    """The id of the query that writes; "" for batch jobs."""
    return "" if message.writer == BATCH_JOBS else message.writer


def _of_writer(options: SinkOptions, request: methodcaller) -> Any:
    """Return the answer to a request in the name of a writer. Raises IdentityError: its app is another writer's."""
    try:
        return transport.with_reconnect(options.connection, request)
    except ServerError as error:
        if error.code != "another_writer":
            raise
        raise IdentityError(
            f"{error}. Does the query have a new checkpoint? Then give it a txnAppId of its own"
        ) from None


def _txn(task: Task) -> str:
    """Return a name for staged rows that no other attempt of any task has."""
    return f"{uuid.uuid4().hex}.{task.partition}.{task.attempt}"


# --- on the driver -----------------------------------------------------------------------------------------------------------


def _ours(messages: "Sequence[WriterCommitMessage | None]") -> list[StanCommitMessage]:
    """Return the messages of the tasks that have succeeded, ordered by partition; a failed task has none."""
    ours = [message for message in messages if isinstance(message, StanCommitMessage)]
    return sorted(ours, key=lambda message: message.partition)


def _commit(options: SinkOptions, messages: list[StanCommitMessage]) -> None:
    left_out = sum(message.skipped for message in messages)
    if left_out:
        _log.warning("%d rows could not be published and were left out", left_out)
    identities = {message.identity for message in messages if message.identity is not None}
    if not identities:
        return
    if len(identities) > 1:
        raise ValueError(f"tasks of one job with different identities: {sorted(identities)}")
    (identity,), writer = identities, messages[0].writer
    if any(message.done_before for message in messages):
        _log.warning("version %d of '%s' was finished before: nothing is added", *reversed(identity))
        _abort(options, messages)  # staged by tasks that began before the other commit
        return
    rows, staged = sum(message.rows for message in messages), sum(sum(each.parts.values()) for each in messages)
    patience_s = options.patience_s + rows / COMMITTED_ROWS_PER_S_MIN + staged / COMMITTED_REQUESTS_PER_S_MIN
    commit = methodcaller(
        "commit", identity.app, identity.version, _txns(messages), writer=writer, timeout_s=patience_s
    )
    done: dict[str, Committed] = _of_writer(options, commit)
    already = sorted(channel for channel, committed in done.items() if committed.already)
    if already:
        _log.warning(
            "version %d of '%s' was committed to %s before: nothing is added", *reversed(identity), ", ".join(already)
        )


def _txns(messages: list[StanCommitMessage]) -> dict[str, list[tuple[str, int]]]:
    """Return for each channel its staged txns with their numbers of parts, in the order of the rows."""
    txns: dict[str, list[tuple[str, int]]] = {}
    for message in messages:
        for channel, parts in message.parts.items():
            txns.setdefault(channel, []).append((message.txn, parts))
    return txns


def _abort(options: SinkOptions, messages: list[StanCommitMessage]) -> None:
    """Drop staged rows; if the broker does not answer, it drops them by itself after its time limit."""
    txns = {channel: [txn for txn, _ in staged] for channel, staged in _txns(messages).items()}
    if not txns:
        return
    try:
        transport.with_reconnect(options.connection, methodcaller("abort", txns))
    except StanClientError as error:
        _log.warning("staged rows are left to the broker's time limit: %s", error)

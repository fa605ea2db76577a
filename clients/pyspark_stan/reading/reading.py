"""Reads the ranges of one task, channel after channel and answer by answer, as record batches.

Promises: every message of the range that the broker has, or the lake of the option `cold`, once and in order; missing messages
are an error or a line in the log, as failOnDataLoss says. After a temporary failure (no leader, a broker that restarts, a lost
connection) reading continues after the last message that was read.
"""

import logging
import time
from typing import TYPE_CHECKING, Final, cast

from stan_client.errors import ChannelReplacedError, ConnectionClosedError, DataLossError, ServerError
from stan_client.reading.fetching import LOST

from pyspark_stan.errors import UnreachableError
from pyspark_stan.options import SourceOptions
from pyspark_stan.transport import PASSING, client_of, forget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_stan.reading.decode import Decoder
    from pyspark_stan.reading.typed_decode import TypedDecoder

    AnyDecoder = Decoder | TypedDecoder

    import pyarrow as pa
    from stan_client.blocking import BlockingClient

    from pyspark_stan.reading.offsets import Range
    from pyspark_stan.reading.planning import StanPartition

log: Final = logging.getLogger("pyspark_stan")


def note_loss(text: str, why: str = "", then: str = "goes on without them", *, fail: bool) -> None:
    """Report missing messages: with *fail* raise DataLossError, else log it. *then*: the effect of failOnDataLoss=false."""
    if fail:
        raise DataLossError(f"stan: {text}{why and '; '}{why}. failOnDataLoss=false {then}")
    log.warning("%s: failOnDataLoss=false %s", text, then)


def read_partition(options: SourceOptions, decoder: "AnyDecoder", part: "StanPartition") -> "Iterator[pa.RecordBatch]":
    """Yield the messages of *part* as record batches.

    Raises:
        DataLossError: messages are missing, and failOnDataLoss is set. One of transport.PASSING: more than `retries` failures
            without progress. ServerError: the broker refuses. ValueError: messages are damaged.
    """
    for each in part.ranges:
        yield from _read_range(options, decoder, each)


def _read_range(options: SourceOptions, decoder: "AnyDecoder", part: "Range") -> "Iterator[pa.RecordBatch]":
    reader = _Reader(options, decoder, part)
    if options.cold:
        yield from reader.cold()
    failures = 0
    while reader.next <= reader.last:
        before, client = reader.next, None
        try:
            client = client_of(options.connection)
            yield from reader.batches(client)
        except UnreachableError:  # was tried for long enough
            raise
        except PASSING as error:
            failures = 1 if reader.next > before else failures + 1
            if failures > options.retries:
                raise
            if client is not None and isinstance(error, ConnectionClosedError):
                forget(options.connection, client)
            time.sleep(options.retry_pause_s)


class _Reader:
    """Reads one range, up to the sequence `last`; `next` is the sequence to continue with."""

    def __init__(self, options: SourceOptions, decoder: "AnyDecoder", part: "Range") -> None:
        self._options = options
        self._decoder = decoder
        self._part = part
        self.next, self.last = part.first, part.end - 1

    def cold(self, up_to: int = 0) -> "Iterator[pa.RecordBatch]":
        """Yield the lake's messages from `next` on, up to its end; or, by a new manifest, up to the sequence *up_to*."""
        from pyspark_stan.reading.cold import Cold  # noqa: PLC0415 - only with the option `cold`

        part = self._part if not up_to else self._part._replace(end=up_to + 1)
        lake, decoder, first = Cold(self._options.cold), cast("Decoder", self._decoder), self.next
        for after, batch in lake.batches(part, first, decoder.names, newest=bool(up_to)):
            if batch is not None:
                yield decoder.cold(batch)
            self.next = after
        for begin, last in lake.missing(part, first, self.next):
            self._lose(begin, last, "the lake came too late")

    def batches(self, client: "BlockingClient") -> "Iterator[pa.RecordBatch]":
        """Yield the messages from `next` on; at the end the whole partition was read, except for messages that were reported as
        lost."""
        options, part = self._options, self._part
        size, replica = options.fetch_bytes, options.from_replica
        why = "the channel ends before"
        try:
            for answer in client.read_range(
                part.channel,
                self.next,
                self.last,
                uid=part.uid,
                cluster=part.cluster,
                max_bytes=size,
                from_replica=replica,
            ):
                begins = answer.runs[0].first_sequence if answer.runs else answer.next_sequence
                yield from self._filled(min(begins - 1, max(answer.lost_until, answer.first_sequence - 1)))
                after = answer.next_sequence
                for first, last in answer.lost(self.next):
                    self._lose(first, min(last, self.last), LOST)
                    after = max(after, last + 1)
                if answer.count:
                    yield self._decoder.batch(answer)
                self.next = max(self.next, after)
        except ChannelReplacedError:
            why = "the channel was deleted and made again, here or by a server that was set up anew"
        except ServerError as error:
            if error.code != "unknown_channel":
                raise
            why = "the channel was deleted"
        yield from self._filled(self.last)
        if self.next <= self.last:
            self._lose(self.next, self.last, why)
            self.next = self.last + 1

    def _filled(self, up_to: int) -> "Iterator[pa.RecordBatch]":
        """Yield the messages from `next` to *up_to* as far as they have gone from the broker into the lake."""
        up_to = min(up_to, self.last)
        if self._options.cold and self.next <= up_to:
            yield from self.cold(up_to)

    def _lose(self, first: int, last: int, why: str) -> None:
        """Report messages as lost."""
        text = f"messages {first} to {last} of {self._part.channel} cannot be read, for {why}"
        note_loss(text, fail=self._options.fail_on_data_loss)

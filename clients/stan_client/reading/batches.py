"""Many messages at once, as the servers store them: whole batches published and read, for programs that move much data.

await direct.batches.publish("orders", encode_rows([b"one", b"two"]), 2)  # of a Direct or a Client
async for answer in direct.batches.read_range("orders", 1, 1000):
    print(answer.messages())

Rows are messages without a sequence, as `encode_rows` makes them: per row u32 little-endian length, then MsgProto's fields reply
(3), data (4), headers (16), key (17) where they are not empty. Errors of all: ServerError: refused. RequestTimeoutError: no
answer in time. ConnectionClosedError: the client is closed.
"""

from collections.abc import AsyncGenerator, Callable
from typing import Any, NamedTuple

from stan_protocol.compression import Compressor
from stan_protocol.limits import COMPRESSED_ROWS_BYTES_MAX
from stan_protocol.proto import extension_pb2 as pb

from stan_client.positions import Start, everything, from_sequence
from stan_client.reading.fetching import Fetched, Fetcher, Reader, ReadOptions
from stan_client.requests.names import raw
from stan_client.requests.requester import Requester


class BatchAck(NamedTuple):
    """Sequences of the stored rows of a batch; they are consecutive."""

    first: int  # 0: none was stored
    last: int
    duplicates: int  # rows left out because their ids had been stored before


class Batches:
    """The batches of one client."""

    def __init__(self, requester: Requester, fetcher: Fetcher, bytes_max: Callable[[], int]) -> None:
        self._requester = requester
        self._fetcher = fetcher
        self._bytes_max = bytes_max

    @property
    def bytes_max(self) -> int:
        """Largest request and answer that the NATS server accepts, in bytes; 0 before the first connection."""
        return self._bytes_max()

    async def publish(
        self,
        channel: str,
        rows: bytes,
        count: int,
        *,
        producer: str = "",
        version: int = 0,
        ids: bytes = b"",
        compress: bool = True,
        timeout_s: float | None = None,
    ) -> BatchAck:
        """Store *count* rows: all or none of them.

        Args:
            channel: its name; the server creates the channel if it does not exist.
            rows: as `encode_rows` makes them; together, or compressed, no larger than one NATS message.
            count: number of rows.
            producer: name of the producer of the ids, the scope of deduplication.
            version: of the producer's work; the server remembers the ids of the two newest versions.
            ids: 16 bytes for each row, or none: a row whose id the producer has sent to this channel already is left out.
            compress: rows of 1 KiB or more travel, and are stored, compressed.
            timeout_s: patience of the request.

        Raises:
            OutcomeUnknownError: no answer in time, without ids: the rows may be stored or not. With ids the request is
                repeated.
        """
        frame = b""
        if compress and len(rows) <= COMPRESSED_ROWS_BYTES_MAX:
            frame = Compressor().frame(rows)
        request = pb.BatchRequest(
            channel=raw(channel), count=count, producer=raw(producer), version=version, ids=ids, compressed_rows=frame
        )
        if not frame:
            request.rows = rows
        answer = await self._requester.ask(
            "batch", request, pb.BatchResponse, repeat=bool(ids) or not count, patience_s=timeout_s
        )
        return BatchAck(answer.first_sequence, answer.last_sequence, answer.duplicates)

    async def fetch(
        self,
        channel: str,
        *,
        start: Start | None = None,
        last: int = 0,
        count: int = 0,
        max_bytes: int = 0,
        from_replica: bool = False,
        timeout_s: float | None = None,
    ) -> Fetched:
        """Return the messages of Client.fetch as the server stores them, with the channel's uid and first and last sequence."""
        where: dict[str, Any] = {**(start or everything()).fetch_start()}
        limits: dict[str, Any] = {"last": last, "max_messages": count, "max_bytes": max_bytes, "compressed": True}
        request = pb.FetchRequest(channel=raw(channel), **limits, **where)
        return await self._fetcher.fetch(request, from_replica=from_replica, timeout_s=timeout_s)

    def read(
        self,
        channel: str,
        *,
        start: Start | None = None,
        follow: bool = False,
        requests_in_flight: int = 4,
        max_bytes: int = 0,
        from_replica: bool = False,
        timeout_s: float | None = None,
        uid: int = 0,
        cluster: str = "",
        read_ns: int = 0,
    ) -> AsyncGenerator[Fetched, None]:
        """Yield the messages of Client.read in whole answers, as the server stores them; an answer may hold no message. *uid*,
        *cluster*: of the channel from info(), so that another channel of this name is refused; 0, "": any channel of this
        name. *read_ns*: `newest_ns` of the answer before the sequence *start*, so that a channel is refused that has lost its
        end since, and ends before *start* or has newer messages below it; 0: not known.

        Raises:
            ChannelReplacedError: the channel is refused, or becomes another one or loses its end while it is read. Others as of
                Client.fetch().
        """
        options = ReadOptions(
            follow=follow,
            requests_in_flight=requests_in_flight,
            max_bytes=max_bytes,
            from_replica=from_replica,
            uid=uid,
            cluster=cluster,
            read_ns=read_ns,
            timeout_s=timeout_s,
        )
        return Reader(self._fetcher, channel, options).answers(start or everything())

    def read_range(
        self,
        channel: str,
        first: int,
        last: int,
        *,
        uid: int = 0,
        cluster: str = "",
        max_bytes: int = 0,
        requests_in_flight: int = 4,
        from_replica: bool = False,
        read_ns: int = 0,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[Fetched, None]:
        """Yield the existing messages of [first, last] in order, answer by answer; an answer may hold none.

        *first* and *last* are sequences, >= 1; with *from_replica* the leader is asked for messages that replicas do not get
        soon. Other arguments as of read().

        Raises:
            ChannelReplacedError: as of read(). Others as of Client.fetch().
        """
        options = ReadOptions(
            requests_in_flight=requests_in_flight,
            max_bytes=max_bytes,
            from_replica=from_replica,
            last=last,
            uid=uid,
            cluster=cluster,
            read_ns=read_ns,
            timeout_s=timeout_s,
        )
        return Reader(self._fetcher, channel, options).answers(from_sequence(first))

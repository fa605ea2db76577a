"""Messages pulled from a channel without a subscription: one answer at a time, or a whole channel with several requests in
flight.

Promises: messages come in the order of their sequences, each once, none left out that the server still has; a request that can
be retried (server busy, no leader at the moment, a lost session) is repeated until the patience ends. Needs a server that knows
fetch. Modelled on a Kafka consumer's fetcher: ranges ahead of the reader, sized by the average size of the messages before.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from google.protobuf.message import DecodeError
from stan_protocol import fetches
from stan_protocol.channels import extension_subject, fetch_subjects
from stan_protocol.compaction import deletes
from stan_protocol.frames import Frame
from stan_protocol.kernel.client import decode_message
from stan_protocol.proto.extension_pb2 import FetchRequest, FetchResponse, InfoRequest, InfoResponse, Position, Run
from stan_protocol.retries import RETRY_MAX_S
from stan_protocol.scalars import MiB

from stan_client.errors import ChannelReplacedError, FetchTimeoutError, ServerError
from stan_client.messages.messages import Message
from stan_client.positions import Start
from stan_client.requests.names import raw
from stan_client.requests.requester import RETRY_FIRST_S
from stan_client.transport.inbox import Inbox
from stan_client.transport.session import text_of

FOLLOW_PAUSE_S: Final = 0.05
"""Pause before messages are requested again that the server did not have yet."""
FOLLOW_WAIT_S: Final = 2.0
"""Long poll at the end of a channel: after this long without news the reader asks again, in case a leader has died."""
REPLICA_PATIENCE_S: Final = 1.0
"""The time that a replica may lack the requested messages before the leader is asked."""
MESSAGES_FIRST: Final = 1000
"""Messages in one request while their average size is not known."""
ANSWER_BYTES: Final = 2 * MiB
"""Default size of one answer. Larger answers did not measurably help."""
IN_FLIGHT_BYTES_MAX: Final = 16 * MiB
"""Of all answers that one read waits for: nats-server keeps 64 MiB for a slow connection, which may have other reads."""
LOST: Final = "limits have removed them, or the server's log was damaged"
"""The reason why messages are lost, for people."""
FILLED: Final = 0.9
"""Share of an answer that a request aims to fill: a range that does not fit costs a second request."""


class Fetched:
    """An answer to a fetch: messages as the server stores them, and the extent of the channel."""

    def __init__(self, channel: str, response: FetchResponse) -> None:
        """Take *response* over, which loses its records."""
        self.channel = channel
        self.uid = response.uid  # another one if the channel was deleted and made again
        self.cluster = response.cluster.hex()  # another one if the server was set up anew, or the cluster was rescued
        self.first_sequence = response.first_sequence  # oldest message the server has
        self.last_sequence = response.last_sequence  # newest message it has
        self.next_sequence = response.next_sequence  # where to go on
        self.lost_until = response.lost_until  # up to here limits or damage of the log have removed messages
        self.received = len(response.records)  # bytes that came, before they were decompressed
        # `records`: per message u32 little-endian length, MsgProto; `runs`: first_sequence, count, timestamp and position in
        # `records` of consecutive messages.
        self.records, runs = fetches.in_clear(raw(channel), response.records, [*response.runs])
        self.runs = runs
        if self.records and not self.runs:  # a single message so large that the answer had no room for anything else
            sequence, _, _, _, timestamp, *_ = decode_message(self.records[fetches.LENGTH_PREFIX :])
            self.runs.append(Run(first_sequence=sequence, count=1, timestamp=timestamp))
            self.next_sequence = sequence + 1
        response.ClearField("records")  # they may be compressed
        self._response = response

    def __repr__(self) -> str:
        return f"<Fetched {self.channel} {self.count} messages, next {self.next_sequence} of {self.last_sequence}>"

    @cached_property
    def count(self) -> int:
        """Number of messages in this answer."""
        return sum(run.count for run in self.runs)

    @property
    def before_ns(self) -> int:
        """Timestamp of the newest message below the requested sequence; 0: none is there."""
        return self._response.timestamp_before

    @property
    def newest_ns(self) -> int:
        """Timestamp of the channel's newest message, or of the only one here where that left no room for it; 0: there is none,
        or the channel ends before `next_sequence`."""
        if self.next_sequence <= self.last_sequence + 1:
            return self._response.last_timestamp
        return self.runs[-1].timestamp if self.runs else 0

    @property
    def tombstones_until(self) -> int:
        """Up to here tombstones of a compacted channel may be gone."""
        return self._response.tombstones_until

    @property
    def searched_from(self) -> int:
        """The sequence at which the search for a key has ended; 0: there was none."""
        return self._response.searched_from

    def lost(self, position: int) -> Iterator[tuple[int, int]]:
        """Yield the messages from *position* to this answer's end that are lost, as (first, last) sequences: limits or damage of
        the log have removed them. What was compacted, has expired or was deleted is no loss. Where the channel begins behind the
        answer, they go up to there."""
        runs = [(run.first_sequence, run.first_sequence + run.count) for run in self.runs]
        for begin, end in (*runs, (max(self.next_sequence, self.first_sequence), 0)):
            last = min(begin - 1, self.lost_until)
            if position <= last:
                yield position, last
            position = max(position, end)

    def messages(self) -> list[Message]:
        """Decode the messages of this answer."""
        channel = self.channel
        return [
            Message(
                sequence,
                channel,
                text_of(reply) if reply else "",
                data,
                timestamp,
                headers=headers,
                key=key,
                expires_at_ns=expires,
            )
            for sequence, _, reply, data, timestamp, _, _, headers, key, expires in map(
                decode_message, fetches.messages(self.records, self.runs)
            )
        ]


class Fetcher:
    """Sends fetch requests; one per client. *ready* returns the inbox for the answers, waiting while there is none."""

    def __init__(self, ready: Callable[[], Awaitable[Inbox]], cluster_id: str, patience_s: float) -> None:
        self._ready = ready
        self._leader, self._replica = (subject.encode() for subject in fetch_subjects(cluster_id))
        self._info = f"{extension_subject(cluster_id)}.info".encode()
        self.patience_s = patience_s

    async def payload_max(self) -> int:
        """Size of the largest possible answer, in bytes."""
        return (await self._ready()).link.max_payload

    async def fetch(self, request: FetchRequest, *, from_replica: bool, timeout_s: float | None = None) -> Fetched:
        """Request one answer, for *timeout_s* seconds at most; None: the client's patience. If no replica answers, or one refuses
        (it may not know the channel yet), the request goes to the leader.

        Raises:
            ServerError: refused. FetchTimeoutError: no answer in time. ConnectionClosedError: the client is closed.
        """
        channel = text_of(request.channel)
        payload = request.SerializeToString()
        pause = RETRY_FIRST_S
        try:
            async with asyncio.timeout(self.patience_s if timeout_s is None else timeout_s):
                while True:
                    inbox = await self._ready()
                    frame = await inbox.ask(self._replica if from_replica else self._leader, payload)
                    if frame is not None and not frame.no_responders:
                        response = _decoded(frame.payload)
                        if not response.error:
                            return Fetched(channel, response)
                        if not response.retry and not from_replica:
                            raise ServerError(text_of(response.error), response.error_code)
                        from_replica = from_replica and response.retry
                    elif from_replica:
                        from_replica = False
                        continue
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, RETRY_MAX_S)
        except TimeoutError:
            raise FetchTimeoutError from None

    async def news(self, channel: bytes, sequence: int) -> None:
        """Wait until there may be a message after *sequence*, for some seconds at most. Only a hint: there may be none."""
        inbox = await self._ready()
        request = InfoRequest(
            channels=[channel],
            newer_than=[Position(channel=channel, sequence=sequence)],
            wait_ms=int(1000 * FOLLOW_WAIT_S),
        )
        reported = False

        def accept(frame: Frame) -> bool:
            nonlocal reported
            with contextlib.suppress(DecodeError):
                reported = bool(InfoResponse.FromString(frame.payload).channels)
            return reported or frame.no_responders

        await inbox.ask_all(self._info, request.SerializeToString(), accept, FOLLOW_WAIT_S + RETRY_MAX_S)
        if not reported:  # no leader, or not connected
            await asyncio.sleep(FOLLOW_PAUSE_S)


def _decoded(payload: bytes) -> FetchResponse:
    try:
        return FetchResponse.FromString(payload)
    except DecodeError:
        raise ServerError("stan: malformed fetch response") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of one read of a channel."""

    follow: bool = False
    requests_in_flight: int = 4
    max_bytes: int = 0  # of one answer; 0: ANSWER_BYTES; never more than NATS takes
    from_replica: bool = False
    last: int = 0  # highest sequence to read, 0: no bound; the reader waits if replicas do not have it yet
    uid: int = 0  # the channel must be this one, 0: any
    cluster: str = ""  # and of this cluster, "": of any
    read_ns: int = 0  # `newest_ns` of the answer before the start, 0: not known
    timeout_s: float | None = None  # of each request, None: the client's


class Reader:
    """Reads one channel, answer by answer."""

    def __init__(self, fetcher: Fetcher, channel: str, options: ReadOptions) -> None:
        self._fetcher = fetcher
        self._channel = raw(channel)
        self._options = options
        self._answer_max = 0
        self._uid, self._cluster = options.uid, options.cluster
        self._from_replica = options.from_replica
        self._read_up_to = 0  # newest sequence that was read
        self._read_ns = options.read_ns
        self._end = 0  # newest sequence known, or `last` of the options
        self._step = MESSAGES_FIRST  # messages in one request
        self._requested: deque[tuple[int, asyncio.Task[Fetched]]] = deque()  # last sequence of a range, its request

    async def answers(self, start: Start) -> AsyncGenerator[Fetched, None]:
        """Yield the messages from *start* on: up to the newest at the time of the first answer or, with `follow`, for ever.
        Errors as of `fetch`, and ChannelReplacedError."""
        options = self._options
        payload_max = await self._fetcher.payload_max()
        self._answer_max = min(options.max_bytes or ANSWER_BYTES, payload_max)
        in_flight = min(options.requests_in_flight, max(1, IN_FLIGHT_BYTES_MAX // self._answer_max))
        where = start.fetch_start()
        if options.read_ns:
            self._read_up_to = where.get("from_sequence", 1) - 1
        answer = self._follows(await self._fetch(**where, last=options.last))
        if answer.count and not self._end:  # a large message left no room for the newest sequence in the answer
            await self._fetch()
        yield answer
        done = requested_up_to = answer.next_sequence - 1  # last sequences that were yielded, and requested
        try:
            while True:
                while len(self._requested) < in_flight and requested_up_to < self._end:
                    first, requested_up_to = requested_up_to + 1, min(requested_up_to + self._step, self._end)
                    task = asyncio.create_task(self._fetch(from_sequence=first, last=requested_up_to))
                    self._requested.append((requested_up_to, task))
                if self._requested:
                    last, task = self._requested[0]
                    answer = self._follows(await task)
                    self._requested.popleft()
                elif options.follow:
                    last, answer = 0, await self._news(done)
                    requested_up_to = answer.next_sequence - 1
                else:
                    return
                yield answer
                done = answer.next_sequence - 1
                async for answer in self._rest(done + 1, last):
                    yield answer
                    done = answer.next_sequence - 1
                if done < last:
                    return  # the channel ends here
        finally:
            for _, task in self._requested:
                task.cancel()

    async def _news(self, done: int) -> Fetched:
        """Wait at the end of the channel and fetch the next messages; the answer may hold none."""
        await self._fetcher.news(self._channel, done)
        answer = self._follows(await self._fetch(from_sequence=done + 1))
        if not answer.count:  # a replica may not have them yet
            await asyncio.sleep(FOLLOW_PAUSE_S)
        return answer

    async def _rest(self, first: int, last: int) -> AsyncGenerator[Fetched, None]:
        """Fetch the rest of a range that did not fit into the first answer. A replica may lack the rest: if it does not catch up
        within REPLICA_PATIENCE_S, the leader gets all further requests."""
        clock = asyncio.get_running_loop().time
        leader_at = clock() + REPLICA_PATIENCE_S
        while first <= last:
            of_replica = self._from_replica
            answer = self._follows(await self._fetch(from_sequence=first, last=last))
            if answer.next_sequence > first:
                yield answer
                first = answer.next_sequence
                leader_at = clock() + REPLICA_PATIENCE_S
            elif of_replica:
                await asyncio.sleep(FOLLOW_PAUSE_S)
                self._from_replica = clock() < leader_at
            else:
                return

    def _follows(self, answer: Fetched) -> Fetched:
        """Return *answer*, which comes after all others. Raises ChannelReplacedError: the channel has lost messages that were
        read, and ends before them, or has newer ones in their place."""
        shorter = answer.uid and not self._options.from_replica and answer.last_sequence < self._read_up_to
        if shorter or 0 < self._read_ns < answer.before_ns:
            raise ChannelReplacedError
        self._read_ns = max(self._read_ns, answer.newest_ns)
        if answer.runs:
            self._read_up_to = answer.runs[-1].first_sequence + answer.runs[-1].count - 1
        return answer

    async def _fetch(self, **limits: Any) -> Fetched:
        options, from_replica = self._options, self._from_replica
        request = FetchRequest(channel=self._channel, max_bytes=options.max_bytes, compressed=True, **limits)
        answer = await self._fetcher.fetch(request, from_replica=from_replica, timeout_s=options.timeout_s)
        # 0 and "": the answer had no room for them.
        same = not self._uid or answer.uid in (0, self._uid)
        if not same or (self._cluster and answer.cluster not in ("", self._cluster)):
            raise ChannelReplacedError
        self._uid, self._cluster = self._uid or answer.uid, self._cluster or answer.cluster
        end = answer.last_sequence
        if options.last:  # a replica may not have it yet
            end = options.last if from_replica else min(end, options.last)
        if options.last or options.follow or not self._end:
            self._end = max(self._end, end)
        if answer.count:
            weight = len(answer.records) + fetches.RUN_ROOM * len(answer.runs)
            self._step = max(1, int(FILLED * self._answer_max * answer.count / weight))
        return answer


def is_deletion(message: Message) -> bool:
    """True if a message deletes its key: a tombstone."""
    headers = (name.encode() for name in message.headers)
    return deletes(message.key, message.data, headers)

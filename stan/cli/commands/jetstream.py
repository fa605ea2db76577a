"""`stan export --to jetstream`: channels become streams of JetStream, durables and queue groups become pull consumers.

    positions ─► newest sequence ─► messages up to it, in order ─► stream ─► one consumer per position

Each message has its sequence and its time in headers (`Stan-Sequence`, `Stan-Time-Ns`). Promises: a stream has each message once
and in order, also if the command is interrupted and given again, since a publish names the sequence that the stream must end
with; a consumer gets what its position had not acknowledged, and then what follows, and nothing that it had acknowledged.
"""

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

import stan_client
from stan_client.requests.names import raw
from stan_client.transport.connection import ClientConnection
from stan_client.transport.session import fresh_id
from stan_protocol.admin_types import ChannelStatus, CursorKind, CursorStatus
from stan_protocol.frames import Frame
from stan_protocol.kernel.rows import Headers, columns
from stan_protocol.nats_client import Error as NatsError
from stan_protocol.scalars import SECOND
from stan_protocol.secure import without_secrets
from stan_protocol.units import INT64_MAX, counted

from stan.cli.support.common import EXIT_UNREACHABLE, CliError, Target
from stan.cli.support.jetstream_api import ApiRefusalError, StreamsApi, header_fields
from stan.cli.support.output import Table
from stan.cli.support.progress import bar
from stan.cli.support.session import session
from stan.status.positions import full_name

PATIENCE_S: Final = 60.0
CONNECT_S: Final = 5.0
ANSWER_S: Final = 30.0
"""The patience for an answer of JetStream."""
FLIGHT_MAX: Final = 1000
"""Messages that are published before their acks are awaited."""
FLIGHT_BYTES: Final = 1 << 20
FETCHED_MAX: Final = 500
"""Messages that a consumer is asked for together, to acknowledge what its position had acknowledged."""
NAME_MAX: Final = 200
NAK: Final = b"-NAK"
DURABLES: Final = (CursorKind.DURABLE, CursorKind.DURABLE_QUEUE)
SEQUENCE: Final = "Stan-Sequence"
CHANNEL: Final = "stan-channel"
UID: Final = "stan-uid"
POSITION: Final = "stan-position"
DELIVERED: Final = "stan-delivered"
"""Metadata of a consumer: how many deliveries it had when it was made, so that one that is in use is not made again."""

_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_SUBJECT: Final = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
_HEADER_NAME: Final = re.compile(rb"[!-9;-~]+")


@dataclass(frozen=True, slots=True)
class JetStreamPlace:
    """The NATS in which streams are made, and how."""

    url: str = ""  # "": the NATS of the cluster, with its login
    creds: str = ""
    replicas: int = 1


@dataclass(slots=True)
class ExportedChannel:
    """A channel, its stream and its consumers when the command ends."""

    channel: str
    stream: str
    published: int = 0  # in this run
    messages: int = 0  # that the stream has
    consumers: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """It as JSON."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


async def export_channels(target: Target, pattern: str, place: JetStreamPlace) -> Table:
    """Copy the channels that match *pattern*; returns what became of each. Raises CliError."""
    async with session(target, timeout_s=PATIENCE_S) as direct:
        channels = await direct.admin.channels(pattern)
        if not channels:
            raise CliError(f"No channel matches {pattern!r}. All of them: stan channel list")
        link = ClientConnection()
        try:
            url = place.url or target.server
            creds = {"user_credentials": place.creds} if place.creds else {}
            await link.open(url.split(","), creds if place.url else target.nats_options() | creds, CONNECT_S)
        except stan_client.StanClientError as error:
            raise CliError(f"{error} (--jetstream)", EXIT_UNREACHABLE) from None
        try:
            with bar("Exporting", sum(one.messages for one in channels)) as advance:
                streams = _Streams(direct, link, target.cluster_id, place.replicas)
                await streams.publisher.open()
                done = [await streams.export(one, advance) for one in channels]
        except (ApiRefusalError, NatsError, TimeoutError) as error:
            where = without_secrets(place.url or target.server)
            text = str(error) or type(error).__name__
            raise CliError(
                f"JetStream at {where} refuses or does not answer: {text}. The same command goes on from here."
            ) from None
        finally:
            await link.shut()
    return _table(done)


def _table(done: Sequence[ExportedChannel]) -> Table:
    notes = [f"Note: {one.channel}: {note}." for one in done for note in one.notes]
    return Table(
        columns=("CHANNEL", "STREAM", ">MESSAGES", ">NEW", "CONSUMERS"),
        rows=[
            (one.channel, one.stream, f"{one.messages:,}", f"{one.published:,}", ", ".join(one.consumers) or "-")
            for one in done
        ],
        document={"channels": [one.document() for one in done]},
        names=[one.stream for one in done],
        foot="\n".join(notes),
    )


# --- publishing -------------------------------------------------------------------------------------------------------------


class _Publisher:
    """Publishes to streams, many messages before their acks are awaited."""

    def __init__(self, link: ClientConnection) -> None:
        self.link = link
        self.waiting: set[int] = set()
        self.error = ""
        self.done = asyncio.Event()
        self.inbox = f"_INBOX.{fresh_id()}"

    async def open(self) -> None:
        """Listen for acks."""
        await self.link.listen(f"{self.inbox}.*", self._acked)

    def _acked(self, frames: list[Frame]) -> None:
        for frame in frames:
            self.waiting.discard(int(frame.subject.rpartition(b".")[2]))
            if frame.no_responders:
                self.error = (
                    self.error or "there is no JetStream at this NATS (nats-server -js), or not in this account"
                )
                continue
            answer = json.loads(frame.payload)
            if "error" in answer:
                self.error = self.error or str(answer["error"].get("description", answer["error"]))
        if not self.waiting:
            self.done.set()

    async def publish(self, subject: str, messages: Sequence[tuple[bytes, bytes]], last: int) -> int:
        """Publish headers and payloads to a stream that ends with sequence *last*; returns the one that it ends with then.

        Raises:
            NatsError: not all are stored.
        """
        self.done.clear()
        self.error, self.waiting = "", set(range(len(messages)))
        for number, (headers, payload) in enumerate(messages):
            head = b"NATS/1.0\r\nNats-Expected-Last-Sequence: %d\r\n%s\r\n" % (last + number, headers)
            size = len(head) + len(payload)
            self.link.send(
                b"HPUB %s %s.%d %d %d\r\n%s%s\r\n"
                % (raw(subject), self.inbox.encode(), number, len(head), size, head, payload)
            )
        try:
            async with asyncio.timeout(ANSWER_S):
                await self.done.wait()
        except TimeoutError:
            raise NatsError(f"no ack within {ANSWER_S:.0f} s") from None
        if self.error:
            raise NatsError(self.error)
        return last + len(messages)


def _headers(sequence: int, time_ns: int, reply: str, key: bytes, headers: Headers) -> bytes:
    """The headers of a message as lines; those that NATS cannot carry as they are come in base64."""
    lines = [b"%s: %d" % (SEQUENCE.encode(), sequence), b"Stan-Time-Ns: %d" % time_ns]
    own = [(b"Stan-Reply", raw(reply))] if reply else []
    own += [(b"Stan-Key", key)] if key else []
    for name, value in [*own, *headers]:
        if _HEADER_NAME.fullmatch(name) and _is_text(value):
            lines.append(b"%s: %s" % (name, value))
        else:
            lines.append(b"Stan-Header-Base64: %s %s" % (base64.b64encode(name), base64.b64encode(value)))
    return b"".join(line + b"\r\n" for line in lines)


def _is_text(value: bytes) -> bool:
    """True if the value of a header is text that arrives as it is."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return False
    return text.isprintable() and text == text.strip()


# --- streams ----------------------------------------------------------------------------------------------------------------


class _Streams:
    """The streams of channels."""

    def __init__(self, direct: stan_client.Direct, link: ClientConnection, cluster_id: str, replicas: int) -> None:
        self.direct, self.link = direct, link
        self.cluster_id, self.replicas = cluster_id, replicas
        self.publisher = _Publisher(link)
        self.api = StreamsApi(link, ANSWER_S)

    async def export(self, status: ChannelStatus, advance: Callable[[int], None]) -> ExportedChannel:
        """Copy one channel."""
        name, admin = status.name, self.direct.admin
        positions = await admin.subscriptions(name)
        now = await admin.channel(name)  # after the positions: messages that they count as sent are there
        if now is None or now.uid != status.uid:
            return ExportedChannel(name, "-", notes=["it was deleted meanwhile"])
        stream = await self._stream(now)
        done = ExportedChannel(name, stream["config"]["name"])
        last = await self._messages(now, stream, done, advance)
        consumers = _Consumers(self.api, done, last)
        for position in positions:
            if position.kind in DURABLES:
                await consumers.make(position)
        await self._limit(now, done)
        ended = sum(position.kind not in DURABLES for position in positions)
        if ended:
            done.notes.append(f"{counted(ended, 'subscription')} without a durable name ended with its client")
        if now.delayed:
            done.notes.append(
                f"{counted(now.delayed, 'delayed message')} stay behind: export once more when they are due"
            )
        return done

    async def _stream(self, channel: ChannelStatus) -> dict[str, Any]:
        """The stream of a channel, made if there is none."""
        metadata = {CHANNEL: channel.name, UID: str(channel.uid), "stan-cluster": self.cluster_id}
        for name in _names(channel.name):
            known = await self.api.find(f"STREAM.INFO.{name}")
            if known is None:
                subject = channel.name if _SUBJECT.fullmatch(channel.name) else name
                config = {
                    "name": name,
                    "subjects": [subject],
                    "num_replicas": self.replicas,
                    "first_seq": max(channel.first_sequence, 1),
                    "metadata": metadata,
                }
                return await self.api.ask(f"STREAM.CREATE.{name}", config)
            if known["config"].get("metadata", {}).get(UID) == metadata[UID]:
                return known
        raise CliError(f"Streams {' and '.join(_names(channel.name))} are there, and not of channel {channel.name}.")

    async def _messages(
        self, channel: ChannelStatus, stream: dict[str, Any], done: ExportedChannel, advance: Callable[[int], None]
    ) -> int:
        """Publish what the stream does not have yet; returns the sequence that it ends with."""
        subject, end = (stream["config"].get("subjects") or [""])[0], int(stream["state"]["last_seq"])
        first = max(channel.first_sequence, 1)
        done.messages = stream["state"]["messages"]
        if done.messages:
            first = max(first, await _sequence_at(self.api, done.stream, end) + 1)
        if first > channel.last_sequence:
            return end
        answers = self.direct.batches.read_range(channel.name, first, channel.last_sequence, uid=channel.uid)
        async with aclosing(answers):
            async for answer in answers:
                for together in self._flights(answer):
                    end = await self.publisher.publish(subject, together, end)
                    done.messages += len(together)
                    done.published += len(together)
                    advance(len(together))
        return end

    def _flights(self, answer: stan_client.Fetched) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield headers and payloads of the messages of an answer, as many as are published together."""
        flight: list[tuple[bytes, bytes]] = []
        size = 0
        pairs = columns(answer.records, answer.count, headers=True).headers or [()] * answer.count
        for message, own in zip(answer.messages(), pairs, strict=True):
            headers = _headers(message.sequence, message.timestamp_ns, message.reply, message.key, own)
            length = len(headers) + len(message.data)
            if length + 100 > self.link.max_payload:
                raise CliError(
                    f"Message {message.sequence} of channel {message.channel} has {length:,} bytes with its headers; this "
                    f"NATS takes {self.link.max_payload:,}. Raise its max_payload; the same command goes on from here."
                )
            if flight and (len(flight) == FLIGHT_MAX or size + length > FLIGHT_BYTES):
                yield flight
                flight, size = [], 0
            flight.append((headers, message.data))
            size += length
        if flight:
            yield flight

    async def _limit(self, channel: ChannelStatus, done: ExportedChannel) -> None:
        """Give the stream the limits of its channel, now that all is there. The limit of bytes would count the headers."""
        limits = channel.limits
        if not (limits.max_msgs or limits.max_age):
            return
        config = (await self.api.ask(f"STREAM.INFO.{done.stream}"))["config"]
        config |= {"max_msgs": limits.max_msgs or -1, "max_age": limits.max_age or 0}
        config["duplicate_window"] = min(config.get("duplicate_window", 0), limits.max_age or INT64_MAX)
        await self.api.ask(f"STREAM.UPDATE.{done.stream}", config)
        if limits.max_age:
            done.notes.append("its limit of age counts from this export on")


def _names(original: str) -> tuple[str, str]:
    """Names for JetStream, which takes letters, digits, - and _: the second one is nobody else's."""
    name = _NOT_IN_A_NAME.sub("_", original)[:NAME_MAX]
    return name, f"{name}-{hashlib.sha256(raw(original)).hexdigest()[:8]}"


async def _sequence_at(api: StreamsApi, stream: str, at: int) -> int:
    """The channel's sequence of the message at sequence *at* of its stream."""
    headers = await api.headers_of(stream, at)
    if SEQUENCE not in headers:
        raise CliError(f"Message {at} of stream {stream} was not exported: something else publishes into it.")
    return int(headers[SEQUENCE])


# --- consumers --------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Consumers:
    """The consumers of one stream."""

    api: StreamsApi
    done: ExportedChannel
    last: int  # sequence of the stream

    async def make(self, position: CursorStatus) -> None:
        """Make the consumer of a durable or durable queue group, where that is."""
        title, stream = full_name(position), self.done.stream
        known, name = await self._known(title)
        if known is not None:
            used = str(known["delivered"]["consumer_seq"])
            if used != known["config"].get("metadata", {}).get(DELIVERED, used):
                self.done.notes.append(f"consumer {name} is in use, and was left as it is")
                self.done.consumers.append(name)
                return
            await self.api.ask(f"CONSUMER.DELETE.{stream}.{name}")
        pending = _pending(position)
        start = pending[0][0] if pending else position.last_sent + 1
        begin = await self._locate(start)
        metadata = {POSITION: title, "stan-last-sent": str(position.last_sent)}
        window = position.max_in_flight or FLIGHT_MAX
        config: dict[str, Any] = {
            "durable_name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": begin,
            "ack_policy": "explicit",
            "ack_wait": max(position.ack_wait_s, 1) * SECOND,
            "metadata": metadata,
        }
        count = sum(last - first + 1 for first, last in pending)
        await self._set(name, config | {"max_ack_pending": max(window, count + FETCHED_MAX)})
        delivered = 0
        if count < position.last_sent - start + 1:
            delivered = await self._acknowledge(name, pending, begin, position.last_sent)
        metadata[DELIVERED] = str(delivered)
        await self._set(name, config | {"max_ack_pending": window})
        self.done.consumers.append(name)

    async def _set(self, name: str, config: dict[str, Any]) -> None:
        """Make a consumer, or change it."""
        stream = self.done.stream
        await self.api.ask(f"CONSUMER.DURABLE.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})

    async def _known(self, title: str) -> tuple[dict[str, Any] | None, str]:
        """The consumer of a position, if it is there, and its name."""
        for name in _names(title):
            known = await self.api.find(f"CONSUMER.INFO.{self.done.stream}.{name}")
            if known is None or known["config"].get("metadata", {}).get(POSITION) == title:
                return known, name
        raise CliError(f"Consumers {' and '.join(_names(title))} of stream {self.done.stream} are not of {title}.")

    async def _locate(self, sequence: int) -> int:
        """The stream's sequence of the first message that has the channel's *sequence* or a later one; behind the end if there
        is none."""
        low, high = self.last - self.done.messages + 1, self.last + 1
        while low < high:
            middle = (low + high) // 2
            if await _sequence_at(self.api, self.done.stream, middle) < sequence:
                low = middle + 1
            else:
                high = middle
        return low

    async def _acknowledge(self, name: str, pending: list[tuple[int, int]], begin: int, last_sent: int) -> int:
        """Acknowledge what the position had acknowledged among what it had not, from sequence *begin* of the stream on; returns
        how many were delivered for that."""
        end = await self._locate(last_sent + 1)
        waiting: list[Frame] = []
        delivered = 0
        while begin + delivered < end:
            count = min(FETCHED_MAX, end - begin - delivered)  # not more: it would be waited for
            for message in await self.api.pull(self.done.stream, name, count):
                delivered += 1
                sequence = int(header_fields(message.header)[SEQUENCE])
                if any(first <= sequence <= last for first, last in pending):
                    waiting.append(message)
                else:
                    await self.api.say(message)
        for message in waiting:
            await self.api.say(message, NAK)
        return delivered


def _pending(position: CursorStatus) -> list[tuple[int, int]]:
    """The runs of a position that are not acknowledged, in order; all behind its oldest pending message, if the answer of its
    leader had no room for all runs."""
    if position.runs_cut:
        return [(position.acked_up_to + 1, position.last_sent)]
    return sorted((*position.owed_runs, *position.pending_runs))

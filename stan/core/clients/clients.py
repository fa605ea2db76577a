"""Clients on the leader of the metadata group: connect, duplicate check, heartbeats, pings, close (STAN-SPEC 3)."""

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TypeVar

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
from stan.core.leader.local_group import ChannelGroup
from stan.core.services.node import META_GROUP
from stan.core.services.proposals import Done, nobody_waits
from stan.core.services.services import Services
from stan.core.state.meta import Client, MetaResult
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.requests import because, decode
from stan.protocol.user_subjects import said_by

Key = TypeVar("Key", bytes, tuple[bytes, bytes])
CLIENT_ID = re.compile(rb"[a-zA-Z0-9_-]+\Z")
FEATURES = Feature.CONTEXT | Feature.VERDICTS | Feature.DELAYS | Feature.TTL
"""What clients are told of this server."""


@dataclass(slots=True)
class Heartbeat:
    """Heartbeats of one connection; not replicated."""

    client: Client
    failures: int = 0
    waiting: int = 0  # due_at of the heartbeat that awaits its answer; 0 = none
    due_at: int = 0  # Nanos of the armed timer


@dataclass(slots=True)
class Closing:
    """A connection that is gone while its subscriptions are being closed; the CloseRequests are answered after the last one."""

    left: set[tuple[GroupId, int]]  # group, subscription id
    replies: list[bytes] = field(default_factory=list)  # of the CloseRequests


Waiting = tuple[wire.ConnectRequest, bytes]
"""A ConnectRequest, and the reply subject of its answer."""
Identity = tuple[bytes, bytes]
"""Connection id and heartbeat inbox: what tells one ConnectRequest from another one."""


class Clients:
    """Handles connects, heartbeats, pings and closes of clients on the leader of the metadata group; on every node, closes the
    subscriptions of connections that are gone in the groups led there."""

    def __init__(self, services: Services) -> None:
        self.faults, self.leading, self.nats, self.node = (
            services.faults,
            services.leading,
            services.nats,
            services.node,
        )
        self.outgoing, self.proposals, self.reports = services.outgoing, services.proposals, services.reports
        self.requests, self.senders, self.timers = services.requests, services.senders, services.timers
        self.heartbeats: dict[int, Heartbeat] = {}  # by incarnation
        self.closing: dict[int, Closing] = {}  # by incarnation
        self.checking: dict[bytes, Identity] = {}  # client id -> its connect that is under way
        self.next: dict[bytes, Waiting | None] = {}  # client id being registered -> the connect that is handled next
        self.heard: dict[bytes, int] = {}  # client id -> Nanos of its CloseRequest, if another node leads the metadata
        self.gone: dict[Identity, int] = {}  # connections that ended lately -> Nanos when
        config = services.node.config
        subjects = services.nats.subjects
        self.template = wire.ConnectResponse(
            pub_prefix=subjects.pub_prefix.encode(),
            sub_requests=subjects.sub.encode(),
            unsub_requests=subjects.unsub.encode(),
            close_requests=subjects.close.encode(),
            sub_close_requests=subjects.sub_close.encode(),
            protocol=1,
        )
        self.heartbeat = config.heartbeat

    # --- leadership ---------------------------------------------------------------------------------------------------

    def lead(self) -> None:
        """This node leads the metadata from now on: each client gets a full interval before its next heartbeat."""
        for client in self.node.meta.clients.values():
            self.watch(client)

    def follow(self) -> None:
        """This node no longer leads the metadata: heartbeats stop, and requests under way stay unanswered."""
        self.heartbeats.clear()
        self.checking.clear()
        self.next.clear()
        for closing in self.closing.values():
            closing.replies.clear()

    def lead_group(self, number: GroupId) -> None:
        """This node leads a channel group from now on: close the subscriptions that gone connections still have in it."""
        group = self.node.groups[number]
        known = {client.incarnation for client in self.node.meta.clients.values()}
        for incarnation in sorted(
            set(group.machine.subscriptions.by_incarnation) - known - self.senders.closing.keys()
        ):
            if incarnation <= self.node.meta.applied:  # else this copy of the metadata is behind
                self._note_ghosts(group, incarnation)
                self.close_subscriptions(incarnation, number)
        for client in self.node.meta.clients.values():
            if client.failing:
                group.dispatch.set_failed_heartbeat(client.incarnation, failed=True)

    def follow_group(self, number: GroupId) -> None:
        """This node no longer leads a group: the next leader closes the subscriptions that are left."""
        for incarnation, closing in list(self.closing.items()):
            closing.left = {key for key in closing.left if key[0] != number}
            self._close_ended(incarnation)

    def _note_ghosts(self, group: ChannelGroup, incarnation: int) -> None:
        for subscription_id in sorted(group.machine.subscriptions.by_incarnation[incarnation]):
            sub = group.machine.subscriptions.by_id[subscription_id]
            if group.machine.cursors[sub.cursor_id].kind.shared:
                who = go_quote(text(sub.client_id))
                self.reports.note("WRN", f"ghost durable queue subscriber: client {who} is not connected any more")

    def reconfigure(self, heartbeat: HeartbeatConfig) -> None:
        """Apply changed heartbeat settings; each client gets a full interval before its next heartbeat."""
        if heartbeat != self.heartbeat:
            self.heartbeat = heartbeat
            for beat in self.heartbeats.values():
                if not beat.waiting:  # a heartbeat under way keeps its old timeout
                    self._arm(beat, heartbeat.interval_ns)

    # --- connect ------------------------------------------------------------------------------------------------------

    def connect(self, frame: Frame) -> None:
        """A ConnectRequest (STAN-SPEC 3.1)."""
        if not self.leading.concerns(META_GROUP):
            return
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
            if self.checking[request.client_id] != _identity_of(request):  # else one answer is enough
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
        elif waiting is None or _identity_of(waiting[0]) != _identity_of(request):
            self._refuse(reply, refusals.CLIENT_REGISTERED)

    def _look(self, request: wire.ConnectRequest, reply: bytes) -> None:
        """Register a client; if its id is taken, first check whether the registered client still answers."""
        old, replaying = self.node.meta.clients.get(request.client_id), self.leading.replaying is not None
        if replaying and _identity_of(request) in self.gone:
            return  # registered again, without its subscriptions, it would never hear that it had been taken for dead
        if old is not None and _is_same(old, request) and (replaying or request.conn_id):
            self._accept(request, reply)  # it was sent twice, or the last leader may have died before it answered
            return
        self.checking[request.client_id] = _identity_of(request)
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
        if not self.node.leads_meta:
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

    def done_before(self, frames: Iterable[Frame]) -> tuple[list[Frame], list[Frame]]:
        """Split replayed *frames*, in order of arrival. First those whose effect the last leader has committed: connects of
        clients that have closed since, closes of clients that have connected again; and connects that were sent again. Then
        unregistered connects that a newer connect of the same client follows: handling them would make the client a duplicate of
        itself."""
        close, discover = self.nats.subjects.close.encode(), self.nats.subjects.discover.encode()
        open_: dict[
            bytes, list[tuple[Frame, bool, Identity]]
        ] = {}  # by client id; True: this connect is the registered one
        closes: dict[bytes, list[Frame]] = {}
        done: list[Frame] = []
        followed: list[Frame] = []
        for frame in frames:
            with contextlib.suppress(DecodeError):
                if frame.subject == close:
                    client_id = decode(wire.CloseRequest, frame.payload).client_id
                    done += [connect for connect, _, _ in open_.pop(client_id, [])]
                    closes.setdefault(client_id, []).append(frame)
                elif frame.subject == discover:
                    request = decode(wire.ConnectRequest, frame.payload)
                    client_id, identity = request.client_id, _identity_of(request)
                    done += closes.pop(client_id, [])
                    before = open_.get(client_id, [])
                    done += [connect for connect, _, same in before if same == identity]
                    before = [one for one in before if one[2] != identity]
                    followed += [connect for connect, known, _ in before if not known]
                    there = self.node.meta.clients.get(client_id)
                    mine = there is not None and _is_same(there, request)
                    open_[client_id] = [*(one for one in before if one[1]), (frame, mine, identity)]
        return done, followed

    def unregistered(self, frames: Iterable[Frame]) -> list[Frame]:
        """The connects among recent *frames*, in order of arrival, whose client is not registered, has not closed since, and has
        sent no newer one: their client may still wait for an answer."""
        frames = list(frames)
        settled = {id(frame) for frame in chain(*self.done_before(frames))}
        discover, known = self.nats.subjects.discover.encode(), self.node.meta.clients
        connects: list[Frame] = []
        for frame in frames:
            if frame.subject == discover and id(frame) not in settled:
                with contextlib.suppress(DecodeError):
                    request = decode(wire.ConnectRequest, frame.payload)
                    there = known.get(request.client_id)
                    if there is None or not _is_same(there, request):
                        connects.append(frame)
        return connects

    def refuse_followed(self, frames: Iterable[Frame]) -> None:
        """Refuse connects that were followed by a newer connect of the same client."""
        if self.leading.concerns(META_GROUP):
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
        response.CopyFrom(self.template)
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

    def close(self, frame: Frame) -> None:
        """A CloseRequest (STAN-SPEC 3.6). The client's earlier publishes and acks are handled already: one NATS connection
        carries all frames, in order."""
        try:
            client_id = decode(wire.CloseRequest, frame.payload).client_id
        except DecodeError:
            if self.leading.concerns(META_GROUP):
                self._refuse_close(frame.reply, refusals.INVALID_CLOSE)
            return
        if not self.leading.concerns(META_GROUP):
            if not self.node.leads_meta and self.leading.replaying is None:
                self._hear_close(client_id)
            return
        client = self.node.meta.clients.get(client_id)
        if client is None:
            done = self.leading.replaying is not None  # by the previous leader, which may have died before it answered
            self._refuse_close(frame.reply, "" if done else refusals.UNKNOWN_CLIENT)
            return
        self.disconnect(client, partial(self._disconnected, client, frame.reply), asked=True)

    def _hear_close(self, client_id: bytes) -> None:
        """A CloseRequest arrived on a node that does not lead the metadata: all that the client sent before has arrived, too. The
        metadata removes the client later, or has done so already."""
        if not self.release(client_id):
            now = self.node.clock.now
            _remember(self.heard, client_id, now)

    def release(self, client_id: bytes) -> bool:
        """Close the subscriptions of the client's closed connections now, as nothing more can arrive from them. True if there
        were any such connections."""
        gone = [client for client in self.senders.closing.values() if client.client_id == client_id]
        for client in gone:
            self._let_go(client.incarnation)
        return bool(gone)

    def _let_go(self, incarnation: int) -> None:
        if self.senders.closing.pop(incarnation, None) is not None:
            self.close_subscriptions(incarnation)

    def _refuse_close(self, reply: bytes, error: str) -> None:
        self.outgoing.respond(reply, wire.CloseResponse(error=error.encode()).SerializeToString())

    def disconnect(self, client: Client, done: Done, *, asked: bool) -> None:
        """Propose to remove *client*; *asked*: the client closed its connection itself."""
        gone = pb.Disconnect(client_id=client.client_id, incarnation=client.incarnation, asked=asked)
        self.proposals.change_meta(done, disconnect=gone)

    def _disconnected(self, client: Client, reply: bytes, result: object, error: str) -> None:
        if not isinstance(result, MetaResult):
            self._refuse_close(reply, error)
        elif client.incarnation in self.closing:
            self.closing[client.incarnation].replies.append(reply)
        else:
            self.outgoing.respond(reply, b"")

    def applied(self, result: MetaResult) -> None:
        """A META entry was applied, on any node: start and stop heartbeats, close the subscriptions of a gone connection."""
        if result.gone is not None:
            self._gone(result.gone, asked=result.asked)
        if self.node.leads_meta:
            self._tell(result)
        if result.connected is not None and self.node.leads_meta:
            self.watch(result.connected)
        if result.beaten is not None:
            beaten = result.beaten
            for number, group in (*self.leading.led, *self.leading.serving.groups):
                told = partial(group.dispatch.set_failed_heartbeat, beaten.incarnation, failed=beaten.failing)
                self.faults.within(number, told)

    def _tell(self, result: MetaResult) -> None:
        """Publish the admin event that a client connected or is gone."""
        client = result.connected or result.gone
        if client is None:
            return
        name, kind, how = go_quote(text(client.client_id)), "client_connected", "has connected"
        if result.connected is None:
            kind, how = ("client_closed", "has closed") if result.asked else ("client_lost", "is gone")
        self.reports.emit(kind, f"client {name} {how}", client_id=client.client_id)

    def _gone(self, client: Client, *, asked: bool) -> None:
        """Close the subscriptions of a gone client. A close is a barrier: what the client sent before its CloseRequest may arrive
        at this node only after the metadata entry. So the client counts as closing until its CloseRequest arrives here, at most
        CLOSE_PATIENCE."""
        self.heartbeats.pop(client.incarnation, None)
        _remember(self.gone, _identity_of(client), self.node.clock.now)
        heard = self.heard.pop(client.client_id, None)
        if asked and not self.node.leads_meta and heard is None:
            self.senders.closing[client.incarnation] = client
            until = self.node.clock.now + limits.CLOSE_PATIENCE
            self.timers.at(until, lambda _now: self._let_go(client.incarnation), META_GROUP)
        else:
            self.close_subscriptions(client.incarnation)

    def close_subscriptions(self, incarnation: int, only: GroupId | None = None) -> None:
        """Close (not unsubscribe) all subscriptions of a gone connection (STAN-SPEC 3.4) in the groups that this node leads, or
        in the group *only*."""
        leaves = [leave for leave in self.leading.subscriptions_of(incarnation) if only in (None, leave[0])]
        if leaves:
            self.closing.setdefault(incarnation, Closing(set())).left.update(leaves)
        for group, subscription_id in leaves:
            left = partial(self._left, incarnation, group, subscription_id)
            self.faults.within(group, self.proposals.end, group, subscription_id, left)

    def _left(self, incarnation: int, group: GroupId, subscription_id: int) -> None:
        closing = self.closing.get(incarnation)
        if closing is not None:  # else it was closed more than once, or in an earlier leadership of this node
            closing.left.discard((group, subscription_id))
            self._close_ended(incarnation)

    def _close_ended(self, incarnation: int) -> None:
        closing = self.closing[incarnation]
        if not closing.left:
            del self.closing[incarnation]
            for reply in closing.replies:
                self.outgoing.respond(reply, b"")

    # --- heartbeats -------------------------------------------------------------------------------------------------------

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
        self.timers.at(beat.due_at, partial(self._beat, beat, beat.due_at), META_GROUP)

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
        if self.heartbeats.get(beat.client.incarnation) is not beat or beat.waiting != due_at:
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
        if not frame.payload or not self.leading.concerns(META_GROUP):
            return
        client = self.node.meta.by_connection.get((self.senders.user_of(frame.reply), conn_id))
        if client is None:
            error = refusals.CLIENT_REPLACED.encode()
            self.outgoing.respond(frame.reply, wire.PingResponse(error=error).SerializeToString(), (META_GROUP,))
            return
        self.outgoing.respond(frame.reply, b"", (META_GROUP,))
        beat = self.heartbeats.get(client.incarnation)
        if beat is not None and beat.failures:
            beat.waiting = 0  # the heartbeat under way went out while the client did not listen
            self._arm(beat, MILLISECOND)


def _identity_of(one: wire.ConnectRequest | Client) -> Identity:
    """What a request to connect and the client that it has registered have in common."""
    return one.conn_id, one.heartbeat_inbox


def _is_same(client: Client, request: wire.ConnectRequest) -> bool:
    """True if this very *request* registered *client*."""
    return _identity_of(client) == _identity_of(request)


def _remember(times: dict[Key, int], key: Key, now: Nanos) -> None:
    """Note that something happened to *key* at *now*; forget what happened before the requests that a leader may replay."""
    times.pop(key, None)
    times[key] = now  # the oldest are in front
    while times[oldest := next(iter(times))] < now - limits.REPLAY_REQUEST_AGE_MAX:
        del times[oldest]

"""Clients on the leader of the metadata group: connect, duplicate check, heartbeats, pings, close (STAN-SPEC 3)."""

import re
from dataclasses import dataclass, field
from functools import partial

from google.protobuf.message import DecodeError

from stan import errors, limits
from stan.core.meta import Client, MetaResult
from stan.core.shared import Done, Shared, text
from stan.protocol import entries_pb2 as pb
from stan.protocol import wire_pb2 as wire
from stan.protocol.channels import is_inbox
from stan.protocol.frames import Frame
from stan.types import MILLISECOND, SECOND, GroupId, Nanos

CLIENT_ID = re.compile(rb"[a-zA-Z0-9_-]+\Z")


@dataclass(slots=True)
class Beat:
    """Heartbeats of one connection; volatile."""

    client: Client
    failures: int = 0
    waiting: int = 0  # the due_at of the heartbeat that is under way; 0 = none
    due_at: int = 0  # Nanos of the armed timer


@dataclass(slots=True)
class Closing:
    """A connection that is gone while its subscriptions are being closed; who asked is answered after the last of them."""

    left: int
    replies: list[bytes] = field(default_factory=list)


class Clients:
    """See the module's docstring."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.beats: dict[int, Beat] = {}  # by incarnation
        self.closing: dict[int, Closing] = {}  # by incarnation
        self.checking: set[bytes] = set()  # client ids with a connect on its way
        config = shared.config
        subjects = shared.subjects
        self.template = wire.ConnectResponse(
            pub_prefix=subjects.pub_prefix.encode(),
            sub_requests=subjects.sub.encode(),
            unsub_requests=subjects.unsub.encode(),
            close_requests=subjects.close.encode(),
            sub_close_requests=subjects.sub_close.encode(),
            protocol=1,
        )
        self.heartbeat = config.heartbeat

    # --- connect ------------------------------------------------------------------------------------------------------

    def connect(self, frame: Frame) -> None:
        """A ConnectRequest (STAN-SPEC 3.1)."""
        try:
            request = wire.ConnectRequest.FromString(frame.payload)
        except DecodeError:
            request = wire.ConnectRequest()
        if not is_inbox(request.heartbeat_inbox):
            self._refuse(frame.reply, errors.INVALID_CONNECT)
        elif not CLIENT_ID.match(request.client_id):
            self._refuse(frame.reply, errors.INVALID_CLIENT_ID)
        elif request.client_id in self.checking:
            self._refuse(frame.reply, errors.CLIENT_REGISTERED)
        else:
            self.checking.add(request.client_id)
            old = self.shared.meta.clients.get(request.client_id)
            if old is None:
                self._register(request, frame.reply, 0)
            else:
                answered = partial(self._checked, request, frame.reply, old)
                self.shared.request(old.heartbeat_inbox, limits.DUPLICATE_CHECK_TIMEOUT, answered)

    def _checked(self, request: wire.ConnectRequest, reply: bytes, old: Client, alive: bool) -> None:  # noqa: FBT001
        if alive or not self.shared.connected:  # an outage of NATS says nothing about the old client
            self.checking.discard(request.client_id)
            self._refuse(reply, errors.CLIENT_REGISTERED)
            return
        now_there = self.shared.meta.clients.get(request.client_id)
        if now_there is not None:
            self.shared.note(
                "DBG", f"[Client:{text(request.client_id)}] replaced, old inbox {text(old.heartbeat_inbox)}"
            )
        self._register(request, reply, now_there.incarnation if now_there else 0)

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
        self.shared.change_meta(partial(self._registered, request, reply), connect=connect)

    def _registered(self, request: wire.ConnectRequest, reply: bytes, result: object, error: str) -> None:
        self.checking.discard(request.client_id)
        if not isinstance(result, MetaResult) or result.error or result.connected is None:
            self._refuse(reply, result.error if isinstance(result, MetaResult) else error)
            return
        self.shared.note("DBG", f"[Client:{text(request.client_id)}] Connected (Inbox={text(request.heartbeat_inbox)})")
        if not reply:
            return
        response = wire.ConnectResponse()
        response.CopyFrom(self.template)
        if request.protocol >= 1:
            response.ping_requests = self.shared.subjects.pings.encode()
            response.ping_interval = request.ping_interval
            response.ping_max_out = request.ping_max_out
        self.shared.respond(reply, response.SerializeToString())

    def _refuse(self, reply: bytes, error: str) -> None:
        self.shared.respond(reply, wire.ConnectResponse(error=error.encode()).SerializeToString())

    # --- close ----------------------------------------------------------------------------------------------------------

    def close(self, frame: Frame) -> None:
        """A CloseRequest (STAN-SPEC 3.6). What the client published and acked before it was handled before it: one connection
        carries all, in order."""
        try:
            client_id = wire.CloseRequest.FromString(frame.payload).client_id
        except DecodeError:
            self._refuse_close(frame.reply, errors.INVALID_CLOSE)
            return
        client = self.shared.meta.clients.get(client_id)
        if client is None:
            self._refuse_close(frame.reply, errors.UNKNOWN_CLIENT)
            return
        self._disconnect(client, partial(self._disconnected, client, frame.reply))

    def _refuse_close(self, reply: bytes, error: str) -> None:
        self.shared.respond(reply, wire.CloseResponse(error=error.encode()).SerializeToString())

    def _disconnect(self, client: Client, done: Done) -> None:
        """Propose that *client* is gone."""
        gone = pb.Disconnect(client_id=client.client_id, incarnation=client.incarnation)
        self.shared.change_meta(done, disconnect=gone)

    def _disconnected(self, client: Client, reply: bytes, result: object, error: str) -> None:
        if not isinstance(result, MetaResult):
            self._refuse_close(reply, error)
        elif client.incarnation in self.closing:
            self.closing[client.incarnation].replies.append(reply)
        else:
            self.shared.respond(reply, b"")

    def applied(self, result: MetaResult) -> None:
        """A META entry was applied: start and stop heartbeats, close what a gone connection had open."""
        if result.gone is not None:
            self.beats.pop(result.gone.incarnation, None)
            self.close_subscriptions(result.gone.incarnation)
        if result.connected is not None:
            self.watch(result.connected)

    def close_subscriptions(self, incarnation: int) -> None:
        """Close (not unsubscribe) everything that a connection which is no more has open (STAN-SPEC 3.4)."""
        leaves = self.shared.subscriptions_of(incarnation)
        if leaves:
            self.closing[incarnation] = Closing(len(leaves))
        for group, subscription_id in leaves:
            self._leave(incarnation, group, subscription_id)

    def _leave(self, incarnation: int, group: GroupId, subscription_id: int) -> None:
        def done(result: object, _error: str) -> None:
            if result is None:  # not written: the connection is gone all the same, so try until it is
                retry_at = self.shared.clock.now + SECOND
                self.shared.timers.at(retry_at, lambda _now: self._leave(incarnation, group, subscription_id))
                return
            closing = self.closing[incarnation]
            closing.left -= 1
            if closing.left == 0:
                del self.closing[incarnation]
                for reply in closing.replies:
                    self.shared.respond(reply, b"")

        self.shared.leave(group, subscription_id, done)

    # --- heartbeats -------------------------------------------------------------------------------------------------------

    def watch(self, client: Client) -> None:
        """Start the heartbeats of a connection: the first after one interval (STAN-SPEC 3.3)."""
        self._arm(self.beats.setdefault(client.incarnation, Beat(client)), self.heartbeat.interval_ns)

    def restart_all(self) -> None:
        """NATS is back: everybody gets a full interval before the next heartbeat."""
        for beat in self.beats.values():
            beat.waiting = 0
            self._arm(beat, self.heartbeat.interval_ns)

    def _arm(self, beat: Beat, delay_ns: int) -> None:
        beat.due_at = self.shared.clock.now + delay_ns
        self.shared.timers.at(beat.due_at, partial(self._beat, beat, beat.due_at))

    def _beat(self, beat: Beat, due_at: int, _now: Nanos) -> None:
        if beat.due_at != due_at or self.beats.get(beat.client.incarnation) is not beat or beat.waiting:
            return
        if not self.shared.connected:
            return
        beat.waiting = due_at
        answered = partial(self._beaten, beat, due_at)
        self.shared.request(beat.client.heartbeat_inbox, self.heartbeat.timeout_ns, answered)

    def _beaten(self, beat: Beat, due_at: int, alive: bool) -> None:  # noqa: FBT001 - an answer
        if self.beats.get(beat.client.incarnation) is not beat or beat.waiting != due_at:
            return
        beat.waiting = 0
        if not alive and not self.shared.connected:
            return
        had_failed = beat.failures > 0
        beat.failures = 0 if alive else beat.failures + 1
        if had_failed is alive:  # it changed
            for group in self.shared.groups.values():
                group.dispatch.set_failed_heartbeat(beat.client.incarnation, failed=not alive)
        if beat.failures > self.heartbeat.fail_count:
            self._disconnect(beat.client, partial(self._timed_out, beat.client))
        self._arm(beat, self.heartbeat.interval_ns)

    def _timed_out(self, client: Client, result: object, _error: str) -> None:
        if isinstance(result, MetaResult) and result.gone is not None:
            self.shared.note("ERR", f"[Client:{text(client.client_id)}] Timed out on heartbeats")

    # --- pings ------------------------------------------------------------------------------------------------------------

    def ping(self, frame: Frame) -> None:
        """A client's Ping (STAN-SPEC 3.5)."""
        try:
            conn_id = wire.Ping.FromString(frame.payload).conn_id
        except DecodeError:
            return
        if not frame.payload:
            return
        client = self.shared.meta.by_conn.get(conn_id)
        if client is None:
            error = errors.CLIENT_REPLACED.encode()
            self.shared.respond(frame.reply, wire.PingResponse(error=error).SerializeToString())
            return
        self.shared.respond(frame.reply, b"")
        beat = self.beats.get(client.incarnation)
        if beat is not None and beat.failures:
            beat.waiting = 0  # the one under way went to where nobody listened
            self._arm(beat, MILLISECOND)

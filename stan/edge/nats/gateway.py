"""The gateway between the connection to NATS and the broker: NATS frames in, NATS frames out, in batches.

    connection ─► read buffer ─► scan, by its scope ─► publishes, acks ─► broker
                                       └─► other frames ─► admission ─► handlers, own requests, broker
    broker ─► sends, rendered ─► one write to the connection

Promises: a request, or a message between nodes, is handled after the publishes and acks of its sender that arrived before it, and
before those after it; the sends of one call leave in one write, in its order. In a server alone one `take_in` does a bounded
amount of work, of which each sender whose frames wait has a share. (The nodes of a cluster handle all read bytes at once, in
the order in which a next leader would replay it.)
"""

import json
from collections.abc import Callable
from typing import Any

from stan_protocol.channels import publication
from stan_protocol.frames import Acks, Frame, Publishes, Scan, Verdicts
from stan_protocol.scalars import GroupId, MiB, Nanos

from stan import limits
from stan.core.base.complaints import Complaints
from stan.core.base.ready import Replay
from stan.core.broker.broker import Broker
from stan.core.requests.router import Handler
from stan.core.requests.table import REQUESTS
from stan.edge.nats.admission import Admission, quoted
from stan.edge.nats.outward import NatsPort, Unconnected, leave
from stan.edge.nats.own_requests import OwnRequests
from stan.edge.nats.read_buffer import ReadBuffer
from stan.edge.nats.replay_buffer import ReplayBuffer
from stan.edge.nats.scan_scope import ChosenChannels, GroupFilter, ScanScope
from stan.edge.nats.subscriptions import (
    ACK_SID,
    ASK_SID,
    FIRST_MORE_SID,
    FIRST_REQUEST_SID,
    PUB_SID,
    REPLY_SID,
    NatsSubscriptions,
    is_early,
    is_request,
)
from stan.edge.nats.waiting_frames import WaitingFrames
from stan.errors import fault
from stan.protocol.kernel import server as kernel
from stan.protocol.user_subjects import ACK_GROUPS, published

PENDING_BYTES_MAX = 128 * MiB
"""Bytes of an incomplete frame, at most; more means that the stream is broken."""


class Gateway:
    """Scans read bytes and renders sends."""

    def __init__(self, broker: Broker, ack_subject: str, note: Callable[[str, str], None]) -> None:
        """Serve *broker*'s requests; set `connection` and `read_buffer.wake` before anything arrives.

        Args:
            broker: steps the frames.
            ack_subject: subject of the clients' acks; "" if it is not known yet, see `listen`.
            note: called with level and text to write a line to the log.
        """
        view = broker.view
        self.broker = broker
        self.note = note
        self._complaints = Complaints(note)
        self.listens = False  # to clients
        self.connection: NatsPort = Unconnected()
        self.on_info: Callable[[dict[str, Any]], None] | None = None  # called with each INFO of NATS
        self.read_buffer = ReadBuffer()
        self.scope = ScanScope(view)
        self.replay_buffer: ReplayBuffer | None = ReplayBuffer() if view.clustered else None
        self.admission = Admission(broker, self.complain)
        self.own_requests = OwnRequests(view, lambda data: self.connection.write(data))  # noqa: PLW0108 - it changes
        self.subscriptions = NatsSubscriptions()
        self._subscribe_broker(ack_subject)
        for name, handler in broker.frames.routes.items():
            self.serve_requests(name, handler)
        self._follow_subjects()
        view.scope.follow_subjects(self._follow_subjects)

    def _subscribe_broker(self, ack_subject: str) -> None:
        """Note the subscriptions whose frames the broker handles."""
        view, admission, subjects = self.broker.view, self.admission, self.subscriptions.subjects
        users = view.authorizer is not None and view.authorizer.with_users
        covered = ">" if view.partition is None else view.partition.cover()
        subjects[PUB_SID] = admission.subject_for(f"{view.subjects.pub_prefix}.{covered}")
        subjects[ACK_SID] = ack_subject
        subjects[REPLY_SID] = view.reply_prefix.decode() + (">" if users else "*")
        if self.own_requests.inbox != view.reply_prefix:
            subjects[ASK_SID] = self.own_requests.inbox.decode() + "*"
        for at, subject in enumerate(self.broker.frames.original):
            subjects[FIRST_REQUEST_SID + at] = admission.judge(FIRST_REQUEST_SID + at, subject.decode())
        if users:  # another server of the same name, which sends its discovery before it knows of users
            subjects[max(subjects) + 1] = view.subjects.discover
            admission.judged.add(max(subjects))

    def _follow_subjects(self) -> None:
        """Subscribe to subjects of other protocols that have come, and no longer to those that have gone."""
        subscriptions, wanted = self.subscriptions, self.broker.view.scope.more_subjects
        lines = [b"UNSUB %d\r\n" % subscriptions.drop(subject) for subject in subscriptions.more.keys() - wanted.keys()]
        for subject in sorted(wanted.keys() - subscriptions.more.keys()):
            sid = subscriptions.add_more(subject, wanted[subject])
            self.admission.judged.add(sid)
            lines.append(b"SUB %b %d\r\n" % (subject.encode(), sid))
        for subject, sid in subscriptions.more.items():
            subscriptions.handlers[sid] = wanted[subject]
        self.scope.subjects_changed(subscriptions.more)
        if (
            lines and self.connection.subscriptions is subscriptions.subjects
        ):  # it is told of them now, and when it connects
            self.connection.write(b"".join(lines))

    # --- in ---------------------------------------------------------------------------------------------------------------

    def take_in(self) -> bool:
        """Step all read bytes, in a server alone at most a turn's work; True if the broker may have been stepped."""
        stepped_any, read = False, self.read_buffer
        while True:
            if read.runs[0]:
                data = read.pop()
                if read.waiting is not None:
                    stepped_any |= self._scan_early(data, read.waiting)
                elif self.replay_buffer is not None:
                    stepped, at, _ = self._scan(data, 0, 0)
                    stepped_any |= stepped
                    read.rest = self._rest(data, at) if at < len(data) else b""
                else:
                    stepped_any |= self._take_share(data)
            elif read.backlog.size:
                stepped_any |= self._take_share(b"")
            if len(read.runs) == 1:
                return stepped_any
            read.next_run()
            if self.replay_buffer is not None:
                self.replay_buffer.alone_since = self.broker.view.now
                self.replay_buffer.gap(self.broker.view.now)

    def _scan_early(self, data: bytes, waiting: WaitingFrames) -> bool:
        """Handle frames that are not of clients; theirs wait. A request of our own that comes to us as well is dropped."""
        at = 0
        try:
            while at < len(data) and (scan := kernel.scan(data, at, 0, 0, b"")).consumed:
                at += scan.consumed
                for frame in scan.others:
                    if not frame.sid or is_early(frame.sid):
                        self._handle(frame)
                    elif frame.reply not in self.own_requests.takers:
                        waiting.add(frame)
        except ValueError as error:
            self._broken(f"no NATS protocol: {error}")
            return True
        self.read_buffer.rest = self._rest(data, at)
        return True

    def _take_share(self, data: bytes) -> bool:
        """Step a turn's work of *data* and of waiting frames. The rest of it is sorted by sender."""
        backlog, stepped_any, at, work = self.read_buffer.backlog, False, 0, 0
        if not backlog.size:
            stepped_any, at, work = self._scan(data, 0, limits.TURN_BYTES_MAX)
            if at == len(data):  # as a rule
                self.read_buffer.rest = b""
                return stepped_any
        if data:
            self._sort(data, at)
        share = max(1, (limits.TURN_BYTES_MAX - work) // max(1, backlog.senders))
        while backlog.size and work < limits.TURN_BYTES_MAX:
            piece, start = backlog.pop()
            stepped, at, done = self._scan(piece, start, share)
            stepped_any |= stepped
            work += done
            if start < at < len(piece):
                backlog.put_back(piece, at)
        return stepped_any

    def _sort(self, data: bytes, at: int) -> None:
        """Let the complete frames of *data* from *at* on wait by sender; the rest is the beginning of an incomplete one."""
        users, replies, read = self.scope.rules.users, self.broker.view.reply_prefix, self.read_buffer
        try:
            while at < len(data):
                end, frames = kernel.by_sender(data, at, users, replies)
                if end == at:
                    break
                read.backlog.add(frames)
                at = end
        except ValueError as error:
            self._broken(f"no NATS protocol: {error}")
            return
        read.rest = self._rest(data, at)

    def _scan(self, data: bytes, at: int, most: int) -> tuple[bool, int, int]:
        """Step frames of *data* from *at* on, until the work on them reaches *most*, if that is not 0. Returns whether the broker
        may have been stepped, the place behind the last frame, and the work."""
        stepped_any, matters, work = False, False, 0  # matters: a next leader may have to replay it
        scope, quiet, keyed = self.scope, self.subscriptions.quiet, self.replay_buffer is not None
        try:
            while (
                at < len(data)
                and (not most or work < most)
                and (
                    scan := kernel.scan(
                        data,
                        at,
                        PUB_SID,
                        ACK_SID,
                        scope.pub_prefix,
                        scope.channel_filter,
                        scope.led,
                        keyed,
                        scope.rules,
                        most and most - work,
                        scope.streams,
                        scope.consumer_sid,
                    )
                ).consumed
            ):
                at += scan.consumed
                work += scan.work
                if scan.publishes:
                    self.broker.frames.step_publishes(scan.publishes)
                if scan.acks:
                    self.broker.frames.step_acks(scan.acks)
                if scan.streams or scan.consumers:
                    self.broker.frames.step_jetstream(scan.streams, scan.consumers)
                if scan.verdicts or scan.malformed:
                    self._rare(scan)
                stepped_any |= bool(scan.publishes or scan.acks or scan.verdicts or scan.malformed)
                stepped_any |= bool(scan.streams or scan.consumers)
                matters |= bool(scan.publishes or scan.acks or scan.verdicts or scan.skipped)
                for frame in scan.others:
                    self._handle(frame)
                    stepped_any |= frame.sid not in quiet
                    matters |= FIRST_REQUEST_SID <= frame.sid < FIRST_MORE_SID
        except ValueError as error:
            self._broken(f"no NATS protocol: {error}")
            return True, len(data), work
        if self.replay_buffer is not None and at:
            now = self.broker.view.now
            if matters:  # messages between nodes are not replayed
                self.replay_buffer.add(now, data, at)
            self.broker.replay.step_heard_since(
                max(self.replay_buffer.complete_since, Nanos(now - limits.REPLAY_AGE_MAX))
            )
        return stepped_any, at, work

    def _rest(self, data: bytes, at: int) -> bytes:
        """Return the beginning of an incomplete frame; b"" if the connection is made again because the frame is too large."""
        if len(data) - at > PENDING_BYTES_MAX:
            self._broken("a message larger than any it may send")
            return b""
        return data[at:]

    def _broken(self, what: str) -> None:
        self.note("ERR", f"NATS sent {what}; connecting again")
        self.read_buffer.rest = b""
        self.connection.break_off()

    def complain(self, level: str, text: str) -> None:
        """Write a line about a frame whose sender can send it again and again."""
        self._complaints.tell(self.broker.view.now, level, text)

    def _rare(self, scan: Scan) -> None:
        if scan.verdicts:
            self.broker.frames.step_verdicts(scan.verdicts)
        if scan.malformed:
            self._malformed(scan.malformed)

    def _malformed(self, frames: list[Frame]) -> None:
        rules = self.scope.rules
        for frame in frames:
            if frame.sid == PUB_SID and not rules.answers(frame.reply):
                self.admission.note_reply(frame)
        sent = [published(frame, rules) if frame.sid == PUB_SID else frame for frame in frames]
        self.broker.frames.step_malformed(sent, PUB_SID)

    def _handle(self, frame: Frame) -> None:
        """Handle a frame that is neither a publish nor an ack. If a client's request fails, only this request stays without an
        answer; errors in messages between nodes are raised."""
        if not frame.sid:
            self._control(frame)
            return
        if frame.reply or frame.sid in self.admission.judged:
            admitted = self.admission.admitted(frame)
            if admitted is None:
                return
            frame = admitted
        takers = self.own_requests.takers
        handler = self.subscriptions.handlers.get(frame.sid)
        if handler is not None:
            try:
                handler(frame)
            except Exception as error:
                if frame.sid < FIRST_REQUEST_SID:  # it concerns all groups, not a single request
                    raise
                self.complain("ERR", f"the request {quoted(frame.subject)} failed: {fault(error)}")
        elif frame.subject in takers:
            takers[frame.subject](frame)
        else:
            self.broker.frames.step_frame(frame)

    def _control(self, frame: Frame) -> None:
        if frame.subject == b"PING":
            self.connection.write(b"PONG\r\n")
        elif frame.subject == b"PONG":
            self.connection.ponged()
        elif frame.subject == b"-ERR":
            self.complain("ERR", f"NATS: {frame.payload.decode(errors='replace').strip()}")
        elif frame.subject == b"INFO":
            try:
                info = json.loads(frame.payload)
            except ValueError:
                self.note("WRN", "NATS sent an INFO that is no JSON")
            else:
                self.connection.informed(info)
                if self.on_info is not None:
                    self.on_info(info)

    # --- leadership ---------------------------------------------------------------------------------------------------------

    def forget_replay(self, group: GroupId) -> None:
        """Never replay the publishes read so far for a group: they cannot be told from those in its log."""
        if self.replay_buffer is not None:
            self.replay_buffer.forget_group(group, self.broker.view.now)

    def replay(self, group: GroupId, between_steps: Callable[[], None] = lambda: None) -> None:
        """Step the buffered frames of *group* again, which this node begins to lead, as the previous leader may not have handled
        them.

        *between_steps* is called for each joined chunk, because seconds of a busy cluster's traffic may have to be scanned."""
        if self.replay_buffer is not None:
            self._replay(self.replay_buffer, group, between_steps)

    def replay_channels(self, what: Replay, between_steps: Callable[[], None] = lambda: None) -> None:
        """Step buffered frames of some channels of a group that this node leads, as no node has handled them. *between_steps*:
        as in `replay`."""
        if self.replay_buffer is not None:
            self._replay(self.replay_buffer, what.group, between_steps, what.channels, what.publishes_since)

    def _replay(
        self,
        buffer: ReplayBuffer,
        group: GroupId,
        between_steps: Callable[[], None],
        channels: frozenset[bytes] | None = None,
        publishes_since: Nanos | None = None,
    ) -> None:
        view = self.broker.view
        scope, keyed, led = self.scope, True, frozenset((*view.scope.acks_of(group), group + ACK_GROUPS))
        take = GroupFilter(group, view.scope.groups_of) if channels is None else ChosenChannels(channels)
        steps: list[Publishes | Acks | Verdicts | Frame] = []
        everything = publishes_since is None
        forgotten = max(buffer.forgotten(group), publishes_since or Nanos(0))
        recent = Nanos(view.now - limits.REPLAY_REQUEST_AGE_MAX - 1)
        for arrived_at, data in buffer.joined(forgotten, recent, *self.broker.replay.bounds(group)):
            between_steps()
            at = 0
            while at < len(data):
                scan = kernel.scan(data, at, PUB_SID, ACK_SID, scope.pub_prefix, take, led, keyed, scope.rules)
                if not scan.consumed:
                    break
                at += scan.consumed
                if everything:
                    steps += scan.acks  # acks are idempotent
                if everything and scan.verdicts:
                    steps.append(Verdicts(scan.verdicts))
                if arrived_at <= forgotten:
                    continue
                replayed = self.broker.replay.publishes(group, scan.publishes, arrived_at)
                steps += [one for one in replayed if take[one.channel]]
                if everything and arrived_at > recent:
                    requests = [frame for frame in scan.others if is_request(frame.sid)]
                    if channels is not None:
                        requests = [frame for frame in requests if self.broker.replay.is_about(frame, channels)]
                    requests = self.broker.replay.requests(group, requests, arrived_at)
                    steps += filter(None, map(self.admission.admitted, requests))
        self.broker.replay.run(group, steps, max(buffer.since(view.now, group), forgotten), channels)

    def pass_on_connects(self) -> None:
        """Publish again recent connects whose client is not registered, for a leader that the nats-server of this node did not
        reach when they came."""
        view, buffer, scope = self.broker.view, self.replay_buffer, self.scope
        if buffer is None or buffer.alone_since is None:
            return
        recent = Nanos(max(buffer.alone_since, view.now - limits.REPLAY_REQUEST_AGE_MAX) - 1)
        buffer.alone_since = None
        requests: list[tuple[Frame, Frame]] = []  # as they came, as from their users
        for arrived_at, data in buffer.joined(recent):
            at = 0
            while arrived_at > recent and at < len(data):
                scan = kernel.scan(data, at, PUB_SID, ACK_SID, scope.pub_prefix)
                if not scan.consumed:
                    break
                at += scan.consumed
                batch = [frame for frame in scan.others if is_request(frame.sid)]
                requests += [(frame, inner) for frame in batch if (inner := self.admission.admitted(frame)) is not None]
        lost = {id(inner) for inner in self.broker.replay.unregistered(inner for _, inner in requests)}
        connects = [frame for frame, inner in requests if id(inner) in lost]
        for frame in connects[: limits.CONNECTS_PASSED_ON_MAX]:
            self.connection.write(publication(frame.subject, frame.payload, frame.reply))

    # --- out --------------------------------------------------------------------------------------------------------------

    send = leave

    # --- before the broker leads --------------------------------------------------------------------------------------------

    def subscribe(self, subject: str, handler: Callable[[Frame], None], *, quiet: bool = False) -> None:
        """Hand frames on *subject* to *handler*; call before the connection is made. *quiet*: it never steps the broker."""
        sid = self.subscriptions.new_node_sid(subject)
        self.subscriptions.add(sid, self.admission.judge(sid, subject), handler, quiet=quiet)

    def serve_requests(self, subject: str, handler: Callable[[Frame], None]) -> None:
        """Hand frames on *subject* to *handler*, from `listen` on. Of the servers that subscribe to "<subject> <group>", which is
        a NATS queue group, only one gets each frame."""
        sid = self.subscriptions.new_request_sid()
        self.subscriptions.add(sid, self.admission.judge(sid, subject), handler)

    def serve(self, name: str, handler: Handler, queue: str = "") -> None:
        """Serve the request *name* of the table outside the core, from `listen` on: its answers leave at once, not with the next
        Ready. *queue*: the NATS queue group of the servers of which only one gets each request."""
        subject = REQUESTS[name].subject(self.broker.view.subjects)
        receive = self.broker.frames.receiver(name, handler, self._answer)
        self.serve_requests(f"{subject} {queue}" if queue else subject, receive)

    def serve_early(self, name: str, handler: Handler) -> None:
        """Serve a request like `serve`, and also before `listen`; *handler* never steps the broker."""
        subject = REQUESTS[name].subject(self.broker.view.subjects)
        self.subscribe(subject, self.broker.frames.receiver(name, handler, self._answer), quiet=True)

    def _answer(self, reply: bytes, payload: bytes, _groups: tuple[GroupId, ...]) -> None:
        self.connection.write(publication(reply, payload))

    def wait_to_lead(self, now: Callable[[], Nanos]) -> None:
        """Let clients' frames wait for `listen`; *now*: the monotonic clock."""
        self.read_buffer.waiting = WaitingFrames(now)

    def listen(self, ack_subject: str = "") -> None:
        """Subscribe to everything, now and after each reconnection; *ack_subject* if it was unknown until now."""
        subjects = self.subscriptions.subjects
        if ack_subject:
            self.subscriptions.ack_on(ack_subject)
        self.scope.identity_known()
        new = subjects.keys() - self.connection.subscriptions.keys()
        if self.replay_buffer is not None and new - {ACK_SID}:
            self.replay_buffer.gap(self.broker.view.now)  # clients' publishes and requests before this were not read
        self.listens = True
        self.read_buffer.put_back()
        self.connection.subscriptions = subjects
        lines = (b"SUB %b %d\r\n" % (subjects[sid].encode(), sid) for sid in sorted(new))
        self.connection.write(b"".join(lines))

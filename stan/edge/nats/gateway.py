"""NATS frames in, NATS frames out, in batches: what stands between the connection and the broker."""

import asyncio
import json
from collections.abc import Callable, Iterable, Set
from secrets import token_hex
from typing import Any, Protocol

from stan import limits
from stan.core.base.complaints import Complaints
from stan.core.base.payload_limit import deliverable
from stan.core.base.ready import Delivery, LeaseAnswer, Send
from stan.core.broker.broker import Broker
from stan.core.requests.router import Handler
from stan.core.requests.table import REQUESTS
from stan.edge.nats.replay_buffer import ChannelFilter, Chunk, ReplayBuffer
from stan.errors import fault, go_quote
from stan.invariant import invariant
from stan.protocol.channels import OWN_INBOXES, publication
from stan.protocol.frames import Acks, Frame, Publishes
from stan.protocol.kernel import server as kernel
from stan.protocol.requests import can_be_answered
from stan.protocol.user_subjects import from_any_user, published, rules
from stan.types import GroupId, MiB, Nanos

PUB_SID, ACK_SID, REPLY_SID, ASK_SID, FIRST_NODE_SID, FIRST_REQUEST_SID = 1, 2, 3, 4, 5, 10
PENDING_BYTES_MAX = 128 * MiB
"""Bytes kept of one incomplete frame; more means that the stream is broken."""
SERVERS_REPLIES = (b"_INBOX.", b"_STAN.reply.", b"_STAN.node.")
"""Prefixes of the reply subjects of servers' requests to each other."""
SHOWN_BYTES = 100
"""Bytes of a subject that are shown in a log line."""


class NatsPort(Protocol):
    """What the gateway needs of a connection (`NatsConnection`, or the simulator's)."""

    subscriptions: dict[int, str]

    @property
    def up(self) -> bool:
        """True if bytes can be written now."""

    @property
    def max_payload(self) -> int:
        """Bytes of the largest payload that the other side takes."""

    @property
    def unsent(self) -> int:
        """Bytes that were written and have not left the process."""

    def write(self, data: bytes) -> bool:
        """Write bytes in one piece; False if there is no connection, and they are gone."""

    def hold_reading(self, hold: bool) -> None:  # noqa: FBT001 - a switch
        """Stop or go on reading."""

    def break_off(self) -> None:
        """Cut the connection; it is made again."""

    def ponged(self) -> None:
        """A PONG arrived."""

    def informed(self, info: dict[str, Any]) -> None:
        """NATS sent an INFO: its cluster has changed."""


class Unconnected:
    """Stands in before the first connection: bytes that are written are lost, as on a lost connection."""

    up = False
    max_payload = 0
    unsent = 0

    def __init__(self) -> None:
        self.subscriptions: dict[int, str] = {}

    def write(self, data: bytes) -> bool:  # noqa: ARG002 - it is gone
        """Always False: there is no connection."""
        return False

    def hold_reading(self, hold: bool) -> None:  # noqa: FBT001 - a switch
        """Does nothing: nothing is read."""

    def break_off(self) -> None:
        """Does nothing: there is no connection to cut."""

    def ponged(self) -> None:
        """Does nothing: no PONG can arrive."""

    def informed(self, info: dict[str, Any]) -> None:
        """Does nothing: no INFO can arrive."""


class Gateway:
    """Scans what was read and renders what is to be sent. `wake` asks for a turn of the driver."""

    def __init__(self, broker: Broker, ack_subject: str, note: Callable[[str, str], None]) -> None:
        view = broker.view
        self.broker = broker
        self.note = note
        self._complaints = Complaints(note)
        self.listens = False  # to clients
        self.pub_prefix = view.subjects.pub_prefix.encode() + b"."
        self.authorizer = view.authorizer
        users = self.authorizer is not None and self.authorizer.with_users
        self._heard_as: Callable[[str], str] = from_any_user if users else str
        self.rules = rules(view.config)
        self.judged: set[int] = set()  # sids of the clients' requests, which are authorised
        covered = ">" if view.partition is None else view.partition.cover()
        subjects = {PUB_SID: self._heard_as(f"{view.subjects.pub_prefix}.{covered}"), ACK_SID: ack_subject}
        subjects[REPLY_SID] = view.reply_prefix.decode() + (">" if users else "*")
        self.inbox = view.reply_prefix.replace(OWN_INBOXES, b"_INBOX.")
        """Prefix of the subjects on which other servers answer to this one, as to any client: without users the servers cannot
        tell servers and clients apart."""
        if self.inbox != view.reply_prefix:
            subjects[ASK_SID] = self.inbox.decode() + "*"
        for at, subject in enumerate(broker.requests):
            subjects[FIRST_REQUEST_SID + at] = self._judge(FIRST_REQUEST_SID + at, subject.decode())
        self.subscriptions = subjects
        self.handlers: dict[int, Callable[[Frame], None]] = {}  # by sid
        if users:  # another server of the same name, which sends its discovery before it knows of users
            subjects[max(subjects) + 1] = view.subjects.discover
            self.judged.add(max(subjects))
        self.quiet: set[int] = set()  # sids whose handlers never step the broker
        for name, asked in broker.routes.items():
            self.serve_requests(name, asked)
        self.clustered = view.clustered
        self.replay_buffer: ReplayBuffer | None = ReplayBuffer() if view.clustered else None
        self.channel_filter: dict[bytes, bool] | None = ChannelFilter(view) if view.clustered else view.partition
        self.on_info: Callable[[dict[str, Any]], None] | None = None  # called with each INFO of NATS
        self.led: frozenset[int] | None = frozenset() if view.clustered else None  # groups whose acks are taken
        self.connection: NatsPort = Unconnected()
        self.wake: Callable[[], None]
        self._chunks: list[bytes | None] = []  # None: a new connection begins here
        self._asked: dict[bytes, Callable[[Frame], None]] = {}  # by reply subject: takes the answers to an own request
        self._rest = b""
        self.went_up = False
        self.went_down = False

    # --- from the connection --------------------------------------------------------------------------------------------

    def on_data(self, data: bytes) -> None:
        """Bytes were read."""
        self._chunks.append(bytes(data))
        self.wake()

    def on_up(self) -> None:
        """Connected."""
        self.went_up = True
        self._chunks.append(None)  # frames sent before this connection was made are missed
        self.wake()

    def on_down(self) -> None:
        """The connection is lost."""
        self.went_down = True
        self._chunks.append(None)
        self.wake()

    # --- in ---------------------------------------------------------------------------------------------------------------

    def take_in(self) -> bool:
        """Step everything that was read; returns True if the broker may have been stepped."""
        told = False
        while self._chunks:
            end = self._chunks.index(None) if None in self._chunks else len(self._chunks)
            chunks = [chunk for chunk in self._chunks[:end] if chunk is not None]
            if chunks:
                told |= self._scan(self._rest + b"".join(chunks) if self._rest or len(chunks) > 1 else chunks[0])
            if end < len(self._chunks):
                self._rest = b""  # the rest of a frame that was cut off by the end of its connection never arrives
                if self.replay_buffer is not None:
                    self.replay_buffer.gap(self.broker.view.now)
            del self._chunks[: end + 1]
        return told

    def _scan(self, data: bytes) -> bool:
        at, told, matters = 0, False, False  # matters: a next leader may have to replay it
        try:
            while at < len(data):
                scan = kernel.scan(
                    data,
                    at,
                    PUB_SID,
                    ACK_SID,
                    self.pub_prefix,
                    self.channel_filter,
                    self.led,
                    self.clustered,
                    self.rules,
                )
                if not scan.consumed:
                    break
                at += scan.consumed
                self.broker.step_publishes(scan.publishes)
                self.broker.step_acks(scan.acks)
                if scan.malformed:
                    self._malformed(scan.malformed)
                told |= bool(scan.publishes or scan.acks or scan.malformed)
                matters |= bool(scan.publishes or scan.acks or scan.skipped)
                for frame in scan.others:
                    self._other(frame)
                    told |= frame.sid not in self.quiet
                    matters |= frame.sid >= FIRST_REQUEST_SID
        except ValueError as error:
            self._broken(f"no NATS protocol: {error}")
            return True
        self._rest = data[at:] if at < len(data) else b""
        if self.replay_buffer is not None and at:
            now = self.broker.view.now
            if matters:  # messages between nodes are not replayed
                self.replay_buffer.add(Chunk(now, data, at))
            self.broker.step_heard_since(self.replay_buffer.since(now))
        if len(self._rest) > PENDING_BYTES_MAX:
            self._broken("a message larger than any it may send")
        return told

    def _broken(self, what: str) -> None:
        self.note("ERR", f"NATS sent {what}; connecting again")
        self._rest = b""
        self.connection.break_off()

    def complain(self, level: str, text: str) -> None:
        """Write a line about what was sent by whoever can send it again and again."""
        self._complaints.tell(self.broker.view.now, level, text)

    def _malformed(self, frames: list[Frame]) -> None:
        for frame in frames:
            if frame.sid == PUB_SID and not self.rules.answers(frame.reply):
                self._tell_reply(frame)
        said = [published(frame, self.rules) if frame.sid == PUB_SID else frame for frame in frames]
        self.broker.step_malformed(said, PUB_SID)

    def _tell_reply(self, frame: Frame) -> None:
        """Who is refused because of where his answer was to go hears nothing: the log tells of it."""
        what = f"{_cut(frame.subject)} with the reply subject {_cut(frame.reply)}"
        self.complain("WRN", f"not answered, as no client may be told anything there (see reply_prefixes): {what}")

    def _other(self, frame: Frame) -> None:
        if not frame.sid:
            self._control(frame)
            return
        admitted = self._admitted(frame)
        if admitted is None:
            return
        frame = admitted
        if frame.sid in self.handlers:
            self._hand(self.handlers[frame.sid], frame)
        elif frame.subject in self._asked:
            self._asked[frame.subject](frame)
        else:
            self.broker.step_frame(frame)

    def _hand(self, heard: Callable[[Frame], None], frame: Frame) -> None:
        """Call a handler. If a client's request fails, only this request stays without an answer; errors in messages between
        nodes are raised."""
        try:
            heard(frame)
        except Exception as error:  # a message between nodes concerns all groups, so its error is no single request's
            if frame.sid < FIRST_REQUEST_SID:
                raise
            self.complain("ERR", f"the request {_cut(frame.subject)} failed: {fault(error)}")

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

    def roles_changed(self) -> None:
        """The set of groups that this node leads has changed."""
        if self.channel_filter is not None:
            self.channel_filter.clear()
            self.led = frozenset(self.broker.view.led())

    def forget_replay(self, group: GroupId) -> None:
        """Never replay the publishes read so far for a group: they cannot be told apart from those in its log."""
        if self.replay_buffer is not None:
            self.replay_buffer.forget_group(group, self.broker.view.now)

    def replay(self, group: GroupId, between_steps: Callable[[], None] = lambda: None) -> None:
        """This node begins to lead *group*: step the group's buffered frames again, as the previous leader may not have handled
        them.

        *between_steps* is called for each joined chunk, because seconds of a busy cluster's traffic may have to be scanned."""
        if self.replay_buffer is None:
            return
        view = self.broker.view
        take = _OfGroup(group, view.group_number)
        steps: list[Publishes | Acks | Frame] = []
        forgotten, recent = self.replay_buffer.forgotten(group), Nanos(view.now - limits.REPLAY_REQUEST_AGE_MAX - 1)
        for arrived_at, data in self.replay_buffer.joined(forgotten, recent):
            between_steps()
            at = 0
            while at < len(data):
                scan = kernel.scan(
                    data, at, PUB_SID, ACK_SID, self.pub_prefix, take, frozenset((group,)), self.clustered, self.rules
                )
                if not scan.consumed:
                    break
                at += scan.consumed
                steps += scan.acks  # acks are idempotent
                if arrived_at <= forgotten:
                    continue
                steps += scan.publishes
                if arrived_at > recent:
                    heard = [frame for frame in scan.others if frame.sid >= FIRST_REQUEST_SID]
                    steps += filter(None, map(self._admitted, heard))
        self.broker.replay(group, steps, self.replay_buffer.since(view.now, group))

    # --- out --------------------------------------------------------------------------------------------------------------

    def send(
        self, sends: Iterable[Send], silent: Callable[[Set[GroupId]], Set[GroupId]] = lambda _groups: frozenset()
    ) -> list[Delivery]:
        """Write *sends* in their order, as one piece.

        *silent* is called right before the write with the groups of *sends*, and returns those whose deliveries and answers must
        not be sent. Returns the deliveries that were left out for that reason."""
        shown: list[tuple[Send, bytes]] = []
        most = self.broker.view.payload_bytes_max
        for send in sends:
            if isinstance(send, Delivery):
                shown += [
                    (
                        send,
                        kernel.frames(
                            part.records, part.base_sequence, part.first, part.last, part.inbox, part.redelivery_count
                        ),
                    )
                    for part in deliverable(send, most)
                ]
            else:
                shown.append((send, send.data if isinstance(send, LeaseAnswer) else send))
        if not shown:
            return []
        joined = b"".join([data for _, data in shown])
        quiet = silent({group for send, _ in shown for group in _groups(send)})
        lost: list[Delivery] = []
        if quiet:
            lost = [send for send, _ in shown if isinstance(send, Delivery) and send.group in quiet]
            joined = b"".join([data for send, data in shown if quiet.isdisjoint(_groups(send))])
        if joined:
            self.connection.write(joined)
        return lost

    # --- before the broker leads --------------------------------------------------------------------------------------------

    def reply_subscription(self) -> dict[int, str]:
        """Subscriptions (sid: subject) before the broker leads: only the answers to `ask`, and messages of other nodes."""
        early = {REPLY_SID, ASK_SID, *range(FIRST_NODE_SID, FIRST_REQUEST_SID)}
        return {sid: name for sid, name in self.subscriptions.items() if sid in early}

    def subscribe(self, subject: str, heard: Callable[[Frame], None], *, quiet: bool = False) -> None:
        """Hand frames on *subject* to *heard*; call before the connection is made. *quiet*: *heard* never steps the broker."""
        sid = FIRST_NODE_SID + sum(other < FIRST_REQUEST_SID for other in self.handlers)
        invariant(sid < FIRST_REQUEST_SID, "subscriptions between nodes have numbers of their own", subject=subject)
        self.subscriptions[sid] = self._judge(sid, subject)
        self.handlers[sid] = heard
        if quiet:
            self.quiet.add(sid)

    def serve_requests(self, subject: str, asked: Callable[[Frame], None]) -> None:
        """Hand frames on *subject* to *asked*, from `listen` on. Of the servers that subscribe to "<subject> <group>", which is
        a NATS queue group, only one gets each frame."""
        sid = max(self.subscriptions) + 1
        self.subscriptions[sid] = self._judge(sid, subject)
        self.handlers[sid] = asked

    def serve(self, name: str, handler: Handler, queue: str = "") -> None:
        """Serve the request *name* of the table outside the core, from `listen` on: its answers leave at once, not with the next
        Ready. *queue*: the NATS queue group of the servers of which only one gets each request."""
        subject = REQUESTS[name].subject(self.broker.view.subjects)
        receive = self.broker.receiver(name, handler, self._answer)
        self.serve_requests(f"{subject} {queue}" if queue else subject, receive)

    def serve_early(self, name: str, handler: Handler) -> None:
        """As `serve`, and also before `listen`; *handler* never steps the broker."""
        subject = REQUESTS[name].subject(self.broker.view.subjects)
        self.subscribe(subject, self.broker.receiver(name, handler, self._answer), quiet=True)

    def _answer(self, reply: bytes, payload: bytes, _groups: tuple[GroupId, ...]) -> None:
        self.connection.write(publication(reply, payload))

    def _judge(self, sid: int, subject: str) -> str:
        """Subject to subscribe to for *subject*. If clients send requests on it, its frames are authorised from now on."""
        subjects = self.broker.view.subjects
        asked = subject.startswith(f"{subjects.extension}.") and not subject.startswith(f"{subjects.extension}.events.")
        asked |= subject.encode() in self.broker.requests and subject != subjects.meta
        if not asked:
            return subject
        self.judged.add(sid)
        return self._heard_as(subject)

    def _admitted(self, frame: Frame) -> Frame | None:
        """The frame to handle, or None if it must be dropped.

        A frame is dropped if its answer could not be sent (NATS closes a connection that sends too long a line), if its answer
        would go to a subject that servers listen on, or if the authoriser does not admit it."""
        if not can_be_answered(frame):
            return None
        if frame.sid not in self.judged:
            return frame if not frame.reply or frame.reply.startswith(SERVERS_REPLIES) else None
        if self.authorizer is not None and self.authorizer.with_users:
            return self.authorizer.admit(frame)
        if frame.reply and not self.broker.view.may_send_to(frame.reply):
            self._tell_reply(frame)
            return None
        return frame if self.authorizer is None else self.authorizer.admit(frame)

    def listen(self, ack_subject: str = "") -> None:
        """Subscribe to everything, now and after each reconnection; *ack_subject* if it was not known yet."""
        if ack_subject:
            self.subscriptions[ACK_SID] = ack_subject
        view = self.broker.view
        self.rules = rules(view.config, view.nuid)
        if self.replay_buffer is not None:
            self.replay_buffer.gap(view.now)  # clients' frames before this were not read
        self.listens = True
        new = self.subscriptions.keys() - self.connection.subscriptions.keys()
        self.connection.subscriptions = self.subscriptions
        lines = (b"SUB %b %d\r\n" % (self.subscriptions[sid].encode(), sid) for sid in sorted(new))
        self.connection.write(b"".join(lines))

    async def ask(self, subject: str, payload: bytes, timeout_s: float) -> bytes | None:
        """Send one request; returns the payload of the first answer, or None without a responder or an answer in time."""
        answers: list[Frame] = []

        def take(frame: Frame) -> bool:
            answers.append(frame)
            return True

        await self.ask_all(subject, payload, take, timeout_s)
        return answers[0].payload if answers and not answers[0].nobody else None

    async def ask_all(self, subject: str, payload: bytes, take: Callable[[Frame], bool], timeout_s: float) -> None:
        """Send one request, and pass its answers to *take* until *take* returns True or *timeout_s* seconds have passed."""
        reply = self.inbox + token_hex(12).encode()  # random: no third party can make another server answer to it
        enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def taken(frame: Frame) -> None:
            if not enough.done() and take(frame):
                enough.set_result(None)

        self._asked[reply] = taken
        if self.authorizer is not None:
            subject = self.authorizer.own(subject)
        self.connection.write(publication(subject.encode(), payload, reply))
        try:
            async with asyncio.timeout(timeout_s):
                await enough
        except TimeoutError:
            pass
        finally:
            del self._asked[reply]


def _groups(send: Send) -> tuple[GroupId, ...]:
    """Groups of which this node must be the leader to send this; empty if any node may."""
    if isinstance(send, bytes):
        return ()
    return send.groups if isinstance(send, LeaseAnswer) else (send.group,)


def _cut(subject: bytes) -> str:
    """The beginning of a subject, quoted, for a log line."""
    return go_quote(subject[:SHOWN_BYTES].decode("utf-8", "replace"))


class _OfGroup(dict[bytes, bool]):
    """By channel: True if the channel belongs to the given group."""

    def __init__(self, group: GroupId, number_of: Callable[[bytes], GroupId]) -> None:
        super().__init__()
        self._group = group
        self._number_of = number_of

    def __missing__(self, channel: bytes) -> bool:
        found = self[channel] = self._number_of(channel) == self._group
        return found

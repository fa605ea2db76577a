"""The consumers of one group on its leader: requests for messages, acks, heartbeats, and what ends by itself.

MSG.NEXT ─► a Pull of the consumer ─► the cursor is scheduled ─► deliveries (stan.core.leader.dispatch)
acks ─► the cursor's acks; those whose senders want to know are answered once an entry behind them is committed
"""

from collections.abc import Sequence as Seq
from functools import partial
from typing import ClassVar

from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import ChannelUid, Nanos

from stan import limits
from stan.core.base.leaf_state import LeafState
from stan.core.features.jetstream.consumers.after_commit import AfterCommit
from stan.core.features.jetstream.consumers.descriptions import inactive_since
from stan.core.features.jetstream.consumers.retention import WorkQueues
from stan.core.features.jetstream.consumers.subjects import WantedSubjects, let_all_through
from stan.core.features.jetstream.rights import JetStreamRights
from stan.core.features.jetstream.streams.reading import StreamReading
from stan.core.leader.cursors import LiveCursor, LiveMember
from stan.core.leader.live_consumer import DELETED, IDLE, MOVED, LiveConsumer
from stan.core.leader.local_group import Leadership
from stan.core.leader.pulls import Pull, PullRoom
from stan.core.metadata.streams import Stream
from stan.core.services.leader_part import LeaderPart
from stan.core.services.services import Services
from stan.core.state.consumers import CONSUMERS
from stan.core.state.cursors import CursorKind
from stan.protocol.jetstream import headers
from stan.protocol.jetstream.consumers import ACK_ALL
from stan.protocol.jetstream.errors import RequestError
from stan.protocol.jetstream.pulls import (
    PullRequest,
    pull_refusal,
    read_ack,
    read_ack_numbers,
    read_pull,
)
from stan.protocol.jetstream.statuses import status_frame
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.user_subjects import own_name

LedConsumer = tuple[LiveCursor, LiveMember, LiveConsumer]
"""The live view of a consumer on the leader of its group."""


class ConsumerDeliveries(LeaderPart):
    """The consumers of one group, while this node leads it."""

    follows: ClassVar[frozenset[str]] = frozenset(
        {"set_consumer", "drop_consumer", "drop_cursor", "drop_channel", "departed"}
    )

    def __init__(self, services: Services, leadership: Leadership) -> None:
        super().__init__(services, leadership)
        self.rights = JetStreamRights(services)
        self.leaves = services.leaves
        self._known: dict[int, LedConsumer] = {}  # by the cursor's number
        self._alarms: dict[int, int] = {}  # by the cursor's number: when it is looked at, Nanos
        self._up: set[bytes] = set()  # the users whose leafnode connections are up, as the consumers know it
        self.after_commit = AfterCommit(services, leadership)
        self._room = PullRoom()

    # --- which there are --------------------------------------------------------------------------------------------------

    def find(self, uid: ChannelUid, name: bytes) -> LedConsumer | None:
        """A consumer that is delivered here; None: there is none."""
        channel = self.group.machine.channels.get(uid)
        cursor = None if channel is None else channel.by_key.get((CursorKind.DURABLE, name, CONSUMERS))
        live = None if cursor is None else self.group.live(cursor.cursor_id)
        consumer = live.members[0].consumer if live is not None and live.members else None
        if live is None or consumer is None:
            return None
        number = live.cursor.cursor_id
        known = self._known.get(number)
        if known is None or known[2] is not consumer:
            if known is not None:
                known[2].end_all(b"")
            consumer.pulls.room = self._room
            consumer.presence.idle_since = inactive_since(self.node.clock.now)
            known = self._known[number] = (live, live.members[0], consumer)
            self._bound(known)
        return known

    def take_up(self) -> None:
        """The live view of the group is complete: look at all consumers."""
        for uid, of_channel in self.group.machine.consumers.by_channel.items():
            for name in of_channel:
                self.find(uid, name)

    def streams_changed(self) -> None:
        """A stream has another configuration: filters may let through more, or less."""
        for led in list(self._known.values()):
            self._bound(led)

    def drop_strays(self, known: bool) -> None:  # noqa: FBT001 - as read indexes call it
        """Delete consumers whose stream has gone and left its channel behind. *known*: this node's metadata are new enough."""
        if not known or self.leadership.ended:
            return
        streams = self.node.meta.streams.by_uid
        for uid, of_channel in self.group.machine.consumers.by_channel.items():
            for name in of_channel if uid not in streams else ():
                self.change(lambda _result, _error: None, drop_consumer=pb.DropConsumer(uid=uid, name=name))

    def took_over(self, uid: ChannelUid) -> None:
        """The group has taken a channel over from another one."""
        for name in self.group.machine.consumers.of(uid):
            self.find(uid, name)

    def followed(self, change: pb.GroupChange) -> None:
        """A consumer came, changed or went."""
        name = change.WhichOneof("change")
        if name != "set_consumer":
            self._end_dropped(MOVED if name == "departed" else DELETED)
            return
        made, before = change.set_consumer, len(self._known)
        led = self.find(ChannelUid(made.uid), made.name)
        if led is not None and len(self._known) > before:
            self.after_commit.advisories.action(led[2], "create")
        consumer = self.group.machine.consumers.of(ChannelUid(made.uid)).get(made.name)
        if led is not None and consumer is not None and led[2].config is not consumer.config:
            led[2].config = consumer.config
            led[2].leaf = self.leaves.of(led[0].cursor.user)
            self.group.dispatch.members.policies_changed(ChannelUid(made.uid))
            self._bound(led)

    def _end_dropped(self, status: bytes) -> None:
        """Tell the clients of consumers that are gone from this group."""
        for number in [number for number in self._known if number not in self.group.machine.cursors]:
            _, _, consumer = self._known.pop(number)
            self._alarms.pop(number, None)
            if status == DELETED:
                self.after_commit.advisories.action(consumer, "delete")
            consumer.end_all(status)
            if consumer.config.pushes and consumer.presence.active and consumer.config.idle_heartbeat:
                consumer.statuses.append(self._pushed(consumer, status))
            self._flush(consumer)

    def leave(self) -> None:
        """This node leads the group no more: end the requests for messages, so that their clients ask the next leader."""
        for _, _, consumer in self._known.values():
            consumer.end_all(MOVED)
            if consumer.statuses:
                self.outgoing.responses.append(consumer.take_statuses(()))

    def _bound(self, led: LedConsumer) -> None:
        """A consumer has come, or has another configuration: see who listens, and what it waits for."""
        live, _, consumer = led
        now, config = self.node.clock.now, consumer.config
        stream = self.node.meta.streams.by_uid.get(live.cursor.uid)
        if stream is not None:
            consumer.subject = stream.only_subject
            consumer.filters = () if let_all_through(config.filters, stream) else config.filters
            chooses = consumer.filters or config.newest_until or stream.config.history
            consumer.known = self._subjects(led, stream) if chooses else None
        if config.pushes:
            consumer.presence.active, consumer.presence.groups = self._listeners(led)
            consumer.presence.idle_since = (
                Nanos(0) if consumer.presence.active else consumer.presence.idle_since or inactive_since(now)
            )
            consumer.presence.told_at = now
        consumer.presence.paused = config.pause_until > self.node.clock.wall
        self.group.dispatch.cursors.schedule(live)
        self._arm(led)

    def _subjects(self, led: LedConsumer, stream: Stream) -> WantedSubjects:
        """The subjects that a consumer wants, by the index of its stream."""
        live, _, consumer = led

        def awaited(known: bool) -> None:  # noqa: FBT001 - as WantedSubjects calls it
            if known:
                self.group.dispatch.cursors.schedule(live)
            else:
                self.at(self.node.clock.now + limits.CONSUMER_INDEX_RETRY, lambda _now: awaited(known=True))

        reading = self.leadership.part(StreamReading)
        owner = self.rights.owner(live.cursor)
        return WantedSubjects(reading, stream, consumer.filters, consumer.config.newest_until, awaited, owner)

    # --- NATS -------------------------------------------------------------------------------------------------------------

    def interest_changed(self, leaf: LeafState, *, left: bool) -> None:
        """A leafnode connection or the interest of NATS has changed. *left*: somebody listens no more."""
        came_up = leaf.up and leaf.user not in self._up
        (self._up.add if leaf.up else self._up.discard)(leaf.user)
        if left and self._room.size:
            self._forget_deaf(self.node.clock.now)
        for led in [one for one in self._known.values() if one[2].leaf is leaf]:
            live, _, consumer = led
            if consumer.config.pushes:
                self._look_who_listens(led)
            if came_up:
                self.group.dispatch.cursors.schedule(live)
                self._arm(led)

    def _forget_deaf(self, now: Nanos) -> None:
        """Forget the requests of clients that do not listen any more: now, or soon where somebody has looked a moment ago."""
        at = self._room.look_for_deaf(now)
        if at:
            self.at(at, self._forget_deaf)
        elif at is not None:
            for _, _, consumer in self._known.values():
                consumer.forget_deaf(now)

    def _look_who_listens(self, led: LedConsumer) -> None:
        _, _, consumer = led
        active, consumer.presence.groups = self._listeners(led)
        if active != consumer.presence.active:
            consumer.flow.restart()
            self._bound(led)

    def _listeners(self, led: LedConsumer) -> tuple[bool, bytes]:
        """True if somebody listens where a consumer pushes to, who may get messages there; and the queue groups that listen: the
        one that it names, or all."""
        live, _, consumer = led
        interest, to, named = consumer.leaf.interest, consumer.config.to, consumer.config.queue
        groups = named or interest.groups_of(to)
        listened = interest.has(to, named) or bool(groups and not named)
        return listened and self.rights.may_consume(live.cursor, consumer.config), groups

    # --- requests for messages ----------------------------------------------------------------------------------------------

    def pull(self, led: LedConsumer, reply: bytes, payload: bytes) -> None:
        """A client asks for messages."""
        live, _, consumer = led
        now = self.node.clock.now
        if not self.rights.may_deliver_to(own_name(reply)):
            return
        if consumer.config.pushes:
            self._refuse(reply, b"409 Consumer is push based")
            return
        try:
            asked = read_pull(payload)
        except RequestError as error:
            self._refuse(reply, b"400 Bad Request - %b" % error.error.description.encode(errors="replace"))
            return
        waiting, most = consumer.pulls, consumer.config.max_waiting
        refusal = pull_refusal(asked, consumer.config)
        if not refusal and (len(waiting) >= most or self._room.open_places(consumer.leaf.user) <= 0):
            refusal = b"409 Exceeded MaxWaiting"
        if refusal:
            self._refuse(reply, refusal)
            return
        consumer.presence.idle_since = Nanos(0)
        consumer.add(_pull_of(asked, own_name(reply), now))
        self.group.dispatch.cursors.schedule(live)
        self._arm(led)

    def _refuse(self, reply: bytes, status: bytes) -> None:
        self.outgoing.responses.append(headers.publication(reply, b"", headers.render((), status)))

    # --- acks -------------------------------------------------------------------------------------------------------------

    def acked(self, led: LedConsumer, ranges: Seq[tuple[int, int]], replies: Seq[bytes]) -> None:
        """Clients have acked messages; *replies*: where they want to hear once that is stored. A consumer without acks has none,
        which is answered as NATS does where nobody listens."""
        live, member, consumer = led
        self._note_client(consumer)
        queue = self.queue_of(led)
        if queue is not None:
            if not queue.acked(live, member, ranges, replies):
                self.after_commit.answer(live, replies)
            return
        if not consumer.config.acks:
            self.outgoing.responses += [headers.no_responders(reply) for reply in replies]
            return
        sent = max(live.last_sent, live.ahead.maybe_sent_until)
        if len(ranges) != 1 or ranges[0][1] > sent:
            ranges = [(first, min(last, sent)) for first, last in ranges if first <= sent]
        if ranges and consumer.config.ack_policy == ACK_ALL:
            ranges = [(1, max(last for _, last in ranges))]
        if ranges:
            self.group.dispatch.acks.ack(member.sub.ack_place, ranges, self.node.clock.now, self.node.clock.wall)
        self.after_commit.answer(live, replies)

    def queue_of(self, led: LedConsumer) -> WorkQueues | None:
        """The part that removes acked messages, if the consumer's stream is a work queue."""
        stream = self.node.meta.streams.by_uid.get(led[0].cursor.uid)
        return self.leadership.part(WorkQueues) if stream is not None and stream.config.is_queue else None

    def verdict(self, led: LedConsumer, sequence: int, frame: Frame) -> None:
        """A client says something else about a message than that it is done."""
        said = read_ack(frame.payload)
        if said is None:
            return
        replies = [frame.reply] if frame.reply and said.next is None else []
        ends = said.kind == wire.REJECT and self.queue_of(led) is not None and not led[0].policy.dead_letter
        if said.kind == wire.ACK or ends:
            self.acked(led, [(sequence, sequence)], replies)
        elif not led[2].config.acks:
            self.acked(led, [], replies)
        else:
            self._note_client(led[2])
            verdict = wire.Ack(sequence=sequence, kind=said.kind, delay=said.delay, reason=said.reason)  # type: ignore[arg-type]
            clock, rejections = self.node.clock, led[0].pending.rejections
            self.group.dispatch.acks.verdict(led[1].sub.ack_place, verdict, clock.now, clock.wall)
            numbers = read_ack_numbers(frame.subject) if led[0].pending.rejections > rejections else None
            if numbers is not None:
                self.after_commit.terminated(led[2], numbers, verdict.reason)
            self.after_commit.answer(led[0], replies)
        if said.next is not None and frame.reply:
            self.pull(led, frame.reply, said.next)

    def _note_client(self, consumer: LiveConsumer) -> None:
        """Somebody speaks to a consumer, though nobody asks for messages at the moment."""
        if consumer.presence.idle_since and not consumer.config.pushes:
            consumer.presence.idle_since = inactive_since(self.node.clock.now)

    def flow_answered(self, led: LedConsumer, subject: bytes) -> None:
        """A client says that it has received everything that was pushed to it before it was asked."""
        if led[2].flow.answered(subject):
            led[2].ask()
            self._flush(led[2])
            self.group.dispatch.cursors.schedule(led[0])

    # --- time -------------------------------------------------------------------------------------------------------------

    def _arm(self, led: LedConsumer) -> None:
        """See to it that a consumer is looked at when something is to be done about it."""
        number, at = led[0].cursor.cursor_id, self._next_at(led[2])
        if at and not 0 < self._alarms.get(number, 0) <= at:
            self._alarms[number] = at
            self.at(at, partial(self._look, number))

    def _next_at(self, consumer: LiveConsumer) -> int:
        config, clock = consumer.config, self.node.clock
        look = consumer.pulls.next_look()
        times = [look] if look else []
        if config.pushes and consumer.presence.active and config.idle_heartbeat:
            times.append(consumer.presence.told_at + self._beat_of(consumer))
        if config.inactive_threshold:
            times.append((consumer.presence.idle_since or clock.now) + config.inactive_threshold)
        if consumer.presence.paused:
            times.append(clock.now + max(1, config.pause_until - clock.wall))
        return min(max(min(times), clock.now + 1), clock.now + limits.CONSUMER_LOOK_MAX) if times else 0

    def _beat_of(self, consumer: LiveConsumer) -> int:
        """The interval of a pushing consumer's heartbeats, ns: longer where there are very many consumers."""
        return max(consumer.config.idle_heartbeat, len(self._known) * limits.PUSH_BEAT_PAUSE)

    def _look(self, number: int, now: Nanos) -> None:
        """Look at a consumer whose time has come."""
        known = self._known.get(number)
        if known is None or self._alarms.get(number, 0) > now:
            return
        self._alarms.pop(number, None)
        led = self.find(known[0].cursor.uid, known[0].cursor.name)
        if led is None:
            return
        live, _, consumer = led
        if consumer.presence.paused and consumer.config.pause_until <= self.node.clock.wall:
            consumer.presence.paused = False
            self.group.dispatch.cursors.schedule(live)
        fields = (b"Nats-Last-Consumer", b"%d" % consumer.sent), (b"Nats-Last-Stream", b"%d" % live.last_sent)
        consumer.look(now, fields, reads=bool(live.reads.fetching))
        if not consumer.pulls and not consumer.config.pushes and not consumer.presence.idle_since:
            consumer.presence.idle_since = inactive_since(now)
        self._beat(consumer, now, fields)
        self._flush(consumer)
        if not self._is_inactive(led, now):
            self._arm(led)

    def _beat(self, consumer: LiveConsumer, now: Nanos, fields: tuple[tuple[bytes, bytes], ...]) -> None:
        """Tell clients to which nothing was pushed for a while that the consumer is there."""
        config, presence = consumer.config, consumer.presence
        if not (config.pushes and presence.active and config.idle_heartbeat > 0):
            return
        if self._beat_of(consumer) <= now - presence.told_at:
            presence.told_at = now
            if consumer.flow.stalled:
                fields = (*fields, (b"Nats-Consumer-Stalled", consumer.flow.asked))
            consumer.statuses.append(self._pushed(consumer, IDLE, fields))

    @staticmethod
    def _pushed(consumer: LiveConsumer, status: bytes, fields: tuple[tuple[bytes, bytes], ...] = ()) -> bytes:
        config = consumer.config
        return status_frame(config.to, status, fields, queue=consumer.presence.groups)

    def _is_inactive(self, led: LedConsumer, now: Nanos) -> bool:
        """Delete a consumer for which nobody has asked for as long as it lasts without; True if it is."""
        live, _, consumer = led
        threshold = consumer.config.inactive_threshold
        if (
            not threshold
            or not consumer.presence.idle_since
            or consumer.pulls
            or now - consumer.presence.idle_since < threshold
        ):
            return False
        if not consumer.leaf.up:  # nobody knows who listens
            consumer.presence.idle_since = inactive_since(now)
            return False
        cursor = live.cursor
        self.change(lambda _result, _error: None, drop_consumer=pb.DropConsumer(uid=cursor.uid, name=cursor.name))
        return True

    def _flush(self, consumer: LiveConsumer) -> None:
        """Send the statuses of a consumer."""
        if consumer.statuses:
            self.outgoing.responses.append(consumer.take_statuses((self.number,)))


def _pull_of(request: PullRequest, reply: bytes, now: Nanos) -> Pull:
    over_at = Nanos(now + max(request.expires, 1) if request.expires else 0)
    return Pull(
        inbox=reply,
        left=request.batch,
        bytes_left=request.max_bytes,
        limited=request.max_bytes > 0,
        over_at=over_at,
        impatient=request.no_wait,
        heartbeat=request.heartbeat,
        told_at=now,
    )

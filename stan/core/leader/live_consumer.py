"""The leader's live view of a consumer of JetStream: to whom its messages go, and how many may.

    clients pull: requests wait, and take turns; each gets so many messages, or so many bytes, or all that come until it is over
    messages are pushed: to one subject, as long as somebody listens there

It belongs to the only member of the consumer's cursor, which delivers like all others and asks how much may leave now, and under
which numbers. It lives as long as the leadership.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol

from stan_protocol.kernel.wire_py import records_in
from stan_protocol.patterns import matches
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import GroupId, Nanos

from stan import limits
from stan.core.base.leaf_state import LeafState
from stan.core.base.ready import LeafFrames, LeafParcel, LeafPiece, ReadResult, Weighing
from stan.core.leader.pulls import NEVER, Pull, Pulls
from stan.protocol.jetstream.consumers import ConsumerConfig
from stan.protocol.jetstream.statuses import size_of, status_frame

UNBOUNDED: Final = limits.STREAM_CONSUMER_BATCH_MAX
NO_MESSAGES, TIMEOUT, IDLE = b"404 No Messages", b"408 Request Timeout", b"100 Idle Heartbeat"
DELETED, TOO_LARGE, COMPLETED = (
    b"409 Consumer Deleted",
    b"409 Message Size Exceeds MaxBytes",
    b"409 Batch Completed",
)
MOVED = b"409 Leadership Change"


@dataclass(slots=True)
class Flow:
    """Flow control of one consumer that pushes: bytes in the life of its consumer."""

    sent: int = 0
    arrived: int = 0  # as the client has told
    mark: int = 0  # `sent` when it was asked
    asked: bytes = b""  # the subject on which its answer is expected; b"": none is
    number: int = 0  # of the newest question

    @property
    def stalled(self) -> bool:
        """True if nothing more may leave before the client answers."""
        return self.sent - self.arrived > limits.FLOW_BYTES_MAX

    def restart(self) -> None:
        """Begin again, as another client listens, or none: it is not asked about earlier messages."""
        self.arrived, self.asked = self.sent, b""

    def answered(self, subject: bytes) -> bool:
        """The client has everything that was sent before it was asked; returns False if that is no answer to the question."""
        if not self.asked or subject != self.asked:
            return False
        self.arrived, self.asked = self.mark, b""
        return True


@dataclass(slots=True)
class Presence:
    """The presence of clients of a consumer."""

    active: bool = False  # of one that pushes: somebody listens
    groups: bytes = b""  # the queue groups that get what is pushed, with spaces between them
    paused: bool = False  # until a time that the configuration names
    told_at: Nanos = NEVER  # when something was last pushed
    idle_since: Nanos = NEVER  # since when nobody listens or asks; 0: somebody does


class KnownSubjects(Protocol):
    """Knowledge of the newest messages of the subjects that a consumer wants."""

    @property
    def limited(self) -> bool:
        """True if of the messages of a subject the newest ones stay alone."""

    def ready(self) -> bool:
        """True if it is known which messages are outdated, or cannot be. Else somebody schedules the consumer later."""

    def remaining(self, sequence: int, sent: int | None) -> int | None:
        """Return how many messages behind *sequence* the consumer will get: 0, or at least so many. None: it is not known.
        *sent*: as of LiveConsumer.remaining."""

    def has_newer(self, subject: bytes, sequence: int) -> bool:
        """True if there is a newer message of the subject."""

    def is_outdated(self, subject: bytes, sequence: int) -> bool:
        """True if a message does not stay, as there are newer ones of the subject."""


@dataclass(slots=True)
class LiveConsumer:
    """The live view of one consumer."""

    leaf: LeafState
    config: ConsumerConfig
    ack_prefix: bytes
    subject: bytes  # of all messages; b"": each has its own, as its key
    sent: int  # the number of its newest delivery; after another leader an estimate that is no lower
    pulls: Pulls = field(default_factory=Pulls)
    presence: Presence = field(default_factory=Presence)
    flow: Flow = field(default_factory=Flow)
    statuses: list[bytes] = field(default_factory=list)  # to be sent behind the deliveries of this turn
    known: KnownSubjects | None = None  # of one that does not get every message
    filters: tuple[str, ...] = field(init=False)  # none if all messages of the stream pass them

    def __post_init__(self) -> None:
        self.filters = self.config.filters

    @property
    def names(self) -> tuple[str, str]:
        """The names of its stream and its own."""
        return self.ack_prefix.split(b".")[2].decode(), self.config.name

    def open_slots(self, in_flight: int) -> int:
        """Messages that may leave now, if *in_flight* wait for acks."""
        if self.presence.paused or not self.leaf.up or (self.flow.sent and self.flow.stalled):
            return 0
        config, known = self.config, self.known
        if known is not None and (known.limited or config.newest_until) and not known.ready():
            return 0
        room = config.window - in_flight if config.acks else UNBOUNDED
        if config.pushes:
            return room if self.presence.active else 0
        return min(room, self.pulls.demand)

    def may_gather(self, before: int, in_flight: int) -> bool:
        """True if acks after which *in_flight* messages wait for others, of *before*, need not be followed by a delivery at once:
        messages are pushed to a client that has more than half of a large window to work on."""
        config = self.config
        return config.pushes and in_flight < before and 2 * in_flight > config.window >= limits.CONSUMER_GATHER_WINDOW

    # --- requests of pullers ------------------------------------------------------------------------------------------------

    def add(self, pull: Pull) -> None:
        """A client asks for messages."""
        pull.user = self.leaf.user
        if not self.leaf.interest.has(pull.inbox):
            pull.unheard_until = Nanos(pull.told_at + limits.PULL_UNHEARD_MAX)
        self.pulls.add(pull)

    def drop(self, pull: Pull, status: bytes, *, shortfall: bool = True) -> None:
        """A request is over; *shortfall*: the status says how much of it is missing."""
        self.pulls.remove(pull)
        fields = (
            (
                (b"Nats-Pending-Messages", b"%d" % pull.left),
                (b"Nats-Pending-Bytes", b"%d" % pull.bytes_left),
            )
            if shortfall
            else ()
        )
        if status:
            self.statuses.append(status_frame(pull.inbox, status, fields))

    def end_all(self, status: bytes) -> None:
        """All requests are over."""
        for pull in list(self.pulls):
            self.drop(pull, status, shortfall=False)

    def end_impatient(self) -> None:
        """There are no messages: end the requests that do not wait."""
        self.end_served()
        for pull in self.pulls.hasty():
            self.drop(pull, NO_MESSAGES, shortfall=False)

    def end_served(self) -> None:
        """End the request that does not wait for more than it has got: the first one, as no other has got anything."""
        if self.pulls and self.pulls.first.impatient and self.pulls.first.served:
            self.drop(self.pulls.first, NO_MESSAGES, shortfall=False)

    def look(self, now: Nanos, numbers: tuple[tuple[bytes, bytes], ...], *, reads: bool) -> None:
        """End requests whose time is over, and those of clients that never listened; tell the others that the consumer is there.
        *numbers*: fields that tell how far it has come; *reads*: messages are on their way from the disk. Cost: O(log requests)
        for each request that is due."""
        due = self.pulls.due(now)
        for pull in due:
            if pull.over_at and pull.over_at <= now:
                self.drop(pull, TIMEOUT)
        if not reads:
            self.end_served()
        for pull in filter(self.pulls.has, due):
            if self._is_deaf(pull, now):
                self.drop(pull, b"")
                continue
            if pull.heartbeat and pull.told_at + max(pull.heartbeat, self.pulls.room.pause) <= now:
                pull.told_at = now
                self.statuses.append(status_frame(pull.inbox, IDLE, numbers))
            self.pulls.look_again(pull, now)

    def forget_deaf(self, now: Nanos) -> None:
        """Forget the requests of clients that do not listen any more; nobody knows while the connection is away. Cost:
        O(requests)."""
        for pull in list(self.pulls) if self.leaf.up else ():
            if self._is_deaf(pull, now):
                self.drop(pull, b"")

    def _is_deaf(self, pull: Pull, now: Nanos) -> bool:
        """True if nobody listens where a request wants its messages. Of a new one NATS may not have told yet that somebody does:
        requests come by another connection."""
        if not self.leaf.up:
            if pull.unheard_until:
                pull.unheard_until = Nanos(now + limits.PULL_UNHEARD_MAX)
            return False
        if self.leaf.interest.has(pull.inbox):
            pull.unheard_until = NEVER
            return False
        return now >= pull.unheard_until

    def take_statuses(self, groups: tuple[GroupId, ...]) -> LeafFrames:
        """Take the statuses for clients; *groups*: as of LeafFrames."""
        told = b"".join(self.statuses)
        self.statuses.clear()
        return LeafFrames(told, groups, self.leaf.user)

    def _drop_deaf(self) -> bool:
        """Forget requests in front whose clients do not listen any more; returns False if none is left."""
        while self.pulls:
            pull = self.pulls.first
            if self.leaf.interest.has(pull.inbox):
                pull.unheard_until = NEVER
                return True
            if pull.unheard_until:
                return True
            self.drop(pull, b"")
        return self.config.pushes

    # --- what may leave -----------------------------------------------------------------------------------------------------

    def passing(self, batch: ReadResult, first: int, last: int, newest: int) -> tuple[int, int]:
        """Of the new messages [first, last] of *batch*: the last one of those that the filters stop at its beginning (first - 1:
        none), and the last one of those behind them that may leave. *newest*: the last message of the stream."""
        config, weighing = self.config, Weighing(1, newest)
        if config.pushes and self.known is None and not self.filters and first > config.newest_until:
            return first - 1, last
        limited = self.known is not None and self.known.limited
        chooses = bool(self.filters) or limited or first <= config.newest_until
        if not self._drop_deaf():
            return first - 1, first - 1
        if not chooses and not self._weighs:
            return first - 1, last
        passed, until = first - 1, first - 1
        weight = 0
        for at, message in _messages(batch, first, last):
            if chooses and not self._wants(message, at):
                if until >= first:
                    break
                passed = at
                first = at + 1
                until = at
                continue
            if self._weighs:
                weight += self._weight(message, at, self.sent + at - first + 1, weighing)
                if not self._takes(weight, at - first + 1):
                    break
            until = at
        return passed, until

    def weighed(self, batch: ReadResult, first: int, last: int, weighing: Weighing) -> int:
        """Of [first, last], which are sent again: the last one that may leave now, first - 1: none."""
        if not self._drop_deaf():
            return first - 1
        if not self.config.pushes:
            last = min(last, first + self.pulls.demand - 1)
        if not self._weighs:
            return last
        weight, until = 0, first - 1
        for at, message in _messages(batch, first, last):
            weight += self._weight(message, at, self.sent + at - first + 1, weighing)
            if not self._takes(weight, at - first + 1):
                break
            until = at
        return until

    def _weight(self, message: wire.MsgProto, sequence: int, number: int, weighing: Weighing) -> int:
        """Bytes that a delivery counts for, *number* in the consumer's life: no fewer than the client counts."""
        behind = max(0, weighing.newest - sequence)
        return size_of(message, self.ack_prefix, (weighing.delivered, sequence, number, behind))

    @property
    def _weighs(self) -> bool:
        return self.pulls.limited > 0

    def _takes(self, weight: int, count: int) -> bool:
        """True if the first request has room for so many bytes of so many messages. One without room for a single message is
        over, and the next one is asked."""
        while self.pulls:
            pull = self.pulls.first
            if count <= pull.left and (not pull.limited or weight <= pull.bytes_left):
                return True
            if count > 1:
                return False
            self.drop(pull, TOO_LARGE)
        return False

    def _wants(self, message: wire.MsgProto, sequence: int) -> bool:
        subject, config = self.subject or message.key or message.subject, self.config
        known = self.known
        if known is not None:
            if sequence <= config.newest_until and known.has_newer(subject, sequence):
                return False
            if known.limited and known.is_outdated(subject, sequence):
                return False
        text = subject.decode("utf-8", "surrogateescape")
        return not self.filters or any(matches(one, text) for one in self.filters)

    def remaining(self, sequence: int, every: int, sent: int | None = None) -> int:
        """How many messages behind *sequence* the consumer will get, of *every* that there are (0 or less: there are none).
        *sent*: the number of the delivery of the last one before them, where a number that is too low will do."""
        if self.known is None or every <= 0:
            return max(0, every)
        found = self.known.remaining(sequence, sent)
        return every if found is None else min(found, every)

    # --- what leaves --------------------------------------------------------------------------------------------------------

    def parcel(
        self, batch: ReadResult, run: tuple[int, int], pending: int, weighing: Weighing, now: Nanos
    ) -> LeafParcel:
        """The *run* (first, last) of *batch* leaves now, of which the consumer gets *pending* more behind the last one."""
        first, last = run
        config, self.presence.told_at = self.config, now
        behind, sent = pending + last - first, self.sent
        self.sent += last - first + 1
        if config.pushes:
            pieces = [LeafPiece(config.to, first, last, sent + 1, behind)]
            if config.flow_control:
                self._count(len(batch.records) * (last - first + 1) // batch.count)
        else:
            pieces = self._pieces_by_request(batch, LeafPiece(b"", first, last, sent + 1, behind), weighing, now)
        groups, user = self.presence.groups, self.leaf.user
        return LeafParcel(self.ack_prefix, tuple(pieces), self.subject, groups, config.headers_only, user)

    def _pieces_by_request(
        self, batch: ReadResult, piece: LeafPiece, weighing: Weighing, now: Nanos
    ) -> list[LeafPiece]:
        """The requests share a piece, so that no client waits while another one has more than it can do. A piece that was
        weighed belongs to the first of them."""
        pieces: list[LeafPiece] = []
        share = -(-(piece.last - piece.first + 1) // (1 if self._weighs else len(self.pulls)))
        while piece.first <= piece.last:
            _, first, last, sent, behind = piece
            part = piece._replace(last=min(last, first + share - 1))
            to, until = self._taken_by_first(batch, part, weighing, now)
            pieces.append(LeafPiece(to, first, until, sent, behind))
            size = until - first + 1
            piece = LeafPiece(b"", first + size, last, sent + size, behind - size)
        return pieces

    def _count(self, size: int) -> None:
        """Bytes leave for a client with flow control."""
        self.flow.sent += size
        self.ask()

    def ask(self) -> None:
        """Ask a client with flow control whether it has everything, if much is on its way and it is not asked yet. What left
        behind the question is asked for by the next one: a single delivery may be larger than all that may be on its way."""
        flow, config = self.flow, self.config
        if flow.sent - flow.arrived > limits.FLOW_BYTES_MAX // 2 and not flow.asked:
            flow.number += 1
            flow.asked = b"$JS.FC.%b%d" % (self.ack_prefix.removeprefix(b"$JS.ACK."), flow.number)
            flow.mark = flow.sent
            told = status_frame(config.to, b"100 FlowControl Request", reply=flow.asked, queue=self.presence.groups)
            self.statuses.append(told)

    def _taken_by_first(self, batch: ReadResult, piece: LeafPiece, weighing: Weighing, now: Nanos) -> tuple[bytes, int]:
        """The first request gets what it wants of a piece: where it goes, and the last of it. Another one is first then."""
        pull, first, last = self.pulls.first, piece.first, piece.last
        until = min(last, first + pull.left - 1)
        if pull.limited:
            until = first - 1
            for at, message in _messages(batch, first, min(last, first + pull.left - 1)):
                size = self._weight(message, at, piece.consumer_sequence + at - first, weighing)
                if until >= first and size > pull.bytes_left:
                    break
                pull.bytes_left = max(0, pull.bytes_left - size)
                until = at
        self.pulls.serve(pull, until - first + 1, now)
        if not pull.left:
            if pull.limited:
                fields = (b"Nats-Pending-Messages", b"0"), (b"Nats-Pending-Bytes", b"%d" % pull.bytes_left)
                self.statuses.append(status_frame(pull.inbox, COMPLETED, fields))
        elif pull.limited and until < last:
            self.drop(pull, TOO_LARGE)
        else:
            self.pulls.pass_on(pull)
        return pull.inbox, until


def _messages(batch: ReadResult, first: int, last: int) -> Iterator[tuple[int, wire.MsgProto]]:
    """The messages [first, last] of a batch, each with its sequence."""
    base, data = batch.base_sequence, bytes(batch.records)
    for at, (start, end) in enumerate(islice(records_in(data), last - base + 1), base):
        if at >= first:
            yield at, wire.MsgProto.FromString(data[start:end])

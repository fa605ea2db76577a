"""Cursors and subscriptions of a channel group, and their rows.

A *cursor* is a position in a channel: of a plain subscription, of a durable, or shared by the members of a queue group. A
*subscription* is one online member of a cursor with the sequences it was sent and has not acked. The sequences in a cursor's
`to_redeliver` were delivered once, and no member holds them now.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from stan_protocol.scalars import ChannelUid

from stan.core.base.names import shown
from stan.core.base.runs import Runs, from_flat
from stan.core.state.cursor_override import CursorOverride, of_row
from stan.core.state.serving import LEADER, ServedBy
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.user_subjects import user_of

ACK_KEY_BITS: Final = 64


class CursorKind(IntEnum):
    """The kinds of cursors, by who shares them and by how long they last; stored, so numbers are never reused."""

    PLAIN = 0
    DURABLE = 1
    QUEUE = 2
    DURABLE_QUEUE = 3

    @property
    def durable(self) -> bool:
        """True if the cursor outlives its members."""
        return self in (CursorKind.DURABLE, CursorKind.DURABLE_QUEUE)

    @property
    def shared(self) -> bool:
        """True if the cursor may have several members."""
        return self in (CursorKind.QUEUE, CursorKind.DURABLE_QUEUE)


class SubscriptionSettings(NamedTuple):
    """The subjects of a subscription's messages and acks, and the bounds that its client has asked for."""

    inbox: bytes = b""
    ack_inbox: bytes = b""
    max_in_flight: int = 0
    ack_wait_s: int = 0


class LastMember(NamedTuple):
    """Facts about the member of a cursor that left last, stored for as long as no member is online."""

    subscription_id: int = 0  # the next member gets this id again; 0: it has been given to one already
    settings: SubscriptionSettings = SubscriptionSettings()


class CursorPast(NamedTuple):
    """Moments of a cursor's past."""

    start_sequence: int = 0  # earlier sequences were never sent, unless the cursor was moved; 0: unknown
    acked_at: int = 0  # Unix ns of the newest progress with an ack; 0: no ack came
    unacked_since: int = 0  # Unix ns since when messages are pending at members without an ack; 0: none is


@dataclass(slots=True)
class Subscription:
    """An online member of a cursor. `pending`: sequences sent to this member and not acked."""

    subscription_id: int
    cursor_id: int
    client_id: bytes
    incarnation: int
    settings: SubscriptionSettings
    ack_key: int
    last_sent: int = 0
    pending: Runs = field(default_factory=Runs)
    reply: bytes = b""  # reply subject of its SubscriptionRequest
    joined: int = 0  # RaftIndex of its Subscribe entry; 0: the ack key is this index
    served: ServedBy = LEADER  # who sends its messages
    ack_group: int = 0  # group that its ack inbox names, as it was made there; 0: this one

    @property
    def ack_place(self) -> int:
        """Under which its group's leader finds it when an ack comes (see `ack_place`)."""
        return ack_place(self.ack_group, self.ack_key)

    @property
    def joined_at(self) -> int:
        """RaftIndex of its Subscribe entry: the order in which members have joined."""
        return self.joined or self.ack_key


def ack_place(ack_group: int, ack_key: int) -> int:
    """Return the number for the end of an ack inbox; *ack_group*: 0 for a subscription of the group in which it was made."""
    return ack_group << ACK_KEY_BITS | ack_key


class Subscriptions:
    """The online subscriptions of a group, by the keys that find them."""

    __slots__ = ("by_id", "by_incarnation", "by_reply")

    def __init__(self) -> None:
        self.by_id: dict[int, Subscription] = {}
        self.by_reply: dict[bytes, int] = {}  # reply subject of the SubscriptionRequest -> subscription id
        self.by_incarnation: dict[int, set[int]] = {}  # incarnation of the client -> subscription ids

    def add(self, member: Subscription) -> None:
        """Add a subscription that came online."""
        self.by_id[member.subscription_id] = member
        self.by_incarnation.setdefault(member.incarnation, set()).add(member.subscription_id)
        if member.reply:
            self.by_reply[member.reply] = member.subscription_id

    def remove(self, member: Subscription) -> None:
        """Remove a subscription that ended."""
        del self.by_id[member.subscription_id]
        self.by_reply.pop(member.reply, None)
        of_client = self.by_incarnation[member.incarnation]
        of_client.discard(member.subscription_id)
        if not of_client:
            del self.by_incarnation[member.incarnation]

    def made_by(self, request: pb.Subscribe) -> Subscription | None:
        """The subscription that the same request has made already; None if there is none, or the request names no reply."""
        made = self.by_id.get(self.by_reply.get(request.reply, 0)) if request.reply else None
        return made if made is not None and made.settings.inbox == request.inbox else None


@dataclass(slots=True)
class Cursor:
    """A position in a channel. Invariants: G1 the members' pending sets and `to_redeliver` are disjoint; C1 last_sent never
    decreases, unless an operator moves it: a new epoch of its override begins then."""

    cursor_id: int
    uid: ChannelUid
    kind: CursorKind
    name: bytes
    client_id: bytes  # owner of a durable, last owner of a durable group
    last_sent: int
    to_redeliver: Runs = field(default_factory=Runs)
    members: list[Subscription] = field(default_factory=list)
    last_member: LastMember = field(default_factory=LastMember)
    maybe_sent_until: int = 0  # sequences up to here may have been sent although no entry records it
    past: CursorPast = field(default_factory=CursorPast)
    override: CursorOverride | None = None  # what an operator has changed

    @property
    def in_words(self) -> str:
        """The position for a log line."""
        if self.name:
            return f'{"queue group" if self.kind.shared else "durable"} "{shown(self.name)}"'
        return f'a subscription of client "{shown(self.client_id)}"'

    @property
    def paused(self) -> bool:
        """True while an operator has paused the cursor: nothing is sent."""
        return self.override is not None and self.override.paused

    @property
    def server(self) -> bytes:
        """The node that serves the cursor; b"": the leader."""
        return self.members[0].served.node if self.kind is CursorKind.PLAIN and self.members else b""

    def timed(self, at: int, *, acked: bool) -> None:
        """Note the time of an entry, Unix ns, behind which the cursor is as it is now. *acked*: the entry has an ack."""
        start, acked_at, since = self.past
        if not any(member.pending for member in self.members):
            since = 0
        elif acked or not since:
            since = at
        self.past = CursorPast(start, max(acked_at, at) if acked else acked_at, since)

    @property
    def floor(self) -> int:
        """Everything up to it is settled."""
        held = (self.to_redeliver, *(member.pending for member in self.members))
        return min((runs.first for runs in held if runs), default=self.last_sent + 1) - 1

    @property
    def settings(self) -> SubscriptionSettings:
        """Settings of the newest online member; while there is none, of the last one."""
        return self.members[-1].settings if self.members else self.last_member.settings

    @property
    def user(self) -> bytes:
        """The user to whom it belongs, as NATS tells; b"": to nobody, as without users."""
        return user_of(self.settings.inbox).encode()

    @property
    def key(self) -> tuple[int, bytes, bytes]:
        """The key (kind, name, owner) by which a SubscriptionRequest finds the cursor; plain cursors are never found."""
        return (self.kind, self.name, self.client_id if self.kind is CursorKind.DURABLE else b"")


# --- rows ---------------------------------------------------------------------------------------------------------


def cursor_row(cursor: Cursor) -> pb.Cursor:
    """The row of one cursor."""
    last = cursor.last_member
    to_redeliver, counts = cursor.to_redeliver.counted()
    return pb.Cursor(
        cursor_id=cursor.cursor_id,
        uid=cursor.uid,
        name=cursor.name,
        kind=cursor.kind,
        client_id=cursor.client_id,
        last_sent=cursor.last_sent,
        to_redeliver=to_redeliver,
        counts=counts,
        inbox=last.settings.inbox,
        ack_inbox=last.settings.ack_inbox,
        max_in_flight=last.settings.max_in_flight,
        ack_wait_s=last.settings.ack_wait_s,
        subscription_id=last.subscription_id,
        maybe_sent_until=cursor.maybe_sent_until,
        start_sequence=cursor.past.start_sequence,
        override=cursor.override.row() if cursor.override is not None else None,
        acked_at=cursor.past.acked_at,
        unacked_since=cursor.past.unacked_since,
    )


def subscription_row(member: Subscription) -> pb.Subscription:
    """The row of one subscription."""
    pending, counts = member.pending.counted()
    return pb.Subscription(
        subscription_id=member.subscription_id,
        cursor_id=member.cursor_id,
        client_id=member.client_id,
        incarnation=member.incarnation,
        inbox=member.settings.inbox,
        ack_inbox=member.settings.ack_inbox,
        ack_key=member.ack_key,
        max_in_flight=member.settings.max_in_flight,
        ack_wait_s=member.settings.ack_wait_s,
        pending=pending,
        counts=counts,
        last_sent=member.last_sent,
        reply=member.reply,
        joined=member.joined,
        replica=member.served.wish,
        served_by=member.served.node,
        served_since=member.served.since,
        server_instance=member.served.instance,
        ack_group=member.ack_group,
    )


def cursor_of(row: pb.Cursor, cursor_id: int, last_subscription_id: int) -> Cursor:
    """The cursor that a row tells, under the numbers that it has in this group."""
    return Cursor(
        cursor_id=cursor_id,
        uid=ChannelUid(row.uid),
        kind=CursorKind(row.kind),
        name=row.name,
        client_id=row.client_id,
        last_sent=row.last_sent,
        to_redeliver=from_flat(row.to_redeliver, row.counts),
        last_member=LastMember(last_subscription_id, _settings_of(row)),
        maybe_sent_until=row.maybe_sent_until,
        past=CursorPast(row.start_sequence, row.acked_at, row.unacked_since),
        override=of_row(row.override) if row.HasField("override") else None,
    )


def subscription_of(row: pb.Subscription, subscription_id: int, cursor_id: int) -> Subscription:
    """The subscription that a row tells, under the numbers that it and its cursor have in this group."""
    return Subscription(
        subscription_id=subscription_id,
        cursor_id=cursor_id,
        client_id=row.client_id,
        incarnation=row.incarnation,
        settings=_settings_of(row),
        ack_key=row.ack_key,
        ack_group=row.ack_group,
        last_sent=row.last_sent,
        reply=row.reply,
        joined=row.joined,
        pending=from_flat(row.pending, row.counts),
        served=ServedBy(row.replica, row.served_by, row.served_since, row.server_instance) if row.replica else LEADER,
    )


def _settings_of(row: pb.Cursor | pb.Subscription) -> SubscriptionSettings:
    return SubscriptionSettings(row.inbox, row.ack_inbox, row.max_in_flight, row.ack_wait_s)


def kind_and_name(queue_group: bytes, durable_name: bytes) -> tuple[CursorKind, bytes]:
    """The kind and name of the cursor that a request means: durable groups are called `durable:group` (STAN-SPEC 5.5)."""
    if queue_group and durable_name:
        return CursorKind.DURABLE_QUEUE, durable_name + b":" + queue_group
    if queue_group:
        return CursorKind.QUEUE, queue_group
    if durable_name:
        return CursorKind.DURABLE, durable_name
    return CursorKind.PLAIN, b""

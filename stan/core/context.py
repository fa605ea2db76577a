"""What the parts of the broker share: the replicated state, the live view, proposals on their way, answers to send.

Each part of the broker (publishing, clients, subscribing, channels) holds this one object and nothing of the others' insides.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVarTuple

from stan.config import Config
from stan.core.base.admin_events import AdminEvents, Clock
from stan.core.base.complaints import Complaints
from stan.core.base.partition import ELSEWHERE, Partition
from stan.core.base.payload_limit import MESSAGE_ROOM, PAYLOAD_DEFAULT
from stan.core.base.rate_limit import RateLimiter
from stan.core.base.ready import Delivery, Index, Indexes, LeaseAnswer, Proposal, Ready
from stan.core.base.runs import Runs
from stan.core.base.timers import Timers
from stan.core.leader.leadership import Kept
from stan.core.leader.local_group import ChannelGroup
from stan.core.state.group import Subscription
from stan.core.state.meta import ChannelInfo, Client, MetaMachine
from stan.errors import go_quote
from stan.protocol.channels import Subjects, is_inbox, is_subject, publication
from stan.protocol.entries import Kind
from stan.protocol.frames import Frame, Publishes, Sender
from stan.protocol.placement import channel_group
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.proto import wire_pb2 as wire
from stan.protocol.user_subjects import user_of
from stan.types import SECOND, ChannelUid, GroupId, Nanos, RaftIndex, Sequence, WallNanos

META_GROUP = GroupId(0)
NUMBER_DIGITS_MAX = 19
"""Of the requests to clients; what has more is not ours, and int() would raise beyond a few thousand."""

Parts = TypeVarTuple("Parts")


class Authorizer(Protocol):
    """Decides by the permissions what clients may do; see stan.core.clients.authorization."""

    with_users: bool  # NATS tells which user asks

    def owns(self, reply: bytes, client: Client) -> bool:
        """Whether who wants an answer there is the user whose client that is."""

    def ack_prefix(self, client: Client) -> bytes:
        """What the ack inboxes of a client begin with; b"": it is no user's."""

    def is_of(self, user: bytes, client: Client) -> bool:
        """Whether that is the user whose client it is."""

    def may_ack(self, user: bytes, sub: Subscription) -> bool:
        """Whether acks of a user count for a subscription."""

    def own(self, subject: str) -> str:
        """Where a server asks for what *subject* tells, of itself and the other nodes."""

    def may_publish(self, batch: Publishes) -> list[bool]:
        """For each publisher of a batch, all known, whether he may publish to its channel."""

    def subscription_refusal(self, request: wire.SubscriptionRequest, reply: bytes) -> str:
        """Why a registered client may not subscribe so; "" if it may."""

    def leave_refusal(self, client_id: bytes, reply: bytes, channel: bytes, *, ends_durable: bool) -> str:
        """Why a subscription may not be ended by who asks there; "" if it may."""

    def may_keep(self, client: Client, channel: bytes, *, durable: bool) -> bool:
        """Whether a subscription from before this server was started may go on."""

    def admit(self, frame: Frame) -> Frame | None:
        """The request as it is to be handled; None if it is not, and whoever has to has said why."""


Done = Callable[[object, str], None]
"""Called once with the result of the entry (MetaResult, GroupResult, True), or with None and why it was not taken."""

InDoubt = Callable[[], None]
"""Called instead when nobody knows what becomes of the entry, or another leader is to take it: nobody is answered by that.
Neither is called when this node leads the group no more."""

Answered = Callable[[bytes | None], None]
"""Called once with the answer to a request, None if nobody listens or none came in time."""


class Waiting(NamedTuple):
    """Who waits for the outcome of one proposal."""

    done: Done
    in_doubt: InDoubt


def nobody_waits(_result: object = None, _error: str = "") -> None:
    """The outcome shows in the replicated state."""


@dataclass(slots=True)
class Totals:
    """Counters since the process started (STAN-SPEC 13.2)."""

    in_messages: int = 0
    in_bytes: int = 0


@dataclass(slots=True)
class BrokerContext:
    """See the module's docstring. `outbox` fields are emptied into the next Ready."""

    config: Config
    subjects: Subjects
    written: Indexes  # all that is committed in the logs; readers see `indexes`
    reply_prefix: bytes  # subjects `<reply_prefix><number>` come back to this node
    meta: MetaMachine = field(default_factory=MetaMachine)
    groups: dict[GroupId, ChannelGroup] = field(default_factory=dict)
    timers: Timers = field(default_factory=Timers)
    totals: Totals = field(default_factory=Totals)
    clock: Clock = field(default_factory=lambda: Clock(Nanos(0), WallNanos(0)))
    connected: bool = True  # to NATS
    authorizer: Authorizer | None = None  # decides by the permissions; None: everybody may do everything
    asked_users: dict[int, bytes] = field(default_factory=dict)  # number of a request -> the user who was asked
    leads_meta: bool = False
    meta_lease: bool = True  # no other node can lead the metadata meanwhile
    write_blocked: frozenset[GroupId] = frozenset()  # led, but they take no proposal at the moment
    saturated: frozenset[GroupId] = frozenset()  # led, but entries wait: what comes grows into a larger batch
    replaying: GroupId | None = None  # its buffered frames are being replayed; the last leader may have handled them
    heard_since: Nanos = Nanos(0)  # noqa: RUF009 - what was read from NATS is kept from then on
    closing_clients: dict[int, Client] = field(default_factory=dict)  # gone, but what they sent before may still come
    payload_bytes_max: int = PAYLOAD_DEFAULT  # that NATS takes from us
    responses: list[bytes | LeaseAnswer] = field(default_factory=list)
    redeliveries: list[Delivery] = field(default_factory=list)
    pub_acks: list[bytes] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    watched: set[ChannelUid] = field(default_factory=set)  # somebody waits for newer messages of these channels
    news: set[ChannelUid] = field(default_factory=set)  # those of them that have become longer
    trims: list[tuple[GroupId, ChannelUid, Sequence]] = field(default_factory=list)
    drops: list[tuple[GroupId, ChannelUid]] = field(default_factory=list)
    changes: list[Proposal] = field(default_factory=list)
    faults: list[tuple[GroupId, Exception]] = field(default_factory=list)  # since the last Ready
    faulty: dict[GroupId, str] = field(
        default_factory=dict
    )  # groups whose state is used no more until a restart, and why
    partition: Partition | None = None  # which channels are this server's, if it shares them with others
    waiting: dict[int, Waiting] = field(default_factory=dict)  # by ticket
    by_index: dict[tuple[GroupId, RaftIndex], int] = field(default_factory=dict)  # -> ticket
    awaited: dict[int, Answered] = field(default_factory=dict)  # number of a request -> on answer
    tickets: int = 0
    requests: int = 0
    complaints: Complaints = field(init=False)
    events: AdminEvents = field(init=False)
    rate_limiter: RateLimiter = field(init=False)

    def __post_init__(self) -> None:
        self.rate_limiter = RateLimiter(self.config.requests)
        self.events = AdminEvents(self.subjects.events)
        self.complaints = Complaints(self.note)

    @property
    def clustered(self) -> bool:
        """Whether other nodes take part."""
        return self.config.cluster is not None

    @property
    def nuid(self) -> bytes:
        """Of the cluster, b"" while it is not founded."""
        return self.meta.info.nuid if self.meta.info is not None else b""

    # --- who does what ------------------------------------------------------------------------------------------------

    def message_payload_max(self, channel: bytes) -> int:
        """Payload of the largest message that is taken into *channel*, as it is delivered."""
        most = self.config.requests.message_bytes
        if not most:
            return self.payload_bytes_max
        field = 1 + (most.bit_length() + 6) // 7  # before the data
        return min(self.payload_bytes_max, most + field + MESSAGE_ROOM + len(channel))

    def leads(self, group: GroupId) -> bool:
        """Whether this node leads that group."""
        if group == META_GROUP:
            return self.leads_meta
        found = self.groups.get(group)
        return found is not None and found.leads

    def concerns(self, group: GroupId) -> bool:
        """Whether a request that was heard is for this node to handle, now."""
        return self.leads(group) and self.replaying in (None, group)

    def led(self) -> Iterator[tuple[GroupId, ChannelGroup]]:
        """Channel groups that this node leads."""
        return ((number, group) for number, group in self.groups.items() if group.leadership is not None)

    def kept(self, number: GroupId, kind: type[Kept]) -> Kept:
        """What a part of the broker keeps of a group that this node leads (stan.core.leader.leadership); of another nothing."""
        group = self.groups.get(number)
        leadership = None if group is None else group.leadership
        return kind() if leadership is None else leadership.kept(kind)

    def all_kept(self, kind: type[Kept]) -> Iterator[Kept]:
        """The same of all groups that this node leads."""
        return (group.leadership.kept(kind) for group in self.groups.values() if group.leadership is not None)

    def group_number(self, channel: bytes) -> GroupId:
        """The group of a channel: what the registry says, else what its name gives; ELSEWHERE: it is another server's."""
        if self.partition is not None and not self.partition[channel]:
            return ELSEWHERE
        info = self.meta.channels.get(channel)
        return info.group if info is not None else channel_group(channel, self.config.store.raft_groups)

    def known(self, client_id: bytes, conn_id: bytes) -> Client | None:
        """The client that something belongs to; also one that has closed its connection if it may have sent it before."""
        found = self.meta.known(client_id, conn_id)
        if found is None and self.closing_clients:
            for client in self.closing_clients.values():
                if client.conn_id == conn_id if conn_id else client.client_id == client_id:
                    return client
        return found

    def sender(self, sender: Sender) -> Client | None:
        """The client that has published something; where users are known it is one of that user."""
        user, client_id, conn_id = sender
        found = self.known(client_id, conn_id)
        return found if found is None or self.authorizer is None or self.authorizer.is_of(user, found) else None

    def user_of(self, reply: bytes) -> bytes:
        """Who has sent a request, by where he wants his answer; b"" if NATS does not tell."""
        return user_of(reply).encode() if self.authorizer is not None and self.authorizer.with_users else b""

    def may_send_to(self, named: bytes) -> bool:
        """Whether something may be sent to a subject that a client has named. With users it stands behind `_STAN.to.<user>.`."""
        if self.authorizer is not None and self.authorizer.with_users:
            return is_subject(named)
        return is_inbox(named) and not named.startswith(b"_INBOX.%b." % self.nuid)

    def indexes(self, group: GroupId, uid: ChannelUid) -> Index:
        """A channel's messages as everybody may see them: without those of a transaction that is not whole yet."""
        return self.visible(group, uid, self.written(group, uid))

    def visible(self, group: GroupId, uid: ChannelUid, index: Index) -> Index:
        """The same, of an index at hand."""
        found = self.groups.get(group)
        return index if found is None else found.machine.transactions.visible(uid, index)

    def deleted(self, group: GroupId, uid: ChannelUid) -> Runs | None:
        """Messages of a channel that were deleted one by one; None: none were."""
        found = self.groups.get(group)
        return None if found is None else found.machine.tombstones.by_channel.get(uid)

    # --- proposals ----------------------------------------------------------------------------------------------------

    def ticket(self, done: Done, in_doubt: InDoubt = nobody_waits) -> int:
        """A number under which the outcome of one proposal comes back."""
        self.tickets += 1
        self.waiting[self.tickets] = Waiting(done, in_doubt)
        return self.tickets

    def change_meta(self, done: Done, **change: object) -> None:
        """Propose one META change, e.g. `connect=pb.Connect(...)`; for the leader of the metadata."""
        body = pb.MetaChange(**change).SerializeToString()  # type: ignore[arg-type]
        self.changes.append(Proposal(META_GROUP, Kind.META, body, urgent=True, ticket=self.ticket(done)))

    def forward_meta(self, **change: object) -> None:
        """Ask the leader of the metadata to propose a change; whether it did shows in the metadata, or never."""
        body = pb.MetaChange(**change).SerializeToString()  # type: ignore[arg-type]
        self.responses.append(publication(self.subjects.meta.encode(), body))

    def change_group(self, group: GroupId, done: Done, in_doubt: InDoubt = nobody_waits, **change: object) -> None:
        """Propose one CHANGE of a channel group; what is dirty in its progress is told before it."""
        body = pb.GroupChange(**change).SerializeToString()  # type: ignore[arg-type]
        self.changes.append(Proposal(group, Kind.CHANGE, body, urgent=True, ticket=self.ticket(done, in_doubt)))

    def leave(self, group: GroupId, subscription_id: int, done: Done, *, unsubscribe: bool = False) -> None:
        """Propose that a subscription ends (closed, or unsubscribed); from now on nothing is sent to it."""
        found = self.groups[group].dispatch.by_subscription.get(subscription_id)
        if found is not None:
            found[1].leaving = True
        leave = pb.Leave(subscription_id=subscription_id, unsubscribe=unsubscribe)
        self.change_group(group, done, leave=leave)

    def end(self, group: GroupId, subscription_id: int, done: Callable[[], None] = lambda: None) -> None:
        """The same of one whose client is gone, or may not have it: tried until it is written, or another node leads."""

        def told(result: object, _error: str) -> None:
            if result is None:
                self.timers.at(self.clock.now + SECOND, lambda _now: self.end(group, subscription_id, done))
            else:
                done()

        if self.leads(group):
            self.leave(group, subscription_id, told)

    def take_changes(self) -> list[Proposal]:
        """Changes that can be proposed now."""
        now = [change for change in self.changes if change.group not in self.write_blocked]
        self.changes = (
            [change for change in self.changes if change.group in self.write_blocked] if self.write_blocked else []
        )
        return now

    def forget(self, group: GroupId) -> None:
        """This node leads the group no more: nobody is answered for what was on its way, the next leader takes it over."""
        tickets = [self.by_index.pop(key) for key in [key for key in self.by_index if key[0] == group]]
        tickets += [change.ticket for change in self.changes if change.group == group]
        for ticket in tickets:
            self.waiting.pop(ticket, None)
        self.changes = [change for change in self.changes if change.group != group]
        self.redeliveries = [delivery for delivery in self.redeliveries if delivery.group != group]

    # --- answers ------------------------------------------------------------------------------------------------------

    def respond(self, reply: bytes, payload: bytes, groups: tuple[GroupId, ...] = ()) -> None:
        """Answer a request; nothing happens if it carried no reply subject. *groups*: it tells how they are now, which only
        their leader knows; without any it tells what was committed, and stays right."""
        if reply:
            answer = publication(reply, payload)
            self.responses.append(LeaseAnswer(answer, groups) if groups and self.clustered else answer)

    def request(self, subject: bytes, timeout_ns: int, answered: Answered, payload: bytes = b"") -> None:
        """Send a request."""
        self.requests += 1
        number = self.requests
        self.awaited[number] = answered
        reply = b"%b%d" % (self.reply_prefix, number)
        if self.authorizer is not None and (user := user_of(subject).encode()):
            self.asked_users[number] = user
            reply = b"%b.%b" % (reply, user)
        self.responses.append(publication(subject, payload, reply))

        def late(_now: Nanos) -> None:
            self.asked_users.pop(number, None)
            if self.awaited.pop(number, None) is not None:
                answered(None)

        self.timers.at(self.clock.now + timeout_ns, late)

    def answered(self, suffix: bytes) -> Answered | None:
        """Who waits for the answer that came back under *suffix*, behind the prefix; nobody else can answer for a user."""
        number, _, user = suffix.partition(b".")
        if not number.isdigit() or len(number) > NUMBER_DIGITS_MAX or self.asked_users.get(int(number), b"") != user:
            return None
        self.asked_users.pop(int(number), None)
        return self.awaited.pop(int(number), None)

    def lose_requests(self) -> None:
        """Nothing comes back any more: the connection that would bring it is lost."""
        self.asked_users.clear()
        for number in list(self.awaited):
            self.awaited.pop(number)(None)

    def note(self, level: str, text: str) -> None:
        """A line for the log: level INF, WRN, ERR or DBG."""
        self.notes.append((level, text))

    def complain(self, level: str, text: str) -> None:
        """The same about what a client has sent, who may send it again and again: see stan.core.base.complaints."""
        self.complaints.tell(self.clock.now, level, text)

    def emit(self, kind: str, text: str, **about: Any) -> None:
        """Tell whoever listens what happens, see stan.core.base.admin_events; *about*: channel=, client_id=, group=,
        cursor_id=."""
        self.responses += self.events.frames(self.clock, kind, text, **about)

    def fail(self, group: GroupId, error: Exception) -> None:
        """The program failed in a group: it is frozen, and the others go on. What belongs to no group of this node goes on to
        the process."""
        if group != META_GROUP and group not in self.groups:
            raise error
        self.faults.append((group, error))

    def within(self, group: GroupId, call: Callable[[*Parts], object], *args: *Parts) -> None:
        """Do something for a group, which alone fails if that does."""
        try:
            call(*args)
        except Exception as error:  # noqa: BLE001 - the border of the group
            self.fail(group, error)

    # --- look-ups -----------------------------------------------------------------------------------------------------

    def group_of(self, info: ChannelInfo) -> ChannelGroup:
        """The group that holds a channel."""
        return self.groups[info.group]

    def subscriptions_of(self, incarnation: int) -> list[tuple[GroupId, int]]:
        """(group, subscription id) of everything one connection of a client has online in the groups led here."""
        return [
            (number, subscription_id)
            for number, group in self.led()
            for subscription_id in sorted(group.machine.by_incarnation.get(incarnation, ()))
        ]

    def drain_into(self, ready: Ready) -> None:
        """Move what must leave before deliveries into *ready*."""
        ready.sends += self.responses
        ready.sends += self.redeliveries
        ready.notes += self.notes
        ready.trims += self.trims
        ready.drops += self.drops
        ready.faults += self.faults
        for emptied in (self.responses, self.redeliveries, self.notes, self.trims, self.drops, self.faults):
            emptied.clear()


def text(raw: bytes) -> str:
    """Bytes of the wire as text; what is not UTF-8 survives a round trip."""
    return raw.decode("utf-8", "surrogateescape")


def shown(name: bytes) -> str:
    """Bytes of the wire in a line for people, quoted but for the quotes: as the original has them if they are harmless."""
    return go_quote(text(name))[1:-1]


def raw(shown: str) -> bytes:
    """The inverse of `text`."""
    return shown.encode("utf-8", "surrogateescape")

"""What the parts of the broker share: the replicated state, the live view, proposals on their way, answers to send.

Each part of the broker (publishing, clients, subscribing, channels) holds this one object, and nothing private of other parts.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, TypeVarTuple

from stan_protocol.ack_levels import AckLevel
from stan_protocol.channels import Subjects, is_inbox, is_subject, publication
from stan_protocol.frames import Frame, Publishes, Sender
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import go_quote
from stan_protocol.scalars import SECOND, ChannelUid, GroupId, Nanos, RaftIndex, Sequence, WallNanos

from stan import limits
from stan.config import Config
from stan.core.base.admin_events import AdminEvents, Clock
from stan.core.base.complaints import Complaints
from stan.core.base.partition import ELSEWHERE, Partition
from stan.core.base.payload_limit import MESSAGE_ROOM
from stan.core.base.rate_limit import RateLimiter
from stan.core.base.ready import (
    Delivery,
    Fetch,
    Index,
    Indexes,
    LeaseAnswer,
    Proposal,
    Ready,
    Replay,
    ReportMoment,
    WaitingAnswers,
)
from stan.core.base.runs import Runs
from stan.core.base.timers import Timers
from stan.core.leader.local_group import ChannelGroup, Leadership, Part
from stan.core.state.group import Cursor, Subscription, ack_place
from stan.core.state.meta import ChannelInfo, Client, MetaMachine
from stan.core.state.policies import Policies
from stan.permissions import Right
from stan.policies import EPHEMERAL, SYNCED
from stan.protocol.entries import Kind
from stan.protocol.placement import channel_group
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.user_subjects import ACK_GROUPS, acker, user_of

META_GROUP = GroupId(0)
LED_ELSEWHERE = "another node leads the channel, and answers"
"""Why a request is left unanswered; no client gets this text."""
NUMBER_DIGITS_MAX = 19
"""Longest request number in a reply subject; a longer one is not of this broker, and int() raises beyond a few thousand."""

Parts = TypeVarTuple("Parts")
Result = TypeVar("Result")


class Authorizer(Protocol):
    """Decides by the permissions what clients may do; implemented by stan.core.clients.authorization."""

    with_users: bool  # NATS tells which user asks

    def owns(self, reply: bytes, client: Client) -> bool:
        """True if the requester with that reply subject is the user to whom *client* belongs."""

    def ack_prefix(self, client: Client) -> bytes:
        """The prefix of the client's ack inboxes; b"" if the client belongs to no user."""

    def is_of(self, user: bytes, client: Client) -> bool:
        """True if *client* belongs to *user*."""

    def may_ack(self, user: bytes, sub: Subscription) -> bool:
        """True if acks of *user* count for the subscription."""

    def own(self, subject: str) -> str:
        """The subject on which this server itself asks what clients ask on *subject*, of itself and the other nodes."""

    def may_publish(self, batch: Publishes) -> list[bool]:
        """For each publisher of the batch, in order, True if it may publish to the channel; all publishers are known."""

    def right_refusal(self, reply: bytes, right: Right, channel: bytes) -> str:
        """Return why the requester with that reply subject has no such right to the channel; "" if it has."""

    def subscription_refusal(self, request: wire.SubscriptionRequest, reply: bytes) -> str:
        """Return why a registered client may not make this subscription; "" if it may."""

    def leave_refusal(self, sub: Subscription, reply: bytes, channel: bytes, *, ends_durable: bool) -> str:
        """Return why the requester with that reply subject may not end a subscription; "" if it may."""

    def is_user(self, name: bytes) -> bool:
        """True if there is a user of that name."""

    def may_keep(self, client: Client, channel: bytes, *, durable: bool) -> bool:
        """True if a subscription from before the start of this server may continue."""

    def admit(self, frame: Frame) -> Frame | None:
        """The request in the form to be handled; None if it must not be handled; the responsible node has answered why."""


Done = Callable[[object, str], None]
"""Called once with the result of the entry (MetaResult, GroupResult, True) and "", or with None and why it was refused."""

InDoubt = Callable[[], None]
"""Called instead if the fate of the entry is unknown, or another leader has to take it: the request must not be answered.
Neither callback is called once this node no longer leads the group."""

Answered = Callable[[bytes | None], None]
"""Called once with the payload of the answer to a request; with None if no client listens or no answer came in time."""


Waiting = tuple[Done, InDoubt]
"""The callbacks that wait for the outcome of one proposal."""


def nobody_waits(_result: object = None, _error: str = "") -> None:
    """A callback that does nothing: no request waits, the outcome shows in the replicated state."""


@dataclass(slots=True)
class Totals:
    """Counters since the process started (STAN-SPEC 13.2)."""

    in_messages: int = 0
    in_bytes: int = 0
    unanswered_messages: int = 0  # whose publishers want no ack
    acked: dict[GroupId, int] = field(default_factory=dict)  # messages stored here whose publishers want one
    acked_in_memory: int = 0  # those of ephemeral channels, whose group does not tell where they are
    late_messages: int = 0  # delayed ones that were given up
    expired_messages: int = 0  # those whose time to live was over
    tier_lost_messages: int = 0  # those that limits have removed before their tier had them
    refused_by_schema: int = 0  # those that did not fit the schema of their channel


@dataclass(slots=True)
class Reports:
    """What operators are told about the broker, besides its answers."""

    complaints: Complaints
    events: AdminEvents
    totals: Totals = field(default_factory=Totals)


@dataclass(slots=True)
class Outgoing:
    """What the parts of the broker have to say in this turn; the next Ready takes it."""

    responses: list[bytes | LeaseAnswer] = field(default_factory=list)
    redeliveries: list[Delivery] = field(default_factory=list)
    pub_acks: list[bytes | LeaseAnswer] = field(default_factory=list)
    waiting: WaitingAnswers = field(default_factory=WaitingAnswers)  # for a lease
    notes: list[tuple[str, str]] = field(default_factory=list)
    trims: list[tuple[GroupId, ChannelUid, Sequence]] = field(default_factory=list)
    drops: list[tuple[GroupId, ChannelUid]] = field(default_factory=list)
    fetches: list[Fetch] = field(default_factory=list)  # of messages that are to be copied
    faults: list[tuple[GroupId, Exception]] = field(default_factory=list)  # since the last Ready
    replays: list[Replay] = field(default_factory=list)
    watched: set[ChannelUid] = field(default_factory=set)  # channels with a long poll that waits for new messages
    news: set[ChannelUid] = field(default_factory=set)  # watched channels that have new messages

    def tell(self, ready: Ready) -> None:
        """Move what is not for clients into *ready*: what is to be replayed, and faults."""
        ready.replays, self.replays = self.replays, []
        ready.faults, self.faults = self.faults, []

    def drain_into(self, ready: Ready, holds: Callable[[tuple[GroupId, ...]], bool]) -> None:
        """Move everything that must leave before deliveries into *ready*: answers, redeliveries, log lines, trims and drops; and
        reads. *holds*: see `WaitingAnswers.release`."""
        if self.waiting.queue:
            ready.sends += self.waiting.release(holds)
        ready.sends += self.responses
        ready.sends += self.redeliveries
        ready.notes += self.notes
        ready.trims += self.trims
        ready.drops += self.drops
        ready.fetches += self.fetches
        for emptied in (self.responses, self.redeliveries, self.notes, self.trims, self.drops, self.fetches):
            emptied.clear()


@dataclass(slots=True)
class PendingProposals:
    """Proposals of changes, and who waits for their outcome."""

    changes: list[Proposal] = field(default_factory=list)  # not proposed yet
    waiting: dict[int, Waiting] = field(default_factory=dict)  # by ticket
    by_index: dict[tuple[GroupId, RaftIndex], int] = field(default_factory=dict)  # -> ticket
    tickets: int = 0

    def ticket(self, done: Done, in_doubt: InDoubt = nobody_waits) -> int:
        """Register the callbacks of one proposal; returns the number under which its outcome comes back."""
        self.tickets += 1
        self.waiting[self.tickets] = done, in_doubt
        return self.tickets

    def take(self, blocked: frozenset[GroupId]) -> list[Proposal]:
        """Take the changes that can be proposed now; those of *blocked* groups stay."""
        now = [change for change in self.changes if change.group not in blocked]
        self.changes = [change for change in self.changes if change.group in blocked] if blocked else []
        return now

    def forget(self, group: GroupId) -> None:
        """This node no longer leads the group: drop its proposals on their way; nobody is told an outcome."""
        tickets = [self.by_index.pop(key) for key in [key for key in self.by_index if key[0] == group]]
        tickets += [change.ticket for change in self.changes if change.group == group]
        for ticket in tickets:
            self.waiting.pop(ticket, None)
        self.changes = [change for change in self.changes if change.group != group]


@dataclass(slots=True)
class NatsState:
    """What the broker knows of its NATS connection, and its own requests under way."""

    subjects: Subjects
    reply_prefix: bytes  # subjects `<reply_prefix><number>` come back to this node
    connected: bool = True
    payload_bytes_max: int = limits.MESSAGE_PAYLOAD_BYTES_MAX  # largest payload that NATS accepts
    requests: int = 0  # the number of the newest own request
    awaited: dict[int, Answered] = field(default_factory=dict)  # number of a request -> on answer
    asked_users: dict[int, bytes] = field(default_factory=dict)  # number of a request -> the user who was asked


@dataclass(slots=True)
class ServingState:
    """What of groups that other nodes lead this node serves, and whose acks it takes (stan.core.state.serving)."""

    groups: tuple[tuple[GroupId, ChannelGroup], ...] = ()  # that this node does not lead, with cursors that it serves
    leases: dict[GroupId, Nanos] = field(default_factory=dict)  # until when it may do so; of groups that it has served
    # Groups, ACK_GROUPS added, of whose subscriptions with a wish this node serves some.
    acks: frozenset[int] = frozenset()
    told: list[Callable[[], None]] = field(default_factory=list)  # called when `acks` has changed

    def lapsed(self, groups: Iterable[GroupId], now: Nanos) -> set[GroupId]:
        """Those of *groups*, which other nodes lead, that this node has served and may not serve now."""
        return {number for number in groups if self.leases.get(number, now + 1) <= now}


@dataclass(slots=True)
class HeldChannels:
    """Channels that are being moved to another group, of groups that this node leads: nobody leads them at the moment, so their
    publishes, requests and acks are for whoever takes them over."""

    by_name: dict[bytes, ChannelInfo] = field(default_factory=dict)  # in the groups that they are moved from
    uids: set[ChannelUid] = field(default_factory=set)
    waited_for: dict[ChannelUid, int] = field(default_factory=dict)  # no transaction begins in them until then (Nanos)
    to_move: int = 0  # channels that are not where they belong; 0 unless this node leads the metadata (see Spreading)

    def hold(self, info: ChannelInfo) -> None:
        """Nobody leads the channel from now on."""
        self.by_name[info.name] = info
        self.uids.add(info.uid)

    def release(self, name: bytes) -> None:
        """The channel is led again, or this node has nothing to do with it."""
        info = self.by_name.pop(name, None)
        if info is not None:
            self.uids.discard(info.uid)


@dataclass(slots=True)
class LeadingState:
    """What this node leads, and what keeps it from doing so."""

    leads_meta: bool = False
    led: tuple[tuple[GroupId, ChannelGroup], ...] = ()  # channel groups that this node leads, by number
    meta_lease: bool = True  # no other node can lead the metadata now
    write_blocked: frozenset[GroupId] = frozenset()  # led, but take no proposals at the moment
    saturated: frozenset[GroupId] = frozenset()  # led, but entries wait: new messages grow into a larger batch
    replaying: GroupId | None = None  # its buffered frames are replayed; the previous leader may have handled them
    heard_since: Nanos = Nanos(0)  # noqa: RUF009 - the replay buffer holds what was read from NATS since then
    faulty: dict[GroupId, str] = field(default_factory=dict)  # groups frozen until a restart, and why
    policies: Policies = field(default_factory=Policies)  # see BrokerContext.policies
    placed: list[Callable[[], None]] = field(default_factory=list)  # see BrokerContext.placement_changed
    serving: ServingState = field(default_factory=ServingState)
    held: HeldChannels = field(default_factory=HeldChannels)

    @contextmanager
    def replay_of(self, group: GroupId) -> Iterator[None]:
        """While the buffered frames of *group* are replayed, requests of other groups do not concern this node."""
        self.replaying = group
        try:
            yield
        finally:
            self.replaying = None


@dataclass(slots=True)
class Access:
    """Whose frames are taken, and how many."""

    rate_limiter: RateLimiter  # of operators' requests
    authorizer: Authorizer | None = None  # None: every client may do everything
    partition: Partition | None = None  # this server's channels, if servers divide the channels among them
    closing_clients: dict[int, Client] = field(default_factory=dict)  # gone, but what they sent before may still come


@dataclass(slots=True)
class BrokerContext:
    """The state that the parts of the broker share."""

    config: Config
    written: Indexes  # all messages committed in the logs; readers use `indexes`
    nats: NatsState
    access: Access
    meta: MetaMachine = field(default_factory=MetaMachine)
    groups: dict[GroupId, ChannelGroup] = field(default_factory=dict)
    timers: Timers = field(default_factory=Timers)
    clock: Clock = field(default_factory=lambda: Clock(Nanos(0), WallNanos(0)))
    leading: LeadingState = field(default_factory=LeadingState)
    outgoing: Outgoing = field(default_factory=Outgoing)
    proposals: PendingProposals = field(default_factory=PendingProposals)
    reports: Reports = field(init=False)

    def __post_init__(self) -> None:
        self.reports = Reports(Complaints(self.note), AdminEvents(self.nats.subjects.events))

    @property
    def clustered(self) -> bool:
        """True if this broker is a node of a cluster."""
        return self.config.cluster is not None

    @property
    def report_moment(self) -> ReportMoment:
        """The moment of progress entries that are made now."""
        return ReportMoment(self.clock.now, self.clock.wall, self.reports.events.node.encode())

    @property
    def nuid(self) -> bytes:
        """The unique id of the cluster; b"" while the cluster is not founded."""
        return self.meta.info.nuid if self.meta.info is not None else b""

    @property
    def policies(self) -> Policies:
        """The policies of delivery, as the configuration and the metadata have them now."""
        return self.leading.policies.brought_up_to(self.config.policies, self.meta.info)

    def policies_changed(self) -> None:
        """The configuration or the metadata have other policies: the groups that this node leads look again."""
        self.placement_changed()
        for number, group in self.leading.led:
            self.within(number, group.dispatch.policies_changed)

    def placement_changed(self) -> None:
        """Names of channels may belong to other groups than before: who remembers that, looks again."""
        for look_again in self.leading.placed:
            look_again()

    # --- who does what ------------------------------------------------------------------------------------------------

    def message_payload_max(self, channel: bytes) -> int:
        """Size limit in bytes of a message in *channel*, as the payload in which it is delivered."""
        most = self.config.requests.message_bytes
        if not most:
            return self.delivered_bytes_max
        field = 1 + (most.bit_length() + 6) // 7  # before the data
        return min(self.delivered_bytes_max, most + field + MESSAGE_ROOM + len(channel))

    @property
    def delivered_bytes_max(self) -> int:
        """Largest payload in bytes in which a message may be delivered: what NATS takes, or less where it takes more for us."""
        return min(self.nats.payload_bytes_max, self.config.requests.payload_bytes)

    def leads(self, group: GroupId) -> bool:
        """True if this node leads *group*."""
        if group == META_GROUP:
            return self.leading.leads_meta
        found = self.groups.get(group)
        return found is not None and found.leads

    def concerns(self, group: GroupId) -> bool:
        """True if this node has to handle requests of *group* now: it leads the group, and replays no frames of another one."""
        return self.leads(group) and self.leading.replaying in (None, group)

    def holds(self, groups: Iterable[GroupId]) -> bool:
        """True if this node leads all of *groups* and holds their leases, so that no other node can lead them."""
        return all(
            self.leads(number)
            and (
                self.leading.meta_lease if number == META_GROUP else not self.groups[number].dispatch.stops.lease_lapsed
            )
            for number in groups
        )

    def groups_changed(self) -> None:
        """Groups have come or gone, or this node begins or ends to lead one."""
        self.leading.led = tuple(
            (number, group) for number, group in self.groups.items() if group.leadership is not None
        )

    def stop_serving(self, number: GroupId) -> None:
        """What this node has served of a group is another's now; what is on its way does not leave."""
        leases = self.leading.serving.leases
        if number in leases:
            leases[number] = Nanos(0)
            self.forget(number)
        self.serving_changed()

    def serving_changed(self) -> None:
        """Look again which groups have cursors that this node serves, and whose acks it takes."""
        serving = self.leading.serving
        serving.groups = tuple(
            (number, group) for number, group in self.groups.items() if group.dispatch.cursors.by_id and not group.leads
        )
        acks = frozenset(number + ACK_GROUPS for number, group in self.groups.items() if group.dispatch.cursors.wishes)
        if acks != serving.acks:
            serving.acks = acks
            for call in serving.told:
                call()

    def led(self, number: GroupId) -> Leadership:
        """The leadership of a group that this node leads."""
        leadership = self.groups[number].leadership
        assert leadership is not None  # noqa: S101 - for mypy
        return leadership

    def part(self, number: GroupId, kind: type[Part]) -> Part | None:
        """The part of class *kind* of the leader of a group; None if this node does not lead it."""
        group = self.groups.get(number)
        return None if group is None or group.leadership is None else group.leadership.find(kind)

    def all_parts(self, kind: type[Part]) -> Iterator[Part]:
        """The part of class *kind* of the leader of each group that this node leads."""
        for _, group in self.leading.led:
            part = group.leadership.find(kind) if group.leadership is not None else None
            if part is not None:
                yield part

    def owns(self, channel: bytes) -> bool:
        """True if a channel is this server's, or may be: servers of one cluster id can divide the channels among them."""
        return self.access.partition is None or self.access.partition[channel]

    def group_number(self, channel: bytes) -> GroupId:
        """The group of a channel: from the registry, else from the hash of its name; ELSEWHERE: the channel is another
        server's, or it is being moved to another group, and nobody leads it now."""
        if not self.owns(channel):
            return ELSEWHERE
        if self.leading.held.by_name and channel in self.leading.held.by_name:
            return ELSEWHERE
        info = self.meta.channels.get(channel)
        return info.group if info is not None else self.home(channel)

    def groups_of(self, channel: bytes) -> tuple[GroupId, ...]:
        """The groups that publishes to a channel are for: that of the channel, or those of its parts."""
        parted = self.meta.channels.parted.by_name
        if not parted or channel not in parted:
            return (self.group_number(channel),)
        return tuple(map(self.group_number, parted[channel].names()))

    def home(self, channel: bytes) -> GroupId:
        """The group in which a channel is made that does not exist: that of the channel that it is placed by, or the one to which
        that is pinned, else by the hash of its name."""
        if self.policies.rules:
            channel = self.placed_by(channel)
            if (info := self.meta.channels.get(channel)) is not None:
                return info.group
        return self.meta.pins.get(channel) or self.hashed(channel, self.wanted_commit(channel), self.pool_open)

    def wanted_commit(self, channel: bytes) -> int:
        """What an ack shall mean of a channel that is made now: SYNCED, REPLICATED or EPHEMERAL. SYNCED, which promises more,
        where there are no groups for the other."""
        wanted = self.policies.of(channel, b"").commit if self.policies.rules else SYNCED
        return wanted if self.hashed(channel, wanted, self.pool_open) else SYNCED

    def ack_level(self, group: GroupId) -> AckLevel:
        """What an ack of a publish to a channel of the group means."""
        store = self.config.store
        unsynced = store.kind == "memory" or store.sync != "always" or self.meta.commit_of(group) != SYNCED
        if not unsynced:
            return AckLevel.SYNCED
        return AckLevel.REPLICATED if self.clustered else AckLevel.MEMORY

    def hashed(self, channel: bytes, commit: int, opened: int) -> GroupId:
        """The group of a channel by the hash of its name, among groups 1 to *opened* of that kind; an ephemeral one is in a group
        whose other channels are synced."""
        return self.meta.home(channel, SYNCED if commit == EPHEMERAL else commit, opened)

    def app_group(self, app: bytes) -> GroupId:
        """The group that keeps what is known of an application by its name: for ever the one that the name had when the cluster
        was founded, whatever has become of a channel of the same name."""
        if self.access.partition is not None and not self.access.partition[app]:
            return ELSEWHERE
        return channel_group(app, self.config.store.raft_groups)

    @property
    def pool(self) -> int:
        """How many groups of channels there are."""
        return self.meta.pool.groups or self.config.store.raft_groups

    @property
    def pool_open(self) -> int:
        """Over how many groups names of channels are hashed: all but those that are new and may have no leader yet."""
        return self.meta.pool.open or self.config.store.raft_groups

    def placed_by(self, channel: bytes) -> bytes:
        """The channel that determines the group in which *channel* is made: for one with a delay its target, for a dead letter
        channel that is called after its channel that one, else itself."""
        if not self.policies.rules:
            return channel
        policy = self.policies.of(channel, b"")
        return (policy.delay and policy.target_of(channel)) or self.policies.source_of(channel) or channel

    def reached(self, channel: bytes) -> tuple[bytes, ...]:
        """The channels in which a message published to *channel* is stored, now or later: itself, and the target of its delay."""
        policy = self.policies.of(channel, b"")
        target = policy.target_of(channel) if policy.delay else b""
        return (channel, target) if target else (channel,)

    def known(self, client_id: bytes) -> Client | None:
        """The client of that id; a closing one counts, too, as it may have sent a frame before it closed."""
        closing = self.access.closing_clients.values()
        return self.meta.clients.get(client_id) or next((one for one in closing if one.client_id == client_id), None)

    def sender(self, sender: Sender) -> Client | None:
        """The client that published something, by connection id if the publish has one, else by client id (STAN-SPEC 2.3); a
        closing one counts, too. None if it is unknown, or belongs to another user than the sender."""
        user, client_id, conn_id = sender
        access, connection = self.access, (user, conn_id)
        found = self.meta.by_connection.get(connection) if conn_id else self.known(client_id)
        if found is None and conn_id and access.closing_clients:
            found = next((one for one in access.closing_clients.values() if one.connection == connection), None)
        return found if found is None or access.authorizer is None or access.authorizer.is_of(user, found) else None

    def user_of(self, reply: bytes) -> bytes:
        """The user who sent a request, from its reply subject; b"" if NATS does not report users."""
        return (
            user_of(reply).encode() if self.access.authorizer is not None and self.access.authorizer.with_users else b""
        )

    def may_send_to(self, named: bytes) -> bool:
        """True if the broker may send to a subject that a client has named. With users the broker sends to it only behind the
        prefix `_STAN.to.<user>.`."""
        if self.access.authorizer is not None and self.access.authorizer.with_users:
            return is_subject(named)
        return is_inbox(named) and not named.startswith(b"_INBOX.%b." % self.nuid)

    def indexes(self, group: GroupId, uid: ChannelUid) -> Index:
        """The index of a channel's visible messages: without those of a transaction that is not complete yet."""
        return self.visible(group, uid, self.written(group, uid))

    def visible(self, group: GroupId, uid: ChannelUid, index: Index) -> Index:
        """The visible part of *index*, the index of all committed messages of a channel (see `indexes`)."""
        found = self.groups.get(group)
        if found is None or not found.machine.transactions.under_way:
            return index
        return found.machine.transactions.visible(uid, index)

    def deleted(self, group: GroupId, uid: ChannelUid) -> Runs | None:
        """Sequences of a channel that were deleted one by one; None if there are none."""
        found = self.groups.get(group)
        return None if found is None else found.machine.tombstones.by_channel.get(uid)

    # --- proposals ----------------------------------------------------------------------------------------------------

    def change_meta(self, done: Done, **change: object) -> None:
        """Propose one META change, e.g. `connect=pb.Connect(...)`; only on the leader of the metadata."""
        body = pb.MetaChange(**change).SerializeToString()  # type: ignore[arg-type]
        self.proposals.changes.append(
            Proposal(META_GROUP, Kind.META, body, urgent=True, ticket=self.proposals.ticket(done))
        )

    def forward_meta(self, **change: object) -> None:
        """Ask the leader of the metadata to propose a change. There is no answer: the change shows in the metadata, or never."""
        body = pb.MetaChange(**change).SerializeToString()  # type: ignore[arg-type]
        self.outgoing.responses.append(publication(self.nats.subjects.meta.encode(), body))

    def ask_meta(self, done: Done = nobody_waits, **change: object) -> None:
        """Propose a META change if this node leads the metadata, of which *done* hears; else `forward_meta`."""
        if self.leading.leads_meta:
            self.change_meta(done, **change)
        else:
            self.forward_meta(**change)

    def propose(self, group: GroupId, kind: Kind, body: bytes, done: Done) -> None:
        """Propose an entry that is encoded already; unreported progress of the group is written before it."""
        ticket = self.proposals.ticket(done)
        self.proposals.changes.append(Proposal(group, kind, body, urgent=True, ticket=ticket))

    def change_group(self, group: GroupId, done: Done, in_doubt: InDoubt = nobody_waits, **change: object) -> None:
        """Propose one CHANGE of a channel group; unreported progress of the group is written before it. Of a channel that is held
        for a move to another group nothing is proposed: whoever takes it over has heard the request."""
        if self.leading.held.uids and self._is_held(group, change):
            in_doubt()
            return
        change |= {"at": self.clock.wall, "node": self.reports.events.node.encode()}
        body = pb.GroupChange(**change).SerializeToString()  # type: ignore[arg-type]
        self.proposals.changes.append(
            Proposal(group, Kind.CHANGE, body, urgent=True, ticket=self.proposals.ticket(done, in_doubt))
        )

    def _is_held(self, group: GroupId, change: dict[str, Any]) -> bool:
        machine = self.groups[group].machine
        return any(machine.uid_of(name, told) in self.leading.held.uids for name, told in change.items())

    def leave(self, group: GroupId, subscription_id: int, done: Done, *, unsubscribe: bool = False) -> None:
        """Propose that a subscription ends (closed, or unsubscribed); from now on nothing is sent to it."""
        found = self.groups[group].dispatch.cursors.by_subscription.get(subscription_id)
        if found is not None:
            found[1].leaving = True
        leave = pb.Leave(subscription_id=subscription_id, unsubscribe=unsubscribe)
        self.change_group(group, done, leave=leave)

    def end(self, group: GroupId, subscription_id: int, done: Callable[[], None] = lambda: None) -> None:
        """Close a subscription whose client is gone, or has no permission for it: `leave`, retried every second until it is
        written or another node leads the group; *done* is called once it is written."""

        def told(result: object, _error: str) -> None:
            if result is None:
                self.timers.at(self.clock.now + SECOND, lambda _now: self.end(group, subscription_id, done), group)
            else:
                done()

        if not self.leads(group):
            return
        if self._is_held(
            group, {"leave": pb.Leave(subscription_id=subscription_id)}
        ):  # perhaps it stays here after all
            later = self.clock.now + limits.FORWARD_INTERVAL
            self.timers.at(later, lambda _now: self.end(group, subscription_id, done), group)
        else:
            self.leave(group, subscription_id, told)

    def forget(self, group: GroupId) -> None:
        """This node no longer leads the group: drop its proposals and redeliveries on their way without an answer; the next
        leader takes them over."""
        self.proposals.forget(group)
        self.outgoing.redeliveries = [one for one in self.outgoing.redeliveries if one.group != group]
        self.outgoing.waiting.forget(group)

    # --- answers ------------------------------------------------------------------------------------------------------

    def respond(self, reply: bytes, payload: bytes, groups: tuple[GroupId, ...] = ()) -> None:
        """Answer a request; does nothing if *reply* is empty. *groups*: the answer depends on their current state, which only
        their leader knows, so it leaves only under their leases. Without groups the answer reports committed state and stays
        right."""
        if reply:
            answer = publication(reply, payload)
            self.outgoing.responses.append(LeaseAnswer(answer, groups) if groups and self.clustered else answer)

    def answer_as_leader(self, number: GroupId, answers: bytes) -> None:
        """Send *answers* to publishes only while no other node can lead the group: refusals of what that one might take, and acks
        of what is in this node's memory alone. Without the lease they wait for it as long as this node leads the group."""
        self.outgoing.pub_acks.append(LeaseAnswer(answers, (number,)) if self.clustered else answers)

    def request(
        self, group: GroupId, subject: bytes, timeout_ns: int, answered: Answered, payload: bytes = b""
    ) -> None:
        """Send a request on behalf of *group*; *answered* is called once, with None after *timeout_ns*."""
        self.nats.requests += 1
        number = self.nats.requests

        def end(payload: bytes | None) -> None:
            self.within(group, answered, payload)

        self.nats.awaited[number] = end
        reply = b"%b%d" % (self.nats.reply_prefix, number)
        if self.access.authorizer is not None and (user := user_of(subject).encode()):
            self.nats.asked_users[number] = user
            reply = b"%b.%b" % (reply, user)
        self.outgoing.responses.append(publication(subject, payload, reply))

        def late(_now: Nanos) -> None:
            self.nats.asked_users.pop(number, None)
            if self.nats.awaited.pop(number, None) is not None:
                end(None)

        self.timers.at(self.clock.now + timeout_ns, late, group)

    def answered(self, suffix: bytes) -> Answered | None:
        """Take the callback that waits for the answer under *suffix*, the reply subject behind `reply_prefix`; None if there is
        none, or if another user answers than the one who was asked."""
        number, _, user = suffix.partition(b".")
        if (
            not number.isdigit()
            or len(number) > NUMBER_DIGITS_MAX
            or self.nats.asked_users.get(int(number), b"") != user
        ):
            return None
        self.nats.asked_users.pop(int(number), None)
        return self.nats.awaited.pop(int(number), None)

    def lose_requests(self) -> None:
        """The NATS connection is lost: call the callbacks of all requests under way with None."""
        self.nats.asked_users.clear()
        for number in list(self.nats.awaited):
            self.nats.awaited.pop(number)(None)

    def note(self, level: str, text: str) -> None:
        """Write a log line for the operator; *level*: INF, WRN, ERR or DBG."""
        self.outgoing.notes.append((level, text))

    def complain(self, level: str, text: str | Callable[[], str]) -> None:
        """Write a log line about something a client sent, bounded in number and length (stan.core.base.complaints), as the client
        may repeat it without end."""
        self.reports.complaints.tell(self.clock.now, level, text)

    def emit(self, kind: str, text: str, **about: Any) -> None:
        """Publish an admin event (stan.core.base.admin_events); *about*: channel=, client_id=, group=, cursor_id=."""
        self.outgoing.responses += self.reports.events.frames(self.clock, kind, text, **about)

    def fail(self, group: GroupId, error: Exception) -> None:
        """The program failed in a group: the group is frozen, if this node still holds it, and the others continue."""
        self.outgoing.faults.append((group, error))

    def within(self, group: GroupId, call: Callable[[*Parts], Result], *args: *Parts) -> Result | None:
        """Call something on behalf of a group; if the call raises, only this group fails, and the result is None."""
        try:
            return call(*args)
        except Exception as error:  # noqa: BLE001 - the border of the group
            self.fail(group, error)
            return None

    # --- look-ups -----------------------------------------------------------------------------------------------------

    def group_of(self, info: ChannelInfo) -> ChannelGroup:
        """The group that holds a channel."""
        return self.groups[info.group]

    def acked(self, number: int, key: int) -> tuple[ChannelGroup, int] | None:
        """The group whose subscriptions acks with that group and key in their inbox are for, and what they are found by there:
        the group itself, or one that this node leads and to which a subscription has come with its channel."""
        for _, led in self.leading.led:
            cursors = led.dispatch.cursors
            if cursors.ack_groups and ack_place(number, key) in cursors.by_ack_key:
                return led, ack_place(number, key)
        group = self.groups.get(GroupId(number if number < ACK_GROUPS else number - ACK_GROUPS))
        return None if group is None else (group, key)

    def judged(self, inbox: bytes) -> tuple[ChannelGroup, int] | None:
        """Return the result of `acked` for a whole ack inbox; None also if its subscription belongs to another user than the one
        who sent there."""
        authorizer = self.access.authorizer
        user, number, key = acker(inbox, users=authorizer is not None and authorizer.with_users)
        taker = self.acked(number, key)
        if taker is None or authorizer is None:
            return taker
        found = taker[0].dispatch.cursors.by_ack_key.get(taker[1])
        return taker if found is not None and authorizer.may_ack(user, found[1].sub) else None

    def subscriptions_of(self, incarnation: int) -> list[tuple[GroupId, int]]:
        """(group, subscription id) of each online subscription of one connection, in the groups that this node leads."""
        return [
            (number, subscription_id)
            for number, group in self.leading.led
            for subscription_id in sorted(group.machine.subscriptions.by_incarnation.get(incarnation, ()))
        ]


class LeaderPart:
    """A part of the leader of one group: made with its leadership, and dropped with it."""

    def __init__(self, context: BrokerContext, leadership: Leadership) -> None:
        self.context = context
        self.leadership = leadership

    @property
    def group(self) -> ChannelGroup:
        """The group."""
        return self.leadership.group

    @property
    def number(self) -> GroupId:
        """The number of the group."""
        return self.leadership.number

    def change(self, done: Done, in_doubt: InDoubt = nobody_waits, **change: object) -> None:
        """Propose one CHANGE of the group (see `BrokerContext.change_group`)."""
        self.context.change_group(self.number, done, in_doubt, **change)

    def at(self, deadline: int, call: Callable[[Nanos], None]) -> None:
        """Call `call(now)` in the first turn at or after *deadline* (Nanos), if this leadership lasts until then."""

        def alarm(now: Nanos) -> None:
            if not self.leadership.ended:
                call(now)

        self.context.timers.at(deadline, alarm, self.number)


def text(raw: bytes) -> str:
    """Bytes of the wire as text; bytes that are not UTF-8 survive the round trip through `raw`."""
    return raw.decode("utf-8", "surrogateescape")


def shown(name: bytes) -> str:
    """Bytes of the wire for a log line: escaped as in a quoted string, without the quotes. Harmless names stay as they are."""
    return go_quote(text(name))[1:-1]


def shown_position(cursor: Cursor) -> str:
    """A cursor in words, for a log line."""
    if cursor.name:
        return f'{"queue group" if cursor.kind.shared else "durable"} "{shown(cursor.name)}"'
    return f'a subscription of client "{shown(cursor.client_id)}"'


def raw(shown: str) -> bytes:
    """The inverse of `text`."""
    return shown.encode("utf-8", "surrogateescape")

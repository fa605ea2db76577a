"""The state of a broker as tests ask for it: channels, positions as the log and as their leader knows them, leases, what waits.

The only module of the tests that reads the insides of a broker. Everything it returns is a copy: it stays as it was when it was
asked for, and changing it changes no broker.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeVar

from stan_protocol.ack_levels import AckLevel
from stan_protocol.scalars import ChannelUid, GroupId

from stan.core.base.delivery_policy import DeliveryPolicy
from stan.core.base.runs import Run, Runs
from stan.core.boundary.loading import restored
from stan.core.broker.broker import Broker
from stan.core.clients.registration import Registration
from stan.core.features.consumer_groups.leader import ConsumerGroupsLeader
from stan.core.features.moves import MovesFeature
from stan.core.features.moves.channel_moves import ChannelMoves
from stan.core.leader.cursors import LiveCursor
from stan.core.leader.local_group import ChannelGroup
from stan.core.leader.pending import CAUSE, alike
from stan.core.metadata.meta import MetaMachine
from stan.core.publishing.batching import Batching
from stan.core.services.node import META_GROUP, Node
from stan.core.services.proposals import nobody_waits
from stan.core.services.services import Services
from stan.core.state.cursors import Cursor, CursorKind, CursorPast, Subscription, SubscriptionSettings
from stan.core.state.group import GroupMachine
from stan.invariant import InvariantError
from stan.protocol.proto import entries_pb2 as pb


def channel_moves(broker: Broker) -> ChannelMoves:
    """What begins and cancels moves of channels."""
    return next(feature.channel_moves for feature in broker.features.all if isinstance(feature, MovesFeature))


def sequences(runs: Iterable[tuple[int, ...]]) -> list[int]:
    """All sequences of runs, which begin with first and last."""
    return [sequence for run in runs for sequence in range(run[0], run[1] + 1)]


Record = TypeVar("Record", bound=NamedTuple)


class Part(Protocol):
    """What a broker is composed of."""

    @property
    def node(self) -> Node:
        """The state of its node."""


class ClientState(NamedTuple):
    """A registered connection of a client id."""

    client_id: bytes
    conn_id: bytes
    heartbeat_inbox: bytes
    incarnation: int
    failing: bool
    protocol: int
    ping_interval: int
    ping_max_out: int


class ChannelState(NamedTuple):
    """A channel of the registry."""

    name: bytes
    uid: ChannelUid
    group: GroupId
    move: int  # RaftIndex of the entry that has begun its move; 0: it is not moved


class MemberState(NamedTuple):
    """An online subscription, as the log tells."""

    subscription_id: int
    cursor_id: int
    client_id: bytes
    incarnation: int
    settings: SubscriptionSettings
    ack_key: int
    pending: tuple[Run, ...]
    served_by: bytes  # the node that serves it; b"": the leader
    served_since: int


class Position(NamedTuple):
    """A cursor, as the log tells."""

    cursor_id: int
    uid: ChannelUid
    kind: CursorKind
    name: bytes
    client_id: bytes  # owner of a durable, last owner of a durable group
    last_sent: int
    to_redeliver: tuple[Run, ...]
    members: tuple[MemberState, ...]
    past: CursorPast
    paused: bool
    pause_reason: bytes
    maybe_sent_until: int

    @property
    def pending(self) -> list[int]:
        """Sequences that were sent and are not settled, whoever has them, in order."""
        return sorted(sequences([*self.to_redeliver, *(run for member in self.members for run in member.pending)]))


class LiveMemberState(NamedTuple):
    """An online subscription, as the node knows that serves it."""

    subscription_id: int
    inbox: bytes
    window: tuple[Run, ...]  # with deadlines
    window_now: int
    silent: bool


class LivePosition(NamedTuple):
    """A cursor, as the node knows that serves it."""

    cursor_id: int
    name: bytes
    client_id: bytes
    last_sent: int
    owed: tuple[Run, ...]  # sent, not acked, and no member's: `exhausted` and what is to be redelivered
    delayed: tuple[Run, ...]
    working: tuple[Run, ...]
    exhausted: tuple[Run, ...]
    causes: tuple[Run, ...]  # why they are to be sent again: counts are of Cause
    past: CursorPast
    members: tuple[LiveMemberState, ...]
    policy: DeliveryPolicy
    sent: tuple[tuple[int, int], ...]  # runs that were sent since the last progress entry
    reading: int  # number of the read that is under way; 0: none is
    batches: int  # read and not sent yet

    @property
    def window(self) -> list[int]:
        """Sequences in the windows of all members."""
        return sorted(sequences(run for member in self.members for run in member.window))


class Stops(NamedTuple):
    """Why a group sends nothing."""

    disconnected: bool
    mute: bool
    expiring: frozenset[ChannelUid]


class Waiting(NamedTuple):
    """How much of what was begun is not at its end."""

    proposals: int  # that are not committed
    requests: int  # own requests without an answer
    batches: int  # producers and users of whom batches are on their way into the groups that this node leads
    answers: int  # that wait for a lease
    answer_bytes: int
    closing_clients: int
    long_polls: int  # channels for whose news somebody waits


class BrokerState:
    """Questions to one broker. *group*: a channel group, as a rule the only one."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    @property
    def _services(self) -> Services:
        return self.broker.services

    def _group(self, group: int) -> ChannelGroup:
        return self._services.node.groups[GroupId(group)]

    # --- the metadata -------------------------------------------------------------------------------------------------

    @property
    def channels(self) -> dict[bytes, ChannelState]:
        """The channels of the registry by name; parts are channels."""
        known = self._services.node.meta.channels
        return {name: _taken(ChannelState, one) for name, one in known.items()}

    @property
    def parted(self) -> dict[bytes, int]:
        """The channels with parts, by name, and the RaftIndex of the entry that doubles their parts; 0: they are not."""
        return {name: one.row.doubling for name, one in self._services.node.meta.channels.parted.by_name.items()}

    @property
    def clients(self) -> dict[bytes, ClientState]:
        """The registered clients by id."""
        return {name: _taken(ClientState, one) for name, one in self._services.node.meta.clients.items()}

    @property
    def cluster(self) -> pb.ClusterInfo | None:
        """What is known of the cluster as a whole: nodes, policies, pins, level; None before it is founded."""
        info, copied = self._services.node.meta.info, pb.ClusterInfo()
        if info is None:
            return None
        copied.CopyFrom(info)
        return copied

    @property
    def applied(self) -> int:
        """How far the metadata is."""
        return self._services.node.meta.applied

    def policy(self, channel: bytes, name: bytes = b"") -> DeliveryPolicy:
        """The policy in force for a durable, or a queue group, of a channel."""
        return self._services.placement.policies.of(channel, name)

    # --- what the log tells -------------------------------------------------------------------------------------------

    def snapshot(self, group: int = 1) -> pb.Snapshot:
        """The state of a group, or of the metadata (0), as another node gets it."""
        taken = pb.Snapshot()
        if group == META_GROUP:
            self._services.node.meta.snapshot(taken)
        else:
            self._group(group).machine.snapshot(taken)
        return taken

    def copy(self, group: int = 1) -> GroupMachine:
        """A machine of its own with the state of a channel group, made from a snapshot: whatever is asked of it or done to it
        says what the log has, and nothing of the broker."""
        made = restored(GroupId(group), self.snapshot(group), changed=False)
        assert isinstance(made, GroupMachine)
        return made

    def copy_of_meta(self) -> MetaMachine:
        """As `copy`, of the metadata."""
        made = restored(META_GROUP, self.snapshot(META_GROUP), changed=False)
        assert isinstance(made, MetaMachine)
        return made

    def positions(self, group: int = 1, channel: bytes | None = None) -> list[Position]:
        """The cursors of a group, of one channel if it is named, in the order in which they were made."""
        uid = None if channel is None else self.channels[channel].uid
        cursors = self._group(group).machine.cursors.values()
        return [_position(cursor) for cursor in cursors if uid is None or cursor.uid == uid]

    def position(self, group: int = 1, channel: bytes | None = None) -> Position:
        """The only one of `positions`."""
        (only,) = self.positions(group, channel)
        return only

    def position_of(self, cursor_id: int, group: int = 1) -> Position | None:
        """The cursor of that number; None: there is none."""
        found = self._group(group).machine.cursors.get(cursor_id)
        return None if found is None else _position(found)

    def subscriptions(self, group: int = 1) -> list[MemberState]:
        """The online subscriptions of a group, in the order in which they came."""
        return [_member(one) for one in self._group(group).machine.subscriptions.by_id.values()]

    def subscription(self, group: int = 1) -> MemberState:
        """The only one of `subscriptions`."""
        (only,) = self.subscriptions(group)
        return only

    def sequences(self, channel: bytes = b"foo") -> list[int]:
        """The sequences of the visible messages that a channel has."""
        info = self.channels[channel]
        index, gone = self.broker.view.indexes(info.group, info.uid), self.deleted(channel)
        first = max(index.first_sequence, self.first_sequence(channel), 1)
        return [at for at in range(first, index.last_sequence + 1) if at not in gone]

    def first_sequence(self, channel: bytes = b"foo") -> int:
        """Messages of a channel below it are gone; 0: nothing was ever removed."""
        info = self.channels[channel]
        known = self._group(info.group).machine.channels.get(info.uid)
        return 0 if known is None else known.first_sequence

    def deleted(self, channel: bytes = b"foo") -> list[int]:
        """The sequences of a channel that were deleted one by one."""
        info = self.channels[channel]
        return sequences(self.broker.view.deleted(info.group, info.uid) or ())

    def held(self, group: int = 1) -> set[ChannelUid]:
        """The channels of a group of which nothing may change until a move is decided, as the log tells."""
        return set(self._group(group).machine.moves.held)

    @property
    def held_here(self) -> set[bytes]:
        """The channels that nobody leads because this node holds them for a move."""
        return {name for name in self.channels if self._services.placement.is_held(name)}

    # --- what the leader knows ------------------------------------------------------------------------------------------

    def live_positions(self, group: int = 1, channel: bytes | None = None) -> list[LivePosition]:
        """The cursors that this node serves, of one channel if it is named."""
        uid = None if channel is None else self.channels[channel].uid
        found = self._group(group).dispatch.cursors.by_id.values()
        return [_live(one) for one in found if uid is None or one.cursor.uid == uid]

    def live_position(self, group: int = 1, channel: bytes | None = None) -> LivePosition:
        """The only one of `live_positions`."""
        (only,) = self.live_positions(group, channel)
        return only

    def misplaced(self, group: int = 1) -> list[str]:
        """Contradictions in the tables that tell where the messages of the positions are that this node serves."""
        found = []
        for live in self._group(group).dispatch.cursors.by_id.values():
            try:
                live.check()
            except InvariantError as error:
                found.append(f"position {live.cursor.cursor_id}: {error}")
        return found

    def stops(self, group: int = 1) -> Stops:
        """Why this node sends nothing of a group now."""
        return _taken(Stops, self._group(group).dispatch.stops)

    def reads(self, group: int = 1) -> int:
        """How many reads were asked of the log of a group."""
        return self._group(group).dispatch.fetches

    def sent_messages(self, group: int = 1) -> int:
        """How many messages of a group this node has sent, redeliveries included."""
        return self._group(group).dispatch.totals.out_messages

    def live_sizes(self, group: int = 1) -> dict[str, int]:
        """How many of each kind this node has in memory to deliver the messages of a group."""
        dispatch = self._group(group).dispatch
        cursors = dispatch.cursors
        return {
            "positions": len(cursors.by_id) + len(cursors.by_channel),
            "members": len(cursors.by_subscription) + len(cursors.by_ack_key),
            "scheduled": len(dispatch.cursors.scheduled),
            "reports": len(dispatch.reports.cursors),
            "batches": len(dispatch.cursors.keep_batches),
        }

    def lags(self, group: int = 1) -> bool:
        """True if this node waits for publishes that the leader before may have heard."""
        return bool(self._group(group).replay_filter.lagging)

    def joined(self, group: int = 1) -> int:
        """How many recent subscriptions a group remembers, to know a repeated request."""
        return len(self._group(group).joined)

    def ack_level(self, group: int = 1) -> AckLevel:
        """What an ack of a publish to a channel of the group means."""
        return self._services.placement.ack_level(GroupId(group))

    def leadership_epoch(self, group: int = 1) -> int:
        """How often this node began to lead a group."""
        return self._group(group).leadership_epoch

    @property
    def lapsed(self) -> set[int]:
        """The groups that this node holds, and the metadata (0), of which it has no lease."""
        groups: set[int] = {
            number for number, group in self._services.node.groups.items() if group.dispatch.stops.lease_lapsed
        }
        return groups if self._services.leading.meta_lease else {META_GROUP, *groups}

    @property
    def closed(self) -> set[int]:
        """The groups that take no proposals."""
        return set(self._services.leading.write_blocked)

    @property
    def saturated(self) -> set[int]:
        """The groups whose messages are collected into larger batches."""
        return set(self._services.leading.saturated)

    def waiting(self) -> Waiting:
        """What this node waits for."""
        services = self._services
        answers, leaders = services.outgoing.waiting, map(services.node.leader, (META_GROUP, *services.node.groups))
        return Waiting(
            len(services.proposals.changes) + sum(len(leader.written) for leader in leaders if leader is not None),
            len(services.requests.awaited | services.requests.asked_users),
            sum(len(one.lines) + len(one.waiting.by_user) for one in services.leading.all_parts(Batching)),
            len(answers.queue),
            answers.bytes,
            len(services.senders.closing),
            len(services.outgoing.watched),
        )

    @property
    def connects_under_way(self) -> int:
        """How many connects this node is about to answer as the leader of the metadata."""
        registration = self._services.leading.part(META_GROUP, Registration)
        return 0 if registration is None else len(registration.checking) + len(registration.next)

    def failed_heartbeats(self, incarnation: int) -> int:
        """How many heartbeats of a connection in a row had no answer, as the leader of the metadata counts them."""
        registration = self._services.leading.part(META_GROUP, Registration)
        return 0 if registration is None else registration.heartbeats[incarnation].failures

    @property
    def watched_consumer_groups(self) -> set[bytes]:
        """The consumer groups that this node has a live view of, as the leader of the metadata."""
        groups = self._services.leading.part(META_GROUP, ConsumerGroupsLeader)
        return set() if groups is None else set(groups.live)

    @property
    def timers(self) -> int:
        """How many deadlines the broker has in mind."""
        return len(self._services.timers._heap)

    @property
    def next_timer(self) -> int | None:
        """When the first timer is due, in Nanos; None: none runs."""
        return self._services.timers.next


def propose(broker: Broker, **change: object) -> None:
    """Propose a change of the metadata to the broker that leads it; nobody waits for the outcome."""
    broker.services.proposals.change_meta(nobody_waits, **change)


def policies_changed(broker: Broker) -> None:
    """Let a broker look at the policies of all its positions."""
    for group in broker.services.node.groups.values():
        group.dispatch.members.policies_changed()


def wall_of(part: Part) -> int:
    """The time of the broker of which *part* is a part, Unix ns."""
    return part.node.clock.wall


def _taken(kind: type[Record], *sources: object, **made: object) -> Record:
    """A record of what has these names: what is *made* of them, and attributes of the first of *sources* that has them."""
    for name in kind._fields:
        if name not in made:
            value = getattr(next(source for source in sources if hasattr(source, name)), name)
            made[name] = tuple(value) if isinstance(value, Runs) else value
    return kind._make(made[name] for name in kind._fields)


def _member(one: Subscription) -> MemberState:
    return _taken(MemberState, one, served_by=one.served.node, served_since=one.served.since)


def _position(one: Cursor) -> Position:
    reason = b"" if one.override is None else one.override.pause_reason
    return _taken(Position, one, members=tuple(map(_member, one.members)), pause_reason=reason)


def _live(one: LiveCursor) -> LivePosition:
    members = tuple(_taken(LiveMemberState, member, member.sub, member.sub.settings) for member in one.members)
    sent = tuple((sent.first, sent.last) for sent in one.unreported.sent)
    reads, pending = one.reads, one.pending
    nobodys = [Run(first, last, 0, why & CAUSE) for first, last, why, _ in pending.owed]
    return _taken(
        LivePosition,
        one,
        one.cursor,
        members=members,
        sent=sent,
        reading=reads.fetching,
        batches=len(reads.batches),
        owed=tuple(alike(pending.owed)),
        delayed=tuple(pending.paused),
        working=tuple(pending.worked_on),
        exhausted=tuple(alike(pending.given_up)),
        causes=tuple(sorted([*pending.paused, *nobodys])),
    )

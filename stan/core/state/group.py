"""One channel group's replicated state: cursors, subscriptions, their sent and acked sequences, first sequences.

A deterministic state machine, fed by committed entries and by nothing else (P2). A *cursor* is a position in a channel: of a
plain subscription, of a durable, or shared by the members of a queue group. A *subscription* is one online member of a cursor
with the sequences it was sent and has not acked. The sequences in a cursor's `to_redeliver` were delivered once, and no member
holds them now.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

from stan_protocol.refusals import (
    CHANNEL_IN_USE,
    CHANNEL_MOVING,
    CHANNEL_RESTORING,
    CURSOR_EXISTS,
    CURSOR_GONE,
    DUPLICATE_DURABLE,
    DURABLE_OF_ANOTHER,
    INVALID_SUBSCRIPTION,
    MOVE_WAITS_DELAYED,
    MOVE_WAITS_SERVED,
    MOVE_WAITS_STAGED,
    TOO_MANY_SKIPPED,
    TOO_MANY_SUBSCRIPTIONS,
    UNKNOWN_CHANNEL,
    UNKNOWN_MOVE,
    UNKNOWN_RESTORE,
)
from stan_protocol.scalars import ChannelUid, GroupId, RaftIndex, Sequence

from stan import limits
from stan.core.base.names import shown
from stan.core.base.runs import Run, Runs, counted_runs, from_flat, pairs, size_of
from stan.core.state.bookmarks import Bookmarks
from stan.core.state.compactions import Compactions
from stan.core.state.components import StateComponent, make_components
from stan.core.state.cursor_override import CursorOverride, of_cursor, of_row
from stan.core.state.deferred import Deferred
from stan.core.state.dropped import DroppedChannels
from stan.core.state.ephemeral import EphemeralEpochs, Epoch
from stan.core.state.expiries import Expiries
from stan.core.state.limit_overrides import LimitOverrides
from stan.core.state.moves import MoveStage, MoveStages, Stage
from stan.core.state.restore_state import RestoreStates
from stan.core.state.serving import LEADER, ServedBy
from stan.core.state.tombstones import Tombstones, behind
from stan.core.state.transactions import Transactions
from stan.protocol.entries import DEFERRED_UID, STAGING_UID
from stan.protocol.kernel import server as kernel
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.user_subjects import ACK_GROUPS, user_of

PartKind = TypeVar("PartKind")
ACK_KEY_BITS: Final = 64
_MANY_NUMBERS: Final = 32
"""Ends of runs in a progress entry from which on the runs are looked at together."""

OPERATOR_CHANGES = frozenset(
    {"move_cursor", "skip_sequences", "send_again", "pause_cursor", "drop_cursor", "dead_letters"}
)
"""Changes that operators, and their policies, make to a cursor (stan.core.state.cursor_override keeps what they leave behind)."""


class CursorKind(IntEnum):
    """Who shares a cursor and whether it is kept; stored, so numbers are never reused."""

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
    """Where a subscription gets its messages and is acknowledged, and the bounds that its client has asked for."""

    inbox: bytes = b""
    ack_inbox: bytes = b""
    max_in_flight: int = 0
    ack_wait_s: int = 0


class LastMember(NamedTuple):
    """What a cursor keeps of the member that left last, for as long as no member is online."""

    subscription_id: int = 0  # the next member gets this id again; 0: it has been given to one already
    settings: SubscriptionSettings = SubscriptionSettings()


class CursorPast(NamedTuple):
    """Moments of a cursor's past."""

    start_sequence: int = 0  # earlier sequences were never sent, unless the cursor was moved; 0: unknown
    acked_at: int = 0  # Unix ns of the newest progress with an ack; 0: no ack came
    unacked_since: int = 0  # Unix ns since when messages are pending at members without an ack; 0: none is


@dataclass(slots=True)
class Subscription:
    """One online member of a cursor. `pending`: sequences sent to this member and not acked."""

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
    """One number for what an ack inbox ends in; *ack_group*: 0 for a subscription of the group in which it was made."""
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


@dataclass(slots=True)
class GroupChannel:
    """The state of one channel besides its messages."""

    first_sequence: int = 0  # messages below are gone; 0 = nothing was ever removed
    cursors: dict[int, Cursor] = field(default_factory=dict)
    by_key: dict[tuple[int, bytes, bytes], Cursor] = field(default_factory=dict)

    @property
    def subscription_count(self) -> int:
        """Records that count against the limit: online members and offline cursors (STAN-SPEC 7.1)."""
        return sum(len(cursor.members) or 1 for cursor in self.cursors.values())


@dataclass(slots=True)
class OperatorChange:
    """What an operator has changed about a cursor."""

    name: str  # of the change, in OPERATOR_CHANGES
    before: int  # last_sent of the cursor before the change
    runs: list[tuple[int, int]] = field(default_factory=list)  # the sequences of the change, as (first, last)
    changed: int = 0  # number of messages skipped or to be sent again; of other changes 1, or 0 if nothing changed


@dataclass(slots=True)
class GroupResult:
    """The outcome of one applied entry."""

    error: str = ""  # why the change was refused
    joined: Subscription | None = None
    cursor: Cursor | None = None  # of the subscription that joined or left, or the one that an operator changed
    left: Subscription | None = None
    ended: bool = False  # the cursor is gone with its last member
    again: bool = False  # the subscription had joined before: a repeated entry
    replaced: Subscription | None = None  # a durable's earlier member, which `joined` took the place of
    of_part: object = None  # the result of the component that applied the change
    operator_change: OperatorChange | None = None  # what an operator has changed about `cursor`
    served: list[Cursor] = field(default_factory=list)  # these are served by another node than before


@dataclass(slots=True)
class DirtyRows:
    """Keys of rows that have changed since they were last taken to be written; components keep those of their own rows."""

    cursors: set[int] = field(default_factory=set)
    subscriptions: set[int] = field(default_factory=set)
    channels: set[int] = field(default_factory=set)  # uids

    def take_some(self, most: int) -> "DirtyRows":
        """Take keys of cursors and subscriptions, *most* of each; the others stay."""
        return DirtyRows(_some(self.cursors, most), _some(self.subscriptions, most))


class GroupRows(NamedTuple):
    """Changed rows of a group. None instead of a row: the row is gone."""

    cursors: list[tuple[int, Cursor | None]]
    subscriptions: list[tuple[int, Subscription | None]]
    first_sequences: list[tuple[int, int]]  # uid and first sequence; 0: unknown, or the channel is gone
    parts: list[tuple[str, bytes, bytes | None]]  # kind of the component, key, row
    next_id: int


@dataclass(slots=True)
class GroupMachine:
    """The replicated state of one channel group."""

    group: GroupId
    channels: dict[ChannelUid, GroupChannel] = field(default_factory=dict)
    cursors: dict[int, Cursor] = field(default_factory=dict)
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    next_id: int = 1
    components: list[StateComponent] = field(default_factory=make_components)
    dirty: DirtyRows = field(default_factory=DirtyRows)
    # Members of `components`, by name:
    dropped: DroppedChannels = field(init=False)
    transactions: Transactions = field(init=False)
    tombstones: Tombstones = field(init=False)
    limit_overrides: LimitOverrides = field(init=False)
    moves: MoveStages = field(init=False)  # which channels come from other groups, or go there

    def __post_init__(self) -> None:
        self.dropped = self.part(DroppedChannels)
        self.transactions = self.part(Transactions)
        self.tombstones = self.part(Tombstones)
        self.limit_overrides = self.part(LimitOverrides)
        self.moves = self.part(MoveStages)

    def part(self, kind: type[PartKind]) -> PartKind:
        """The machine's component of class *kind*."""
        return next(part for part in self.components if isinstance(part, kind))

    @property
    def restores(self) -> RestoreStates:
        """The restores of channels from backups."""
        return self.part(RestoreStates)

    def delayed(self, uid: ChannelUid | None = None) -> int:
        """How many messages for a channel, or for any, wait for the time which their publishers have told."""
        deferred = self.part(Deferred)
        return deferred.waiting if uid is None else deferred.counts.get(uid, 0)

    def channel(self, uid: ChannelUid) -> GroupChannel:
        """The state of a channel; an empty one is made at the first call."""
        found = self.channels.get(uid)
        if found is None:
            found = self.channels[uid] = GroupChannel()
        return found

    @property
    def compactions(self) -> Compactions:
        """How far channels are compacted by key."""
        return self.part(Compactions)

    def passed(self, uid: ChannelUid) -> int | None:
        """The last sequence that each position of a channel has behind it, as the log tells: those of durables, queue groups and
        subscriptions, and named ones; None: there are no positions."""
        last = self.last_of_all(uid)
        return None if last is None else last[0]

    def served_by(self, node: bytes) -> list[Cursor]:
        """The cursors that *node* serves, which may not be the leader."""
        return [self.cursors[sub.cursor_id] for sub in self.subscriptions.by_id.values() if sub.served.node == node]

    def last_of_all(self, uid: ChannelUid) -> tuple[int, bytes] | None:
        """The last sequence that each position of a channel has behind it (see `passed`), and the name of a position that has no
        more behind it; b"" of a subscription without one. None: there are no positions."""
        floors = [(cursor.floor, cursor.name) for cursor in self.channel(uid).cursors.values()]
        floors += self.part(Bookmarks).floors(uid)
        return min(floors, default=None)

    # --- entries ----------------------------------------------------------------------------------------------------

    def apply(self, change: pb.GroupChange, index: RaftIndex) -> GroupResult:
        """Apply one committed CHANGE entry."""
        for progress in self._still_served(change) if change.served_since else change.progress:
            self._progress(progress, change.at)
        name = change.WhichOneof("change")
        if self.moves.held and name is not None and self.is_held(name, getattr(change, name)):
            return GroupResult(error=CHANNEL_MOVING)
        return GroupResult() if name is None else self._apply(name, change, index)

    def _apply(self, name: str, change: pb.GroupChange, index: RaftIndex) -> GroupResult:
        match name:
            case "subscribe":
                return self._subscribe(change.subscribe, index)
            case "leave":
                return self._leave(change.leave)
            case "trim":
                for uid, first in pairs(change.trim.first_sequences):
                    self.trim(ChannelUid(uid), first)
            case "maybe_sent":
                for cursor_id, until in pairs(change.maybe_sent.until):
                    self._maybe_sent(cursor_id, until)
            case "drop_channel":
                self._drop(ChannelUid(change.drop_channel.uid))
            case str(name):
                take = self._apply_operator_change if name in OPERATOR_CHANGES else self._of_part
                return take(name, getattr(change, name), index)
        return GroupResult()

    def _of_part(self, name: str, change: Any, index: RaftIndex) -> GroupResult:
        if name == "serve":
            return self._serve(change, index)
        if name == "expired":
            return GroupResult(of_part=self._expire(change))
        if name in _WIDER:
            return GroupResult(error=_WIDER[name](self, change, index))
        part = next((part for part in self.components if name in part.CHANGES), None)
        result = GroupResult(of_part=part.apply(name, change, index) if part is not None else None)
        self._trim_hidden()
        return result

    def is_held(self, name: str, about: Any) -> bool:
        """True if a change of that name is about a channel that is being moved to another group, or was: then it changes nothing.
        A leader proposes none, so this is how a fault of a leader stays without effect."""
        if name in _OF_MOVES:
            return False
        if name == "commit":
            return any(share.uid in self.moves.held for share in about.channels)
        uid = self.uid_of(name, about)
        if name == "drop_channel" and (known := self.moves.by_channel.get(uid)) is not None:
            return known.stage is Stage.HELD  # what is left of a channel that is gone is forgotten
        return uid in self.moves.held

    def uid_of(self, name: str, told: Any) -> ChannelUid:
        """The channel that a change of that name is about; 0 if it is about none, or about several."""
        if name == "leave":
            member = self.subscriptions.by_id.get(told.subscription_id)
            return self.cursors[member.cursor_id].uid if member is not None else ChannelUid(0)
        if name in OPERATOR_CHANGES:
            cursor = self.cursors.get(told.cursor_id)
            return cursor.uid if cursor is not None else ChannelUid(0)
        if name == "restored_cursor":
            told = told.cursor
        return ChannelUid(getattr(told, "uid", 0))

    def _trim_hidden(self) -> None:
        for uid, floor in ((STAGING_UID, self.transactions.floor), (DEFERRED_UID, self.part(Deferred).floor)):
            if floor > 1:
                self.trim(uid, floor)

    def trim(self, uid: ChannelUid, first_sequence: int) -> None:
        """Messages below *first_sequence* are gone. Those still pending are settled when their redelivery is due."""
        if uid in self.moves.held or uid in self.dropped:
            return
        channel = self.channel(uid)
        if first_sequence > channel.first_sequence:
            channel.first_sequence = first_sequence
            self.dirty.channels.add(uid)
            if uid in self.tombstones.by_channel:
                self.tombstones.trim(uid, first_sequence)

    def _subscribe(self, request: pb.Subscribe, index: RaftIndex) -> GroupResult:
        uid = ChannelUid(request.uid)
        made = self.subscriptions.made_by(request)
        if made is not None:  # the previous leader had proposed it, too
            return GroupResult(joined=made, again=True)
        if uid in self.dropped:
            return GroupResult(error=UNKNOWN_CHANNEL)
        channel = self.channel(uid)
        kind, name = kind_and_name(request.queue_group, request.durable_name)
        cursor = self.meant(request)
        replaced = None
        if cursor is not None and request.user and cursor.user not in (b"", request.user, request.former_user):
            return GroupResult(error=DURABLE_OF_ANOTHER)
        if cursor is not None and cursor.members and not kind.shared:
            if not request.replace_durable:
                return GroupResult(error=DUPLICATE_DURABLE)
            replaced = cursor.members[0]
            self._remove_member(cursor, replaced)
        if cursor is None or cursor.members:
            limit = request.subscriptions_max
            if limit and channel.subscription_count >= limit:
                return GroupResult(error=TOO_MANY_SUBSCRIPTIONS)
        if cursor is None:
            # A leader of before may have chosen where it starts: in an epoch that has ended meanwhile.
            start = max(1, request.start_sequence, self.part(EphemeralEpochs).of(uid).first)
            cursor = Cursor(self._new_id(), uid, kind, name, request.client_id, start - 1)
            cursor.past = CursorPast(0 if request.sent_before else request.start_sequence)
            self._index_cursor(cursor)
        resumed = cursor.last_member.subscription_id if not cursor.members else 0
        ack_key = request.ack_key or index
        member = Subscription(
            subscription_id=resumed or self._new_id(),
            cursor_id=cursor.cursor_id,
            client_id=request.client_id,
            incarnation=request.incarnation,
            settings=SubscriptionSettings(
                inbox=request.inbox,
                ack_inbox=b"%b.%d.%d"
                % (
                    request.ack_prefix or b"_INBOX." + request.nuid,
                    self.group + ACK_GROUPS if request.replica else self.group,
                    ack_key,
                ),
                max_in_flight=request.max_in_flight,
                ack_wait_s=request.ack_wait_s,
            ),
            ack_key=ack_key,
            joined=index if request.ack_key else 0,
            reply=request.reply,
            served=ServedBy(request.replica) if request.replica else LEADER,
        )
        self._index_member(cursor, member)
        cursor.client_id = request.client_id
        cursor.last_member = cursor.last_member._replace(subscription_id=0)
        self.dirty.cursors.add(cursor.cursor_id)
        self.dirty.subscriptions.add(member.subscription_id)
        return GroupResult(joined=member, cursor=cursor, replaced=replaced)

    def meant(self, request: pb.Subscribe) -> Cursor | None:
        """The durable or queue group that a request resumes or joins; None: the request makes a new one."""
        kind, name = kind_and_name(request.queue_group, request.durable_name)
        known = self.channels.get(ChannelUid(request.uid))
        key = (kind, name, request.client_id if kind is CursorKind.DURABLE else b"")
        return None if known is None or kind is CursorKind.PLAIN else known.by_key.get(key)

    def _leave(self, leave: pb.Leave) -> GroupResult:
        member = self.subscriptions.by_id.get(leave.subscription_id)
        if member is None:
            return GroupResult(error=INVALID_SUBSCRIPTION)
        cursor = self.cursors[member.cursor_id]
        self._remove_member(cursor, member)
        ended = not cursor.members and (leave.unsubscribe or not cursor.kind.durable)
        if ended:
            self._remove_cursor(cursor)
        return GroupResult(left=member, cursor=cursor, ended=ended)

    def _serve(self, change: pb.Serve, index: RaftIndex) -> GroupResult:
        """Plain subscriptions get another node that serves them, or none: then the leader does."""
        result = GroupResult()
        for cursor_id in change.cursor_ids:
            cursor = self.cursors.get(cursor_id)
            if cursor is None or cursor.kind is not CursorKind.PLAIN or not cursor.members:
                continue
            member = cursor.members[0]
            member.served = ServedBy(member.served.wish, change.node, index if change.node else 0, change.instance)
            self.dirty.subscriptions.add(member.subscription_id)
            result.served.append(cursor)
        return result

    def _still_served(self, change: pb.GroupChange) -> Iterator[pb.Progress]:
        """Progress that a node tells which is not the leader: of what it serves still."""
        for progress, since in zip(change.progress, change.served_since, strict=False):
            cursor = self.cursors.get(progress.cursor_id)
            if since and cursor is not None and cursor.members and cursor.members[0].served.since == since:
                yield progress

    def _progress(self, progress: pb.Progress, at: int) -> None:
        """Apply what the leader has sent and heard of; *at*: Unix ns, 0: the entry tells no time."""
        cursor = self.cursors.get(progress.cursor_id)
        if cursor is None or cursor.uid in self.moves.held:
            return
        override = cursor.override
        if override is not None and progress.epoch != override.epoch:
            self._reported_late(cursor, override, progress)
            return
        taken = self._take_all(cursor, progress)
        for held in progress.held:
            member = self.subscriptions.by_id.get(held.subscription_id)
            if member is not None and member.cursor_id != cursor.cursor_id:
                member = None
            runs = cursor.to_redeliver if member is None else member.pending
            if taken and len(held.runs) >= _MANY_NUMBERS and cursor.uid not in self.tombstones.by_channel:
                runs.add_counted(held.runs, held.counts)
            else:
                self._hold(cursor, runs, held, taken=taken)
            if member is not None:
                member.last_sent = max(member.last_sent, member.pending.last)
                self.dirty.subscriptions.add(member.subscription_id)
        cursor.last_sent = max(cursor.last_sent, progress.last_sent)
        if override is not None:
            override.passed(cursor.last_sent)
        if at:
            cursor.timed(at, acked=size_of(pairs(progress.acked)) > size_of(pairs(progress.removed)))
        self.dirty.cursors.add(cursor.cursor_id)

    def _hold(self, cursor: Cursor, runs: Runs, held: pb.Held, *, taken: bool) -> None:
        """Add what a progress entry tells of one holder to *runs*; *taken*: it was taken from those who had it before."""
        for run in counted_runs(held.runs, held.counts):
            first, last, *_ = run
            if not taken:
                self._take(cursor, first, last)
            runs.add(run)
            for gone in self.tombstones.within(cursor.uid, first, last):
                self._take(cursor, gone.first, gone.last)

    def _reported_late(self, cursor: Cursor, override: CursorOverride, progress: pb.Progress) -> None:
        """Apply a progress entry of an earlier epoch: when the leader reported it, it did not know yet that the cursor was moved
        or messages were skipped. Only the fact that messages were sent counts."""
        for runs in (progress.acked, *(held.runs for held in progress.held)):
            for first, last in pairs(runs):
                override.was_sent(first, last, cursor.last_sent)
        self.dirty.cursors.add(cursor.cursor_id)

    def _take(self, cursor: Cursor, first: int, last: int) -> None:
        """Remove [first, last] from `to_redeliver` and from every member's pending set (G1)."""
        cursor.to_redeliver.remove(first, last)
        for member in cursor.members:
            if member.pending.remove(first, last):
                self.dirty.subscriptions.add(member.subscription_id)

    def _take_all(self, cursor: Cursor, progress: pb.Progress) -> bool:
        """As `_take` of all sequences that a progress entry tells of, where they are many: in one pass. Returns False if only
        those that were acked are taken, as they are few, or not disjoint."""
        acked, count = progress.acked, len(progress.acked)
        for held in progress.held:
            count += len(held.runs)
        if count >= _MANY_NUMBERS:
            parts = sorted(chain(pairs(progress.acked), *(pairs(held.runs) for held in progress.held)))
            if kernel.disjoint(parts):
                cursor.to_redeliver.remove_each(parts)
                for member in cursor.members:
                    if member.pending.remove_each(parts):
                        self.dirty.subscriptions.add(member.subscription_id)
                return True
        for first, last in pairs(acked):
            self._take(cursor, first, last)
        return False

    def _maybe_sent(self, cursor_id: int, until: int) -> None:
        cursor = self.cursors.get(cursor_id)
        if cursor is not None and cursor.uid not in self.moves.held:
            cursor.maybe_sent_until = max(cursor.maybe_sent_until, until)
            self.dirty.cursors.add(cursor_id)

    # --- what operators change ----------------------------------------------------------------------------------------

    def _apply_operator_change(self, name: str, change: Any, index: RaftIndex) -> GroupResult:
        cursor = self.cursors.get(change.cursor_id)
        if cursor is None:
            return GroupResult(error=CURSOR_GONE)
        done = OperatorChange(name, cursor.last_sent)
        result = GroupResult(cursor=cursor, operator_change=done)
        override = cursor.override or of_cursor(cursor.past.start_sequence)
        match name:
            case "move_cursor":
                self._move(cursor, override, change.sequence - 1)
                override.epoch, override.moved_at, done.changed = index, change.at, 1
            case "skip_sequences":
                done.runs = list(pairs(change.runs))
                if override.skipped.pieces + len(done.runs) > limits.OVERRIDE_RUNS_MAX:
                    return GroupResult(error=TOO_MANY_SKIPPED)
                done.changed = self._skip(cursor, override, done.runs)
                override.epoch = index
            case "send_again":
                done.runs = list(pairs(change.runs)) or [(1, cursor.last_sent)]
                done.changed = self._send_again(cursor, done.runs)
            case "pause_cursor":
                done.changed = int(override.paused != change.paused)
                override.paused, override.pause_reason = change.paused, change.reason
            case "dead_letters":
                done.runs = list(pairs(change.runs))
                self._give_up(cursor, override, done.runs)
            case "drop_cursor":
                self._drop_cursor(cursor)
                result.ended, done.changed = True, 1
        cursor.override = None if override.idle else override
        self.dirty.cursors.add(cursor.cursor_id)
        return result

    def _move(self, cursor: Cursor, override: CursorOverride, to: int) -> None:
        override.move(cursor.last_sent, cursor.maybe_sent_until, to)
        for member in cursor.members:
            member.pending.clear()
            member.last_sent = min(member.last_sent, to)
            self.dirty.subscriptions.add(member.subscription_id)
        cursor.to_redeliver.clear()
        cursor.last_sent, cursor.maybe_sent_until = to, 0

    def _skip(self, cursor: Cursor, override: CursorOverride, runs: list[tuple[int, int]]) -> int:
        before = self._unacked(cursor) - len(override.skipped)
        for first, last in runs:
            self._take(cursor, first, last)
            if last > cursor.last_sent:
                override.skipped.merge(Run(max(first, cursor.last_sent + 1), last))
        return before - self._unacked(cursor) + len(override.skipped)

    def _give_up(self, cursor: Cursor, override: CursorOverride, runs: list[tuple[int, int]]) -> None:
        """Messages became dead letters: they are settled, also those that the cursor was moved back behind meanwhile."""
        for first, last in runs:
            self._take(cursor, first, last)
            if last > cursor.last_sent and override.skipped.pieces < limits.OVERRIDE_RUNS_MAX:
                override.skipped.merge(Run(max(first, cursor.last_sent + 1), last))

    @staticmethod
    def _unacked(cursor: Cursor) -> int:
        return len(cursor.to_redeliver) + sum(len(member.pending) for member in cursor.members)

    def _send_again(self, cursor: Cursor, runs: list[tuple[int, int]]) -> int:
        """Nobody holds these messages any more, and their deliveries are counted anew."""
        for first, last in runs:
            found = cursor.to_redeliver.remove(first, last)
            for member in cursor.members:
                if taken := member.pending.remove(first, last):
                    found += taken
                    self.dirty.subscriptions.add(member.subscription_id)
            for run in found:
                cursor.to_redeliver.add(Run(run.first, run.last))
        return sum(run.size for first, last in runs for run in cursor.to_redeliver.within(first, last))

    def _drop_cursor(self, cursor: Cursor) -> None:
        for member in list(cursor.members):
            self._unindex_member(cursor, member)
        self._remove_cursor(cursor)

    def _drop(self, uid: ChannelUid) -> None:
        channel = self.channels.pop(uid, None)
        self.dirty.channels.add(uid)
        for part in self.components:
            part.drop_channel(uid)
        self._trim_hidden()
        if channel is not None:
            self._drop_cursors(channel)

    def _drop_cursors(self, channel: GroupChannel) -> None:
        for cursor in list(channel.cursors.values()):
            for member in list(cursor.members):
                self._unindex_member(cursor, member)
            self.cursors.pop(cursor.cursor_id, None)
            self.dirty.cursors.add(cursor.cursor_id)

    # --- rows -------------------------------------------------------------------------------------------------------

    def touch_all(self) -> None:
        """Mark everything as changed, so that all rows are written again: the stored rows are lost."""
        self.dirty.cursors.update(self.cursors)
        self.dirty.subscriptions.update(self.subscriptions.by_id)
        self.dirty.channels.update(self.channels)
        for part in self.components:
            part.dirty.update(part.keys())

    def take_changed_rows(self) -> GroupRows:
        """Return the rows that have changed since the last call; the caller writes them. They must be encoded before the next
        entry is applied, as cursors and subscriptions are not copied."""
        dirty, self.dirty = self.dirty, DirtyRows()
        parts = [(part.KIND, key, part.row(key)) for part in self.components for key in sorted(part.dirty)]
        for part in self.components:
            part.dirty.clear()
        return self._rows(dirty, parts)

    def take_some_rows(self, most: int) -> GroupRows | None:
        """Return some of the rows that have changed, as `take_changed_rows` does all: they may change again before the others are
        taken, and come again then. None: no more than *most* cursors and subscriptions have changed."""
        if len(self.dirty.cursors) + len(self.dirty.subscriptions) <= most:
            return None
        return self._rows(self.dirty.take_some(most // 2), [])

    def _rows(self, dirty: DirtyRows, parts: list[tuple[str, bytes, bytes | None]]) -> GroupRows:
        return GroupRows(
            [(cursor_id, self.cursors.get(cursor_id)) for cursor_id in dirty.cursors],
            [(number, self.subscriptions.by_id.get(number)) for number in dirty.subscriptions],
            [(uid, self._first_sequence(uid)) for uid in dirty.channels],
            parts,
            self.next_id,
        )

    def first_sequence(self, uid: ChannelUid) -> Sequence:
        """The first sequence of a channel that is not removed; 0 if nothing ever was."""
        return Sequence(self._first_sequence(uid))

    def _first_sequence(self, uid: int) -> int:
        channel = self.channels.get(ChannelUid(uid))
        return 0 if channel is None else channel.first_sequence

    # --- parts ------------------------------------------------------------------------------------------------------

    def _new_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def _found_cursor(self, uid: ChannelUid, kind: int, name: bytes, client_id: bytes) -> Cursor:
        """Find a cursor by its key; if there is none, make one at the beginning of its channel."""
        made = Cursor(self.next_id, uid, CursorKind(kind), name, client_id, 0)
        found = self.channel(uid).by_key.get(made.key)
        if found is not None:
            return found
        self._new_id()
        self._index_cursor(made)
        return made

    def _index_cursor(self, cursor: Cursor) -> None:
        channel = self.channel(cursor.uid)
        self.cursors[cursor.cursor_id] = channel.cursors[cursor.cursor_id] = cursor
        if cursor.kind is not CursorKind.PLAIN:
            channel.by_key[cursor.key] = cursor

    def _remove_cursor(self, cursor: Cursor) -> None:
        channel = self.channel(cursor.uid)
        del self.cursors[cursor.cursor_id], channel.cursors[cursor.cursor_id]
        if channel.by_key.get(cursor.key) is cursor:
            del channel.by_key[cursor.key]
        self.dirty.cursors.add(cursor.cursor_id)

    def _index_member(self, cursor: Cursor, member: Subscription) -> None:
        cursor.members.append(member)
        self.subscriptions.add(member)

    def _unindex_member(self, cursor: Cursor, member: Subscription) -> None:
        cursor.members.remove(member)
        self.subscriptions.remove(member)
        self.dirty.subscriptions.add(member.subscription_id)

    def _remove_member(self, cursor: Cursor, member: Subscription) -> None:
        """Remove a member; its pending messages are to be redelivered. The last member's settings stay with the cursor."""
        self._unindex_member(cursor, member)
        for run in member.pending:
            cursor.to_redeliver.merge(run)
        if not cursor.members:
            cursor.last_member = LastMember(member.subscription_id, member.settings)
            cursor.past = cursor.past._replace(unacked_since=0)
        self.dirty.cursors.add(cursor.cursor_id)

    # --- removals and restores ------------------------------------------------------------------------------------------

    def _remove(self, removal: pb.Removal, index: RaftIndex) -> str:
        """Remove messages: they are gone, and no longer pending for any member. Returns why nothing was removed, or ""."""
        uid = ChannelUid(removal.uid)
        if uid in self.dropped:
            return UNKNOWN_CHANNEL
        channel, deleted, bookmarks = self.channel(uid), self.tombstones, self.part(Bookmarks)
        error = bookmarks.refuses(removal) or deleted.apply("removal", removal, index)
        if error:
            return error
        bookmarks.note_removal(removal)
        self.trim(uid, removal.first_sequence)
        deleted.trim(uid, channel.first_sequence)
        oldest = max(channel.first_sequence, 1)
        left = behind(deleted.by_channel.get(uid), oldest)
        if left > oldest:
            self.trim(uid, left)
        for cursor in channel.cursors.values():
            for first, last in removed_runs(removal):
                self._take(cursor, first, last)
            cursor.last_sent = max(cursor.last_sent, removal.first_sequence - 1)
            if cursor.override is not None:
                cursor.override.passed(cursor.last_sent)
            self.dirty.cursors.add(cursor.cursor_id)
        return ""

    def _list_expiring(self, change: pb.Expiring, index: RaftIndex) -> str:
        """Messages of the same entry expire: list them, and forget those that the channel's limits have removed since."""
        uid, listed = ChannelUid(change.uid), self.part(Expiries)
        if uid in self.dropped:
            return UNKNOWN_CHANNEL
        listed.apply("expiring", change, index)
        listed.trim(uid, self.channel(uid).first_sequence)
        return ""

    def _expire(self, change: pb.Expired) -> dict[ChannelUid, list[tuple[int, int]]]:
        """Messages have expired: they are gone, and no longer pending for any member. Returns which, by channel."""
        expired: dict[ChannelUid, list[tuple[int, int]]] = {}
        for number, upto in pairs(change.channels):
            uid = ChannelUid(number)
            if uid in self.moves.held:
                continue
            found = self.part(Expiries).expire(uid, change.until, upto)
            oldest = max(self.channel(uid).first_sequence, 1) if found else 1
            runs = [(max(first, oldest), last) for first, last in found if last >= oldest]
            if not runs:
                continue
            expired[uid] = runs
            left = behind(self.tombstones.merge(uid, runs), oldest)
            if left > oldest:
                self.trim(uid, left)
            for cursor in self.channel(uid).cursors.values():
                if cursor.to_redeliver.remove_each(runs):
                    self.dirty.cursors.add(cursor.cursor_id)
                for member in cursor.members:
                    if member.pending.remove_each(runs):
                        self.dirty.subscriptions.add(member.subscription_id)
        return expired

    def _compact(self, change: pb.Compacted, index: RaftIndex) -> str:
        """Channels are compacted further; those that are gone meanwhile, or held for a move, are left out."""
        gone, held = self.dropped, self.moves.held
        kept = [one for one in change.channels if one.uid not in gone and one.uid not in held]
        self.part(Compactions).apply("compacted", pb.Compacted(channels=kept), index)
        return ""

    def epoch_of(self, uid: ChannelUid) -> Epoch:
        """The newest epoch of an ephemeral channel; number 0 of another one."""
        return self.part(EphemeralEpochs).of(uid)

    def _begin_epoch(self, change: pb.EphemeralEpoch, index: RaftIndex) -> str:
        """Begin an epoch of an ephemeral channel: it is empty, and its cursors stand before it, own and owe nothing. Or give the
        newest one more sequences, which changes nothing else. Returns why that is refused, or ""."""
        uid, epochs = ChannelUid(change.uid), self.part(EphemeralEpochs)
        if uid in self.dropped:
            return UNKNOWN_CHANNEL
        before = epochs.of(uid).number
        refused = epochs.apply("ephemeral_epoch", change, index)
        epoch = epochs.of(uid)
        if epoch.number == before:
            return refused
        self.trim(uid, epoch.first)
        for cursor in self.channel(uid).cursors.values():
            for member in cursor.members:
                member.pending.clear()
                self.dirty.subscriptions.add(member.subscription_id)
            cursor.to_redeliver.clear()
            cursor.last_sent, cursor.maybe_sent_until = epoch.first - 1, 0
            if cursor.override is not None:
                cursor.override.forget(index)
            self.dirty.cursors.add(cursor.cursor_id)
        return ""

    def _restore(self, change: pb.Restore, index: RaftIndex) -> str:
        """Begin or end a restore; after its end the channel is like any other. Returns why that is refused, or ""."""
        uid = ChannelUid(change.uid)
        if uid in self.dropped:
            return UNKNOWN_CHANNEL
        return self._end_restore(change, index) if change.ended else self._begin_restore(change, index)

    def _begin_restore(self, change: pb.Restore, index: RaftIndex) -> str:
        """Begin a restore: the channel starts with the first sequence of the backup, and may get its limits."""
        uid, restores = ChannelUid(change.uid), self.restores
        known = restores.by_channel.get(uid)
        if known is not None and known.name == change.name:
            return ""
        if known is not None and not known.ended:
            return CHANNEL_RESTORING
        channel = self.channel(uid)
        if channel.cursors or uid in self.transactions.parts or channel.first_sequence > max(change.first_sequence, 1):
            return CHANNEL_IN_USE
        restores.apply("restore", change, index)
        self.trim(uid, change.first_sequence)
        if change.HasField("limits"):
            change.limits.uid, change.limits.reset = uid, True
            self.limit_overrides.apply("edit_limits", change.limits, index)
        return ""

    def _end_restore(self, change: pb.Restore, index: RaftIndex) -> str:
        known = self.restores.by_channel.get(ChannelUid(change.uid))
        if known is None or known.name != change.name:
            return UNKNOWN_RESTORE
        change.first_sequence = known.first_sequence
        self.restores.apply("restore", change, index)
        return ""

    def _put_cursor(self, change: pb.RestoredCursor, _index: RaftIndex) -> str:
        """Restore a durable, or, without a restore, create one. While its channel is restored, an existing cursor takes the given
        position. Returns why that is refused, or ""."""
        row = change.cursor
        uid = ChannelUid(row.uid)
        if self.restores.under_way(uid) != change.restore:
            return UNKNOWN_RESTORE
        key = CursorKind(row.kind), row.name, row.client_id
        if not change.restore and (uid in self.dropped or key in self.channel(uid).by_key):
            return UNKNOWN_CHANNEL if uid in self.dropped else CURSOR_EXISTS
        cursor = self._found_cursor(uid, row.kind, row.name, row.client_id)
        cursor.client_id, last = row.client_id, cursor.last_member
        settings = last.settings._replace(inbox=row.inbox, max_in_flight=row.max_in_flight, ack_wait_s=row.ack_wait_s)
        cursor.last_member = last._replace(settings=settings)
        cursor.last_sent, cursor.to_redeliver = row.last_sent, from_flat(row.to_redeliver, row.counts)
        for gone in self.tombstones.within(uid, 1, row.last_sent):
            cursor.to_redeliver.remove(gone.first, gone.last)
        cursor.override = of_row(row.override) if row.HasField("override") else None
        self.dirty.cursors.add(cursor.cursor_id)
        return ""

    # --- moves between groups -------------------------------------------------------------------------------------------

    def _arriving(self, change: pb.Moving, _index: RaftIndex) -> str:
        """Target: messages of these channels come from now on."""
        moves = self.moves
        if any(uid in self.dropped for uid in change.uids):
            return UNKNOWN_CHANNEL
        new = [uid for uid in change.uids if moves.is_newer(ChannelUid(uid), change.move)]
        moves.moved(change.move, new, Stage.COPYING)
        return ""

    def _arrived(self, change: pb.Arrived, index: RaftIndex) -> str:
        """Target: all messages of the channels are here; take in everything else that the source has of them. Cursors and
        subscriptions get numbers of this group, in the order in which the rows come."""
        moves = self.moves
        if not all(moves.at(ChannelUid(uid), change.move, Stage.COPYING) for uid in change.uids):
            return UNKNOWN_MOVE
        parts = {part.KIND: part for part in self.components}
        cursors: dict[int, Cursor] = {}  # by their numbers in the source
        members: list[pb.Subscription] = []
        for row in change.rows:
            match row.WhichOneof("row"):
                case "first":
                    self.trim(ChannelUid(row.first.uid), row.first.first_sequence)
                case "cursor":
                    cursors[row.cursor.cursor_id] = self._take_cursor(row.cursor, index)
                case "subscription":
                    members.append(row.subscription)
                case "part" if row.part.kind in parts:
                    part = parts[row.part.kind]
                    part.load(row.part.key, row.part.state)
                    part.dirty.add(row.part.key)
        for uid in map(ChannelUid, change.uids):
            compactions = self.compactions
            if uid in compactions.by_channel:  # decided by this entry, for this group's log
                compactions.put(uid, compactions.of(uid)._replace(index=index))
        order: dict[int, int] = {}  # members of a cursor so far
        for told in sorted(members, key=lambda row: row.joined or row.ack_key):
            cursor = cursors[told.cursor_id]
            place = order[cursor.cursor_id] = order.get(cursor.cursor_id, 0) + 1
            # They have joined before whoever joins here, in the order in which they have joined there.
            self._take_member(cursor, told, place)
        moves.moved(change.move, change.uids, Stage.ARRIVED)
        return ""

    def _take_cursor(self, row: pb.Cursor, index: RaftIndex) -> Cursor:
        last = self._new_id() if row.subscription_id else 0
        cursor = cursor_of(row, self._new_id(), last)
        if cursor.override is not None and cursor.override.epoch:
            cursor.override.epoch = index  # epochs are indexes of this group's log
        self._index_cursor(cursor)
        self.dirty.cursors.add(cursor.cursor_id)
        return cursor

    def _take_member(self, cursor: Cursor, row: pb.Subscription, joined: int) -> None:
        member = subscription_of(row, self._new_id(), cursor.cursor_id)
        member.joined = joined
        if member.ack_group == self.group:
            member.ack_group = 0
        self._index_member(cursor, member)
        self.dirty.subscriptions.add(member.subscription_id)

    def _arrival_dropped(self, change: pb.Moving, _index: RaftIndex) -> str:
        """Target: the move was cancelled. The messages stay, as a later move begins with the same ones."""
        for number in change.uids:
            uid = ChannelUid(number)
            if self.moves.at(uid, change.move, Stage.ARRIVED):
                self._drop_cursors(self.channel(uid))
                self.channel(uid).cursors.clear()
                self.channel(uid).by_key.clear()
                for part in self.components:
                    if part is not self.dropped and part is not self.moves:
                        part.drop_channel(uid)
                self.moves.put(uid, MoveStage(change.move, Stage.COPYING))
        return ""

    def _depart(self, change: pb.Moving, _index: RaftIndex) -> str:
        """Source: from now on nothing of the channels changes. Refused while something is half done in one of them."""
        uids = [ChannelUid(uid) for uid in change.uids]
        for uid in uids:
            if not self.moves.is_newer(uid, change.move):
                return "" if self.moves.at(uid, change.move, Stage.HELD) else UNKNOWN_MOVE
            if reason := self.half_done(uid):
                return reason
        self.moves.moved(change.move, uids, Stage.HELD)
        return ""

    def half_done(self, uid: ChannelUid) -> str:
        """Why a channel cannot be moved to another group now; "" if it can."""
        if uid in self.dropped:
            return UNKNOWN_CHANNEL
        if uid in self.transactions.parts:
            return MOVE_WAITS_STAGED
        if self.restores.under_way(uid):
            return CHANNEL_RESTORING
        if self.delayed(uid):
            return MOVE_WAITS_DELAYED
        if any(member.served.wish for cursor in self.channel(uid).cursors.values() for member in cursor.members):
            return MOVE_WAITS_SERVED
        return ""

    def _departed(self, change: pb.Moving, _index: RaftIndex) -> str:
        """Source: the channels are another group's."""
        for number in change.uids:
            uid = ChannelUid(number)
            if self.moves.at(uid, change.move, Stage.HELD):
                self._drop(uid)
                self.moves.put(uid, MoveStage(change.move, Stage.GONE))
        return ""

    def _returned(self, change: pb.Moving, _index: RaftIndex) -> str:
        """Source: the move was cancelled, the channels stay."""
        for number in change.uids:
            if self.moves.at(ChannelUid(number), change.move, Stage.HELD):
                self.moves.put(ChannelUid(number), None)
        return ""


_WIDER: Final[dict[str, Callable[[GroupMachine, Any, RaftIndex], str]]] = {
    "removal": GroupMachine._remove,  # noqa: SLF001 - its own
    "expiring": GroupMachine._list_expiring,  # noqa: SLF001
    "compacted": GroupMachine._compact,  # noqa: SLF001
    "ephemeral_epoch": GroupMachine._begin_epoch,  # noqa: SLF001
    "restore": GroupMachine._restore,  # noqa: SLF001
    "restored_cursor": GroupMachine._put_cursor,  # noqa: SLF001
    "arriving": GroupMachine._arriving,  # noqa: SLF001
    "arrived": GroupMachine._arrived,  # noqa: SLF001
    "arrival_dropped": GroupMachine._arrival_dropped,  # noqa: SLF001
    "depart": GroupMachine._depart,  # noqa: SLF001
    "departed": GroupMachine._departed,  # noqa: SLF001
    "returned": GroupMachine._returned,  # noqa: SLF001
}
"""Changes that concern more than one component; each returns why the change was refused, or ""."""
_OF_MOVES: Final = frozenset({"arriving", "arrived", "arrival_dropped", "depart", "departed", "returned"})


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


def _some(keys: set[int], most: int) -> set[int]:
    """Take *most* of *keys* out, or all."""
    return {keys.pop() for _ in range(min(most, len(keys)))}


def removed_runs(removal: pb.Removal) -> list[tuple[int, int]]:
    """The runs of sequences that *removal* removes, as (first, last)."""
    below = [(1, removal.first_sequence - 1)] if removal.first_sequence > 1 else []
    return below + list(pairs(removal.deleted))


def kind_and_name(queue_group: bytes, durable_name: bytes) -> tuple[CursorKind, bytes]:
    """The kind and name of the cursor that a request means: durable groups are called `durable:group` (STAN-SPEC 5.5)."""
    if queue_group and durable_name:
        return CursorKind.DURABLE_QUEUE, durable_name + b":" + queue_group
    if queue_group:
        return CursorKind.QUEUE, queue_group
    if durable_name:
        return CursorKind.DURABLE, durable_name
    return CursorKind.PLAIN, b""

"""The replicated state of a channel group: its cursors, their members, first sequences, and the components with the rest.

Here is what the state is, how it is stored, and the steps that keep its indexes in agreement. What an entry changes is in modules
of functions, which `stan.core.state.group` lists.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from stan_protocol.scalars import ChannelUid, GroupId, Sequence

from stan.core.base.runs import pairs
from stan.core.state.components import NAMES, Components, StateComponent
from stan.core.state.consumers import CONSUMERS, Consumers
from stan.core.state.cursors import (
    Cursor,
    CursorKind,
    Subscription,
    Subscriptions,
    cursor_of,
    cursor_row,
    subscription_of,
    subscription_row,
)
from stan.core.state.dropped import DroppedChannels
from stan.core.state.retention_marks import RetentionMarks
from stan.core.state.schedules import Schedules
from stan.protocol.entries import DEFERRED_UID, STAGING_UID
from stan.protocol.proto import entries_pb2 as pb


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
    """The change of a cursor by an operator."""

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


class GroupRows(NamedTuple):
    """Changed rows of a group. None instead of a row: the row is gone."""

    cursors: list[tuple[int, Cursor | None]]
    subscriptions: list[tuple[int, Subscription | None]]
    first_sequences: list[tuple[int, int]]  # uid and first sequence; 0: unknown, or the channel is gone
    parts: list[tuple[str, bytes, bytes | None]]  # kind of the component, key, row
    next_id: int


@dataclass(slots=True)
class GroupState(Components):
    """The state of one channel group, in tables that belong together."""

    group: GroupId
    channels: dict[ChannelUid, GroupChannel] = field(default_factory=dict)
    cursors: dict[int, Cursor] = field(default_factory=dict)
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    next_id: int = 1
    dropped: DroppedChannels = field(default_factory=DroppedChannels)
    retention: RetentionMarks = field(default_factory=RetentionMarks)
    consumers: Consumers = field(default_factory=Consumers)
    schedules: Schedules = field(default_factory=Schedules)
    dirty: DirtyRows = field(default_factory=DirtyRows)

    @property
    def components(self) -> list[StateComponent]:
        """All components, in the order in which snapshots have them."""
        return [getattr(self, name) for name in NAMES]

    # --- what readers ask -------------------------------------------------------------------------------------------

    def channel(self, uid: ChannelUid) -> GroupChannel:
        """The state of a channel; an empty one is made at the first call."""
        found = self.channels.get(uid)
        if found is None:
            found = self.channels[uid] = GroupChannel()
        return found

    def first_sequence(self, uid: ChannelUid) -> Sequence:
        """The first sequence of a channel that is not removed; 0 if nothing ever was."""
        channel = self.channels.get(uid)
        return Sequence(0 if channel is None else channel.first_sequence)

    def served_by(self, node: bytes) -> list[Cursor]:
        """The cursors that *node* serves, which may not be the leader."""
        return [self.cursors[sub.cursor_id] for sub in self.subscriptions.by_id.values() if sub.served.node == node]

    def slowest(self, uid: ChannelUid) -> tuple[int, bytes] | None:
        """The position of a channel that is furthest behind in the log, of durables, queue groups, subscriptions and named
        positions: the last sequence that it has passed, and its name (b"": a subscription without one). None: there is none."""
        floors = [(cursor.floor, cursor.name) for cursor in self.channel(uid).cursors.values()]
        floors += self.bookmarks.floors(uid)
        return min(floors, default=None)

    # --- steps of changes -------------------------------------------------------------------------------------------

    def new_id(self) -> int:
        """The number of the next cursor or subscription."""
        self.next_id += 1
        return self.next_id - 1

    def add_cursor(self, cursor: Cursor) -> None:
        """Add a cursor, which has no members yet."""
        channel = self.channel(cursor.uid)
        self.cursors[cursor.cursor_id] = channel.cursors[cursor.cursor_id] = cursor
        if cursor.kind is not CursorKind.PLAIN:
            channel.by_key[cursor.key] = cursor
        self.dirty.cursors.add(cursor.cursor_id)

    def remove_cursor(self, cursor: Cursor) -> None:
        """Remove a cursor with its members."""
        for member in list(cursor.members):
            self.remove_member(cursor, member)
        channel = self.channel(cursor.uid)
        del self.cursors[cursor.cursor_id], channel.cursors[cursor.cursor_id]
        if channel.by_key.get(cursor.key) is cursor:
            del channel.by_key[cursor.key]
        if cursor.client_id == CONSUMERS:
            self.consumers.remove(cursor.uid, cursor.name)
        self.dirty.cursors.add(cursor.cursor_id)

    def add_member(self, cursor: Cursor, member: Subscription) -> None:
        """Add a subscription to its cursor."""
        cursor.members.append(member)
        self.subscriptions.add(member)
        self.dirty.subscriptions.add(member.subscription_id)

    def remove_member(self, cursor: Cursor, member: Subscription) -> None:
        """Remove a subscription from its cursor; nobody has its pending messages then."""
        cursor.members.remove(member)
        self.subscriptions.remove(member)
        self.dirty.subscriptions.add(member.subscription_id)

    def take(self, cursor: Cursor, first: int, last: int) -> None:
        """Remove [first, last] from `to_redeliver` and from every member's pending set (G1); the caller marks the cursor."""
        cursor.to_redeliver.remove(first, last)
        for member in cursor.members:
            if member.pending.remove(first, last):
                self.dirty.subscriptions.add(member.subscription_id)

    def take_each(self, cursor: Cursor, runs: list[tuple[int, int]]) -> None:
        """Remove *runs*, disjoint and in increasing order, as `take` does, in one pass; changed rows are marked."""
        if cursor.to_redeliver.remove_each(runs):
            self.dirty.cursors.add(cursor.cursor_id)
        for member in cursor.members:
            if member.pending.remove_each(runs):
                self.dirty.subscriptions.add(member.subscription_id)

    def lost_until(self, uid: ChannelUid) -> int:
        """Up to where messages of a channel were lost, by its limits or damage of the log; 0: none was."""
        return self.retention.until(uid, self.first_sequence(uid))

    def begins(self, uid: ChannelUid, first_sequence: int) -> None:
        """A batch says where its channel begins: its limits have moved that, or the leader's log is compacted up to there."""
        lost = first_sequence > self.first_sequence(uid) and uid not in self.compactions.by_channel
        self.trim(uid, first_sequence, lost=lost)

    def trim(self, uid: ChannelUid, first_sequence: int, *, lost: bool = False) -> None:
        """Messages below *first_sequence* are gone. Those still pending are settled when their redelivery is due. *lost*: limits
        have removed them; else they were compacted, have expired or were deleted."""
        if uid in self.moves.held or uid in self.dropped:
            return
        channel = self.channel(uid)
        before, channel.first_sequence = channel.first_sequence, max(channel.first_sequence, first_sequence)
        self.retention.moved(uid, before, channel.first_sequence, first_sequence if lost else 0)
        if first_sequence > before:
            self.dirty.channels.add(uid)
            if uid in self.tombstones.by_channel:
                self.tombstones.trim(uid, first_sequence)
            if uid in self.schedules.by_channel:
                self.schedules.remove(uid, ((1, first_sequence - 1),))

    def trim_hidden(self) -> None:
        """Trim the channels of staged parts and of deferred messages, which have no limits, up to the oldest message in use."""
        for uid, floor in ((STAGING_UID, self.transactions.floor), (DEFERRED_UID, self.deferred.floor)):
            if floor > 1:
                self.trim(uid, floor, lost=True)

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
        cursors, subscriptions = self.dirty.cursors, self.dirty.subscriptions
        if len(cursors) + len(subscriptions) <= most:
            return None
        taken = [{keys.pop() for _ in range(min(most // 2, len(keys)))} for keys in (cursors, subscriptions)]
        return self._rows(DirtyRows(*taken), [])

    def _rows(self, dirty: DirtyRows, parts: list[tuple[str, bytes, bytes | None]]) -> GroupRows:
        return GroupRows(
            [(cursor_id, self.cursors.get(cursor_id)) for cursor_id in dirty.cursors],
            [(number, self.subscriptions.by_id.get(number)) for number in dirty.subscriptions],
            [(uid, self.first_sequence(ChannelUid(uid))) for uid in dirty.channels],
            parts,
            self.next_id,
        )

    def snapshot(self, snapshot: pb.Snapshot) -> None:
        """Write the whole state into *snapshot*, in an order that depends on the state alone."""
        subscriptions = self.subscriptions.by_id
        snapshot.cursors.extend(cursor_row(self.cursors[key]) for key in sorted(self.cursors))
        snapshot.subscriptions.extend(subscription_row(subscriptions[key]) for key in sorted(subscriptions))
        for uid in sorted(self.channels):
            if first := self.channels[uid].first_sequence:
                snapshot.first_sequences.extend((uid, first))
        snapshot.next_id = self.next_id
        for part in self.components:
            for key in sorted(part.keys()):
                snapshot.parts.add(kind=part.KIND, key=key, state=part.row(key) or b"")

    def restore(self, snapshot: pb.Snapshot) -> None:
        """Load the state of *snapshot*; call on a new machine."""
        self.load(snapshot.cursors, snapshot.subscriptions)
        for uid, first in pairs(snapshot.first_sequences):
            self.channel(ChannelUid(uid)).first_sequence = first
        self.next_id = max(self.next_id, snapshot.next_id)
        parts = {part.KIND: part for part in self.components}
        for row in snapshot.parts:
            parts[row.kind].load(row.key, row.state)

    def load(self, cursors: Iterable[pb.Cursor], members: Iterable[pb.Subscription]) -> None:
        """Fill a new machine with rows; members join their cursor in the order in which they have joined it."""
        for row in cursors:
            self.add_cursor(cursor_of(row, row.cursor_id, row.subscription_id))
            self.next_id = max(self.next_id, row.cursor_id + 1, row.subscription_id + 1)
        for member in sorted(members, key=lambda row: row.joined or row.ack_key):
            made = subscription_of(member, member.subscription_id, member.cursor_id)
            self.add_member(self.cursors[member.cursor_id], made)
            self.next_id = max(self.next_id, member.subscription_id + 1)
        self.dirty = DirtyRows()  # what was loaded is written already

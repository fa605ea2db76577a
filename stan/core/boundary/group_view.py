"""The read-only view of one channel group, for pages, metrics, traces and requests of operators: values, computed at each call.

Where this node serves a cursor, positions are those of its live view, else those that the log has.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from stan_protocol.scalars import ChannelUid

from stan.core.leader.local_group import ChannelGroup
from stan.core.state.cursors import Cursor, CursorKind, SubscriptionSettings


class CursorIdentity(NamedTuple):
    """A cursor without its position."""

    cursor_id: int
    uid: ChannelUid
    kind: CursorKind
    name: bytes
    client_id: bytes  # owner of a durable, last owner of a durable group
    key: tuple[int, bytes, bytes]  # by which a request to subscribe finds it
    epoch: int  # RaftIndex of the entry by which an operator moved it; 0: none did


class CursorMember(NamedTuple):
    """An online subscription of a cursor, or an offline cursor: its settings and its position."""

    kind: CursorKind
    name: bytes
    client_id: bytes  # of the subscription; of an offline cursor, of its owner
    subscription_id: int  # 0: the cursor has no online subscription
    settings: SubscriptionSettings  # of an offline cursor, those of its last subscription
    last_sent: int
    pending: int  # messages sent and not acked


class CursorTotals(NamedTuple):
    """The position of a durable or a queue group, in numbers."""

    kind: CursorKind
    name: bytes
    client_id: bytes
    last_sent: int
    pending: int  # messages sent and not acked, those held back aside
    held_back: int  # messages that order by key keeps from its members
    oldest: int  # sequence of the oldest message that was sent and not acked; 0: none is
    members: int
    window: int  # max in flight of all members
    window_now: int  # messages that they may have in flight now
    exhausted: int  # messages given up that are still pending
    rejected: int  # messages that clients have rejected, since this node leads
    dead_letters: int  # messages moved into a dead letter channel, since this node leads
    paused_by_broker: bool


class GroupView:
    """The read-only view of one channel group on this node."""

    __slots__ = ("_group",)

    def __init__(self, group: ChannelGroup) -> None:
        self._group = group

    @property
    def leads(self) -> bool:
        """True if this node leads the group."""
        return self._group.leads

    @property
    def cursors(self) -> int:
        """Positions in the group's channels."""
        return len(self._group.machine.cursors)

    @property
    def subscriptions(self) -> int:
        """Online subscriptions and offline durables."""
        return sum(len(cursor.members) or 1 for cursor in self._group.machine.cursors.values())

    @property
    def delayed(self) -> int:
        """Messages that wait for the time which their publishers have set."""
        return self._group.machine.deferred.waiting

    def cursor(self, cursor_id: int) -> CursorIdentity | None:
        """A cursor by its number; None: there is none."""
        cursor = self._group.machine.cursors.get(cursor_id)
        return None if cursor is None else _identity(cursor)

    # --- channels -----------------------------------------------------------------------------------------------------

    def is_dropped(self, uid: ChannelUid) -> bool:
        """True if a channel was deleted, or has gone to another group."""
        return uid in self._group.machine.dropped

    def first_sequences(self) -> Mapping[ChannelUid, int]:
        """The first sequence of each channel of which messages were removed; those below are gone."""
        channels = self._group.machine.channels
        return {ChannelUid(uid): one.first_sequence for uid, one in channels.items() if one.first_sequence}

    def passed(self) -> Mapping[ChannelUid, int]:
        """The newest sequence of each channel that a cursor may have sent, or that a consumer group has read."""
        found: dict[ChannelUid, int] = {}
        machine = self._group.machine
        for cursor in machine.cursors.values():
            found[cursor.uid] = max(found.get(cursor.uid, 0), cursor.last_sent, cursor.maybe_sent_until)
        for uid, places in machine.bookmarks.by_channel.items():
            groups = [place.sequence - 1 for place in places.values() if place.generation]
            found[uid] = max([found.get(uid, 0), *groups])
        return found

    def cursors_of(self, uid: ChannelUid) -> list[CursorIdentity]:
        """The cursors of a channel."""
        return [_identity(cursor) for cursor in self._cursors(uid)]

    def subscriptions_of(self, uid: ChannelUid) -> int:
        """Online subscriptions and offline durables of a channel."""
        channel = self._group.machine.channels.get(uid)
        return 0 if channel is None else channel.subscription_count

    # --- positions ----------------------------------------------------------------------------------------------------

    def members_of(self, uid: ChannelUid) -> list[CursorMember]:
        """The subscriptions of a channel: those of online cursors, then offline ones, then queue groups (STAN-SPEC 13.5)."""
        return [member for cursor in self._in_order(uid) for member in self._members(cursor)]

    def members_of_client(self, incarnation: int) -> Iterator[tuple[ChannelUid, list[CursorMember]]]:
        """Yield (channel, its subscriptions) for each cursor to which a connection is subscribed. The state may change between
        two of them."""
        machine = self._group.machine
        ids = frozenset(machine.subscriptions.by_incarnation.get(incarnation, ()))
        for cursor_id in sorted({machine.subscriptions.by_id[number].cursor_id for number in ids}):
            cursor = machine.cursors.get(cursor_id)
            if cursor is not None:
                yield cursor.uid, [one for one in self._members(cursor) if one.subscription_id in ids]

    def totals_of(self, uid: ChannelUid) -> Iterator[CursorTotals]:
        """Yield the positions of a channel's durables and queue groups."""
        for cursor in self._in_order(uid):
            if cursor.name:
                yield self._totals(cursor)

    def state_of(self, cursor_id: int, sequence: int, *, gone: bool = False) -> str:
        """Return the state of a message of a cursor now, as answers name it. *gone*: the channel does not have it any more."""
        cursor, live = self._group.machine.cursors[cursor_id], self._group.live(cursor_id)
        owed = cursor.to_redeliver if live is None else live.pending.due
        if live is not None and sequence in live.pending.given_up:
            return "rejected" if live.pending.is_rejected(sequence) else "exhausted"
        if sequence in owed:
            return "owed"
        if live is not None and sequence in live.pending:
            return "pending"
        skipped = cursor.override is not None and sequence in cursor.override.skipped
        if skipped or sequence <= (cursor.last_sent if live is None else live.last_sent):
            return "settled"
        return "gone" if gone else "not sent"

    def _cursors(self, uid: ChannelUid) -> list[Cursor]:
        channel = self._group.machine.channels.get(uid)
        return [] if channel is None else list(channel.cursors.values())

    def _in_order(self, uid: ChannelUid) -> list[Cursor]:
        return sorted(self._cursors(uid), key=lambda cursor: (cursor.kind.shared, not cursor.members))

    def _members(self, cursor: Cursor) -> list[CursorMember]:
        """The online members of a cursor; of an offline cursor the cursor itself."""
        kind, name = cursor.kind, cursor.name
        if not cursor.members:
            settings, pending = cursor.last_member.settings, len(cursor.to_redeliver)
            return [CursorMember(kind, name, cursor.client_id, 0, settings, cursor.last_sent, pending)]
        live = self._group.live(cursor.cursor_id)
        windows = {} if live is None else {one.sub.subscription_id: one.window for one in live.members}
        reached = cursor.last_sent if live is None else live.last_sent
        # The replicated `last_sent` of a member is written only now and then: the furthest has the cursor's own position.
        furthest = max(cursor.members, key=lambda sub: sub.last_sent)
        to_redeliver = 0 if kind.shared else len(cursor.to_redeliver if live is None else live.pending.owed)
        members = []
        for sub in cursor.members:
            window = windows.get(sub.subscription_id, sub.pending)
            last = reached if sub is furthest else max(sub.last_sent, window.last)
            pending = len(window) + to_redeliver
            members.append(CursorMember(kind, name, sub.client_id, sub.subscription_id, sub.settings, last, pending))
        return members

    def _totals(self, cursor: Cursor) -> CursorTotals:
        live = self._group.live(cursor.cursor_id)
        pending = None if live is None else live.pending
        if live is None:
            last_sent, unacked = cursor.last_sent, [cursor.to_redeliver, *(sub.pending for sub in cursor.members)]
        else:
            last_sent, unacked = live.last_sent, live.pending.everywhere
        unacked = [runs for runs in unacked if runs]
        held_back = 0 if pending is None else pending.held_back
        window = sum(sub.settings.max_in_flight for sub in cursor.members)
        moves = None if pending is None else pending.moves
        return CursorTotals(
            kind=cursor.kind,
            name=cursor.name,
            client_id=cursor.client_id,
            last_sent=last_sent,
            pending=sum(map(len, unacked)) - held_back,
            held_back=held_back,
            oldest=min((runs.first for runs in unacked), default=0),
            members=len(cursor.members),
            window=window,
            window_now=window if live is None else sum(member.window_now for member in live.members),
            exhausted=0 if pending is None else len(pending.given_up),
            rejected=0 if pending is None else pending.rejections,
            dead_letters=0 if moves is None else moves.total,
            paused_by_broker=cursor.override is not None and bool(cursor.override.pause_reason),
        )


def _identity(cursor: Cursor) -> CursorIdentity:
    epoch = 0 if cursor.override is None else cursor.override.epoch
    return CursorIdentity(cursor.cursor_id, cursor.uid, cursor.kind, cursor.name, cursor.client_id, cursor.key, epoch)

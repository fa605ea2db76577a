"""Removes messages whose time to live is over, in the groups that this node leads.

    stored with its expiry in one entry ─► due: its channel is held ─► one entry removes it and settles it everywhere ─► goes on

Promises: nothing is delivered or fetched from the leader once its wall clock shows that it has expired, nor does anything go
before; what was seen to be gone does not come back, as it is gone only with the entry. While that is on its way the channel is
held: nothing of it is delivered, and fetches are told to ask again. A leader that begins with something overdue holds its channel
from the start, also one that its copy of the metadata does not know yet: what is due there goes once it is known. From a channel
that is being restored nothing goes: it is held until the end of the restore once something is due.
"""

import heapq
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from stan_protocol.scalars import MILLISECOND, SECOND, ChannelUid, Nanos

from stan import limits
from stan.core.base.runs import pairs
from stan.core.base.timers import NEVER
from stan.core.leader.local_group import Leadership
from stan.core.publishing.channels import LiveChannels
from stan.core.services.leader_part import LeaderPart
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.core.state.expiries import ChannelExpiries
from stan.protocol.proto import entries_pb2 as pb

NO_END: Final = (1 << 64) - 1


class ExpiryClock:
    """The next expiry in the groups that this node leads."""

    def __init__(self, services: Services) -> None:
        self.faults, self.leading, self.node = services.faults, services.leading, services.node
        self.timers = services.timers
        self._armed = 0  # Nanos: when a turn will run to look

    def set(self) -> None:
        """Look again when something is due next, and let a turn run then."""
        clock, next_at = self.node.clock, NEVER
        for expiring in self.leading.all_parts(Expiring):
            if expiring.soonest:
                next_at = min(next_at, expiring.soonest[0][0] * SECOND)
        self.timers.wall_next = next_at
        if next_at != NEVER:  # or sooner: the wall clock may be set
            wait = min(max(next_at - clock.wall, MILLISECOND), limits.DELAY_LOOK)
            if not clock.now < self._armed <= clock.now + wait:
                self._armed = clock.now + wait
                self.timers.at(self._armed, self._tick, META_GROUP)

    def _tick(self, now: Nanos) -> None:
        """A turn runs, and looks if it is time; the next one is armed."""
        if now >= self._armed and self.node.clock.wall < self.timers.wall_next != NEVER:
            self.set()

    def pump(self) -> None:
        """Remove expired messages: the wall clock has reached the next expiry."""
        self.leading.each(Expiring, Expiring.look)
        self.set()


class Expiring(LeaderPart):
    """Removes expired messages of one group, while this node leads it."""

    follows = frozenset({"expiring", "expired", "restore"})

    def __init__(self, services: Services, leadership: Leadership, channels: LiveChannels, clock: ExpiryClock) -> None:
        super().__init__(services, leadership)
        self.channels = channels
        self.clock = clock
        self.soonest: list[tuple[int, ChannelUid]] = []  # heap: when (Unix s) to look, at which channel
        self._known: set[tuple[int, ChannelUid]] = set()  # what is in the heap
        self._under_way = 0  # entries
        self._waiting: set[ChannelUid] = set()  # channels that are held, for the next entry

    @property
    def _listed(self) -> Mapping[ChannelUid, ChannelExpiries]:
        return self.group.machine.expiries.by_channel

    def lead(self) -> None:
        """This node leads the group from now on: channels with something overdue are held at once."""
        stops, second = self.group.dispatch.stops, self.node.clock.wall // SECOND
        for uid, listed in self._listed.items():
            self._expect(listed.next, uid)
            if listed.next <= second:
                stops.expiring = stops.expiring | {uid}

    def _expect(self, at: int, uid: ChannelUid) -> None:
        """Look at a channel then (Unix s)."""
        if (at, uid) not in self._known:
            self._known.add((at, uid))
            heapq.heappush(self.soonest, (at, uid))

    def followed(self, change: pb.GroupChange) -> None:
        """Messages were stored that expire, or are removed, or a restore has begun or ended: something may be due already."""
        match change.WhichOneof("change"):
            case "expiring":
                self._expect(min(change.expiring.at), ChannelUid(change.expiring.uid))
            case "expired":
                self._removed(change.expired)
            case "restore":
                if self._timers.wall_next == NEVER:
                    return
                self._expect(0, ChannelUid(change.restore.uid))
        self.clock.set()

    def took_over(self, uid: ChannelUid) -> None:
        """The group has taken a channel over."""
        listed = self._listed.get(uid)
        if listed is not None:
            self._expect(listed.next, uid)
            self.clock.set()

    # --- what is due ------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Hold the channels in which something is due, and remove it."""
        second, listed, dispatch = (
            self.node.clock.wall // SECOND,
            self._listed,
            self.group.dispatch,
        )
        held: list[int] = []
        free: list[ChannelUid] = []
        while self.soonest and self.soonest[0][0] <= second:
            at, uid = heapq.heappop(self.soonest)
            self._known.discard((at, uid))
            due = listed.get(uid)
            if due is None or due.next > second:
                free.append(uid)
                if due is not None:
                    self._expect(due.next, uid)
                continue
            self._expect(second + 1, uid)  # if the entry is not written, or what is due may not go yet
            upto = self._last_to_go(uid)
            if due.due(second)[0] <= upto:
                held += (uid, upto)
            elif self._goes_later(uid):
                dispatch.stops.expiring = dispatch.stops.expiring | {uid}
        self._release(free)
        self._remove(second, held)

    def _release(self, uids: Iterable[ChannelUid]) -> None:
        """Hold these channels no longer."""
        dispatch = self.group.dispatch
        for uid in sorted(dispatch.stops.expiring.intersection(uids)):
            dispatch.stops.expiring = dispatch.stops.expiring - {uid}
            dispatch.uncovered(uid)

    def _remove(self, second: int, due: list[int]) -> None:
        """Hold channels, and propose to remove what is due in them: one entry after the other, as the log may be slow."""
        stops = self.group.dispatch.stops
        uids = {ChannelUid(uid) for uid, _ in pairs(due)}
        stops.expiring = stops.expiring | uids
        due = [number for run in pairs(due) if not self.channels.expire(ChannelUid(run[0])) for number in run]
        if self._under_way:
            self._waiting |= {ChannelUid(uid) for uid, _ in pairs(due)}
            return
        for at in range(0, len(due), 2 * limits.EXPIRED_CHANNELS_MAX):
            channels = due[at : at + 2 * limits.EXPIRED_CHANNELS_MAX]
            expired = pb.Expired(until=second, channels=channels)
            self._under_way += 1
            self.change(self._done, partial(self._done, None, ""), expired=expired)

    def _last_to_go(self, uid: ChannelUid) -> int:
        """The last sequence of a channel that may be removed now; 0: none may."""
        channel = self.channels.by_uid.get(uid)
        return 0 if channel is None or channel.restoring else NO_END

    def _goes_later(self, uid: ChannelUid) -> bool:
        """Whether what is due in a channel can be seen and may not be removed yet."""
        channel = self.channels.by_uid.get(uid)
        return channel is None or bool(channel.restoring)

    def _done(self, _result: object, _error: str) -> None:
        self._under_way -= 1
        if self._waiting and not self._under_way and not self.leadership.ended:
            for uid in sorted(self._waiting):
                self._expect(0, uid)
            self._waiting.clear()
            self.clock.set()

    # --- what is gone -----------------------------------------------------------------------------------------------------

    def _removed(self, change: pb.Expired) -> None:
        """Deliver the channels again from which expired messages are removed."""
        listed = self._listed
        uids = [ChannelUid(uid) for uid, _ in pairs(change.channels)]
        for uid in uids:
            due = listed.get(uid)
            if due is not None:
                self._expect(due.next, uid)  # what is due by now is looked at before anything is sent
        self._release(uid for uid in uids if uid not in self._waiting)

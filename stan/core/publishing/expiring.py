"""Removes messages whose time to live is over, in the groups that this node leads.

    stored with its expiry in one entry ─► due: its channel is held ─► one entry removes it and settles it everywhere ─► goes on

Promises: nothing is delivered or fetched from the leader once its wall clock shows that it has expired, nor does anything go
before; what was seen to be gone does not come back, as it is gone only with the entry. While that is on its way the channel is
held: nothing of it is delivered, and fetches are told to ask again. A leader that begins with something overdue holds its channel
from the start, also one that its copy of the metadata does not know yet: what is due there goes once it is known. From a channel
that is being restored nothing goes: it is held until the end of the restore once something is due.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from stan_protocol.scalars import MILLISECOND, SECOND, ChannelUid, GroupId, Nanos

from stan import limits
from stan.core.base.runs import flat_of, pairs, size_of
from stan.core.context import META_GROUP, BrokerContext
from stan.core.leader.leadership import Leadership
from stan.core.publishing.channels import LiveChannels
from stan.core.state.expiries import Expiries
from stan.core.state.group import GroupResult
from stan.protocol.proto import entries_pb2 as pb

NEVER: Final = 1 << 63
NO_END: Final = (1 << 64) - 1


@dataclass(slots=True)
class _Dues:
    """What the leader of a group looks at, and when."""

    soonest: list[tuple[int, ChannelUid]] = field(default_factory=list)  # heap: when (Unix s), in which channel
    known: set[tuple[int, ChannelUid]] = field(default_factory=set)  # what is in the heap
    under_way: int = 0  # entries
    waiting: set[ChannelUid] = field(default_factory=set)  # channels that are held, for the next entry

    def expect(self, at: int, uid: ChannelUid) -> None:
        """Look at a channel then."""
        if (at, uid) not in self.known:
            self.known.add((at, uid))
            heapq.heappush(self.soonest, (at, uid))


class Expiring:
    """Removes what has expired."""

    def __init__(self, context: BrokerContext, channels: LiveChannels) -> None:
        self.context = context
        self.channels = channels
        self.next: int = NEVER  # Unix ns: when something is due in a group that this node leads, or may be
        self.armed = 0  # Nanos: when a turn will run to look

    def lead(self, number: GroupId, leadership: Leadership) -> None:
        """This node leads a group from now on: channels with something overdue are held at once."""
        here = _Dues()
        leadership.keep(here)
        for uid, listed in self.context.groups[number].machine.part(Expiries).by_channel.items():
            here.expect(listed.next, uid)
        self._look(number)
        self._set_next()

    def _of(self, number: GroupId) -> _Dues:
        return self.context.kept(number, _Dues)

    def listed(self, number: GroupId, change: pb.Expiring) -> None:
        """Messages were stored that expire; on every node that holds the group."""
        if self.context.leads(number):
            here = self._of(number)
            here.expect(min(change.at), ChannelUid(change.uid))
            self._set_next()

    def look_at(self, number: GroupId, uid: ChannelUid) -> None:
        """More of a channel may be visible than before, and due already."""
        if self.next != NEVER and self.context.leads(number):
            self._of(number).expect(0, uid)
            self._set_next()

    def taken(self, number: GroupId, uid: ChannelUid) -> None:
        """A group that this node leads has taken a channel over."""
        here, listed = self._of(number), self.context.groups[number].machine.part(Expiries).by_channel.get(uid)
        if listed is not None:
            here.expect(listed.next, uid)
            self._set_next()

    # --- what is due ------------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Look what is due: the wall clock has reached `next`."""
        for number, _ in self.context.leading.led:
            self.context.within(number, self._look, number)
        self._set_next()

    def _set_next(self) -> None:
        clock, next_at = self.context.clock, NEVER
        for number, _ in self.context.leading.led:
            soonest = self._of(number).soonest
            if soonest:
                next_at = min(next_at, soonest[0][0] * SECOND)
        self.next = next_at
        if next_at != NEVER:  # or sooner: the wall clock may be set
            wait = min(max(next_at - clock.wall, MILLISECOND), limits.DELAY_LOOK)
            if not clock.now < self.armed <= clock.now + wait:
                self.armed = clock.now + wait
                self.context.timers.at(self.armed, self._tick, META_GROUP)

    def _tick(self, now: Nanos) -> None:
        """A turn runs, and looks if it is time; the next one is armed."""
        if now >= self.armed and self.next != NEVER and self.context.clock.wall < self.next:
            self._set_next()

    def _look(self, number: GroupId) -> None:
        """Hold the channels of a group in which something is due, and remove it."""
        here, second = self._of(number), self.context.clock.wall // SECOND
        listed = self.context.groups[number].machine.part(Expiries)
        dispatch = self.context.groups[number].dispatch
        held: list[int] = []
        free: list[ChannelUid] = []
        while here.soonest and here.soonest[0][0] <= second:
            at, uid = heapq.heappop(here.soonest)
            here.known.discard((at, uid))
            due = listed.by_channel.get(uid)
            if due is None or due.next > second:
                free.append(uid)
                if due is not None:
                    here.expect(due.next, uid)
                continue
            here.expect(second + 1, uid)  # if the entry is not written, or what is due may not go yet
            upto = self._last_to_go(uid)
            if due.due(second)[0] <= upto:
                held += (uid, upto)
            elif self._goes_later(uid):
                dispatch.stops.expiring = dispatch.stops.expiring | {uid}
        self._release(number, free)
        self._remove(number, here, second, held)

    def _release(self, number: GroupId, uids: Iterable[ChannelUid]) -> None:
        """Hold these channels no longer."""
        dispatch = self.context.groups[number].dispatch
        for uid in sorted(dispatch.stops.expiring.intersection(uids)):
            dispatch.stops.expiring = dispatch.stops.expiring - {uid}
            dispatch.uncovered(uid)

    def _remove(self, number: GroupId, here: _Dues, second: int, held: list[int]) -> None:
        """Hold channels, and propose to remove what is due in them: one entry after the other, as the log may be slow."""
        stops = self.context.groups[number].dispatch.stops
        uids = {ChannelUid(uid) for uid, _ in pairs(held)}
        stops.expiring = stops.expiring | uids
        if here.under_way:
            here.waiting |= uids
            return
        for at in range(0, len(held), 2 * limits.EXPIRED_CHANNELS_MAX):
            channels = held[at : at + 2 * limits.EXPIRED_CHANNELS_MAX]
            expired = pb.Expired(until=second, channels=channels)
            here.under_way += 1
            done = partial(self._done, number, here)
            self.context.change_group(number, done, partial(done, None, ""), expired=expired)

    def _last_to_go(self, uid: ChannelUid) -> int:
        """The last sequence of a channel that may be removed now; 0: none may."""
        channel = self.channels.by_uid.get(uid)
        if channel is None or channel.restoring:
            return 0
        return NO_END if channel.reservation is None else channel.reservation.first - 1

    def _goes_later(self, uid: ChannelUid) -> bool:
        """Whether what is due in a channel can be seen and may not be removed yet."""
        channel = self.channels.by_uid.get(uid)
        return channel is None or bool(channel.restoring)

    def _done(self, number: GroupId, here: _Dues, _result: object, _error: str) -> None:
        here.under_way -= 1
        if here.waiting and not here.under_way and self.context.leads(number) and self._of(number) is here:
            for uid in sorted(here.waiting):
                here.expect(0, uid)
            here.waiting.clear()
            self._set_next()

    # --- what is gone -----------------------------------------------------------------------------------------------------

    def applied(self, number: GroupId, change: pb.Expired, result: GroupResult) -> None:
        """What has expired is gone; on every node that holds the group."""
        runs_by_channel, leads = result.of_part, self.context.leads(number)
        assert isinstance(runs_by_channel, dict)  # noqa: S101 - for mypy
        for uid, runs in runs_by_channel.items():
            self.channels.removed(number, pb.Removal(uid=uid, deleted=flat_of(runs)))
            if leads:
                self.context.reports.totals.expired_messages += size_of(runs)
        if leads:
            self._go_on(number, change)

    def _go_on(self, number: GroupId, change: pb.Expired) -> None:
        """These channels are held no longer."""
        here, listed = self._of(number), self.context.groups[number].machine.part(Expiries)
        uids = [ChannelUid(uid) for uid, _ in pairs(change.channels)]
        for uid in uids:
            due = listed.by_channel.get(uid)
            if due is not None:
                here.expect(due.next, uid)  # what is due by now is looked at before anything is sent
        self._release(number, (uid for uid in uids if uid not in here.waiting))
        self._set_next()

"""The parts of a channel are doubled: what the leader of each part does, until the metadata have twice as many.

    the metadata say so ─► parts take no more messages ─► earlier ones are committed ─► `close_part` in each part's own log
        ─► a pause, in which all nodes learn the end of that log ─► the metadata get its newest sequence and fingerprints
    from all parts ─► the new parts are there, and all nodes divide by twice as many ─► messages of the pause are taken

Promises: a message is in one part; none that was taken before is taken again by a new part, and none is stored in a part after
its mark before all nodes may divide by the new number. In a cluster publishes wait during the doubling: the next leader of their
part has buffered them, and takes those without a fingerprint once it learns that the parts are there. A node alone refuses them.
While a transaction or delayed messages wait for a part, the doubling is given up. The next leader continues it.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from stan_protocol.refusals import MOVE_WAITS_DELAYED, MOVE_WAITS_STAGED, go_quote
from stan_protocol.scalars import MILLISECOND, GroupId, KiB, Nanos

from stan import limits
from stan.core.base.names import text
from stan.core.base.ready import Replay
from stan.core.leader.local_group import ChannelGroup
from stan.core.metadata.meta import ChannelInfo
from stan.core.metadata.parted import Parted
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.deferrals import Deferrals
from stan.core.publishing.filters import PublishFilters
from stan.core.publishing.live_channel import LiveChannel
from stan.core.services.services import Services
from stan.protocol.proto import entries_pb2 as pb

ROOM = 4 * KiB
"""Bytes of what a closed part tells besides fingerprints, and of the protocol around it."""
LOOK_INTERVAL = 20 * MILLISECOND
"""How often is looked if what was taken is committed."""


class _Told(NamedTuple):
    """The report of a closed part."""

    fingerprints: bytes
    known_since: Nanos  # they are of all later messages in its log


@dataclass(slots=True)
class _Doubling:
    """A doubling, as this node has seen it."""

    number: int
    since: Nanos  # earlier publishes are not replayed, see `ReplayFilter.answered`
    told: dict[int, _Told] = field(default_factory=dict)  # by part


class PartDoubling:
    """Closes the parts that this node leads, and opens them again."""

    def __init__(self, services: Services, channels: LiveChannels, filters: PublishFilters) -> None:
        self.faults, self.leading = services.faults, services.leading
        self.nats, self.node = services.nats, services.node
        self.outgoing, self.placement, self.proposals = services.outgoing, services.placement, services.proposals
        self.reports, self.timers = services.reports, services.timers
        self.channels = channels
        self.filters = filters
        self._under_way: dict[bytes, _Doubling] = {}  # by channel

    def part_closed(self, change: pb.PartClosed) -> None:
        """A part reports that it is closed, perhaps not for the first time."""
        seen = self._under_way.get(change.name)
        if seen is not None and seen.number == change.doubling and change.part not in seen.told:
            since = self.node.clock.now - change.known_for + limits.MOVE_KNOWN_MARGIN
            seen.told[change.part] = _Told(change.fingerprints, Nanos(since))

    def changed(self, name: bytes, *, divided: bool) -> None:
        """The metadata tell something new of a channel with parts: it is made, or a doubling has begun, or has ended. *divided*:
        there are more parts than before."""
        whole = self.node.meta.channels.parted.by_name.get(name)
        if whole is None:
            return
        row, seen = whole.row, self._under_way.get(name)
        if divided:
            self.filters.forget_waiting(whole.names())  # divided by what this copy of the metadata knew before
        if row.doubling and (seen is None or seen.number != row.doubling):
            since = Nanos(self.node.clock.now - limits.MOVE_KNOWN_MIN)
            self._under_way[name] = _Doubling(row.doubling, since)
        elif divided and row.splits:
            self._divide(whole, row.splits[-1].parts, seen)
        if not row.doubling and seen is not None:
            seen.told.clear()
        self._look_at_all(whole)

    def reset(self) -> None:
        """The metadata were loaded again: there may be more parts than before, of which nothing is known that came meanwhile."""
        self._under_way.clear()
        for whole in self.node.meta.channels.parted.by_name.values():
            if whole.row.splits:
                self.filters.forget_waiting(whole.names())
                self._divide(whole, whole.row.splits[0].parts, None)
            self._look_at_all(whole)

    def _look_at_all(self, parted: Parted) -> None:
        """Do the next step for the parts that this node leads, if there is one."""
        if parted.row.doubling or parted.row.settled:
            led = (channel for part in parted.names() if (channel := self.channels.by_name.get(part)) is not None)
            self.faults.each(self._look, (one for one in led if parted.row.doubling or one.unsealed.halted))

    def lead(self, number: GroupId) -> None:
        """This node leads a group from now on."""
        parted = self.node.meta.channels.parted.by_part
        for name, (whole, _) in parted.items() if parted else ():
            channel = self.channels.by_name.get(name)
            if channel is not None and channel.info.group == number and (whole.row.doubling or self._closed(channel)):
                self._look(channel)

    def _divide(self, parted: Parted, before: int, seen: _Doubling | None) -> None:
        """There are more parts than *before*: new ones learn which messages are in the log of the part from which they come, as
        far as that has reported them, and take the messages that came during the doubling."""
        for number, name in enumerate(parted.names()) if self.node.clustered else ():
            info = self.node.meta.channels.get(name)
            group = self.node.groups.get(info.group) if info is not None else None
            if info is not None and group is not None:
                self.faults.within(info.group, self._divide_part, info, group, number - before, seen)

    def _divide_part(self, info: ChannelInfo, group: ChannelGroup, parent: int, seen: _Doubling | None) -> None:
        """*parent*: the number of the part from which a new part comes; negative: the part was there before."""
        known, name, now = group.replay_filter, info.name, self.node.clock.now
        known.forget_old(now)
        known.divide(name, now)
        known.answered[name] = now if seen is None else seen.since
        if parent < 0:
            return
        known.named[name] = known.taken_over[name] = now
        told = seen.told.get(parent) if seen is not None else None
        if seen is not None and told is not None:
            known.taken_over[name] = told.known_since
            known.adopt(told.fingerprints, name, now, self.leading.heard_since)
            if group.leads:
                self._take_heard(info, seen.since)

    def _take_heard(self, info: ChannelInfo, since: Nanos) -> None:
        """Take publishes to a part that came since *since* and that no log has."""
        replays, names = self.outgoing.replays, frozenset((info.name,))
        for at, one in enumerate(replays):
            if (one.group, one.publishes_since) == (info.group, since):
                replays[at] = one._replace(channels=one.channels | names)
                return
        replays.append(Replay(info.group, names, since))

    def _closed(self, channel: LiveChannel) -> int:
        """The newest doubling for which a part was closed."""
        return self.node.group_of(channel.info).machine.part_closings.of(channel.info.uid)

    def _look(self, channel: LiveChannel, _now: Nanos = Nanos(0)) -> None:  # noqa: B008 - a number
        """Do the next step for a part."""
        found = self.node.meta.channels.parted.by_part.get(channel.info.name)
        if found is None or self.channels.by_uid.get(channel.info.uid) is not channel:
            return
        whole, unsealed, closed = found[0], channel.unsealed, self._closed(channel)
        if not whole.row.doubling:
            if closed > whole.row.settled:  # this copy of the metadata does not know yet
                unsealed.halted = True
            elif unsealed.halted:
                self._open(channel)
        elif closed == whole.row.doubling:
            unsealed.halted = True  # an earlier leader may have closed it
            patience = limits.FINGERPRINT_PATIENCE if self.node.clustered else 0
            self.timers.at(self.node.clock.now + patience, partial(self._report, channel, closed), channel.info.group)
        else:
            self._close(channel, whole)

    def _close(self, channel: LiveChannel, parted: Parted) -> None:
        waits = self._waits_for(channel)
        if waits:
            self._give_up(parted, channel, waits)
            return
        channel.unsealed.halted = True
        if self._waits_for_log(channel):
            return
        change = pb.ClosePart(uid=channel.info.uid, doubling=parted.row.doubling)
        done = partial(self._done, channel)
        self.proposals.change_group(channel.info.group, done, partial(done, None, ""), close_part=change)

    def _waits_for(self, channel: LiveChannel) -> str:
        """Why a part cannot be closed now; "" if it can."""
        machine = self.node.group_of(channel.info).machine
        if machine.transactions.parts.get(channel.info.uid):
            return MOVE_WAITS_STAGED
        return MOVE_WAITS_DELAYED if channel.info.uid in machine.deferred.counts else ""

    def _open(self, channel: LiveChannel) -> None:
        """A part takes messages again, first those that came meanwhile."""
        if self._waits_for_log(channel):  # what is on its way would be taken for new
            return
        found = self.node.meta.channels.parted.by_part.get(channel.info.name)
        seen = self._under_way.get(found[0].name) if found is not None else None
        self.filters.forget_waiting((channel.info.name,))
        channel.unsealed.halted = False
        self._take_heard(channel.info, seen.since if seen is not None else Nanos(0))

    def _waits_for_log(self, channel: LiveChannel) -> bool:
        """True if messages of a part are on their way into the log: then it is looked at again a little later."""
        hidden = self.leading.leadership(channel.info.group).part(Deferrals).hidden
        waits = any(one.unsealed.count or one.uncommitted_bytes for one in (channel, hidden))
        if waits:
            self.timers.at(self.node.clock.now + LOOK_INTERVAL, partial(self._look, channel), channel.info.group)
        return waits

    def _done(self, channel: LiveChannel, result: object, _error: str) -> None:
        again = 0 if result is not None else limits.FORWARD_INTERVAL
        self.timers.at(self.node.clock.now + again, partial(self._look, channel), channel.info.group)

    def _report(self, channel: LiveChannel, doubling: int, _now: Nanos) -> None:
        """Report to the metadata that a part is closed, again and again until they say that the doubling has ended."""
        found = self.node.meta.channels.parted.by_part.get(channel.info.name)
        if found is None or self.channels.by_uid.get(channel.info.uid) is not channel:
            return
        whole, number = found
        if whole.row.doubling != doubling:
            return
        name, known = channel.info.name, self.node.group_of(channel.info).replay_filter
        room = min(limits.PART_FINGERPRINTS_BYTES_MAX, self.nats.payload_bytes_max - ROOM)
        fingerprints, left_out = known.newest_of(name, room, limits.MOVE_KNOWN_MIN)
        told = pb.PartClosed(
            name=whole.name,
            doubling=doubling,
            part=number,
            last=channel.next_sequence - 1,
            fingerprints=fingerprints,
            known_for=self.node.clock.now - max(left_out, known.known_since((name,))),
        )
        self.proposals.ask_meta(part_closed=told)
        again = self.node.clock.now + limits.FORWARD_INTERVAL
        self.timers.at(again, partial(self._report, channel, doubling), channel.info.group)

    def _give_up(self, parted: Parted, channel: LiveChannel, why: str) -> None:
        name = go_quote(text(channel.info.name))
        self.reports.note("WRN", f"The parts of channel {go_quote(text(parted.name))} are not doubled: {name}: {why}")
        self.proposals.ask_meta(doubling_ended=pb.DoublingEnded(name=parted.name, doubling=parted.row.doubling))
        again = self.node.clock.now + limits.FORWARD_INTERVAL
        self.timers.at(again, partial(self._look, channel), channel.info.group)

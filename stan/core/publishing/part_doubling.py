"""The parts of a channel are doubled: what the leader of each part does, until the metadata have twice as many.

    the metadata say so ─► nothing new is taken ─► what was taken is committed ─► `close_part` in the part's own log
        ─► a pause, in which all nodes hear what is in that log ─► the metadata are told the newest sequence
    all parts have told ─► the new parts are there, and everybody divides by twice as many

Promises: a message is in one part; none that was taken before is taken again by a new part, and none is stored in a part behind
its mark before all nodes may divide by the new number. What is published meanwhile is refused once the mark is in the log, as no
next leader takes it then; and is without an answer in the moment in which others may take it already. While a transaction or
delayed messages wait for a part, the doubling is given up. Whoever leads next goes on.
"""

from functools import partial

from stan import limits
from stan.core.context import BrokerContext, text
from stan.core.publishing.channels import LiveChannel, LiveChannels
from stan.core.publishing.part_routing import PartRouting
from stan.core.publishing.publishing import Publishing
from stan.core.state.part_closings import PartClosings
from stan.core.state.parted import Parted
from stan.errors import (
    MOVE_WAITS_DELAYED,
    MOVE_WAITS_STAGED,
    PARTS_CLOSING,
    PARTS_DOUBLING,
    PARTS_DOUBLING_SOON,
    go_quote,
)
from stan.protocol.proto import entries_pb2 as pb
from stan.types import MILLISECOND, GroupId, Nanos

LOOK_INTERVAL = 20 * MILLISECOND
"""How often is looked if what was taken is committed."""


class PartDoubling:
    """Closes the parts that this node leads, and opens them again."""

    def __init__(self, context: BrokerContext, channels: LiveChannels, publishing: Publishing) -> None:
        self.context = context
        self.channels = channels
        self.publishing = publishing
        self.routing = PartRouting(context)
        self._told: dict[bytes, tuple[int, dict[int, bytes]]] = {}  # channel -> doubling, fingerprints of closed parts

    def told(self, change: pb.PartClosed) -> None:
        """A part has told that it is closed, perhaps not for the first time."""
        if self.context.clustered:
            doubling, known = self._told.get(change.name, (0, {}))
            known = known if doubling == change.doubling else {}
            self._told[change.name] = change.doubling, {change.part: change.fingerprints} | known

    def before(self, name: bytes) -> None:
        """The metadata tell something new of a channel with parts, before new parts are led; b"": of none."""
        if name:
            self.context.placement_changed()
            self.channels.parted_changed(name)

    def changed(self, name: bytes) -> None:
        """The metadata tell something new of a channel with parts: it is made, or a doubling has begun, or has ended."""
        whole = self.context.meta.channels.parted.by_name.get(name)
        if whole is None:
            return
        self.publishing.forget_held(whole.names())  # divided by what this copy of the metadata knew before
        if not (whole.row.doubling or whole.row.settled):
            return
        if not whole.row.doubling:
            self._forget_heard(whole)
        for part in whole.names():
            channel = self.channels.by_name.get(part)
            if channel is not None and (whole.row.doubling or channel.unsealed.halted):
                self._look(channel)

    def lead(self, number: GroupId) -> None:
        """This node leads a group from now on."""
        parted = self.context.meta.channels.parted.by_part
        for name, (whole, _) in parted.items() if parted else ():
            channel = self.channels.by_name.get(name)
            if channel is not None and channel.info.group == number and (whole.row.doubling or self._closed(channel)):
                self._look(channel)

    def _forget_heard(self, whole: Parted) -> None:
        """What was heard before is in the log of the part to which it belonged then, or was refused: it is not replayed."""
        now, since = self.context.clock.now, self.context.leading.heard_since
        doubling, told = self._told.pop(whole.name, (0, {}))
        before = whole.row.splits[-1].parts if whole.row.splits else whole.parts
        for number, name in enumerate(whole.names()):
            info = self.context.meta.channels.get(name)
            group = self.context.groups.get(info.group) if info is not None else None
            if group is None:
                continue
            group.replay_filter.taken_over[name] = now
            if doubling == whole.row.settled and number >= before:
                told_by = told.get(number - before, b"")
                group.replay_filter.adopt(told_by, name, now, since, leads=group.leads)

    def _closed(self, channel: LiveChannel) -> int:
        """The newest doubling for which a part was closed."""
        return self.context.group_of(channel.info).machine.part(PartClosings).of(channel.info.uid)

    def _look(self, channel: LiveChannel, _now: Nanos = Nanos(0)) -> None:  # noqa: B008 - a number
        """Do what is next for a part."""
        found = self.context.meta.channels.parted.by_part.get(channel.info.name)
        if found is None or self.channels.by_uid.get(channel.info.uid) is not channel:
            return
        whole, unsealed, closed = found[0], channel.unsealed, self._closed(channel)
        if not whole.row.doubling:
            # A mark that is newer than what this copy of the metadata knows: it will know soon.
            unsealed.halted = PARTS_DOUBLING_SOON if closed > whole.row.settled else ""
        elif closed == whole.row.doubling:
            if not unsealed.halted:  # an earlier leader has closed it, and may have told
                unsealed.halted = PARTS_DOUBLING_SOON
            patience = limits.FINGERPRINT_PATIENCE if self.context.clustered else 0
            self.context.timers.at(self.context.clock.now + patience, partial(self._tell, channel, closed))
        else:
            self._close(channel, whole)

    def _close(self, channel: LiveChannel, whole: Parted) -> None:
        waits = self._waits_for(channel)
        if waits:
            channel.unsealed.halted, channel.unsealed.unanswered = "", []
            self._give_up(whole, channel, waits)
            return
        channel.unsealed.halted = PARTS_CLOSING
        if channel.unsealed.count or channel.uncommitted_bytes or channel.reservation is not None:
            self.context.timers.at(self.context.clock.now + LOOK_INTERVAL, partial(self._look, channel))
            return
        change = pb.ClosePart(uid=channel.info.uid, doubling=whole.row.doubling)
        self.context.change_group(channel.info.group, partial(self._done, channel), close_part=change)

    def _waits_for(self, channel: LiveChannel) -> str:
        """Why a part cannot be closed now; "" if it can."""
        machine = self.context.group_of(channel.info).machine
        if machine.transactions.parts.get(channel.info.uid):
            return MOVE_WAITS_STAGED
        return MOVE_WAITS_DELAYED if machine.delayed(channel.info.uid) else ""

    def _done(self, channel: LiveChannel, result: object, _error: str) -> None:
        unsealed = channel.unsealed
        if result is not None and unsealed.halted == PARTS_CLOSING:  # no next leader takes what came
            unsealed.halted, waiting, unsealed.unanswered = PARTS_DOUBLING, unsealed.unanswered, []
            for acks in waiting:
                self.publishing.refuse_as_leader(channel.info.group, acks, PARTS_DOUBLING)
        again = 0 if result is not None else limits.FORWARD_INTERVAL
        self.context.timers.at(self.context.clock.now + again, partial(self._look, channel))

    def _tell(self, channel: LiveChannel, doubling: int, _now: Nanos) -> None:
        """Tell the metadata that a part is closed, again and again until they say that the doubling has ended."""
        found = self.context.meta.channels.parted.by_part.get(channel.info.name)
        if found is None or self.channels.by_uid.get(channel.info.uid) is not channel:
            return
        whole, number = found
        if whole.row.doubling != doubling:
            return
        channel.unsealed.halted = PARTS_DOUBLING_SOON  # others may take from now on what this node refuses
        last = channel.next_sequence - 1
        known = self.context.group_of(channel.info).replay_filter
        told = pb.PartClosed(
            name=whole.name,
            doubling=doubling,
            part=number,
            last=last,
            fingerprints=known.newest_of(channel.info.name, limits.PART_FINGERPRINTS_BYTES_MAX),
        )
        self.context.ask_meta(part_closed=told)
        again = self.context.clock.now + limits.FORWARD_INTERVAL
        self.context.timers.at(again, partial(self._tell, channel, doubling))

    def _give_up(self, whole: Parted, channel: LiveChannel, why: str) -> None:
        name = go_quote(text(channel.info.name))
        self.context.note("WRN", f"The parts of channel {go_quote(text(whole.name))} are not doubled: {name}: {why}")
        self.context.ask_meta(doubling_ended=pb.DoublingEnded(name=whole.name, doubling=whole.row.doubling))
        again = self.context.clock.now + limits.FORWARD_INTERVAL
        self.context.timers.at(again, partial(self._look, channel))

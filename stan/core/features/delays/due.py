"""Messages that wait for their time, in a channel with a delay or in the hidden one, on their way to their channel.

One entry stores them there and settles them where they have waited, so that none is lost or moved twice, whichever node
leads and dies. Those that are later than their policy allows (`max_late`) become dead letters, or are dropped.
"""

from typing import TYPE_CHECKING, Any

from stan_protocol import dead_letters as letters
from stan_protocol.proto import wire_pb2 as wire

from stan import limits
from stan.core.base.names import shown
from stan.core.leader.local_group import Leadership
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.channel_policies import DelayFaults
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.publishing import Publishing
from stan.core.publishing.relocating import Relocating, Steps
from stan.core.publishing.row_batch import row_of
from stan.core.services.services import Services
from stan.protocol.proto import entries_pb2 as pb

if TYPE_CHECKING:
    from stan_protocol.scalars import ChannelUid


class DueMessages(Relocating):
    """Moves messages of one group that are due, while this node leads it."""

    def __init__(
        self, services: Services, leadership: Leadership, channels: LiveChannels, publishing: Publishing
    ) -> None:
        super().__init__(services, leadership, channels, publishing)
        self.placement = services.placement
        self.faults_of = leadership.part(DelayFaults).by_channel
        self.paused: dict[
            ChannelUid, int
        ] = {}  # channels of which nothing is moved until then (Nanos), after a failure

    def move(self, into: LiveChannel | None, messages: list[wire.MsgProto], **settled: Any) -> Steps[None]:
        """Store messages in a channel, if there are any, with the change that settles them, by its name."""
        if into is not None and messages:
            change = pb.GroupChange(**settled).SerializeToString()
            yield from self.store(into, map(row_of, messages), lambda _first: change)
        else:
            yield from self.propose(**settled)

    def late_before(self, max_late: int, name: bytes) -> int:
        """The time (Unix ns) before which messages must have been due to be given up; 0: none is. *name*: the channel for their
        dead letters, b"": there is none; if it is in another group, where one entry cannot store them, all are delivered."""
        if max_late and name and self.placement.group_number(name) != self.number:
            text = (
                f"Messages that are later than max_late are delivered: {shown(name)} is in another group than they are"
            )
            self.reports.complain("WRN", text)
            return 0
        return self.node.clock.wall - max_late if max_late else 0

    def give_up(
        self, channel: LiveChannel, name: bytes, messages: dict[int, wire.MsgProto], count: int, **settled: Any
    ) -> Steps[None]:
        """Store messages of a channel, by sequence or id, as dead letters in the channel *name*; without one they are dropped.
        *count*: how many were too late, those that the log has lost included."""
        into = None
        if name and messages:
            into = yield from self.open(name)
            self.check_open(channel)
        for number, message in messages.items():
            message.ClearField("expires_at")  # it does not expire as the message would have
            headers = letters.of_every_letter(channel.info.name, number, letters.LATE, message.timestamp)
            letters.rewrite(message, headers, letters.ADDED)
        yield from self.move(into, [*messages.values()], **settled)
        self.reports.totals.late_messages += count
        where = f"stored in {shown(name)}" if name else "dropped, as no policy names a channel for dead letters"
        text = f"{count} delayed messages of channel {shown(channel.info.name)} were later than max_late: {where}"
        self.reports.note("WRN", text)
        self.reports.emit("late_messages", text, channel=channel.info.name, group=channel.info.group)

    def failed(self, info: ChannelInfo, target: bytes, error: str) -> None:
        """Messages of a channel cannot be moved now: they are again after DELAY_RETRY."""
        self.paused[info.uid] = self.node.clock.now + limits.DELAY_RETRY
        self.faults_of[info.uid] = error
        text = f"Delayed messages of channel {shown(info.name)} cannot be moved to {shown(target)}: {error}"
        self.reports.complain("WRN", text)

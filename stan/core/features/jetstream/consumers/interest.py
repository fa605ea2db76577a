"""Streams that keep messages as long as consumers are interested, on the leader of their group: what all have passed goes.

    positions of all consumers, as the log has them ─► now and then: one removal of everything up to the slowest one

Promises: a message goes only when every consumer that is there has settled or passed it, by committed entries; without a consumer
everything goes. What is published while a consumer is made goes to it if it is stored behind the consumer's entry.
"""

from functools import partial

from stan_protocol.scalars import ChannelUid, Nanos

from stan import limits
from stan.core.leader.local_group import Leadership
from stan.core.metadata.streams import Stream
from stan.core.publishing.channels import LiveChannels
from stan.core.services.leader_part import LeaderPart
from stan.core.services.services import Services
from stan.core.state.consuming import cursor_of_consumer
from stan.core.state.tombstones import behind


class InterestStreams(LeaderPart):
    """The streams with retention by interest of one group, while this node leads it."""

    def __init__(self, services: Services, leadership: Leadership, channels: LiveChannels) -> None:
        super().__init__(services, leadership)
        self.tiers = channels.policies.tiers
        self._armed = False
        self._under_way: set[ChannelUid] = set()  # streams whose removal is on its way into the log

    def refresh(self) -> None:
        """Streams may have come or changed: look at those of this group from now on, if there are any."""
        if not self._armed and any(map(self._is_mine, self.node.meta.streams.by_uid.values())):
            self._armed = True
            self.at(self.node.clock.now + limits.INTEREST_INTERVAL, self._look)

    def took_over(self, uid: ChannelUid) -> None:  # noqa: ARG002 - as LeaderPart has it
        """The group has taken a channel over from another one."""
        self.refresh()

    def _is_mine(self, stream: Stream) -> bool:
        info = self.node.meta.by_uid.get(stream.uid)
        return stream.config.by_interest and info is not None and info.group == self.number

    def _look(self, _now: Nanos) -> None:
        self._armed = False
        for stream in filter(self._is_mine, [*self.node.meta.streams.by_uid.values()]):
            self._remove_passed(stream.uid)
        self.refresh()

    def _remove_passed(self, uid: ChannelUid) -> None:
        """Remove the messages that all consumers of a stream have passed."""
        machine, index = self.group.machine, self.stored.indexes(self.number, uid)
        if uid in self._under_way or self.group.is_held(uid):
            return
        positions = [cursor_of_consumer(machine, uid, name).floor for name in machine.consumers.of(uid)]
        passed = min(positions, default=index.last_sequence)
        passed = min(passed, index.last_sequence)
        first = max(1, index.first_sequence, machine.first_sequence(uid))
        oldest = behind(self.stored.deleted(self.number, uid), first)
        if passed < oldest:
            return
        self._under_way.add(uid)
        removal = self.tiers.tell(self.tiers.purge(uid, oldest, passed))
        over = partial(self._under_way.discard, uid)
        self.change(lambda _result, _error: over(), over, removal=removal)

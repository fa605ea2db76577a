"""A cluster in which channels are pinned to groups while they are made, and while everything else happens to it."""

from functools import partial

from stan_protocol.scalars import MILLISECOND

from stan.protocol.placement import channel_group
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.broker_state import BrokerState, propose
from tests.sim.cluster_world import ClusterWorld
from tests.sim.scene import CHANNELS

PAUSE = 100 * MILLISECOND


class PinWorld(ClusterWorld):
    """One run. A channel is where it is pinned, whenever the pin came; a pin that came too late is none."""

    def __init__(self, seed, *, calm=False):
        super().__init__(seed, calm=calm)
        self.raft_groups = max(self.raft_groups, 2)
        self.history.group_of.update({name: channel_group(name.encode(), self.raft_groups) for name in CHANNELS})
        self.pinned = 0  # channels that were made where the hash would not have put them
        self._homes = {}

    def begin(self):
        super().begin()
        self.loop.after(0, self._pin)

    def note(self, node, level, text):
        """A channel that was made somewhere is known to be there from then on."""
        if text.endswith("has been created"):
            meta = BrokerState(node.cluster_node.broker).copy_of_meta()
            for info in meta.channels.values():
                name = info.name.decode()
                if meta.pins.get(info.name, info.group) != info.group:
                    self.complain(f"{node}: {name} is in group {info.group}, and pinned to {meta.pins[info.name]}")
                self.pinned += name not in self._homes and info.group != self.history.group_of.get(name)
                self.history.group_of[name] = self._homes[name] = info.group
        super().note(node, level, text)

    def _pin(self):
        """Pin a channel, or let it go; mostly before it is made."""
        leader = self.leader(0)
        if leader is not None and leader.running and not leader.pauses.until:
            group = self.random.randrange(self.raft_groups + 1)
            row = pb.Pin(channel=self.random.choice(CHANNELS).encode(), group=group)
            broker = leader.cluster_node.broker
            if broker.view.nuid:
                leader.run(partial(propose, broker, pin_channel=row))
                leader.run(leader.driver.turns.wake)
        if not self.quiet:
            self.loop.after(self.random.choice((1, 1, 10)) * PAUSE, self._pin)

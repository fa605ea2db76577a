"""A cluster in which plain subscriptions are served by other nodes than the leaders, while everything else happens to it."""

import re

from stan_protocol.scalars import MILLISECOND, SECOND

from stan import limits
from stan.core.state.serving import ANY
from tests.kit.broker_state import BrokerState
from tests.sim.cluster_node import SimulatedNode
from tests.sim.cluster_world import ClusterWorld
from tests.sim.scene import CHANNELS

TAKEN_BACK = re.compile(r"group (\d+): node (\S+) (.*): its (\d+) subscriptions are taken back")
SUBSCRIBERS = 3
"""Plain subscriptions to each channel."""


class ReplicaPushWorld(ClusterWorld):
    """One run. Some have a read replica besides; each plain subscription wants another node than the leader, or a certain one."""

    def __init__(self, seed, *, calm=False):
        super().__init__(seed, calm=calm)
        self.given = {}  # (group, subscription, since) of subscriptions that another node has served -> since when
        self.begun = set()  # those of `given` of which that node knows
        self.served = set()  # (group, subscription) of those that another node serves now
        self.taken_back = 0
        if self.random.random() < 0.6:
            self.nodes["r0"] = SimulatedNode(self, "r0", self.random.randrange(self.servers))

    def make_clients(self, restless=0.0, **pace):
        super().make_clients(restless=restless, **pace)
        draw = self.random
        for n, channel in enumerate(CHANNELS):
            for m in range(SUBSCRIBERS):
                client = self.subscriber(self, f"pln{n}r{m}", channel, f"plain{n}r{m}", "plain", restless=restless)
                client.in_flight, client.start_position = draw.choice((1, 5, 100)), draw.choice(("first", "new"))
                client.replica = draw.choice((ANY, ANY, b"n0", b"r0"))
                self.add(client)
                self.loop.after(draw.randint(0, 500) * MILLISECOND, client.start)

    def note(self, node, level, text):
        """What was taken back from a node may have been sent further than it has told, and nobody has heard the acks since."""
        super().note(node, level, text)
        if TAKEN_BACK.fullmatch(text):
            self.taken_back += 1
            silent = limits.SERVING_TAKEN_BACK + 2 * limits.SERVING_REPORT_INTERVAL
            self.history.cause(self.loop.now - silent, self.loop.now + SECOND, text)

    def change_committed(self, broker, group, index, kind, body):
        super().change_committed(broker, group, index, kind, body)
        me, now = broker.view.node.encode(), self.loop.now
        for sub in BrokerState(broker).subscriptions(group):
            number, given = sub.subscription_id, (group, sub.subscription_id, sub.served_since)
            if sub.served_by:
                if given not in self.given:  # a node that lags says it again, when it may be over
                    self.served.add((group, number))
                since = self.given.setdefault(given, now)
                if sub.served_by == me and given not in self.begun:
                    # An ack that comes while it goes from one node to the other may be heard by neither.
                    self.begun.add(given)
                    what = f"group {group}: subscription {number} goes to {me.decode()}"
                    self.history.cause(since, now, what, sub.client_id.decode())
            elif broker.view.leads(group) and (group, number) in self.served:
                self.served.remove((group, number))
                self.history.taken_back[group].append(now)

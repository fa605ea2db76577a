"""Worlds in which everybody publishes to a channel with parts, with keys and without, and reads the parts: all that is promised
of a channel holds of each part, and each message is in the part of its key."""

from functools import partial
from zlib import crc32

from stan.core.context import nobody_waits
from stan.protocol.channels import part_name
from stan.protocol.parted import part_of
from stan.protocol.proto import entries_pb2 as pb
from stan.types import MILLISECOND
from tests.sim.clients import Publisher
from tests.sim.cluster_world import ClusterWorld
from tests.sim.world import World

WHOLE = "orders"
KEYS = 23
"""Keys of messages; those of number 0 have none."""
CREATE_AGAIN = 100 * MILLISECOND
TO_THE_PARTS = 0.2
"""How often a publisher says itself to which part a message belongs; nobody does both, as order between the two is not kept."""
TO_ANOTHER = 0.05
"""How often one follows that is published to a part to which it does not belong: it is refused."""


def key_of(value):
    """The key of a message."""
    number = crc32(value.encode()) % KEYS
    return b"key %d" % number if number else b""


class PartedPublisher(Publisher):
    """Publishes to the channel with parts; expects each message in the part of its key, else in that of its client id."""

    def __init__(self, world, client_id, channels, **pace):
        super().__init__(world, client_id, channels, **pace)
        self.to_the_parts = self.odd.random() < TO_THE_PARTS

    def key_of(self, value):
        return key_of(value)

    def _part(self, value):
        return part_of(key_of(value) or self.client_id.encode(), self.world.parts)

    def _publish(self, channel):
        super()._publish(part_name(WHOLE.encode(), self._part(f"{self.client_id}-{self.number + 1}")).decode())

    def _send(self, channel, guid, value):
        if not guid:
            super()._send(WHOLE, guid, value)
            return
        super()._send(channel if self.to_the_parts else WHOLE, guid, value)
        if self.odd.random() < TO_ANOTHER:
            wrong = f"{value} out of place"
            other = (self._part(wrong) + 1) % self.world.parts
            super()._send(part_name(WHOLE.encode(), other).decode(), next(self.guids), wrong)


class Parted:
    """One channel with some parts; each part has a durable, a durable group, and more where the seed says so."""

    publisher = PartedPublisher

    def make_clients(self, restless=0.0, pace=60 * MILLISECOND):
        draw, finish = self.random, self.history.must_finish
        self.parts = draw.choice((2, 3, 4))
        self.channels = tuple(part_name(WHOLE.encode(), number).decode() for number in range(self.parts))
        for n in range(2):
            self.add(self.publisher(self, f"writer{n}", self.channels, pace=pace))
        for n, channel in enumerate(self.channels):
            durable = self.subscriber(self, f"dur{n}", channel, f"durable{n}", in_flight=draw.choice((1, 4, 9)))
            durable.restless = restless
            self.add(durable)
            finish[durable.position] = channel
            if draw.random() < 0.5:
                for m in range(2):
                    member = self.subscriber(
                        self, f"grp{n}{m}", channel, f"group{n}", "durable queue", restless=restless
                    )
                    self.add(member)
                    finish[member.position] = channel
            if draw.random() < 0.3:
                self.add(self.subscriber(self, f"pln{n}", channel, f"plain{n}", "plain", in_flight=5))
        self._create()

    def _create(self):
        """Make the channel; whoever uses it begins when somebody knows it."""
        broker = self.asked_broker()
        if broker is not None and WHOLE.encode() in broker.view.meta.channels.parted.by_name:
            self.created(broker)
            for client in self.clients.values():
                self.loop.after(self.random.randint(0, 500) * MILLISECOND, client.start)
            return
        if broker is not None and broker.view.meta.info is not None:
            groups = [1 + (number % broker.view.pool) for number in range(self.parts)]
            change = pb.CreateParted(name=WHOLE.encode(), groups=groups)
            self.have_done(partial(broker.context.change_meta, nobody_waits, create_parted=change))
        self.loop.after(CREATE_AGAIN, self._create)

    def created(self, broker):
        """The channel is there."""


class NodeParted(Parted, World):
    """One node."""

    def asked_broker(self):
        """The one that leads the metadata, if there is one."""
        return self.node.broker if self.node is not None else None

    def have_done(self, call):
        """Have the node do something."""
        call()
        self.node.driver.turns.wake()


class ClusterParted(Parted, ClusterWorld):
    """A cluster."""

    def asked_broker(self):
        """That of the leader of the metadata, if there is one."""
        leader = self.leader(0)
        return leader.cluster_node.broker if leader is not None and not leader.pauses.until else None

    def have_done(self, call):
        """Have the leader of the metadata do something."""
        leader = self.leader(0)
        leader.run(call)
        leader.run(leader.driver.turns.wake)

    def created(self, broker):
        for channel in self.channels:
            self.history.group_of[channel] = broker.view.group_number(channel.encode())
            if self.limit:
                self.history.limits[channel] = self.limit

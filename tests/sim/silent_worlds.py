"""Worlds whose publishers want no ack of every second message: of these a fault may take some, and nothing else; what is stored
keeps the order in which it was published, with acks and without."""

from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND, SECOND

from tests.sim.clients import Publisher
from tests.sim.cluster_world import ClusterWorld
from tests.sim.history import places
from tests.sim.world import World

SHARE = 0.5
"""Of the messages: so many are published without a reply subject."""
REACH_OF_FAULTS = 1 * SECOND
"""How long a fault may show in what was published."""
ON_THE_WAY = 200 * MILLISECOND
"""What a publisher has sent so shortly before its end may not have left."""


class SilentPublisher(Publisher):
    """Wants no ack of some of its messages, as with `ack="none"` of the Python client."""

    def __init__(self, world, client_id, channels, pace=60 * MILLISECOND):
        super().__init__(world, client_id, channels, pace)
        self.silent = {}  # guid -> Publish, of this life
        self.ends = {}  # life -> when it ended

    def on_connected(self):
        self.silent = {}
        super().on_connected()

    def die(self):
        if self.alive:
            self.ends[self.conn_id] = self.loop.now
        super().die()

    def reply_of(self, value):
        publish = self.history.publishes.get(value)
        if publish is None or self.odd.random() >= SHARE:
            return super().reply_of(value)
        guid, _ = self.waiting.popitem()
        self.silent[guid] = publish
        self.world.silent[value] = self
        if self.one_by_one:
            self.later(self.random.randint(0, self.pace), self._burst)
        return ""

    def _give_up(self, publish):
        if publish.value not in self.world.silent:
            super()._give_up(publish)

    def _acked(self, payload):
        self.world.fail_if(wire.PubAck.FromString(payload).guid in self.silent, "an ack came that nobody wanted")
        super()._acked(payload)


class _Silent:
    """Acks are wanted of every second message."""

    publisher = SilentPublisher

    def __init__(self, seed, **how):
        super().__init__(seed, **how)
        self.silent = {}  # value -> publisher, of what was published without an ack

    def read_all(self):
        super().read_all()
        for text in self.missing():
            self.complain(f"check_silent: {text}")

    def missing(self):
        """What was published without an ack, is not there, and met no fault."""
        there = places(self.history)
        for value in self.lost(there):
            publish, client = self.history.publishes[value], self.silent[value]
            end = client.ends.get(publish.writer, self.loop.now)
            peace = not self.history.explained(
                publish.asked_at - REACH_OF_FAULTS, publish.asked_at + REACH_OF_FAULTS, (client.client_id,)
            )
            if peace and publish.asked_at < end - ON_THE_WAY:
                yield f"{publish.channel}: {value} is not there, and nothing failed"

    def lost(self, there):
        """What was published without an ack and is not *there*."""
        return [value for value in self.silent if value not in there[self.history.publishes[value].channel]]


class NodeSilent(_Silent, World):
    """One node."""


class ClusterSilent(_Silent, ClusterWorld):
    """A cluster."""

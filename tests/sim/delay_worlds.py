"""Worlds in which all messages of one channel come by a channel with a delay, or tell when they are due, while clocks are set by
an hour.

The history knows these messages as publishes to the target: they have to be there once, in the order in which they were
published, whatever fails. That none goes early is looked at where they are moved, by the clock that is in force there.
"""

from unittest import mock

from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND

from stan.core.features.delays.channel_delays import Delaying
from stan.core.features.delays.publish_times import Deferring
from stan.policies import PolicyRule
from stan.protocol.entries import DEFERRED_UID
from stan.testing.loop import WALL_START
from tests.kit.broker_state import BrokerState, wall_of
from tests.sim.clients import Publisher
from tests.sim.clocks import HOUR, ClockSet
from tests.sim.cluster_world import ClusterWorld
from tests.sim.history import FOREVER
from tests.sim.world import World

TARGET, WAITING = "a", "a.later"


class DelayedPublisher(Publisher):
    """Publishes to a channel with a delay what is meant for its target."""

    def _send(self, channel, guid, value):
        super()._send(WAITING if channel == TARGET else channel, guid, value)


class DeferringPublisher(Publisher):
    """Tells when its messages are due, and so in which order they come: the history does not look at that of the publishes."""

    def _publish(self, channel):
        super()._publish(channel)
        if channel == TARGET:  # each as if another client had sent it
            publish = next(reversed(self.waiting.values()))
            publish.writer = publish.value

    def _send(self, channel, guid, value):
        if channel != TARGET or not guid:
            super()._send(channel, guid, value)
            return
        wall = WALL_START + self.loop.now + self.loop.wall_offset
        due = wall + self.odd.choice((1, 100, 1000, 2500)) * MILLISECOND
        self.world.dues[value.encode()] = due
        super()._send(channel, guid, value, deliver_at=due)

    def _acked(self, payload):
        super()._acked(payload)
        publish = self.waiting.get(wire.PubAck.FromString(payload).guid)
        if publish is not None and publish.channel == TARGET and publish.ok_at:
            publish.asked_at, publish.ok_at = 0, FOREVER


class _Moving(ClockSet):
    """Messages that are moved when they are due; put before a world."""

    def __init__(self, seed):
        super().__init__(seed)
        self.moved = 0

    def _heal(self, *left_out):
        """What waits for an hour is due at last."""
        super()._heal(*left_out)
        self._set_clock(3 * HOUR)


class _Delays(_Moving):
    """The policy, and what is to be true of each move."""

    publisher = DelayedPublisher

    def __init__(self, seed):
        super().__init__(seed)
        draw = self.random
        self.delay = draw.choice((20, 300, 1500)) * MILLISECOND
        self.policies = (PolicyRule(pattern=WAITING, delay=self.delay, target=TARGET),)

    def run(self, **patience):
        with mock.patch.object(Delaying, "move", self._watched(Delaying.move)):
            return super().run(**patience)

    def _watched(self, move):
        def watched(delaying, into, messages, **settled):
            wall = wall_of(delaying)
            for message in messages:
                self.moved += 1
                self.fail_if(message.timestamp + self.delay > wall, f"{message.data} is moved before its time")
            return move(delaying, into, messages, **settled)

        return watched

    def waits(self, broker, number):
        """Whether messages of a group wait for their time."""
        info = broker.view.meta.channels.get(WAITING.encode())
        if info is None or info.group != number:
            return False
        index = broker.view.indexes(number, info.uid)
        return index.first_sequence <= index.last_sequence and index.last_sequence > 0


class _Deferred(_Moving):
    """What is to be true of each deferred message that is moved."""

    publisher = DeferringPublisher

    def __init__(self, seed):
        super().__init__(seed)
        self.dues = {}  # data -> when it is due

    def run(self, **patience):
        with mock.patch.object(Deferring, "_move", self._watched(Deferring._move)):
            return super().run(**patience)

    def _watched(self, move):
        def watched(deferring, uid, places, read, **late):
            wall, dues = wall_of(deferring), []
            for sequence, _ in places:
                value = wire.MsgProto.FromString(read[sequence]).data
                dues.append(self.dues[value])
                self.moved += 1
                self.fail_if(dues[-1] > wall, f"{value} is moved before its time")
            self.fail_if(dues != sorted(dues), f"{dues} are moved in another order than that of their times")
            return move(deferring, uid, places, read, **late)

        return watched

    def waits(self, broker, number):
        """Whether messages of a group wait for their time."""
        return BrokerState(broker).copy(number).deferred.waiting > 0


class _OneNode:
    """One node is done when nothing waits."""

    def _drained(self):
        broker = self.node.broker
        return not any(self.waits(broker, number) for number in broker.view.groups) and super()._drained()


class _Cluster:
    """A cluster is done when nothing waits; what waits is not looked at as messages of a channel."""

    def stored(self, node, batch):
        if batch.uid != DEFERRED_UID and WAITING.encode() not in bytes(batch.records):
            super().stored(node, batch)

    def _backlog(self, leader, number):
        waits = self.waits(leader.cluster_node.broker, number)
        return "messages wait" if waits else super()._backlog(leader, number)


class NodeDelays(_OneNode, _Delays, World):
    """One node, and a channel with a delay."""


class ClusterDelays(_Cluster, _Delays, ClusterWorld):
    """A cluster, and a channel with a delay."""


class NodeDeferred(_OneNode, _Deferred, World):
    """One node, and publishers who tell when their messages are due."""


class ClusterDeferred(_Cluster, _Deferred, ClusterWorld):
    """A cluster, and publishers who tell when their messages are due."""

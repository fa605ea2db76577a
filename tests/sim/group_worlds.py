"""Worlds whose queue groups have a policy of their own: one member gets everything, or the messages of a key come in order."""

from unittest import mock
from zlib import crc32

from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND, Nanos

from stan.core.base.delivery_policy import DeliveryPolicy
from stan.core.boundary import loading
from tests.kit.broker_state import policies_changed
from tests.sim.clients import Publisher, Subscriber
from tests.sim.cluster_world import ClusterWorld
from tests.sim.history import Failed
from tests.sim.world import World


class _Failover:
    """All queue groups are failover groups; members come and go more often."""

    def make_clients(self, restless=0.0, **pace):
        super().make_clients(restless=restless or 0.02, **pace)
        self.history.failover = True

    def run(self, **patience):
        with mock.patch.object(loading, "_policy_of", return_value=DeliveryPolicy(failover=True)):
            return super().run(**patience)


class NodeFailover(_Failover, World):
    """One node."""


class ClusterFailover(_Failover, ClusterWorld):
    """A cluster."""


KEYS = 11
"""Keys of messages; those of number 0 have none."""
IN_FLIGHT = 200
"""More than are ever in flight: every window is open."""


def key_of(value):
    """The key of a message."""
    number = crc32(value.encode()) % KEYS
    return b"key %d" % number if number else b""


class KeyedPublisher(Publisher):
    """Gives its messages keys."""

    def key_of(self, value):
        return key_of(value)


class UnsteadySubscriber(Subscriber):
    """Fails with one message in twenty."""

    def _ack(self, sub, sequence, ack_inbox):
        if sub is not self.sub or sub.ended_at:
            return
        if not self.world.quiet and self.random.random() < 0.05:
            nak = wire.Ack(subject=self.channel.encode(), sequence=sequence, kind=wire.NAK)
            self.port.publish(ack_inbox, nak.SerializeToString())
            self.history.events.append(Failed(self.loop.now, sub, sequence, 0))
        else:
            super()._ack(sub, sequence, ack_inbox)


class _KeyOrder:
    """All queue groups are key-ordered; members come and go."""

    publisher = KeyedPublisher
    subscriber = UnsteadySubscriber

    def make_clients(self, restless=0.0, **pace):
        super().make_clients(restless=restless or self.random.choice((0, 0.02)), **pace)
        self.history.key_of = key_of
        self.history.wide = self.random.random() < 0.5
        for client in self.clients.values():
            if self.history.wide and isinstance(client, Subscriber):
                client.in_flight = IN_FLIGHT

    def run(self, **patience):
        draw = self.random
        pauses, adaptive = draw.choice(((), (200 * MILLISECOND,))), draw.random() < 0.3
        policy = DeliveryPolicy(
            ordered_by_key=True, backoff=pauses, adaptive_window=adaptive, failover=draw.random() < 0.2
        )
        with mock.patch.object(loading, "_policy_of", return_value=policy):
            return super().run(**patience)


class NodeKeyOrder(_KeyOrder, World):
    """One node."""

    def run(self):
        return super().run(drain_s=90)


class ClusterKeyOrder(_KeyOrder, ClusterWorld):
    """A cluster."""


POLICIES = (
    DeliveryPolicy(),
    DeliveryPolicy(ordered_by_key=True),
    DeliveryPolicy(ordered_by_key=True, backoff=(Nanos(200 * MILLISECOND),), adaptive_window=True),
    DeliveryPolicy(failover=True),
    DeliveryPolicy(failover=True, ordered_by_key=True),
)
CHANGE_INTERVAL = 300 * MILLISECOND


class _ChangingPolicies(_KeyOrder):
    """An operator changes the policy again and again: nothing is lost, nothing comes unflagged, whatever the policy."""

    policy = POLICIES[0]

    def make_clients(self, restless=0.0, **pace):
        super().make_clients(restless, **pace)
        self.history.key_of, self.history.wide = None, False
        self.loop.after(CHANGE_INTERVAL, self._change)

    def _change(self):
        self.policy = self.random.choice(POLICIES)
        for broker in self.brokers():
            policies_changed(broker)
        if not self.quiet:
            self.loop.after(CHANGE_INTERVAL, self._change)

    def run(self, **patience):
        with mock.patch.object(loading, "_policy_of", side_effect=lambda *_: self.policy):
            return super(_KeyOrder, self).run(**patience)


class NodeChangingPolicies(_ChangingPolicies, World):
    """One node."""

    def brokers(self):
        return [self.node.broker] if self.node is not None else []

    def run(self):
        return super().run(drain_s=90)


class ClusterChangingPolicies(_ChangingPolicies, ClusterWorld):
    """A cluster."""

    def brokers(self):
        return [node.cluster_node.broker for node in self.nodes.values() if node.running]

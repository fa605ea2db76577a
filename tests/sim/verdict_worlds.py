"""Worlds whose clients fail with messages, work long on them and reject them, under a policy that limits deliveries.

Which messages are poison is the same for every client, so that each position gives each of them up in the end.
"""

from unittest import mock
from zlib import crc32

from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND

from stan.core.base.delivery_policy import DeliveryPolicy
from stan.core.boundary import loading
from tests.sim.clients import Subscriber
from tests.sim.cluster_world import ClusterWorld
from tests.sim.history import Acked, Failed, Working
from tests.sim.world import World

POISON, REJECTED, LONG = 0, 1, 2
"""Of the remainders of a message's number."""
KINDS = 9
WORK_INTERVAL = 400 * MILLISECOND
WORK_STEPS = 4


class FailingSubscriber(Subscriber):
    """Says something else than "done" about some messages."""

    def _ack(self, sub, sequence, ack_inbox):
        if sub is not self.sub or sub.ended_at:
            return
        kind = crc32(f"{self.channel} {sequence}".encode()) % KINDS
        if kind == POISON or (not self.world.quiet and self.random.random() < 0.05):
            self._fail(sub, sequence, ack_inbox)
        elif kind == REJECTED:
            self._say(sequence, ack_inbox, wire.REJECT)
            self.history.events.append(Acked(self.loop.now, sub, sequence))
        elif kind == LONG and not self.world.quiet:
            self._work(sub, sequence, ack_inbox, WORK_STEPS)
        else:
            super()._ack(sub, sequence, ack_inbox)

    def _fail(self, sub, sequence, ack_inbox):
        delay = self.random.choice((0, 0, 300 * MILLISECOND))
        self._say(sequence, ack_inbox, wire.NAK, delay=delay)
        backoff = self.world.policy.backoff
        self.history.events.append(
            Failed(self.loop.now, sub, sequence, delay or (min(backoff) * 8 // 10 if backoff else 0))
        )

    def _work(self, sub, sequence, ack_inbox, steps):
        if sub is not self.sub or sub.ended_at:
            return
        if not steps:
            super()._ack(sub, sequence, ack_inbox)
            return
        self._say(sequence, ack_inbox, wire.WORKING)
        self.history.events.append(Working(self.loop.now, sub, sequence))
        self.later(WORK_INTERVAL, self._work, sub, sequence, ack_inbox, steps - 1)

    def _say(self, sequence, ack_inbox, kind, **more):
        ack = wire.Ack(subject=self.channel.encode(), sequence=sequence, kind=kind, **more)
        self.port.publish(ack_inbox, ack.SerializeToString())


class _Verdicts:
    """The policy, and when a position is done under it."""

    subscriber = FailingSubscriber

    def __init__(self, seed):
        super().__init__(seed)
        draw = self.random
        pauses = draw.choice(((), (200 * MILLISECOND,), (100 * MILLISECOND, 400 * MILLISECOND)))
        self.policy = DeliveryPolicy(max_deliver=draw.choice((2, 3, 5)), backoff=pauses)
        self.history.max_deliver = self.policy.max_deliver

    def run(self, **patience):
        with mock.patch.object(loading, "_policy_of", return_value=self.policy):
            return super().run(**patience)

    def is_owed(self, cursor):
        """Whether a position has messages that are to be sent again: exhausted ones are not."""
        return any(run.count + 1 < self.policy.max_deliver for run in cursor.to_redeliver)


class NodeVerdicts(_Verdicts, World):
    """One node. Messages rest after each failure, so that it takes a while until the last one is given up."""

    def run(self):
        return super().run(drain_s=180)


class ClusterVerdicts(_Verdicts, ClusterWorld):
    """A cluster."""

    drain_s = 180

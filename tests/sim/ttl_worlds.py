"""Worlds in which messages have a time to live, by their publishers and by a policy, while clocks are set by an hour, in half of
the runs with an operator who removes messages, too.

What has expired counts as removed from the entry on that says so. That no leader sends it after its time by the clock that is in
force there, or removes it before, is looked at where that is done.
"""

from unittest import mock

from stan_protocol.fetches import LENGTH_PREFIX
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND, SECOND

from stan.core.base.ready import Delivery
from stan.core.broker.broker import Broker
from stan.core.services.proposals import ProposedChanges
from stan.core.state.group import CHANGES
from stan.policies import PolicyRule
from tests.kit.broker_state import BrokerState
from tests.sim.clients import Publisher
from tests.sim.clocks import HOUR, ClockSet
from tests.sim.removal_worlds import ClusterRemovals, NodeRemovals, is_published
from tests.sim.scene import CHANNELS

TTLS = (0, 0, 1, 400 * MILLISECOND, SECOND, 2 * SECOND, 3 * SECOND, HOUR)


def messages_of(records):
    """The messages of a batch."""
    at, data = 0, bytes(records)
    while at < len(data):
        start = at + LENGTH_PREFIX
        at = start + int.from_bytes(data[at:start], "little")
        yield wire.MsgProto.FromString(data[start:at])


class ExpiringPublisher(Publisher):
    """Tells how long its messages are to live."""

    def _send(self, channel, guid, value):
        ttl = self.odd.choice(TTLS)
        self.world.ttls[value] = ttl
        super()._send(channel, guid, value, ttl=ttl)


class _Expiring(ClockSet):
    """What is to be true of each message that expires."""

    publisher = ExpiringPublisher

    def __init__(self, seed):
        super().__init__(seed)
        self.ttls = {}  # value -> ns
        self.channel_names = {}  # uid -> channel
        self.policy_ttl = self.random.choice((0, 0, SECOND, 2500 * MILLISECOND))
        if self.policy_ttl:
            self.policies = (PolicyRule(pattern=CHANNELS[1], ttl=self.policy_ttl),)

    def make_clients(self, *args, **options):
        super().make_clients(*args, **options)
        if self.seed % 2:  # who has nothing to do
            self.operator._make = lambda: None

    def run(self, **patience):
        ready, change = Broker.ready, ProposedChanges.change_group
        with (
            mock.patch.object(Broker, "ready", self._watched_turn(ready)),
            mock.patch.object(ProposedChanges, "change_group", self._watched_change(change)),
            mock.patch.dict(CHANGES, expired=self._watched_expiry(CHANGES["expired"])),
        ):
            return super().run(**patience)

    # --- what is looked at ------------------------------------------------------------------------------------------------

    def _watched_turn(self, ready):
        def watched(broker, now, wall, room):
            self.channel_names |= {uid: info.name.decode() for uid, info in broker.view.meta.by_uid.items()}
            found = ready(broker, now, wall, room)
            for send in found.sends:
                if isinstance(send, Delivery):
                    self._look_at(send, wall)
            return found

        return watched

    def _watched_change(self, change_group):
        """When a removal is decided: it may be proposed later, as a slow log takes none, and the clock may be set before that."""

        def watched(proposals, *args, **change):
            if "expired" in change:
                until, wall = change["expired"].until, proposals.node.clock.wall
                self.fail_if(until * SECOND > wall, f"what expires at {until} is removed at {wall}")
            return change_group(proposals, *args, **change)

        return watched

    def _look_at(self, delivery, wall):
        for at, message in enumerate(messages_of(delivery.records), delivery.base_sequence):
            if delivery.first <= at <= delivery.last and message.expires_at:
                self.history.shown.append((message.subject.decode(), message.sequence, wall))

    def _watched_expiry(self, expire):
        def watched(state, change, index):
            found = expire(state, change, index)
            for uid, runs in found.of_part.items():
                name = self.channel_names[uid]
                sequences = [at for first, last in runs for at in range(first, last + 1)]
                for sequence in sequences:
                    self.history.expired.setdefault((name, sequence), change.until * SECOND)
                self.history.removal_asked(name, sequences, self.loop.now)
                self.history.removal_done(name, sequences, self.loop.now)
            return found

        return watched

    def note_expiries(self, records):
        """Messages were stored."""
        for message in messages_of(records):
            name, value = message.subject.decode(), message.data.decode()
            self.history.expires[name, message.sequence] = message.expires_at
            wanted = bool(self.ttls.get(value) or (self.policy_ttl and name == CHANNELS[1]))
            self.fail_if(wanted != bool(message.expires_at), f"{value} expires at {message.expires_at}")

    # --- the run ----------------------------------------------------------------------------------------------------------

    def _brokers(self):
        raise NotImplementedError

    def read_all(self):
        """When everything has expired that ever will."""
        self._set_clock(4 * HOUR)
        end = self.loop.now + 20 * SECOND
        while self.loop.now < end and self._listed():
            self.loop.run_until(self.loop.now + SECOND // 4)
        self.fail_if(self._listed(), f"{self._listed()} never go")
        super().read_all()

    def _listed(self):
        states = [(BrokerState(broker), number) for broker in self._brokers() for number in broker.view.groups]
        expiries = [state.copy(number).expiries for state, number in states]
        return [one.by_channel for one in expiries if one.by_channel]

    def _has_read(self, channel):
        return not self.history.surely_there(channel) or super()._has_read(channel)


class NodeTtl(_Expiring, NodeRemovals):
    """One node, and its disk."""

    def _stored(self, group, base, records):
        if is_published(records):
            self.note_expiries(records)
        super()._stored(group, base, records)

    def _brokers(self):
        return [self.node.broker]


class ClusterTtl(_Expiring, ClusterRemovals):
    """A cluster."""

    def stored(self, node, batch):
        if is_published(bytes(batch.records)):
            self.note_expiries(batch.records)
        super().stored(node, batch)

    def _brokers(self):
        return [node.cluster_node.broker for node in self.nodes.values()]

"""Worlds in which everybody publishes to a channel with parts, with keys and without, and reads the parts: all that is promised
of a channel holds of each part, and each message is in the part of its key."""

import re
from functools import partial
from random import Random
from zlib import crc32

from stan_protocol.channels import part_name
from stan_protocol.parted import part_of
from stan_protocol.scalars import MILLISECOND, SECOND

from stan import limits
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.broker_state import BrokerState, propose
from tests.sim.clients import Publisher
from tests.sim.cluster_world import ClusterWorld
from tests.sim.world import World

WHOLE = "orders"
KEYS = 23
"""Keys of messages; those of number 0 have none."""
CREATE_AGAIN = 100 * MILLISECOND
TO_THE_PARTS = 0.2
"""How often a publisher says itself to which part a message belongs; nobody does both, as order between the two is not kept."""
ANSWERED_WITHIN = 4 * SECOND
"""While no node fails: a doubling takes a little more than one second."""
REACH_OF_FAULTS = 8 * SECOND
"""How long a fault may show: a doubling that it has delayed, a leader that knows what is stored for too short a time."""
LEADS = re.compile(r"leads group \d+$")
PEACEFUL = re.compile(r"(leads group \d+|hands group \d+ over)$")
DEAF = "does not hear clients yet"
LEARNS_LATE = 300 * MILLISECOND
"""How much later than the others a node may learn that there are more parts."""
EAGER = 120
"""Publishes from the moment in which a channel is made, ..."""
EAGER_INTERVAL = 2 * MILLISECOND
"""... so far from each other."""
REPEATED_AFTER = 700 * MILLISECOND
"""What has no answer by then is published once more: the last node knows of the channel."""
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
        return self.world.key_of(value)

    def _part(self, value):
        return part_of(self.key_of(value) or self.client_id.encode(), self.world.parts)

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
    key_of = staticmethod(key_of)

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
        if broker is not None and WHOLE.encode() in BrokerState(broker).parted:
            self.created(broker)
            for client in self.clients.values():
                self.loop.after(self.random.randint(0, 500) * MILLISECOND, client.start)
            return
        if broker is not None and broker.view.meta.founded:
            homes = self.homes_of_parts(broker.view)
            groups = [homes[number % len(homes)] for number in range(self.parts)]
            change = pb.CreateParted(name=WHOLE.encode(), groups=groups)
            self.have_done(partial(propose, broker, create_parted=change))
        self.loop.after(CREATE_AGAIN, self._create)

    def homes_of_parts(self, view):
        """The groups of the parts, one after the other."""
        return range(1, view.pool + 1)

    def created(self, broker):
        """The channel is there."""


class Doubled(Parted):
    """The parts are doubled while everything else happens, once or twice: each message is in one part, in that of its key, and
    the messages of a key come one after the other: first those of the old part, then those of the new one."""

    transfers = ()  # when groups were copied from node to node
    factors = (2, 2, 4)  # by which the parts become more
    first_ms = 300, 1500  # when that begins

    def created(self, broker):
        super().created(broker)
        if not hasattr(self, "before"):
            self.before = self.parts  # when the channel was made
            self.splits = {}  # parts before a doubling -> newest sequence of each
            self.wanted = self.parts * self.random.choice(self.factors)
            self.loop.after(self.random.randint(*self.first_ms) * MILLISECOND, self._double)

    @property
    def registered(self):
        """What the leader of the metadata has of the channel, if there is one."""
        broker = self.asked_broker()
        return broker and BrokerState(broker).copy_of_meta().channels.parted.by_name.get(WHOLE.encode())

    def _double(self):
        whole = self.registered
        if (
            whole
            and whole.parts < self.wanted
            and not whole.row.doubling
            and (not self.quiet or whole.parts == self.before)
        ):
            pool = (
                self.asked_broker().view.pool
            )  # each new part is in another group than the one from which its keys come
            groups = [1 + ((number + 1) % pool) for number in range(whole.parts)]
            change = pb.DoubleParted(name=WHOLE.encode(), groups=groups)
            self.have_done(partial(propose, self.asked_broker(), double_parted=change))
        self.loop.after(self.random.choice((1, 5, 15)) * CREATE_AGAIN, self._double)

    def is_doubled(self):
        """Nothing is under way, and it was done once at least."""
        whole = self.registered
        return bool(whole) and not whole.row.doubling and whole.parts > self.before

    def read_all(self):
        """The parts that there are in the end; each message is published to the one in which it is."""
        whole = self.registered
        self.splits = {split.parts: list(split.last) for split in whole.row.splits}
        self.parts = whole.parts
        self.channels = tuple(name.decode() for name in whole.names())
        self.created(self.asked_broker())
        super().read_all()
        where = {}
        for number, channel in enumerate(self.channels):
            for sequence, value in self._all_of(channel):
                if value in where:
                    self.complain(f"check_parts: {value} is in {where[value]} and in {channel}")
                where[value] = channel
                if value in self.history.publishes:
                    self.history.publishes[value].channel = channel
                    self._check_part(number, sequence, value)
        self._check_keys()
        self._check_answers()

    def _all_of(self, channel):
        """Sequence and value of each message of a channel that was ever stored."""
        return sorted({**self.history.stored.get(channel, {}), **dict(self.history.final[channel])}.items())

    def _key(self, value):
        return self.key_of(value) or value.partition("-")[0].encode()

    def _check_part(self, number, sequence, value):
        then = (before for before, last in self.splits.items() if number < before and sequence <= last[number])
        parts = next(then, self.parts)
        if part_of(self._key(value), parts) != number:
            self.complain(f"check_parts: {value} is in part {number} at {sequence}, of {parts} parts then")

    def _check_answers(self):
        """Where no node fails every publish is answered soon, also what comes in the moment in which a doubling ends."""
        now = {client.conn_id for client in self.clients.values() if client.alive}
        for publish in self.history.publishes.values():
            asked, answered = publish.asked_at, publish.ok_at or publish.failed_at
            if publish.writer not in now or 0 < answered <= asked + ANSWERED_WITHIN:
                continue
            if not self._was_faulty(asked, publish.value.partition("-")[0]):
                self.complain(
                    f"check_answers: {publish.value} to {publish.channel}, asked at {asked / SECOND:.4f}, has none"
                )

    def _was_faulty(self, asked, client_id):
        """Whether something failed around a time, or a node got its state as a whole, so that it does not know what came before;
        leaders may change without that, but one that has started or got its state a moment ago does not know either."""
        end = asked + ANSWERED_WITHIN
        causes = [one for one in self.history.causes if one.at <= end and one.client in ("", client_id)]
        led = max((one.at for one in causes if LEADS.search(one.what)), default=0)

        def is_recent(began):
            return began >= asked - (limits.MOVE_KNOWN_MARGIN if led >= began else 0)

        return any(at <= end and is_recent(at) for at in self.transfers) or any(
            is_recent(cause.until) if cause.what.endswith(DEAF) else cause.until >= asked - REACH_OF_FAULTS
            for cause in causes
            if not PEACEFUL.search(cause.what)
        )

    def _check_keys(self):
        """Of each publisher the messages of a key, read part by part as the doublings have it, are in order."""
        newest = {}
        for parts in (*self.splits, self.parts):
            for number, channel in enumerate(self.channels[:parts]):
                earlier = [last[number] for before, last in self.splits.items() if number < before < parts]
                begins, ends = max(earlier, default=0), self.splits[parts][number] if parts in self.splits else 1 << 62
                for sequence, value in self._all_of(channel):
                    publish = self.history.publishes.get(value)
                    if publish is None or not begins < sequence <= ends:
                        continue
                    key = publish.writer, self._key(value)
                    if newest.get(key, 0) > publish.number:
                        self.complain(
                            f"check_parts: {value} at {channel}:{sequence} comes behind {newest[key]} of {key}"
                        )
                    newest[key] = publish.number


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


class EagerPublisher(PartedPublisher):
    """Publishes from the moment in which somebody asks for the channel. What is not answered soon it publishes once more."""

    def __init__(self, world, client_id, channels, **pace):
        super().__init__(world, client_id, channels, **pace)
        self.one_by_one = self.to_the_parts = self.connected = False
        self.repeated = []  # (the first attempt, the second one)

    def _burst(self):
        self.connected = True
        if self.world.asked_at and self.number < EAGER:
            self._publish("")
            self.later(REPEATED_AFTER, self._repeat, self.history.publishes[f"{self.client_id}-{self.number}"])
        self.later(EAGER_INTERVAL, self._burst)

    def _repeat(self, first):
        if not first.ok_at and not first.failed_at:
            self._publish("")
            self.repeated.append((first, self.history.publishes[f"{self.client_id}-{self.number}"]))


class ClusterMade(ClusterParted):
    """A cluster in which nothing fails, but that one node learns later than the others that the channel was made."""

    publisher = EagerPublisher

    def __init__(self, seed):
        self.asked_at = 0
        super().__init__(seed, calm=True)
        self.limit = 0

    def _plan_faults(self, end):
        """Nothing fails."""

    def acknowledged(self, publish):
        """Nobody aims at anything."""

    def _create(self):
        writers = [client for client in self.clients.values() if isinstance(client, EagerPublisher)]
        if all(client.connected for client in writers):
            super()._create()
            return
        for client in writers:
            client.start()
        self.loop.after(CREATE_AGAIN, self._create)

    def have_done(self, call):
        self.asked_at = self.asked_at or self.loop.now
        leader = self.leader(0).name
        pair = leader, self.random.choice([name for name in self.names if name != leader])
        self.nats.deaf[pair] = None
        self.loop.after(LEARNS_LATE, self.nats.deaf.pop, pair, None)
        super().have_done(call)


class NodeDoubled(Doubled, NodeParted):
    """One node."""

    def _drained(self):
        return super()._drained() and self.is_doubled()


class ClusterDoubled(Doubled, ClusterParted):
    """A cluster. In some runs no node fails, and of each change one learns later than the others."""

    def __init__(self, seed, *, calm=None):
        self.odd = Random(f"{seed} parts")
        self.calm = self.odd.random() < 0.4 if calm is None else calm
        super().__init__(seed, calm=self.calm)
        self.transfers = []
        if self.calm:
            self.loop.after(SECOND, self._learns_late)

    def _seen(self, port, message):
        super()._seen(port, message)
        if message.subject.endswith(".transfer"):
            self.transfers.append(self.loop.now)

    def _plan_faults(self, end):
        if not self.calm:
            super()._plan_faults(end)

    def _learns_late(self):
        """A node does not hear for a while what the leader of the metadata has written."""
        leader, others = self.leader(0), []
        if leader is not None:
            others = [name for name in self.names if name != leader.name]
        if others and not self.quiet:
            pair = leader.name, self.odd.choice(others)
            self.nats.deaf[pair] = None
            self.loop.after(LEARNS_LATE, self.nats.deaf.pop, pair, None)
        self.loop.after(LEARNS_LATE + self.odd.randint(0, 300) * MILLISECOND, self._learns_late)

    def _open_ends(self):
        return super()._open_ends() or ("" if self.is_doubled() else "the parts are not doubled")

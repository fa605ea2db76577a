"""Worlds with consumers of JetStream beside STAN's durables, on the same channels and under the same faults.

Each message reaches every consumer, none is lost; what comes again says so; what was acked, and whose ack was answered, does not
come again; what comes for the first time comes in order.
"""

from typing import ClassVar, NamedTuple

from stan_protocol.scalars import MILLISECOND, SECOND

from stan.testing.nats import SimMessage
from tests.sim.cluster_world import ClusterWorld
from tests.sim.move_world import MoveWorld
from tests.sim.scene import CHANNELS
from tests.sim.stream_worlds import IdPublisher, JetStreamClient
from tests.sim.world import World

ON_THE_WAY = 100 * MILLISECOND
"""What left before an ack was answered has come by then, unless a link holds it back."""
ACK_WAIT = 2 * SECOND


class Received(NamedTuple):
    """One delivery of a message to a consumer's client."""

    at: int
    client: str
    life: int
    sequence: int
    delivered: int
    value: str


class ConsumerClient(JetStreamClient):
    """A client of a consumer: of one that it pulls from, or one that pushes to it."""

    def __init__(self, world, client_id, channel, consumer, config):
        super().__init__(world, client_id)
        self.channel = channel
        self.stream = f"OF_{channel}"
        self.consumer = consumer
        self.config = {"durable_name": consumer, "name": consumer, "ack_policy": "explicit"} | config
        self.pulls = 0

    def go_on(self):
        asked = {"stream_name": self.stream, "config": self.config}
        again = self.random.choice((20, 100, 500)) * MILLISECOND

        def made(answer):
            if "error" in answer:
                self.later(again, self.go_on)
            else:
                self.begin()

        self.ask(f"$JS.API.CONSUMER.CREATE.{self.stream}.{self.consumer}", asked, made, self.go_on)

    def begin(self):
        """The consumer is there."""
        raise NotImplementedError

    def came(self, payload, reply):
        """A message, or what is told of the consumer's state. Returns False if it is no message."""
        ack, _, subject = reply.rpartition("@")
        if not ack:
            return False
        self.world.fail_if(subject != self.channel, f"{self.client_id} got a message under {subject}")
        delivered, sequence, *_ = (int(one) for one in ack.split(".")[-5:])
        got = Received(self.loop.now, self.client_id, self.life, sequence, delivered, payload.decode())
        self.world.received[self.consumer].append(got)
        self._treat(ack, sequence)
        return True

    def _treat(self, ack, sequence):
        """Ack it now or later; forget it; fail with it."""
        what = 1.0 if self.world.quiet else self.random.random()
        if what < 0.1:
            return
        if what < 0.2:
            self.port.publish(ack, b"-NAK")
        elif what < 0.25:
            self.port.publish(ack, b"+WPI")
            self.later(self.random.randint(0, 900) * MILLISECOND, self._ack, ack, sequence)
        else:
            self.later(self.random.choice((0, 0, self.random.randint(1, 400) * MILLISECOND)), self._ack, ack, sequence)

    def _ack(self, ack, sequence):
        self.requests += 1
        inbox = f"_INBOX.synced.{self.conn_id}.{self.requests}"

        def answered(_payload, _reply):
            self.port.forget(inbox)
            self.world.synced[self.consumer].setdefault(sequence, self.loop.now)

        self.port.listen(inbox, answered)
        self.port.send([SimMessage(ack, inbox, b"+ACK")])


class Puller(ConsumerClient):
    """Asks for messages, and again once its request is over."""

    def begin(self):
        self._pull()

    def _pull(self):
        self.pulls += 1
        inbox = f"_INBOX.pulled.{self.conn_id}.{self.pulls}"
        number, batch = self.pulls, self.random.choice((1, 3, 10))
        left = [batch]
        port = self.port

        def over():
            if port.forget(inbox):
                self.later(self.random.choice((0, 0, 50)) * MILLISECOND, self._pull)

        def came(payload, reply):
            if not self.came(payload, reply):
                over()
                return
            left[0] -= 1
            if not left[0]:
                over()

        port.listen(inbox, came)
        expires = self.random.choice((300, 1000)) * MILLISECOND
        port.send(
            [
                SimMessage(
                    f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self.consumer}",
                    inbox,
                    b'{"batch": %d, "expires": %d}' % (batch, expires),
                )
            ]
        )
        self.later(expires + 500 * MILLISECOND, lambda: over() if number == self.pulls else None)


class Listener(ConsumerClient):
    """Listens where its consumer pushes to."""

    def begin(self):
        subject = self.config["deliver_subject"]
        self.port.listen(subject, self.came)
        self.later(self.random.randint(500, 3000) * MILLISECOND, self._pause)

    def _pause(self):
        """It does not listen for a while."""
        subject = self.config["deliver_subject"]
        if not self.world.quiet and self.random.random() < 0.3:
            self.port.forget(subject)
            self.later(self.random.randint(10, 500) * MILLISECOND, self.begin)
        else:
            self.later(self.random.randint(500, 3000) * MILLISECOND, self._pause)


def came_after_acks(world):
    """What came to the consumers of a world although its ack was answered before it can have left."""
    for consumer, received in world.received.items():
        for one in received:
            synced = world.synced[consumer].get(one.sequence)
            if synced is not None and one.at > synced + ON_THE_WAY and not world.history.held_back(synced, one.at):
                yield f"{consumer}: {one} came, its ack was answered at {synced}"


class _Consumers:
    """Per channel a consumer that two clients pull from, and one that pushes."""

    jetstream = True
    streams: ClassVar = {f"OF_{channel}": [channel] for channel in CHANNELS}

    def __init__(self, seed, **how):
        super().__init__(seed, **how)
        self.options = {}  # as of Streaming
        names = [f"{kind}_{channel}" for channel in CHANNELS for kind in ("pulled", "pushed")]
        self.received = {name: [] for name in names}
        self.synced = {name: {} for name in names}  # sequence -> when its ack was answered first
        self.told, self.duplicates = {}, 0
        self.leaf_cuts = 0

    def make_clients(self, *args, **options):
        super().make_clients(*args, **options)
        draw = self.random
        made = [IdPublisher(self, "id0")]
        for n, channel in enumerate(CHANNELS):
            config = {"ack_wait": ACK_WAIT, "max_ack_pending": draw.choice((1, 4, 20))}
            made += [Puller(self, f"pul{n}{m}", channel, f"pulled_{channel}", config) for m in range(2)]
            pushed = config | {"deliver_subject": f"pushed.to.{channel}"}
            made.append(Listener(self, f"lis{n}", channel, f"pushed_{channel}", pushed))
        self.jetstreamers = made
        for client in made:
            self.add(client)
            self.loop.after(draw.randint(0, 500) * MILLISECOND, client.start)
        for _ in range(draw.choice((0, 1, 2))):
            self.loop.after(draw.randint(500, 5000) * MILLISECOND, self._cut_leaf)

    def _cut_leaf(self):
        """A leafnode connection breaks, and nothing else does."""
        leaves = [leaf for leaf in self.nats.followers if not self.quiet]
        if leaves:
            leaf = self.random.choice(leaves)
            leaf.cut()
            self.leaf_cuts += 1
            self.loop.after(self.random.randint(20, 1000) * MILLISECOND, self._mend_leaf, leaf)

    def _mend_leaf(self, leaf):
        """Unless its node is gone, or NATS is away."""
        if any(leaf in getattr(port, "leaves", {}).values() for port in self.nats.ports):
            leaf.connect()

    @property
    def again(self):
        """Deliveries that were not the first."""
        return [one for received in self.received.values() for one in received if one.delivered > 1]

    def waiting(self):
        """What is not done yet."""
        late = (one.client_id for one in self.jetstreamers if getattr(one, "publish_waiting", None) is not None)
        return next((f"{name} has no answer" for name in late), "")

    def read_all(self):
        super().read_all()
        for text in (*self._lost(), *self._wrong(), *self._unflagged(), *came_after_acks(self), *self._unordered()):
            self.complain(f"check_consumers: {text}")

    def _channel_of(self, consumer):
        return consumer.rpartition("_")[2]

    def _lost(self):
        """What is there at the end, and never came."""
        for consumer, received in self.received.items():
            came = {one.sequence for one in received}
            for sequence, value in self.history.final[self._channel_of(consumer)]:
                if sequence not in came:
                    yield f"{consumer}: {sequence} ({value}) never came"

    def _wrong(self):
        """What is not the message that is stored under its sequence."""
        for consumer, received in self.received.items():
            channel = self._channel_of(consumer)
            stored = self.history.stored[channel] | dict(self.history.final[channel])
            for one in received:
                if stored.get(one.sequence) != one.value:
                    yield f"{consumer}: {one} came, {stored.get(one.sequence)} is stored"

    def _unflagged(self):
        """What came twice as if it were the first time."""
        for consumer, received in self.received.items():
            first = {}
            for one in received:
                if one.delivered == 1 and first.setdefault(one.sequence, one) is not one:
                    yield f"{consumer}: {one.sequence} came at {first[one.sequence]} and unflagged at {one}"

    def _unordered(self):
        """What came for the first time to one client behind a later one."""
        for consumer, received in self.received.items():
            newest = {}
            for one in received:
                if one.delivered != 1:
                    continue
                before = newest.get((one.client, one.life))
                newest[one.client, one.life] = one
                if before is None or before.sequence < one.sequence:
                    continue
                if not self.history.held_back(before.at, one.at):
                    yield f"{consumer}: {one} came behind {before}"


class NodeConsumers(_Consumers, World):
    """One node, and its disk."""

    def _drained(self):
        return super()._drained() and not self.waiting()


class ClusterConsumers(_Consumers, ClusterWorld):
    """A cluster."""

    def _open_ends(self):
        return super()._open_ends() or self.waiting()


class MovedConsumers(_Consumers, MoveWorld):
    """A cluster whose channels move between groups, with their consumers."""

    drain_s = 160  # many messages, each acked alone

    def _open_ends(self):
        return super()._open_ends() or self.waiting()

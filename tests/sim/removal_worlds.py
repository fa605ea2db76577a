"""Worlds in which an operator purges channels and deletes messages while everybody works: what is gone stays gone, for everybody,
and nothing else goes."""

from stan.protocol import admin_pb2 as admin
from stan.protocol.entries import Kind, decode_batches
from stan.types import MILLISECOND
from tests.sim.clients import SimClient, Subscriber
from tests.sim.cluster_node import values_of
from tests.sim.cluster_world import ClusterWorld
from tests.sim.nats import ClientPort
from tests.sim.scene import CHANNELS
from tests.sim.world import World

SUBJECT = "_STAN.x.test-cluster.admin"


class Operator(SimClient):
    """Asks for one removal after the other, each again and again until it is answered."""

    def __init__(self, world, client_id):
        super().__init__(world, client_id)
        self.job = None  # kind, request, channel, sequences: asked and not answered
        self.done = 0

    def start(self):
        if self.alive:
            return
        self.alive = True
        self.born = self.loop.now
        self.life += 1
        self.conn_id = f"{self.client_id}-conn-{self.life}"
        self.port = ClientPort(self.world.nats, self.conn_id, self.world.server_for(self.client_id))
        self.port.connect()
        self._go_on()

    def _go_on(self):
        if self.job is None and not self.world.quiet:
            self.job = self._make()
        if self.job is not None:
            kind, request, *_ = self.job
            self.request(f"{SUBJECT}.{kind}", request, self._answered, self._go_on)
        elif not self.world.quiet:
            self.later(100 * MILLISECOND, self._go_on)

    def _make(self):
        draw = self.random
        channel = draw.choice(CHANNELS)
        stored = self.history.stored.get(channel)
        if not stored:
            return None
        newest = max(stored)
        if draw.random() < 0.2:
            kind, up_to = "purge", max(1, newest - draw.randint(0, 12))
            request = admin.PurgeRequest(channel=channel.encode(), up_to=up_to)
            sequences = range(1, up_to + 1)
        else:
            kind, sequence = (
                "delete_message",
                max(1, newest - draw.choice((0, draw.randint(0, 5), draw.randint(0, 60)))),
            )
            request = admin.DeleteMessageRequest(channel=channel.encode(), sequence=sequence)
            sequences = (sequence,)
        request.version = 1
        self.history.removal_asked(channel, sequences, self.loop.now)
        return kind, request, channel, sequences

    def _answered(self, payload):
        answer = admin.ChangeResponse.FromString(payload)
        if answer.error:
            if not answer.retry:
                self.world.complain(f"{self.client_id} was refused: {answer.error}")
            self.later(self.random.choice((5, 50, 300)) * MILLISECOND, self._go_on)
            return
        _, _, channel, sequences = self.job
        self.history.removal_done(channel, sequences, self.loop.now)
        self.job = None
        self.done += 1
        self.later(self.random.choice((0, 20, 80, 300)) * MILLISECOND, self._go_on)


class _Removing:
    """A scene with one of them."""

    def make_clients(self, *args, **options):
        super().make_clients(*args, **options)
        self.operator = Operator(self, "operator")
        self.add(self.operator)
        self.loop.after(self.random.randint(0, 900) * MILLISECOND, self.operator.start)

    def waiting(self):
        """Whether it has not got an answer."""
        return "the operator has no answer" if self.operator.job is not None else ""


class NodeRemovals(_Removing, World):
    """One node, and its disk."""

    def boot(self):
        super().boot()
        broker = self.node.broker
        commit = broker.step_committed
        for (
            number,
            group,
        ) in self.node.groups.items():  # what was written, and not known to be committed when the last life ended
            for uid in broker.shared.meta.by_uid:
                for ref in group.log.channel(uid).refs(1, 1 << 40, 1 << 40, 1 << 40):
                    self._stored(number, ref.base_sequence, group.log.read(ref))

        def committed(group, index, kind, body):
            for batch in decode_batches(body) if kind == Kind.RECORDS else ():
                self._stored(group, batch.base_sequence, bytes(batch.records))
            commit(group, index, kind, body)

        broker.step_committed = committed

    def _stored(self, group, base, records):
        values = values_of(records)
        self.history.batch(group, values[0][0], base, records, lambda: [value for _, _, value in values])

    def _drained(self):
        subs = [one.sub for one in self.clients.values() if isinstance(one, Subscriber)]
        served = all(sub is not None and sub.joined_at and not sub.ended_at for sub in subs)
        return served and super()._drained() and not self.waiting()


class ClusterRemovals(_Removing, ClusterWorld):
    """A cluster."""

    def _open_ends(self):
        return super()._open_ends() or self.waiting()

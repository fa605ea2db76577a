"""Worlds in which some clients send batches of rows: with ids, again and again until they are answered, as the same request or
with rows of the one before; or without, once. Each row is stored once, whatever happens meanwhile."""

from stan_protocol.kernel.rows import ID_BYTES
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.proto.extension_pb2 import BatchRequest, BatchResponse
from stan_protocol.scalars import MILLISECOND

from tests.sim.clients import SimClient
from tests.sim.cluster_world import ClusterWorld
from tests.sim.history import Publish
from tests.sim.scene import CHANNELS
from tests.sim.world import World

SUBJECT = "_STAN.x.test-cluster.batch"


class Batcher(SimClient):
    """A producer. It needs no registration, and remembers over its lives what it has sent."""

    def __init__(self, world, client_id):
        super().__init__(world, client_id)
        self.number = self.version = 0
        self.rows = []  # numbers and values of the last request
        self.known = CHANNELS[0], []  # channel and rows of the last one with ids
        self.request_waiting = None  # asked, and not answered yet
        self.answers = 0

    def _begin(self):
        self._unanswered()

    def _go_on(self):
        if self.request_waiting is None and not self.world.quiet:
            self.request_waiting = self._make()
        if self.request_waiting is not None:
            self.request(SUBJECT, self.request_waiting, self._answered, self._unanswered)

    def _unanswered(self):
        """What has ids is asked again; of the rest nobody knows whether it is stored."""
        if self.request_waiting is not None and not self.request_waiting.ids:
            self.request_waiting = None
        self._go_on()

    def _make(self):
        """The next request: new rows, behind some that are stored already."""
        draw = self.random
        with_ids = draw.random() < 0.8
        channel, before = self.known
        again = before[draw.randint(0, len(before)) :] if with_ids and draw.random() < 0.3 else []
        if not again:
            channel = draw.choice(CHANNELS)
        if draw.random() < 0.2:
            self.version += 1
        writer = self.client_id if with_ids else f"{self.client_id}-{self.number}"  # may come behind what is sent later
        self.rows = again + [self._row(writer, channel) for _ in range(draw.randint(0 if again else 1, 9))]
        if with_ids:
            self.known = channel, self.rows
        rows = [wire.MsgProto(data=value.encode()).SerializeToString() for _, value in self.rows]
        return BatchRequest(
            channel=channel.encode(),
            count=len(rows),
            producer=self.client_id.encode(),
            version=self.version,
            ids=b"".join(number.to_bytes(ID_BYTES, "big") for number, _ in self.rows if with_ids),
            rows=b"".join(len(row).to_bytes(4, "little") + row for row in rows),
        )

    def _row(self, writer, channel):
        self.number += 1
        value = f"{self.client_id}-{self.number}"
        publish = Publish(writer, self.number, channel, value, self.loop.now)
        self.history.publishes[value] = publish
        return self.number, value

    def _answered(self, payload):
        answer = BatchResponse.FromString(payload)
        if answer.error:
            if not answer.retry:
                self.world.complain(f"{self.client_id} was refused: {answer.error}")
            self.later(self.random.choice((5, 50, 300)) * MILLISECOND, self._unanswered)
            return
        self.answers += 1
        self.request_waiting = None
        stored = answer.last_sequence - answer.first_sequence + 1 if answer.first_sequence else 0
        if stored + answer.duplicates != len(self.rows):
            self.world.complain(f"{self.client_id}: {answer} to {len(self.rows)} rows")
        for _, value in self.rows:
            publish = self.history.publishes[value]
            if not publish.ok_at:
                publish.ok_at = self.loop.now
                self.world.acknowledged(publish)
        self.later(self.random.choice((0, 30, 150, 500)) * MILLISECOND, self._go_on)


class _Batches:
    """A scene with some of them."""

    batcher = Batcher

    def make_clients(self, *args, **options):
        super().make_clients(*args, **options)
        self.batchers = [self.batcher(self, f"batch{n}") for n in range(3)]
        for batcher in self.batchers:
            self.add(batcher)
            self.loop.after(self.random.randint(0, 500) * MILLISECOND, batcher.start)

    def waiting(self):
        """Who has not got an answer."""
        return next((f"{one.client_id} has no answer" for one in self.batchers if one.request_waiting is not None), "")


class BatchWorld(_Batches, World):
    """One node, and its disk."""

    def _drained(self):
        return super()._drained() and not self.waiting()


class BatchClusterWorld(_Batches, ClusterWorld):
    """A cluster."""

    def _open_ends(self):
        return super()._open_ends() or self.waiting()

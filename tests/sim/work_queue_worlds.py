"""Worlds with a stream that is a work queue, or keeps messages by interest, under all faults: each message that was acknowledged
reaches the consumer of its subject, or all consumers, and goes with its ack, or with those of all, not before.
"""

from stan_protocol.scalars import MILLISECOND, SECOND

from stan.protocol.compressed_batches import in_clear
from stan.protocol.entries import Kind, decode_batches
from stan.protocol.placement import channel_group
from tests.sim.clients import value_of
from tests.sim.cluster_world import ClusterWorld
from tests.sim.consumer_worlds import ACK_WAIT, Puller, Received, came_after_acks
from tests.sim.move_world import MoveWorld
from tests.sim.stream_worlds import STREAMS, ClusterStreaming, JetStreamClient, Streaming
from tests.sim.ttl_worlds import messages_of
from tests.sim.world import World

JOBS = "JOBS"
"""The work queue, and its channel."""
KINDS = ("job.a", "job.b")


class Employer(JetStreamClient):
    """Publishes jobs, each under an id until it is answered."""

    def go_on(self):
        if not self.world.may_begin():
            self.later(50 * MILLISECOND, self.go_on)
            return
        if self.publish_waiting is None and not self.world.quiet:
            self.publish_waiting = self.new(self.client_id, JOBS), self.random.choice(self.world.kinds)
        if self.publish_waiting is None:
            return
        publish, subject = self.publish_waiting

        def answer(told):
            if "error" in told:
                self.later(self.random.choice((5, 50, 300)) * MILLISECOND, self.go_on)
                return
            self.publish_waiting = None
            self.stored(publish, told)
            self.later(self.random.choice((0, 10, 100)) * MILLISECOND, self.go_on)

        self.ask(subject, publish.value.encode(), answer, self.go_on, (("Nats-Msg-Id", publish.value),))

    publish_waiting = None


class Worker(Puller):
    """Pulls jobs of one kind."""

    def __init__(self, world, client_id, kind, consumer, config):
        super().__init__(world, client_id, kind, consumer, config)
        self.stream = JOBS

    def begin(self):
        self.world.made.add(self.consumer)
        super().begin()

    def came(self, payload, reply):
        ack, _, subject = reply.rpartition("@")
        if ack:
            sequence = int(ack.split(".")[-4])
            self.world.fail_if(
                sequence in self.world.others(self.consumer), f"{self.client_id} got {sequence} of another consumer"
            )
            self.world.fail_if(subject != self.channel, f"{self.client_id} got a job under {subject}")
        return super().came(payload, reply)


class _WorkQueues(Streaming):
    """Two consumers with two workers each."""

    kinds = KINDS
    streams = STREAMS | {JOBS: ["job.*"]}
    channels = (*Streaming.channels, JOBS)

    def __init__(self, seed, **how):
        super().__init__(seed, **how)
        self.options = {JOBS: {"retention": "workqueue"}}
        self.history.with_ids, self.history.acked_away = ("id", "emp"), {JOBS}
        self.received = {f"for_{kind[-1]}": [] for kind in KINDS}
        self.synced = {consumer: {} for consumer in self.received}  # sequence -> when its ack was answered
        self.made = set()  # consumers
        self.jobs = {}  # sequence -> value, all that were committed

    def jetstream_clients(self):
        config = {"ack_wait": ACK_WAIT, "max_ack_pending": self.random.choice((1, 4, 20))}
        workers = [Worker(self, f"work{kind[-1]}{n}", *self.wishes(kind, config)) for kind in KINDS for n in range(2)]
        return [*super().jetstream_clients(), *(Employer(self, f"emp{n}") for n in range(2)), *workers]

    def wishes(self, kind, config):
        """Of a worker: the jobs that it gets, its consumer, and the configuration of that."""
        return kind, f"for_{kind[-1]}", config | {"filter_subject": kind}

    def may_begin(self):
        """Whether jobs may be published."""
        return True

    @property
    def done(self):
        """Jobs whose acks were answered."""
        return sum(map(len, self.synced.values()))

    def others(self, consumer):
        """The sequences that came to another consumer."""
        return {one.sequence for name, received in self.received.items() if name != consumer for one in received}

    def change_committed(self, broker, group, index, kind, body):
        super().change_committed(broker, group, index, kind, body)
        info = broker.view.meta.channels.get(JOBS.encode())
        for batch in decode_batches(body) if kind == Kind.RECORDS and info is not None else ():
            for message in messages_of(bytes(in_clear(batch))) if batch.uid == info.uid else ():
                self.jobs[message.sequence] = value_of(message)
                self.history.stored[JOBS].setdefault(message.sequence, value_of(message))
                self.history.removal_asked(JOBS, [message.sequence], self.loop.now)

    def read_all(self):
        end = self.loop.now + 60 * SECOND
        while self._left() and self.loop.now < end:
            self.loop.run_until(self.loop.now + SECOND // 4)
        self.loop.run_until(self.loop.now + 5 * ACK_WAIT)  # what has come last is acked, and goes
        super().read_all()
        for text in (*self._lost(), *came_after_acks(self)):
            self.complain(f"check_work_queues: {text}")

    def _left(self):
        """The jobs that nobody has got."""
        came = {one.sequence for received in self.received.values() for one in received}
        return self.jobs.keys() - came

    def _lost(self):
        for sequence in sorted(self._left()):
            yield f"{sequence} ({self.jobs[sequence]}) never came"
        for received in self.received.values():
            yield from (f"{one} came, {self.jobs[one.sequence]} is stored" for one in received if not self._right(one))
        there = [sequence for sequence, _ in self.history.final[JOBS]]
        yield from (f"{sequence} is there, its ack was answered" for sequence in there if self._is_done(sequence))

    def _is_done(self, sequence):
        """Whether the acks of those who were to get a job were answered."""
        return any(sequence in synced for synced in self.synced.values())

    def _right(self, one: Received):
        return self.jobs[one.sequence] == one.value


class _Interest(_WorkQueues):
    """Two consumers that both get every job."""

    kinds = KINDS[:1]

    def __init__(self, seed, **how):
        super().__init__(seed, **how)
        self.options = {JOBS: {"retention": "interest"}}

    def wishes(self, kind, config):
        return KINDS[0], f"for_{kind[-1]}", config

    def may_begin(self):
        return len(self.made) == len(self.received)

    def others(self, consumer):
        return set()

    def _left(self):
        came = [{one.sequence for one in received} for received in self.received.values()]
        return self.jobs.keys() - set.intersection(*came)

    def _is_done(self, sequence):
        return all(sequence in synced for synced in self.synced.values())


class NodeWorkQueues(_WorkQueues, World):
    """One node, and its disk."""

    def _drained(self):
        return super()._drained() and not self.waiting()


class NodeInterest(_Interest, World):
    """One node, and its disk."""

    def _drained(self):
        return super()._drained() and not self.waiting()


class _OfCluster(ClusterStreaming):
    def __init__(self, seed, **how):
        super().__init__(seed, **how)
        self.history.group_of[JOBS] = channel_group(JOBS.encode(), self.raft_groups)


class ClusterWorkQueues(_WorkQueues, _OfCluster, ClusterWorld):
    """A cluster."""


class MovedWorkQueues(_WorkQueues, _OfCluster, MoveWorld):
    """A cluster in which the channel of the work queue is moved between groups."""


class ClusterInterest(_Interest, _OfCluster, ClusterWorld):
    """A cluster."""


class MovedInterest(_Interest, _OfCluster, MoveWorld):
    """A cluster in which the stream's channel is moved between groups."""

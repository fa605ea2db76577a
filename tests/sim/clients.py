"""Simulated STAN clients: publishers and subscribers that ack late, forget to, die and come back."""

from stan.protocol import wire_pb2 as wire
from stan.types import MILLISECOND, SECOND
from tests.sim.history import Delivery

ACK_WAIT_S = 1


class SimClient:
    """Connects, answers heartbeats, retries what gets no answer."""

    def __init__(self, world, client_id):
        self.world = world
        self.nats = world.nats
        self.loop = world.loop
        self.random = world.loop.random
        self.client_id = client_id
        self.alive = False
        self.life = 0  # incarnation; callbacks of earlier ones are ignored
        self.hb_inbox = ""

    def start(self):
        if self.alive:  # two faults close together each plan a start
            return
        self.alive = True
        self.life += 1
        self.conn_id = f"{self.client_id}-conn-{self.life}"
        self.hb_inbox = f"hb.{self.conn_id}"
        self.nats.inboxes[self.hb_inbox] = lambda _payload, reply: self.nats.publish(reply, b"")
        self._connect()

    def die(self):
        """The process is gone: its inboxes are nobody's."""
        self.alive = False
        self.life += 1
        for subject in [s for s in self.nats.inboxes if f".{self.client_id}-conn-" in s]:
            del self.nats.inboxes[subject]

    def request(self, subject, message, answer, timeout, late):
        """One request; `late()` when no answer came in time."""
        life = self.life
        self.world.replies += 1
        inbox = f"reply.{self.conn_id}.{self.world.replies}"

        def answered(payload, _reply):
            if self.nats.inboxes.pop(inbox, None) is not None and life == self.life:
                answer(payload)

        def check():
            if self.nats.inboxes.pop(inbox, None) is not None and life == self.life:
                late()

        self.nats.inboxes[inbox] = answered
        self.nats.publish(subject, message.SerializeToString(), inbox)
        self.loop.after(timeout, check)

    def _connect(self):
        request = wire.ConnectRequest(
            client_id=self.client_id.encode(),
            heartbeat_inbox=self.hb_inbox.encode(),
            protocol=1,
            conn_id=self.conn_id.encode(),
            ping_interval=5,
            ping_max_out=88,
        )

        def answer(payload):
            response = wire.ConnectResponse.FromString(payload)
            if response.error:
                self._again(self._connect)
            else:
                self.on_connected()

        # A real client gives its NATS connection up, and with it the inbox by which the broker would find it alive.
        self.request("_STAN.discover.test-cluster", request, answer, 2 * SECOND, lambda: (self.die(), self.start()))

    def _again(self, call):
        life = self.life
        self.loop.after(100 * MILLISECOND, lambda: call() if life == self.life else None)

    def on_connected(self):
        """Connected: go on."""


class Publisher(SimClient):
    """Publishes bursts; a publish without an answer in time is unknown and is not sent again."""

    def __init__(self, world, client_id, channels):
        super().__init__(world, client_id)
        self.channels = channels
        self.number = 0
        self.waiting = {}

    def on_connected(self):
        inbox = f"acks.{self.conn_id}"
        self.nats.inboxes[inbox] = lambda payload, _reply: self._acked(payload)
        self._burst(self.life, inbox)

    def _burst(self, life, inbox):
        if life != self.life or self.world.quiet:
            return
        channel = self.random.choice(self.channels)
        for _ in range(self.random.randint(1, 12)):
            self.number += 1
            value = f"{self.client_id}-{self.number}"
            guid = f"{self.conn_id}-{self.number}"
            self.world.history.attempted.add((channel, value))
            self.waiting[guid] = (channel, value)
            message = wire.PubMsg(
                client_id=self.client_id.encode(),
                guid=guid.encode(),
                subject=channel.encode(),
                data=value.encode(),
                conn_id=self.conn_id.encode(),
            )
            self.nats.publish(f"_STAN.pub.test-cluster.{channel}", message.SerializeToString(), inbox)
        self.loop.after(self.random.randint(1, 60) * MILLISECOND, self._burst, life, inbox)

    def _acked(self, payload):
        ack = wire.PubAck.FromString(payload)
        known = self.waiting.pop(ack.guid.decode(), None)
        if known is not None:
            (self.world.history.refused if ack.error else self.world.history.acked).add(known)


class Subscriber(SimClient):
    """One member of a position; acks late, sometimes not at all, until the world is to be drained."""

    def __init__(self, world, client_id, channel, consumer, *, durable="", queue="", in_flight=4, start=4):
        super().__init__(world, client_id)
        self.channel, self.consumer = channel, consumer
        self.durable, self.queue, self.in_flight, self.start_position = durable, queue, in_flight, start
        self.joined = 0

    def on_connected(self):
        self._subscribe()

    def _subscribe(self):
        life = self.life
        self.world.joins += 1
        self.joined = joined = self.world.joins
        inbox = f"msgs.{self.conn_id}.{self.world.joins}"
        request = wire.SubscriptionRequest(
            client_id=self.client_id.encode(),
            subject=self.channel.encode(),
            queue_group=self.queue.encode(),
            durable_name=self.durable.encode(),
            inbox=inbox.encode(),
            max_in_flight=self.in_flight,
            ack_wait_s=ACK_WAIT_S,
            start_position=self.start_position,
        )
        ready = []
        breaks = self.world.breaks

        def answer(payload):
            response = wire.SubscriptionResponse.FromString(payload)
            if response.error:
                self._again(self._subscribe)
            else:
                ready.append(response.ack_inbox.decode())

        def message(payload, _reply):
            if life == self.life:
                if not ready and self.world.breaks == breaks:  # a break may lose the response; delivery goes on
                    self.world.problems.append(f"{inbox} got a message before its response")
                if ready:
                    self._message(wire.MsgProto.FromString(payload), ready[0], joined)

        self.nats.inboxes[inbox] = message
        # A lost answer leaves a subscription behind that only the end of this client's life removes: so end it.
        self.request("_STAN.sub.test-cluster", request, answer, 2 * SECOND, lambda: (self.die(), self.start()))

    def _message(self, message, ack_inbox, joined):
        self.world.history.events.append(
            Delivery(
                self.consumer,
                self.client_id,
                self.channel,
                message.sequence,
                message.data.decode(),
                message.redelivered,
                message.redelivery_count,
                self.in_flight,
                joined,
                self.loop.now,
                ACK_WAIT_S * SECOND,
            )
        )
        if self.random.random() < 0.05 and not self.world.quiet:
            return  # forgotten
        delay = self.random.choice((0, 1, 5, 40, 1500 if not self.world.quiet else 2)) * MILLISECOND
        self.loop.after(delay, self._ack, message.sequence, ack_inbox, self.life)

    def _ack(self, sequence, ack_inbox, life):
        if life == self.life:
            payload = wire.Ack(subject=self.channel.encode(), sequence=sequence).SerializeToString()
            self.nats.publish(ack_inbox, payload)
            self.world.history.events.append(("ack", self.consumer, sequence))

"""Simulated STAN clients: publishers, and subscribers that ack late, forget to, close, unsubscribe, die and come back.

They do what real clients do: answer heartbeats, ping, begin anew when they are told that they are gone or nobody answers, and
send after a reconnect what they wanted to send before. All they see goes into the history.
"""

from random import Random

from stan_protocol.compaction import DELETE_HEADER
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND, SECOND

from tests.kit.guids import guids
from tests.sim.client_port import ClientPort
from tests.sim.history import Acked, Delivered, Ended, Publish, Sub

REQUEST_TIMEOUT = 2 * SECOND
PING_INTERVAL = 2 * SECOND
PINGS_OUT_MAX = 3
ATTEMPTS = 5
START = {"first": 4, "new": 0}
WITHOUT_GUID = 0.02
"""How often a publish is followed by one that has none."""


def value_of(message):
    """What the publisher of a message has called it: the data, or what a tombstone has in their place."""
    return message.data.decode() or next(
        (one.value.decode() for one in message.headers if one.key == DELETE_HEADER), ""
    )


class SimClient:
    """One client id over its lives."""

    def __init__(self, world, client_id):
        self.world = world
        self.loop = world.loop
        self.random = world.loop.random
        self.history = world.history
        self.client_id = client_id
        self.alive = False
        self.life = 0  # callbacks of earlier ones are ignored
        self.port = None
        self.requests = 0
        self.born = 0

    @property
    def age(self):
        """How long this life lasts."""
        return self.loop.now - self.born

    def start(self):
        if self.alive:  # two faults close together each plan a start
            return
        self.alive = True
        self.born = self.loop.now
        self.life += 1
        self.conn_id = f"{self.client_id}-conn-{self.life}"
        self.port = ClientPort(self.world.nats, self.conn_id, self.world.server_for(self.client_id))
        self.port.connect()
        self._begin()

    def _begin(self):
        """The first thing in each life."""
        self.hb_inbox = f"_INBOX.hb.{self.conn_id}"
        self.port.listen(self.hb_inbox, lambda _payload, reply: self.port.publish(reply, b""))
        self._connect()

    def die(self):
        """The process is gone: its inboxes are nobody's."""
        if self.alive:
            self.alive = False
            self.life += 1
            self.port.cut()

    def restart(self):
        self.die()
        self.start()

    def later(self, delay, call, *args):
        """Unless this life is over by then."""
        life = self.life
        self.loop.after(delay, lambda: call(*args) if life == self.life else None)

    def request(self, subject, message, answer, late):
        """One request; `late()` when no answer came in time."""
        self.requests += 1
        inbox = f"_INBOX.reply.{self.conn_id}.{self.requests}"
        port = self.port

        def answered(payload, _reply):
            port.forget(inbox)
            answer(payload)

        def check():
            if port.forget(inbox):
                late()

        port.listen(inbox, answered)
        port.publish(subject, message.SerializeToString(), inbox)
        self.later(REQUEST_TIMEOUT, check)

    def _connect(self):
        request = wire.ConnectRequest(
            client_id=self.client_id.encode(),
            heartbeat_inbox=self.hb_inbox.encode(),
            protocol=1,
            conn_id=self.conn_id.encode(),
            ping_interval=PING_INTERVAL // SECOND,
            ping_max_out=PINGS_OUT_MAX,
        )

        def answer(payload):
            if wire.ConnectResponse.FromString(payload).error:
                self.die()
                self.loop.after(100 * MILLISECOND, self.start)
            else:
                self.later(PING_INTERVAL, self._ping, 0)
                self.on_connected()

        # A real client gives its NATS connection up, and with it the inbox by which the broker would find it alive.
        self.request("_STAN.discover.test-cluster", request, answer, self.restart)

    def _ping(self, out):
        def answer(payload):
            if payload:  # replaced, or no longer registered
                self.restart()
            else:
                self.later(PING_INTERVAL, self._ping, 0)

        def late():
            if out >= PINGS_OUT_MAX:
                self.restart()
            else:
                self._ping(out + 1)

        ping = wire.Ping(conn_id=self.conn_id.encode())
        self.request("_STAN.discover.test-cluster.pings", ping, answer, late)

    def timed_out(self):
        """The broker says that it has given this client up; it will learn so by its next ping."""

    def on_connected(self):
        """Connected: go on."""


class Publisher(SimClient):
    """Publishes bursts, or one at a time. What is not answered in time is unknown; it is sent again as another message."""

    def __init__(self, world, client_id, channels, pace=60 * MILLISECOND):
        super().__init__(world, client_id)
        self.channels = channels
        self.pace = pace
        self.number = 0
        self.one_by_one = self.random.random() < 0.4
        self.patience = self.random.choice((SECOND, 3 * SECOND))
        self.odd = Random(f"{world.loop.seed} {client_id}")  # nothing else of the run depends on how guids look

    def on_connected(self):
        self.waiting = {}  # guid -> Publish
        self.guids = guids(self.odd)
        self.inbox = f"_INBOX.acks.{self.conn_id}"
        self.port.listen(self.inbox, lambda payload, _reply: self._acked(payload))
        self._burst()

    def _burst(self):
        if self.world.quiet:
            return
        channel = self.random.choice(self.channels)
        for _ in range(1 if self.one_by_one else self.random.randint(1, 12)):
            self._publish(channel)
        if not self.one_by_one:
            self.later(self.random.randint(1, self.pace // MILLISECOND) * MILLISECOND, self._burst)

    def _publish(self, channel):
        self.number += 1
        value = f"{self.client_id}-{self.number}"
        guid = next(self.guids)
        publish = Publish(self.conn_id, self.number, channel, value, self.loop.now)
        self.history.publishes[value] = publish
        self.waiting[guid] = publish
        self._send(channel, guid, value)
        if self.odd.random() < WITHOUT_GUID:
            self._send(channel, b"", f"{value} without a guid")  # refused: one that is stored was never published
        if self.one_by_one:
            self.later(self.patience, self._give_up, publish)

    def _send(self, channel, guid, value, **more):
        message = wire.PubMsg(
            client_id=self.client_id.encode(),
            guid=guid,
            subject=channel.encode(),
            data=value.encode(),
            conn_id=self.conn_id.encode(),
            key=self.key_of(value),
            **more,
        )
        self.port.publish(f"_STAN.pub.test-cluster.{channel}", message.SerializeToString(), self.reply_of(value))

    def reply_of(self, _value):
        """Where the ack of a message is to come; "": none is wanted."""
        return self.inbox

    def key_of(self, _value):
        """Of a message."""
        return b""

    def _give_up(self, publish):
        if not publish.ok_at and not publish.failed_at and not self.world.quiet:
            self._publish(publish.channel)

    def _acked(self, payload):
        ack = wire.PubAck.FromString(payload)
        publish = self.waiting.get(ack.guid)
        if publish is None:
            return
        first = not publish.ok_at and not publish.failed_at  # a new leader may say it once more
        if ack.error:
            publish.failed_at = publish.failed_at or self.loop.now
        elif not publish.ok_at:
            publish.ok_at = self.loop.now
            self.world.acknowledged(publish)
        if self.one_by_one and first and self.loop.now < publish.asked_at + self.patience:
            self.later(self.random.choice((0, self.random.randint(0, self.pace))), self._burst)


class Subscriber(SimClient):
    """One member of a position, of any kind; a good citizen once the world is to be drained."""

    def __init__(self, world, client_id, channel, consumer, kind="durable", *, in_flight=4, start="first", restless=0):
        super().__init__(world, client_id)
        self.channel, self.consumer, self.kind = channel, consumer, kind
        self.in_flight, self.start_position = in_flight, start
        self.restless = restless  # how often it closes and comes back, per delivery
        self.ack_wait_s = 1
        self.replica = b""  # which node it wants to be served by
        self.epoch = 0  # of a durable: it begins anew when it is unsubscribed
        self.sub = None
        self.ack_inbox = ""
        self.inboxes = 0

    @property
    def shared(self):
        return self.kind.endswith("queue")

    @property
    def durable(self):
        return self.kind.startswith("durable")

    @property
    def position(self):
        if self.kind == "plain":
            return f"{self.consumer}.{self.life}.{self.inboxes}"
        return f"{self.consumer}.{self.epoch}"

    def on_connected(self):
        self._subscribe(0)

    def die(self):
        # Once more if it was closed: whether the broker heard of that is not known. It may be an earlier life's that has died.
        if self.alive and self.sub is not None:
            self.sub.ended_at = self.sub.ended_at or self.loop.now
            self.sub.died_at = self.sub.died_at or self.loop.now
            self.history.events.append(Ended(self.loop.now, self.sub))
        super().die()

    def timed_out(self):
        self._ended()

    def _ended(self):
        if self.sub is not None and not self.sub.ended_at:
            self.sub.ended_at = self.loop.now
            self.history.events.append(Ended(self.loop.now, self.sub))

    # --- subscribe ----------------------------------------------------------------------------------------------------------

    def _subscribe(self, attempt):
        self.inboxes += 1
        asked_at = self.loop.now
        sub = Sub(
            self.position,
            self.client_id,
            self.channel,
            self.kind,
            self.in_flight,
            self.ack_wait_s * SECOND,
            self.start_position,
            self.history.begun.setdefault(self.position, asked_at),
        )
        self.sub = sub
        self.ack_inbox = ""
        inbox = f"_INBOX.msgs.{self.conn_id}.{self.inboxes}"
        request = wire.SubscriptionRequest(
            client_id=self.client_id.encode(),
            subject=self.channel.encode(),
            queue_group=b"q" if self.shared else b"",
            durable_name=f"d{self.epoch}".encode() if self.durable else b"",
            inbox=inbox.encode(),
            max_in_flight=self.in_flight,
            ack_wait_s=self.ack_wait_s,
            start_position=START[self.start_position],
            replica=self.replica,
        )

        def answer(payload):
            response = wire.SubscriptionResponse.FromString(payload)
            if response.error:
                self.port.forget(inbox)
                self.sub = None
                if attempt < ATTEMPTS:
                    self.later(100 * MILLISECOND, self._subscribe, attempt + 1)
                else:
                    self.later(100 * MILLISECOND, self.restart)
                return
            self.ack_inbox = response.ack_inbox.decode()
            if self.kind == "queue":  # it lives as long as somebody is in it
                sub.consumer = f"{self.consumer}.{self.world.cursor_of(response.ack_inbox)}"
            self.history.joined(self.loop.now, sub)

        def message(payload, _reply):
            if sub.joined_at:
                self._message(wire.MsgProto.FromString(payload), sub)
            elif not self.history.explained(asked_at, self.loop.now, (self.client_id,)):  # else the response was lost
                self.world.problems.append(f"{inbox} got a message before its response")

        self.port.listen(inbox, message)
        # A lost answer leaves a subscription behind that only the end of this client's life removes: so end it.
        self.request("_STAN.sub.test-cluster", request, answer, self.restart)

    def _message(self, message, sub):
        value = value_of(message)
        self.history.events.append(
            Delivered(self.loop.now, sub, message.sequence, value, message.redelivered, message.redelivery_count)
        )
        if sub is not self.sub or sub.ended_at:
            return  # closed meanwhile
        quiet = self.world.quiet
        if not quiet and self.restless and self.random.random() < self.restless:
            self._leave()
        elif quiet or self.random.random() >= 0.05:  # else it is forgotten
            delay = 2 if quiet else self.random.choice((0, 1, 5, 40, 1500))
            self.later(delay * MILLISECOND, self._ack, sub, message.sequence, self.ack_inbox)

    def _ack(self, sub, sequence, ack_inbox):
        if sub is self.sub and not sub.ended_at:
            payload = wire.Ack(subject=self.channel.encode(), sequence=sequence).SerializeToString()
            self.port.publish(ack_inbox, payload)
            self.history.events.append(Acked(self.loop.now, sub, sequence))

    # --- close, unsubscribe -------------------------------------------------------------------------------------------------

    def _leave(self):
        """Close, or unsubscribe."""
        unsubscribe = self.kind != "durable queue" and self.random.random() < 0.3
        self._ended()
        subject = "_STAN.unsub.test-cluster" if unsubscribe else "_STAN.subclose.test-cluster"
        request = wire.UnsubscribeRequest(
            client_id=self.client_id.encode(), subject=self.channel.encode(), inbox=self.ack_inbox.encode()
        )
        if unsubscribe and self.kind == "durable":  # whatever comes of it: that position is not asked for again
            self._begin_anew()
        self.request(subject, request, self._left, self.restart)

    def _begin_anew(self):
        self.history.must_finish.pop(self.position, None)
        self.epoch += 1
        self.history.must_finish[self.position] = self.channel

    def _left(self, payload):
        if wire.SubscriptionResponse.FromString(payload).error:
            self.restart()
            return
        self.later(self.random.choice((0, 5, 80, 700)) * MILLISECOND, self._subscribe, 0)

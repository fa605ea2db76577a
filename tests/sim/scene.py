"""What a world of one node and a world of many have in common: time, NATS, clients, their faults, the history."""

import hashlib
import re

from stan_protocol.scalars import MILLISECOND, SECOND

from stan.core.state.cursors import Cursor
from stan.protocol.entries import Kind, decode_records
from stan.protocol.proto import entries_pb2 as entries
from stan.protocol.user_subjects import ACK_GROUPS
from stan.testing.loop import WALL_START, Loop
from stan.testing.nats import SimNats
from tests.kit.broker_state import BrokerState
from tests.sim.clients import Publisher, Subscriber
from tests.sim.history import History

CHANNELS = ("a", "b")
TIMED_OUT = re.compile(r"\[Client:(\S+)\] Timed out on heartbeats")
NOTICED = 6 * SECOND
"""A client that dies, or that a fault cuts off, is given up by then."""


def reader_of(channel):
    """The client that reads a channel in the end."""
    return "reader-" + re.sub(r"[^\w-]", "_", channel)


class Scene:
    """One run."""

    subscriber = Subscriber
    publisher = Publisher
    channels = CHANNELS  # that are read in the end
    policies = ()  # of every node's configuration
    jetstream = False  # whether nodes serve clients of JetStream

    def __init__(self, seed):
        self.seed = seed
        self.loop = Loop(seed)
        self.random = self.loop.random
        self.use_servers(1)
        self.history = History()
        self.history.tells_causes = True
        self.quiet = False  # nobody publishes any more, everybody acks
        self.problems = []
        self.digest = hashlib.sha256()
        self.faults = []  # (when, kind)
        self.clients = {}
        self._cursors_by_ack = {}  # (group, key) of a subscription's ack inbox -> cursor id

    def use_servers(self, count):
        """How many servers NATS has."""
        self.servers = count
        self.nats = SimNats(self.loop, count)

    # --- what the parts tell --------------------------------------------------------------------------------------------

    def trace(self, text):
        self.digest.update(f"{self.loop.now} {text}\n".encode())

    def complain(self, text):
        self.problems.append(f"{self.loop.now / SECOND:.4f} {text}")

    def fail_if(self, condition, text):
        if condition:
            self.complain(text)

    def crashed(self, error):
        raise error

    def server_for(self, client_id):
        """Which NATS server a client connects to."""
        return self.random.randrange(self.servers)

    def acknowledged(self, publish):
        """A publisher has got its ack."""

    def is_owed(self, cursor):
        """Whether a position has messages that are to be sent again."""
        return bool(cursor.to_redeliver)

    def wall_zero(self, _node):
        """The wall time of a node when the run began."""
        return WALL_START

    def change_committed(self, broker, group, index, kind, body):
        """A node has applied an entry: the history keeps its changes, and the tables of what it serves are looked at."""
        for wrong in BrokerState(broker).misplaced(group):
            self.complain(f"check_pending: {wrong}")
        if (group, index) in self.history.changes or kind not in (Kind.CHANGE, Kind.RECORDS):
            return
        bodies = [body] if kind == Kind.CHANGE else decode_records(body)[2]
        changes = [entries.GroupChange.FromString(one) for one in bodies]
        zero = next((self.wall_zero(change.node.decode()) for change in changes if change.at), 0)
        self.history.changes[group, index] = changes, zero
        state = BrokerState(broker)
        for progress in [progress for change in changes for progress in change.progress]:
            place = group, progress.cursor_id
            known = None if place in self.history.cursors else state.position_of(progress.cursor_id, group)
            if known is not None:
                named = known.cursor_id, known.uid, known.kind, known.name, known.client_id
                self.history.cursors[place] = Cursor(*named, known.last_sent)
        for change in changes:
            if change.WhichOneof("change") == "subscribe":
                key = change.subscribe.ack_key or index
                for sub in state.subscriptions(group):
                    if sub.ack_key == key:
                        self._cursors_by_ack[group, key] = sub.cursor_id

    def cursor_of(self, ack_inbox):
        """A name for the position behind an ack inbox, also when no node is up that knows it."""
        *_, group, key = ack_inbox.decode().split(".")
        return self._cursors_by_ack.get((int(group) % ACK_GROUPS, int(key)), f"of {ack_inbox}")

    def heartbeats_failed(self, text):
        """A node's note may say that it gives a client up: only if something is wrong with it."""
        found = TIMED_OUT.search(text)
        client = self.clients.get(found[1]) if found else None
        if client is None:
            return found is not None
        expected = not client.alive or client.age <= NOTICED
        if not expected and not self.history.explained(self.loop.now - NOTICED, self.loop.now, (found[1],)):
            self.complain(f"gave {found[1]} up for no reason")
        client.timed_out()
        return True

    # --- clients --------------------------------------------------------------------------------------------------------

    def add(self, client):
        self.clients[client.client_id] = client

    def make_clients(self, restless=0.0, pace=60 * MILLISECOND):
        """Two writers; per channel a durable, a durable group of three, and more where the seed says so."""
        draw, finish = self.random, self.history.must_finish
        for n in range(2):
            self.add(self.publisher(self, f"writer{n}", CHANNELS, pace))
        for n, channel in enumerate(CHANNELS):
            window = draw.choice((1, 2, 4, 9))
            durable = self.subscriber(self, f"dur{n}", channel, f"durable{n}", in_flight=window, restless=restless)
            self.add(durable)
            finish[durable.position] = channel
            for m in range(3):
                member = self.subscriber(self, f"grp{n}{m}", channel, f"group{n}", "durable queue", restless=restless)
                member.in_flight = draw.choice((1, 3, 8))
                self.add(member)
                finish[member.position] = channel
            if draw.random() < 0.4:
                start = draw.choice(("first", "new"))
                self.add(self.subscriber(self, f"pln{n}", channel, f"plain{n}", "plain", in_flight=5, start=start))
            if draw.random() < 0.3:
                for m in range(2):
                    self.add(self.subscriber(self, f"que{n}{m}", channel, f"queue{n}", "queue", restless=restless))
        for client in self.clients.values():
            self.loop.after(draw.randint(0, 500) * MILLISECOND, client.start)

    def kill_client(self, client):
        client.die()
        self.loop.after(self.random.randint(50, 2500) * MILLISECOND, client.start)

    def cut_client(self, client):
        """Its connection to NATS breaks and comes back; it goes on as if nothing had been."""
        port = client.port
        if port is None or not port.cut():
            return
        length = self.random.randint(20, 1500) * MILLISECOND
        self.history.cause(self.loop.now, self.loop.now + length, "cut off", client.client_id)
        life = client.life
        self.loop.after(length, lambda: port.connect() if client.life == life else None)

    def read_all(self):
        """Somebody reads every channel from its beginning."""
        for channel in self.channels:
            reader = Subscriber(self, reader_of(channel), channel, reader_of(channel), "plain", in_flight=100)
            self.add(reader)
            reader.start()
        end = self.loop.now + 30 * SECOND
        while self.loop.now < end and not all(self._has_read(channel) for channel in self.channels):
            self.loop.run_until(self.loop.now + SECOND // 4)
        for channel in self.channels:
            self.history.final[channel] = self._read_by(reader_of(channel))

    def _read_by(self, reader):
        return [(d.sequence, d.value) for d in self.history.deliveries if d.sub.member == reader]

    def _has_read(self, channel):
        """Only if it is known how much there is."""
        last = max(self.history.surely_there(channel), default=0)
        read = self._read_by(reader_of(channel))
        return last > 0 and bool(read) and read[-1][0] >= last

    def digest_events(self):
        for event in self.history.events:
            self.digest.update(repr(event).encode())

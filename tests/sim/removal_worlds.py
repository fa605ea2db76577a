"""Worlds in which an operator purges channels, deletes messages and restores channels while everybody works: what is gone stays
gone, for everybody, and nothing else goes; what is restored is there once, in its places."""

from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.scalars import MILLISECOND, SECOND

from stan.protocol.entries import Kind, decode_batches
from stan.protocol.placement import channel_group
from tests.kit.batches import rows_of
from tests.kit.broker_state import BrokerState
from tests.sim.clients import SimClient, Subscriber
from tests.sim.cluster_node import values_of
from tests.sim.cluster_world import ClusterWorld
from tests.sim.scene import CHANNELS
from tests.sim.world import World

SUBJECT = "_STAN.x.test-cluster.admin"
RESTORES_MAX = 3


def is_published(records):
    """Whether messages are of a channel that clients publish to; else they are restored, or there are none."""
    return bool(records) and values_of(records)[0][0] in CHANNELS


class Operator(SimClient):
    """Asks for one removal after the other, each again and again until it is answered."""

    def __init__(self, world, client_id):
        super().__init__(world, client_id)
        self.job = None  # kind, request, channel, sequences: asked and not answered
        self.next = []  # kinds and requests of a restore that is under way
        self.restored = {}  # channel -> its sequences
        self.done = 0

    def _begin(self):
        self._go_on()

    def _go_on(self):
        if self.job is None and (self.next or not self.world.quiet):
            self.job = self._make()
        if self.job is not None:
            kind, request, *_ = self.job
            self.request(f"{SUBJECT}.{kind}", request, self._answered, self._go_on)
        elif not self.world.quiet:
            self.later(100 * MILLISECOND, self._go_on)

    def _make(self):
        draw = self.random
        if not self.next and len(self.restored) < RESTORES_MAX and draw.random() < 0.1:
            self._plan_restore()
        if self.next:
            kind, request = self.next.pop(0)
            return kind, request, request.channel.decode(), ()
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

    def _plan_restore(self):
        """Rows in runs, with gaps between them; now and then some that were sent before."""
        draw = self.random
        channel = f"r{len(self.restored)}"
        named = {"version": 1, "channel": channel.encode(), "restore": b"once"}
        at = draw.randint(1, 20)
        self.next = [("restore_channel", admin.RestoreChannelRequest(first_sequence=at, **named))]
        runs = []
        for _ in range(draw.randint(1, 6)):
            runs = runs[draw.choice((1, 9)) :]
            for _ in range(draw.randint(1, 3)):
                first = at + draw.choice((0, 0, 1, 7))
                at = first + draw.randint(1, 5)
                runs.append((first, at - 1))
            sequences = [sequence for first, last in runs for sequence in range(first, last + 1)]
            self.restored.setdefault(channel, set()).update(sequences)
            told = [admin.RestoredRun(first_sequence=a, count=b - a + 1, timestamp=SECOND) for a, b in runs]
            rows = rows_of([b"%d" % sequence for sequence in sequences])
            self.next.append(("restore_rows", admin.RestoreRowsRequest(runs=told, rows=rows, **named)))
        end = admin.RestoreEndRequest(last_sequence=draw.choice((0, at + 5)), **named)
        self.next.append(("restore_end", end))

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
        return "the operator has no answer" if self.operator.job is not None or self.operator.next else ""

    def read_all(self):
        super().read_all()
        for channel, wanted in self.operator.restored.items():
            found = self.look_up(channel.encode())
            if found is None:
                continue
            log, broker = found
            state, info = BrokerState(broker), broker.view.meta.channels[channel.encode()]
            index, deleted = log.channel(info.uid), set(state.deleted(channel.encode()))
            there = []
            for ref in index.refs(1, 1 << 40, 1 << 40, 1 << 40):
                there += [int(value) for _, _, value in values_of(log.read(ref))]
            kept = [sequence for sequence in sorted(wanted) if sequence >= index.first_sequence]
            listed = [at for at in range(index.first_sequence, index.last_sequence + 1) if at not in deleted]
            there = [sequence for sequence in there if sequence >= index.first_sequence]
            self.fail_if(there != kept or listed != kept, f"{channel} has {there} and lists {listed}, not {kept}")
            self.fail_if(state.copy(info.group).restores.under_way(info.uid), f"{channel} is being restored still")
            limited = getattr(self, "limit", 0)
            self.fail_if(not limited and kept != sorted(wanted), f"{channel} has {kept}, not {sorted(wanted)}")


class NodeRemovals(_Removing, World):
    """One node, and its disk."""

    def boot(self):
        super().boot()
        broker = self.node.broker
        commit = broker.entries.step_committed
        for (
            number,
            group,
        ) in self.node.groups.items():  # what was written, and not known to be committed when the last life ended
            for uid in broker.view.meta.by_uid:
                for ref in group.log.channel(uid).refs(1, 1 << 40, 1 << 40, 1 << 40):
                    self._stored(number, ref.base_sequence, group.log.read(ref))

        def committed(group, index, kind, body):
            for batch in decode_batches(body) if kind == Kind.RECORDS else ():
                self._stored(group, batch.base_sequence, bytes(batch.records))
            commit(group, index, kind, body)

        broker.entries.step_committed = committed

    def look_up(self, name):
        """The log of a channel's group, and the broker."""
        return self.node.groups[self.node.broker.view.meta.channels[name].group].log, self.node.broker

    def _stored(self, group, base, records):
        if not is_published(records):
            return
        values = values_of(records)
        self.history.batch(group, values[0][0], base, records, lambda: [value for _, _, value in values])

    def _drained(self):
        subs = [one.sub for one in self.clients.values() if isinstance(one, Subscriber)]
        served = all(sub is not None and sub.joined_at and not sub.ended_at for sub in subs)
        return served and super()._drained() and not self.waiting()


class ClusterRemovals(_Removing, ClusterWorld):
    """A cluster."""

    def stored(self, node, batch):
        if is_published(bytes(batch.records)):
            super().stored(node, batch)

    def look_up(self, name):
        """The log of a channel's group, and the broker, of the leader; there may be none for a moment, while the group is
        handed over. None, which is complained of, if it stays so or the channel is not there."""
        number = channel_group(name, self.raft_groups)
        self._expect(5, lambda: self.leader(number) is not None, lambda: f"group {number} has no leader")
        leader = self.leader(number)
        info = leader and leader.cluster_node.broker.view.meta.channels.get(name)
        if info is None:
            self.complain(f"{name.decode()} is not there")
            return None
        return leader.cluster_node.groups[info.group].log, leader.cluster_node.broker

    def _open_ends(self):
        return super()._open_ends() or self.waiting()

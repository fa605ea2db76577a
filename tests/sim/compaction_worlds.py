"""Worlds whose channels are compacted by key, under all faults: who folds by key what is left, or what has come to a position
that slept meanwhile, gets what the fold of everything gives.

A message may be gone from the first entry on that says so, and as long as it is there it may come.
"""

from unittest import mock
from zlib import crc32

from stan_protocol.compaction import DELETE_HEADER, is_tombstone
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND

from stan import limits
from stan.core.base.delivery_policy import KEEP_LAST
from stan.log.files.compactor import Compactor
from stan.policies import PolicyRule
from stan.protocol.compressed_batches import in_clear
from stan.protocol.entries import Kind, decode_batches
from stan.protocol.jetstream.headers import takes_place
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.broker_state import BrokerState
from tests.kit.storage import state_of
from tests.sim.clients import Publisher, Subscriber, value_of
from tests.sim.cluster_world import ClusterWorld, _hash
from tests.sim.scene import CHANNELS
from tests.sim.ttl_worlds import messages_of
from tests.sim.world import World

KEYS = 7
"""Keys of messages; those of number 0 have none."""
EPOCH = 25
"""Messages of a writer until it begins with other keys: so there are some that nobody sets any more."""
LONG = b"with a name that is longer than a hash"


def key_of(value):
    """The key of a message, and whether it deletes the key."""
    number, epoch = crc32(value.encode()), int(value.split()[0].rpartition("-")[2]) // EPOCH
    key = b"key %d of %d" % (number % KEYS, epoch) + LONG * (number % KEYS % 2) if number % KEYS else b""
    return key, bool(key) and number // KEYS % 3 == 0


class TablePublisher(Publisher):
    """Sets keys and deletes them."""

    def _send(self, channel, guid, value):
        key, tombstone = key_of(value)
        message = wire.PubMsg(
            client_id=self.client_id.encode(),
            guid=guid,
            subject=channel.encode(),
            data=b"" if tombstone else value.encode(),
            conn_id=self.conn_id.encode(),
            key=key,
            headers=[wire.Header(key=DELETE_HEADER, value=value.encode())] if tombstone else [],
        )
        self.port.publish(f"_STAN.pub.test-cluster.{channel}", message.SerializeToString(), self.inbox)


class Compacted:
    """A scene in which logs are compacted often."""

    saved = 0  # bytes of all nodes

    def run(self, **patience):
        interval, rewritten = self.random.choice((50, 200, 600)) * MILLISECOND, Compactor.rewritten

        def counted(compactor, old, new):
            self.saved += old.end - new.end
            rewritten(compactor, old, new)

        with (
            mock.patch.object(limits, "COMPACTION_INTERVAL", interval),
            mock.patch.object(Compactor, "rewritten", counted),
        ):
            return super().run(**patience)

    def left(self, log, machine, uid):
        """What a log has of a channel that has to be there: with what others may have left out it is the same everywhere."""
        mark = machine.compactions.of(uid)
        index, there, stays = log.channel(uid), [], {}
        for ref in index.refs(1, 1 << 40, 1 << 40, 1 << 40):
            for sequence, message in enumerate(messages_of(log.read(ref)), ref.base_sequence):
                self.fail_if(message.sequence != sequence, f"{uid}: {message.sequence} stands where {sequence} belongs")
                if sequence < index.first_sequence:  # of a batch that is kept in part
                    continue
                there.append((sequence, message.SerializeToString()))
                if message.key and sequence <= mark.until:
                    before = [] if mark.earlier and takes_place(message) else stays.get(message.key, [])
                    stays[message.key] = [*before, sequence][-mark.earlier - 1 :]
        return index.last_sequence, [
            (sequence, message)
            for sequence, message in there
            if sequence > mark.until
            or (
                sequence in stays.get(wire.MsgProto.FromString(message).key, [sequence])
                and not (sequence <= mark.tombstones_until and is_tombstone(message))
            )
        ]


class _Compacting(Compacted):
    """What is stored, and what may be gone."""

    publisher = TablePublisher

    def __init__(self, seed):
        super().__init__(seed)
        age = self.random.choice((0, 100, 400)) * MILLISECOND
        self.policies = (PolicyRule(pattern=">", compact=KEEP_LAST, min_age=age),)
        self.compacted = 0  # messages that may have gone
        self.compacted_names = {}  # uid -> channel

    def _plan_faults(self, end):
        """Durables sleep for a while, too."""
        super()._plan_faults(end)
        for client in [one for one in self.clients.values() if isinstance(one, Subscriber) and one.kind == "durable"]:
            at = self.random.randint(self.loop.now, end)
            self.faults.append((at, "sleep"))
            length = self.random.choice((self.random.randint(300, 2500), self.random.randint(4000, 9000)))
            self.loop.at(at, self._sleep, client, length * MILLISECOND)

    def _sleep(self, client, length):
        self.history.cause(self.loop.now, self.loop.now + length, "client sleeps", client.client_id)
        client.die()
        self.loop.after(length, client.start)

    def change_committed(self, broker, group, index, kind, body):
        super().change_committed(broker, group, index, kind, body)
        if kind == Kind.RECORDS:
            for batch in decode_batches(body):
                self._note(batch.uid, messages_of(bytes(in_clear(batch))))
        elif kind == Kind.CHANGE:
            for one in pb.GroupChange.FromString(body).compacted.channels:
                if one.uid in self.compacted_names:
                    self._decided(self.compacted_names[one.uid], one.until, one.tombstones_until)

    def _note(self, uid, messages):
        for message in messages:
            name = message.subject.decode()
            if name in CHANNELS:
                self.compacted_names[uid] = name
                key = message.key or b"#%d" % message.sequence  # each is a key of its own
                self.history.keyed.setdefault(name, {})[message.sequence] = (
                    key,
                    is_tombstone(message.SerializeToString()),
                )
                self.history.stored[name].setdefault(message.sequence, value_of(message))

    def _decided(self, name, until, tombstones):
        keyed = self.history.keyed.get(name, {})
        newest = {}
        for sequence in sorted(keyed):
            if sequence <= until:
                newest[keyed[sequence][0]] = sequence
        gone = [s for s in keyed if s <= until and newest[keyed[s][0]] > s]
        gone += [s for s in newest.values() if keyed[s][1] and s <= tombstones]
        self.history.removal_asked(name, gone, self.loop.now)
        self.compacted = sum(map(len, self.history.removed.values()))
        self.fail_if(tombstones > until, f"tombstones of {name} go up to {tombstones}, messages to {until}")


class NodeCompaction(_Compacting, World):
    """One node, and its disk."""

    def _drained(self):
        subs = [one.sub for one in self.clients.values() if isinstance(one, Subscriber)]
        served = all(sub is not None and sub.joined_at and not sub.ended_at for sub in subs)
        return served and super()._drained()


class CompactedReplicas:
    """Nodes of a cluster that have lost different messages."""

    def _replicas_equal(self):
        replicas = self.history.replicas
        replicas.clear()
        for node in self.nodes.values():
            for number in node.cluster_node.groups:
                snapshot = state_of(node.storage, node.cluster_node.broker, number)
                machine = BrokerState(node.cluster_node.broker).copy(number) if number else None
                log = node.storage.logs[number]
                uids = [uid for uid in sorted(log.channels()) if log.channel(uid).last_sequence] if number else []
                messages = [(uid, self.left(log, machine, uid)) for uid in uids]
                state = snapshot.SerializeToString(deterministic=True)
                replicas[number][node.name] = (
                    f"{snapshot.applied_index} {_hash(state)} {_hash(repr(messages).encode())}"
                )
        return all(len(set(by_node.values())) == 1 for by_node in replicas.values())


class ClusterCompaction(_Compacting, CompactedReplicas, ClusterWorld):
    """A cluster."""

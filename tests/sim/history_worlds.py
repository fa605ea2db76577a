"""Worlds with a stream that keeps so many of the newest messages of each subject, under all faults: its clients read these and no
others, at once, and logs lose only what nobody reads any more.
"""

from stan_protocol.scalars import MILLISECOND, SECOND

from stan.protocol.compressed_batches import in_clear
from stan.protocol.entries import Kind, decode_batches
from stan.protocol.jetstream.headers import takes_place
from stan.protocol.placement import channel_group
from stan.protocol.proto import entries_pb2 as pb
from tests.sim.clients import value_of
from tests.sim.cluster_world import ClusterWorld
from tests.sim.compaction_worlds import Compacted, CompactedReplicas
from tests.sim.move_world import MoveWorld
from tests.sim.stream_worlds import STREAMS, ClusterStreaming, JetStreamClient, Streaming
from tests.sim.ttl_worlds import messages_of
from tests.sim.world import World

REVISIONS = "REVISIONS"
"""A stream that keeps the newest messages of each subject, and its channel."""
KEYS = tuple(f"key.{number}" for number in range(5))


class Setter(JetStreamClient):
    """Sets keys; now and then what it sets takes the place of all earlier messages of its key."""

    def go_on(self):
        if self.world.quiet:
            return
        key = self.random.choice(KEYS)
        publish = self.new(f"{self.client_id}-{key}", REVISIONS)

        def answer(told):
            if "error" not in told:
                self.stored(publish, told)
                self.world.revisions[told["seq"]] = key, bool(fields)
            self.later(self.random.choice((0, 10, 50)) * MILLISECOND, self.go_on)

        fields = (("Nats-Rollup", "sub"),) if self.random.random() < 0.15 else ()
        self.ask(key, publish.value.encode(), answer, self.go_on, fields)


class Reader(JetStreamClient):
    """Reads single messages, most of them new, and counts those of a key."""

    def go_on(self):
        acked = self.world.revisions
        if acked and self.random.random() < 0.7:
            newest = sorted(acked)[-30:]
            self._get(self.random.choice(newest))
        else:
            self._count(self.random.choice(KEYS))

    def _again(self):
        if not self.world.quiet:
            self.later(self.random.choice((0, 30, 150)) * MILLISECOND, self.go_on)

    def _get(self, sequence):
        gone, (key, _) = self.world.is_stale(sequence), self.world.revisions[sequence]

        def answer(told):
            code = told.get("error", {}).get("err_code")
            if code is None and gone:
                self.world.complain(f"{self.client_id} read {key}:{sequence}, which newer ones have replaced")
            if code == 10037 and not self.world.may_be_stale(key, sequence):
                self.world.complain(f"{self.client_id} did not find {key}:{sequence}")
            self.read += code in (None, 10037)
            self._again()

        self.ask(f"$JS.API.STREAM.MSG.GET.{REVISIONS}", {"seq": sequence}, answer, self._again)

    def _count(self, key):
        def answer(told):
            found = told.get("state", {}).get("subjects", {}).get(key, 0)
            if found > self.world.revisions_kept:
                self.world.complain(f"{self.client_id} counts {found} messages of {key}")
            self._again()

        self.ask(f"$JS.API.STREAM.INFO.{REVISIONS}", {"subjects_filter": key}, answer, self._again)

    read = 0


class LastReader(JetStreamClient):
    """Reads everything in the end."""

    def __init__(self, world, client_id):
        super().__init__(world, client_id)
        self.left = list(range(1, world.last_revision + 1))
        self.found = []

    def _begin(self):
        self.go_on()

    def go_on(self):
        if not self.left:
            return

        def answer(told):
            code = told.get("error", {}).get("err_code")
            if code in (None, 10037):
                self.found += [self.left[0]] if code is None else []
                self.left.pop(0)
            self.go_on()

        asked = {"seq": self.left[0]}
        self.ask(f"$JS.API.STREAM.MSG.GET.{REVISIONS}", asked, answer, self.go_on)


class _Histories(Compacted, Streaming):
    """What is stored of the stream, and which of it is shown."""

    streams = STREAMS | {REVISIONS: ["key.*"]}
    channels = (*Streaming.channels, REVISIONS)

    def __init__(self, seed, **how):
        super().__init__(seed, **how)
        self.revisions_kept = self.random.randint(2, 5)
        self.options = {REVISIONS: {"max_msgs_per_subject": self.revisions_kept, "allow_rollup_hdrs": True}}
        self.revisions = {}  # acked sequence -> key, and whether it takes the place of those before it
        self.by_key = {}  # key -> [(sequence, whether it takes the place of those before it)], all that were ever committed
        self.last_revision = 0

    def jetstream_clients(self):
        return [
            *super().jetstream_clients(),
            *(Setter(self, f"set{n}") for n in range(3)),
            *(Reader(self, f"get{n}") for n in range(2)),
        ]

    def change_committed(self, broker, group, index, kind, body):
        super().change_committed(broker, group, index, kind, body)
        info = broker.view.meta.channels.get(REVISIONS.encode())
        if info is None:
            return
        if kind == Kind.RECORDS:
            for batch in decode_batches(body):
                if batch.uid == info.uid:
                    self._note(messages_of(bytes(in_clear(batch))))
        elif kind == Kind.CHANGE:
            for one in pb.GroupChange.FromString(body).compacted.channels:
                if one.uid == info.uid:
                    self._decided(one.until, one.earlier + 1)

    def _note(self, messages):
        for message in messages:
            if message.sequence > self.last_revision:
                self.last_revision = message.sequence
                key = message.key.decode()
                self.by_key.setdefault(key, []).append((message.sequence, takes_place(message)))
                self.history.keyed.setdefault(REVISIONS, {})[message.sequence] = (message.key, False)
                self.history.stored[REVISIONS].setdefault(message.sequence, value_of(message))

    def _decided(self, until, kept):
        self.fail_if(kept != self.revisions_kept, f"{kept} messages of a key are said to stay")
        for stored in self.by_key.values():
            below = [one for one in stored if one[0] <= until]
            stays = shown(below, kept)
            gone = [sequence for sequence, _ in below if sequence not in stays]
            self.history.removal_asked(REVISIONS, gone, self.loop.now)

    def is_stale(self, sequence):
        """Whether so many newer ones of its key were acked that it is not shown any more."""
        key, _ = self.revisions[sequence]
        newer = [replaces for at, (of, replaces) in self.revisions.items() if at > sequence and of == key]
        return any(newer) or len(newer) >= self.revisions_kept

    def may_be_stale(self, key, sequence):
        """Whether newer ones of its key may have taken its place."""
        return sequence not in shown(self.by_key[key], self.revisions_kept)

    def read_all(self):
        super().read_all()
        reader = LastReader(self, "last")
        self.add(reader)
        reader.start()
        end = self.loop.now + 60 * SECOND
        while reader.left and self.loop.now < end:
            self.loop.run_until(self.loop.now + SECOND // 4)
        wanted = sorted(at for stored in self.by_key.values() for at in shown(stored, self.revisions_kept))
        self.fail_if(reader.left, f"the last reader got no answer about {len(reader.left)} messages")
        self.fail_if(reader.found != wanted, f"check_histories: {reader.found} is shown, and {wanted} should be")


def shown(stored, kept):
    """The sequences of a key that are shown, of all that were stored, (sequence, takes the place of those before) each."""
    begin = max((at for at, (_, replaces) in enumerate(stored) if replaces), default=0)
    return {sequence for sequence, _ in stored[begin:][-kept:]}


class NodeHistories(_Histories, World):
    """One node, and its disk."""

    def _drained(self):
        return super()._drained() and not self.waiting()


class ClusterHistories(_Histories, CompactedReplicas, ClusterStreaming, ClusterWorld):
    """A cluster."""

    def __init__(self, seed, **how):
        super().__init__(seed, **how)
        self.history.group_of[REVISIONS] = channel_group(REVISIONS.encode(), self.raft_groups)


class MovedHistories(_Histories, CompactedReplicas, ClusterStreaming, MoveWorld):
    """A cluster in which the stream's channel is moved between groups."""

    def __init__(self, seed, **how):
        super().__init__(seed, **how)
        self.history.group_of[REVISIONS] = channel_group(REVISIONS.encode(), self.raft_groups)

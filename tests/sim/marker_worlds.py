"""Worlds with a stream whose subjects leave delete markers, under all faults: each subject that ends has one, and no other."""

from typing import NamedTuple

from stan_protocol.scalars import MILLISECOND, SECOND

from stan.protocol.compressed_batches import in_clear
from stan.protocol.entries import Kind, decode_batches
from stan.protocol.jetstream.headers import MARKER_REASON, of_message
from tests.sim.cluster_node import values_of
from tests.sim.cluster_world import ClusterWorld
from tests.sim.move_world import MoveWorld
from tests.sim.stream_worlds import STREAMS, ClusterStreaming, JetStreamClient, Streaming
from tests.sim.ttl_worlds import messages_of
from tests.sim.world import World

ENDS = "ENDS"
"""A stream whose subjects leave markers, and its channel."""
KEYS = tuple(f"end.{number}" for number in range(6))
LASTING_KEYS = KEYS[4:]
"""Some of their messages have no time to live."""


class Note(NamedTuple):
    """A message of a subject, as it was committed."""

    sequence: int
    marker: bool
    expires: bool


class ShortLived(JetStreamClient):
    """Publishes messages that live for a second or a few."""

    def go_on(self):
        if self.world.quiet:
            return
        key = self.random.choice(KEYS)
        ttl = self.random.choice((1, 2, 3))
        fields = () if key in LASTING_KEYS and self.random.random() < 0.2 else (("Nats-TTL", f"{ttl}s"),)

        def answer(told):
            self.answers += "error" not in told
            self.later(self.random.choice((0, 50, 400, 1500)) * MILLISECOND, self.go_on)

        self.ask(key, b"a value", answer, self.go_on, fields)


class _Markers(Streaming):
    """What is stored of the stream, and which subjects have ended."""

    streams = STREAMS | {ENDS: ["end.*"]}

    def __init__(self, seed, **how):
        super().__init__(seed, **how)
        self.expire_all = self.random.random() < 0.5
        age = {"max_age": 4 * SECOND, "duplicate_window": 4 * SECOND} if self.expire_all else {}
        self.options = {ENDS: {"subject_delete_marker_ttl": SECOND} | age}
        self.by_key = {}  # key -> its messages, in the order in which they were committed
        self.noted = 0

    @property
    def markers(self):
        return sum(note.marker for notes in self.by_key.values() for note in notes)

    def jetstream_clients(self):
        return [*super().jetstream_clients(), *(ShortLived(self, f"short{n}") for n in range(3))]

    def change_committed(self, broker, group, index, kind, body):
        super().change_committed(broker, group, index, kind, body)
        info = broker.view.meta.channels.get(ENDS.encode())
        for batch in decode_batches(body) if info is not None and kind == Kind.RECORDS else ():
            if batch.uid == info.uid:
                for message in messages_of(bytes(in_clear(batch))):
                    self._note(message)

    def _note(self, message):
        if message.sequence > self.noted:
            self.noted = message.sequence
            marker = any(name == MARKER_REASON for name, _ in of_message(message))
            expires = bool(message.expires_at) or self.expire_all
            self.by_key.setdefault(message.key.decode(), []).append(Note(message.sequence, marker, expires))

    def read_all(self):
        super().read_all()
        end = self.loop.now + 60 * SECOND
        while self.loop.now < end and [*self.wrong()]:
            self.loop.run_until(self.loop.now + SECOND // 4)
        for text in self.wrong():
            self.complain(f"check_markers: {text}")

    def wrong(self):
        """Subjects that have ended without a marker, and markers of others."""
        for key, notes in self.by_key.items():
            before, stays = None, False
            for note in notes:
                if note.marker and (stays or before is None or before.marker):
                    yield f"{key}: a marker at {note.sequence}, and it had not ended"
                before, stays = note, stays or not (note.marker or note.expires)
            if before is not None and not before.marker and not stays:
                yield f"{key}: no marker behind {before.sequence}"


class NodeMarkers(_Markers, World):
    """One node, and its disk."""

    def _drained(self):
        return super()._drained() and not self.waiting()


class _Replicas(_Markers, ClusterStreaming):
    """The same of all clusters; the history does not know the stream, whose values nobody tells apart."""

    def stored(self, node, batch):
        if not any(channel == ENDS for channel, _, _ in values_of(bytes(in_clear(batch)))):
            super().stored(node, batch)


class ClusterMarkers(_Replicas, ClusterWorld):
    """A cluster."""


class MovedMarkers(_Replicas, MoveWorld):
    """A cluster in which the stream's channel is moved between groups."""

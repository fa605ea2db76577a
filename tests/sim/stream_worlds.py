"""Worlds with clients of JetStream beside those of STAN, on the same channels: some publish under ids until they are answered,
some count by keys and expect what they have read. Each message is stored once, acks tell its place, no count is lost.
"""

import json
from base64 import b64decode

from stan_protocol.scalars import MILLISECOND, SECOND

from stan.protocol.jetstream import headers
from stan.protocol.placement import channel_group
from stan.testing.nats import SimMessage
from tests.sim.clients import SimClient
from tests.sim.cluster_world import ClusterWorld
from tests.sim.history import Publish
from tests.sim.move_world import MoveWorld
from tests.sim.scene import CHANNELS
from tests.sim.world import World

COUNTS = "COUNTS"
"""A stream of several subjects, and its channel."""
KEYS = ("count.x", "count.y", "count.z")
STREAMS = {f"OF_{channel}": [channel] for channel in CHANNELS} | {COUNTS: ["count.*"]}
PATIENCE = (150 * MILLISECOND, 400 * MILLISECOND, 2 * SECOND)
"""How long a client waits for an answer. It asks again then, as no later leader looks at what came before."""
LASTING = frozenset((10058, 10065, 10052, 10025, 10003))
"""Codes of refusals that no fault explains."""


class JetStreamClient(SimClient):
    """It needs no registration; what it has sent it remembers over its lives."""

    def __init__(self, world, client_id):
        super().__init__(world, client_id)
        self.number = 0
        self.answers = 0
        self.made = False

    def _begin(self):
        self._make(list(self.world.streams))

    def _make(self, names):
        """Streams are made, one after the other; the same once more is the same."""
        if not names:
            self.go_on()
            return
        name = names[0]
        asked = {"name": name, "subjects": self.world.streams[name], "duplicate_window": 600 * SECOND}
        limit = self.world.history.limits.get(name.removeprefix("OF_"))
        options = self.world.options.get(name, {})
        asked |= {"max_msgs": limit} if limit and "max_msgs_per_subject" not in options else {}
        asked |= options
        again = self.random.choice((20, 100, 500)) * MILLISECOND

        def made(answer):
            failed = "error" in answer
            self.later(again if failed else 0, self._make, names if failed else names[1:])

        self.ask(f"$JS.API.STREAM.CREATE.{name}", asked, made, lambda: self._make(names))

    def ask(self, subject, document, answer, late, fields=()):
        """Send a request, or a publish with headers; `late()` when no answer came in time."""
        self.requests += 1
        inbox = f"_INBOX.js.{self.conn_id}.{self.requests}"
        port = self.port

        def answered(payload, _reply):
            port.forget(inbox)
            told = json.loads(payload)
            code = told.get("error", {}).get("err_code")
            if code in LASTING:
                self.world.complain(f"{self.client_id}: {subject} was refused: {told}")
            answer(told)

        def check():
            if port.forget(inbox):
                late()

        payload = document if isinstance(document, bytes) else json.dumps(document).encode()
        block = headers.render([(name.encode(), value.encode()) for name, value in fields]) if fields else b""
        port.listen(inbox, answered)
        port.send([SimMessage(subject, inbox, payload, block)])
        self.later(self.random.choice(PATIENCE), check)

    def new(self, writer, channel):
        """The next value of a writer, which the history knows from now on."""
        self.number += 1
        value = f"{self.client_id}-{self.number}"
        publish = self.history.publishes[value] = Publish(writer, self.number, channel, value, self.loop.now)
        return publish

    def stored(self, publish, answer):
        """A publish is acknowledged."""
        self.answers += 1
        self.world.told[publish.value] = answer["seq"]
        if not publish.ok_at:
            publish.ok_at = self.loop.now
            self.world.acknowledged(publish)


class IdPublisher(JetStreamClient):
    """Publishes to the channels of STAN's clients, each message under its id until it is answered."""

    def __init__(self, world, client_id):
        super().__init__(world, client_id)
        self.publish_waiting = None

    def go_on(self):
        if self.publish_waiting is None and not self.world.quiet:
            self.publish_waiting = self.new(self.client_id, self.random.choice(CHANNELS))
        publish = self.publish_waiting
        if publish is None:
            return

        def answer(told):
            if "error" in told:
                self.later(self.random.choice((5, 50, 300)) * MILLISECOND, self.go_on)
                return
            self.world.duplicates += told.get("duplicate", False)
            self.publish_waiting = None
            self.stored(publish, told)
            if self.random.random() < 0.1:  # what has been stored is not stored again
                self.ask(publish.channel, publish.value.encode(), self._same(publish), lambda: None, self._id(publish))
            self.later(self.random.choice((0, 30, 150, 500)) * MILLISECOND, self.go_on)

        self.ask(publish.channel, publish.value.encode(), answer, self.go_on, self._id(publish))

    @staticmethod
    def _id(publish):
        return (("Nats-Msg-Id", f"the message {publish.value}"),)

    def _same(self, publish):
        def answer(told):
            if "error" not in told and (told["seq"], told.get("duplicate")) != (self.world.told[publish.value], True):
                self.world.complain(f"{publish.value} was stored again: {told}")

        return answer


class Counter(JetStreamClient):
    """Reads the newest message of a key, and publishes one that expects to follow it."""

    def go_on(self):
        if not self.world.quiet:
            key = self.random.choice(KEYS)
            known = self.world.newest.get(key, 0)
            asked = {"last_by_subj": key}
            again = self.random.choice((0, 30, 150, 500)) * MILLISECOND
            self.ask(
                f"$JS.API.STREAM.MSG.GET.{COUNTS}",
                asked,
                lambda told: self._read(key, known, told),
                lambda: self.later(again, self.go_on),
            )

    def _read(self, key, known, told):
        code = told.get("error", {}).get("err_code")
        message = told.get("message", {})
        last = message.get("seq", 0)
        if code not in (None, 10037):
            self.later(50 * MILLISECOND, self.go_on)
            return
        if last < known and not self.world.limited(COUNTS, known):
            self.world.complain(f"{self.client_id} read {key}:{last}, and {known} was acked before it asked")
        if message and b64decode(message["data"]).decode() not in self.history.publishes:
            self.world.complain(f"{self.client_id} read {message}, which nobody has published")
        publish = self.new(f"{self.client_id}-{key}", COUNTS)
        self.world.follows[publish.value] = key, last

        def answer(answered):
            if "error" not in answered:
                self.stored(publish, answered)
                self.world.newest[key] = max(self.world.newest.get(key, 0), answered["seq"])
            self.later(self.random.choice((0, 30, 150)) * MILLISECOND, self.go_on)

        fields = (("Nats-Expected-Last-Subject-Sequence", str(last)),)
        self.ask(key, publish.value.encode(), answer, self.go_on, fields)


class Streaming:
    """A scene with some of them."""

    jetstream = True
    streams = STREAMS
    channels = (*CHANNELS, COUNTS)

    def __init__(self, seed, **how):
        super().__init__(seed, **how)
        self.history.with_ids = ("id",)
        self.options = {}  # stream -> what its configuration says besides its subjects
        self.told = {}  # value -> the sequence that its ack has told
        self.follows = {}  # value -> key, and the sequence that it has expected
        self.newest = {}  # key -> the newest sequence that was acked
        self.duplicates = 0  # publishes that came again, and were not stored again

    def make_clients(self, *args, **options):
        super().make_clients(*args, **options)
        self.jetstreamers = self.jetstream_clients()
        for client in self.jetstreamers:
            self.add(client)
            self.loop.after(self.random.randint(0, 500) * MILLISECOND, client.start)

    def jetstream_clients(self):
        """The clients of streams."""
        return [IdPublisher(self, f"id{n}") for n in range(2)] + [Counter(self, f"cas{n}") for n in range(2)]

    def waiting(self):
        """Who has not got an answer."""
        late = (one.client_id for one in self.jetstreamers if getattr(one, "publish_waiting", None) is not None)
        return next((f"{name} has no answer" for name in late), "")

    def limited(self, channel, sequence):
        """Whether a message may have been removed by the channel's limit."""
        return (
            bool(self.history.limits.get(channel))
            and sequence < self.history.first[channel] + self.history.limits[channel]
        )

    def read_all(self):
        super().read_all()
        for text in self.misplaced():
            self.complain(f"check_streams: {text}")

    def misplaced(self):
        """What is not where its ack has told, or does not follow what it has expected."""
        for channel in self.channels:
            for sequence, value in self.history.final[channel]:
                if self.told.get(value, sequence) != sequence:
                    yield f"{channel}: {value} is at {sequence}, its ack has told {self.told[value]}"
        last = {}
        for sequence, value in self.history.final[COUNTS]:
            key, expected = self.follows[value]
            if last.get(key, expected) != expected:
                yield f"{COUNTS}: {value} at {sequence} has expected {expected}, and follows {last[key]}"
            last[key] = sequence


class NodeStreams(Streaming, World):
    """One node, and its disk."""

    def _drained(self):
        return super()._drained() and not self.waiting()


class ClusterStreaming(Streaming):
    """The same of all clusters."""

    def __init__(self, seed, **how):
        super().__init__(seed, **how)
        self.history.group_of[COUNTS] = channel_group(COUNTS.encode(), self.raft_groups)
        if self.limit:
            self.history.limits[COUNTS] = self.limit

    def _open_ends(self):
        return super()._open_ends() or self.waiting()


class ClusterStreams(ClusterStreaming, ClusterWorld):
    """A cluster."""


class StreamMoves(ClusterStreaming, MoveWorld):
    """A cluster in which the channels of the streams are moved between groups."""

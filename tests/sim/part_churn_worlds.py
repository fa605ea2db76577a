"""A world of many keys, up to 10,000, in a channel with parts, read by a key-ordered queue group over all parts, whose members
join, leave and die each second and fail with one message in twenty, while the parts are doubled.

A member is one reader for each part, as of a client that has subscribed to the parts: they come and go together. What is promised
of a key holds over the doubling, too: the new part of a key gives nothing of it before the group is done with the old one's.
"""

from collections import defaultdict, deque
from itertools import chain

from stan_protocol.channels import part_name
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.scalars import MILLISECOND, SECOND

from stan.policies import PolicyRule
from tests.sim.group_worlds import UnsteadySubscriber
from tests.sim.history import Acked, Delivered, contents
from tests.sim.parted_worlds import WHOLE, ClusterDoubled, PartedPublisher

KEYS = 10_000
FEW = 600
"""Keys of most runs, that are to take seconds."""
ALL_KEYS_EVERY = 20
"""One run in so many has all of them."""
OF_EACH = 2
"""Messages of each key."""
TURN = 200
"""Keys that a writer writes before it writes the next message of each of them: so a doubling comes between messages of a key."""
WRITERS = 2
MEMBERS = 5
CHURN_INTERVAL = SECOND
LOOK_INTERVAL = 200 * MILLISECOND
BURST = 40
PATIENCE = 4 * SECOND
"""What is not answered by then is published again, as another message."""
WRITTEN_WITHIN = 90 * SECOND
REQUESTS = "_STAN.x.test-cluster.admin"


class KeysPublisher(PartedPublisher):
    """Publishes messages of many keys until each was acknowledged."""

    def __init__(self, world, client_id, channels, keys):
        super().__init__(world, client_id, channels)
        self.to_the_parts = False  # which are doubled meanwhile
        self.to_do = deque(chain.from_iterable(OF_EACH * keys[at : at + TURN] for at in range(0, len(keys), TURN)))
        self.asked = deque()  # (key, publish) in the order in which they were sent

    def _burst(self):
        while self.asked and (self._is_acked() or self._is_overdue()):
            key, publish = self.asked.popleft()
            if not publish.ok_at:
                self.to_do.append(key)
        if self.world.quiet:
            return
        for _ in range(min(BURST, len(self.to_do))):
            key = self.to_do.popleft()
            self.world.keys[f"{self.client_id}-{self.number + 1}"] = key
            self._publish("")
            self.asked.append((key, self.history.publishes[f"{self.client_id}-{self.number}"]))
        self.later(self.random.randint(1, 100) * MILLISECOND, self._burst)

    def _is_acked(self):
        return bool(self.asked[0][1].ok_at)

    def _is_overdue(self):
        publish = self.asked[0][1]
        return publish.failed_at or publish.writer != self.conn_id or publish.asked_at + PATIENCE < self.loop.now

    def _give_up(self, _publish):
        """What has no answer is published again in its turn."""

    @property
    def is_done(self):
        """Whether all was acknowledged."""
        return not self.to_do and all(publish.ok_at for _, publish in self.asked)


class PartReader(UnsteadySubscriber):
    """What one member reads of one part. It begins a part that a doubling has made once the group is done with what the old part
    of its keys had before."""

    def __init__(self, world, member, number):
        channel = part_name(WHOLE.encode(), number).decode()
        super().__init__(world, f"grp{member}p{number}", channel, f"group{number}", "durable queue", in_flight=200)
        self.number = number
        self.absence = 0  # how long it will be away, once it has closed its subscription

    def on_connected(self):
        self.absence = 0
        self._look()

    def _look(self):
        split = next((parts for parts in self.world.closed if parts <= self.number < 2 * parts), 0)
        if not split or not self.waits_for(split):
            self._subscribe(0)
            return
        last, port = self.world.closed[split][self.number - split], self.port
        self.requests += 1
        inbox = f"_INBOX.look.{self.conn_id}.{self.requests}"

        def answer(payload, _reply):  # each node tells of the groups that it leads
            cursors = admin.SubscriptionsResponse.FromString(payload).cursors
            done = any(cursor.queue_group == b"q" and cursor.acked_up_to >= last for cursor in cursors)
            if done and port.forget(inbox):
                self._subscribe(0)

        def again():
            if port.forget(inbox):
                self._look()

        old = admin.SubscriptionsRequest(version=1, pattern=part_name(WHOLE.encode(), self.number - split))
        port.listen(inbox, answer)
        port.publish(f"{REQUESTS}.subscriptions", old.SerializeToString(), inbox)
        self.later(LOOK_INTERVAL, again)

    def waits_for(self, split):
        """Whether the old part had anything."""
        return self.world.closed[split][self.number - split] > 0

    def leave(self, back):
        """Close the subscription, and go; be there again after a while."""
        if self.alive and self.sub is not None and self.ack_inbox and not self.sub.ended_at:
            self.absence = back
            self._leave()
        else:
            self.go(back)

    def go(self, back):
        """Die, and be there again after a while."""
        self.die()
        self.loop.after(back, self.start)

    def _left(self, payload):
        if self.absence:
            self.go(self.absence)
        else:
            super()._left(payload)


class ClusterPartChurn(ClusterDoubled):
    """A cluster."""

    subscriber = PartReader
    factors = (2,)
    policies = (PolicyRule(pattern=WHOLE, ordered_by_key=True),)

    def __init__(self, seed, *, calm=None):
        super().__init__(seed, calm=calm)
        self.key_count = FEW if seed % ALL_KEYS_EVERY else KEYS
        self.limit = 0  # each message stays, so that each key can be looked at
        self.keys = {}  # value -> key
        self.closed = {}  # parts before a doubling -> newest sequence of each, as the metadata tell it
        self.churned = 0

    def key_of(self, value):
        return self.keys.get(value, b"")

    @property
    def first_ms(self):
        """While keys are written."""
        return 300, 600 + self.key_count // 2

    def make_clients(self, **_how):
        self.parts = self.random.choice((2, 3, 4))
        self.channels = tuple(part_name(WHOLE.encode(), number).decode() for number in range(self.parts))
        self.history.key_of = self.key_of
        for n in range(WRITERS):
            mine = [b"key %d" % key for key in range(n, self.key_count, WRITERS)]
            self.add(KeysPublisher(self, f"writer{n}", self.channels, mine))
        self._add_readers(range(self.parts))
        self._create()

    def _add_readers(self, numbers):
        added = [self.subscriber(self, member, number) for number in numbers for member in range(MEMBERS)]
        for reader in added:
            self.add(reader)
            self.history.must_finish[reader.position] = reader.channel
        return added

    def created(self, broker):
        first = not hasattr(self, "before")
        super().created(broker)
        if first:
            self.loop.after(CHURN_INTERVAL, self._churn)
            self.loop.after(LOOK_INTERVAL, self._follow)

    def _follow(self):
        """Each member learns that there are more parts."""
        whole = self.registered
        for split in whole.row.splits if whole else ():
            if split.parts not in self.closed:
                self.closed[split.parts] = list(split.last)
                for reader in self._add_readers(range(split.parts, 2 * split.parts)):
                    self.loop.after(self.random.randint(0, 500) * MILLISECOND, reader.start)
        self.loop.after(LOOK_INTERVAL, self._follow)

    def _readers(self, member):
        return [client for name, client in self.clients.items() if name.startswith(f"grp{member}p")]

    def _churn(self):
        """One member dies or leaves, and joins again as somebody new."""
        if self.quiet:
            return
        member, leaves = self.random.randrange(MEMBERS), self.random.random() < 0.5
        back = self.random.randint(50, 2500) * MILLISECOND
        for reader in self._readers(member):
            if leaves:
                reader.leave(back)
            else:
                reader.go(back)
        self.churned += 1
        self.loop.after(CHURN_INTERVAL, self._churn)

    def run(self):
        """Until all is written and the parts are doubled."""
        self.begin()
        self._plan_faults(self.loop.now + 8 * SECOND)
        end = self.loop.now + WRITTEN_WITHIN
        while self.loop.now < end and not (self._is_written() and self.is_doubled()):
            self.run_for(0.5)
        if not self._is_written():
            self.complain("not all keys could be written")
        return self.finish(self._somebody_to_leave_out())

    def _is_written(self):
        return all(client.is_done for name, client in self.clients.items() if name.startswith("writer"))

    def read_all(self):
        super().read_all()
        for text in check_over_parts(self.history, self.channels, self.splits):
            self.complain(f"check_over_parts: {text}")


def check_over_parts(history, channels, splits):
    """A group gets nothing of a key from a new part before it has acked all of it in the old one. *splits*: parts before a
    doubling -> newest sequence of each."""
    acked, old = defaultdict(set), {}
    for parts, last in splits.items():
        for number in range(parts):
            of_key = defaultdict(list)
            for sequence, value in contents(history, channels[number]):
                if sequence <= last[number] and (key := history.key_of(value)):
                    of_key[key].append(sequence)
            old[channels[parts + number]] = channels[number], of_key
    for event in history.events:
        if isinstance(event, Acked):
            acked[event.sub.channel].add(event.sequence)
        elif isinstance(event, Delivered) and event.sub.shared and event.sub.channel in old:
            before, of_key = old[event.sub.channel]
            open_ones = set(of_key[history.key_of(event.value)]) - acked[before]
            if open_ones:
                place = f"{event.sub.channel}:{event.sequence}"
                yield f"{event.sub.member} got {place} before {before}:{min(open_ones)} was acked"

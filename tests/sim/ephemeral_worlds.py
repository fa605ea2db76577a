"""Worlds in which one more channel is ephemeral, beside those of every world: these promise what they always do, and of the
ephemeral one is true what its leader's memory can promise (`check_ephemeral`).

One writer publishes a message at a time and never the same one twice; listeners subscribe without a name and as a queue group.
"""

from itertools import pairwise

from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND, SECOND

from stan.core.state.ephemeral import BLOCK_BITS
from stan.policies import EPHEMERAL, PolicyRule
from stan.protocol.placement import channel_group
from tests.kit.guids import guids
from tests.sim.clients import REQUEST_TIMEOUT, SimClient
from tests.sim.cluster_world import ClusterWorld
from tests.sim.history import Reset
from tests.sim.world import World

CHANNEL = "e"
PROBES = 5
"""Messages that are published when all is well again."""
PATIENCE = SECOND


class Sent:
    """A message of the writer."""

    def __init__(self, value, at):
        self.value, self.asked_at = value, at
        self.ok_at = self.sequence = 0
        self.error = ""


class Heard:
    """One subscription of a listener."""

    def __init__(self, name, queue):
        self.name, self.queue = name, queue
        self.joined_at = self.ended_at = 0
        self.messages = []  # (time, sequence, value, redelivered)


class Writer(SimClient):
    """Publishes one message, and the next one when it is answered, or after a while."""

    def on_connected(self):
        self.guids = guids(self.random)
        self.inbox = f"_INBOX.acks.{self.conn_id}"
        self.waiting = {}
        self.port.listen(self.inbox, lambda payload, _reply: self._answered(payload))
        self.later(self.random.randint(1, 50) * MILLISECOND, self._next)

    def _next(self):
        if not self.world.quiet:
            self.publish()
            self.later(PATIENCE, self._give_up, self.newest)

    def publish(self):
        """The next message."""
        said = self.world.said
        self.newest = sent = Sent(f"e-{len(said)}", self.loop.now)
        said.append(sent)
        guid = next(self.guids)
        self.waiting[guid] = sent
        message = wire.PubMsg(
            client_id=self.client_id.encode(),
            guid=guid,
            subject=CHANNEL.encode(),
            data=sent.value.encode(),
            conn_id=self.conn_id.encode(),
            numbered=True,
        )
        self.port.publish(f"_STAN.pub.test-cluster.{CHANNEL}", message.SerializeToString(), self.inbox)

    def _give_up(self, sent):
        if sent is self.newest and not sent.ok_at and not sent.error:
            self._next()

    def _answered(self, payload):
        ack = wire.PubAck.FromString(payload)
        sent = self.waiting.get(ack.guid)
        if sent is None or sent.ok_at or sent.error:
            return
        if ack.error:
            sent.error = ack.error.decode()
        else:
            sent.ok_at, sent.sequence = self.loop.now, ack.sequence
            self.world.acks.append(sent)
        if sent is self.newest:
            self.later(self.random.choice((0, 0, self.random.randint(0, 200))) * MILLISECOND, self._next)


class Listener(SimClient):
    """One subscription after the other, each for the life of a connection; acks most messages."""

    def __init__(self, world, client_id, queue=""):
        super().__init__(world, client_id)
        self.queue = queue
        self.heard = None

    def on_connected(self):
        self.heard = heard = Heard(self.client_id, self.queue)
        self.world.subscriptions.append(heard)
        inbox, ack_inbox = f"_INBOX.msgs.{self.conn_id}", []
        request = wire.SubscriptionRequest(
            client_id=self.client_id.encode(),
            subject=CHANNEL.encode(),
            queue_group=self.queue.encode(),
            inbox=inbox.encode(),
            max_in_flight=self.random.choice((1, 3, 20)),
            ack_wait_s=1,
        )

        def answer(payload):
            response = wire.SubscriptionResponse.FromString(payload)
            if response.error:
                self.later(100 * MILLISECOND, self.restart)
            else:
                heard.joined_at = self.loop.now
                ack_inbox.append(response.ack_inbox.decode())

        def message(payload, _reply):
            found = wire.MsgProto.FromString(payload)
            heard.messages.append((self.loop.now, found.sequence, found.data.decode(), found.redelivered))
            if ack_inbox and (self.world.quiet or self.random.random() > 0.1):
                self.later(self.random.choice((0, 5, 300)) * MILLISECOND, ack, found.sequence)

        def ack(sequence):
            payload = wire.Ack(subject=CHANNEL.encode(), sequence=sequence).SerializeToString()
            self.port.publish(ack_inbox[0], payload)

        self.port.listen(inbox, message)
        self.request("_STAN.sub.test-cluster", request, answer, self.restart)

    def die(self):
        if self.alive and self.heard is not None:
            self.heard.ended_at = self.loop.now
        super().die()


class _Ephemeral:
    """The further clients, and what is to be true of what they see."""

    policies = (PolicyRule(pattern=CHANNEL, commit=EPHEMERAL),)

    def __init__(self, seed, **how):
        super().__init__(seed, **how)
        self.said, self.acks, self.subscriptions = [], [], []

    def make_clients(self, *args, **options):
        super().make_clients(*args, **options)
        self.writer = Writer(self, "ewriter")
        further = [self.writer, *(Listener(self, f"elisten{n}") for n in range(2))]
        further += [Listener(self, f"equeue{n}", "q") for n in range(2)]
        for client in further:
            self.add(client)
            self.loop.after(self.random.randint(0, 500) * MILLISECOND, client.start)

    def read_all(self):
        """When all is well: everybody who listens hears what is published now."""
        super().read_all()
        self._patiently("listeners are not there", lambda: all(self.listens(client) for client in self._listeners()))
        begin = len(self.said)
        for _ in range(PROBES):
            self.writer.publish()
        probes = {sent.value for sent in self.said[begin:]}
        self._patiently("probes are not acked", lambda: all(sent.ok_at for sent in self.said[begin:]))
        self._patiently("probes are not heard", lambda: all(probes <= values for values in self._who_hears()))
        for text in check_ephemeral(
            self.said, self.acks, self.subscriptions, getattr(self, "limit", 0), self.history.held_back
        ):
            self.complain(f"check_ephemeral: {text}")

    def _listeners(self):
        return [client for client in self.clients.values() if isinstance(client, Listener)]

    def listens(self, client):
        return client.alive and client.heard is not None and client.heard.joined_at and not client.heard.ended_at

    def _who_hears(self):
        """The values that each listener, and the queue group, has heard in the subscription that it has now."""
        now = [client.heard for client in self._listeners() if self.listens(client)]
        yield from ({value for _, _, value, _ in heard.messages} for heard in now if not heard.queue)
        yield {value for heard in now if heard.queue for _, _, value, _ in heard.messages}

    def _patiently(self, problem, condition):
        end = self.loop.now + 5 * REQUEST_TIMEOUT
        while not condition() and self.loop.now < end:
            self.loop.run_until(self.loop.now + SECOND // 4)
        self.fail_if(not condition(), f"check_ephemeral: {problem}")


def never(_arrived, _until):
    """No link keeps anything."""
    return False


def check_ephemeral(said, acks, subscriptions, limit=0, held_back=never):
    """E1: a sequence is one message's, and a message has one, which its ack names. E2: acks of one who waits for each tell
    increasing sequences. E3: a subscription gets messages that were published, in order but for flagged repeats, and for what a
    link has *held_back* (from when the one before arrived until that one did) of a leader that is none any more. E4: in the last
    epoch nothing is missing that was acked while somebody listened all the time, and that no *limit* can have removed."""
    known = {sent.value: sent for sent in said}
    by_sequence, by_value = {}, {}
    places = [(sent.sequence, sent.value, "its ack") for sent in acks]
    places += [(sequence, value, one.name) for one in subscriptions for _, sequence, value, _ in one.messages]
    for sequence, value, who in places:
        if by_sequence.setdefault(sequence, value) != value:
            yield f"{sequence} is {by_sequence[sequence]} and, for {who}, {value}"
        if by_value.setdefault(value, sequence) != sequence:
            yield f"{value} is {by_value[value]} and, for {who}, {sequence}"
        if value not in known:
            yield f"{value} was never published"
    for before, after in pairwise(acks):
        waited = before.ok_at <= after.asked_at
        if waited and not before.sequence < after.sequence:
            yield f"{after.value} is {after.sequence}, and {before.value}, acked before it was sent, is {before.sequence}"
    for one in subscriptions:
        newest, arrived = 0, 0
        for at, sequence, value, redelivered in one.messages:
            if not redelivered and sequence <= newest and not held_back(arrived, at):
                yield f"{one.name} gets {value} ({sequence}) behind {newest}, and it is no repeat"
            newest, arrived = max((newest, arrived), (sequence, at))
    newest = max((sequence for sequence, _, _ in places), default=0)
    last, floor = newest - 1 >> BLOCK_BITS, newest - limit if limit else 0
    for one in subscriptions:
        if one.queue or one.ended_at or not one.joined_at:
            continue
        got = {sequence for _, sequence, _, _ in one.messages}
        for sent in acks:
            there = sent.sequence - 1 >> BLOCK_BITS == last and sent.sequence > floor
            if there and sent.asked_at > one.joined_at and sent.sequence not in got:
                yield f"{one.name} never got {sent.value} ({sent.sequence}), which was acked in the last epoch"


class NodeEphemeral(_Ephemeral, World):
    """One node, and its disk."""


class ClusterEphemeral(_Ephemeral, ClusterWorld):
    """A cluster."""


class ShortStops(ClusterEphemeral):
    """A cluster of which all nodes but the channel's leader stand still now and then: for longer than its lease, and not for so
    long that it steps down. E5: while it leads on, each publish is answered."""

    def __init__(self, seed):
        super().__init__(seed, calm=True)
        self.stops = 0
        self._group = channel_group(CHANNEL.encode(), self.raft_groups)

    def _plan_faults(self, end):
        self.loop.at(self.loop.now + SECOND, self._stop_followers, end)

    def _stop_followers(self, end):
        leader = self.leader(self._group)
        if self.loop.now >= end:
            return
        for node in self.nodes.values() if leader is not None else ():
            if node is not leader:
                node.pause(self.random.randint(500, 700) * MILLISECOND)
        self.stops += leader is not None
        self._cause(SECOND, "all but one are stopped")
        self.loop.after(self.random.randint(900, 1500) * MILLISECOND, self._stop_followers, end)

    def read_all(self):
        super().read_all()
        begun = [one.at for one in self.history.events if isinstance(one, Reset) and one.group == self._group]
        for sent in self.said:
            stays = not any(sent.asked_at - SECOND < at < sent.asked_at + 10 * SECOND for at in begun)
            self.fail_if(stays and not sent.ok_at, f"E5: {sent.value} has no ack ({sent.error}), and its leader led on")

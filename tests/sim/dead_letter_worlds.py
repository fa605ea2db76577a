"""Worlds in which messages that a position gives up become dead letters: each exactly once, whatever crashes when.

Which messages are poison, or rejected, is the same for every client (tests.sim.verdict_worlds), so it is known what each position
must give up in the end.
"""

from collections import Counter
from dataclasses import replace
from unittest import mock
from zlib import crc32

from stan_protocol import dead_letters as letters
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND, SECOND

from stan.core.base.delivery_policy import DEFAULT
from stan.core.boundary import loading
from tests.sim.clients import SimClient, Subscriber
from tests.sim.cluster_node import values_of
from tests.sim.scene import CHANNELS
from tests.sim.verdict_worlds import KINDS, POISON, REJECTED, ClusterVerdicts, NodeVerdicts

SUFFIX, AGAIN = ".dlq", ".again"
SUBJECT = "_STAN.x.test-cluster.admin"


class Reader(Subscriber):
    """Reads a dead letter channel from its beginning; nothing of it goes into the history."""

    def _message(self, message, sub):
        if self.world.dead_letters[self.channel].setdefault(message.sequence, message).data != message.data:
            self.world.complain(f"{self.channel}:{message.sequence} is not always the same")
        ack = wire.Ack(subject=self.channel.encode(), sequence=message.sequence)
        self.port.publish(self.ack_inbox, ack.SerializeToString())


class _DeadLetters:
    """The policy, and what must be true of dead letters in the end."""

    def __init__(self, seed):
        super().__init__(seed)
        self.policy = replace(self.policy, dead_letter=SUFFIX, dead_letter_rate=0)
        self.reasons = Counter()
        self.history.gives_up = True
        self.dead_letters = {channel + SUFFIX: {} for channel in CHANNELS}

    def run(self, **patience):
        def policy_of(context, cursor):
            info = context.meta.by_uid.get(cursor.uid)
            return self.policy if info is not None and not info.name.endswith(SUFFIX.encode()) else DEFAULT

        with mock.patch.object(loading, "_policy_of", side_effect=policy_of):
            return super().run(**patience)

    def is_owed(self, cursor):
        """Whether a position has messages to be sent, or to be moved."""
        return bool(cursor.to_redeliver)

    def read_all(self):
        super().read_all()
        for channel in self.dead_letters:
            name = "dead-" + channel.replace(".", "-")
            reader = Reader(self, name, channel, name, "plain", in_flight=100)
            self.add(reader)
            reader.start()
        end = self.loop.now + 20 * SECOND
        while self.loop.now < end and not all(self._has_all(channel) for channel in CHANNELS):
            self.loop.run_until(self.loop.now + SECOND // 4)
        self.loop.run_until(self.loop.now + SECOND)
        for channel in CHANNELS:
            for text in self._wrong(channel):
                self.complain(text)

    def _expected(self, channel):
        """(name of a position, sequence) of what must have become a dead letter -> what kind of a message it is."""
        names = [self._name(position) for position, of in self.history.must_finish.items() if of == channel]
        kinds = {s: crc32(f"{channel} {s}".encode()) % KINDS for s, _ in self.history.final[channel]}
        return {
            (name, sequence): kind
            for name in names
            for sequence, kind in kinds.items()
            if kind in (POISON, REJECTED) and sequence >= self.history.first[channel]
        }

    @staticmethod
    def _name(position):
        epoch = position.rpartition(".")[2]
        return f"d{epoch}:q" if position.startswith("group") else f"d{epoch}"

    def _found(self, channel):
        """(position, sequence) -> the headers of each copy."""
        found = {}
        for message in self._given_up(channel):
            headers = letters.headers_of(message)
            key = headers[letters.DURABLE].decode(), letters.number(headers, letters.SEQUENCE)
            found.setdefault(key, []).append((message, headers))
        return found

    def _given_up(self, channel):
        """All dead letters of a channel, as they are read in the end."""
        return self.dead_letters[channel + SUFFIX].values()

    def _has_all(self, channel):
        return self._expected(channel).keys() <= self._found(channel).keys()

    def _wrong(self, channel):
        """C16: what was given up is in the dead letter channel, once, as it was."""
        found, values = self._found(channel), dict(self.history.final[channel])
        names = {name for name, _ in self._expected(channel)}
        for key in self._expected(channel).keys() - found.keys():
            yield f"C16 {channel}: {key} is no dead letter"
        for (name, sequence), copies in found.items():
            if len(copies) > 1 and name in names:
                yield f"C16 {channel}: {name} {sequence} is there {len(copies)} times"
            for message, headers in copies:
                if sequence in values and message.data.decode() != values[sequence]:
                    yield f"C16 {channel}: {sequence} has become {message.data}"
                reason, count = headers[letters.REASON], letters.number(headers, letters.COUNT)
                if reason == letters.EXHAUSTED and count != self.policy.max_deliver:
                    yield f"C16 {channel}: {name} {sequence} was given up after {count} deliveries"
                kind = crc32(f"{channel} {sequence}".encode()) % KINDS
                if reason == letters.REJECTED and kind != REJECTED:
                    yield f"C16 {channel}: {name} {sequence} was not rejected"
                if headers[letters.CHANNEL].decode() != channel:
                    yield f"C16 {channel}: {sequence} is of {headers[letters.CHANNEL]}"
        self.history.dead_letters.update((channel, sequence, name) for name, sequence in found)
        self.reasons.update(headers[letters.REASON] for copies in found.values() for _, headers in copies)


class Redriver(SimClient):
    """An operator who puts dead letters back, into a channel of their own, while everybody works and everything fails."""

    def _connect(self):
        """It needs no registration."""
        self.later(self.random.randint(100, 600) * MILLISECOND, self._next)

    def _next(self):
        if self.world.quiet and self.loop.now > self.world.redrive_until:
            return
        channel = self.random.choice(CHANNELS)
        first = self.random.choice((1, 1, self.random.randint(1, 20)))
        request = admin.RedriveRequest(
            version=1, channel=(channel + SUFFIX).encode(), runs=[first, first + 30], to=(channel + AGAIN).encode()
        )
        self.request(f"{SUBJECT}.redrive", request, self._answered, self._next)

    def _answered(self, payload):
        self.world.put_back += admin.ChangeResponse.FromString(payload).changed
        self.later(self.random.randint(20, 200) * MILLISECOND, self._next)


class NodeDeadLetters(_DeadLetters, NodeVerdicts):
    """One node."""


class ClusterDeadLetters(_DeadLetters, ClusterVerdicts):
    """A cluster. Crashes are aimed at the moment after a move is committed on a node, and at writes."""

    def __init__(self, seed):
        super().__init__(seed)
        self.limit = 0  # it would hold for dead letters too
        self.history.limits.clear()
        self.aimed |= {"append": self.random.choice((0, 0.003, 0.01)), "letter": self.random.choice((0, 0.05, 0.2))}

    def stored(self, node, batch):
        name = self.channel_of.get(batch.uid)
        if name is None:
            name = self.channel_of[batch.uid] = values_of(batch.records)[0][0]
        if name.endswith((SUFFIX, AGAIN)):
            self.aim(node, "letter")
            self.stored_letters(name, batch)
        else:
            super().stored(node, batch)

    def stored_letters(self, name, batch):
        """A node has committed dead letters, or some that were put back."""


class ClusterRedrives(ClusterDeadLetters):
    """A cluster, and an operator who puts dead letters back: each is at one of the two places."""

    def __init__(self, seed):
        super().__init__(seed)
        self.dead_letters |= {channel + AGAIN: {} for channel in CHANNELS}
        self.ever = {
            name: {} for name in self.dead_letters
        }  # channel -> sequence -> message, as any node has stored it
        self.put_back = self.redrive_until = 0

    def make_clients(self, **how):
        super().make_clients(**how)
        for number in range(3):  # what one of them asks may be lost for seconds
            redriver = Redriver(self, f"redriver{number}")
            self.add(redriver)
            self.loop.after(SECOND, redriver.start)

    def finish(self, left_out=None):
        self.redrive_until = self.loop.now + 3 * SECOND
        return super().finish(left_out)

    def stored_letters(self, name, batch):
        at, records, known = 0, bytes(batch.records), self.ever[name]
        for sequence in range(batch.base_sequence, batch.base_sequence + batch.count):
            size = int.from_bytes(records[at : at + 4], "little")
            message = wire.MsgProto.FromString(records[at + 4 : at + 4 + size])
            at += 4 + size
            if known.setdefault(sequence, message) != message:
                self.complain(f"{name}:{sequence} differs between nodes")

    def _given_up(self, channel):
        return self.ever[channel + SUFFIX].values()

    def _wrong(self, channel):
        """C17: a dead letter that is not there any more was put back, once; the others were not."""
        yield from super()._wrong(channel)
        left, back = self.dead_letters[channel + SUFFIX], self.dead_letters[channel + AGAIN]
        gone = Counter(message.data for s, message in self.ever[channel + SUFFIX].items() if s not in left)
        if gone != Counter(message.data for message in back.values()):
            yield f"C17 {channel}: gone are {gone}, put back {Counter(message.data for message in back.values())}"
        for sequence, message in back.items():
            headers = letters.headers_of(message)
            if headers != {letters.REDRIVEN: b"1"}:
                yield f"C17 {channel}: {sequence} was put back with {headers}"

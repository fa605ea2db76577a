"""A world with a consumer group: members join, leave, die, and are stopped and go on; channels come and go; nodes die.

What must be true: of two owners of a channel exactly one is after the other, positions never go back, a message comes again only
with the batch that its owner had not committed, everything is read in the end, and no channel is without a living owner for much
longer than a lease while nothing else is wrong.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as ext
from stan_protocol.refusals import CHANNEL_DELETING, OUTDATED_GENERATION, UNKNOWN_CHANNEL
from stan_protocol.scalars import MILLISECOND, SECOND

from stan.core.services.node import META_GROUP
from tests.kit.broker_state import BrokerState
from tests.sim.clients import SimClient
from tests.sim.cluster_world import ClusterWorld
from tests.sim.scene import CHANNELS

SUBJECT = "_STAN.x.test-cluster"
GROUP = "ledger"
LEASE = 1 * SECOND
BATCH = 5
"""Messages of one batch."""
SAMPLE = 50 * MILLISECOND
HANDOVER = 1500 * MILLISECOND
"""Beyond its lease, a channel whose owner is gone is with the next one after this."""
GONE = (OUTDATED_GENERATION, UNKNOWN_CHANNEL, CHANNEL_DELETING)
EXTRA = tuple(f"x{at}" for at in range(5))


@dataclass(eq=False, repr=False)
class Share:
    """What one member does with one channel that it owns."""

    channel: str
    uid: int
    generation: int
    owner: str
    position: int = 0
    batches: list = field(default_factory=list)  # sequences of each batch that was handled
    committed: int = 0  # the position that is surely noted
    releasing: bool = False
    busy: bool = False  # a step is on its way
    done: bool = False

    def __repr__(self):
        return f"{self.owner} under generation {self.generation}"


@dataclass(frozen=True)
class Noted:
    """A claim or a position that was taken."""

    channel: str
    uid: int
    generation: int
    asked_at: int
    told_at: int
    asked: int  # the position, 0: a claim
    sequence: int  # as answered


class SimConsumer(SimClient):
    """A member over its lives, each of which is another member to the servers."""

    def __init__(self, world, client_id):
        super().__init__(world, client_id)
        self.shares = {}  # (uid, generation) -> Share
        self.released = set()
        self.known = 0
        self.leaving = False
        self.stopped_until = 0
        self.ready_at = 0  # since when this life is heard

    def _connect(self):
        """It needs no registration."""
        self.shares, self.released, self.known, self.leaving = {}, set(), 0, False
        self.ready_at = self.loop.now
        self._beat()

    # --- a process that is stopped for a while ------------------------------------------------------------------------

    def stop_for(self, length):
        self.stopped_until = max(self.stopped_until, self.loop.now + length)
        self.ready_at = self.stopped_until

    def later(self, delay, call, *args):
        def run():
            if self.loop.now < self.stopped_until:
                super(SimConsumer, self).later(self.stopped_until - self.loop.now, run)
            else:
                call(*args)

        super().later(delay, run)

    def ask(self, kind, request, answer, done, again):
        """One request; what comes while the process is stopped is read later."""

        def answered(payload):
            self.later(0, lambda: done(answer.FromString(payload)))

        self.request(f"{SUBJECT}.{kind}", request, answered, again)

    # --- the lease ----------------------------------------------------------------------------------------------------

    def _beat(self):
        self._hear()
        self.later(LEASE // 4, self._beat)

    def _hear(self):
        request = ext.ConsumerGroupRequest(
            group=GROUP.encode(),
            member=f"{self.conn_id}-of-the-group".encode(),
            pattern=b">",
            lease_ms=LEASE // MILLISECOND,
            known=self.known,
            wait_ms=LEASE // 4 // MILLISECOND,
            name=self.client_id.encode(),
            released=[ext.OwnedChannel(uid=uid, generation=generation) for uid, generation in self.released],
        )
        self.ask("consumer_group", request, ext.ConsumerGroupResponse, self._told, lambda: None)

    def _told(self, response):
        if response.error or self.leaving:
            self.world.fail_if(response.error and not response.retry, f"{self.client_id}: {response.error.decode()}")
            return
        if response.unchanged or response.assignment == self.known:
            return
        self.known = response.assignment
        owned = {(one.uid, one.generation): one for one in response.channels}
        self.released &= owned.keys()
        for key in [key for key in self.shares if key not in owned]:
            self.shares.pop(key).done = True
        for key, one in owned.items():
            share = self.shares.get(key)
            if share is None and key not in self.released:
                share = self.shares[key] = Share(one.channel.decode(), one.uid, one.generation, self.conn_id)
                self.world.shares.append(share)
                self._claim(share)
            if share is not None and one.release:
                share.releasing = True
                if not share.busy:
                    self._release(share)
        self._hear()

    def _release(self, share):
        share.done = True
        key = share.uid, share.generation
        if self.shares.get(key) is share:
            del self.shares[key]
            self.released.add(key)
            self._hear()

    def leave(self):
        """Finish what is under way, then go; and come back another time."""
        self.leaving = True
        for share in list(self.shares.values()):
            share.releasing = True
        self._go_when_finished()

    def _go_when_finished(self):
        if any(share.busy for share in self.shares.values()):
            self.later(20 * MILLISECOND, self._go_when_finished)
            return
        request = ext.ConsumerGroupRequest(
            group=GROUP.encode(),
            member=f"{self.conn_id}-of-the-group".encode(),
            pattern=b">",
            lease_ms=LEASE // MILLISECOND,
            leave=True,
        )
        self.port.publish(f"{SUBJECT}.consumer_group", request.SerializeToString(), "nowhere")
        self.later(5 * MILLISECOND, lambda: self.world.kill_client(self))

    # --- a channel ----------------------------------------------------------------------------------------------------

    def _note(self, share, sequence, done):
        """Claim (*sequence* 0), or note a position, until it is answered."""
        share.busy = True
        asked_at = self.loop.now
        request = ext.CursorSetRequest(
            name=GROUP.encode(),
            channel=share.channel.encode(),
            sequence=sequence or 1,
            generation=share.generation,
            claim=not sequence,
            uid=share.uid,
        )

        def again():
            if not share.done or sequence:
                self._note(share, sequence, done)

        def told(response):
            error = response.error.decode()
            if response.retry or (error and error not in GONE and self.world.disk_failed):
                self.later(50 * MILLISECOND, again)
            elif error:
                share.busy, share.done = False, True
                self.world.fail_if(error not in GONE, f"{self.client_id}: {error}")
                self._release(share)  # it is somebody else's, or soon will be
            else:
                share.busy = False
                noted = (share.channel, share.uid, share.generation, asked_at, self.loop.now)
                self.world.noted.append(Noted(*noted, sequence, response.sequence))
                done(response.sequence)

        self.ask("cursor_set", request, ext.CursorSetResponse, told, again)

    def _claim(self, share):
        def claimed(sequence):
            share.position = share.committed = sequence
            self._next(share)

        self._note(share, 0, claimed)

    def _next(self, share):
        if share.releasing and not share.done:
            self._release(share)
        elif not share.done:
            request = ext.FetchRequest(channel=share.channel.encode(), from_sequence=share.position, max_messages=BATCH)
            share.busy = True
            self.ask(
                "fetch", request, ext.FetchResponse, lambda found: self._handle(share, found), lambda: self._idle(share)
            )

    def _idle(self, share):
        share.busy = False
        self.later(self.random.randint(20, 120) * MILLISECOND, self._next, share)

    def _handle(self, share, found):
        sequences = [s for run in found.runs for s in range(run.first_sequence, run.first_sequence + run.count)]
        if found.error or not sequences or (found.uid and found.uid != share.uid) or share.done:
            self._idle(share)
            return
        if share.releasing:  # a batch that nobody has begun with is given up
            self._idle(share)
            return

        def handled():
            share.batches.append(sequences)
            self._note(share, found.next_sequence or sequences[-1] + 1, noted)

        def noted(position):
            share.position = share.committed = position
            self.later(self.random.choice((0, 0, 10)) * MILLISECOND, self._next, share)

        self.later(self.random.choice((0, 5, 40, 400)) * MILLISECOND, handled)


class ChannelMaker(SimClient):
    """Makes channels without messages and deletes them."""

    def _connect(self):
        self.later(self.random.randint(200, 900) * MILLISECOND, self._next)

    def _next(self):
        if self.world.quiet:
            return
        channel = self.random.choice(EXTRA).encode()
        kind = self.random.choice(("create_channel", "create_channel", "delete_channel"))
        made = admin.CreateChannelRequest if kind == "create_channel" else admin.DeleteChannelRequest
        self.request(f"{SUBJECT}.admin.{kind}", made(version=1, channel=channel), lambda _payload: None, lambda: None)
        self.later(self.random.randint(50, 600) * MILLISECOND, self._next)


class ConsumerGroupScene:
    """What a world with a consumer group has besides another one's; put before it."""

    def __init__(self, seed):
        super().__init__(seed)
        self.shares = []  # of all members, ever
        self.noted = []
        self.unowned = defaultdict(int)  # uid -> since when nobody who lives owns it
        self.longest = 0  # time for which a channel had no owner, where nothing else was wrong
        self.leads_since = (None, 0)

    def make_clients(self, **options):
        for at in range(self.random.choice((1, 3, 4))):
            self.add(SimConsumer(self, f"mem{at}"))
        self.add(ChannelMaker(self, "maker"))
        super().make_clients(**options)
        self.loop.after(SAMPLE, self._sample)

    def _plan_faults(self, end):
        super()._plan_faults(end)
        draw = self.random
        for _ in range(draw.choice((0, 4, 10, 20))):
            self.loop.at(draw.randint(self.loop.now + SECOND // 2, end), self._member_fault)

    def _member_fault(self):
        draw = self.random
        member = draw.choice([client for client in self.clients.values() if isinstance(client, SimConsumer)])
        kind = draw.choice(("kill", "stop", "stop", "stop", "leave"))
        self.faults.append((self.loop.now, f"{kind} {member.client_id}"))
        if not member.alive:
            return
        if kind == "kill":
            self.kill_client(member)
        elif kind == "stop":
            member.stop_for(draw.choice((300, 1500, 3000)) * MILLISECOND)
        else:
            member.leave()

    # --- what is looked at while it runs ------------------------------------------------------------------------------

    def meta_leader(self):
        """The broker that leads the metadata; None: none surely does."""
        raise NotImplementedError

    def _sample(self):
        self.loop.after(SAMPLE, self._sample)
        now, broker = self.loop.now, self.meta_leader()
        if broker is not self.leads_since[0]:
            self.leads_since = broker, now
        calm = broker is not None and not self.history.explained(now - HANDOVER, now)
        living = [
            client
            for client in self.clients.values()
            if isinstance(client, SimConsumer) and client.alive and client.port.up and client.ready_at <= now
        ]
        serving = any(now - member.ready_at > HANDOVER and not member.leaving for member in living)
        if not calm or not serving:
            self.unowned.clear()
            return
        meta = BrokerState(broker).copy_of_meta()
        group = meta.consumer_groups.by_name.get(GROUP.encode())
        alive = {f"{client.conn_id}-of-the-group".encode() for client in living}
        for uid in meta.by_uid:
            owner = group.owners.get(uid) if group is not None else None
            if owner is not None and owner.member in alive:
                self.unowned.pop(uid, None)
                continue
            since = self.unowned.setdefault(uid, now)
            took = now - max(since, self.leads_since[1])
            self.longest = max(self.longest, took)
            if took > LEASE + HANDOVER:
                self.complain(f"channel {uid} has had no living owner for {took / SECOND:.2f} s")
                self.unowned[uid] = now

    def unread(self):
        """Which channel the group has not read to its end; "" if it has read all."""
        for channel in CHANNELS:
            broker = self.channel_leader(channel)
            info = broker and broker.view.meta.channels.get(channel.encode())
            if not broker or info is None:
                return f"nobody leads {channel}"
            last = broker.view.indexes(info.group, info.uid).last_sequence
            place = BrokerState(broker).copy(info.group).bookmarks.by_channel.get(info.uid, {})
            at = place[GROUP.encode()].sequence if GROUP.encode() in place else 0
            if at <= last:
                return f"the group is at {at} of {last} in {channel}"
        return ""

    def channel_leader(self, channel):
        """The broker that leads the group of a channel; None: none does."""
        raise NotImplementedError

    def run(self):
        return super().run() + list(check_consumer_group(self))

    def digest_events(self):
        super().digest_events()
        for noted in self.noted:
            self.digest.update(repr(noted).encode())

    def read_all(self):
        self.fail_if(self.unread(), f"no progress: {self.unread()}")
        super().read_all()


class ClusterConsumerGroup(ConsumerGroupScene, ClusterWorld):
    """A cluster, whose leader of the metadata is killed more often than others."""

    def _plan_faults(self, end):
        super()._plan_faults(end)
        for _ in range(self.random.choice((0, 0, 1, 2))):
            self.loop.at(self.random.randint(self.loop.now + SECOND, end), self._kill_meta_leader)

    def _kill_meta_leader(self):
        node = self.leader(META_GROUP)
        if node is not None:
            self.faults.append((self.loop.now, f"kill {node}, which leads the metadata"))
            node.crash(power=False)

    def _broker(self, group):
        node = self.leader(group)
        return node.cluster_node.broker if node is not None and node.running and not node.pauses.until else None

    def meta_leader(self):
        return self._broker(META_GROUP)

    def channel_leader(self, channel):
        return self._broker(self.history.group_of[channel])

    def _open_ends(self):
        return self.unread() or super()._open_ends()


def check_consumer_group(world):
    """C20: of two owners one is after the other, positions never go back, and only uncommitted batches come again."""
    yield from check_owners(world.noted)
    yield from check_handled(world.shares, world.noted)
    history = world.history
    for channel in CHANNELS:
        if not history.limits.get(channel):
            handled = {
                s for share in world.shares if share.channel == channel for batch in share.batches for s in batch
            }
            missed = set(history.surely_there(channel)) - handled
            if missed:
                yield f"check_consumer_group: {channel}: nobody has handled {sorted(missed)[:5]}"


def check_owners(noted):
    """What was asked after a claim was answered, under a smaller generation, is not taken; and no position is behind one that was
    answered before it was asked for."""
    by_uid = defaultdict(list)
    for one in noted:
        by_uid[one.uid].append(one)
    for uid, found in by_uid.items():
        generation = sequence = 0  # highest that were answered so far
        events = [(one.asked_at, 1, at, one) for at, one in enumerate(found)]
        events += [(one.told_at, 0, at, one) for at, one in enumerate(found)]
        then = {}  # place -> what was answered when it was asked
        for _, asked, at, one in sorted(events, key=lambda event: event[:3]):
            if asked:
                then[at] = generation, sequence
                continue
            least, behind = then.get(at, (0, 0))
            if one.generation < least:
                yield f"check_owners: {uid}: generation {one.generation} was taken after {least} was: {one}"
            if one.sequence < behind:
                yield f"check_owners: {uid}: the position is {one.sequence}, and was {behind}: {one}"
            generation, sequence = max(generation, one.generation), max(sequence, one.sequence)


def check_handled(shares, noted):
    """A message that two owners have handled was in the last batch of the earlier one, and not known as committed when the later
    one claimed."""
    claims = {(one.uid, one.generation): one for one in noted if not one.asked}
    by_uid = defaultdict(list)
    for share in shares:
        by_uid[share.uid].append(share)
    for uid, found in by_uid.items():
        handled = {}  # sequence -> the share that has handled it last
        for share in sorted(found, key=lambda one: one.generation):
            for at, batch in enumerate(share.batches):
                for sequence in batch:
                    before = handled.get(sequence)
                    if before is share:
                        yield f"check_handled: {uid}: {sequence} came twice to {share}"
                    elif before is not None and sequence not in before.batches[-1]:
                        yield f"check_handled: {uid}: {sequence} came again, and not with the last batch of {before}"
                    claim = claims.get((uid, share.generation))
                    if at == 0 and claim is not None and sequence < claim.sequence:
                        yield f"check_handled: {uid}: {sequence} is before {claim}"
                    handled[sequence] = share

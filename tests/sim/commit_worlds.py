"""Clusters in which one channel is `replicated` and one `synced`, amid all faults: what each promises when power is lost.

`CommitWorld`: never more than a minority of the nodes has lost power and is not whole again: both channels promise everything.
`PowerWorld`: power goes everywhere, too. The synced channel promises everything still. Of the replicated one messages that were
acked just before may be gone, and others get their sequences; `check_replicated` says which, and that nothing else is.
"""

import re
from copy import copy

from stan_protocol.scalars import MILLISECOND, SECOND

from stan.policies import REPLICATED, PolicyRule
from tests.kit.broker_state import propose
from tests.sim.cluster_world import ClusterWorld
from tests.sim.history import ON_THE_WAY, REACH, Acked, Joined, complaints
from tests.sim.parted_worlds import WHOLE, ClusterParted, Parted
from tests.sim.scene import CHANNELS, reader_of

SAFE, FAST = CHANNELS
PAUSE = 100 * MILLISECOND
NOT_SYNCED = 4 * SECOND
"""What was acked longer ago is on a disk: logs are synced four times a second, and nodes are stopped for two at most."""


LACKS = re.compile(r"group (\d+): (\w+) has lost entries")
"""Said by a leader; of a replicated group, and of a node whose power was lost, it is as it should be."""


class CommitWorld(ClusterWorld):
    """One run in which a majority of whole nodes is never without power."""

    policies = (PolicyRule(pattern=FAST, commit=REPLICATED),)

    def __init__(self, seed, *, calm=False):
        super().__init__(seed, calm=calm)
        self.new_groups = self.random.choice((1, 2))
        self.lost = {}  # node -> its life when it lost power, while it is not known to be whole again
        self.losses = 0  # of power
        self.without_power = set()  # who has lost power in this run
        self._founded = False

    @property
    def pool(self):
        nodes = [node.cluster_node for node in self.nodes.values() if node.cluster_node is not None]
        return max((node.broker.view.pool for node in nodes), default=self.raft_groups)

    def run(self, safety_s=9):
        """Until then the pool has grown, and clients meet faults."""
        return super().run(safety_s)

    # --- groups of both kinds ---------------------------------------------------------------------------------------------

    def make_clients(self, **how):
        """They begin when there are groups for both kinds of channels."""
        self._how = how
        self._grow()

    def _grow(self):
        leader = self.leader(0)
        if leader is not None and leader.running and not leader.pauses.until:
            view = leader.cluster_node.broker.view
            if view.pool_open > self.raft_groups:
                self._founded = True
                self._make_clients()
                for at in range(self.random.choice((1, 2, 3))):
                    self.loop.after(
                        (1 + 2 * at) * SECOND + self.random.randint(0, 2 * SECOND), self._lag_and_lose_power
                    )
                return
            if view.pool == self.raft_groups and view.meta.founded:
                leader.run(self._propose, leader)
        self.loop.after(PAUSE, self._grow)

    def _make_clients(self):
        super().make_clients(**self._how)

    def _propose(self, leader):
        growth = leader.cluster_node.reconfiguration.growth(self.raft_groups + self.new_groups)
        if not isinstance(growth, str):
            growth.commit = REPLICATED
            propose(leader.cluster_node.broker, grow_pool=growth)
            leader.run(leader.driver.turns.wake)

    def note(self, node, level, text):
        lacks = LACKS.match(text)
        if lacks and int(lacks[1]) > self.raft_groups and lacks[2] in self.without_power:
            self.trace(f"{node.name} {level} {text}")
            return
        if text.endswith("has been created"):
            for info in node.cluster_node.broker.view.meta.channels.values():
                self.history.group_of[info.name.decode()] = info.group
        super().note(node, level, text)

    def _open_ends(self):
        if not self._founded:
            return "there are no groups for replicated channels"
        leader = self.leader(0)
        meta = leader and leader.cluster_node.broker.view.meta
        for name, commit in ((SAFE, 0), (FAST, REPLICATED)) if meta else ():
            info = meta.channels.get(name.encode())
            if info is None:
                continue
            self.history.group_of[name] = info.group  # who would have told that it was made may have died
            if meta.commit_of(info.group) != commit:
                return f"{name} is in group {info.group}, which is not for it"
        return super()._open_ends()

    # --- power --------------------------------------------------------------------------------------------------------------

    def is_whole(self, node):
        """Whether a node has all again that it had acknowledged when its power went, or its disk."""
        if node.running:
            groups = node.cluster_node.groups.values()
            if not groups or any(group.amnesiac for group in groups):
                return False
            if node.lives > self.lost.get(node.name, node.lives):
                del self.lost[node.name]
        return node.name not in self.lost

    def others_are_whole(self, node):
        """Whether no other node may lack what it had acknowledged."""
        return all(self.is_whole(other) for other in self.nodes.values() if other is not node)

    def may_lose_power(self, node):
        return self.others_are_whole(node)

    def _somebody_to_leave_out(self):
        """New groups need all nodes, and a group that has lost power a majority of whole ones."""
        node = super()._somebody_to_leave_out() if self._founded else None
        return node if node is not None and self.others_are_whole(node) else None

    def lost_power(self, node):
        """Its power has gone."""
        self.losses += 1
        self.without_power.add(node.name)
        self.lost[node.name] = node.lives

    def _lag_and_lose_power(self):
        """A follower misses what is acknowledged meanwhile, and comes back just when one that has it loses power."""
        groups = range(self.raft_groups + 1, self.pool + 1)
        leader = self.leader(self.random.choice(groups)) if groups else None
        if leader is None or self.quiet:
            return
        lagging, victim = self.random.sample(list(self.nodes.values()), 2)
        others = [name for name in self.names if name != lagging.name]
        length = self._length()
        self._cause(length + SECOND, f"{lagging} lags, {victim} loses power")
        for pair in [pair for name in others for pair in ((lagging.name, name), (name, lagging.name))]:
            self.nats.deaf[pair] = None
            self.loop.after(length, self.nats.deaf.pop, pair, None)
        self.loop.after(length, lambda: self.quiet or victim.crash(power=True))

    def _fault_client(self):
        if self.clients:
            super()._fault_client()

    def _fault_client_cut(self):
        if self.clients:
            super()._fault_client_cut()

    def _fault_replace(self):
        super()._fault_replace()
        self.lost |= {node.name: node.lives for node in self.nodes.values() if node.cluster_node is None and node.lives}

    def _fault_disk_error(self):
        """A disk that fails once and loses its power later may forget a vote, which is not what is looked at here."""
        self._fault_operation()


class PartedCommit(ClusterParted, CommitWorld):
    """The same of a channel with parts, all of which are replicated."""

    policies = (PolicyRule(pattern=WHOLE, commit=REPLICATED),)

    def make_clients(self, **how):
        CommitWorld.make_clients(self, **how)

    def _make_clients(self):
        Parted.make_clients(self, **self._how)

    def homes_of_parts(self, view):
        return [group for group in range(1, view.pool + 1) if view.meta.commit_of(group) == REPLICATED]


class PowerWorld(CommitWorld):
    """One run in which power goes everywhere, too; no disk is replaced, as an operator would have to decide then."""

    def __init__(self, seed, *, calm=False):
        super().__init__(seed, calm=calm)
        self.outages = []  # when more than a minority had lost power
        self.acked = 0  # messages of the replicated channel
        self.strikes = self.random.sample(range(1, 120), 3)  # so many acks, and power goes
        self.before = []  # (channel, sequence, value) of what nodes had committed before an outage

    def run(self, safety_s=12):
        """Power goes everywhere at least once: right behind an ack, and at any moment."""
        for _ in range(self.random.choice((0, 1, 2))):
            self.loop.after(self.random.randint(5 * SECOND, safety_s * SECOND), self._lose_all)
        return super().run(safety_s)

    def make_clients(self, **how):
        super().make_clients(**how | {"pace": self.random.choice((15, 40)) * MILLISECOND})

    def acknowledged(self, publish):
        super().acknowledged(publish)
        if publish.channel == FAST:
            self.acked += 1
            if self.acked in self.strikes:
                self.loop.after(self.random.choice((0, 1, 30)) * MILLISECOND, self._lose_all)

    def _lose_all(self):
        if self._founded and not self.quiet:
            self.faults.append((self.loop.now, "power everywhere"))
            self._fault_power_all()

    @property
    def forgotten(self):
        """Messages of the replicated channel that were acked, and are gone."""
        there = {value for _, value in self.history.final[FAST]}
        acked = (publish.value for publish in self.history.acknowledged if publish.channel == FAST)
        return [] if self.limit else [value for value in acked if value not in there]

    def _fault_replace(self):
        self._fault_power()

    def _somebody_to_leave_out(self):
        return None  # whoever lost power comes back

    def may_lose_power(self, _node):
        return True

    def lost_power(self, node):
        minority = self.others_are_whole(node)
        super().lost_power(node)
        if not minority:
            self.outages.append(self.loop.now)
            history = self.history
            self.before += [(FAST, *one) for one in history.stored.pop(FAST, {}).items()]
            history.forget_batches(FAST)

    def _has_read(self, channel):
        if channel != FAST:
            return super()._has_read(channel)
        info = self.leader(0).cluster_node.broker.view.meta.channels[FAST.encode()]
        leader, read = self.leader(info.group), self._read_by(reader_of(FAST))
        last = leader and leader.cluster_node.broker.view.indexes(info.group, info.uid).last_sequence
        return last == 0 or bool(read and leader and read[-1][0] >= last)

    def complaints(self):
        """Of everything; of the replicated channel, those of `check_replicated`."""
        return complaints(without(self.history, FAST)) + [
            f"check_replicated: {text}" for text in check_replicated(self.history, FAST, self.outages, self.before)
        ]


def without(history, channel):
    """The history of all other channels."""
    kept = copy(history)
    group = history.group_of.get(channel)
    kept.publishes = {value: one for value, one in history.publishes.items() if one.channel != channel}
    kept.events = [event for event in history.events if not hasattr(event, "sub") or event.sub.channel != channel]
    for name in ("stored", "final"):
        there = getattr(history, name)
        kept_rows = there.__class__(there.default_factory, {one: rows for one, rows in there.items() if one != channel})
        setattr(kept, name, kept_rows)
    kept.must_finish = {consumer: one for consumer, one in history.must_finish.items() if one != channel}
    kept.changes = {place: told for place, told in history.changes.items() if place[0] != group}
    kept.cursors = {place: one for place, one in history.cursors.items() if place[0] != group}
    return kept


def check_replicated(history, channel, outages, before):
    """C20: in a replicated channel what was acked is there, unless it was acked just before an outage; a sequence has one message
    between two outages; nothing is there that nobody published, nor twice; and who acks everything has got all that is there,
    unless it subscribed just before an outage: of that, too, the nodes may have nothing left, and nobody tells it. Who acks what
    is gone acks what has its sequence."""
    read = history.final[channel]
    place = {value: sequence for sequence, value in read}
    if len(place) != len(read):
        yield f"{channel}: a message is there twice"
    floor = history.first[channel]
    numbers = [sequence for sequence, _ in read]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers)) if numbers else []):
        yield f"{channel}: a gap in {numbers}"
    seen = {}  # (sequence, value) -> [first, last time]
    for d in history.deliveries:
        if d.sub.channel == channel:
            times = seen.setdefault((d.sequence, d.value), [d.at, d.at])
            times[1] = d.at
    for value in {*place, *(value for _, value in seen)}:
        publish = history.publishes.get(value)
        if publish is None or publish.channel != channel:
            yield f"{channel}: {value} was never published"
    gone = {value: sequence for _, sequence, value in before} | {value: sequence for sequence, value in seen}
    gone |= {value: sequence for sequence, value in history.stored.get(channel, {}).items()}
    for publish in history.acknowledged:
        if publish.channel != channel or publish.value in place or gone.get(publish.value, floor) < floor:
            continue
        if not any(publish.asked_at <= at and publish.ok_at >= at - NOT_SYNCED for at in outages):
            yield f"{channel}: {publish.value} was acknowledged, and is not there, without an outage in the seconds after"
    by_sequence = {}
    for (sequence, value), times in seen.items():
        by_sequence.setdefault(sequence, []).append((*times, value))
    for sequence, found in by_sequence.items():
        for one, other in zip(sorted(found), sorted(found)[1:], strict=False):
            if not any(one[0] - ON_THE_WAY <= at <= other[1] + REACH for at in outages):
                yield f"{channel}:{sequence} is {one[2]} and {other[2]}, and no outage was between"
    for consumer in [consumer for consumer, where in history.must_finish.items() if where == channel]:
        if not is_surely_there(history, consumer, outages):
            continue
        got = {(d.sequence, d.value) for d in history.deliveries if d.sub.consumer == consumer}
        of_others = {
            e.sequence for e in history.events if isinstance(e, Acked) and e.sub.consumer == consumer and outages
        }
        missing = [sequence for sequence, value in read if (sequence, value) not in got and sequence not in of_others]
        if missing and not history.limits.get(channel):
            yield f"{consumer}: never got {missing[:5]}"


def is_surely_there(history, consumer, outages):
    """Whether one of its subscriptions was not made just before an outage, or has ended since."""
    open_ones = [
        e.sub for e in history.events if isinstance(e, Joined) and e.sub.consumer == consumer and not e.sub.ended_at
    ]
    return not open_ones or any(
        not any(sub.joined_at - ON_THE_WAY <= at <= sub.joined_at + NOT_SYNCED for at in outages) for sub in open_ones
    )

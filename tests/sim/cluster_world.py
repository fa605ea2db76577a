"""Whole clusters from one seed: nodes, their disks and clocks, one NATS or one for each node, clients; faults; then peace, and
the checks.

Safety phase: faults at random, and aimed at the moments that matter: after a vote, an ack, a leadership, within a transfer. Then
a quorum (or everything) is healed, and there must be progress: backlogs drained, every node whole, all groups led, all replicas
equal. The nodes are the production code (stan.edge.cluster.node); only time, NATS, files and SQLite's file are the
simulation's.
"""

import errno
from functools import partial
from hashlib import blake2b

from stan_protocol.scalars import MICROSECOND, MILLISECOND, SECOND, GroupId

from stan import limits
from stan.core.services.node import META_GROUP
from stan.errors import FAULT
from stan.labels import NO_LABELS
from stan.policies import EPHEMERAL
from stan.protocol.compressed_batches import in_clear
from stan.protocol.entries import STAGING_UID
from stan.protocol.placement import channel_group
from stan.protocol.staged import sealed
from tests.kit.broker_state import BrokerState
from tests.sim.cluster_node import HANDED_OVER_IN_VAIN, HANDS_OVER, LEADS, LEADS_NO_MORE, SimulatedNode, values_of
from tests.sim.history import Reset, complaints
from tests.sim.scene import CHANNELS, Scene

LENGTHS = (20, 200, 700, 2500)  # of faults, in ms
CALM = 8 * SECOND
"""Most runs end when all is healed and nobody has begun to lead for so long; nobody does from then on, and so nothing more is
found of what was said before ..."""
LONG_CALM_SHARE = 0.2
"""... and some go on for as long as a new leader may find it: most of a run's time goes into that."""


class ClusterWorld(Scene):
    """One run."""

    changes_nodes = False
    drain_s = 40  # in peace, until all backlogs are done

    def __init__(self, seed, *, calm=False):
        """A *calm* one is for a test that makes the faults itself."""
        super().__init__(seed)
        draw = self.random
        count = draw.choice((3, 3, 5))
        if draw.random() < 0.5:
            self.use_servers(count)
        self.names = [f"n{at}" for at in range(count)]
        self.raft_groups = draw.choice((1, 2, 3))
        self.limit = draw.choice((0, 0, 40))
        self.bootstrap = draw.choice((None, self.names[0]))
        self.aimed = {kind: 0 if calm else draw.choice((0, 0, chance)) for kind, chance in _AIMS.items()}
        self.disk_failed = False
        self.program_fails = False  # a test has broken something in a group
        self.channel_of = {}  # uid -> name
        self.staged = {}  # (group, sequence of its hidden channel) -> records
        self._handing_over = {}  # (node, group) -> since when
        self.removed = {}  # nodes that have gone for good, by name
        self.nodes = {name: SimulatedNode(self, name, at % self.servers) for at, name in enumerate(self.names)}
        self.nats.seen = self._seen
        for channel in CHANNELS:
            self.history.group_of[channel] = channel_group(channel.encode(), self.raft_groups)
            if self.limit:
                self.history.limits[channel] = self.limit

    # --- the run ----------------------------------------------------------------------------------------------------------

    def run(self, safety_s=6):
        """Returns the complaints."""
        self.begin()
        end = self.loop.now + safety_s * SECOND
        self._plan_faults(end)
        self.loop.run_until(end)
        return self.finish(self._somebody_to_leave_out())

    @property
    def pool(self):
        """How many groups of channels there are."""
        return self.raft_groups

    def labels_of(self, _name):
        """Labels with which a node starts."""
        return NO_LABELS

    def begin(self):
        """Nodes and clients start."""
        for node in self.nodes.values():
            self.loop.after(self.random.choice((0, 10, 900)) * MILLISECOND, node.boot)
        self.make_clients(restless=self.random.choice((0, 0.01)), pace=self.random.choice((150, 600)) * MILLISECOND)

    def run_for(self, seconds):
        self.loop.run_until(self.loop.now + int(seconds * SECOND))

    def finish(self, left_out=None):
        """Heal everything, maybe one node later than the others, and look at what was done."""
        quiet_at = self.loop.now
        self._heal(left_out)
        self._expect_progress()
        if left_out is not None:
            left_out.kept_down = False
            left_out.boot()
            self._expect_progress()
        self._stay_calm(quiet_at + limits.REPLAY_AGE_MAX + SECOND)
        self._expect_progress()
        self.read_all()
        self.run_for(1)  # until what was sent to the readers is told
        self._expect(10, self._replicas_equal, lambda: dict(self.history.replicas))
        self._compare_logs()
        for channel, read in self.history.final.items():
            newest = max(
                self.history.stored.get(channel, ()), default=0
            )  # where nothing is left, check_dense looks at it
            self.history.first[channel] = read[0][0] if read else newest + 1
        self.digest_events()
        found = self.problems + self.complaints()
        for node in self.nodes.values():
            node.crash(power=False, length=SECOND)
            node.database.close()
        return found

    def _stay_calm(self, end):
        """Until no new leader can find more of what was said before: *end* at the latest."""
        long, begun, since = self.random.random() < LONG_CALM_SHARE, 0, self.loop.now
        while self.loop.now < end and (long or self.loop.now < since + CALM):
            if begun != len(self.history.leaders):
                begun, since = len(self.history.leaders), self.loop.now
            elif self.loop.now > since + CALM - SECOND:
                for node in self.nodes.values():
                    node.cluster_node.handovers.spread = lambda _now: None  # what is under way ends within a second
            self.loop.run_until(min(end, self.loop.now + SECOND // 4))

    def complaints(self):
        """What the history says against the broker."""
        return complaints(self.history)

    def may_lose_power(self, _node):
        """Whether a loss of power may come now; else the process is killed."""
        return True

    def lost_power(self, node):
        """A node has lost power."""

    def _expect_progress(self):
        self._expect(self.drain_s, lambda: not self._open_ends(), self._open_ends)

    def _expect(self, seconds, met, describe):
        end = self.loop.now + seconds * SECOND
        while not met():
            if self.loop.now >= end:
                self.complain(f"no progress: {describe()}")
                return
            self.loop.run_until(self.loop.now + SECOND // 4)

    # --- what nodes tell --------------------------------------------------------------------------------------------------

    def note(self, node, level, text):
        self.trace(f"{node.name} {level} {text}")
        led = LEADS.fullmatch(text)
        if led:
            group, term = int(led[1]), int(led[2])
            self.history.leads(self.loop.now, group, term, node.name)
            self.history.cause(self.loop.now, self.loop.now, f"{node.name} leads group {group}")
            self.history.events.append(Reset(self.loop.now, group))
            self.aim(node, "lead")
        if hands_over := HANDS_OVER.fullmatch(text):
            self._handing_over[node.name, hands_over[1]] = self.loop.now
        fallen = LEADS_NO_MORE.fullmatch(text)
        if fallen:
            self.history.leads_no_more(self.loop.now, int(fallen[1]), node.name)
        over = fallen or HANDED_OVER_IN_VAIN.fullmatch(text)
        if over and (since := self._handing_over.pop((node.name, over[1]), 0)):  # meanwhile the log takes nothing
            self.history.cause(since, self.loop.now, f"{node.name} hands group {over[1]} over")
        expected = self.heartbeats_failed(text) or (self.disk_failed and FAULT not in text) or "ghost" in text
        expected = expected or self.program_fails
        forgot = "has lost entries" in text and not any(
            f"{n} has lost" in text for n in self.nodes.values() if n.replaced
        )
        if (level == "ERR" and not expected) or forgot:
            self.complain(f"{node.name} says: {text}")

    def whole(self, group, batch):
        """A batch with its records, also if it refers to rows that were staged."""
        if batch.uid == STAGING_UID:
            self.staged[group, batch.base_sequence] = bytes(batch.records)
        if not batch.staged:
            return batch
        records = sealed(self.staged[group, batch.staged], batch.base_sequence, batch.timestamp)
        return batch._replace(records=memoryview(records), size=0, staged=0)

    def stored(self, node, batch):
        """A node has committed a batch."""
        name, records = self.channel_of.get(batch.uid), bytes(in_clear(batch))
        if name is None:
            name = self.channel_of[batch.uid] = values_of(records)[0][0]
        self.history.batch(node, name, batch.base_sequence, records, lambda: [v for _, _, v in values_of(records)])

    def wall_zero(self, node):
        found = self.nodes.get(node) or self.removed[node]  # an entry may be applied when who made it has gone for good
        return super().wall_zero(node) + found.wall_offset

    def node_died(self, node, length):
        self.history.cause(self.loop.now, self.loop.now + length, f"{node.name} down")
        for group in range(self.pool + 1):
            self.history.leads_no_more(self.loop.now, group, node.name)

    def acknowledged(self, publish):
        leader = self.leader(self.history.group_of[publish.channel])
        if leader is not None:
            self.aim(leader, "ack")

    def _seen(self, port, message):
        """Frames of nodes."""
        if message.subject.endswith(".transfer") or ".transfer." in message.subject:
            node = self.nodes.get(port.name)
            if node is not None:
                self.aim(node, "transfer")

    def leader(self, group):
        leaders = [node for node in self.nodes.values() if node.running and group in node.cluster_node.leaderships.led]
        return max(leaders, key=lambda node: node.cluster_node.groups[group].term, default=None)

    # --- progress -----------------------------------------------------------------------------------------------------------

    def _open_ends(self):
        """What is not as it should be in times of peace; "" if everything is."""
        up = [node for node in self.nodes.values() if not node.kept_down]
        for node in up:
            if not node.well:
                return f"{node} is not well"
        for number in range(self.pool + 1):
            leader = self.leader(number)
            if leader is None:
                return f"group {number} has no leader"
            holders = [node for node in up if number in node.cluster_node.groups]
            applied = {node.name: node.storage.applied[GroupId(number)][0] for node in holders}
            if len(set(applied.values())) > 1:
                return f"group {number}: applied {applied}"
            unequal = [node for node in holders if not node.storage.is_intact(GroupId(number))]
            if unequal:
                return f"group {number} is not whole on {unequal}"
            backlog = self._backlog(leader, number) if number != META_GROUP else ""
            if backlog:
                return f"group {number}: {backlog}"
        for client in self.clients.values():
            sub = getattr(client, "sub", None)
            if not client.alive or (
                client.client_id[:3] in _SUBSCRIBERS and not (sub and sub.joined_at and not sub.ended_at)
            ):
                return f"{client.client_id} is not served"
        return ""

    def _backlog(self, leader, number):
        view = leader.cluster_node.broker.view
        for cursor in BrokerState(leader.cluster_node.broker).positions(number):
            info = view.meta.by_uid.get(cursor.uid)
            if info is not None and info.commit == EPHEMERAL:  # its positions are in no log
                continue
            last = view.indexes(number, cursor.uid).last_sequence
            pending = [m for m in cursor.members if m.pending]
            if cursor.members and (cursor.last_sent < last or self.is_owed(cursor) or pending):
                return f"cursor {cursor.name} of {self.channel_of.get(cursor.uid)} is at {cursor.last_sent} of {last}"
        return ""

    def _replicas_equal(self):
        replicas = self.history.replicas
        replicas.clear()
        for node in self.nodes.values():
            for number in node.cluster_node.groups:
                applied, state, messages = node.state(number)
                replicas[number][node.name] = f"{applied} {_hash(state)} {_hash(repr(messages).encode())}"
        return all(len(set(by_node.values())) == 1 for by_node in replicas.values())

    def _compare_logs(self):
        """What nodes have applied is the same entry by entry: none is spliced from two."""
        seen = {}
        for node in self.nodes.values():
            for number in node.cluster_node.groups:
                log, applied = node.storage.logs[number], node.storage.applied[number][0]
                for entry in log.entries(log.first_index, applied, 1 << 40) if applied >= log.first_index else ():
                    mine = entry.term, entry.kind, _hash(entry.body)
                    name, other = seen.setdefault((number, entry.index), (node.name, mine))
                    if other != mine:
                        self.complain(f"group {number} entry {entry.index}: {name} has {other}, {node.name} has {mine}")

    # --- faults -----------------------------------------------------------------------------------------------------------

    def aim(self, node, kind):
        """Something happened after which a crash would hurt most."""
        draw = self.random
        if self.quiet or not self.aimed[kind] or draw.random() >= self.aimed[kind]:
            return
        self.faults.append((self.loop.now, f"aimed at {kind}"))
        life, power, how = node.lives, draw.random() < 0.6, draw.random()

        def strike():
            if node.lives != life or self.quiet:
                return
            if how < 0.2:
                self._cut_off(node)
            elif how < 0.3:
                self._pause(node)
            else:
                node.crash(power=power)

        self.loop.after(draw.choice((0, 0, 2, 60, 900, 5000)) * MICROSECOND, strike)

    def _plan_faults(self, end):
        draw = self.random
        for _ in range(draw.choice((0, 1, 2, 4, 6, 9))):
            kind = draw.choice(_FAULTS)
            at = draw.randint(self.loop.now + SECOND, end)
            self.faults.append((at, kind))
            self.loop.at(at, getattr(self, f"_fault_{kind}"))

    def _someone(self):
        """A node; often one that leads."""
        draw = self.random
        leaders = [n for n in self.nodes.values() if n.running and n.cluster_node.leaderships.led]
        if leaders and draw.random() < 0.5:
            return draw.choice(leaders)
        return draw.choice(list(self.nodes.values()))

    def _length(self):
        return self.random.choice(LENGTHS) * MILLISECOND

    def _cause(self, length, what):
        self.history.cause(self.loop.now, self.loop.now + length, what)

    def _fault_kill(self):
        self._someone().crash(power=False)

    def _fault_power(self):
        self._someone().crash(power=True)

    def _fault_power_all(self):
        for node in self.nodes.values():
            node.crash(power=True)

    def _fault_kill_all(self):
        for node in self.nodes.values():
            node.crash(power=False)

    def _fault_long_down(self):
        self._someone().crash(power=self.random.random() < 0.5, length=self.random.choice((3, 5)) * SECOND)

    def _fault_operation(self):
        self._someone().files.cut_power_after(self.random.randint(0, 25))

    def _fault_stop(self):
        self._someone().stop()
        self._cause(2 * SECOND, "graceful stop")

    def _fault_replace(self):
        """One disk is lost, while all others are whole."""
        node = self._someone()
        others = [other for other in self.nodes.values() if other is not node]
        if all(other.well and other.votes for other in others):
            self.faults.append((self.loop.now, f"{node} gets an empty disk"))
            node.replace_disk()

    def _fault_pause(self):
        self._pause(self._someone())

    def _fault_pause_amid(self):
        """Stopped between what it has to send and sending it, which may be seconds later."""
        node, length = self._someone(), self.random.randint(100, 2000) * MILLISECOND
        node.pause_amid(length, lambda: self._cause(length, f"{node} is stopped amid a turn"))

    def _fault_lossy(self):
        """Single Raft frames are lost: links end between two frames of one read."""
        length = self._length()
        self.nats.lossy = self.random.choice((0.02, 0.2))
        self._cause(length, "lossy")
        self.loop.after(length, setattr, self.nats, "lossy", 0)

    def _pause(self, node):
        length = self.random.randint(100, 2000) * MILLISECOND
        node.pause(length)
        self._cause(length, f"{node} is stopped")

    def _fault_nats(self):
        self._cut_off(self._someone())

    def _cut_off(self, node):
        if not node.running or not node.port.cut():
            return
        length, port = self._length(), node.port
        self._cause(length, f"{node} without NATS")
        self.loop.after(length, lambda: port.connect() if node.running and node.port is port and not port.up else None)

    def _fault_deaf(self):
        """Raft frames of one direction are lost."""
        pair = tuple(self.random.sample(self.names, 2))
        length = self._length()
        self.nats.deaf[pair] = None
        self._cause(length, f"{pair} deaf")
        self.loop.after(length, self.nats.deaf.pop, pair, None)

    def _fault_isolate(self):
        """No Raft frames in or out, or both."""
        name = self._someone().name
        others = [other for other in self.names if other != name]
        out, back = [(name, other) for other in others], [(other, name) for other in others]
        length = self._length()
        self._cause(length, f"{name} isolated")
        for pair in self.random.choice((out, back, out + back)):
            self.nats.deaf[pair] = None
            self.loop.after(length, self.nats.deaf.pop, pair, None)

    def _fault_split(self):
        """Servers of NATS lose their routes: nodes and clients on different sides are cut off from each other."""
        if self.servers == 1:
            self._fault_isolate()
            return
        draw, length = self.random, self._length()
        servers = list(range(self.servers))
        side = draw.sample(servers, draw.randint(1, self.servers - 1))
        self.nats.partition([side, [s for s in servers if s not in side]])
        self._cause(length, f"split {sorted(side)}")
        self.loop.after(length, self.nats.broken.clear)

    def _fault_clog(self):
        node = self._someone()
        delay, length = self.random.choice((5, 60, 300, 1200)) * MILLISECOND, self._length()
        if node.running:
            node.port.slow_down(delay)
            self._cause(length + 2 * delay, f"{node} clogged")
            self.loop.after(length, node.port.slow_down, 0)

    def _fault_delay(self):
        node, length = self._someone(), self._length()
        if node.running:
            node.port.hold(length)
            self._cause(length, f"{node} delayed")

    def _fault_slow_disk(self):
        node, length = self._someone(), self._length()
        node.disk_slow = True
        self._cause(length, f"{node} slow disk")
        self.loop.after(length, setattr, node, "disk_slow", False)  # noqa: FBT003

    def _fault_disk_full(self):
        """For a while nothing finds room on a disk, or on all; often a life ends meanwhile."""
        draw, length = self.random, self._length()
        self.disk_failed = True
        for node in self.nodes.values() if draw.random() < 0.3 else (self._someone(),):
            self._cause(length + 3 * SECOND, f"{node} has a full disk")
            node.fill(full=True)
            self.loop.after(length, partial(node.fill, full=False))
            end = draw.choice((None, node.stop, partial(node.crash, power=False), partial(node.crash, power=True)))
            if end is not None:
                self.loop.after(draw.randint(0, length), end)

    def _fault_disk_error(self):
        self.disk_failed = True
        self._someone().files.fail(self.random.choice(("fdatasync", "pwritev")), self.random.randint(0, 9), errno.EIO)
        self._cause(3 * SECOND, "disk")

    def _fault_transfer(self):
        for node in self.nodes.values():
            for number in list(node.cluster_node.leaderships.led) if node.running and not node.pauses.until else ():
                group = node.cluster_node.groups[number]
                to = self.random.choice(
                    [peer for peer in node.cluster_node.reconfiguration.placement[number].voters if peer != node.name]
                )
                times = [self.loop.now, self.loop.now + limits.RAFT_TRANSFER_TIMEOUT]
                self.history.handovers[number].append(times)
                node.run(group.transfer, to, partial(self._transferred, times))

    def _transferred(self, times, gone):
        times[1] = self.loop.now
        self.trace(f"transfer {gone}")

    def _fault_client(self):
        self.kill_client(self.random.choice(list(self.clients.values())))

    def _fault_client_cut(self):
        self.cut_client(self.random.choice(list(self.clients.values())))

    # --- peace --------------------------------------------------------------------------------------------------------------

    def _heal(self, left_out):
        self.quiet = True
        self.nats.heal()
        for node in self.nodes.values():
            node.disk_slow = False
            node.files.cut_at = None
            node.files.faults.clear()
            node.fill(full=False)
            if node is left_out:
                node.kept_down = True
                node.crash(power=self.random.random() < 0.5)
            elif node.running and any(group.failed for group in node.cluster_node.groups.values()):
                node.crash(power=False)
            elif node.running and not node.port.up:
                node.port.connect()
        for client in self.clients.values():
            if client.alive and not client.port.up:
                client.port.connect()

    def _somebody_to_leave_out(self):
        """Sometimes a node whose absence leaves a majority of those who know what they promised."""
        node = self.random.choice(list(self.nodes.values()))
        others = [other for other in self.nodes.values() if other is not node]
        return node if self.random.random() < 0.3 and all(other.votes for other in others) else None


def _hash(data):
    return blake2b(data, digest_size=6).hexdigest()


_SUBSCRIBERS = ("dur", "grp", "pln", "que")
_AIMS = {"vote": 0.3, "campaign": 0.15, "append": 0.003, "ack": 0.01, "lead": 0.2, "transfer": 0.2}
_FAULTS = (
    *(
        "kill",
        "kill",
        "power",
        "power",
        "power_all",
        "kill_all",
        "operation",
        "operation",
        "long_down",
        "replace",
        "stop",
    ),
    *("nats", "nats", "deaf", "isolate", "isolate", "split", "split", "clog", "delay", "pause", "pause"),
    *("pause_amid", "pause_amid", "lossy"),
    *("slow_disk", "disk_full", "disk_full", "disk_error", "transfer", "client", "client_cut"),
)

"""Replicated groups from one seed: nodes on disks that crash, links that are cut, delayed, one-way; then peace, and the checks.

The nodes are the production code: groups, shell, PySyncObj, journal, hard state, file log, mux and turns; only time, files and
the wire are the simulation's. Crashes are aimed at the moments after a vote and after an acknowledgement, and at single disk
operations. `python -m tests.sim.raft_world --seeds 1000` for more, `--seed N` to replay one, `--digest` for its trace.
"""

import argparse
import errno
import hashlib
import random
import sys
import time
from pathlib import Path

from stan_protocol.scalars import MICROSECOND, MILLISECOND, SECOND, GroupId, RaftIndex

from stan.errors import FAULT, Frozen, NotNow
from stan.log.files.filelog import FileLog
from stan.protocol.entries import Kind
from stan.raft.group import GroupPorts, RaftGroup
from stan.raft.pysyncobj.hard_state import HardState
from stan.raft.scheduler import Scheduler
from stan.raft.transport.codec import AppendAnswer, VoteAnswer, VoteRequest
from stan.raft.transport.link import HEADER_BYTES
from stan.raft.transport.mux import Mux
from stan.testing.loop import Loop
from tests.kit.files import CrashingFiles, PowerCut
from tests.sim.loop import NodeRuntime
from tests.sim.pauses import Gone, Pauses
from tests.sim.raft_history import RaftHistory

STORE_ID = b"simulated-store!"
SEGMENT_BYTES = 8000
KIND_AT, ANSWERS = 6, (2, 4, 8)
"""Where a message tells its kind, and which are answers: see stan.raft.transport.codec."""


class Wire:
    """Frames between nodes: FIFO per ordered pair, unless a copy of an old frame turns up once more."""

    def __init__(self, world):
        self.world = world
        self.blocked = set()  # ordered pairs
        self.slow = {}  # ordered pair -> delay
        self._last = {}
        self._cuts = {}  # ordered pair -> how often it was cut: what was on the way is lost

    def write(self, source, target, frame):
        pair = source, target
        if pair in self.blocked:
            return
        loop, draw = self.world.loop, self.world.loop.random
        delay = self.slow.get(pair, draw.randint(50, 900) * MICROSECOND)
        when = max(self._last.get(pair, 0), loop.now + delay)
        self._last[pair] = when
        loop.at(when, self._arrive, pair, frame, self._cuts.get(pair, 0))
        if draw.random() < self.world.repeats:
            loop.at(when + draw.randint(0, 3 * SECOND), self._arrive, pair, frame, None)

    def _arrive(self, pair, frame, cuts):
        if pair in self.blocked or (cuts is not None and cuts != self._cuts.get(pair, 0)):
            return
        node = self.world.nodes[pair[1]]
        if not node.alive:
            return
        node.run(node.mux.receive, pair[0], frame)
        if is_answer(frame) and self.world.loop.random.random() < self.world.torn and not self.world.quiet:
            node.run(node.mux.reset_all)  # before the turn that the answer asks for

    def cut(self, pairs, length):
        for pair in pairs:
            self.blocked.add(pair)
            self._cuts[pair] = self._cuts.get(pair, 0) + 1
            self.world.loop.after(length, self.blocked.discard, pair)

    def clog(self, pairs, delay, length):
        for pair in pairs:
            self.slow[pair] = delay
            self.world.loop.after(length, self.slow.pop, pair, None)


def is_answer(frame):
    """Whether it begins with an answer of a voter or follower."""
    return len(frame) > HEADER_BYTES + KIND_AT and frame[HEADER_BYTES + KIND_AT] in ANSWERS


class Runtime(NodeRuntime):
    """The loop for one life of one node, by the node's own clock."""

    def now(self):
        """The node's own clock: it goes by up to a percent too fast or too slow."""
        return self.node.clock(self.loop.now)


class Node:
    """One node over its lives."""

    def __init__(self, world, name):
        self.world = world
        self.name = name
        self.files = CrashingFiles()
        self.alive = False
        self.disk_slow = False
        self.saved = dict.fromkeys(world.numbers, 0)  # applied index in the state database
        self.members = {}  # group -> entry and voters that are in force here, on disk
        self.lives = 0
        self.founds = True  # at the very beginning nobody can have forgotten anything
        self.power_lost = False  # since it was last up
        self.unsettled = False  # it has an empty disk, and is not known to be whole again
        self.pauses = Pauses(self)
        self.drift = world.loop.random.choice((0, world.loop.random.randint(-10_000, 10_000)))  # of its clock, in ppm
        self.clock_starts = world.loop.random.randint(0, 100) * SECOND

    def clock(self, now):
        """What this node's clock shows."""
        return self.clock_starts + now + now * self.drift // 1_000_000

    def run(self, call, *args):
        """Everything this node does runs in here."""
        if not self.alive or self.pauses.put_off(call, args):
            return
        try:
            call(*args)
        except Gone:
            return
        except PowerCut:
            self.world.trace(f"{self.name} power cut in an operation")
            self.crash(power=True)
        self.world.history.leases(self)

    def has_lease(self, number):
        """Whether it may serve the group without asking anybody."""
        return self.alive and self.groups[number].lease_until() > self.clock(self.world.loop.now)

    def boot(self):
        world = self.world
        if self.alive:
            return
        self.lives += 1
        self.alive = True
        self.pauses.forget()
        self.files.cut_at = None
        self.files.faults.clear()
        world.trace(f"{self.name} boots")
        runtime = self.runtime = Runtime(self)
        draw = random.Random(world.loop.random.getrandbits(60))
        scheduler = self.scheduler = Scheduler(runtime, news=self._news, crashed=self._crashed)
        others = [name for name in world.nodes if name != self.name]
        self.mux = Mux(others, self, now=runtime.now, random=draw, note=self._note, wake=scheduler.schedule)
        self.ports = GroupPorts(
            self.send, runtime.now, draw, scheduler.wake, self._note, self._needs_snapshot, self.mux.listens_since
        )
        self.groups = {}
        for number in world.numbers:
            log, report = FileLog.open(
                Path(f"/{number}/log"),
                GroupId(number),
                STORE_ID,
                files=self.files,
                segment_bytes_max=SEGMENT_BYTES,
                tail_cache_bytes_max=2000,
                power_lost=not world.unsynced or self.power_lost,
                cuts_unsynced=world.unsynced,
            )
            if report.quarantined:
                world.complain(f"{self.name}/{number}: {report.texts}")
            hard_state = HardState.open(self.files, f"/{number}")
            if world.unsynced and self.power_lost:
                hard_state.mark_entries_forgotten()
            world.history.booted(self.name, number, log, hard_state, self.saved[number])
            self.members.setdefault(number, world.members_for(self, number))
            self.groups[number] = self._group(number, log, hard_state, self.saved[number])
            log.commit(RaftIndex(self.saved[number]))
            if self.founds:
                self.groups[number].bootstrap()
        self.founds = self.power_lost = False
        self.driving = False
        scheduler.start(self.mux, list(self.groups.values()))
        self._save_soon()

    def _group(self, number, log, hard_state, applied):
        """One object of a group: until the process ends, or other voters are in force."""
        configured, voters = self.members[number]
        return RaftGroup(
            GroupId(number),
            self.name,
            voters,
            log,
            hard_state,
            self.ports,
            observers=[name for name in self.world.nodes if name not in voters],
            applied=RaftIndex(applied),
            configured=configured,
            sync="interval" if self.world.unsynced else "always",
        )

    def write(self, frames):
        """mux.Wire. The process may be stopped before it says what it has written down."""
        self.pauses.amid()
        for peer, frame in frames:
            self.world.wire.write(self.name, peer, frame)

    def send(self, group, peer, message):
        """group.GroupTransport: what the checks and the aimed faults listen to."""
        self.world.history.sent(self.name, group, peer, message, self.groups[group].log)
        self.mux.send(group, peer, message)
        if isinstance(message, VoteAnswer) and message.granted and not message.pre:
            self.world.aim(self, "vote")
        elif isinstance(message, VoteRequest) and not message.pre:
            self.world.aim(self, "campaign")
        elif isinstance(message, AppendAnswer) and message.success:
            self.world.aim(self, "ack")

    def forgets(self):
        """Whether it may have forgotten something and not made it up yet, in any group."""
        if self.unsettled and self.alive:
            self.unsettled = any(group.amnesiac for group in self.groups.values())
        return self.unsettled

    def replace(self, pause=1500):
        """Another machine takes its place and its name, with nothing on its disk."""
        self.world.trace(f"{self.name} is replaced")
        self.crash(power=False, pause=pause)
        self.files = CrashingFiles()
        self.unsettled = True
        self.saved = dict.fromkeys(self.world.numbers, 0)
        self.members = {}
        self.world.history.replaced(self.name)

    def _note(self, level, text):
        self.world.trace(f"{self.name} {level} {text}")
        if FAULT in text:
            self.world.complain(f"{self.name}: {text}")
        if "lost entries" in text and text.split()[2] not in self.world.history.forgotten:
            self.world.complain(f"{self.name}: {text}")

    def _needs_snapshot(self, group, peer):
        self.world.complain(f"{self.name}/{group.group}: {peer} needs a snapshot")

    def _crashed(self, error):
        raise error

    def _news(self):
        if not self.driving:
            self.driving = True
            self.runtime.soon(self._drive)

    def _drive(self):
        """What the driver does: hand out, answer, sync."""
        self.driving = False
        history = self.world.history
        for number, group in self.groups.items():
            handed = []
            while True:
                entries = group.take_committed()
                if not entries:
                    break
                group.log.commit(entries[-1].index)
                history.handed_out(self.name, number, entries, group.log)
                handed += entries
            for entry in handed:
                for _ in range(history.settled(self.name, number, entry)):
                    self.world.aim(self, "answer")
            if group.reconfigured is not None and self.members[number] != group.reconfigured:
                self.members[number] = group.reconfigured
                self.world.reconfigure(self, number)
                self.world.aim(self, "reconfigured")
            history.looked_at(self.name, number, group)
            if group.wants_sync:
                self._sync(group)

    def reconfigure(self, number):
        """Other voters are in force: a new object takes the place of the old one, on the same files."""
        if self.groups[number].reconfigured is None:
            return
        led, old = self.groups[number].leads, self.scheduler.remove(GroupId(number))
        self.world.history.died(self.name, number)
        self.groups[number] = self._group(
            number, old.log, old._raft.journal.hard_state, self.world.history.handed[self.name, number]
        )
        self.scheduler.add(self.groups[number])
        if led:
            self.groups[number]._raft.leader_gone(self.runtime.now())
        self._news()

    def _sync(self, synced):
        def done(durable, why):
            group = self.groups[synced.group]  # the log is the same
            if durable is None:
                group.freeze(why)
                self.world.loop.after(SECOND, self._restart_if_frozen, group)
                return
            group.synced(durable)
            self._news()

        self.runtime.sync(synced, done)

    def _restart_if_frozen(self, group):
        if self.alive and group.failed:
            self.crash(power=False)

    def _save_soon(self):
        self.runtime._later(self.world.loop.random.randint(20, 400) * MILLISECOND, self._save)

    def _save(self):
        for number in self.groups:
            if self.world.unsynced:
                self._sync(self.groups[number])
            durable = self.groups[number].log.durable_index
            self.saved[number] = min(self.world.history.handed[self.name, number], durable)
        self._save_soon()

    def crash(self, *, power, pause=1500):
        if not self.alive:
            return
        power = power and self.world.may_lose_power(self)
        self.world.trace(f"{self.name} dies, power {power}")
        self.alive = False
        self.runtime.dead = True
        self.scheduler.stop()
        self.files.open_files.clear()
        draw = self.world.loop.random
        if power:
            self.files = self.files.crash(draw.getrandbits(30))
            self.power_lost = True
            self.world.lost_power(self)
        for number in self.groups:
            self.world.history.died(self.name, number)
        self.world.loop.after(draw.randint(5, pause) * MILLISECOND, self.boot)


class RaftWorld:
    """One run; *faults* are kinds to choose from, in place of all."""

    changes = 0  # of voters that were committed
    unsynced = False  # entries are answered before they are synced

    def __init__(self, seed, faults=()):
        self.seed = seed
        self.kinds = faults or FAULTS
        self.loop = Loop(seed)
        draw = self.loop.random
        count = draw.choice((3, 3, 5))
        self.numbers = list(range(draw.choice((1, 1, 2))))
        self.repeats = draw.choice((0, 0, 0.02))
        self.torn = draw.choice((0, 0, 0.002, 0.05))  # links that end right behind an answer
        self.lull = draw.choice((1, 1, 40))  # a leader at rest learns late that it was deposed
        self.aimed = {kind: draw.choice((0, 0.0, chance)) for kind, chance in _AIMS.items()}
        self.problems = []
        self.digest = hashlib.sha256()
        self.faults = []
        self.history = RaftHistory(self)
        self.wire = Wire(self)
        self.voters = [f"n{at}" for at in range(count)]
        self.observers = ["watcher"] if draw.random() < 0.3 else []
        self.quiet = False
        self.nodes = {}
        for name in self.voters + self.observers:
            self.nodes[name] = Node(self, name)
        for name in draw.sample(self.voters, draw.choice((0, 0, 0, count // 2))):
            self.nodes[name].founds, self.nodes[name].unsettled = False, True

    def members_for(self, _node, _number):
        """Entry and voters that a node begins with which knows none."""
        return 0, tuple(sorted(self.voters))

    def reconfigure(self, node, number):
        """A node has found other voters in force."""
        node.runtime.soon(lambda: node.reconfigure(number))

    def may_lose_power(self, _node):
        """Whether that is among what the groups have to survive."""
        return True

    def lost_power(self, node):
        """A node has lost power."""

    def electorate(self):
        """Names of voters to aim at."""
        return self.voters

    def final_voters(self, _number):
        """Who votes in the end."""
        return self.voters

    def trace(self, text):
        self.digest.update(f"{self.loop.now} {text}\n".encode())

    def complain(self, text):
        self.problems.append(f"{self.loop.now / SECOND:.4f} {text}")

    def run(self, safety_s=6, drain_s=20):
        """Returns the complaints."""
        for node in list(self.nodes.values()):
            node.boot()
        end = self.loop.now + safety_s * SECOND
        for _ in range(3):
            self.loop.after(self.loop.random.randint(0, SECOND), self._propose)
        self._plan(end)
        self.loop.run_until(end)
        self._heal()
        end = self.loop.now + drain_s * SECOND
        while self.loop.now < end and not self.history.converged():
            self.loop.run_until(self.loop.now + SECOND // 4)
        if not self.history.converged():
            self.complain(f"no progress after healing: {self.history.state()}")
        self.history.finish()
        self.trace(self.history.state())
        return self.problems

    # --- load -----------------------------------------------------------------------------------------------------------

    def _propose(self):
        draw = self.loop.random
        if self.quiet:
            return
        burst = draw.choice((1, 1, 1, 5))
        for node in self.nodes.values():
            for number in self.numbers:
                if node.alive and node.groups[number].leads and draw.random() < 0.8:
                    node.run(self._propose_to, node, number, burst)
        self.loop.after(draw.choice((200, 2000, 2000, 40_000, 150_000)) * self.lull * MICROSECOND, self._propose)

    def _propose_to(self, node, number, burst):
        if not node.groups[number].leads:
            return
        group, draw = node.groups[number], self.loop.random
        bodies = [(Kind.META, self.history.value(draw.randint(1, 900))) for _ in range(burst)]
        try:
            first = group.propose(bodies, urgent=draw.random() < 0.9)
        except NotNow as error:
            for _, body in bodies:
                self.history.refused(body, maybe=isinstance(error, Frozen))
            return
        for at, (_, body) in enumerate(bodies):
            self.history.proposed(node.name, number, first + at, group.term, body)
        self.aim(node, "append")

    # --- faults -----------------------------------------------------------------------------------------------------------

    def aim(self, node, kind):
        """Something happened after which a crash would hurt most."""
        draw = self.loop.random
        if self.quiet or not self.aimed[kind] or draw.random() >= self.aimed[kind]:
            return
        self.faults.append((self.loop.now, f"aimed at {kind}"))
        life, power = node.lives, draw.random() < 0.6
        muted = kind == "campaign" and draw.random() < 0.5

        def strike():
            if muted:
                self._isolate([other.name for other in self.nodes.values() if any(map(other.has_lease, self.numbers))])
            elif node.lives == life:
                node.crash(power=power)

        self.loop.after(draw.choice((0, 0, 2, 60, 900)) * MICROSECOND, strike)

    def _plan(self, end):
        draw = self.loop.random
        for _ in range(draw.randint(2, 12)):
            kind = draw.choice(self.kinds)
            at = draw.randint(self.loop.now + SECOND // 2, end)
            self.faults.append((at, kind))
            self.loop.at(at, getattr(self, f"_fault_{kind}"))

    def _someone(self):
        """A node; often one that leads."""
        draw = self.loop.random
        leaders = [n for n in self.nodes.values() if n.alive and any(g.leads for g in n.groups.values())]
        if leaders and draw.random() < 0.5:
            return draw.choice(leaders)
        return draw.choice(list(self.nodes.values()))

    def _length(self):
        return self.loop.random.choice((20, 200, 700, 2500)) * MILLISECOND

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

    def _fault_replace(self):
        node = self._someone()
        if node.name in self.electorate() and self._may_forget(node.name):
            node.replace()

    def _may_forget(self, *names):
        """Whether it would still be a minority."""
        unsettled = [name for name in self.voters if self.nodes[name].forgets()]
        return len({*names, *unsettled}) <= len(self.voters) // 2

    def _fault_usurp(self):
        """A leader is cut off; as soon as there is another, who helped to elect it forgets all, and hears only the old one."""
        old = next((node.name for node in self.nodes.values() if any(map(node.has_lease, self.numbers))), None)
        if old is None:
            return
        pairs = [pair for name in self.nodes if name != old for pair in ((old, name), (name, old))]
        self.wire.cut(pairs, 2500 * MILLISECOND)

        def look(times):
            new = next(
                (n.name for n in self.nodes.values() if n.name != old and any(map(n.has_lease, self.numbers))), None
            )
            if new is None and times:
                self.loop.after(5 * MILLISECOND, look, times - 1)
            voters = self.electorate()
            victims = [name for name in voters if name not in (old, new)][: len(voters) // 2]
            if new is None or self.quiet or not self._may_forget(*victims):
                return
            others = [name for name in self.nodes if name not in (old, *victims)]
            for victim in victims:
                self.wire.cut([pair for a in others for pair in ((a, victim), (victim, a))], self._length())
                self.wire.blocked -= {(old, victim), (victim, old)}
                self.nodes[victim].replace(pause=5)

        self.loop.after(SECOND // 2, look, 100)

    def _fault_operation(self):
        node = self._someone()
        node.files.cut_power_after(self.loop.random.randint(0, 25))

    def _fault_cut(self):
        pair = tuple(self.loop.random.sample(list(self.nodes), 2))
        self.wire.cut([pair, pair[::-1]], self._length())

    def _fault_one_way(self):
        self.wire.cut([tuple(self.loop.random.sample(list(self.nodes), 2))], self._length())

    def _fault_isolate(self):
        name = self._someone().name
        others = [other for other in self.nodes if other != name]
        out, back = [(name, other) for other in others], [(other, name) for other in others]
        self.wire.cut(self.loop.random.choice((out, back, out + back)), self._length())

    def _isolate(self, names):
        self.wire.cut([pair for a in names for b in self.nodes for pair in ((a, b), (b, a)) if a != b], self._length())

    def _fault_desert(self):
        """Somebody does not hear the leader any more, and asks others again and again, which have just restarted."""
        leaders = [node.name for node in self.nodes.values() if any(map(node.has_lease, self.numbers))]
        if not leaders:
            return
        draw = self.loop.random
        followers = [name for name in self.electorate() if name != leaders[0]]
        if len(followers) < 2:
            return
        deserter, *others = draw.sample(followers, len(followers))
        self.wire.cut([(leaders[0], deserter), (deserter, leaders[0])], 2500 * MILLISECOND)
        for at in range(16):
            node = self.nodes[draw.choice(others)]
            self.loop.after((500 + at * 125) * MILLISECOND, self._restart, node)

    def _restart(self, node):
        if not self.quiet:
            node.crash(power=False, pause=50)

    def _fault_split(self):
        draw = self.loop.random
        voters = self.electorate()
        side = set(draw.sample(voters, draw.randint(1, max(1, len(voters) - 1))))
        self.wire.cut([(a, b) for a in self.nodes for b in self.nodes if (a in side) != (b in side)], self._length())

    def _fault_clog(self):
        draw = self.loop.random
        name = self._someone().name
        pairs = [pair for other in self.nodes if other != name for pair in ((name, other), (other, name))]
        delay = draw.choice((5, 60, 300, 1200)) * MILLISECOND
        self.wire.clog(draw.sample(pairs, draw.randint(1, len(pairs))), delay, self._length())

    def _fault_pause(self):
        """One node is stopped, or all but one, as those are that have no CPU."""
        draw = self.loop.random
        for node in draw.choice(([self._someone()], list(self.nodes.values())[1:])):
            node.pauses.begin(draw.randint(100, 2000) * MILLISECOND)

    def _fault_pause_amid(self):
        """Stopped between what it has written down and saying so."""
        self._someone().pauses.arm(self.loop.random.randint(100, 2000) * MILLISECOND)

    def _fault_slow_disk(self):
        node = self._someone()
        node.disk_slow = True
        self.loop.after(self._length(), setattr, node, "disk_slow", False)  # noqa: FBT003

    def _fault_disk_full(self):
        node = self._someone()
        node.files.fail("pwritev", self.loop.random.randint(0, 4), errno.ENOSPC)

    def _fault_disk_error(self):
        node = self._someone()
        node.files.fail(self.loop.random.choice(("fdatasync", "pwritev")), self.loop.random.randint(0, 9), errno.EIO)

        def replace():
            if node.alive and any(group.failed for group in node.groups.values()):
                node.crash(power=False)
            if not self.quiet:
                self.loop.after(SECOND, replace)

        self.loop.after(SECOND, replace)

    def _fault_transfer(self):
        draw = self.loop.random
        for node in self.nodes.values():
            for number in self.numbers:
                if node.alive and node.groups[number].leads:
                    to = draw.choice([name for name in self.electorate() if name != node.name] or [node.name])
                    node.groups[number].transfer(to, lambda gone: self.trace(f"transfer {gone}"))

    def _heal(self):
        self.quiet = True
        self.wire.blocked.clear()
        self.wire.slow.clear()
        for node in self.nodes.values():
            node.disk_slow = False
            node.files.cut_at = None
            node.files.faults.clear()
            if node.alive and any(group.failed for group in node.groups.values()):
                node.crash(power=False)
        self.loop.after(3 * SECOND, self._last_words)

    def _last_words(self):
        """A leader must be able to commit something new on every node."""
        for number in self.numbers:
            for node in self.nodes.values():
                if node.alive and node.groups[number].leads:
                    self._propose_to(node, number, 1)
        if not self.history.last_words_said():
            self.loop.after(SECOND // 2, self._last_words)


_AIMS = {"vote": 0.3, "campaign": 0.15, "ack": 0.01, "append": 0.01, "answer": 0.01}
FAULTS = (
    *("kill", "kill", "power", "power", "power_all", "kill_all", "operation", "operation"),
    *(
        "cut",
        "one_way",
        "isolate",
        "isolate",
        "desert",
        "replace",
        "replace",
        "replace",
        "usurp",
        "split",
        "split",
        "clog",
        "pause",
        "pause",
        "pause",
        "pause_amid",
        "pause_amid",
        "slow_disk",
        "disk_full",
        "disk_error",
        "transfer",
        "transfer",
    ),
)


def main(kind=RaftWorld):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--digest", action="store_true")
    options = parser.parse_args()
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    began, bad, totals = time.monotonic(), 0, [0] * 5
    for seed in seeds:
        world = kind(seed)
        found = world.run()
        history = world.history
        crashes = sum(node.lives - 1 for node in world.nodes.values())
        counts = len(history.applied), len(history.leaders), crashes, history.truncations, world.changes
        for at, number in enumerate(counts):
            totals[at] += number
        if options.digest:
            print(world.digest.hexdigest())
        if found:
            bad += 1
            print(f"seed {seed}: faults {[kind for _, kind in sorted(world.faults)]}")
            print("\n".join(f"  {line}" for line in found[:10]), flush=True)
    if not options.digest:
        took = time.monotonic() - began
        replaced = "acknowledged entries replaced by a later leader"
        words = "acknowledged", "leaders", "crashes", replaced, "changes of voters"
        numbers = ", ".join(f"{number} {word}" for number, word in zip(totals, words, strict=True))
        print(f"{len(seeds)} seeds, {bad} with complaints; {numbers}; {took:.1f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

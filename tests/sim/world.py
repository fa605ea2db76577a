"""A world from one seed: a node on a disk that crashes, NATS that goes away, clients that die; then peace, and the checks.

Safety phase: faults at random. Then everything is healed and the backlog must drain. The node is the production code: driver,
gateway, broker, Solo, storage, file log, state database; only time, NATS, the files and SQLite's file are the simulation's.
"""

import errno
from pathlib import Path
from types import SimpleNamespace

from stan_protocol.scalars import MILLISECOND, SECOND

from stan.config import Config, HeartbeatConfig, StoreConfig
from stan.core.broker.broker import Broker
from stan.edge.driver import Driver
from stan.edge.nats.gateway import Gateway
from stan.edge.process import BrokerProcess
from stan.edge.storage.data_directory import Disk
from stan.edge.storage.state_loader import StateLoader
from stan.edge.storage.storage import Storage
from stan.edge.turns import Turns
from stan.errors import StanError
from stan.raft.solo import Solo
from stan.testing.loop import SimRuntime, run_now
from stan.testing.nats import NodePort
from tests.kit.broker_state import BrokerState
from tests.kit.files import PowerCut
from tests.sim.database import SimDatabase
from tests.sim.history import NO_NATS, Reset, complaints
from tests.sim.leaf import SimLeaf
from tests.sim.loop import disk
from tests.sim.scene import Scene

STORE_ID = b"simulated-store!".hex()
SEGMENT_BYTES = 6000
_UNFINISHED = ("the end of an unfinished write", "hold neither a header nor an entry")
_ENDS = ("kill", "power", "stop")
"""How a life ends."""


class Node:
    """One life of the broker's process."""

    def __init__(self, world):
        self.world = world
        loop = world.loop
        groups = world.groups
        config = Config(
            store=StoreConfig(kind="file", directory=Path("/sim"), raft_groups=groups),
            heartbeat=HeartbeatConfig(interval_ns=700 * MILLISECOND, timeout_ns=300 * MILLISECOND, fail_count=2),
            policies=world.policies,
            jetstream_api=world.jetstream,
        )
        disk = Disk(
            directory="/sim",
            files=world.files,
            boot=f"boot {world.boots}",
            store_id=STORE_ID,
            segment_bytes_max=SEGMENT_BYTES,
            tail_cache_bytes_max=2000,
        )
        self.storage = Storage.recover(disk, "test-cluster", groups, note=world.recovered, offload=_on_the_spot)
        self.storage.rows.database = world.database.open()
        logs = self.storage.logs
        self.broker = Broker(config, lambda group, uid: logs[group].channel(uid), f"_INBOX.node{world.lives}.".encode())
        self._watch(world)
        run_now(StateLoader(self.storage, self.broker).load())
        self.runtime = SimRuntime(loop)
        turns = Turns(self.runtime, world.crashed)
        self.groups = {number: Solo(number, log, "always", turns.touched) for number, log in logs.items()}
        nuid = self.broker.view.nuid.decode()
        self.gateway = Gateway(self.broker, f"_INBOX.{nuid}.>", world.note)
        self.driver = Driver(
            self.broker,
            self.groups,
            self.gateway,
            self.runtime,
            turns,
            applied=self.storage.applied,
            note=world.note,
        )
        self.gateway.read_buffer.wake = turns.look
        self.link = NodePort(world.nats, "node", self.gateway.read_buffer)
        self.link.subscriptions = self.gateway.subscriptions.subjects
        self.gateway.connection = self.link
        if world.jetstream:
            self.link.leaves[b""] = SimLeaf(world.nats, "leaf", 0, self.link.run, turns.look)
        self.connection = None  # of a real process
        self.log = SimpleNamespace(error=world.trace)
        self.broker.lead(self.runtime.now(), self.runtime.wall(), unconfirmed=self.storage.unconfirmed)
        self.link.connect()
        self._flush_soon()

    def _watch(self, world):
        """The world hears of each change that is applied, also by the replay of a start."""
        broker, entries, states = self.broker, self.broker.entries, self.broker.states

        def listened(apply):
            def applied(group, index, kind, body):
                apply(group, index, kind, body)
                if group:
                    world.change_committed(broker, group, index, kind, body)

            return applied

        entries.step_committed, states.replay_entry = listened(entries.step_committed), listened(states.replay_entry)

    def _flush_soon(self):
        self.runtime._later(self.world.loop.random.randint(50, 400) * MILLISECOND, self._flush)

    def _flush(self):
        try:
            self._write_down()
        except (StanError, OSError) as error:
            self.world.trace(f"flush failed: {error}")
        self._flush_soon()

    def _write_down(self):
        run_now(self.storage.flush(self.broker))
        for group in self.groups.values():
            group.synced(group.log.durable_index)
        self.driver.turns.wake()
        run_now(self.storage.release(self.broker))

    def state(self):
        """The replicated state of each group, as its snapshot."""
        state = BrokerState(self.broker)
        return [state.snapshot(number) for number in range(len(self.broker.view.groups) + 1)]

    def stop(self):
        """Asked to stop, it writes everything down, as far as there is room."""
        clean = run_now(BrokerProcess._settle(self, self.driver))
        self.link.cut()
        run_now(self.storage.close(clean=clean))
        self.kill()

    def kill(self):
        """The process is gone; what it wrote is in the page cache."""
        self.runtime.dead = True
        self.driver.turns.stop()
        self.link.cut()
        self.world.files.open_files.clear()


async def _on_the_spot(call):
    return call()


class World(Scene):
    """One run."""

    def __init__(self, seed):
        super().__init__(seed)
        self.files = disk(self.loop)
        self.database = SimDatabase()
        self.groups = self.random.choice((1, 1, 3))
        self.boots = 0  # of the machine
        self.disk_failed = False
        self.lives = 0
        self.node = None

    def note(self, level, text):
        self.trace(f"{level} {text}")
        expected = self.heartbeats_failed(text) or (self.disk_failed and "group" in text)
        if level == "ERR" and not expected:
            self.complain(f"the node says: {text}")

    def recovered(self, level, text):
        """What a start has to say about the files: an unfinished write is all that may be wrong with them."""
        self.trace(f"{level} {text}")
        self.fail_if(not any(words in text for words in _UNFINISHED), text)

    # --- the run ----------------------------------------------------------------------------------------------------------

    def run(self, safety_s=3, drain_s=30):
        """Returns the complaints."""
        self.boot()
        self.make_clients()
        end = self.loop.now + safety_s * SECOND
        self._plan_faults(end)
        self.loop.run_until(end)
        self._heal()
        end = self.loop.now + drain_s * SECOND
        while self.loop.now < end and not self._drained():
            self.loop.run_until(self.loop.now + SECOND // 2)
        self.read_all()
        self.digest_events()
        found = self.problems + complaints(self.history) + self._replay_differs()
        self.node.kill()
        self.database.close()
        return found

    def _replay_differs(self):
        """P2: rows and log, replayed by a new life, give the state that the old life had."""
        for _ in range(3):  # what a flush commits is applied in the next turn
            self.node._flush()
            self.loop.run_until(self.loop.now + SECOND)
        before = self.node.state()
        self.node.kill()
        self.boot()
        after = self.node.state()
        pairs = enumerate(zip(before, after, strict=True))
        return [f"group {number} differs after a restart: {old} {new}" for number, (old, new) in pairs if old != new]

    def go_on_until(self, over, length, seed):
        """Run until *over*() is true, *length* at most; after a power cut the node boots again. Returns True if there was one."""
        struck, end = False, self.loop.now + length
        while self.loop.now < end and not over():
            try:
                self.loop.run_until(self.loop.now + 10 * MILLISECOND)
            except PowerCut:
                struck = True
                self.node.kill()
                self.files = self.files.crash(seed)
                self.boots += 1
                self.boot()
        return struck

    def boot(self):
        self.lives += 1
        self.history.events.append(Reset(self.loop.now, None))
        self.history.cause(self.loop.now, self.loop.now, "boot")
        self.node = Node(self)

    def _plan_faults(self, end):
        everybody = list(self.clients.values())
        for _ in range(self.random.choice((0, 1, 2, 3, 4, 5, 6))):
            at = self.random.randint(self.loop.now, end)
            kind = self.random.choice((*_ENDS, "nats", "client", "client", "cut", "full", "full", "broken"))
            if kind == "full":
                self.loop.at(at, self._disk_fills)
            elif kind == "broken":
                self.loop.at(at, self._disk_breaks)
            elif kind == "client":
                self.loop.at(at, self.kill_client, self.random.choice(everybody))
            elif kind == "cut":
                self.loop.at(at, self.cut_client, self.random.choice(everybody))
            elif kind == "nats":
                self.loop.at(at, self._nats_away)
            else:
                self.loop.at(at, self._node_dies, kind)
            self.faults.append((at, kind))

    def _nats_away(self):
        link = self.node.link if self.node else None
        if link is not None and link.cut():
            length = self.random.randint(20, 2000) * MILLISECOND
            self.history.cause(self.loop.now, self.loop.now + length, NO_NATS)
            self.loop.after(length, self._nats_back, link)

    def _nats_back(self, link):
        if self.node is not None and self.node.link is link:
            link.connect()

    def _disk_breaks(self):
        """A group is frozen until the next life."""
        self.disk_failed = True
        self.history.cause(self.loop.now, self.loop.now + 2 * SECOND, "disk")
        self.files.fail(self.random.choice(("pwritev", "fdatasync")), self.random.randint(0, 3), errno.EIO)
        self.loop.after(self.random.randint(100, 900) * MILLISECOND, self._node_dies, self.random.choice(_ENDS))

    def _disk_fills(self):
        """For a while nothing finds room; often a life ends meanwhile, and the next one begins now or then."""
        draw = self.random
        self.disk_failed = True
        length = draw.randint(200, 2500) * MILLISECOND
        self.history.cause(self.loop.now, self.loop.now + length + SECOND, "disk full")
        self._fill(full=True)
        self.loop.after(length, lambda: self._fill(full=False))
        if draw.random() < 0.6:
            self.loop.after(draw.randint(0, length), self._node_dies, draw.choice(_ENDS))

    def _fill(self, *, full):
        self.files.full = self.database.full = full

    def _node_dies(self, how):
        if self.node is None or self.quiet:
            return
        if how == "stop":
            self.node.stop()
        else:
            self.node.kill()
        self.node = None
        if how == "power":
            self.files = self.files.crash(self.random.randint(0, 1 << 30))
            self.boots += 1
        length = self.random.randint(10, 1500) * MILLISECOND
        self.history.cause(self.loop.now, self.loop.now + length, "node down")
        self.loop.after(length, self._node_back)

    def _node_back(self):
        if self.node is not None:
            return
        try:
            self.boot()
        except (StanError, OSError) as error:  # the disk fails still: the process ends and is started again
            self.trace(f"start failed: {error}")
            self.files.open_files.clear()
            self.loop.after(100 * MILLISECOND, self._node_back)

    def _heal(self):
        self.quiet = True
        self.files.faults.clear()
        self._fill(full=False)
        if self.node is not None and self.disk_failed:  # a frozen group wants a new life
            self.node.kill()
            self.node = None
        if self.node is None:
            self.boot()
        if not self.node.link.up:
            self.node.link.connect()

    def _drained(self):
        """Whether every position is at its channel's end and nothing is pending: what liveness asks for."""
        broker = self.node.broker
        for number in broker.view.groups:
            for cursor in BrokerState(broker).positions(number):
                last = broker.view.indexes(number, cursor.uid).last_sequence
                if (
                    cursor.last_sent < last
                    or self.is_owed(cursor)
                    or any(m.pending for m in cursor.members)
                    or not cursor.members
                ):
                    return False
        return True

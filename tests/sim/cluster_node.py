"""One node of a simulated cluster, over its lives: stan.edge.cluster.node on a disk that crashes, a clock that drifts, a
process that is stopped and goes on, and a supervisor that starts it again."""

import random
import re
import struct
from pathlib import Path

from stan_protocol.patterns import ChannelLimits
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MICROSECOND, MILLISECOND, SECOND

from stan.config import ClusterConfig, Config, HeartbeatConfig, StoreConfig, StoreLimits
from stan.edge.cluster.host import Environment
from stan.edge.cluster.join import remembered
from stan.edge.cluster.node import ClusterNode, held_groups
from stan.edge.process import BrokerProcess
from stan.edge.storage.data_directory import Disk
from stan.edge.storage.groupfiles import groups_on_disk
from stan.edge.storage.manifest import recorded_pool
from stan.edge.storage.storage import Storage
from stan.errors import Frozen, StanError
from stan.labels import NO_LABELS
from stan.protocol.entries import Kind, decode_batches
from stan.raft.transport.codec import AppendAnswer, VoteAnswer, VoteRequest
from stan.testing.nats import NodePort
from tests.kit.files import PowerCut
from tests.kit.storage import state_of
from tests.sim.clients import value_of
from tests.sim.database import SimDatabase
from tests.sim.leaf import SimLeaf
from tests.sim.loop import NodeRuntime, disk
from tests.sim.pauses import Gone, Pauses
from tests.sim.tasks import Tasks, in_thread

CLUSTER = "test-cluster"
SEGMENT_BYTES = 3000
LEADS = re.compile(r"group (\d+): leads in term (\d+)")
LEADS_NO_MORE = re.compile(r"group (\d+): leads no more")
HANDS_OVER = re.compile(r"group (\d+): is handed over to \w+")
HANDED_OVER_IN_VAIN = re.compile(r"group (\d+): \w+ did not take it over")
LENGTH = struct.Struct("<I")


class Runtime(NodeRuntime):
    """The loop for one life of one node, by the node's own clock."""

    def now(self):
        return self.node.clock()

    def wall(self):
        return super().wall() + self.node.wall_offset

    def soon(self, call):
        """A turn of the event loop takes its time; what arrives meanwhile is handled together."""
        self._later(self.loop.random.randint(20, 400) * MICROSECOND, call)

    def work(self, call, done):
        draw = self.loop.random

        def work():
            problem = None
            try:
                call()
            except Exception as error:
                if not self.node.tells(error):
                    raise
                problem = error
            self._later(draw.randint(1, 300) * MICROSECOND, done, problem)

        self._later(draw.randint(0, 5) * MILLISECOND, work)


class SimulatedNode:
    """See the module."""

    def __init__(self, world, name, server):
        self.world = world
        self.name = name
        self.server = server
        draw = world.random
        self.drift = draw.choice((0, draw.randint(-10_000, 10_000)))  # of its clock, in ppm
        self.clock_starts = draw.randint(0, 100) * SECOND
        self.wall_offset = draw.choice((0, draw.randint(-2000, 2000) * MILLISECOND))
        self.files, self.database = disk(self.world.loop), SimDatabase(pauses=True)
        self.alive = False
        self.pauses = Pauses(self)
        self.disk_slow = False
        self.lives = 0
        self.boots = 0  # of its machine
        self.kept_down = False
        self.replaced = False  # its disk is a new one
        self.has_listened = False  # it was a whole member once
        self.labels = NO_LABELS
        self.port = self.cluster_node = self.runtime = self.tasks = None
        self.loading = False  # nothing of it but files yet
        self.booted_at = 0
        self.flushing = self.ending = False

    def __repr__(self):
        return self.name

    def clock(self):
        now = self.world.loop.now
        return self.clock_starts + now + now * self.drift // 1_000_000

    # --- life -----------------------------------------------------------------------------------------------------------

    def run(self, call, *args):
        """Everything that this process does runs in here."""
        if not self.alive or self.pauses.put_off(call, args):
            return
        try:
            call(*args)
        except Gone:
            return
        except PowerCut:
            self.world.trace(f"{self.name} power cut in an operation")
            self.crash(power=True)

    def boot(self):
        if self.alive or self.kept_down:
            return
        self.lives += 1
        self.alive = True
        self.booted_at = self.world.loop.now
        self.port = self.cluster_node = self.runtime = self.tasks = None
        self.flushing = self.ending = False
        self.pauses.forget()
        self.files.cut_at = None
        self.world.trace(f"{self.name} boots")
        try:
            self._start()
        except PowerCut:
            self.crash(power=True)
        except (StanError, OSError) as error:
            self._does_not_start(error)

    def _start(self):
        world = self.world
        peers = tuple(name for name in world.names if name != self.name)
        self.labels = world.labels_of(self.name)
        cluster = ClusterConfig(
            node_id=self.name,
            labels=self.labels,
            peers=peers,
            bootstrap=self.name == world.bootstrap,
            replica=self.name not in world.names,  # until it is added
            allow_add_remove=world.changes_nodes,
        )
        config = Config(
            cluster_id=CLUSTER,
            store=StoreConfig(kind="file", directory=Path("/data"), raft_groups=world.raft_groups),
            limits=StoreLimits(default=ChannelLimits(msgs=world.limit)),
            heartbeat=HeartbeatConfig(interval_ns=700 * MILLISECOND, timeout_ns=300 * MILLISECOND, fail_count=2),
            policies=world.policies,
            jetstream_api=world.jetstream,
            cluster=cluster,
        )
        config = remembered(config, self.name, world.trace, self.files)
        draw = random.Random(world.random.getrandbits(60))
        disk = Disk(
            directory="/data",
            files=self.files,
            boot=f"boot {self.boots}",
            store_id=f"{draw.getrandbits(128):032x}",
            segment_bytes_max=SEGMENT_BYTES,
            tail_cache_bytes_max=2000,
        )
        pool = recorded_pool("/data", self.files)
        groups = held_groups(config.cluster, self.name, pool or world.raft_groups)
        if config.cluster.nodes_version or pool:
            groups = sorted({*groups, *groups_on_disk("/data", self.files)})
        storage = self.storage = Storage.recover(
            disk, CLUSTER, world.raft_groups, groups=groups, node_id=self.name, note=self._note, offload=in_thread
        )
        storage.rows.database = self.database.open()
        self.runtime = Runtime(self)
        ticker = Runtime(self)
        self._runtimes = (self.runtime, ticker)
        runtime = self.runtime
        self.tasks = Tasks(lambda call: runtime._later(world.random.randint(1, 900) * MICROSECOND, call))
        around = Environment(runtime, ticker, draw, self._note, self._crashed, self._listening, self._task, self._ended)
        self.cluster_node = ClusterNode(
            config,
            storage,
            around,
            reply_prefix=f"_INBOX.{self.name}x{self.lives}.".encode(),
            identity=f"{draw.getrandbits(80):022d}"[:22].encode(),
        )
        self._watch()
        self.loading = True
        self._task(self.cluster_node.load(), self._loaded)

    def _task(self, work, done):
        """stan.edge.cluster.host.Environment.run."""

        def ended(problem):
            if problem is not None and not self.tells(problem):
                raise problem
            done(problem)

        self.tasks.start(work, ended)

    def tells(self, problem):
        """Whether an error is told to whoever has to deal with it; else the world ends with it, as the program is wrong."""
        return isinstance(problem, (StanError, OSError)) or self.world.program_fails

    def _ended(self):
        """It was removed from the cluster."""
        self.world.node_ended(self)

    def _loaded(self, problem):
        if problem is not None:
            self._does_not_start(problem)
            return
        self.loading = False
        gateway = self.cluster_node.gateway
        self.port = NodePort(self.world.nats, self.name, gateway.read_buffer, self.server, self.run)
        self.port.subscriptions = gateway.subscriptions.known()
        gateway.connection = self.port
        if self.world.jetstream:
            self.port.leaves[b""] = SimLeaf(
                self.world.nats, f"leaf of {self.name}", self.server, self.run, self.driver.turns.look
            )
        self.port.connect()
        self.cluster_node.start()
        self._flush_soon()

    def _does_not_start(self, error):
        """A disk fails still: the process ends and is started again."""
        self.world.trace(f"{self.name} does not start: {error}")
        if not self.world.disk_failed:
            self.world.complain(f"{self.name} does not start: {error!r}")
        self.crash(power=False)

    def crash(self, *, power, length=0):
        """The process is gone; without power, so is what was not synced."""
        if not self.alive:
            return
        world = self.world
        power = power and world.may_lose_power(self)
        world.trace(f"{self.name} dies, power {power}")
        self.alive = False
        if self.cluster_node is not None:
            self.cluster_node.stop()
        if self.runtime is not None:
            for runtime in self._runtimes:
                runtime.dead = True
        if self.port is not None:
            self.port.cut()
        if self.tasks is not None:
            self.database.cut()
            self.tasks.drop()
        self.files.open_files.clear()
        if power:
            self.boots += 1
            world.lost_power(self)
            self.files = self.files.crash(world.random.getrandbits(30))
        length = length or world.random.choice((5, 50, 400, 1500)) * MILLISECOND
        world.node_died(self, length)
        world.loop.after(length, self.boot)

    def fill(self, *, full):
        """Nothing finds room on its disk, or it does again."""
        self.files.full = self.database.full = full

    def replace_disk(self):
        """The machine is lost; another one with an empty disk takes its name."""
        self.crash(power=False)
        self.files, self.database = disk(self.world.loop), SimDatabase(pauses=True)
        self.boots += 1
        self.replaced = True
        self.cluster_node = None  # what it had promised is forgotten

    def stop(self):
        """Asked to stop, it hands its leaderships over, writes everything down, and is started again."""
        if not self.alive or self.loading:
            return
        life = self.lives

        def ended():
            if self.alive and self.lives == life:
                self.run(self._end)

        self.run(self.cluster_node.drain, ended)
        self.world.loop.after(2 * SECOND, ended)

    def _end(self):
        """As stan.edge.process does it."""
        if self.ending:
            return
        self.ending = True
        self.cluster_node.driver.turns.stop()
        self.port.cut()
        if not self.flushing:
            self._write_all_down()

    def _write_all_down(self):
        self._task(self._settle(), lambda _problem: self.crash(power=False))

    async def _settle(self):
        for _ in range(2):
            await self.storage.flush(self.broker)
            for group in self.cluster_node.groups.values():
                group.synced(group.log.durable_index)
            self.driver.apply_committed()
        self.cluster_node.stop()
        await self.storage.close(clean=True)

    @property
    def broker(self):
        return self.cluster_node.broker

    @property
    def driver(self):
        return self.cluster_node.driver

    def pause(self, length):
        """SIGSTOP for a while, then everything that happened meanwhile at once."""
        self.pauses.begin(length)

    def pause_amid(self, length, told):
        """The same, amid the next turn that has something to send; *told* is called then."""
        self.pauses.arm(length, told)

    # --- its housekeeping -------------------------------------------------------------------------------------------------

    def _flush_soon(self):
        self.runtime._later(self.world.random.randint(50, 400) * MILLISECOND, self._flush)

    def _flush(self):
        if self.ending:
            return
        self.flushing = True
        self._task(BrokerProcess._flush(self, self.driver), self._flushed)

    def _flushed(self, problem):
        self.flushing = False
        if self.ending:
            self._write_all_down()
            return
        if problem is not None:
            self.world.trace(f"{self.name} flush failed: {problem}")
        failed = any(group.failed for group in self.cluster_node.groups.values())
        if failed and not self.world.program_fails and self.world.random.random() < 0.3:  # somebody starts it again
            self.crash(power=False)
        else:
            self._flush_soon()

    def _crashed(self, error):
        refused = isinstance(error, (OSError, Frozen)) or isinstance(error.__cause__, OSError)
        if refused and self.world.disk_failed:  # a group could not be opened or put aside
            self.crash(power=False)
        elif isinstance(error, StanError):  # it says that it must not run
            self.world.complain(f"{self.name} ends: {error}")
            self.crash(power=False)
        else:
            raise error

    def _listening(self):
        world = self.world
        self.has_listened = True
        world.trace(f"{self.name} listens")
        world.history.cause(self.booted_at, world.loop.now, f"{self.name} does not hear clients yet")

    def _note(self, level, text):
        self.world.note(self, level, text)

    @property
    def votes(self):
        """Whether it knows what it has promised, in all of its groups, as far as was seen last."""
        groups = self.cluster_node.groups.values() if self.cluster_node is not None and not self.loading else ()
        return bool(groups) and all(group.votes for group in groups)

    @property
    def running(self):
        """Whether it takes part."""
        return self.alive and not self.loading

    # --- what the checks and the aimed faults listen to ---------------------------------------------------------------------

    def _watch(self):
        cluster_node, world = self.cluster_node, self.world
        commit, send, ready = (
            cluster_node.broker.entries.step_committed,
            cluster_node.copies.links.mux.send,
            cluster_node.broker.ready,
        )

        def committed(group, index, kind, body):
            if kind == Kind.RECORDS:
                for batch in decode_batches(body):
                    world.stored(self, world.whole(group, batch))
            commit(group, index, kind, body)
            if group:
                world.change_committed(cluster_node.broker, group, index, kind, body)

        def sent(group, peer, message):
            send(group, peer, message)
            if isinstance(message, VoteAnswer) and message.granted and not message.pre:
                world.aim(self, "vote")
            elif isinstance(message, VoteRequest) and not message.pre:
                world.aim(self, "campaign")
            elif isinstance(message, AppendAnswer) and message.success:
                world.aim(self, "append")

        def ready_to_send(*arguments):
            made = ready(*arguments)
            if made.sends:
                self.pauses.amid()
            return made

        cluster_node.broker.ready = ready_to_send
        cluster_node.broker.entries.step_committed = committed
        cluster_node.copies.links.mux.send = sent

    @property
    def well(self):
        """Whether it takes part in every group that it holds."""
        cluster_node = self.cluster_node
        return (
            self.alive
            and not self.loading
            and not self.pauses.until
            and self.port.up
            and not any(group.failed for group in cluster_node.groups.values())
            and cluster_node.broker.view.nuid != b""
        )

    def state(self, number):
        """(applied index, the whole state of a group as bytes, its messages)."""
        snapshot = state_of(self.storage, self.cluster_node.broker, number)
        return snapshot.applied_index, snapshot.SerializeToString(deterministic=True), self.messages(number)

    def messages(self, number):
        """What the log of a group holds: (channel uid, first, last, ((base, count, records), ...))."""
        log, found = self.storage.logs[number], []
        for uid in sorted(log.channels()):
            index = log.channel(uid)
            if not index.last_sequence:  # it was only asked for
                continue
            refs = index.refs(index.first_sequence, index.last_sequence, 1 << 40, 1 << 40)
            batches = tuple((ref.base_sequence, ref.count, bytes(log.read(ref))) for ref in refs)
            found.append((uid, index.first_sequence, index.last_sequence, batches))
        return tuple(found)


def values_of(records):
    """[(channel, sequence, value)] of a record batch."""
    found, at = [], 0
    while at < len(records):
        (size,) = LENGTH.unpack_from(records, at)
        message = wire.MsgProto.FromString(bytes(records[at + 4 : at + 4 + size]))
        found.append((message.subject.decode(), message.sequence, value_of(message)))
        at += 4 + size
    return found

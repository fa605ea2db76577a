"""Virtual time: a heap of things to do, and the driver's runtime on top of it."""

import heapq
import random

from stan_protocol.scalars import MICROSECOND, MILLISECOND, SECOND

from stan.core.base.ready import ReadResult
from stan.errors import StanError
from tests.kit.files import CrashingFiles

WALL_START = 1_700_000_000 * SECOND
QUICK_SYNCS = 0.5
"""Share of the syncs that are done at once."""
QUICK_READS = 0.5
"""Share of the reads of which the system has all bytes in memory."""


class Loop:
    """Things to do, in order of time; equal times in the order they were asked for."""

    def __init__(self, seed):
        self.seed = seed
        self.random = random.Random(seed)
        self.now = SECOND
        self.wall_offset = 0  # by how much the clocks of all machines were set
        self._heap = []
        self._made = 0

    def at(self, when, call, *args):
        self._made += 1
        heapq.heappush(self._heap, (max(when, self.now), self._made, call, args))

    def after(self, delay, call, *args):
        self.at(self.now + delay, call, *args)

    def run_until(self, end):
        while self._heap and self._heap[0][0] <= end:
            self.now, _, call, args = heapq.heappop(self._heap)
            call(*args)
        self.now = max(self.now, end)


def disk(loop):
    """An empty disk, some of whose bytes the system has in memory."""
    files = CrashingFiles()
    files.cached = lambda: loop.random.random() < QUICK_READS
    return files


class SimRuntime:
    """`stan.edge.runtime.Runtime` on the loop; dies with its node."""

    def __init__(self, loop):
        self.loop = loop
        self.dead = False
        self._alarm = 0
        self._syncing = set()

    def now(self):
        return self.loop.now

    def wall(self):
        return WALL_START + self.loop.now + self.loop.wall_offset

    def _later(self, delay, call, *args):
        self.loop.after(delay, lambda: None if self.dead else call(*args))

    def soon(self, call):
        self._later(MICROSECOND, call)

    def alarm(self, deadline, call):
        self._alarm += 1
        mine = self._alarm
        self.loop.at(deadline, lambda: call() if not self.dead and mine == self._alarm else None)

    def sync(self, group, done):
        """The sync takes its time; what is durable is what was written when it began."""
        if group.group in self._syncing:
            return
        self._syncing.add(group.group)

        def work():
            try:
                durable, why = group.log.sync(), ""
            except (OSError, StanError) as error:
                durable, why = None, str(error)
            self._later(self.loop.random.randint(10, 3000) * MICROSECOND, told, durable, why)

        def told(durable, why):
            self._syncing.discard(group.group)
            done(durable, why)

        self._later(self.loop.random.randint(0, 500) * MICROSECOND, work)

    def sync_now(self, group):
        """Some syncs are quick."""
        if group.group in self._syncing or self.loop.random.random() >= QUICK_SYNCS:
            return False
        try:
            group.log.sync()
        except (OSError, StanError):
            return False
        return True

    def read(self, log, refs, done):
        def work():
            try:
                result = [ReadResult(ref.base_sequence, ref.count, log.read(ref), ref.as_stored) for ref in refs]
            except (OSError, StanError) as error:
                result = error
            done(result)

        self._later(self.loop.random.randint(0, 5) * MILLISECOND, work)


class NodeRuntime(SimRuntime):
    """The loop for one life of one node, whose disk may be slow; what its clock shows is for a subclass to say.

    Everything runs inside `node.run`, where a power cut ends that life."""

    def __init__(self, node):
        super().__init__(node.world.loop)
        self.node = node

    def _later(self, delay, call, *args):
        self.loop.after(delay, lambda: None if self.dead else self.node.run(call, *args))

    def alarm(self, deadline, call):
        super().alarm(self.loop.now + max(0, deadline - self.now()), lambda: self.node.run(call))

    def sync_now(self, group):
        return not self.node.disk_slow and super().sync_now(group)

    def sync(self, group, done):
        if group.group in self._syncing:
            return
        self._syncing.add(group.group)
        draw = self.loop.random
        slow = draw.randint(30, 700) * MILLISECOND if self.node.disk_slow else draw.randint(10, 2000) * MICROSECOND

        def work():
            try:
                durable, why = group.log.sync(), ""
            except (OSError, StanError) as error:
                durable, why = None, str(error)
            self._later(draw.randint(1, 300) * MICROSECOND, told, durable, why)

        def told(durable, why):
            self._syncing.discard(group.group)
            done(durable, why)

        self._later(slow, work)


def run_now(coroutine):
    """Run a coroutine that never suspends; it fails if it touches the real world."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise AssertionError("the simulator awaited something real")

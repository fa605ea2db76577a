"""The driver's runtime for one life of one node, whose disk may be slow, and the disks of nodes."""

from stan_protocol.scalars import MICROSECOND, MILLISECOND

from stan.errors import StanError
from stan.testing.loop import SimRuntime
from tests.kit.files import CrashingFiles

QUICK_READS = 0.5
"""Share of the reads of which the system has all bytes in memory."""


def disk(loop):
    """An empty disk, some of whose bytes the system has in memory."""
    files = CrashingFiles()
    files.cached = lambda: loop.random.random() < QUICK_READS
    return files


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

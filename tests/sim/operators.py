"""A simulated operator who moves, skips, pauses, resumes and sends again at random, and what must be true of that.

What is answered has happened, and stays so through every fault: a moved position gets everything from there on again, what was
skipped does not come any more, a paused one gets nothing. Repeats are flagged all the time (check_repeats).
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field

from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.scalars import MILLISECOND, SECOND

from tests.sim.clients import SimClient
from tests.sim.cluster_world import ClusterWorld
from tests.sim.history import Acked, Delivered
from tests.sim.world import World

SUBJECT = "_STAN.x.test-cluster.admin"
ON_ITS_WAY = 3 * SECOND
"""What a slow link has kept comes within this."""
ON_TIME = 100 * MILLISECOND
"""The same of one in times of peace."""
FOREVER = 1 << 62
ENDS = re.compile(r"ends with sequence (\d+)")
KINDS = ("move", "move", "move", "skip", "skip", "redeliver", "pause", "pause")


@dataclass(eq=False)
class Operation:
    """One change of one position."""

    kind: str
    asked_at: int
    until: int = FOREVER  # it may show until then that it was not in force yet
    done_at: int = 0
    lost: int = 0  # attempts of which nobody knows what became of them
    runs: list[int] = field(default_factory=list)  # what it is about: first, last
    sequence: int = 0  # of a move: from here on everything comes again
    known: bool = False  # that is sure


class Operator(SimClient):
    """Asks one thing after the other, each until it is answered."""

    def __init__(self, world, client_id):
        super().__init__(world, client_id)
        self.last = {}  # channel -> its last sequence, as told
        self.paused = {}  # position -> how it is named
        self.busy = False

    def _connect(self):
        """It needs no registration."""
        self.busy = False
        self.later(self.random.randint(100, 900) * MILLISECOND, self._next)

    def _next(self):
        if self.paused and (self.world.quiet or self.random.random() < 0.5):
            position = self.random.choice(list(self.paused))
            self._ask("resume", position, self.paused[position], {})
            return
        if self.world.quiet:
            return
        durable = [c for c in self.world.clients.values() if c.client_id[:3] in ("dur", "grp")]
        targets = [client for client in durable if client.sub is not None and client.sub.joined_at]
        if not targets:
            self.later(100 * MILLISECOND, self._next)
        else:
            target = self.random.choice(targets)
            which = {"channel": target.channel.encode(), "durable_name": f"d{target.epoch}".encode()}
            which |= {"queue_group": b"q"} if target.shared else {"client_id": target.client_id.encode()}
            kind = self.random.choice(KINDS)
            self._ask(kind, target.position, which, self._told(kind, max(1, self.last.get(target.channel, 1))))

    def _told(self, kind, last):
        draw = self.random
        if kind == "move":
            near, far = draw.randint(max(1, last - 12), last + 1), draw.randint(1, last)
            return draw.choice(({"sequence": near}, {"sequence": far}, {"all": True}, {"new_only": True}))
        first = draw.randint(max(1, last - 5), last)
        runs = [first, draw.randint(first, last)]
        return {"runs": runs} if kind == "skip" or (kind == "redeliver" and draw.random() < 0.5) else {}

    def _ask(self, kind, position, which, told):
        operation = Operation(kind, self.loop.now, runs=told.get("runs", []))
        self.busy = True
        self.history.operations[position].append(operation)
        if kind == "pause":
            self.paused[position] = which
        made = getattr(admin, f"{kind.capitalize()}Request")(version=1, which=admin.Which(**which), **told)
        self._attempt(operation, position, made)

    def _attempt(self, operation, position, made):
        def again():
            self._attempt(operation, position, made)

        def late():
            operation.lost += 1
            again()

        def answer(payload):
            response = admin.ChangeResponse.FromString(payload)
            if response.retry:
                self.later(50 * MILLISECOND, again)
            else:
                self._answered(operation, position, made, response)

        self.request(f"{SUBJECT}.{operation.kind}", made, answer, late)

    def _answered(self, operation, position, made, response):
        self.busy = False
        more = ON_ITS_WAY if operation.lost else 0  # an earlier attempt may still be on its way
        beyond = ENDS.search(response.error.decode())
        self.last[made.which.channel.decode()] = int(beyond[1]) if beyond else response.last_sequence or 1
        if not response.error:
            operation.done_at = self.loop.now
            operation.until = self.loop.now + more
            if operation.kind == "move":
                to = made.WhichOneof("to")
                operation.sequence = {"sequence": made.sequence, "all": 1}.get(to, response.last_sequence + 1)
                operation.known = not more or to != "new_only"
        elif not more:  # nothing of it happened
            self.history.operations[position].remove(operation)
        if operation.kind == "resume" or (operation.kind == "pause" and response.error):
            self.paused.pop(position, None)
        self.later(more + self.random.choice((0, 5, 100, 400)) * MILLISECOND, self._next)


class Operating:
    """What a world with an operator has besides another one's; put before it."""

    def make_clients(self, **options):
        self.add(Operator(self, "steerer"))
        super().make_clients(**options)

    def run(self, *args):
        return super().run(*args) + [f"check_operations: {text}" for text in check_operations(self.history)]

    def _at_work(self):
        operator = self.clients["steerer"]
        return f"the operator has paused {list(operator.paused)}" if operator.paused or operator.busy else ""

    def _drained(self):
        return not self._at_work() and super()._drained()

    def _open_ends(self):
        return self._at_work() or super()._open_ends()


class NodeOperator(Operating, World):
    """A node alone."""


class ClusterOperator(Operating, ClusterWorld):
    """A cluster."""

    def run(self, safety_s=10):
        return super().run(safety_s)


def check_operations(history):
    """See the module's docstring."""
    deliveries, acked = defaultdict(list), defaultdict(list)
    for event in history.events:
        if isinstance(event, Delivered):
            deliveries[event.sub.consumer].append(event)
        elif isinstance(event, Acked):
            acked[event.sub.consumer].append(event)
    for consumer, operations in history.operations.items():
        for at, operation in enumerate(operations):
            later = operations[at + 1 :]
            if operation.kind == "skip" and operation.done_at:
                yield from _skipped(history, consumer, operation, later, deliveries[consumer])
            elif operation.kind == "pause" and operation.done_at:
                yield from _paused(history, consumer, operation, later, deliveries[consumer])
        if consumer in history.must_finish and all(operation.done_at for operation in operations):
            yield from _finished(history, consumer, operations, acked[consumer])


def _in_force(history, operation, until):
    """When nothing of before it can come any more."""
    slow = history.explained(operation.asked_at, until)
    return operation.until + (ON_ITS_WAY if slow else ON_TIME)


def _skipped(history, consumer, operation, later, deliveries):
    moved_at = next((one.asked_at for one in later if one.kind == "move"), FOREVER)
    first, last = operation.runs
    for d in deliveries:
        if first <= d.sequence <= last and _in_force(history, operation, d.at) < d.at < moved_at:
            yield f"{consumer}: {d.sequence} came {(d.at - operation.done_at) / SECOND:.3f}s after it was skipped"


def _paused(history, consumer, operation, later, deliveries):
    resumed_at = next((one.asked_at for one in later if one.kind == "resume"), FOREVER)
    for d in deliveries:
        if _in_force(history, operation, d.at) < d.at < resumed_at:
            yield f"{consumer}: {d.sequence} came {(d.at - operation.done_at) / SECOND:.3f}s after it was paused"


def _finished(history, consumer, operations, acked):
    """Everything from the newest move on was acked after it was asked for, unless it was skipped since."""
    newest = max((at for at, one in enumerate(operations) if one.kind == "move"), default=-1)
    since, first = (operations[newest].asked_at, operations[newest].sequence) if newest >= 0 else (0, 1)
    if newest >= 0 and not operations[newest].known:
        return
    done = {ack.sequence for ack in acked if ack.at >= since}
    for one in operations[newest + 1 :]:
        if one.kind == "skip":
            done.update(range(one.runs[0], one.runs[1] + 1))
    channel = history.must_finish[consumer]
    missing = [sequence for sequence, _ in history.final[channel] if sequence >= first and sequence not in done]
    if missing:
        yield f"{consumer}: moved to {first}, {len(missing)} never acked since, the first is {missing[0]}"

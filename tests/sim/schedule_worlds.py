"""Worlds with messages of a stream that are to be published to another subject at a time, under all faults: each comes once, not
before its time, unless another one has taken its place or it was removed.
"""

from dataclasses import dataclass
from unittest import mock

from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND, SECOND
from stan_protocol.units import rfc3339

from stan.core.features.jetstream.streams.scheduling import Scheduling
from stan.protocol.compressed_batches import in_clear
from stan.protocol.entries import Kind, decode_batches
from stan.protocol.jetstream.headers import SCHEDULE_NEXT, SCHEDULER
from stan.testing.loop import WALL_START
from tests.kit.broker_state import BrokerState, wall_of
from tests.sim.cluster_world import ClusterWorld
from tests.sim.move_world import MoveWorld
from tests.sim.stream_worlds import STREAMS, ClusterStreaming, JetStreamClient, Streaming
from tests.sim.ttl_worlds import messages_of
from tests.sim.world import World

PLANS = "PLANS"
"""The stream with the schedules, and its channel."""
TARGET = "plan.now"
BEGINNINGS = (1, 100, 700, 2500)
"""In how many ms a schedule is due."""
TICKS = "plan.tick"
"""Behind it the subjects of schedules that repeat."""


@dataclass
class Plan:
    """A schedule that a client has published."""

    subject: str
    due: int  # Unix ns
    sequence: int = 0  # once it is acked
    removed: bool = False  # its client has asked for that
    repeats: bool = False


class Planner(JetStreamClient):
    """Publishes schedules on a few subjects of its own, each under an id until it is answered; removes some."""

    waiting = None
    repeating = True  # a schedule of it may repeat

    def _begin(self):
        super()._begin()
        self.later(SECOND, self._stop_repeating)

    def _stop_repeating(self):
        """Remove the schedule that repeats, once nothing else is published; until that is answered."""
        if not self.world.quiet:
            self.later(SECOND, self._stop_repeating)
            return

        def answer(told):
            self.repeating = "error" in told
            if self.repeating:
                self.later(100 * MILLISECOND, self._stop_repeating)

        asked = {"filter": f"{TICKS}.{self.client_id}"}
        self.ask(f"$JS.API.STREAM.PURGE.{PLANS}", asked, answer, self._stop_repeating)

    def go_on(self):
        if self.waiting is None and not self.world.quiet:
            self.number += 1
            repeats = self.random.random() < 0.1
            subject = f"{TICKS}.{self.client_id}" if repeats else f"plan.{self.client_id}.{self.random.randint(1, 4)}"
            due = WALL_START + self.loop.now + self.loop.wall_offset + self.random.choice(BEGINNINGS) * MILLISECOND
            self.waiting = f"{self.client_id}-{self.number}"
            self.world.plans[self.waiting] = Plan(subject, due, repeats=repeats)
        value = self.waiting
        if value is None:
            return
        plan = self.world.plans[value]

        def answer(told):
            if "error" in told:
                self.later(self.random.choice((5, 50, 300)) * MILLISECOND, self.go_on)
                return
            self.waiting, plan.sequence = None, told["seq"]
            self.answers += 1
            if self.random.random() < 0.15:
                self._remove(plan)
            self.later(self.random.choice((0, 30, 150, 500)) * MILLISECOND, self.go_on)

        pattern = "@every 1s" if plan.repeats else f"@at {rfc3339(plan.due)}"
        fields = (
            ("Nats-Schedule", pattern),
            ("Nats-Schedule-Target", TARGET),
            ("Nats-Msg-Id", value),
        )
        self.ask(plan.subject, value.encode(), answer, self.go_on, fields)

    def _remove(self, plan):
        """Ask for it once: the answer may not come."""
        for one in self.world.plans.values():
            one.removed |= one.subject == plan.subject
        asked = {"filter": plan.subject}
        self.ask(f"$JS.API.STREAM.PURGE.{PLANS}", asked, lambda _told: None, lambda: None)


class _Schedules(Streaming):
    """Some clients with schedules, and what comes of these."""

    streams = STREAMS | {PLANS: ["plan.>"]}

    def __init__(self, seed, **how):
        super().__init__(seed, **how)
        self.options = {PLANS: {"allow_msg_schedules": True}}
        self.plans = {}  # data -> Plan
        self.stored_plans = {}  # sequence -> subject and data of a schedule
        self.came = {}  # sequence -> data of a message that came of a schedule
        self.ticks = {}  # sequence -> data, and the time of the next one, of a message that came of one that repeats

    def jetstream_clients(self):
        return [*super().jetstream_clients(), *(Planner(self, f"plan{n}") for n in range(2))]

    def run(self, **patience):
        with mock.patch.object(Scheduling, "_outcome", self._watched(Scheduling._outcome)):
            return super().run(**patience)

    def _watched(self, outcome):
        def watched(scheduling, stream, listed, read):
            for one in listed:
                value = wire.MsgProto.FromString(read[one.sequence]).data.decode()
                due = one.due if self.plans[value].repeats else self.plans[value].due
                self.fail_if(due > wall_of(scheduling), f"{value} comes before its time")
            return outcome(scheduling, stream, listed, read)

        return watched

    def change_committed(self, broker, group, index, kind, body):
        super().change_committed(broker, group, index, kind, body)
        info = broker.view.meta.channels.get(PLANS.encode())
        for batch in decode_batches(body) if kind == Kind.RECORDS and info is not None else ():
            for message in messages_of(bytes(in_clear(batch))) if batch.uid == info.uid else ():
                value, headers = message.data.decode(), {one.key: one.value for one in message.headers}
                if SCHEDULER in headers and self.plans[value].repeats:
                    self.ticks[message.sequence] = value, headers[SCHEDULE_NEXT]
                elif SCHEDULER in headers:
                    self.came[message.sequence] = value
                else:
                    self.stored_plans[message.sequence] = message.key.decode(), value

    def waits(self, broker):
        """Whether schedules wait for their time."""
        return any(BrokerState(broker).copy(number).schedules.by_channel for number in broker.view.groups)

    def waiting(self):
        late = (one.client_id for one in self.jetstreamers if isinstance(one, Planner) and one.waiting is not None)
        ticking = (one.client_id for one in self.jetstreamers if isinstance(one, Planner) and one.repeating)
        return super().waiting() or next((f"{name} has no answer" for name in (*late, *ticking)), "")

    def read_all(self):
        super().read_all()
        for text in (*self._misplaced_plans(), *self._lost(), *self._again()):
            self.complain(f"check_schedules: {text}")

    def _misplaced_plans(self):
        for value, plan in self.plans.items():
            stored = self.stored_plans.get(plan.sequence)
            if plan.sequence and stored != (plan.subject, value):
                yield f"{value} should be at {plan.sequence}, and {stored} is"

    def _lost(self):
        """Schedules that nothing has ended, and of which nothing came; and those that were carried out after they had ended."""
        came = {value: sequence for sequence, value in self.came.items()}
        ended = {}  # subject -> sequence of the schedule that was stored behind
        for sequence in sorted(self.stored_plans, reverse=True):
            subject, value = self.stored_plans[sequence]
            if value in came:
                if ended.get(subject, came[value]) < came[value]:
                    yield f"{value} at {sequence} came at {came[value]}, and {ended[subject]} had taken its place"
            elif subject not in ended and not self.plans[value].removed and not self.plans[value].repeats:
                yield f"{value} at {sequence} never came"
            ended[subject] = sequence

    def _again(self):
        values = [*self.came.values(), *self.ticks.values()]
        yield from (f"{value} came twice" for value in {*values} if values.count(value) > 1)


class NodeSchedules(_Schedules, World):
    """One node, and its disk."""

    def _drained(self):
        return super()._drained() and not self.waiting() and not self.waits(self.node.broker)


class _ClusterSchedules(_Schedules, ClusterStreaming):
    """The same of all clusters. The history knows nothing of the schedules."""

    def stored(self, node, batch):
        if PLANS.encode() not in bytes(in_clear(batch)):
            super().stored(node, batch)

    def _backlog(self, leader, number):
        waits = BrokerState(leader.cluster_node.broker).copy(number).schedules.by_channel
        return "schedules wait" if waits else super()._backlog(leader, number)


class ClusterSchedules(_ClusterSchedules, ClusterWorld):
    """A cluster."""


class MovedSchedules(_ClusterSchedules, MoveWorld):
    """A cluster in which the stream's channel is moved between groups."""

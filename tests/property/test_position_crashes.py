"""Power is lost at every single write while an operator changes a durable: what was answered stays, and repeats are flagged."""

import pytest
from stan_protocol.scalars import MILLISECOND, SECOND

from tests.sim.clients import Publisher, Subscriber
from tests.sim.history import complaints
from tests.sim.operators import NodeOperator, Operator, check_operations

SEED = 5
CALLS_MAX = 40
"""Changing calls until the operator has done its work, at most."""
EACH = 8
MESSAGES = 12
CHANGES = (
    ("move", {"all": True}),
    ("pause", {}),
    ("skip", {"runs": [2, 3]}),
    ("resume", {}),
    ("redeliver", {}),
    ("move", {"new_only": True}),
    ("move", {"sequence": 4}),
)


class Few(Publisher):
    """Publishes one by one, and then no more."""

    def _burst(self):
        if self.number < MESSAGES:
            super()._burst()


class Planned(Operator):
    """Asks for one change after the other."""

    def __init__(self, world, client_id):
        super().__init__(world, client_id)
        self.plan = list(CHANGES)

    def _next(self):
        target = self.world.clients["dur0"]
        if target.sub is None or not target.sub.joined_at or self.last_seen() < MESSAGES // 2:
            self.later(20 * MILLISECOND, self._next)
            return
        if self.world.armed:
            self.world.files.cut_power_after(self.world.armed.pop())
        if self.plan:
            kind, told = self.plan[0]
            which = {"channel": b"a", "durable_name": b"d0", "client_id": b"dur0"}
            self._ask(kind, target.position, which, told)

    def last_seen(self):
        return max((d.sequence for d in self.history.deliveries), default=0)

    def _answered(self, operation, position, made, response):
        self.plan = self.plan[1:]
        super()._answered(operation, position, made, response)


class OneCrash(NodeOperator):
    """A world in which nothing fails but the power, once, from the first change on."""

    def __init__(self, seed):
        super().__init__(seed)
        self.armed = []  # after how many calls

    def make_clients(self, **_options):
        durable = Subscriber(self, "dur0", "a", "durable0", in_flight=3)
        self.history.must_finish[durable.position] = "a"
        for client in (durable, Few(self, "writer0", ("a",), 30 * MILLISECOND), Planned(self, "steerer")):
            self.add(client)
            client.start()

    def run_to(self, calls):
        """Whether there were as many; the complaints."""
        self.armed.append(calls)
        self.boot()
        self.make_clients()
        struck = self.go_on_until(lambda: not self.clients["steerer"].plan, 20 * SECOND, SEED)
        self.quiet = True
        self.files.cut_at = None
        self.go_on_until(self._drained, 20 * SECOND, SEED)
        self.fail_if(not self._drained(), "no progress")
        self._read_a()
        found = self.problems + complaints(self.history) + list(check_operations(self.history)) + self._replay_differs()
        self.node.kill()
        self.database.close()
        return struck, found

    def _read_a(self):
        reader = Subscriber(self, "reader-a", "a", "reader-a", "plain", in_flight=100)
        self.add(reader)
        reader.start()
        self.loop.run_until(self.loop.now + SECOND)
        self.history.final["a"] = self._read_by("reader-a")


@pytest.mark.parametrize("first", range(0, CALLS_MAX, EACH))
def test_power_cut_at_any_write(first):
    struck = []
    for calls in range(first, first + EACH):
        happened, found = OneCrash(SEED).run_to(calls)
        assert found == [], f"power cut at call {calls}"
        struck.append(happened)
    assert all(struck) or first + EACH >= CALLS_MAX

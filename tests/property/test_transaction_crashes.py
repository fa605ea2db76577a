"""Power is lost at every single write of a transaction, from the first staged part to its last step: it is whole afterwards."""

import pytest
from stan_protocol.scalars import SECOND

from tests.sim.history import complaints
from tests.sim.scene import CHANNELS
from tests.sim.transaction_worlds import NodeTransactions
from tests.sim.transactor import NAMED, ORPHAN, Transactor, check_transactions

SEED = 3
"""Of a run with many parts and rows."""
CALLS_MAX = 32
"""Changing calls until it is committed, at most."""
EACH = 8


class OneVersion(Transactor):
    """Stages two tasks of two channels, and one that nobody names, and commits."""

    def _plan(self):
        if self.version >= 0:
            return
        self.idle, self.given_up, self.joint, self.version = False, False, True, 0
        fates = NAMED, ORPHAN, NAMED
        self.txns = {name: [self._task(name, *one) for one in enumerate(fates)] for name in CHANNELS[:2]}
        self._go_on()


class OneCrash(NodeTransactions):
    """A world in which nothing fails but the power, once."""

    def __init__(self, seed):
        super().__init__(seed)
        self.aimed = 0

    def make_clients(self, **_options):
        self.add(OneVersion(self, "app"))
        self.clients["app"].start()

    def run_to(self, calls):
        """Whether there were as many; the complaints."""
        self.boot()
        self.files.cut_power_after(calls)
        self.make_clients()
        struck = self.go_on_until(lambda: not self.busy_apps() and self.commits, 20 * SECOND, calls)
        self.quiet = True
        self.files.cut_at = None
        self.read_all()
        found = self.problems + complaints(self.history) + list(check_transactions(self)) + self._replay_differs()
        self.node.kill()
        self.database.close()
        return struck, found


@pytest.mark.parametrize("first", range(0, CALLS_MAX, EACH))
def test_power_cut_at_any_write(first):
    struck = []
    for calls in range(first, first + EACH):
        happened, found = OneCrash(SEED).run_to(calls)
        assert found == [], f"power cut at call {calls}"
        struck.append(happened)
    assert all(struck) or first + EACH >= CALLS_MAX

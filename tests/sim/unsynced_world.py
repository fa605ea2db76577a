"""Groups whose entries are answered before they are synced (`commit` replicated): what survives when nodes lose power.

`UnsyncedWorld`: as long as a minority has lost power since it was whole, nothing that was acknowledged is lost. `OutageWorld`:
when a majority has, acknowledged entries may be gone; all members agree on what is left, and go on by themselves.
"""

import sys

from tests.sim.raft_world import FAULTS, RaftWorld, main

CALM = tuple(kind for kind in FAULTS if kind != "disk_error")
"""A disk that fails once and loses its power later may forget a vote (docs/log-format.md), which is not what these look at."""
MORE = ("power_beside_lagging",) * 12 + ("power",) * 4


class UnsyncedWorld(RaftWorld):
    """Any number of nodes are killed, and never more than a minority has lost power and is not whole again."""

    unsynced = True

    def __init__(self, seed, faults=()):
        super().__init__(seed, faults or CALM + MORE)

    def _fault_power_beside_lagging(self):
        """A follower misses what is acknowledged meanwhile, and comes back just when one that has it loses power."""
        having = [node for node in self.nodes.values() if node.alive and node.name in self.voters]
        if len(having) < len(self.voters):
            return
        lagging, victim = self.loop.random.sample(having, 2)
        others = [name for name in self.nodes if name != lagging.name]
        length = self._length()
        self.wire.cut([pair for name in others for pair in ((lagging.name, name), (name, lagging.name))], length)
        pause = self.loop.random.choice((20, 1500))
        self.loop.after(length, lambda: victim.crash(power=True, pause=pause))

    def may_lose_power(self, node):
        return node.name not in self.voters or self._may_forget(node.name)

    def lost_power(self, node):
        node.unsettled = True
        self.history.lost_power(node.name)


class OutageWorld(UnsyncedWorld):
    """Power goes everywhere, again and again; nobody's disk is replaced, as then an operator has to decide."""

    def __init__(self, seed, faults=()):
        kept = tuple(kind for kind in CALM if kind not in ("replace", "usurp")) + MORE + ("power_all",) * 4
        super().__init__(seed, faults or kept)
        self.outages = 0
        for node in self.nodes.values():
            node.founds, node.unsettled = True, False

    def may_lose_power(self, _node):
        return True

    def lost_power(self, node):
        was_minority = self._may_forget()
        super().lost_power(node)
        if not self._may_forget():
            self.outages += was_minority
            self.history.void()


if __name__ == "__main__":
    sys.exit(main(OutageWorld if sys.argv.pop(1) == "outage" else UnsyncedWorld))

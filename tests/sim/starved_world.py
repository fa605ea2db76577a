"""Runs of tests.sim.raft_world in which all nodes are short of CPU for two minutes: each gets its turn late, again and again.

Turns are late by anything from a tenth of a second to four seconds, so that a back-off that is forgotten while CPU is short is
seen: leaders would then be lost for as long as that lasts. No group may have more than a few new leaders within a minute, and
all must be well soon after. `python -m tests.sim --world starved --seeds 100`.
"""

from collections import defaultdict

from stan_protocol.scalars import MILLISECOND, SECOND

from tests.sim.raft_world import RaftWorld

STARVED = 120 * SECOND
LATE_MS = 100, 4000
RUNS_MS = 600
"""Time of CPU at once, at most."""
CHANGES_MAX = 3
"""New leaders of a group within a minute; one more where a leader is killed."""
CHANGE_MAX = 30 * SECOND
"""Until somebody leads in the place of one who died meanwhile."""


class StarvedWorld(RaftWorld):
    """One run."""

    def __init__(self, seed):
        super().__init__(seed)
        draw = self.loop.random
        self.aimed = dict.fromkeys(self.aimed, 0)
        self.torn = self.repeats = 0
        self.kills = draw.random() < 0.3  # one change that must be
        self.changes_while_starved = defaultdict(list)  # group -> times of new leaders

    def run(self, safety_s=0, drain_s=20):
        """Returns the complaints."""
        for node in self.nodes.values():
            node.founds, node.unsettled = True, False
            node.boot()
        for _ in range(3):
            self.loop.after(self.loop.random.randint(0, SECOND), self._propose)
        self.loop.run_until(self.loop.now + 15 * SECOND)
        before = set(self.history.leaders)
        self.end = self.loop.now + STARVED
        for node in self.nodes.values():
            self._starve(node)
        if self.kills:
            self.loop.after(self.loop.random.randint(0, 15) * SECOND, self._kill_leader)
        while self.loop.now < self.end:
            self.loop.run_until(self.loop.now + SECOND)
            for number, _ in self.history.leaders.keys() - before:
                self.changes_while_starved[number].append(self.loop.now)
            before = set(self.history.leaders)
        for number, times in self.changes_while_starved.items():
            changes = max(sum(start <= time < start + 60 * SECOND for time in times) for start in times)
            if changes > CHANGES_MAX + self.kills:
                self.complain(f"F6: group {number} had {changes} new leaders within a minute while CPU was short")
        self._expect_leaders()
        return super().run(safety_s, drain_s)

    def _starve(self, node):
        draw = self.loop.random
        if self.loop.now < self.end:
            least, most = LATE_MS
            length = int(least * (most / least) ** draw.random()) * MILLISECOND
            node.pauses.begin(length)
            self.loop.after(length + draw.randint(1, RUNS_MS) * MILLISECOND, self._starve, node)

    def _kill_leader(self):
        leaders = [node for node in self.nodes.values() if node.alive and node.groups[0].leads]
        if leaders:  # one that was stopped may not know yet that another one leads
            max(leaders, key=lambda node: node.groups[0].term).crash(power=False)
            self.loop.after(CHANGE_MAX, self._expect_leader, len(self.history.leaders))

    def _expect_leader(self, before):
        if len(self.history.leaders) == before:
            self.complain("nobody has replaced a leader that died while CPU was short")

    def _expect_leaders(self):
        """There is CPU again."""
        self.loop.run_until(self.loop.now + 10 * SECOND)
        for number in self.numbers:
            if not any(node.alive and node.groups[number].leads for node in self.nodes.values()):
                self.complain(f"group {number} has no leader")

    def _plan(self, end):
        """Nothing else is wrong."""

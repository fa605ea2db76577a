"""Runs of tests.sim.raft_world in which voters come and go, one at a time, amid all other faults.

At first some nodes vote and the others observe; leaders promote observers and remove voters, with the guard of the product:
the voters that are alive and count are a majority of the new ones. A node that finds another change in force stores it and
goes on with a new object in place of the old one. Crashes are aimed at the moments after a change was proposed and handed out.
`python -m tests.sim.raft_members --seeds 1000`, `--seed N`.
"""

import sys

from stan_protocol.scalars import MILLISECOND, SECOND

from stan.errors import Frozen, NotNow
from stan.protocol.entries import Kind
from stan.raft import configuration
from tests.sim.raft_history import CHANGE
from tests.sim.raft_world import FAULTS, Node, RaftWorld, main

CHANGES = ("add", "remove")


class ChangingWorld(RaftWorld):
    """One run. `changes` counts those that took effect somewhere."""

    def __init__(self, seed, faults=()):
        super().__init__(seed, faults or (*FAULTS, *CHANGES * 12))
        draw = self.loop.random
        for at in range(len(self.nodes), draw.choice((4, 5, 6))):
            self.nodes[f"m{at}"] = Node(self, f"m{at}")
        names = list(self.nodes)
        self.voters = draw.sample(names, min(len(names), draw.choice((1, 2, 3, 3, 4, 5))))
        self.observers = [name for name in names if name not in self.voters]
        fresh = draw.sample(self.voters, draw.randint(0, (len(self.voters) - 1) // 2))
        fresh += [name for name in self.observers if draw.random() < 0.5]
        for name, node in self.nodes.items():
            node.founds, node.unsettled = name not in fresh, name in fresh
        for kind in ("change", "reconfigured"):
            self.aimed[kind] = draw.choice((0, 0.1, 0.5))
        self.proposed = {number: {} for number in self.numbers}  # index -> voters of changes, whatever became of them

    # --- who votes --------------------------------------------------------------------------------------------------------

    @property
    def changes(self):
        return sum(entry[1] == Kind.CONFIG for log in self.history.committed.values() for entry in log.values())

    def _newest(self, number):
        """Index and voters of the newest change that is known to be committed, by anybody."""
        log = self.history.committed[number]
        index = max((index for index, (_, kind, _) in log.items() if kind == Kind.CONFIG), default=0)
        return index, configuration.decode(log[index][2]) if index else tuple(sorted(self.voters))

    def final_voters(self, number):
        return self._newest(number)[1]

    def electorate(self):
        return list(self.final_voters(self.loop.random.choice(self.numbers)))

    def reconfigure(self, node, number):
        """A leader may wait until the others have heard of it, and hand over."""
        draw = self.loop.random
        if node.groups[number].leads and draw.random() < 0.6:
            node.runtime._later(draw.randint(1, 400) * MILLISECOND, self._yield, node, number)
        else:
            super().reconfigure(node, number)

    def _yield(self, node, number):
        group = node.groups[number]
        to = group.best_successor() if group.leads else None
        if group.reconfigured is None or to is None:
            node.reconfigure(number)
        else:
            group.transfer(to, lambda _gone: super(ChangingWorld, self).reconfigure(node, number))

    def members_for(self, node, number):
        """A new disk goes by the voters of the beginning, or by what another node tells."""
        told = [other.members[number] for other in self.nodes.values() if other is not node and number in other.members]
        return self.loop.random.choice([super().members_for(node, number), *told])

    def _may_forget(self, *names):
        """Whether they would be a minority wherever they vote, did so, or may be about to."""
        forgetful = {*names, *(name for name, node in self.nodes.items() if node.forgets())}
        for number in self.numbers:
            newest, voters = self._newest(number)
            in_force = {voters, *(node.members[number][1] for node in self.nodes.values() if number in node.members)}
            ahead = {voters for index, voters in self.proposed[number].items() if index > newest}
            if any(2 * len(forgetful & set(voters)) >= len(voters) for voters in in_force | ahead):
                return False
        return True

    # --- changes ----------------------------------------------------------------------------------------------------------

    def _fault_add(self):
        for node, number, group in self._leaders():
            behind = group.lag()
            ready = [
                name
                for name in self.nodes
                if name not in group.members and self.nodes[name].alive and behind.get(name, 1000) < 100
            ]
            if ready:
                self._change(node, number, [*group.members, self.loop.random.choice(ready)])

    def _fault_remove(self):
        for node, number, group in self._leaders():
            if len(group.members) > 1:
                self._remove(node, number, self.loop.random.choice(group.members), 20)

    def _remove(self, node, number, name, times):
        """Who is to go and leads hands over first; the next leader is asked again."""
        group = node.groups[number]
        if self.quiet or name not in group.members:
            return
        if name != node.name:
            self._change(node, number, [voter for voter in group.members if voter != name])
            return
        to = group.best_successor()
        if to is not None:
            group.transfer(to, lambda gone: self.trace(f"transfer {gone}"))

        def again():
            for leader, led, _ in self._leaders():
                if led == number:
                    self._remove(leader, number, name, times - 1)

        if times:
            self.loop.after(100 * MILLISECOND, again)

    def _leaders(self):
        return [
            (node, number, node.groups[number])
            for node in self.nodes.values()
            for number in self.numbers
            if node.alive and node.groups[number].leads
        ]

    def _change(self, node, number, voters):
        group = node.groups[number]
        forgetful = {name for name in voters if self.nodes[name].forgets()}  # the leader may not have noticed yet
        alive = {name for name in voters if self.nodes[name].alive} & group.counting()
        if 2 * len(alive) > len(voters) > 2 * len(forgetful) and not self.quiet:
            node.run(self._propose_change, node, number, voters)

    def _propose_change(self, node, number, voters):
        group = node.groups[number]
        try:
            index = group.change(voters)
        except (NotNow, Frozen) as error:
            self.trace(f"{node.name}/{number}: no change: {error}")
            return
        self.trace(f"{node.name}/{number}: {index} proposes {voters}")
        self.proposed[number][index] = tuple(sorted(voters))
        self.history.proposed(node.name, number, index, group.term, CHANGE)
        self.aim(node, "change")

    def _plan(self, end):
        super()._plan(end)
        draw = self.loop.random
        for _ in range(draw.randint(0, 4)):  # several in a row
            at = draw.randint(self.loop.now + SECOND, end)
            for later in range(draw.randint(1, 5)):
                when = at + later * draw.choice((50, 300, 1000)) * MILLISECOND
                self.loop.at(when, getattr(self, f"_fault_{draw.choice(CHANGES)}"))


if __name__ == "__main__":
    sys.exit(main(ChangingWorld))

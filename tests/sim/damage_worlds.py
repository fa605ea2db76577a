"""Worlds in which the newest entries of one disk are damaged: a cluster, in which another node lags meanwhile, loses nothing, and
the damaged node says what it has lost; a node alone does not go on as if nothing had been."""

import re

from stan_protocol.scalars import MILLISECOND, SECOND, GroupId

from stan.errors import StanError
from tests.kit.damage import KINDS, damage
from tests.sim.cluster_world import ClusterWorld
from tests.sim.world import World

LAGS = (0, 50, 300, 900)  # ms that somebody hears nothing before the damage
SAID = re.compile(r"lost|moved to|position \d+")
AGAIN = 200 * MILLISECOND


class ClusterDamage(ClusterWorld):
    """One run."""

    def __init__(self, seed, *, calm=False):
        super().__init__(seed, calm=calm)
        self.damaged = 0
        self._unsaid = {}  # (node, group) -> what it has to say about its log

    def run(self, safety_s=9):
        """See ClusterWorld."""
        return super().run(safety_s) + self._silences()

    def _silences(self):
        return [f"{node} did not say of group {group}: {what}" for (node, group), what in self._unsaid.items()]

    def beside_laggards(self):
        """The worst case, alone: who hears nothing is there first with the damaged one, and who has all comes later."""
        self.begin()
        self.run_for(3)
        victim, *others = self.random.sample(list(self.nodes.values()), len(self.nodes))
        lagging, rest = others[: len(others) // 2], others[len(others) // 2 :]
        pairs = self._cut_links(lagging)
        self.run_for(1.5)
        self._strike(victim, others, rest, pairs, length=3 * SECOND)
        self.run_for(4)
        return self.finish() + self._silences()

    def _plan_faults(self, end):
        draw = self.random
        if draw.random() < 0.5:
            super()._plan_faults(end)
        for _ in range(draw.choice((1, 2, 3))):
            self.loop.at(draw.randint(self.loop.now + SECOND, end - SECOND), self._fault_damage)

    def note(self, node, level, text):
        if level == "ERR" and node.replaced and text.startswith("group ") and SAID.search(text):
            self.trace(f"{node.name} {level} {text}")
            self._unsaid.pop((node.name, int(text.split(":")[0].split()[1])), None)
        else:
            super().note(node, level, text)

    def _somebody_to_leave_out(self):
        """Nobody while a log has holes: its node votes by then, but cannot lead."""
        return super()._somebody_to_leave_out() if all(map(_has_all, self.nodes.values())) else None

    # --- damage -----------------------------------------------------------------------------------------------------------

    def _fault_damage(self):
        """Only while all disks are whole: some nodes hear nothing for a while, then the damaged one and they are there first."""
        if self.quiet:
            return
        draw, nodes = self.random, list(self.nodes.values())
        if not all(node.well and _has_all(node) for node in nodes):
            self.loop.after(AGAIN, self._fault_damage)
            return
        victim = self._someone()
        others = [node for node in nodes if node is not victim]
        lagging = draw.sample(others, len(others) // 2)
        lag = draw.choice(LAGS) * MILLISECOND
        pairs = self._cut_links(lagging) if lag else []
        self._cause(lag, f"{lagging} hear nothing")
        rest = [node for node in others if node not in lagging]
        self.loop.after(lag, self._strike, victim, others, rest if draw.random() < 0.8 else [], pairs)

    def _cut_links(self, lagging):
        """Between nodes that hear nothing and all others."""
        pairs = [
            (one.name, other.name)
            for one in self.nodes.values()
            for other in self.nodes.values()
            if one is not other and (one in lagging or other in lagging)
        ]
        for pair in pairs:
            self.nats.deaf[pair] = None
        return pairs

    def _strike(self, victim, others, rest, pairs, length=0):
        draw = self.random
        for pair in pairs:
            self.loop.after(draw.choice((0, 5, 100)) * MILLISECOND, self.nats.deaf.pop, pair, None)
        if self.quiet or not (victim.running and all(_has_all(node) for node in (victim, *others))):
            return
        for node in rest:
            node.crash(power=draw.random() < 0.3, length=length or draw.choice((1, 2, 4)) * SECOND)
        logs, flushed = dict(victim.storage.logs), dict(victim.storage.rows.flushed)
        victim.crash(power=False, length=draw.choice((5, 50, 300)) * MILLISECOND)
        victim.cluster_node, victim.replaced = None, True  # what it has promised may be forgotten
        groups = draw.sample(sorted(logs), draw.randint(1, len(logs)))
        for number in groups:
            directory, kind, log = f"/data/groups/{number}", draw.choice(KINDS), logs[number]
            place = damage(
                victim.files, directory, kind, draw, durable=log.durable_index, flushed=flushed.get(number, 0)
            )
            if place is None:
                continue
            self.damaged += 1
            what = f"{kind} at entry {place.index} of {log.durable_index}"
            self.faults.append((self.loop.now, f"{victim} group {number} {what}"))
            self._unsaid[victim.name, number] = what


def _has_all(node):
    """Whether a node has lost nothing that it would have to get from others; of one that is down nobody knows."""
    return node.running and node.votes and all(map(node.storage.is_intact, node.storage.logs))


class NodeDamage(World):
    """One run. A node that refuses to start gets its files back as they were, as from a backup, and goes on without a loss."""

    def __init__(self, seed):
        super().__init__(seed)
        self.damaged = self.refused = 0
        self._before = {}  # path -> what was in the file before it was damaged
        self._damage = []  # what is to be missed at the next start

    def _plan_faults(self, end):
        super()._plan_faults(end)
        for _ in range(self.random.choice((1, 2))):
            self.loop.at(self.random.randint(self.loop.now + SECOND, end), self._fault_damage)

    def _fault_damage(self):
        draw = self.random
        if self.node is None or self.quiet or not self.node.link.up:
            return
        logs, flushed = dict(self.node.storage.logs), dict(self.node.storage.rows.flushed)
        self._node_dies("kill")
        before = {path: self.files.content(path) for path in self.files.paths()}
        for number in draw.sample(sorted(logs), draw.randint(1, len(logs))):
            place = damage(
                self.files,
                f"/sim/groups/{number}",
                kind := draw.choice(KINDS),
                draw,
                durable=logs[number].durable_index,
                flushed=flushed.get(GroupId(number), 0),
            )
            if place is not None:
                self.faults.append((self.loop.now, f"group {number} {kind} at {place.index}"))
                self._damage.append(f"group {number}: ")
        if self._damage:
            self._before, self.damaged = before, self.damaged + 1

    def boot(self):
        try:
            super().boot()
        except StanError as error:
            if not any(str(error).startswith(group) for group in self._damage):
                raise
            self.refused += 1
            self.trace(f"refuses to start: {error}")
            self.files.open_files.clear()
            for path, data in self._before.items():
                self.files.put(path, data)
            self._damage.clear()
            super().boot()
        self.fail_if(self._damage, f"starts and does not miss what was damaged in {self._damage}")
        self._damage.clear()

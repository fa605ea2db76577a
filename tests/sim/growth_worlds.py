"""Clusters whose pool of groups grows while everything else happens to them: channels go to the new groups, or are made there."""

from functools import partial

from stan_protocol.scalars import MILLISECOND

from stan.protocol.placement import channel_group
from tests.kit.broker_state import propose
from tests.sim.cluster_world import ClusterWorld
from tests.sim.member_world import MemberWorld
from tests.sim.move_world import Moved

PAUSE = 100 * MILLISECOND
NEW_MAX = 3
"""Most groups that a growth brings."""
WRITERS_PACE = 500 * MILLISECOND
OLD = 3
"""Channels besides the usual ones from the beginning: some of them move."""
GROWN = "the pool grows: "


class Growing(Moved):
    """What a world does to have its pool grown, and looks at."""

    def __init__(self, seed, *, calm=False):
        super().__init__(seed, calm=calm)
        draw = self.random
        self.growths = 0  # that were opened
        self.in_new = 0  # channels that were made in new groups
        self.aimed["grow"] = 0 if calm else draw.choice((0, 0.3, 0.6))
        self.pausing = 0 if calm else draw.choice((0, 0, 0.3))  # how often an operator has moves paused
        self._wanted = self._opened = self.raft_groups
        self._made = set()
        self._writers = 0

    @property
    def pool(self):
        """As many as any node knows: a growth is not even taken while nodes are away, and what is only wanted has no leader."""
        nodes = [node.cluster_node for node in self.nodes.values() if node.cluster_node is not None]
        known = [max(node.broker.view.pool, node.reconfiguration.pool.groups) for node in nodes]
        return max(known, default=self.raft_groups)

    def run(self, safety_s=20):
        """Until then the pool has grown, and channels move amid faults."""
        return super().run(safety_s)

    def begin(self):
        super().begin()
        self.loop.after(self.random.randint(1000, 3000) * MILLISECOND, self._want)
        for _ in range(OLD):
            self._begin_channel()
        if self.pausing:
            self.loop.after(0, self._pause_moves)

    def _pause_moves(self):
        """Let no channel move by itself for now, or let them go again; in the end they go."""
        leader = self.leader(0)
        if leader is not None and leader.running and not leader.pauses.until:
            broker = leader.cluster_node.broker
            if self.quiet and not broker.view.meta.moves_paused:
                return
            paused = not self.quiet and self.random.random() < self.pausing
            leader.run(partial(propose, broker, pause_moves=paused))
            leader.run(leader.driver.turns.wake)
        self.loop.after(self.random.choice((5, 10, 20)) * PAUSE, self._pause_moves)

    def _want(self):
        """An operator asks for more groups."""
        self._wanted = self._opened + self.random.randint(1, NEW_MAX)
        self.faults.append((self.loop.now, f"grow to {self._wanted}"))
        self._ask_to_grow()

    def _ask_to_grow(self):
        """Until it is done, whoever leads the metadata."""
        leader = self.leader(0)
        if leader is not None and leader.running and not leader.pauses.until:
            view = leader.cluster_node.broker.view
            if view.pool_open == self._wanted:
                self._done()
                return
            if view.pool < self._wanted and view.meta.founded:
                leader.run(self._propose, leader)
        self.loop.after(PAUSE, self._ask_to_grow)

    def _propose(self, leader):
        growth = leader.cluster_node.reconfiguration.growth(self._wanted)
        if isinstance(growth, str):
            self.trace(f"does not grow: {growth}")
            return
        propose(leader.cluster_node.broker, grow_pool=growth)
        leader.run(leader.driver.turns.wake)
        if not self.quiet and self.aimed["grow"] and self.random.random() < self.aimed["grow"]:
            strike, what = self.random.choice(((self._cut, "power"), (self._cut, "power"), (self._wipe, "its disk")))
            victim = self._someone()
            self.faults.append((self.loop.now, f"{victim} loses {what} while it grows"))
            self.loop.after(self.random.choice((400, 3000)) * self.random.randint(0, MILLISECOND), strike, victim)

    def _cut(self, victim):
        if not self.quiet:
            victim.files.cut_power_after(self.random.randint(0, 60))

    def _wipe(self, victim):
        """What it has promised in groups that are new is forgotten with all else."""
        others = [node for node in self.nodes.values() if node is not victim]
        if not self.quiet and all(node.well and node.votes for node in others):
            victim.replace_disk()

    def _done(self):
        self._opened = self._wanted
        self.growths += 1
        if not self.quiet:
            for _ in range(2):
                self._begin_channel()
            if self.random.random() < 0.4:
                self.loop.after(self.random.randint(0, 2000) * MILLISECOND, lambda: self.quiet or self._want())

    def _begin_channel(self):
        """Somebody writes to a channel that was not there, and somebody reads it."""
        names = [f"new{at}" for at in range(40) if f"new{at}" not in self.channels]
        mostly_new = [name for name in names if channel_group(name.encode(), self._opened) > self.raft_groups]
        name = self.random.choice(mostly_new if mostly_new and self.random.random() < 0.8 else names)
        self.channels += (name,)
        self.history.group_of[name] = channel_group(name.encode(), self._opened)
        if self.limit:
            self.history.limits[name] = self.limit
        at = self._writers = self._writers + 1
        durable = self.subscriber(self, f"dur-new{at}", name, f"durable-new{at}", in_flight=4)
        self.history.must_finish[durable.position] = name
        for client in (durable, self.publisher(self, f"writer-new{at}", (name,), WRITERS_PACE)):
            self.add(client)
            self.loop.after(self.random.randint(0, 300) * MILLISECOND, client.start)

    def note(self, node, level, text):
        """Where channels are made, and that directories are there before groups run."""
        if text.endswith("has been created"):
            view = node.cluster_node.broker.view
            for info in view.meta.channels.values():
                name = info.name.decode()
                if info.group > view.pool_open:
                    self.complain(f"{node}: {name} is in group {info.group}, and only {view.pool_open} are open")
                if name not in self._made:
                    self._made.add(name)
                    self.in_new += info.group > self.raft_groups
                    self.history.group_of[name] = info.group
        if text.startswith(GROWN):
            self.aim(node, "grow")
        super().note(node, level, text)

    def _open_ends(self):
        leader = self.leader(0)
        if leader is None:
            return "the metadata has no leader"
        found = super()._open_ends()
        if found:
            return found
        for node in self.nodes.values():
            if node.kept_down:
                continue
            view, pool = node.cluster_node.broker.view, node.cluster_node.reconfiguration.pool.groups
            if view.pool != pool or node.storage.directory.manifest.groups != pool:
                return f"{node} counts {pool} groups of {view.pool}"
        view = leader.cluster_node.broker.view
        if view.pool != view.pool_open or (view.pool != self._wanted and not self._away()):
            return f"{view.pool_open} of {view.pool} groups are open, {self._wanted} are wanted"
        if view.pool == self._wanted and view.channels_to_move:
            return f"{view.channels_to_move} channels have still to move"
        return ""

    def _away(self):
        return any(node.kept_down for node in self.nodes.values())


class GrowthWorld(Growing, ClusterWorld):
    """One run with all faults of a cluster."""


class MemberGrowth(Growing, MemberWorld):
    """One run in which nodes are added and removed, too."""

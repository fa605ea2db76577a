"""A cluster whose nodes are added and removed while everything else happens to it."""

import re

from stan_protocol.scalars import MILLISECOND

from tests.sim.cluster_node import LEADS, SimulatedNode
from tests.sim.cluster_world import ClusterWorld

NODES_MIN = 3
NEW_NODES = 3
ASK_AGAIN = 100 * MILLISECOND
CHANGE = re.compile(r"group (\d+): its voters (become|are) .*")


class MemberWorld(ClusterWorld):
    """One run. At least as many nodes stay as a group has voters; who was removed is gone for ever."""

    changes_nodes = True

    def __init__(self, seed, *, calm=False):
        super().__init__(seed, calm=calm)
        self.changed = self.ended = 0
        self.members = list(self.names)
        self.newcomers = [f"x{at}" for at in range(NEW_NODES)]
        self._changing = {}  # group -> its leader, and since when it may have been changing the voters

    def begin(self):
        super().begin()
        self.loop.after(self.random.randint(2000, 4000) * MILLISECOND, self._change)

    def run(self, safety_s=15):
        """See ClusterWorld: longer, as groups take their time to move."""
        return super().run(safety_s)

    def note(self, node, level, text):
        """A leader that changes the voters of a group, or goes on with such a change, takes no proposals until that is committed,
        nor progress."""
        super().note(node, level, text)
        if led := LEADS.fullmatch(text):
            self._changing[led[1]] = (node, self.loop.now)
        change = CHANGE.fullmatch(text)
        if change and change[2] == "become":
            self._changing[change[1]] = (node, self.loop.now)
        elif change and self._changing.get(change[1], (None, 0))[0] is node:
            _, since = self._changing.pop(change[1])
            self.history.cause(since, self.loop.now, f"{node.name} changes the voters of group {change[1]}")

    # --- nodes ------------------------------------------------------------------------------------------------------------

    def _change(self):
        """Add a node, or remove one."""
        if self.quiet:
            return
        draw = self.random
        add = self.newcomers and (len(self.members) <= NODES_MIN or draw.random() < 0.5)
        if add:
            name = self.newcomers.pop(0)
            self.nodes[name] = SimulatedNode(self, name, draw.randrange(self.servers))
            self.members.append(name)
            self.loop.after(draw.choice((0, 10, 900)) * MILLISECOND, self.nodes[name].boot)
        elif len(self.members) > NODES_MIN:
            name = draw.choice(self.members)
            self.members.remove(name)
        else:
            return
        self.faults.append((self.loop.now, f"{'add' if add else 'remove'} {name}"))
        self._ask("add" if add else "remove", name)

    def _ask(self, verb, name):
        """Until it is done, whoever leads the metadata."""
        leader = self.leader(0)
        wanted = tuple(sorted(self.members))
        if leader is not None and leader.running and leader.cluster_node.broker.parts.nodes.names == wanted:
            self.trace(f"{verb} {name}: done")
            self.changed += 1
            self.loop.after(self.random.randint(50, 4000) * MILLISECOND, self._change)
            return
        if leader is not None and leader.running and not leader.pauses.until:
            nodes = leader.cluster_node.broker.parts.nodes
            request = Request(name.encode())
            leader.run(nodes.add if verb == "add" else nodes.remove, request)
            leader.run(leader.driver.turns.wake)
        self.loop.after(ASK_AGAIN, self._ask, verb, name)

    def node_ended(self, node):
        """Removed, and in no group."""
        self.trace(f"{node.name} ends")
        if node.name in self.members:
            self.complain(f"{node} ends although it is wanted")
        self.ended += 1
        node.kept_down = True
        self.loop.after(0, self._bury, node)

    def _bury(self, node):
        if self.nodes.pop(node.name, None) is node:
            self.removed[node.name] = node
            node.crash(power=False)
            node.database.close()

    # --- what is different ------------------------------------------------------------------------------------------------

    def _fault_replace(self):
        """Not while a group has so few voters that one cannot be spared."""
        nodes = [node for node in self.nodes.values() if node.running]
        if all(len(group.members) >= NODES_MIN for node in nodes for group in node.cluster_node.groups.values()):
            super()._fault_replace()

    def _end_unaware(self):
        """Who was removed before it learned that it had been added is a read replica for all it knows: somebody stops it."""
        for name, node in self.nodes.items():
            if (
                name not in self.members
                and node.running
                and not node.kept_down
                and node.cluster_node.reconfiguration._is_replica
            ):
                node.kept_down = True
                self.loop.after(0, self._bury, node)

    def _open_ends(self):
        self._end_unaware()
        away = any(node.kept_down for name, node in self.nodes.items() if name in self.members)
        gone = [name for name in self.nodes if name not in self.members and not self.nodes[name].kept_down]
        if gone and not away:
            return f"{gone} have not ended"
        found = super()._open_ends()
        if found or away:  # a group may have to wait for who is away, and the next change of the nodes for that group
            return found
        leader = self.leader(0).cluster_node
        if leader.broker.parts.nodes.names != tuple(sorted(self.members)):
            return f"nodes are {leader.broker.parts.nodes.names}, not {self.members}"
        if leader.reconfiguration.under_way():
            return leader.reconfiguration.under_way()
        up = [node for node in self.nodes.values() if not node.kept_down]  # one that was removed may still be down
        for node in up:
            held, placed = set(node.cluster_node.groups), node.cluster_node.reconfiguration.placement
            if held != {number for number, one in placed.items() if not number or node.name in one.voters}:
                return f"{node} holds {held}"
        return ""


class Request:
    """Of somebody who does not wait for the answer."""

    reply = b""

    def __init__(self, payload):
        self.payload = payload

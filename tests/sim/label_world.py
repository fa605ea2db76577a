"""A cluster whose nodes are added and removed, and come back with other labels, while everything else happens to it."""

from stan.labels import Labels, places_of
from tests.sim.member_world import MemberWorld

ZONES = ("", "east", "west", "north")


class LabelWorld(MemberWorld):
    """One run. Groups follow the labels; in the end the metadata has what the nodes tell."""

    def __init__(self, seed, *, calm=False):
        super().__init__(seed, calm=calm)
        self._told = {}
        self.labelled = 0  # nodes of whose labels the metadata know in the end

    def labels_of(self, name):
        """Labels with which a node starts now: mostly those that it had before."""
        if not self.quiet and (name not in self._told or self.random.random() < 0.3):
            zone = self.random.choice(ZONES)
            self._told[name] = Labels(zone, self.random.choice(("", "1", "2")) if zone else "")
        return self._told.get(name, Labels())

    def _open_ends(self):
        found = super()._open_ends()
        if found:
            return found
        leader = self.leader(0).cluster_node
        nodes = leader.broker.view.meta.nodes
        if any(self.nodes[name].kept_down for name in self.members):
            return ""
        self.labelled = len(nodes.labels)
        wanted = {name: labels for name in self.members if any(labels := self.nodes[name].labels)}
        if places_of(nodes.labels) != wanted:
            return f"labels are {places_of(nodes.labels)}, not {wanted}"
        return ""

"""The kinds of worlds, and which one a seed is for when nobody says. Imported late: a run of one kind needs no other."""

from importlib import import_module

WORLDS = {
    "node": ("tests.sim.world", "World"),
    "raft": ("tests.sim.raft_world", "RaftWorld"),
    "cluster": ("tests.sim.cluster_world", "ClusterWorld"),
}
_TURN = ("node", "raft", "cluster", "cluster")


def make(kind, seed):
    """A world."""
    module, name = WORLDS[kind]
    return getattr(import_module(module), name)(seed)


def kind_of(seed):
    """Which world a seed is for."""
    return _TURN[seed % len(_TURN)]

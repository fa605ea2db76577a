"""Checks that the nodes of a cluster have the same state: each sends hashes of its groups in its hellos and compares the others'.

States are compared as of the same entry, and between nodes of the same version, whose rows are the same bytes. A difference is a
defect: each node that notices it writes a line to its log, and reports trouble of the group until the two nodes are seen to agree
again. No clock, no network.
"""

from collections.abc import Iterable, Mapping

from stan_protocol.scalars import GroupId, RaftIndex

from stan.edge.storage.storage import Note, Storage
from stan.protocol.proto.node_pb2 import NodeHello, StateHash

HASHES_MAX = 2
"""Hashes of a group in a hello: of its newest state, and as of the newest entry at which all nodes take a hash."""


class Agreement:
    """The comparison of states on one node."""

    def __init__(self, storage: Storage, note: Note, version: str) -> None:
        self._storage = storage
        self._note = note
        self._version = version
        self._odd: dict[tuple[GroupId, str], RaftIndex] = {}  # by group and node: entry at which its state differed

    def hashes(self, groups: Iterable[GroupId]) -> list[StateHash]:
        """Return the state hashes for the next hello."""
        return [
            StateHash(group=number, index=index, hash=mark)
            for number in sorted(groups)
            for index, mark in self._storage.rows.hashes(number)[-HASHES_MAX:]
        ]

    def compare(self, hellos: Mapping[str, NodeHello]) -> None:
        """Compare this node's state hashes with those in the other nodes' newest hellos, by node."""
        mine = {number: dict(self._storage.rows.hashes(number)) for number in self._storage.logs}
        for name, hello in hellos.items():
            for one in hello.hashes if hello.version == self._version else ():
                number = GroupId(one.group)
                known = mine.get(number, {}).get(RaftIndex(one.index))
                if known is not None:
                    self._seen(number, name, RaftIndex(one.index), equal=known == one.hash)

    def _seen(self, number: GroupId, name: str, index: RaftIndex, *, equal: bool) -> None:
        key = number, name
        if equal:
            if index > self._odd.get(key, index):
                del self._odd[key]
        elif key not in self._odd:
            self._odd[key] = index
            self._note("ERR", f"group {number}: {_text(name, index)}")
        else:
            self._odd[key] = max(index, self._odd[key])
        self._storage.differs = {
            group: _text(other, at) for (group, other), at in self._odd.items() if group in self._storage.logs
        }


def _text(name: str, index: RaftIndex) -> str:
    return f"the state here as of entry {index} is not that of node {name}"

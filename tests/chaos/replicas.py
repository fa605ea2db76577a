"""Whether the nodes of a cluster that has ended hold the same: the log of each group, entry by entry, as it lies on disk.

Two logs that have an entry of the same index and term must be the same up to it (Raft's log matching); what comes after the
last such entry was never committed on both. Finds what no client sees, such as a replica that would serve something else.
"""

import zlib
from collections.abc import Iterator
from itertools import combinations

from stan_protocol.scalars import GroupId, RaftIndex

from stan.edge.storage.manifest import read_manifest
from stan.log.files.filelog import FileLog
from tests.kit.cluster import StanCluster

READ_BYTES = 8 << 20

Fingerprints = dict[int, tuple[int, int, int]]
"""Term, kind and checksum of each entry, by its index."""


def disagreements(cluster: StanCluster) -> Iterator[str]:
    """One line for each pair of nodes and group whose logs differ; no node may run any more."""
    assert not cluster.running
    for group in range(cluster.groups + 1):
        held = {name: fingerprints(cluster, name, group) for name in cluster.names}
        for (one, ours), (other, theirs) in combinations(held.items(), 2):
            place = first_difference(ours, theirs)
            if place is not None:
                yield f"group {group}, entry {place}: {one} has {ours[place]}, {other} has {theirs[place]}"


def first_difference(ours: Fingerprints, theirs: Fingerprints) -> int | None:
    """The first index at which two logs differ although they agree on a later term."""
    common = sorted(ours.keys() & theirs.keys())
    agreed = max((index for index in common if ours[index][0] == theirs[index][0]), default=0)
    return next((index for index in common if index <= agreed and ours[index] != theirs[index]), None)


def fingerprints(cluster: StanCluster, name: str, group: int) -> Fingerprints:
    """Of all entries that a node's log of the group has."""
    store = cluster.store(name)
    directory = store / "groups" / str(group)
    if not directory.exists():
        return {}
    log, _report = FileLog.open(directory, GroupId(group), read_manifest(str(store)).store_bytes)
    try:
        found: Fingerprints = {}
        index = log.first_index
        while index <= log.last_index:
            entries = log.entries(index, log.last_index, READ_BYTES)
            found |= {entry.index: (entry.term, entry.kind, zlib.crc32(entry.body)) for entry in entries}
            index = RaftIndex(entries[-1].index + 1)
        return found
    finally:
        log.close()

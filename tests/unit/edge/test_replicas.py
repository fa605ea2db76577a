"""The comparison of replicas: what was never committed may differ, everything below an agreed entry may not."""

import pytest

from stan.edge.storage.manifest import open_manifest
from stan.log.files.filelog import FileLog
from tests.chaos.replicas import disagreements, first_difference
from tests.kit.batches import change

GROUP = 3


@pytest.mark.parametrize(
    ("ours", "theirs", "place"),
    [
        ({}, {1: (1, 1, 7)}, None),
        ({1: (1, 1, 7), 2: (1, 1, 8)}, {1: (1, 1, 7)}, None),
        ({1: (1, 1, 7), 2: (1, 1, 8)}, {1: (1, 1, 7), 2: (2, 1, 9)}, None),
        ({1: (1, 1, 7), 2: (1, 1, 8)}, {1: (1, 1, 6), 2: (1, 1, 8)}, 1),
        ({1: (1, 1, 7), 2: (1, 1, 8), 3: (3, 1, 8)}, {1: (1, 1, 7), 2: (2, 1, 8), 3: (3, 1, 8)}, 2),
    ],
)
def test_difference_counts_up_to_the_last_common_term(ours, theirs, place):
    assert first_difference(ours, theirs) == place


class Ended:
    """As much of a cluster that has ended as the comparison looks at."""

    groups, names, running = GROUP, ["n1", "n2"], ()

    def __init__(self, directory):
        self.directory = directory

    def store(self, name):
        return self.directory / name

    def write(self, name, *entries):
        store = self.store(name)
        store.mkdir()
        manifest = open_manifest(str(store), "c", GROUP, node_id=name).manifest
        log, _ = FileLog.open(store / "groups" / str(GROUP), GROUP, manifest.store_bytes)
        log.append(entries)
        log.sync()
        log.close()


def test_logs_are_compared_entry_by_entry(tmp_path):
    cluster = Ended(tmp_path)
    cluster.write("n1", change(1), change(2, b"one"), change(3))
    cluster.write("n2", change(1), change(2, b"other"), change(3))
    (line,) = disagreements(cluster)
    assert line.startswith(f"group {GROUP}, entry 2: n1 has (1, ")


def test_log_that_lags_or_goes_on_agrees(tmp_path):
    cluster = Ended(tmp_path)
    cluster.write("n1", change(1), change(2), change(3))
    cluster.write("n2", change(1), change(2))
    assert not list(disagreements(cluster))

"""The manifest of a data directory is changed on the loop and in worker threads: no change is lost."""

import threading

import pytest

from stan.edge.storage import data_directory
from stan.edge.storage.data_directory import DataDirectory, Disk
from stan.edge.storage.manifest import RecordedNodes, write_manifest

NODES = RecordedNodes(["a", "b"], 3, ["a"], 3, True)  # noqa: FBT003 - as the manifest has it


@pytest.fixture
def directory(tmp_path):
    opened = DataDirectory.open(Disk(directory=str(tmp_path), boot="boot 1"), "town", 2, node_id="a", lock=None)
    opened.note_boot()
    return opened


def test_changes_of_two_threads_are_both_kept(directory, monkeypatch, tmp_path):
    others = []

    def write(path, manifest, files):
        if not others:
            others.append(threading.Thread(target=directory.note_nodes, args=(NODES,)))
            others[0].start()
            others[0].join(0.2)  # were it not held up, it would have written by now
        write_manifest(path, manifest, files)

    monkeypatch.setattr(data_directory, "write_manifest", write)
    directory.forget_boot()
    others[0].join()
    again = DataDirectory.open(Disk(directory=str(tmp_path), boot="boot 1"), "town", 2, node_id="a", lock=None)
    assert again.power_lost
    assert again.manifest.nodes == directory.manifest.nodes == NODES

"""The cluster of the kit, with nodes that only wait: who leads is read right, and nothing is left behind."""

import sys

import psutil
import pytest

from tests.kit import cluster as kit
from tests.kit.cluster import StanCluster
from tests.kit.server import READY

STUB = f"""
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("{READY}", file=sys.stderr, flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setattr(kit, "COMMAND", (sys.executable, "-c", STUB))
    with StanCluster(tmp_path) as cluster:
        cluster.tmp_path = tmp_path
        yield cluster


def say(cluster, name, *lines):
    with (cluster.tmp_path / name / "server.log").open("a") as log:
        log.writelines(f"[1] 2026/11/21 15:27:19.112286 [INF] STREAM: {line}\n" for line in lines)


def test_leader_is_who_said_so_last_and_in_the_newest_term(cluster):
    say(cluster, "n1", "group 1: leads in term 1", "group 2: leads in term 4")
    say(cluster, "n2", "group 1: leads in term 2", "group 12: leads in term 9")
    say(cluster, "n1", "group 2: leads no more", "group 3: leads in term 1", "group 3: leads no more")
    say(cluster, "n3", "group 2: leads in term 3")
    assert cluster.leaders() == {1: (2, "n2"), 2: (3, "n3"), 12: (9, "n2")}


def test_nodes_that_are_down_frozen_or_started_again_lead_nothing(cluster):
    for number, name in enumerate(cluster.names, 1):
        say(cluster, name, f"group {number}: leads in term 1")
    cluster.kill9("n1")
    cluster.stop("n2")
    cluster.restart("n3")
    assert cluster.leaders() == {}
    cluster.cont("n2")
    assert cluster.leaders() == {2: (1, "n2")}
    assert cluster.leader(2) == "n2"
    assert (cluster.running, cluster.down) == (["n2", "n3"], ["n1"])


def test_nothing_is_left_behind_whatever_was_done(cluster, tmp_path):
    pids = [node.pid for node in cluster.nodes.values()]
    cluster.stop("n1", "n2")
    cluster.kill9("n2")
    cluster.__exit__(None, None, None)
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_damage_and_wipe_change_the_files_of_a_node_that_is_down(cluster):
    directory = cluster.store("n1") / "groups" / "3"
    directory.mkdir(parents=True)
    (directory / "00000000000000000001.log").write_bytes(bytes(1000))
    newest = directory / "00000000000000000500.log"
    newest.write_bytes(1000 * b"\x0f")
    cluster.kill9("n1")

    assert cluster.damage("n1", 3) == f"{newest}:500"

    assert newest.read_bytes() == 500 * b"\x0f" + 64 * b"\xf0" + 436 * b"\x0f"
    cluster.wipe("n1")
    assert not cluster.store("n1").exists()

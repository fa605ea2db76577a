"""`stan cluster rescue` on directories of stopped nodes: what it says, what it asks, and what it refuses."""

import asyncio
from types import SimpleNamespace

import pytest
from stan_client.requests.admin import Nodes
from stan_protocol.admin_types import NodeStatus
from typer.testing import CliRunner

from stan.cli.commands import cluster
from stan.cli.main import app
from stan.cli.support import session
from stan.cli.support.common import CliError
from stan.edge.storage.data_directory import Disk
from stan.edge.storage.manifest import RecordedNodes, lock_directory, read_manifest
from stan.edge.storage.storage import Storage
from stan.log.types import Entry
from stan.protocol.entries import Kind
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.fake_operator import FakeDirect


@pytest.fixture(autouse=True)
def servers(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    fake = FakeDirect()
    fake.admin.all_nodes = Nodes([], [])
    monkeypatch.setattr(session, "open_direct", lambda *_: fake)
    return fake


@pytest.fixture
def terminal(monkeypatch):
    """Somebody answers."""
    monkeypatch.setattr(cluster, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))


def stopped(directory, name, nodes="abc"):
    """The directory of a node that has stopped."""
    storage = Storage.recover(Disk(directory=str(directory)), "town", 1, node_id=name, note=lambda *_: None)
    founding = pb.MetaChange(cluster_info=pb.ClusterInfo(cluster_id=b"town", raft_groups=1, nuid=b"N"))
    storage.logs[0].append([Entry(1, 1, Kind.META, founding.SerializeToString())])
    storage.logs[0].sync()
    for kept in storage.members.values():
        kept.hard_state.mark_readmitted()
    storage.directory.note_nodes(RecordedNodes([*nodes], 0, [], len(nodes), belongs=True))
    asyncio.run(storage.close(clean=True))
    return str(directory)


def rescue(*arguments, code=0, **more):
    done = CliRunner().invoke(app, ["cluster", "rescue", *map(str, arguments)], **more)
    assert done.exit_code == code, done.output
    return done.output


def epoch(directory):
    return read_manifest(directory).epoch


def test_it_asks_twice(tmp_path, terminal):
    home = stopped(tmp_path / "a", "a")
    assert "that is another cluster id" in rescue(home, code=2, input="village\n")
    assert "Nothing was done" in rescue(home, input="town\nn\n")
    assert epoch(home) == 0
    told = rescue(home, input="town\ny\n")
    assert "may be lost if only the lost nodes held them" in told
    assert "Rescued: start a again" in told
    assert epoch(home) >> 32 == 1


def test_a_dry_run_and_a_wrong_list_of_the_lost_change_nothing(tmp_path):
    home = stopped(tmp_path / "a", "a")
    assert "Nothing was done (--dry-run)" in rescue(home, "--dry-run")
    assert "lost are b,c, and not b" in rescue(home, "--yes-i-have-lost", "b", code=2)
    assert "no terminal to ask at" in rescue(home, code=2)
    assert epoch(home) == 0
    rescue(home, "--yes-i-have-lost", "c,b")
    assert epoch(home)


def test_a_node_that_answers_is_not_lost(tmp_path, servers):
    home = stopped(tmp_path / "a", "a")
    servers.admin.all_nodes = Nodes([NodeStatus(node="c")], [])
    assert "c of cluster" in rescue(home, "--yes-i-have-lost", "b,c", code=1)
    assert epoch(home) == 0


def test_where_nobody_answers_it_is_told_that_nobody_was_asked(tmp_path, monkeypatch):
    home = stopped(tmp_path / "a", "a")

    def unreachable(*_):
        raise CliError("no NATS")

    monkeypatch.setattr(session, "open_direct", unreachable)
    assert "it is not known whether the other nodes live" in rescue(home, "--dry-run")


def test_survivors_on_two_machines_come_to_the_same_plan(tmp_path):
    homes = {name: stopped(tmp_path / name, name, "abcde") for name in "ab"}
    for name, home in homes.items():
        rescue(home, "--save", tmp_path / f"{name}.json")
    lost = ("--yes-i-have-lost", "c,d,e")
    assert "run it for b too" in rescue(homes["a"], tmp_path / "b.json", *lost)
    rescue(homes["b"], tmp_path / "a.json", *lost)
    assert epoch(homes["a"]) == epoch(homes["b"]) != 0


def test_both_directories_may_be_on_one_machine(tmp_path):
    homes = [stopped(tmp_path / name, name, "abcde") for name in "ab"]
    assert "start a, b again" in rescue(*homes, "--yes-i-have-lost", "c,d,e")
    assert epoch(homes[0]) == epoch(homes[1]) != 0


def test_what_is_no_stopped_survivor_is_refused(tmp_path):
    assert "no data directory" in rescue(tmp_path, code=2)
    assert "neither a data directory nor a file" in rescue(tmp_path / "nothing.json", code=2)
    homes = [stopped(tmp_path / name, name) for name in "ab"]
    assert "every group has its majority in a, b" in rescue(*homes, code=1)
    assert "--save takes one data directory" in rescue(*homes, "--save", tmp_path / "x", code=2)
    lock = lock_directory(tmp_path / "a")
    try:
        assert "in use by another server" in rescue(homes[0], code=1)
    finally:
        cluster.os.close(lock)

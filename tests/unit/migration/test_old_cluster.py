"""Moving in from nodes of a cluster: directories that the original has left, whole, of some nodes alone, and damaged."""

import fcntl
import itertools
import os
import shutil

import pytest

from stan.errors import StartError
from stan.migration.file_stores import file_stores
from stan.migration.moving import move
from stan.migration.plan import MigrationPlan
from tests.kit import old_store
from tests.kit.old_cluster import NODES, encrypted, migrate, moved, unpack
from tests.kit.old_store import KEY
from tests.kit.opened_store import Opened

MAJORITIES = ["abc", "ab", "bc", "ca"]


@pytest.fixture
def logs(tmp_path):
    """A cluster that has never written a snapshot."""
    return unpack("logs", tmp_path)


@pytest.fixture
def snapshots(tmp_path):
    """A cluster with snapshots, of which node c was stopped early."""
    return unpack("snapshots", tmp_path)


def equal(report, target, expected):
    return moved(report, target, expected) == {name: expected[name] for name in ("ends", "hashes", "positions")}


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        *itertools.product(["logs", "snapshots"], MAJORITIES),
        ("logs", "c"),
        ("snapshots", "a"),
        ("aes", "a"),
        ("chacha", "b"),
    ],
)
def test_messages_positions_and_pending_are_those_that_the_original_showed(tmp_path, name, nodes):
    if name in ("aes", "chacha"):
        pytest.importorskip("cryptography")
    expected = unpack(name, tmp_path)
    report = migrate(tmp_path, nodes, tmp_path / "new", **encrypted(name))
    assert equal(report, tmp_path / "new", expected)
    assert (report.problem_count, report.hints) == (0, [])
    assert report.clients == ["loader", "billing", "worker-1"]
    assert report.cluster_id == "test-cluster"
    assert report.decrypted == (name in ("aes", "chacha"))


def test_durable_of_a_queue_group_owes_what_its_members_had_not_acknowledged(tmp_path, snapshots):
    migrate(tmp_path, "abc", tmp_path / "new")
    new = Opened(tmp_path / "new")
    assert set(new.cursors) == {b"ledger", b"crew:pool", b"bookmark"}, "what was unsubscribed is gone"
    assert [(run.first, run.last) for run in new.cursors[b"bookmark"].to_redeliver] == [(32, 34)]
    assert b"passing" not in new.messages, "the cluster has deleted it"


def test_report_tells_how_sure_it_is(tmp_path, snapshots):
    def notes(nodes):
        return " ".join(migrate(tmp_path, nodes).notes)

    assert "3 of 3 nodes that vote are given, so this is everything" in notes("abc")
    assert "the state is that of node a: entry 307 of term 2" in notes("ac")
    assert "only 1 of 3 nodes that vote are given: what the others have acknowledged without a is not here" in notes(
        "a"
    )
    assert "last 32 entries are on too few of the nodes given" in notes("bc")
    assert "too few" not in notes("ab")


def test_node_that_lagged_gives_what_it_has(tmp_path, snapshots):
    report = migrate(tmp_path, "c", tmp_path / "new")
    assert {channel.name: channel.last for channel in report.channels} == {
        "jobs": 40, "orders": 150, "passing": 1, "small": 80,
    }  # fmt: skip
    assert not Opened(tmp_path / "new").cursors, "it was stopped before they came"
    assert report.problem_count == 0


# --- damage -----------------------------------------------------------------------------------------------------------


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x55
    path.write_bytes(data)


def test_damaged_slice_costs_nothing_while_another_copy_has_its_messages(tmp_path, logs):
    for at in (10, 700, 1500):
        flip(tmp_path / "a" / "store" / "orders" / "msgs.1.dat", at)
    report = migrate(tmp_path, "a", tmp_path / "new")
    assert equal(report, tmp_path / "new", logs), "the log has all of them"
    assert report.problem_count == 0
    assert {hint.file for hint in report.hints} == {str(tmp_path / "a" / "store" / "orders" / "msgs.1.dat")}


def test_damage_behind_the_beginning_of_the_log_is_mended_by_other_stores_alone(tmp_path, snapshots):
    flip(tmp_path / "a" / "store" / "orders" / "msgs.1.dat", 700)
    report = migrate(tmp_path, "ab", tmp_path / "new")
    assert equal(report, tmp_path / "new", snapshots)
    assert (report.problem_count, len(report.hints)) == (0, 1)

    alone = migrate(tmp_path, "a", tmp_path / "alone")
    (orders,) = (channel for channel in alone.channels if channel.name == "orders")
    assert (alone.problem_count, orders.lost) == (1, 1)
    (problem,) = alone.problems
    assert problem.file.endswith("orders/msgs.1.dat")
    assert problem.offset > 0


def test_store_that_lost_a_channel_gets_it_from_the_others(tmp_path, snapshots):
    shutil.rmtree(tmp_path / "a" / "store" / "orders")
    report = migrate(tmp_path, "abc", tmp_path / "new")
    assert equal(report, tmp_path / "new", snapshots)

    alone = migrate(tmp_path, "a")
    (orders,) = (channel for channel in alone.channels if channel.name == "orders")
    assert (orders.first, orders.last, orders.lost) == (151, 151, 150), "the last one is in its log"
    assert [problem.text for problem in alone.problems] == ["messages 1 to 150 are missing"]


def test_damaged_snapshot_makes_another_node_the_best(tmp_path, snapshots):
    for node in "ab":
        (state,) = (tmp_path / node / "raft" / "test-cluster" / "snapshots").glob("*/state.bin")
        flip(state, 100)
        if node == "a":
            report = migrate(tmp_path, "abc", tmp_path / "new")
            assert equal(report, tmp_path / "new", snapshots)
            assert report.problem_count == 0
            assert any("another checksum" in hint.text for hint in report.hints)
    with pytest.raises(StartError, match="neither a valid snapshot nor the first entry"):
        migrate(tmp_path, "ab")


def test_torn_meta_page_leaves_the_state_before_the_last_write(tmp_path, logs):
    log = tmp_path / "a" / "raft" / "test-cluster" / "raft.log"
    seen = set()
    for page in (0, 1):
        whole = log.read_bytes()
        flip(log, page * 4096 + 16 + 48)  # number of its transaction
        seen.add(next(note for note in migrate(tmp_path, "a").notes if "the state is that" in note))
        log.write_bytes(whole)
    assert seen == {f"the state is that of node a: entry {entry} of term 2 of its Raft log" for entry in (306, 307)}


def test_log_without_a_valid_meta_page_is_refused_and_another_node_taken(tmp_path, logs):
    log = tmp_path / "a" / "raft" / "test-cluster" / "raft.log"
    log.write_bytes(bytes(8192) + log.read_bytes()[8192:])
    with pytest.raises(StartError, match="Raft log of node a cannot be used"):
        migrate(tmp_path, "a")
    report = migrate(tmp_path, "ab", tmp_path / "new")
    assert equal(report, tmp_path / "new", logs)
    assert [hint.text for hint in report.hints] == ["neither meta page is valid: not a bbolt file, or damaged"]


def test_log_that_is_cut_off_tells_which_entries_are_missing(tmp_path, logs):
    log = tmp_path / "a" / "raft" / "test-cluster" / "raft.log"
    cut(log, log.stat().st_size * 2 // 3)
    try:
        report = migrate(tmp_path, "a", tmp_path / "new")
    except StartError as error:
        assert "node a" in str(error)  # noqa: PT017 - which pages are gone is up to the original
        return
    assert report.problem_count
    assert all(problem.file == str(log) for problem in report.problems)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_encrypted_log_without_its_key_is_refused_before_anything_is_made(tmp_path):
    pytest.importorskip("cryptography")
    unpack("aes", tmp_path)
    for key, why in ((b"", "look encrypted"), (b"another", "can be decrypted with this key")):
        with pytest.raises(StartError, match=why):
            migrate(tmp_path, "a", tmp_path / "new", key=key)
    assert not (tmp_path / "new").exists()
    assert migrate(tmp_path, "a", key=KEY).problem_count == 0


def test_log_that_a_running_node_has_locked_is_refused(tmp_path, logs):
    handle = os.open(tmp_path / "b" / "raft" / "test-cluster" / "raft.log", os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(StartError, match="in use by another server"):
            migrate(tmp_path, "abc")
    finally:
        os.close(handle)


def plan(*sources, raft_logs=(), **options):
    whole = MigrationPlan(source=file_stores(sources, raft_logs), **options)
    return move(whole, lambda _total: None, lambda _size: None)


def test_raft_log_is_found_in_the_store_or_in_the_place_where_the_original_makes_it(tmp_path, logs, monkeypatch):
    home = tmp_path / "home"
    shutil.copytree(tmp_path / "a" / "store", home / "store")
    with pytest.raises(StartError, match=r"Raft log of node a is not found.*--without-durables"):
        plan(home / "store")
    for place in (
        *(home / "store" / "raft", home / "raft", home / "test-cluster" / "a"),
        tmp_path / "here" / "test-cluster" / "a",
    ):
        shutil.copytree(tmp_path / "a" / "raft", place)
        monkeypatch.chdir(tmp_path if place.is_relative_to(home) else tmp_path / "here")
        assert plan(home / "store").messages
        shutil.rmtree(place)


def test_directories_that_do_not_belong_together_are_refused(tmp_path, logs):
    stores = [tmp_path / node / "store" for node in NODES]
    with pytest.raises(StartError, match="not those of different nodes of one cluster"):
        plan(stores[0], stores[0], raft_logs=(tmp_path / "a" / "raft",) * 2)
    with pytest.raises(StartError, match="one --raft for each directory"):
        plan(*stores, raft_logs=(tmp_path / "a" / "raft",))
    with pytest.raises(StartError, match=r"several logs may be the Raft log of node a: .*--raft"):
        plan(stores[0], raft_logs=(tmp_path,))
    with pytest.raises(StartError, match="alone"):
        plan(stores[0], old_store.PLAIN)
    with pytest.raises(StartError, match="alone"):
        plan(*stores, without_durables=True)

"""The data directories of a shared store: what a server takes over, and that nothing of what others do later reaches it."""

from pathlib import Path

import pytest

from stan.edge.standby.store_generations import StoreGenerations, copy_file, link_file
from stan.edge.storage.manifest import lock_directory, open_manifest
from stan.errors import StartError
from stan.log.files.filelog import FileLog
from tests.kit.batches import batch, entry

STORE = b"0123456789abcdef"


def open_log(directory):
    log, _ = FileLog.open(directory / "groups" / "1", 1, STORE, segment_bytes_max=700)
    return log


def fill(log, count):
    """Append *count* entries; returns the index of the last one."""
    for index in range(log.last_index + 1, log.last_index + 1 + count):
        log.append([entry(index, batch(7, 3 * index - 2, 3, size=20))])
    return log.last_index


def make_store(directory):
    """What a server makes of its directory; the open log."""
    open_manifest(str(directory), "c", 1)
    (directory / "state.db").write_bytes(b"rows")
    (directory / "lost+found" / "old").mkdir(parents=True)
    (directory / "lost+found" / "old" / "file").write_bytes(b"lost")
    log = open_log(directory)
    fill(log, 40)
    log.sync()
    return log


@pytest.fixture
def generations(tmp_path):
    made = StoreGenerations(tmp_path / "root")
    made.make()
    yield made
    made.close()


def entries_of(directory):
    log = open_log(directory)
    found = log.entries(1, 10**6, 10**9)
    log.close()
    return found


def test_first_server_finds_an_empty_directory(generations):
    assert generations.current() is None
    assert list(generations.enter(1, alone=True).iterdir()) == []
    assert generations.current() == generations.root / "epoch-0000000001"


def test_directory_of_who_is_gone_is_renamed(generations):
    first = generations.enter(1, alone=True)
    make_store(first).close()
    second = generations.enter(2, alone=True)
    assert not first.exists()
    assert (second / "state.db").read_bytes() == b"rows"
    assert len(entries_of(second)) == 40
    assert generations.enter(2, alone=True) == second


def test_nothing_that_a_frozen_server_does_later_is_in_the_new_directory(generations):
    first = generations.enter(1, alone=True)
    old = make_store(first)
    before = old.entries(1, 40, 10**9)
    second = generations.enter(2, alone=False)
    new = open_log(second)
    assert new.entries(1, 10**6, 10**9) == before
    fill(old, 30)  # through several new segments, whose names the other one uses too
    old.sync()
    fill(new, 10)
    new.close()
    old.commit(40)
    old.trim(7, 100)
    old.release(40)
    old.close()
    found = entries_of(second)
    assert found[:40] == before
    assert [one.index for one in found] == list(range(1, 51))
    generations.tidy(2)
    assert not first.exists()
    assert len(entries_of(second)) == 50


def test_rows_of_a_server_that_may_still_write_are_left_out(generations):
    first = generations.enter(1, alone=True)
    make_store(first).close()
    second = generations.enter(2, alone=False)
    assert not (second / "state.db").exists()
    assert (second / "lost+found" / "old" / "file").read_bytes() == b"lost"
    assert open_manifest(str(second), "c", 1).manifest.cluster_id == "c"


def test_store_of_a_lone_server_is_taken_over(generations):
    make_store(generations.root).close()
    generations.make()
    with pytest.raises(StartError, match="in use by another server"):
        lock_directory(generations.root)
    entered = generations.enter(1, alone=True)
    assert (entered / "state.db").read_bytes() == b"rows"
    generations.tidy(1)
    assert sorted(path.name for path in generations.root.iterdir()) == ["epoch-0000000001", "lock"]
    assert len(entries_of(entered)) == 40


def test_store_that_a_lone_server_uses_is_refused(tmp_path):
    make_store(tmp_path).close()
    lock = lock_directory(tmp_path)
    with pytest.raises(StartError, match="in use by another server"):
        StoreGenerations(tmp_path).make()
    assert lock


def test_lone_server_refuses_a_shared_store(generations):
    (generations.root / "ft").mkdir()
    with pytest.raises(StartError, match="start it with -ft_group"):
        open_manifest(str(generations.root), "c", 1)


def test_store_of_the_original_is_refused(tmp_path):
    (tmp_path / "server.dat").touch()
    with pytest.raises(StartError, match="stan migrate"):
        StoreGenerations(tmp_path).make()


def test_takeover_that_was_not_finished_begins_again(generations):
    first = generations.enter(1, alone=True)
    make_store(first).close()
    half = generations.root / "epoch-0000000002.building"
    half.mkdir()
    (half / "stan.json").write_text("half")
    assert generations.current() == first
    assert len(entries_of(generations.enter(2, alone=False))) == 40
    third = generations.enter(3, alone=False)
    generations.tidy(3)
    assert [path.name for path in generations.root.glob("epoch*")] == [third.name]


def test_file_is_copied_where_it_cannot_be_linked(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"x" * 3_000_000)

    def refuse(*_paths):
        raise PermissionError(1, "no links here")

    monkeypatch.setattr("os.link", refuse)
    link_file(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()


def test_file_is_copied_where_the_system_does_not_help(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"x" * 3_000_000)
    monkeypatch.delattr("os.copy_file_range")
    copy_file(Path(tmp_path / "a"), tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()

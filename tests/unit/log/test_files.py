"""Directories are there after a loss of power, whoever was killed while he made them."""

import errno
from pathlib import Path

import pytest

from stan.log.files import disk
from stan.log.files.disk import OsFiles
from stan.log.files.filelog import FileLog
from tests.kit.batches import batch, entry
from tests.kit.files import CrashingFiles

STORE = b"0123456789abcdef"
DIRECTORY = Path("/store/groups/1")


@pytest.mark.parametrize("syncs", range(3))
def test_log_outlives_a_start_that_was_killed_between_a_directory_and_its_name(syncs):
    files = CrashingFiles()
    files.journal = False
    files.fail("sync_directory", syncs, errno.EIO)  # as far as it came
    with pytest.raises(OSError):  # noqa: PT011 - of any kind
        files.makedirs(str(DIRECTORY))
    log, _ = FileLog.open(DIRECTORY, 1, STORE, files=files)
    log.append([entry(1, batch(7, 1, 1))])
    assert log.sync() == 1
    for seed in range(10):
        again, _ = FileLog.open(DIRECTORY, 1, STORE, files=files.crash(seed))
        assert again.last_index == 1


class Watched(OsFiles):
    def __init__(self):
        super().__init__()
        self.synced = []

    def sync_directory(self, path):
        super().sync_directory(path)
        self.synced.append(path)


def test_names_of_directories_are_synced_once_in_a_life_and_anew_when_they_are_made_again(tmp_path):
    inner = f"{tmp_path}/a/b"
    files = Watched()
    files.makedirs(inner)
    assert files.synced[-2:] == [str(tmp_path), f"{tmp_path}/a"]
    files.synced.clear()
    files.makedirs(inner)
    assert files.synced == []
    files.rmdir(inner)
    files.makedirs(inner)
    assert files.synced == [f"{tmp_path}/a"]

    later = Watched()
    later.makedirs(inner)
    assert later.synced[-2:] == [str(tmp_path), f"{tmp_path}/a"]


def test_directory_in_one_that_is_not_ours_to_sync_is_fine(tmp_path, monkeypatch):
    sync = OsFiles.sync_directory

    def refuses(self, path):
        if path == str(tmp_path.parent):
            raise PermissionError(errno.EACCES, "not ours")
        sync(self, path)

    monkeypatch.setattr(OsFiles, "sync_directory", refuses)
    OsFiles().makedirs(f"{tmp_path}/a")
    assert (tmp_path / "a").is_dir()


def test_bytes_in_memory_are_read_or_there_is_none_but_never_a_part(tmp_path, monkeypatch):
    files = OsFiles()
    descriptor = files.create(f"{tmp_path}/a")
    files.pwritev(descriptor, [b"0123456789"], 0)
    assert files.pread_cached(descriptor, 4, 3) in (None, b"3456")  # not every system can be asked
    assert files.pread_cached(descriptor, 4, 8) is None
    files.close(descriptor)
    assert files.pread_cached(descriptor, 4, 3) is None
    monkeypatch.setattr(disk, "_WITHOUT_WAITING", None)
    descriptor = files.open(f"{tmp_path}/a")
    assert files.pread_cached(descriptor, 4, 3) is None
    files.close(descriptor)


class Beaten(OsFiles):
    """Another process makes a name between the look at it and its making."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def mkdir(self, path):
        self.make(path)
        super().mkdir(path)


def test_directory_that_another_process_makes_at_the_same_time_is_fine(tmp_path):
    Beaten(lambda path: Path(path).mkdir()).makedirs(f"{tmp_path}/a/b")
    assert (tmp_path / "a" / "b").is_dir()


def test_file_that_another_process_makes_at_the_same_time_is_no_directory(tmp_path):
    with pytest.raises(FileExistsError):
        Beaten(lambda path: Path(path).touch()).makedirs(f"{tmp_path}/a")

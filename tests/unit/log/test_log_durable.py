"""The newest entries of a log: what a sync covered is missed when it is gone or wrong, what no sync covered may be torn."""

from pathlib import Path

import pytest

from stan.errors import StartError
from stan.log.files.durable import SIZE
from stan.log.files.filelog import FileLog
from stan.log.files.segment import ENTRY_MAGIC
from tests.kit.batches import batch, entry
from tests.kit.files import CrashingFiles, PowerCut

STORE = b"0123456789abcdef"
DIRECTORY = "/store/groups/1"
MARK = f"{DIRECTORY}/durable"
ALL = 10**9


class RefusedError(StartError):
    """By whoever was told of a loss."""


def refuse(text):
    raise RefusedError(text)


def open_log(files, *, power_lost=False, on_loss=refuse, segment_bytes_max=10**6):
    return FileLog.open(
        Path(DIRECTORY),
        1,
        STORE,
        lost_found=Path("/store/lost+found"),
        files=files,
        segment_bytes_max=segment_bytes_max,
        tail_cache_bytes_max=0,
        on_loss=on_loss,
        power_lost=power_lost,
    )


def one(index, term=1):
    return entry(index, batch(7, index, 1, size=20), term=term)


def killed(files):
    """What the next life finds after kill -9: all that was written."""
    files.open_files.clear()
    return files


@pytest.fixture
def files():
    """A log of five entries that were synced, in one segment; its process is gone."""
    files = CrashingFiles()
    log, _ = open_log(files)
    for index in range(1, 6):
        log.append([one(index)])
    log.sync()
    return killed(files)


def segment(files):
    return max(path for path in files.paths() if path.startswith(DIRECTORY) and path.endswith(".log"))


def ends(files):
    """Position behind each entry."""
    return ends_of(files.content(segment(files)))


def written(files):
    """The newest segment without the zeros behind its entries."""
    return files.content(segment(files))[: ends(files)[-1]]


def contents(files):
    return {path: files.content(path) for path in files.paths() if not path.endswith(".idx")}


def check_loss(files, last, *, power_lost, match):
    """Entries behind *last* are lost: told with nothing changed; who goes on has what is right, and lost+found the rest."""
    before = contents(files)
    with pytest.raises(RefusedError, match=match) as refused:
        open_log(files, power_lost=power_lost)
    assert contents(files) == before
    assert files.open_files == {}
    assert DIRECTORY in str(refused.value)
    told = []
    log, report = open_log(files, power_lost=power_lost, on_loss=told.append)
    assert told == [str(refused.value)]
    assert log.entries(1, ALL, ALL) == [one(index) for index in range(1, last + 1)]
    assert log.last_index == last
    assert report.quarantined == []
    log.append([one(last + 1, 2)])
    log.close()
    log, report = open_log(files, power_lost=power_lost)
    assert (log.last_index, report.texts) == (last + 1, [])
    return [files.content(path) for path in files.paths() if path.startswith("/store/lost+found/")]


@pytest.mark.parametrize("power_lost", [False, True])
def test_log_that_was_cut_anywhere_has_lost_what_was_durable(files, power_lost):
    whole, after = written(files), [48, *ends(files)]
    kept = contents(files)
    for size in range(48, len(whole)):
        files = CrashingFiles()
        for path, data in kept.items():
            files.put(path, data[:size] if path.endswith(".log") else data)
        last = sum(end <= size for end in after) - 1
        aside = check_loss(files, last, power_lost=power_lost, match=f"entries {last + 1} to 5 are lost")
        assert aside == ([] if size in after else [whole[:size]])


@pytest.mark.parametrize("power_lost", [False, True])
def test_log_with_a_bit_flipped_in_its_last_entry_has_lost_it(files, power_lost):
    whole, start = written(files), ends(files)[3]
    kept = contents(files)
    for bit in range(start * 8, len(whole) * 8, 3):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        files = CrashingFiles()
        for path, data in kept.items():
            files.put(path, bytes(flipped) if path.endswith(".log") else data)
        match = rf"log: damaged at position {start} \(.*\); entries 5 to 5 are lost"
        assert check_loss(files, 4, power_lost=power_lost, match=match) == [bytes(flipped)]


@pytest.mark.parametrize("power_lost", [False, True])
@pytest.mark.parametrize("zeros", [1, 30, 100, 200])
def test_log_whose_end_became_zeros_has_lost_it(files, power_lost, zeros):
    data = written(files)
    files.put(segment(files), data[:-zeros] + bytes(zeros))
    last = sum(end <= len(data) - zeros for end in [48, *ends_of(data)]) - 1
    check_loss(files, last, power_lost=power_lost, match=f"entries {last + 1} to 5 are lost")


def ends_of(data):
    found, at = [], 48
    while data[at : at + 2] == ENTRY_MAGIC:
        at += 24 + int.from_bytes(data[at + 4 : at + 8], "little")
        found.append(at)
    return found


@pytest.mark.parametrize("left", [0, 47, 48])
def test_last_segment_that_was_emptied_or_removed_is_missed(left):
    files = CrashingFiles()
    log, _ = open_log(files, segment_bytes_max=60)
    for index in range(1, 4):
        log.append([one(index)])
    log.sync()
    killed(files)
    path = segment(files)
    data = files.content(path)[:left]
    files.put(path, data if left < 48 else b"x" + data[1:])
    check_loss(files, 2, power_lost=False, match="entries 3 to 3 are lost")


def test_all_segments_removed_is_a_loss(files):
    files.unlink(segment(files))
    with pytest.raises(RefusedError, match="ends with entry 0, and was durable up to 5; entries 1 to 5 are lost"):
        open_log(files)


@pytest.mark.parametrize("zeros", [0, 5000])
def test_end_that_no_sync_covered_may_be_torn_at_every_byte_by_kill(files, zeros):
    log, _ = open_log(files)
    before = len(written(files))
    log.append([one(6), one(7)])
    whole, after = written(files), ends(files)
    for size in range(before, len(whole) + 1):
        disk = CrashingFiles()
        for path, data in contents(files).items():
            disk.put(path, data[:size] + bytes(zeros) if path.endswith(".log") else data)
        log, report = open_log(disk)
        last = sum(end <= size for end in after)
        assert log.last_index == last
        assert bool(report.texts) == (size > after[last - 1])


def test_end_that_no_sync_covered_may_be_anything_after_a_loss_of_power_but_not_after_a_kill(files):
    log, _ = open_log(files)
    log.append([one(6), one(7)])
    whole = written(files)
    kept = contents(files)
    for zeros in (0, 5000):
        wrong = whole[:-1] + bytes([whole[-1] ^ 1]) + bytes(zeros)
        disk = CrashingFiles()
        for path, data in kept.items():
            disk.put(path, wrong if path.endswith(".log") else data)
        with pytest.raises(RefusedError, match="damaged at position"):
            open_log(disk, power_lost=False)
        log, report = open_log(disk, power_lost=True)
        assert log.last_index in (5, 6)
        assert "the end of an unfinished write" in report.texts[0]


def test_entries_that_only_a_roll_has_synced_are_missed():
    files = CrashingFiles()
    log, _ = open_log(files, segment_bytes_max=60)
    log.append([one(1)])
    log.append([one(2)])
    killed(files)
    path = min(path for path in files.paths() if path.endswith(".log"))
    files.put(path, files.content(path)[:-1])
    with pytest.raises(RefusedError, match="entries 1 to 1 are lost"):
        open_log(files)


def test_truncated_log_is_not_taken_for_a_damaged_one_wherever_power_is_lost():
    calls = 0
    while True:
        for seed in range(6):
            files = CrashingFiles()
            log, _ = open_log(files, segment_bytes_max=250)
            for index in range(1, 9):
                log.append([one(index)])
            log.sync()
            files.cut_power_after(calls)
            try:
                log.truncate_after(3)
                log.append([one(4, 2)])
                log.sync()
            except PowerCut:
                open_log(files.crash(seed), power_lost=True)
            else:
                assert calls > 8
                files.cut_at = None
                log, _ = open_log(killed(files))
                assert (log.last_index, log.last_term) == (4, 2)
                return
        calls += 1


def test_mark_that_is_damaged_or_missing_proves_nothing_and_is_made_anew(files):
    data = files.content(segment(files))
    cut = data[: ends(files)[3]]
    right = files.content(MARK)
    for wrong in (None, b"", right[:-1], b"x" + right[1:], bytes(SIZE)):
        disk = CrashingFiles()
        disk.put(segment(files), cut)
        if wrong is not None:
            disk.put(MARK, wrong)
        log, report = open_log(disk)
        assert (log.last_index, report.texts) == (4, [])
        killed(disk)
        disk.put(segment(disk), data[: ends(files)[2]])
        with pytest.raises(RefusedError, match="entries 4 to 4"):
            open_log(disk)


def test_mark_that_cannot_be_written_costs_no_sync(files):
    log, _ = open_log(files)
    log.append([one(6)])
    files.fail("pwritev", 0, 28)
    assert log.sync() == 6
    log.append([one(7)])
    assert log.sync() == 7
    killed(files)
    files.put(segment(files), files.content(segment(files))[: ends(files)[5]])
    with pytest.raises(RefusedError, match="entries 7 to 7"):
        open_log(files)


def test_mark_that_found_no_room_is_made_by_the_next_sync_that_finds_some(files):
    del files.names[MARK]
    files.full = True
    log, _ = open_log(files)
    assert MARK not in files.names
    files.full = False
    log.append([one(6)])
    log.sync()
    files = killed(files)
    files.put(segment(files), files.content(segment(files))[: ends(files)[4]])
    with pytest.raises(RefusedError, match="entries 6 to 6 are lost"):
        open_log(files)


def test_zeros_behind_the_newest_entry_are_the_end_of_the_log(files):
    data = written(files)
    for zeros in (1, 23, 24, 100, 300_000):
        files.put(segment(files), data + bytes(zeros))
        log, report = open_log(files)
        assert (log.last_index, report.texts, report.torn_bytes) == (5, [], 0)
        files.open_files.clear()


def test_bit_among_the_zeros_behind_the_newest_entry_is_damage(files):
    data = written(files)
    files.put(segment(files), data + bytes(500) + b"\1" + bytes(500))
    with pytest.raises(RefusedError, match="damaged at position"):
        open_log(files)


def test_zeros_at_the_end_of_a_segment_that_has_a_next_one_are_damage():
    files = CrashingFiles()
    log, _ = open_log(files, segment_bytes_max=200)
    for index in range(1, 8):
        log.append([one(index)])
    log.sync()
    killed(files)
    path = min(path for path in files.paths() if path.endswith(".log"))
    data, after = files.content(path), ends_of(files.content(path))
    assert after[-1] == len(data)
    files.put(path, data[: after[-2]] + bytes(5000))
    with pytest.raises(RefusedError, match=f"entries {len(after)} to {len(after)} are lost"):
        open_log(files)


def test_small_entries_fill_in_zeros_until_the_segment_is_full_or_the_log_closed():
    files = CrashingFiles()
    log, _ = open_log(files, segment_bytes_max=1000)
    log.append([one(1)])
    size = len(files.content(segment(files)))
    assert size > ends(files)[-1] + 500
    log.append([one(2)])
    assert len(files.content(segment(files))) == size
    for index in range(3, 30):
        log.append([one(index)])
    log.sync()
    *sealed, last = [path for path in files.paths() if path.endswith(".log")]
    assert sealed
    assert all(len(files.content(path)) == ends_of(files.content(path))[-1] for path in sealed)
    log.close()
    assert len(files.content(last)) == ends_of(files.content(last))[-1]


def test_file_grows_with_each_write_where_nothing_can_be_reserved():
    files = CrashingFiles()
    log, _ = open_log(files)
    files.fail("reserve", 0, 95)
    for index in range(1, 4):
        log.append([one(index)])
        assert len(files.content(segment(files))) == ends(files)[-1]
    assert log.sync() == 3

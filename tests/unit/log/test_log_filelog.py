"""What only the log on disk has: full and broken disks, rolling, sidecars, bounded files, other people's files, damage."""

import errno
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from stan import limits
from stan.errors import Damage, DiskFull, Frozen, InDoubt, Shortage, StartError
from stan.log.files.filelog import FileLog
from stan.log.files.segment import Segment, SegmentHeader
from stan.log.files.segment_index_file import IndexFileWriter, index_file_path, load_index_file
from stan.log.types import StaleRef
from stan.protocol.entries import encode_batch
from tests.kit.batches import batch, change, entry, records
from tests.kit.files import CrashingFiles, PowerCut

STORE = b"0123456789abcdef"
DIRECTORY = "/store/groups/1"
ALL = 10**9


def open_log(files, *, segment_bytes_max=400, cache=0, group=1, store_id=STORE, on_damage=None):
    return FileLog.open(
        Path(DIRECTORY),
        group,
        store_id,
        files=files,
        segment_bytes_max=segment_bytes_max,
        tail_cache_bytes_max=cache,
        on_damage=on_damage,
    )


def one(index, uid=7, size=20):
    """An entry with one message, whose sequence is its index."""
    return entry(index, batch(uid, index, 1, size=size))


@pytest.fixture
def files():
    return CrashingFiles()


@pytest.fixture
def log(files):
    return open_log(files)[0]


def refs(log, uid=7):
    return log.channel(uid).refs(0, ALL, ALL, ALL)


# --- a disk that is full ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("call", ["create", "pwritev"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_room_is_found_out_without_a_trace(files, log, call, error):
    log.append([one(1)])
    before = files.paths()
    assert log.has_room(1000)
    files.fail(call, 0, error)
    assert not log.has_room(1000)
    assert log.has_room(1000)
    assert files.paths() == before
    assert log.sync() == 1


def test_file_that_a_crash_left_while_room_was_looked_for_is_removed_at_the_start(files, log):
    log.append([one(1)])
    files.create(f"{Path(files.paths()[0]).parent}/room")
    log.close()
    again, report = open_log(files)
    assert again.last_index == 1
    assert report.texts == []
    assert not [path for path in files.paths() if path.endswith("/room")]


SHORTAGES = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS]


@pytest.mark.parametrize("error", SHORTAGES)
def test_roll_without_descriptors_or_memory_is_refused_and_the_log_goes_on(files, log, error):
    while log.size < 400:
        log.append([one(log.last_index + 1)])
    last = log.last_index
    for call in ("create", "pwritev"):
        files.fail(call, 0, error)
        with pytest.raises(Shortage, match=r"\.log: ") as refused:
            log.append([one(last + 1)])
        assert not isinstance(refused.value, DiskFull)
    log.append([one(last + 1)])
    assert log.sync() == last + 1
    assert log.entries(1, ALL, ALL) == [one(index) for index in range(1, last + 2)]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_sync_that_cannot_open_the_directory_of_a_new_segment_promises_nothing_and_may_be_repeated(files, log, error):
    while log.sealed_index == 0:
        log.append([one(log.last_index + 1)])
    durable = log.durable_index
    assert durable < log.last_index
    files.fail("sync_directory", 0, error)
    with pytest.raises(Shortage):
        log.sync()
    assert log.durable_index == durable
    log.append([one(log.last_index + 1)])
    assert log.sync() == log.last_index


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_sync_of_a_directory_that_fails_freezes(files, log, error):
    while log.sealed_index == 0:
        log.append([one(log.last_index + 1)])
    files.fail("sync_directory", 0, error)
    with pytest.raises(InDoubt):
        log.sync()
    with pytest.raises(Frozen):
        log.append([one(log.last_index + 1)])


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_append_on_a_full_disk_is_taken_back_and_the_log_goes_on(files, log, error):
    log.append([one(1)])
    path = files.paths()[0]
    size = len(files.content(path).rstrip(b"\0"))
    files.fail("pwritev", 0, error)
    with pytest.raises(DiskFull, match=path):
        log.append([one(2), one(3)])
    assert log.last_index == 1
    assert len(files.content(path)) == size
    log.append([one(2, size=50)])
    assert log.sync() == 2
    log.close()
    again, report = open_log(files)
    assert again.entries(1, 9, ALL) == [one(1), one(2, size=50)]
    assert report.texts == []


@pytest.mark.parametrize("seed", range(20))
def test_what_was_refused_on_a_full_disk_does_not_come_back_with_the_power(files, log, seed):
    log.append([one(1)])
    files.fail("pwritev", 0, errno.ENOSPC)
    with pytest.raises(DiskFull):
        log.append([one(index) for index in range(2, 6)])  # the first of them whole
    again, _ = open_log(files.crash(seed))
    assert again.last_index <= 1


def test_roll_on_a_full_disk_is_refused_and_the_log_goes_on(files, log):
    while log.size < 400:
        log.append([one(log.last_index + 1)])
    last = log.last_index
    for call in ("create", "pwritev"):
        files.fail(call, 0, errno.ENOSPC)
        with pytest.raises(DiskFull):
            log.append([one(last + 1)])
        assert len([path for path in files.paths() if path.endswith(".log")]) == 1
    log.append([one(last + 1)])
    assert log.sealed_index == last
    assert log.sync() == last + 1
    assert log.entries(1, ALL, ALL) == [one(index) for index in range(1, last + 2)]


def test_append_on_a_full_disk_that_cannot_take_back_freezes(files, log):
    files.fail("pwritev", 0, errno.ENOSPC)
    files.fail("ftruncate", 0, errno.EIO)
    with pytest.raises(Frozen):
        log.append([one(1)])
    with pytest.raises(Frozen):
        log.append([one(1)])


def test_sidecar_on_a_full_disk_costs_no_entry(files, log, monkeypatch):
    monkeypatch.setattr("stan.log.files.segment_index_file.INDEX_BATCHES_FLUSH", 2)
    files.fail("create", 0, errno.ENOSPC)
    for index in range(1, 30):
        log.append([one(index)])
    files.fail("pwritev", 1, errno.ENOSPC)
    for index in range(30, 60):
        try:
            log.append([one(index)])
        except DiskFull:
            log.append([one(index)])
    log.close()
    again, report = open_log(files)
    assert report.texts == []
    assert again.entries(1, 99, ALL) == [one(index) for index in range(1, 60)]


# --- a disk that is broken -------------------------------------------------------------------------------------------
def test_append_that_fails_otherwise_freezes_for_ever(files, log):
    log.append([one(1)])
    log.sync()
    files.fail("pwritev", 0, errno.EIO)
    with pytest.raises(InDoubt, match=r"00000000000000000001\.log"):
        log.append([one(2)])
    for act in (lambda: log.append([one(2)]), log.sync, lambda: log.truncate_after(0)):
        with pytest.raises(Frozen) as refused:
            act()
        assert not isinstance(refused.value, InDoubt), "of what comes later it is known that it is not there"
    assert (log.last_index, log.durable_index) == (1, 1)
    log.commit(1)
    assert log.read(refs(log)[0]) == records(7, 1, 1)
    log.close()
    assert open_log(files)[0].last_index == 1


def test_sync_that_fails_freezes_for_ever_and_raises_nothing(files, log):
    log.append([one(1)])
    log.sync()
    log.append([one(2)])
    files.fail("fdatasync", 0, errno.EIO)
    with pytest.raises(Frozen):
        log.sync()
    with pytest.raises(Frozen):
        log.sync()
    assert log.durable_index == 1
    with pytest.raises(Frozen):
        log.append([one(3)])


@pytest.mark.parametrize("synced", [0, 1, 2])
def test_what_a_failed_sync_has_left_unwritten_is_written_again_by_the_next_start(files, log, synced):
    """The system takes it for clean from then on: it is read, and later syncs leave it out."""
    for index in range(1, synced + 1):
        log.append([one(index)])
        log.sync()
    for index in range(synced + 1, 5):
        log.append([one(index)])
    files.fail("fdatasync", 0, errno.EIO)
    with pytest.raises(Frozen):
        log.sync()
    log.close()
    again, _ = open_log(files)
    assert (again.last_index, again.durable_index) == (4, 4)
    for seed in range(20):
        after, report = open_log(files.crash(seed))
        assert after.last_index == 4
        assert report.texts == []


def test_a_start_writes_nothing_again_that_was_durable(files, log):
    log.append([one(1)])
    log.sync()
    log.close()
    before = files.content(next(path for path in files.paths() if path.endswith(".log")))
    written = []
    write = files.pwritev
    files.pwritev = lambda descriptor, buffers, at: (written.append(b"".join(buffers)), write(descriptor, buffers, at))
    open_log(files)
    assert not [data for data in written if data and data in before]


def test_sync_of_a_new_file_covers_its_name(files, log):
    while not log.sealed_index:
        log.append([one(log.last_index + 1)])
    durable = log.durable_index
    assert durable == log.sealed_index
    files.fail("sync_directory", 0, errno.EIO)
    with pytest.raises(Frozen):
        log.sync()
    assert log.durable_index == durable


def test_roll_syncs_the_segment_that_it_seals(files, log):
    while not log.sealed_index:
        log.append([one(log.last_index + 1)])
    for seed in range(20):
        assert open_log(files.crash(seed))[0].last_index >= log.sealed_index


def test_roll_of_a_nearly_full_segment_that_is_durable_syncs_nothing(files):
    log, _ = open_log(files, segment_bytes_max=4000)
    while log.size < 3600:
        log.append([one(log.last_index + 1)])
    assert not log.sealed_index
    log.sync()
    last, syncs = log.last_index, files.syncs
    log.append([one(last + 1)])
    assert (log.sealed_index, files.syncs) == (last, syncs)


def test_roll_whose_sync_fails_freezes(files, log):
    while log.size < 400:
        log.append([one(log.last_index + 1)])
    files.fail("fdatasync", 0, errno.EIO)
    with pytest.raises(Frozen):
        log.append([one(log.last_index + 1)])


def test_open_on_a_broken_disk_is_a_start_error(files):
    files.fail("sync_directory", 0, errno.EIO)
    with pytest.raises(StartError, match=DIRECTORY):
        open_log(files)


# --- sequences that nothing was stored under ----------------------------------------------------------------------------


def get_rid_of_what_is_not_kept(log):
    log.sync()
    log.commit(log.last_index)
    log.release(log.last_index)
    while log.clean() is not None:
        log.release(log.last_index)


@pytest.mark.parametrize("messages", [0, 3])
@pytest.mark.parametrize("beside", [0, 1])
def test_that_the_newest_sequences_were_used_is_known_as_long_as_nothing_else_tells_it(files, log, messages, beside):
    """A restore ends with sequences that the backup had no messages for; they were given out a second time after a restart."""
    for index in range(1, messages + 1):
        log.append([one(index)])
    unused = b"".join(encode_batch(7, messages + 1, 5, 0, 0, b""))
    log.append([entry(messages + 1, unused, *[batch(9, 1, 1)] * beside)])
    last = messages + 5
    dead = iter(range(1, 1000))
    while log.sealed_index <= messages + 1:
        log.append([entry(log.last_index + 1, batch(8, next(dead), 1, size=100))])
    get_rid_of_what_is_not_kept(log)
    log.trim(8, 900)
    get_rid_of_what_is_not_kept(log)
    log.close()
    again, _ = open_log(files)
    again.commit(again.last_index)
    assert again.channel(7).last_sequence == last
    assert len(refs(again)) == messages

    again.append([entry(again.last_index + 1, batch(7, last + 1, 1))])
    again.trim(7, last + 1)
    again.trim(8, 900)
    again.trim(9, 2)
    rolled = again.sealed_index
    while again.sealed_index == rolled:
        again.append([entry(again.last_index + 1, batch(10, again.last_index, 1))])
    get_rid_of_what_is_not_kept(again)
    assert again.first_index > messages + 1, "now its message tells it"
    assert refs(again)


# --- whose files they are ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("other", "text"),
    [({"group": 2}, "belongs to group 1, not 2"), ({"store_id": b"x" * 16}, "belongs to another store")],
)
def test_open_of_someone_elses_files_is_a_start_error(files, log, other, text):
    log.append([one(1)])
    log.close()
    before = {path: files.content(path) for path in files.paths()}
    with pytest.raises(StartError, match=text):
        open_log(files, **other)
    assert {path: files.content(path) for path in files.paths()} == before


def test_open_of_a_renamed_file_is_a_start_error(files, log):
    log.append([one(1)])
    log.close()
    path = files.paths()[0]
    files.put(path.replace("01.log", "09.log"), files.content(path))
    with pytest.raises(StartError, match="renamed"):
        open_log(files)


def test_open_leaves_unknown_files_alone(files):
    strange = [
        "state-00000000000000000007.snap",
        "1.log",
        "00000000000000000001.log.bak",
        "00000000000000000005.idx.old",
    ]
    for name in strange:
        files.put(f"{DIRECTORY}/{name}", b"mine")
    log, report = open_log(files)
    log.append([one(1)])
    log.close()
    assert report.texts == []
    assert [files.content(f"{DIRECTORY}/{name}") for name in strange] == [b"mine"] * 4


def test_open_reports_a_torn_tail_with_file_and_position(files, log):
    log.append([one(1)])
    log.close()
    path = files.paths()[0]
    whole = files.content(path)
    files.put(path, whole + b"\xe7\x5a" + bytes(100))
    again, report = open_log(files)
    assert report.torn_bytes == 102
    assert f"{path}: cut 102 bytes at position {len(whole)}" in report.texts[0]
    assert (report.entries, report.segments, report.bytes, report.quarantined) == (1, 1, len(whole), [])
    assert files.content(path) == whole
    assert again.entries(1, 9, ALL) == [one(1)]


def test_open_after_a_hole_at_the_end_never_reuses_an_index(files):
    log, _ = open_log(files, segment_bytes_max=10_000)
    for index in range(1, 7):
        log.append([one(index)])
    log.close()
    path = files.paths()[0]
    flipped = bytearray(files.content(path))
    size = (len(flipped) - 48) // 6
    flipped[48 + 3 * size + 30] ^= 1
    files.put(path, bytes(flipped))
    log, report = open_log(files)
    assert report.quarantined == [(4, 6)]
    assert "entries 4 to 6 are lost" in report.texts[0]
    assert (log.first_index, log.last_index, log.last_term) == (7, 6, 1)
    assert log.entries(1, 9, ALL) == [one(1), one(2), one(3)]
    log.append([one(7)])
    log.commit(7)
    assert [ref.base_sequence for ref in refs(log)] == [1, 2, 3, 7]
    log.close()
    log, report = open_log(files)
    assert report.quarantined == []
    assert log.entries(1, 9, ALL) == [one(1), one(2), one(3), one(7)]
    log.truncate_after(3)
    assert (log.first_index, log.last_index) == (1, 3)
    log.append([one(4)])
    assert log.entries(1, 9, ALL) == [one(1), one(2), one(3), one(4)]


def test_open_behind_a_hostile_payload_gives_up_looking_and_puts_the_segment_aside(files, monkeypatch):
    monkeypatch.setattr("stan.log.files.segment.SURVIVOR_BYTES_MAX", 100_000)
    log, _ = open_log(files)
    fake = b"\xe7\x5a\x01\x01" + (9000).to_bytes(4, "little") + bytes(8) + (3).to_bytes(8, "little")
    log.append([one(1), change(2, fake * 1000)])
    log.close()
    path = files.paths()[0]
    torn = files.content(path)[:-1]
    files.put(path, torn)
    log, report = open_log(files)
    assert report.quarantined == [(2, 2)]
    assert [files.content(name) for name in files.paths() if "lost+found" in name] == [torn]
    assert (log.last_index, log.last_term) == (2, 1)
    assert log.entries(1, 9, ALL) == [one(1)]


# --- reading -----------------------------------------------------------------------------------------------------------
def test_read_of_damaged_records_names_file_and_position(files, log):
    log.append([one(1), one(2)])
    log.commit(2)
    ref = refs(log)[1]
    path = files.paths()[0]
    files.names[path].live[ref.position + 5] ^= 1
    with pytest.raises(Damage, match=f"{path}: position {ref.position}"):
        log.read(ref)
    with pytest.raises(Damage, match=f"{path}: position"):
        log.entries(1, 2, ALL)
    assert log.read(refs(log)[0]) == records(7, 1, 1)


def test_read_that_fails_is_damage(files, log):
    log.append([one(1)])
    log.commit(1)
    files.fail("pread", 0, errno.EIO)
    with pytest.raises(Damage, match="position"):
        log.read(refs(log)[0])


def test_recent_holds_the_newest_batches_only(files):
    log, _ = open_log(files, cache=300)
    for index in range(1, 30):
        log.append([one(index)])
    log.commit(29)
    there = [ref.base_sequence for ref in refs(log) if log.recent(ref) is not None]
    assert there == [26, 27, 28, 29]  # 68 bytes each
    assert [bytes(log.recent(ref)) for ref in refs(log)[-4:]] == [records(7, index, 1) for index in there]
    files.fail("pread", 0, errno.EIO)
    assert log.read(refs(log)[-1]) == records(7, 29, 1)


def test_batches_that_lie_together_are_read_with_one_call(files, monkeypatch):
    log, _ = open_log(files, segment_bytes_max=2000, cache=300)
    for index in range(1, 30):
        log.append([one(index)])
    log.commit(29)
    expected = [records(7, index, 1) for index in range(1, 30)]
    calls, pread_cached = [], files.pread_cached
    monkeypatch.setattr(files, "pread_cached", lambda *place: calls.append(place) or pread_cached(*place))
    assert [bytes(found) for found in log.read_at_once(refs(log))] == expected
    assert len(calls) == len({ref.segment for ref in refs(log)}) > 1
    assert len(log.read_at_once(refs(log)[-4:])) == 4
    assert len(calls) == len({ref.segment for ref in refs(log)})  # the newest are in the tail cache


def test_batches_far_from_each_other_are_read_without_what_lies_between(files, log):
    index = count(1)
    for sequence in (1, 2, 3):
        log.append([entry(next(index), batch(7, sequence, 1)), entry(next(index), batch(8, sequence, 1, size=3000))])
    log.commit(6)
    sizes, pread_cached = [], files.pread_cached
    files.pread_cached = lambda descriptor, length, position: (
        sizes.append(length) or pread_cached(descriptor, length, position)
    )
    assert [bytes(found) for found in log.read_at_once(refs(log))] == [records(7, at, 1) for at in (1, 2, 3)]
    assert len(sizes) == 3
    assert max(sizes) < 300


def test_what_would_wait_for_the_disk_is_not_read_at_once(files, log):
    log.append([one(1)])
    log.commit(1)
    files.cached = lambda: False
    assert log.read_at_once(refs(log)) is None
    assert log.read(refs(log)[0]) == records(7, 1, 1)


def test_what_is_damaged_is_not_read_at_once(files):
    damages = []
    log, _ = open_log(files, on_damage=lambda: damages.append(1))
    log.append([one(1), one(2)])
    log.commit(2)
    (path,) = [path for path in files.paths() if path.endswith(".log")]
    ref = refs(log)[1]
    files.names[path].live[ref.position + 5] ^= 1
    assert log.read_at_once(refs(log)) is None
    assert damages == []
    with pytest.raises(Damage, match=f"{path}: position {ref.position}"):
        log.read(ref)
    assert damages == [1]


def test_a_file_that_is_not_open_is_not_read_at_once(log):
    while not log.sealed_index:
        log.append([one(log.last_index + 1)])
    log.commit(log.last_index)
    ref = refs(log)[0]
    log._segments.descriptors.forget(ref.segment)  # as if too many others were read since
    assert log.read_at_once([ref]) is None
    assert log.read(ref) == records(7, 1, 1)
    assert [bytes(found) for found in log.read_at_once([ref])] == [records(7, 1, 1)]


def test_read_keeps_a_bounded_number_of_files_open(files, log, monkeypatch):
    index = 1
    while len([path for path in files.paths() if path.endswith(".log")]) < limits.SEGMENT_FILES_OPEN_MAX + 10:
        log.append([one(index)])
        index += 1
    log.commit(log.last_index)
    for _ in range(2):
        for ref in refs(log):
            assert log.read(ref) == records(7, ref.base_sequence, 1)
    assert len(files.open_files) <= limits.SEGMENT_FILES_OPEN_MAX + 1
    log.close()
    assert files.open_files == {}


# --- truncating --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("index", [0, 3, 5, 8, 17])
def test_truncate_survives_a_crash(files, log, index):
    for at in range(1, 20):
        log.append([one(at)])
    log.sync()
    log.truncate_after(index)
    for seed in range(20):
        again, report = open_log(files.crash(seed))
        assert (again.last_index, report.texts) == (index, [])
        assert again.entries(1, 99, ALL) == [one(at) for at in range(1, index + 1)]


@pytest.mark.parametrize("index", [0, 3, 5, 8, 17])
def test_truncate_interrupted_at_any_call_leaves_a_beginning(index):
    for calls in range(20):
        files = CrashingFiles()
        log, _ = open_log(files)
        for at in range(1, 20):
            log.append([one(at)])
        log.sync()
        files.cut_power_after(calls)
        with suppress(PowerCut):
            log.truncate_after(index)
        again, report = open_log(files.crash(calls))
        assert report.texts == []
        assert index <= again.last_index <= 19
        assert again.entries(1, 99, ALL) == [one(at) for at in range(1, again.last_index + 1)]


def test_truncate_of_recovered_entries_forgets_their_batches(files, log):
    for at in range(1, 20):
        log.append([one(at)])
    log.close()
    log, _ = open_log(files)
    log.commit(3)
    log.truncate_after(7)
    for at in range(8, 12):
        log.append([one(at, size=33)])
    log.commit(11)
    expected = [records(7, at, 1) for at in range(1, 8)] + [records(7, at, 1, size=33) for at in range(8, 12)]
    assert [log.read(ref) for ref in refs(log)] == expected


def test_truncate_forgets_recent_batches_whose_places_are_written_again(files):
    log, _ = open_log(files, cache=300, segment_bytes_max=10_000)
    for _ in range(3):
        log.append([one(at) for at in range(1, 4)])
        log.truncate_after(0)
    for at in range(1, 20):
        log.append([one(at)])
    log.commit(19)
    assert [log.read(ref) for ref in refs(log)] == [records(7, at, 1) for at in range(1, 20)]


@pytest.mark.parametrize("index", [0, 3, 17])
@pytest.mark.parametrize("method", ["unlink", "sync_directory", "open", "ftruncate", "fdatasync"])
@pytest.mark.parametrize("after", [0, 1])
def test_truncate_that_fails_leaves_a_frozen_log_that_answers(files, log, index, method, after):
    for at in range(1, 20):
        log.append([one(at)])
    log.sync()
    files.fail(method, after, errno.EIO)
    with suppress(InDoubt):
        log.truncate_after(index)
    there = {found.index for found in log.entries(1, 99, ALL)}
    assert {at for at in range(22) if log.term_at(at)} >= there
    log.release(0)
    with suppress(Frozen):
        log.append([one(log.last_index + 1)])


@pytest.mark.parametrize("first", [None, 9])
def test_skip_begins_the_log_behind_the_hole_at_once(log, first):
    for at in range(1, 5):
        log.append([one(at)])
    log.skip(first)
    first = first or 6
    assert (log.first_index, log.last_index) == (first, first - 1)
    log.append([one(first)])
    assert [log.term_at(at) for at in (first - 2, first, first + 1)] == [0, 1, 0]
    log.truncate_after(4)
    assert (log.first_index, log.last_index, log.term_at(4)) == (1, 4, 1)


# --- space ----------------------------------------------------------------------------------------------------------------
def fill_for_cleaning(log):
    """Segments in which channel 1 keeps a little and channel 2 nothing."""
    index = 1
    for round_ in range(1, 10):
        log.append([entry(index, batch(1, round_, 1, size=5))])
        log.append([entry(index + 1, batch(2, round_, 1, size=200))])
        log.append([change(index + 2)])
        index += 3
    log.sync()
    log.commit(log.last_index)
    log.trim(2, 10)
    return index - 1


def test_release_deletes_a_segment_in_the_middle(files, log):
    for index in range(1, 40):
        log.append([one(index, uid=1 if index < 10 or index > 30 else 2)] if index < 31 else [change(index)])
    log.append([change(40)])
    log.commit(40)
    before = [path for path in files.paths() if path.endswith(".log")]
    log.trim(2, 31)
    log.release(20)
    after = [path for path in files.paths() if path.endswith(".log")]
    assert after[0] == before[0]
    assert len(after) < len(before)
    assert [log.read(ref) for ref in refs(log, 1)] == [records(1, index, 1) for index in range(1, 10)]
    assert log.entries(log.first_index, 40, ALL)[-1].index == 40
    assert 10 < log.first_index <= 21
    assert not [path for path in files.paths() if path.endswith(".idx") and path.replace(".idx", ".log") not in after]


def test_the_index_file_of_an_older_generation_does_not_count_whatever_its_size(files):
    """A segment that is rewritten to as many bytes, and power that goes before the new index file is on the disk."""
    old, new = (Segment(1, "/0.log", SegmentHeader(1, 1, 0, STORE, generation), sealed=True) for generation in (3, 4))
    IndexFileWriter(files, index_file_path(old.path)).seal(old)
    assert load_index_file(files, old, old.end) is not None
    assert load_index_file(files, new, old.end) is None


def test_release_goes_on_when_a_file_cannot_be_deleted(files, log):
    last = fill_for_cleaning(log)
    log.trim(1, 10)
    files.fail("unlink", 0, errno.EIO)
    log.release(last)
    left = len([path for path in files.paths() if path.endswith(".log")])
    log.release(last)
    assert len([path for path in files.paths() if path.endswith(".log")]) == left - 1
    assert log.first_index > 1


def test_clean_leaves_old_places_readable_until_the_new_file_is_used(files, log):
    last = fill_for_cleaning(log)
    size = log.size
    log.release(last)
    old = refs(log, 1)
    report = log.clean()
    assert "00000000000000000001.log: cleaned" in report
    assert log.clean() is None
    assert [log.read(ref) for ref in old] == [records(1, at, 1, size=5) for at in range(1, 10)]
    log.commit(last)
    with pytest.raises(StaleRef):
        log.read(old[0])
    assert [log.read(ref) for ref in refs(log, 1)] == [records(1, at, 1, size=5) for at in range(1, 10)]
    while log.clean() is not None:
        log.commit(last)
    assert log.size < size / 2
    log.close()
    again, report = open_log(files)
    assert report.texts == []
    assert report.scanned_bytes == len(files.content(max(path for path in files.paths() if path.endswith(".log"))))
    again.commit(last)
    assert [again.read(ref) for ref in refs(again, 1)] == [records(1, at, 1, size=5) for at in range(1, 10)]
    assert [found.index for found in again.entries(1, 9, ALL) if found.kind == change(1).kind] == []


def test_clean_rewrites_a_segment_that_keeps_nothing_but_sequences_that_were_used(files, log):
    """A channel that was restored or emptied, whose newest sequences only a batch without records tells."""
    unused = b"".join(encode_batch(7, 1, 5, 0, 0, b""))
    log.append([entry(1, unused)])
    for index in range(2, 12):
        log.append([one(index, uid=2)])
    log.sync()
    log.commit(11)
    log.trim(2, 12)
    size = log.size
    get_rid_of_what_is_not_kept(log)
    log.commit(11)
    assert log.clean() is None, "once"
    assert log.size < size / 2
    assert log.channel(7).last_sequence == 5
    log.close()
    again, _ = open_log(files)
    again.commit(11)
    assert again.channel(7).last_sequence == 5


def test_clean_interrupted_at_any_call_leaves_the_old_file_or_the_new():
    for calls in range(20):
        files = CrashingFiles()
        log, _ = open_log(files)
        last = fill_for_cleaning(log)
        log.release(last)
        files.cut_power_after(calls)
        with suppress(PowerCut):
            log.clean()
        for seed in range(5):
            after = files.crash(seed)
            again, report = open_log(after)
            again.commit(last)
            assert (report.texts, report.quarantined) == ([], [])
            assert [again.read(ref) for ref in refs(again, 1)] == [records(1, at, 1, size=5) for at in range(1, 10)]
            assert not [path for path in after.paths() if path.endswith(".new")]


def test_clean_touches_nothing_that_is_not_released(files, log):
    fill_for_cleaning(log)
    assert log.clean() is None
    log.release(2)
    assert log.clean() is None


def test_clean_on_a_full_disk_says_so_and_changes_nothing(files, log):
    last = fill_for_cleaning(log)
    log.release(last)
    before = {path: files.content(path) for path in files.paths() if path.endswith(".log")}
    files.fail("pwritev", 0, errno.ENOSPC)
    assert "not cleaned" in log.clean()
    assert {path: files.content(path) for path in files.paths() if path.endswith(".log")} == before
    assert "cleaned" in log.clean()
    log.append([change(last + 1)])


def test_clean_of_a_damaged_segment_says_so_and_keeps_it(files, log):
    last = fill_for_cleaning(log)
    log.release(last)
    path = files.paths()[0].replace(".idx", ".log")
    files.names[path].live[100] ^= 1
    before = files.content(path)
    report = log.clean()
    assert "not cleaned" in report
    assert f"{path}: position 48: wrong CRC" in report
    assert files.content(path) == before
    assert path + ".new" not in files.paths()


def test_release_deletes_no_segment_that_is_being_cleaned(files, log):
    last = fill_for_cleaning(log)
    log.release(last)
    log.clean()
    log.trim(1, 10)
    log.release(last)
    log.release(last)
    assert refs(log, 1) == []
    assert len([path for path in files.paths() if path.endswith(".log")]) <= 2
    log.close()
    assert files.open_files == {}

"""A small log cut at every byte and flipped at every bit: recovery invents nothing, and loses nothing before the damage."""

from contextlib import suppress
from pathlib import Path

import pytest

from stan.errors import Damage
from stan.log.files.filelog import FileLog
from stan.protocol.entries import Kind, decode_batches
from tests.kit.batches import batch, change, entry
from tests.kit.files import CrashingFiles, PowerCut

STORE = b"0123456789abcdef"
DIRECTORY = "/store/groups/1"
ALL = 10**9


def reopen(files):
    return FileLog.open(
        Path(DIRECTORY), 1, STORE, files=files, segment_bytes_max=250, lost_found=Path("/store/lost+found")
    )


@pytest.fixture(scope="module")
def written():
    """Contents of the files of a log of three segments, and its entries."""
    files = CrashingFiles()
    log, _ = reopen(files)
    made = [
        entry(1, batch(7, 1, 2, size=9)),
        change(2),
        entry(3, batch(7, 3, 1, size=9), batch(8, 1, 1, size=9)),
        change(4, b"", term=2),
        entry(5, batch(7, 4, 1, size=9), term=2),
        entry(6, batch(8, 2, 2, size=9), term=2),
        change(7, b"xyz", term=3),
        entry(8, batch(7, 5, 1, size=9), term=3),
        change(9, b"abc", term=3),
    ]
    for one in made:
        log.append([one])
    log.close()
    contents = {path: files.content(path) for path in files.paths()}
    assert len([path for path in contents if path.endswith(".log")]) == 3
    return contents, made


def disk(contents, **changed):
    files = CrashingFiles()
    for path, data in {**contents, **changed}.items():
        if data is not None:
            files.put(path, data)
    return files


def segment_paths(contents):
    return sorted(path for path in contents if path.endswith(".log"))


def read_back(log):
    """Entries that are there, and every committed batch read through the index."""
    entries = log.entries(1, ALL, ALL)
    log.commit(log.last_index)
    batches = [
        (uid, ref.base_sequence, log.read(ref)) for uid in (7, 8) for ref in log.channel(uid).refs(0, ALL, ALL, ALL)
    ]
    return entries, batches


def batches_of(entries):
    return sorted(
        (uid, base, bytes(records))
        for one in entries
        if one.kind == Kind.RECORDS
        for uid, base, _, _, _, records, *_ in decode_batches(one.body)
    )


def test_log_last_segment_cut_at_every_byte_keeps_the_entries_before(written):
    contents, made = written
    path = segment_paths(contents)[-1]
    whole = contents[path]
    first = int(path[-24:-4])
    ends = entry_ends(whole)
    for size in range(len(whole)):
        log, report = reopen(disk(contents, **{path: whole[:size]}))
        expected = made[: first - 1 + sum(end <= size for end in ends)]
        assert read_back(log) == (expected, batches_of(expected)), size
        assert report.quarantined == [], size
        assert log.last_index == len(expected), size
        assert log.term_at(log.last_index) == log.last_term == expected[-1].term, size
        log.append([change(log.last_index + 1, term=9)])
        log.sync()


def entry_ends(whole):
    """Position behind each entry of a segment file, from its format: a header of 48 bytes, entries with one of 24."""
    ends = []
    at = 48
    while at < len(whole):
        at += 24 + int.from_bytes(whole[at + 4 : at + 8], "little")
        ends.append(at)
    return ends


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("sidecars", [True, False])
def test_log_segment_with_any_bit_flipped_invents_nothing(written, which, sidecars):
    contents, made = written
    path = segment_paths(contents)[which]
    first = int(path[-24:-4])
    whole = contents[path]
    ends = entry_ends(whole)
    rest = {name: None for name in contents if name.endswith(".idx")} if not sidecars else {}
    found_late = []
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        files = disk(contents, **rest, **{path: bytes(flipped)})
        log, report = reopen(files)
        before = made[: first - 1 + sum(end <= bit // 8 for end in ends)]
        if bit // 8 < 48:
            before = made  # every entry is right, only the header is made anew
        try:
            entries, batches = read_back(log)
        except Damage as damage:
            found_late.append(str(damage))
            continue
        assert entries[: len(before)] == before, bit
        assert [one for one in entries if one not in made] == [], bit
        lost = [one.index for one in made if one not in entries]
        assert batches == batches_of(entries), bit
        if which == 2 and not report.quarantined:
            assert lost in ([], list(range(len(made) - len(lost) + 1, len(made) + 1))), bit
            continue
        assert lost == [index for a, b in report.quarantined for index in range(a, b + 1)], bit
        aside = [name for name in files.paths() if "lost+found" in name]
        assert [files.content(name) for name in aside] == [bytes(flipped)], bit
    assert bool(found_late) == (sidecars and which < 2)  # a index_file vouches for its segment until that is read
    assert [text for text in found_late if path not in text] == []


def test_log_sidecar_with_any_byte_changed_is_made_anew(written):
    contents, made = written
    path = min(name for name in contents if name.endswith(".idx"))
    for at in range(len(contents[path])):
        changed = bytearray(contents[path])
        changed[at] ^= 0x55
        files = disk(contents, **{path: bytes(changed)})
        log, report = reopen(files)
        assert read_back(log) == (made, batches_of(made)), at
        assert report.texts == [], at
        assert files.content(path) == contents[path], at


def test_log_sidecar_cut_at_every_byte_is_made_anew(written):
    contents, made = written
    path = min(name for name in contents if name.endswith(".idx"))
    for size in range(len(contents[path])):
        files = disk(contents, **{path: contents[path][:size]})
        log, _ = reopen(files)
        assert read_back(log) == (made, batches_of(made)), size
        assert files.content(path) == contents[path], size


def test_log_recovery_interrupted_at_any_call_ends_the_same(written):
    contents, made = written
    path = segment_paths(contents)[1]
    flipped = bytearray(contents[path])
    flipped[150] ^= 1
    index_file = path.replace(".log", ".idx")
    broken = {path: bytes(flipped), index_file: None}
    quiet, _ = reopen(disk(contents, **broken))
    expected = read_back(quiet)
    assert len(expected[0]) < len(made)
    for calls in range(40):
        for seed in range(4):
            files = disk(contents, **broken)
            files.cut_power_after(calls)
            with suppress(PowerCut):
                reopen(files)
            files = files.crash(seed)
            log, _ = reopen(files)
            assert read_back(log) == expected, (calls, seed)
            aside = [name for name in files.paths() if "lost+found" in name]
            assert [files.content(name) for name in aside] == [bytes(flipped)], (calls, seed)

"""A commit writes little of a long list of files, a reader reads little of it again, and the list is what was committed."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stan_lake.chunks import CHUNK_FILES
from stan_lake.errors import LakeError
from stan_lake.manifest import DataFile
from stan_lake.places import chunk_manifest
from stan_lake.table import MANIFESTS, LakeTable

from tests.kit.lake import UID, MemoryStore

MANY = 6_000
"""Files: a megabyte of a manifest."""


class CountingStore(MemoryStore):
    """Notes what is read and written."""

    def __init__(self):
        super().__init__()
        self.read, self.written = [], []

    def get(self, path):
        self.read.append(path)
        return super().get(path)

    def put_new(self, path, data):
        self.written.append(data)
        return super().put_new(path, data)


def some_file(number, name="x"):
    times = {"first_time_ns": number, "last_time_ns": number}
    return DataFile(name=f"{number}.{name}", first=number, last=number, rows=1, bytes=1000, message_bytes=4000, **times)


def with_files(manifest, files):
    files = tuple(files)
    return replace(manifest, files=files, next=max(manifest.next, files[-1].last + 1 if files else 1))


@pytest.fixture
def store():
    return CountingStore()


@pytest.fixture
def table(store):
    return LakeTable(store, "orders", UID)


def many_files(table):
    return table.commit(with_files(table.take_over(), map(some_file, range(1, MANY + 1))))


def test_a_commit_writes_a_small_part_of_many_files(store, table):
    manifest = many_files(table)
    whole = sum(map(len, store.written))
    for number in range(MANY + 1, MANY + 2 * CHUNK_FILES):
        store.written.clear()
        manifest = table.commit(with_files(manifest, [*manifest.files, some_file(number)]))
        assert sum(map(len, store.written)) < whole / 10
    for place in range(50, MANY, 1000):
        store.written.clear()
        again = some_file(place + 1, "again")
        manifest = table.commit(with_files(manifest, [*manifest.files[:place], again, *manifest.files[place + 1 :]]))
        assert sum(map(len, store.written)) < whole / 10
    assert table.manifest() == manifest
    assert len(manifest.files) == MANY + 2 * CHUNK_FILES - 1


def test_a_reader_reads_no_chunk_again(store, table):
    manifest = many_files(table)
    store.read.clear()
    known = table.manifest()
    assert len(store.read) == 1 + len(known.chunks)
    changed = [some_file(1, "again"), *manifest.files[1:]]
    newer = table.commit(with_files(manifest, changed))
    store.read.clear()
    assert table.manifest(known) == newer
    assert len(store.read) < 4
    store.read.clear()
    assert table.manifest(newer) == newer
    assert len(store.read) == 1


def test_a_reader_whose_chunk_goes_meanwhile_finds_the_next_one(store, table):
    manifest = many_files(table)
    newer = []

    class Overtaken(CountingStore):
        def get(self, path):
            if "_files" in path and not newer:
                files = [*manifest.files[:50], *manifest.files[60:]]
                newer.append(table.drop_replaced(table.commit(with_files(manifest, files)), 3600))
            return store.get(path)

        def children(self, path):
            return store.children(path)

    assert LakeTable(Overtaken(), "orders", UID).manifest() == newer[0]


def test_a_chunk_stays_for_a_while_with_its_manifest_of_iceberg(store, table):
    """For readers that are planning a query, whose files stay, too."""
    manifest = many_files(table)
    old = manifest.chunks[0].name
    newer = table.commit(with_files(manifest, manifest.files[10:]), 10_000)
    assert old not in {chunk.name for chunk in newer.chunks}
    newer = table.drop_replaced(newer, 13_599)
    names = {old, chunk_manifest(old)}
    assert names <= {*store.children(table.path("").rstrip("/")).objects}
    table.drop_replaced(newer, 13_600)
    assert not names & {*store.children(table.path("").rstrip("/")).objects}


def test_a_chunk_that_is_lost_is_told(store, table):
    manifest = many_files(table)
    store.delete(table.path(manifest.chunks[3].name))
    with pytest.raises(LakeError, match=r"damaged.*_files"):
        table.manifest()
    store.put_new(table.path(manifest.chunks[3].name), b'{"format":2}')
    with pytest.raises(LakeError, match="damaged"):
        table.manifest()


LATER = "of a later version of stan_lake: go on with that version"
RESTORE = "restore it from a copy, and remove nothing"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda it: {**it, "format": 3}, rf"has format 3 .*{LATER}"),
        (lambda it: {**it, "lock": 1, "zone": 2}, rf"has the fields lock, zone, {LATER}"),
        (lambda it: {**it, "format": 1}, "has format 1, and 2 is the only one that this version reads"),
        (lambda it: {**it, "next": -1}, rf"is damaged: .*{RESTORE}"),
        (lambda it: {**it, "files": 7}, rf"is damaged: .*{RESTORE}"),
        (lambda it: {"format": 2}, rf"is damaged: .*{RESTORE}"),
        (lambda _it: [], rf"is damaged: .*{RESTORE}"),
    ],
)
def test_a_manifest_of_another_version_or_a_damaged_one_says_so(store, table, change, told):
    manifest = table.commit(with_files(table.manifest(), [some_file(1)]))
    path = table.path(f"{MANIFESTS}/{manifest.version:020d}.json")
    changed = json.dumps(change(json.loads(store.get(path)))).encode()
    store.delete(path)
    store.put_new(path, changed)
    with pytest.raises(LakeError, match=told) as refused:
        table.manifest()
    assert str(refused.value).startswith(f"{store.location(path)}: the manifest ")


def test_a_damaged_chunk_is_named(store, table):
    name = many_files(table).chunks[3].name
    store.delete(table.path(name))
    store.put_new(table.path(name), b"{")
    with pytest.raises(LakeError, match=rf"the chunk {name} of the manifest is damaged: .*{RESTORE}"):
        table.manifest()


def test_a_table_of_few_files_has_its_manifest_in_one_piece(store, table):
    manifest = table.commit(with_files(table.take_over(), map(some_file, range(1, 40))))
    assert not manifest.chunks
    (newest,) = store.children(table.path(MANIFESTS)).objects[-1:]
    assert len(json.loads(store.get(table.path(f"{MANIFESTS}/{newest}")))["files"]) == 39


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 12)),
        st.tuples(st.just("merge"), st.integers(0, 40), st.integers(1, 6)),
        st.tuples(st.just("remove"), st.integers(0, 40), st.integers(1, 9)),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(changes=CHANGES, most=st.integers(1, 4))
def test_chunks_have_what_was_committed_and_are_few(changes, most):
    store = CountingStore()
    table = LakeTable(store, "orders", UID, chunk_files=most)
    manifest = table.take_over()
    for number, (what, *how) in enumerate(changes):
        files = list(manifest.files)
        match what:
            case "append":
                files += [some_file(manifest.next + more) for more in range(how[0])]
            case "merge" if files[how[0] :]:
                group = files[how[0] : how[0] + how[1]]
                files[how[0] : how[0] + how[1]] = [replace(group[0], name=f"merged {number}", last=group[-1].last)]
            case "remove":
                del files[how[0] : how[0] + how[1]]
        before = manifest
        manifest = table.commit(with_files(manifest, files))
        assert manifest.files == tuple(files)
        assert table.manifest() == table.manifest(before) == manifest
        assert all(0 < len(chunk.files) <= most for chunk in manifest.chunks)
        in_chunks = sum(len(chunk.files) for chunk in manifest.chunks)
        assert len(files) - in_chunks <= 2 * most
        sizes = [len(chunk.files) for chunk in manifest.chunks]
        if files and set(manifest.chunks) - set(before.chunks):  # just sealed
            assert all(2 * max(pair) >= most for pair in pairwise(sizes))
        manifest = table.drop_replaced(manifest, 3600)
        listed = {name for chunk in manifest.chunks for name in (chunk.name, chunk_manifest(chunk.name))}
        assert set(store.children(table.path("").rstrip("/")).objects) == listed

"""The lake as an Iceberg table: it has what the manifest has, and behind a crash no file that is gone and no message twice."""

from itertools import pairwise

import pytest
from stan_lake.manifest import within
from stan_lake.places import chunk_manifest
from stan_lake.removal import delete, hidden, rewritten
from stan_lake.store import LocalStore
from stan_lake.table import LakeTable
from stan_lake.tierer import ChannelTierer, TierSettings

from tests.kit.lake import (
    UID,
    CrashError,
    CrashingStore,
    MemoryStore,
    OneChannel,
    iceberg_of,
    parquet_files,
    rows_of,
)

MOMENTS_MAX = 1000
COLUMNS = ("channel", "sequence", "timestamp", "key", "value", "reply", "headers", "expires_at")


class Tiers:
    """A tierer whose clock goes an hour in each round, so that what was replaced goes soon."""

    def __init__(self, store, channel, **settings):
        self.table = LakeTable(store, channel.name, UID, chunk_files=2)
        self.channel = channel
        self.now = 1000
        self.settings = TierSettings(name="lake", age_s=0, now=lambda: self.now, **settings)
        self.tierer = None

    async def step(self, messages=0, **fields):
        self.channel.publish(messages, **fields)
        self.now += 3600
        if self.tierer is None:
            tierer = ChannelTierer(self.table, self.channel, self.settings)
            await tierer.begin(self.channel.info)
            self.tierer = tierer
        await self.tierer.step(self.channel.info, self.channel.place)


def sequences(store, table):
    found = iceberg_of(store, table).scan(selected_fields=("sequence",)).to_arrow()
    return sorted(found["sequence"].to_pylist())


async def test_an_iceberg_table_has_the_rows_of_the_manifest(tmp_path):
    store = LocalStore(tmp_path)
    tiers = Tiers(store, OneChannel(), target_bytes=100)
    await tiers.step(20)
    await tiers.step(20, headers=[{"key": b"a", "value": b"b"}], reply=b"answers", expires_at=10**18)
    await tiers.step(3)
    assert len(tiers.tierer.manifest.chunks) > 2
    found = iceberg_of(store, tiers.table)
    rows = found.scan().to_arrow().sort_by("sequence")
    assert tuple(rows.column_names) == COLUMNS
    expected = rows_of(store, "orders", columns=COLUMNS)
    assert list(zip(*(rows[name].to_pylist() for name in COLUMNS), strict=True)) == expected
    few = list(found.scan(row_filter="timestamp >= '1970-01-01T00:00:30+00:00'").plan_files())
    assert sum(one.file.record_count for one in few) < 20, "other files are left out by their times"


@pytest.mark.parametrize("after", [False, True], ids=["before", "behind"])
async def test_an_iceberg_table_lists_each_message_once_and_files_that_are_there_whatever_dies(tmp_path, after):
    for moment in range(1, MOMENTS_MAX):
        store = CrashingStore(MemoryStore(tmp_path / "lake"))
        store.dies_at, store.after, died = moment, after, False
        tiers = Tiers(store, OneChannel(), target_bytes=2000)
        for number in range(9):
            if number == 4:
                tiers.channel.remove(3, 5, 6, 7)
            try:
                await tiers.step(3 if number < 6 else 0)
            except CrashError:
                died, tiers.tierer = True, None
                check_listed(store.inner, tiers.table)
        check_listed(store.inner, tiers.table)
        assert sequences(store.inner, tiers.table) == [at for at, _ in rows_of(store.inner, "orders")]
        if not died:
            assert sequences(store.inner, tiers.table) == [1, 2, 4, *range(8, 19)]
            return
    pytest.fail("there are more moments than this")


def check_listed(store, table):
    """Files of the Iceberg table are all there, and have different messages."""
    store.to_disk()
    found = iceberg_of(store, table)
    listed = [one.file.file_path for one in found.scan().plan_files()] if found else []
    assert set(listed) <= {store.location(table.path(name)) for name in parquet_files(store, table)}
    ranges = sorted(tuple(map(int, path.rpartition("/")[2].split(".")[0].split("-"))) for path in listed)
    assert all(last < first for (_, last), (first, _) in pairwise(ranges))


async def test_a_deletion_reaches_the_iceberg_table_with_its_first_commit(tmp_path):
    """While files wait to be written again, their rows are named one by one; those of chunks, too."""
    store, channel = LocalStore(tmp_path), OneChannel()
    tiers = Tiers(store, channel, target_bytes=100)
    await tiers.step(40)
    manifest = tiers.tierer.manifest
    assert manifest.chunks
    runs = [(2, 3), (6, 11), (14, 14), (37, 39)]
    for now, run in enumerate(runs, 1):
        manifest = tiers.table.commit(hidden(manifest, [run], now))
        assert sequences(store, tiers.table) == [at for at, _ in rows_of(store, "orders")]
        assert not {*range(run[0], run[1] + 1)} & {*sequences(store, tiers.table)}
    while manifest.deleted:
        (file, *_) = (one for one in manifest.files if within(manifest.deleted, one.first, one.last))
        manifest = rewritten(tiers.table, manifest, [file], 9)
        assert sequences(store, tiers.table) == [at for at, _ in rows_of(store, "orders")]
    assert len(sequences(store, tiers.table)) == 40 - sum(last - first + 1 for first, last in runs)
    assert not [
        path for path in store.children(tiers.table.path("metadata")).objects if f"{manifest.version}-d" in path
    ]


async def test_a_deletion_by_hand_reaches_the_iceberg_table(tmp_path):
    store, channel = LocalStore(tmp_path), OneChannel()
    tiers = Tiers(store, channel, target_bytes=100)
    await tiers.step(20)
    delete(tiers.table, [(2, 3), (6, 11)], tiers.now, at_once=True)
    left = [1, 4, 5, *range(12, 21)]
    assert sequences(store, tiers.table) == left


async def test_a_lake_that_was_moved_has_its_paths_with_the_next_writer(tmp_path):
    before, after = LocalStore(tmp_path / "a"), LocalStore(tmp_path / "b")
    tiers = Tiers(before, OneChannel(), target_bytes=100)
    await tiers.step(40)
    assert tiers.tierer.manifest.chunks
    (tmp_path / "a").rename(tmp_path / "b")
    tiers.table, tiers.tierer = LakeTable(after, "orders", UID, chunk_files=2), None
    await tiers.step()
    assert sequences(after, tiers.table) == [*range(1, 41)]
    chunks = [name for name in after.children(tiers.table.path("").rstrip("/")).objects if name.endswith(".avro")]
    assert {chunk_manifest(chunk.name) for chunk in tiers.tierer.manifest.chunks} == {*chunks}
    await tiers.step()
    assert sequences(after, tiers.table) == [*range(1, 41)]

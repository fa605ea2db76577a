"""A tierer that dies at any write, two of them at once, and a broker that forgets what it may: the lake has each message once."""

import asyncio
import contextlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from stan_lake.errors import LakeError
from stan_lake.places import chunk_manifest
from stan_lake.removal import delete, drop
from stan_lake.store import Children, LocalStore
from stan_lake.table import MANIFESTS, LakeTable, incarnations
from stan_lake.tierer import ChannelTierer, TierSettings
from stan_lake.tiering import Tiering

from tests.kit.lake import SECOND, UID, CrashError, CrashingStore, MemoryStore, OneChannel, parquet_files, rows_of

SETTINGS = TierSettings(name="lake", target_bytes=100, age_s=0, now=lambda: 10_000)
"""A file has about five messages."""
MOMENTS_MAX = 1000


async def tier(store, channel, **options):
    """Move all, into a table with very small chunks."""
    tierer = ChannelTierer(LakeTable(store, channel.name, UID, chunk_files=2), channel, SETTINGS)
    await tierer.begin(channel.info)
    await tierer.step(channel.info, channel.place, **options)
    return tierer


def check(store, channel):
    """Every message is in the lake once, or in the broker still; the position is not ahead."""
    manifest = LakeTable(store, channel.name, UID).manifest()
    assert channel.position <= manifest.next
    cold = rows_of(store, channel.name)
    hot = sorted(at for at in channel.messages if at >= manifest.next)
    known = sorted(channel.gone if channel.removed else ())  # the tierer has not heard of it yet
    assert sorted({*(at for at, _ in cold), *hot, *known}) == sorted(
        {*range(1, channel.last + 1)} - channel.gone | {*known}
    )
    assert len(cold) == len({at for at, _ in cold})
    assert all(value == b"%d" % at for at, value in cold)


def left_over(store, channel):
    """Files that no manifest lists, and manifests that are not whole."""
    table = LakeTable(store, channel.name, UID)
    manifest = table.manifest()
    listed = {one.name for one in (*manifest.files, *manifest.replaced, *manifest.chunks)}
    listed |= {chunk_manifest(chunk.name) for chunk in manifest.chunks}
    inside = store.children(table.path(MANIFESTS)).objects
    return set(store.children(table.path("").rstrip("/")).objects) - listed | {
        name for name in inside if not name.endswith(".json")
    }


async def test_a_table_of_another_cluster_is_taken_only_with_its_newest_message(tmp_path):
    """A rescued cluster has it still; where the broker has removed it, or never had it, nothing says whose channel it is."""
    store, channel = LocalStore(tmp_path), OneChannel()
    channel.publish(10)
    channel.set = channel.noted  # the position removes nothing
    await tier(store, channel, all_of_it=True)
    channel.cluster = "bb"
    await tier(store, channel, all_of_it=True)
    assert LakeTable(store, channel.name, UID).manifest().cluster == "bb"
    channel.publish(10)
    channel.drop_below(11)
    await tier(store, channel)
    channel.cluster = "cc"
    channel.drop_below(21)
    with pytest.raises(LakeError, match="another cluster"):
        await tier(store, channel)


async def test_a_channel_that_lost_its_end_is_read_as_one(tmp_path):
    """Also where its newest message was deleted: each read names the newest timestamp as of the read before."""
    store, channel = LocalStore(tmp_path), OneChannel()
    channel.publish(10)
    channel.set = channel.noted
    channel.remove(10)
    tierer = await tier(store, channel, all_of_it=True)
    channel.publish(5)
    await tier(store, channel, all_of_it=True)
    assert (channel.reads_behind[0], channel.reads_behind[-1]) == (0, 10 * SECOND)
    channel.last = 9
    with pytest.raises(LakeError, match="the broker up to 9 only"):
        await tierer.step(channel.info)


@pytest.mark.parametrize("after", [False, True], ids=["before", "behind"])
async def test_tierer_that_dies_at_any_write_loses_nothing_and_doubles_nothing(tmp_path, after):
    for moment in range(1, MOMENTS_MAX):
        channel = OneChannel()
        store = CrashingStore(LocalStore(tmp_path / str(moment)))
        store.dies_at, store.after = moment, after
        died = 0
        for _ in range(3):
            channel.publish(12)
            try:
                await tier(store, channel)
            except CrashError:
                died += 1
            check(store.inner, channel)
        store.dies_at = 0
        await tier(store, channel)
        check(store.inner, channel)
        assert channel.position == channel.last + 1
        assert not left_over(store.inner, channel)
        if not died:
            return
    pytest.fail("there are more moments than this")


async def test_what_a_write_to_a_disk_leaves_that_is_cut_off_is_removed(tmp_path, monkeypatch):
    store, channel = LocalStore(tmp_path), OneChannel()
    channel.publish(5)

    def cut_off(*_):
        raise CrashError

    with monkeypatch.context() as patch:
        patch.setattr("stan_lake.store.os.link", cut_off)
        patch.setattr("pathlib.Path.unlink", lambda *_, **__: None)
        with pytest.raises(CrashError):
            await tier(store, channel)
    assert left_over(store, channel)
    await tier(store, channel)
    check(store, channel)
    assert not left_over(store, channel)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 20)),
        st.tuples(st.just("remove"), st.integers(1, 60), st.integers(0, 12)),
        st.tuples(st.just("remove later"), st.integers(1, 60), st.integers(0, 3)),
        st.tuples(st.just("begin"), st.integers(0, 1)),
        st.tuples(st.just("step"), st.integers(0, 1)),
        st.tuples(st.just("die"), st.integers(0, 1), st.integers(1, 6), st.booleans()),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, target=st.sampled_from([100, 10_000]))
def test_two_tierers_of_one_table_lose_nothing_and_double_nothing(tmp_path_factory, steps, target):
    """Files are full with some messages, or small ones that are merged."""
    asyncio.run(two_tierers(tmp_path_factory.mktemp("lake"), steps, replace(SETTINGS, target_bytes=target)))


def some(channel, how):
    """Sequences to be removed: a first one, and so many behind it."""
    return [at for at in range(how[0], how[0] + how[1] + 1) if at <= channel.last]


async def two_tierers(path, steps, of_both):
    channel = OneChannel()
    inner = LocalStore(path)
    stores = [CrashingStore(inner) for _ in range(2)]
    tierers = [None, None]
    for what, *how in steps:
        with contextlib.suppress(LakeError, CrashError):
            match what:
                case "publish":
                    channel.publish(how[0])
                case "remove":
                    channel.remove(*some(channel, how))
                case "remove later":
                    channel.later = some(channel, how)
                case "begin":
                    stores[how[0]].dies_at = 0
                    tierers[how[0]] = None
                    tierer = ChannelTierer(
                        LakeTable(stores[how[0]], channel.name, UID, chunk_files=3), channel, of_both
                    )
                    await tierer.begin(channel.info)
                    tierers[how[0]] = tierer
                case "step" if tierers[how[0]] is not None:
                    tierer, tierers[how[0]] = tierers[how[0]], None  # after a failure it is not used again
                    await tierer.step(channel.info, channel.place)
                    tierers[how[0]] = tierer
                case "die":
                    store = stores[how[0]]
                    store.dies_at, store.after = store.moments + how[1], how[2]
        check(inner, channel)
    channel.later = ()
    await tier(inner, channel)
    await tier(inner, channel)  # what was removed while the one before read
    check(inner, channel)
    assert not channel.removed
    assert channel.position == channel.last + 1
    assert not left_over(inner, channel)


async def test_one_that_was_overtaken_by_many_commits_commits_nothing(tmp_path):
    """Also where the manifests that it would collide with have been removed."""
    store = LocalStore(tmp_path)
    table = LakeTable(store, "orders", UID)
    old = table.take_over()
    new = table.take_over()
    for _ in range(50):
        new = table.commit(new)
    with pytest.raises(LakeError, match="another tierer"):
        table.commit(old)
    assert table.manifest() == new


async def test_files_that_were_replaced_stay_for_a_while(tmp_path):
    store, channel = LocalStore(tmp_path), OneChannel()
    channel.publish(4)
    tierer = await tier(store, channel)
    table = LakeTable(store, "orders", UID)
    (old,) = tierer.manifest.files
    table.commit(replace(tierer.manifest, deleted=((2, 3),)))
    assert rows_of(store, "orders") == [(1, b"1"), (4, b"4")]  # not read, though they are in the file
    tierer = await tier(store, channel)
    assert [file.rows for file in tierer.manifest.files] == [2]
    assert not tierer.manifest.deleted
    assert rows_of(store, "orders") == [(1, b"1"), (4, b"4")]
    assert store.get(table.path(old.name))
    table.drop_replaced(tierer.manifest, 10_000 + 3600)
    with pytest.raises(FileNotFoundError):
        store.get(table.path(old.name))


# --- deleted by hand ----------------------------------------------------------------------------------------------------

GONE = [(2, 3), (6, 11), (14, 14)]
"""Parts of files, and whole ones."""


def deleted_by_hand(store, **options):
    return delete(LakeTable(store, "orders", UID, chunk_files=2), GONE, 10_000, **options)


def bytes_of(store, table):
    """What all Parquet files of a table have, listed or not."""
    found = set()
    for name in parquet_files(store, table):
        found |= {*parquet.read_table(store.opened(table.path(name)))["sequence"].to_pylist()}
    return found


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("after", [False, True], ids=["before", "behind"])
async def test_a_deletion_that_dies_at_any_write_is_done_by_the_next_one(after, at_once):
    expected = [at for at in range(1, 21) if not any(first <= at <= last for first, last in GONE)]
    for moment in range(1, MOMENTS_MAX):
        channel, store = OneChannel(), CrashingStore(MemoryStore())
        channel.publish(20)
        await tier(store.inner, channel)
        table = LakeTable(store.inner, "orders", UID)
        store.dies_at, store.after, died = moment, after, False
        try:
            deleted_by_hand(store, at_once=at_once)
        except CrashError:
            died = True
        assert [at for at, _ in rows_of(store.inner, "orders")] in (expected, [*range(1, 21)])
        assert table.manifest().next == 21
        store.dies_at = 0
        deleted_by_hand(store, at_once=at_once)
        manifest = table.manifest()
        assert [at for at, _ in rows_of(store.inner, "orders")] == expected
        assert (manifest.next, manifest.deleted, manifest.released) == (21, (), True)
        assert sum(file.rows for file in manifest.files) == len(expected)
        assert not left_over(store.inner, channel)
        if at_once:
            assert bytes_of(store.inner, table) == {*expected}, "what was deleted is nowhere"
        if not died:
            return
    pytest.fail("there are more moments than this")


@pytest.mark.parametrize("after", [False, True], ids=["before", "behind"])
async def test_a_table_that_is_dropped_is_gone_whatever_dies(tmp_path, after):
    for moment in range(1, MOMENTS_MAX):
        channel, store = OneChannel(), CrashingStore(LocalStore(tmp_path / str(moment)))
        channel.publish(10)
        await tier(store.inner, channel)
        table = LakeTable(store, "orders", UID)
        store.dies_at, store.after, died = moment, after, False
        try:
            drop(table)
        except CrashError:
            died = True
        store.dies_at = 0
        if incarnations(store, "orders"):
            drop(table)
        assert (
            incarnations(store, "orders") == []
        )  # a crash may leave the directory of the channel, which holds nothing
        if not died:
            assert store.children("") == Children([], [])
            return
    pytest.fail("there are more moments than this")


async def test_a_tierer_goes_on_behind_a_deletion_and_moves_nothing_twice(tmp_path):
    store, channel = LocalStore(tmp_path), OneChannel()
    channel.publish(20)
    said = []
    tiering = Tiering(store, Broker(channel), SETTINGS, lambda _name, text: said.append(text))
    infos = {channel.name: channel.info}
    assert await tiering.round(infos) == (20, True)
    done = deleted_by_hand(store)
    assert (done.messages, done.files) == (9, 3)
    channel.publish(5)
    infos = {channel.name: channel.info}
    rounds = [await tiering.round(infos) for _ in range(3)]
    assert sum(moved for moved, _ in rounds) == 5
    assert rounds[-1] == (0, True)
    expected = [at for at in range(1, 26) if not any(first <= at <= last for first, last in GONE)]
    assert [at for at, _ in rows_of(store, "orders")] == expected
    assert not LakeTable(store, "orders", UID).manifest().released


async def test_a_tierer_leaves_a_table_alone_while_a_deletion_is_under_way(tmp_path):
    store, channel = LocalStore(tmp_path), OneChannel()
    channel.publish(20)
    tiering = Tiering(store, Broker(channel), SETTINGS, lambda *_: None)
    await tiering.round({channel.name: channel.info})
    table = LakeTable(store, "orders", UID)
    under_way = table.take_over()
    channel.publish(5)
    infos = {channel.name: channel.info}
    assert [await tiering.round(infos) for _ in range(3)] == [(0, False)] * 3
    assert table.manifest() == under_way


class Broker:
    """The part of `Direct` that many tierers use, with one channel."""

    def __init__(self, channel):
        self.channel = channel
        self.batches, self.bookmarks = channel, self
        self.set = channel.set

    async def all(self, name):
        place = self.channel.place
        return {name: {self.channel.name: place}} if place is not None else {}

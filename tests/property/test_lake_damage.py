"""A damaged manifest, chunk or data file, or one of a later version, is a LakeError that names the file, and never other rows."""

import json
from dataclasses import replace

import pytest
from stan_lake.errors import LakeError
from stan_lake.removal import hidden
from stan_lake.table import MANIFESTS, LakeTable
from stan_lake.tierer import ChannelTierer, TierSettings

from tests.kit.lake import UID, MemoryStore, OneChannel, rows_of

COLUMNS = ("channel", "sequence", "timestamp", "key", "value", "reply", "headers", "expires_at")

STEP = 5
"""Of bytes that are damaged, one after the other."""


@pytest.fixture
async def table():
    """One with chunks, in memory."""
    channel, table = OneChannel(), LakeTable(MemoryStore(), "orders", UID, chunk_files=2)
    channel.publish(40, reply=b"answers", headers=[{"key": b"a", "value": b"b"}])
    tierer = ChannelTierer(table, channel, TierSettings(name="lake", target_bytes=100, age_s=0, now=lambda: 1000))
    await tierer.begin(channel.info)
    await tierer.step(channel.info)
    return table


def damage(table, name, data):
    """Let an object have other bytes."""
    path = table.path(name)
    table.store.objects[path] = data
    return path


def with_fields(data, **fields):
    return json.dumps({**json.loads(data), **fields}).encode()


NO_DOCUMENTS = [b"", b"null", b"[]", b"{}", b"\x00\xff", b"[" * 100_000, b'{"format":2}', b'{"format":"2"}']


def documents(table):
    """The names of the manifest and of one of its chunks."""
    manifest = table.manifest()
    return f"{MANIFESTS}/{manifest.version:020d}.json", manifest.chunks[0].name


@pytest.mark.parametrize("which", [0, 1], ids=["manifest", "chunk"])
def test_a_manifest_or_chunk_that_is_damaged_is_named(table, which):
    name = documents(table)[which]
    good = table.store.get(table.path(name))
    for data in [
        *NO_DOCUMENTS,
        good[: len(good) // 2],
        good[:-1],
        with_fields(good, files=[{}]),
        with_fields(good, files=5),
    ]:
        damage(table, name, data)
        with pytest.raises(LakeError, match=r"damaged|format") as caught:
            table.manifest()
        assert name.rpartition("/")[2] in str(caught.value)


@pytest.mark.parametrize("which", [0, 1], ids=["manifest", "chunk"])
def test_a_manifest_or_chunk_of_a_later_version_is_named(table, which):
    name = documents(table)[which]
    damage(table, name, with_fields(table.store.get(table.path(name)), format=3))
    with pytest.raises(LakeError, match=r"format 3 .2 is the newest known., of a later version") as caught:
        table.manifest()
    assert name.rpartition("/")[2] in str(caught.value)


def rows_or_error(table, manifest):
    try:
        return rows_of(table.store, "orders", manifest, COLUMNS)
    except LakeError as error:
        return str(error)


def test_a_data_file_that_is_damaged_is_named_and_gives_no_other_rows(table):
    """Wherever it is damaged: pages have checksums, and the manifest says how many rows there are."""
    manifest = table.manifest()
    manifest = replace(manifest, files=manifest.files[:1])
    rows = rows_of(table.store, "orders", manifest, COLUMNS)
    path = table.path(manifest.files[0].name)
    good = table.store.get(path)
    found = 0
    for place in range(0, len(good), STEP):
        table.store.objects[path] = good[:place] + bytes([good[place] ^ 0x55]) + good[place + 1 :]
        outcome = rows_or_error(table, manifest)
        assert outcome == rows or path in outcome
        found += outcome != rows
    assert found > len(good) / STEP / 3
    for data in (b"", good[:10], good[: len(good) // 2], good[:-1], b"PAR1" * 10):
        table.store.objects[path] = data
        assert path in rows_or_error(table, manifest)


def test_a_deletion_from_a_data_file_that_is_damaged_names_it(table):
    manifest = table.manifest()
    file = manifest.files[0]
    path = damage(table, file.name, b"PAR1")
    with pytest.raises(LakeError, match="cannot be read") as caught:
        table.commit(hidden(manifest, [(file.first, file.first)], 1000))
    assert path in str(caught.value)

"""Every file of a data directory, damaged in every way: the node has all, or says what it lacks, or one sentence ends the start.

Never a traceback, never a silent loss.
"""

import asyncio
import errno
import os
import re
import shutil
import stat
from pathlib import Path

import pytest
from stan_protocol.scalars import GroupId

from stan.config import ClusterConfig, Config, EncryptionConfig, LogConfig, StoreConfig
from stan.core.broker.broker import Broker
from stan.edge.log import ServerLog
from stan.edge.storage.raft_files import Voters
from stan.edge.storage.snapshot_files import read_snapshot, snapshot_bytes
from stan.edge.storage.state_loader import StateLoader
from stan.edge.storage.storage import Storage
from stan.errors import Damage, StanError
from stan.log.files.disk import OsFiles
from stan.protocol.entries import Kind
from stan.protocol.proto import entries_pb2 as pb
from stan.server.compose import _open_storage, start_failure
from tests.kit.batches import batch, entry
from tests.kit.storage import state_of

ONE = GroupId(1)


class Directory:
    """A node's, with something in every file."""

    def __init__(self, path, *, clustered, encrypted=False):
        cluster = ClusterConfig(node_id="a", peers=("b", "c")) if clustered else None
        self.path = path
        self.clustered = clustered
        self.config = Config(
            cluster_id="c",
            store=StoreConfig(kind="file", directory=path, raft_groups=1),
            cluster=cluster,
            encryption=EncryptionConfig(b"key") if encrypted else None,
        )
        self.storage = None

    async def open(self):
        config = self.config
        self.storage = storage = await Storage.open(config, ServerLog(LogConfig()), node_id="a" * self.clustered)
        self.broker = Broker(config, lambda group, uid: storage.logs[group].channel(uid), b"_INBOX.x.")
        try:
            await StateLoader(storage, self.broker, replicated=self.clustered).load()
        except BaseException:
            await storage.close(clean=False)
            raise
        return self

    async def fill(self):
        """Entries, a durable, a snapshot, and promises."""
        storage, log, meta = self.storage, self.storage.logs[ONE], self.storage.logs[GroupId(0)]
        told = [{"cluster_info": pb.ClusterInfo(cluster_id=b"c", raft_groups=1, nuid=b"n" * 22)}] * self.clustered
        told.append({"create_channels": pb.CreateChannels(channels=[pb.Channel(name=b"foo", group=1)])})
        for change in told:
            body = pb.MetaChange(**change).SerializeToString()
            meta.append([entry(meta.last_index + 1, term=1)._replace(kind=Kind.META, body=body)])
        meta.sync()
        subscribe = pb.Subscribe(
            uid=1, client_id=b"d", inbox=b"in", durable_name=b"d", max_in_flight=9, start_sequence=1
        )
        body = pb.GroupChange(subscribe=subscribe).SerializeToString()
        log.append([entry(1, term=1)._replace(kind=Kind.CHANGE, body=body)])
        for at in range(12):
            log.append([entry(2 + at, batch(1, 1 + at, 1), term=1)])
        log.sync()
        self.catch_up()
        state = state_of(storage, self.broker, ONE)
        storage.files.snapshots.write(ONE, state.applied_index, snapshot_bytes(state.SerializeToString()))
        if self.clustered:
            for number in (0, 1):
                storage.members[GroupId(number)].hard_state.save(3, "a")
                storage.members[GroupId(number)].hard_state.mark_readmitted()
                storage.members[GroupId(number)].set_voters(Voters(["a", "b", "c"], 1))

    def catch_up(self):
        """Apply what is in the log, as a node does it by itself or as its leader tells it."""
        for number, last in ((GroupId(0), 2), (ONE, 13)):
            if self.storage.logs[number].last_index == last:
                StateLoader(self.storage, self.broker).replay(number, self.storage.applied[number][0])

    def kept(self):
        """All of the group that a restart has to bring back."""
        log = self.storage.logs[ONE]
        refs = log.channel(1).refs(1, 99, 1 << 20, 99)
        return state_of(self.storage, self.broker, ONE), [log.read(ref) for ref in refs]

    async def close(self):
        await self.storage.flush(self.broker)
        await self.storage.close(clean=True)


HARMS = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "half of it": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "without its end": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "garbage": lambda path: path.write_bytes(b"\xa5garbage" * (path.stat().st_size // 8 + 1)),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    **{f"a bit at {share}/6": (lambda path, share=share: flip(path, share / 6)) for share in range(7)},
}


def flip(path, share):
    content = bytearray(path.read_bytes())
    if content:
        content[min(int(len(content) * share), len(content) - 1)] ^= 0x10
    path.write_bytes(bytes(content))


FILES = ("stan.json", "lock", "state.db", "groups/0/*.log", "groups/1/*.log", "groups/1/*.idx", "groups/1/*.snap")
OF_CLUSTERS = ("raft/0/hard_state", "raft/1/hard_state", "raft/1/voters.json")


@pytest.fixture(scope="module", params=[False, True], ids=["alone", "clustered"])
def filled(request, tmp_path_factory):
    directory = Directory(tmp_path_factory.mktemp("filled") / "data", clustered=request.param)

    async def fill():
        await directory.open()
        await directory.fill()
        kept = directory.kept()
        await directory.close()
        return kept

    return directory, asyncio.run(fill())


@pytest.mark.parametrize("name", [*FILES, *OF_CLUSTERS])
@pytest.mark.parametrize("how", HARMS)
async def test_damaged_file_is_healed_or_told(filled, name, how, tmp_path, capfd):
    whole, kept = filled
    if name in OF_CLUSTERS and not whole.clustered:
        pytest.skip("a server alone has none")
    if (name, how) == ("raft/1/voters.json", "missing"):
        pytest.skip("nothing tells that there was one")
    shutil.copytree(whole.path, tmp_path / "data")
    directory = Directory(tmp_path / "data", clustered=whole.clustered)
    (file, *_) = sorted(directory.path.glob(name)) or [None]
    if file is None:
        pytest.skip("there is none")
    HARMS[how](file)

    try:
        await directory.open()
    except StanError as error:
        text = start_failure(error, directory.path)
        assert "\n" not in text
        assert str(file) in text or str(file.parent) in text, text
        return
    directory.catch_up()
    storage, said = directory.storage, capfd.readouterr().err
    if directory.kept() != kept:
        assert "[ERR]" in said or "[WRN]" in said, "nothing is lost in silence"
        assert str(file) in said or str(file.parent) in said, said
    if directory.clustered and name.endswith("hard_state"):
        number = GroupId(int(file.parent.name))
        state = storage.members[number].hard_state
        assert (state.term, state.voted_for) == (3, "a") or state.amnesiac
    await directory.close()
    again = await directory.open()  # it is healed for good
    await again.close()


async def test_hard_state_without_a_right_slot_is_put_aside_in_a_cluster(tmp_path, capfd):
    directory = Directory(tmp_path / "data", clustered=True)
    await directory.open()
    await directory.fill()
    await directory.close()
    HARMS["garbage"](directory.path / "raft/1/hard_state")
    await directory.open()
    assert directory.storage.members[ONE].hard_state.amnesiac
    assert not directory.storage.members[GroupId(0)].hard_state.amnesiac
    assert not directory.storage.fresh
    await directory.close()
    assert list((directory.path / "lost+found").glob("raft-1-hard_state"))
    assert "raft/1/hard_state is damaged: neither of its two slots is right; moved to" in capfd.readouterr().err


def test_a_snapshot_file_without_a_crc_is_damaged(tmp_path):
    snapshot = pb.Snapshot(applied_index=7, applied_term=2, next_id=3)
    path = tmp_path / "state.snap"
    path.write_bytes(snapshot_bytes(snapshot.SerializeToString()))
    assert read_snapshot(OsFiles(), str(path)) == snapshot
    path.write_bytes(snapshot.SerializeToString())
    with pytest.raises(Damage, match="wrong CRC"):
        read_snapshot(OsFiles(), str(path))


def test_a_full_disk_at_start_names_the_directory_and_what_to_do(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")
    text = start_failure(full, tmp_path)
    assert text == f"{tmp_path}: there is no room on its disk ({full}): make room there, then start again"


@pytest.mark.parametrize("call", ["pread", "pwritev", "fdatasync", "fsync", "ftruncate", "fstat"])
async def test_a_disk_that_fails_at_start_is_named_with_the_file_and_what_to_do(filled, call, tmp_path, monkeypatch):
    """Each call on an open file fails in a start of its own, until a start makes fewer of them."""
    whole, kept = filled
    calls, fails_at, texts = 0, 0, []
    real = getattr(os, call)

    def failing(descriptor, *rest):
        nonlocal calls
        if str(tmp_path) in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            calls += 1
            if calls == fails_at:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor, *rest)

    while fails_at == 0 or calls >= fails_at:
        fails_at, calls = fails_at + 1, 0
        directory = Directory(tmp_path / str(fails_at), clustered=whole.clustered)
        shutil.copytree(whole.path, directory.path)
        with next(directory.path.glob("groups/1/*.log")).open("ab") as log:
            log.write(b"torn")  # the start cuts it off
        try:
            with monkeypatch.context() as patch:
                patch.setattr(os, call, failing)
                await directory.open()
        except (StanError, OSError) as error:
            texts.append(start_failure(error, directory.path))
            continue
        directory.catch_up()
        assert directory.kept() == kept
        await directory.storage.close(clean=False)
    assert texts
    right = rf"{re.escape(str(tmp_path))}(/\S+)?: input/output error: its disk fails.+ start again.+"
    assert not [text for text in texts if not re.fullmatch(right, text)]


# --- who may read -------------------------------------------------------------------------------------------------------------


async def test_a_directory_of_an_earlier_version_is_closed_to_others(tmp_path):
    path = tmp_path / "data"
    path.mkdir(mode=0o755)
    path.chmod(0o755)
    directory = Directory(path, clustered=True)
    await directory.open()
    await directory.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


async def test_a_node_that_comes_after_a_change_of_the_nodes_begins_in_an_empty_directory(tmp_path):
    """It was refused, since looking for groups that are about to go made a directory beside a missing manifest."""
    cluster = ClusterConfig(node_id="d", peers=("a", "b", "c"), nodes_version=7)
    config = Config(
        cluster_id="c", store=StoreConfig(kind="file", directory=tmp_path / "new", raft_groups=1), cluster=cluster
    )
    storage = await _open_storage(config, "d", ServerLog(LogConfig()), None)
    assert storage.fresh
    await storage.close(clean=True)

"""Rows of the state that are not as they were written: found at load, said, made again from the log, and never used."""

import sqlite3

import pytest
from stan_protocol.scalars import GroupId, RaftIndex, Term

from stan.config import Config, LogConfig, StoreConfig
from stan.core.broker.broker import Broker
from stan.edge.log import ServerLog
from stan.edge.storage.state_loader import StateLoader
from stan.edge.storage.storage import Storage
from stan.errors import Damage, StartError
from stan.log.files.segment import SegmentHeader, segment_name
from stan.protocol.proto import entries_pb2 as pb
from stan.state.database import Database
from tests.kit.broker_state import BrokerState
from tests.kit.damage import change_in_memory
from tests.kit.storage import StorageNode

FLIPS = {
    "a durable's state": "UPDATE cursors SET state = CAST(substr(state, 1, 6) || x'35' || substr(state, 8) AS BLOB)",
    "a column to look at": "UPDATE cursors SET last_sent = last_sent | 32 WHERE name = CAST('d' AS BLOB)",
    "a kind of value": "UPDATE cursors SET name = CAST(name AS TEXT) WHERE name = CAST('d' AS BLOB)",
    "text that is none": "UPDATE parts SET kind = CAST(x'ff' AS TEXT)",
    "a first sequence": "UPDATE first_sequences SET first_sequence = first_sequence + 8",
    "a checksum": "UPDATE subscriptions SET checksum = checksum + 1",
    "whose row it is": "UPDATE subscriptions SET raft_group = 9",
    "where the state stands": "UPDATE applied SET raft_index = raft_index - 1 WHERE raft_group = 1",
    "the next id": "UPDATE applied SET next_id = next_id + 1 WHERE raft_group = 1",
    "a missing row": "DELETE FROM cursors WHERE name = CAST('d' AS BLOB)",
    "all rows of a kind": "DELETE FROM subscriptions",
    "a row twice": "INSERT INTO cursors SELECT raft_group, 77, uid, name, last_sent, state, checksum FROM cursors LIMIT 1",
    "where it stands, missing": "DELETE FROM applied WHERE raft_group = 1",
    "a row in the place of another": "UPDATE cursors SET state = (SELECT state FROM cursors WHERE name = CAST('e' AS BLOB))",
}


@pytest.fixture
def node():
    made = StorageNode(segment_bytes=6000).boot()
    yield made
    made.medium.close()


def fill(node):
    """Messages, two durables, one of them at 20 of 60, a named position, removed messages."""
    node.publish(30)
    for name in "de":
        node.subscribe(name)
    first, _ = BrokerState(node.broker).positions()
    node.change(progress=[pb.Progress(cursor_id=first.cursor_id, last_sent=20, acked=[1, 20])])
    node.change(bookmark=pb.Bookmark(uid=7, name=b"here", sequence=3))
    node.trim(5)
    node.flush()


@pytest.mark.parametrize("harm", FLIPS.values(), ids=FLIPS)
def test_damaged_rows_are_told_and_the_group_is_made_again_from_its_log(node, harm):
    fill(node)
    before = node.state()
    last = node.log.last_index
    node.close()
    node.medium.medium.execute(harm)
    node.boot()

    assert node.storage.applied[1] == (0, 0)  # nothing of them is used
    *of_no_group, told = node.notes
    assert len(of_no_group) == (harm == FLIPS["whose row it is"])
    assert told.startswith("ERR state.db: ")
    assert "group 1 is made again from entry 1 of its log" in told
    assert node.storage.is_intact(1)
    assert node.storage.is_intact(2)
    node.apply(last)
    assert node.state() == before
    node.flush()
    node.close()
    node.notes.clear()
    assert node.boot().state() == before
    assert node.notes == []


def test_damaged_rows_name_file_and_row(node):
    fill(node)
    node.close()
    node.medium.medium.execute(FLIPS["a durable's state"])
    node.boot()
    assert "state.db: a row of cursors is damaged (raft_group 1, cursor_id 1: wrong checksum)" in node.notes[0]


def test_group_whose_log_has_forgotten_its_beginning_is_made_again_from_the_snapshot(node):
    node.segment_bytes = 600
    again_small(node)
    fill(node)
    node.trim(50)
    node.flush()
    node.release()
    node.release()
    assert node.log.first_index > 1
    before, last = node.state(), node.log.last_index
    node.close()
    node.medium.medium.execute(FLIPS["a column to look at"])
    node.boot()

    assert node.storage.applied[1][0] >= node.log.first_index - 1
    node.apply(last)
    assert node.state() == before
    node.flush()
    node.close()
    assert node.boot().state() == before


def again_small(node):
    node.close()
    node.boot()


def test_group_of_which_nothing_is_left_begins_empty(node):
    node.segment_bytes = 600
    again_small(node)
    fill(node)
    node.trim(50)
    node.flush()
    node.release()
    node.release()
    assert node.log.first_index > 1
    node.close()
    for path in node.files.paths():
        if path.endswith(".snap"):
            node.files.unlink(path)
    node.medium.medium.execute(FLIPS["a missing row"])
    node.boot()

    assert node.storage.is_intact(1), "what comes is whole from its beginning, as on a new disk"
    assert node.storage.members[GroupId(1)].hard_state.amnesiac
    assert "moved to /a/lost+found/group-1" in node.notes[0]
    assert "rows of group 1 are missing" in node.notes[0]


def test_row_that_became_one_of_a_group_that_there_is_not_is_told(node):
    """Of a group that has no other row, nothing else tells that there was one."""
    node.publish(3)
    node.flush()
    node.close()
    medium = node.medium.medium
    medium.execute("UPDATE applied SET raft_group = 77 WHERE raft_group = 2")
    node.boot()
    (told,) = node.notes
    assert told == "ERR state.db: rows of applied are damaged (of group 77, which there is not)"
    assert node.storage.applied[2] == (0, 0)
    node.notes.clear()
    node.close()
    node.boot()
    assert node.notes == []


def test_another_group_keeps_its_rows(node):
    fill(node)
    node.storage.applied[2] = (0, 0)
    node.close()
    node.medium.medium.execute("DELETE FROM applied WHERE raft_group = 2")
    node.boot()
    assert node.storage.applied[1][0] == node.log.last_index


# --- the file -----------------------------------------------------------------------------------------------------------------


def config_of(path):
    return Config(cluster_id="c", store=StoreConfig(kind="file", directory=path, raft_groups=1))


async def opened(config):
    storage = await Storage.open(config, ServerLog(LogConfig()))
    broker = Broker(config, lambda group, uid: storage.logs[group].channel(uid), b"_INBOX.x.")
    try:
        await StateLoader(storage, broker).load()
    except BaseException:
        await storage.close(clean=False)
        raise
    return storage, broker


def cut(share):
    def harm(path):
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])

    return harm


def flip(share):
    def harm(path):
        content = bytearray(path.read_bytes())
        content[int(len(content) * share)] ^= 4
        path.write_bytes(bytes(content))

    return harm


def garbage(path):
    path.write_bytes(b"this is no database" * 1000)


def nothing(path):
    path.write_bytes(b"")


def gone(path):
    path.unlink()


HARMS = [garbage, nothing, gone, *map(cut, (0.01, 0.3, 0.5, 0.9, 0.99)), *(flip(at / 40) for at in range(40))]


@pytest.mark.parametrize("harm", HARMS)
async def test_damaged_file_of_a_lone_server_is_made_again(tmp_path, harm, capfd):
    config = config_of(tmp_path)
    storage, broker = await opened(config)
    nuid = broker.view.nuid
    await storage.flush(broker)
    await storage.close(clean=True)
    harm(tmp_path / "state.db")

    storage, broker = await opened(config)
    assert broker.view.nuid == nuid
    await storage.flush(broker)
    await storage.close(clean=True)
    storage, broker = await opened(config)
    assert broker.view.nuid == nuid
    await storage.close(clean=True)
    if harm is garbage:
        assert list((tmp_path / "lost+found").glob("*state.db"))
        assert "state.db: file is not a database; moved to" in capfd.readouterr().err


async def test_lone_server_without_rows_and_with_half_a_log_says_what_to_do(tmp_path):
    config = config_of(tmp_path)
    storage, broker = await opened(config)
    store_id = storage.directory.manifest.store_bytes
    await storage.flush(broker)
    await storage.close(clean=True)
    with sqlite3.connect(tmp_path / "state.db") as rows:
        rows.execute("UPDATE applied SET term = 9 WHERE raft_group = 0")
    rows.close()
    (segment,) = (tmp_path / "groups" / "0").glob("*.log")
    segment.unlink()
    later = SegmentHeader(GroupId(0), RaftIndex(900), Term(1), store_id, 0)
    segment.with_name(segment_name(900)).write_bytes(later.encode())

    with pytest.raises(
        Damage, match=rf"^{tmp_path}/state.db: a row of applied is damaged.* restore the directory from a"
    ):
        await opened(config)


async def test_a_sound_file_stays_where_it_is(tmp_path):
    """SQLite 3.46 understands some statements in another way than 3.40."""
    path, notes = tmp_path / "state.db", []
    await (await Database.open(path)).close()
    await (await Database.recover(path, tmp_path / "lost+found", notes.append)).close()
    assert (notes, path.exists(), (tmp_path / "lost+found").exists()) == ([], True, False)


# --- versions -----------------------------------------------------------------------------------------------------------------


async def test_rows_of_a_later_version_are_refused(tmp_path):
    with sqlite3.connect(tmp_path / "state.db") as later:
        later.execute("PRAGMA user_version = 99")
    later.close()
    with pytest.raises(StartError, match="state of version 99, this program reads version"):
        await Database.open(tmp_path / "state.db")


async def test_a_full_disk_is_no_damage(tmp_path, monkeypatch):
    await (await Database.open(tmp_path / "state.db")).close()
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL

    async def full(_self):
        raise error

    monkeypatch.setattr(Database, "_make_tables", full)
    with pytest.raises(StartError, match="full"):
        await Database.recover(tmp_path / "state.db", tmp_path / "lost+found", print)
    assert (tmp_path / "state.db").exists()


# --- one hash of the whole state ----------------------------------------------------------------------------------------------


def test_hash_of_the_state_tells_its_rows_however_they_came_about(node):
    other = StorageNode("b").boot()
    fill(node)
    for one in node.entries():
        other.write([one])
        if one.index % 7 == 0:
            other.flush()
    other.flush()
    assert node.storage.rows.hashes(1)[-1] == other.storage.rows.hashes(1)[-1]
    node.close()
    assert node.boot().storage.rows.hashes(1)[-1] == other.storage.rows.hashes(1)[-1]

    number = change_in_memory(other.broker)
    for each in (node, other):
        each.change(progress=[pb.Progress(cursor_id=number, acked=[21, 21])])
        each.flush()
    mine, theirs = node.storage.rows.hashes(1)[-1], other.storage.rows.hashes(1)[-1]
    assert mine[0] == theirs[0]
    assert mine[1] != theirs[1]
    other.medium.close()


def test_hash_as_of_an_entry_in_between_is_remembered(node):
    other = StorageNode("b").boot()
    node.publish(2)
    node.subscribe("d")
    node.storage.hash_state(node.broker, GroupId(1))
    node.subscribe("e")
    node.flush()
    for one in node.entries()[:3]:
        other.write([one])
    other.flush()
    assert other.storage.rows.hashes(1)[-1] in node.storage.rows.hashes(1)
    before = node.state()
    node.close()
    assert node.boot().state() == before
    other.medium.close()

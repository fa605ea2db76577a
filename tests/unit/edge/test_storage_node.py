"""What a cluster node keeps: whose directory it is, where its state stands, and what it knows to have lost."""

import errno
import sqlite3

import pytest
from stan_protocol.scalars import GroupId

from stan.edge.storage.manifest import RecordedNodes, read_manifest
from stan.edge.storage.state_loader import StateLoader
from stan.errors import Damage, Frozen, NotNow, StartError
from stan.protocol.proto import entries_pb2 as pb
from stan.state.database import Changes
from stan.testing.loop import run_now
from tests.kit.batches import entry
from tests.kit.broker_state import BrokerState
from tests.kit.damage import written
from tests.kit.files import CrashingFiles, PowerCut
from tests.kit.storage import StorageNode


@pytest.fixture
def node():
    made = StorageNode().boot()
    yield made
    made.medium.close()


def damage(node, path, position):
    """Flip a byte of a file."""
    data = bytearray(written(node.files.content(path)))
    data[position] ^= 0xFF
    node.files.put(path, bytes(data))
    if (index_file := path.replace(".log", ".idx")) in node.files.names:
        node.files.unlink(index_file)  # else the segment is trusted until it is read
        node.files.sync_directory("/a/groups/1")


def segments(node):
    return [path for path in node.files.paths() if path.startswith("/a/groups/1/") and path.endswith(".log")]


def again(node, **how):
    """The next life after an orderly stop."""
    node.flush()
    node.close()
    return node.boot(**how)


def test_node_is_fresh_until_it_holds_or_promised_something(node):
    assert node.storage.fresh
    node.close()
    assert node.boot().storage.fresh  # nothing happened: as good as new
    node.storage.members[GroupId(1)].hard_state.save(1, "b")
    node.close()
    assert not node.boot().storage.fresh
    assert node.storage.members[GroupId(1)].hard_state.voted_for == "b"

    other = StorageNode("b").boot()
    other.publish(1)
    other.close()
    assert not other.boot().storage.fresh


def test_after_a_log_failed_the_next_life_doubts_what_was_sent(node):
    node.machine_boot = "one boot"
    again(node).publish(2)
    node.flush()
    node.close(clean=False)
    assert not node.boot().storage.unconfirmed
    node.log.append([entry(node.log.last_index + 1)])
    node.files.fail("fdatasync", 0, errno.EIO)
    with pytest.raises(Frozen):
        node.flush()
    node.files.open_files.clear()  # killed
    assert node.boot().storage.unconfirmed


def test_stop_on_a_full_disk_is_not_in_order_and_no_error(node):
    node.files.full = True
    node.close()
    node.files.full = False
    assert not read_manifest("/a", node.files).clean


def test_node_opens_only_its_groups(node):
    node.close()
    node.boot(groups=[GroupId(0), GroupId(2)], load=False)
    assert sorted(node.storage.logs) == [0, 2]
    node.load()
    assert sorted(node.storage.applied) == [0, 2]


def test_node_of_another_name_is_refused(node):
    node.close()
    stranger = StorageNode("b", files=node.files)
    stranger.files.rename("/a", "/b")
    with pytest.raises(StartError, match='is of node "a", not "b"'):
        stranger.boot()


def test_node_founds_no_cluster_and_applies_nothing_that_is_not_known_to_be_committed(node):
    node.publish(3)
    node.subscribe("d")
    node.flush()
    node.log.append([one._replace(index=5) for one in node.entries()[:1]])
    node.log.sync()
    before = node.state()
    node.close()
    node.boot()

    assert BrokerState(node.broker).cluster is None
    assert node.storage.logs[0].last_index == 0
    assert node.log.last_index == 5
    assert node.storage.applied[1] == (4, 1)
    assert node.state() == before
    assert [base for base, *_ in node.messages()] == [1, 3, 5]


def test_snapshot_file_newer_than_the_rows_replaces_them_whole(node):
    node.subscribe("gone")
    node.publish(20)
    node.flush()
    older = sqlite3.connect(":memory:")
    node.medium.medium.backup(older)
    member = BrokerState(node.broker).subscription()
    node.change(leave=pb.Leave(uid=7, subscription_id=member.subscription_id, unsubscribe=True))
    node.subscribe("here", term=2)
    node.trim(10, term=2)
    node.flush()
    node.release()
    before = node.state()
    node.close()
    older.backup(node.medium.medium)
    older.close()
    assert len(run_now(node.medium.open().snapshot(1)).cursors) == 1
    node.boot()

    assert node.state() == before
    assert node.storage.applied[1] == (before.applied_index, 2)
    assert node.messages()[0][0] == 9
    node.flush()
    rows = run_now(node.medium.open().snapshot(1))
    assert [cursor.name for cursor in rows.cursors] == [b"here"]
    assert [member.client_id for member in rows.subscriptions] == [b"here"]
    assert rows == before


def test_a_log_that_seals_a_segment_before_each_release_is_cleaned_all_the_same():
    node = StorageNode(segment_bytes=2000).boot()
    seal_another(node)
    path, whole = segments(node)[0], len(node.files.content(segments(node)[0]))
    node.trim(2 * node.log.sealed_index)  # nothing but the last message of the segment is left
    for _ in range(3):
        seal_another(node)
        node.flush()
        assert node.storage.files.snapshots.newest.get(1, 0) < node.log.sealed_index, "a snapshot comes first"
        node.release()
    assert len(node.files.content(path)) < whole / 2
    node.medium.close()


def seal_another(node):
    sealed = node.log.sealed_index
    while node.log.sealed_index == sealed:
        node.publish(1)


def test_rows_newer_than_the_snapshot_file_are_used(node):
    node.publish(20)
    node.flush()
    node.release()
    node.subscribe("later")
    before = node.state()
    assert again(node).state() == before
    assert not node.storage.rows._stale


@pytest.mark.parametrize("which", [0, 2, -2])
def test_node_knows_for_ever_that_entries_were_lost(node, which):
    node.publish(30)
    node.flush()
    node.storage.members[GroupId(1)].hard_state.mark_readmitted()
    path = segments(node)[which]
    node.close()
    damage(node, path, 200)
    node.boot()

    assert not node.storage.is_intact(1)
    assert node.storage.is_intact(2)
    assert not node.storage.fresh
    assert any("damaged at position" in line for line in node.notes)
    assert not again(node).storage.is_intact(1)
    assert node.log.last_index == 30
    assert node.storage.members[GroupId(1)].hard_state.amnesiac  # what it had acknowledged may be gone


@pytest.mark.parametrize("how", ["read", "entries"])
def test_damage_that_is_found_by_reading_is_known_after_a_restart(node, how):
    node.publish(30)
    path = segments(node)[1]
    node.flush()
    node.close()
    node.boot()
    node.files.names[path].live[140] ^= 0xFF
    assert node.storage.is_intact(1)
    with pytest.raises(Damage, match=path):
        node.messages() if how == "read" else node.entries()
    assert not node.storage.is_intact(1)
    assert not again(node).storage.is_intact(1)


def test_file_that_cannot_be_opened_now_is_no_damage(node):
    node.publish(30)
    node.flush()
    node.close()
    node.boot()
    node.files.fail("open", 0, errno.EMFILE)
    with pytest.raises(Damage, match="Too many open files"):
        node.messages()
    assert node.storage.is_intact(1)


def test_damage_that_cost_no_entry_leaves_the_log_whole(node):
    node.publish(30)
    node.flush()
    path = segments(node)[1]
    node.close()
    node.files.put(path, node.files.content(path) + b"garbage behind the last entry")
    node.files.unlink(path.replace(".log", ".idx"))
    node.boot()
    assert any("damaged at position" in line for line in node.notes)
    assert node.storage.is_intact(1)
    assert len(node.entries()) == 30


def test_loss_is_known_even_if_the_start_that_found_it_is_cut_short():
    for calls in range(1000):
        node = StorageNode().boot()
        node.publish(30)
        node.flush()
        node.storage.members[GroupId(1)].hard_state.mark_readmitted()
        path = segments(node)[1]
        node.close()
        damage(node, path, 200)
        node.files.cut_power_after(calls)
        try:
            node.boot()
        except PowerCut:
            node.power_cut(calls).boot()
            assert not node.storage.is_intact(1)
            assert node.storage.members[GroupId(1)].hard_state.amnesiac
            node.medium.close()
        else:
            assert calls > 10
            node.medium.close()
            return


def cut_the_log(node):
    """The end of the log is gone that the rows tell of."""
    last = segments(node)[-1]
    node.files.unlink(last)
    node.files.unlink(segments(node)[-1])


def lose_the_rows(node):
    """The beginning of the log was let go of, and there is neither row nor snapshot file."""
    node.medium.medium.executescript("DELETE FROM applied; DELETE FROM cursors")
    for path in node.files.paths():
        if path.endswith(".snap"):
            node.files.unlink(path)


@pytest.mark.parametrize("harm", [cut_the_log, lose_the_rows])
def test_state_and_log_that_do_not_fit_let_the_group_begin_empty(node, harm):
    node.publish(30)
    node.subscribe("d")
    node.trim(30)
    node.flush()
    node.release()
    node.storage.members[GroupId(1)].hard_state.mark_readmitted()
    node.close()
    harm(node)
    node.boot()

    assert node.storage.is_intact(1), "what comes is whole from its beginning, as on a new disk"
    assert node.storage.members[GroupId(1)].hard_state.amnesiac
    assert not node.storage.fresh
    assert (node.log.first_index, node.log.last_index) == (1, 0)
    assert node.storage.applied[1] == (0, 0)
    assert not BrokerState(node.broker).positions()
    assert [path for path in node.files.paths() if path.startswith("/a/lost+found/group-1/")]
    assert any(line.startswith("ERR") and "moved to /a/lost+found/group-1" in line for line in node.notes)
    assert run_now(node.medium.open().snapshot(1)) == pb.Snapshot()

    node.publish(2, term=3)
    assert again(node).storage.applied[1] == (2, 3)
    assert node.storage.members[GroupId(1)].hard_state.amnesiac


def test_server_alone_refuses_state_and_log_that_do_not_fit():
    node = StorageNode().boot()
    node.publish(5)
    node.flush()
    storage = node.storage
    changes = Changes()
    changes.put("applied", 1, 99, 1, 1)
    run_now(storage.rows.database.flush(changes))
    with pytest.raises(Damage, match=r"the state stands at entry 99.*from a backup"):
        run_now(StateLoader(storage, node.broker).load())


def test_frozen_log_holds_up_no_other_group(node):
    node.publish(1)
    node.flush()
    node.log.append([one._replace(index=2) for one in node.entries()])
    node.files.fail("fdatasync", 0, 5)
    node.storage.applied[2] = (1, 7)
    with pytest.raises(Exception, match="Input/output"):
        node.flush()
    assert run_now(node.medium.open().snapshot(2)).applied_term == 7
    assert run_now(node.medium.open().snapshot(1)).applied_index == 1


def test_two_directories_on_one_disk_do_not_meet():
    files = CrashingFiles()
    nodes = [StorageNode(name, files=files).boot() for name in "abc"]
    for count, node in enumerate(nodes, 1):
        node.publish(count)
    assert [node.log.last_index for node in nodes] == [1, 2, 3]


# --- groups that come and go --------------------------------------------------------------------------------------------------


def begin(node, number):
    """Hold a group, as a node does it while it runs."""
    run_now(node.storage.begin_group(number))
    node.broker.states.reset(number)
    run_now(StateLoader(node.storage, node.broker, replicated=True).load_group(number))


def end(node, number):
    node.broker.states.drop(number)
    return run_now(node.storage.end_group(number))


def test_a_group_that_is_given_up_is_put_aside_and_begun_anew_knows_nothing(node):
    one = GroupId(1)
    node.publish(3)
    node.subscribe("d")
    node.storage.members[one].hard_state.save(4, "b")
    node.storage.members[one].hard_state.mark_readmitted()
    node.flush()

    aside = end(node, one)
    assert [path for path in node.files.paths() if path.startswith(f"{aside}/") and path.endswith(".log")]
    assert not [path for path in node.files.paths() if path.startswith(("/a/groups/1/", "/a/raft/1/"))]
    node.flush()
    run_now(node.storage.release(node.broker))

    begin(node, one)
    state = node.storage.members[one].hard_state
    assert (state.term, state.amnesiac) == (0, True)
    assert (node.log.last_index, node.storage.applied[one], node.storage.is_intact(one)) == (0, (0, 0), True)
    assert not BrokerState(node.broker).positions(one)
    node.flush()
    assert node.notes == []


def flush_fails(node, monkeypatch):
    """The database writes nothing until the patch is undone."""

    async def full(*_changes):
        raise NotNow("state.db: database or disk is full")

    monkeypatch.setattr(node.storage.rows.database, "flush", full)


def test_rows_that_found_no_room_are_not_written_once_their_group_is_deleted(node, monkeypatch):
    node.publish(3)
    node.subscribe("d")
    flush_fails(node, monkeypatch)
    with pytest.raises(NotNow):
        node.flush()
    monkeypatch.undo()
    end(node, GroupId(1))
    node.flush()
    assert run_now(node.medium.open().snapshot(1)) == pb.Snapshot()


def test_what_waits_for_room_grows_with_the_rows_and_not_with_the_attempts(node, monkeypatch):
    flush_fails(node, monkeypatch)
    for _ in range(5):
        node.publish(1)
        node.subscribe("d")
        with pytest.raises(NotNow):
            node.flush()
    monkeypatch.undo()
    written, flush = [], node.storage.rows.database.flush

    async def counted(*changes):
        written.extend(changes)
        await flush(*changes)

    monkeypatch.setattr(node.storage.rows.database, "flush", counted)
    node.flush()
    (changes,) = [one for one in written if any(row[0] == 1 for row in one.upserts["applied"])]
    assert {table: len(rows) for table, rows in changes.upserts.items() if table in ("applied", "cursors")} == {
        "applied": 1,
        "cursors": 1,
    }
    assert len(BrokerState(again(node).broker).positions()) == 1


@pytest.mark.parametrize("operations", range(12))
def test_a_crash_while_a_group_is_given_up_leaves_no_promise_without_its_log(node, operations):
    one = GroupId(1)
    node.publish(3)
    node.storage.members[one].hard_state.save(4, "b")
    node.storage.members[one].hard_state.mark_readmitted()
    node.flush()
    node.files.cut_power_after(operations)
    try:
        end(node, one)
    except PowerCut:
        node.files = node.files.crash(operations)
    else:
        node.files.cut_at = None
        node.close()
    node.boot(load=False)
    assert node.log.last_index == 3 or node.storage.members[one].hard_state.amnesiac


def test_nodes_that_could_not_be_written_down_are_not_taken_for_known(node):
    node.files.fail("pwritev", 0, errno.EIO)
    with pytest.raises(OSError, match="error"):
        node.storage.directory.note_nodes(RecordedNodes(["a", "b"], 3, ["a", "c"], 2))
    assert node.storage.directory.manifest.nodes == RecordedNodes()


def test_what_is_known_of_the_nodes_outlives_a_restart(node):
    assert node.storage.directory.manifest.nodes == RecordedNodes()
    node.storage.directory.note_nodes(RecordedNodes(["a", "b"], 3, ["a", "c"], 2))
    again(node)
    assert node.storage.directory.manifest.nodes == RecordedNodes(["a", "b"], 3, ["a", "c"], 2)
    assert read_manifest("/a", node.files).nodes.version == 3

"""The whole state of a group, for a snapshot file or another node, is read from its rows, off the event loop and in pieces."""

import threading
from types import SimpleNamespace

import pytest
from stan_protocol.frames import Frame
from stan_protocol.scalars import GroupId

from stan.edge.cluster.group_sync import GroupSync
from stan.edge.storage import state_rows
from stan.edge.storage.state_loader import StateLoader
from stan.edge.storage.storage import in_thread
from stan.edge.storage.transfer_codec import Header, Status, Verb, decode, encode
from stan.errors import NotNow
from stan.protocol.proto import entries_pb2 as pb
from stan.state import database
from stan.state.database import Database
from stan.testing.loop import run_now
from tests.kit.storage import StorageNode

ONE = GroupId(1)
DURABLES = 25


@pytest.fixture
def node():
    made = StorageNode().boot()
    for number in range(DURABLES):
        made.subscribe(f"d{number}")
    made.publish(20)
    made.flush()
    yield made
    made.medium.close()


def on_disk(node):
    """The newest snapshot file of group 1."""
    index = node.storage.files.snapshots.find(ONE)
    return node.storage.files.snapshots.read(ONE, index)


async def test_a_worker_thread_reads_the_state_beside_the_flushes(node, tmp_path):
    rows = await Database.open(tmp_path / "state.db")
    node.storage.rows.database, node.storage.offload = rows, in_thread
    node.broker.states.touch_all(ONE)
    node.storage.rows.flushed.clear()
    await node.storage.flush(node.broker)
    before, threads, read = node.state(), [], rows.read_state
    rows.read_state = lambda number: (threads.append(threading.current_thread()), read(number))[1]
    node.subscribe("later")
    await node.storage.release(node.broker)
    await rows.close()

    assert threads
    assert threading.main_thread() not in threads
    assert on_disk(node) == before, "as of the last flush"


async def test_a_worker_thread_makes_the_state_of_a_copy_which_replaces_the_old_one_in_one_step(node, monkeypatch):
    before, calls, reset = node.state(), [], node.broker.states.reset

    async def offload(call):
        calls.append(call.func.__name__)
        return await in_thread(call)

    monkeypatch.setattr(node.broker.states, "reset", lambda *made: (calls.append("put in place"), reset(*made)))
    monkeypatch.setattr(node.storage, "offload", offload)
    await StateLoader(node.storage, node.broker, replicated=True).load_group(ONE)

    assert calls[-2:] == ["restored", "put in place"]
    assert calls.count("put in place") == 1
    assert node.state() == before


def test_a_state_is_serialized_in_pieces(node, monkeypatch):
    before, sizes, made = node.state(), [], database._as_snapshot
    monkeypatch.setattr(database, "ROWS_AT_ONCE", 10)
    monkeypatch.setattr(
        database, "_as_snapshot", lambda part: (sizes.append(sum(map(len, part.values()))), made(part))[1]
    )
    node.release()

    assert max(sizes) == 10
    assert sum(sizes) > 2 * DURABLES
    assert on_disk(node) == before


def test_rows_that_are_damaged_while_the_node_runs_are_written_again_from_memory(node):
    node.medium.medium.execute("UPDATE cursors SET last_sent = last_sent + 1 WHERE cursor_id = 1")
    node.release()
    assert [note for note in node.notes if "a row of cursors is damaged" in note and "written again" in note]
    assert not node.storage.files.snapshots.find(ONE)
    assert node.log.first_index == 1, "nothing is let go that the state is to be made of"
    node.flush()
    node.release()
    assert on_disk(node) == node.state()
    assert run_now(node.medium.open().snapshot(1)) == node.state()


def test_a_state_that_no_flush_has_written_yet_is_not_read(node):
    with pytest.raises(NotNow, match="was not written yet"):
        node.storage.read_state(GroupId(2))


def test_many_changed_rows_are_taken_slice_by_slice_and_written_as_of_one_entry(node, monkeypatch):
    monkeypatch.setattr(state_rows, "ROWS_AT_ONCE", 10)
    slices, add, index = [], state_rows.add_some_rows, node.storage.applied[ONE][0]

    def noted(changes, number, rows):
        slices.append(len(rows.cursors) + len(rows.subscriptions))
        add(changes, number, rows)

    async def turn(call):
        call()
        if len(slices) == 3:  # something happens in between: to a row that was taken, and to others
            node.change(progress=[pb.Progress(cursor_id=number, last_sent=9) for number in range(1, DURABLES)])

    monkeypatch.setattr(state_rows, "add_some_rows", noted)
    node.storage.offload = turn
    node.broker.states.touch_all(ONE)
    node.change(trim=pb.Trim(first_sequences=[7, 2]))
    node.flush()

    assert max(slices) <= 10
    assert len(slices) > 2 * DURABLES // 10
    assert node.storage.rows.flushed[ONE] == index + 2
    assert run_now(node.medium.open().snapshot(1)) == node.state()


class Serving:
    """A node whose group is asked for; what it does in worker threads waits in `work`."""

    def __init__(self, node):
        self.work, self.said = [], []
        runtime = SimpleNamespace(now=lambda: 0, work=lambda call, done: self.work.append((call, done)))
        self.host = SimpleNamespace(
            environment=SimpleNamespace(runtime=runtime),
            storage=node.storage,
            broker=node.broker,
            gateway=SimpleNamespace(
                subscribe=lambda _subject, _heard: None, connection=SimpleNamespace(write=self.said.append)
            ),
            within=lambda _number, call, *args: call(*args),
        )
        self.sync = GroupSync(self.host)

    def asks(self, session=5):
        request = encode(Header(Verb.OPEN, 0, 1, session, 0, 0, 0))
        self.sync._requested(Frame(9, b"x", b"reply", b"", request))

    def goes_on(self):
        waiting, self.work = self.work, []
        for call, done in waiting:
            call()
            done(None)

    def status(self):
        (said,) = self.said
        self.said.clear()
        return decode(said.split(b"\r\n", 1)[1][:-2])[0].status


def test_another_node_is_answered_when_a_worker_thread_has_read_the_state(node):
    serving = Serving(node)
    serving.asks()
    serving.asks()  # as no answer came yet
    assert len(serving.work) == 1
    assert serving.said == []
    serving.goes_on()
    assert serving.status() == Status.FINE
    serving.asks()
    assert serving.work == [], "the session is open"
    assert serving.status() == Status.FINE


def test_another_node_is_refused_a_state_that_cannot_be_read_and_it_is_written_again(node):
    node.medium.medium.execute("UPDATE cursors SET last_sent = last_sent + 1 WHERE cursor_id = 1")
    serving = Serving(node)
    serving.asks()
    serving.goes_on()
    assert serving.status() == Status.REFUSED
    node.flush()
    serving.asks()
    serving.goes_on()
    assert serving.status() == Status.FINE


def test_a_log_that_has_gone_on_since_the_state_was_read_is_not_sent_with_it(node):
    serving = Serving(node)
    serving.asks()
    call, done = serving.work.pop()
    call()
    node.publish(20)
    node.trim(60)
    node.flush()
    for _ in range(3):
        node.release()
    assert node.log.first_index > 50
    done(None)
    assert serving.status() == Status.REFUSED

"""What PySyncObj 0.3.17 does wrong, and what the shell makes of it: each hazard once on the bare library, once on a group.

Tests named `..._bare_library_...` show the fault itself. If one of them fails, the library has changed: look whether the part of
the shell that keeps the fault out may go. Never run the project without the other half of the pair.
"""

import ast
import contextlib
import copy
import os
import pickle
import re
import socket
import struct
import zlib
from pathlib import Path

import pytest
from pysyncobj import SyncObj, replicated
from pysyncobj.config import SERIALIZER_STATE
from pysyncobj.journal import FileJournal, MemoryJournal
from pysyncobj.poller import createPoller
from pysyncobj.tcp_connection import TcpConnection

import stan.raft
from stan import limits
from stan.errors import NotNow
from stan.invariant import InvariantError
from stan.log.files.filelog import FileLog
from stan.log.types import Entry
from stan.protocol.entries import Kind
from stan.raft.transport import codec
from stan.raft.transport.codec import AppendAnswer, AppendEntries, FrameError, TimeoutNow, VoteAnswer, VoteRequest
from tests.raft.rigs import Safe, Stock, entry


def meta(index, term, body=b"x"):
    return Entry(index, term, Kind.META, body)


def metas(first, last, term):
    return [meta(index, term) for index in range(first, last + 1)]


def append(term, commit, prev, entries, seq=1):
    return AppendEntries(term, commit, prev[0], prev[1], seq, entries)


def stock_append(term, commit, prev, entries):
    return {
        "type": "append_entries",
        "term": term,
        "commit_index": commit,
        "prevLogIdx": prev[0],
        "prevLogTerm": prev[1],
        "entries": entries,
    }


# --- S1, S5: matching entries are truncated ---------------------------------------------------------------------------


def test_s1_bare_library_truncates_acknowledged_entries_on_a_perfect_network(monkeypatch):
    below = []
    acked = {}

    def note_acks(rig):
        for source, _, message in rig.sent:
            if message["type"] == "next_node_idx" and message["success"]:
                acked[source] = max(acked.get(source, 0), message["next_node_idx"] - 1)

    original = MemoryJournal.deleteEntriesFrom

    def delete(self, position):
        original(self, position)
        below.extend(
            name
            for name, node in rig.nodes.items()
            if node._SyncObj__raftLog is self and self[-1][1] < acked.get(name, 0)
        )

    monkeypatch.setattr(MemoryJournal, "deleteEntriesFrom", delete)
    rig = Stock(2, appendEntriesUseBatch=False).start_all()
    leader = rig.elect()
    for _ in range(8):  # a pipeline: commands go out while answers are on the way
        leader._applyCommand(b"\x01", None)
        rig.tick(0.02)
        note_acks(rig)
        rig.deliver()
        note_acks(rig)
    assert below


def test_s5_bare_library_truncates_for_an_older_message():
    rig = Stock(3)
    follower = rig.start("n0")
    rig.give("n0", "n1", **stock_append(1, 1, (1, 0), [entry(i, 1) for i in range(2, 6)]))
    assert follower._getRaftLogSize() == 5
    rig.give("n0", "n1", **stock_append(1, 1, (1, 0), [entry(2, 1)]))
    assert follower._getRaftLogSize() == 2


def test_s1_s5_group_keeps_what_matches():
    rig = Safe(3)
    node = rig.start("n0")
    rig.give("n0", "n1", append(1, 0, (0, 0), metas(1, 5, 1)))
    writes = node.files.calls
    for message in (
        append(1, 0, (0, 0), metas(1, 2, 1), 2),
        append(1, 0, (2, 1), [], 3),
        append(1, 0, (1, 1), metas(2, 5, 1), 1),
    ):
        rig.give("n0", "n1", message)
        assert node.log.last_index == 5
    assert node.files.calls == writes
    rig.give("n0", "n1", append(1, 0, (3, 1), metas(4, 7, 1), 4))
    assert node.log.last_index == 7


def test_s1_group_cuts_only_behind_a_real_conflict():
    rig = Safe(3)
    node = rig.start("n0")
    rig.give("n0", "n1", append(1, 2, (0, 0), metas(1, 5, 1)))
    rig.give("n0", "n2", append(2, 2, (2, 1), [meta(3, 1), meta(4, 2)]))
    assert [node.log.term_at(index) for index in range(1, 6)] == [1, 1, 1, 2, 0]


CONTRADICTIONS = {
    "another entry in the place of a committed one": append(2, 0, (1, 1), [meta(2, 2)]),
    "an entry behind a committed one of another term": append(2, 0, (3, 2), [meta(4, 2)]),
    "one further down": append(2, 0, (2, 2), [meta(3, 2), meta(4, 2)]),
    "nothing, behind a committed one of another term": append(2, 3, (3, 2), []),
}


@pytest.mark.parametrize("message", CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_s1_group_freezes_rather_than_follow_a_leader_that_contradicts_what_is_committed(message):
    """Else it would append what follows behind another beginning than the leader's."""
    rig = Safe(3)
    node = rig.start("n0")
    rig.give("n0", "n1", append(1, 3, (0, 0), metas(1, 5, 1)))
    assert rig.give("n0", "n2", message) == []
    assert re.search(r"entry \d of term 1 is committed here, for the leader it is of term 2", node.group.failed)
    assert any(node.group.failed in note for note in rig.notes)
    assert [node.log.term_at(index) for index in range(1, 7)] == [1, 1, 1, 1, 1, 0]


def test_s1_group_replaces_what_is_behind_the_committed_entries():
    rig = Safe(3)
    node = rig.start("n0")
    rig.give("n0", "n1", append(1, 3, (0, 0), metas(1, 5, 1)))
    rig.give("n0", "n2", append(2, 3, (2, 1), [meta(3, 1), meta(4, 1), meta(5, 2)]))
    assert not node.group.failed
    assert node.log.last_term == 2


# --- votes --------------------------------------------------------------------------------------------------------------


def test_votes_bare_library_forgets_its_vote_and_gives_it_twice():
    rig = Stock(3)
    votes = []
    for candidate in ("n1", "n2"):
        rig.start("n0")
        votes += rig.give("n0", candidate, type="request_vote", term=5, last_log_index=9, last_log_term=4)
    assert votes == [{"type": "response_vote", "term": 5}] * 2


def test_votes_bare_library_syncs_neither_vote_nor_entries(tmp_path, monkeypatch):
    syncs = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, syncs.append)
    monkeypatch.setattr(FileJournal, "flush", syncs.append)
    rig = Stock(3, journalFile=str(tmp_path / "journal"))
    rig.start("n0")
    assert rig.give("n0", "n1", type="request_vote", term=5, last_log_index=9, last_log_term=4)
    (answer,) = rig.give("n0", "n1", **stock_append(5, 1, (1, 0), [entry(2, 5)]))
    assert answer["success"]
    assert syncs == []


def test_votes_group_remembers_its_vote_over_a_power_loss():
    rig = Safe(3)
    node = rig.start("n0")
    request = VoteRequest(5, 9, 4, pre=False, transfer=False)
    rig.wait()
    assert rig.give("n0", "n1", request) == [VoteAnswer(5, pre=False, granted=True)]
    for seed in range(10):
        rig.start("n0", files=node.files.crash(seed))
        rig.wait()
        assert rig.give("n0", "n2", request) == []
        assert rig.nodes["n0"].group.term == 5


def test_answers_group_answers_only_what_is_durable():
    rig = Safe(3)
    node = rig.start("n0")
    assert rig.give("n0", "n1", append(1, 0, (0, 0), metas(1, 3, 1))) == []
    (answer,) = rig.give("n0", "n1", append(1, 0, (3, 1), [], 2))  # a heartbeat is answered, with what counts
    assert (answer.success, answer.next_index) == (True, 1)
    node.sync()
    node.group.turn()
    assert rig.sent[-1] == ("n0", "n1", AppendAnswer(1, 2, 4, success=True, reset=False))


def test_answers_group_leader_counts_itself_only_as_far_as_it_is_durable():
    rig = Safe(3).start_all()
    group = rig.elect()
    rig.give("n0", "n1", AppendAnswer(1, 0, 2, success=True, reset=False))
    group.turn()
    rig.give("n0", "n1", AppendAnswer(1, 1, 2, success=True, reset=False))
    group.turn()
    assert group.commit_index == 0
    rig.nodes["n0"].sync()
    group.turn()
    assert group.commit_index == 1


def test_answers_group_hands_out_nothing_that_is_not_durable_here():
    rig = Safe(3)
    node = rig.start("n0")
    rig.give("n0", "n1", append(1, 3, (0, 0), metas(1, 3, 1)))
    assert node.group.commit_index == 3
    assert not node.group.has_committed
    assert node.group.take_committed() == []
    node.sync()
    node.take()
    assert [e.index for e in node.handed] == [1, 2, 3]


# --- S2: commit over an unverified suffix -------------------------------------------------------------------------------


def test_s2_bare_library_commits_entries_that_nobody_verified():
    rig = Stock(3)
    follower = rig.start("n0")
    rig.give("n0", "n1", **stock_append(1, 1, (1, 0), [entry(i, 1) for i in range(2, 6)]))
    rig.give("n0", "n2", type="append_entries", term=2, commit_index=4, serialized=None)
    assert follower.raftCommitIndex == 4


def test_s2_group_commits_no_further_than_the_message_verifies():
    rig = Safe(3)
    node = rig.start("n0")
    rig.give("n0", "n1", append(1, 0, (0, 0), metas(1, 5, 1)))
    node.sync()
    rig.give("n0", "n2", append(2, 4, (2, 1), []))
    assert node.group.commit_index == 2
    rig.give("n0", "n2", append(2, 4, (9, 2), [], 2))
    assert node.group.commit_index == 2
    rig.give("n0", "n2", append(2, 1, (2, 1), [], 3))
    assert node.group.commit_index == 2, "it never goes back"


# --- S3: answers of an earlier leadership -------------------------------------------------------------------------------


def test_s3_bare_library_commits_by_answers_to_an_earlier_leadership():
    rig = Stock(5)
    rig.start("n0")
    leader = rig.elect()
    for _ in range(8):
        leader._applyCommand(b"\x01", None)
    rig.tick()
    assert leader._getRaftLogSize() == 10
    late = {
        "type": "next_node_idx",
        "next_node_idx": 11,
        "reset": False,
        "success": True,
    }  # n1 and n2 hold all ten, then
    rig.give("n0", "n4", **stock_append(2, 1, (1, 0), [entry(2, 2)]))  # another leader replaces them everywhere
    assert leader._getRaftLogSize() == 2
    rig.elect()
    for _ in range(4):
        leader._applyCommand(b"\x01", None)
    rig.tick()
    rig.give("n0", "n1", **late)
    rig.give("n0", "n2", **late)
    rig.tick()
    assert leader.raftCommitIndex == leader._getRaftLogSize() == 7  # on one of five nodes


def test_s3_group_drops_answers_of_another_term():
    rig = Safe(5).start_all()
    group = rig.elect()
    rig.nodes["n0"].sync()
    late = AppendAnswer(group.term, 1, 2, success=True, reset=False)
    group._raft.library.step_down()
    group = rig.elect()
    rig.nodes["n0"].sync()
    for peer in ("n1", "n2", "n3", "n4"):
        rig.give("n0", peer, late)
    group.turn()
    assert group.commit_index == 0
    assert set(group.progress().values()) == {0}


def test_s3_group_leader_that_hears_of_a_newer_term_steps_down():
    rig = Safe(3).start_all()
    group = rig.elect()
    rig.give("n0", "n1", AppendAnswer(group.term + 4, 1, 0, success=False, reset=False))
    assert not group._raft.library.is_leader
    assert group.term == 5


# --- S4: votes counted twice --------------------------------------------------------------------------------------------


def test_s4_bare_library_counts_one_voter_twice():
    rig = Stock(5)
    node = rig.start("n0")
    node._SyncObj__raftElectionDeadline = 0.0
    node.doTick(0.0)
    for _ in range(2):
        rig.give("n0", "n1", type="response_vote", term=1)
    assert node._isLeader()


def test_s4_group_counts_every_voter_once():
    rig = Safe(5).start_all()
    group = rig.nodes["n0"].group
    rig.now += 2 * 10**9
    group.turn()
    for _ in range(4):
        rig.give("n0", "n1", VoteAnswer(1, pre=True, granted=True))
        group.turn()
    assert group.term == 0, "one answer is no majority of the pre-vote"
    rig.give("n0", "n2", VoteAnswer(1, pre=True, granted=True))
    group.turn()
    assert group.term == 1
    for _ in range(4):
        rig.give("n0", "n1", VoteAnswer(1, pre=False, granted=True))
        rig.give("n0", "stranger", VoteAnswer(1, pre=False, granted=True))
    assert not group._raft.library.is_leader
    rig.give("n0", "n2", VoteAnswer(1, pre=False, granted=True))
    assert group._raft.library.is_leader


# --- S6: large commands ---------------------------------------------------------------------------------------------------


def test_s6_bare_library_fails_on_a_large_command_of_its_own_leader():
    """It cuts the command into pieces and takes the last but one for the end. A link that is reset by that never gets over it."""
    rig = Stock(2).start_all()
    leader = rig.elect()
    rig.run(1)
    before, errors = leader.raftCommitIndex, []
    leader._applyCommand(b"\x01" + os.urandom(100_000), None)
    leader._applyCommand(b"\x01", None)
    for _ in range(100):
        rig.tick()
        try:
            rig.deliver()
            rig.deliver()
        except (pickle.UnpicklingError, EOFError, ValueError) as error:
            errors.append(error)
            rig.sent.clear()
    assert len(errors) >= 10
    assert leader.raftCommitIndex == before


@pytest.mark.parametrize("size", [64 * 1024, limits.RAFT_APPEND_BYTES_MAX, 3 * limits.RAFT_APPEND_BYTES_MAX])
def test_s6_group_commits_large_commands(rig, size):
    body = os.urandom(size)
    rig.leader().group.propose([(Kind.META, body), (Kind.META, b"next")], urgent=True)
    rig.run(0.5)
    assert all(node.applied() == [body, b"next"] for node in rig.nodes.values())


# --- S7, S8: the journal is cleared, or rewritten in place ------------------------------------------------------------------


def test_s7_bare_library_clears_its_journal_when_the_dump_is_newer(tmp_path):
    state = [SERIALIZER_STATE.NOT_SERIALIZING]
    options = {
        "journalFile": str(tmp_path / "journal"),
        "fullDumpFile": str(tmp_path / "dump"),
        "useFork": False,
        "serializer": lambda path, data: Path(path).write_bytes(pickle.dumps(data)),
        "deserializer": lambda path: pickle.loads(Path(path).read_bytes()),  # noqa: S301
        "serializeChecker": lambda: state[0],
    }
    rig = Stock(1, **options)
    node = rig.start("n0")
    rig.run(3)
    for _ in range(5):
        node._applyCommand(b"\x01", None)
    rig.run(1)
    node.forceLogCompaction()
    rig.tick()
    state[0] = SERIALIZER_STATE.SERIALIZING  # the dump has its name, the journal is not cut yet
    for _ in range(10):
        node._applyCommand(b"\x01", None)
    rig.run(1)
    size, commit = node._getRaftLogSize(), node.raftCommitIndex
    assert commit == size == 17
    node._doDestroy()

    again = rig.start("n0")
    rig.tick()

    assert again._getRaftLogSize() == 2, "ten committed entries are gone"
    again._doDestroy()


def test_s8_bare_library_shortens_its_journal_when_it_dies_while_compacting(tmp_path, monkeypatch):
    path = str(tmp_path / "journal")
    journal = FileJournal(path)
    for index in range(1, 101):
        journal.add(b"\x01", index, 1)
    added, original = [], FileJournal.add

    def add(self, *arguments):
        added.append(arguments)
        if len(added) > 30:
            raise KeyboardInterrupt
        original(self, *arguments)

    monkeypatch.setattr(FileJournal, "add", add)
    with pytest.raises(KeyboardInterrupt):
        journal.deleteEntriesTo(10)
    again = FileJournal(path)
    assert again[-1][1] < 100
    again._destroy()


def test_s7_s8_group_has_no_way_to_clear_or_rewrite_its_log():
    rig = Safe(3)
    node = rig.start("n0")
    rig.give("n0", "n1", append(1, 3, (0, 0), metas(1, 5, 1)))
    node.sync()
    shell = node.group._raft
    with pytest.raises(InvariantError):
        shell.journal.clear()
    with pytest.raises(InvariantError):
        shell.journal.deleteEntriesTo(2)
    with pytest.raises(InvariantError):
        shell.library._SyncObj__loadDumpFile(clearJournal=True)
    shell.library.forceLogCompaction()
    node.group.turn()
    again = rig.start("n0", files=node.files)
    assert again.log.last_index == 5


# --- S9, S10: callbacks --------------------------------------------------------------------------------------------------


class Counter(SyncObj):
    """A replicated counter with a poison pill."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.calls = 0

    @replicated
    def count(self, poison=None):
        self.calls += 1
        if poison:
            raise ValueError


def test_s9_bare_library_applies_twice_when_a_callback_fails_and_for_ever_when_the_machine_does():
    rig = Stock(1, cls=Counter)
    node = rig.start("n0")
    rig.run(3)

    def fail(result, error):
        raise KeyError

    node.count(callback=fail)
    for _ in range(2):
        with contextlib.suppress(KeyError):
            rig.run(0.5)
    rig.run(0.5)
    assert node.calls == 2
    node.count(poison=True)
    for _ in range(5):
        try:
            rig.tick()
            rig.tick()
        except ValueError:
            pass
    assert node.calls > 4


def test_s9_group_hands_an_entry_out_once_whatever_its_owner_does(rig):
    rig.leader().group.propose([(Kind.META, b"one"), (Kind.META, b"two")], urgent=True)
    rig.run(0.5)
    assert all(node.applied() == [b"one", b"two"] for node in rig.nodes.values())
    assert [node.group.take_committed() for node in rig.nodes.values()] == [[], [], []]


def test_s10_bare_library_never_calls_back_when_an_answer_is_lost():
    rig = Stock(3).start_all()
    rig.elect()
    rig.run(1)
    answers = []
    rig.nodes["n1"]._applyCommand(b"\x01", lambda *args: answers.append(args))
    rig.run(60, drop=lambda _source, _target, message: message["type"] == "apply_command_response")
    assert rig.nodes["n1"].raftCommitIndex == 3
    assert answers == []


def test_s10_group_gives_up_the_room_of_proposals_that_nobody_commits(rig):
    old = rig.leader()
    with pytest.raises(NotNow):
        rig.nodes["n1"].group.propose([(Kind.META, b"elsewhere")], urgent=True)

    def cut(source, target, _message):
        return old.name in (source, target)

    old.group.propose([(Kind.META, b"x")] * limits.RAFT_PROPOSALS_IN_FLIGHT, urgent=True)
    rig.run(4, drop=cut)
    assert not old.group.has_room
    old.group.take_news()
    rig.run(2, drop=cut)
    assert old.group.has_room
    assert old.group.take_news()
    assert not old.group.take_news(), "it is told once"


def test_s10_group_never_hands_a_replaced_proposal_out(rig):
    old = rig.leader()
    old.group.propose([(Kind.META, b"lonely")], urgent=True)
    rig.run(2.5, drop=lambda source, target, _: old.name in (source, target))
    rig.run(1)
    assert old.group.has_room
    assert all(b"lonely" not in node.applied() for node in rig.nodes.values())


# --- S11: slow way back after a conflict -------------------------------------------------------------------------------------

CONFLICT = 60


def test_s11_bare_library_goes_back_one_entry_per_heartbeat():
    rig = Stock(3)
    leader, follower = rig.start("n0"), rig.start("n1")
    rig.give("n0", "n2", **stock_append(2, 1, (1, 0), [entry(i, 2) for i in range(2, CONFLICT)]))
    rig.give("n1", "n2", **stock_append(1, 1, (1, 0), [entry(i, 1) for i in range(2, CONFLICT)]))
    rig.elect()
    rig.sent.clear()
    rounds = 0
    while follower.raftCommitIndex < leader._getRaftLogSize() and rounds < 500:
        rig.tick(0.11)
        rig.deliver()
        rig.deliver()
        rounds += 1
    assert rounds >= CONFLICT - 5


def test_s11_group_is_back_after_a_few_messages():
    rig = Safe(3)
    leader, follower = rig.start("n0"), rig.start("n1")
    rig.give("n0", "n2", append(2, 0, (0, 0), metas(1, CONFLICT, 2)))
    rig.give("n1", "n2", append(1, 0, (0, 0), metas(1, CONFLICT, 1)))
    rig.elect()
    rounds = 0
    while follower.group.commit_index < leader.log.last_index and rounds < 500:
        rig.tick(110)
        rig.deliver()
        for node in rig.nodes.values():
            node.sync()
        rounds += 1
    assert rounds <= 10


# --- S12, S13, S14: snapshots and pickles from the network ------------------------------------------------------------


def test_s12_bare_library_acknowledges_a_snapshot_that_it_could_not_read():
    rig = Stock(3)
    rig.start("n0")
    (answer,) = rig.give("n0", "n1", type="append_entries", term=1, commit_index=1, serialized=(b"garbage", True, True))
    assert answer["success"]


def test_s13_bare_library_is_silent_while_it_gets_a_snapshot():
    rig = Stock(3)
    rig.start("n0")
    for at in range(5):
        assert (
            rig.give("n0", "n1", type="append_entries", term=1, commit_index=1, serialized=(b"part", at == 0, False))
            == []
        )


def test_s12_s13_group_reports_who_needs_a_snapshot_and_keeps_talking_to_it(rig):
    leader = rig.leader()
    for _ in range(30):
        leader.group.propose([(Kind.META, b"x" * 100)], urgent=True)
    rig.run(0.5, drop=lambda _source, target, _message: target == "n2")
    leader.log.__class__ = Shorter
    rig.run(3)
    assert leader.lacking == ["n2"]
    assert leader.group.leads
    assert rig.nodes["n2"].log.last_index < 20
    assert rig.nodes["n2"].group.leader == leader.name


class Shorter(FileLog):
    """A log whose oldest entries were deleted."""

    @property
    def first_index(self):
        return 20


class Bomb:
    """What an attacker sends."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_s14_bare_library_runs_code_from_the_network(tmp_path):
    proof = str(tmp_path / "proof")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.0)
        poller = createPoller("auto")
        seen = []
        TcpConnection(poller, onMessageReceived=seen.append, socket=ours)
        data = zlib.compress(pickle.dumps(Bomb(proof)))
        theirs.sendall(struct.pack("i", len(data)) + data)
        for _ in range(5):
            poller.poll(0.05)
    assert Path(proof).is_dir()


def test_s14_group_runs_nothing_from_the_network(tmp_path):
    proof = str(tmp_path / "proof")
    data = pickle.dumps(Bomb(proof))
    for frame in (data, zlib.compress(data), struct.pack("i", len(data)) + data):
        with pytest.raises(FrameError):
            list(codec.decode(frame))
    rig = Safe(3)
    node = rig.start("n0")
    rig.give("n0", "n1", append(1, 1, (0, 0), [meta(1, 1, data)]))
    node.sync()
    node.take()
    assert node.applied() == [data]
    assert not Path(proof).exists()
    for path in Path(stan.raft.__file__).parent.glob("*.py"):
        for part in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in part.names] if isinstance(part, ast.Import | ast.ImportFrom) else []
            assert "pickle" not in [*names, getattr(part, "module", None)], path


# --- S15: no flow control ------------------------------------------------------------------------------------------------------

BACKLOG = 24


def test_s15_bare_library_pushes_its_whole_backlog_at_once():
    rig = Stock(2)
    rig.start("n0")
    leader = rig.elect()
    for _ in range(BACKLOG):
        leader._applyCommand(b"\x01" + bytes(1 << 19), None)
    rig.tick(0.01)
    rig.sent.clear()
    rig.tick(0.2)
    size = sum(len(e[0]) for _, _, m in rig.sent for e in m.get("entries", ())) + sum(
        len(m.get("data", b"")) for _, _, m in rig.sent
    )
    assert size >= BACKLOG << 19


def test_s15_group_keeps_to_a_window_per_follower(rig):
    leader = rig.leader()
    for _ in range(BACKLOG):
        leader.group.propose([(Kind.META, bytes(1 << 19))], urgent=True)
    for _ in range(6):
        rig.tick(100)
    for peer in ("n1", "n2"):
        size = sum(
            len(e.body) for _, to, m in rig.sent if to == peer and isinstance(m, AppendEntries) for e in m.entries
        )
        assert 0 < size <= limits.RAFT_WINDOW_BYTES_MAX
    rig.run(1)
    assert all(len(node.applied()) == BACKLOG for node in rig.nodes.values())


# --- S16: stale leaders, needless elections ------------------------------------------------------------------------------------


def test_s16_bare_library_inflates_its_term_alone_and_leads_alone_for_long():
    rig = Stock(3)
    rig.start("n0")
    rig.run(20)
    assert rig.nodes["n0"].raftCurrentTerm > 5
    rig = Stock(3)
    leader = rig.start("n0")
    rig.elect()
    rig.run(20)
    assert leader._isLeader()
    assert rig.give("n0", "n1", **stock_append(0, 0, (1, 0), [])) == [], "a stale leader learns nothing"


def test_s16_group_keeps_its_term_while_alone_and_steps_down_within_a_lease():
    rig = Safe(3)
    rig.start("n0")
    rig.run(20)
    assert rig.nodes["n0"].group.term == 0

    rig = Safe(3).start_all()
    rig.elect()
    rig.run(0.5)
    leader = rig.leader()
    rig.run(1.2, drop=lambda *_: True)
    assert not leader.group.leads
    assert leader.group.leader is None


def test_s16_group_tells_a_stale_leader_and_keeps_a_live_one(rig):
    term = rig.leader().group.term
    (answer,) = rig.give("n1", "n2", append(term - 1, 0, (0, 0), []))
    assert answer == AppendAnswer(term, 1, 0, success=False, reset=False)
    for pre in (True, False):
        rig.give("n1", "n2", VoteRequest(term + 3, 99, term + 2, pre, transfer=False))
        rig.give("n0", "n2", VoteRequest(term + 3, 99, term + 2, pre, transfer=False))
    assert rig.nodes["n1"].group.term == term
    assert rig.leader().name == "n0"


def test_s16_group_rejoins_after_a_partition_without_an_election(rig):
    term = rig.leader().group.term
    rig.run(5, drop=lambda source, target, _: "n2" in (source, target))
    rig.run(1)
    assert {node.group.term for node in rig.nodes.values()} == {term}


# --- matters of the shell itself ------------------------------------------------------------------------------------------------


def test_answers_and_orders_of_a_stranger_change_nothing():
    """Entries and requests for votes are taken: the voter may be one that this member has not heard of yet."""
    rig = Safe(3)
    node = rig.start("n0")
    answers = (AppendAnswer(9, 1, 1, success=True, reset=False), VoteAnswer(9, pre=False, granted=True))
    for message in (*answers, TimeoutNow(0)):
        assert rig.give("n0", "stranger", message) == []
    assert (node.group.term, node.log.last_index) == (0, 0)


def test_messages_are_not_changed_by_the_one_who_gets_them():
    rig = Safe(3)
    rig.start("n0")
    message = append(1, 0, (0, 0), metas(1, 3, 1))
    before = copy.deepcopy(message)
    rig.nodes["n0"].group.receive("n1", message)
    rig.nodes["n0"].group.receive("n1", message)
    assert message == before

"""Groups at rest cost next to nothing: no turns, no writes; and whatever is new is looked at all the same."""

import pytest
from stan_protocol.scalars import MILLISECOND, SECOND

from stan import limits
from stan.protocol.entries import Kind
from stan.raft.transport.codec import AppendAnswer, AppendEntries, VoteRequest


@pytest.fixture
def rig(rig):
    """Three nodes; n0 leads; everybody has an entry, and nothing is on the way."""
    rig.leader().group.propose([(Kind.META, b"a")], urgent=True)
    rig.run(0.5)
    rig.sent.clear()
    return rig


def beat(rig, name, source, message):
    before = len(rig.sent)
    rig.nodes[name].group.on_heartbeat(source, message.term, message.commit, message.prev_term, message.seq)
    return [said for _, _, said in list(rig.sent)[before:]]


def count_turns(monkeypatch, group):
    turns = []
    original = group._raft.turn
    monkeypatch.setattr(group._raft, "turn", lambda now: (turns.append(now), original(now)))
    return turns


def test_group_at_rest_stays_in_touch_with_few_turns(rig, monkeypatch):
    turns = {name: count_turns(monkeypatch, node.group) for name, node in rig.nodes.items()}
    terms = {node.group.term for node in rig.nodes.values()}
    for _ in range(200):  # ten seconds
        rig.now += limits.RAFT_TICK_INTERVAL
        for node in rig.nodes.values():
            if node.group.tick(rig.now):
                node.group.turn()
        for _ in range(2):
            for _ in range(len(rig.sent)):
                source, target, message = rig.sent.popleft()
                if isinstance(message, AppendEntries):
                    assert (message.entries, message.prev_index) == ([], message.commit)
                    rig.nodes[target].group.on_heartbeat(
                        source, message.term, message.commit, message.prev_term, message.seq
                    )
                elif isinstance(message, AppendAnswer):
                    rig.nodes[target].group.answered(source, message)
        assert rig.nodes["n0"].group.lease_until() > rig.now
    assert {node.group.term for node in rig.nodes.values()} == terms
    assert len(turns["n0"]) <= 10 * SECOND / limits.RAFT_LOOK_INTERVAL + 1
    assert max(len(turns["n1"]), len(turns["n2"])) <= 10 * SECOND / limits.RAFT_ELECTION_TIMEOUT_MIN + 1


def count_ticks(monkeypatch, group):
    ticks = []
    original = group._raft.library.tick
    monkeypatch.setattr(group._raft.library, "tick", lambda: (ticks.append(1), original()))
    return ticks


def test_turn_asks_the_library_only_if_something_is_due(rig, monkeypatch):
    """An entry is committed by the first of two answers: neither its proposal nor its sync nor the other answer is a reason."""
    ticks = {name: count_ticks(monkeypatch, node.group) for name, node in rig.nodes.items()}
    leader = rig.leader()
    rig.now += 101 * MILLISECOND - rig.now % (100 * MILLISECOND)  # heartbeats have just left
    rig.tick(0)
    assert len(ticks["n0"]) == 1
    rig.sent.clear()
    leader.group.propose([(Kind.META, b"b")], urgent=True)
    rig.tick(0)
    leader.sync()
    rig.tick(0)
    assert len(ticks["n0"]) == 1
    seq = leader.group._raft.as_leader.progress[leader.group._raft.members.others["n1"]].appends.seq
    for peer in ("n1", "n2"):
        leader.group.answered(peer, AppendAnswer(1, seq, 4, success=True, reset=False))
        rig.tick(0)
        assert leader.group.commit_index == 3
    assert len(ticks["n0"]) == 2
    assert len(ticks["n1"]) + len(ticks["n2"]) <= 2, "one may be for the second that has passed"


@pytest.mark.parametrize("patience", [0, 1])
def test_leader_steps_down_in_the_first_turn_after_its_patience(rig, patience):
    """Even if nothing else is due in it: no heartbeat, no second that has passed."""
    leader = rig.leader().group
    rig.tick(130)
    rig.deliver()
    for node in rig.nodes.values():
        node.group.turn()
    rig.deliver()
    answered = rig.now
    for _ in range(patience):
        leader._raft.patience.setback(leader.term + 1)
    length = limits.RAFT_LEADER_PATIENCE << patience
    for now in (answered + MILLISECOND, answered + length - MILLISECOND):
        rig.now = now
        leader.turn()
        assert leader.leads
    rig.now = answered + length + MILLISECOND
    leader.turn()
    assert not leader.leads


def test_leader_at_rest_that_nobody_answers_steps_down(rig):
    for _ in range(40):
        rig.now += limits.RAFT_TICK_INTERVAL
        if rig.nodes["n0"].group.tick(rig.now):
            rig.nodes["n0"].group.turn()
    assert not rig.nodes["n0"].group.leads


def test_follower_at_rest_that_hears_nothing_asks_for_an_election(rig):
    rig.now += limits.RAFT_ELECTION_TIMEOUT_MAX + limits.RAFT_TICK_INTERVAL
    assert rig.nodes["n1"].group.tick(rig.now)
    rig.nodes["n1"].group.turn()
    assert any(isinstance(message, VoteRequest) for _, _, message in rig.sent)


def test_beat_is_a_heartbeat(rig):
    """It is answered as the message that it stands for, it counts as a sign of life, and it ends no promise."""
    group = rig.nodes["n1"].group
    message = AppendEntries(group.term, 2, 2, group.term, 99, [])
    expected = rig.give("n1", "n0", message)
    assert beat(rig, "n1", "n0", message) == expected == [AppendAnswer(group.term, 99, 3, success=True, reset=False)]
    rig.now += 900 * MILLISECOND
    beat(rig, "n1", "n0", message._replace(seq=100))
    rig.now += 400 * MILLISECOND
    group.turn()
    assert group.leader == "n0"
    (refusal,) = rig.give("n1", "n2", VoteRequest(9, 99, 9, pre=True, transfer=False))
    assert not refusal.granted


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ({"term": 0}, AppendAnswer(1, 99, 0, success=False, reset=False)),
        ({"term": 7}, AppendAnswer(7, 99, 3, success=True, reset=False)),
        ({"commit": 9}, AppendAnswer(1, 99, 3, success=False, reset=True)),
        ({"commit": 1}, AppendAnswer(1, 99, 3, success=True, reset=False)),
    ],
)
def test_beat_that_says_something_new_is_looked_at(rig, change, answer):
    message = AppendEntries(1, 2, 2, 1, 99, [])._replace(**change)
    if "term" in change:
        message = message._replace(prev_term=min(1, message.term))
    assert beat(rig, "n1", "n0", message) == [answer]


def test_beat_does_not_vouch_for_what_is_not_durable(rig):
    rig.nodes["n1"].group.receive(
        "n0", AppendEntries(1, 2, 2, 1, 98, [(meta := rig.nodes["n1"].handed[-1])._replace(index=3)])
    )
    assert meta.index == 2
    (answer,) = beat(rig, "n1", "n0", AppendEntries(1, 2, 2, 1, 99, []))
    assert (answer.success, answer.next_index) == (True, 3)
    rig.nodes["n1"].sync()
    rig.nodes["n1"].group.turn()
    assert rig.sent[-1][2].next_index == 4


@pytest.mark.parametrize(
    ("change", "leads"), [({"term": 9}, False), ({"success": False, "reset": True, "next_index": 2}, True)]
)
def test_answer_that_says_something_new_is_looked_at(rig, change, leads):
    group = rig.nodes["n0"].group
    seq = group._raft.as_leader.progress[group._raft.members.others["n1"]].appends.seq
    group.answered("n1", AppendAnswer(1, seq, 3, success=True, reset=False)._replace(**change))
    assert group.leads == leads
    assert group.lag().get("n1") == (1 if leads else None)


def test_answer_of_a_member_that_does_not_count_any_more_is_no_part_of_a_lease(rig):
    group = rig.nodes["n0"].group
    before = group.lease_until()
    rig.now += 100 * MILLISECOND
    assert not group.tick(rig.now) or group.turn() is None
    seq = group._raft.as_leader.progress[group._raft.members.others["n1"]].appends.seq
    group.answered("n1", AppendAnswer(1, seq, 3, success=True, reset=False, counts=False))
    assert group.lease_until() == before
    group.answered("n2", AppendAnswer(1, seq, 3, success=True, reset=False))
    assert group.lease_until() > before


def test_answer_of_the_last_follower_to_what_is_committed_already_costs_no_turn(rig, monkeypatch):
    leader = rig.nodes["n0"]
    leader.group.propose([(Kind.META, b"b")], urgent=True)
    leader.group.turn()
    leader.sync()
    answers = {}
    for name in ("n1", "n2"):
        (append,) = [message for _, to, message in rig.sent if to == name and message.entries]
        rig.nodes[name].group.receive("n0", append)
        rig.nodes[name].sync()
        rig.nodes[name].group.turn()
        answers[name] = rig.sent[-1][2]
        assert answers[name].next_index == 4
    woken = []
    monkeypatch.setattr(leader.group, "_ports", leader.ports._replace(wake=woken.append))
    leader.group.answered("n1", answers["n1"])
    assert woken, "it may be committed now"
    leader.group.turn()
    assert leader.group.commit_index == 3
    woken.clear()
    before = leader.group.lease_until()
    leader.group.answered("n2", answers["n2"])
    assert not woken
    assert leader.group.lag() == {"n1": 0, "n2": 0}
    assert leader.group.lease_until() >= before > 0
    leader.group.answered("n2", answers["n2"]._replace(next_index=5))
    assert woken, "nobody has that entry: it is looked at, and refused"
    assert leader.group.progress()["n2"] == 3


def test_answer_of_a_follower_that_lacks_something_still_is_looked_at(rig, monkeypatch):
    leader = rig.nodes["n0"]
    leader.group.propose([(Kind.META, b"b")], urgent=True)
    woken = []
    monkeypatch.setattr(leader.group, "_ports", leader.ports._replace(wake=woken.append))
    progress = leader.group._raft.as_leader.progress[leader.group._raft.members.others["n1"]]
    leader.group.answered("n1", AppendAnswer(1, progress.appends.seq, 3, success=True, reset=False))
    assert woken


def test_sync_wakes_only_who_waits_for_it(rig, monkeypatch):
    woken = []
    for node in rig.nodes.values():
        monkeypatch.setattr(node.group, "_ports", node.ports._replace(wake=woken.append))
    leader, follower = rig.nodes["n0"], rig.nodes["n1"]
    leader.group.propose([(Kind.META, b"b")], urgent=True)
    leader.group.turn()
    (append,) = [message for _, to, message in rig.sent if to == "n1" and message.entries]
    woken.clear()
    leader.sync()
    assert not woken, "nobody has answered yet"
    follower.group.receive("n0", append)
    woken.clear()
    follower.sync()
    assert woken == [follower.group], "the leader waits for the answer"
    woken.clear()
    follower.group.turn()
    follower.sync()
    assert not woken


def test_leader_whose_disk_is_slower_than_a_follower_commits_when_it_is_done(rig, monkeypatch):
    leader = rig.nodes["n0"]
    leader.group.propose([(Kind.META, b"b")], urgent=True)
    leader.group.turn()
    seq = leader.group._raft.as_leader.progress[leader.group._raft.members.others["n1"]].appends.seq
    leader.group.answered("n1", AppendAnswer(1, seq, 4, success=True, reset=False))
    leader.group.turn()
    assert leader.group.commit_index == 2
    woken = []
    monkeypatch.setattr(leader.group, "_ports", leader.ports._replace(wake=woken.append))
    leader.sync()
    assert woken == [leader.group]
    leader.group.turn()
    assert leader.group.commit_index == 3

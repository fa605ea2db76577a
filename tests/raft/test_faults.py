"""What fails in one group, whatever it is, freezes that group: nothing escapes to its owner, and it takes part in nothing."""

import random

import pytest
from stan_protocol.scalars import SECOND, GroupId

from stan import limits
from stan.errors import FAULT, Aborted, Frozen, InDoubt
from stan.invariant import InvariantError
from stan.protocol.entries import Kind
from stan.raft.scheduler import Scheduler
from stan.raft.solo import Solo
from stan.raft.transport import codec
from stan.raft.transport.codec import AppendAnswer, AppendEntries, VoteRequest
from stan.raft.transport.mux import Mux


def broken(*_arguments, **_more):
    raise InvariantError("what never happens has happened")


def entries_for(rig, name):
    return AppendEntries(rig.nodes["n0"].group.term, 0, 0, 0, 10_000, [])


BORDERS = {
    "turn": ("n0", "turn", lambda rig, group: group.turn()),
    "durable": ("n0", "synced", lambda rig, group: (setattr(group._durability, "seen", -1), group.turn())),
    "next turn": ("n1", "rest", lambda rig, group: group.turn()),
    "tick": ("n0", "as_leader.heartbeat_at_rest", lambda rig, group: group.tick(0)),
    "message": ("n1", "receive", lambda rig, group: group.receive("n0", entries_for(rig, "n1"))),
    "heartbeat": (
        "n1",
        "as_follower.take_heartbeat_quickly",
        lambda rig, group: group.on_heartbeat("n0", group.term, 0, 0, 1),
    ),
    "answer": (
        "n0",
        "as_leader.take_answer_quickly",
        lambda rig, group: group.answered("n1", AppendAnswer(1, 1, 1, success=True, reset=False)),
    ),
    "link up": ("n0", "peer_up", lambda rig, group: group.peer_up("n1")),
    "link down": ("n0", "peer_down", lambda rig, group: group.peer_down("n1")),
    "observers": ("n0", "observe", lambda rig, group: group.set_observers(["o0"])),
    "lease": ("n0", "as_leader.lease_until", lambda rig, group: group.lease_until()),
    "handover": (
        "n0",
        "as_leader.hand_over",
        lambda rig, group: (group.transfer("n1", lambda done: rig.notes.append(f"handed over: {done}")), group.turn()),
    ),
}


@pytest.mark.parametrize("border", BORDERS)
def test_an_exception_of_the_raft_core_freezes_the_group(rig, monkeypatch, border):
    name, method, call = BORDERS[border]
    group = rig.nodes[name].group
    part, _, method = method.rpartition(".")
    monkeypatch.setattr(getattr(group._raft, part) if part else group._raft, method, broken)
    rig.sent.clear()

    call(rig, group)

    assert group.failed.startswith(f"{FAULT}InvariantError: what never happens has happened (at ")
    assert len([note for note in rig.notes if group.failed in note]) == 1
    monkeypatch.undo()
    rig.sent.clear()
    takes_part_in_nothing(rig, group)


def takes_part_in_nothing(rig, group):
    """Not even if the library would be well again."""
    asked = []
    group.transfer("n1", asked.append)
    group.receive("n1", VoteRequest(group.term + 1, 10**6, group.term + 1, pre=False, transfer=True))
    group.receive("n1", AppendEntries(group.term + 1, 0, 0, 0, 1, []))
    group.on_heartbeat("n1", group.term, 0, 0, 1)
    group.answered("n1", AppendAnswer(group.term, 1, 1, success=True, reset=False))
    group.peer_down("n2")
    group.peer_up("n2")
    group.synced(group.log.durable_index)
    rig.now += 10 * SECOND
    group.turn()
    assert not rig.sent, "it neither votes, nor answers, nor leads, nor campaigns"
    assert asked == [True]
    assert (group.leads, group.votes, group.lease_until(), group.wants_sync, group.has_committed) == (
        *(False, False),
        0,
        *(False, False),
    )
    assert group.take_committed() == []
    with pytest.raises(Frozen):
        group.propose([(Kind.META, b"a")], urgent=True)
    assert not group.tick(rig.now)


def test_the_others_elect_another_leader_and_go_on(rig, monkeypatch):
    rig.nodes["n0"].group.propose([(Kind.META, b"before")], urgent=True)
    rig.run(0.5)
    monkeypatch.setattr(rig.nodes["n0"].group._raft, "turn", broken)
    rig.run(3)
    assert rig.leader().name != "n0"
    rig.leader().group.propose([(Kind.META, b"after")], urgent=True)
    rig.run(0.5)
    assert rig.nodes["n1"].applied() == rig.nodes["n2"].applied() == [b"before", b"after"]
    assert rig.nodes["n0"].applied() == [b"before"]


def test_a_proposal_amid_which_the_program_fails_is_in_doubt(rig, monkeypatch):
    group = rig.leader().group
    monkeypatch.setattr(group._raft.as_leader, "append", broken)
    with pytest.raises(InDoubt, match="what never happens"):
        group.propose([(Kind.META, b"a")], urgent=True)
    assert group.failed


def test_entries_that_cannot_be_handed_out_freeze_the_group(rig, monkeypatch):
    group = rig.leader().group
    group.propose([(Kind.META, b"a")], urgent=True)
    monkeypatch.setattr(rig.leader().group._raft.journal, "entries", broken)
    rig.run(0.5)
    assert group.failed.startswith(FAULT)


def test_who_waits_for_a_group_that_freezes_is_told(rig, monkeypatch):
    group, told = rig.leader().group, []
    group.propose([(Kind.META, b"a")], urgent=True)
    group.transfer("n1", told.append)
    monkeypatch.setattr(group._raft, "turn", broken)
    group.turn()
    assert told == [True]


def test_what_must_end_the_process_is_no_fault_of_the_group(rig, monkeypatch):
    group = rig.leader().group

    def fenced(*_arguments):
        raise Aborted("another server has the store")

    monkeypatch.setattr(group._raft, "turn", fenced)
    with pytest.raises(Aborted):
        group.turn()
    assert not group.failed


def test_a_group_of_one_freezes_alone(rig, monkeypatch):
    group = Solo(GroupId(1), rig.nodes["n0"].log, "always", set())
    monkeypatch.setattr(rig.nodes["n0"].log, "append", broken)
    with pytest.raises(InDoubt):
        group.propose([(Kind.META, b"a")], urgent=True)
    assert group.failed.startswith(FAULT)
    monkeypatch.undo()
    with pytest.raises(Frozen):
        group.propose([(Kind.META, b"a")], urgent=True)
    assert (group.wants_sync, group.has_committed, group.take_committed()) == (False, False, [])


# --- the owners of many groups ------------------------------------------------------------------------------------------


class Wire:
    """Two muxes that hear each other."""

    def __init__(self):
        self.frames = []

    def write(self, frames):
        self.frames += frames


class Heard:
    """A group that notes what it is told."""

    def __init__(self):
        self.received, self.garbles, self.ups = [], [], 0

    def receive(self, peer, message):
        self.received.append(message)

    def garbled(self, peer, why):
        self.garbles.append((peer, why))

    def peer_up(self, peer):
        self.ups += 1

    def peer_down(self, peer):
        pass


def test_a_peer_that_goes_on_talking_garbage_to_one_group_loses_that_group_alone(monkeypatch):
    wires = {"a": Wire(), "b": Wire()}
    muxes = {
        name: Mux(
            [peer],
            wires[name],
            now=lambda: SECOND,
            random=random.Random(name),
            note=lambda level, text: None,
            wake=lambda: None,
        )
        for name, peer in (("a", "b"), ("b", "a"))
    }
    groups = {number: Heard() for number in (1, 2)}
    for number, group in groups.items():
        muxes["b"].attach(GroupId(number), group)

    def talk():
        for _ in range(6):
            for name, peer in (("a", "b"), ("b", "a")):
                muxes[name].tick()
                muxes[name].flush()
                frames, wires[name].frames = wires[name].frames, []
                for _, frame in frames:
                    muxes[peer].receive(name, frame)

    garbage = codec._HEADER.pack(3, 1, 99) + b"abc"
    right = codec.TimeoutNow(5)
    for _ in range(limits.RAFT_GARBLED_MAX):
        talk()
        muxes["a"]._outgoing["b"].parts.append(garbage)
        muxes["a"].send(GroupId(2), "b", right)
        muxes["a"].flush()
        for _, frame in wires["a"].frames:
            muxes["b"].receive("a", frame)
        wires["a"].frames = []
    assert groups[1].garbles == [("a", "messages of type 99 are unknown")]
    assert groups[2].received == [right], "the last time the link was not reset"
    assert groups[2].ups == limits.RAFT_GARBLED_MAX


def test_turns_of_the_other_groups_go_on(rig, monkeypatch):
    crashes = []

    class Clock:
        def now(self):
            return rig.now

        def soon(self, call):
            pass

        def alarm(self, deadline, call):
            pass

    scheduler = Scheduler(Clock(), news=lambda: None, crashed=crashes.append)
    mux = Mux([], Wire(), now=lambda: rig.now, random=random.Random(1), note=print, wake=scheduler.schedule)
    groups = [rig.nodes["n0"].group, rig.nodes["n1"].group]
    groups[1].group = GroupId(2)
    scheduler.start(mux, groups)
    monkeypatch.setattr(groups[0]._raft, "turn", broken)
    seen = []
    monkeypatch.setattr(groups[1]._raft, "turn", seen.append)
    scheduler.run()
    assert groups[0].failed
    assert seen == [rig.now]
    assert not crashes

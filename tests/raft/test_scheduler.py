"""When groups run, and peers and groups that come and go while they do."""

import random

import pytest
from stan_protocol.scalars import SECOND

from stan import limits
from stan.errors import ConfigError
from stan.raft.scheduler import Scheduler
from stan.raft.transport.codec import AppendEntries
from stan.raft.transport.mux import Mux
from stan.raft.transport.mux_nats import NatsWire
from tests.raft.rigs import Safe


class Runtime:
    """Time in the hand."""

    def __init__(self):
        self.calls = []

    time = 10 * SECOND

    def now(self):
        return self.time

    def soon(self, call):
        self.calls.append(call)

    def alarm(self, deadline, call):
        pass


class Group:
    """Notes its scheduler."""

    def __init__(self, number, scheduler=None):
        self.group, self.scheduler, self.runs, self.heard = number, scheduler, 0, []
        self.closed = False

    def turn(self):
        self.runs += 1
        if self.scheduler is not None:
            self.scheduler.run()

    def take_news(self):
        return False

    def receive(self, peer, message):
        self.heard.append(message)
        self.scheduler.wake(self)

    def peer_up(self, peer):
        self.heard.append(f"{peer} up")

    def peer_down(self, peer):
        self.heard.append(f"{peer} down")

    def close(self):
        self.closed = True


class Wire:
    def __init__(self):
        self.frames = []

    def write(self, frames):
        self.frames += frames


@pytest.fixture
def node():
    """Scheduler with a mux; the ticker's first turn is done."""
    runtime = Runtime()
    scheduler = Scheduler(runtime, news=lambda: None, crashed=lambda error: pytest.fail(repr(error)))
    mux = Mux([], Wire(), now=runtime.now, random=random.Random(1), note=lambda *_: None, wake=scheduler.schedule)
    scheduler.start(mux, [])
    runtime.calls.pop()()
    scheduler.runtime, scheduler.mux = runtime, mux
    return scheduler


def test_many_messages_for_a_group_cost_one_turn(node):
    group = Group(1, node)
    node.add(group)
    for number in range(20):
        group.receive("n1", number)
    assert len(node.runtime.calls) == 1
    node.runtime.calls.pop()()
    assert group.runs == 1


def test_run_does_at_once_what_was_to_be_done_soon_and_nothing_is_left(node):
    group = Group(1, node)
    node.add(group)
    node.run()
    assert group.runs == 1
    node.runtime.calls.pop()()
    assert group.runs == 1
    node.wake(group)
    assert len(node.runtime.calls) == 1, "a run that was done at once does not swallow the next"


def test_heartbeats_leave_while_the_owner_does_something_long(node):
    group = Group(1, node)
    group.tick = lambda now: True
    node.add(group)
    node.run()
    node.owner.runs = True
    node.heartbeat_if_due()
    assert group.runs == 1, "nothing is due"
    node.runtime.time += limits.RAFT_TICK_INTERVAL
    node.heartbeat_if_due()
    assert group.runs == 2


def test_group_that_was_replaced_runs_no_more(node):
    old, new = Group(1, node), Group(1, node)
    node.add(old)
    assert node.remove(1) is old
    assert old.closed
    node.add(new)
    node.wake(old)
    node.run()
    assert (old.runs, new.runs) == (0, 1)
    node.remove(1)
    node.run()
    assert new.runs == 1


def test_group_that_is_closed_tells_who_waits_for_a_hand_over(rig):
    node, seen = rig.leader(), []
    node.group.propose([(2, b"a")], urgent=True)
    node.group.transfer("n1", seen.append)
    node.group.close()
    node.take()
    assert seen == [True]
    assert not node.group.votes


def test_peer_that_came_later_is_linked(node):
    group, mux = Group(1, node), node.mux
    node.add(group)
    mux.send(1, "late", "lost")
    assert not mux.is_up("late")
    mux.add_peer("late")
    mux.add_peer("late")
    mux.tick()
    mux.flush()
    assert [peer for peer, _ in mux._wire.frames] == ["late"]
    other = Mux(["me"], Wire(), now=node.runtime.now, random=random.Random(2), note=lambda *_: None, wake=lambda: None)
    for _ in range(3):
        for frames, to, name in ((mux._wire.frames, other, "me"), (other._wire.frames, mux, "late")):
            while frames:
                to.receive(name, frames.pop(0)[1])
            to.flush()
    assert mux.is_up("late")
    assert group.heard == ["late up"]


def test_wire_learns_of_peers_that_come_later():
    written = []

    wire = NatsWire("blue", "a", ["b"])
    wire.publish = lambda data: not written.append(data)
    with pytest.raises(ConfigError, match="'d e'"):
        wire.add_peers("c", "d e")
    with pytest.raises(KeyError):
        wire.write([("c", b"x")])
    wire.add_peers("c")
    wire.write([("c", b"x")])
    assert written == [b"PUB _STAN.raft.blue.c.a 1\r\nx\r\n"]


def test_observers_come_and_go():
    rig = Safe(3, observers=1)
    rig.observers = []
    for name in ("n0", "n1", "n2"):
        rig.start(name)
    rig.elect()
    rig.run(0.5)
    leader = rig.leader()
    leader.group.propose([(2, b"a")], urgent=True)
    rig.start("o0")
    leader.group.peer_up("o0")
    rig.run(0.5)
    assert rig.nodes["o0"].applied() == []
    leader.group.set_observers(["o0", "n1", "n0"])
    rig.run(0.5)
    assert rig.nodes["o0"].applied() == [b"a"]
    assert leader.group.lag() == {"n1": 0, "n2": 0, "o0": 0}
    leader.group.set_observers([])
    leader.group.propose([(2, b"b")], urgent=True)
    rig.run(0.5)
    assert rig.nodes["o0"].applied() == [b"a"]
    assert not any(to == "o0" and isinstance(message, AppendEntries) for _, to, message in rig.sent)
    assert set(leader.group.lag()) == {"n1", "n2"}


def test_best_successor_is_up_votes_and_is_furthest():
    rig = Safe(5).start_all()
    rig.elect()
    rig.run(0.5)
    leader = rig.leader()
    leader.group.propose([(2, b"a")], urgent=True)
    rig.run(0.2, drop=lambda source, target, _: "n0" in (source, target) and not {"n1", "n4"} & {source, target})
    assert leader.group.lag() == {"n1": 0, "n2": 1, "n3": 1, "n4": 0}
    assert leader.group.best_successor() == "n4"
    leader.group.peer_down("n4")
    assert leader.group.best_successor() == "n1"
    for name in ("n1", "n2", "n3"):
        leader.group.peer_down(name)
    assert leader.group.best_successor() is None
    assert rig.nodes["n1"].group.best_successor() is None


def test_transfer_can_be_seen(rig):
    leader = rig.leader()
    assert not leader.group.transferring
    leader.group.transfer("n1", lambda gone: None)
    assert leader.group.transferring
    rig.run(0.3)
    assert not leader.group.transferring


def test_nothing_leaves_and_nothing_runs_where_nothing_happened(node, monkeypatch):
    flushes = []
    monkeypatch.setattr(node.mux, "flush", lambda: flushes.append(1))
    node.run()
    assert not flushes
    node.add(Group(1, node))
    node.run()
    assert flushes == [1]


def test_what_is_left_when_the_owner_lets_go_comes_soon(node):
    group = Group(1, node)
    node.add(group)
    node.runtime.calls.pop()()
    node.owner.runs = True
    node.wake(group)
    assert not node.runtime.calls, "the owner runs it"
    node.run()
    node.end_turn()
    assert not node.runtime.calls
    node.owner.runs = True
    node.wake(group)
    node.end_turn()
    node.runtime.calls.pop()()
    assert group.runs == 3


def test_news_in_the_owners_turn_are_left_for_it_to_find_and_others_are_told(node):
    told, group = [], Group(1, node)
    group.take_news = lambda: True
    node.owner.news = lambda: told.append(1)
    node.owner.runs = True
    node.add(group)
    node.run()
    assert (node.owner.has_news, told) == (True, [])
    node.owner.runs = node.owner.has_news = False
    node.wake(group)
    node.run()
    assert (node.owner.has_news, told) == (True, [1])

"""Followers that no majority needs: they get entries a little later, in fewer messages, and at once when they are needed."""

import random

import pytest
from stan_protocol.scalars import MILLISECOND, SECOND

from stan import limits
from stan.raft.transport.codec import AppendEntries
from stan.raft.transport.mux import Mux
from tests.raft.rigs import Safe
from tests.raft.test_scheduler import Runtime, Scheduler, Wire


@pytest.fixture
def rig():
    """Three nodes at rest, n0 leads; the last heartbeat has just left."""
    return led(3)


def led(count, observers=0):
    rig = Safe(count, observers).start_all()
    rig.elect()
    rig.run(limits.RAFT_LAZY_PATIENCE / SECOND + 0.5)
    publish(rig)
    rig.now += limits.RAFT_LAZY_INTERVAL
    return rig


def publish(rig, body=b"x"):
    """One entry, committed if it can be; returns who was written to."""
    node = rig.leader()
    node.group.propose([(2, body)], urgent=True)
    node.group.turn()
    node.sync()
    written_to = appended(rig)
    settle(rig)
    return written_to


def appended(rig):
    return {to for _, to, message in rig.sent if isinstance(message, AppendEntries) and message.entries}


def settle(rig):
    """Everything arrives, everybody syncs and answers; no time passes."""
    for _ in range(4):
        rig.deliver()
        for node in rig.nodes.values():
            node.sync()
            node.group.turn()
            node.take()


def test_after_everybody_was_written_to_only_the_majority_is_for_an_interval(rig):
    assert publish(rig) == {"n1", "n2"}
    assert publish(rig) == {"n1"}
    assert publish(rig) == {"n1"}
    leader = rig.leader()
    assert leader.applied()[-3:] == [b"x"] * 3, "committed without the lazy follower"
    rig.now += limits.RAFT_LAZY_INTERVAL
    assert publish(rig) == {"n1", "n2"}
    assert rig.nodes["n2"].group.log.last_index == leader.group.log.last_index


def test_spare_gets_what_it_lacks_when_nothing_more_comes(rig):
    publish(rig)
    publish(rig)
    due = rig.leader().group.turn()
    assert due == rig.now + limits.RAFT_LAZY_INTERVAL
    rig.now = due
    assert rig.leader().group.turn() is None
    assert appended(rig) == {"n2"}


def test_majority_that_stops_is_replaced_within_two_intervals(rig):
    """n1 takes nothing any more, and its link stays up: as a process that is stopped does."""
    publish(rig)
    stopped = rig.nodes.pop("n1")
    publish(rig, b"first")
    leader = rig.leader()
    assert b"first" not in leader.applied()
    rig.now += limits.RAFT_LAZY_INTERVAL
    leader.group.turn()
    settle(rig)
    assert b"first" in leader.applied(), "the lazy follower has it"
    rig.now += limits.RAFT_LAZY_INTERVAL
    publish(rig)
    assert publish(rig, b"second") == {"n2"}, "they have changed places"
    assert b"second" in leader.applied()
    rig.nodes["n1"] = stopped


def test_much_is_for_everybody_at_once(rig):
    publish(rig)
    assert publish(rig, b"x" * limits.RAFT_LAZY_BYTES_MAX) == {"n1", "n2"}
    assert publish(rig) == {"n1"}


def test_heartbeat_is_for_everybody(rig):
    publish(rig)
    leader = rig.leader()
    leader.group.propose([(2, b"x")], urgent=True)
    leader.group._raft.as_leader.heartbeat_due = True
    leader.group.turn()
    assert appended(rig) == {"n1", "n2"}


def test_follower_that_is_gone_leaves_no_spare(rig):
    publish(rig)
    rig.leader().group.peer_down("n1")
    rig.now += limits.RAFT_LAZY_INTERVAL
    assert publish(rig) == {"n2"}
    assert publish(rig) == {"n2"}


def test_follower_that_came_back_has_to_be_there_for_a_while_before_it_may_be_the_only_one(rig):
    """Its log would keep the others from being elected, and it has not heard yet what clients wait for."""
    leader = rig.leader()
    leader.group.peer_down("n2")
    rig.run(0.1)
    leader.group.peer_up("n2")
    rig.nodes["n2"].group.peer_up(leader.name)
    rig.run(limits.LISTEN_BEFORE_LEADING / SECOND)
    assert [publish(rig) for _ in range(3)] == [{"n1", "n2"}] * 3
    rig.run((limits.RAFT_LAZY_PATIENCE - limits.LISTEN_BEFORE_LEADING) / SECOND + 0.1)
    publish(rig)
    assert len(publish(rig)) == 1


def test_five_have_two_spares_and_observers_are_none():
    rig = led(5, observers=1)
    assert publish(rig) == {"n1", "n2", "n3", "n4", "o0"}
    assert publish(rig) == {"n1", "n2", "o0"}


def test_two_have_none():
    rig = led(2)
    assert publish(rig) == publish(rig) == {"n1"}


def test_new_leader_writes_to_everybody_first(rig):
    publish(rig)
    publish(rig)
    rig.leader().group.transfer("n1", lambda _gone: None)
    rig.run(1)
    assert rig.leader().name == "n1"
    assert {rig.nodes[name].group.log.last_index for name in rig.nodes} == {rig.leader().group.log.last_index}


class Clock(Runtime):
    """Time and the alarm in the hand."""

    def __init__(self):
        super().__init__()
        self.time, self.alarms = 10 * SECOND, []

    def now(self):
        return self.time

    def alarm(self, deadline, call):
        self.alarms = [(deadline, call)]

    def pass_until(self, time):
        while self.alarms and self.alarms[0][0] <= time:
            (self.time, call), self.alarms = self.alarms[0], []
            call()
            while self.calls:
                self.calls.pop()()
        self.time = time


class Pressed:
    """A group that wants a turn every 7 ms, three times."""

    group = 1

    def __init__(self, clock):
        self.clock, self.turns = clock, []

    def turn(self):
        self.turns.append(self.clock.time)
        return self.clock.time + 7 * MILLISECOND if len(self.turns) < 4 else None

    def take_news(self):
        return False

    def tick(self, _now):
        return False


def test_group_gets_the_turns_that_it_asks_for_between_two_ticks_and_ticks_stay():
    clock = Clock()
    scheduler = Scheduler(clock, news=lambda: None, crashed=lambda error: pytest.fail(repr(error)))
    mux = Mux([], Wire(), now=clock.now, random=random.Random(1), note=lambda *_: None, wake=scheduler.schedule)
    scheduler.start(mux, [])
    group, began = Pressed(clock), clock.time
    scheduler.add(group)
    clock.calls.pop()()
    ticks = []
    mux.tick = lambda **_: ticks.append(clock.time)
    clock.pass_until(began + 3 * limits.RAFT_TICK_INTERVAL)
    assert [(at - began) // MILLISECOND for at in group.turns] == [0, 7, 14, 21]
    assert [at - began for at in ticks] == [limits.RAFT_TICK_INTERVAL * n for n in (1, 2, 3)]

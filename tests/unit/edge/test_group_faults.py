"""Refusals of a group: logged once, in the present only while they last, and their end is logged."""

from types import SimpleNamespace

import pytest
from stan_protocol.scalars import SECOND

from stan import limits
from stan.edge.group_faults import GroupFaults
from stan.errors import DiskFull, NotNow, Shortage


class Rig:
    """One group whose log has as much room as *room* says."""

    def __init__(self):
        self.room, self.time, self.notes, self.events, self.tried = 0, 0, [], [], []
        log = SimpleNamespace(has_room=self.has_room)
        self.groups = {1: SimpleNamespace(log=log, failed="", freeze=lambda why: None)}
        stops = SimpleNamespace(step_frozen=lambda number: None)
        broker = SimpleNamespace(emit=lambda kind, text, group: self.events.append(text), stops=stops)
        clock = SimpleNamespace(now=lambda: self.time, wall=lambda: 1000 + self.time)
        self.faults = GroupFaults(
            broker, self.groups, None, {}, lambda level, text: self.notes.append((level, text)), clock
        )

    def has_room(self, size):
        self.tried.append(size)
        return size <= self.room

    def pass_time(self, seconds):
        """Look again as often as the server does."""
        for _ in range(4 * seconds):
            self.time += SECOND // 4
            self.faults.look_again()


@pytest.fixture
def rig():
    return Rig()


@pytest.mark.parametrize("kind", [DiskFull, Shortage])
def test_shortage_lasts_until_there_is_room_for_what_was_refused_and_its_end_is_logged(rig, kind):
    rig.faults.note_refusal(1, kind("no room"), 500)
    rig.faults.note_refusal(1, kind("no room"), 900)
    rig.room = 600
    rig.faults.note_written(1)  # something small
    rig.pass_time(20)
    assert rig.faults.refusals[1].since == 1000
    assert rig.tried == [900] * 20, "once a second, not in each round"
    rig.room = 900
    rig.pass_time(1)
    assert rig.faults.refusals == {}
    assert rig.notes == [("ERR", "group 1: no room"), ("INF", "group 1: takes publishes again")]
    assert rig.events == ["group 1: no room", "group 1: takes publishes again"]


def test_other_refusals_end_with_a_proposal_that_is_written_or_are_forgotten(rig):
    rig.faults.note_refusal(1, NotNow("a handover"), 5)
    rig.faults.note_written(1)
    assert rig.faults.refusals == {}
    rig.faults.note_refusal(1, NotNow("a handover"), 5)
    rig.pass_time(limits.REFUSAL_REMEMBERED // SECOND - 1)
    assert 1 in rig.faults.refusals
    rig.pass_time(1)
    assert rig.faults.refusals == {}
    assert rig.tried == []
    assert rig.notes[-1] == ("INF", "group 1: takes publishes again")


def test_refusals_of_a_group_that_froze_or_left_the_node_are_forgotten(rig):
    rig.faults.note_refusal(1, DiskFull("no room"), 5)
    rig.faults.freeze(1, "the disk failed")
    rig.faults.note_refusal(1, NotNow("the disk failed"), 5)
    assert rig.faults.refusals == {}
    other = Rig()
    other.faults.note_refusal(1, DiskFull("no room"), 5)
    other.groups.clear()
    other.pass_time(1)
    assert other.faults.refusals == {}
    assert rig.notes[-1] == ("ERR", "group 1: the disk failed; it does nothing more until a restart")

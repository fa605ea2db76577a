"""Roles as the driver sees them: when they begin and end, what may be proposed and sent meanwhile."""

from types import SimpleNamespace

import pytest
from stan_protocol.scalars import SECOND

from stan import limits
from stan.edge.leadership import Leaderships
from stan.errors import DiskFull, NotNow
from stan.raft.scheduler import Owner
from tests.kit.core_harness import Node, pub_frame


class Group:
    """What the leaderships see of a replicated group."""

    def __init__(self):
        self.leads = False
        self.term = 1
        self.transferring = False
        self.has_room = True
        self.lease = 1000 * SECOND
        self.frozen = ""
        self.has_committed = False
        self.successor = None
        self.members = ("me", "n2", "n3")
        self.commit_index = 0
        self.log = SimpleNamespace(last_index=0)

    def best_successor(self):
        return self.successor

    def transfer(self, to, done):
        self.transferring, self.handed_over = to, done

    def lease_until(self):
        return self.lease if self.leads else 0

    def freeze(self, why):
        self.frozen = why


class Scheduler:
    def __init__(self):
        self.owner = Owner(None)

    def heartbeat_if_due(self):
        pass


class Rig:
    """A node with one channel group and the metadata."""

    def __init__(self):
        self.node = Node()
        self.node.feed_client()
        self.node.feed_channel()
        self.node.gateway.listens = True
        self.groups = {0: Group(), 1: Group()}
        self.scheduler = Scheduler()
        self.notes = []
        self.leaderships = Leaderships(
            self.node.broker,
            self.groups,
            self.scheduler,
            self.node.gateway,
            nuid=b"NUID",
            now=lambda: self.node.now,
            note=lambda level, text: self.notes.append(text),
        )

    def turn(self):
        self.scheduler.owner.touched = {0, 1}
        self.leaderships.before_commit()
        self.node.commit()
        self.leaderships.after_commit(self.node.now)
        self.node.turn()
        return self.leaderships.settle(synced=False)

    @property
    def state(self):
        return self.node.state

    @property
    def view(self):
        return self.node.broker.view


@pytest.fixture
def rig():
    return Rig()


def test_roles_begin_once_and_end_once(rig):
    rig.turn()
    assert rig.leaderships.led == {}
    rig.groups[0].leads = rig.groups[1].leads = True
    assert rig.turn(), "one role in a turn: what was heard is looked at for each, and the links want their turn"
    assert set(rig.leaderships.led) == {0}
    assert not rig.turn()
    assert set(rig.leaderships.led) == {0, 1}
    assert rig.view.leads_meta
    assert rig.view.leads(1)
    assert rig.notes == ["group 0: leads in term 1", "group 1: leads in term 1"]
    rig.groups[0].leads = rig.groups[1].leads = False
    rig.turn()
    rig.turn()
    assert rig.leaderships.led == {}
    assert not rig.view.leads_meta
    assert not rig.view.leads(1)
    assert rig.notes[2:] == ["group 0: leads no more", "group 1: leads no more"]


def test_a_role_begins_when_all_that_is_in_the_log_is_committed(rig):
    group = rig.groups[1]
    group.leads, group.log.last_index, group.commit_index = True, 5, 4
    rig.turn()
    assert rig.leaderships.led == {}
    group.commit_index = 5
    rig.turn()
    assert set(rig.leaderships.led) == {1}


def test_a_leader_of_another_term_has_followed_in_between(rig):
    rig.groups[1].leads = True
    rig.turn()
    life = rig.state.leadership_epoch()
    rig.groups[1].term = 3
    rig.scheduler.owner.touched = {1}
    rig.leaderships.before_commit()
    assert not rig.view.leads(1)
    rig.leaderships.after_commit(rig.node.now)
    assert rig.state.leadership_epoch() == life + 1


def test_a_role_begins_with_what_was_heard(rig):
    rig.node.hears(pub_frame("foo", "a", b"a"))
    rig.groups[1].leads = True
    rig.turn()
    assert rig.node.stored() == [b"a"]
    rig.node.hears(pub_frame("foo", "b", b"b"))
    assert rig.node.stored() == [b"a", b"b"]
    rig.groups[1].leads = False
    rig.turn()
    rig.node.hears(pub_frame("foo", "c", b"c"))
    assert rig.node.stored() == [b"a", b"b"]


def test_acks_are_taken_for_groups_that_are_led(rig):
    assert rig.node.gateway.scope.led == frozenset()
    rig.groups[1].leads = True
    rig.turn()
    assert rig.node.gateway.scope.led == {1}
    rig.groups[1].leads = False
    rig.turn()
    assert rig.node.gateway.scope.led == frozenset()


def test_a_group_that_is_taken_away_is_led_no_more(rig):
    rig.groups[1].leads = True
    rig.turn()
    del rig.groups[1]
    rig.turn()
    assert rig.leaderships.led == {}
    assert not rig.view.leads(1)


def test_leaving_what_is_not_led_changes_nothing(rig):
    rig.leaderships.leave(1)
    assert rig.notes == []


def test_gates(rig):
    rig.groups[0].leads = rig.groups[1].leads = True
    rig.turn()
    assert (rig.state.closed, rig.state.saturated) == (set(), set())
    rig.groups[1].has_room = False
    rig.turn()
    assert (rig.state.closed, rig.state.saturated) == (set(), {1})
    rig.groups[1].transferring = True
    rig.turn()
    assert (rig.state.closed, rig.state.saturated) == ({1}, set())
    rig.groups[1].leads = False
    rig.turn()
    assert (rig.state.closed, rig.state.saturated) == (set(), set())


def test_nothing_is_sent_without_a_lease(rig):
    rig.groups[0].leads = rig.groups[1].leads = True
    rig.turn()
    assert rig.state.lapsed == set()
    rig.groups[0].lease = rig.groups[1].lease = rig.node.now
    rig.turn()
    assert rig.state.lapsed == {0, 1}


def test_a_leader_that_begins_without_a_lease_sends_nothing_yet(rig):
    rig.groups[0].leads = rig.groups[1].leads = True
    rig.groups[1].lease = 0
    rig.turn()
    rig.node.subscribe("foo")
    rig.node.hears(pub_frame("foo", "a", b"a"))
    rig.turn()
    assert rig.node.received() == []
    rig.groups[1].lease = 1000 * SECOND
    rig.turn()
    assert rig.node.received() == [(1, 0)]


def test_a_leader_that_does_not_hear_clients_yet_sends_nothing(rig):
    """It may know the metadata for a while by then, and acks of what it sent would be lost."""
    rig.node.gateway.listens = False
    rig.groups[0].leads = rig.groups[1].leads = True
    rig.turn()
    rig.node.subscribe("foo")
    rig.node.hears(pub_frame("foo", "a", b"a"))
    rig.turn()
    assert rig.node.received() == []
    rig.node.gateway.listen("_INBOX.NUID.>")
    rig.turn()
    assert rig.node.received() == [(1, 0)]


def test_a_group_that_leaves_the_node_while_it_is_led_is_silent_until_its_role_has_ended(rig):
    rig.groups[1].leads = True
    rig.turn()
    del rig.groups[1]
    assert rig.leaderships.lapsed({1}) == {1}
    rig.leaderships.check_leases(rig.node.now)
    assert rig.state.lapsed == {1}
    rig.leaderships.before_commit()
    assert rig.leaderships.led == {}


def test_a_group_that_freezes_is_looked_at(rig):
    rig.scheduler.owner.touched = set()
    rig.leaderships.freeze(1, "disk")
    assert rig.scheduler.owner.touched == {1}
    assert rig.groups[1].frozen == "disk"


def test_only_groups_that_something_happened_to_are_looked_at(rig):
    rig.groups[1].leads = True
    rig.scheduler.owner.touched = set()
    rig.leaderships.before_commit()
    rig.leaderships.after_commit(rig.node.now)
    assert rig.leaderships.led == {}
    rig.scheduler.owner.touch(1)
    rig.leaderships.settle(synced=False)
    assert rig.scheduler.owner.touched == {1}, "its role has not begun yet"
    rig.leaderships.after_commit(rig.node.now)
    assert set(rig.leaderships.led) == {1}
    rig.leaderships.settle(synced=False)
    assert rig.scheduler.owner.touched == set()


def test_a_leader_that_can_write_nothing_lets_another_one_lead(rig):
    group = rig.groups[1]
    group.leads = True
    rig.turn()
    assert not rig.leaderships.is_left_to_successor(1, NotNow("too much waits"))
    group.successor = "other"
    assert rig.leaderships.is_left_to_successor(1, DiskFull("full"))
    assert group.transferring == "other"
    assert rig.state.stops().mute, "the log could not tell of what is sent now"
    assert rig.leaderships.is_left_to_successor(1, NotNow("leadership is being handed over"))


def test_what_was_left_to_the_next_leader_is_taken_by_this_one_if_nobody_took_over(rig):
    node, group = rig.node, rig.groups[1]
    group.leads, group.successor = True, "n2"
    rig.turn()
    node.in_doubt = True  # nobody is answered, nothing is written
    assert node.publish("foo", b"a", b"b") == []
    assert rig.leaderships.is_left_to_successor(1, DiskFull("no room"))
    node.in_doubt = group.transferring = False
    group.handed_over(False)  # noqa: FBT003 - an answer
    rig.turn()
    assert not rig.state.stops().mute
    node.publish("foo", b"c")
    assert node.stored() == [b"a", b"b", b"c"]
    assert [base for base, *_ in node.indexes[1, 1].batches] == [1, 3]


def test_a_handover_that_ends_after_leadership_came_again_changes_nothing(rig):
    group = rig.groups[1]
    group.leads, group.successor = True, "n2"
    rig.turn()
    rig.leaderships.is_left_to_successor(1, DiskFull("no room"))
    group.term, group.transferring = 2, False
    rig.turn()
    life = rig.state.leadership_epoch()
    group.handed_over(False)  # noqa: FBT003 - an answer
    rig.turn()
    assert rig.state.leadership_epoch() == life


def test_a_leader_with_a_full_disk_that_reaches_nobody_refuses_nothing_and_looks_again(rig):
    node, group = rig.node, rig.groups[1]
    group.leads = True
    rig.turn()
    node.in_doubt = True  # what is_left_to_successor says: no answer, nothing written
    node.publish("foo", b"a", b"b")
    for _ in range(3):
        assert rig.leaderships.is_left_to_successor(1, DiskFull("no room"))
    assert len([note for note in rig.notes if "nobody else" in note]) == 1
    node.in_doubt = False
    node.now += limits.FULL_DISK_RETRY
    rig.turn()  # the alarm rings
    rig.turn()
    assert node.stored() == [b"a", b"b"]


@pytest.mark.parametrize("error", [DiskFull("no room"), NotNow("leadership is being handed over")])
def test_what_has_left_something_open_writes_nothing_until_it_is_led_anew(rig, error):
    """There may be room again sooner; what is written then would follow sequences that no entry has."""
    group = rig.groups[1]
    group.leads, group.transferring = True, not isinstance(error, DiskFull)
    rig.turn()
    assert rig.leaderships.is_left_to_successor(1, error)
    group.transferring = False
    assert rig.leaderships.led[1].left_open is error
    assert rig.leaderships.is_left_to_successor(1, NotNow("too much waits")), "no answer: the next leader may take it"
    life = rig.state.leadership_epoch()
    rig.node.now += limits.FULL_DISK_RETRY
    rig.scheduler.owner.touch(1)
    rig.turn()
    rig.turn()
    assert rig.leaderships.led[1].left_open is None
    assert rig.state.leadership_epoch() > life
    assert set(rig.leaderships.led) == {1}


def test_the_only_voter_means_what_it_refuses(rig):
    group = rig.groups[1]
    group.leads, group.members = True, ("me",)
    rig.turn()
    assert not rig.leaderships.is_left_to_successor(1, DiskFull("no room"))


def test_a_group_whose_turn_brought_no_news_needs_no_round_unless_it_may_take_proposals_again(rig):
    rig.groups[1].leads = True
    rig.node.gateway.listen("_INBOX.NUID.>")
    rig.turn()
    rig.scheduler.owner.touched = {1}
    assert rig.leaderships.is_at_rest(rig.node.now)
    rig.scheduler.owner.has_news = True
    assert not rig.leaderships.is_at_rest(rig.node.now)
    rig.groups[1].transferring = True
    rig.turn()
    rig.scheduler.owner.touched = {1}
    assert not rig.leaderships.is_at_rest(rig.node.now)
    rig.groups[1].transferring, rig.groups[1].has_room = False, False
    rig.turn()
    rig.scheduler.owner.touched = {1}
    assert not rig.leaderships.is_at_rest(rig.node.now)


def test_a_lease_that_ends_early_is_told_as_soon_as_something_was_not_sent_for_it(rig):
    """A full disk: the hand-over has come to nothing, and until followers answer again nothing leaves. The broker must know, or
    it tries again in each turn."""
    rig.groups[1].leads = True
    rig.turn()
    rig.groups[1].lease = 0
    assert not rig.leaderships.check_leases(rig.node.now), "not read before its time"
    assert rig.leaderships.lapsed({1}) == {1}
    assert rig.state.lapsed == {1}
    assert not rig.leaderships.check_leases(rig.node.now)
    rig.groups[1].lease = 1000 * SECOND
    assert rig.leaderships.check_leases(rig.node.now)
    assert rig.state.lapsed == set()


def test_a_lease_that_has_ended_is_read_again_each_turn_until_it_holds(rig):
    rig.groups[1].leads, rig.groups[1].lease = True, rig.node.now + SECOND
    rig.node.gateway.listen("_INBOX.NUID.>")
    rig.turn()
    assert not rig.leaderships.check_leases(rig.node.now + SECOND - 1)
    assert rig.leaderships.check_leases(rig.node.now + SECOND)
    assert rig.state.lapsed == {1}
    assert rig.leaderships.is_at_rest(rig.node.now + SECOND), "there is nothing to do about it"
    rig.groups[1].lease += SECOND
    assert not rig.leaderships.is_at_rest(rig.node.now + SECOND), "what was held back may leave"
    assert rig.state.lapsed == set()

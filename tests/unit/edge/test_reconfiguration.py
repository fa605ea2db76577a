"""What one node does when nodes are added and removed: walks of what it leads, copies that it opens and closes, its own end."""

from random import Random
from types import SimpleNamespace

import pytest
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import ClusterConfig
from stan.core.boundary.meta_view import MetaView
from stan.core.metadata.meta import MetaMachine
from stan.edge.cluster.membership import Membership
from stan.edge.cluster.reconfiguration import Reconfiguration
from stan.edge.storage.manifest import Manifest
from stan.errors import NotNow
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.proto.node_pb2 import NodeHello

ABC = ("a", "b", "c")
GROUPS = 3


class FakeGroup:
    """A group whose changes take effect when the test says so."""

    def __init__(self, number, voters):
        self.group = number
        self.members = tuple(voters)
        self.change_under_way = self.transferring = False
        self.failed = ""
        self.lags = {}
        self.asked = []
        self.busy = False

    def lag(self):
        return self.lags

    def counting(self):
        return set(self.members)

    def change(self, voters):
        if self.busy:
            raise NotNow("another one is under way")
        self.asked.append(voters)
        self.members = tuple(voters)


class FakeMember:
    """A node among the given ones, that leads and holds what the test says."""

    def __init__(self, me="a", peers=ABC, held=range(GROUPS + 1), led=(), **cluster):
        self.me = me
        self.cluster = ClusterConfig(node_id=me, peers=peers, **cluster)
        self.now = 100 * SECOND
        self.ended = self.disk_fails = False
        self.fails = None  # with what copies cannot be begun or closed
        self.notes, self.begun, self.closed, self.handed = [], [], [], []
        self.storage = SimpleNamespace(
            node_id=me,
            directory=SimpleNamespace(manifest=Manifest("town", GROUPS, "ab" * 16), note_nodes=self.keep),
            logs=dict.fromkeys(held),
        )
        self.silenced = []  # groups that are about to be handed over
        self.meta = MetaMachine()
        self.broker = SimpleNamespace(
            view=SimpleNamespace(meta=MetaView(SimpleNamespace(meta=self.meta))),
            cluster=SimpleNamespace(follow_labels=lambda: None, follow_pool=lambda: None),
            stops=SimpleNamespace(step_handover=lambda number, *, under_way: self.silenced.append((number, under_way))),
        )
        self.meta.info = pb.ClusterInfo()
        runtime = SimpleNamespace(now=lambda: self.now, soon=lambda call: call())
        self.environment = SimpleNamespace(
            runtime=runtime, note=lambda *note: self.notes.append(note), ended=self.leave, crashed=self.crash
        )
        faults = SimpleNamespace(within=lambda _number, call, *args: call(*args))
        self.driver = SimpleNamespace(turns=SimpleNamespace(stopped=False, wake=lambda: None), faults=faults)
        self.handovers = self.copies = self
        self.leaderships = SimpleNamespace(led=dict.fromkeys(led, 0))
        self.group_sync = SimpleNamespace(receives=lambda number: number == self.incoming)
        self.incoming = None
        self.reconfiguration = Reconfiguration(self, self.cluster, GROUPS)
        hello = NodeHello(node=me, cluster_id="town", instance=1, voters=self.reconfiguration.names, fresh=False)
        self.membership = Membership(hello, self.now, Random(1))
        self.membership.me.replica = self.cluster.replica
        self.groups = {number: FakeGroup(number, self.reconfiguration.first_voters(number)) for number in held}

    def keep(self, nodes):
        if self.disk_fails:
            raise OSError("no room")
        self.storage.directory.manifest.nodes = nodes

    def leave(self):
        self.ended = True

    def crash(self, error):
        raise error

    def hand_over(self, number, to):
        self.handed.append((number, to))

    def begin(self, number, done):
        self.begun.append(number)
        if self.fails is not None:
            done(self.fails)
            return
        self.storage.logs[number] = None
        self.groups[number] = FakeGroup(number, ())
        done(None)

    def end(self, number, done):
        self.closed.append(number)
        del self.storage.logs[number], self.groups[number]
        done(self.fails)

    def set_nodes(self, names, version):
        self.meta.info.nodes.CopyFrom(pb.Nodes(names=names, version=version))

    def hear(self, node, **facts):
        hello = NodeHello(node=node, cluster_id="town", instance=ord(node), **facts)
        self.membership.receive(hello.SerializeToString(), self.now)

    def tick(self, seconds=0):
        self.now += seconds * SECOND
        self.membership.update(self.now, led=self.leaderships.led)
        self.reconfiguration.tick(self.now)


def others(member, names="bcd", version=1, **facts):
    """The others are there and go by the same nodes; c leads everything."""
    for name in names:
        led = facts.get("led", range(GROUPS + 1)) if name == "c" else ()  # who does not lead tells of no group
        member.hear(name, nodes_version=version, led=led, walking=facts.get("walking", ()))


def settled(member, **facts):
    """The others are there for so long that they would take over."""
    for _ in range(limits.BALANCE_SETTLE // SECOND):
        others(member, **facts)
        member.now += SECOND
    others(member, **facts)


def all_close(member):
    for group in member.groups.values():
        group.lags = dict.fromkeys("abcd", 0)


def test_a_group_is_walked_to_where_the_nodes_want_it():
    member = FakeMember(led=range(GROUPS + 1))
    member.tick()
    assert not any(group.asked for group in member.groups.values())
    member.set_nodes("bcd", 1)
    settled(member, led=())
    all_close(member)
    group = member.groups[1]
    for _ in range(3):
        member.tick()
    assert group.asked == [["a", "b", "c", "d"]]
    assert (1, True) in member.silenced
    assert (1, member.reconfiguration.placement[1].voters[0]) in member.handed
    assert list(member.membership.me.walking) == [0, 1, 2, 3]
    assert member.reconfiguration.under_way()

    del member.leaderships.led[1]
    member.tick()
    assert list(member.membership.me.walking) == [0, 2, 3]


def test_what_cannot_be_changed_now_is_tried_again():
    member = FakeMember(led=[1])
    member.set_nodes("abcd"[1:], 1)
    settled(member)
    all_close(member)
    group = member.groups[1]
    group.busy = True
    member.tick()
    assert not group.asked
    group.busy, group.change_under_way = False, True
    member.tick()
    assert not group.asked
    group.change_under_way = False
    member.tick()
    assert len(group.asked) == 1


def test_voters_are_not_changed_while_nobody_else_would_take_over():
    member = FakeMember(led=[1])
    member.set_nodes("bcd", 1)
    settled(member, names="d", led=())  # who has no vote yet is not asked
    others(member, led=())
    all_close(member)
    member.tick()
    assert not member.groups[1].asked
    settled(member, led=())
    member.tick()
    assert member.groups[1].asked


def test_a_node_that_is_added_opens_what_is_placed_on_it_once():
    member = FakeMember("d", held=[0], replica=True)
    member.tick()
    assert member.begun == []
    member.set_nodes("abcd", 1)
    member.tick()
    member.tick()
    placed = [number for number, one in member.reconfiguration.placement.items() if number and "d" in one.voters]
    assert placed
    assert member.begun == placed
    assert not member.membership.me.replica
    assert list(member.membership.me.voters) == list("abcd")
    assert member.storage.directory.manifest.nodes.names == list("abcd")
    assert member.storage.directory.manifest.nodes.founders == list(ABC)
    assert "d" not in member.reconfiguration.first_voters(placed[0])


def test_a_disk_that_fails_while_a_group_begins_is_tried_again_and_nothing_else_ends():
    member = FakeMember("d", held=[0], replica=True)
    member.set_nodes("abcd", 1)
    member.fails = OSError("input/output error")
    member.tick()
    first = list(member.begun)
    member.tick()
    assert first
    assert member.begun == first, "not at every tick"
    assert {(kind, "input/output error" in text) for kind, text in member.notes if "begun" in text} == {("ERR", True)}
    member.fails = None
    member.tick(limits.FULL_DISK_RETRY // SECOND)
    assert member.begun == [*first, *first]
    member.tick(limits.FULL_DISK_RETRY // SECOND)
    assert member.begun == [*first, *first]
    assert set(member.groups) == {0, *first}


def test_changed_labels_change_the_placement_and_are_written_down():
    member = FakeMember("a", peers="abcd", replicas=2)
    before = {number: placed.voters for number, placed in member.reconfiguration.placement.items()}
    double = next(voters for voters in before.values() if "a" in voters)
    labels = [pb.PlacedNode(node=name, zone="east" if name in double else "west") for name in "abcd"]
    member.meta.info.nodes.CopyFrom(pb.Nodes(names="abcd", version=1, labels=labels))
    member.tick()
    after = {number: placed.voters for number, placed in member.reconfiguration.placement.items()}
    assert all(len(set(voters) & set(double)) == 1 for voters in after.values())
    assert all(after[number][0] == voters[0] for number, voters in before.items())
    kept = member.storage.directory.manifest.nodes
    assert kept.labels == {name: ["east" if name in double else "west", "", ""] for name in "abcd"}
    assert [one.zone for one in member.membership.me.labels] == [one.zone for one in labels]
    assert member.reconfiguration.first_voters(1) == before[1]  # by which the group was begun


def closing():
    """A node that holds a copy which is placed elsewhere, and is a voter of it no more."""
    member = FakeMember("d", peers=("a", "b", "c", "d"), nodes_version=1)
    member.set_nodes("abcd", 1)
    member.tick()
    away = [number for number, one in member.reconfiguration.placement.items() if number and "d" not in one.voters]
    for group in member.groups.values():
        group.members = tuple(member.reconfiguration.placement[group.group].voters)
    return member, away


def after_a_while(member, **facts):
    for _ in range(limits.COPY_PATIENCE // SECOND + 2):
        others(member, "abc", **facts)
        member.tick(1)
    return member.closed


def test_a_copy_that_cannot_be_closed_is_left_alone_until_a_restart():
    """What is left of it on the disk must not be taken for a copy that has just begun."""
    member, away = closing()
    member.fails = OSError("input/output error")
    assert after_a_while(member) == away
    assert any(kind == "ERR" and "its files are" in text for kind, text in member.notes)
    member.set_nodes("bcd", 2)
    for _ in range(3):
        member.tick(1)
    assert not set(member.begun) & set(away)


def test_a_copy_that_nobody_counts_on_is_closed_after_a_while():
    member, away = closing()
    assert away
    others(member, "abc")
    member.tick()
    assert member.closed == []
    assert after_a_while(member) == away
    assert not member.ended


@pytest.mark.parametrize(
    "facts", [{"version": 2}, {"version": 0}, {"led": ()}, {"walking": range(GROUPS + 1)}], ids=str
)
def test_a_copy_is_kept_while_its_leader_may_count_on_it(facts):
    member, _ = closing()
    assert after_a_while(member, **facts) == []


def test_a_copy_is_kept_while_this_node_votes_or_receives_it():
    member, away = closing()
    member.groups[away[0]].members += ("d",)
    assert after_a_while(member) == away[1:]
    member, away = closing()
    member.incoming = away[0]
    assert after_a_while(member) == away[1:]


def test_a_replica_keeps_everything():
    member = FakeMember("d", replica=True)
    member.set_nodes("abc", 1)
    assert after_a_while(member) == []
    assert not member.ended


def test_a_node_that_was_removed_ends_when_it_is_in_no_group():
    member = FakeMember("a")
    member.set_nodes("bcd", 1)
    assert after_a_while(member) == []  # it votes still
    for number in (1, 2, 3):
        member.groups[number].members = tuple("bcd")
    assert after_a_while(member) == [1, 2, 3]
    assert not member.ended
    member.groups[0].change_under_way, member.groups[0].members = True, tuple("bcd")
    member.tick()
    assert not member.ended
    member.groups[0].change_under_way = False
    assert member.storage.directory.manifest.nodes.belongs
    member.tick()
    assert member.ended
    assert not member.storage.directory.manifest.nodes.belongs


def test_a_change_is_under_way_until_every_leader_says_that_it_is_done():
    member = FakeMember("a", led=[1])
    member.tick()
    others(member, "bc", version=0, led=[0, 2, 3])
    assert member.reconfiguration.under_way() == ""
    others(member, "bc", version=0, led=[0, 2, 3], walking=[2])
    assert member.reconfiguration.under_way() == "groups not yet where the last change wants them: 2"
    others(member, "bc", version=0, led=[0, 2])
    assert member.reconfiguration.under_way().endswith(": 3")
    others(member, "bc", version=0, led=[0, 2, 3])
    member.set_nodes("abcd", 1)
    assert member.reconfiguration.under_way().endswith(": 0, 1, 2, 3")


def test_observers_are_who_needs_a_copy_without_a_vote():
    member = FakeMember("a", led=[1])
    member.hear("r", replica=True)
    member.hear("x", held=[1])
    assert member.reconfiguration.observers(1, frozenset(ABC)) == ["r", "x"]
    assert member.reconfiguration.peers(member.now) == ["b", "c", "r", "x"]  # in one order, whatever the process
    member.hear("y", held=[1], voters=["a", "y"])  # of another cluster
    assert "y" not in member.reconfiguration.peers(member.now)


def test_what_the_disk_did_not_take_is_written_down_later():
    member = FakeMember()
    member.set_nodes("abcd", 1)
    member.disk_fails = True
    member.tick()
    assert member.storage.directory.manifest.nodes.version == 0
    assert [level for level, _ in member.notes].count("ERR") == 1
    member.disk_fails = False
    member.tick(1)
    assert member.storage.directory.manifest.nodes.version == 1

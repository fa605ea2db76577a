"""Who is there, who must not be, and whether there is a past: rosters that hear each other under a clock of their own."""

from itertools import combinations
from random import Random

import pytest
from stan_protocol.scalars import MILLISECOND, SECOND

from stan import limits
from stan.edge.cluster.hellos import Settings
from stan.edge.cluster.membership import Membership
from stan.labels import Labels
from stan.protocol.proto.node_pb2 import NodeHello, NodeLabels
from stan.raft.placement import place

X, Y = b"identityX", b"identityY"
ABC = ("a", "b", "c")


class Town:
    """Nodes that hear everything at once, unless they are cut off. Starts at a time that is not zero."""

    def __init__(self):
        self.now = 1000 * SECOND
        self.instances = 0
        self.rosters: list[Membership] = []
        self.mute: set[int] = set()  # instances that are neither heard nor hear
        self.said: list[tuple[int, int]] = []  # time, instance

    def start(self, node, **facts):
        """A process; `fresh`, of the voters a, b, c unless told otherwise."""
        facts = {"voters": ABC, "raft_groups": 8, "replicas": 3, "fresh": not facts.get("identity"), **facts}
        self.instances += 1
        instance = self.instances
        started = facts.pop("started", self.now)
        me = NodeHello(node=node, cluster_id="town", instance=instance, started=started, **facts)
        membership = Membership(me, self.now, Random(instance))
        self.rosters.append(membership)
        self.settle()
        return membership

    def old(self, node, **facts):
        """A process with the data of cluster X."""
        return self.start(node, identity=X, **facts)

    def stop(self, membership):
        self.rosters.remove(membership)

    def settle(self):
        """Everything that is due now is said and heard."""
        while True:
            hellos = [(membership, payload) for membership in self.rosters for payload in membership.tick(self.now)]
            if not hellos:
                return
            for speaker, payload in hellos:
                self.said.append((self.now, speaker.me.instance))
                for membership in self.rosters:  # and itself, as NATS echoes
                    if not {speaker.me.instance, membership.me.instance} & self.mute:
                        membership.receive(payload, self.now)

    def run(self, nanos):
        self.settle()
        end = self.now + nanos
        while (due := min(membership.next_tick for membership in self.rosters)) <= end:
            assert due > self.now, "a tick that is due was taken"
            self.now = due
            self.settle()
        self.now = end


@pytest.fixture
def town():
    return Town()


def hello(node, **facts):
    """What another node says."""
    facts = {"voters": ABC, "raft_groups": 8, "replicas": 3, **facts}
    return NodeHello(cluster_id="town", node=node, instance=1000 + ord(node), **facts).SerializeToString()


def hello_of(membership):
    """What a node would say now."""
    return membership.me.SerializeToString()


# --- hellos ---------------------------------------------------------------------------------------------------------------


def test_hello_comes_at_once_and_then_once_a_second(town):
    begin = town.now
    town.start("a")

    town.run(3 * SECOND)

    assert [at - begin for at, _ in town.said if at - begin] == [1 * SECOND, 2 * SECOND, 3 * SECOND]
    assert town.said[0] == (begin, 1)


def test_newcomer_is_answered_soon_and_not_by_all_at_once(town):
    a, b = town.old("a"), town.old("b")
    town.run(1300 * MILLISECOND)
    town.said.clear()
    begin = town.now

    c = town.start("c")
    town.run(limits.HELLO_ANSWER_MAX)

    answers = {instance: at - begin for at, instance in town.said if instance != 3}
    assert answers.keys() == {1, 2}
    assert 0 < answers[1] != answers[2] > 0
    assert [sorted(membership.hellos.nodes) for membership in (a, b, c)] == [["b", "c"], ["a", "c"], ["a", "b"]]


def test_restarted_node_is_answered_too(town):
    town.start("a")
    b = town.start("b")
    town.run(300 * MILLISECOND)
    town.stop(b)
    town.said.clear()

    town.start("b")
    town.run(limits.HELLO_ANSWER_MAX)

    assert 1 in {instance for _, instance in town.said}


def test_changes_are_told_at_once_and_groups_with_the_next_hello(town):
    a, b = town.start("a"), town.start("b")
    town.run(300 * MILLISECOND)

    a.update(town.now, led=[5, 2])
    town.settle()
    assert list(b.hellos.nodes["a"].hello.led) == []
    a.update(town.now, draining=True, fresh=False, identity=X)
    town.settle()

    heard = b.hellos.nodes["a"].hello
    assert (list(heard.led), heard.draining, heard.fresh, heard.identity) == ([2, 5], True, False, X)
    assert b.hellos.draining(town.now) == {"a"} == a.hellos.draining(town.now)


def test_garbage_echoes_and_other_clusters_are_not_listened_to(town):
    a = town.start("a")

    for payload in (
        b"\xff\xff",
        b"",
        hello_of(a),
        NodeHello(cluster_id="city", node="b", instance=9).SerializeToString(),
    ):
        a.receive(payload, town.now)

    assert a.hellos.nodes == {}
    assert a.refusal == ""


def test_number_of_nodes_is_bounded_but_voters_are_always_heard(town):
    a = town.start("a")
    for number in range(limits.NODES_MAX + 5):
        a.receive(NodeHello(cluster_id="town", node=f"r{number}", instance=number + 9).SerializeToString(), town.now)

    town.start("b")

    assert len(a.hellos.nodes) == limits.NODES_MAX + 1
    assert "b" in a.hellos.nodes


# --- who is there ---------------------------------------------------------------------------------------------------------


def test_node_is_alive_while_it_is_heard_and_since_it_came_back(town):
    begin = town.now
    a, b = town.start("a"), town.start("b")
    town.run(10 * SECOND)
    assert a.hellos.alive_since(town.now) == {"a": begin, "b": begin}

    town.mute = {b.me.instance}
    town.run(limits.NODE_TIMEOUT)
    assert not a.hellos.alive("b", town.now)
    assert a.hellos.alive("a", town.now)
    assert not a.hellos.alive("nobody", town.now)
    assert a.hellos.alive_since(town.now) == {"a": begin}

    town.mute = set()
    town.run(2 * SECOND)
    assert begin + 10 * SECOND < a.hellos.alive_since(town.now)["b"] <= town.now


def test_reconnected_node_counts_from_then_on_and_says_so_at_once(town):
    a = town.start("a")
    town.run(300 * MILLISECOND)

    a.announce(town.now)

    assert a.hellos.alive_since(town.now) == {"a": town.now}
    assert a.next_tick == town.now


def test_read_replicas_are_listed_and_forgotten(town):
    a = town.old("a")
    town.old("b")
    r, s = town.start("r", replica=True), town.start("s", replica=True)
    town.run(1 * SECOND)
    assert a.hellos.read_replicas(town.now) == r.hellos.read_replicas(town.now) == ["r", "s"]

    town.mute = {r.me.instance, s.me.instance, 2}
    town.run(limits.NODE_TIMEOUT)
    assert a.hellos.read_replicas(town.now) == []
    town.run(limits.NODE_FORGET)
    assert list(a.hellos.nodes) == ["b"], "a voter that is away stays listed"


def test_last_words_of_a_replaced_process_are_not_believed(town):
    a, b = town.start("a"), town.start("b")
    town.run(SECOND)
    late = hello_of(b)
    town.stop(b)
    again = town.start("b")

    a.receive(late, town.now)
    assert a.hellos.nodes["b"].hello.instance == again.me.instance


def test_process_whose_clock_is_behind_its_predecessors_is_known_once_that_is_silent(town):
    a, b = town.start("a"), town.start("b")
    town.run(SECOND)
    town.stop(b)
    again = town.start("b", started=1)
    assert a.hellos.nodes["b"].hello.instance != again.me.instance

    town.run(limits.NODE_TIMEOUT + SECOND)

    assert a.hellos.nodes["b"].hello.instance == again.me.instance


# --- one node id, two processes ---------------------------------------------------------------------------------------------


def test_later_of_two_processes_with_one_node_id_yields(town):
    first = town.start("a")
    town.run(5 * SECOND)

    second = town.start("a")

    assert first.refusal == ""
    assert second.refusal == (
        'node ID "a" is used by two running servers (process 0000000000000002 here, 0000000000000001 elsewhere): '
        "stop one, or give it another -cluster_node_id"
    )
    assert len(first.take_notes()) == 1
    town.run(5 * SECOND)
    assert first.refusal == ""
    assert first.take_notes() == []


def test_established_process_stays_whatever_the_clocks_say(town):
    first = town.old("a")
    town.old("b")
    town.run(5 * SECOND)

    second = town.old("a", started=1)

    assert first.refusal == ""
    assert second.refusal


def test_predecessor_that_is_gone_refuses_nobody(town):
    before = town.old("a")
    town.old("b")
    town.run(5 * SECOND)
    words = hello_of(before)
    town.stop(before)

    after = town.old("a")
    for _ in range(3):
        after.receive(words, town.now)
        town.run(SECOND)

    assert after.refusal == ""


# --- who must not run -------------------------------------------------------------------------------------------------------

WRONG = {
    "groups": (
        {"raft_groups": 4},
        'node "a" runs with 8 groups of channels, this one with 4: give all nodes the same -raft_groups',
    ),
    "identity": (
        {"identity": Y},
        (
            'node "c" holds the data of another cluster (identityY) than node "a" (identityX): '
            "give the one that does not belong here another -dir"
        ),
    ),
    "voters": (
        {"voters": ("a", "c", "d")},
        'node "a" knows the voters a, b, c, this one a, c, d: give all nodes the same -cluster_peers',
    ),
    "replicas": (
        {"replicas": 2},
        'node "a" keeps 3 replicas of each group, this one 2: give all nodes the same -replicas',
    ),
}


@pytest.mark.parametrize(("wrong", "text"), WRONG.values(), ids=WRONG)
def test_newcomer_that_disagrees_is_refused_and_the_others_only_say_so(town, wrong, text):
    a, b = town.old("a"), town.old("b")
    town.run(2 * SECOND)

    c = town.start("c", **{"identity": X, **wrong})
    town.run(limits.HELLO_ANSWER_MAX)

    assert c.refusal in (text, text.replace('node "a"', 'node "b"'))
    assert a.refusal == b.refusal == ""
    assert len(a.take_notes()) == 1 == len(b.take_notes())
    town.run(3 * SECOND)
    assert a.take_notes() == []


def test_order_of_the_voters_is_no_difference(town):
    rosters = [town.start("a"), town.start("b", voters=("c", "b", "a")), town.start("c")]
    town.run(2 * SECOND)

    assert all(membership.is_new and not membership.refusal for membership in rosters)


def test_where_nobody_is_established_the_minority_is_refused(town):
    """All nodes are restarted, one with another setting; the wrong one is heard before the other right one."""
    a = town.old("a")
    town.run(5 * SECOND)
    c = town.old("c", replicas=2)
    town.run(limits.HELLO_LISTEN // 2)
    b = town.old("b")
    town.run(SECOND)

    assert (a.refusal, b.refusal) == ("", "")
    assert c.refusal


def test_two_fresh_nodes_that_disagree_are_both_refused(town):
    a = town.start("a")
    town.run(5 * SECOND)
    b = town.start("b", raft_groups=4)
    assert (a.refusal, b.refusal) == ("", ""), "others may take sides yet"

    town.run(2 * SECOND)

    assert "4" in a.refusal
    assert "8" in b.refusal
    assert not a.is_new


def test_read_replica_with_wrong_settings_stops_itself_only(town):
    a = town.start("a")
    r = town.start("r", replica=True, raft_groups=4)
    town.run(2 * SECOND)

    assert a.refusal == ""
    assert r.refusal


def test_established_node_is_not_refused_by_another_established_one(town):
    a = town.old("a")
    town.old("b")
    town.run(2 * SECOND)

    for node in "cdef":
        a.receive(hello(node, replicas=1, established=True), town.now)
    town.run(2 * SECOND)

    assert a.refusal == ""
    assert len(a.take_notes()) == 4


def test_two_newcomers_that_agree_with_each_other_listen_before_they_are_established(town):
    town.old("c")
    town.old("b")
    town.run(2 * SECOND)

    a, d = (town.old(node, voters=("a", "b", "d")) for node in "ad")
    town.run(limits.HELLO_LISTEN)

    assert a.refusal
    assert d.refusal


def test_newcomers_give_way_to_the_established_however_many_they_are(town):
    a = town.old("a")
    for node in "bde":
        a.receive(hello(node, identity=X), town.now)

    a.receive(hello("c", identity=X, replicas=1, established=True), town.now)

    assert a.refusal


def test_node_is_not_established_by_one_that_disagrees(town):
    a = town.old("a")
    a.receive(hello("b", fresh=True), town.now)
    a.receive(hello("c", identity=X, replicas=1), town.now)

    a.tick(town.now + 2 * SECOND)

    assert not a.refusal
    assert not a.me.established


def test_node_that_joins_takes_nobodys_side(town):
    a = town.old("a")
    a.receive(hello("b", identity=X, replicas=1), town.now)
    a.receive(hello("j", voters=(), raft_groups=0, replicas=0), town.now)

    a.tick(town.now + limits.HELLO_LISTEN)

    assert a.refusal


def test_node_that_becomes_established_refuses_at_once(town):
    a = town.old("a")
    a.receive(hello("b", identity=X, replicas=1), town.now)
    assert not a.refusal

    a.receive(hello("b", identity=X, replicas=1, established=True), town.now)

    assert a.refusal


def test_refused_node_says_hello_once_more(town):
    a = town.start("a", bootstrap=True, voters=("a", "b"))
    town.run(200 * MILLISECOND)

    a.receive(
        NodeHello(cluster_id="town", node="b", instance=9, bootstrap=True, fresh=True).SerializeToString(), town.now
    )

    assert a.refusal
    assert a.tick(town.now)


def test_two_that_bootstrap_are_both_refused_while_there_is_no_cluster(town):
    a, b = town.start("a", bootstrap=True), town.start("b", bootstrap=True)
    town.settle()

    assert a.refusal == "Server b was also started with -cluster_bootstrap"
    assert b.refusal == "Server a was also started with -cluster_bootstrap"


def test_only_one_of_two_that_bootstrap_is_fresh(town):
    a, b = town.start("a", bootstrap=True, fresh=False), town.start("b", bootstrap=True)

    assert a.refusal == b.refusal == ""


def test_bootstrap_means_nothing_to_nodes_of_a_cluster(town):
    rosters = [
        town.old("a", bootstrap=True),
        town.old("b", bootstrap=True),
        town.start("c", bootstrap=True),
    ]
    town.run(3 * SECOND)

    assert not any(membership.refusal for membership in rosters)


# --- whether there is a past --------------------------------------------------------------------------------------------------


def test_cluster_is_new_once_all_voters_were_heard_without_a_past(town):
    a, b = town.start("a"), town.start("b")
    town.run(10 * SECOND)
    assert not a.is_new
    assert not b.is_new

    c = town.start("c")
    town.run(limits.HELLO_ANSWER_MAX)

    assert a.is_new
    assert b.is_new
    assert c.is_new


def test_founder_tells_before_it_acts(town):
    a = town.start("a")
    a.receive(hello("b", fresh=True), town.now)
    assert a.next_tick > town.now

    a.receive(hello("c", fresh=True), town.now)

    assert a.is_new
    assert a.next_tick == town.now
    (said,) = a.tick(town.now)
    assert dict(NodeHello.FromString(said).founders) == {"a": 1, "b": 1000 + ord("b"), "c": 1000 + ord("c")}


def test_cluster_stays_new_for_who_is_slow_to_become_a_part_of_it(town):
    a, b, c = (town.start(node) for node in ABC)
    town.run(SECOND)

    for membership in (a, b):
        membership.update(town.now, identity=X)
        membership.update(town.now, fresh=False)
    town.run(3 * SECOND)

    assert c.is_new
    c.update(town.now, identity=X, fresh=False)
    assert c.is_new


def test_cluster_of_one_is_new_if_its_disk_is_empty(town):
    assert town.start("a", voters=("a",)).is_new
    assert not Town().old("a", voters=("a",)).is_new


@pytest.mark.parametrize("past", [{"identity": X}, {"fresh": False}, {"identity": X, "fresh": True}])
def test_voter_with_a_past_makes_the_cluster_an_old_one(town, past):
    a, b = town.start("a"), town.start("b", bootstrap=True)
    town.start("c", **past)
    town.run(5 * SECOND)

    assert not a.is_new
    assert not b.is_new


def test_node_that_lost_its_disk_does_not_vote_because_of_the_flag_it_still_has(town):
    town.old("b")
    town.old("c")
    town.run(SECOND)

    a = town.start("a", bootstrap=True)
    town.run(5 * SECOND)

    assert not a.is_new
    a.update(town.now, identity=X)
    assert not a.is_new


def test_bootstrap_makes_a_cluster_without_hearing_all_after_listening(town):
    a, b = town.start("a", bootstrap=True), town.start("b")
    town.run(limits.HELLO_LISTEN - 1)
    assert not a.is_new
    assert not b.is_new

    town.run(1)
    assert a.is_new
    assert b.is_new


def test_bootstrap_takes_a_majority(town):
    """A node that lost its disk and kept its flag is alone while the others are away."""
    a = town.start("a", bootstrap=True)
    town.run(10 * SECOND)
    assert not a.is_new

    town.start("c")
    town.run(10 * SECOND)
    assert a.is_new


def test_founder_that_has_voted_still_founds_with_who_comes_late(town):
    a, b = town.start("a", bootstrap=True), town.start("b")
    town.run(SECOND)
    for membership in (a, b):
        membership.update(town.now, fresh=False)

    c = town.start("c")
    town.run(SECOND)

    assert c.is_new
    assert dict(a.me.founders) == dict(b.me.founders) == {"a": 1, "b": 2, "c": 3}


def test_read_replica_founds_nothing(town):
    for node in ABC:
        town.start(node, bootstrap=node == "a")
    r = town.start("r", replica=True)
    town.run(2 * SECOND)

    assert not r.is_new


def test_node_that_knows_the_cluster_does_not_found_it(town):
    a = town.start("a", identity=X, fresh=True)
    for node in "bc":
        a.receive(hello(node, fresh=True), town.now)

    assert not a.is_new


def test_founder_that_heard_of_it_late_is_one(town):
    """The others formed the cluster with this process as one of them while it heard nothing."""
    c = town.start("c")
    for node in "ab":
        c.receive(hello(node, identity=X, founders={"a": 1, "b": 2, "c": c.me.instance}), town.now)

    assert c.is_new


def test_founding_is_taken_back_if_a_voter_with_a_past_shows_up(town):
    a = town.start("a", bootstrap=True)
    town.start("c")
    town.run(2 * SECOND)
    assert a.is_new

    town.old("b")

    assert not a.is_new


def test_founder_that_restarts_with_what_it_voted_takes_nothing_back(town):
    a, b, c = (town.start(node) for node in ABC)
    town.run(SECOND)
    town.stop(b)

    town.start("b", fresh=False)
    town.run(SECOND)

    assert a.is_new
    assert c.is_new


def test_founder_whose_disk_was_emptied_meanwhile_does_not_found_again(town):
    """It may have voted for somebody; only the others remember that it was there."""
    a, b, c = (town.start(node) for node in ABC)
    town.run(SECOND)
    town.stop(b)

    again = town.start("b", bootstrap=True)
    town.run(10 * SECOND)

    assert not again.is_new
    assert a.is_new
    assert c.is_new


def test_voter_that_disagrees_founds_nothing_with_us(town):
    a, b = town.start("a"), town.start("b")
    town.start("c", raft_groups=4)
    town.run(100 * MILLISECOND)

    assert not a.is_new
    assert not b.is_new


def test_silent_voter_is_not_counted_as_there(town):
    town.start("a")
    b = town.start("b")
    town.run(300 * MILLISECOND)
    town.stop(b)
    town.run(limits.NODE_TIMEOUT)

    c = town.start("c")
    town.run(2 * SECOND)

    assert not town.rosters[0].is_new
    assert not c.is_new


# --- joining ------------------------------------------------------------------------------------------------------------------


def test_node_that_joins_is_told_by_the_established(town):
    j = town.start("j", voters=(), raft_groups=0, replicas=0)
    town.old("a")
    assert j.hellos.settings(town.now) is None
    town.old("b")
    town.run(SECOND)

    told = j.hellos.settings(town.now)
    assert told == Settings(ABC, 8, 3)
    j.adopt(told, town.now)
    town.settle()
    assert list(town.rosters[1].hellos.nodes["j"].hello.voters) == list(ABC)
    assert not any(membership.refusal or membership.take_notes() for membership in town.rosters)


def test_node_that_joins_a_cluster_of_one_is_told_too(town):
    j = town.start("j", voters=(), raft_groups=0, replicas=0)
    town.old("a", voters=("a",), raft_groups=8, replicas=1)
    town.run(SECOND)

    assert j.hellos.settings(town.now) == Settings(("a",), 8, 1)


def test_node_that_joins_is_told_nothing_by_those_who_disagree(town):
    j = town.start("j", voters=(), raft_groups=0, replicas=0)
    for node, groups in (("a", 8), ("b", 4)):
        hello = NodeHello(
            cluster_id="town", node=node, instance=groups, raft_groups=groups, replicas=3, voters=ABC, established=True
        )
        j.receive(hello.SerializeToString(), town.now)

    assert j.hellos.settings(town.now) is None


def test_a_bootstrapped_cluster_is_founded_only_by_a_majority_of_each_groups_voters():
    """Else a voter that comes later would wait for the leader of a group that cannot be elected without it."""
    voters = ("n0", "n1", "n2", "n3", "n4")
    town = Town()
    first = town.start("n0", voters=voters, bootstrap=True)
    placement = place(8, voters, 3).values()
    pair = next(
        pair
        for pair in combinations(voters[1:], 2)
        if any(len({"n0", *pair} & set(placed.voters)) < 2 for placed in placement)
    )
    for name in pair:
        town.start(name, voters=voters)
    town.run(2 * limits.HELLO_LISTEN)
    assert not first.is_new
    rest = [town.start(name, voters=voters) for name in voters[1:] if name not in pair]
    town.run(limits.HELLO_LISTEN)
    assert first.is_new
    assert all(membership.is_new for membership in rest)


# --- who listens to clients -----------------------------------------------------------------------------------------------------


def test_all_listen_once_every_node_that_is_there_has_told_so(town):
    a, b = town.old("a"), town.old("b")
    town.run(SECOND)
    a.update(town.now, listens=True)
    assert not a.hellos.all_listen(town.now)
    begin = town.now
    b.update(town.now, listens=True)
    town.settle()
    assert town.said[-1][0] == begin, "it is told at once"
    assert a.hellos.all_listen(town.now)
    c = town.old("c")
    assert not a.hellos.all_listen(town.now)
    town.stop(c)
    town.run(limits.NODE_TIMEOUT + SECOND)
    assert a.hellos.all_listen(town.now)


# --- nodes come and go ----------------------------------------------------------------------------------------------------------


def test_who_has_not_heard_of_a_change_of_the_nodes_does_not_disagree(town):
    a, b = town.old("a"), town.old("b")
    town.run(SECOND)
    a.set_nodes(("a", "b", "c", "d"), 1, town.now, replica=False)
    c = town.start("c", bootstrap=True)
    town.run(2 * SECOND)
    assert not any(membership.refusal or membership.take_notes() for membership in (a, b, c))
    assert not c.is_new

    b.set_nodes(("a", "b", "x"), 1, town.now, replica=False)
    town.run(2 * SECOND)
    assert a.take_notes()
    assert b.take_notes()


def test_who_joins_is_told_the_newest_nodes(town):
    a, b = town.old("a"), town.old("b")
    town.run(SECOND)
    b.set_nodes(("a", "b"), 2, town.now, replica=False)
    j = town.start("j", voters=(), raft_groups=0, replicas=0)
    town.run(SECOND)

    told = j.hellos.settings(town.now)
    assert told == Settings(("a", "b"), 8, 3, 2)
    j.adopt(told, town.now)
    town.settle()
    assert a.hellos.nodes["j"].hello.nodes_version == 2


def test_labels_are_heard_and_those_of_the_metadata_told_to_who_joins(town):
    a, b = town.old("a"), town.old("b", own_labels=NodeLabels(zone="z1", rack="3"))
    town.old("c", own_labels=NodeLabels(zone="not a label", host="h" * 65))
    town.run(2 * SECOND)
    assert a.hellos.labels(town.now) == {"a": Labels(), "b": Labels("z1", "3"), "c": Labels()}
    for membership in (a, b):
        membership.set_nodes(("a", "b"), 2, town.now, replica=False, places={"b": Labels("z1", "3"), "a": Labels()})
    j = town.start("j", voters=(), raft_groups=0, replicas=0)
    town.run(SECOND)
    told = j.hellos.settings(town.now)
    assert told == Settings(("a", "b"), 8, 3, 2, (("b", Labels("z1", "3")),))
    j.adopt(told, town.now)
    assert [one.node for one in j.me.labels] == ["b"]


def test_holders_and_leaders_of_groups_are_known_while_they_are_there(town):
    a, b = town.old("a"), town.old("b")
    a.update(town.now, led=[2], held=[0, 2], walking=[2])
    b.update(town.now, held=[2, 3])
    town.run(2 * SECOND)
    assert [a.hellos.holders(group, town.now) for group in (0, 1, 2, 3)] == [["a"], [], ["a", "b"], ["b"]]
    assert list(b.hellos.led_by(2, town.now).walking) == [2]
    assert b.hellos.led_by(3, town.now) is None

    town.stop(a)
    town.run(2 * limits.NODE_TIMEOUT)
    assert b.hellos.holders(2, town.now) == ["b"]
    assert b.hellos.led_by(2, town.now) is None


def test_groups_rest_as_long_as_somebody_says_so(town):
    a, b = town.old("a"), town.old("b")
    a.update(town.now, resting=[2])
    town.run(2 * SECOND)
    assert a.hellos.in_transfer_cooldown(town.now) == b.hellos.in_transfer_cooldown(town.now) == {2}
    a.update(town.now, resting=[])
    town.run(2 * SECOND)
    assert a.hellos.in_transfer_cooldown(town.now) == b.hellos.in_transfer_cooldown(town.now) == set()


def test_a_replica_that_became_a_node_is_a_replica_no_more(town):
    a, r = town.old("a"), town.old("r", replica=True)
    town.run(SECOND)
    assert a.hellos.read_replicas(town.now) == ["r"]
    r.set_nodes((*ABC, "r"), 1, town.now, replica=False)
    town.settle()
    assert a.hellos.read_replicas(town.now) == []


# --- levels -------------------------------------------------------------------------------------------------------------


def test_a_node_that_does_not_know_the_clusters_level_is_refused(town):
    for name in ("a", "b"):
        town.old(name, level_known=3, level=3, established=True)
    newcomer = town.old("c", level_known=2)
    town.run(4 * SECOND)
    assert newcomer.refusal == (
        'node "c" runs a version that knows levels up to 2, the cluster is at level 3: install a newer version there'
    )
    assert not any(membership.refusal for membership in town.rosters if membership is not newcomer)


def test_what_an_outdated_node_sends_is_not_taken_once_the_level_is_raised(town):
    a, b = (town.old(name, level_known=2, established=True) for name in "ab")
    town.old("c", level_known=1, established=True)
    town.run(4 * SECOND)
    assert a.hellos.levels(town.now) == {"a": 2, "b": 2, "c": 1}
    assert a.hellos.outdated() == frozenset()
    for membership in (a, b):
        membership.update(town.now, level=2)
    town.run(4 * SECOND)
    assert a.hellos.outdated() == b.hellos.outdated() == {"c"}
    assert not a.refusal
    assert any("knows levels up to 1, the cluster is at level 2" in note for note in a.take_notes())


# --- epochs (R4) ----------------------------------------------------------------------------------------------------------

RESCUED, TWICE = (1 << 32) | 5, (2 << 32) | 9


def test_a_node_from_before_a_rescue_ends_and_is_no_part_of_the_cluster(town):
    a = town.old("a", epoch=RESCUED)
    town.run(2 * SECOND)
    c = town.old("c")
    town.run(limits.HELLO_ANSWER_MAX)
    assert 'the cluster was rescued without node "c" (rescue 1 (00000005), node "a" says)' in c.refusal
    assert not a.refusal
    assert a.hellos.nodes == c.hellos.nodes == {}
    assert a.take_notes() == [
        'node "c" is refused: what it holds is from before the rescue of this cluster (rescue 1 (00000005))'
    ]
    town.run(5 * SECOND)
    assert a.take_notes() == []


def test_two_nodes_from_before_a_rescue_do_not_go_on_where_they_hear_a_survivor(town):
    town.old("a", epoch=RESCUED)
    town.run(2 * SECOND)
    back = [town.old("b"), town.old("c")]
    town.run(limits.HELLO_ANSWER_MAX)
    assert all("was rescued without" in one.refusal for one in back)
    assert limits.HELLO_ANSWER_MAX < limits.RAFT_ELECTION_TIMEOUT_MIN, "before they can have elected anybody"


def test_a_node_that_runs_ends_once_it_hears_of_a_rescue(town):
    b, c = town.old("b"), town.old("c")
    town.run(5 * SECOND)
    assert b.me.established
    town.old("a", epoch=RESCUED)
    town.run(2 * SECOND)
    assert b.refusal
    assert c.refusal


def test_an_empty_node_takes_the_epoch_over(town):
    a = town.old("a", epoch=RESCUED, voters=("a",))
    town.run(2 * SECOND)
    d = town.start("d", voters=())
    town.run(2 * SECOND)
    assert d.me.epoch == RESCUED
    assert not d.refusal
    assert sorted(a.hellos.nodes) == ["d"]
    assert d.hellos.settings(town.now).voters == ("a",)


def test_a_node_with_data_never_takes_an_epoch_over(town):
    a = town.start("a", fresh=False)  # entries, and no identity yet
    a.receive(hello("b", identity=X, epoch=RESCUED), town.now)
    assert a.me.epoch == 0
    assert "was rescued without" in a.refusal


@pytest.mark.parametrize("facts", [{}, {"identity": Y}])
def test_an_epoch_without_the_same_cluster_ends_nobody(town, facts):
    a = town.old("a")
    a.receive(hello("b", epoch=RESCUED, **facts), town.now)
    assert not a.refusal
    assert a.me.epoch == 0


def test_a_cluster_that_was_rescued_twice_by_different_survivors_is_told(town):
    a = town.old("a", epoch=RESCUED)
    a.receive(hello("b", identity=X, epoch=RESCUED + 1), town.now)
    assert not a.refusal
    assert "it was rescued twice, with different survivors" in a.take_notes()[0]
    assert a.hellos.nodes == {}
    a.receive(hello("b", identity=X, epoch=TWICE), town.now)
    assert a.refusal

"""Nodes are added and removed by requests to the leader of the metadata (STAN-SPEC 9.7), and kept with it."""

from dataclasses import replace

import pytest
from stan_protocol.scalars import SECOND

from stan.core.clients.nodes import ALONE, HeardNodes
from stan.core.metadata.cluster_info import NODES_CHANGED
from stan.core.metadata.meta import MetaMachine
from stan.labels import Labels
from stan.protocol.proto import entries_pb2 as pb
from stan.state.changes import add_rows
from stan.state.database import Changes, Database
from tests.kit.core_harness import CLUSTERED, Node

ADD, REMOVE = "_STAN.raft.test-cluster.node.add", "_STAN.raft.test-cluster.node.remove"
OPEN = replace(CLUSTERED, cluster=replace(CLUSTERED.cluster, allow_add_remove=True))


@pytest.fixture
def node():
    made = Node(config=OPEN)
    made.broker.parts.nodes.founders = ("n1", "n2")
    made.lead(0)
    return made


def ask(node, subject, name):
    node.hears(b"MSG %b %d reply.here %d\r\n%b\r\n" % (subject.encode(), node.sids[subject], len(name), name.encode()))
    node.turn()
    return [said.payload.decode() for said in node.hear("reply.here")]


def names(node):
    return list(node.broker.parts.nodes.names)


def test_nodes_come_and_go_one_by_one(node):
    assert names(node) == ["n1", "n2"]
    assert ask(node, ADD, "n10") == ["+OK"]
    assert names(node) == ["n1", "n10", "n2"]
    assert ask(node, REMOVE, "n1") == ["+OK"]
    nodes = node.state.cluster.nodes
    assert (list(nodes.names), nodes.version, nodes.changed) == (["n10", "n2"], 2, "n1")


def test_what_is_so_already_is_no_change(node):
    assert ask(node, ADD, "n2") == ask(node, REMOVE, "stranger") == ["+OK"]
    assert node.state.cluster.nodes.version == 0


@pytest.mark.parametrize("name", ["", "a b", "a.b", "*", "x" * 256])
def test_a_name_that_no_node_can_have_is_refused(node, name):
    for subject, doing in ((ADD, "adding"), (REMOVE, "removing")):
        assert ask(node, subject, name) == [f'-ERR {doing} node "{name}": invalid node ID']


def test_the_last_node_stays(node):
    ask(node, REMOVE, "n1")
    assert ask(node, REMOVE, "n2") == ['-ERR removing node "n2": it is the last node']
    assert names(node) == ["n2"]


def test_a_group_with_a_single_voter_is_not_moved(node):
    single = Node(config=replace(OPEN, cluster=replace(OPEN.cluster, replicas=1)))
    single.broker.parts.nodes.founders = ("n1", "n2")
    single.lead(0)
    assert ask(single, REMOVE, "n1") == [f'-ERR removing node "n1": {ALONE}']
    assert ask(single, ADD, "n3") == [f'-ERR adding node "n3": {ALONE}']


def test_the_only_node_that_is_left_gets_others(node):
    ask(node, REMOVE, "n1")
    assert ask(node, ADD, "n3") == ["+OK"]
    assert names(node) == ["n2", "n3"]


def test_while_a_change_is_under_way_it_can_only_be_taken_back(node):
    ask(node, ADD, "n3")
    node.broker.parts.nodes.heard = HeardNodes(under_way=lambda: "n3 is still on its way")
    assert ask(node, ADD, "n4") == ['-ERR adding node "n4": n3 is still on its way']
    assert ask(node, REMOVE, "n1") == ['-ERR removing node "n1": n3 is still on its way']
    assert ask(node, REMOVE, "n3") == ["+OK"]
    assert names(node) == ["n1", "n2"]


def test_two_changes_of_the_same_nodes_are_not_both_made(node):
    node.hold = True
    assert ask(node, ADD, "n3") == ask(node, ADD, "n4") == []
    node.hold = False
    node.commit()
    node.turn()
    answers = [said.payload.decode() for said in node.hear("reply.here")]
    assert answers == ["+OK", f'-ERR adding node "n4": {NODES_CHANGED}']
    assert names(node) == ["n1", "n2", "n3"]


def test_only_the_leader_answers_and_only_if_it_is_allowed(node):
    node.follow(0)
    assert ask(node, ADD, "n3") == []
    closed = Node()
    closed.lead(0)
    assert not {ADD, REMOVE} & closed.sids.keys()
    assert names(node) == ["n1", "n2"]


def labelled(node):
    return {row.node: row.zone for row in node.state.cluster.nodes.labels}


def follow(node, seconds=3):
    for _ in range(seconds + 1):
        node.broker.cluster.follow_labels()
        node.turn()
        node.now += SECOND
        node.turn()


def test_labels_are_taken_over_all_at_once_when_all_have_told_the_same_for_a_while(node):
    told = {"n1": Labels("a"), "n2": Labels(), "r1": Labels("x")}
    node.broker.parts.nodes.heard = HeardNodes(labels=lambda: told)
    follow(node, 1)
    told["n2"] = Labels("b", "1")
    follow(node, 2)
    assert labelled(node) == {}
    follow(node, 2)
    nodes = node.state.cluster.nodes
    assert labelled(node) == {"n1": "a", "n2": "b"}
    assert (list(nodes.names), nodes.version, nodes.changed) == (["n1", "n2"], 1, "")
    follow(node, 9)
    assert nodes.version == 1

    del told["n2"]  # away: its labels stay
    assert ask(node, ADD, "n3") == ["+OK"]
    assert labelled(node) == {"n1": "a", "n2": "b"}
    told["n1"] = Labels()
    follow(node, 9)
    assert labelled(node) == {"n2": "b"}
    assert ask(node, REMOVE, "n2") == ["+OK"]
    assert labelled(node) == {}


def test_a_change_of_labels_holds_up_no_change_of_nodes(node):
    """A group may be on its way to a node that died: nothing but its removal brings it to an end."""
    node.broker.parts.nodes.founders = ("n1", "n2", "n3")
    node.broker.parts.nodes.heard = HeardNodes(labels=lambda: {"n1": Labels("a")})
    follow(node, 5)
    assert labelled(node) == {"n1": "a"}
    node.broker.parts.nodes.heard = HeardNodes(under_way=lambda: "group 1 waits for n2")
    assert ask(node, REMOVE, "n2") == ["+OK"]
    assert ask(node, ADD, "n4") == ['-ERR adding node "n4": group 1 waits for n2']


@pytest.mark.parametrize("hindrance", ["under way", "no leader"])
def test_labels_wait(node, hindrance):
    moving = "group 1 moves" if hindrance == "under way" else ""
    node.broker.parts.nodes.heard = HeardNodes(under_way=lambda: moving, labels=lambda: {"n1": Labels("a")})
    if hindrance == "no leader":
        node.follow(0)
    follow(node, 9)
    assert node.state.cluster.nodes.version == 0


async def test_the_nodes_outlive_a_restart_and_a_transfer(node, tmp_path):
    ask(node, ADD, "n3")
    meta = node.follower(0)
    changes = Changes()
    add_rows(changes, 0, meta.take_changed_rows(), (5, 1))
    database = await Database.open(tmp_path / "state.db")
    await database.flush(changes)
    snapshot = pb.Snapshot()
    meta.snapshot(snapshot)
    for kept in (await database.snapshot(0), snapshot):
        again = MetaMachine()
        again.restore(kept)
        assert again.nodes == meta.nodes
        assert again.nodes.version == 1
    await database.close()


def test_without_an_identity_there_are_no_nodes():
    meta = MetaMachine()
    result = meta.apply(pb.MetaChange(nodes=pb.Nodes(names=["n1"], version=1)), 1)
    assert (result.error, meta.nodes.version) == (NODES_CHANGED, 0)

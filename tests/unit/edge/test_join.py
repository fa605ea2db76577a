"""Settings of a node whose directory knows that nodes were added or removed."""

from dataclasses import replace

import pytest

from stan.config import ClusterConfig, Config, StoreConfig
from stan.edge.cluster.join import remembered
from stan.edge.storage.manifest import Manifest, RecordedNodes, write_manifest
from stan.labels import Labels
from stan.log.files.disk import OsFiles


@pytest.fixture
def start(tmp_path):
    """Start node n4 with a directory that knows nodes, if any, and some cluster settings."""

    def started(nodes, groups=0, **cluster):
        manifest = Manifest("c", 5, "ab" * 16, node_id="n4", nodes=nodes)
        write_manifest(str(tmp_path), manifest, OsFiles())
        store = StoreConfig(kind="file", directory=tmp_path, raft_groups=groups)
        warned = []
        config = remembered(Config(store=store, cluster=ClusterConfig(**cluster)), "n4", warned.append)
        return config, warned

    return started


NODES = RecordedNodes(["n2", "n3", "n4"], 2, ["n1", "n2", "n3"], 2)
REMOVED = RecordedNodes(["n2", "n3"], 3, ["n1", "n2", "n3"], 2)


def test_the_settings_stay_while_no_node_was_added_or_removed(start):
    config, warned = start(RecordedNodes(), peers=("n1", "n2"))
    assert (config.cluster.peers, config.cluster.nodes_version, warned) == (("n1", "n2"), 0, [])
    assert start(RecordedNodes(), join=True)[0].cluster.join


def test_what_the_directory_knows_wins_over_the_peers_and_is_said(start):
    config, warned = start(NODES, peers=("n1", "n2"), replicas=3)
    cluster = config.cluster
    assert cluster.voters("n4") == ("n2", "n3", "n4")
    assert (cluster.nodes_version, cluster.replicas, cluster.replica) == (2, 3, False)
    assert warned == ["nodes were added or removed: they are n2, n3, n4, and not n1, n2, n4 as -cluster_peers says"]
    assert start(NODES, peers=("n2", "n3"))[1] == []


def test_a_node_that_once_joined_asks_nobody_any_more(start):
    config, warned = start(NODES, join=True)
    cluster = config.cluster
    assert not cluster.joins
    assert (cluster.voters("n4"), cluster.replicas, cluster.replica) == (("n2", "n3", "n4"), 2, False)
    assert (config.store.raft_groups, warned) == (5, [])


def test_a_node_that_was_removed_waits_as_a_replica_only_if_it_joins(start):
    assert start(REMOVED, join=True)[0].cluster.replica
    still_needed = replace(REMOVED, belongs=True)
    assert not start(still_needed, join=True)[0].cluster.replica
    cluster = start(REMOVED, peers=("n2", "n3"))[0].cluster
    assert not cluster.replica
    assert cluster.voters("n4") == ("n2", "n3")


def test_alone_and_with_an_empty_directory_nothing_is_remembered(tmp_path):
    store = StoreConfig(kind="file", directory=tmp_path)
    for config in (Config(store=store), Config(store=store, cluster=ClusterConfig(bootstrap=True))):
        assert remembered(config, "n4", print) is config


def test_labels_of_nodes_are_remembered_with_the_nodes(start):
    config, _ = start(replace(NODES, labels={"n2": ["a", "", ""], "n3": ["b", "1", "h"]}), peers=("n2", "n3"))
    assert config.cluster.places == {"n2": Labels("a"), "n3": Labels("b", "1", "h")}


def test_the_number_of_groups_may_be_told_as_it_was_or_as_it_is(start):
    grown = replace(NODES, pool=8)
    for told in (5, 8):
        assert start(grown, groups=told, peers=("n2", "n3"))[0].store.raft_groups == 5
        assert start(RecordedNodes(pool=8), groups=told, peers=("n2", "n3"))[0].store.raft_groups == 5
    assert start(grown, groups=6, peers=("n2", "n3"))[0].store.raft_groups == 6, "the directory refuses it"

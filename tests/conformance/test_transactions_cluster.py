"""Transactions in a cluster of three whose leaders are killed: each committed row is there once, in order, all at once."""

import threading

import pytest
from stan_client.blocking import BlockingClient

from tests.kit.batches import rows_of
from tests.kit.server import until

PARTS, ROWS = 120, 700


@pytest.fixture
def client(cluster):
    with BlockingClient(cluster.url, cluster_id=cluster.cluster_id, timeout_s=60) as client:
        yield client


def rows_of_part(part):
    return [b"%d-%d-" % (part, row) + b"x" * 100 for row in range(ROWS)]


def stage(client, channel, version):
    """The app is called as the channel."""
    for part in range(PARTS):
        rows = rows_of_part(part)
        client.stage(channel, version, f"t{version}", part, channel, rows_of(rows), len(rows))


def commit(client, channel, version):
    return client.commit(channel, version, {channel: [(f"t{version}", PARTS)]})[channel]


def stored(client, channel):
    last = client.fetch_batch(channel, count=1).last_sequence
    if not last:
        return []
    batches = client.read_range(channel, 1, last)
    return [message.data for batch in batches for message in batch.messages()]


EVERYTHING = [row for part in range(PARTS) for row in rows_of_part(part)]


def test_leader_is_killed_between_stage_and_commit(cluster, client):
    client.stage("app", 0, "first", 0, "between", rows_of([b"a", b"b"]), 2)
    cluster.kill9(cluster.leader_of("between"))
    client.stage("app", 0, "second", 0, "between", rows_of([b"c"]), 1)
    assert stored(client, "between") == []
    client.commit("app", 0, {"between": [("first", 1), ("second", 1)]})
    assert stored(client, "between") == [b"a", b"b", b"c"]
    assert client.last_committed("app") == 0


@pytest.mark.parametrize("after", [0.0, 0.1, 0.3])
def test_leader_is_killed_during_a_large_commit(cluster, client, after):
    channel = f"during-{after * 10:g}"
    stage(client, channel, 0)
    done = []
    committing = threading.Thread(target=lambda: done.append(commit(client, channel, 0)))
    leader = cluster.leader_of(channel)
    committing.start()
    committing.join(after)
    cluster.kill9(leader)
    while committing.is_alive():
        assert len(stored(client, channel)) in (0, len(EVERYTHING))
        committing.join(0.05)
    assert [one.last for one in done] == [len(EVERYTHING)]
    assert stored(client, channel) == EVERYTHING
    again = commit(client, channel, 0)
    assert (again.already, again.first, again.last) == (True, 1, len(EVERYTHING))


def test_node_that_lost_its_disk_knows_what_was_committed(cluster, client):
    """It gets the group's state and segments from another one while rows are staged, and may lead afterwards."""
    channel = "wiped"
    stage(client, channel, 0)
    commit(client, channel, 0)
    stage(client, channel, 1)
    wiped = cluster.follower_of(channel)
    cluster.kill9(wiped)
    cluster.wipe(wiped)
    cluster.start(wiped)
    until(lambda: cluster.whole(wiped), why=cluster.log)
    cluster.kill9(cluster.leader_of(channel))
    assert commit(client, channel, 0).already
    assert not commit(client, channel, 1).already
    assert stored(client, channel) == 2 * EVERYTHING

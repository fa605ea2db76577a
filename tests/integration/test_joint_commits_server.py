"""Commits of several channels against a real server with several groups: of each group all channels have the version or none,
also after kill -9."""

import threading

import pytest
from stan_client import StagedRows

from tests.integration.test_transactions_server import commit, payloads, stage, stored
from tests.kit.batches import rows_of
from tests.kit.damage import log_bytes
from tests.kit.server import StanServer

CHANNELS = [f"many.{number}" for number in range(12)]


@pytest.fixture
def server(tmp_path):
    with StanServer(tmp_path, "--raft_groups", "5") as server:
        yield server


def stage_all(client, version=0):
    for channel in CHANNELS:
        stage(client, "app", version, f"t{version}", channel, payloads(channel, 50))


def txns(version=0, channels=CHANNELS):
    return {channel: [(f"t{version}", 1)] for channel in channels}


def first_version(client):
    """Commit it; the channels by group, as the answers tell them."""
    stage_all(client)
    groups = {}
    for channel, committed in client.commit("app", 0, txns()).items():
        assert committed[:3] == (False, 1, 50)
        groups.setdefault(committed.group, []).append(channel)
    return [*groups.values()]


def test_channels_of_several_groups_are_committed_group_by_group(client):
    groups = first_version(client)
    assert len(groups) > 1
    assert max(map(len, groups)) > 1
    again = client.commit("app", 0, txns())
    assert list(again) == CHANNELS
    assert all(one.already for one in again.values())
    assert all(stored(client, channel) == payloads(channel, 50) for channel in CHANNELS)


def test_rows_of_channels_of_several_groups_are_staged_with_one_call(client):
    for part in (1, 0):
        parts = [StagedRows(name, part, rows_of(payloads(f"{name}.{part}", 20)), 20) for name in CHANNELS]
        client.stage_together("app", 0, "t0", parts)
        client.stage_together("app", 0, "t0", parts)
    client.commit("app", 0, {channel: [("t0", 2)] for channel in CHANNELS})
    assert all(stored(client, name) == payloads(f"{name}.0", 20) + payloads(f"{name}.1", 20) for name in CHANNELS)


def test_what_a_driver_that_died_between_two_groups_has_left_is_completed(client):
    """One group has the version and the others have not, which a reader may see. Whoever repeats the commit completes it."""
    first, *others = first_version(client)
    stage_all(client, 1)
    client.commit("app", 1, txns(1, first))
    assert {len(stored(client, channel)) for channel in first} == {100}
    assert {len(stored(client, channel)) for channels in others for channel in channels} == {50}
    done = client.commit("app", 1, txns(1))
    assert {channel for channel, one in done.items() if one.already} == {*first}
    assert all(stored(client, channel) == payloads(channel, 50) * 2 for channel in CHANNELS)


@pytest.mark.parametrize("grown", [0, 100, 300])
def test_kill_in_the_middle_of_a_commit(server, client, tmp_path, grown):
    """Killed as soon as the logs have grown by some bytes; in the end the version is in all channels, once."""
    groups = first_version(client)
    stage_all(client, 1)
    store = tmp_path / "store"
    before = log_bytes(store)
    committing = threading.Thread(target=commit, args=(client, "app", 1, txns(1)))
    committing.start()
    while log_bytes(store) < before + grown and committing.is_alive():
        pass
    server.kill9()
    server.start()
    ends = {name: info.last for name, info in client.info(CHANNELS).items()}
    for channels in groups:
        assert len({ends[channel] for channel in channels}) == 1, ends
    committing.join()
    client.commit("app", 1, txns(1))
    assert all(stored(client, channel) == payloads(channel, 50) * 2 for channel in CHANNELS)

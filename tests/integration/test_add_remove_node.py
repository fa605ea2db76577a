"""Nodes are added to a real cluster and removed from it while it works; nothing that was acknowledged is lost."""

import asyncio
from contextlib import aclosing

import nats as nats_py
import pytest
import stan_client
from nats.errors import NoRespondersError

from tests.kit.cluster import StanCluster
from tests.kit.fake_broker import eventually
from tests.kit.server import NatsServer, StanServer, until

CHANNELS = [f"channel-{number}" for number in range(8)]
ALLOWED = "-cluster_allow_add_remove_node"
PATIENCE_S = 90


def node(directory, nats, name, *flags):
    home = directory / name
    home.mkdir(exist_ok=True)
    return StanServer(home, "-clustered", "-cluster_node_id", name, ALLOWED, *flags, nats_url=nats.url)


class Admin:
    """Asks for changes of the nodes."""

    def __init__(self, nats):
        self._nats = nats

    async def __aenter__(self):
        self._connection = await nats_py.connect(self._nats.url)
        return self

    async def __aexit__(self, *_):
        await self._connection.close()

    async def ask(self, verb, name):
        """The answer; asks again while nobody leads the metadata."""
        while True:
            try:
                answer = await self._connection.request(
                    f"_STAN.raft.test-cluster.node.{verb}", name.encode(), timeout=2
                )
                return answer.data.decode()
            except (NoRespondersError, TimeoutError):
                await asyncio.sleep(0.05)

    async def until_done(self, verb, name):
        """Ask until no other change is under way, and every group is known to have a leader. A request that was answered too late
        may have been executed."""
        async with asyncio.timeout(PATIENCE_S):
            while (answer := await self.ask(verb, name)) != "+OK":
                assert "not yet where the last change wants them" in answer or "changed meanwhile" in answer
                await asyncio.sleep(0.05)


class Load:
    """Publishes to all channels until it is told to stop; remembers what was acknowledged."""

    def __init__(self, client, tag):
        self._client = client
        self._tag = tag
        self._going = True
        self.acked = {channel: [] for channel in CHANNELS}

    async def __aenter__(self):
        self._tasks = [asyncio.create_task(self._publish(channel)) for channel in CHANNELS]
        return self

    async def __aexit__(self, *_):
        self._going = False
        await asyncio.gather(*self._tasks)

    async def _publish(self, channel):
        number = 0
        while self._going:
            data = b"%b %d" % (self._tag, number)
            await self._client.publish(channel, data)
            self.acked[channel].append(data)
            number += 1

    async def more(self):
        """Until each channel has got on."""
        before = {channel: len(acked) for channel, acked in self.acked.items()}
        await eventually(lambda: all(len(self.acked[one]) >= before[one] + 20 for one in CHANNELS), PATIENCE_S)


async def connected(nats, name="me"):
    return await stan_client.connect(nats.url, client_id=name, connect_timeout_s=2, ack_timeout_s=60, ping_max_out=40)


async def read_all(client, channel):
    async with aclosing(client.read(channel)) as messages:
        return [message.data async for message in messages]


async def all_there(client, *loads):
    for channel in CHANNELS:
        got = await read_all(client, channel)
        assert got == [data for load in loads for data in load.acked[channel]]


def groups_of(directory, name):
    return {path.name for path in (directory / name / "store" / "groups").iterdir()}


async def test_a_node_is_added_and_another_removed_under_load(tmp_path, nats):
    with StanCluster(tmp_path, ALLOWED, nats=nats) as cluster, node(tmp_path, nats, "n4", "-join") as new:
        async with await connected(nats) as client, Admin(nats) as admin:
            removed = cluster.nodes["n1"]
            async with Load(client, b"first") as first:
                await first.more()
                await admin.until_done("add", "n4")
                await first.more()
                await admin.until_done("remove", "n1")
                await first.more()
                await asyncio.to_thread(until, lambda: not removed.running, PATIENCE_S, cluster.log)
                assert removed.wait_for_end() == 0
                await first.more()
            await all_there(client, first)
            assert "node n1 was removed from the cluster" in removed.log()
            assert groups_of(tmp_path, "n1") == {"0"}
            for name in ("n2", "n3", "n4"):
                assert groups_of(tmp_path, name) == {str(number) for number in range(cluster.groups + 1)}

            await asyncio.to_thread(cluster.kill9, "n2")
            async with Load(client, b"second") as second:
                await second.more()
            await all_there(client, first, second)

            await asyncio.to_thread(cluster.start, "n2")
            assert "nodes were added or removed: they are n2, n3, n4" in cluster.nodes["n2"].log_since_start()
            await asyncio.to_thread(new.restart)
            assert "Cluster node n4, voters: n2, n3, n4" in new.log_since_start()
            async with Load(client, b"third") as third:
                await third.more()
            await all_there(client, first, second, third)


async def test_without_the_flag_nobody_answers(tmp_path, nats):
    with StanCluster(tmp_path, nats=nats):
        connection = await nats_py.connect(nats.url)
        with pytest.raises(NoRespondersError):
            await connection.request("_STAN.raft.test-cluster.node.add", b"n4", timeout=5)
        await connection.close()


def test_node_that_waits_for_a_cluster_to_join_ends_when_it_is_told_to(tmp_path):
    with NatsServer(tmp_path) as alone:
        waiting = node(tmp_path, alone, "w", "--join")
        try:
            waiting.launch()
            until(lambda: "ServerID" in waiting.log(), why=waiting.log)
            assert waiting.terminate() == 143
            assert "failed to join" not in waiting.log()
        finally:
            waiting.sweep()

"""Two of three real nodes are gone for good, with their disks: `stan cluster rescue` makes the third one a cluster again."""

import asyncio
import os
import shutil
import subprocess
import sys
from contextlib import aclosing

import stan_client

from stan.edge.storage.manifest import read_manifest
from tests.kit.cluster import StanCluster
from tests.kit.server import StanServer, until

ALLOWED = "-cluster_allow_add_remove_node"
CHANNELS = [f"channel-{number}" for number in range(8)]
PATIENCE_S = 90


def stan(home, *arguments, code=0, stdin=None):
    """The tool; returns what it prints, errors included. *code*: None: any."""
    done = subprocess.run(
        [sys.executable, "-m", "stan.cli.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        input=stdin,
        env={**os.environ, "STAN_CONTEXT_DIR": str(home), "HOME": str(home), "COLUMNS": "200"},
    )
    told = done.stdout + done.stderr
    assert code in (None, done.returncode), told
    return told


async def published(client, tag, count=20):
    acked = {channel: [] for channel in CHANNELS}
    for number in range(count):
        for channel in CHANNELS:
            data = b"%b %d" % (tag, number)
            await client.publish(channel, data)
            acked[channel].append(data)
    return acked


async def read_all(client, channel):
    async with aclosing(client.read(channel)) as messages:
        return [(message.sequence, message.data) async for message in messages]


async def all_there(client, *parts):
    for channel in CHANNELS:
        wanted = [data for part in parts for data in part[channel]]
        assert await read_all(client, channel) == list(enumerate(wanted, 1))


def store(directory, name):
    return directory / name / "store"


async def connected(nats, name):
    return await stan_client.connect(nats.url, client_id=name, connect_timeout_s=5, ack_timeout_s=60, ping_max_out=60)


async def test_one_of_three_goes_on_and_gets_two_fresh_nodes(tmp_path, nats):
    with StanCluster(tmp_path, ALLOWED, nats=nats) as cluster:
        url = ("-s", nats.url)
        client = await connected(nats, "me")
        first = await published(client, b"first")
        until(lambda: all_caught_up(cluster, tmp_path), PATIENCE_S, cluster.log)
        both = ["n2", "n3"]
        for name in both:
            await asyncio.to_thread(cluster.kill9, name)
        old = tmp_path / "n2.old"
        shutil.copytree(store(tmp_path, "n2"), old)
        for name in both:
            shutil.rmtree(store(tmp_path, name))

        running = await asyncio.to_thread(stan, tmp_path, "cluster", "rescue", store(tmp_path, "n1"), *url, code=1)
        assert "in use by another server" in running
        await asyncio.to_thread(cluster.nodes["n1"].kill9)
        told = await asyncio.to_thread(stan, tmp_path, "cluster", "rescue", store(tmp_path, "n1"), *url, "--dry-run")
        assert "n1 survive; lost for good: n2, n3" in told
        assert "may be lost if only the lost nodes held them" in told
        assert "channel-0: 20" in told
        for wrong, why in (("n2", "lost are n2,n3"), ("", "there is no terminal to ask at")):
            option = ("--yes-i-have-lost", wrong) if wrong else ()
            refused = await asyncio.to_thread(
                stan, tmp_path, "cluster", "rescue", store(tmp_path, "n1"), *url, *option, code=2, stdin=""
            )
            assert why in refused
        assert read_manifest(str(store(tmp_path, "n1"))).rescue is None

        command = ("cluster", "rescue", store(tmp_path, "n1"), *url, "--yes-i-have-lost", "n2,n3")
        assert "Rescued: start n1 again" in await asyncio.to_thread(stan, tmp_path, *command)
        again = await asyncio.to_thread(stan, tmp_path, *command, code=1)
        assert "every group has its majority in n1" in again

        await asyncio.to_thread(cluster.start, "n1")
        second = await published(client, b"second")  # the client has gone on by itself
        await all_there(client, first, second)

        shutil.copytree(old, store(tmp_path, "n2"))
        back = cluster.nodes["n2"]
        await asyncio.to_thread(back.launch)
        await asyncio.to_thread(until, lambda: not back.running, PATIENCE_S, back.log)
        assert "the cluster was rescued without node" in back.log_since_start()
        assert "leads in term" not in back.log_since_start()
        shutil.rmtree(store(tmp_path, "n2"))

        fresh = [new_node(tmp_path, nats, name) for name in ("n2", "x1")]
        try:
            for server in fresh:
                await asyncio.to_thread(server.__enter__)
            for name in ("n2", "x1"):
                await asyncio.to_thread(until_added, tmp_path, url, name)
            third = await published(client, b"third")
            await all_there(client, first, second, third)
            await asyncio.to_thread(cluster.kill9, "n1")  # two of three are a majority again
            fourth = await published(client, b"fourth", 3)
            await all_there(client, first, second, third, fourth)
            await client.close()
        finally:
            for server in fresh:
                await asyncio.to_thread(server.__exit__, None, None, None)


async def test_nodes_with_emptied_disks_say_that_they_have_no_vote_and_doctor_what_helps(tmp_path, nats):
    """All three run: no start of a node would ever help."""
    with StanCluster(tmp_path, nats=nats) as cluster:
        client = await connected(nats, "me")
        await published(client, b"first", 1)
        await client.close()
        await asyncio.to_thread(until, lambda: all_caught_up(cluster, tmp_path), PATIENCE_S, cluster.log)
        await asyncio.to_thread(cluster.kill9, *cluster.names)
        for name in ("n2", "n3"):
            cluster.wipe(name)
        for server in cluster.nodes.values():
            await asyncio.to_thread(server.launch)

        def told():
            return stan(tmp_path, "doctor", "-s", nats.url, code=None)

        wanted = "have no leader: their channels take and deliver nothing. Nodes n2 and n3 run and have no vote"
        await asyncio.to_thread(until, lambda: wanted in told(), PATIENCE_S, cluster.log)
        assert "stan cluster rescue" in told()
        assert "Start nodes until a majority" not in told()
        assert "no vote: its disk has lost what it had" in stan(tmp_path, "node", "show", "n2", "-s", nats.url)


def all_caught_up(cluster, directory):
    """Every node has all groups; a dead one could not be a survivor that has everything."""
    return all((store(directory, name) / "groups" / "8").is_dir() for name in cluster.names)


def new_node(directory, nats, name):
    home = directory / f"fresh-{name}"
    home.mkdir(exist_ok=True)
    return StanServer(home, "-clustered", "-join", "-cluster_node_id", name, ALLOWED, nats_url=nats.url)


def until_added(home, url, name):
    def added():
        done = subprocess.run(
            [sys.executable, "-m", "stan.cli.main", "node", "add", name, "--yes", *url],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "HOME": str(home)},
        )
        return done.returncode == 0

    until(added, PATIENCE_S)

    def settled():
        text = stan(home, "group", "list", "--json", *url)
        return text.count(f'"{name}"') > 8

    until(settled, PATIENCE_S)

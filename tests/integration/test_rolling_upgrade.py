"""Nodes that know the cluster's level and nodes that know the next one beside each other, under load: forth, back, and no way
back. What the next level would bring makes no difference here: each program is this one."""

import asyncio
import contextlib
import sys

import stan_client

from stan import level
from tests.kit.cluster import StanCluster
from tests.kit.fake_broker import eventually
from tests.kit.server import NatsServer, StanServer, until

CHANNELS = [f"orders-{number}" for number in range(4)]
PATIENCE_S = 60


def program_up_to(highest):
    """The command of a program that knows the levels up to *highest*."""
    code = f"import sys; from stan import level; level.KNOWN = {highest}; from stan.server.main import main; sys.exit(main())"
    return (sys.executable, "-c", code)


FIRST, NEXT = level.KNOWN, level.KNOWN + 1
OLD_PROGRAM, NEW_PROGRAM = program_up_to(FIRST), program_up_to(NEXT)
TOO_NEW = f"this version knows levels up to {FIRST}"


class Load:
    """Publishes to all channels until it is told to stop, and a durable of each channel that acknowledges what it gets."""

    def __init__(self, url):
        self._url = url
        self._going = True
        self.acked = {channel: [] for channel in CHANNELS}
        self.got = {channel: set() for channel in CHANNELS}

    async def __aenter__(self):
        self._client = await stan_client.connect(self._url, client_id="load")
        for channel in CHANNELS:
            await self._client.subscribe(channel, self._take, durable="keeper")
        self._tasks = [asyncio.create_task(self._publish(channel)) for channel in CHANNELS]
        return self

    async def __aexit__(self, *_):
        self._going = False
        await asyncio.gather(*self._tasks)
        await eventually(lambda: not self.missing())
        await self._client.close()

    async def _take(self, message):
        self.got[message.channel].add(message.data)

    async def _publish(self, channel):
        number = 0
        while self._going:
            data = b"%d" % number
            with contextlib.suppress(stan_client.StanClientError):
                await self._client.publish(channel, data)
                self.acked[channel].append(data)
            number += 1
            await asyncio.sleep(0.005)

    def missing(self):
        """Channels and payloads that were acknowledged and not delivered."""
        return {
            (channel, data) for channel, acked in self.acked.items() for data in acked if data not in self.got[channel]
        }

    async def goes_on(self):
        """Returns when each channel has taken more."""
        before = {channel: len(acked) for channel, acked in self.acked.items()}
        await eventually(lambda: all(len(self.acked[channel]) >= count + 3 for channel, count in before.items()))


async def switch(cluster, name, program):
    """Restart a node in order with another program."""
    await asyncio.to_thread(cluster.terminate, name)
    cluster.nodes[name].replace_program(program)
    await asyncio.to_thread(cluster.nodes[name].start)


async def levels(direct):
    nodes = await direct.admin.nodes()
    return sorted((one.node, one.level, one.level_known) for one in nodes.answers)


async def test_a_rolling_upgrade_and_the_way_back_until_the_level_is_raised(tmp_path):
    with NatsServer(tmp_path) as nats:
        cluster = StanCluster(tmp_path, nats=nats)
        for node in cluster.nodes.values():
            node.replace_program(OLD_PROGRAM)
        with cluster:
            async with Load(nats.url) as load, stan_client.Direct(nats.url) as direct:
                await load.goes_on()
                for name, program in (
                    ("n1", NEW_PROGRAM),
                    ("n2", NEW_PROGRAM),
                    ("n1", OLD_PROGRAM),
                    ("n3", NEW_PROGRAM),
                ):
                    await switch(cluster, name, program)
                    await load.goes_on()
                refused = await raised(direct)
                texts = f"does not know level {NEXT}: n1", f"level {NEXT} is not known to this version"
                assert any(text in refused for text in texts), refused  # by who leads the metadata
                await switch(cluster, "n1", NEW_PROGRAM)
                await load.goes_on()
                assert await levels(direct) == [(name, FIRST, NEXT) for name in cluster.names]
                assert await raised(direct) == ""
                async with asyncio.timeout(PATIENCE_S):
                    while {at for _, at, _ in await levels(direct)} != {NEXT}:
                        pass
                await load.goes_on()
                await asyncio.to_thread(cluster.terminate, "n2")
                cluster.nodes["n2"].replace_program(OLD_PROGRAM)
                cluster.nodes["n2"].launch()
                await asyncio.to_thread(until, lambda: not cluster.nodes["n2"].running)
                assert TOO_NEW in cluster.nodes["n2"].log_since_start()
                cluster.nodes["n2"].replace_program(NEW_PROGRAM)
                await asyncio.to_thread(cluster.nodes["n2"].start)
                await load.goes_on()
            assert not load.missing()
            assert all(len(acked) > 20 for acked in load.acked.values())


async def raised(direct):
    """The error of a request to raise the level; asks again while the nodes have not heard each other."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await direct.admin.raise_level(NEXT)
            except stan_client.StanClientError as error:
                if "not heard" not in str(error):
                    return str(error)
                await asyncio.sleep(0.1)
            else:
                return ""


async def test_a_server_alone_goes_back_until_its_level_is_raised(tmp_path):
    server = StanServer(tmp_path, command=OLD_PROGRAM)
    with server:
        assert await publish(server.url, 1) == 1
    for program in (NEW_PROGRAM, OLD_PROGRAM, NEW_PROGRAM):
        server.replace_program(program)
        with server:
            await publish(server.url, 1)
    with server:
        async with stan_client.Direct(server.url) as direct:
            assert await levels(direct) == [("", FIRST, NEXT)]
            assert (await direct.admin.raise_level()).changed == 1
            assert await levels(direct) == [("", NEXT, NEXT)]
            assert await publish(server.url, 1) == 5
    server.replace_program(OLD_PROGRAM)
    server.launch()
    until(lambda: not server.running)
    assert TOO_NEW in server.log_since_start()


async def publish(url, count):
    """Publish to channel `orders`; the sequence of its last message."""
    client = await stan_client.connect(url, client_id="publisher")
    for number in range(count):
        await client.publish("orders", b"%d" % number)
    await client.close()
    async with stan_client.Direct(url) as direct:
        return (await direct.admin.channels("orders"))[0].last_sequence


async def test_a_new_server_begins_at_the_level_that_it_knows(tmp_path):
    with StanServer(tmp_path, command=NEW_PROGRAM) as server:
        async with stan_client.Direct(server.url) as direct:
            assert await levels(direct) == [("", NEXT, NEXT)]

"""What the log holds anew (compressed batches, compaction by key, schemas) and tracing, on nodes that do not know their level
and nodes that do beside each other, under load: none of it is written before the level is raised, so each node can go back."""

import asyncio
import contextlib
import json
import re
import subprocess
import sys

import pytest
import stan_client
from stan_client.tracing import Tracing
from stan_protocol.admin_types import DeliveryPolicy
from stan_protocol.compaction import DELETE_HEADER

from stan import level
from tests.bench_compression import event
from tests.integration.test_compaction_server import SMALL
from tests.integration.test_rolling_upgrade import (
    PATIENCE_S,
    levels,
    program_up_to,
    raised,
    switch,
)
from tests.kit.batches import rows_of
from tests.kit.cluster import StanCluster
from tests.kit.fake_broker import eventually
from tests.kit.otlp import OtlpReceiver
from tests.kit.server import NatsServer

trace = pytest.importorskip("opentelemetry.sdk.trace")

EVENTS, PRICES, TYPED = "log.events", "log.prices", "log.typed"
TOGETHER = 20
KEYS = 30
SCHEMA = json.dumps({"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}).encode()
POLICIES = {
    EVENTS: DeliveryPolicy(compress=1),
    PRICES: DeliveryPolicy(compact=1, min_age=0, compress=1),
    TYPED: DeliveryPolicy(schema=2),
}
CANNOT_READ = re.compile(r"[Tt]raceback|damage|frozen|not what was written|cannot be read|does not know")


class Load:
    """Publishes batches, messages with keys and JSON until it is told to stop; durables that acknowledge what they get."""

    def __init__(self, url):
        self._url = url
        self._going = True
        self.acked = {EVENTS: [], TYPED: []}
        self.got = {EVENTS: set(), TYPED: set()}
        self.steps = dict.fromkeys((EVENTS, PRICES, TYPED), 0)
        self.wanted = {}  # of each key the data that was published last, without those that were deleted last
        self.newest = {}  # of each key the newest message that was delivered: its sequence and data, None for a tombstone

    async def __aenter__(self):
        middleware = [Tracing(trace.TracerProvider())]
        self._client = await stan_client.connect(self._url, client_id="load", middleware=middleware)
        self._direct = await stan_client.Direct(self._url).__aenter__()
        everything = {"durable": "keeper", "start": stan_client.everything()}
        for channel in (EVENTS, TYPED):
            await self._client.subscribe(channel, self._take, **everything)
        await self._client.subscribe(PRICES, self._fold, **everything)
        steps = {EVENTS: self._batch, PRICES: self._price, TYPED: self._json}
        self._tasks = [asyncio.create_task(self._publish(channel, step)) for channel, step in steps.items()]
        return self

    async def __aexit__(self, *_):
        self._going = False
        await asyncio.gather(*self._tasks)
        await self._direct.close()
        await self._client.close()

    async def _take(self, message):
        self.got[message.channel].add(message.data)

    async def _fold(self, message):
        if message.sequence > self.newest.get(message.key, (0, b""))[0]:
            dead = DELETE_HEADER.decode() in message.headers
            self.newest[message.key] = message.sequence, None if dead else message.data

    async def _publish(self, channel, step):
        while self._going:
            try:
                await step(self.steps[channel])
            except stan_client.StanClientError:
                continue  # again, so that what is published last is known
            self.steps[channel] += 1
            await asyncio.sleep(0.01)

    async def _batch(self, number):
        events = [event(number * TOGETHER + at) for at in range(TOGETHER)]
        await self._direct.batches.publish(EVENTS, rows_of(events), TOGETHER)
        self.acked[EVENTS] += events

    async def _price(self, number):
        key, data = b"key %d" % (number % KEYS), b"%d" % number + bytes(200)
        if number % 7 == 0:
            await self._client.publish_tombstone(PRICES, key)
            self.wanted.pop(key, None)
        else:
            await self._client.publish(PRICES, data, key=key)
            self.wanted[key] = data

    async def _json(self, number):
        data = json.dumps({"age": number}).encode()
        await self._client.publish(TYPED, data)
        self.acked[TYPED].append(data)

    async def goes_on(self, more=5):
        """Returns when each channel has taken more."""
        before = dict(self.steps)
        await eventually(
            lambda: all(self.steps[channel] >= count + more for channel, count in before.items()), PATIENCE_S
        )

    def missing(self):
        """What was acknowledged and not delivered."""
        return {data for channel, acked in self.acked.items() for data in acked if data not in self.got[channel]}

    def table(self):
        """The table that the deliveries of PRICES make."""
        return {key: data for key, (_, data) in self.newest.items() if data is not None}


async def tried(direct):
    """Ask for everything that needs the level, as an operator would; returns what was answered."""
    told = []
    calls = [direct.admin.set_policy(channel, policy) for channel, policy in POLICIES.items()]
    for call in [*calls, direct.admin.add_schema(TYPED, SCHEMA)]:
        try:
            await call
        except stan_client.StanClientError as error:  # an older leader of the metadata does not know the request
            told.append(str(error))
        else:
            told.append("")
    return told


async def nothing_new_is_written(direct):
    for channel in POLICIES:
        status = await direct.admin.channel(channel)
        assert (status.kept_bytes, status.compacted_until) == (0, 0), status


async def in_force(direct):
    async with asyncio.timeout(PATIENCE_S):
        while (told := await tried(direct)) != [""] * 4:
            assert all("busy" in one or "answer" in one or not one for one in told), told


async def used(direct):
    """Returns when the log of a leader has compressed batches, and has been compacted."""
    async with asyncio.timeout(PATIENCE_S):
        for channel, field in ((EVENTS, "kept_bytes"), (PRICES, "compaction_passes")):
            while not getattr(await direct.admin.channel(channel), field):
                pass


def verify(url, channel):
    """All copies of a channel are whole and equal."""
    command = [sys.executable, "-m", "stan.cli.main", "channel", "verify", channel, "--server", url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(400)
async def test_compression_compaction_schemas_and_tracing_wait_for_the_level(tmp_path):
    old = program_up_to(level.DELIVERY)
    with OtlpReceiver() as receiver, NatsServer(tmp_path) as nats:
        new = (sys.executable, "-c", SMALL, "--trace_sample", "1", "--trace_endpoint", receiver.url)
        cluster = StanCluster(tmp_path, nats=nats)
        for node in cluster.nodes.values():
            node.replace_program(old)
        with cluster:
            async with Load(nats.url) as load, stan_client.Direct(nats.url) as direct:
                await load.goes_on()
                for name, program in (("n1", new), ("n2", new), ("n1", old), ("n3", new), ("n1", new)):
                    await switch(cluster, name, program)
                    await load.goes_on()
                    if program is new:
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(tried(direct), PATIENCE_S)
                    await load.goes_on()
                    if await levels(direct) == [(name, level.DELIVERY, level.KNOWN) for name in cluster.names]:
                        told = await tried(direct)
                        assert all(f"level {level.SCALE}" in one for one in told), told
                        await nothing_new_is_written(direct)
                await switch(cluster, "n2", old)  # the way back is open, whatever operators have asked for
                await load.goes_on()
                for node in cluster.nodes.values():
                    found = CANNOT_READ.search(node.log())
                    assert found is None, node.log()[found.start() - 500 :][:3000]
                await switch(cluster, "n2", new)
                assert receiver.named(f"store {TYPED}"), "nodes of this version trace"

                assert await raised(direct) == ""
                await in_force(direct)
                await load.goes_on(200)
                await used(direct)
                with pytest.raises(stan_client.ServerError, match="does not fit version 1"):
                    await load._client.publish(TYPED, b"{}")
                for name in cluster.names:
                    await switch(cluster, name, new)
                    await load.goes_on()
            await check(cluster, load, nats.url)


async def check(cluster, load, url):
    async with await stan_client.connect(url, client_id="load") as client:
        everything = {"durable": "keeper", "start": stan_client.everything()}
        for channel in (EVENTS, TYPED):  # what was on its way when the load ended
            await client.subscribe(channel, load._take, **everything)
        await client.subscribe(PRICES, load._fold, **everything)
        await eventually(lambda: not load.missing(), PATIENCE_S)
        async with stan_client.Table(client, PRICES) as table:
            restored = {key: message.data for key, message in table.items()}
        assert restored == load.wanted
        await eventually(lambda: load.table() == load.wanted, PATIENCE_S)
    for channel in POLICIES:
        await asyncio.to_thread(verify, url, channel)
    async with stan_client.Direct(url) as direct:
        nodes = await direct.admin.nodes()
        assert sorted(node.node for node in nodes.answers) == sorted(cluster.names)
        assert not [group.trouble for node in nodes.answers for group in node.groups if group.trouble or group.differs]

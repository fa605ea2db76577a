"""Every reader that keeps positions, against a broker that has taken the place of another, or has lost what was read.

Its channels have the names and the uids of those before and more messages, so that no position lies behind an end. One program
runs them all; each test looks at one."""

import asyncio
import contextlib
import os
import shutil
from types import SimpleNamespace

import pytest
import stan_client
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_stan import transport
from pyspark_stan.datasource import StanDataSource
from pyspark_stan.reading import cold
from pyspark_stan.reading.metrics import lag
from stan_client import GroupConsumer, PullConsumer, Table
from stan_client.blocking import BlockingClient
from stan_lake import LakeError, LakeTable, open_store
from stan_lake.tierer import ChannelTierer, TierSettings
from stan_protocol.admin_types import Commit, DeliveryPolicy
from typer.testing import CliRunner

from stan.cli.main import app
from tests.kit.cluster import GROUPS, StanCluster
from tests.kit.fake_broker import eventually
from tests.kit.server import NatsServer, StanServer, until
from tests.spark.filling import fill

ALL = ReadAllAvailable()
CHANNELS = ("lake", "pull", "shared", "spark", "table")
COPIED, READ, WRITTEN = 5, 10, 20
"""Messages of a channel of which there is a copy, of all before the broker is replaced, and of the one behind it."""
PATIENCE_S = 120


def memory(directory, nats):
    """A server without a disk is started again."""
    with StanServer(directory, store="MEMORY", nats_url=nats) as server:
        yield
        server.restart()
        yield


def disk(directory, nats):
    """A server with an empty disk takes the place of another."""
    for name in ("one", "two"):
        (directory / name).mkdir()
        with StanServer(directory / name, nats_url=nats):
            yield


def backup(directory, nats):
    """A server with an empty disk has the channels of a backup."""
    lives = disk(directory, nats)
    yield next(lives)
    _stan(nats, "backup", str(directory / "saved"))
    next(lives)
    yield _stan(nats, "restore", str(directory / "saved"), "--yes")
    lives.close()


def elsewhere(directory, nats):
    """Behind the URL is a server with messages of its own."""
    for name in ("one", "two"):
        (directory / name).mkdir()
    with StanServer(directory / "two", nats_url=nats):
        write(nats, WRITTEN, b"new")
    with StanServer(directory / "one", nats_url=nats):
        yield
    with StanServer(directory / "two", nats_url=nats):
        yield


def rescue(directory, nats):
    """Of three nodes one is left, and rescued."""
    with StanCluster(directory, "-cluster_allow_add_remove_node", nats=SimpleNamespace(url=nats)) as cluster:
        yield
        until(lambda: all((cluster.store("n1") / "groups" / str(n)).is_dir() for n in range(GROUPS + 1)), PATIENCE_S)
        cluster.kill9(*cluster.names)
        cluster.wipe("n2")
        cluster.wipe("n3")
        _stan(nats, "cluster", "rescue", str(cluster.store("n1")), "--yes-i-have-lost", "n2,n3")
        yield cluster.start("n1")


def copied(directory, nats):
    """A copy of the data directory takes the place of the directory."""
    with StanServer(directory, nats_url=nats) as server:
        write(nats, COPIED, b"old")
        server.kill9()
        shutil.copytree(directory / "store", directory / "copy")
        yield server.start()
        server.kill9()
        shutil.rmtree(directory / "store")
        shutil.copytree(directory / "copy", directory / "store")
        yield server.start()


def replicated(directory, nats):
    """All nodes of a cluster lose power, and with it the end of channels whose acks do not wait for the disk."""
    with StanCluster(directory, nats=SimpleNamespace(url=nats)) as cluster:
        asyncio.run(_make_replicated(nats))
        write(nats, COPIED, b"old")
        for directories in (("store", "copy"), ("copy", "store")):
            cluster.kill9(*cluster.names)
            for name in cluster.names:
                source, target = (directory / name / one for one in directories)
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(source, target)
            yield cluster.start()


async def _make_replicated(url):
    async with stan_client.Direct(url, timeout_s=60) as direct:
        for channel in CHANNELS:
            await direct.admin.set_policy(channel, DeliveryPolicy(commit=Commit.REPLICATED))
        await direct.admin.grow_pool(GROUPS + 2, Commit.REPLICATED)

        async def opened():
            nodes = (await direct.admin.nodes()).answers
            return len(nodes) == 3 and all(node.pool_open == GROUPS + 2 for node in nodes)

        await eventually(opened, PATIENCE_S)


def write(url, last, life):
    """Publish the messages of each channel that are missing up to *last*; the data says which life they are of."""
    with BlockingClient(url) as client:
        infos = client.info(CHANNELS)
        for channel in CHANNELS:
            numbers = range(infos[channel].last + 1 if channel in infos else 1, last + 1)
            if numbers:
                fill(client, channel, [life] * len(numbers), keys=[b"k%d" % number for number in numbers])
        assert {info.last for info in client.info(CHANNELS).values()} == {last}


def _stan(url, *arguments):
    done = CliRunner().invoke(app, [*arguments, "--server", url])
    assert done.exit_code == 0, done.output


class Readers:
    """The readers, before and after."""

    def __init__(self, url, directory, direct):
        self.url, self.lake, self.direct = url, str(directory / "lake"), direct
        self.found = SimpleNamespace(pulled=[], shared=[])

    def source(self, **options):
        """Return a data source."""
        given = {"servers": self.url, "startingOffsets": "earliest", **options}
        return StanDataSource({key.lower(): str(value) for key, value in given.items()})

    def reader(self, **options):
        """Return the reader of a stream."""
        made = self.source(subscribe="spark", consumerName="spark", **options)
        return made.streamReader(made.schema())

    @staticmethod
    def rows(reader, parts):
        """Return the sequences that tasks read."""
        return [row for part in parts for batch in reader.read(part) for row in batch.column("sequence").to_pylist()]

    async def before(self, stack):
        """Read everything; table, consumer and member go on reading."""
        await asyncio.to_thread(write, self.url, READ, b"old")
        self.stream = self.reader()
        await asyncio.to_thread(self._read_stream)
        self.table = await stack.enter_async_context(Table(self.direct, "table"))
        consumer = PullConsumer(self.direct, "pull", follow=False)
        async for _ in consumer:
            pass
        self.position = consumer.position
        member = await stack.enter_async_context(GroupConsumer(self.direct, "shared", group="crew", lease_s=0.5))
        self.member = asyncio.create_task(self._follow(member))
        stack.callback(self.member.cancel)
        await eventually(lambda: len(self.found.shared) == READ)
        await self._tier()
        uids = {info.uid for info in (await self.direct.channels.info(CHANNELS)).values()}
        assert len(uids) == len(CHANNELS)
        self.uids = uids

    async def after(self):
        """Let each reader go on."""
        await asyncio.to_thread(write, self.url, WRITTEN, b"new")
        infos = await self.direct.channels.info(CHANNELS)
        assert {info.uid for info in infos.values()} == self.uids
        await asyncio.to_thread(self._read_stream_after)
        self.found.bookmarks = (await self.direct.bookmarks.all("spark")).get("spark", {})
        self.found.strict = await self._error(PullConsumer(self.direct, "pull", self.position))
        tolerant = PullConsumer(self.direct, "pull", self.position, skip_lost=True, follow=False)
        self.found.pulled = [message.sequence async for batch in tolerant for message in batch.messages()]
        with contextlib.suppress(TimeoutError):
            await eventually(lambda: self.found.shared[-1] == WRITTEN, 40)
        with contextlib.suppress(TimeoutError):
            await eventually(lambda: b"new" in {message.data for message in self.table.values()}, 20)
            await eventually(lambda: len(self.table) == WRITTEN, 20)
        self.found.table = [message.data for message in self.table.values()]
        self.found.lake = await self._tier()

    def _read_stream(self):
        start = self.stream.initialOffset()
        self.end = self.stream.latestOffset(start, ALL)
        self.planned = self.stream.partitions(start, self.end)
        assert self.rows(self.stream, self.planned) == [*range(1, READ + 1)]

    def _read_stream_after(self):
        found = self.found
        strict = self.reader()
        for name, read in (
            ("task", lambda: self.rows(strict, self.planned)),
            ("stream", lambda: strict.latestOffset(self.end, ALL)),
            ("cold", lambda: self.rows(*self._cold())),
        ):
            try:
                setattr(found, name, read())
            except (stan_client.DataLossError, LakeError) as error:
                setattr(found, name, error)
        strict.commit(self.end)
        sources = [{"endOffset": self.end, "latestOffset": strict.reportLatestOffset()}]
        found.lag = lag({"sources": sources})
        tolerant = self.reader(failOnDataLoss="false")
        end = tolerant.latestOffset(self.end, ALL)
        found.tolerant = self.rows(tolerant, tolerant.partitions(self.end, end))

    def _cold(self):
        made = self.source(subscribe="lake", cold=self.lake)
        reader = made.reader(made.schema())
        return reader, reader.partitions()

    async def _follow(self, member):
        async for batch in member:
            self.found.shared += [message.sequence for message in batch.messages()]

    async def _tier(self):
        info = (await self.direct.channels.info(["lake"]))["lake"]
        tierer = ChannelTierer(LakeTable(open_store(self.lake), "lake", info.uid), self.direct, TierSettings(name="t"))
        try:
            await tierer.begin(info)
            await tierer.step(info, all_of_it=True)
        except LakeError as error:
            return error
        return sum(file.rows for file in tierer.manifest.files)

    @staticmethod
    async def _error(consumer):
        try:
            await anext(consumer)
        except stan_client.StanClientError as error:
            return error
        finally:
            await consumer.aclose()


@pytest.fixture(scope="module", params=[memory, disk, backup, elsewhere, rescue, copied, replicated])
def found(request, tmp_path_factory):
    """Return what the readers have come to."""
    world = request.param
    directory = tmp_path_factory.mktemp("lives")

    async def run(url):
        async with contextlib.AsyncExitStack() as stack:
            direct = await stack.enter_async_context(stan_client.Direct(url, timeout_s=60))
            lives = world(directory, url)
            stack.callback(lives.close)
            await asyncio.to_thread(next, lives)
            readers = Readers(url, directory, direct)
            await readers.before(stack)
            await asyncio.to_thread(next, lives)
            await readers.after()
            readers.found.world = world
            return readers.found

    with pytest.MonkeyPatch.context() as patch, NatsServer(directory) as nats:
        patch.setattr(cold, "KNOWN_S", 0.0)
        try:
            yield asyncio.run(run(nats.url))
        finally:
            for pid, connection in list(transport._pool):
                if pid == os.getpid() and nats.url in connection.servers:
                    transport.forget(connection, transport._pool[pid, connection])


SAME = (copied, replicated)
"""The worlds whose cluster is the same one as before."""


class TestAnotherCluster:
    """What becomes of positions in the channels of a cluster that is no more."""

    def test_a_stream(self, found):
        same = f"has other messages before message {READ + 1} than those that were read"
        assert (same if found.world in SAME else "another cluster") in str(found.stream)
        assert found.tolerant == [*range(1, WRITTEN + 1)]

    def test_a_task_whose_plan_is_of_before(self, found):
        if found.world in SAME:
            assert found.task == [*range(1, READ + 1)], "the plan of the next batch notices"
        else:
            assert isinstance(found.task, stan_client.DataLossError)

    def test_lag(self, found):
        assert found.lag == {"spark": WRITTEN - READ if found.world in SAME else WRITTEN}

    def test_the_position_that_a_query_reports(self, found):
        assert {name: place.sequence for name, place in found.bookmarks.items()} in ({}, {"spark": 1})

    def test_a_consumer(self, found):
        assert isinstance(found.strict, stan_client.ChannelReplacedError)
        assert found.pulled == [*range(1, WRITTEN + 1)]

    def test_a_member_of_a_group(self, found):
        begins = READ + 1 if found.world is rescue else 1  # the group's position is in the log that survived
        assert found.shared == [*range(1, READ + 1), *range(begins, WRITTEN + 1)]

    def test_a_table(self, found):
        olds = {backup: READ, rescue: READ, copied: COPIED, replicated: COPIED}.get(found.world, 0)
        assert sorted(found.table) == [b"new"] * (WRITTEN - olds) + [b"old"] * olds

    def test_a_lake(self, found):
        if found.world in SAME:
            assert found.cold == [*range(1, WRITTEN + 1)], "the lake's, and what the broker has behind them"
        else:
            assert "another cluster" in str(found.cold)
        if found.world in (backup, rescue):
            assert found.lake == WRITTEN, "its newest message is the one that the broker has"
        else:
            assert "it is another channel" in str(found.lake)

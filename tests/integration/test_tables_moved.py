"""A compressed channel that is compacted by key moves between groups of a real cluster, is saved and put back, while it is
written and leaders are killed: who folds it by key gets the same before and after."""

import asyncio
import subprocess
import sys

import pytest
import stan_client
from stan_client import StanClientError
from stan_client.reading.fetching import is_deletion

from tests.integration.test_channel_moves import moved, where
from tests.integration.test_compaction_server import SMALL
from tests.kit.cluster import StanCluster
from tests.kit.fake_broker import eventually
from tests.kit.server import NatsServer, StanServer

CHANNEL = "prices"
POLICY = 'streaming { policies { ">" { compact: last, min_age: "0s", compress: zstd } } }'
KEYS, TOGETHER = 40, 20
PATIENCE_S = 60


class Writer:
    """Publishes messages with keys, and tombstones, until it is told to stop; each again until it is acked."""

    def __init__(self, url):
        self._url = url
        self.wanted = {}  # of each key the data that was published last, without those that were deleted last
        self.written = 0
        self.goes = asyncio.Event()
        self.rests = asyncio.Event()

    async def __aenter__(self):
        self._client = await stan_client.connect(self._url, client_id="writer")
        self.goes.set()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._client.close()

    async def _run(self):
        while True:
            if not self.goes.is_set():
                self.rests.set()
                await self.goes.wait()
                self.rests.clear()
            await asyncio.gather(*(self._write(self.written + at) for at in range(TOGETHER)))  # of different keys
            self.written += TOGETHER

    async def _write(self, number):
        key, data = b"key %d" % (number % KEYS), b"%d %d" % (number, number * 7919 % 1000003) * 8
        while True:
            try:
                if number % 7:
                    await self._client.publish(CHANNEL, data, key=key)
                    self.wanted[key] = data
                else:
                    await self._client.publish_tombstone(CHANNEL, key)
                    self.wanted.pop(key, None)
            except StanClientError:
                continue
            return

    async def paused(self):
        """Returns when nothing is on its way."""
        self.goes.clear()
        await self.rests.wait()

    async def writes(self, more):
        """Returns when so many more messages are acked."""
        self.goes.set()
        least = self.written + more
        await eventually(lambda: self.written >= least, PATIENCE_S)


async def replayed(url):
    """All messages that are left: (sequence, key, data)."""
    async with await stan_client.connect(url, client_id="replay") as client:
        found = [
            (one.sequence, one.key, None if is_deletion(one) else one.data)
            async for one in client.read(CHANNEL, start=stan_client.everything())
        ]
    assert found == sorted(found, key=lambda one: one[0])
    return found


def folded(messages):
    """The table that they make."""
    newest = {key: data for _, key, data in messages}
    return {key: data for key, data in newest.items() if data is not None}


async def settled(writer, direct, url):
    """Pause; the log that is left makes the table that was written, and is compacted and compressed."""
    await writer.paused()
    assert folded(await replayed(url)) == writer.wanted
    status = await direct.admin.channel(CHANNEL)
    assert status.compacted_until > 0


async def compacts(direct):
    async def passed():
        status = await direct.admin.channel(CHANNEL)
        return status is not None and status.compaction_passes and status.kept_bytes

    await eventually(passed, PATIENCE_S)


def stan(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "stan.cli.main", *arguments], capture_output=True, check=False, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def cluster(tmp_path):
    (tmp_path / "policies.conf").write_text(POLICY)
    with NatsServer(tmp_path) as nats:
        found = StanCluster(tmp_path, "-sc", str(tmp_path / "policies.conf"), nats=nats)
        for node in found.nodes.values():
            node.replace_program((sys.executable, "-c", SMALL))
        with found:
            yield found


@pytest.mark.timeout(400)
async def test_the_table_is_the_same_after_moves_a_backup_and_a_restore(cluster, tmp_path) -> None:
    home = cluster.group_of(CHANNEL)
    others = [group for group in range(1, cluster.groups + 1) if group != home]
    async with stan_client.Direct(cluster.url) as direct, Writer(cluster.url) as writer:
        await writer.writes(1500)
        await compacts(direct)
        await settled(writer, direct, cluster.url)
        for target, dies in zip(others[:3], ("source", "target", "source"), strict=True):
            await writer.writes(200)
            leads = await where(direct) if dies == "source" else target
            killed = await asyncio.to_thread(cluster.leader, leads)
            await direct.admin.pin_channel(CHANNEL, target)
            await asyncio.to_thread(cluster.kill9, killed)
            await asyncio.to_thread(cluster.start, killed)
            await moved(direct, target)
            await writer.writes(1000)
            await compacts(direct)  # also in the group to which it came
            await settled(writer, direct, cluster.url)

        killed = await asyncio.to_thread(cluster.leader, await where(direct))
        saving = asyncio.create_task(
            asyncio.to_thread(stan, "backup", str(tmp_path / "saved"), "--server", cluster.url)
        )
        await asyncio.to_thread(cluster.kill9, killed)
        await saving
        await asyncio.to_thread(cluster.start, killed)
        for where_to, flags in (("compressing", ("-sc", str(tmp_path / "policies.conf"))), ("plain", ())):
            directory = tmp_path / where_to
            directory.mkdir()
            with StanServer(directory, *flags) as server:
                await asyncio.to_thread(stan, "restore", str(tmp_path / "saved"), "--yes", "--server", server.url)
                restored = await replayed(server.url)
                assert folded(restored) == writer.wanted
                async with stan_client.Direct(server.url) as there:
                    status, before = await there.admin.channel(CHANNEL), await direct.admin.channel(CHANNEL)
                assert status.last_sequence == before.last_sequence
                assert bool(status.kept_bytes) == bool(flags)
                async with (
                    await stan_client.connect(server.url, client_id="again") as client,
                    stan_client.Table(client, CHANNEL) as table,
                ):
                    assert {key: message.data for key, message in table.items()} == writer.wanted

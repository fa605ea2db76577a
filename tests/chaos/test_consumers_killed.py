"""A consumer group in a real cluster: ten members, of which one is killed every second and another one comes."""

import asyncio
import itertools
import multiprocessing
import os
import random
import time
from collections import Counter, defaultdict

import pytest
from stan_client import Direct

from stan.types import SECOND
from tests.chaos.consumers import GROUP, consume
from tests.kit.cluster import StanCluster
from tests.kit.server import NatsServer

CHANNELS = int(os.environ.get("STAN_CONSUMED_CHANNELS", "100"))
MEMBERS = int(os.environ.get("STAN_CONSUMERS", "10"))
SECONDS = int(os.environ.get("STAN_CONSUMERS_SECONDS", "20"))
LEASE_S = 1.5
UNOWNED_S_MAX = 3.0
LOOK_S = 0.1
PUBLISH_S = 0.01
PATIENCE_S = 60.0


@pytest.fixture
def cluster(tmp_path):
    with NatsServer(tmp_path) as nats, StanCluster(tmp_path, nats=nats) as cluster:
        yield cluster


class Members:
    """The processes."""

    def __init__(self, *told):
        self.told = told
        self.living = {}  # name -> process
        self.kills = 0
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.chaos.consumers"])

    def add(self):
        process = self._context.Process(target=consume, args=self.told, daemon=True)
        process.start()
        self.living[str(process.pid)] = process

    def kill(self, name):
        process = self.living.pop(name)
        process.kill()
        process.join()
        self.kills += 1


class Owners:
    """For how long channels had no living owner."""

    def __init__(self, direct, members):
        self.direct, self.members = direct, members
        self.since = {}  # channel -> monotonic time since when it has none
        self.longest = 0.0
        self.looks = 0

    async def look(self):
        (group,) = await self.direct.admin.consumer_groups(GROUP)
        names = [b""] + [member.name for member in group.member_list]
        living = {name.encode() for name in self.members.living}
        now = time.monotonic()
        for shown in group.channel_list:
            if names[shown.member] in living:
                self.since.pop(shown.channel, None)
            else:
                self.longest = max(self.longest, now - self.since.setdefault(shown.channel, now))
        self.looks += 1
        return not self.since and group.channels == CHANNELS

    async def watch(self):
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)


async def publish(direct, published):
    """One message to each channel, then to one or another again and again."""
    row = b"\x03\x00\x00\x00\x22\x01m"
    for number in itertools.count(1):
        channel = f"orders.{number - 1 if number <= CHANNELS else random.randrange(CHANNELS)}"
        await direct.publish_batch(channel, row, 1, producer="test", ids=number.to_bytes(16, "big"))
        published[channel] += 1
        await asyncio.sleep(0 if number <= CHANNELS else PUBLISH_S)


def told(directory):
    """(what, when, channel, first, position after, age, member) of all members, in order of time."""
    found = []
    for path in directory.iterdir():
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                what, when, channel, *numbers = line.split()
                found.append((what, int(when), channel, *map(int, numbers), path.name))
    return sorted(found, key=lambda one: one[1])


def overlaps(found):
    """Messages that were committed twice."""
    committed = Counter()
    for what, _, channel, first, after, *_ in found:
        if what == "committed":
            committed.update((channel, sequence) for sequence in range(first, after))
    return [message for message, times in committed.items() if times > 1]


async def test_no_channel_is_long_without_an_owner(cluster, tmp_path) -> None:
    directory = tmp_path / "told"
    directory.mkdir()
    url = cluster.nodes["n1"].url
    published = Counter()
    async with Direct(url, cluster.cluster_id, timeout_s=30) as direct:
        members = Members(url, cluster.cluster_id, "orders.*", LEASE_S, str(directory))
        publishing = asyncio.create_task(publish(direct, published))
        try:
            for _ in range(MEMBERS):
                members.add()
            owners = Owners(direct, members)
            await until_so(lambda: has_begun(owners))
            owners.longest = 0.0
            watching = asyncio.create_task(owners.watch())
            for _ in range(SECONDS):
                await asyncio.sleep(1)
                members.kill(random.choice(list(members.living)))
                members.add()
            watching.cancel()
            publishing.cancel()
            await asyncio.gather(publishing, watching, return_exceptions=True)
            await until_so(lambda: has_read_all(direct))
        finally:
            publishing.cancel()
            for name in list(members.living):
                members.kill(name)
    found = told(directory)
    handled, batches = Counter(), defaultdict(set)
    for what, _, channel, first, after, *_ in found:
        if what == "handled":
            handled.update((channel, sequence) for sequence in range(first, after))
            batches[channel].add((first, after))
    again = sum(times - 1 for times in handled.values())
    oldest = max(one[5] for one in found if one[0] == "handled")
    print(
        f"{CHANNELS} channels, {MEMBERS} members, {SECONDS} killed: longest without an owner {owners.longest:.2f} s in "
        f"{owners.looks} looks; {len(handled)} messages handled, {again} again; oldest {oldest / SECOND:.2f} s"
    )
    assert overlaps(found) == []
    assert owners.longest < UNOWNED_S_MAX
    assert sum(published.values()) <= len(handled)
    # Not committed yet: one batch of each channel that was under way in a member that was killed.
    assert again <= SECONDS * max(after - first for pairs in batches.values() for first, after in pairs) * CHANNELS


async def until_so(met):
    """Wait until *met* returns True."""
    for _ in range(round(PATIENCE_S / LOOK_S)):
        if await met():
            return
        await asyncio.sleep(LOOK_S)
    pytest.fail("it took too long")


async def has_begun(owners):
    try:
        return await owners.look()
    except Exception:  # noqa: BLE001 - there is no such group yet
        return False


async def has_read_all(direct):
    cursors = (await direct.cursors(GROUP)).get(GROUP, {})
    return len(cursors) == CHANNELS and all(cursor.sequence > cursor.last for cursor in cursors.values())

"""A consumer group in a real cluster: ten members, of which one is killed every second and another one comes."""

import asyncio
import itertools
import multiprocessing
import os
import random
import time
from collections import Counter

import pytest
from stan_client import Direct
from stan_protocol.scalars import SECOND

from tests.chaos.consumers import GROUP, consume
from tests.kit.cluster import StanCluster
from tests.kit.fake_broker import eventually
from tests.kit.server import NatsServer

CHANNELS = int(os.environ.get("STAN_CONSUMED_CHANNELS", "100"))
MEMBERS = int(os.environ.get("STAN_CONSUMERS", "10"))
SECONDS = int(os.environ.get("STAN_CONSUMERS_SECONDS", "20"))
LEASE_S = 1.5
UNOWNED_S_MAX = float(os.environ.get("STAN_CONSUMERS_UNOWNED_MAX", "inf"))
"""Told on a machine that does nothing else: then it is 3 at most."""
LOOK_S = 0.1
PUBLISH_S = 0.01
LEADER_EVERY = 7
"""Seconds between two kills of the leader of the metadata."""
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

    async def look(self):
        (group,) = await self.direct.admin.consumer_groups(GROUP)
        names = [""] + [member.name for member in group.member_list]
        living = set(self.members.living)
        now = time.monotonic()
        for shown in group.channel_list:
            if names[shown.member] in living:
                self.since.pop(shown.channel, None)
            else:
                self.longest = max(self.longest, now - self.since.setdefault(shown.channel, now))
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
        await direct.batches.publish(channel, row, 1, producer="test", ids=number.to_bytes(16, "big"))
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


class Story:
    """What has happened in one run."""

    def __init__(self):
        self.published = Counter()
        self.found = []
        self.longest = 0.0

    @property
    def handled(self):
        """How often each message was handled."""
        counts = Counter()
        for what, _, channel, first, after, *_ in self.found:
            if what == "handled":
                counts.update((channel, sequence) for sequence in range(first, after))
        return counts

    def tell(self):
        handled = self.handled
        again = sum(times - 1 for times in handled.values())
        oldest = max(one[5] for one in self.found if one[0] == "handled")
        print(
            f"{CHANNELS} channels, {MEMBERS} members, {SECONDS} killed: longest without an owner {self.longest:.2f} s; "
            f"{len(handled)} messages handled, {again} again; oldest {oldest / SECOND:.2f} s"
        )

    def check(self):
        """No message was committed twice, none was left out, and only batches that were under way came again."""
        assert overlaps(self.found) == []
        handled = self.handled
        assert sum(self.published.values()) <= len(handled)
        largest = max(after - first for what, _, _, first, after, *_ in self.found if what == "handled")
        assert sum(times - 1 for times in handled.values()) <= SECONDS * largest * CHANNELS


async def play(cluster, directory, each_second):
    """Kill a member each second; *each_second* is called with the number of the second, too. Returns what has happened."""
    directory.mkdir()
    url = cluster.nodes["n1"].url
    story = Story()
    async with Direct(url, cluster_id=cluster.cluster_id, timeout_s=30) as direct:
        members = Members(url, cluster.cluster_id, "orders.*", LEASE_S, str(directory))
        publishing = asyncio.create_task(publish(direct, story.published))
        try:
            for _ in range(MEMBERS):
                members.add()
            owners = Owners(direct, members)
            await eventually(lambda: has_begun(owners), PATIENCE_S)
            owners.longest = 0.0
            watching = asyncio.create_task(owners.watch())
            for second in range(SECONDS):
                await asyncio.sleep(1)
                members.kill(random.choice(list(members.living)))
                members.add()
                await each_second(second)
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
            await eventually(lambda: has_read_all(direct), PATIENCE_S)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            story.longest = owners.longest
        finally:
            publishing.cancel()
            for name in list(members.living):
                members.kill(name)
    story.found = told(directory)
    story.tell()
    return story


async def test_each_channel_gets_an_owner_again(cluster, tmp_path) -> None:
    async def nothing(_second):
        pass

    story = await play(cluster, tmp_path / "told", nothing)
    story.check()
    assert story.longest < UNOWNED_S_MAX


async def test_leader_of_the_metadata_is_killed_too(cluster, tmp_path) -> None:
    """Who leads next gives each member a full lease, so here a channel may be longer without an owner."""

    async def kill_leader(second):
        if second % LEADER_EVERY == LEADER_EVERY - 1:
            name = await asyncio.to_thread(cluster.leader, 0)
            await asyncio.to_thread(cluster.kill9, name)
            await asyncio.to_thread(cluster.start, name)

    story = await play(cluster, tmp_path / "told", kill_leader)
    story.check()


async def has_begun(owners):
    try:
        return await owners.look()
    except Exception:  # noqa: BLE001 - there is no such group yet
        return False


async def has_read_all(direct):
    cursors = (await direct.bookmarks.all(GROUP)).get(GROUP, {})
    return len(cursors) == CHANNELS and all(cursor.sequence > cursor.last for cursor in cursors.values())

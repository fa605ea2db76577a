"""`stan takeover` of the original under load: PYTHONPATH=clients python -m tests.chaos.takeover --original PATH --runs 10

Each run loads a server of NATS Streaming, or a cluster of three: 20 channels, 40 durables and 10 durable queue groups, of which
half leave messages unacked; half of the clients are gone. It is taken over, with --kills so many times interrupted by kill -9 of
the old server, the new one or the command, and the same command is given again. Then all is compared. A line for each run; exit
code 1 if any has found something.
"""

import argparse
import asyncio
import contextlib
import os
import random
import re
import secrets
import sys
import tempfile
import time
from pathlib import Path

import stan_client

from tests.kit.fake_broker import eventually
from tests.kit.original_server import Original, OriginalCluster, read_subscribed
from tests.kit.server import CLUSTER_ID, NatsServer, StanServer

CHANNELS = [f"orders.{number}.new" for number in range(20)]
CLIENTS = 10  # every other one is gone when the takeover begins
GROUPS = 10
ROUND_S = 0.1
PENDING_MAX = 50
UNACKED_SHARE = 0.3
AFTER_S = (0.0, 4.0)  # from the start of the command to a kill
FENCED_AFTER_S = (0.0, 2.0)  # ... or from the fence
VICTIMS = ("old", "new", "command")
ATTEMPTS_MAX = 20
CALM_S = 120.0
PAUSE = re.compile(r"Clients had to stay away for [^.]*\.\d[^.]*(?:\.\d[^.]*)*\.")


class Consumer:
    """A durable, or a durable queue group with members of two clients."""

    def __init__(self, channel, names, leaves, dice):
        self.channel, self.names, self.leaves, self.dice = channel, names, leaves, dice
        self.delivered, self.acked = set(), set()
        self.fenced = False

    def take(self, messages):
        """Acknowledge them, or all but some."""
        for one in messages:
            self.delivered.add(one.sequence)
            if not self.fenced and not (self.leaves and self.dice.random() < UNACKED_SHARE):
                one.ack()
                self.acked.add(one.sequence)

    async def subscribe(self, client):
        """Let a client consume."""
        options = {"start": stan_client.everything(), "max_in_flight": PENDING_MAX, "ack_wait_s": 300}
        await client.subscribe(self.channel, self.take, manual_acks=True, batch=True, **options, **self.names)

    async def resume(self, url, client_id, last, *, strict):
        """Complaints about what the new server delivers, up to the sequence *last*."""
        expected = [sequence for sequence in range(1, last + 1) if sequence not in self.acked]
        got = []
        client = await connect(url, f"{client_id}")
        subscription = await client.subscribe(self.channel, max_in_flight=4096, **self.names)
        with contextlib.suppress(TimeoutError):  # what has not come until then is missing
            async with asyncio.timeout(CALM_S):
                while len(got) < len(expected) or (got and got[-1][0] < last):
                    one = await anext(subscription)
                    got.append((one.sequence, one.redelivered))
        await client.close()
        flagged = [sequence for sequence, again in got if again]
        rest = [sequence for sequence, again in got if not again]
        found, who = [], f"{self.channel} {self.names}"
        if missing := set(expected) - {sequence for sequence, _ in got}:
            found.append(
                f"{who} skips {len(missing)} of {len(expected)}: {sorted(missing)[:9]}, got {len(got)} to {got[-1:]}"
            )
        if [*flagged, *rest] != [sequence for sequence, _ in got] or flagged != sorted(flagged) or rest != sorted(rest):
            found.append(f"{who} is out of order")
        if strict and not self.delivered - self.acked <= set(flagged):
            found.append(f"{who} does not flag {sorted(self.delivered - self.acked - set(flagged))[:9]}")
        if strict and len(got) != len(expected):
            found.append(f"{who} brings {sorted({one for one, _ in got} & self.acked)[:9]} again")
        return found


async def connect(url, client_id):
    """A client, once the server takes it."""
    while True:
        with contextlib.suppress(stan_client.StanClientError):
            return await stan_client.connect(url, client_id=client_id, cluster_id=CLUSTER_ID, resubscribe=False)
        await asyncio.sleep(ROUND_S)


class Load:
    """Publishers and consumers of a run."""

    def __init__(self, old_url, new_url, rate, dice, directory):
        self.old_url, self.new_url, self.batch = old_url, new_url, max(1, int(rate * ROUND_S / len(CHANNELS)))
        self.fence, self.opened = directory / "fence", directory / "opened"
        self.acked = {channel: [] for channel in CHANNELS}
        self.consumers = {f"c{number}": [] for number in range(CLIENTS)}
        self.newest_ack = self.first_ack = 0.0
        for at, channel in enumerate(CHANNELS):
            for which in range(2):
                consumer = Consumer(channel, {"durable": f"d{which}"}, leaves=not which, dice=dice)
                self.consumers[f"c{(2 * at + which + at // 5) % CLIENTS}"].append(consumer)
            if at < GROUPS:
                consumer = Consumer(channel, {"durable": "g", "queue": "q"}, leaves=not at % 2, dice=dice)
                for client_id in (f"c{at}", f"c{(at + 3) % CLIENTS}"):
                    self.consumers[client_id].append(consumer)
        self.clients = {}

    @property
    def each(self):
        """Each consumer with a client of it."""
        return {consumer: client_id for client_id, theirs in self.consumers.items() for consumer in theirs}

    async def open(self):
        """Consumers come, and half of them go."""
        for client_id, theirs in self.consumers.items():
            self.clients[client_id] = await connect(self.old_url, client_id)
            for consumer in theirs:
                await consumer.subscribe(self.clients[client_id])
        await asyncio.sleep(1)
        for client_id in [*self.consumers][::2]:
            await self.clients.pop(client_id).close()

    async def publish(self):
        """Publish until the fence, and once more behind it, to the new server."""
        publishers = [await connect(self.old_url, f"p{number}") for number in range(4)]
        self.begun = time.monotonic()
        while not self.fence.exists():
            begun = time.monotonic()
            await asyncio.gather(
                *(self._round(publishers[at % len(publishers)], channel) for at, channel in enumerate(CHANNELS))
            )
            await asyncio.sleep(max(0, begun + ROUND_S - time.monotonic()))
        for consumer in self.each:
            consumer.fenced = True
        self.rate = sum(map(len, self.acked.values())) / (self.newest_ack - self.begun)
        await eventually(self.opened.exists, seconds=CALM_S)
        client = await connect(self.new_url, "after")
        for channel in CHANNELS:
            await self._round(client, channel, 1)
            self.first_ack = self.first_ack or time.monotonic()
        for one in [client, *publishers]:
            with contextlib.suppress(stan_client.StanClientError):
                await one.close()

    async def _round(self, client, channel, count=0):
        number = len(self.acked[channel])
        payloads = [b"%s %d" % (channel.encode(), number + at) for at in range(count or self.batch)]
        while payloads:
            with contextlib.suppress(stan_client.StanClientError):
                await client.publish_many(channel, payloads)
                self.acked[channel] += payloads
                self.newest_ack = time.monotonic() if not count else self.newest_ack
                return
            if self.fence.exists() and not count:
                return
            await asyncio.sleep(ROUND_S)

    async def compare(self, *, strict):
        """Complaints about the new server."""
        found = []
        async with stan_client.Direct(self.new_url, cluster_id=CLUSTER_ID) as direct:
            ends = {one.name: one.last_sequence for one in await direct.admin.channels()}
            for channel in CHANNELS:
                answers = direct.batches.read_range(channel, 1, ends[channel])
                new = [
                    (one.sequence, one.timestamp_ns, one.data, one.reply)
                    async for answer in answers
                    for one in answer.messages()
                ]
                old = await read_subscribed(self.old_url, channel, ends[channel] - 1)
                if new[:-1] != old:
                    found.append(f"{channel} differs: {len(new) - 1} of {len(old)}")
                payloads = iter([data for _, _, data, _ in new])
                if lost := [data for data in self.acked[channel] if data not in payloads]:  # in order
                    found.append(f"{channel} has lost, or not in order, {len(lost)}: {lost[:3]}")
        checks = [
            consumer.resume(self.new_url, f"{owner}", ends[consumer.channel], strict=strict)
            for consumer, owner in self.each.items()
        ]
        for check in checks:
            found += await check
        return found

    async def close(self):
        """All clients."""
        for client in self.clients.values():
            with contextlib.suppress(stan_client.StanClientError):
                await asyncio.wait_for(client.close(), 5)


class Command:
    """The command, as it is given again and again."""

    def __init__(self, old, new, load, directory):
        switch = ["--fence-command", f"touch {load.fence}", "--open-command", f"touch {load.opened}"]
        self.words = ["takeover", old.url, "--pages", old.pages, "--server", new.url, *switch, "--yes"]
        self.log, self.process = directory / "command.log", None

    async def start(self):
        """Give it."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with self.log.open("ab") as log:
            words = [sys.executable, "-m", "stan.cli.main", *self.words]
            self.process = await asyncio.create_subprocess_exec(*words, env=environment, stdout=log, stderr=log)


async def interrupt(victim, servers, command, load, dice):
    """Kill one of the three at a random moment, and start it again if it is a server."""
    if dice.random() < 0.5:
        await eventually(lambda: load.fence.exists() or command.process.returncode is not None, seconds=CALM_S)
        wait_s = dice.uniform(*FENCED_AFTER_S)
    else:
        wait_s = dice.uniform(*AFTER_S)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(command.process.wait(), wait_s)
        return False
    if victim == "command":
        command.process.kill()
    else:
        await asyncio.to_thread(servers[victim].kill9)
        await asyncio.to_thread(servers[victim].start)
    return True


async def one_run(old, new, options, seed, directory):
    """What a run has found, and a line about it."""
    dice = random.Random(seed)
    load = Load(old.url, new.url, options.rate, dice, directory)
    publishing = asyncio.create_task(load.publish())
    await load.open()
    command, killed, attempts = Command(old, new, load, directory), [], 0
    left = options.kills
    while attempts < ATTEMPTS_MAX:
        attempts += 1
        await command.start()
        while left and command.process.returncode is None:
            victim = dice.choice(options.victims)
            if await interrupt(victim, {"old": old, "new": new}, command, load, dice):
                killed.append(victim)
                left -= 1
        if not await command.process.wait():
            break
    found = [f"the command fails: {command.log.read_text()[-2000:]}"] if command.process.returncode else []
    if not found:
        await asyncio.wait_for(publishing, CALM_S)
        strict = "old" not in killed  # it keeps what it sent and what was acked no better than that
        found = await load.compare(strict=strict)
    publishing.cancel()
    await load.close()
    line = f"{sum(map(len, load.acked.values())):,} messages, load {os.getloadavg()[0]:.1f}"
    if not found:
        line += f", {load.rate:,.0f}/s, pause {load.first_ack - load.newest_ack:.2f} s"
    line += f", killed {' '.join(killed)}, {attempts} attempts" if killed else ""
    return found, f"{line}. {' '.join(PAUSE.findall(command.log.read_text())[-1:])}"


@contextlib.contextmanager
def old_server(options, directory):
    """The old server, as the options say."""
    if options.clustered:
        with NatsServer(directory) as nats, OriginalCluster(directory / "old", nats.url, options.original) as cluster:
            yield cluster
        return
    with Original(directory / "old", *options.flags.split(), program=options.original) as server:
        yield server


def main(arguments):
    """See the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.takeover", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--original", required=True, help="program of NATS Streaming Server")
    parser.add_argument("--flags", default="", help="more flags of it, of another store for example")
    parser.add_argument("--clustered", action="store_true", help="three of it")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--kills", type=int, default=0, help="in each run")
    parser.add_argument("--victims", type=lambda text: text.split(","), default=VICTIMS)
    parser.add_argument("--rate", type=int, default=5000, help="messages a second of all publishers")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    options = parser.parse_args(arguments)
    bad = 0
    for seed in range(options.seed, options.seed + options.runs):
        with tempfile.TemporaryDirectory(prefix="stan-takeover-") as name:
            directory = Path(name)
            (directory / "new").mkdir()
            with old_server(options, directory) as old, StanServer(directory / "new") as new:
                found, line = asyncio.run(one_run(old, new, options, seed, directory))
        bad += bool(found)
        print(f"seed {seed}: {line}", *found, sep="\n  ", flush=True)
    print(f"{options.runs} runs, {bad} with findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What order by key costs a queue group: `python -m tests.bench_key_order [-n 100000] [--keys 10000] [--random] [--members 4]`.

A broker of its own is filled with messages of many keys, which take turns or, with `--random`, come in any order, so that more of
them wait for each other; then the members of a queue group, in a process of their own, get and ack them all, once without a
policy and once with `order: key`, three times each in turn. Prints messages a second of each, and the ratio of the medians.
"""

import argparse
import asyncio
import multiprocessing
import random
import statistics
import time

import stan_client
from stan_bench.bench.bench_broker import own_broker
from stan_client import Direct
from stan_protocol.admin_types import DeliveryPolicy

CLUSTER = "bench-key-order"
ROUNDS = 3
FORK = multiprocessing.get_context("spawn")


async def _consume(url: str, channel: str, count: int, members: int, in_flight: int) -> float:
    """Seconds from the first message of a new group to its last ack."""
    clients = [await stan_client.connect(url, client_id=f"member{n}", cluster_id=CLUSTER) for n in range(members)]
    got, begun, done = 0, 0.0, asyncio.Event()

    def heard(messages: list[stan_client.Message]) -> None:
        nonlocal got, begun
        begun = begun or time.monotonic()
        got += len(messages)
        if got >= count:
            done.set()

    start = stan_client.everything()
    for client in clients:
        await client.subscribe(
            channel, heard, queue="q", start=start, max_in_flight=in_flight, batch=True, ack_wait_s=60
        )
    await done.wait()
    took = time.monotonic() - begun
    for client in clients:
        await client.close()
    return took


def _consumer(url: str, channel: str, told: argparse.Namespace, answer: "multiprocessing.SimpleQueue[float]") -> None:
    answer.put(asyncio.run(_consume(url, channel, told.n, told.members, told.in_flight)))


async def _round(url: str, told: argparse.Namespace, channel: str) -> float:
    answer = FORK.SimpleQueue()
    process = FORK.Process(target=_consumer, args=(url, channel, told, answer))
    process.start()
    await asyncio.to_thread(process.join)
    return told.n / float(answer.get())


async def _main(told: argparse.Namespace) -> None:
    async with own_broker(CLUSTER) as target:
        url = target.server
        async with (
            await stan_client.connect(url, client_id="filler", cluster_id=CLUSTER) as client,
            Direct(url, cluster_id=CLUSTER) as direct,
        ):
            keys = [b"key %d" % n for n in range(told.keys)]
            for channel in ("free", "ordered"):
                draw = random.Random(channel)
                places = (draw.randrange(told.keys) if told.random else n * 7919 % told.keys for n in range(told.n))
                messages = (stan_client.NewMessage(bytes(told.size), key=keys[place]) for place in places)
                await client.publish_many(channel, messages)
            await direct.admin.set_policy("ordered", DeliveryPolicy(ordered_by_key=True))
        rates: dict[str, list[float]] = {"free": [], "ordered": []}
        for _ in range(ROUNDS):
            for channel, found in rates.items():
                found.append(await _round(url, told, channel))
                print(f"{channel:8} {found[-1]:12,.0f} messages/s", flush=True)
        ratio = statistics.median(rates["ordered"]) / statistics.median(rates["free"])
        print(f"ratio    {ratio:12.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=100_000, help="messages")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--random", action="store_true", help="keys come in random order, not in turn")
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--in-flight", type=int, default=1024)
    parser.add_argument("--size", type=int, default=128)
    asyncio.run(_main(parser.parse_args()))

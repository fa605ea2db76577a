"""Advisories of streams, consumers and messages that are given up: the same as those of a nats-server with JetStream."""

import asyncio
import contextlib
import json

import nats
from nats.js.api import ConsumerConfig

from tests.kit.fake_broker import eventually
from tests.kit.server import NatsServer, StanServer

ABOUT = {"type", "id", "timestamp"}


async def happened(url):
    """Subject and content of each advisory of a life of a stream; ids and times are looked at, and left out."""
    client = await nats.connect(url)
    js, got = client.jetstream(timeout=10), []

    async def take(message):
        got.append((message.subject.removeprefix("$JS.EVENT.ADVISORY."), json.loads(message.data)))

    def count(word):
        return sum(word in subject for subject, _ in got)

    for what in ("STREAM", "CONSUMER"):
        await client.subscribe(f"$JS.EVENT.ADVISORY.{what}.>", cb=take)
    await client.flush()
    await js.add_stream(name="S", subjects=["a.*"])
    await js.update_stream(name="S", subjects=["a.*"], description="x")
    for name in ("b", "c", "d"):
        await js.publish(f"a.{name}", b"1")
    config = ConsumerConfig(ack_wait=3, max_deliver=2, filter_subject="a.*")
    sub = await js.pull_subscribe("a.*", durable="w", config=config)
    await sub.fetch(1, timeout=5)
    await sub.fetch(1, timeout=5)
    third = (await sub.fetch(1, timeout=5))[0]
    await client.request(third.reply, b"+TERM for good", timeout=5)
    await eventually(lambda: count("MSG_TERMINATED") == 1)
    async with asyncio.timeout(60):
        while count("MAX_DELIVERIES") < 2:  # which needs somebody who asks for more
            with contextlib.suppress(nats.errors.TimeoutError):
                await sub.fetch(2, timeout=1)
    await js.delete_consumer("S", "w")
    await js.add_consumer("S", ConsumerConfig(durable_name="v", ack_policy="explicit"))
    await js.delete_stream("S")
    await eventually(lambda: count("STREAM.DELETED") == 1)
    await client.close()
    assert all(set(told) > ABOUT and len(told["id"]) == 22 for _, told in got)
    assert len({told["id"] for _, told in got}) == len(got)
    kept = [(subject, {k: v for k, v in told.items() if k not in ("id", "timestamp")}) for subject, told in got]
    return sorted(kept, key=lambda one: (one[0], one[1].get("stream_seq", 0)))


async def test_advisories_are_those_of_jetstream(tmp_path):
    with NatsServer(tmp_path, "-js", "-sd", str(tmp_path / "js")) as server:
        expected = await happened(server.url)
    with StanServer(tmp_path, "-jetstream_api") as server:
        assert await happened(server.url) == expected
    assert {subject.split(".")[1] for subject, _ in expected} >= {
        "MAX_DELIVERIES",
        "MSG_TERMINATED",
        "CREATED",
        "DELETED",
    }

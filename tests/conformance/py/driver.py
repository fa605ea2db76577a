"""A STAN client on a leash: obeys the lines on its standard input, tells what happens as JSON lines on its standard output.

Made of the published Python client alone (PyPI asyncio-nats-streaming); knows nothing of our broker, and must not see it, since
that client's package is called `stan`, too. The commands and events are described in ../clients.py.
"""

import asyncio
import functools
import json
import math
import os
import sys
import time


def of_its_time(call):
    """The client tells asyncio the loop, which Python takes no more since 3.10."""

    @functools.wraps(call, updated=())
    def called(*args, loop=None, **kwargs):
        return call(*args, **kwargs)

    return called


for name in ("Queue", "sleep", "wait_for", "open_connection"):
    setattr(asyncio, name, of_its_time(getattr(asyncio, name)))

from nats.aio.client import Client as Nats  # noqa: E402 - they look at asyncio when they are imported
from stan.aio.client import Client as Stan  # noqa: E402

RECONNECT_WAIT_S = 0.05
LINE_BYTES_MAX = 4 * 1024 * 1024
STARTS = {"new": "new_only", "last": "last_received", "first": "first", "sequence": "sequence", "delta": "time"}


def tell(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


class Driver:
    """One client and its subscriptions."""

    def __init__(self):
        self.client = Stan()
        self.subscriptions = {}
        self.held = {}  # name -> messages by sequence
        self.tasks = set()

    async def connect(self, url, cluster, client, ping_interval, pings_out, patience):
        async def reconnected():
            tell("reconnected")

        async def lost(error):
            tell("connection_lost", error=str(error))

        async def quiet(_error):
            """NATS tells of each attempt to connect again."""

        nats = Nats()
        await nats.connect(
            url.split(","),
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_WAIT_S,
            reconnected_cb=reconnected,
            error_cb=quiet,
        )
        await self.client.connect(
            cluster,
            client,
            nats=nats,
            ping_interval=int(ping_interval),
            ping_max_out=int(pings_out),
            conn_lost_cb=lost,
            connect_timeout=int(patience),
        )

    async def publish(self, channel, data=""):
        async def acked(ack):
            tell("acked", channel=channel, data=data, guid=ack.guid, error=ack.error)

        await self.client.publish(channel, bytes.fromhex(data), ack_handler=acked)

    async def subscribe(self, name, channel, *words):
        settings = dict(word.split("=") for word in words)
        start, _, argument = settings.get("start", "new").partition(":")
        options = {"start_at": STARTS[start], "manual_acks": "manual" in settings}
        if start == "sequence":
            options["sequence"] = int(argument)
        elif start == "delta":
            whole_seconds = math.ceil(int(argument) / 1000)  # the client tells no others, and rounds down
            options["time"] = time.time() - whole_seconds
        if "durable" in settings:
            options["durable_name"] = settings["durable"]
        if "queue" in settings:
            options["queue"] = settings["queue"]
        if "ack_wait" in settings:
            options["ack_wait"] = int(settings["ack_wait"]) // 1000
        if "max_in_flight" in settings:
            options["max_inflight"] = int(settings["max_in_flight"])
        held = self.held[name] = {}

        async def came(message):
            held[message.sequence] = message
            told = message.proto
            tell(
                "message",
                sub=name,
                sequence=told.sequence,
                data=told.data.hex(),
                redelivered=told.redelivered,
                timestamp=told.timestamp,
            )

        self.subscriptions[name] = await self.client.subscribe(channel, cb=came, **options)
        tell("subscribed", sub=name)

    async def ack(self, name, sequence):
        tell("acking", sub=name, sequence=int(sequence))
        await self.client.ack(self.held[name][int(sequence)])
        tell("ack_sent", sub=name, sequence=int(sequence))

    async def unsubscribe(self, name):
        await self.subscriptions[name].unsubscribe()
        tell("unsubscribed", sub=name)

    async def close(self, name):
        await self.subscriptions[name].close()
        tell("closed", sub=name)

    async def disconnect(self):
        await self.client.close()
        tell("disconnected", error="")
        os._exit(0)

    async def run(self, command, *words):
        """What fails is told of the connection, the publish or the subscription."""
        try:
            await getattr(self, command)(*words)
        except Exception as problem:  # noqa: BLE001 - the client raises what it likes
            error = str(problem) or repr(problem)
            name, data, *_ = (*words, "", "")
            if command == "disconnect":
                tell("disconnected", error=error)
            elif command == "publish":
                tell("acked", channel=name, data=data, guid="", error=error)
            else:
                tell("failed", sub=name, error=error)

    async def obey(self):
        """Publishes in their order, everything else beside them."""
        lines = asyncio.StreamReader(LINE_BYTES_MAX)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while line := await lines.readline():
            command, *words = line.decode().split()
            doing = self.run(command, *words)
            if command == "publish":
                await doing
            else:
                task = asyncio.ensure_future(doing)
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
        os._exit(0)


async def main():
    driver = Driver()
    try:
        await driver.connect(*sys.argv[1:])
    except Exception as error:  # noqa: BLE001
        tell("refused", error=str(error) or repr(error))
        sys.stdin.read()  # until whoever started it has seen that
        return
    tell("connected")
    await driver.obey()


asyncio.run(main())

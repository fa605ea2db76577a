"""The clients of `stan bench --client python`: stan_client as an application uses it, one call per message.

Measures the client as much as the broker. Everything else is as in bench_drivers.
"""

import contextlib
import time
from collections import deque
from typing import Final

import stan_client

from stan_bench.bench.bench_drivers import ACK_WAIT_S, Job, LoadDriver
from stan_bench.bench.bench_report import add_latency

TURN_MESSAGES_MAX: Final = 256
"""Publishes before the event loop gets its turn."""


class PythonDriver(LoadDriver):
    """A driver with a stan_client."""

    client: stan_client.Client

    async def prepare(self) -> None:
        """Connect."""
        job: Job = self.job
        self.client = await stan_client.connect(
            job.server,
            client_id=self.name,
            cluster_id=job.cluster_id,
            nats_options=job.nats_options,
            connect_timeout_s=10,
            max_pub_acks_in_flight=job.window,
            resubscribe=False,
            connection_lost=self.finish,
        )

    async def leave(self) -> None:
        """Close."""
        with contextlib.suppress(stan_client.StanClientError):
            await self.client.close()


class PythonPublishDriver(PythonDriver):
    """Publishes with a window."""

    async def run(self) -> None:
        """Publish all; done with the last ack."""
        self.sent_ns: deque[int] = deque()
        data, channel = bytes(self.job.size), self.job.channel
        room = 0
        self.began_ns = time.monotonic_ns()
        for _ in range(self.count):
            if not room:
                room = min(await self.client.window.room(), TURN_MESSAGES_MAX)
            room -= 1
            self.sent_ns.append(time.monotonic_ns())
            self.client.window.publish(channel, data, on_ack=self.on_ack)
            if self.finished.done():
                break
        await self.finished

    def on_ack(self, _published: stan_client.Published, error: stan_client.StanClientError | None) -> None:
        """Count an ack; they come in the order of the publishes."""
        if error is not None:
            self.finish(error)
            return
        add_latency(self.latencies, time.monotonic_ns() - self.sent_ns.popleft(), 1)
        self.received(1)


class PythonSubscribeDriver(PythonDriver):
    """subscribe with a callback."""

    async def prepare(self) -> None:
        """Subscribe; messages in the channel may come at once."""
        await super().prepare()
        self.last = 0
        await self.client.subscribe(
            self.job.channel,
            self.on_message,
            start=stan_client.new_only() if self.job.new_only else stan_client.everything(),
            max_in_flight=self.job.in_flight,
            ack_wait_s=ACK_WAIT_S,
            replica=self.job.replica,
        )

    def on_message(self, message: stan_client.Message) -> None:
        """Count a message."""
        self.redelivered += message.redelivered
        if not message.redelivered:
            self.out_of_order |= message.sequence <= self.last
            self.last = message.sequence
        self.received(not message.redelivered)


DRIVERS: Final[dict[str, type[LoadDriver]]] = {"python-pub": PythonPublishDriver, "python-sub": PythonSubscribeDriver}

"""A load process of `stan bench`: `python -m stan_bench.bench.load`, spawned and spoken to by bench_fleet.

It reads its job, one line of JSON, from stdin; answers {"ready": true} when all its clients are connected; begins when the
line "go" comes; sends {"progress": messages} now and then and {"samples": [...]} at the end, or {"error": text}. When stdin
ends it leaves at once, so that it never outlives its parent.
"""

import asyncio
import contextlib
import json
import sys
from typing import Any, Final

from stan_client.errors import StanClientError

from stan.cli.support.common import run_fast
from stan_bench.bench.bench_drivers import DRIVERS, Job, LoadDriver
from stan_bench.bench.bench_jetstream import DRIVERS as JETSTREAM_DRIVERS
from stan_bench.bench.bench_python import DRIVERS as PYTHON_DRIVERS

PROGRESS_INTERVAL_S: Final = 0.2


def send(**fields: Any) -> None:
    """Send one line to the parent."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


async def _orders() -> asyncio.StreamReader:
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    return orders


async def _report_progress(drivers: list[LoadDriver]) -> None:
    while True:
        await asyncio.sleep(PROGRESS_INTERVAL_S)
        send(progress=sum(driver.done for driver in drivers))


async def _work(orders: asyncio.StreamReader, drivers: list[LoadDriver]) -> None:
    await asyncio.gather(*[driver.prepare() for driver in drivers])
    send(ready=True)
    if await orders.readline() != b"go\n":
        return
    progress = asyncio.create_task(_report_progress(drivers))
    running = asyncio.gather(*[driver.run() for driver in drivers])
    orphaned = asyncio.create_task(orders.read())
    orphaned.add_done_callback(lambda _end: running.cancel())
    try:
        with contextlib.suppress(asyncio.CancelledError):  # the parent is gone
            await running
        if running.cancelled():
            return
        send(samples=[driver.sample().to_json() for driver in drivers])
    finally:
        running.cancel()
        progress.cancel()
        orphaned.cancel()
        await asyncio.gather(*[driver.leave() for driver in drivers], return_exceptions=True)


async def _main() -> int:
    orders = await _orders()
    job = Job(**json.loads(await orders.readline()))
    kind = {**DRIVERS, **PYTHON_DRIVERS, **JETSTREAM_DRIVERS}[job.role]
    try:
        await _work(orders, [kind(job, number) for number in range(len(job.names))])
    except StanClientError as error:
        send(error=str(error) or type(error).__name__)
        return 1
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):  # Ctrl-C and a vanished parent concern the parent
        sys.exit(run_fast(_main()))

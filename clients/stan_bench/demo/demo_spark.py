"""`stan demo --spark`: clicks, a pipeline that counts them in Spark, and its driver killed with SIGKILL in the middle.

As `stan demo`: on a broker of its own in a temporary directory, every figure counts acknowledged and received messages,
exit code 0 only if all promises hold, no process and no file is left. The expected results are counted a second time, in
Python.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from pyspark_stan.examples import EXAMPLES
from pyspark_stan.examples.clicks import CHANNEL, LATE_S, WINDOW_S, Click, clicks, counted
from pyspark_stan.pipeline.session import SparkMissingError, children_of, require_spark, session_members
from stan_client import Client, everything

from stan.cli.support.common import CliError, Target
from stan_bench.demo.demo_broker import CLUSTER_ID, DemoBroker
from stan_bench.demo.demo_screen import fact, step, verdict
from stan_bench.demo_tally import Figure, Tally
from stan_bench.processes import Child, heed_cancellation, refuse_dead

RESULTS: Final = "clicks-per-page"
RATE: Final = 1_000
"""Clicks a second; so many are ten seconds of their own time."""
BURST: Final = 100
RESULTS_BEFORE_KILL: Final = 20
RESULTS_AFTER_KILL: Final = 20
WAIT_S: Final = 300.0
"""Whatever the demo waits for has to happen within this; on an idle machine Spark starts within twenty seconds."""
POLL_S: Final = 0.02
SHOWN: Final = 4
PACE: Final = '[spark]\nmaster = "local[2]"\n\n[spark.conf]\n"spark.ui.enabled" = false\n"spark.driver.memory" = "1g"\n'
FAST_START: Final = '"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"\n'

_JVM: Final = re.compile(r"^Spark (\S+) at \S+, pid (\d+)$", re.MULTILINE)


@dataclass
class PublishedClicks:
    """The clicks that were published and acknowledged."""

    acked: list[Click] = field(default_factory=list)

    def last(self) -> Click:
        """A click so much later than all others that no window but its own stays open."""
        newest = max(click.at_ms for click in self.acked)
        return replace(self.acked[-1], at_ms=newest + (LATE_S + 3 * WINDOW_S) * 1000)

    def late(self) -> int:
        """Return the number of clicks that came later than a newer one."""
        newest, late = 0, 0
        for click in self.acked:
            late += click.at_ms < newest
            newest = max(newest, click.at_ms)
        return late


class PipelineProcess:
    """`stan pipeline run` as a process, with a JVM and workers; `async with` ends all of them."""

    def __init__(self, broker: DemoBroker) -> None:
        self._broker = broker
        directory = broker.directory
        file = directory / "clicks.toml"
        toml = EXAMPLES["clicks"].toml.replace("${STAN_SERVER:-nats://127.0.0.1:4222}", broker.url)
        file.write_text(toml.replace("${STAN_CLUSTER_ID:-test-cluster}", CLUSTER_ID) + f"\n{PACE}{FAST_START}")
        (directory / "tmp").mkdir()
        self._child = Child(
            "the pipeline",
            (sys.executable, "-P", "-m", "stan.cli.main", "pipeline", "run", str(file)),
            directory / "pipeline.log",
            {"TMPDIR": str(directory / "tmp")},
        )

    @property
    def pid(self) -> int:
        """Process id of the driver."""
        return self._child.pid

    def log(self) -> str:
        """Return its output since its last start."""
        return self._child.log()

    async def start(self) -> tuple[str, int]:
        """Start it, and wait until Spark runs; returns Spark's version and its JVM's pid."""
        await self._child.start()
        await self.until(lambda: _JVM.search(self.log()) is not None, "Spark to start")
        version, pid = _JVM.findall(self.log())[-1]
        return version, int(pid)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for *condition*.

        Raises:
            CliError: the pipeline or the broker has ended, or WAIT_S have passed.
        """
        deadline = time.monotonic() + WAIT_S
        while not condition():
            heed_cancellation()
            refuse_dead([self._child, *self._broker.children()], what)
            if time.monotonic() > deadline:
                raise CliError(f"Waited {WAIT_S:g} s in vain for {what}. {self._child.log_end()}")
            await asyncio.sleep(POLL_S)

    async def kill(self) -> None:
        """SIGKILL for driver and JVM; returns when their workers have gone as well."""
        if not self._child.running:
            return
        jvms = {*children_of(self.pid), *(int(pid) for _version, pid in _JVM.findall(self.log()))}
        for pid in jvms:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await self._child.kill()
        deadline = time.monotonic() + WAIT_S
        while workers := [pid for jvm in jvms for pid in session_members(jvm)]:
            if time.monotonic() > deadline:
                raise CliError(f"Waited {WAIT_S:g} s in vain for Spark's workers to end: {workers}")
            await asyncio.sleep(POLL_S)

    async def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        try:
            async with asyncio.timeout(WAIT_S):
                return await self._child.end()
        except TimeoutError:
            raise CliError(f"Waited {WAIT_S:g} s in vain for the pipeline to end. {self._child.log_end()}") from None


@contextlib.asynccontextmanager
async def _driver(broker: DemoBroker) -> AsyncIterator[PipelineProcess]:
    driver = PipelineProcess(broker)
    try:
        yield driver
    finally:
        await driver.kill()


async def show_spark() -> int:
    """The whole demo; returns the exit code."""
    try:
        require_spark()
    except SparkMissingError as error:
        raise CliError(str(error)) from None
    began = time.monotonic()
    step(
        1,
        "A broker",
        "One process with its own nats-server; messages go to files, each fsynced before it is acknowledged.",
    )
    async with DemoBroker() as broker:
        fact(f"stan-server, pid {broker.pid}, {broker.url}, files in {broker.directory}")
        target = Target(server=broker.url, cluster_id=CLUSTER_ID)
        async with (
            target.connect("demo-shop") as shop,
            target.connect("demo-screen") as reader,
            _driver(broker) as driver,
        ):
            figures = await _count_clicks(shop, reader, driver)
    return verdict(figures, time.monotonic() - began)


async def _count_clicks(shop: Client, reader: Client, driver: PipelineProcess) -> list[Figure]:
    load, results = PublishedClicks(), Tally()
    await shop.admin.create_channel(CHANNEL)  # the pipeline starts before the first click
    await _begin(driver)
    publishing = asyncio.ensure_future(_publish(shop, load))
    try:
        step(3, "Clicks", f"A shop publishes {RATE:,} clicks a second, one in ten of them up to {LATE_S} s late.")
        await reader.subscribe(RESULTS, results.note, start=everything())
        await _until_results(driver, results, RESULTS_BEFORE_KILL)
        _show(results)
        await _kill(driver, results, load)
        await _until_results(driver, results, len(results.seen) + RESULTS_AFTER_KILL)
    finally:
        publishing.cancel()
        await asyncio.wait([publishing])
    return await _finish(shop, driver, load, results)


async def _begin(driver: PipelineProcess) -> None:
    step(
        2,
        "A pipeline",
        "`stan pipeline run clicks.toml`: SQL counts the clicks on each page in windows of ten seconds.",
    )
    version, jvm = await driver.start()
    fact(f"Spark {version}, driver pid {driver.pid}, its JVM pid {jvm}")


async def _publish(shop: Client, load: PublishedClicks) -> None:
    """Publish until cancelled, at RATE."""
    began, source = time.monotonic(), clicks(seed=1, per_s=RATE / WINDOW_S)
    while True:
        burst = list(islice(source, BURST))
        sending = asyncio.ensure_future(shop.publish_many(CHANNEL, (click.message() for click in burst)))
        try:
            await asyncio.shield(sending)
        finally:
            if await sending == len(burst):
                load.acked += burst
        await asyncio.sleep(max(0.0, began + len(load.acked) / RATE - time.monotonic()))


async def _until_results(driver: PipelineProcess, results: Tally, count: int) -> None:
    await driver.until(lambda: len(results.seen) >= count, "results")


def _show(results: Tally) -> None:
    for data in islice(results.seen.values(), SHOWN):
        result = json.loads(data)
        fact(f"{result['start']}  {result['page']:<9} {result['clicks']:>4} clicks by {result['users']} users")
    fact("...")


async def _kill(driver: PipelineProcess, results: Tally, load: PublishedClicks) -> None:
    step(
        4,
        "kill -9 of the driver",
        "Results of the batch that runs are in nobody's sight: it is committed whole, or not at all.",
    )
    fact(f"{len(load.acked):,} clicks published, {len(results.seen):,} results received: kill -9 {driver.pid}")
    killed = time.monotonic()
    await driver.kill()
    version, jvm = await driver.start()
    fact(f"started again, driver pid {driver.pid}, its JVM pid {jvm}, Spark {version}: it goes on from its checkpoint")
    before = len(results.seen)
    await _until_results(driver, results, before + 1)
    fact(f"the next result came {time.monotonic() - killed:.1f} s after the kill")


async def _finish(shop: Client, driver: PipelineProcess, load: PublishedClicks, results: Tally) -> list[Figure]:
    step(5, "The end", "No more clicks; a last one, much later than all others, closes every window.")
    await shop.publish(CHANNEL, load.last().message())
    expected = counted(load.acked)
    await driver.until(
        lambda: len(results.seen) >= len(expected) and expected.keys() <= _counts_of(results.seen.values()).keys(),
        "the last results",
    )
    code = await driver.stop()
    fact("asked to stop with SIGTERM, the pipeline has ended")
    return [*figures_of(load, results), Figure("exit code of the pipeline", code, code == 0)]


def _counts_of(messages: Iterable[bytes]) -> dict[tuple[str, str], list[int]]:
    """Return by window and page the published counts; one each, if all is well."""
    counts: dict[tuple[str, str], list[int]] = {}
    for message in messages:
        result = json.loads(message)
        counts.setdefault((result["start"], result["page"]), []).append(result["clicks"])
    return counts


def figures_of(load: PublishedClicks, results: Tally) -> Iterable[Figure]:
    """Compare the published results of the pipeline with the counts made here."""
    expected, published = counted(load.acked), _counts_of(results.seen.values())
    missing = len(expected.keys() - published.keys())
    unknown = len(published.keys() - expected.keys())
    twice = sum(len(counts) - 1 for counts in published.values())
    wrong = sum(counts != [expected[key]] for key, counts in published.items() if key in expected and len(counts) == 1)
    total = Counter({key: sum(counts) for key, counts in published.items()}).total()
    yield Figure("clicks acknowledged", len(load.acked), len(load.acked) > 0)
    yield Figure("of these, late", load.late(), load.late() > 0)
    yield Figure("clicks in the results", total, total == len(load.acked))
    yield Figure("results expected", len(expected))
    yield Figure("results found", len(results.seen), len(results.seen) == len(expected))
    yield Figure("missing", missing, missing == 0)
    yield Figure("not expected", unknown, unknown == 0)
    yield Figure("published twice", twice, twice == 0)
    yield Figure("with another count", wrong, wrong == 0)

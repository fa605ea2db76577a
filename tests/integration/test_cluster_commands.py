"""`stan demo --cluster`, `stan bench failover` and the cluster they start, over nodes that only play their part.

The nodes are small processes that log what nodes log: ready, and who leads. The lowest one alive leads everything.
The broker is the fake one, in this process, so that a test can make it lose or repeat what it should not.
"""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

import pytest
from stan_bench import local_cluster
from stan_bench.bench.bench_failover import FailoverReport, _bench
from stan_bench.bench.failover import FailoverLoad, outage, running_load
from stan_bench.demo.demo_cluster import show_cluster
from stan_bench.local_cluster import LocalCluster
from stan_bench.processes import Child

from stan.cli.support.common import CliError
from tests.kit.fake_broker import FakeBroker

NODE = """
import os, sys, time
from pathlib import Path
name, directory = sys.argv[1], Path(sys.argv[2])

def alive(path):
    try:
        return Path(f"/proc/{path.read_text()}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

for group in range(9):
    (directory / name / "groups" / str(group)).mkdir(parents=True, exist_ok=True)
new = directory / f"{name}.new"
new.write_text(str(os.getpid()))
new.rename(directory / f"{name}.pid")
print("[INF] STREAM: Streaming Server is ready", flush=True)
leads, term = False, 0
while len(list(directory.glob("*.pid"))) < 3:  # nobody leads before all are there, else who comes early leads for a moment
    time.sleep(0.01)
while True:
    first = min(path.stem for path in directory.glob("*.pid") if alive(path))
    if leads != (first == name):
        leads, term = not leads, time.monotonic_ns()
        for group in range(9):
            print(f"group {group}: leads " + (f"in term {term}" if leads else "no more"), flush=True)
    time.sleep(0.01)
"""


def left_behind(directory: Path) -> list[str]:
    """Command lines of processes that know of *directory*."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if str(directory) in line and path.parent.name != str(os.getpid()):
            found.append(line)
    return found


@pytest.fixture
def played(monkeypatch, tmp_path):
    """Clusters of played nodes in *tmp_path*, with a fake broker on their NATS; the list holds the brokers."""
    brokers: list[FakeBroker] = []
    start_nats, remove = LocalCluster._start_nats, LocalCluster._remove

    async def start(cluster: LocalCluster) -> None:
        await start_nats(cluster)
        broker = FakeBroker(cluster.cluster_id)
        await broker.start(cluster.url)
        brokers.append(broker)

    async def end(cluster: LocalCluster) -> None:
        if brokers:
            await brokers[-1].stop()
        await remove(cluster)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(LocalCluster, "_start_nats", start)
    monkeypatch.setattr(LocalCluster, "_remove", end)
    monkeypatch.setattr(
        local_cluster,
        "stan_server",
        lambda name, log, *_flags: Child(name, (sys.executable, "-c", NODE, name, str(log.parent)), log),
    )
    yield brokers
    assert not left_behind(tmp_path)
    assert not list(tmp_path.iterdir())


async def test_leader_is_killed_replaced_and_comes_back(played):
    async with LocalCluster(3, "c") as cluster:
        await cluster.until(lambda: cluster.leader(1) == "n1", "n1 to lead, as it does when all of them are there")
        assert await cluster.leader_of("x") == "n1"
        await cluster.kill("n1")
        assert not cluster.nodes["n1"].running
        assert await cluster.leader_of("x") == "n2"
        pid = cluster.nodes["n2"].pid
        await cluster.start("n1")
        await cluster.until(lambda: cluster.leader(1) == "n1", "n1 to lead again")
        assert cluster.nodes["n2"].pid == pid


async def test_node_has_caught_up_when_its_log_is_as_long_as_the_leaders(played):
    async with LocalCluster(3, "c") as cluster:
        await cluster.until(lambda: cluster.leader(2) == "n1", "n1 to lead")
        assert cluster.followers(2) == ["n2", "n3"]
        longer, shorter = (cluster.directory / name / "groups" / "2" / "0.log" for name in ("n1", "n2"))
        longer.write_bytes(bytes(100))
        shorter.write_bytes(bytes(99))
        task = asyncio.ensure_future(cluster.caught_up("n2", 2))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), 0.1)
        shorter.write_bytes(bytes(100))
        await task


async def test_node_that_ends_by_itself_is_told_with_its_log(played):
    async with LocalCluster(3, "c") as cluster:
        os.kill(cluster.nodes["n2"].pid, 9)
        with pytest.raises(CliError, match=r"n2 has ended. The log of n2 ends so:\n.*(ready|leads)"):
            await cluster.until(lambda: False, "nothing")


async def test_cancelled_cluster_leaves_nothing_behind(played):
    started = asyncio.Event()

    async def use() -> None:
        async with LocalCluster(3, "c"):
            started.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(use())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancellation_that_was_swallowed_is_heeded(played):
    async def use() -> None:
        async with LocalCluster(3, "c") as cluster:
            with contextlib.suppress(asyncio.CancelledError):
                asyncio.current_task().cancel()
                await asyncio.Event().wait()
            await cluster.until(lambda: False, "nothing")

    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(use())


async def test_outage_under_load_is_measured(played):
    async with LocalCluster(3, "c") as cluster:
        load = FailoverLoad(cluster, "x", rate=500, size=64)
        async with running_load(load, "test") as figures:
            await load.flow()
            first = await outage(load, "n1")
            second = await outage(load, "n3")
    assert (first.killed, first.led, first.leader) == ("n1", True, "n2")
    assert (second.killed, second.led) == ("n3", False)
    assert 0 < first.gap_ms < 60_000
    assert 0 < first.back_ms < 60_000
    assert not [figure for figure in figures if figure.holds is False]
    counts = {figure.name: figure.value for figure in figures}
    assert counts["found"] == counts["acknowledged"] == load.ledger.published > 500
    assert {len(message.data) for message in played[0].channels["x"]} == {64, 1}


async def test_refused_publishes_are_counted_by_their_text(played):
    async with LocalCluster(3, "c") as cluster:
        load = FailoverLoad(cluster, "x", rate=0, size=64)
        async with running_load(load, "test") as figures:
            await load.flow()
            played[0].refuse["pub"] = "stan: no"
            await cluster.until(lambda: bool(load.errors), "an error")
            del played[0].refuse["pub"]
            load.durable.mark()
            await load.flow()
    assert (
        {"stan: no"} <= set(load.errors) <= {"stan: no", "stan: publish ack timeout"}
    )  # the latter where time is scarce
    assert not [figure for figure in figures if figure.holds is False]


async def test_demo_of_a_cluster_holds(played, capsys):
    assert await show_cluster() == 0
    shown = capsys.readouterr().out
    assert "kill -9 n1" in shown
    assert "All of it holds" in shown


async def test_demo_of_a_cluster_that_loses_a_message_fails(played, capsys, monkeypatch):
    take = FakeBroker._on_publish

    async def forget(broker: FakeBroker, msg: object) -> None:
        await take(broker, msg)
        log = broker.channels["load"]
        if len(log) == 1000:
            log[500].data = log[499].data

    monkeypatch.setattr(FakeBroker, "_on_publish", forget)
    assert await show_cluster() == 1
    assert "Not all of it holds" in capsys.readouterr().out


@pytest.mark.parametrize("kill", ["leader", "follower"])
async def test_benchmark_of_outages_tells_json(played, capsys, kill):
    settings = {"nodes": 3, "kill": kill, "rate": 500.0, "size": 32}
    assert await _bench(FailoverReport(settings=settings), 2, as_json=True) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [each["led"] for each in shown["rounds"]] == [kill == "leader"] * 2
    assert shown["lost"] == shown["errors"] == shown["unexplained_repeats"] == 0
    assert shown["gap_ms"]["max"] >= shown["gap_ms"]["median"] > 0

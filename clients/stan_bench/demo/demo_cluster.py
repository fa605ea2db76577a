"""`stan demo --cluster`: three nodes, a load, and the leader killed with SIGKILL in the middle of it, twice.

As `stan demo`: on a cluster of its own in a temporary directory, every figure counts acknowledged and received messages,
exit code 0 only if all promises hold, no process and no file is left.
"""

import time
from typing import Final

from stan_bench.bench.failover import FailoverLoad, Round, outage, running_load
from stan_bench.demo.demo_screen import fact, step, verdict
from stan_bench.local_cluster import LocalCluster, group_of

CLUSTER_ID: Final = "stan-demo"
CHANNEL: Final = "load"
NODES: Final = 3
RATE: Final = 2_000
SIZE: Final = 128


async def show_cluster() -> int:
    """The whole demo; returns the exit code."""
    began = time.monotonic()
    step(
        1,
        "Three nodes",
        "Each has files of its own; a message is acknowledged once two of the three have fsynced it.",
    )
    async with LocalCluster(NODES, CLUSTER_ID, prefix="stan-demo-") as cluster:
        fact(f"nats-server at {cluster.url}, files in {cluster.directory}")
        for name, node in cluster.nodes.items():
            fact(f"stan-server {name}, pid {node.pid}")
        load = FailoverLoad(cluster, CHANNEL, RATE, SIZE)
        async with running_load(load, "demo") as figures:
            await _lead(load)
            await _kill_leader(3, "kill -9 of the leader", load)
            await _kill_leader(4, "kill -9 of the next leader", load)
            step(5, "Counting", "The channel is read back from the beginning, and held against what was acknowledged.")
    return verdict(figures, time.monotonic() - began)


async def _lead(load: FailoverLoad) -> None:
    step(2, "A leader", "Each group of channels has one; the other nodes have the same log and can take over.")
    leader = await load.cluster.leader_of(CHANNEL)
    await load.flow()
    fact(
        f"{leader} leads group {group_of(CHANNEL)} with channel {CHANNEL!r}; a writer publishes {RATE:,} messages a second"
    )


async def _kill_leader(number: int, title: str, load: FailoverLoad) -> None:
    step(
        number,
        title,
        "Another node takes over, writer and subscriber go on by themselves; the killed node comes back and catches up.",
    )
    await load.flow()
    victim = await load.cluster.leader_of(CHANNEL)
    fact(f"{len(load.ledger.acked):,} acknowledged, {load.ledger.in_flight} under way: kill -9 {victim}")
    each: Round = await outage(load, victim)
    fact(f"{each.leader} leads; no ack for {each.gap_ms:,.0f} ms, no delivery for {each.delivery_gap_ms:,.0f} ms")
    fact(
        f"{victim} started again on the same files, pid {load.cluster.nodes[victim].pid}: caught up after {each.back_ms:,.0f} ms"
    )

"""A real cluster beside processes that take nearly all of the machine's time: its groups keep their leaders."""

import asyncio
import re
from collections import Counter

import pytest
import stan_client

from tests.chaos.faults import HOGS, hogs
from tests.kit.cluster import StanCluster
from tests.kit.server import until

pytestmark = pytest.mark.timeout(240)

STARVED_S = 30.0
CHANGES_MAX = 3


def leaderships(cluster):
    """Group -> how often somebody began to lead it."""
    found = Counter()
    for node in cluster.nodes.values():
        found.update(int(number) for number in re.findall(r"group (\d+): leads in term", node.log()))
    return found


async def test_no_group_changes_its_leader_again_and_again_while_cpu_is_short(tmp_path):
    cluster = StanCluster(tmp_path)
    with cluster:
        async with await stan_client.connect(cluster.url.split(","), client_id="me") as client:
            await client.publish("orders", b"first")
            await asyncio.to_thread(until, lambda: len(leaderships(cluster)) == cluster.groups + 1)
            before, acked = leaderships(cluster), 0
            async with hogs(HOGS):
                end = asyncio.get_running_loop().time() + STARVED_S
                while asyncio.get_running_loop().time() < end:
                    await client.publish_many("orders", [b"x"] * 50)
                    acked += 50
            changes = leaderships(cluster) - before
            await client.publish("orders", b"last")
    assert acked
    assert max(changes.values(), default=0) <= CHANGES_MAX, changes
    print(f"{acked} acknowledged, changes of leaders: {dict(changes)}")

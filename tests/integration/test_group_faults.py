"""A real server in which the program fails at one entry of one group: the process stays up, its other groups serve, and the log,
the pages and `stan doctor` say what happened."""

import asyncio
import json
import sys

import pytest
import stan_client

from stan.protocol.placement import channel_group
from tests.integration.test_cli_operator import any_code
from tests.integration.test_monitoring import Watched
from tests.kit.fake_broker import eventually
from tests.kit.server import until

pytestmark = pytest.mark.timeout(120)

LAUNCHER = """
import sys
from stan.core.boundary.loading import GroupStates
from stan.core.broker.entries import LogEntries
from stan.server.main import main
from stan.invariant import invariant

def checked(call):
    def apply(*arguments):
        invariant(b"poison" not in arguments[-1], "nothing is poisoned")
        call(*arguments)
    return apply

LogEntries.step_committed = checked(LogEntries.step_committed)
GroupStates.replay_entry = checked(GroupStates.replay_entry)
sys.exit(main())
"""
WHY = "the program failed: InvariantError: nothing is poisoned"


assert channel_group(b"sick", 8) != channel_group(b"well", 8)


def frozen(server):
    number = channel_group(b"sick", 8)
    lines = server.get("/metrics").text.splitlines()
    ready = server.get("/healthz/ready")
    return (
        [line for line in lines if line.startswith("stan_group_frozen{") and not line.endswith(" 0.0")]
        == [f'stan_group_frozen{{group="{number}"}} 1.0']
        and ready.status != 200
        and [reason for reason in ready.json["reasons"] if f"group {number}: " in reason and WHY in reason]
        and server.get("/healthz/live").status == 200
    )


@pytest.mark.parametrize("again", ["goes on", "is started again"])
async def test_node_alone_serves_its_other_groups(tmp_path, again):
    with Watched(tmp_path, "--raft_groups", "8", command=(sys.executable, "-c", LAUNCHER)) as server:
        async with await stan_client.connect(server.url, client_id="me") as client:
            await client.publish("sick", b"well")
            await client.publish("well", b"1")
            poisoned = asyncio.create_task(client.publish("sick", b"poison"))
            await asyncio.to_thread(until, lambda: frozen(server), why=server.log)
            poisoned.cancel()
            await asyncio.gather(poisoned, return_exceptions=True)
        if again == "is started again":
            await asyncio.to_thread(server.kill9)
            await asyncio.to_thread(server.start)
            await asyncio.to_thread(until, lambda: frozen(server), why=server.log)
        async with await stan_client.connect(server.url, client_id="you") as client:
            got = []
            await client.subscribe("well", got.append, start=stan_client.everything())
            await client.publish("well", b"2")
            await eventually(lambda: [message.data for message in got] == [b"1", b"2"], 20)
            with pytest.raises(stan_client.ServerError, match=r"frozen until a restart|nothing is poisoned"):
                await client.publish("sick", b"more")
        found = json.loads(await asyncio.to_thread(any_code, server.url, tmp_path, "doctor", "--json"))
        texts = [finding["text"] for finding in found["findings"]]
        assert [text for text in texts if WHY in text], texts
        assert WHY in server.log_since_start()

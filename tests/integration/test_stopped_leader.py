"""A leader that is stopped amid a turn and goes on when another one leads: nothing of the past leaves it."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
import stan_client

from tests.kit.cluster import StanCluster
from tests.kit.fake_broker import eventually
from tests.kit.server import until

pytestmark = pytest.mark.timeout(180)

LAUNCHER = """
import os, signal, sys
from stan.server.main import main
from stan.core.base.ready import Delivery
from stan.edge.nats.gateway import Gateway

send = Gateway.send

def stop():
    try:
        os.close(os.open("MARK", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGSTOP)

def stopping(self, sends, *silent):
    marked = any(isinstance(one, Delivery) and b"stop" in bytes(one.records) for one in sends)
    if marked and "WHEN" == "before":
        stop()
    lost = send(self, sends, *silent)
    if marked and "WHEN" == "after":
        stop()
    return lost

Gateway.send = stopping
sys.exit(main())
"""


def is_stopped(pid):
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_messages_leave_before_it_is_stopped_or_never(tmp_path, when):
    cluster = StanCluster(tmp_path)
    launcher = LAUNCHER.replace("MARK", str(tmp_path / "mark")).replace("WHEN", when)
    for node in cluster.nodes.values():
        at = node._command.index("-m")
        node._command[at : at + 2] = ["-c", launcher]
    with cluster:
        async with await stan_client.connect(cluster.url.split(","), client_id="me") as client:
            got = []
            await client.publish("orders", b"first")
            await client.subscribe("orders", got.append, durable="d", start=stan_client.everything())
            await eventually(lambda: len(got) == 1, 20)
            name = await asyncio.to_thread(cluster.leader_of, "orders")
            old, group = cluster.nodes[name], cluster.group_of("orders")
            publishing = asyncio.create_task(client.publish("orders", b"stop"))
            await asyncio.to_thread(until, lambda: is_stopped(old.pid), why=old.log)
            await eventually(lambda: len(got) == 2, 30)  # the next leader delivers it, if this one has not
            assert got[1].redelivered == (when == "before"), "what was sent had left before the process was stopped"
            await asyncio.to_thread(
                until,
                lambda: any(
                    f"group {group}: leads in term" in node.log() for node in cluster.nodes.values() if node is not old
                ),
            )
            before = len(got)
            os.kill(old.pid, signal.SIGCONT)
            await asyncio.to_thread(until, lambda: f"group {group}: leads no more" in old.log(), why=old.log)
            await publishing
            await client.publish("orders", b"last")
            await eventually(lambda: got[-1].data == b"last", 30)
            assert [message.data for message in got[before:] if not message.redelivered] == [b"last"]

"""`stan explain` and `.admin.explain` with real processes: each delivery of a message with its cause, also over a restart and a
change of leaders."""

import asyncio
import json
import time

import pytest
import stan_client
from stan_client.admin_types import CursorRef
from typer.testing import CliRunner

from stan.cli.main import app
from tests.kit.cluster import StanCluster
from tests.kit.server import CLUSTER_ID, StanServer

pytestmark = pytest.mark.timeout(300)
EVERYTHING = stan_client.everything()
PATIENCE_S = 60
DURABLE = CursorRef("orders", durable_name="billing")


def stan(url, *arguments):
    done = CliRunner().invoke(app, [*arguments], env={"STAN_SERVER": url})
    assert done.exit_code == 0, done.output
    return done.output


async def explained(client, sequence, last):
    """What the log tells of a message, once it tells of *last*: a progress entry may be on its way."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        told = await client.admin.explain(DURABLE, sequence)
        if (told.steps and told.steps[-1].what == last) or time.monotonic() > deadline:
            return told
        await asyncio.sleep(0.05)


def steps(told):
    return [(step.what, step.cause, step.count) for step in told.steps]


async def story(url):
    """Message 1 is acked late, 2 is refused and then rejected, 3 is given up by one member and done by the next."""
    async with await stan_client.connect(url, client_id="worker", cluster_id=CLUSTER_ID) as client:
        await client.publish_many("orders", [b"x"] * 4)
        durable = await client.subscribe("orders", durable="billing", start=EVERYTHING, manual_acks=True, ack_wait_s=1)
        first, second, third, _ = [await durable.next(PATIENCE_S) for _ in range(4)]
        second.nak(0)
        for _ in range(3):
            came = await durable.next(PATIENCE_S)
            if came.sequence == 1:
                came.ack()
            elif came.sequence == 2:
                came.reject("never")
        assert (first.sequence, third.sequence) == (1, 3)
        await durable.close()
        return client.client_id


async def catch_up(client):
    """The durable comes back, and acks what it gets up to message 3."""
    durable = await client.subscribe("orders", durable="billing", manual_acks=True)
    for sequence in (3, 4):
        message = await durable.next(PATIENCE_S)
        assert (message.sequence, message.redelivered) == (sequence, True)
        message.ack()


def test_each_delivery_has_its_cause_also_after_a_restart(tmp_path):
    with StanServer(tmp_path) as server:

        async def before():
            await story(server.url)
            async with await stan_client.connect(server.url, client_id="worker", cluster_id=CLUSTER_ID) as client:
                return [await explained(client, 1, "acked"), await explained(client, 2, "rejected")]

        first, second = asyncio.run(before())
        assert steps(first) == [("delivered", "new", 0), ("delivered", "ack wait over", 1), ("acked", "", 0)]
        assert steps(second) == [("delivered", "new", 0), ("delivered", "negative ack", 1), ("rejected", "", 0)]
        assert first.state == second.state == "settled"
        assert {step.client_id for step in first.steps[:2]} == {"worker"}
        assert first.steps[1].at - first.steps[0].at > 900_000_000
        assert abs(first.steps[0].at - first.timestamp_ns) < PATIENCE_S * 1e9
        server.kill9()
        server.start()

        async def after():
            async with await stan_client.connect(server.url, client_id="worker", cluster_id=CLUSTER_ID) as client:
                third = await client.admin.explain(DURABLE, 3)
                assert third.state == "owed"
                await catch_up(client)
                return await client.admin.explain(DURABLE, 1), await explained(client, 3, "acked")

        again, third = asyncio.run(after())
        assert steps(again) == steps(first)
        assert steps(third)[-3:] == [("left", "", 0), ("delivered", "resumed", 1), ("acked", "", 0)]
        shown = stan(server.url, "explain", "orders", "billing", "2")
        assert "again, as the client had failed with it (negative ack); redelivery 1" in shown
        assert "rejected by its client" in shown
        document = json.loads(stan(server.url, "explain", "orders", "billing", "1", "--json"))
        assert [step["cause"] for step in document["steps"]] == ["new", "ack wait over", ""]


def test_the_next_leader_tells_what_the_one_before_did(tmp_path):
    with StanCluster(tmp_path) as cluster:

        async def run():
            await story(cluster.url)
            async with await stan_client.connect(cluster.url, client_id="worker", cluster_id=CLUSTER_ID) as client:
                before = await explained(client, 2, "rejected")
                leader = cluster.leader_of("orders")
                assert {step.node for step in before.steps} == {leader}
                cluster.kill9(leader)
                after = await client.admin.within(PATIENCE_S).explain(DURABLE, 2)
                assert steps(after) == steps(before)
                assert {step.node for step in after.steps} == {leader}
                await catch_up(client)
                third = await explained(client, 3, "acked")
                assert steps(third)[-2:] == [("delivered", "resumed", 1), ("acked", "", 0)]
                assert third.steps[-1].node != leader

        asyncio.run(run())


def test_what_cannot_be_explained_is_refused(tmp_path):
    with StanServer(tmp_path) as server:

        async def run():
            await story(server.url)
            async with await stan_client.connect(server.url, client_id="worker", cluster_id=CLUSTER_ID) as client:
                for where, sequence, text in (
                    (DURABLE, 5, "5"),
                    (DURABLE, 0, "stan: "),
                    (CursorRef("orders", durable_name="other"), 1, "other"),
                    (CursorRef("nowhere", durable_name="billing"), 1, "channel"),
                ):
                    with pytest.raises(stan_client.ServerError, match=text):
                        await client.admin.explain(where, sequence)

        asyncio.run(run())

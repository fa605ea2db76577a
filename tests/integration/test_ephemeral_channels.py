"""Ephemeral channels in a real cluster: a policy makes them, their leader has them in memory, and whoever listens goes on."""

import asyncio

import pytest
import stan_client
from stan_client import ServerError
from stan_protocol.admin_types import Commit, DeliveryPolicy
from stan_protocol.kernel.rows import pack_rows

from stan.core.state.ephemeral import BLOCK_BITS
from stan.policies import EPHEMERAL
from tests.integration.test_cli_pubsub import stan
from tests.kit.fake_broker import eventually
from tests.spark.filling import column

BLOCK = 1 << BLOCK_BITS
PATIENCE_S = 60


async def connect(cluster, name):
    return await stan_client.connect(
        cluster.url,
        client_id=name,
        cluster_id=cluster.cluster_id,
        connect_timeout_s=PATIENCE_S,
        ack_timeout_s=PATIENCE_S,
    )


async def publish_until_taken(client, channel, data):
    """Publish; again if a new leader says that the channel is empty now."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await client.publish(channel, data)
            except ServerError as error:
                if "publish again" not in str(error):
                    raise


async def test_it_lives_in_the_memory_of_its_leader_and_who_listens_goes_on_with_the_next_one(
    cluster, direct, tmp_path
):
    await direct.admin.set_policy("live.>", DeliveryPolicy(commit=EPHEMERAL))
    got, shared = [], []
    async with await connect(cluster, "writer") as writer, await connect(cluster, "listener") as listener:
        await listener.subscribe("live.a", got.append, start=stan_client.everything())
        await listener.subscribe("live.a", shared.append, queue="q")
        told = [await writer.publish("live.a", b"%d" % number) for number in range(20)]
        assert {one.acked_as for one in told} == {"memory"}
        await eventually(lambda: len(got) == len(shared) == 20)
        assert [message.sequence for message in got] == [BLOCK + 1 + number for number in range(20)]
        (status,) = await direct.admin.channels("live.a")
        assert (status.commit, status.messages, status.epoch) == (EPHEMERAL, 20, 1)
        code, out, _ = await stan("channel", "show", "--server", cluster.url, "live.a")
        assert (code, b"acked once its leader has it in memory" in out, b"1, since " in out) == (0, True, True)

        await asyncio.to_thread(cluster.kill9, cluster.leader_of("live.a"))
        after = await publish_until_taken(writer, "live.a", b"after")
        await eventually(lambda: got[-1].data == b"after", PATIENCE_S)
        await eventually(lambda: shared[-1].data == b"after", PATIENCE_S)
        assert after.acked_as == "memory"
        assert [message.data for message in got if not message.redelivered] == [
            *(b"%d" % number for number in range(20)),
            b"after",
        ]
        assert got[-1].sequence > 2 * BLOCK
        with pytest.raises(ServerError, match=r'channel "live\.a" is ephemeral'):
            await listener.subscribe("live.a", got.append, durable="d")
        with pytest.raises(ServerError, match="reading without a subscription cannot be had"):
            await direct.fetch("live.a")
    code, out, _ = await stan("backup", "--server", cluster.url, str(tmp_path / "backup"))
    assert (code, b"in the memory of one node: live.a" in out) == (0, True)


async def test_what_it_does_not_have_is_refused_by_name(cluster, direct):
    await direct.admin.set_policy("live.>", DeliveryPolicy(commit=EPHEMERAL))
    async with await connect(cluster, "writer") as writer:
        first = (await publish_until_taken(writer, "live.a", b"1")).sequence  # leaders move soon after a start
        with pytest.raises(ServerError, match="messages with a time cannot be had"):
            await writer.publish("live.a", b"2", ttl_s=5)
        await writer.publish("other", b"3")
    for asked in (
        direct.admin.create_parts("live.parts", 2),
        direct.transactions.stage("app", 1, "t", 0, "live.new", pack_rows(*column([b"x"]), 0, 1), 1),
        direct.admin.delete_message("live.a", first),
    ):
        with pytest.raises(ServerError, match="is ephemeral"):
            await asked
    assert [*await direct.channels.info(pattern=">")] == ["other"]  # what can be read without a subscription
    assert (await direct.channels.info(["live.a"]))["live.a"].last == first
    with pytest.raises(ServerError, match="from the time on at which it is made"):
        await direct.admin.change_commit("live.a", Commit.SYNCED)
    assert (await direct.admin.purge("live.a", keep=0)).changed == 1

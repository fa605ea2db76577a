"""How large answers and messages may be at a server with a nats-server of its own: answers may be larger, messages as ever."""

import asyncio
import os
import signal

import pytest
import stan_client
from stan_client.blocking import BlockingClient
from stan_protocol import refusals
from stan_protocol.kernel.rows import pack_rows
from stan_protocol.scalars import MiB

from stan.limits import EMBEDDED_PAYLOAD_BYTES_MAX, MESSAGE_PAYLOAD_BYTES_MAX
from tests.kit.server import NatsServer, StanServer, until
from tests.spark.filling import column


def rows_of(*values: bytes) -> bytes:
    return pack_rows(*column(values), 0, len(values))


async def publish(server: StanServer, size: int) -> None:
    async with await stan_client.connect(server.url, client_id="me", cluster_id=server.cluster_id) as client:
        await client.publish("large", bytes(size))


def test_answers_are_larger_than_messages_may_be(tmp_path):
    half = MiB // 2
    with StanServer(tmp_path) as server, BlockingClient(server.url) as client:
        assert client.max_payload == EMBEDDED_PAYLOAD_BYTES_MAX
        assert client.message_bytes_max() == MESSAGE_PAYLOAD_BYTES_MAX
        for _ in range(6):
            client.publish_batch("many", rows_of(os.urandom(half)), 1)  # nothing that could be compressed

        found = client.fetch_batch("many", max_bytes=4 * MiB)

        assert client.fetch_batch("many").count == 3  # 2 MiB
        assert (found.count, found.next_sequence) == (6, 7)
        assert len(found.records) > 6 * half
        assert [one.count for one in client.read_range("many", 1, 6)] == [3, 3]  # 2 MiB each


def test_a_message_is_no_larger_than_a_nats_server_takes_by_itself(tmp_path):
    with StanServer(tmp_path) as server, BlockingClient(server.url) as client:
        asyncio.run(publish(server, MiB - 200))
        with pytest.raises(stan_client.MessageTooLargeError, match=f"^{refusals.MESSAGE_TOO_LARGE}$"):
            asyncio.run(publish(server, MiB))
        with pytest.raises(stan_client.ServerError, match="row 0 is larger than a message may be"):
            client.publish_batch("large", rows_of(bytes(MiB)), 1)
        with pytest.raises(stan_client.ServerError, match="row 0 is larger than a message may be"):
            client.stage("app", 1, "t", 0, "large", rows_of(bytes(MiB)), 1)

        assert [len(one.data) for one in client.fetch("large")] == [MiB - 200]


def test_what_the_configuration_says_counts_for_messages_too_and_may_change(tmp_path):
    file = tmp_path / "stan.conf"
    file.write_text("server_name: other, max_payload: 3MB\n")
    with StanServer(tmp_path, "-c", str(file)) as server:
        with BlockingClient(server.url) as client:
            assert client.max_payload == client.message_bytes_max() == 3 * MiB
        asyncio.run(publish(server, 2 * MiB))

        file.write_text("server_name: other\n")
        os.kill(server.pid, signal.SIGHUP)
        until(lambda: "Reloaded server configuration" in server.log())  # the nats-server has, too

        with BlockingClient(server.url) as client:
            assert (client.max_payload, client.message_bytes_max()) == (8 * MiB, MiB)
            assert [len(one.data) for one in client.fetch("large")] == [2 * MiB]
        with pytest.raises(stan_client.MessageTooLargeError, match=refusals.MESSAGE_TOO_LARGE):
            asyncio.run(publish(server, 2 * MiB))


def test_another_nats_server_decides_alone(tmp_path):
    with (
        NatsServer(tmp_path) as nats,
        StanServer(tmp_path, nats_url=nats.url) as server,
        BlockingClient(server.url) as client,
    ):
        assert client.max_payload == client.message_bytes_max() == MESSAGE_PAYLOAD_BYTES_MAX

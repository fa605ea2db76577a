"""Brokers that are told everything by a configuration file: limits that hold, credentials, and a cluster of three."""

import asyncio
import subprocess
from pathlib import Path

import pytest
import stan_client

from tests.kit.ports import free_port
from tests.kit.server import COMMAND, ROOT, START_SECONDS_MAX, StanServer

LIMITED = """
listen: "127.0.0.1:{port}"
authorization {{ user: u, password: p }}

streaming {{
  cluster_id: from-file
  store: FILE
  dir: {directory}
  store_limits {{
    max_channels: 2
    max_msgs: 4
    channels {{ "few.*" {{ max_msgs: 2 }} }}
  }}
}}
"""

NODE = """
port: {port}, host: 127.0.0.1
cluster {{
  name: kit
  listen: "127.0.0.1:{route}"
  include ../routes.conf
}}
NAME: $STAN_TEST_NODE
streaming: {{
  cluster_id: three
  store: FILE, dir: {directory}
  cluster: {{ node_id: $NAME, peers: ["a", "b", "c"] }}
}}
"""


class FromFile(StanServer):
    """A server whose command line names one file, and nothing else."""

    def __init__(self, directory: Path, flag: str, text: str, **values: object) -> None:
        super().__init__(directory)
        file = directory / "stan.conf"
        file.write_text(text.format(port=self.port, directory=directory / "store", **values))
        self._command = [*COMMAND, flag, str(file)]


async def sequences(client: stan_client.Client, channel: str, count: int) -> list[int]:
    """Of the first messages that a channel still has."""
    found = []
    async for message in await client.subscribe(channel, start=stan_client.everything()):
        found.append(message.sequence)
        if len(found) == count:
            return found
    return found


async def test_without_a_limit_of_connections_clients_connect(tmp_path):
    """nats-server lets nobody in then; the one inside the original did."""
    with FromFile(tmp_path, "-c", "max_connections: 0\n" + LIMITED) as server:
        client = await stan_client.connect(server.url.replace("//", "//u:p@"), client_id="me", cluster_id="from-file")
        await client.publish("more", b"")
        await client.close()


@pytest.mark.parametrize("flag", ["-sc", "-c"])
async def test_file_store_with_limits_is_made_from_one_file(tmp_path, flag):
    with FromFile(tmp_path, flag, LIMITED) as server:
        url = server.url.replace("//", "//u:p@")
        client = await stan_client.connect(url, client_id="me", cluster_id="from-file")
        for channel in ("few.x", "more"):
            for number in range(6):
                await client.publish(channel, b"%d" % number)
        with pytest.raises(stan_client.ServerError, match="too many channels"):
            await client.publish("third", b"")
        assert await sequences(client, "few.x", 2) == [5, 6]
        assert await sequences(client, "more", 4) == [3, 4, 5, 6]
        await client.close()
        server.restart()
        client = await stan_client.connect(url, client_id="me", cluster_id="from-file")
        assert await sequences(client, "few.x", 2) == [5, 6]
        await client.close()
    assert (tmp_path / "store/stan.json").exists()


async def test_three_files_make_a_cluster(tmp_path, monkeypatch):
    routes = {name: free_port() for name in "abc"}
    urls = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes.values())
    (tmp_path / "routes.conf").write_text(f"routes: [{urls}]\n")
    nodes = []
    for name, route in routes.items():
        (tmp_path / name).mkdir()
        nodes.append(FromFile(tmp_path / name, "-sc", NODE, route=route))
    try:
        for name, node in zip("abc", nodes, strict=True):
            monkeypatch.setenv("STAN_TEST_NODE", name)
            node.launch()
        for name, node in zip("abc", nodes, strict=True):
            node.wait_until_ready()
            assert f"Cluster node {name}, voters: a, b, c, groups of channels: 8" in node.log()
        async with asyncio.timeout(START_SECONDS_MAX):
            client = await stan_client.connect(nodes[0].url, client_id="me", cluster_id="three")
            await client.publish("orders", b"hello")
            await client.close()
    finally:
        for node in nodes:
            node.sweep()


def test_wrong_file_ends_the_start_with_all_that_is_wrong(tmp_path):
    file = tmp_path / "stan.conf"
    file.write_text("store: FILE\nhbf: ten\nlimits {\n  max_age: 10m\n  channels: []\n}\nfile { slice_archive: x }\n")
    result = subprocess.run([*COMMAND, "-sc", file], capture_output=True, text=True, timeout=20, cwd=ROOT, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.splitlines() == [
        f"nats-streaming-server: slice_archive ({file}:7): this version runs no archive script",
        f'nats-streaming-server: {file}:2: parameter "hbf" value is expected to be int64, got string',
        f'nats-streaming-server: {file}:4: parameter "max_age" value is expected to be string, got int64',
        f"nats-streaming-server: {file}:5: expected per channel limits to be a map/struct, got []",
        "nats-streaming-server: for FILE stores, root directory must be specified",
    ]

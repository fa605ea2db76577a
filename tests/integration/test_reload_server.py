"""A real server that is told by SIGHUP to read its file again, and by SIGUSR1 to open its log again."""

import signal

import pytest
import stan_client

from tests.integration.test_config_file import FromFile, sequences
from tests.kit.server import until

FILE = """
listen: "127.0.0.1:{port}"
max_connections: {connections}
streaming {{
  store: FILE
  dir: {directory}
  cluster_id: {cluster}
  store_limits {{ max_channels: 5, max_msgs: {msgs} }}
}}
"""


class Reloaded(FromFile):
    """A server whose file is written again while it runs."""

    def __init__(self, directory, *flags: str):
        super().__init__(directory, "-sc", FILE, **self.values())
        self._file, self._store = directory / "stan.conf", directory / "store"
        self._command += flags

    @staticmethod
    def values(**other: object) -> dict[str, object]:
        return {"connections": 100, "cluster": "reload", "msgs": 10} | other

    def write(self, **other: object) -> None:
        """Write the file with other values, and say so."""
        self._file.write_text(FILE.format(port=self.port, directory=self._store, **self.values(**other)))
        self.signal(signal.SIGHUP)

    def wait_for(self, text: str, count: int = 1) -> None:
        until(lambda: self.log().count(text) >= count, why=self.log)


@pytest.fixture
def server(tmp_path):
    with Reloaded(tmp_path) as server:
        yield server


async def test_hup_changes_limits_at_once_and_names_what_needs_a_restart(server):
    client = await stan_client.connect(server.url, client_id="me", cluster_id="reload")
    for number in range(9):
        await client.publish("few", b"%d" % number)
    server.write(msgs=3, cluster="other")
    server.wait_for("[INF] STREAM: Reloaded: max_msgs = 3 (was 10, ")
    server.wait_for("[WRN] STREAM: Needs a restart: cluster_id = other (was reload, ")
    await client.publish("few", b"last")
    assert await sequences(client, "few", 3) == [8, 9, 10]
    await client.close()


def test_hup_with_mistakes_of_either_server_changes_nothing(server, tmp_path):
    file = tmp_path / "stan.conf"
    server.write(msgs='"many"', cluster=1)
    server.wait_for(f'[ERR] STREAM: Not reloaded: {file}:7: parameter "cluster_id" value is expected to be string')
    server.wait_for(f'[ERR] STREAM: Not reloaded: {file}:8: parameter "max_msgs" value is expected to be int64')
    server.write(msgs=3, connections='"many"')
    server.wait_for(f"[ERR] STREAM: Not reloaded: {file}:3: ")
    server.write(msgs=3, connections="50\nmax_payload: 1GB")  # nats-server finds out only when it starts
    server.wait_for(f"[ERR] STREAM: Not reloaded: {file}:4: max_payload (1073741824) cannot be higher than max_pending")
    assert "Reloaded: max_msgs" not in server.log()
    server.write(msgs=3, connections=50)
    server.wait_for("Reloaded: max_msgs = 3")
    server.wait_for("Reloaded: max_connections = 50")
    assert "max_connections = 50 (" not in server.log()  # nats-server says it, not we


def test_hup_with_what_nats_server_only_warns_of_reloads(server, tmp_path):
    server.write(msgs=3, connections="50\nping_interval: 45")
    server.wait_for(f'[WRN] STREAM: {tmp_path}/stan.conf:4: invalid use of field "ping_interval"')
    server.wait_for("Reloaded: max_msgs = 3")
    server.wait_for("Reloaded: max_connections = 50")


def test_usr1_opens_the_log_again_after_it_was_moved(tmp_path):
    log = tmp_path / "stan.log"
    server = Reloaded(tmp_path, "-l", str(log))
    server.launch()
    try:
        until(lambda: log.exists() and "Streaming Server is ready" in log.read_text(), why=server.log)
        moved = log.rename(tmp_path / "stan.log.1")
        server.signal(signal.SIGUSR1)
        until(lambda: log.exists() and "File log re-opened" in log.read_text(), why=server.log)
        server.write(msgs=4)
        until(lambda: "Reloaded: max_msgs = 4" in log.read_text(), why=server.log)
        assert "Reloaded" not in moved.read_text()
        assert server.terminate() == 128 + signal.SIGTERM
    finally:
        server.sweep()

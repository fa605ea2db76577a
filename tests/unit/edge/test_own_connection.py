"""The server's own connection to NATS: to which nats-servers it may go."""

from pathlib import Path
from urllib.parse import urlparse

import pytest
from nats.aio.client import Srv

from stan.config import NatsConfig, TlsConfig
from stan.edge.nats.connection import NatsConnection


@pytest.mark.parametrize(
    ("config", "known"),
    [
        (NatsConfig(), ["127.0.0.1:2"]),
        (NatsConfig(user="u", password="p"), ["127.0.0.1:2"]),  # noqa: S106
        (NatsConfig(user="u", password="p", own=True), []),  # noqa: S106
        (NatsConfig(tls=TlsConfig(pinned=Path("server.pem"))), []),
    ],
    ids=["open to all", "a user of the file", "a user of our own", "a certificate of our own"],
)
async def test_where_only_our_nats_server_knows_us_no_other_one_is_tried(config, known, monkeypatch):
    monkeypatch.setattr("stan.edge.nats.connection.tls_context", lambda _tls: None)
    connection = NatsConnection({}, **dict.fromkeys(("on_data", "on_up", "on_down", "on_drained"), print))
    connection.options["dont_randomize"] = True
    connection._current_server = Srv(urlparse("nats://127.0.0.1:1"))
    connection.relogin(config)
    await connection._process_info({"connect_urls": ["127.0.0.1:2"]})
    assert [server.uri.netloc for server in connection._server_pool] == known

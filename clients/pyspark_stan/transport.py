"""Connections to the broker, one for each process and each way to reach it.

Spark's Python workers are reused from task to task, so a task finds the connection of the one before. A connection does not
survive a fork (its event loop runs in a thread), therefore the process belongs to the key. Nothing here is ever pickled.
"""

import os
import ssl
import threading
from typing import Any

from stan_client.blocking import BlockingClient

from pyspark_stan.options import Connection

_lock = threading.Lock()
_pool: dict[tuple[int, Connection], BlockingClient] = {}


def client_of(connection: Connection) -> BlockingClient:
    """The client of this process for *connection*; made when it is asked for first.

    Raises:
        Everything that BlockingClient raises when it cannot connect.
    """
    key = (os.getpid(), connection)
    with _lock:
        client = _pool.get(key)
        if client is None:
            client = _pool[key] = _connect(connection)
        return client


def forget(connection: Connection, client: BlockingClient) -> None:
    """Close a client that does not work any more, so that the next one who asks gets a new one."""
    key = (os.getpid(), connection)
    with _lock:
        if _pool.get(key) is client:
            del _pool[key]
    client.close()


def nats_options(connection: Connection) -> dict[str, Any]:
    """Arguments for nats-py's connect."""
    options: dict[str, Any] = {**dict(connection.nats), **dict(connection.secrets)}
    authority, certificate, key = connection.tls
    if authority or certificate:
        context = ssl.create_default_context(cafile=authority or None)
        if certificate:
            context.load_cert_chain(certificate, key)
        options["tls"] = context
    return options


def _connect(connection: Connection) -> BlockingClient:
    name = f"pyspark-{os.getpid()}"
    return BlockingClient(
        list(connection.servers),
        connection.cluster_id,
        name=name,
        timeout_s=connection.timeout_s,
        nats_options=nats_options(connection),
    )

"""Connections to the broker, one for each process and each way to reach it.

Spark's Python workers are reused from task to task, so a task finds the connection of the one before. A connection does not
survive a fork (its event loop runs in a thread), therefore the process belongs to the key. Nothing here is ever pickled.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from stan_client.blocking import BlockingClient
from stan_client.errors import ConnectionClosedError, RequestTimeoutError

from pyspark_stan.options import ConnectionOptions

T = TypeVar("T")

PASSING: Final = (RequestTimeoutError, ConnectionClosedError, OSError)
"""Errors that may be gone at the next attempt."""


class UnreachableError(ConnectionError):
    """No NATS server can be reached; the text names the servers that were tried and the reason."""


_lock = threading.Lock()
_pool: dict[tuple[int, ConnectionOptions], BlockingClient] = {}


def client_of(connection: ConnectionOptions) -> BlockingClient:
    """The client of this process for *connection*; made when it is asked for first.

    Raises:
        UnreachableError: none of the servers could be connected to.
    """
    key = (os.getpid(), connection)
    with _lock:
        client = _pool.get(key)
        if client is None:
            client = _pool[key] = _connect(connection)
        return client


def forget(connection: ConnectionOptions, client: BlockingClient) -> None:
    """Close a client that no longer works, so that the next request for a client gets a new one."""
    key = (os.getpid(), connection)
    with _lock:
        if _pool.get(key) is client:
            del _pool[key]
    client.close()


def nats_options(connection: ConnectionOptions) -> dict[str, Any]:
    """Return the options that stan_client passes on to nats-py."""
    files = zip(("tls_ca", "tls_cert", "tls_key"), connection.tls, strict=True)
    return {**dict(connection.nats), **dict(connection.secrets), **{name: file for name, file in files if file}}


def patiently(connection: ConnectionOptions, retries: int, pause_s: float, call: Callable[[BlockingClient], T]) -> T:
    """Return the result of *call*, which is repeated up to *retries* times after errors of PASSING.

    Raises:
        One of PASSING, when the last repetition fails too; any other error of *call*, at once.
    """
    while True:
        client = None
        try:
            client = client_of(connection)
            return call(client)
        except PASSING as error:
            if not retries:
                raise
            retries -= 1
            if client is not None and isinstance(error, ConnectionClosedError):
                forget(connection, client)
            time.sleep(pause_s)


def _connect(connection: ConnectionOptions) -> BlockingClient:
    try:
        return BlockingClient(
            list(connection.servers),
            connection.cluster_id,
            name=f"pyspark-{os.getpid()}",
            timeout_s=connection.timeout_s,
            nats_options=nats_options(connection),
        )
    except Exception as error:  # nats-py has many
        said = f"{type(error).__name__}: {error}"
        raise UnreachableError(f"stan: cannot connect to {', '.join(connection.servers)}: {said}") from error

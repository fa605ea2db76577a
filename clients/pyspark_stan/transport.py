"""Connections to the broker, one for each process and each way to reach it.

Spark's Python workers are reused from task to task, so a task finds the connection of the one before. A connection does not
survive a fork (its event loop runs in a thread), therefore the process belongs to the key. Nothing here is ever pickled.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from stan_client.blocking import BlockingClient
from stan_client.errors import CannotConnectError, ConnectionClosedError, RequestTimeoutError
from stan_protocol.secure import without_secrets

from pyspark_stan.errors import UnreachableError
from pyspark_stan.options import ConnectionOptions

T = TypeVar("T")

PASSING: Final = (RequestTimeoutError, ConnectionClosedError, OSError)
"""Errors that may be gone at the next attempt."""

CONNECT_PATIENCE_S: Final = 10.0
"""How long a connection is tried for while no server answers: a worker may be born while NATS restarts."""

CONNECT_PAUSE_S: Final = 0.2
"""Pause between two attempts to connect."""

REPLACED_MAX: Final = 3
"""How often one piece of work replaces a connection that was closed."""

_log: Final = logging.getLogger("pyspark_stan")


_lock = threading.Lock()
_pool: dict[tuple[int, ConnectionOptions], BlockingClient] = {}


def client_of(connection: ConnectionOptions) -> BlockingClient:
    """Return the client of this process for *connection*; made on first use.

    Raises:
        UnreachableError: no server answered within CONNECT_PATIENCE_S, or one refused the login.
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
    return {**dict(connection.nats), **dict(connection.secrets), **dict(connection.tls)}


def with_retries(connection: ConnectionOptions, retries: int, pause_s: float, call: Callable[[BlockingClient], T]) -> T:
    """Return the result of *call*, which is repeated up to *retries* times after errors of PASSING.

    Raises:
        One of PASSING, when the last repetition fails too; UnreachableError, and any other error of *call*, at once.
    """
    while True:
        client = None
        try:
            client = client_of(connection)
            return call(client)
        except UnreachableError:  # was tried for long enough
            raise
        except PASSING as error:
            if not retries:
                raise
            retries -= 1
            if client is not None and isinstance(error, ConnectionClosedError):
                forget(connection, client)
            time.sleep(pause_s)


def with_reconnect(connection: ConnectionOptions, call: Callable[[BlockingClient], T]) -> T:
    """Return the result of *call*, which is repeated with a new client if the one that it got was closed.

    Raises:
        ConnectionClosedError: REPLACED_MAX clients were closed, too. UnreachableError; any error of *call*, at once.
    """
    for _ in range(REPLACED_MAX):
        client = client_of(connection)
        try:
            return call(client)
        except ConnectionClosedError:
            forget(connection, client)
    return call(client_of(connection))


def message_bytes_max(connection: ConnectionOptions) -> int:
    """Return the largest payload in bytes that carries a message. Errors as of `with_reconnect`, and RequestTimeoutError."""
    return with_reconnect(connection, lambda client: client.message_bytes_max())


def _connect(connection: ConnectionOptions) -> BlockingClient:
    until = time.monotonic() + CONNECT_PATIENCE_S
    while True:
        try:
            return _connect_once(connection)
        except UnreachableError as error:
            cause = error.__cause__
            passing = isinstance(cause, CannotConnectError) and cause.passing
            if not passing or time.monotonic() + CONNECT_PAUSE_S > until:
                raise
            _log.info("%s; trying again", error)
        time.sleep(CONNECT_PAUSE_S)


def _connect_once(connection: ConnectionOptions) -> BlockingClient:
    try:
        return BlockingClient(
            list(connection.servers),
            cluster_id=connection.cluster_id,
            name=f"pyspark-{os.getpid()}",
            timeout_s=connection.timeout_s,
            nats_options=nats_options(connection),
            # A task makes few requests, with many rows each: uvloop takes longer to import than it spares.
            new_event_loop=asyncio.new_event_loop,
        )
    except Exception as error:  # nats-py has many
        servers, reason = without_secrets(", ".join(connection.servers)), f"{type(error).__name__}: {error}"
        if isinstance(error, ImportError):
            reason += "; creds and nkey need the package nkeys"
        raise UnreachableError(f"stan: cannot connect to {servers}: {reason}") from error

"""A connection without registration: pull messages, look at channels, store, stage and commit many messages at once.

async with Direct("nats://127.0.0.1:4222", "test-cluster") as direct:
    for name, info in (await direct.info(pattern="orders.*")).items():
        async for found in direct.read_range(name, info.first, info.last):
            print(found.messages())

Promises: no client id, no heartbeats, nothing that the servers remember of it; a lost NATS connection is made again, and what was
asked meanwhile is asked again (see stan_client.asking).
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Self

from stan_client.admin import Admin
from stan_client.asking import SILENCE_FIRST_S, Asker
from stan_client.connection import Connection, for_nats
from stan_client.errors import BadConnectionError, ConnectionClosedError
from stan_client.fetching import Fetcher, Pulling
from stan_client.inbox import Inbox
from stan_client.requests import Requesting
from stan_client.session import check_cluster_id, fresh_id

CONNECT_TIMEOUT_S: Final = 5.0
"""For each NATS server of the list, at the first connection."""


class Direct(Pulling, Requesting):
    """See the module's docstring; usable between `open` and `close`, or as `async with`."""

    def __init__(
        self,
        servers: str | list[str] = "nats://127.0.0.1:4222",
        cluster_id: str = "test-cluster",
        *,
        name: str = "",
        timeout_s: float = 30.0,
        nats_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Connect nothing yet.

        Args:
            servers: NATS URLs; a comma separated string or a list.
            cluster_id: of the streaming servers.
            name: of the connection, for NATS's monitoring.
            timeout_s: patience of every request: how long it is repeated without an answer.
            nats_options: see stan_client.connection.for_nats: user, password, token, user_credentials, nkeys_seed, tls_ca, ...

        Raises:
            InvalidNameError: impossible cluster id.
        """
        check_cluster_id(cluster_id)
        self._servers = servers.split(",") if isinstance(servers, str) else servers
        self._options = {"name": name or "stan-direct", **(nats_options or {})}
        self._link: Connection | None = None
        self._inbox: Inbox | None = None
        self._fetcher = Fetcher(self._ready, cluster_id, timeout_s)
        self._asker = Asker(self._ready, cluster_id, timeout_s)

    def __repr__(self) -> str:
        state = "closed" if self._inbox is None else "connected" if self._inbox.link.connected else "lost"
        return f"<Direct {','.join(self._servers)} {state}>"

    @property
    def admin(self) -> Admin:
        """What operators ask."""
        return Admin(self._asker)

    @property
    def max_payload(self) -> int:
        """Largest payload the NATS server takes, in bytes; 0 before it was connected."""
        return self._link.max_payload if self._link is not None else 0

    async def open(self) -> None:
        """Connect.

        Raises:
            nats.errors.Error, OSError, TimeoutError: NATS cannot be reached, as nats-py tells it.
        """
        link = Connection()
        await link.open(self._servers, for_nats(self._options), CONNECT_TIMEOUT_S)
        inbox = Inbox(link, f"_INBOX.{fresh_id()}", SILENCE_FIRST_S)
        await inbox.open()
        self._link, self._inbox = link, inbox

    async def close(self) -> None:
        """Close the connection; who still waits for an answer gets ConnectionClosedError. A second close does nothing."""
        inbox, self._inbox = self._inbox, None
        if inbox is not None and self._link is not None:
            await inbox.shut()
            await asyncio.sleep(0)  # they are told while there still is a loop
            await self._link.shut()

    async def _ready(self) -> Inbox:
        if self._inbox is None:
            raise ConnectionClosedError
        if self._inbox.link.closed:
            raise BadConnectionError("nats: connection closed")
        return self._inbox

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

"""A connection without registration: pull messages, look at channels, store, stage and commit many messages at once.

async with Direct("nats://127.0.0.1:4222") as direct:
    for name, info in (await direct.channels.info(pattern="orders.*")).items():
        async for answer in direct.batches.read_range(name, info.first, info.last):
            print(answer.messages())

Promises: no client id, no heartbeats, no state on the servers; a lost NATS connection is made again, and requests without an
answer are repeated (see stan_client.requests.requester).
"""

import asyncio
import math
from collections.abc import Mapping
from typing import Any, Final, Self

from stan_client.errors import BadConnectionError, ConnectionClosedError, RequestTimeoutError
from stan_client.reading.connected import Connected
from stan_client.requests.requester import SILENCE_FIRST_S
from stan_client.transport.connection import ClientConnection
from stan_client.transport.inbox import Inbox
from stan_client.transport.session import check_cluster_id, fresh_id

CONNECT_TIMEOUT_S: Final = 2.0
"""Time for the first connection to each NATS server of the list, as with `connect`."""
PING_TIMEOUT_S: Final = 5.0
"""Time for NATS to answer a ping."""


class Direct(Connected):
    """A client without a registration; usable between `open` and `close`, or as `async with`."""

    def __init__(
        self,
        servers: str | list[str] = "nats://127.0.0.1:4222",
        *,
        cluster_id: str = "test-cluster",
        name: str = "",
        timeout_s: float = 30.0,
        unserved_s: float = math.inf,
        nats_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a client that is not connected yet.

        Args:
            servers: NATS URLs; a comma separated string or a list.
            cluster_id: of the streaming servers.
            name: of the connection, for NATS's monitoring.
            timeout_s: patience of every request: how long it is repeated without an answer.
            unserved_s: how long it is repeated if NATS reports that no server of this cluster id listens.
            nats_options: user, password, token, user_credentials, nkeys_seed, tls_ca, ... as of transport.connection.for_nats.

        Raises:
            InvalidNameError: impossible cluster id.
        """
        check_cluster_id(cluster_id)
        super().__init__(self._ready, cluster_id, timeout_s, self._payload_max)
        self._requester.unserved_s = unserved_s
        self._cluster_id = cluster_id
        self._servers = servers.split(",") if isinstance(servers, str) else servers
        self._options = {"name": name or "stan-direct", **(nats_options or {})}
        self._link: ClientConnection | None = None
        self._inbox: Inbox | None = None

    def __repr__(self) -> str:
        state = "closed" if self._inbox is None else "connected" if self._inbox.link.connected else "lost"
        return f"<Direct {','.join(self._servers)} {state}>"

    async def open(self) -> None:
        """Connect.

        Raises:
            CannotConnectError: NATS cannot be reached. InvalidUrlError: one of the servers is no URL.
        """
        link = ClientConnection()
        await link.open(self._servers, self._options, CONNECT_TIMEOUT_S)
        inbox = Inbox(link, f"_INBOX.{fresh_id()}", SILENCE_FIRST_S)
        await inbox.open()
        self._link, self._inbox = link, inbox

    async def close(self) -> None:
        """Close the connection; calls that still wait for an answer raise ConnectionClosedError. A second close does nothing."""
        inbox, self._inbox = self._inbox, None
        if inbox is not None and self._link is not None:
            await inbox.shut()
            await asyncio.sleep(0)  # lets waiting calls end while the event loop still runs
            await self._link.shut()

    def target(self, client_id: str = "") -> dict[str, Any]:
        """The cluster, the login and *client_id*, or a fresh one, as arguments of stan_client.connect()."""
        options = {name: value for name, value in self._options.items() if name != "name"}
        known = {"servers": self._servers, "cluster_id": self._cluster_id, "nats_options": options}
        return {"client_id": client_id or f"direct-{fresh_id()}", **known}

    @property
    def certificate_until_ns(self) -> int:
        """The end of the certificate that NATS has shown, Unix ns; 0: it has shown none."""
        return self._link.certificate_until_ns if self._link is not None else 0

    async def ping(self) -> None:
        """Wait until NATS has answered a ping: a round trip without the servers. Raises ConnectionClosedError, or
        RequestTimeoutError after PING_TIMEOUT_S."""
        await self._ready()
        try:
            async with asyncio.timeout(PING_TIMEOUT_S):
                if self._link is not None:
                    await self._link.flush()
        except TimeoutError:
            raise RequestTimeoutError("nats: ping timeout") from None

    async def _ready(self) -> Inbox:
        if self._inbox is None:
            raise ConnectionClosedError
        if self._inbox.link.closed:
            raise BadConnectionError("nats: connection closed")
        return self._inbox

    def _payload_max(self) -> int:
        return self._link.max_payload if self._link is not None else 0

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

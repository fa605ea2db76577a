"""A client that can be killed: its connection to NATS ends without a word, as if its process were gone."""

import stan_client
from nats.aio.client import Client as NatsClient


class KillableClient:
    """One client of the broker. *name* is its client id."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._nats = NatsClient()

    async def connect(self, url: str, cluster_id: str) -> stan_client.Client:
        """Returns the connected client; errors as of stan_client.connect."""
        await self._nats.connect(url, allow_reconnect=False)
        self.client = await stan_client.connect(
            client_id=self.name, cluster_id=cluster_id, nats=self._nats, connect_timeout_s=20
        )
        return self.client

    def kill(self) -> None:
        """No UNSUB, and no request to close."""
        self._nats._transport.close()

    async def end(self) -> None:
        """Close it, as a client should."""
        await self.client.close()
        await self._nats.close()

"""The common base of Direct and Client: reading channels, and other requests that need no registration."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from stan_client.messages.messages import Message
from stan_client.positions import Start
from stan_client.reading.batches import Batches
from stan_client.reading.channels import Channels
from stan_client.reading.fetching import Fetcher
from stan_client.requests.bookmarks import Bookmarks
from stan_client.requests.requester import Requester
from stan_client.requests.transactions import Transactions
from stan_client.transport.inbox import Inbox

if TYPE_CHECKING:
    from stan_client.requests.admin import Admin


class Connected:
    """Base class of Direct and Client."""

    def __init__(
        self,
        ready: Callable[[], Awaitable[Inbox]],
        cluster_id: str,
        patience_s: float,
        bytes_max: Callable[[], int],
    ) -> None:
        """Make a client whose requests go over the inbox that *ready* returns.

        Args:
            ready: returns the inbox for the answers, waiting while there is none.
            cluster_id: of the servers.
            patience_s: of every request, in seconds.
            bytes_max: returns the largest payload of the NATS server, in bytes.
        """
        fetcher = Fetcher(ready, cluster_id, patience_s)
        self._requester = Requester(ready, cluster_id, patience_s)
        self._batches = Batches(self._requester, fetcher, bytes_max)
        self._channels = Channels(self._requester, fetcher)
        self._transactions = Transactions(self._requester)

    @property
    def admin(self) -> "Admin":
        """The requests of operators."""
        from stan_client.requests.admin import Admin  # noqa: PLC0415 - with all messages of operators, which few programs need

        return Admin(self._requester)

    @property
    def batches(self) -> Batches:
        """Whole batches of messages, as the servers store them: publish and read."""
        return self._batches

    @property
    def bookmarks(self) -> Bookmarks:
        """Named positions, noted for others to look at."""
        return Bookmarks(self._requester)

    @property
    def channels(self) -> Channels:
        """Channels with their first and last sequences, and the newest message of a key."""
        return self._channels

    @property
    def transactions(self) -> Transactions:
        """Rows of many channels that become visible together."""
        return self._transactions

    async def fetch(
        self,
        channel: str,
        *,
        start: Start | None = None,
        last: int = 0,
        count: int = 0,
        max_bytes: int = 0,
        from_replica: bool = False,
        timeout_s: float | None = None,
    ) -> list[Message]:
        """Return messages of a channel, as many as fit into one answer of the server; without subscription and acks.

        Args:
            channel: its name.
            start: where to begin, made by stan_client.positions; with the oldest message by default.
            last: highest sequence to return; 0: up to the end.
            count: messages at most; 0: as many as fit.
            max_bytes: of the answer; 0: 2 MiB. Never more than NATS accepts. One message comes even if it is larger.
            from_replica: ask read replicas, which spares the channel's leader but may lag.
            timeout_s: seconds that the call takes at most; None: those of the client.

        Raises:
            ServerError: refused, for example because there is no such channel. FetchTimeoutError: no answer in time.
            ConnectionClosedError: the client is closed.
        """
        answer = await self._batches.fetch(
            channel,
            start=start,
            last=last,
            count=count,
            max_bytes=max_bytes,
            from_replica=from_replica,
            timeout_s=timeout_s,
        )
        return answer.messages()

    async def read(
        self,
        channel: str,
        *,
        start: Start | None = None,
        follow: bool = False,
        requests_in_flight: int = 4,
        max_bytes: int = 0,
        from_replica: bool = False,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[Message, None]:
        """Yield all messages of a channel in order, with several requests ahead of the reader: up to the newest message at the
        beginning or, with *follow*, for ever. Messages that the server has removed are left out: their sequences are missing.

        Args:
            channel: its name.
            start: where to begin, made by stan_client.positions; with the oldest message by default.
            follow: wait for new messages at the end.
            requests_in_flight: requests ahead of the reader, >= 1.
            max_bytes: of one answer; 0: 2 MiB. Never more than NATS accepts.
            from_replica: as of fetch().
            timeout_s: of each request, in seconds; None: that of the client. Waiting for new messages does not count.

        Raises:
            ServerError, FetchTimeoutError, ConnectionClosedError: as of fetch().
            ChannelReplacedError: the channel was deleted and made again meanwhile.
        """
        batches = self._batches.read(
            channel,
            start=start,
            follow=follow,
            requests_in_flight=requests_in_flight,
            max_bytes=max_bytes,
            from_replica=from_replica,
            timeout_s=timeout_s,
        )
        async with aclosing(batches):
            async for answer in batches:
                for message in answer.messages():
                    yield message


def requester_of(client: Connected) -> Requester:
    """Return the requester of a client, for modules of this package that build on clients."""
    return client._requester  # noqa: SLF001 - clients do not show it to programs

"""The common base of Direct and Client: reading channels, requests without a registration, and administration."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from stan_client.reading.fetching import Fetcher, FetchMethods
from stan_client.requests.requester import Requester
from stan_client.requests.requests import RequestMethods
from stan_client.transport.connection import NatsLink
from stan_client.transport.inbox import Inbox

if TYPE_CHECKING:
    from stan_client.requests.admin import Admin


class Connected(FetchMethods, RequestMethods):
    """Base class of Direct and Client."""

    _link: NatsLink | None = None

    def __init__(self, ready: Callable[[], Awaitable[Inbox]], cluster_id: str, patience_s: float) -> None:
        """*ready* returns the inbox for the answers, waiting while there is none; *patience_s*: of every request, in seconds."""
        self._fetcher = Fetcher(ready, cluster_id, patience_s)
        self._requester = Requester(ready, cluster_id, patience_s)

    @property
    def admin(self) -> "Admin":
        """The requests of operators."""
        from stan_client.requests.admin import Admin  # noqa: PLC0415 - with all messages of operators, which few programs need

        return Admin(self._requester)

    @property
    def max_payload(self) -> int:
        """Largest payload that the NATS server accepts, in bytes; 0 before the first connection."""
        return self._link.max_payload if self._link is not None else 0

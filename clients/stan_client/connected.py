"""What a Direct and a Client have in common: they read channels, make requests and ask what operators ask."""

from collections.abc import Awaitable, Callable

from stan_client.admin import Admin
from stan_client.connection import NatsLink
from stan_client.fetching import Fetcher, FetchMethods
from stan_client.inbox import Inbox
from stan_client.requester import Requester
from stan_client.requests import RequestMethods


class Connected(FetchMethods, RequestMethods):
    """See the module's docstring."""

    _link: NatsLink | None = None

    def __init__(self, ready: Callable[[], Awaitable[Inbox]], cluster_id: str, patience_s: float) -> None:
        """*ready* gives the inbox that answers come to, waiting while there is none; *patience_s*: of every request."""
        self._fetcher = Fetcher(ready, cluster_id, patience_s)
        self._requester = Requester(ready, cluster_id, patience_s)

    @property
    def admin(self) -> Admin:
        """What operators ask."""
        return Admin(self._requester)

    @property
    def max_payload(self) -> int:
        """Largest payload the NATS server takes, in bytes; 0 before it was connected."""
        return self._link.max_payload if self._link is not None else 0

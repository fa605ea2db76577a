"""Lists of all channels, subscriptions and clients of the cluster, merged from the answers of all leaders, page by page.

Promises: each row comes once and in order, even if a leader changes meanwhile; lists are bounded; other tasks run while a list is
merged.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, NamedTuple

from stan_protocol.admin_types import ChannelStatus, ClientStatus, CursorStatus
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.records import MessageRecord

from stan import limits
from stan.edge.nats.cluster_client import ClusterClient
from stan.monitor.view import CooperativeYield

_PAGES: Final[dict[Any, tuple[str, str, type[MessageRecord]]]] = {
    admin.ChannelsResponse: ("admin.channels", "channels", ChannelStatus),
    admin.SubscriptionsResponse: ("admin.subscriptions", "cursors", CursorStatus),
}
"""The request for such answers, their field with the rows, and the class of a row."""


class Listing(NamedTuple):
    """A list of the cluster."""

    rows: list[Any]  # in order
    missing: set[int]  # groups whose leaders did not answer
    cut: bool = False  # there are more than DASHBOARD_LISTED_MAX rows


async def channels(cluster_client: ClusterClient, pattern: bytes = b"") -> Listing:
    """Return the `ChannelStatus` of all channels that match *pattern* (b"": all), by name. Errors as of
    `ClusterClient.ask_leaders`."""
    request = admin.ChannelsRequest(version=1, pattern=pattern)
    return await _gathered(cluster_client, request, admin.ChannelsResponse, {"after": "name"})


async def cursors(cluster_client: ClusterClient, pattern: bytes = b"") -> Listing:
    """Return the `CursorStatus` of all subscriptions, durables and queue groups of the channels that match *pattern* (b"": all),
    by channel and cursor id. Errors as of `ClusterClient.ask_leaders`."""
    request = admin.SubscriptionsRequest(version=1, pattern=pattern)
    after = {"after_channel": "channel", "after_cursor": "cursor_id"}
    return await _gathered(cluster_client, request, admin.SubscriptionsResponse, after)


async def clients(cluster_client: ClusterClient) -> Listing:
    """Return the `ClientStatus` of all registered clients, by id. Errors as of `ClusterClient.ask`."""
    request = admin.ClientsRequest(version=1)
    rows: list[Any] = []
    while True:
        answer = await cluster_client.ask("admin.clients", request, admin.ClientsResponse)
        rows += map(ClientStatus.from_pb, answer.clients)
        if not answer.more or not answer.clients or len(rows) >= limits.DASHBOARD_LISTED_MAX:
            return Listing(rows, set(), answer.more)
        request.after = answer.clients[-1].client_id


async def _gathered(cluster_client: ClusterClient, request: Any, response: Any, after: dict[str, str]) -> Listing:
    """All rows; *after*: fields of the request, by which it goes on, and of the row where a page has ended."""
    kind, field, record = _PAGES[response]
    key = attrgetter(*after.values())
    rows: list[Any] = []
    missing: set[int] = set()
    time_slice = CooperativeYield()
    while True:
        answers, unheard = await cluster_client.ask_leaders(kind, request, response)
        missing |= unheard
        more = [getattr(answer, field)[-1] for answer in answers if answer.more and getattr(answer, field)]
        last = min(more, key=key, default=None)
        end = None if last is None else key(last)
        for row in await _merged((getattr(answer, field) for answer in answers), key, end, time_slice):
            rows.append(record.from_pb(row))
            await time_slice.yield_if_due()
        if last is None or len(rows) >= limits.DASHBOARD_LISTED_MAX:
            return Listing(rows, missing, last is not None)
        for to, of in after.items():
            setattr(request, to, getattr(last, of))


async def _merged(
    parts: Iterable[Iterable[Any]], key: Callable[[Any], Any], end: Any, time_slice: CooperativeYield
) -> list[Any]:
    """Return the rows of all *parts* up to *end*, in order; of rows with the same key the last one."""
    by_key: dict[Any, Any] = {}
    for part in parts:
        for row in part:
            at = key(row)
            if end is None or at <= end:
                by_key[at] = row
            await time_slice.yield_if_due()
    return [by_key[at] for at in sorted(by_key)]

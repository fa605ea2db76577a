"""Lists of all channels, subscriptions and clients of the cluster, merged from the answers of all leaders, page by page.

Promises: each row comes once and in order, even if a leader changes meanwhile; lists are bounded; other tasks run while a list is
merged.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from stan import limits
from stan.edge.nats.cluster_client import ClusterClient
from stan.monitor.view import CooperativeYield
from stan.protocol.proto import admin_pb2 as admin


class Listing(NamedTuple):
    """A list of the cluster."""

    rows: list[Any]  # in order
    missing: set[int]  # groups whose leaders did not answer
    cut: bool = False  # there are more than DASHBOARD_LISTED_MAX rows


async def channels(cluster_client: ClusterClient, pattern: bytes = b"") -> Listing:
    """Return the `ChannelStatus` of all channels that match *pattern* (b"": all), by name. Errors as of
    `ClusterClient.ask_leaders`."""
    request = admin.ChannelsRequest(version=1, pattern=pattern)

    def go_on(last: admin.ChannelStatus) -> None:
        request.after = last.name

    return await _gathered(
        cluster_client, "admin.channels", (request, admin.ChannelsResponse), "channels", lambda row: row.name, go_on
    )


async def cursors(cluster_client: ClusterClient, pattern: bytes = b"") -> Listing:
    """Return the `CursorStatus` of all subscriptions, durables and queue groups of the channels that match *pattern* (b"": all),
    by channel and cursor id. Errors as of `ClusterClient.ask_leaders`."""
    request = admin.SubscriptionsRequest(version=1, pattern=pattern)

    def go_on(last: admin.CursorStatus) -> None:
        request.after_channel, request.after_cursor = last.channel, last.cursor_id

    return await _gathered(
        cluster_client,
        "admin.subscriptions",
        (request, admin.SubscriptionsResponse),
        "cursors",
        lambda row: (row.channel, row.cursor_id),
        go_on,
    )


async def clients(cluster_client: ClusterClient) -> Listing:
    """Return the `ClientStatus` of all registered clients, by id. Errors as of `ClusterClient.ask`."""
    request = admin.ClientsRequest(version=1)
    rows: list[Any] = []
    while True:
        answer = await cluster_client.ask("admin.clients", request, admin.ClientsResponse)
        rows += answer.clients
        if not answer.more or not answer.clients or len(rows) >= limits.DASHBOARD_LISTED_MAX:
            return Listing(rows, set(), answer.more)
        request.after = answer.clients[-1].client_id


async def _gathered(
    cluster_client: ClusterClient,
    kind: str,
    messages: tuple[Any, Any],
    field: str,
    key: Callable[[Any], Any],
    go_on: Callable[[Any], None],
) -> Listing:
    request, response = messages
    found: list[Any] = []
    missing: set[int] = set()
    time_slice = CooperativeYield()
    while True:
        answers, unheard = await cluster_client.ask_leaders(kind, request, response)
        missing |= unheard
        more = [getattr(answer, field)[-1] for answer in answers if answer.more and getattr(answer, field)]
        end = min(map(key, more)) if more else None
        found += await _merged((getattr(answer, field) for answer in answers), key, end, time_slice)
        if end is None or len(found) >= limits.DASHBOARD_LISTED_MAX:
            return Listing(found, missing, end is not None)
        go_on(min(more, key=key))


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

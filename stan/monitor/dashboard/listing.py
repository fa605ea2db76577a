"""What the whole cluster has of channels, subscriptions and clients, gathered from the answers of all leaders, page by page.

Promises: each is there once and in order, also when a leader changes meanwhile; bounded; the event loop is shared while it is
put together.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from stan import limits
from stan.edge.nats.cluster_client import ClusterClient
from stan.monitor.view import CooperativeYield
from stan.protocol.proto import admin_pb2 as admin


class Listing(NamedTuple):
    """What was found, in order; *missing*: groups without an answer; *cut*: there is more than is looked at."""

    rows: list[Any]
    missing: set[int]
    cut: bool = False


async def channels(cluster_client: ClusterClient, pattern: bytes = b"") -> Listing:
    """All channels that a pattern covers, by name, as `ChannelStatus`. Errors as of `ClusterClient.ask_leaders`."""
    request = admin.ChannelsRequest(version=1, pattern=pattern)

    def go_on(last: admin.ChannelStatus) -> None:
        request.after = last.name

    return await _gathered(
        cluster_client, "admin.channels", (request, admin.ChannelsResponse), "channels", lambda row: row.name, go_on
    )


async def cursors(cluster_client: ClusterClient, pattern: bytes = b"") -> Listing:
    """All subscriptions, durables and queue groups of the channels that a pattern covers, as `CursorStatus`."""
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
    """All registered clients, by id, as `ClientStatus`."""
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
    """The rows up to *end*, each once, in order; of two that tell of the same the later one."""
    by_key: dict[Any, Any] = {}
    for part in parts:
        for row in part:
            at = key(row)
            if end is None or at <= end:
                by_key[at] = row
            await time_slice.yield_if_due()
    return [by_key[at] for at in sorted(by_key)]

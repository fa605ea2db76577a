"""A running server of NATS Streaming, as its pages and its protocol show it: channels, positions, and their pending messages.

Only `pending` and `close_clients` change anything there: clients are closed, and the pending messages of a durable are delivered
once more, flagged, to a client that acknowledges nothing. Both are for a server that takes no publishes any more.
"""

import asyncio
import contextlib
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import stan_client
from stan_client.requests.names import raw
from stan_client.transport.connection import ClientConnection
from stan_client.transport.session import Session, SessionOptions, fresh_id
from stan_protocol.admin_types import CursorKind, CursorStatus
from stan_protocol.proto import wire_pb2 as wire

from stan.cli.support.common import CliError

PAGE_ITEMS: Final = 1000
PAGE_S: Final = 5.0
"""The patience for one page."""
CONNECT_S: Final = 5.0
OWN: Final = "stan-takeover-"
"""How the ids of the clients begin that read the old server."""
PROBE_ACK_WAIT_S: Final = 30
PROBE_S: Final = 5.0
"""Seconds of silence after which no more of what is pending is awaited."""


@dataclass(frozen=True, slots=True)
class RunningPosition:
    """A durable or durable queue group of the old server; of a group all members together."""

    channel: str
    client_id: str  # of a durable
    durable: str
    queue: str  # "": a durable
    last_sent: int
    pending: int
    max_in_flight: int
    ack_wait_s: int
    clients: tuple[str, ...]  # that are online with it

    @property
    def title(self) -> str:
        """Its name for people."""
        return f"{self.durable}:{self.queue}" if self.queue else f"{self.client_id}/{self.durable}"

    def status(self, owed: set[int]) -> CursorStatus:
        """It as a position to be restored; *owed*: the sequences that are pending."""
        return CursorStatus(
            channel=self.channel,
            kind=CursorKind.DURABLE_QUEUE if self.queue else CursorKind.DURABLE,
            durable_name=self.durable,
            queue_group=self.queue,
            client_id="" if self.queue else self.client_id,
            last_sent=self.last_sent,
            owed_runs=tuple(_runs(owed)),
            max_in_flight=self.max_in_flight,
            ack_wait_s=self.ack_wait_s,
        )


@dataclass(frozen=True, slots=True)
class RunningChannel:
    """A channel of the old server."""

    name: str
    messages: int
    bytes: int
    first: int
    last: int
    positions: tuple[RunningPosition, ...] = ()
    others: int = 0  # subscriptions that end with their clients


@dataclass(slots=True)
class OldServer:
    """The old server. *pages*: the URL of its monitoring port; *nats*: where its clients connect."""

    nats: str
    pages: str
    cluster_id: str
    nats_options: dict[str, Any] = field(default_factory=dict)

    async def facts(self) -> dict[str, Any]:
        """Its page `serverz`. Raises CliError: it does not answer, or cannot be taken over."""
        page: dict[str, Any] = await self._page("serverz")
        if page.get("cluster_id") != self.cluster_id:
            raise CliError(
                f"The server at {self.pages} has the cluster id {page.get('cluster_id')!r}, not {self.cluster_id!r} "
                "(--old-cluster-id)."
            )
        if page.get("role", "Leader") != "Leader":
            raise CliError(f"The server at {self.pages} is a {page['role']}: give the pages of the leader (--pages).")
        return page

    async def channels(self) -> dict[str, RunningChannel]:
        """Its channels by name, with their positions."""
        found: dict[str, RunningChannel] = {}
        while True:
            page = await self._page("channelsz", subs=1, offset=len(found), limit=PAGE_ITEMS)
            listed = page.get("channels") or []
            found |= {one["name"]: _channel(one) for one in listed}
            if len(listed) < PAGE_ITEMS:
                return found

    async def ends(self) -> dict[str, int]:
        """The newest sequence of each channel."""
        return {name: channel.last for name, channel in (await self.channels()).items()}

    async def _page(self, name: str, **query: int) -> Any:
        url = f"{self.pages.rstrip('/')}/streaming/{name}?{urllib.parse.urlencode(query)}"

        def read() -> Any:
            with urllib.request.urlopen(url, timeout=PAGE_S) as answer:  # noqa: S310 - http or https, as given
                return json.load(answer)

        try:
            return await asyncio.to_thread(read)
        except (OSError, ValueError, urllib.error.URLError) as error:
            raise CliError(f"The pages of the old server do not answer: {url}: {error} (--pages).") from None

    async def connect(self, client_id: str = "") -> stan_client.Client:
        """A client of it, under a fresh id if none is given."""
        return await stan_client.connect(
            self.nats,
            client_id=client_id or f"{OWN}{fresh_id()}",
            cluster_id=self.cluster_id,
            nats_options=self.nats_options,
            connect_timeout_s=CONNECT_S,
        )

    async def close_clients(self, client_ids: set[str]) -> None:
        """Close clients, so that their durables are offline."""
        link = ClientConnection()
        await link.open(self.nats, self.nats_options, CONNECT_S)
        options = SessionOptions(self.cluster_id, f"{OWN}{fresh_id()}", connect_timeout_s=CONNECT_S)
        session = Session(link, options, lambda _session, _error: None)
        try:
            await session.open()
            for client_id in sorted(client_ids):
                request = wire.CloseRequest(client_id=raw(client_id)).SerializeToString()
                await session.request(
                    session.answer.close_requests, request, stan_client.CloseRequestTimeoutError, CONNECT_S
                )
            await session.close()
        finally:
            await link.shut()

    async def pending(self, position: RunningPosition, client: stan_client.Client) -> tuple[set[int], bool]:
        """The sequences that a position has not acknowledged, as its server delivers them again to *client*, and True; False: not
        all came, so those from the first of them on count as pending."""
        owed: set[int] = set()
        if not position.pending:
            return owed, True
        complete = asyncio.Event()

        def collect(messages: list[stan_client.Message]) -> None:
            owed.update(one.sequence for one in messages if one.sequence <= position.last_sent)
            if len(owed) >= position.pending:
                complete.set()

        subscription = await client.subscribe(
            position.channel,
            collect,
            queue=position.queue,
            durable=position.durable,
            max_in_flight=max(position.max_in_flight, position.pending),
            ack_wait_s=max(position.ack_wait_s, PROBE_ACK_WAIT_S),
            manual_acks=True,
            batch=True,
        )
        before = -1
        while not complete.is_set() and len(owed) > before:
            before = len(owed)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(complete.wait(), PROBE_S)
        await subscription.close()
        if complete.is_set():
            return owed, True
        first = min(owed, default=max(1, position.last_sent - position.pending + 1))
        return set(range(first, position.last_sent + 1)), False


def _runs(sequences: set[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of *sequences*, in order."""
    for _, together in groupby(enumerate(sorted(sequences)), lambda one: one[1] - one[0]):
        run = [sequence for _, sequence in together]
        yield run[0], run[-1]


def _channel(page: dict[str, Any]) -> RunningChannel:
    members = page.get("subscriptions") or []
    durables = [one for one in members if one["is_durable"]]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in durables:
        queue = one.get("queue_name", "")
        groups.setdefault((queue, "" if queue else f"{one['client_id']}/{one['durable_name']}"), []).append(one)
    positions = tuple(_position(page["name"], queue, together) for (queue, _), together in groups.items())
    head = (page["name"], page["msgs"], page["bytes"], page["first_seq"], page["last_seq"])
    others = sum(not one["client_id"].startswith(OWN) for one in members) - len(durables)
    return RunningChannel(*head, positions, others)


def _position(channel: str, queue_name: str, members: list[dict[str, Any]]) -> RunningPosition:
    durable, _, queue = queue_name.partition(":")
    first = members[0]
    return RunningPosition(
        channel=channel,
        client_id=first["client_id"],
        durable=durable or first["durable_name"],
        queue=queue,
        last_sent=max(one["last_sent"] for one in members),
        pending=sum(one["pending_count"] for one in members),
        max_in_flight=first["max_inflight"],
        ack_wait_s=first["ack_wait"],
        clients=tuple(sorted({one["client_id"] for one in members if not one["is_offline"]})),
    )

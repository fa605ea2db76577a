"""A running server of NATS Streaming, as its pages and its protocol show it: channels, positions, and their pending messages.

Only `pending` and `close_clients` change anything there: clients are closed, and the pending messages of a durable are delivered
once more, flagged, to a client that acknowledges nothing. Both are for a server that takes no publishes any more.
"""

import asyncio
import contextlib
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import stan_client
from stan_client.errors import CannotConnectError
from stan_client.requests.names import raw
from stan_client.transport.connection import ClientConnection
from stan_client.transport.inbox import Inbox
from stan_client.transport.session import Session, SessionOptions, fresh_id
from stan_protocol.admin_types import CursorKind, CursorStatus, Limits
from stan_protocol.patterns import ChannelLimits, narrowest, width
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.secure import without_secrets

from stan.cli.support.common import EXIT_NO_ANSWER, EXIT_UNREACHABLE, CliError
from stan.migration.source import OldServerCheck

LEADS: Final = {"Leader", "STANDALONE", "FT_ACTIVE", "CLUSTERED"}
"""The role of a server of a cluster, or the state of another, that has all channels and serves clients."""
PAGE_ITEMS: Final = 1000
PAGE_S: Final = 5.0
"""The patience for one page."""
CONNECT_S: Final = 5.0
OWN: Final = "stan-takeover-"
"""How the ids of the clients begin that read the old server."""
ASK_S: Final = 1.0
"""How long an answer of the old server's is waited for."""
PROBE_ACK_WAIT_S: Final = 30
PROBE_POLL_S: Final = 0.5
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

    @property
    def owners(self) -> set[str]:
        """Clients that may be connected and have it, or could take it."""
        return {*self.clients} if self.queue else {*self.clients, self.client_id}

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
    limits: Limits | None = None  # None: not known


@dataclass(slots=True)
class OldServer:
    """The old server. *pages*: URLs of its monitoring port, of a cluster one of each node; *nats*: where its clients connect."""

    nats: str
    pages: tuple[str, ...]
    cluster_id: str
    nats_options: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    """Of its page `storez`."""
    started: str = ""
    """When the server that leads was started, or has begun to lead."""

    async def find_leader(self) -> bool:
        """Look which server leads; its pages stand first then. True: another one than before, or it was started again.

        Raises:
            CliError: none leads, or the cluster id is another one.
        """
        faults, before = [], self.started
        for pages in self.pages:
            try:
                page: dict[str, Any] = await self._page("serverz", pages)
            except CliError as error:
                faults.append(str(error))
                continue
            if page.get("cluster_id") != self.cluster_id:
                raise CliError(
                    f"The server at {pages} has the cluster id {page.get('cluster_id')!r}, not {self.cluster_id!r} "
                    "(--old-cluster-id)."
                )
            role = page.get("role") or page.get("state", "")
            if role in LEADS:
                self.pages = (pages, *(other for other in self.pages if other != pages))
                self.started = f"{page.get('server_id')} {page.get('start_time')}"
                if self.started != before:
                    self.limits = (await self._page("storez", pages)).get("limits") or {}
                return bool(before) and self.started != before
            faults.append(f"The server at {pages} is {role}: give the pages of the leader too, with a comma (--pages).")
        raise CliError("\n".join(faults))

    async def channels(self) -> dict[str, RunningChannel]:
        """Its channels by name, with their positions."""
        found: dict[str, RunningChannel] = {}
        while True:
            page = await self._page("channelsz", subs=1, offset=len(found), limit=PAGE_ITEMS)
            listed = page.get("channels") or []
            found |= {one["name"]: _channel(one, self._limits(one["name"])) for one in listed}
            if len(listed) < PAGE_ITEMS:
                return found

    def _limits(self, channel: str) -> Limits | None:
        """The limits of a channel: those of the narrowest pattern that the page has, which shows them as inherited."""
        if not self.limits:
            return None
        of_patterns = self.limits.get("channels") or {}
        resolved = {pattern: _of_page(of_patterns[pattern]) for pattern in sorted(of_patterns, key=width)}
        one = narrowest(_of_page(self.limits), resolved, channel)
        return Limits(one.msgs, one.bytes, one.age_ns, one.subscriptions, one.inactivity_ns)

    async def _page(self, name: str, pages: str = "", **query: int | str) -> Any:
        url = f"{(pages or self.pages[0]).rstrip('/')}/streaming/{name}?{urllib.parse.urlencode(query)}"
        try:
            return await asyncio.to_thread(self._read, url)
        except (OSError, ValueError, urllib.error.URLError) as error:
            raise CliError(
                f"The pages of the old server do not answer: {url}: {error}. Its option -m opens their port (--pages)."
            ) from None

    def _read(self, url: str) -> Any:
        ca = self.nats_options.get("tls_ca")
        context = ssl.create_default_context(cafile=ca) if url.startswith("https:") else None
        with urllib.request.urlopen(url, timeout=PAGE_S, context=context) as answer:  # noqa: S310 - http or https, as given
            return json.load(answer)

    async def connect(self, client_id: str = "") -> stan_client.Client:
        """A client of it, under a fresh id if none is given."""
        where = without_secrets(self.nats)
        try:
            return await stan_client.connect(
                self.nats,
                client_id=client_id or f"{OWN}{fresh_id()}",
                cluster_id=self.cluster_id,
                nats_options=self.nats_options,
                connect_timeout_s=CONNECT_S,
            )
        except stan_client.ConnectRequestTimeoutError:
            raise CliError(
                f"NATS answers at {where}, but no server of cluster {self.cluster_id!r} does (OLD, --old-cluster-id).",
                EXIT_NO_ANSWER,
            ) from None
        except stan_client.CannotConnectError as error:
            raise CliError(
                f"Cannot connect to the old server at {where}: {error.reason} (OLD with user and password or token in the URL, "
                "--old-creds, --old-tls-ca).",
                EXIT_UNREACHABLE,
            ) from None

    async def check_same(self, client: stan_client.Client) -> None:
        """Raise CliError unless the pages show *client*: two servers may have one cluster id."""
        try:
            await self._page("clientsz", client=client.client_id)
        except CliError as error:
            raise CliError(
                f"The pages at {self.pages[0]} do not show a client of {without_secrets(self.nats)}: are they of another server "
                f"(OLD, --pages)? {error}"
            ) from None

    async def close_clients(self, client_ids: set[str]) -> None:
        """Close clients, so that their durables are offline."""
        link = ClientConnection()
        await link.open(self.nats, self.nats_options, CONNECT_S)
        options = SessionOptions(self.cluster_id, f"{OWN}{fresh_id()}", connect_timeout_s=CONNECT_S)
        session = Session(link, options, lambda _session, _error: None)
        try:
            await session.open()
            await asyncio.gather(*(self._close(session, client_id) for client_id in client_ids))
            await session.close()
        finally:
            await link.shut()

    async def _close(self, session: Session, client_id: str) -> None:
        request = wire.CloseRequest(client_id=raw(client_id)).SerializeToString()
        subject = session.answer.close_requests
        await session.request(subject, request, stan_client.CloseRequestTimeoutError, CONNECT_S)

    async def pending(self, position: RunningPosition, client: stan_client.Client) -> tuple[set[int], bool]:
        """The sequences that a position has not acknowledged, as its server delivers them again to *client*, in order, and True;
        False: not all came, so those from the first of them on count as pending, or all if none came. Counts only if the same
        server leads before and afterwards."""
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
            max_in_flight=position.pending,  # so that nothing else comes
            ack_wait_s=max(position.ack_wait_s, PROBE_ACK_WAIT_S),
            manual_acks=True,
            batch=True,
        )
        silent, before = 0.0, -1
        left = position.pending
        while len(owed) < left and silent < PROBE_S:
            silent, before = (silent + PROBE_POLL_S if len(owed) == before else 0.0), len(owed)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(complete.wait(), PROBE_POLL_S)
            left = position.pending if complete.is_set() else await self._pending_now(position)
        await subscription.close()
        if len(owed) >= left:
            return owed, True
        return set(range(min(owed, default=1), position.last_sent + 1)), False

    async def _pending_now(self, position: RunningPosition) -> int:
        """How many messages are pending now: less than before if limits have removed some."""
        page = await self._page("channelsz", channel=position.channel, subs=1)
        now = (one.pending for one in _channel(page, None).positions if one.title == position.title)
        return next(now, position.pending)  # a page without it is of a server that does not lead any more


async def check_server(server: str, cluster_id: str) -> OldServerCheck:
    """Ask for a server of that cluster at that NATS, by a request that is not a client's."""
    where, link = without_secrets(server), ClientConnection()
    try:
        await link.open(server.split(","), {}, ASK_S)
    except CannotConnectError as error:
        return OldServerCheck(outcome=f"it could not be asked at {where} ({error.reason})")
    try:
        inbox = Inbox(link, f"_INBOX.{fresh_id()}", ASK_S)
        await inbox.open()
        answer = await inbox.ask(f"_STAN.discover.{cluster_id}".encode(), b"")
    finally:
        await link.shut()
    if answer is None or answer.no_responders:
        return OldServerCheck(outcome=f"no server of cluster {cluster_id} answers at {where}")
    return OldServerCheck(f"a server of cluster {cluster_id} answers at {where}")


def _runs(sequences: set[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of *sequences*, in order."""
    for _, together in groupby(enumerate(sorted(sequences)), lambda one: one[1] - one[0]):
        run = [sequence for _, sequence in together]
        yield run[0], run[-1]


def _of_page(limits: dict[str, Any]) -> ChannelLimits:
    return ChannelLimits(
        msgs=limits["max_msgs"],
        bytes=limits["max_bytes"],
        age_ns=limits["max_age"],
        subscriptions=limits["max_subscriptions"],
        inactivity_ns=limits["max_inactivity"],
    )


def _channel(page: dict[str, Any], limits: Limits | None) -> RunningChannel:
    members = page.get("subscriptions") or []
    durables = [one for one in members if one["is_durable"]]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in durables:
        queue = one.get("queue_name", "")
        groups.setdefault((queue, "" if queue else f"{one['client_id']}/{one['durable_name']}"), []).append(one)
    positions = tuple(_position(page["name"], queue, together) for (queue, _), together in groups.items())
    head = (page["name"], page["msgs"], page["bytes"], page["first_seq"], page["last_seq"])
    others = sum(not one["client_id"].startswith(OWN) for one in members) - len(durables)
    return RunningChannel(*head, positions, others, limits)


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

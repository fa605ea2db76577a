"""The log's answers to the reads of stored messages."""

from stan_protocol.scalars import SECOND, Nanos

from stan.core.base.names import shown
from stan.core.base.ready import Fetch, ReadResult, Ready
from stan.core.features import BrokerParts
from stan.core.publishing.stored_reads import StoredReads
from stan.core.services.services import Services


class FetchedMessages:
    """Hands the answers of Fetches to whoever asked: a position, or a part of a group's leader."""

    def __init__(self, services: Services, parts: BrokerParts) -> None:
        self.faults, self.leading, self.node = services.faults, services.leading, services.node
        self.parts, self.reports = parts, services.reports

    def step_fetched(self, fetch: Fetch, batches: list[ReadResult]) -> None:
        """The answer to a Fetch."""
        if not fetch.cursor_id:
            self._copied(fetch, batches)
        elif (group := self.node.groups.get(fetch.group)) is not None:
            group.dispatch.fetched(fetch, batches, self.node.clock.now)

    def step_fetch_failed(self, fetch: Fetch, why: str) -> None:
        """The log could not answer a Fetch; it is retried a second later."""
        if not fetch.cursor_id:
            self._copied(fetch, [], why)
            return
        info = self.node.meta.by_uid.get(fetch.uid)
        name = shown(info.name) if info else "?"
        self.reports.note("ERR", f"Error looking up message {name}:{fetch.runs[0][0]} ({why})")
        group = self.node.groups.get(fetch.group)
        if group is not None:
            group.dispatch.read_failed(fetch, Nanos(self.node.clock.now + SECOND))

    def from_memory(self, ready: Ready) -> None:
        """Answer the fetches of *ready* of ephemeral channels: their messages are here."""
        stores, asked = self.parts.channels.stores.by_uid, ready.fetches
        ready.fetches = [fetch for fetch in asked if fetch.uid not in stores]
        for fetch in asked:
            if fetch.uid in stores:
                found = stores[fetch.uid].read(fetch.runs, fetch.bytes_max)
                self.faults.within(fetch.group, self.step_fetched, fetch, found)

    def _copied(self, fetch: Fetch, batches: list[ReadResult], error: str = "") -> None:
        """The answer to a Fetch of stored messages that are to be copied."""
        reads = self.leading.part(fetch.group, StoredReads)
        if reads is not None:
            reads.fetched(fetch, batches, error)

"""A driver whose turns also report traced messages, and its factory where tracing is configured.

A server without tracing has a plain Driver and pays nothing.
"""

from collections.abc import Callable
from typing import Any

from stan_protocol.scalars import GroupId, RaftIndex

from stan.config import Config
from stan.core.base.ready import Proposal
from stan.edge.driver import Driver
from stan.edge.log import ServerLog
from stan.edge.tracing.export import SpanExport
from stan.edge.tracing.message_traces import MessageTraces
from stan.errors import NotNow, fault
from stan.log.types import Entry
from stan.raft.consensus import Consensus


class TracedDriver(Driver):
    """Runs as a Driver; a failure in tracing ends the tracing, not the turn. Nearly no entry has a message to trace: syncs are
    watched only while one with such a message is on its way into the log."""

    traces: MessageTraces | None = None

    def _watch(self, what: Callable[..., None], *args: Any) -> None:
        try:
            what(*args, self.runtime.wall())
        except Exception as error:  # noqa: BLE001 - the border of tracing
            self._end_tracing(error)

    def _end_tracing(self, error: Exception) -> None:
        self.traces = None
        self._note("ERR", f"Tracing is off until a restart: the program failed in it: {fault(error)}")

    def _propose(self, number: GroupId, proposals: list[Proposal], *, urgent: bool) -> NotNow | None:
        refusal = super()._propose(number, proposals, urgent=urgent)
        traces = self.traces
        if refusal is None and traces is not None:
            try:
                traces.written(number, self.groups[number].log.last_index, proposals, self.runtime.wall)
            except Exception as error:  # noqa: BLE001 - the border of tracing
                self._end_tracing(error)
        return refusal

    def _apply(self, number: GroupId, group: Consensus, entries: list[Entry]) -> None:
        traces = self.traces
        if traces is not None:
            first, last = traces.looked_at.get(number, (0, 0))
            if not (group.leads and first <= entries[0].index and entries[-1].index <= last):
                self._watch(traces.committed, number, entries)
        super()._apply(number, group, entries)

    def _sync_touched(self) -> bool:
        at_once = super()._sync_touched()
        if at_once and self.traces is not None and self.traces.writing:
            for number in self.turns.touched:
                if number in self.groups:
                    self._watch(self.traces.synced, number, self.groups[number].log.durable_index)
        return at_once

    def _synced(self, group: Consensus, durable: RaftIndex | None, why: str) -> None:
        if durable is not None and self.traces is not None and self.traces.writing:
            self._watch(self.traces.synced, group.group, durable)
        super()._synced(group, durable, why)


class ServerTracing:
    """The tracing of one server."""

    def __init__(self, config: Config, server_id: str, log: ServerLog) -> None:
        """Start to export. Raises StartError: the packages for it are missing."""
        resource = {"service.name": "stan", "service.namespace": config.cluster_id, "service.instance.id": server_id}
        self.export = SpanExport(config.tracing.endpoint, resource, log)
        self._period = config.tracing.period
        log.info(f"One in {self._period} messages is traced, to {self.export.endpoint}")

    def make_driver(self, *args: Any, **parts: Any) -> Driver:
        """Make a driver, as Driver does."""
        driver = TracedDriver(*args, **parts)
        driver.traces = MessageTraces(driver.broker.view, self._period, self.export.add)
        return driver


def tracing_of(config: Config, server_id: str, log: ServerLog) -> ServerTracing | None:
    """Return the tracing of the settings; None if they have none. Raises StartError."""
    return ServerTracing(config, server_id, log) if config.tracing.period else None


def driver_of(tracing: ServerTracing | None) -> Callable[..., Driver]:
    """Return the factory of a server's driver."""
    return Driver if tracing is None else tracing.make_driver

"""The work of the dashboard that no request asks for: it polls the cluster, and keeps the history of what it has measured."""

import asyncio
from collections.abc import Callable

from stan_protocol.admin_types import Event
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import StoreConfig
from stan.edge.nats.cluster_client import ClusterClient, subscribe_events
from stan.edge.process import BrokerProcess
from stan.monitor import health
from stan.monitor.dashboard.api import Api
from stan.monitor.dashboard.cluster_snapshot import ClusterHealth, ClusterSnapshot
from stan.monitor.dashboard.history_file import LAGS, HistoryFile, history_path
from stan.monitor.view import NodeView


def polled_by(view: NodeView, node: BrokerProcess, name: str) -> tuple[Api, ClusterSnapshot]:
    """Return what answers the pages of *node*, and the snapshot that is to be polled; *name*: the node's in its cluster, "" for a
    standalone broker."""
    config = view.config
    cluster_client = ClusterClient(node.gateway.own_requests, config.cluster_id, limits.DASHBOARD_PATIENCE / SECOND)
    judged = ClusterHealth(lambda: health.ready(view), config.store.raft_groups)
    snapshot = ClusterSnapshot(cluster_client, judged, name)
    api = Api(snapshot, config)
    subscribe_events(node.gateway, lambda event: api.events.append(Event.from_pb(event)))
    return api, snapshot


class Polling:
    """Polls the cluster, and writes the histories of figures and lags. *error*: called with a line for the log."""

    def __init__(self, snapshot: ClusterSnapshot, store: StoreConfig, error: Callable[[str], None]) -> None:
        self._snapshot = snapshot
        self._error = error
        figures = HistoryFile(history_path(store), snapshot.history.measured, error)
        lags = HistoryFile(history_path(store, LAGS), snapshot.lag_trends.history, error, limits.LAGS_SAVE_INTERVAL)
        self._files = (figures, lags)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(each) for each in (self._poll(), *(file.run() for file in self._files))]

    async def stop(self, *, save: bool) -> None:
        """End; *save*: write the histories once more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for file in self._files if save else ():
            await file.save()

    async def _poll(self) -> None:
        """Poll for ever, whatever fails: otherwise the pages would stop changing."""
        while True:
            try:
                await self._snapshot.run()
            except Exception as error:  # noqa: BLE001 - an error must end neither the broker nor the dashboard
                self._error(f"Error looking at the cluster for the dashboard: {type(error).__name__}: {error}")
                await asyncio.sleep(limits.DASHBOARD_IDLE_TICK / SECOND)

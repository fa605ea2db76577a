"""The dashboard over HTTP on a `FakeCluster`, without a broker: in a test's loop, or in a thread of its own for browsers."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator

from aiohttp import web
from stan_protocol.admin_types import Event
from stan_protocol.scalars import WallNanos

from stan.config import Config
from stan.monitor.dashboard.api import Api
from stan.monitor.dashboard.cluster_snapshot import ClusterHealth, ClusterSnapshot
from stan.monitor.dashboard.routes import Dashboard
from stan.monitor.guard import Guard
from stan.monitor.login.authentication import Authentication
from stan.monitor.login_routes import LoginRoutes
from stan.monitor.view import NodeView
from tests.kit.fake_cluster import FakeCluster

METRICS = "stan_clients 3.0\n"


@contextlib.asynccontextmanager
async def served(fake: FakeCluster, config: Config | None = None) -> AsyncIterator[str]:
    """Its address while it is served."""
    config = config or fake.config()
    view = NodeView(config, "server", None, WallNanos(0))
    guard = Guard(config.monitor, Authentication(config))
    dashboard = Dashboard(view, guard, fake.complaints.append, fake.notes.append)
    snapshot = ClusterSnapshot(
        fake.cluster_client(), ClusterHealth(list, fake.groups), fake.nodes[0], lambda: time.monotonic_ns() + fake.ahead
    )
    api = Api(snapshot, config)
    api.events.extend(map(Event.from_pb, fake.happened))
    dashboard.serve(api, snapshot)
    app = web.Application(middlewares=[guard.admit])
    LoginRoutes(guard, fake.notes.append).add_to(app)
    dashboard.add_to(app)

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(text=METRICS)

    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await dashboard.close()
        await runner.cleanup()


@contextlib.contextmanager
def served_aside(fake: FakeCluster, config: Config | None = None) -> Iterator[str]:
    """The same in a thread; what a test changes in *fake* meanwhile is seen by the next question."""
    address: list[str] = []
    there, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with served(fake, config) as url:
            address.append(url)
            there.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert there.wait(20)
        yield address[0]
    finally:
        over.set()
        thread.join()

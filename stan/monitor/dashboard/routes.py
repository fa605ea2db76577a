"""The HTTP routes of the dashboard: its files, its JSON, a stream of events, and changes if they are enabled.

Every answer has the headers `guard.HEADERS`: browsers load scripts, styles and everything else only from this server, and show
the pages in no frame.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any, Final

from aiohttp import web
from stan_protocol.scalars import SECOND

from stan import limits
from stan.edge.process import BrokerProcess
from stan.edge.standby.standby import STANDBY
from stan.monitor.dashboard.api import Api
from stan.monitor.dashboard.change_route import ChangeRoute
from stan.monitor.dashboard.cluster_snapshot import ClusterSnapshot
from stan.monitor.dashboard.failed_answers import ERRORS, failed_answer
from stan.monitor.dashboard.polling import Polling, polled_by
from stan.monitor.dashboard.search_route import SearchRoute
from stan.monitor.guard import HEADERS, TOKEN_HEADER, Guard
from stan.monitor.json_answer import encoded
from stan.monitor.json_answer import json_answer as _json
from stan.monitor.login.authentication import VIEWER
from stan.monitor.view import NodeView

PAGES: Final = "/dashboard/"
API: Final = "/api/v1/"
QUESTIONS: Final = (
    *(
        "overview",
        "history",
        "news",
        "channels",
        "durables",
        "dead_letters",
        "clients",
        "channel",
        "messages",
        "explain",
        "cluster",
        "options",
        "schemas",
        "schema",
    ),
)
"""Methods of Api that answer with JSON."""
NO_PAGE: Final = f"The dashboard has no such page: it begins at {PAGES}"
STANDS_BY: Final = "this server stands by: ask the active one of its fault tolerance group"
_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

Json = dict[str, Any]


class Dashboard:
    """The HTTP routes of the dashboard."""

    def __init__(
        self, view: NodeView, guard: Guard, error: Callable[[str], None], note: Callable[[str], None] | None = None
    ) -> None:
        """*guard* has admitted every request that comes here; *error* and *note*: called with a line for the log."""
        self._note = note or error
        self._view = view
        self._error = error
        self._guard = guard
        self._files = _load()
        self._api: Api | None = None
        self._polling: Polling | None = None
        self.streams: set[web.RequestHandler] = set()  # connections that get news
        self._shut = asyncio.Event()
        view.when_open(self._opened)

    def _opened(self, node: BrokerProcess) -> None:
        """Start to answer requests: there is a node now with a connection to the cluster."""
        api, snapshot = polled_by(self._view, node, self._name())
        self.serve(api, snapshot)

    def serve(self, api: Api, snapshot: ClusterSnapshot) -> None:
        """Answer requests with *api* from now on, and begin to poll the cluster."""
        self._api = api
        self._polling = Polling(snapshot, self._view.config.store, self._error)
        self._polling.start()

    def _name(self) -> str:
        """Return this node's name in its cluster; "" for a standalone broker."""
        node = self._view.node
        return "" if node is None or self._view.config.cluster is None else node.storage.node_id

    async def close(self) -> None:
        """Stop polling the cluster, and write the history."""
        node = self._view.node
        if self._polling is not None:  # a node that has crashed may have lost its store to another one
            await self._polling.stop(save=node is None or not node.crash.done())

    def add_to(self, app: web.Application) -> None:
        """Add the dashboard's paths to *app*."""
        app.router.add_get("/dashboard", self._to_pages)
        app.router.add_get(PAGES + "{name:.*}", self._file)
        for name in QUESTIONS:
            app.router.add_get(API + name, self._question(name))
        app.router.add_get(f"{API}payload", self._payload)
        app.router.add_get(f"{API}session", self._session)
        app.router.add_get(f"{API}live", self._live)
        SearchRoute(self._answered).add_to(app)
        ChangeRoute(self._guard, self._answered, self._note).add_to(app)
        app.router.add_route("*", API + "{path:.*}", self._nothing)
        app.on_shutdown.append(self._shutting)

    async def _shutting(self, _app: web.Application) -> None:
        self._shut.set()

    # --- files ----------------------------------------------------------------------------------------------------------

    async def _to_pages(self, _request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": PAGES, **HEADERS})

    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info["name"] or "index.html"
        if name not in self._files:
            return web.Response(status=404, text=f"{NO_PAGE}\n", headers=HEADERS)
        kind, tag, body = self._files[name]
        headers = {**HEADERS, "ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, headers={**headers, "Content-Type": f"{kind}; charset=utf-8"})

    # --- questions ------------------------------------------------------------------------------------------------------

    def _question(self, name: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            async def made(api: Api) -> web.Response:
                return _json(await api.answer(name, request.query))

            return await self._answered(request, made)

        return answer

    async def _answered(
        self, request: web.Request, make: Callable[[Api], Awaitable[web.StreamResponse]], status: int = 404
    ) -> web.StreamResponse:
        """Return the response of *make* for the viewer of *request*, or one with an error and its status; *status*: for other
        errors of the cluster."""
        if self._api is None:
            standby = self._view.ft_state == STANDBY
            return _json({"error": STANDS_BY if standby else "the store is not open yet"}, 503)
        self._api.snapshot.browsers.note()
        try:
            return await make(self._api.seen_by(request[VIEWER]))
        except ERRORS as error:
            return failed_answer(error, status)

    async def _payload(self, request: web.Request) -> web.StreamResponse:
        async def made(api: Api) -> web.Response:
            body = await api.of_messages.payload(request.query)
            kind = {"Content-Type": "application/octet-stream", "Content-Disposition": 'attachment; filename="message"'}
            return web.Response(body=body, headers={**HEADERS, **kind, "Cache-Control": "no-store"})

        return await self._answered(request, made)

    async def _session(self, request: web.Request) -> web.Response:
        """Answer with the session's settings: who looks, if the page may change anything, and the token for it."""
        viewer = request[VIEWER]
        may = viewer.acts
        config = self._view.config
        document = {"cluster": config.cluster_id, "node": self._name(), "actions": may, "header": TOKEN_HEADER}
        document |= {"user": viewer.name, "all": viewer.sees_all, "changes_all": viewer.changes_all}
        return _json({**document, "token": self._guard.token if may else ""})

    async def _nothing(self, _request: web.Request) -> web.Response:
        return _json({"error": "there is no such question"}, 404)

    # --- news -----------------------------------------------------------------------------------------------------------

    async def _live(self, request: web.Request) -> web.StreamResponse:
        """Send health and rates to a page every DASHBOARD_TICK, as server-sent events; the number of such pages is bounded."""

        async def refused(_api: Api) -> web.Response:
            return _json({"error": "enough pages listen to news already; ask instead"}, 503)

        if self._api is None or len(self.streams) >= limits.DASHBOARD_STREAMS_MAX:
            return await self._answered(request, refused)
        api = self._api.seen_by(request[VIEWER])
        self.streams.add(request.protocol)
        try:
            kind = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
            response = web.StreamResponse(headers={**HEADERS, **kind})
            await response.prepare(request)
            while not self._shut.is_set() and self._guard.authentication.is_still_known(request):
                api.snapshot.browsers.note()
                await response.write(b"data: %b\n\n" % encoded(await api.news({})))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(limits.DASHBOARD_TICK / SECOND):
                        await self._shut.wait()
        except ConnectionError:
            pass  # the browser has closed the connection
        finally:
            self.streams.discard(request.protocol)
        return response


def _load() -> dict[str, tuple[str, str, bytes]]:
    """Return the static files of the dashboard: name -> content type, ETag, content."""
    loaded = {}
    for file in files("stan.monitor.dashboard").joinpath("static").iterdir():
        kind = _TYPES.get(file.name[file.name.rfind(".") :])
        if kind is not None:
            body = file.read_bytes()
            loaded[file.name] = (kind, f'"{hashlib.sha256(body).hexdigest()[:24]}"', body)
    return loaded
